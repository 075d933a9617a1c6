"""The study `orthogonal`: its tables, the verdicts of its claims, its story and the options it refuses."""

import dataclasses
import json
import math

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from support.commands import Said
from support.made import computed_run, run_of_pieces
from understudy._errors import UserError
from understudy.data.input_files import read_labels
from understudy.data.separable import orthogonally_separable, separability
from understudy.lab.execute import execute
from understudy.lab.pieces import network_tables
from understudy.lab.study import named_pieces
from understudy.papers.separable.orthogonal.claims import (
    claims,
    rates,
    read_sets,
    select_balanced,
    select_flow,
    select_sgd,
    singular_values,
    widest_gaps,
)
from understudy.papers.separable.orthogonal.study import (
    BALANCED_SGD,
    DRAWN,
    FLOW,
    GIVEN,
    SGD,
    SPANNING,
    UNBALANCED_FLOW,
    Orthogonal,
    read_points,
)
from understudy.papers.separable.theory import sectors, two_neurons
from understudy.papers.separable.theory.limit_network import optimality
from understudy.papers.separable.theory.max_margin import margins
from understudy.papers.separable.theory.training import balanced, logistic_loss

F = torch.float64
pytestmark = pytest.mark.usefixtures("one_thread")

SMALL = Orthogonal(
    seeds=2,
    dim=4,
    points=16,
    neurons=5,
    layers=(2, 3),
    start=(0.05, 0.005),
    batch=4,
    epochs=30,
    flow_start=(0.1, 0.001),
    flow_decades=-1.0,
    span_dim=2,
    span_points=12,
    span_neurons=3,
    searches=20,
    probes=12,
)


@pytest.fixture(scope="module")
def run():
    return computed_run(SMALL)


def select_descent(run, start):
    return select_sgd(run, 2, start)


def neurons(networks, column, layer=0):
    """[network, neuron] of a column of `nodes` at the end."""
    return networks.array(column, "network student", layer=layer).dropna("student", how="all").to_numpy()


def test_metrics_are_those_of_theory_for_the_saved_networks(run):
    end = run.weights("end")
    flows = [select_flow(run, kind, start) for kind in (DRAWN, SPANNING) for start in SMALL.flow_start]
    order = [select(run, start) for select in (select_descent, select_balanced) for start in SMALL.start] + flows
    order += [run.select(part=UNBALANCED_FLOW, points=kind) for kind in (DRAWN, SPANNING)]
    assert len(end) == len(order)
    for population, found in zip(end, order, strict=True):
        sets = SMALL.sets(found.values("points")[0], [1, 2])
        w, a = population.layers[0].weight, population.layers[1].weight.squeeze(1)
        assert np.allclose(found.end("W1 third"), two_neurons.third_over_first(w))
        assert np.allclose(singular_values(found, 1), torch.linalg.svdvals(w)[:, :10])
        assert np.allclose(neurons(found, "correlation"), two_neurons.own_correlation(w, a, sets.margins))
        assert np.allclose(neurons(found, "plane_1"), two_neurons.margin_coordinates(w, sets.margins)[..., 0])
        within = sectors.in_extremal_sector(sectors.sectors(w, sets.x), a, sectors.extremal_sectors(sets.x, sets.y))
        assert np.array_equal(neurons(found, "inside") == 1, within.numpy())
        assert np.allclose(found.end("inside"), within.double().mean(-1))
        assert np.allclose(found.end("kkt"), optimality((w, a.unsqueeze(1)), sets.x, sets.y).residual)
        losses = logistic_loss((w, a.unsqueeze(1)), sets.x, sets.y)
        assert np.allclose(found.end("loss"), losses)
        assert (found.end("loss") < found.start("loss")).all()


def test_initial_weights_are_those_asked_for_and_flow_begins_balanced(run):
    found = select_flow(run, SPANNING, 0.001)
    w, a = balanced(2, 3, 0.001, [1, 2])
    assert np.allclose(run.weights("start")[-3].layers[0].weight, w)
    outputs = found.array("output", "network epoch student").isel(epoch=0).dropna("student", how="all")
    assert np.allclose(outputs, a.squeeze(1))
    assert np.allclose(found.start("least balance"), 1)
    assert np.allclose(found.start("longest"), 0.001)
    assert found.array("time")[0].to_numpy() == pytest.approx(SMALL.times())
    descent = select_sgd(run, 2, 0.05)
    assert descent.end("time") == pytest.approx([0.1 * 30 * 4 / 16] * 2)
    assert (descent.start("largest balance") != 1).all()
    balanced_sgd, unbalanced = select_balanced(run, 0.005), run.select(part=UNBALANCED_FLOW, points=SPANNING)
    assert np.allclose(balanced_sgd.start("least balance"), 1) and np.allclose(balanced_sgd.start("largest balance"), 1)
    assert (balanced_sgd.start("longest") <= 0.005 / 5**0.5).all()
    assert unbalanced.values("start") == [0.05] and (unbalanced.start("least balance") != 1).all()


