"""Triples of teacher, student and data that try to mislead theorems: reproducible, and as their kind promises."""

import pytest
import torch

import understudy as us
from understudy.nets import activate
from understudy.papers.specialization.certificates import triples
from understudy.papers.specialization.certificates.triples import DISTANCES, KINDS, Triple, perturbed_copy, triple
from understudy.papers.specialization.theory.induced import induced_planes
from understudy.papers.specialization.theory.sampled import trials
from understudy.theory.pair_geometry import PairGeometry
from understudy.training.parallel import one_thread_each


@pytest.fixture(autouse=True)
def one_thread():
    """Use one thread: for small tensors, several threads are slow on shared cores."""
    with one_thread_each():
        yield


def of_kind(kind: str, count: int = 3) -> list[Triple]:
    first = KINDS.index(kind)
    return [triple(number) for number in range(first, first + count * len(KINDS), len(KINDS))]


def outputs(made: Triple) -> tuple[torch.Tensor, torch.Tensor]:
    return made.teacher(made.x)[0], made.student(made.x)[0]


def pre_activations(network: us.Population, x: torch.Tensor) -> torch.Tensor:
    weight, bias = network.layers[0]
    return x @ weight[0].T + bias[0]


@pytest.fixture
def exact(monkeypatch):
    """Students without any distance from the teacher."""
    monkeypatch.setattr(triples, "DISTANCES", (0.0,))


def same(one: Triple, other: Triple) -> bool:
    parts = [
        (a, b)
        for network, twin in ((one.teacher, other.teacher), (one.student, other.student))
        for layer, again in zip(network.layers, twin.layers, strict=True)
        for a, b in zip(layer, again, strict=True)
    ]
    return torch.equal(one.x, other.x) and all(torch.equal(a, b) for a, b in parts)


@pytest.mark.parametrize("number", range(len(KINDS)), ids=KINDS)
def test_a_triple_depends_on_its_number_alone_and_suits_the_theorems(number):
    made = triple(number)
    assert same(made, triple(number))
    assert made.number == number
    assert made.kind == KINDS[number]
    assert made.teacher.dtype == made.student.dtype == made.x.dtype == torch.float64
    assert len(made.teacher) == len(made.student) == 1
    assert 1 <= made.teacher.inputs == made.student.inputs == made.x.shape[1] <= 4
    assert 1 <= made.teacher.sizes[1] <= 4
    assert len(made.teacher.layers) == len(made.student.layers) in (2, 3)
    assert made.teacher.slope == made.student.slope in (0.0, 0.2)
    assert all(part.isfinite().all() for n in (made.teacher, made.student) for layer in n.layers for part in layer)


def test_different_numbers_give_different_triples():
    one, other = of_kind("few", 2)
    assert one.x.shape != other.x.shape or not torch.equal(one.x, other.x)


def test_all_sizes_depths_and_slopes_occur():
    several = [triple(number) for number in range(11, 60 * len(KINDS), len(KINDS))]
    assert {made.kind for made in several} == {"few"}
    assert {made.teacher.inputs for made in several} == {1, 2, 3, 4}
    assert {made.teacher.sizes[1] for made in several} == {1, 2, 3, 4}
    assert {len(made.teacher.layers) for made in several} == {2, 3}
    assert {made.teacher.slope for made in several} == {0.0, 0.2}


@pytest.mark.parametrize("distance", [0.0, 1e-9, 1e-3])
def test_a_copy_has_the_requested_distance(distance):
    teacher = us.teachers.regular((3, 2, 2), seeds=[4], dtype=torch.float64)
    student = perturbed_copy(teacher, 2, distance, 7)
    assert student.sizes == (3, 4, 2)
    off = (student.layers[0].weight[0, :2] - teacher.layers[0].weight[0]).abs().max()
    assert off == 0 if distance == 0 else 0.1 * distance < off < 5 * distance
    x = us.data.Gaussian(3, train=100, evaluation=1).training(1, dtype=torch.float64)
    difference = (student(x) - teacher(x)).abs().max()
    assert difference <= 1e-15 if distance == 0 else 0.1 * distance < difference < 100 * distance


@pytest.mark.parametrize("kind", ["same", "split", "opposite", "duplicate", "ties", "few", "deep"])
def test_students_at_distance_zero_equal_the_teacher(kind, exact, monkeypatch):
    # One node in place of two nearly equal ones is another function.
    if kind == "duplicate":
        monkeypatch.setattr(triples._Draws, "choose", _without_gaps(triples._Draws.choose))
    for made in of_kind(kind):
        theirs, ours = outputs(made)
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


def _without_gaps(choose):
    def chosen(self, *of):
        found = choose(self, *of)
        return 0.0 if 1e-13 in of else found

    return chosen


def test_split_nodes_share_a_boundary_and_opposite_nodes_have_opposite_weights(exact):
    for made in of_kind("split"):
        z, ours = pre_activations(made.teacher, made.x)[:, 0], pre_activations(made.student, made.x)
        length = (ours[:, made.teacher.sizes[1]] / z).median()
        assert 0.3 <= length <= 2.3
        torch.testing.assert_close(ours[:, made.teacher.sizes[1]], length * z)
    for made in of_kind("opposite"):
        torch.testing.assert_close(
            pre_activations(made.student, made.x)[:, 0], -pre_activations(made.teacher, made.x)[:, 0]
        )
        assert (pre_activations(made.student, made.x)[:, made.teacher.sizes[1]] > 0).all()


