"""The command `understudy align`: who matches whom in two network files."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from understudy._errors import UserError
from understudy.cli.options import emit, parsed

if TYPE_CHECKING:
    from torch import Tensor

    from understudy.measures import LayerMatch
    from understudy.nets import Population


@dataclass(frozen=True)
class Align:
    """Which student node matches which teacher node, layer by layer, in two network files of equal input size.

    Files: safetensors, or state dicts of nn.Linear or 3×3 nn.Conv2d stacks written by torch.save.
    """

    teacher: Path
    """The teacher's file."""
    student: Path
    """The student's file."""
    data: Path | None = None
    """Inputs to compare on: .npy, .npz or .parquet, samples × inputs. Left out, they are drawn."""
    inputs: Literal["gaussian", "uniform"] = "gaussian"
    """Distribution of drawn inputs."""
    input_std: float = 1.5
    """Standard deviation of drawn inputs."""
    samples: int = 10_000
    """How many inputs are drawn."""
    seed: int = 1
    """Seed of drawn inputs."""
    leaky: float | None = None
    """Slope of the activation below zero, for files that do not say; left out, ReLU."""
    teacher_network: int = 0
    """Which network of the teacher's file, where it holds several."""
    student_network: int = 0
    """Which network of the student's file, where it holds several."""
    figure: Path | None = None
    """Draw the heat map to this file (.pdf, .svg or .png)."""
    json: bool = False
    """Print one JSON object and nothing else."""


def align_command(words: list[str]) -> int:
    """`understudy align`."""
    options = parsed(Align, words, "understudy align")
    figure_endings = (".pdf", ".svg", ".png")
    if options.figure is not None and options.figure.suffix not in figure_endings:
        raise UserError(f"--figure: {options.figure} was given; allowed endings are {', '.join(figure_endings)}")
    if options.leaky is not None and not isfinite(options.leaky):
        raise UserError(f"--leaky: {options.leaky} was given; allowed is a finite number, such as 0 for ReLU")
    from understudy.measures import align

    teacher, student = (
        _network(path, options.leaky, which, option)
        for path, which, option in (
            (options.teacher, options.teacher_network, "--teacher-network"),
            (options.student, options.student_network, "--student-network"),
        )
    )
    layers = align(teacher, student, _inputs(options, teacher.inputs))
    if options.figure is not None:
        _draw(options.figure, layers)
    if options.json:
        emit({"layers": [_as_json(layer) for layer in layers]})
        return 0
    from understudy.report.terminal import output, print_alignment

    print_alignment(output(), layers)
    if len(teacher.layers) != len(student.layers):
        depths = f"{len(teacher.layers) - 1} and {len(student.layers) - 1}"
        print(f"The networks have {depths} hidden layers; the lowest {len(layers)} were compared.")
    if options.figure is not None:
        print(f"heat map: {options.figure}")
    return 0


def _network(path: Path, slope: float | None, which: int, option: str) -> Population:
    from understudy.nets import load

    population = load(path, slope=slope)
    if not 0 <= which < len(population):
        raise UserError(f"{option}: {which} was given; {path} holds networks 0 to {len(population) - 1}")
    return population[which]


def _inputs(options: Align, dim: int) -> Tensor:
    from understudy.data import Gaussian, Uniform
    from understudy.data.files import read_inputs

    if options.data is not None:
        inputs = read_inputs(options.data)
        if inputs.shape[1] != dim:
            raise UserError(f"--data: {options.data} has {inputs.shape[1]} inputs a sample; the networks take {dim}")
        return inputs
    if not 0 <= options.seed < 2**63:
        raise UserError(f"--seed: {options.seed} was given; allowed is a whole number from 0 to 2^63 − 1")
    for name, value in (("samples", options.samples), ("input-std", options.input_std)):
        if not value > 0 or value == float("inf"):
            raise UserError(f"--{name}: {value} was given; allowed is a finite number above 0")
    kind = Gaussian if options.inputs == "gaussian" else Uniform
    return kind(dim, options.input_std, evaluation=options.samples).evaluating(options.seed)


def _as_json(layer: LayerMatch) -> dict[str, Any]:
    numbers = {
        "best_correlation": layer.best_correlation,
        "sin_angle": layer.sin_angle,
        "bias_gap": layer.bias_gap,
    }
    plain = {name: [v if isfinite(v) else None for v in values.tolist()] for name, values in numbers.items()}
    return {
        "correlation": layer.correlation.tolist(),
        "best": layer.best.tolist(),
        "recovered": layer.recovered,
    } | plain


def _draw(path: Path, layers: list[LayerMatch]) -> None:
    from understudy.report.figures import CorrelationMatrix
    from understudy.store.files import disk_errors

    titles = tuple(f"layer {i + 1}" for i in range(len(layers)))
    figure = CorrelationMatrix(titles, tuple(layer.correlation.numpy() for layer in layers)).paper()
    with disk_errors(path, "choose another place with --figure"):
        figure.savefig(path, dpi=200)