def test_rows_of_sets_state_the_assumptions_of_the_theorem(run):
    rows = read_sets(run).to_pylist()
    for kind in (DRAWN, SPANNING):
        sets, mine = SMALL.sets(kind, [1, 2]), [row for row in rows if row["points"] == kind]
        assert [row["seed"] for row in mine] == [1, 2]
        for row, x, y in zip(mine, sets.x, sets.y, strict=True):
            pairs, found = separability(x, y), margins(x, y)
            assert row["wrong pairs"] == pairs.wrong == 0
            assert row["least same"] == pytest.approx(pairs.same.product)
            assert row["supports"] == min(found.positive.supports.sum(), found.negative.supports.sum())
            assert row["spans"] == found.spans and row["inputs"] == x.shape[1]
            assert row["residual"] < 1e-8 and row["positive holds"] == 1
            assert row["kkt"] < 1e-10
    assert all(row["spans"] for row in mine)


def test_sets_of_an_older_run_are_read_from_its_networks_and_metrics(run):
    sets = read_sets(run)
    values = {n: sets[n].to_numpy()[None] for n in sets.column_names if n not in ("seed", "points")}
    parameters = {"part": "sets", "points": sets["points"].to_pylist()}
    older = run_of_pieces([network_tables(0, sets["seed"].to_pylist(), parameters, (0,), values)])
    assert read_sets(older).select(sets.column_names).to_pylist() == sets.to_pylist()


def test_residual_layers_have_their_own_rows(run):
    found = select_sgd(run, 3, 0.05)
    first, second = (neurons(found, name, layer=1) for name in ("top_1", "top_2"))
    assert singular_values(found, 2).shape == first.shape == (2, 5)
    # Rows on the top two directions hold what the first two singular values do.
    assert (first**2 + second**2).sum(-1) == pytest.approx((singular_values(found, 2)[:, :2] ** 2).sum(-1))
    assert np.isnan(found.end("inside")).all()
    assert claims(SMALL, run) == []


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_sgd_on_a_gpu_agrees_with_the_cpu():
    study = dataclasses.replace(SMALL, layers=(2, 3), seeds=1)
    here, there = (
        [
            compute()
            for name, compute in named_pieces(dataclasses.replace(study, device=device)).items()
            if name.startswith("SGD")
        ]
        for device in ("cpu", "cuda")
    )
    for one, other in zip(here, there, strict=True):
        assert one["metrics"]["value"].to_numpy() == pytest.approx(other["metrics"]["value"].to_numpy(), rel=1e-6)


@given(st.integers(0, 10**6), st.integers(2, 8), st.integers(1, 30))
def test_searches_agree_with_the_lemma_on_any_drawn_set(seed, dim, count):
    x, y = (part[0] for part in orthogonally_separable(dim, 60, [seed]))
    for found in sectors.compare_extrema(x, y, count, seed):
        assert found.settled + found.off == count and found.elsewhere == 0
        assert found.holds is (found.settled > 0)


def test_searches_disagree_where_the_lemma_does_not_hold():
    x = torch.tensor([[1.0, 0.0], [0.0, 1.0], [2.0, 2.0]], dtype=F)
    found, _ = sectors.compare_extrema(x, torch.tensor([1.0, 1.0, -1.0], dtype=F), 40, 1)
    assert not found.holds and found.elsewhere > 0
    with pytest.raises(UserError, match="count must be at least 1 search, got 0"):
        sectors.compare_extrema(x, torch.tensor([1.0, 1.0, -1.0], dtype=F), 0, 1)


def test_ends_are_counted_as_different_only_if_they_are():
    ends = torch.tensor([[1.0, 0.0], [1.0, 1e-9], [0.0, 1.0], [1.0, 0.0]], dtype=F)
    assert sectors._count_distinct(ends) == 2
    assert sectors._count_distinct(ends[:0]) == 0


