"""The study of S2's matrix dynamics beside SGD: its tables, its claims, its options."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import understudy as us
from support.commands import Said
from understudy.errors import UserError
from understudy.lab.execute import execute
from understudy.lab.summary import summary
from understudy.papers.luck.matrix_dynamics.claims import Depth, claims, depths
from understudy.papers.luck.matrix_dynamics.story import story
from understudy.papers.luck.matrix_dynamics.study import PATHS, MatrixDynamics
from understudy.papers.luck.theory.matrix_dynamics import compare_velocities, matrix_gradient
from understudy.store import Claim
from understudy.theory import gradient_flow

pytestmark = pytest.mark.usefixtures("one_thread")

SMALL = MatrixDynamics(
    seeds=3, device="cpu", hidden=("4", "3-4"), dim=4, outputs=3, batch=16, steps=40, looks=4, evaluation=100
)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return execute(SMALL, tmp_path_factory.mktemp("runs"), Said())


def of(run, hidden, way, seed):
    rows = (run.column("hidden") == hidden) & (run.column("path") == way) & (run.column("seed") == seed)
    return int(np.flatnonzero(rows)[0])


def test_networks_stand_in_their_order(run):
    assert run.column("network").tolist() == list(range(2 * 2 * 3))
    assert len({(row["hidden"], row["path"], row["seed"]) for row in run.networks.to_pylist()}) == 12


def test_both_ways_begin_with_the_same_student_on_the_same_inputs(run):
    for hidden in SMALL.hidden:
        for seed in (1, 2, 3):
            ours, theirs = (run.series("eval_loss")[of(run, hidden, way, seed)] for way in PATHS)
            assert ours[0] == theirs[0]
            assert (ours[1:] != theirs[1:]).all()


@pytest.mark.parametrize("way", PATHS)
def test_the_tables_are_those_of_the_dynamics_themselves(run, way):
    teacher = us.teachers.separated((4, 3, 4, 3), seeds=[3], bias_spread=0.5, dtype=torch.float64)
    student = us.students.like_linear(teacher, multiple=2)
    source = us.data.Gaussian(4, 1.0, train=1600, evaluation=100, fresh=True)
    along = {"eqn 6": matrix_gradient, "SGD": gradient_flow.velocity}[way]
    *_, last = gradient_flow.descent(teacher, student, gradient_flow.batches(source, [3], 16, 40), 0.05, along)
    x = source.evaluating(3, dtype=torch.float64)
    network = of(run, "3-4", way, 3)
    assert run.series("eval_loss")[network, -1] == pytest.approx((teacher(x) - last(x)).square().mean().item())
    for layer, found in enumerate(compare_velocities(teacher, last, x)):
        assert run.series("cosine", layer)[network, -1] == pytest.approx(found.cosine.item())
        assert run.series("distance", layer)[network, -1] == pytest.approx(found.distance.item(), abs=1e-9)
    rho = us.measures.correlation(teacher.activations(x).hidden[1], last.activations(x).hidden[1])
    assert run.series("rho_mean", 1)[network, -1] == pytest.approx(rho.amax(2).mean().item())
    assert run.matched("teacher", "student", 1, 40)[network].tolist()[:4] == rho[0].argmax(1).tolist()


def test_what_was_found_is_laid_out_by_path_and_seed(run):
    two, three = depths(SMALL, run)
    assert two.loss.shape == (2, 3, 5)
    assert three.cosine.shape == (2, 3, 3, 5)
    assert three.eqn.shape == (2, 3, 2, 5, 2)
    network = of(run, "3-4", "SGD", 2)
    np.testing.assert_array_equal(three.loss[1, 1], run.series("eval_loss")[network])
    np.testing.assert_array_equal(three.eqn[1, 1, 1, :, 0], run.series("eqn_4", 1)[network])
    assert two.distance[:, :, -1].max() < 1e-10
    assert next(setting.parameters for setting in summary(run))["path"] == "eqn 6"


def test_claims_are_decided_on_the_settings_as_they_are_alone(run):
    assert claims(SMALL, run) == []


def decided(monkeypatch, *found: Depth) -> list[Claim]:
    monkeypatch.setattr("understudy.papers.luck.matrix_dynamics.claims.depths", lambda *_: list(found))
    return claims(MatrixDynamics(), None)


def depth(cosine=0.5, top=1e-14, end=0.1, hidden="20") -> Depth:
    """Two seeds, two looks, one hidden layer; one cosine, one distance at the top, one loss at the end are given."""
    cosines, distances = np.full((2, 2, 2, 2), 0.9), np.full((2, 2, 2, 2), 0.7)
    cosines[1, 0, 0, 1], distances[:, :, 1] = cosine, 1e-15
    distances[0, 1, 1, 0] = top
    loss = np.ones((2, 2, 2))
    loss[..., 1] = 0.01
    loss[0, 1, 1] = end
    return Depth(hidden, loss, np.full((2, 2, 1, 2), 0.8), cosines, distances, np.full((2, 2, 1, 2, 2), 0.4))


def test_all_parts_hold_where_all_is_well(monkeypatch):
    found = decided(monkeypatch, depth(), depth(hidden="15-20"))
    assert [claim.part for claim in found] == [
        "top layer",
        "direction, 20",
        "loss, 20",
        "direction, 15-20",
        "loss, 15-20",
    ]
    assert all(claim.holds for claim in found)
    assert found[0].n == 4


@pytest.mark.parametrize(
    ("change", "part"),
    [({"top": 1e-9}, "top layer"), ({"cosine": -0.1}, "direction, 20"), ({"end": 2.0}, "loss, 20")],
    ids=["top", "cosine", "loss"],
)
def test_one_look_of_one_seed_is_enough_for_a_part_not_to_hold(monkeypatch, change, part):
    assert [claim.part for claim in decided(monkeypatch, depth(**change)) if not claim.holds] == [part]


def test_a_seed_that_diverged_does_not_end_lower(monkeypatch):
    top, direction, loss = decided(monkeypatch, depth(end=np.nan))
    assert (top.holds, direction.holds, loss.holds) == (True, True, False)
    assert loss.measured.startswith("in 1 of 2, 1 diverged;")
    assert loss.n == 2


def test_what_was_seen_before_a_network_diverged_counts(monkeypatch):
    lost = depth(cosine=-0.1)
    lost.cosine[0, 0, :, 1] = np.nan
    assert [claim.holds for claim in decided(monkeypatch, lost)] == [True, False, True]


def test_networks_that_diverge_are_marked_and_told_of(tmp_path):
    fast = replace(SMALL, lr=50.0, seeds=1, hidden=("4",))
    run = execute(fast, tmp_path, Said())
    assert run.networks["diverged_at"].null_count == 0
    assert story(fast, run).headline.endswith("choose a smaller --lr than 50. 2 of 2 networks diverged.")


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ({"looks": 7}, "--looks: 7 was given; allowed is a number that divides the 5,000 steps"),
        ({"hidden": ()}, "--hidden: name one teacher or more"),
        ({"hidden": ("20", "20")}, "--hidden: name one teacher or more, each once"),
        ({"hidden": ("15,20",)}, "--hidden: 15,20 was given; allowed are numbers of nodes with - between"),
        ({"hidden": ("0",)}, "--hidden: 0 was given"),
        ({"lr": 0.0}, "--lr: 0.0 was given; allowed is a number above 0"),
        ({"multiple": 1.01}, "choose a multiple that gives whole numbers"),
    ],
)
def test_options_that_cannot_be_are_refused_in_words(option, words):
    with pytest.raises(UserError) as error:
        MatrixDynamics(**option)
    assert words in str(error.value)
