"""Exact cells of two-dimensional windows: tilings, affine maps, counts by hand, by brute force and by other methods."""

import math
import tracemalloc
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy import UserError
from understudy.papers.equivalence.theory.cells import cells as enumerate_cells
from understudy.papers.equivalence.theory.domain import as_box
from understudy.papers.equivalence.theory.plane import Plane, as_plane, plane_through
from understudy.papers.equivalence.theory.relu_network import ReluNetwork, random_network
from understudy.papers.equivalence.theory.subdivision import Subdivision, default_most_cells, subdivide

SIZES = st.sampled_from([(2, 3, 1), (2, 6, 4, 1), (2, 5, 5, 3), (2, 4, 4, 4, 1), (2, 12, 8, 1)])


def lines_network(weight, bias, seed=0):
    """A network of one hidden layer that folds at the lines w·x + b = 0."""
    weight = np.asarray(weight, dtype=float)
    outer = np.random.default_rng(seed).normal(size=(1, len(weight)))
    return ReluNetwork((weight, outer), (np.asarray(bias, dtype=float), np.zeros(1)))


def errors(found: Subdivision, network: ReluNetwork) -> tuple[float, float]:
    """Relative error of the total area, and largest error of the affine maps at the corners of their cells."""
    corners = found.points[found.corners]
    maps = np.repeat(found.pieces.maps, np.diff(found.offsets), axis=0)
    outputs = (maps[..., :2] * corners[:, None]).sum(-1) + maps[..., 2]
    exact = network(found.plane.inputs_at(corners))
    return abs(found.areas.sum() / found.plane.area - 1), float(np.abs(outputs - exact).max() / np.abs(exact).max())


def check(found: Subdivision, network: ReluNetwork, exact: float = 1e-10) -> None:
    """Check what every subdivision satisfies."""
    area, difference = errors(found, network)
    assert area < 1e-12
    assert difference < exact
    assert found.undecided == 0
    assert (found.areas > 0).all()
    assert found.cells - len(found.edges) + len(found.points) == 1  # Euler
    assert ((found.beside >= 0).sum(axis=1) == np.where(found.inside, 2, 1)).all()
    assert np.isnan(found.pieces.lines[~found.inside]).all()
    ends = found.points[found.edges[found.inside]]
    distance = (found.pieces.lines[found.inside, None, :2] * ends).sum(-1) + found.pieces.lines[found.inside, None, 2]
    assert np.abs(distance).max(initial=0.0) < 1e-7
    # Walking along the sides of a cell visits its corners.
    after = np.roll(found.corners, -1)
    after[found.offsets[1:] - 1] = found.corners[found.offsets[:-1]]
    assert (np.sort(found.edges[found.sides], 1) == np.sort(np.stack([found.corners, after], 1), 1)).all()


def reference(network: ReluNetwork, plane: Plane):
    """Polygons with their affine maps, cut one by one in plain Python."""
    corners = [(plane.lower[0], plane.lower[1]), (plane.upper[0], plane.lower[1])]
    corners += [(plane.upper[0], plane.upper[1]), (plane.lower[0], plane.upper[1])]
    start = np.column_stack([plane.axes.T, plane.origin])
    polygons = [(np.array(corners), start)]
    for layer, (weight, bias) in enumerate(zip(network.weights, network.biases, strict=True)):
        found = []
        for polygon, below in polygons:
            here = weight @ below
            here[:, 2] += bias
            parts = [polygon]
            if layer < len(network.hidden):
                for row in here:
                    parts = [part for whole in parts for part in cut(whole, row)]
            for part in parts:
                value = here[:, :2] @ part.mean(axis=0) + here[:, 2]
                active = np.where(value > 0, 1.0, network.slope) if layer < len(network.hidden) else np.ones(len(here))
                found.append((part, active[:, None] * here))
        polygons = found
    return polygons


def cut(polygon, line):
    values = polygon @ line[:2] + line[2]
    if (values >= -1e-13).all() or (values <= 1e-13).all():
        return [polygon]
    positive, negative = [], []
    for p, q, f, g in zip(polygon, np.roll(polygon, -1, 0), values, np.roll(values, -1), strict=True):
        (positive if f > 0 else negative).append(p)
        if f * g < 0:
            middle = p + f / (f - g) * (q - p)
            positive.append(middle)
            negative.append(middle)
    return [np.array(positive), np.array(negative)]


