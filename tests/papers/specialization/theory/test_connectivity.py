"""Paths between solutions: fig. 13 of Tian 2020 by hand, moves per segment, and few idle nodes."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import understudy as us
from support.problems import population
from support.taught import inputs, network, solution, teacher, trained
from understudy._errors import UserError
from understudy.papers.specialization.theory.connectivity import (
    WeightPath,
    connecting_path,
    losses_along,
    straight_path,
)
from understudy.theory.unexplained import unexplained


@pytest.fixture(scope="module")
def taught():
    return trained()


def figure_13():
    """Two teacher nodes, three students: nodes 1, 2 and an idle one; and an idle one, 2 and 1."""
    w1, w2, idle = torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0]), torch.tensor([1.0, -1.0])
    v1, v2, none = torch.tensor([1.0, 2.0]), torch.tensor([3.0, -1.0]), torch.zeros(2)
    flat, out = torch.zeros(3), torch.zeros(2)
    of = network(torch.stack((w1, w2)), flat[:2], torch.stack((v1, v2)), out)
    a = network(torch.stack((w1, w2, idle)), flat, torch.stack((v1, v2, none)), out)
    b = network(torch.stack((-idle, w2, w1)), flat, torch.stack((none, v2, v1)), out)
    return of, a, b


def test_figure_13_by_hand():
    of, a, b = figure_13()
    x = inputs(dim=2)
    path = connecting_path(a, b, of, x)
    assert float(losses_along(path, of, x).max()) < 1e-25
    assert float(losses_along(straight_path(a, b), of, x, 11).max()) > 0.05
    first, last = path.points[0], path.points[len(path.points) - 1]
    for end, given_end in ((first, a), (last, b)):
        for ours, theirs in zip(end.layers, given_end.layers, strict=True):
            assert torch.equal(ours.weight, theirs.weight) and torch.equal(ours.bias, theirs.bias)


def assert_valid_moves(path: WeightPath) -> None:
    """A segment moves fan-outs alone, or the weights of nodes with fan-out 0."""
    (weight, bias), (out, output) = path.points.layers
    for i, move in enumerate(path.moves):
        turned = (weight[i] != weight[i + 1]).any(1) | (bias[i] != bias[i + 1])
        if move == "fan-outs":
            assert not turned.any()
        else:
            assert move == "weights"
            assert torch.equal(out[i], out[i + 1]) and torch.equal(output[i], output[i + 1])
            assert not out[i][:, turned].any()


@given(st.integers(0, 1000), st.integers(1, 5), st.booleans(), st.sampled_from([0.0, 0.2]))
def test_exact_solutions_are_connected_at_zero_loss(seed, idle, twice, slope):
    of = teacher(nodes=4, seed=seed, slope=slope)
    a, b = solution(of, idle, seed + 1, twice), solution(of, idle, seed + 2, twice)
    path = connecting_path(a, b, of, inputs(200), 0.9999)
    assert_valid_moves(path)
    assert float(losses_along(path, of, inputs(200), 4).max()) < 1e-20
    assert len(path.moves) <= 3 + 2 * 2 * 4


def test_wide_students_need_few_segments():
    of = teacher(nodes=4)
    path = connecting_path(solution(of, 12), solution(of, 12, 2), of, inputs(), 0.9999)
    assert len(path.moves) in (5, 7)


def test_one_idle_node_suffices_for_any_order():
    of = teacher(nodes=5)
    path = connecting_path(solution(of, 1, 1, False), solution(of, 1, 7, False), of, inputs(), 0.9999)
    assert_valid_moves(path)
    assert float(losses_along(path, of, inputs()).max()) < 1e-20


def test_without_an_idle_node_the_error_asks_for_one():
    of = teacher(nodes=4)
    with pytest.raises(UserError, match="all 4 nodes hold a teacher node, and one must be free"):
        connecting_path(solution(of, 0, 1, False), solution(of, 0, 2, False), of, inputs())


@given(st.data())
@settings(max_examples=60)
def test_one_idle_node_suffices_for_any_layout(data):
    """Every waypoint represents teacher nodes that a or b learned, and all that both learned."""
    nodes, known = data.draw(st.integers(1, 6), label="nodes"), 5
    angles = 2 * torch.pi * torch.arange(known) / known
    units = torch.stack((angles.cos(), angles.sin()), 1).double()
    of = network(units, torch.full((known,), 0.1), 1 + torch.arange(known)[:, None], torch.zeros(1))

    def student(name: str, most: int):
        places = st.lists(st.integers(0, nodes - 1), min_size=1, max_size=min(most, known), unique=True)
        where = data.draw(places, label=name)
        holds = dict(zip(data.draw(st.permutations(range(known)), label=name), where, strict=False))
        # Idle nodes are never active and have fan-out 0.
        first, biases, fan_out = torch.ones(nodes, 2).double(), torch.full((nodes,), -50.0), torch.zeros(nodes, 1)
        for j, k in holds.items():
            first[k], biases[k], fan_out[k] = 2 * units[j], 0.2, (1 + j) / 2
        return holds, network(first, biases, fan_out, torch.zeros(1))

    (held, a), (home, b) = student("a", nodes), student("b", nodes)
    x = inputs(100, 2)
    if len(held) == nodes and set(held) <= set(home):
        with pytest.raises(UserError, match=f"all {nodes} nodes hold a teacher node"):
            connecting_path(a, b, of, x, 0.999)
        return
    path = connecting_path(a, b, of, x, 0.999)
    assert_valid_moves(path)
    assert torch.equal(path.points[len(path.points) - 1].layers[1].weight, b.layers[1].weight)
    for i in range(len(path.points)):
        (weight, bias), (out, _) = ((layer.weight[0], layer.bias[0]) for layer in path.points[i].layers)
        live = out[0] != 0
        assert (bias[live] > 0).all()
        represented = (weight[live] @ units.T).argmax(1).tolist()
        assert len(set(represented)) == len(represented)
        assert set(held) & set(home) <= set(represented) <= set(held) | set(home)
        exact = sum((1 + j) * (x @ units[j] + 0.1).clamp_min(0) for j in represented)
        torch.testing.assert_close(path.points[i](x)[0, :, 0], exact + torch.zeros(len(x)).double())
    along, points = losses_along(path, of, x, 3), unexplained(of, path.points, x)
    assert float(along.max()) <= float(points.max()) * (1 + 1e-9) + 1e-20


def test_teacher_nodes_that_only_one_student_learned_appear_and_disappear():
    of = teacher(nodes=3)
    a, b = solution(of, 3, 1, False), solution(of, 3, 2, False)

    def forgetful(student, j):
        """The student without its node for teacher node j."""
        (weight, bias), (out, output) = ((layer.weight[0], layer.bias[0]) for layer in student.layers)
        like = torch.nn.functional.cosine_similarity(weight, of.layers[0].weight[0, j][None]) > 1 - 1e-9
        assert like.sum() == 1
        return network(torch.where(like[:, None], -weight, weight), bias, torch.where(like[:, None], 0, out.T), output)

    a, b = forgetful(a, 0), forgetful(b, 1)
    path = connecting_path(a, b, of, inputs(), 0.9999)
    assert_valid_moves(path)
    ends = [float(unexplained(of, each, inputs())) for each in (a, b)]
    assert float(losses_along(path, of, inputs()).max()) <= 1.001 * sum(ends) + max(ends)


def test_the_loss_is_largest_at_waypoints_and_constant_while_idle_nodes_move(taught):
    of, (a, b), data = taught
    x = data.evaluating(1, dtype=torch.float64)
    path = connecting_path(a, b, of, x)
    assert_valid_moves(path)
    along = losses_along(path, of, x, 9)
    points = unexplained(of, path.points, x)
    torch.testing.assert_close(along[:, 0], points[:-1])
    torch.testing.assert_close(along[:, -1], points[1:])
    assert float(along.max()) <= float(points.max()) * (1 + 1e-12)
    bends = along[:, 2:] - 2 * along[:, 1:-1] + along[:, :-2]
    assert float(bends.min()) > -1e-12
    still = [i for i, move in enumerate(path.moves) if move == "weights"]
    assert float((along[still] - along[still][:, :1]).abs().max()) < 1e-12


def test_the_path_of_trained_students_is_far_below_the_straight_line(taught):
    of, (a, b), data = taught
    x = data.evaluating(1, dtype=torch.float64)
    path, line = losses_along(connecting_path(a, b, of, x), of, x), losses_along(straight_path(a, b), of, x, 41)
    assert float(line.max()) > 30 * float(path.max())


def test_losses_along_are_those_of_interpolated_networks(taught):
    of, (a, b), data = taught
    x = data.evaluating(1, dtype=torch.float64)[:100]
    along = losses_along(straight_path(a, b), of, x, 5)[0]
    wide = [student.to(dtype=torch.float64) for student in (a, b)]
    for i, share in enumerate((0.0, 0.25, 0.5, 0.75, 1.0)):
        parts = [
            (1 - share) * p + share * q
            for ours, theirs in zip(wide[0].layers, wide[1].layers, strict=True)
            for p, q in zip(ours, theirs, strict=True)
        ]
        between = network(parts[0][0], parts[1][0], parts[2][0].T, parts[3][0])
        assert float(along[i]) == pytest.approx(float(unexplained(of, between, x)), rel=1e-9)


@pytest.mark.parametrize(
    ("a", "b", "words"),
    [
        (population((4, 6, 2), 1), population((4, 7, 2), 1), "sizes 4-6-2 and 4-7-2 cannot be connected"),
        (population((4, 6, 2), 1), population((4, 6, 2), 1, bias=False), "both with biases or both without"),
        (population((4, 6, 2), 1), population((4, 6, 2), 1, slope=0.1), "activation"),
        (population((4, 6, 6, 2), 1), population((4, 6, 6, 2), 1), "two layers"),
        (population((4, 6, 2), 2), population((4, 6, 2), 1), "one network, got 2"),
        (population((5, 6, 2), 1), population((5, 6, 2), 1), "same number of inputs, got 4 and 5"),
        (population((4, 6, 2), 1), population((4, 6, 2), 1), "no node of the first network correlates"),
    ],
)
def test_networks_that_cannot_be_connected_are_refused(a, b, words):
    with pytest.raises(UserError, match=words):
        connecting_path(a, b, teacher(), inputs(), 0.99999)


def test_bad_inputs_and_too_few_points_are_refused():
    of, a, b = figure_13()
    with pytest.raises(UserError, match="take 2 inputs, and the data has 3 per sample"):
        connecting_path(a, b, of, inputs(dim=3))
    with pytest.raises(UserError, match="at least 2"):
        losses_along(straight_path(a, b), of, inputs(dim=2), 1)
    dead = network(torch.zeros(3, 2), -torch.ones(3), torch.ones(3, 2), torch.zeros(2))
    with pytest.raises(UserError, match=r"no node of the second network .* the highest is 0"):
        connecting_path(a, dead, of, inputs(dim=2))


def test_networks_without_biases_are_connected():
    of, a, b = figure_13()
    bare = [us.nets.Population(tuple(us.nets.Layer(w, None) for w, _ in each.layers), each.seeds) for each in (a, b)]
    assert float(losses_along(connecting_path(*bare, of, inputs(dim=2)), of, inputs(dim=2)).max()) < 1e-25
