"""Mean ranks of the final winners are added to metrics, and studies start from the runs of other studies."""

import dataclasses
from itertools import product
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import torch

import understudy as us
from understudy import measures
from understudy._errors import UserError
from understudy.lab.execute import execute, plan
from understudy.lab.mean_ranks import add_mean_ranks, with_ranks
from understudy.papers.specialization.two_layer.study import TwoLayer
from understudy.report.terminal.tables import LiveDisplay
from understudy.training import SGD, Group, Training
from understudy.training.records import METRICS, RANKS, concatenate

TEACHER = us.teachers.regular((4, 3, 5, 2), seeds=[1, 2, 3])
STUDENTS = us.students.like_linear(TEACHER, multiple=3)
DATA = us.data.Gaussian(4, train=60, evaluation=200)


def small(**options):
    return TwoLayer(
        **{"seeds": 2, "teacher_nodes": (3,), "polarity": (1.0,), "multiple": (2.0,), "epochs": 2, "steps": 5}
        | {"dim": 4, "outputs": 2, "train": 40, "evaluation": 30, "device": "cpu"}
        | options
    )


def write_tables(folder, epochs=(0, 1, 3)):
    """Write the tables of a run; return the tables of each epoch, with the correlations of all pairs."""
    training = Training([Group(STUDENTS, TEACHER, DATA)], SGD(0.05, batch=8), steps=20, ranks=epochs, pairs=True)
    tables = [training.probe().tables()]
    for _ in range(3):
        training.advance()
        tables.append(training.probe().tables())
    assert ["ranks" in table for table in tables] == [epoch in epochs for epoch in range(4)]
    pq.write_table(concatenate([t["metrics"] for t in tables], METRICS), folder / "metrics.parquet")
    pq.write_table(concatenate([t["ranks"] for t in tables if "ranks" in t], RANKS), folder / "ranks.parquet")
    return tables


def test_mean_ranks_are_those_of_the_measure(tmp_path):
    tables = write_tables(tmp_path)
    before = pq.read_table(tmp_path / "metrics.parquet")
    add_mean_ranks(tmp_path)
    after = pq.read_table(tmp_path / "metrics.parquet")
    assert not (tmp_path / "ranks.parquet").exists()
    assert after.num_rows == before.num_rows + 2 * 3 * 3 * 2 and after.schema.names == before.schema.names
    of = {
        name: after.filter(pc.equal(after["metric"].cast(pa.string()), name)).to_pylist()
        for name in ("mean_rank", "median_rank")
    }
    for layer, (m, n) in enumerate(((3, 9), (5, 15))):
        rho = []
        for epoch in (0, 1, 3):
            nodes = tables[epoch]["nodes"]
            pairs = nodes.filter(
                pc.and_(pc.equal(nodes["role"].cast(pa.string()), "pair"), pc.equal(nodes["layer"], layer))
            )
            rho.append(pairs["correlation"].to_numpy().reshape(3, m, n))
        both = torch.from_numpy(np.stack(rho, axis=1)).double()
        for name, rows in of.items():
            expected = getattr(measures, name)(both)
            for net, (at, epoch) in product(range(3), enumerate((0, 1, 3))):
                found = [r["value"] for r in rows if (r["network"], r["epoch"], r["layer"]) == (net, epoch, layer)]
                assert found == pytest.approx([float(expected[net, at])])
    assert all(row["value"] == 0 for rows in of.values() for row in rows if row["epoch"] == 3)
    assert any(row["value"] > 0 for row in of["mean_rank"])


@pytest.mark.parametrize(("start", "median"), [((0, 1, 2, 4), 1.5 / 4), ((3, 0, 4), 3 / 4), ((2,), 2 / 4)])
def test_the_median_rank_is_the_middle_one_or_between_two(start, median):
    nodes = len(start)
    # The winner of every teacher node is student 0, whose rank before training is given; the others follow in order.
    first = [[rank, *(k for k in range(5) if k != rank)] for rank in start]
    rows = {"network": [0] * 2 * nodes, "epoch": [0] * nodes + [2] * nodes, "layer": [0] * 2 * nodes}
    rows |= {"teacher": list(range(nodes)) * 2, "ranks": first + [list(range(5))] * nodes}
    found = with_ranks(METRICS.empty_table(), pa.table(rows, schema=RANKS)).to_pylist()
    values = {(row["metric"], row["epoch"]): row["value"] for row in found}
    assert values == {
        ("mean_rank", 0): pytest.approx(sum(start) / nodes / 4),
        ("median_rank", 0): median,
        ("mean_rank", 2): 0.0,
        ("median_rank", 2): 0.0,
    }


def test_adding_mean_ranks_again_changes_nothing(tmp_path):
    write_tables(tmp_path)
    ranks = (tmp_path / "ranks.parquet").read_bytes()
    add_mean_ranks(tmp_path)
    once = (tmp_path / "metrics.parquet").read_bytes()
    add_mean_ranks(tmp_path)
    (tmp_path / "ranks.parquet").write_bytes(ranks)
    add_mean_ranks(tmp_path)
    assert (tmp_path / "metrics.parquet").read_bytes() == once


def test_a_run_whose_networks_all_diverged_has_no_mean_ranks(tmp_path):
    pq.write_table(METRICS.empty_table(), tmp_path / "metrics.parquet")
    pq.write_table(RANKS.empty_table(), tmp_path / "ranks.parquet")
    add_mean_ranks(tmp_path)
    assert not (tmp_path / "ranks.parquet").exists() and not pq.read_table(tmp_path / "metrics.parquet").num_rows


@dataclasses.dataclass(frozen=True)
class Later(TwoLayer):
    """A study that continues with the students of a smaller one."""

    name: ClassVar[str] = "two-layer"

    def depends_on(self):
        return (small(),)

    def experiment(self, run):
        plain = super().experiment()
        (group,) = plain.groups
        students = run.weights("epoch.2")[0]
        return dataclasses.replace(plain, groups=(dataclasses.replace(group, students=students),))


def test_a_study_starts_from_the_run_that_it_depends_on(tmp_path):
    later = Later(**(small().options() | {"epochs": 1}))
    with pytest.raises(UserError, match=r"not in .*; first understudy run two-layer --seeds 2"):
        plan(later, tmp_path)
    run = execute(later, tmp_path, LiveDisplay("later"))
    assert len(list((tmp_path / "two-layer").iterdir())) == 2
    needed = execute(small(), tmp_path, LiveDisplay("later"))  # finished already
    ended, begun = needed.weights("epoch.2")[0], run.weights("epoch.0")[0]
    for ours, theirs in zip(begun.layers, ended.layers, strict=True):
        assert torch.equal(ours.weight, theirs.weight)
    assert plan(later, tmp_path)[0].epochs == 1