@given(SIZES, st.integers(1, 10**6), st.sampled_from([0.0, 0.1]))
def test_cells_tile_the_window_and_have_the_maps_of_the_network(sizes, seed, slope):
    network = random_network(sizes, seed, slope)
    found = subdivide(network)
    check(found, network)
    assert len(np.unique(found.patterns(), axis=0)) == found.cells


@given(SIZES, st.integers(1, 10**6))
def test_compiled_cells_are_those_of_plain_python(sizes, seed):
    network = random_network(sizes, seed)
    found, plain = subdivide(network), reference(network, as_plane(None, None, 2))
    areas = [
        abs(sum(p[0] * q[1] - p[1] * q[0] for p, q in zip(c, np.roll(c, -1, 0), strict=True))) / 2 for c, _ in plain
    ]
    assert found.cells == len(plain)
    assert np.sort(found.areas) == pytest.approx(np.sort(areas), abs=1e-11)
    theirs = np.array([m for _, m in plain])[np.lexsort(np.array([c.mean(0).round(7) for c, _ in plain]).T)]
    ours = found.pieces.maps[np.lexsort(found.centres.round(7).T)]
    assert ours == pytest.approx(theirs, abs=1e-10)


@given(st.integers(2, 20), st.integers(0, 10**6))
def test_lines_in_general_position(count, seed):
    random = np.random.default_rng(seed)
    angle, bias = random.uniform(0, np.pi, count), random.uniform(-1.5, 1.5, count)
    weight = np.stack([np.cos(angle), np.sin(angle)], 1)
    crossings = 0
    for i, j in combinations(range(count), 2):
        crossings += bool(np.abs(np.linalg.solve(weight[[i, j]], -bias[[i, j]])).max() < 2)
    found = subdivide(lines_network(weight, bias))
    assert found.cells == 1 + count + crossings
    # Every line is as long as its chord of the window.
    lengths = np.bincount(found.units[found.inside, 1], found.lengths[found.inside], count)
    assert lengths == pytest.approx([chord(w, b) for w, b in zip(weight, bias, strict=True)], abs=1e-9)


def chord(weight, bias):
    along, middle = np.array([-weight[1], weight[0]]), -bias * weight
    with np.errstate(divide="ignore"):
        to_border = np.sort(np.stack([(-2 - middle) / along, (2 - middle) / along]), axis=0)
    return max(0.0, to_border[1].min() - to_border[0].max())


def test_a_tent_by_hand():
    # ρ(x) + ρ(y) − 1 = 0 folds at (1, y ≤ 0), x + y = 1 between, and (x ≤ 0, 1).
    network = ReluNetwork((np.eye(2), np.ones((1, 2)), np.ones((1, 1))), (np.zeros(2), -np.ones(1), np.zeros(1)))
    found = subdivide(network)
    assert found.cells == 7
    second = found.units[:, 0] == 2
    assert sorted(found.lengths[second]) == pytest.approx([math.sqrt(2), 2, 2])
    assert sorted(found.areas) == pytest.approx([0.5, 2, 2, 2, 2, 3.5, 4])
    # The function is 0 below its fold: the axes fold only above it.
    visible = found.inside & (found.jumps > 1e-9)
    assert found.lengths[visible & ~second].sum() == pytest.approx(2.0)
    assert found.lengths[found.inside & ~second].sum() == pytest.approx(8.0)
    assert not found.is_transparent


def _words(patterns):
    """Patterns of 9 to 16 units as numbers, which are sorted much faster than rows."""
    return np.packbits(patterns, axis=1).view(np.uint16)[:, 0]


@pytest.mark.parametrize("seed", range(3))
def test_activation_patterns_of_a_grid(seed):
    network = random_network((2, 8, 6, 1), seed)
    found = subdivide(network)
    side = np.linspace(-2, 2, 1501)[1:-1]
    grid = np.stack(np.meshgrid(side, side), -1).reshape(-1, 2)
    seen = np.concatenate([h > 0 for h in network.preactivations(grid)[:-1]], axis=1)
    seen = set(np.unique(_words(seen)).tolist())
    ours = _words(found.patterns()).tolist()
    assert seen <= set(ours)
    # Only cells that are smaller than a few squares of the grid can be missed.
    missed = np.array([row not in seen for row in ours])
    assert found.areas[missed].max(initial=0.0) < 100 * (side[1] - side[0]) ** 2
    assert missed.mean() < 0.2


