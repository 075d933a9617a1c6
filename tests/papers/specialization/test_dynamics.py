"""The dynamics study: what it finds, and what it takes to decide its claims."""

import numpy as np
import pyarrow as pa
import pytest

from support.commands import Said
from understudy.errors import UserError
from understudy.lab.discovery import studies
from understudy.lab.execute import execute
from understudy.papers.specialization.dynamics.claims import claims, growth, leaving_slope, part, pulls
from understudy.papers.specialization.dynamics.study import LAWS, NodeDynamics
from understudy.report.story import Kind
from understudy.store import Run

SMALL = NodeDynamics(
    seeds=3, dim=(2, 5), samples=2_000, flows=2, extra=(0.0, 0.1), until=60.0, eps=(0.1, 0.03, 0.01, 0.003, 0.001)
)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return execute(SMALL, tmp_path_factory.mktemp("dynamics"), Said())


def _as_if(**options):
    """The small study, said to have been larger: what its claims ask of the settings."""
    return NodeDynamics(**(SMALL.options() | options))


def test_it_is_known_by_its_name():
    assert studies()["dynamics"] is NodeDynamics


def test_every_pair_start_and_angle_has_its_row(run):
    assert run.networks["network"].to_pylist() == list(range(run.networks.num_rows))
    assert len(part(run, "pull")) == 3 * 2 * 2
    assert len(part(run, "steps")) == 2 * 2 * 2
    assert len(part(run, "contest")) == 2 * 2
    assert len(part(run, "leaving")) == len(LAWS) * 5
    assert not set(run.networks["diverged_at"].to_pylist()) - {None}


def test_pairs_are_compared_in_two_components_in_the_plane_and_in_three_elsewhere(run):
    every = pulls(run)
    for dim, components in ((2, {"along", "across"}), (5, {"along", "across", "outside"})):
        assert set(every.component[every.dim == dim]) == components
    assert len(every.off) == 3 * 2 * (2 + 3)
    assert np.abs(every.off).max() < 5
    assert every.by_chance == pytest.approx(30 * 6.334e-5, rel=1e-3)


def test_long_work_is_cut_into_pieces():
    names = list(NodeDynamics(dim=(50,), inputs=("normal",)).pieces())
    pairs = [name for name in names if name.startswith("pairs")]
    assert pairs[0] == "pairs 1 to 40, 50 normal inputs"
    assert pairs[-1] == "pairs 121 to 125, 50 normal inputs"


def test_pairs_are_the_same_however_the_work_is_cut(monkeypatch):
    def found(draws):
        monkeypatch.setattr("understudy.papers.specialization.dynamics.study._DRAWS", draws)
        pieces = NodeDynamics(seeds=3, dim=(3,), inputs=("sphere",), samples=200, flows=1).pieces()
        return pa.concat_tables([make()["nodes"] for name, make in pieces.items() if name.startswith("pairs")])

    assert found(1).equals(found(10**9).combine_chunks())


def test_what_is_found_is_what_theory_says(run):
    assert run.series("off")[part(run, "steps"), 0].max() < 1e-6
    assert growth(SMALL, run, 0.1) == pytest.approx([0.1, 0.1], rel=1e-3)
    assert growth(SMALL, run, 0.0) == pytest.approx([0.0, 0.0], abs=1e-3)
    angle, both, lower = (leaving_slope(run, law) for law in LAWS)
    assert angle == pytest.approx(1.0, abs=0.02)
    assert both == pytest.approx(angle, abs=1e-5)
    assert lower < 0.3


def test_the_integrated_angle_is_the_quadrature(run):
    networks = part(run, "leaving", law="angle")
    assert run.series("time")[networks, 0] == pytest.approx(run.series("quadrature")[networks, 0], rel=1e-9)


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


def _with(run, tmp_path, table, change):
    """The same run with another table."""
    for path in run.folder.iterdir():
        if path.is_file():
            (tmp_path / path.name).write_bytes(path.read_bytes())
    made = Run(tmp_path)
    made.__dict__[table] = change(getattr(run, table))
    return made


def _scaled(metric, where, by):
    """The values of one metric, of some networks, made wrong."""

    def change(rows):
        value, name, network = (rows[c].to_numpy(zero_copy_only=False) for c in ("value", "metric", "network"))
        wrong = np.where((name == metric) & np.isin(network, where), by(value), value)
        return rows.set_column(rows.column_names.index("value"), "value", pa.array(wrong))

    return change


def test_one_comparison_beyond_four_standard_errors_decides_against_y6(run, tmp_path):
    def change(rows):
        mean = rows["mean"].to_numpy().copy()
        mean[4] = rows["closed"][4].as_py() + 4.1 * rows["error"][4].as_py()
        return rows.set_column(rows.column_names.index("mean"), "mean", pa.array(mean))

    (claim,) = claims(_as_if(seeds=500, samples=20_000), _with(run, tmp_path, "nodes", change))
    assert not claim.holds
    assert claim.measured.startswith("1 beyond 4 standard errors")


@pytest.mark.parametrize(
    ("metric", "where", "by", "failing"),
    [
        ("off", {"name": "steps"}, lambda v: v + 2e-6, "norm ratios"),
        ("log_ratio", {"name": "contest", "extra": 0.1}, lambda v: 1.1 * v, "symmetry breaking"),
        ("time", {"name": "leaving", "law": "both layers"}, lambda v: np.abs(v) ** 1.1, "slow start"),
    ],
)
def test_values_outside_the_bounds_decide_against_y7(run, tmp_path, metric, where, by, failing):
    wrong = _with(run, tmp_path, "metrics", _scaled(metric, part(run, **where), by))
    found = {claim.part: claim.holds for claim in claims(_as_if(flows=20, eps=(1.0, 0.001)), wrong)}
    assert found == {"norm ratios": True, "symmetry breaking": True, "slow start": True} | {failing: False}


def test_the_slow_start_says_where_it_does_not_hold(run):
    (claim,) = claims(_as_if(eps=(1.0, 0.001)), run)
    (beside,) = claim.beside
    assert claim.holds
    assert not beside.holds
    assert "2 ln(π/ε), 16.1 at ε = 0.001" in beside.measured


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"dim": (1,)}, "--dim: 1 was given; allowed is a whole number from 2"),
        ({"extra": (0.1,)}, "--extra: 0.1 was given; 0, the symmetric case"),
        ({"eps": (0.1,)}, "--eps: 0.1 was given; allowed are two numbers or more"),
        ({"eps": (2.0, 0.1)}, "--eps: 2 0.1 was given"),
        ({"inputs": ("uniform",)}, "--inputs: uniform was given; allowed are normal and sphere"),
        ({"inputs": ("normal", "normal")}, "--inputs: normal normal was given"),
        ({"leaky": 1.0}, "--leaky: 1 was given; allowed is a number from 0 and below 1"),
        ({"dtype": "float32"}, "--dtype: float32 was given; theory is computed in float64 alone"),
        ({"samples": 10}, "--samples: 10 was given"),
        ({"start": 0.0}, "--start: 0.0 was given"),
    ],
)
def test_options_that_cannot_be_are_refused(options, words):
    with pytest.raises(UserError) as error:
        NodeDynamics(**options)
    assert str(error.value).startswith(words)
