"""`us.compare`: populations, modules, files and runs; tables and files of the maps; bad input."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from torch import nn

import understudy as us
from support.equal_networks import changed_weight, shuffled, with_unit
from understudy.nets.population import stack
from understudy.papers.equivalence.theory.relu_network import random_network

A = random_network([4, 5, 3, 1], 1)
B, ORDERS, SCALINGS = shuffled(A, 1)


def test_one_function_in_two_files(tmp_path):
    us.save(A.population(), tmp_path / "a.safetensors")
    us.save(B.population(), tmp_path / "b.safetensors")
    found = us.compare(tmp_path / "a.safetensors", tmp_path / "b.safetensors")
    assert found.same and found.relation == "permutation and scaling" and found.witness is None
    assert "same=True" in repr(found) and "on [−2, 2]⁴" in repr(found) and "<pre>" in found._repr_html_()
    table = found.to_pandas()
    assert table["partner"].tolist() == np.concatenate(ORDERS).tolist() and len(table) == 8
    np.testing.assert_allclose(table["scaling"], np.concatenate(SCALINGS))
    saved = load_file(found.save(tmp_path / "maps.safetensors"))
    assert saved["P1"].tolist() == ORDERS[0].tolist() and np.allclose(saved["M2"], SCALINGS[1])
    assert json.loads(found.save(tmp_path / "all.json").read_text(encoding="utf-8")) == found.as_dict()
    assert found.as_dict()["domain"] == {"lower": [-2.0] * 4, "upper": [2.0] * 4}


def test_a_module_with_batchnorm_is_compared_with_what_it_computes():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2)).double().eval()
    module[1].running_mean.normal_()
    module[1].running_var.uniform_(0.5, 2)
    scale = module[1].weight / torch.sqrt(module[1].running_var + module[1].eps)
    plain = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).double()
    with torch.no_grad():
        plain[0].weight.copy_(scale[:, None] * module[0].weight)
        plain[0].bias.copy_(scale * (module[0].bias - module[1].running_mean) + module[1].bias)
        plain[2].load_state_dict(module[3].state_dict())
    found = us.compare(module, plain)
    assert found.same and found.changes[0] and not found.changes[1]


def test_different_networks_have_a_witness():
    other = changed_weight(B, 2, 2, 2, 1.001)
    found = us.compare(A, other, domain=(-1, 1))
    assert found.same is False and np.abs(found.witness).max() <= 1
    x = found.witness[None]
    assert np.abs(A(x) - other(x)).max() == found.as_dict()["witness"]["difference"] > 0
    worst = found.to_pandas().sort_values("distance").iloc[-1]
    assert (worst["layer"], worst["partner"]) == (2, 2)


def huge():
    return replace(A, weights=tuple(1e200 * weight for weight in A.weights))


def test_tolerance_decides_what_is_rounding():
    single = A.population().to("cpu", torch.float32)
    assert us.compare(A, single).same is False and us.compare(A, single, tolerance=1e-5).same


def test_differences_of_float32_are_named(tmp_path):
    single, shuffled_single = (each.population().to("cpu", torch.float32) for each in (A, B))
    us.save(single, tmp_path / "a.safetensors")
    found = us.compare(tmp_path / "a.safetensors", shuffled_single)
    words = "A and B are stored in float32, and differ by no more than its rounding: use --tolerance 1e-6 to ignore it"
    assert found.same is False and found.note == found.as_dict()["note"] == words and words in repr(found)
    assert us.compare(A, shuffled_single).note.startswith("B is stored in float32")
    assert us.compare(single, shuffled_single, tolerance=1e-6).note == ""
    assert us.compare(A, B).note == "" == us.compare(A, changed_weight(A, 1, 0, 0, 1 + 1e-7)).note
    assert us.compare(single, changed_weight(A, 1, 0, 0, 1.01)).note == ""
    many = us.compare(stack([single, shuffled_single]))
    assert len(many.functions) == 2 and "--tolerance 1e-6" in many.note == many.as_dict()["note"]
    assert us.compare([A, changed_weight(A, 1, 0, 0, 1 + 1e-7)]).note == ""


def test_units_of_reduced_networks_have_their_own_names(tmp_path):
    dead = with_unit(A, 1, [1.0, 0.0, 0.0, 0.0], -50.0, np.ones(3))
    order = np.array([5, 0, 1, 2, 3, 4])
    first = replace(dead, weights=(dead.weights[0][order], dead.weights[1][:, order], dead.weights[2]),
                    biases=(dead.biases[0][order], *dead.biases[1:]))  # fmt: skip
    found = us.compare(first, A)
    assert found.relation == "after removal" and found.as_dict()["degenerate"]["a"][0]["unit"] == 0
    units = [row for row in found.units() if row["layer"] == 1]
    assert all(row["unit"] == row["partner"] + 1 for row in units)
    saved = load_file(found.save(tmp_path / "maps.safetensors"))
    assert saved["a1"].tolist() == [1, 2, 3, 4, 5] and saved["P1"].tolist() == [0, 1, 2, 3, 4]


def test_networks_whose_values_are_not_finite_are_left_out():
    found = us.compare([A, huge(), B])
    assert found.functions == [[0, 2]] and found.left_out == 1 == found.as_dict()["left_out"]


def test_distances_of_classes_are_saved(tmp_path):
    found = us.compare([A, random_network([4, 5, 3, 1], 2), B, random_network([4, 5, 3, 1], 3)])
    distances = found.distances
    expected = sorted([distances[0, 1], distances[0, 3], distances[1, 2], distances[1, 3], distances[2, 3]])
    assert found.distances_between.tolist() == expected
    saved = load_file(found.save(tmp_path / "classes.safetensors"))
    np.testing.assert_array_equal(saved["distances"], distances)
    assert saved["functions"].tolist() == [0, 1, 0, 2] == saved["parameters"].tolist()
    assert saved["networks"].tolist() == [0, 1, 2, 3]
    assert json.loads(found.save(tmp_path / "all.json").read_text(encoding="utf-8")) == found.as_dict()


def test_all_networks_of_a_population():
    C = random_network([4, 5, 3, 1], 2)
    population = stack([each.population()[0] for each in (A, C, B)])
    found = us.compare(population)
    assert found.functions == [[0, 2], [1]] == found.parameters and found.undecided == []
    assert found.to_pandas().shape == (3, 3) and "2 functions" in repr(found)
    population.layers[0].weight[1, 0, 0] = float("nan")
    assert us.compare(population).functions == [[0, 2]]
    assert us.compare([A, C, random_network([4, 2, 1], 1)]).functions == [[0], [1], [2]]


def test_what_cannot_be_compared_is_refused(tmp_path):
    def refuse(words, *networks, **options):
        with pytest.raises(us.UserError, match=words):
            us.compare(*networks, **options)

    refuse("number of inputs", A, random_network([3, 5, 1], 1))
    refuse("number of outputs", A, random_network([4, 5, 2], 1))
    refuse("tolerance must be above 0", A, B, tolerance=-1e-9)
    refuse("tolerance must be above 0", A, B, tolerance=float("nan"))
    refuse("domain must be bounded", A, B, domain=(0, np.inf))
    refuse("slopes from 0 up to 1", A, replace(A.population(), slope=-1.0))
    refuse("there is no network 3", A, B.population(), b_network=3)
    refuse("2 to 2,000 networks", A)
    refuse("fewer than two of 2 networks have finite weights", [A, huge()])
    refuse("b has values that are not finite", A, huge())
    refuse("a must be one network", [A, B], A)
    refuse("cannot be converted|Tanh", A, nn.Sequential(nn.Linear(4, 2), nn.Tanh(), nn.Linear(2, 1)))
    with pytest.raises(us.UserError, match="must end in"):
        us.compare(A, B).save(tmp_path / "x.txt")
    with pytest.raises(us.UserError, match="must end in"):
        us.compare([A, B]).save(tmp_path / "x.txt")
    deeper = us.compare(A, random_network([4, 5, 3, 2, 1], 1))
    with pytest.raises(us.UserError, match="no partners"):
        deeper.to_pandas()
    with pytest.raises(us.UserError, match="no matching to write"):
        deeper.save(tmp_path / "x.safetensors")


@pytest.mark.wrong_shapes
def test_what_is_no_network_is_refused():
    with pytest.raises(us.UserError, match="b must be a population, a module of PyTorch or a network file, got int"):
        us.compare(A, 3)
