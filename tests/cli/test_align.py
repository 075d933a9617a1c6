"""`understudy align`: matching nodes of two network files."""

import dataclasses
import itertools
import json
import re
import sys

import numpy as np
import pytest
import torch
from torch import nn

import understudy as us
from support.commands import understudy
from understudy import cli
from understudy.measures import svcca
from understudy.nets import Layer, Population


def stack(*sizes: int, seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    layers = [part for a, b in itertools.pairwise(sizes) for part in (nn.Linear(a, b), nn.ReLU())]
    for layer in layers[::2]:
        nn.init.normal_(layer.weight)
    return nn.Sequential(*layers[:-1])


def permute_and_rescale(network: nn.Sequential, seed: int = 1) -> tuple[nn.Sequential, list[list[int]]]:
    """A network of the same function with hidden nodes permuted and scaled by positive numbers.

    Also returns the new index of every original node, for each hidden layer.
    """
    draw = torch.Generator().manual_seed(seed)
    linear = [layer for layer in network if isinstance(layer, nn.Linear)]
    copy = stack(linear[0].in_features, *(layer.out_features for layer in linear))
    copies = [layer for layer in copy if isinstance(layer, nn.Linear)]
    order, scale, moved = torch.arange(linear[0].in_features), torch.ones(linear[0].in_features), []
    for i, (old, new) in enumerate(zip(linear, copies, strict=True)):
        weight = old.weight.data[:, order] / scale
        bias = old.bias.data
        nodes = old.out_features
        last = i == len(linear) - 1
        order = torch.arange(nodes) if last else torch.randperm(nodes, generator=draw)
        scale = torch.ones(nodes) if last else 0.2 + 3 * torch.rand(nodes, generator=draw)
        new.weight.data, new.bias.data = weight[order] * scale[:, None], bias[order] * scale
        if not last:
            moved.append(torch.argsort(order).tolist())
    return copy, moved


@pytest.fixture
def align(tmp_path, monkeypatch, capsys):
    """Run `understudy align … --json` in a folder of its own; returns the layers."""

    def align(*words: object) -> list[dict]:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["understudy", "align", *map(str, words), "--json"])
        assert cli.main() == 0
        printed = capsys.readouterr()
        assert printed.err == ""
        return json.loads(printed.out)["layers"]

    return align


@pytest.mark.parametrize("sizes", [(6, 5, 3), (6, 7, 8, 9, 4)], ids=["2 layers", "4 layers"])
def test_a_permuted_and_rescaled_copy_aligns_perfectly_with_its_permutation(align, tmp_path, sizes):
    teacher = stack(*sizes, seed=7)  # no node of it is dead
    student, moved = permute_and_rescale(teacher)
    x = torch.randn(20, sizes[0])
    assert torch.allclose(teacher(x), student(x), atol=1e-5)
    torch.save(teacher.state_dict(), tmp_path / "teacher.pt")
    torch.save(student.state_dict(), tmp_path / "student.pt")
    layers = align("teacher.pt", "student.pt", "--samples", "3000")
    assert [layer["best"] for layer in layers] == moved
    for layer, nodes in zip(layers, sizes[1:-1], strict=True):
        assert np.shape(layer["correlation"]) == (nodes, nodes)
        assert layer["recovered"] == nodes
        assert layer["svcca"] > 0.9  # rescaled nodes have other directions of most variance
        assert min(layer["best_correlation"]) > 1 - 1e-6
    # Only the first layers have the same inputs, so that their weights can be compared.
    assert max(layers[0]["sin_angle"]) < 1e-3
    assert max(layers[0]["bias_gap"]) < 1e-3


def test_rows_are_teacher_nodes_and_columns_student_nodes(align, tmp_path):
    torch.save(stack(6, 4, 3).state_dict(), tmp_path / "teacher.pt")
    torch.save(stack(6, 9, 3, seed=5).state_dict(), tmp_path / "student.pt")
    (layer,) = align("teacher.pt", "student.pt", "--samples", "500")
    correlation = np.array(layer["correlation"])
    assert correlation.shape == (4, 9)
    assert layer["best"] == correlation.argmax(1).tolist()
    np.testing.assert_allclose(layer["best_correlation"], correlation.max(1))


