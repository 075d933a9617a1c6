"""Signs of BatchNorm shifts, of trained networks and of any network file, in a study that trains nothing itself."""

import dataclasses
import json

import numpy as np
import pytest
import torch
from torch import nn

import understudy as us
from support.commands import Said, flat, understudy
from support.kinds import KINDS, made
from support.runs import made_run
from understudy._errors import UserError
from understudy.lab.execute import execute, plan
from understudy.lab.summary import summarise
from understudy.papers.luck.bn_bias.study import BatchNormBias
from understudy.papers.specialization.cifar_teacher.study import CifarTeacher, trained_networks
from understudy.report.figures import SignedHistograms
from understudy.store import Run

SMALL = BatchNormBias(
    seeds=2,
    device="cpu",
    layers=(4, 3),
    train=100,
    evaluation=50,
    images="plain",
    batch=20,
    epochs=2,
)


def network_file(path, *shifts):
    """A state dict of an architecture that is not ours: strided convolutions with BatchNorm, with these shifts."""
    layers = []
    for shift in shifts:
        layers += [nn.LazyConv2d(len(shift), 5, stride=2, padding=2), nn.BatchNorm2d(len(shift)), nn.ReLU()]
    network = nn.Sequential(*layers, nn.Flatten(), nn.LazyLinear(3))
    network(torch.zeros(2, 3, 16, 16))
    for i, shift in enumerate(shifts):
        network[3 * i + 1].bias.data = torch.tensor(shift)
    torch.save(network.state_dict(), path)
    return path


def run_on_file(path, out, **options):
    return execute(BatchNormBias(network=str(path), device="cpu", **options), out, Said())


@pytest.fixture(scope="module")
def trained(cifar, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs")
    return execute(dataclasses.replace(SMALL, data=str(cifar)), out, Said())


# Network files


def test_shares_of_a_file_by_hand(tmp_path):
    run = run_on_file(network_file(tmp_path / "net.pt", [-1.0, 0.5, 2.0, 3.0], [-0.1, -0.2, 0.3]), tmp_path / "runs")
    assert run.series("negative_shifts", 0).tolist() == [[0.25]]
    assert run.series("negative_shifts", 1)[0, 0] == pytest.approx(2 / 3)
    assert run.nodes["shift"].to_numpy() == pytest.approx([-1.0, 0.5, 2.0, 3.0, -0.1, -0.2, 0.3])
    assert run.nodes["name"].to_pylist() == ["1.bias"] * 4 + ["4.bias"] * 3
    (claim,) = run.claims
    assert claim.measured == "43% of 7; 25% in the lower half, 67% in the upper half; most in 1 of 2 layers"
    assert (claim.part, claim.holds, claim.n) == ("net.pt", False, 1)
    headline = (run.folder / "headline.txt").read_text()
    assert headline == (
        "43% of 7 BatchNorm shifts in net.pt are negative, 67% in the top layer; they are most of the shifts in 1 of 2 "
        "layers.\n"
    )


def test_a_shift_of_zero_is_not_negative(tmp_path):
    run = run_on_file(network_file(tmp_path / "net.pt", [0.0, -0.0, 0.0]), tmp_path / "runs")
    assert run.series("negative_shifts", 0).tolist() == [[0.0]]


def test_a_file_of_several_networks_gives_one_share_per_network(tmp_path):
    networks = made(KINDS["conv-before"], 3, dtype=torch.float32)
    us.save(networks, tmp_path / "nets.safetensors")
    run = run_on_file(tmp_path / "nets.safetensors", tmp_path / "runs")
    for layer, norm in enumerate(networks.norms):
        expected = (norm.shift < 0).double().mean(1)
        assert run.series("negative_shifts", layer)[:, 0] == pytest.approx(expected.numpy())
    assert run.column("file").tolist() == ["nets.safetensors"] * 3


def test_shares_of_many_random_shifts_agree_with_their_distribution(tmp_path):
    """P(N(μ, 1) < 0) at μ = 0 and μ = 0.5, within 4 standard errors."""
    n = 4_000
    shifts = [(torch.randn(n, generator=torch.Generator().manual_seed(1)) + mean).tolist() for mean in (0.0, 0.5)]
    tensors = {}
    for i, shift in enumerate(shifts):
        parts = {"running_mean": torch.zeros(n), "running_var": torch.ones(n), "weight": torch.ones(n)}
        tensors |= {f"norms.{i}.{name}": part for name, part in (parts | {"bias": torch.tensor(shift)}).items()}
    torch.save(tensors, tmp_path / "net.pt")
    run = run_on_file(tmp_path / "net.pt", tmp_path / "runs")
    for layer, expected in enumerate((0.5, 0.30854)):
        found = run.series("negative_shifts", layer)[0, 0]
        assert abs(found - expected) < 4 * (expected * (1 - expected) / n) ** 0.5


def test_a_changed_file_gets_a_new_run(tmp_path):
    first = run_on_file(network_file(tmp_path / "net.pt", [-1.0, 1.0]), tmp_path / "runs")
    again = run_on_file(tmp_path / "net.pt", tmp_path / "runs")
    other = run_on_file(network_file(tmp_path / "net.pt", [-1.0, -1.0]), tmp_path / "runs")
    assert first.folder == again.folder != other.folder
    assert other.series("negative_shifts", 0).tolist() == [[1.0]]


def test_the_report_is_written_again_without_the_file(tmp_path):
    path = network_file(tmp_path / "net.pt", [-1.0, 1.0])
    printed = json.loads(understudy("run", "bn-bias", "--network", path.name, "--json", cwd=tmp_path).stdout)
    assert printed["claims"] == []  # a single layer has no upper half
    path.unlink()
    (tmp_path / printed["report"]).unlink()
    shown = understudy("report", printed["run"], cwd=tmp_path).stdout
    assert printed["headline"] in flat(shown) and "diverged" not in shown
    assert (tmp_path / printed["report"]).is_file()


@pytest.mark.parametrize(
    ("write", "words"),
    [
        (lambda path: None, "--network: net.pt: there is no such file"),
        (lambda path: path.mkdir(), "--network: net.pt: this is a directory"),
        (lambda path: path.write_bytes(b""), "--network: net.pt: the file is empty"),
        (lambda path: path.write_bytes(b"no network"), "--network: net.pt: "),
        (lambda path: torch.save(nn.Linear(2, 3).state_dict(), path), "--network: net.pt: no BatchNorm among"),
        (
            lambda path: torch.save(nn.BatchNorm1d(2, affine=False).state_dict(), path),
            "--network: net.pt: none of its 1 BatchNorms has an affine part",
        ),
    ],
)
def test_invalid_files_are_refused_and_nothing_is_written(tmp_path, monkeypatch, write, words):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "net.pt")
    with pytest.raises(UserError) as caught:
        run_on_file("net.pt", tmp_path / "runs")
    assert words in str(caught.value)
    assert not (tmp_path / "runs").exists()