def test_tiles_of_examples_change_no_sector(monkeypatch):
    x, y = orthogonally_separable(3, 25, [4, 5])
    whole = sectors.extremal_sectors(x, y)
    monkeypatch.setattr(sectors, "_TILE", 4)
    assert torch.equal(sectors.extremal_sectors(x, y), whole)


def test_the_plane_of_two_vectors_keeps_lengths_in_it():
    both = torch.tensor([[2.0, 0.0, 0.0], [-1.0, 1.0, 0.0]], dtype=F)
    w = torch.tensor([[3.0, 4.0, 9.0], [-1.0, 1.0, 0.0]], dtype=F)
    assert two_neurons.margin_coordinates(w, both).tolist() == [[3.0, 4.0], [-1.0, 1.0]]
    turn, _ = torch.linalg.qr(torch.tensor([[1.0, 2, 3], [0, 1, 4], [5, 6, 0]], dtype=F))
    torch.testing.assert_close(
        two_neurons.margin_coordinates(w @ turn, both @ turn), two_neurons.margin_coordinates(w, both)
    )


LAYERS = {"W1": (1.0, 0.5, 0.03), "W2": (1.0, 0.9, 0.04), "W3": (1.0, 0.9, 0.04)}
AT_START = (0.05, 0.045, 0.04)
SEEDS = list(range(1, 11))


def made_up(study=None, change=()):
    """A run of ten seeds in which every claim holds, except for changes: (part, metric, probe, seed, value)."""
    study = study or Orthogonal()
    settings = [{"points": kind} for kind in study.kinds]
    settings += [{"part": SGD, "points": DRAWN, "layers": n, "start": s} for n in study.layers for s in study.start]
    settings += [{"part": BALANCED_SGD, "points": DRAWN, "layers": 2, "start": s} for s in study.start]
    settings += [{"part": FLOW, "points": k, "layers": 2, "start": s} for k in study.kinds for s in study.flow_start]
    settings += [{"part": UNBALANCED_FLOW, "points": k, "layers": 2, "start": 0.05} for k in study.kinds]
    pieces, first = [], 0
    for setting in settings:
        networks = "part" in setting
        values = _network_values(setting["layers"]) if networks else _set_values()
        for wanted, metric, probe, seed, value in change:
            if metric in values and all(setting.get(k) == v for k, v in wanted.items()):
                values[metric][probe, seed] = value
        if networks:
            pieces.append(network_tables(first, SEEDS, setting, (0, 1, 2), values, pa.table(_neuron_rows(first))))
            first += 10
        else:
            rows = {name: value[0] for name, value in values.items()}
            pieces.append({"sets": pa.table({"seed": SEEDS, "points": [setting["points"]] * 10} | rows)})
    return study, run_of_pieces(pieces, study.config())


def _set_values():
    values = {"wrong pairs": 0.0, "positive holds": 1.0, "negative holds": 1.0, "kkt": 1e-15}
    values |= {f"{side} {name}": 0.0 for side in ("positive", "negative") for name in ("gap", "off")}
    return {name: np.full((1, 10), value) for name, value in values.items()}


def _network_values(layers):
    values = {"loss": np.ones((3, 10)), "time": np.repeat([[0.0], [1e8], [1e16]], 10, 1)}
    for name, singular in list(LAYERS.items())[: layers - 1]:
        for k, (before, after) in enumerate(zip(AT_START, singular, strict=True), 1):
            values[f"{name} value {k}"] = np.repeat([[before], [np.nan], [after]], 10, 1)
        values |= {f"{name} third": np.full((3, 10), singular[2]), f"{name} added third": np.zeros((3, 10))}
    values |= {name: np.full((3, 10), 0.8) for name in ("aligned", "aligned mass")}
    values |= {name: np.repeat([[1.0], [0.08], [0.04]], 10, 1) for name in ("hidden", "output", "function", "kkt")}
    return values | {"inside": np.full((3, 10), 0.9), "off": np.full((3, 10), 0.1), "left": np.zeros((3, 10))}


def _neuron_rows(first):
    probe, net = (axis.ravel() for axis in np.indices((3, 10)))
    whole = {"network": first + net, "epoch": probe, "student": 0 * net}
    rows = {name: pa.array(column, pa.int32()) for name, column in whole.items()}
    rows |= {"layer": pa.array(0 * net, pa.int16()), "role": pa.array(["student"] * 30)}
    return rows | dict.fromkeys(("norm", "output", "inside", "off"), pa.array(np.ones(30)))