@pytest.mark.parametrize(("sizes", "seed"), [((2, 6, 4, 1), 1), ((2, 5, 4, 3, 1), 2), ((2, 8, 5, 1), 3)])
def test_counts_of_linear_programming(sizes, seed):
    network = random_network(sizes, seed)
    ours, theirs = subdivide(network), enumerate_cells(network, as_box(None, 2))
    assert ours.cells == len(theirs)
    assert {row.tobytes() for row in ours.patterns()} == {row.tobytes() for row in np.asarray(theirs.patterns, bool)}


@pytest.mark.parametrize("error", [0.0, 1e-16, 1e-15, 1e-14, 1e-13, 1e-12, 1e-11, 1e-9, 1e-6])
def test_near_degenerate_folds(error):
    random = np.random.default_rng(3)
    angle = np.linspace(0, np.pi, 13)[:-1]
    star = np.stack([np.cos(angle), np.sin(angle)], 1), np.zeros(12)
    doubled = np.repeat(random.normal(size=(5, 2)), 3, 0), np.repeat(random.normal(size=5), 3)
    border = np.array([[1.0, 0], [-1, 0], [0, 1], [1, 1], [1, -1]]), np.array([2.0, 2, -2, 0, 0])
    for weight, bias in (star, doubled, border):
        weight, bias = (a + error * random.normal(size=a.shape) for a in (weight, bias))
        network = lines_network(weight, bias)
        found = subdivide(network)
        check(found, network)
        assert error or found.merged == 0
        if error <= 1e-14 and len(weight) == 12:
            assert found.cells == 24
            assert len(found.points) == 25
    lattice = np.array([[1.0, 0]] * 5 + [[0, 1.0]] * 5), np.tile(np.linspace(-2, 2, 5), 2)
    second = random.normal(size=(8, 10)).round(), random.normal(size=8).round()
    parts = [a + error * random.normal(size=a.shape) for a in (*lattice, *second)]
    network = ReluNetwork((parts[0], parts[2], random.normal(size=(1, 8))), (parts[1], parts[3], np.zeros(1)))
    check(subdivide(network), network)


def test_units_that_are_zero_on_a_region():
    weights = (np.eye(2), np.array([[1.0, 1.0], [1.0, -1.0]]), np.ones((1, 2)))
    network = ReluNetwork(weights, (np.zeros(2), np.zeros(2), np.zeros(1)))
    found = subdivide(network)
    check(found, network)
    assert found.cells == 5  # four quadrants, of which x = y divides one


@given(st.integers(1, 10**6), st.integers(3, 12))
def test_a_plane_is_a_network_with_two_inputs(seed, inputs):
    network = random_network((inputs, 8, 5, 1), seed)
    points = np.random.default_rng(seed).normal(size=(3, inputs))
    plane = plane_through(points, inputs)
    found = subdivide(network, plane)
    check(found, network)
    first, bias = network.weights[0] @ plane.axes.T, network.weights[0] @ plane.origin + network.biases[0]
    flat = ReluNetwork((first, *network.weights[1:]), (bias, *network.biases[1:]))
    same = subdivide(flat, Plane(np.zeros(2), np.eye(2), plane.lower, plane.upper))
    assert same.cells == found.cells
    assert same.areas == pytest.approx(found.areas)


