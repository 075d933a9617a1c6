"""`us.example`: a folder with a teacher, its students and inputs, in files of every kind that the commands read."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from html import escape
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from understudy._atomic import disk_errors
from understudy._errors import UserError

if TYPE_CHECKING:
    from torch import Tensor, nn

COMMANDS = (
    "understudy align teacher.pt student.pt --data inputs.npy",
    "understudy check teacher.pt student.pt --html check.html",
    "understudy prune student.pt --teacher teacher.pt --save smaller.safetensors",
    "understudy connect a.pt b.pt --teacher teacher.pt",
    "understudy start absolute.pt --activation abs --descend 1000",
)
"""What to type next in the folder."""
_STUDENTS = ("student", "a", "b")
_INPUTS = 2_000
_STEPS, _EPOCHS = 500, 60
"""Steps of the teacher's training, and epochs of the students'."""
_STD = 1.5
"""Standard deviation of the inputs, the default of the commands where they draw inputs."""


@dataclass(frozen=True)
class Example:
    """A folder of example files.

    `print()` shows what each file is and the commands to try.

    Attributes:
        folder: The folder.
        files: What each file contains, by its name.
        notes: What was not written, and why.
    """

    folder: Path
    files: dict[str, str]
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        width = max(map(len, self.files))
        lines = [f"{self.folder}:", *(f"  {name:<{width}}  {what}" for name, what in self.files.items())]
        here = [] if self.folder.resolve() == Path.cwd() else [f"  cd {self.folder}"]
        return "\n".join([*lines, *self.notes, "", "Next:", *here, *(f"  {each}" for each in COMMANDS)])

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"


Module = TypeVar("Module", bound="nn.Module")


class _ExampleFile(NamedTuple):
    what: str
    content: bytes


def example(folder: str | os.PathLike[str], *, seed: int = 1) -> Example:
    """Write a folder of example networks and inputs, with which every command can be tried.

    A teacher of 6 hidden nodes is trained on a regression task, and three students of 24 nodes on the teacher's outputs
    until each teacher node has students that learned it and some students are idle. Takes a few seconds.

    Args:
        folder: Folder to write to; it is made if it does not exist.
        seed: Seed of the task, the initial weights and the inputs.

    Returns:
        What each file contains, and the commands to try.

    Raises:
        UserError: A file of one of the names exists with other contents, or the folder cannot be written; nothing is
            then written.
    """
    where = Path(folder)
    if not 0 <= seed < 2**62:
        raise UserError(f"must be between 0 and 2^62 − 1, got {seed}", "seed")
    _validate(where)
    files, notes = _make(seed)
    others = [name for name, file in files.items() if _differs(where / name, file.content)]
    if others:
        raise UserError(
            f"{where} already has {', '.join(others)} with other contents; choose another folder, or move "
            f"{'it' if len(others) == 1 else 'them'} away"
        )
    _write(where, files)
    return Example(where, {name: file.what for name, file in files.items()}, notes)


def _validate(folder: Path) -> None:
    """Raise a UserError before anything is trained if the folder cannot be made and written to."""
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not existing.is_dir():
        raise UserError(f"{folder} must be a folder, but {existing} is a file; choose another folder")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise UserError(f"{folder} cannot be written: {existing} is read-only; choose another folder")


def _differs(path: Path, content: bytes) -> bool:
    return path.exists() and not (path.is_file() and path.read_bytes() == content)


def _write(folder: Path, files: dict[str, _ExampleFile]) -> None:
    """Write all files elsewhere in the folder first, so that a full disk leaves none of them."""
    made = not folder.exists()
    with disk_errors(folder, "choose another folder"):
        folder.mkdir(parents=True, exist_ok=True)
        try:
            with TemporaryDirectory(dir=folder, prefix=".example.") as temporary:
                for name, file in files.items():
                    (Path(temporary) / name).write_bytes(file.content)
                for name in files:
                    os.replace(Path(temporary) / name, folder / name)
        except BaseException:
            if made:
                shutil.rmtree(folder, ignore_errors=True)
            raise


def _make(seed: int) -> tuple[dict[str, _ExampleFile], tuple[str, ...]]:
    """Train the networks, and return the contents of all files."""
    import safetensors.torch
    import torch

    from understudy.lab import example_models
    from understudy.training.parallel import one_thread_each

    with one_thread_each():
        checkpoint, x = _train_teacher(seed)
        teacher = example_models.Teacher()
        teacher.load_state_dict(checkpoint["model_state_dict"])
        students = _train_students(teacher, seed)
        program = torch.export.export(students["student"], (x[:8],), dynamic_shapes=({0: torch.export.Dim.AUTO},))
    files = {
        "models.py": _ExampleFile(
            "classes of the networks: Teacher, Student, Absolute", Path(example_models.__file__).read_bytes()
        ),
        "teacher.pt": _ExampleFile("state dict of the teacher, 10-6-4, ReLU", _torch(teacher.state_dict())),
    }
    for name, student in students.items():
        what = f"state dict of a student of it, 10-24-4{'' if name == 'student' else ', from other initial weights'}"
        files[f"{name}.pt"] = _ExampleFile(what, _torch(student.state_dict()))
    student = students["student"]
    files |= {
        "checkpoint.pt": _ExampleFile(
            "checkpoint of the teacher's training: model, optimiser and epoch", _torch(checkpoint)
        ),
        "student.safetensors": _ExampleFile("student.pt as safetensors", safetensors.torch.save(student.state_dict())),
        "student.pt2": _ExampleFile("student.pt as a program of torch.export", _exported(program)),
        "absolute.pt": _ExampleFile("state dict of a teacher of nodes |·|, 10-3-1, for start", _torch(_absolute(seed))),
        "inputs.npy": _ExampleFile(f"{_INPUTS:,} inputs as an array", _numpy(x)),
        "inputs.csv": _ExampleFile("the same inputs as text", _csv(x)),
    }
    if find_spec("onnx") is None:
        return files, ("student.onnx is not written, because the package onnx is not installed.",)
    files["student.onnx"] = _ExampleFile("student.pt as ONNX", _onnx(student))
    return files, ()


def _train_teacher(seed: int) -> tuple[dict[str, Any], Tensor]:
    """Fit the teacher to functions that bend along six random directions; return its checkpoint and the inputs."""
    import torch
    from torch import nn

    from understudy._random import Stream, normal
    from understudy.data import Gaussian
    from understudy.lab.example_models import Teacher

    teacher = _initial(Teacher, seed)
    nodes, inputs = teacher.hidden.weight.shape
    x = Gaussian(dim=inputs, std=_STD, train=_INPUTS).training(seed)
    along, out = (
        torch.linalg.qr(normal(seed, Stream.DIRECTIONS, step, size * nodes).reshape(size, nodes))[0]
        for step, size in enumerate((inputs, nodes))
    )
    y = torch.tanh(2 * x @ along.float()) @ out[:, : teacher.output.out_features].float()
    y = (y - y.mean(0)) / y.std(0)
    optimiser = torch.optim.Adam(teacher.parameters(), lr=0.02)
    for _ in range(_STEPS):
        optimiser.zero_grad()
        nn.functional.mse_loss(teacher(x), y).backward()
        optimiser.step()
    states = {"model_state_dict": teacher.state_dict(), "optimizer_state_dict": optimiser.state_dict()}
    return {"epoch": _STEPS, **states}, x


def _initial(kind: type[Module], seed: int) -> Module:
    """A module with the initial weights of a seed."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return kind()