def decided(**more):
    return {(claim.id, claim.part): claim for claim in claims(*made_up(**more))}


def test_every_claim_holds_on_a_run_made_so():
    found = decided()
    assert [key[0] for key in found] == ["B1"] * 2 + ["B2"] * 3 + ["B3"] * 4 + ["B5"] * 4
    assert all(claim.holds for claim in found.values())
    assert found["B1", "rank of W"].values == pytest.approx((0.6,) * 10) and found["B1", "rank of W"].high == 1.0
    assert found["B3", "extremal sectors"].n == 20
    stays = found["B3", "SGD, balanced"]
    assert "90% end in their own, 10% are active for no example, 0% neither; 0 ever left" in stays.measured
    # A distance that halves while log t doubles falls as 1/log t.
    assert found["B5", "corollary 3.1"].values == pytest.approx((1.0,) * 10)
    assert "from t = 10⁸ to 10¹⁶ at least as (log t)^−0.25" in found["B5", "corollary 3.1"].statement
    json.dumps([claim.as_dict() for claim in found.values()])


SGD_TWO, BALANCED = {"part": SGD, "layers": 2, "start": 0.05}, {"part": BALANCED_SGD, "start": 0.05}
SGD_FOUR = {"part": SGD, "layers": 4, "start": 0.05}
LONG = {"part": FLOW, "points": SPANNING, "start": 0.001}


@pytest.mark.parametrize(
    ("change", "fails"),
    [
        ((SGD_TWO, "W1 value 3", 2, 3, 0.051), [("B1", "rank of W")]),
        ((SGD_TWO, "aligned", 2, 9, 0.5), [("B1", "alignment")]),
        ((BALANCED, "inside", 2, 0, 0.89), [("B3", "SGD, balanced")]),
        ((BALANCED, "left", 2, 0, 1.0), [("B3", "SGD, balanced")]),
        ((SGD_FOUR, "W1 value 3", 2, 0, 0.051), [("B2", "W1")]),
        ((SGD_FOUR, "W2 value 3", 2, 0, 0.051), [("B2", "W2")]),
        ((SGD_FOUR, "W2 value 2", 2, 0, 0.19), [("B2", "W2")]),
        (({"part": FLOW, "points": DRAWN, "start": 0.001}, "left", 2, 5, 1.0), [("B3", "flow, drawn")]),
        ((LONG, "inside", 2, 5, 0.8), [("B3", "flow, spanning")]),
        ((LONG, "output", 2, 5, 0.075), [("B5", "theorem 3.1")]),
        ((LONG, "function", 1, 5, 0.041), [("B5", "corollary 3.1")]),
        ((LONG, "kkt", 2, 5, np.inf), [("B5", "KKT")]),
        (({"points": SPANNING}, "kkt", 0, 2, 1e-9), [("B5", "lemma B.6")]),
        (({}, "negative holds", 0, 2, 0.0), [("B3", "extremal sectors")]),
        (({}, "wrong pairs", 0, 2, 1.0), [("B3", "extremal sectors")]),
    ],
)
def test_one_seed_is_enough_for_a_claim_to_fail(change, fails):
    found = decided(change=[change])
    assert [key for key, claim in found.items() if not claim.holds] == fails


@pytest.mark.parametrize(
    ("change", "beside"),
    [
        (({"part": SGD, "layers": 2, "start": 0.01}, "W1 value 3", 2, 3, 0.5), 1),
        ((BALANCED, "aligned", 2, 3, 0.1), 1),
        ((SGD_TWO, "inside", 2, 3, 0.5), 1),
        ((SGD_TWO, "W1 third", 2, 3, 0.06), 1),
        (({"part": FLOW, "points": SPANNING, "start": 0.1}, "inside", 2, 3, 0.5), 1),
        (({"part": FLOW, "points": DRAWN, "start": 0.001}, "hidden", 2, 3, 0.5), 1),
        (({"part": UNBALANCED_FLOW, "points": SPANNING}, "kkt", 2, 3, 0.5), 1),
        ((SGD_TWO, "inside", 0, 0, 0.0), 0),
    ],
)
def test_other_settings_are_shown_beside_and_decide_nothing(change, beside):
    found = decided(change=[change])
    assert all(claim.holds for claim in found.values())
    failing = [other for claim in found.values() for other in claim.variants if not other.holds]
    # Residual layers of the made-up run have no gap in W1.
    assert len([other for other in failing if other.where != "σ₂ above 5 σ₃"]) == beside


