"""The study of flat minima: its tables agree with the Hessian, and its claims with its tables."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import understudy as us
from support.commands import Said
from support.runs import made_run
from understudy._errors import UserError
from understudy.lab.execute import execute
from understudy.papers.luck.flat_minima.claims import by_teacher, by_width, claims
from understudy.papers.luck.flat_minima.story import story
from understudy.papers.luck.flat_minima.study import FLAT, FlatMinima

SMALL = FlatMinima(
    seeds=2,
    device="cpu",
    teacher_nodes=(2, 6),
    multiple=(1.0, 3.0),
    dim=3,
    outputs=2,
    epochs=4,
    steps=200,
    train=300,
    evaluation=80,
)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return execute(SMALL, tmp_path_factory.mktemp("runs"), Said())


def test_networks_are_every_width_of_the_first_teacher_and_the_widest_of_the_others(run):
    rows = [(r["seed"], r["teacher_nodes"], r["student_nodes"]) for r in run.networks.to_pylist()]
    assert rows == [(seed, m, n) for seed in (1, 2) for m, n in ((2, 2), (2, 6), (6, 6))]


def test_spectra_and_curvatures_are_those_of_the_hessian_of_the_trained_student(run):
    teacher, x = SMALL.teacher(2, 2), SMALL.source().evaluating(2, dtype=torch.float32).double()
    schedule = ((1 + round(0.8 * 4), 0.3), (1 + round(0.95 * 4), 0.1))
    trained = us.train(
        us.students.like_linear(teacher, multiple=3),
        teacher,
        SMALL.source(),
        us.SGD(lr=0.05, batch=16, schedule=schedule),
        epochs=4,
        steps=200,
    )
    student, exact = trained.students.to(dtype=torch.float64), teacher.to(dtype=torch.float64)
    matrix = us.measures.hessian(student, x, exact(x)[0])[0]
    values = torch.linalg.eigvalsh(matrix).flip(0).numpy()
    (network,) = run.select(seed=2, teacher_nodes=2, student_nodes=6).index
    rows = run.table("spectra")
    mine = rows.filter((rows["network"].to_numpy() == network) & (rows["epoch"].to_numpy() == 4))
    np.testing.assert_allclose(mine["value"].to_numpy(), values, atol=1e-9)
    assert run.series("flat_share")[network, -1] == np.mean(np.abs(values) < FLAT * values[0])
    assert run.series("hessian_eigenvalue_1")[network, -1] == pytest.approx(values[0], rel=1e-6)
    # Curvature along the incoming weights of a node: E[g'² v·v] summed over inputs and the bias.
    hidden = student.activations(x).hidden[0][0]
    fans = us.measures.fan_out(student)[0].square()
    expected = fans * ((hidden > 0).double() * (x.square().sum(1, keepdim=True) + 1)).mean(0)
    rho = us.measures.correlation(exact.activations(x).hidden[0], hidden.unsqueeze(0))[0].amax(0)
    active = (hidden > 0).double().mean(0)
    seen = (active >= 0.02) & (active <= 0.98)
    for name, which in (("matched", rho > 0.95), ("others", (rho < 0.8) & seen), ("all_others", rho < 0.8)):
        found = run.series(f"curvature_{name}")[network, -1]
        assert np.isnan(found) if not which.any() else found == pytest.approx(expected[which].mean().item())
    assert (rho > 0.95).any() or (rho < 0.8).any()


def test_the_report_names_every_width(run):
    told = story(SMALL, run)
    assert [figure.name for figure in told.figures] == ["spectra", "largest", "losses"]
    assert "(3×)" in told.headline and "(6 teacher nodes)" in told.headline


def test_networks_that_diverge_have_no_spectrum(tmp_path):
    fast = replace(SMALL, lr=1e9, seeds=1, teacher_nodes=(2,), multiple=(1.0,))
    run = execute(fast, tmp_path, Said())
    assert run.networks["diverged_at"].null_count == 0 and not run.table("spectra").num_rows
    assert story(fast, run).headline.startswith("All 1 networks diverged")


def decided(shares=(0.1, 0.3, 0.5, 0.7), sharp=(1.0, 2.0, 3.0), ratio=0.05, loss=1e-6):
    """Claims on ten seeds, by their part: shares by width and 0.4, 0.2 for larger teachers; `sharp` by teacher."""
    study = FlatMinima()
    names = ("flat_share", "hessian_eigenvalue_1", "curvature_others", "eval_loss")
    networks, found = [], {name: [] for name in names}
    for seed in range(1, 11):
        share, top = iter((*shares, 0.4, 0.2)), iter((1.0, 1.0, 1.0, *sharp))
        for m, n in study.groups:
            networks.append({"seed": seed, "teacher_nodes": m, "student_nodes": n})
            for name, value in zip(found, (next(share), next(top), ratio, loss), strict=True):
                found[name].append([value, value])
    ones = np.ones((len(networks), 2))
    metrics = found | {"curvature_matched": ones, "curvature_all_others": ones, "others": 5 * ones, "unseen": ones}
    return {claim.part: claim for claim in claims(study, made_run(networks, (0, 20), metrics))}


def test_all_parts_hold_where_every_value_is_as_claimed():
    found = decided()
    assert len(found) == 6 and all(claim.holds for claim in found.values())
    flat = found["irrelevant nodes, 10×"]
    assert flat.measured == "0.050 (seeds 0.050), 4 such students"
    (everyone,) = flat.variants
    assert everyone.holds is False and everyone.measured == "1.000 (seeds 1.000), 5 such students"


@pytest.mark.parametrize(
    ("change", "failing"),
    [
        ({"shares": (0.1, 0.3, 0.3, 0.7)}, ["width"]),
        ({"shares": (0.1, 0.2, 0.3, 0.45)}, ["most directions"]),
        ({"sharp": (1.0, 3.0, 2.0)}, ["teacher size, largest eigenvalue"]),
        ({"shares": (0.1, 0.2, 0.25, 0.3)}, ["most directions", "teacher size, flat directions"]),
        ({"ratio": 0.2}, ["irrelevant nodes, 5×", "irrelevant nodes, 10×"]),
    ],
)
def test_parts_do_not_hold_where_one_value_is_not(change, failing):
    assert [part for part, claim in decided(**change).items() if not claim.holds] == failing


def test_a_rise_that_may_be_noise_does_not_count(monkeypatch):
    def noisy(study, run, metric):
        found = by_width(study, run, metric)
        return found + 0.5 * (found["multiple"] == 2) * (-1.0) ** found["seed"] if metric == "flat_share" else found

    monkeypatch.setattr("understudy.papers.luck.flat_minima.claims.by_width", noisy)
    width = decided()["width"]
    assert width.holds is False
    assert "required: more than 2" in width.measured


def test_nothing_is_decided_on_students_that_are_not_trained():
    assert {claim.holds for claim in decided(loss=1e-3).values()} == {None}


def test_arrays_are_labelled_by_width_and_by_teacher(run):
    assert by_width(SMALL, run, "flat_share")["multiple"].to_numpy().tolist() == [1.0, 3.0]
    assert by_teacher(SMALL, run, "flat_share")["teacher_nodes"].to_numpy().tolist() == [2, 6]
    assert claims(SMALL, run) == []


def test_a_width_that_is_no_whole_number_of_nodes_is_refused():
    with pytest.raises(UserError, match=r"--multiple 1\.5 × 5 teacher nodes"):
        FlatMinima(multiple=(1.5,))
