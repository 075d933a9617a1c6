"""`understudy connect`: a path of low loss between two students of one teacher."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from understudy._numbers import number, typeset
from understudy.cli import inputs
from understudy.cli.networks import GivenNetworks, NetworkOptions
from understudy.cli.parsing import emit

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from torch import Tensor

_UNTRAINED = 0.1
"""A student that leaves more than this share of the output variance has hardly learned the teacher."""
_NOTABLE = 2.0
"""Ratio of the losses on line and path from which, either way, it is reported as a number."""


@dataclass(frozen=True, kw_only=True)
class Connect(NetworkOptions, inputs.TeacherOptions):
    """Connect two students of one teacher by line segments on which the loss stays low (Tian 2020, appendix E).

    Files: safetensors, .pt2, .onnx, or state dicts written by torch.save, of networks of two linear layers; both
    students of equal sizes.
    """

    roles: ClassVar[tuple[str, ...]] = ("teacher", "a", "b")

    a: Path
    """File of the student at the start of the path."""
    b: Path
    """File of the student at its end."""
    below: float = 0.8
    """Student nodes whose best correlation with a teacher node is below this count as unspecialised."""
    points: int = 9
    """Points per segment at which the loss is measured; the straight line has as many as the whole path."""
    a_network: int = 0
    """Index of the network to use, if the first file contains several."""
    b_network: int = 0
    """Index of the network to use, if the second file contains several."""
    save: Path | None = None
    """Write all way points, in order, to this file (.safetensors)."""
    figure: Path | None = None
    """Draw the loss along path and line to this file (.pdf, .svg or .png)."""


def run_connect(options: Connect) -> None:
    """Print and save a path of low loss between two students."""
    inputs.validate_ending("--save", options.save, (".safetensors",))
    inputs.validate_ending("--figure", options.figure, (".pdf", ".svg", ".png"))
    from understudy.papers.specialization.connect import connect

    networks = GivenNetworks(options)
    teacher = inputs.read_teacher(networks, options)
    a = networks.read("a", options.a, options.a_network)
    b = networks.read("b", options.b, options.b_network)
    found = connect(a, b, teacher, **inputs.drawing(options), below=options.below, points=options.points)
    path, along, line = found.path, found.losses, found.line
    if options.save is not None:
        inputs.write_networks(path.points, options.save)
    if options.figure is not None:
        inputs.write_figure(_curves(along, line), options.figure)
    highest, of_line = found.largest, found.largest_on_line
    ratio = of_line / highest if highest > 0 else None
    if options.json:
        emit(
            {
                "assumed": networks.assumed,
                "way_points": len(path.points),
                "moves": path.moves,
                "losses": along.tolist(),
                "line": line.tolist(),
                "largest": {"path": highest, "line": of_line, "ratio": ratio},
                "saved": None if options.save is None else str(options.save),
            }
        )
        return
    networks.show()
    from understudy.report.terminal.tables import output, plain_table

    table = plain_table("segment", "what moves", "largest loss / output variance")
    for i, (move, losses) in enumerate(zip(path.moves, along, strict=True), 1):
        table.add_row(str(i), "weights of idle nodes" if move == "weights" else move, number(losses.max(), ".2e"))
    output().print(table)
    compared = _compared(highest, of_line)
    print(typeset(f"Largest loss on the path {highest:.2e}, on the straight line {of_line:.2e}{compared}."))
    ends = float(along[0, 0]), float(along[-1, -1])
    if max(ends) > _UNTRAINED:
        own = typeset(f"{ends[0]:.2g} and {ends[1]:.2g}")
        print(
            f"The students themselves leave {own} of the output variance, so no path between them has a low loss; give "
            "students that have learned the teacher."
        )
    if options.save is not None:
        print(f"{len(path.points)} way points: {options.save}")
    if options.figure is not None:
        print(f"figure: {options.figure}")


def _compared(path: float, line: float) -> str:
    """Say which of path and straight line has the lower loss, and by what factor."""
    if path == line:
        return ": they are equal"
    if line >= _NOTABLE * path:
        return f": {line / path:,.0f} times as much" if path > 0 else ""
    if path >= _NOTABLE * line:
        higher = f": the path is {path / line:,.0f} times higher" if line > 0 else ": the path is higher"
        return f"{higher}, and the straight line already connects the students"
    return f": the path is hardly {'lower' if path < line else 'higher'}"


def _curves(along: Tensor, line: Tensor) -> Figure:
    import numpy as np

    from understudy.report.figures import Curves, Panel, Series

    path = along.flatten().cpu().numpy()
    at = (np.arange(len(along))[:, None] + np.linspace(0, 1, along.shape[1])).ravel() / len(along)
    series = (
        Series("path", at, path),
        Series("straight line", np.linspace(0, 1, len(line)), line.cpu().numpy(), dashed=True),
    )
    return Curves((Panel("", "position between A and B", "loss / output variance", series, log_y=True),)).paper()