def _absolute(seed: int) -> dict[str, Tensor]:
    """State dict of a network with random weights, above 0 in the output layer."""
    from understudy.lab.example_models import Absolute

    state = _initial(Absolute, seed).state_dict()
    return state | {"output.weight": state["output.weight"].abs()}


def _train_students(teacher: nn.Module, seed: int) -> dict[str, nn.Module]:
    from understudy import students
    from understudy.data import Gaussian
    from understudy.lab.example_models import Student
    from understudy.nets import from_module
    from understudy.training import SGD, Group, SquaredError, Training
    from understudy.training.group import share

    network = from_module(teacher)
    seeds = [len(_STUDENTS) * seed + i for i in range(len(_STUDENTS))]
    untrained = students.gaussian(network, multiple=4, scale=0.05, seeds=seeds)
    data = Gaussian(dim=network.inputs, std=_STD, train=10_000, evaluation=100)
    group = Group(untrained, share(network, len(seeds)), data, SquaredError())
    training = Training([group], SGD(lr=0.05, batch=16), steps=1_000)
    for _ in range(_EPOCHS):
        training.advance()
    (trained,) = training.populations()
    made: dict[str, nn.Module] = {}
    for i, name in enumerate(_STUDENTS):
        made[name] = Student().eval()
        names = made[name].state_dict()
        made[name].load_state_dict(dict(zip(names, trained.to_module(i).state_dict().values(), strict=True)))
    return made


def _torch(value: Any) -> bytes:
    import torch

    file = BytesIO()
    torch.save(value, file)
    return file.getvalue()


def _exported(program: Any) -> bytes:
    import torch

    file = BytesIO()
    torch.export.save(program, file)
    return file.getvalue()


def _numpy(x: Tensor) -> bytes:
    import numpy as np

    file = BytesIO()
    np.save(file, x.numpy())
    return file.getvalue()


def _csv(x: Tensor) -> bytes:
    names = ",".join(f"x{i}" for i in range(x.shape[1]))
    return "\n".join([names, *(",".join(f"{value:.9g}" for value in row) for row in x.numpy().tolist()), ""]).encode()


def _onnx(student: nn.Module) -> bytes:
    """The graph of a network of two layers."""
    import onnx
    from onnx import helper, numpy_helper

    state = student.state_dict()
    tensors = [numpy_helper.from_array(tensor.numpy(), name) for name, tensor in state.items()]
    inputs, outputs = state["hidden.weight"].shape[1], state["output.weight"].shape[0]
    graph = helper.make_graph(
        [
            helper.make_node("Gemm", ["x", "hidden.weight", "hidden.bias"], ["hidden"], transB=1),
            helper.make_node("Relu", ["hidden"], ["relu"]),
            helper.make_node("Gemm", ["relu", "output.weight", "output.bias"], ["y"], transB=1),
        ],
        "Student",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["sample", inputs])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["sample", outputs])],
        tensors,
    )
    model = helper.make_model(graph, producer_name="understudy", opset_imports=[helper.make_opsetid("", 17)])
    onnx.checker.check_model(model)
    return model.SerializeToString()
