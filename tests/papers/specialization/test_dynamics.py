"""The study `dynamics`: what it computes, and what decides its claims."""

import shutil

import numpy as np
import pyarrow as pa
import pytest

from support.commands import Said
from support.runs import made_run, run_of
from understudy._errors import UserError
from understudy.lab.discovery import studies
from understudy.lab.execute import execute
from understudy.papers.specialization.dynamics.claims import (
    claims,
    count_pairs,
    escape_slope,
    expected_beyond,
    growth,
    read_escapes,
    read_pulls,
)
from understudy.papers.specialization.dynamics.study import LAWS, NodeDynamics
from understudy.report.story import Kind
from understudy.store import Run
from understudy.store.tables import write_table

SMALL = NodeDynamics(
    seeds=3, dim=(2, 5), samples=2_000, flows=2, extra=(0.0, 0.1), until=60.0, eps=(0.1, 0.03, 0.01, 0.003, 0.001)
)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return execute(SMALL, tmp_path_factory.mktemp("dynamics"), Said())


def _as_if(**options):
    """The small study with the options of a larger one, so that claims are decided on the small run."""
    return NodeDynamics(**(SMALL.options() | options))


def test_the_study_is_registered():
    assert studies()["dynamics"] is NodeDynamics


def test_tables_have_one_row_per_network_component_and_angle(run):
    assert run.networks["network"].to_pylist() == list(range(run.networks.num_rows))
    assert len(run.select(part="steps")) == 2 * 2 * 2
    assert len(run.select(part="contest")) == 2 * 2
    assert run.networks.num_rows == 12
    assert count_pairs(read_pulls(run)) == 3 * 2 * 2
    assert len(read_escapes(run)) == len(LAWS) * 5
    assert not set(run.networks["diverged_at"].to_pylist()) - {None}


def test_pairs_are_compared_in_two_components_in_the_plane_and_in_three_elsewhere(run):
    pulls = read_pulls(run)
    for dim, components in ((2, {"along", "across"}), (5, {"along", "across", "outside"})):
        assert set(pulls.loc[pulls["dim"] == dim, "component"]) == components
    assert len(pulls) == 3 * 2 * (2 + 3)
    assert pulls["off"].abs().max() < 5
    assert expected_beyond(len(pulls)) == pytest.approx(30 * 6.334e-5, rel=1e-3)


def test_an_older_run_has_pairs_and_angles_among_its_networks(run, tmp_path):
    pulls, escapes = read_pulls(run), read_escapes(run)
    pairs = pulls.drop_duplicates(["dim", "inputs", "seed"]).reset_index(drop=True)
    number = pulls.merge(pairs.reset_index(), on=["dim", "inputs", "seed"])["index"].to_numpy()
    networks = [{"part": "pull", "dim": row.dim, "inputs": row.inputs, "seed": row.seed} for row in pairs.itertuples()]
    networks += [{"part": "leaving", "law": row.law, "eps": row.eps, "seed": 1} for row in escapes.itertuples()]
    names = ("part", "dim", "inputs", "seed", "law", "eps")
    rows = [{name: row.get(name) for name in names} for row in networks]
    nan = np.full(len(pairs), np.nan)
    metrics = {"theta": np.concatenate([pairs["theta"], np.full(len(escapes), np.nan)])[:, None]}
    metrics |= {name: np.concatenate([nan, escapes[name]])[:, None] for name in ("time", "quadrature")}
    new = made_run(rows, metrics=metrics)
    places = {"network": number, "epoch": 0 * number, "layer": 0 * number}
    nodes = pa.table(places | {n: pulls[n] for n in ("component", "closed", "mean", "error")})
    old = run_of({"networks": new.networks, "metrics": new.metrics, "nodes": nodes}, (0,), {}, new.config)
    for name in ("seed", "dim", "inputs", "theta", "component", "closed", "mean", "error", "off"):
        assert read_pulls(old)[name].tolist() == pulls[name].tolist()
    for name in escapes:
        assert read_escapes(old)[name].tolist() == escapes[name].tolist()


def test_long_computations_are_cut_into_pieces():
    names = [piece.name for piece in NodeDynamics(dim=(50,), inputs=("normal",)).pieces()]
    pairs = [name for name in names if name.startswith("pairs")]
    assert pairs[0] == "pairs 1 to 40, 50 normal inputs"
    assert pairs[-1] == "pairs 121 to 125, 50 normal inputs"


def test_pairs_do_not_depend_on_the_pieces(monkeypatch):
    def found(draws):
        monkeypatch.setattr("understudy.papers.specialization.dynamics.study._DRAWS", draws)
        pieces = NodeDynamics(seeds=3, dim=(3,), inputs=("sphere",), samples=200, flows=1).pieces()
        return pa.concat_tables([p.compute(0)["pulls"] for p in pieces if p.name.startswith("pairs")])

    assert found(1).equals(found(10**9).combine_chunks())


