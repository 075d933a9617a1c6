"""`us.prune`, `us.connect`, `us.check` and `us.claims` do what the commands of these names do, with their options."""

import inspect
import json
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn

import understudy as us
from support.commands import understudy
from understudy.cli import _COMMANDS
from understudy.cli.networks import DESCRIBING
from understudy.lab.check_runs import check
from understudy.lab.claims_table import claims
from understudy.papers.local.theory.start_and_descend import start
from understudy.papers.specialization.connect import connect
from understudy.papers.specialization.prune import prune

FUNCTIONS = {"prune": prune, "connect": connect, "check": check, "start": start, "claims": claims}
OF_FILES = {"save", "figure", "html", "json", "keep", "markdown", "paths", *DESCRIBING}
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
    teacher = us.teachers.distinct_rows((6, 3, 4), seeds=[1], dtype=torch.float64)
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
    shown.pop("assumed")
    assert found[0].as_dict() | {"inputs": ""} == shown | {"inputs": ""}
    assert found[0].inputs == (f"of {given}" if kind is str else "as given")


def test_check_draws_inputs(pair, files):
    found = check(*pair[:2], samples=100, inputs="uniform", input_std=2, seed=4)
    words = ("--samples", 100, "--inputs", "uniform", "--input-std", 2, "--seed", 4, "--json")
    shown = json.loads(understudy("check", "teacher.safetensors", "a.safetensors", *words, cwd=files).stdout)
    shown.pop("assumed")
    assert shown == found[0].as_dict()
    assert found[0].inputs == "drawn: uniform, std 2, seed 4"


@pytest.mark.wrong_shapes
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


class Wide(nn.Module):
    """A class of the user's, with names of its own."""

    def __init__(self, population: us.Population) -> None:
        super().__init__()
        self.lower, _, self.upper = population.to_module()
        self.sizes = population.sizes

    def forward(self, x: Tensor) -> Tensor:
        return self.upper(torch.relu(self.lower(x.flatten(1))))


@pytest.fixture(scope="module")
def modules(pair):
    return [Wide(each).train() for each in pair]


def test_modules_and_files_give_what_populations_give(pair, modules, files):
    teacher, a, b = pair
    paths = [files / f"{name}.safetensors" for name in ("teacher", "a", "b")]
    x = files / "x.npy"
    wanted = prune(a, teacher, x), connect(a, b, teacher, x), check(teacher, [a, b], x)
    for theirs, first, second in (modules, paths):
        assert prune(first, theirs, x).held_out == wanted[0].held_out
        assert connect(first, second, theirs, x).largest_on_line == wanted[1].largest_on_line
        assert check(theirs, [first, second], x).as_dict() == wanted[2].as_dict()
    assert modules[1].training


@pytest.mark.parametrize("options", [{"below": 0.5}, {"below": 0.5, "refit": True}])
def test_a_pruned_module_has_its_class(pair, modules, files, options):
    teacher, a, _ = pair
    found = prune(modules[1], teacher, files / "x.npy", **options)
    assert found.removed and type(found.module) is Wide and found.module_note == "" and found.module.training
    assert found.module.lower.out_features == found.network.sizes[1] == 6 - found.removed
    x = torch.from_numpy(np.load(files / "x.npy"))
    torch.testing.assert_close(found.module(x), found.network(x)[0], rtol=0, atol=1e-5)
    of_population = prune(a, teacher, files / "x.npy", **options)
    assert type(of_population.module) is nn.Sequential
    assert of_population.module_note == "the student was not given as a module"
    torch.testing.assert_close(of_population.module(x), found.module(x), rtol=0, atol=1e-12)


def test_images_state_what_a_module_takes(pair, modules):
    x = np.random.default_rng(0).normal(size=(50, 1, 2, 3))
    assert prune(modules[1], modules[0], x).held_out == prune(*pair[1::-1], x.reshape(50, 6)).held_out
    conv = nn.Sequential(nn.Conv2d(1, 4, 2), nn.ReLU(), nn.Flatten(), nn.Linear(8, 4)).double().eval()
    found = prune(conv, conv, torch.from_numpy(x), by="correlation")
    assert found.removed == 0 and torch.equal(found.module(torch.from_numpy(x)), conv(torch.from_numpy(x)))
    with pytest.raises(us.UserError, match=r"^student: Sequential has convolutions, .* image=\(height, width\)"):
        prune(conv, conv)


def test_start_takes_modules_and_files(tmp_path):
    network = nn.Sequential(nn.Linear(4, 2, bias=False), Absolute(), nn.Linear(2, 1, bias=False))
    network[2].weight.data.abs_()
    wanted = start(us.from_module(network), by="scattered", students=5)
    us.save(us.from_module(network), tmp_path / "teacher.safetensors")
    for given in (network, tmp_path / "teacher.safetensors"):
        assert start(given, by="scattered", students=5).loss == wanted.loss


