"""Modules from a user's Python file or package, filled with the tensors of a file; errors with the user's traceback."""

import sys
import textwrap

import pytest
import safetensors.torch
import torch
from torch import nn

import understudy as us
from understudy.nets.files.model_files import build_module, fill_module

pytestmark = pytest.mark.usefixtures("one_thread")

CODE = """
    from torch import nn

    class Net(nn.Module):
        def __init__(self, width=3, sizes=(4, 2), name="net", *, bias=True):
            super().__init__()
            self.given = (width, sizes, name, bias)
            self.layers = nn.Sequential(nn.Linear(sizes[0], width, bias), nn.ReLU(), nn.Linear(width, sizes[1], bias))

        def forward(self, x):
            return self.layers(x)

    def make(**options):
        return Net(**options)

    ready = Net(7)
    number = 5

    def nothing():
        pass

    def broken(width):
        raise RuntimeError(f"no width {width}")
"""


@pytest.fixture
def file(tmp_path):
    return define(tmp_path / "net.py", CODE)


def define(path, code):
    path.write_text(textwrap.dedent(code))
    return path


@pytest.mark.parametrize(
    ("name", "arguments", "given"),
    [
        ("Net", [], (3, (4, 2), "net", True)),
        ("Net", ["5", "[6, 2]"], (5, [6, 2], "net", True)),
        ("Net", ["5", "bias=False", "name=a word"], (5, (4, 2), "a word", False)),
        ("Net", ["name=x=y", "sizes=(4,3)"], (3, (4, 3), "x=y", True)),
        ("make", ["width=9"], (9, (4, 2), "net", True)),
        ("ready", [], (7, (4, 2), "net", True)),
    ],
)
def test_classes_functions_and_modules_of_a_file(file, name, arguments, given):
    assert build_module(f"{file}:{name}", arguments).given == given


def test_names_of_a_package(tmp_path, monkeypatch):
    linear = build_module("torch.nn:Linear", ["4", "out_features=2"])
    assert isinstance(linear, nn.Linear) and linear.weight.shape == (2, 4)
    (tmp_path / "lab").mkdir()
    define(tmp_path / "lab" / "nets.py", CODE)
    monkeypatch.chdir(tmp_path)
    assert build_module("lab.nets:make", ["width=2"]).given[0] == 2
    sys.modules.pop("lab.nets")
    sys.modules.pop("lab")


def test_neighbours_of_a_file_are_its_own(tmp_path):
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        define(tmp_path / folder / "parts.py", f"WIDTH = {len(folder)}, {folder!r}")
        define(tmp_path / folder / "net.py", "from parts import WIDTH" + textwrap.dedent(CODE))
    paths = list(sys.path)
    found = [
        vars(sys.modules[type(build_module(f"{tmp_path / folder / 'net.py'}:Net")).__module__])["WIDTH"][1]
        for folder in ("one", "two")
    ]
    assert found == ["one", "two"] and sys.path == paths and "parts" not in sys.modules


def test_what_a_file_prints_does_not_reach_standard_output(file, capsys):
    define(file, "print('hello')" + textwrap.dedent(CODE))
    build_module(f"{file}:Net")
    assert capsys.readouterr() == ("", "hello\n")


WRONG = {
    "no name": ("net.py", [], "model must be FILE.py:NAME or PACKAGE.MODULE:NAME", "got 'net.py'"),
    "no file": ("other.py:Net", [], "other.py: there is no such file", ""),
    "no package": ("nowhere.nets:Net", [], "there is no package 'nowhere' here", "FILE.py:NAME"),
    "no such module": ("torch.nowhere:Net", [], "there is no package 'torch.nowhere' here", ""),
    "path as package": ("folder/net:Net", [], "PACKAGE.MODULE:NAME", "got 'folder/net' before the colon"),
    "mistyped": ("net.py:Nett", [], "has no name 'Nett'; did you mean Net?", ""),
    "unknown": ("net.py:Transformer", [], "has no name 'Transformer'; its modules are Net", ""),
    "not callable": ("net.py:number", [], "is an object of type int, but a class or a function is needed", ""),
    "returns nothing": ("net.py:nothing", [], "returned None, but an nn.Module is needed; return the model itself", ""),
    "arguments of a module": ("net.py:ready", ["3"], "model_args cannot be given", "is a module already"),
    "too many arguments": ("net.py:Net", ["1", "2", "3", "4"], "model_args do not fit", "too many positional"),
    "unknown argument": ("net.py:Net", ["depth=3"], "model_args do not fit", "unexpected keyword argument 'depth'"),
    "missing argument": ("net.py:broken", [], "net.py:broken(width)", "missing a required argument: 'width'"),
    "twice": ("net.py:Net", ["width=1", "width=2"], "model_args must have each name once, got width= twice", ""),
    "order": ("net.py:Net", ["width=1", "2"], "model_args must have values by position before those by name", "'2'"),
}


def test_functions_are_named_where_there_are_no_modules(tmp_path):
    file = define(tmp_path / "makes.py", "from math import sqrt\n\ndef make():\n    return sqrt(2)\n")
    with pytest.raises(us.UserError, match=r"has no name 'absent'; its functions are make$"):
        build_module(f"{file}:absent")


@pytest.mark.parametrize(("spec", "arguments", "words", "more"), WRONG.values(), ids=WRONG)
def test_mistakes_are_named(file, monkeypatch, spec, arguments, words, more):
    monkeypatch.chdir(file.parent)
    with pytest.raises(us.UserError) as refused:
        build_module(spec, arguments)
    assert words in str(refused.value) and more in str(refused.value) and "\n" not in str(refused.value)


