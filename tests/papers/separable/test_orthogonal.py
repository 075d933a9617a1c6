"""The study of orthogonally separable points: what its tables hold, what its claims decide, what it refuses."""

import dataclasses
import json

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from support.commands import Said
from understudy.data.input_files import read_labels
from understudy.data.separable import orthogonally_separable, separability
from understudy.errors import UserError
from understudy.lab.execute import execute
from understudy.lab.pieces import network_tables
from understudy.papers.separable.orthogonal.claims import claims, gaps, group, spread
from understudy.papers.separable.orthogonal.study import (
    DRAWN,
    FLOW,
    GIVEN,
    SETS,
    SGD,
    SPANNING,
    Orthogonal,
    read_points,
)
from understudy.papers.separable.theory import sectors
from understudy.papers.separable.theory import two_neurons as orthogonal
from understudy.papers.separable.theory.max_margin import margins
from understudy.papers.separable.theory.training import balanced, logistic_loss
from understudy.store import Run
from understudy.store.config import to_toml
from understudy.store.tables import write_table
from understudy.store.weights import write_weights

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
    flow_time=0.1,
    span_dim=2,
    span_points=12,
    span_neurons=3,
    searches=20,
    looks=12,
)


def written(folder, study, pieces) -> Run:
    """A run of these pieces, with no figures: those are drawn by test_study_contract."""
    for name in ("networks", "metrics", "nodes"):
        write_table(folder / f"{name}.parquet", pa.concat_tables([p[name] for p in pieces], promote_options="default"))
    kept = [piece["weights"] for piece in pieces if piece["weights"]]
    write_weights(folder / "weights.safetensors", {who: [k[who] for k in kept] for who in (kept[0] if kept else ())})
    (folder / "config.toml").write_text(to_toml(study.config()), encoding="utf-8")
    (folder / "environment.json").write_text("{}")
    return Run(folder)


def made(folder, study) -> Run:
    return written(folder, study, [make() for make in study.pieces().values()])


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return made(tmp_path_factory.mktemp("run"), SMALL)


def test_metrics_are_what_theory_says_of_the_networks_that_are_kept(run):
    end = run.weights("end")
    flows = [(FLOW, kind, start) for kind in (DRAWN, SPANNING) for start in SMALL.flow_start]
    order = [(SGD, DRAWN, start) for start in SMALL.start] + flows
    assert len(end) == len(order)
    for population, (part, kind, start) in zip(end, order, strict=True):
        found = group(run, part, points=kind, start=start, layers=2)
        sets = SMALL.sets(kind, [1, 2])
        w, a = population.layers[0].weight, population.layers[1].weight.squeeze(1)
        assert np.allclose(found.end("W1 third"), orthogonal.third_over_first(w))
        assert np.allclose(found.values(1), torch.linalg.svdvals(w)[:, :10])
        assert np.allclose(found.nodes("correlation"), orthogonal.own_correlation(w, a, sets.margins))
        assert np.allclose(found.nodes("plane_1"), orthogonal.margin_coordinates(w, sets.margins)[..., 0])
        within = sectors.in_extremal_sector(sectors.sectors(w, sets.x), a, sectors.extremal_sectors(sets.x, sets.y))
        assert np.array_equal(found.nodes("inside") == 1, within.numpy())
        assert np.allclose(found.end("inside"), within.double().mean(-1))
        losses = logistic_loss((w, a.unsqueeze(1)), sets.x, sets.y, mean=True)
        assert np.allclose(found.end("loss"), losses)
        assert (found.end("loss") < found.course("loss")[:, 0]).all()


def test_starts_are_those_asked_for_and_flow_begins_balanced(run):
    found = group(run, FLOW, points=SPANNING, start=0.001)
    w, a = balanced(2, 3, 0.001, [1, 2])
    assert np.allclose(run.weights("start")[-1].layers[0].weight, w)
    assert np.allclose(found.nodes("output", 0), a.squeeze(1))
    assert np.allclose(found.course("least balance")[:, 0], 1)
    assert np.allclose(found.course("longest")[:, 0], 0.001)
    assert found.course("time")[0] == pytest.approx(SMALL.times())
    descent = group(run, SGD, layers=2, start=0.05)
    assert descent.end("time") == pytest.approx([0.1 * 30 * 4 / 16] * 2)
    assert (descent.course("largest balance")[:, 0] != 1).all()


