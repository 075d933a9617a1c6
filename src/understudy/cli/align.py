"""The command `understudy align`: who matches whom in two network files."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from understudy.cli.inputs import OnInputs, check_ending, read_inputs, read_network
from understudy.cli.parsing import emit, parse

if TYPE_CHECKING:
    from understudy.measures import LayerMatch


@dataclass(frozen=True, kw_only=True)
class Align(OnInputs):
    """Which student node matches which teacher node, layer by layer, in two network files of equal input size.

    Files: safetensors, or state dicts of nn.Linear or 3×3 nn.Conv2d stacks written by torch.save.
    """

    teacher: Path
    """The teacher's file."""
    student: Path
    """The student's file."""
    teacher_network: int = 0
    """Which network of the teacher's file, where it holds several."""
    student_network: int = 0
    """Which network of the student's file, where it holds several."""
    figure: Path | None = None
    """Draw the heat map to this file (.pdf, .svg or .png)."""


def align_command(words: list[str]) -> int:
    """`understudy align`."""
    options = parse(Align, words, "understudy align")
    check_ending("--figure", options.figure, (".pdf", ".svg", ".png"))
    from understudy.measures import align

    teacher, student = (
        read_network(path, options.leaky, which, option)
        for path, which, option in (
            (options.teacher, options.teacher_network, "--teacher-network"),
            (options.student, options.student_network, "--student-network"),
        )
    )
    layers = align(teacher, student, read_inputs(options, teacher))
    if options.figure is not None:
        _draw(options.figure, layers)
    if options.json:
        emit({"layers": [_as_json(layer) for layer in layers]})
        return 0
    from understudy.report.terminal.tables import output, print_alignment

    print_alignment(output(), layers)
    if len(teacher.layers) != len(student.layers):
        depths = f"{len(teacher.layers) - 1} and {len(student.layers) - 1}"
        print(f"The networks have {depths} hidden layers; the lowest {len(layers)} were compared.")
    if options.figure is not None:
        print(f"heat map: {options.figure}")
    return 0


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
