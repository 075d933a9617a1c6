"""The study `recovery`: how networks are chosen, what is decided, and what a changed run would decide."""

import dataclasses

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.commands import Said
from understudy import UserError
from understudy.lab.execute import execute
from understudy.papers.equivalence.recovery.claims import claims, recoveries
from understudy.papers.equivalence.recovery.study import RARE, USUAL, Recovery
from understudy.papers.equivalence.recovery.trials import draw, smallest_share
from understudy.papers.equivalence.theory.domain import as_box
from understudy.papers.equivalence.theory.relu_network import ReluNetwork, random_network
from understudy.store import Run


@pytest.fixture(scope="module")
def study():
    return Recovery(seeds=25, architecture=("6-3-1",), rare=0, least=1e-3)


@pytest.fixture(scope="module")
def run(study, tmp_path_factory):
    return execute(study, tmp_path_factory.mktemp("runs"), Said())


def test_networks_are_recovered(study, run):
    usual = recoveries(run, USUAL, "6-3-1")
    assert len(usual) == 25
    assert usual["recovered"].all()
    assert usual["error"].max() < 1e-9
    assert (usual["share"] >= 1e-3).all()
    assert not len(recoveries(run, RARE))
    (decided,) = claims(study, run)
    assert decided.part == "no wrong answer"
    assert decided.holds


def changed(run, folder, **columns):
    """Copy of a run in which columns of its table are replaced by functions of their values."""
    for path in run.folder.iterdir():
        if path.is_file():
            (folder / path.name).write_bytes(path.read_bytes())
    table = run.table("recoveries").to_pandas()
    for name, by in columns.items():
        table[name] = by(table[name].to_numpy().copy())
    pq.write_table(pa.Table.from_pandas(table, preserve_index=False), folder / "recoveries.parquet")
    return Run(folder)


def replace_first(count, value):
    def by(values):
        values[:count] = value
        return values

    return by


def test_a_wrong_answer_is_noticed(study, run, tmp_path):
    (decided,) = claims(study, changed(run, tmp_path, error=replace_first(1, 1e-3)))
    assert not decided.holds
    assert "1 of them wrong" in decided.measured


@pytest.mark.parametrize(("wrong", "holds"), [(1, True), (2, False)])
def test_at_least_95_percent_must_be_recovered(study, run, tmp_path, wrong, holds):
    made = changed(run, tmp_path, error=replace_first(wrong, np.nan), sizes=replace_first(None, "20-10-1"))
    decided = claims(dataclasses.replace(study, architecture=("20-10-1",)), made)[0]
    assert decided.part == "20-10-1"
    assert decided.holds is holds


def test_networks_are_chosen_by_the_smaller_side_of_their_folds():
    box = as_box(None, 1)
    quarter = ReluNetwork((np.ones((1, 1)), np.ones((1, 1))), (np.array([-1.0]), np.zeros(1)))
    assert smallest_share(quarter, box) == pytest.approx(0.25, abs=0.01)
    never = ReluNetwork((np.ones((1, 1)), np.ones((1, 1))), (np.array([3.0]), np.zeros(1)))
    assert smallest_share(never, box) == 0
    drawn, others = draw((4, 3, 2, 1), 0.05, 1.0, 3)
    assert len(drawn) == 3
    assert drawn[-1].seed == 3 + others
    for each in drawn:
        assert smallest_share(random_network((4, 3, 2, 1), each.seed), as_box(None, 4)) == each.share >= 0.05


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"architecture": ("20-1",)}, "--architecture must be numbers of units"),
        ({"architecture": ("20-x-1",)}, "--architecture must be numbers of units"),
        ({"least": 0.6}, "--least must be below 0.5"),
        ({"most_evaluations": 100}, "--most-evaluations must be at least 3,800 for 20-10-1"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(UserError, match=message):
        Recovery(**options)
