"""The study of matrix dynamics next to SGD: its tables, its claims, its options."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import understudy as us
from support.commands import Said
from support.runs import made_run
from understudy._errors import UserError
from understudy.lab.execute import execute
from understudy.lab.summary import summarise
from understudy.papers.luck.matrix_dynamics.claims import by_layer, claims, mean_correlation
from understudy.papers.luck.matrix_dynamics.story import story
from understudy.papers.luck.matrix_dynamics.study import PATHS, MatrixDynamics
from understudy.papers.luck.theory.matrix_dynamics import compare_velocities, matrix_gradient
from understudy.theory import gradient_flow

pytestmark = pytest.mark.usefixtures("one_thread")

SMALL = MatrixDynamics(
    seeds=3, device="cpu", hidden=("4", "3-4"), dim=4, outputs=3, batch=16, steps=40, probes=4, evaluation=100
)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return execute(SMALL, tmp_path_factory.mktemp("runs"), Said())


def network_of(run, hidden, path, seed):
    (network,) = run.select(hidden=hidden, path=path, seed=seed).index
    return int(network)


def test_networks_are_numbered_in_order(run):
    assert run.column("network").tolist() == list(range(2 * 2 * 3))
    assert len({(row["hidden"], row["path"], row["seed"]) for row in run.networks.to_pylist()}) == 12


def test_both_paths_start_with_the_same_student_on_the_same_inputs(run):
    for hidden in SMALL.hidden:
        for seed in (1, 2, 3):
            ours, theirs = (run.series("eval_loss")[network_of(run, hidden, path, seed)] for path in PATHS)
            assert ours[0] == theirs[0]
            assert (ours[1:] != theirs[1:]).all()


@pytest.mark.parametrize("path", PATHS)
def test_the_tables_agree_with_the_dynamics(run, path):
    teacher = us.teachers.distinct_rows((4, 3, 4, 3), seeds=[3], bias_spread=0.5, dtype=torch.float64)
    student = us.students.like_linear(teacher, multiple=2)
    source = us.data.Gaussian(4, 1.0, train=1600, evaluation=100, fresh=True)
    along = {"eqn 6": matrix_gradient, "SGD": gradient_flow.velocity}[path]
    *_, last = gradient_flow.descent(teacher, student, gradient_flow.batches(source, [3], 16, 40), 0.05, along)
    x = source.evaluating(3, dtype=torch.float64)
    network = network_of(run, "3-4", path, 3)
    assert run.series("eval_loss")[network, -1] == pytest.approx((teacher(x) - last(x)).square().mean().item())
    for layer, found in enumerate(compare_velocities(teacher, last, x)):
        assert run.series("cosine", layer)[network, -1] == pytest.approx(found.cosine.item())
        assert run.series("distance", layer)[network, -1] == pytest.approx(found.distance.item(), abs=1e-9)
    rho = us.measures.correlation(teacher.activations(x).hidden[1], last.activations(x).hidden[1])
    assert run.series("rho_mean", 1)[network, -1] == pytest.approx(rho.amax(2).mean().item())
    assert run.matched("teacher", "student", 1, 40)[network].tolist()[:4] == rho[0].argmax(1).tolist()


def test_metrics_are_labelled_by_teacher_path_seed_and_layer(run):
    cosine, distance, eqn_4 = (by_layer(run, metric) for metric in ("cosine", "distance", "eqn_4"))
    assert dict(cosine.sizes) == {"hidden": 2, "path": 2, "seed": 3, "layer": 3, "epoch": 5}
    assert cosine["layer"].to_numpy().tolist() == ["layer 1", "layer 2", "outputs"]
    assert cosine.sel(hidden="4", layer="layer 2").isnull().all()
    assert distance.sel(layer="outputs").max() < 1e-10
    network, place = network_of(run, "3-4", "SGD", 2), {"hidden": "3-4", "path": "SGD", "seed": 2}
    np.testing.assert_array_equal(cosine.sel(place | {"layer": "outputs"}), run.series("cosine", 2)[network])
    np.testing.assert_array_equal(eqn_4.sel(place | {"layer": "layer 2"}), run.series("eqn_4", 1)[network])
    rho = (run.series("rho_mean", 0)[network] + run.series("rho_mean", 1)[network]) / 2
    np.testing.assert_allclose(mean_correlation(run).sel(place), rho)
    assert next(setting.parameters for setting in summarise(run))["path"] == "eqn 6"


def test_claims_are_decided_on_the_default_settings_only(run):
    assert claims(SMALL, run) == []


def decided(cosine=0.5, top=1e-14, end=0.1, hidden=("20",), diverged=(), last=0.02):
    """Claims on two seeds, two probes and one hidden layer, by their part.

    Per teacher the networks are eqn 6 with seeds 1 and 2, then SGD with seeds 1 and 2. Of the first teacher's, network
    1 has the distance `top` at the outputs and ends at the loss `end`, network 2 ends with `cosine`, and those in
    `diverged` recorded the first probe only. Losses fall from 1 to `last`.
    """
    networks = [{"hidden": h, "path": path, "seed": seed} for h in hidden for path in PATHS for seed in (1, 2)]
    constant = {("rho_mean", 0): 0.8, ("cosine", 0): 0.9, ("cosine", 1): 0.9, ("distance", 0): 0.7}
    metrics = {key: np.full((len(networks), 2), value) for key, value in (constant | {("distance", 1): 1e-15}).items()}
    metrics["eval_loss"] = np.tile([1.0, last], (len(networks), 1))
    metrics["cosine", 0][2, 1], metrics["distance", 1][1, 0], metrics["eval_loss"][1, 1] = cosine, top, end
    for network in diverged:
        networks[network]["diverged_at"] = 10
        for values in metrics.values():
            values[network, 1] = np.nan
    return {claim.part: claim for claim in claims(MatrixDynamics(), made_run(networks, (0, 10), metrics))}


def test_all_parts_hold_where_every_value_is_within_its_bound():
    found = decided(hidden=("20", "15"))
    assert set(found) == {"top layer", "direction, 20", "loss, 20", "direction, 15", "loss, 15"}
    assert all(claim.holds for claim in found.values())
    assert found["top layer"].n == 4


@pytest.mark.parametrize(
    ("change", "part"),
    [({"top": 1e-9}, "top layer"), ({"cosine": -0.1}, "direction, 20"), ({"end": 2.0}, "loss, 20")],
    ids=["top", "cosine", "loss"],
)
def test_one_probe_of_one_seed_is_enough_for_a_part_not_to_hold(change, part):
    assert [name for name, claim in decided(**change).items() if not claim.holds] == [part]


def test_the_direction_counts_while_the_loss_is_above_a_hundredth_of_its_start():
    for last, holds in ((0.0101, False), (0.01, True)):
        claim = decided(cosine=-0.1, last=last)["direction, 20"]
        assert claim.holds is holds
        assert claim.values == pytest.approx((0.9 if holds else -0.1, 0.9))
        assert {variant.where: variant.holds for variant in claim.variants} == {
            "along eq. 6, with a loss above 1%": True,
            "along eq. 6, with a loss of any size": True,
            "along SGD, with a loss above 1%": holds,
            "along SGD, with a loss of any size": False,
        }


def test_deeper_teachers_have_their_own_rates():
    study = MatrixDynamics(hidden=("20", "15-20", "10-15-20", "5-5-5-5"))
    assert [study.rate(hidden) for hidden in study.hidden] == [0.05, 0.05, 0.01, 0.01]
    assert MatrixDynamics(lr=(0.1,)).rate("10-15-20") == 0.1
    config = MatrixDynamics().config()
    config["options"]["lr"] = 0.05  # as earlier versions wrote it
    assert MatrixDynamics.from_config(config).lr == (0.05,)


def test_a_seed_that_diverged_does_not_end_lower():
    found = decided(diverged=[1])
    assert {part: claim.holds for part, claim in found.items()} == {
        "top layer": True,
        "direction, 20": True,
        "loss, 20": False,
    }
    assert found["loss, 20"].measured.startswith("in 1 of 2, 1 diverged;")
    assert found["loss, 20"].n == 2


def test_what_a_network_recorded_before_it_diverged_counts():
    assert not decided(top=1e-9, diverged=[1])["top layer"].holds
    found = decided(cosine=-0.1, diverged=[0])
    assert [claim.holds for claim in found.values()] == [True, False, False]
    assert "above 0 in 6 of 7" in found["direction, 20"].measured


def test_networks_that_diverge_are_marked_and_reported(tmp_path):
    fast = replace(SMALL, lr=(50.0,), seeds=1, hidden=("4",))
    run = execute(fast, tmp_path, Said())
    assert run.networks["diverged_at"].null_count == 0
    assert story(fast, run).headline.endswith("choose a smaller --lr than 50. 2 of 2 networks diverged.")


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ({"probes": 7}, "--probes must divide the number of steps (5,000), got 7"),
        ({"hidden": ()}, "--hidden needs at least one value"),
        ({"hidden": ("20", "20")}, "--hidden takes each value once, got 20 20"),
        ({"hidden": ("15,20",)}, "--hidden must be numbers of nodes joined by -, such as 15-20, got 15,20"),
        ({"hidden": ("0",)}, "--hidden must be numbers of nodes joined by -, such as 15-20, got 0"),
        ({"lr": (0.05, 0.0)}, "--lr must be above 0, got 0"),
        ({"lr": ()}, "--lr needs at least one value"),
        ({"multiple": 1.01}, "choose a multiple that gives whole numbers"),
    ],
)
def test_invalid_options_are_refused(option, words):
    with pytest.raises(UserError) as error:
        MatrixDynamics(**option)
    assert words in str(error.value)
