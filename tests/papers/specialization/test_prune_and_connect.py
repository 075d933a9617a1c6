"""The studies `prune-and-connect` and `second-draw`: what they compute, what is decided (Y4, Y5) and reported."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
import torch

from support.commands import Said
from support.runs import made_run
from understudy._errors import UserError
from understudy.lab.execute import execute
from understudy.papers.specialization.prune_and_connect.claims import APART, COST, TIMES, cells
from understudy.papers.specialization.prune_and_connect.study import PruneAndConnect
from understudy.papers.specialization.second_draw.study import SecondDraw
from understudy.papers.specialization.two_layer.study import TwoLayer
from understudy.store import Run
from understudy.theory.unexplained import unexplained

SMALL = PruneAndConnect(
    seeds=2, teacher_nodes=3, dim=8, outputs=4, multiple=(4.0,), epochs=6, evaluation=400, train=400, lr=0.02, points=5
)
FULL = PruneAndConnect(seeds=2)
TABLES = ("networks", "metrics", "nodes", "pairs")


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Run:
    return execute(SMALL, tmp_path_factory.mktemp("runs"), Said())


def dependency(trained: Run, study: type) -> Run:
    """The run of a study from which this one started."""
    (folder,) = (trained.folder.parents[1] / study.name).iterdir()
    return Run(folder)


# What is trained and computed


def test_the_second_students_differ_only_in_their_initial_weights(trained):
    first, second = (dependency(trained, study) for study in (TwoLayer, SecondDraw))
    (teacher,), (same,) = first.weights("teacher"), second.weights("teacher")
    assert torch.equal(teacher.layers[0].weight, same.layers[0].weight)
    (a,), (b,) = first.weights("epoch.0"), second.weights("epoch.0")
    assert torch.equal(a.seeds, b.seeds)
    assert not (a.layers[0].weight == b.layers[0].weight).any()
    assert float(b.layers[0].weight.std()) == pytest.approx(0.005, rel=0.1)


def test_the_second_students_are_reported(trained):
    run = dependency(trained, SecondDraw)
    headline = (run.folder / "headline.txt").read_text(encoding="utf-8")
    assert headline.startswith("Students from other initial weights end at a median loss of ")
    assert {path.stem for path in (run.folder / "figures").glob("*.pdf")} == {"loss-curves", "recovered"}


def test_second_students_that_all_diverged(tmp_path):
    study = replace(SMALL.depends_on()[1], lr=1e6)
    run = execute(study, tmp_path, Said())
    assert study.story(run).headline.startswith("All 2 networks diverged, the first at step ")


def test_networks_are_students_and_pairs_are_rows_of_their_own_table(trained):
    assert trained.column("seed").tolist() == [1, 1, 2, 2]
    assert trained.column("draw").tolist() == [1, 2, 1, 2]
    assert trained.metric_names == {
        *("before", "after", "refitted", "kept", "unaligned_share", "modulation", "weight-norm")
    }
    pairs = trained.table("pairs")
    assert pairs["seed"].to_pylist() == [1, 2]
    assert pairs["left_out"].to_pylist() == [None, None]


def test_the_tables_contain_what_the_functions_return(trained):
    (teacher,) = dependency(trained, TwoLayer).weights("teacher")
    ended = [dependency(trained, study).weights("epoch.6")[0] for study in (TwoLayer, SecondDraw)]
    (cell,) = cells(trained)
    assert cell.network.tolist() == [0, 2]
    source = TwoLayer(dim=8, train=400, evaluation=400).source()
    for seed in (1, 2):
        x = source.evaluating(seed, dtype=torch.float64)
        for draw in (0, 1):
            whole = float(unexplained(teacher[seed - 1], ended[draw][seed - 1], x))
            assert cell.losses[0, draw, seed - 1] == pytest.approx(whole)
            path = cell.path[seed - 1]
            assert path[-draw] == pytest.approx(whole)
    segments = trained.table("pairs")["segments"].to_pylist()
    assert [len(path) for path in cell.path] == [4 * count + 1 for count in segments]
    assert [len(line) for line in cell.line] == [len(path) for path in cell.path]
    kept = trained.nodes.filter(trained.nodes["kept"])
    assert cell.kept.sum() == kept.num_rows
    assert min(kept["correlation"].to_pylist()) >= 0.8
    assert trained.nodes.num_rows == 4 * 12


def test_it_shares_the_students_of_the_lottery():
    from understudy.papers.luck.lottery.study import LotteryTickets

    assert PruneAndConnect().depends_on()[0] == LotteryTickets().depends_on()[0]


def test_pairs_of_which_one_diverged_are_left_out(trained):
    tables = replace(SMALL, seeds=1)._pair({"multiple": 4.0, "polarity": 1.0, "seed": 1}, None, [], 0)
    assert tables["networks"]["diverged_at"].to_pylist() == [6, 6]
    assert tables["pairs"]["left_out"].to_pylist() == ["one of the two diverged"]
    assert tables["metrics"].num_rows == tables["nodes"].num_rows == 0
    assert {name: table.schema for name, table in tables.items()} == {
        name: trained.table(name).schema for name in TABLES
    }


def test_the_table_of_pairs_states_why_a_pair_was_left_out(trained):
    study = replace(SMALL, below=1.0)
    run = execute(study, trained.folder.parents[1], Said())
    reasons = run.table("pairs")["left_out"].to_pylist()
    assert len(reasons) == 2 and all("no node of the first network correlates" in why for why in reasons)
    (found,) = cells(run)
    assert found.path == () and found.left_out == tuple(reasons)
    assert (run.folder / "headline.txt").read_text(encoding="utf-8").startswith("No two students learned enough")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"multiple": (1.0,)}, "--multiple must be above 1, got 1"),
        ({"below": 1.5}, "--below must be at least 0 and at most 1, got 1.5"),
        ({"points": 1}, "--points must be at least 2, got 1"),
    ],
)
def test_invalid_options_are_refused(options, words):
    with pytest.raises(UserError) as error:
        PruneAndConnect(**options)
    assert str(error.value) == words


# Claims Y4 and Y5


def pairs_run(*given, left_out=(), older=False):
    """Two pairs of each cell, of which the second is as given, and more that are left out for the given reasons.

    An older run has values of pairs in the rows of networks and metrics instead of a table of pairs.
    """
    networks, pairs, metrics = [], [], {name: [] for name in ("before", "after", "refitted", "kept", "segments")}
    curves = {"path_loss": [], "line_loss": []}
    for cell in given:
        cell = {"multiple": 5.0, "cost": 1e-6, "times": 0.5, "apart": 1e3, "measured": 2} | cell
        reasons = [None] * cell["measured"] + list(left_out)
        for seed, why in enumerate(reasons, 1):
            parameters = {"multiple": cell["multiple"], "polarity": 1.0, "seed": seed}
            odd = seed == 2
            ratio = cell["apart"] if odd else 1e3
            path, line = [1e-6, 1e-4, 1e-6], [1e-6, 1e-4 * ratio, 1e-6]
            pairs.append(parameters | {"path_loss": None if why else path, "line_loss": None if why else line})
            pairs[-1] |= {"segments": None if why else 1, "left_out": why}
            for draw in (1, 2):
                networks.append(parameters | {"draw": draw})
                last = odd and draw == 2
                before, cost, times = 1e-6, cell["cost"] if last else 1e-6, cell["times"] if last else 0.5
                row = {"before": before, "after": before + cost, "refitted": times * before, "kept": 7.0}
                row |= {"segments": 1.0 if draw == 1 else np.nan}
                for name, value in row.items():
                    metrics[name].append([np.nan, np.nan, np.nan, np.nan if why else value])
                for name, losses in (("path_loss", path), ("line_loss", line)):
                    curves[name].append([np.nan] * 4 if why or draw == 2 else [*losses, np.nan])
    if older:
        return made_run(networks, (0, 1, 2, 100), metrics | curves)
    del metrics["segments"]
    return made_run(networks, (0, 1, 2, 100), metrics, pairs=pa.Table.from_pylist(pairs))


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
def test_each_claim_requires_every_network(given, held):
    decided = FULL.claims(pairs_run(given, {"multiple": 10.0}))
    assert [claim.id for claim in decided] == ["Y4"] * 4 + ["Y5"] * 2
    by_part = {claim.part: claim for claim in decided}
    assert tuple(by_part[part].holds for part in ("cost, 5×", "refitted, 5×", "5×")) == held
    assert all(by_part[part].holds for part in ("cost, 10×", "refitted, 10×", "10×"))
    assert [claim.n for claim in decided] == [4, 4, 4, 4, 2, 2]


def test_claims_state_what_was_measured():
    cost, refitted, path = FULL.claims(pairs_run({"cost": 3e-5, "times": 1.5, "apart": 5e3}))
    assert cost.measured == "median 1.0×10⁻⁶, largest 3.0×10⁻⁵; 93.0 of 100 nodes are removed on average"
    assert cost.values == pytest.approx((1e-6, 1e-6, 1e-6, 3e-5))
    assert (refitted.measured, refitted.high) == ("median 0.50, largest 1.50", 2.0)
    assert path.measured.startswith("median 3,000, least 1,000; median largest losses 1.0×10⁻⁴ and 0.30 of the output")
    assert path.values == pytest.approx((1e3, 5e3))


def test_claims_are_decided_only_in_the_settings_of_the_paper():
    run = pairs_run({}, {"multiple": 3.0})
    assert len(FULL.claims(run)) == 3
    for other in ({"epochs": 50}, {"below": 0.7}, {"teacher_nodes": 10}):
        assert replace(FULL, **other).claims(run) == []


def test_pairs_that_are_left_out_count_as_failing_and_are_reported():
    run = pairs_run({}, {"multiple": 10.0, "measured": 0}, left_out=("too dull", "too dull", "one of the two diverged"))
    decided = FULL.claims(run)
    assert not any(claim.holds for claim in decided)
    assert [claim.n for claim in decided] == [10, 6, 10, 6, 5, 3]
    for claim in decided:
        counts = "3 of 3 pairs" if "10×" in claim.part else "3 of 5 pairs"
        assert f"{counts} left out, which counts as failing: too dull" in claim.measured
        assert ("median" in claim.measured) == ("10×" not in claim.part)
    headline = replace(FULL, seeds=5).story(run).headline
    assert headline.startswith("At 5× the median loss is 1.0×10⁻⁶ of the output variance, 2.0×10⁻⁶ without nodes")
    assert headline.endswith(" 6 of 8 pairs are left out: too dull.")


def test_runs_without_a_table_of_pairs_are_still_read():
    given = {"cost": 3e-5, "apart": 50.0}, {"multiple": 10.0}
    older, newer = (pairs_run(*given, left_out=("too dull",), older=older) for older in (True, False))
    for old, new in zip(cells(older), cells(newer), strict=True):
        assert (old.polarity, old.multiple) == (new.polarity, new.multiple)
        for name in ("network", "losses", "kept", "path", "line"):
            np.testing.assert_array_equal(getattr(old, name), getattr(new, name))
        assert old.left_out == ("the run does not record why",) and new.left_out == ("too dull",)
    for old, new in zip(FULL.claims(older), FULL.claims(newer), strict=True):
        assert (old.part, old.holds, old.n, old.values) == (new.part, new.holds, new.n, new.values)


def test_p2_allows_noise_in_favour_of_the_weight_norm():
    def decided(ratio, spread, signs=(-1, -1, 1, 1)):
        run = pairs_run({})
        names = {"multiple": 5.0, "polarity": 1.0}
        rows = [names | {"seed": seed, "draw": draw} for seed in (1, 2) for draw in (1, 2)]
        norm = 0.01 * 10 ** (ratio + spread * np.array(signs))
        metrics = {"before": np.full(4, 1e-6), "modulation": np.full(4, 0.01), "weight-norm": norm}
        metrics |= {"after": np.full(4, 2e-6), "refitted": np.full(4, 1e-6), "kept": np.full(4, 7.0)}
        metrics = {name: values[:, None] for name, values in metrics.items()}
        run = made_run(rows, (100,), metrics, pairs=run.table("pairs"))
        (claim,) = [claim for claim in FULL.claims(run) if claim.id == "P2"]
        return claim

    assert decided(0.0, 0.001).holds and decided(0.1, 0.1).holds
    assert not decided(-0.01, 0.001).holds and decided(-0.01, 0.01).holds
    # What differs between the students of one teacher is no noise between teachers.
    assert not decided(-0.01, 0.1, signs=(-1, 1, -1, 1)).holds
    assert decided(0.1, 0.0).values == pytest.approx((0.1,) * 2)
    assert decided(0.1, 0.0).part == "two layers, 5×"


# Report


def test_small_settings_decide_nothing(trained):
    assert trained.claims == []
    assert (trained.folder / "headline.txt").read_text(encoding="utf-8").startswith("At 4× the median loss is ")


def test_paths_are_shown_with_their_median_over_pairs(trained):
    figures = {figure.name: figure.kind for figure in SMALL.story(trained).figures}
    assert list(figures) == ["path", "ratios", "pruned"]
    (cell,) = cells(trained)
    (panel,) = figures["path"].panels
    assert (panel.title, figures["path"].note) == ("4×", "n = 2 pairs")
    path, line = panel.series
    assert (path.label, line.label) == ("path", "straight line")
    assert path.y[0] == pytest.approx(np.median([each[0] for each in cell.path]))
    assert line.y[-1] == pytest.approx(np.median([each[-1] for each in cell.line]))
    np.testing.assert_allclose(figures["ratios"].values[0], np.log10(cell.apart))
    assert figures["ratios"].network.tolist() == [[0, 2]]
    pruned, refitted, unchanged = figures["pruned"].panels[0].series
    np.testing.assert_array_equal([pruned.x, pruned.y, refitted.y], cell.losses.reshape(3, -1))
    assert unchanged.dashed