def test_zooming_into_a_window_keeps_its_cells():
    network = random_network((2, 20, 20, 1), 1)
    whole = subdivide(network)
    cell = np.argsort(whole.areas)[len(whole.areas) // 2]
    middle = whole.centres[cell]
    for half in (1e-2, 1e-4, 1e-6):
        window = as_plane([(m - half, m + half) for m in middle], None, 2)
        found = subdivide(network, window)
        check(found, network)
    vertex = whole.points[whole.edges[whole.units[:, 0] == 2][0, 0]]
    for half in (1e-3, 1e-5):
        found = subdivide(network, as_plane([(m - half, m + half) for m in vertex], None, 2))
        check(found, network)
        assert found.cells >= 3


def test_too_many_cells_are_refused_with_the_number():
    network = random_network((2, 20, 20, 1), 1)
    count = subdivide(network).cells
    assert subdivide(network, most_cells=count).cells == count
    with pytest.raises(
        UserError, match=r"^most_cells must be larger than 40: .* more than 40 cells .* of layer 2 of 2"
    ):
        subdivide(random_network((2, 4, 40, 1), 1), most_cells=40)
    lines = lines_network([[1.0, b / 1000] for b in range(200)], np.linspace(-1, 1, 200))
    count = subdivide(lines).cells
    words = (
        f"must be at least {count:,}, got {count - 1:,}: the 200 lines at which layer 1 folds divide the window into"
    )
    with pytest.raises(UserError, match=f"^most_cells {words} {count:,} cells;"):
        subdivide(lines, most_cells=count - 1)
    with pytest.raises(UserError, match="at least 1"):
        subdivide(network, most_cells=0)
    assert default_most_cells(random_network((2, 4000, 1), 1)) < default_most_cells(network)


def test_too_many_cells_of_the_first_layer_are_refused_before_memory_is_allocated():
    network = random_network((2, 1500, 1500, 1), 1)
    tracemalloc.start()
    try:
        with pytest.raises(
            UserError, match=r"^most_cells must be at least \d{3},\d{3}, got 117,\d{3} \(as many as take 4"
        ):
            subdivide(network)
        assert tracemalloc.get_traced_memory()[1] < 5e6
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("half", "fewest"), [(2.0, 0), (1e6, 0), (1e12, 10), (1e15, 10)])
def test_windows_that_are_too_large_to_resolve_folds(half, fewest):
    network = random_network((2, 8, 6, 1), 1)
    found = subdivide(network, as_plane((-half, half), None, 2))
    assert (found.merged > 0) == (fewest > 0)
    assert found.merged >= fewest


@pytest.mark.parametrize(
    ("window", "through", "words"),
    [
        ((1, 1), None, "positive area"),
        ((0, math.inf), None, "bounded"),
        ((0, math.nan), None, "bounded"),
        (((0, 1), (2, 1)), None, "positive area, got 2 to 1 for input 2"),
        ((0, 1, 2), None, "lower and upper end"),
        (((0, 1), (2,)), None, "lower and upper end"),
        ((0, 1), np.eye(3, 2), "^through and window exclude each other; give one of them$"),
        ((1e9, 1e9 + 1e-3), None, "^window must be larger or nearer to zero: .* to 1.2×10⁻⁷, .* edge is 1.0×10⁻³$"),
        (None, np.eye(3, 2) + 1e12, "^through must be larger or nearer to zero"),
        (None, [[0, 0], [1, 1], [2, 2]], "not on one line"),
        (None, [[0, 0], [0, 0], [2, 2]], "not on one line"),
        (None, [[0, 0], [1, 1], [0, 0]], "not on one line"),
        (None, [[0, 0], [1, 1]], r"three points of 2 numbers.*\(2, 2\)"),
        (None, [[0, 0], [1, 1], [math.inf, 0]], "finite"),
        (None, [[0, 0], [1], [2, 2]], "three points"),
    ],
)
def test_windows_that_cannot_be(window, through, words):
    with pytest.raises(UserError, match=words):
        as_plane(window, through, 2)


def test_windows():
    plane = as_plane(((0, 1), (2, 5)), None, 2)
    assert (plane.lower.tolist(), plane.upper.tolist(), plane.area) == ([0, 2], [1, 5], 3)
    assert as_plane(as_box((0, 3), 2), None, 2).area == 9
    with pytest.raises(UserError, match="3 inputs"):
        as_plane(None, None, 3)
    with pytest.raises(UserError, match="box of 2 inputs"):
        as_plane(as_box(None, 3), None, 2)
    with pytest.raises(UserError, match="space of 3 inputs"):
        as_plane(plane, None, 3)
    points = np.array([[1.0, 2, 3], [2, 0, 1], [0, 0, 0]])
    found = plane_through(points, 3)
    assert found.axes @ found.axes.T == pytest.approx(np.eye(2))
    uv = (points - found.origin) @ found.axes.T
    assert found.inputs_at(uv) == pytest.approx(points)
    assert (uv >= found.lower).all() and (uv <= found.upper).all()


@pytest.mark.deep
def test_a_hundred_thousand_cells():
    network = random_network((2, 300, 300, 1), 1)
    found = subdivide(network)
    check(found, network)
    assert found.cells > 70_000