# Trained networks


def test_it_depends_on_networks_with_batchnorm_before_the_relu():
    (need,) = BatchNormBias().depends_on()
    assert need == CifarTeacher(seeds=3, norm="before", optimiser="sgd", lr=0.002, decay=0.0)
    assert BatchNormBias(network="some.pt").depends_on() == ()
    (small,) = BatchNormBias(epochs=7, layers=(8, 9), optimiser="adam").depends_on()
    assert small == CifarTeacher(seeds=3, norm="before", epochs=7, layers=(8, 9), lr=0.002, decay=0.0)


def test_shares_agree_with_the_trained_networks(trained, cifar):
    (need,) = dataclasses.replace(SMALL, data=str(cifar)).depends_on()
    networks = trained_networks(execute(need, trained.folder.parents[1], Said()))
    assert networks.norm_first
    for layer, norm in enumerate(networks.norms):
        expected = (norm.shift < 0).double().mean(1).numpy()
        assert trained.series("negative_shifts", layer)[:, 0] == pytest.approx(expected)
    assert trained.column("seed").tolist() == [1, 2]


def test_a_report_is_written_though_nothing_was_trained(trained):
    page = (trained.folder / "report.html").read_text()
    assert 'id="table" aria-labelledby="table-title" hidden' in page
    assert "to train" not in page
    assert summarise(trained) == []
    names = {path.stem for path in (trained.folder / "figures").iterdir()}
    assert names == {"shifts", "negative-shares"}
    assert not (trained.folder / "progress").exists()


def test_a_finished_run_is_only_read(trained, cifar, monkeypatch):
    monkeypatch.setattr(BatchNormBias, "pieces", None)
    again = execute(dataclasses.replace(SMALL, data=str(cifar)), trained.folder.parents[1], Said())
    assert again.folder == trained.folder


