"""`us.prune`, `us.connect`, `us.check` and `us.claims` do what the commands of these names do, with their options."""

import inspect
import json
from dataclasses import fields, is_dataclass

import numpy as np
import pandas as pd
import pytest
import torch

import understudy as us
from support.commands import understudy
from understudy.cli import _COMMANDS
from understudy.lab.check_runs import check
from understudy.lab.claimed import claims
from understudy.papers.local.theory.start_and_descend import start
from understudy.papers.specialization.connect import connect
from understudy.papers.specialization.prune import prune

FUNCTIONS = {"prune": prune, "connect": connect, "check": check, "start": start, "claims": claims}
OF_FILES = {"save", "figure", "html", "json", "leaky", "keep", "markdown", "paths"}
"""Options of commands that read or write files, where functions take and return values."""


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_have_the_options_of_their_commands(name):
    options = _COMMANDS[name].options
    assert is_dataclass(options)
    wanted = {field.name for field in fields(options)} - OF_FILES - ({"out"} if name == "start" else set())
    wanted = {"networks" if each == "network" else each for each in wanted if not each.endswith("_network")}
    assert wanted <= set(inspect.signature(FUNCTIONS[name]).parameters)


@pytest.fixture(scope="module")
def pair():
    """A teacher, and two students that have its nodes in other places, with idle nodes beside them."""
    teacher = us.teachers.separated((6, 3, 4), seeds=[1], dtype=torch.float64)
    (w, b), (v, c) = teacher.layers
    students = []
    for places in ([0, 2, 4], [3, 1, 0]):
        wide = us.students.gaussian(teacher, multiple=2, scale=0.1, seeds=[5])
        (ours, bias), (out, _) = wide.layers
        out.zero_()
        ours[:, places], bias[:, places], out[:, :, places] = w, b, v
        layers = (us.nets.Layer(ours, bias), us.nets.Layer(out, c))
        students.append(us.Population(layers, wide.seeds, teacher.slope))
    return teacher, *students


