"""`understudy recover`: a network file in, its parameters from values out."""

import json

import pytest

import understudy as us
from support.commands import flat, understudy
from understudy.papers.equivalence.theory.matching import match_units
from understudy.papers.equivalence.theory.relu_network import as_relu_network, random_network


@pytest.fixture
def folder(tmp_path):
    us.save(random_network((6, 5, 1), 1).population(), tmp_path / "network.safetensors")
    return tmp_path


def test_a_file_is_recovered(folder):
    words = ("recover", "network.safetensors", "--out", "found.safetensors", "--json")
    found = json.loads(understudy(*words, cwd=folder).stdout)
    assert found["complete"] is True
    assert found["unrecoverable"] == []
    assert 1_000 < found["evaluations"] < 10_000
    assert found["residual"] < 1e-10
    assert len(found["units"]) == 5
    a, b = (as_relu_network("a", folder / name)[0] for name in ("network.safetensors", "found.safetensors"))
    assert match_units(a, b).largest < 1e-9


def test_what_is_printed_begins_with_the_answer(folder):
    said = flat(understudy("recover", "network.safetensors", cwd=folder).stdout)
    assert "Recovery complete: 6-5-1 on [−2, 2]⁶, asked for 6-5-1 (only these widths were used)." in said
    said = flat(understudy("recover", "network.safetensors", "--sizes", "6-4-1", cwd=folder).stdout)
    assert "Recovery incomplete" in said
    assert "Missing: " in said
    said = flat(understudy("recover", "network.safetensors", "--sizes", "unknown", cwd=folder).stdout)
    assert "Recovery complete: 6-5-1 on [−2, 2]⁶." in said


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--sizes", "6-a-1"), "--sizes must be numbers of units"),
        (("--sizes", "5-4-1"), "--sizes must begin with the number of inputs of f, 6, got 5"),
        (("--domain", "1"), "--domain needs two numbers"),
        (("--domain", "1", "0"), "--domain must have its lower ends below its upper ends"),
        (("--out", "found.txt"), "--out"),
        (("--most-evaluations", "3239"), "--most-evaluations must be at least 3,240 for these sizes, got 3,239"),
        (("--out", "missing/found.safetensors"), "--out must be in an existing folder, got missing/found.safetensors"),
        (("--out", "network.safetensors"), "--out must not be the file of the network"),
        (("--checkpoint", "./network.safetensors"), "--checkpoint must not be the file of the network"),
        (("--out", "a.safetensors", "--checkpoint", "a.safetensors"), "--checkpoint must not be --out"),
        (("--checkpoint", "missing/state"), "--checkpoint must be in an existing folder"),
    ],
)
def test_bad_options(folder, words, message):
    assert message in flat(understudy("recover", "network.safetensors", *words, cwd=folder, status=2).stderr)