def test_rows_of_sets_say_what_the_theorem_asks_for(run):
    for kind in (DRAWN, SPANNING):
        sets, networks = SMALL.sets(kind, [1, 2]), np.flatnonzero(run.column("part") == SETS)
        networks = networks[run.column("points")[networks] == kind]
        for network, x, y in zip(networks, sets.x, sets.y, strict=True):
            pairs, found = separability(x, y), margins(x, y)
            said = {
                name: run.series(name)[network, 0]
                for name in ("wrong pairs", "least same", "supports", "spans", "inputs", "residual", "positive holds")
            }
            assert said["wrong pairs"] == pairs.wrong == 0
            assert said["least same"] == pytest.approx(pairs.same.product)
            assert said["supports"] == min(found.positive.supports.sum(), found.negative.supports.sum())
            assert said["spans"] == found.spans and said["inputs"] == x.shape[1]
            assert said["residual"] < 1e-8 and said["positive holds"] == 1
    assert run.series("spans")[networks, 0].all()


def test_residual_layers_have_their_own_rows(run):
    found = group(run, SGD, layers=3, start=0.05)
    assert found.values(2).shape == found.nodes("top_1", layer=1).shape == (2, 5)
    # Rows on the top two directions hold what the first two singular values do.
    squares = found.nodes("top_1", layer=1) ** 2 + found.nodes("top_2", layer=1) ** 2
    assert squares.sum(-1) == pytest.approx((found.values(2)[:, :2] ** 2).sum(-1))
    assert np.isnan(found.end("inside")).all()
    assert claims(SMALL, run) == []


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA card")
def test_sgd_on_a_card_agrees_with_the_processor():
    study = dataclasses.replace(SMALL, layers=(2, 3), seeds=1)
    here, there = (
        [make() for name, make in dataclasses.replace(study, device=device).pieces().items() if name.startswith("SGD")]
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


def test_ends_are_counted_as_different_only_where_they_are():
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
    assert orthogonal.margin_coordinates(w, both).tolist() == [[3.0, 4.0], [-1.0, 1.0]]
    turn, _ = torch.linalg.qr(torch.tensor([[1.0, 2, 3], [0, 1, 4], [5, 6, 0]], dtype=F))
    torch.testing.assert_close(
        orthogonal.margin_coordinates(w @ turn, both @ turn), orthogonal.margin_coordinates(w, both)
    )


def test_mass_of_aligned_neurons_by_hand():
    w = torch.tensor([[3.0, 0.0], [0.0, 1.0]], dtype=F)
    assert float(orthogonal.aligned_mass(w, torch.tensor([0.95, 0.5], dtype=F))) == pytest.approx(0.9)


LAYERS = {"W1": (1.0, 0.5, 0.03), "W2": (1.0, 0.9, 0.04), "W3": (1.0, 0.9, 0.04)}
SEEDS = list(range(1, 11))


def made_up(folder, study=None, change=()):
    """A run of ten seeds in which every claim holds, but for what is changed: (part, metric, look, seed, value)."""
    study = study or Orthogonal()
    pieces, first = [], 0
    settings = [{"part": SETS, "points": kind} for kind in study.kinds]
    settings += [{"part": SGD, "points": DRAWN, "layers": n, "start": s} for n in study.layers for s in study.start]
    settings += [{"part": FLOW, "points": k, "layers": 2, "start": s} for k in study.kinds for s in study.flow_start]
    for setting in settings:
        values = {"loss": np.ones((2, 10))}
        if setting["part"] == SETS:
            values = {"wrong pairs": [0.0], "positive holds": [1.0], "negative holds": [1.0]}
            values |= {f"{side} {name}": [0.0] for side in ("positive", "negative") for name in ("gap", "off")}
            values = {name: np.repeat([value], 10, 1) for name, value in values.items()}
        else:
            for name, singular in list(LAYERS.items())[: setting["layers"] - 1]:
                values |= {f"{name} value {k}": np.full((2, 10), v) for k, v in enumerate(singular, 1)}
                values |= {f"{name} third": np.full((2, 10), singular[2]), f"{name} added third": np.zeros((2, 10))}
            values |= {name: np.full((2, 10), 0.8) for name in ("aligned", "aligned mass")}
            values |= {"inside": np.full((2, 10), 0.9), "off": np.full((2, 10), 0.1), "left": np.zeros((2, 10))}
        for wanted, metric, look, seed, value in change:
            if metric in values and all(setting.get(k) == v for k, v in wanted.items()):
                values[metric][look, seed] = value
        looks = range(len(next(iter(values.values()))))
        nodes = None
        if setting["part"] != SETS:
            look, net = (axis.ravel() for axis in np.indices((2, 10)))
            whole = {"network": first + net, "epoch": look, "student": 0 * net}
            nodes = {name: pa.array(column, pa.int32()) for name, column in whole.items()}
            nodes |= {"layer": pa.array(0 * net, pa.int16()), "role": pa.array(["student"] * 20)}
            nodes |= dict.fromkeys(("norm", "output", "inside", "off"), pa.array(np.ones(20)))
        pieces.append(network_tables(first, SEEDS, setting, looks, values, nodes))
        first += 10
    return study, written(folder, study, pieces)


def decided(folder, **more):
    return {(claim.id, claim.part): claim for claim in claims(*made_up(folder, **more))}


def test_every_claim_holds_on_a_run_in_which_it_does(tmp_path):
    found = decided(tmp_path)
    assert [key[0] for key in found] == ["B1"] * 3 + ["B2"] * 3 + ["B3"] * 4
    assert all(claim.holds for claim in found.values())
    assert found["B1", "rank of W"].values == (0.03,) * 10 and found["B1", "rank of W"].high == 0.05
    assert found["B3", "extremal sectors"].n == 20
    assert "90% end in their own, 10% are active for no example, 0% neither; 0 ever left" in found["B3", "SGD"].measured
    json.dumps([claim.as_dict() for claim in found.values()])


@pytest.mark.parametrize(
    ("change", "fails"),
    [
        (({"part": SGD, "layers": 2, "start": 0.05}, "W1 third", 1, 3, 0.05), [("B1", "rank of W")]),
        (({"part": SGD, "layers": 2, "start": 0.05}, "W1 value 3", 1, 3, 0.0301), [("B1", "third value")]),
        (({"part": SGD, "layers": 2, "start": 0.05}, "aligned", 1, 9, 0.74), [("B1", "alignment")]),
        (({"part": SGD, "layers": 2, "start": 0.05}, "inside", 1, 0, 0.89), [("B3", "SGD")]),
        (({"part": SGD, "layers": 2, "start": 0.05}, "left", 1, 0, 1.0), [("B3", "SGD")]),
        (({"part": SGD, "layers": 4, "start": 0.05}, "W2 third", 1, 0, 0.06), [("B2", "W2")]),
        (({"part": SGD, "layers": 4, "start": 0.05}, "W3 third", 1, 0, np.nan), [("B2", "W3")]),
        (({"part": FLOW, "points": DRAWN, "start": 0.001}, "left", 1, 5, 1.0), [("B3", "flow, drawn")]),
        (({"part": FLOW, "points": SPANNING, "start": 0.001}, "inside", 1, 5, 0.8), [("B3", "flow, spanning")]),
        (({"part": SETS}, "negative holds", 0, 2, 0.0), [("B3", "extremal sectors")]),
        (({"part": SETS}, "wrong pairs", 0, 2, 1.0), [("B3", "extremal sectors")]),
        (({"part": SGD, "start": 0.01}, "W1 third", 1, 3, 0.5), []),
        (({"part": FLOW, "start": 0.1}, "inside", 1, 3, 0.5), []),
        (({"part": SGD, "layers": 2, "start": 0.05}, "inside", 0, 0, 0.0), []),
    ],
)
def test_one_seed_is_enough_for_a_claim_not_to_hold_and_other_starts_stand_beside(tmp_path, change, fails):
    found = decided(tmp_path, change=[change])
    assert [key for key, claim in found.items() if not claim.holds] == fails
    beside = [other for claim in found.values() for other in claim.variants if not other.holds]
    assert bool(beside) is (change[0].get("start") in (0.01, 0.1) or (change[1] == "W1 third" and not fails))


def test_the_widest_gap_stands_beside(tmp_path):
    change = [({"part": SGD, "layers": 4, "start": 0.05}, "W2 value 2", 1, 0, 0.1)]
    found = decided(tmp_path, change=change)["B2", "W2"]
    assert found.holds
    assert [other.holds for other in found.beside[:2]] == [False, True]
    assert "after the second value in 9 of 10 seeds" in found.beside[0].measured
    assert gaps(group(Run(tmp_path), SGD, layers=4, start=0.05), 2).tolist() == [1] + [2] * 9


@pytest.mark.parametrize(
    "options",
    [{"epochs": 499}, {"dim": 19}, {"rate": 0.2}, {"tilt": "no"}, {"neurons": 50}, {"batch": 25}, {"points": 501}],
)
def test_nothing_is_decided_on_other_settings(tmp_path, options):
    study, run = made_up(tmp_path, Orthogonal(**options))
    assert claims(study, run) == []


def test_parts_are_decided_where_their_own_settings_are_there(tmp_path):
    study, run = made_up(tmp_path)
    assert claims(dataclasses.replace(study, seeds=9), run) == []

    def ids(**options):
        return [claim.part for claim in claims(dataclasses.replace(study, **options), run)]

    assert ids(start=(0.01, 0.002)) == ["extremal sectors", "flow, drawn", "flow, spanning"]
    assert not {"flow, drawn", "flow, spanning"} & set(ids(flow_time=100.0))
    assert "extremal sectors" not in ids(searches=10)
    assert "W1" not in ids(layers=(2,)) and "alignment" not in ids(layers=(4,))


def test_a_spread_is_in_words():
    assert spread(np.array([0.034, 0.0391])) == "0.034 to 0.039"
    assert spread(np.array([1.0, np.nan])) == "1"
    assert spread(np.array([np.nan])) == "none is finite"


@pytest.fixture
def points(tmp_path):
    """Writes labelled points to a file, as numpy.savez does."""

    def write(name="points.npz", **arrays):
        np.savez(tmp_path / name, **arrays)
        return str(tmp_path / name)

    return write


def test_points_of_ones_own_are_learned_and_decide_nothing(points, tmp_path):
    x, y = (part[0].numpy() for part in orthogonally_separable(3, 12, [2]))
    study = dataclasses.replace(
        SMALL, data=points(x=x, y=np.where(y > 0, 7, 3)), layers=(2,), start=(0.05,), flow_start=(0.1,)
    )
    assert study.kinds == (GIVEN,)
    both = study.sets(GIVEN, [1, 2])
    assert np.array_equal(both.x[1], x) and np.array_equal(both.y[0], y)
    run = made(tmp_path, study)
    assert (run.column("part") == SETS).sum() == 1
    assert group(run, SGD, layers=2, start=0.05).nodes("norm").shape == (2, 5)
    assert claims(study, run) == []
    assert run.config["contents"]["data"]
    assert "points of the file" in json.dumps([figure.kind.page() for figure in study.story(run).figures])


@pytest.mark.parametrize(
    ("x", "y", "words"),
    [
        ([[1, 0], [0, 1], [-1, -1]], [0, 0, 1], "points 0 and 1, both of class 0, have the inner product 0"),
        ([[1, 1], [1, 2], [1, -0.5]], [1, 1, 2], "points 0 and 2, of classes 1 and 2, have the inner product 0.5"),
        ([[1, 1], [1, 2]], [1, 1], "labels of 1 classes were given"),
        ([[1, 1], [1, 2], [1, 3]], [1, 2, 3], r"labels must have two classes, got 3 \(1, 2, 3\)"),
        ([[1, 1], [-1, -2]], [1, 2, 2], "x has 2 points and y 3 labels; allowed is a label for each"),
        ([[1, 1], [-1, -2]], ["a", "b"], "but one finite number a sample is needed; number the classes"),
        ([[1, 1], [-1, -2]], [1, np.nan], "but one finite number a sample is needed"),
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
    with pytest.raises(UserError, match=r"labels are read from \.npz alone"):
        read_labels(tmp_path / "x.npy")
    with pytest.raises(UserError, match="--data"):
        read_points(str(tmp_path / "none.npz"))
    assert read_labels(points(x=np.eye(2), y=np.array([[True], [False]]))).tolist() == [1.0, 0.0]
    x, y = np.array([[1.0, 1], [1, 2], [-1, -1]]), np.array([1, 1, 0])
    with pytest.raises(UserError, match="--batch: 4 was given; allowed is a whole number up to 3, the points"):
        dataclasses.replace(SMALL, data=points(x=x, y=y)).config()


def test_networks_that_diverge_are_marked_and_told(tmp_path):
    study = dataclasses.replace(SMALL, rate=1e200, epochs=3, seeds=1, looks=4, start=(0.05,), flow_start=(0.1,))
    run = made(tmp_path, study)
    assert run.networks["diverged_at"].null_count < run.networks.num_rows
    story = study.story(run)
    said = " ".join([story.headline, *(figure.caption for figure in story.figures), *(n.value for n in story.numbers)])
    assert "diverged" in said and "nan" not in said.lower() and "finite" not in said
    assert "with 2 layers no network is left; with 3 layers no network is left" in said
    assert all(figure.kind.page()["data"] for figure in story.figures)
    assert group(run, SGD, layers=2, start=0.05).first is None


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"batch": 501}, "--batch: 501 was given; allowed is a whole number up to 500, the points"),
        ({"layers": (1,)}, "--layers: 1 was given; allowed is a whole number from 2"),
        ({"layers": (2, 2)}, "--layers: 2 2 was given; name each value once"),
        ({"start": (0.0,)}, "--start: 0.0 was given; allowed is a number above 0"),
        ({"points": 0}, "--points: 0 was given; allowed is a whole number from 2"),
        ({"dim": 1}, "--dim: 1 was given; allowed is a whole number from 2"),
        ({"span_dim": 1}, "--span-dim: 1 was given; allowed is a whole number from 2, or 0 for no such sets"),
        ({"flow_time": float("inf")}, "--flow-time: inf was given"),
        ({"flow_start": ()}, "--flow-start: no value was given"),
        ({"searches": 0}, "--searches: 0 was given; allowed is a whole number from 1"),
        ({"dtype": "float32"}, "--dtype: float32 was given"),
    ],
)
def test_what_cannot_be_is_refused_in_words(options, words):
    with pytest.raises(UserError, match=words):
        Orthogonal(**options)


@pytest.mark.parametrize(
    ("option", "count", "words"),
    [
        ("points", 2, "--points: 2 was given; all 2 points in 20 dimensions, seed 2, are in class 1"),
        ("span_points", 5, "--span-points: 5 was given; seed 1 draws 4 points of class 1, fewer than the 5 that span"),
    ],
)
def test_sets_that_cannot_be_drawn_are_refused_before_anything_is_written(option, count, words, tmp_path):
    with pytest.raises(UserError) as caught:
        execute(Orthogonal(**{option: count, "batch": 1}), tmp_path, Said())
    assert str(caught.value).startswith(words)
    assert not list(tmp_path.iterdir())