class Absolute(nn.Module):
    """|·|, which PyTorch has as a function only."""

    def forward(self, x: Tensor) -> Tensor:
        return x.abs()


class Skip(nn.Module):
    """No stack of layers."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layer(x)


def with_nan(network: us.Population) -> Any:
    module = network.to_module()
    module[0].weight.data[0, 0] = torch.nan
    return module


BAD_NETWORKS = {
    "kind": (lambda _: [1], r"^{role} must be a population, a module of PyTorch or a network file, got "),
    "file": (lambda _: "none.pt", r"^none\.pt: there is no such file"),
    "skip": (lambda _: Skip(), r"^{role}: .*"),
    "nan": (with_nan, r"^{role}: .*NaN or infinite"),
    "inputs": (lambda _: nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 4)), "inputs|equal sizes"),
    "outputs": (lambda _: nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 2)), "outputs|equal sizes"),
}


@pytest.mark.wrong_shapes
@pytest.mark.parametrize("function", ["prune", "connect", "check"])
@pytest.mark.parametrize("kind", BAD_NETWORKS)
def test_bad_networks_are_named(pair, function, kind):
    teacher, a, _ = pair
    make, message = BAD_NETWORKS[kind]
    bad = make(a) if kind != "kind" or function != "check" else 3
    role = {"prune": "student", "connect": "b", "check": "student"}[function]
    calls = {
        "prune": lambda: prune(bad, teacher),
        "connect": lambda: connect(a, bad, teacher),
        "check": lambda: check(teacher, bad),
    }
    with pytest.raises(us.UserError, match=message.format(role=role)):
        calls[function]()


BAD_DATA = {
    "complex": (torch.zeros(9, 6, dtype=torch.complex64), "must contain real numbers"),
    "width": (torch.zeros(9, 5), "data must have 6 inputs per sample, as the networks do, got 5"),
    "nan": (torch.full((9, 6), torch.nan), "must be finite, but 54 of 54"),
    "axes": (torch.zeros(9), "must be 2-D"),
    "kind": ([[1.0] * 6] * 9, "got list"),
    "empty": (torch.zeros(0, 6), "0|at least"),
}


@pytest.mark.wrong_shapes
@pytest.mark.parametrize("function", ["prune", "connect", "check"])
@pytest.mark.parametrize("kind", BAD_DATA)
def test_bad_data_is_named(pair, modules, function, kind):
    data, message = BAD_DATA[kind]
    teacher, a, b = modules if kind == "width" else pair
    calls = {"prune": lambda: prune(a, teacher, data), "connect": lambda: connect(a, b, teacher, data)}
    with pytest.raises(us.UserError, match=message):
        calls.get(function, lambda: check(teacher, a, data))()


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.float16, torch.bfloat16, torch.float32])
def test_data_of_any_precision_is_taken(pair, dtype):
    teacher, a, b = pair
    x = (torch.randn(200, 6, generator=torch.Generator().manual_seed(0)) * 3).to(dtype)
    assert prune(a, teacher, x).held_out == prune(a, teacher, x.double()).held_out
    assert connect(a, b, teacher, x).largest == connect(a, b, teacher, x.double()).largest
    assert check(teacher, a, x)[0].as_dict() == check(teacher, a, x.double())[0].as_dict()


def test_one_set_of_inputs_per_student(pair):
    teacher, a, b = pair
    x = torch.randn(2, 100, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = check(teacher, us.nets.stack([a, b]), x)
    assert found[1].as_dict() == check(teacher, b, x[1])[0].as_dict()
    with pytest.raises(us.UserError, match=r"^data must have one set of inputs for each of 2 students, got 3$"):
        check(teacher, us.nets.stack([a, b]), torch.randn(3, 100, 6))
    with pytest.raises(us.UserError, match=r"^a run has its own students and inputs; give the run alone$"):
        check(".", a)
    with pytest.raises(us.UserError, match=r"^student must be at least one network, got none$"):
        check(teacher, [])


def test_claims(tmp_path):
    table = us.claims(tmp_path, study="two-layer")
    shown = json.loads(understudy("claims", "--study", "two-layer", "--json", cwd=tmp_path).stdout)["claims"]
    assert table.num_rows == sum(max(1, len(row["measured"])) for row in shown) > 5
    assert set(table["id"].to_pylist()) == {row["id"] for row in shown}
    failing = us.claims(tmp_path, failing=True)
    assert failing.num_rows and not any(failing["holds"].to_pylist())
    with pytest.raises(us.UserError, match=r"^study must be a study of luck \(.*\), got two-layer: no claim matches$"):
        us.claims(tmp_path, paper="luck", study="two-layer")
    with pytest.raises(us.UserError, match=r"paper must be one of .*, got tian"):
        us.claims(paper="tian")
    assert us.claims.Claim is us.store.Claim
