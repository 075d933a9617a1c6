"""`understudy compare`: one object of JSON, readable output, files, runs, bad options."""

import json
import re
import sys
from dataclasses import replace

import pytest
import torch
from safetensors.numpy import load_file

import understudy as us
from support.equal_networks import changed_weight, shuffled
from understudy import cli
from understudy.nets.population import stack
from understudy.papers.equivalence.theory.relu_network import random_network

A = random_network([3, 4, 2, 1], 4)
B, ORDERS, _ = shuffled(A, 1)


@pytest.fixture
def compare(tmp_path, monkeypatch, capfd):
    """Run the command in a folder with three networks; returns exit status, standard output and standard error."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    for name, network in (("a", A), ("b", B), ("c", changed_weight(B, 1, 0, 0, 1.1))):
        us.save(network.population(), f"{name}.safetensors")

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["understudy", "compare", *map(str, words)])
        status = cli.main()
        printed = capfd.readouterr()
        return status, printed.out, printed.err

    return run


def test_json_has_the_documented_keys(compare):
    status, out, _ = compare("a.safetensors", "b.safetensors", "--json")
    found = json.loads(out)
    assert status == 0 and found["same"] is True and found["witness"] is None
    assert found["permutations"] == [order.tolist() for order in ORDERS]
    assert set(found) >= {"scalings", "largest_parameter_difference", "largest_output_difference", "assumed", "domain"}
    _, out, _ = compare("a.safetensors", "c.safetensors", "--json", "--domain", "-1", "1")
    found = json.loads(out)
    assert found["same"] is False and len(found["witness"]["input"]) == 3 and found["domain"]["lower"] == [-1.0] * 3


def test_the_answer_is_printed_and_the_maps_are_saved(compare, tmp_path):
    status, out, _ = compare("a.safetensors", "b.safetensors", "--save", "maps.safetensors")
    assert status == 0 and "the same function" in out and "unit of B" in out and "tolerance 10⁻⁹" in out
    assert (tmp_path / "maps.safetensors").is_file() and "saved: maps.safetensors" in out
    assert "On [−2, 2]³ the networks are the same function: " in out and "distance of all parameters" in out
    _, out, _ = compare("a.safetensors", "c.safetensors")
    assert "On [−2, 2]³ the networks are different functions." in out and "Witness: at x = (" in out
    assert "Note" not in out and not re.search(r"\d\.\d{3,}×|\de[-+]", out)


def test_json_is_one_object_on_a_wide_domain(compare):
    us.save(random_network([3, 5, 4, 4, 1], 1).population(), "d.safetensors")
    us.save(random_network([3, 5, 4, 4, 1], 2).population(), "e.safetensors")
    for size in ("1e12", "1e-12"):
        _, out, err = compare("d.safetensors", "e.safetensors", "--json", "--domain", f"-{size}", size)
        assert json.loads(out)["same"] is False and "Warning" not in err


def test_files_in_float32_are_named(compare):
    for name, network in (("f", A), ("g", B)):
        us.save(network.population().to("cpu", torch.float32), f"{name}.safetensors")
    _, out, _ = compare("f.safetensors", "g.safetensors")
    assert "Note: A and B are stored in float32" in out and "--tolerance 1e-6 to ignore it." in out
    _, out, _ = compare("f.safetensors", "g.safetensors", "--tolerance", "1e-6")
    assert "the same function" in out and "Note" not in out


def test_values_that_are_not_finite_are_named(compare):
    us.save(replace(A, weights=tuple(1e200 * each for each in A.weights)).population(), "h.safetensors")
    status, out, err = compare("a.safetensors", "h.safetensors")
    assert status == 2 and not out and "b has values that are not finite" in err and "Warning" not in err


def test_all_networks_of_a_file(compare):
    us.save(stack([each.population()[0] for each in (A, random_network([3, 4, 2, 1], 9), B)]), "many.safetensors")
    status, out, _ = compare("many.safetensors")
    assert status == 0 and "3 networks on [−2, 2]³: 2 different functions" in out and "0, 2" in out
    assert "Distances between different functions" in out and "smallest" in out and "median" in out
    assert "--json prints and --save writes the distance matrix" in out
    _, out, _ = compare("many.safetensors", "--json", "--save", "many_distances.safetensors")
    assert json.loads(out)["functions"] == [[0, 2], [1]]
    assert load_file("many_distances.safetensors")["distances"].tolist() == json.loads(out)["distances"]


def test_the_networks_of_a_run(compare, tiny):
    status, out, err = compare(tiny[1])
    assert status == 0, err
    assert "networks on [−2, 2]" in out
    status, _, err = compare(tiny[1], "--activation", "relu")
    assert status == 2 and "--activation does not apply to a run" in err


def test_bad_options_are_named(compare):
    for words, message in (
        (("a.safetensors", "b.safetensors", "--tolerance", "-1"), "--tolerance must be above 0 and below 1, got −1"),
        (("a.safetensors", "b.safetensors", "--domain", "1", "0"), "--domain must have its lower ends below"),
        (("a.safetensors", "b.safetensors", "--domain", "0", "inf"), "--domain must be bounded"),
        (("a.safetensors", "b.safetensors", "--domain", "1"), "--domain needs two numbers"),
        (("a.safetensors", "b.safetensors", "--save", "x.txt"), "--save must end in"),
        (("a.safetensors", "b.safetensors", "c.safetensors"), "got 3 paths"),
        (("a.safetensors", "--save", "x.txt"), "--save must end in"),
        (
            ("a.safetensors", "b.safetensors", "--b-network", "2"),
            "b.safetensors contains one network, so that --b-network must be 0, got 2; omit it",
        ),
        (("a.safetensors",), "2 to 2,000 networks"),
    ):
        status, out, err = compare(*words)
        assert status == 2 and message in err and not out, words