FAILING = {
    "error": ("import torch\n\ndef helper():\n    return 1 / 0\n\nhelper()\n", "ZeroDivisionError: division by zero"),
    "syntax": ("class Net(\n", "SyntaxError: '(' was never closed"),
    "missing package": ("import no_such_package\n", "ModuleNotFoundError: No module named 'no_such_package'"),
    "exit": ("raise SystemExit(3)\n", "SystemExit: 3"),
}


@pytest.mark.parametrize(("code", "last"), FAILING.values(), ids=FAILING)
def test_a_file_that_fails_to_import_shows_our_line_first_and_its_traceback_last(tmp_path, code, last):
    file = tmp_path / "failing.py"
    file.write_text(code)
    with pytest.raises(us.UserError) as refused:
        build_module(f"{file}:Net")
    first, *rest = str(refused.value).splitlines()
    assert first == f"{file}: the file cannot be imported ({last}{_where(rest, code)}); correct it:"
    assert rest[-1] == last and f'File "{file}", line ' in "\n".join(rest)
    assert "importlib" not in str(refused.value) and "model_files" not in str(refused.value)
    assert not [name for name in sys.modules if "failing" in name]


def _where(lines, code):
    """Errors of syntax name the file in their text, too."""
    return " (failing.py, line 1)" if code.startswith("class Net(\n") else ""


def test_a_failing_constructor_shows_its_traceback(file):
    with pytest.raises(us.UserError) as refused:
        build_module(f"{file}:broken", ["4"])
    first, *rest = str(refused.value).splitlines()
    assert first.startswith(
        f"{file}:broken: making the model failed (RuntimeError: no width 4); correct it, or its arg"
    )
    assert rest[0] == "Traceback (most recent call last):" and rest[-1] == "RuntimeError: no width 4"


def test_files_of_a_package_are_given_as_such(tmp_path):
    file = define(tmp_path / "net.py", "from .parts import WIDTH\n")
    with pytest.raises(us.UserError, match=r"give it as part of its package, PACKAGE\.MODULE:NAME:\n"):
        build_module(f"{file}:Net")


@pytest.mark.parametrize("form", ["pt", "checkpoint", "safetensors", "data parallel"])
def test_a_module_is_filled_from_any_file_of_tensors(form, file, tmp_path):
    model, path = build_module(f"{file}:Net"), tmp_path / "weights"
    state = {name: torch.randn_like(tensor) for name, tensor in model.state_dict().items()}
    if form == "safetensors":
        path = path.with_suffix(".safetensors")
        safetensors.torch.save_file(state, path)
    elif form == "data parallel":
        torch.save({f"module.{name}": tensor for name, tensor in state.items()}, path)
        model = nn.DataParallel(model)
    else:
        torch.save({"model_state_dict": state, "epoch": 3} if form == "checkpoint" else state, path)
    fill_module(model, path)
    found = (model.module if form == "data parallel" else model).cpu().state_dict()
    assert all(torch.equal(found[name], tensor) for name, tensor in state.items())
    assert us.from_module(model).sizes == (4, 3, 2)


def test_double_precision_is_not_rounded(file, tmp_path):
    model, path = build_module(f"{file}:Net"), tmp_path / "weights.pt"
    state = {name: torch.randn(tensor.shape, dtype=torch.float64) for name, tensor in model.state_dict().items()}
    torch.save(state, path)
    fill_module(model, path)
    assert torch.equal(model.layers[0].weight, state["layers.0.weight"])


def test_tensors_that_do_not_fit_are_listed(file, tmp_path):
    model, path = build_module(f"{file}:Net"), tmp_path / "weights.pt"
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    state = dict(build_module(f"{file}:Net", ["width=5"]).state_dict())
    state["layers.4.weight"] = state.pop("layers.2.weight")
    state |= {f"extra.{i}": torch.zeros(2) for i in range(6)}
    torch.save(state, path)
    with pytest.raises(us.UserError) as refused:
        fill_module(model, path)
    assert str(refused.value) == (
        f"{path}: its tensors do not fit Net: 1 missing (layers.2.weight); 7 unexpected (layers.4.weight, extra.0, "
        "extra.1, extra.2, extra.3 and 2 more); 2 of another shape (layers.0.weight [5, 4] instead of [3, 4], "
        "layers.0.bias [5] instead of [3]). Give the arguments with which the model was built, --model-args, or the "
        "file that belongs to it."
    )
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_a_prefix_of_all_names_is_pointed_out(file, tmp_path):
    model, path = build_module(f"{file}:Net"), tmp_path / "weights.pt"
    torch.save({f"student.{name}": tensor for name, tensor in model.state_dict().items()}, path)
    with pytest.raises(
        us.UserError, match=r"All names of the file begin with 'student\.'; read that part with --key student"
    ):
        fill_module(model, path)


def test_whole_pickled_models_stay_refused(file, tmp_path):
    model, path = build_module(f"{file}:Net"), tmp_path / "whole.pt"
    torch.save(model, path)
    with pytest.raises(us.UserError, match=r"nothing was executed"):
        fill_module(model, path)


def test_lazy_layers_are_filled(tmp_path):
    path = tmp_path / "weights.pt"
    torch.save(nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)).state_dict(), path)
    model = nn.Sequential(nn.LazyLinear(3), nn.ReLU(), nn.LazyLinear(2))
    fill_module(model, path)
    assert us.from_module(model, torch.randn(5, 4)).sizes == (4, 3, 2)
