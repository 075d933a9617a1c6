"""`understudy align`: which student node matches which teacher node, in two network files."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from understudy.cli import inputs
from understudy.cli.parsing import emit

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from understudy.measures import LayerMatch


@dataclass(frozen=True, kw_only=True)
class Align(inputs.InputOptions):
    """Match student nodes with teacher nodes, layer by layer, in two network files of equal input size.

    Files: safetensors, or state dicts of nn.Linear or 3×3 nn.Conv2d stacks written by torch.save.
    """

    teacher: Path
    """File of the teacher."""
    student: Path
    """File of the student."""
    teacher_network: int = 0
    """Index of the network to use, if the teacher's file contains several."""
    student_network: int = 0
    """Index of the network to use, if the student's file contains several."""
    figure: Path | None = None
    """Draw the heat map of correlations to this file (.pdf, .svg or .png)."""


def run_align(options: Align) -> None:
    """Print which student node matches which teacher node of two network files."""
    inputs.validate_ending("--figure", options.figure, (".pdf", ".svg", ".png"))
    from understudy import measures

    teacher = inputs.read_network(options.teacher, options.leaky, options.teacher_network, "--teacher-network")
    student = inputs.read_network(options.student, options.leaky, options.student_network, "--student-network")
    x = inputs.read_inputs(options, teacher)
    layers = measures.align(teacher, student, x)
    measured_on = f"{len(x):,} inputs {inputs.describe_inputs(options)}"
    if options.figure is not None:
        inputs.write_figure(_heat_map(layers), options.figure)
    if options.json:
        emit({"inputs": measured_on, "layers": [_as_json(layer) for layer in layers]})
        return
    from understudy.report.terminal.tables import output, print_alignment

    print_alignment(output(), layers)
    print(f"Correlations over {measured_on}.")
    if len(teacher.layers) != len(student.layers):
        depths = f"{len(teacher.layers) - 1} and {len(student.layers) - 1}"
        print(f"The networks have {depths} hidden layers; the lowest {len(layers)} were compared.")
    if options.figure is not None:
        print(f"heat map: {options.figure}")


def _as_json(layer: LayerMatch) -> dict[str, Any]:
    numbers = {
        "best_correlation": layer.best_correlation,
        "sin_angle": layer.sin_angle,
        "bias_gap": layer.bias_gap,
    }
    return {
        "correlation": layer.correlation.tolist(),
        "best": layer.best.tolist(),
        "recovered": layer.recovered,
        **{name: [v if isfinite(v) else None for v in values.tolist()] for name, values in numbers.items()},
    }


def _heat_map(layers: list[LayerMatch]) -> Figure:
    from understudy.report.figures import CorrelationMatrix

    titles = tuple(f"layer {i + 1}" for i in range(len(layers)))
    return CorrelationMatrix(titles, tuple(layer.correlation.numpy() for layer in layers)).paper()