def test_distances_that_do_not_vanish_have_no_exponent():
    study, run = made_up(change=[(LONG, "hidden", 2, seed, 0.08) for seed in range(10)])
    assert rates(select_flow(run, SPANNING, 0.001), "hidden") == pytest.approx(np.zeros(10))
    assert rates(select_flow(run, SPANNING, 0.001), "output") == pytest.approx(np.ones(10))
    assert not {claim.part: claim.holds for claim in claims(study, run)}["theorem 3.1"]


def test_a_network_that_diverged_meets_no_bound():
    change = [(SGD_FOUR, "loss", 2, 0, np.nan)]
    found = {key: claim for key, claim in decided(change=change).items() if not claim.holds}
    assert list(found) == [("B2", f"W{layer}") for layer in (1, 2, 3)]
    assert all(claim.n == 10 and len(claim.values) == 9 for claim in found.values())


def test_the_widest_gap_is_shown_beside():
    study, run = made_up(change=[(SGD_FOUR, "W1 value 2", 2, 0, 0.1)])
    found = {claim.part: claim for claim in claims(study, run)}["W1"]
    assert found.holds
    assert found.variants[0].where.startswith("the widest gap") and not found.variants[0].holds
    assert found.variants[0].measured == "in 9 of 10 seeds"
    assert widest_gaps(singular_values(select_sgd(run, 4), 1)).tolist() == [1] + [2] * 9


@pytest.mark.parametrize(
    "options",
    [{"epochs": 499}, {"dim": 19}, {"rate": 0.2}, {"tilt": "no"}, {"neurons": 50}, {"batch": 25}, {"points": 501}],
)
def test_nothing_is_decided_in_other_settings(options):
    study, run = made_up(Orthogonal(**options))
    assert claims(study, run) == []


def test_parts_are_decided_if_the_run_has_their_own_settings():
    study, run = made_up()
    assert claims(dataclasses.replace(study, seeds=9), run) == []

    def ids(**options):
        return [claim.part for claim in claims(dataclasses.replace(study, **options), run)]

    limits = ["theorem 3.1", "corollary 3.1", "KKT", "lemma B.6"]
    assert ids(start=(0.01, 0.002)) == ["extremal sectors", "flow, drawn", "flow, spanning", *limits]
    assert not {"flow, drawn", "flow, spanning", *limits[:3]} & set(ids(flow_decades=2.0))
    assert "extremal sectors" not in ids(searches=10)
    assert "W1" not in ids(layers=(2,)) and "alignment" not in ids(layers=(4,))


@pytest.fixture
def points(tmp_path):
    """Write labelled points to a file with numpy.savez."""

    def write(name="points.npz", **arrays):
        np.savez(tmp_path / name, **arrays)
        return str(tmp_path / name)

    return write


def test_points_of_a_file_are_learned_and_decide_nothing(points):
    x, y = (part[0].numpy() for part in orthogonally_separable(3, 12, [2]))
    study = dataclasses.replace(
        SMALL, data=points(x=x, y=np.where(y > 0, 7, 3)), layers=(2,), start=(0.05,), flow_start=(0.1,)
    )
    assert study.kinds == (GIVEN,)
    both = study.sets(GIVEN, [1, 2])
    assert np.array_equal(both.x[1], x) and np.array_equal(both.y[0], y)
    run = computed_run(study)
    assert read_sets(run).num_rows == 1
    assert neurons(select_sgd(run, 2), "norm").shape == (2, 5)
    assert claims(study, run) == []
    assert run.config["contents"]["data"]
    assert "points of the file" in json.dumps([figure.kind.page() for figure in study.story(run).figures])


@pytest.mark.parametrize(
    ("x", "y", "words"),
    [
        ([[1, 0], [0, 1], [-1, -1]], [0, 0, 1], "points 0 and 1, both of class 0, have the inner product 0"),
        ([[1, 1], [1, 2], [1, -0.5]], [1, 1, 2], "points 0 and 2, of classes 1 and 2, have the inner product 0.5"),
        ([[1, 1], [1, 2]], [1, 1], r"labels must have two classes, got 1 \(1\)"),
        ([[1, 1], [1, 2], [1, 3]], [1, 2, 3], r"labels must have two classes, got 3 \(1, 2, 3\)"),
        ([[1, 1], [-1, -2]], [1, 2, 2], r"y must have one label per point \(2\), got 3"),
        ([[1, 1], [-1, -2]], ["a", "b"], "must have one finite number per sample, got <U1 values"),
        ([[1, 1], [-1, -2]], [1, np.nan], "must have one finite number per sample"),
    ],
)
def test_points_that_do_not_fit_are_refused_in_words(points, x, y, words):
    file = points(x=np.array(x, float), y=np.array(y))
    with pytest.raises(UserError, match=words) as refused:
        dataclasses.replace(SMALL, data=file).config()
    assert str(refused.value).startswith("--data: ")