def test_a_plan_is_refused(tmp_path):
    words = "--plan needs a study that trains; bn-bias does not"
    with pytest.raises(UserError, match=f"{words}: see understudy run cifar-teacher .*"):
        plan(SMALL, tmp_path)
    with pytest.raises(UserError, match=f"{words}$"):
        plan(BatchNormBias(network="some.pt"), tmp_path)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"batch": 1}, "--batch.*BatchNorm"),
        ({"layers": (0,)}, "--layers must be at least 1, got 0"),
        ({"epochs": 0}, "--epochs must be at least 1, got 0"),
    ],
)
def test_invalid_options_are_refused(options, words):
    with pytest.raises(UserError, match=words):
        BatchNormBias(**options)


# D10


def run_with(share):
    """A run with these shares of negative shifts [network, layer]."""
    columns = np.array(share).T[..., None]
    metrics = {("negative_shifts", layer): column for layer, column in enumerate(columns)}
    return made_run([{"seed": i + 1} for i in range(len(share))], metrics=metrics)


@pytest.mark.parametrize(
    ("share", "holds"),
    [
        (((0.4, 0.5, 0.6, 0.9), (0.4, 0.5, 0.7, 0.9)), True),
        (((0.4, 0.5, 0.3, 0.9), (0.4, 0.5, 0.8, 0.9)), True),  # decided on the mean over networks
        (((0.9, 0.9, 0.5, 0.9), (0.9, 0.9, 0.5, 0.9)), False),  # half is not most
        (((0.9, 0.9, 0.9, 0.2),), False),
    ],
)
def test_d10_requires_most_shifts_of_the_upper_two_layers_to_be_negative(share, holds):
    (claim,) = BatchNormBias().claims(run_with(share))
    assert claim.holds is holds
    assert (claim.n, claim.low) == (len(share), 0.5)
    assert claim.values == tuple(value for row in share for value in row[2:])


def test_d10_is_decided_on_trained_networks_in_the_default_settings_only():
    run = run_with(((0.4, 0.5, 0.6, 0.9),))
    for other in ({"epochs": 29}, {"train": 10_000}, {"layers": (64, 64, 64)}):
        assert BatchNormBias(**other).claims(run) == []


@pytest.mark.parametrize(
    ("shifts", "holds"),
    [
        ([[-1.0, -1.0, 1.0], [-1.0, -1.0, -1.0]], True),
        ([[1.0, 1.0, 1.0, 1.0], [-1.0, -1.0, -1.0]], False),  # most are positive
        ([[-1.0, -1.0, -1.0], [-1.0, -1.0, 1.0]], False),  # fewer are negative above
        ([[1.0, -1.0], [1.0, -1.0, -1.0], [-1.0, -1.0]], True),  # of an odd number of layers one more is above
    ],
)
def test_d10_requires_most_shifts_of_a_file_to_be_negative_and_more_in_its_upper_half(
    tmp_path, monkeypatch, shifts, holds
):
    monkeypatch.setattr("understudy.lab.execute.write_report", lambda *_: None)
    study = BatchNormBias(network=str(network_file(tmp_path / "net.pt", *shifts)), device="cpu")
    (claim,) = study.claims(execute(study, tmp_path / "runs", Said()))
    assert claim.holds is holds
    assert claim.statement.startswith("more than half of the BatchNorm shifts in net.pt are negative")
    assert claim.values == pytest.approx([np.mean(np.array(row) < 0) for row in shifts])


# The figure


def test_bars_have_an_edge_at_zero_and_count_everything():
    values = np.array([-0.31, -0.3, -1e-9, 0.0, 0.05, 0.7])
    edges, counts = SignedHistograms(("a",), (values,), "shift")._bars(0)
    assert np.abs(edges).min() == 0
    assert counts.sum() == len(values)
    assert counts[edges[:-1] < 0].sum() == 3


@pytest.mark.parametrize("values", [[], [0.0], [-1.0], [2.0, 2.0], [np.nan, 1.0]])
def test_few_values_are_drawn_too(values):
    kind = SignedHistograms(("a",), (np.array(values, dtype=float),), "shift")
    edges, counts = kind._bars(0)
    assert counts.sum() == np.isfinite(values).sum()
    assert (np.diff(edges) > 0).all()
    kind.paper()
    json.dumps(kind.page(), allow_nan=False)


def test_each_panel_title_has_the_share_below_zero():
    kind = SignedHistograms(("low", "top"), (np.array([1.0, -1.0]), np.array([-1.0, -2.0, -3.0])), "shift")
    titles = [ax.get_title() for ax in kind.paper().axes]
    assert titles == ["low: 50% negative", "top: 100% negative"]


def test_a_run_without_training_is_read_like_any_other(trained):
    assert Run(trained.folder).environment["seconds"] == 0
    assert trained.epochs.tolist() == [0]