def test_duplicate_teacher_nodes_have_nearly_one_boundary():
    gaps = []
    for made in of_kind("duplicate", 8):
        weight = made.teacher.layers[0].weight[0]
        gaps.append(float((weight[1] - weight[0]).abs().max()))
    assert max(gaps) < 0.05
    assert min(gaps) == 0
    assert any(0 < gap < 1e-8 for gap in gaps)


def test_a_hidden_kink_is_invisible_in_the_data_and_has_no_student():
    for made in of_kind("hidden", 5):
        theirs, ours = outputs(made)
        shown = (theirs - ours).abs().amax(1) > 1e-9
        assert shown.sum() <= 30
        pair = PairGeometry(made.teacher, made.student, made.x)
        z = pre_activations(made.teacher, made.x)[:, 0].abs()
        assert 9e-6 < pair.student_distances(0).eps.min() <= 0.3
        assert shown.sum() <= (z < 0.3).sum()


def test_fitted_outputs_are_optimal():
    for made in of_kind("fitted"):
        h = made.x
        for weight, bias in made.student.layers[:-1]:
            h = activate(h @ weight[0].T + bias[0], made.student.slope)
        theirs, ours = outputs(made)
        h = torch.cat((h, torch.ones_like(h[:, :1])), 1)
        slope = h.T @ (theirs - ours) / len(h)
        assert slope.abs().max() <= 1e-8 * (1 + h.abs().max() * theirs.abs().max())


def test_missing_nodes_have_no_student_nearby():
    # In one dimension all normals are ±1: the bias alone distinguishes nodes, and it is kept.
    several = [made for made in of_kind("missing", 8) if made.teacher.inputs > 1]
    far = [float(PairGeometry(made.teacher, made.student, made.x).student_distances(0).eps.min()) for made in several]
    assert sorted(far)[len(far) // 4] > 0.05


def test_a_little_training_reduces_the_loss():
    improved = 0
    for made in of_kind("trained", 5):
        before = _before_training(made.number)
        (theirs, ours), (_, first) = outputs(made), outputs(before)
        improved += float((theirs - ours).square().mean()) < float((theirs - first).square().mean())
    assert improved >= 4


def _before_training(number: int) -> Triple:
    draws = triples._Draws(number)
    teacher, student, x = draws.choose(triples._same, triples._random, triples._missing)(draws)
    return Triple(number, "before", teacher.population(0), student.population(0), x)


def test_scales_ties_and_numbers_of_samples():
    scaled = of_kind("scaled", 10)
    sizes = [float(made.x.abs().max()) for made in scaled]
    assert min(sizes) < 1e-4
    assert max(sizes) > 1e4
    lengths = [float(made.student.layers[0].weight.abs().max()) for made in scaled]
    assert max(lengths) / min(lengths) > 1e6
    for made in of_kind("ties"):
        assert len(made.x.unique(dim=0)) < len(made.x)
        torch.testing.assert_close(made.x, made.x.round(decimals=2), rtol=0, atol=1e-12)
    assert all(1 <= len(made.x) <= 301 for made in of_kind("few", 20))
    assert all(len(made.teacher.layers) == 3 for made in of_kind("deep"))


def _guarantee(made: Triple, j: int, aware: bool) -> tuple[float, float] | None:
    pair = PairGeometry(made.teacher, made.student, made.x)
    deep = len(made.teacher.layers) > 2
    found = [t for t in trials(pair, j, aware and not deep, induced_planes if deep else None) if t.holds]
    if not found:
        return None
    best = min(found, key=lambda t: t.eps)
    return best.sin, best.gap


def test_students_outside_are_just_beyond_the_guarantee():
    beyond = []
    for number in range(KINDS.index("outside"), 5 * len(KINDS), len(KINDS)):
        draws = triples._Draws(number)
        teacher, student, x = triples._certified(draws)
        aware = draws.choose(False, True)
        before = Triple(number, "before", teacher.population(0), student.population(0), x)
        guaranteed = next(((j, g) for j in range(teacher.weight.shape[0]) if (g := _guarantee(before, j, aware))), None)
        after = triple(number)
        assert torch.equal(after.x, x)
        if guaranteed is None:
            assert torch.equal(after.student.layers[0].weight, before.student.layers[0].weight)
            continue
        j, (sin, gap) = guaranteed
        near = PairGeometry(after.teacher, after.student, x).student_distances(j)
        moved = (after.student.layers[0].weight != before.student.layers[0].weight).any(2)[0]
        moved |= (after.student.layers[0].bias != before.student.layers[0].bias)[0]
        assert not ((near.sin <= sin) & (near.gap <= gap))[moved].any()
        ratios = torch.maximum(near.sin / sin, near.gap / gap)[moved]
        beyond += ratios.tolist()
    assert len(beyond) >= 2
    assert beyond == pytest.approx([triples.BEYOND] * len(beyond), rel=1e-6)


def test_distances_range_from_zero_to_a_tenth():
    assert DISTANCES[0] == 0
    assert DISTANCES[1] == 1e-12
    assert DISTANCES[-1] == 0.1
