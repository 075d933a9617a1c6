"""The study folds: its tables, its claims, and how students' folds are compared with a teacher's."""

import dataclasses

import numpy as np
import pandas as pd
import pytest

from support.changed_runs import with_units
from support.commands import Said
from understudy import UserError
from understudy.lab.execute import execute
from understudy.papers.equivalence.fold_sets import Folds
from understudy.papers.equivalence.folds.claims import claims, windows
from understudy.papers.equivalence.folds.students import distances, share_on_teacher
from understudy.papers.equivalence.folds.study import FoldStudy
from understudy.papers.equivalence.folds.trials import grid_patterns, measure_window, transparent_seeds
from understudy.papers.equivalence.theory.relu_network import ReluNetwork, random_network
from understudy.papers.equivalence.theory.subdivision import subdivide

SMALL = {"grid": 60, "lines": 5, "width": (4,), "students": 2, "epochs": 3, "steps": 10}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    study = FoldStudy(seeds=200, hidden=("3-2",), **SMALL)
    return execute(study, tmp_path_factory.mktemp("runs"), Said())


def test_every_claim_holds_on_200_networks(run):
    study = FoldStudy(seeds=200, hidden=("3-2",), **SMALL)
    decided = claims(study, run)
    assert [claim.part for claim in decided] == [
        "affine maps",
        "tiling",
        "counts",
        "lemma 2.1",
        "lemma 2.2",
        "lemma 2.3, as printed",
        "lemma 2.3, where folds bend",
    ]
    assert all(claim.holds for claim in decided)
    assert {claim.n for claim in decided} == {200}
    assert not claims(FoldStudy(seeds=199), run)


@pytest.mark.parametrize(
    ("column", "value", "part"),
    [
        ("map_error", 1e-9, "affine maps"),
        ("area_error", 1e-11, "tiling"),
        ("undecided", 1, "tiling"),
        ("linear_programming", 999, "counts"),
        ("grid_strange", 1, "counts"),
        ("grid_wrong", 1, "counts"),
        ("smallest_jump", 1e-12, "lemma 2.1"),
        ("order", 3, "lemma 2.2"),
        ("left_over", 1, "lemma 2.2"),
        ("mixed", 1, "lemma 2.3, as printed and lemma 2.3, where folds bend"),
        ("excluded", 1, "lemma 2.3, where folds bend"),
        ("excluded_straight", 1, "lemma 2.3, as printed"),
    ],
)
def test_one_wrong_network_refutes_a_claim(run, tmp_path, column, value, part):
    def change(values):
        return np.where(np.arange(len(values)) == 7, value, values)

    changed = with_units(run, tmp_path, "windows", column, change)
    decided = claims(FoldStudy(seeds=200, hidden=("3-2",), **SMALL), changed)
    assert " and ".join(claim.part for claim in decided if not claim.holds) == part


def test_tables(run):
    found = windows(run)
    assert len(found) == 200
    assert found["seed"].is_monotonic_increasing
    assert not found["seed"].duplicated().any()
    trained = run.select(part="training")
    assert trained.array("loss", "seed epoch").shape == (2, 4)
    assert np.isfinite(trained.array("on_teacher", "seed epoch")).all()
    assert [len(run.weights(epoch)[0]) for epoch in range(4)] == [2] * 4
    first, *later = (run.weights(epoch)[0].layers[0].weight for epoch in range(4))
    assert all((weight != first).any() for weight in later)
    assert len(run.table("slices")) == 3


def test_seeds_are_those_of_transparent_networks():
    seeds = transparent_seeds((2, 3, 2, 1), 10)
    transparent = [subdivide(random_network((2, 3, 2, 1), seed)).is_transparent for seed in range(1, seeds[-1] + 1)]
    assert np.flatnonzero(transparent).tolist() == [seed - 1 for seed in seeds]


def test_a_window_by_hand():
    network = ReluNetwork((np.eye(2), np.ones((1, 2)), np.ones((1, 1))), (np.zeros(2), np.ones(1), np.zeros(1)))
    found = measure_window(subdivide(network), 50)
    assert (found["cells"], found["edges"], found["linear_programming"], found["order"]) == (4, 4, 4, 1)
    assert found["smallest_jump"] == pytest.approx(1.0)
    # Two lines that may belong to layer 1 or 2, and hence no layer that is identified.
    assert (found["pieces"], found["identified"], found["excluded"]) == (2, 0, 0)


def test_grids_find_wrong_cells():
    found = subdivide(random_network((2, 6, 4, 1), 1))
    assert grid_patterns(found, 100) == (0, 0)
    other = dataclasses.replace(subdivide(random_network((2, 6, 4, 1), 2)), network=found.network)
    strange, wrong = grid_patterns(other, 100)
    assert strange > 0
    assert wrong > 0
    moved = dataclasses.replace(found, points=found.points + 0.05)
    assert grid_patterns(moved, 100)[1] > 100


def test_folds_on_a_teacher():
    def line(offset, *more):
        weight = np.array([[1.0, 0.0], *([[0.0, 1.0]] * len(more))])
        return Folds(
            subdivide(ReluNetwork((weight, np.ones((1, len(weight)))), (np.array([offset, *more]), np.zeros(1))))
        )

    assert share_on_teacher(line(0.0), line(0.04)) == 1
    assert share_on_teacher(line(0.0), line(0.06)) == 0
    assert share_on_teacher(line(0.0), line(0.0, 0.0)) == pytest.approx(0.5, abs=0.02)
    assert share_on_teacher(line(0.0), line(9.0)) == 0
    points, segments = np.array([[0.0, 1.0], [3.0, 0.0], [0.5, 0.0]]), np.array([[[-1.0, 0.0], [1.0, 0.0]]])
    assert distances(points, segments) == pytest.approx([1, 2, 0])


@pytest.mark.parametrize("hidden", ["", "6-", "6-0", "six", "6,4", "-4"])
def test_hidden_layers_are_numbers(hidden):
    with pytest.raises(UserError, match=r"--hidden must be numbers.*such as 6-4"):
        FoldStudy(hidden=(hidden,))


def test_story_of_a_run(run):
    story = FoldStudy(seeds=200, hidden=("3-2",), **SMALL).story(run)
    assert "200 random networks" in story.headline
    names = [figure.name for figure in story.figures]
    assert names == ["layers", "film", "greedy", "dependencies", "training", "regions"]
    assert isinstance(windows(run), pd.DataFrame)