def test_computed_values_agree_with_theory(run):
    assert run.select(part="steps").end("off").max() < 1e-6
    assert growth(SMALL, run, 0.1) == pytest.approx([0.1, 0.1], rel=1e-3)
    assert growth(SMALL, run, 0.0) == pytest.approx([0.0, 0.0], abs=1e-3)
    angle, both, lower = (escape_slope(read_escapes(run), law) for law in LAWS)
    assert angle == pytest.approx(1.0, abs=0.02)
    assert both == pytest.approx(angle, abs=1e-5)
    assert lower < 0.3


def test_the_integrated_angle_agrees_with_the_quadrature(run):
    escapes = read_escapes(run)
    own = escapes[escapes["law"] == "angle"]
    assert own["time"].tolist() == pytest.approx(own["quadrature"].tolist(), rel=1e-9)


def test_the_story_has_its_figures_and_numbers(run):
    story = SMALL.story(run)
    assert [figure.name for figure in story.figures] == ["pull", "pull-errors", "symmetry", "slow-start"]
    assert all(isinstance(figure.kind, Kind) for figure in story.figures)
    assert story.headline.startswith("Over 12 pairs of nodes")
    assert "1.1 times the target" in story.headline


def test_a_small_run_decides_nothing(run):
    assert claims(SMALL, run) == []
    assert claims(NodeDynamics.quick(), run) == []


def test_the_claims_are_those_of_the_catalogue(run):
    found = claims(_as_if(seeds=500, samples=20_000, flows=20, eps=(1.0, 0.001)), run)
    assert [(claim.id, claim.part) for claim in found] == [
        ("Y6", ""),
        ("Y7", "norm ratios"),
        ("Y7", "symmetry breaking"),
        ("Y7", "slow start"),
    ]
    assert all(claim.holds for claim in found)
    assert {claim.id for claim in found} == set(NodeDynamics.decides.split())


def _changed(run, folder, table, column, change):
    """The run with a changed column of a table: `change` takes the table's columns and returns the values."""
    shutil.copytree(run.folder, folder, dirs_exist_ok=True)
    rows = run.table(table)
    values = change({name: np.array(rows[name].to_pylist()) for name in rows.column_names})
    write_table(folder / f"{table}.parquet", rows.set_column(rows.column_names.index(column), column, pa.array(values)))
    return Run(folder)


def test_one_comparison_beyond_four_standard_errors_decides_against_y6(run, tmp_path):
    def change(rows):
        rows["mean"][4] = rows["closed"][4] + 4.1 * rows["error"][4]
        return rows["mean"]

    (claim,) = claims(_as_if(seeds=500, samples=20_000), _changed(run, tmp_path, "pulls", "mean", change))
    assert not claim.holds
    assert claim.n == 12
    assert claim.measured.startswith("1 of 30 components beyond 4 standard errors, where chance gives 0.00;")


def _metric(run, name, change, **where):
    """Change a metric of selected networks."""

    def changed(rows):
        own = (rows["metric"] == name) & np.isin(rows["network"], run.select(**where).index)
        return np.where(own, change(rows["value"]), rows["value"])

    return changed


@pytest.mark.parametrize("failing", ["norm ratios", "symmetry breaking", "slow start"])
def test_values_outside_the_bounds_decide_against_y7(run, tmp_path, failing):
    table, column, change = {
        "norm ratios": ("metrics", "value", _metric(run, "off", lambda v: v + 2e-6, part="steps")),
        "symmetry breaking": ("metrics", "value", _metric(run, "log_ratio", lambda v: 1.1 * v, extra=0.1)),
        "slow start": ("escapes", "time", lambda r: np.where(r["law"] == "both layers", r["time"] ** 1.1, r["time"])),
    }[failing]
    wrong = _changed(run, tmp_path, table, column, change)
    found = {claim.part: claim.holds for claim in claims(_as_if(flows=20, eps=(1.0, 0.001)), wrong)}
    assert found == {"norm ratios": True, "symmetry breaking": True, "slow start": True} | {failing: False}


def test_the_slow_start_reports_where_it_does_not_hold(run):
    (claim,) = claims(_as_if(eps=(1.0, 0.001)), run)
    (beside,) = claim.variants
    assert claim.holds
    assert not beside.holds
    assert "2 ln(π/ε), 16.1 at ε = 0.001" in beside.measured


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"dim": (1,)}, "--dim must be at least 2, got 1"),
        ({"extra": (0.1,)}, "--extra must include 0, the symmetric case, got 0.1"),
        ({"eps": (0.1,)}, "--eps must have at least two values, got 0.1"),
        ({"eps": (2.0, 0.1)}, "--eps must be above 0 and at most 1, got 2"),
        ({"inputs": ("uniform",)}, "--inputs must be one of normal, sphere, got uniform"),
        ({"inputs": ("normal", "normal")}, "--inputs takes each value once, got normal normal"),
        ({"leaky": 1.0}, "--leaky must be at least 0 and below 1, got 1"),
        ({"dtype": "float32"}, "--dtype must be float64, got float32"),
        ({"samples": 10}, "--samples must be at least 100, got 10"),
        ({"start": 0.0}, "--start must be above 0, got 0"),
    ],
)
def test_invalid_options_are_refused(options, words):
    with pytest.raises(UserError) as error:
        NodeDynamics(**options)
    assert str(error.value).startswith(words)