@pytest.fixture(scope="module")
def files(pair, tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    for name, population in zip(("teacher", "a", "b"), pair, strict=True):
        us.save(population, folder / f"{name}.safetensors", which=0)
    np.save(folder / "x.npy", np.random.default_rng(0).normal(size=(500, 6)))
    return folder


@pytest.mark.parametrize("words", [(), ("--below", "0.5"), ("--refit", "--inputs", "uniform", "--seed", "3")])
def test_prune(pair, files, words):
    teacher, a, _ = pair
    options = {"below": 0.5} if "--below" in words else {"refit": True, "inputs": "uniform", "seed": 3} if words else {}
    found = prune(a, teacher, **options)
    printed = understudy("prune", "a.safetensors", "--teacher", "teacher.safetensors", *words, "--json", cwd=files)
    shown = json.loads(printed.stdout)
    assert shown["losses"] == {"given": found.given._asdict(), "held_out": found.held_out._asdict()}
    assert tuple(shown["sizes"]["after"]) == found.network.sizes
    assert found.removed == len(shown["dropped"])
    assert repr(found).startswith(f"PrunedStudent(6-6-4 became {'-'.join(map(str, found.network.sizes))}: ")


def test_nothing_is_fitted_where_nothing_goes(pair, monkeypatch):
    teacher, *_ = pair
    monkeypatch.setattr("understudy.papers.specialization.prune.fit", lambda *_: pytest.fail("a fit was made"))
    found = prune(teacher, teacher, below=0.5)
    assert found.removed == 0 and found.held_out.after == found.held_out.refitted < 1e-20
    with pytest.raises(pytest.fail.Exception, match="a fit was made"):
        prune(teacher, teacher, below=0.5, refit=True)


def test_connect(pair, files):
    teacher, a, b = pair
    found = connect(a, b, teacher, points=3)
    words = ("a.safetensors", "b.safetensors", "--teacher", "teacher.safetensors", "--points", 3, "--json")
    shown = json.loads(understudy("connect", *words, cwd=files).stdout)
    assert shown["losses"] == found.losses.tolist() and shown["line"] == found.line.tolist()
    assert found.largest < 1e-20 < found.largest_on_line
    assert repr(found).startswith(f"Connection({len(found.path.moves)} segments; largest loss ")


@pytest.mark.parametrize("kind", [torch.from_numpy, np.asarray, pd.DataFrame, lambda x: us.data.Fixed(*splits(x))])
def test_inputs_of_every_kind_give_the_same(pair, files, kind):
    teacher, a, b = pair
    x = np.load(files / "x.npy")
    assert prune(a, teacher, kind(x)).held_out == prune(a, teacher, files / "x.npy").held_out
    assert connect(a, b, teacher, kind(x)).largest_on_line == connect(a, b, teacher, x).largest_on_line


def splits(x: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
    held = np.arange(len(x)) % 5 == 4
    return torch.from_numpy(x[~held]), torch.from_numpy(x[held])


@pytest.mark.parametrize("kind", [torch.from_numpy, np.asarray, pd.DataFrame, str])
def test_check_takes_inputs_of_every_kind(pair, files, kind):
    teacher, a, _ = pair
    given = str(files / "x.npy") if kind is str else kind(np.load(files / "x.npy"))
    found = check(teacher, a, given)
    words = ("check", "teacher.safetensors", "a.safetensors", "--data", "x.npy", "--json")
    shown = json.loads(understudy(*words, cwd=files).stdout)
    assert found[0].as_dict() | {"inputs": ""} == shown | {"inputs": ""}
    assert found[0].inputs == (f"of {given}" if kind is str else "as given")


def test_check_draws_inputs(pair, files):
    found = check(*pair[:2], samples=100, inputs="uniform", input_std=2, seed=4)
    words = ("--samples", 100, "--inputs", "uniform", "--input-std", 2, "--seed", 4, "--json")
    shown = understudy("check", "teacher.safetensors", "a.safetensors", *words, cwd=files).stdout
    assert json.loads(shown) == found[0].as_dict()
    assert found[0].inputs == "drawn: uniform, std 2, seed 4"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"data": np.zeros((9, 5))}, "data must have 6 inputs per sample, as the networks do, got 5"),
        ({"data": np.zeros((3, 6))}, "data must have at least 5 samples, got 3"),
        ({"data": np.full((9, 6), np.nan)}, "data: all values must be finite, but 54 of 54 are NaN or infinite"),
        ({"data": np.zeros(9)}, r"data: the array must be 2-D \[samples, inputs\], got 1-D"),
        ({"data": pd.DataFrame({"a": ["x"]})}, "data: the array must contain real numbers"),
        ({"data": [1, 2]}, "data must be a tensor, an array, a pandas frame, a source of us.data or a file, got list"),
        ({"samples": 0}, "^samples must be above 0, got 0$"),
        ({"seed": -1}, "^seed must be between 0 and"),
        ({"input_std": float("nan")}, "^input_std must be above 0, got nan$"),
        ({"inputs": "normal"}, "^inputs must be gaussian or uniform, got normal$"),
        ({"below": 2}, "^below must be between"),
    ],
)
@pytest.mark.parametrize("function", ["prune", "connect"])
def test_bad_arguments_are_named(pair, function, given, message):
    teacher, a, b = pair
    with pytest.raises(us.UserError, match=message):
        prune(a, teacher, **given) if function == "prune" else connect(a, b, teacher, **given)


def test_claims(tmp_path):
    table = us.claims(tmp_path, study="two-layer")
    shown = json.loads(understudy("claims", "--study", "two-layer", "--json", cwd=tmp_path).stdout)["claims"]
    assert table.num_rows == sum(max(1, len(row["measured"])) for row in shown) > 5
    assert set(table["id"].to_pylist()) == {row["id"] for row in shown}
    failing = us.claims(tmp_path, failing=True)
    assert failing.num_rows and not any(failing["holds"].to_pylist())
    assert us.claims(tmp_path, paper="luck", study="two-layer").schema == table.schema
    with pytest.raises(us.UserError, match=r"paper must be one of .*, got tian"):
        us.claims(paper="tian")
    assert us.claims.Claim is us.store.Claim