def test_correlations_are_those_of_the_given_inputs(align, tmp_path):
    teacher, student = stack(6, 4, 3), stack(6, 5, 3, seed=5)
    torch.save(teacher.state_dict(), tmp_path / "teacher.pt")
    torch.save(student.state_dict(), tmp_path / "student.pt")
    x = np.random.default_rng(0).normal(size=(50, 6))
    np.save(tmp_path / "x.npy", x)
    (layer,) = align("teacher.pt", "student.pt", "--data", "x.npy")
    hidden = [net[:2].double()(torch.from_numpy(x)).detach().numpy() for net in (teacher, student)]
    expected = np.corrcoef(*hidden, rowvar=False)[:4, 4:]
    np.testing.assert_allclose(layer["correlation"], expected, atol=1e-6)
    whole = svcca(*(torch.from_numpy(each).unsqueeze(0) for each in hidden))
    assert layer["svcca"] == pytest.approx(float(whole), abs=1e-6)
    np.save(tmp_path / "x.npy", x[:9])  # no more samples than nodes of both
    assert align("teacher.pt", "student.pt", "--data", "x.npy")[0]["svcca"] is None


def test_linear_layers_that_differ_by_a_linear_map_are_the_same_up_to_it():
    teacher = us.teachers.regular((6, 4, 3), seeds=1, bias=0.0, slope=1.0, dtype=torch.float64)
    mix = torch.randn(4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    low, top = teacher.layers
    student = dataclasses.replace(
        teacher, layers=(us.nets.Layer(mix @ low.weight, low.bias), us.nets.Layer(top.weight @ mix.inverse(), top.bias))
    )
    x = torch.randn(500, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    torch.testing.assert_close(teacher(x), student(x))
    (layer,) = us.measures.align(teacher, student, x)
    assert layer.recovered < 4
    assert layer.svcca == pytest.approx(1.0, abs=1e-9)


def test_networks_of_unequal_depth_are_compared_from_the_lowest_layer(align, tmp_path, capsys, monkeypatch):
    torch.save(stack(6, 5, 4, 4, 3).state_dict(), tmp_path / "deep.pt")
    torch.save(stack(6, 5, 3).state_dict(), tmp_path / "shallow.pt")
    layers = align("deep.pt", "shallow.pt", "--samples", "200")
    assert len(layers) == 1
    monkeypatch.setattr(sys, "argv", ["understudy", "align", "deep.pt", "shallow.pt", "--samples", "200"])
    assert cli.main() == 0
    assert "The networks have 3 and 1 hidden layers; the lowest 1 were compared." in capsys.readouterr().out


def test_a_node_that_is_never_active_correlates_with_none(align, tmp_path):
    teacher = stack(6, 4, 3)
    teacher[0].weight.data[2], teacher[0].bias.data[2] = 0, -1
    torch.save(teacher.state_dict(), tmp_path / "teacher.pt")
    (layer,) = align("teacher.pt", "teacher.pt", "--samples", "200")
    assert layer["correlation"][2] == [0, 0, 0, 0]
    assert layer["recovered"] == 3


def population(count: int) -> Population:
    draw = torch.Generator().manual_seed(3)
    layers = [Layer(torch.randn(count, b, a, generator=draw), None) for a, b in itertools.pairwise((6, 5, 3))]
    return Population(tuple(layers), torch.arange(count))


def test_one_network_of_a_population_is_selected_by_its_index(align, tmp_path):
    many = population(3)
    us.save(many, tmp_path / "many.safetensors")
    us.save(many, tmp_path / "one.safetensors", which=2)
    same = align("many.safetensors", "one.safetensors", "--teacher-network", "2", "--samples", "300")
    assert same[0]["best"] == [0, 1, 2, 3, 4]
    assert same[0]["recovered"] == 5
    turned = align("one.safetensors", "many.safetensors", "--student-network", "2", "--samples", "300")
    assert turned[0]["recovered"] == 5
    assert align("many.safetensors", "one.safetensors", "--samples", "300")[0]["recovered"] < 5


@pytest.mark.parametrize("ending", ["pdf", "svg", "png"])
def test_the_heat_map_is_drawn_to_a_file(align, tmp_path, ending):
    torch.save(stack(6, 4, 3).state_dict(), tmp_path / "teacher.pt")
    align("teacher.pt", "teacher.pt", "--samples", "100", "--figure", f"map.{ending}")
    begins = {"pdf": b"%PDF", "svg": b"<?xml", "png": b"\x89PNG"}[ending]
    assert (tmp_path / f"map.{ending}").read_bytes().startswith(begins)


def test_the_command_shows_a_table_and_a_heat_map(tmp_path):
    teacher = stack(6, 4, 3)
    student, (moved,) = permute_and_rescale(teacher)
    torch.save(teacher.state_dict(), tmp_path / "teacher.pt")
    one = Population(
        tuple(Layer(part.weight.data[None], part.bias.data[None]) for part in student if isinstance(part, nn.Linear)),
        torch.tensor([1]),
    )
    us.save(one, tmp_path / "student.safetensors")
    shown = understudy("align", "teacher.pt", "student.safetensors", "--samples", "1000", cwd=tmp_path).stdout
    rows = [line.split() for line in shown.splitlines() if line.strip()[:1].isdigit()]
    assert [row[:3] for row in rows[:4]] == [[str(j), str(k), "1.0000"] for j, k in enumerate(moved)]
    assert "recovered: 4 of 4 teacher nodes above 0.95" in shown
    assert "██" in shown


def test_progress_is_shown_on_standard_error_also_with_json(example, monkeypatch):
    monkeypatch.setattr("understudy._progress.can_animate", lambda console: True)
    done = understudy("align", "teacher.pt", "student.pt", "--json", cwd=example)
    assert "comparing layers of up to" in done.stderr and "on 10,000 inputs" in done.stderr
    assert json.loads(done.stdout)["layers"]


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("align", "teacher.pt", "student.pt"), "comparing layers of up to 6 and 24 nodes on 10,000 inputs"),
        (("check", "teacher.pt", "student.pt"), "checking 1 network"),
        (("prune", "student.pt", "--teacher", "teacher.pt"), "selecting among 24 nodes"),
        (("connect", "a.pt", "b.pt", "--teacher", "teacher.pt"), "finding a path"),
    ],
)
def test_large_work_is_announced_on_standard_error(example, monkeypatch, words, what):
    assert "large" not in understudy(*words, "--json", cwd=example).stderr
    monkeypatch.setattr("understudy._progress._LONG", 1e-5)
    announced = understudy(*words, "--json", cwd=example).stderr.splitlines()[0]
    assert re.fullmatch(rf"{what}: this is large \(\S+ multiplications, about 0 s on one core\)", announced)


