"""Paths between solutions: fig. 13 of Tian 2020 by hand, moves per segment, few idle nodes, and the command."""

import json
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import understudy as us
from support.problems import population
from support.taught import inputs, network, solution, teacher, trained
from understudy import cli
from understudy._errors import UserError
from understudy.cli.connect import _compared
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


@pytest.fixture
def run_connect(taught, tmp_path, monkeypatch, capsys):
    of, students, _ = taught
    us.save(of, tmp_path / "teacher.safetensors")
    for name, student in zip("ab", students, strict=True):
        us.save(student, tmp_path / f"{name}.safetensors")
    us.save(teacher(), tmp_path / "other.safetensors")

    def run_connect(*words: object) -> tuple[int, str, str]:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["understudy", "connect", *map(str, words)])
        status = cli.main()
        printed = capsys.readouterr()
        return status, printed.out, printed.err

    return run_connect


FILES = ("a.safetensors", "b.safetensors", "--teacher", "teacher.safetensors", "--samples", "1000")


def test_the_command_writes_waypoints_and_draws_the_loss(run_connect, taught, tmp_path):
    of, (a, b), _ = taught
    status, out, err = run_connect(*FILES, "--save", "path.safetensors", "--figure", "loss.svg", "--json")
    assert (status, err) == (0, "")
    printed_json = json.loads(out)
    points = us.load(tmp_path / "path.safetensors")
    assert len(points) == printed_json["way_points"] == len(printed_json["moves"]) + 1
    torch.testing.assert_close(points[0].layers[0].weight, a.layers[0].weight.double())
    torch.testing.assert_close(points[len(points) - 1].layers[1].weight, b.layers[1].weight.double())
    x = us.data.Gaussian(10, 1.5, evaluation=1000).evaluating(1, dtype=torch.float64)
    again = losses_along(WeightPath(points, tuple(printed_json["moves"])), of, x, 9)
    torch.testing.assert_close(again, torch.tensor(printed_json["losses"]).double())
    largest = printed_json["largest"]
    assert largest["path"] == max(map(max, printed_json["losses"])) and largest["line"] == max(printed_json["line"])
    assert largest["ratio"] == pytest.approx(largest["line"] / largest["path"])
    assert (tmp_path / "loss.svg").read_bytes().startswith(b"<?xml")


def test_the_command_prints_a_summary(run_connect):
    status, out, _ = run_connect(*FILES)
    assert status == 0
    assert "Largest loss on the path" in out and "times as much." in out and "weights of idle nodes" in out
    assert "The students themselves" not in out


def test_a_path_from_a_student_to_itself_is_not_called_lower(run_connect):
    status, out, _ = run_connect("a.safetensors", "a.safetensors", *FILES[2:])
    largest = json.loads(run_connect("a.safetensors", "a.safetensors", *FILES[2:], "--json")[1])["largest"]
    assert status == 0 and largest["ratio"] <= 1
    assert "lower" not in out and "times as much" not in out


@pytest.mark.parametrize(
    ("path", "line", "words"),
    [
        (1e-4, 1e-2, ": 100 times as much"),
        (7.5e-3, 1e-4, ": the path is 75 times higher, and the straight line already connects the students"),
        (1e-4, 0.0, ": the path is higher, and the straight line already connects the students"),
        (1.0, 1.5, ": the path is hardly lower"),
        (1.5, 1.0, ": the path is hardly higher"),
        (1.0, 1.0, ": they are equal"),
        (0.0, 1.0, ""),
    ],
)
def test_how_path_and_line_are_compared(path, line, words):
    assert _compared(path, line) == words


def test_untrained_students_are_reported_as_such(run_connect, taught, tmp_path):
    of, _, _ = taught
    for name, seed in (("a", 1), ("b", 2)):
        us.save(us.students.gaussian(of, multiple=5, scale=0.05, seeds=[seed]), tmp_path / f"{name}.safetensors")
    status, out, _ = run_connect(*FILES, "--below", "0.3")
    assert status == 0
    assert "times as much" not in out and "the path is hardly higher" in out
    assert "The students themselves leave " in out and "no path between them has a low loss" in out


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("a.safetensors", "b.safetensors"), "--teacher is missing"),
        ((*FILES, "--points", "1"), "--points must be at least 2, got 1"),
        ((*FILES, "--below", "3"), "--below must be between −1 and 1, got 3.0"),
        ((*FILES, "--save", "path.pt"), "--save must end in .safetensors, got path.pt"),
        ((*FILES, "--figure", "loss.gif"), "--figure must end in .pdf, .svg, .png, got loss.gif"),
        ((*FILES, "--b-network", "1"), "--b-network must be between 0 and 0 for b.safetensors, got 1"),
        (("a.safetensors", "teacher.safetensors", *FILES[2:]), "cannot be connected"),
        (("a.safetensors", "b.safetensors", "--teacher", "other.safetensors"), "same number of inputs, got 4 and 10"),
        ((*FILES, "--below", "1"), "no node of the first network correlates"),
    ],
)
def test_bad_words_are_answered_by_what_is_allowed(run_connect, tmp_path, words, error):
    before = set(tmp_path.iterdir())
    status, out, err = run_connect(*words)
    assert (status, out) == (2, "")
    assert error in err
    assert set(tmp_path.iterdir()) == before
