"""`understudy compare`: one object of JSON, readable output, files, runs, bad options."""

import json
import sys

import pytest

import understudy as us
from support.equal_networks import changed_weight, shuffled
from understudy import cli
from understudy.nets.population import stack
from understudy.papers.equivalence.theory.relu_network import random_network

A = random_network([3, 4, 2, 1], 4)
B, ORDERS, _ = shuffled(A, 1)


@pytest.fixture
def compare(tmp_path, monkeypatch, capsys):
    """Run the command in a folder with three networks; returns exit status, standard output and standard error."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    for name, network in (("a", A), ("b", B), ("c", changed_weight(B, 1, 0, 0, 1.1))):
        us.save(network.population(), f"{name}.safetensors")

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["understudy", "compare", *map(str, words)])
        status = cli.main()
        printed = capsys.readouterr()
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
    _, out, _ = compare("a.safetensors", "c.safetensors")
    assert "different functions" in out and "Witness: at x = (" in out


def test_all_networks_of_a_file(compare):
    us.save(stack([each.population()[0] for each in (A, random_network([3, 4, 2, 1], 9), B)]), "many.safetensors")
    status, out, _ = compare("many.safetensors")
    assert status == 0 and "3 networks on [−2, 2]³: 2 different functions" in out and "0, 2" in out
    _, out, _ = compare("many.safetensors", "--json")
    assert json.loads(out)["functions"] == [[0, 2], [1]]


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
        (("a.safetensors", "--save", "x.safetensors"), "--save must end in .json"),
        (("a.safetensors", "b.safetensors", "--b-network", "2"), "--b-network must be between 0 and 0"),
        (("a.safetensors",), "2 to 2,000 networks"),
    ):
        status, out, err = compare(*words)
        assert status == 2 and message in err and not out, words