def test_the_same_command_draws_the_same_inputs(align, tmp_path):
    torch.save(stack(6, 4, 3).state_dict(), tmp_path / "a.pt")
    torch.save(stack(6, 4, 3, seed=2).state_dict(), tmp_path / "b.pt")
    first, again, other, flat = (
        align("a.pt", "b.pt", "--samples", "100", *more) for more in ((), (), ("--seed", "2"), ("--inputs", "uniform"))
    )
    assert first == again
    assert first != other
    assert first != flat


def test_the_inputs_that_were_drawn_stand_in_the_result(tmp_path):
    torch.save(stack(3, 4, 2).state_dict(), tmp_path / "t.pt")
    words = ("align", "t.pt", "t.pt", "--samples", 1234, "--seed", 7, "--input-std", 2)
    drawn = "1,234 inputs drawn: gaussian, std 2, seed 7"
    assert drawn in understudy(*words, cwd=tmp_path).stdout
    assert json.loads(understudy(*words, "--json", cwd=tmp_path).stdout)["inputs"] == drawn
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(50, 3)))
    assert "50 inputs of x.npy" in understudy("align", "t.pt", "t.pt", "--data", "x.npy", cwd=tmp_path).stdout


def test_a_heat_map_counts_only_the_nodes_that_it_cuts(tmp_path):
    for sizes, name in (((3, 4, 2), "t.pt"), ((3, 70, 2), "s.pt")):
        torch.save(stack(*sizes).state_dict(), tmp_path / name)
    shown = understudy("align", "t.pt", "s.pt", cwd=tmp_path).stdout
    assert "60 of 70 student nodes are shown" in shown and "4 teacher" not in shown.replace("4 teacher nodes above", "")