def test_files_that_are_not_of_labelled_points_are_refused(points, tmp_path):
    with pytest.raises(UserError, match="there is no array 'y'; the file has the arrays x"):
        read_points(points(x=np.eye(2)))
    np.save(tmp_path / "x.npy", np.eye(2))
    with pytest.raises(UserError, match=r"labels are only read from \.npz"):
        read_labels(tmp_path / "x.npy")
    with pytest.raises(UserError, match="--data"):
        read_points(str(tmp_path / "none.npz"))
    assert read_labels(points(x=np.eye(2), y=np.array([[True], [False]]))).tolist() == [1.0, 0.0]
    x, y = np.array([[1.0, 1], [1, 2], [-1, -1]]), np.array([1, 1, 0])
    with pytest.raises(UserError, match=r"--batch must be at most the number of training samples \(3\), got 4"):
        dataclasses.replace(SMALL, data=points(x=x, y=y)).config()


def test_networks_that_diverge_are_marked_and_reported(monkeypatch):
    monkeypatch.setattr("understudy.lab.options.MOST", math.inf)  # problems as small as these need such a rate
    study = dataclasses.replace(SMALL, rate=1e200, epochs=3, seeds=1, probes=4, start=(0.05,), flow_start=(0.1,))
    run = computed_run(study)
    assert run.networks["diverged_at"].null_count < run.networks.num_rows
    story = study.story(run)
    words = " ".join([story.headline, *(figure.caption for figure in story.figures), *(n.value for n in story.numbers)])
    assert "networks diverged" in words and "nan" not in words.lower() and "finite" not in words
    assert "with 2 layers every network diverged; with 3 layers every network diverged" in words
    assert all(figure.kind.page()["data"] for figure in story.figures)
    assert not select_sgd(run, 2).alive.any()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"batch": 501}, r"--batch must be at most the number of training samples \(500\), got 501"),
        ({"layers": (1,)}, "--layers must be at least 2, got 1"),
        ({"layers": (2, 2)}, "--layers takes each value once, got 2 2"),
        ({"start": (0.0,)}, "--start must be above 0, got 0"),
        ({"points": 0}, "--points must be at least 2, got 0"),
        ({"dim": 1}, "--dim must be at least 2, got 1"),
        ({"span_dim": 1}, "--span-dim must be at least 2, or 0 for no such sets, got 1"),
        ({"flow_decades": 31.0}, "--flow-decades must be at least −3 and at most 30, got 31"),
        ({"flow_start": ()}, "--flow-start needs at least one value"),
        ({"searches": 0}, "--searches must be at least 1, got 0"),
        ({"probes": 1}, "--probes must be at least 2, got 1"),
        ({"dtype": "float32"}, "--dtype must be float64, got float32"),
    ],
)
def test_options_that_cannot_work_are_refused(options, words):
    with pytest.raises(UserError, match=words):
        Orthogonal(**options)


def test_the_former_name_of_probes_is_understood():
    study = Orthogonal(probes=7)
    options = {"looks" if name == "probes" else name: value for name, value in study.options().items()}
    assert Orthogonal.from_config({"study": "orthogonal", "options": options}) == study


@pytest.mark.parametrize(
    ("option", "count", "words"),
    [
        ("points", 2, "--points must be larger, got 2: all 2 points in 20 dimensions, seed 2, are in class 1"),
        (
            "span_points",
            5,
            "--span-points must be larger, got 5: seed 1 has 4 points of class 1, fewer than the 5 that span",
        ),
    ],
)
def test_sets_that_cannot_be_drawn_are_refused_before_anything_is_written(option, count, words, tmp_path):
    with pytest.raises(UserError) as caught:
        execute(Orthogonal(**{option: count, "batch": 1}), tmp_path, Said())
    assert str(caught.value).startswith(words)
    assert not list(tmp_path.iterdir())
