"""The study of pruned and joined students: what it trains, what its tables hold, and how its claims are decided."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from support.commands import Said
from understudy.errors import UserError
from understudy.lab.execute import execute
from understudy.papers.specialization.prune_and_connect.claims import APART, COST, TIMES, Cell, cells, claims
from understudy.papers.specialization.prune_and_connect.study import PruneAndConnect
from understudy.papers.specialization.second_draw.study import SecondDraw
from understudy.papers.specialization.two_layer.study import TwoLayer
from understudy.store import Run
from understudy.theory.unexplained import unexplained

SMALL = PruneAndConnect(
    seeds=2, teacher_nodes=3, dim=8, outputs=4, multiple=(4.0,), epochs=6, evaluation=400, train=400, lr=0.02, points=5
)
CELLS = "understudy.papers.specialization.prune_and_connect.claims.cells"


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Run:
    return execute(SMALL, tmp_path_factory.mktemp("runs"), Said())


def needed(made: Run, study: type) -> Run:
    (folder,) = (made.folder.parents[1] / study.name).iterdir()
    return Run(folder)


def test_the_second_students_differ_in_their_first_weights_alone(made):
    first, second = (needed(made, study) for study in (TwoLayer, SecondDraw))
    (teacher,), (same,) = first.weights("teacher"), second.weights("teacher")
    assert torch.equal(teacher.layers[0].weight, same.layers[0].weight)
    (a,), (b,) = first.weights("epoch.0"), second.weights("epoch.0")
    assert torch.equal(a.seeds, b.seeds)
    assert not (a.layers[0].weight == b.layers[0].weight).any()
    assert float(b.layers[0].weight.std()) == pytest.approx(0.005, rel=0.1)


def test_the_tables_hold_what_the_functions_give(made):
    (teacher,), ended = (
        needed(made, TwoLayer).weights("teacher"),
        [needed(made, study).weights("epoch.6")[0] for study in (TwoLayer, SecondDraw)],
    )
    assert made.column("seed").tolist() == [1, 1, 2, 2]
    assert made.column("draw").tolist() == [1, 2, 1, 2]
    (cell,) = cells(SMALL, made)
    source = TwoLayer(dim=8, train=400, evaluation=400).source()
    for seed in (1, 2):
        x = source.evaluating(seed, dtype=torch.float64)
        for draw in (0, 1):
            whole = float(unexplained(teacher[seed - 1], ended[draw][seed - 1], x))
            assert cell.losses[0, draw, seed - 1] == pytest.approx(whole)
            path = cell.path[seed - 1]
            assert path[-draw] == pytest.approx(whole)
    segments = made.series("segments")[:, list(made.epochs).index(6)]
    assert [len(path) for path in cell.path] == [4 * int(s) + 1 for s in segments[[0, 2]]]
    assert [len(line) for line in cell.line] == [len(path) for path in cell.path]
    kept = made.nodes.filter(made.nodes["kept"])
    assert cell.kept.sum() == kept.num_rows
    assert min(kept["correlation"].to_pylist()) >= 0.8
    assert made.nodes.num_rows == 4 * 12


def test_small_settings_decide_nothing(made):
    assert made.claims == []
    assert (made.folder / "headline.txt").read_text(encoding="utf-8").startswith("At 4× the median loss is ")


def cell(multiple: float = 5.0, cost: float = 1e-5, times: float = 0.5, apart: float = 1e3) -> Cell:
    """Two pairs, of which the second is as given."""
    before = np.full((2, 2), 1e-6)
    after, refitted = before + 1e-6, before / 2
    after[1, 1], refitted[1, 1] = before[1, 1] + cost, times * before[1, 1]
    path = np.array([1e-6, 1e-4, 1e-6])
    line = tuple(np.array([1e-6, 1e-4 * ratio, 1e-6]) for ratio in (1e3, apart))
    losses = np.stack((before, after, refitted))
    return Cell(1.0, multiple, np.arange(4).reshape(2, 2), losses, before, (path, path), line)


@pytest.mark.parametrize(
    ("given", "held"),
    [
        ({}, (True, True, True)),
        ({"cost": 1.01 * COST}, (False, True, True)),
        ({"times": 1.01 * TIMES}, (True, False, True)),
        ({"apart": 0.99 * APART}, (True, True, False)),
    ],
    ids=["all", "cost", "refitted", "path"],
)
def test_each_claim_needs_every_network(monkeypatch, given, held):
    monkeypatch.setattr(
        CELLS,
        lambda study, run: [cell(**given), cell(10.0)],
    )
    decided = claims(PruneAndConnect(), None)
    assert [claim.id for claim in decided] == ["Y4"] * 4 + ["Y5"] * 2
    by_part = {claim.part: claim for claim in decided}
    assert tuple(by_part[part].holds for part in ("cost, 5×", "refitted, 5×", "5×")) == held
    assert all(by_part[part].holds for part in ("cost, 10×", "refitted, 10×", "10×"))
    assert [claim.n for claim in decided] == [4, 4, 4, 4, 2, 2]


def test_claims_are_decided_in_the_papers_settings_alone(monkeypatch):
    monkeypatch.setattr(CELLS, lambda study, run: [cell(), cell(3.0)])
    assert len(claims(PruneAndConnect(), None)) == 3
    for other in (PruneAndConnect(epochs=50), PruneAndConnect(below=0.7), PruneAndConnect(teacher_nodes=10)):
        assert claims(other, None) == []


def test_pairs_of_which_one_diverged_are_left_out(made):
    lost = replace(SMALL, seeds=1)
    tables = lost._pair(0, {"multiple": 4.0, "polarity": 1.0, "seed": 1}, None, [])
    assert tables["networks"]["diverged_at"].to_pylist() == [6, 6]
    assert tables["networks"]["left_out"].to_pylist() == ["one of the two diverged"] * 2
    assert tables["metrics"].num_rows == tables["nodes"].num_rows == 0
    assert {name: table.schema for name, table in tables.items()} == {
        name: getattr(made, name).schema for name in ("networks", "metrics", "nodes")
    }


def test_pairs_that_are_left_out_count_as_failing_and_are_told(monkeypatch):
    few, none = cell()._replace(left_out=("too dull",)), np.zeros((2, 0))
    empty = Cell(
        1.0, 10.0, none, np.zeros((3, 2, 0)), none, (), (), ("too dull", "too dull", "one of the two diverged")
    )
    monkeypatch.setattr(CELLS, lambda study, run: [few, empty])
    decided = claims(PruneAndConnect(), None)
    assert not any(claim.holds for claim in decided)
    assert [claim.n for claim in decided] == [6, 6, 6, 6, 3, 3]
    for claim in decided:
        told = "3 of 3 pairs" if "10×" in claim.part else "1 of 3 pairs"
        assert f"{told} left out, which counts as failing: too dull" in claim.measured
        assert ("median" in claim.measured) == ("10×" not in claim.part)


def test_why_a_pair_was_left_out_stands_in_the_table(made):
    assert made.networks["left_out"].to_pylist() == [None] * 4
    run = execute(replace(SMALL, below=1.0), made.folder.parents[1], Said())
    reasons = run.networks["left_out"].to_pylist()
    assert len(reasons) == 4 and all("no node of the first network correlates" in why for why in reasons)
    (found,) = cells(replace(SMALL, below=1.0), run)
    assert found.path == () and found.left_out == (reasons[0], reasons[2])
    assert (run.folder / "headline.txt").read_text(encoding="utf-8").startswith("No two students learned enough")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"multiple": (1.0,)}, "--multiple: 1.0 was given"),
        ({"below": 1.5}, "--below: 1.5 was given; allowed is a number from 0 to 1"),
        ({"points": 1}, "--points: 1 was given; allowed is a whole number from 2"),
    ],
)
def test_options_that_cannot_be_are_refused(options, words):
    with pytest.raises(UserError, match=words):
        PruneAndConnect(**options)


def test_it_shares_the_students_of_the_lottery():
    from understudy.papers.luck.lottery.study import LotteryTickets

    assert PruneAndConnect().needs()[0] == LotteryTickets().needs()[0]
