"""The command `understudy connect`: a path of low loss between two students of one teacher."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from understudy.cli.inputs import Given, check_ending, read_network, read_samples, read_teacher, write_networks
from understudy.cli.parsing import emit, parse
from understudy.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

_NOTHING = 0.1
"""Of the output variance: a student that leaves more has hardly learned the teacher."""
_MUCH = 2.0
"""Times as high on the line as on the path, from which a number says something."""


@dataclass(frozen=True, kw_only=True)
class Connect(Given):
    """A path of line segments between two students of one teacher on which the loss stays low (S0 appendix E).

    Files: safetensors, or state dicts of two nn.Linear layers written by torch.save; both students of equal sizes.
    """

    a: Path
    """The file of the student that the path begins with."""
    b: Path
    """The file of the student that it ends with."""
    below: float = 0.8
    """Students whose best correlation with a teacher node is under this count as unspecialised."""
    points: int = 9
    """Points at which the loss is taken on each segment; on the straight line as many as on the whole path."""
    a_network: int = 0
    """Which network of the first file, where it holds several."""
    b_network: int = 0
    """Which network of the second file, where it holds several."""
    save: Path | None = None
    """Write the way points to this file (.safetensors), all in one, in their order."""
    figure: Path | None = None
    """Draw the loss along path and line to this file (.pdf, .svg or .png)."""


def connect_command(words: list[str]) -> int:
    """`understudy connect`."""
    options = parse(Connect, words, "understudy connect")
    check_ending("--save", options.save, (".safetensors",))
    check_ending("--figure", options.figure, (".pdf", ".svg", ".png"))
    if options.points < 2:
        raise UserError(f"--points: {options.points} was given; allowed is a whole number from 2")
    if not -1 <= options.below <= 1:
        raise UserError(f"--below: {options.below} was given; allowed is a number from −1 to 1")
    from understudy.papers.specialization.theory.connectivity import joined, losses_along, straight

    teacher = read_teacher(options)
    a = read_network(options.a, options.leaky, options.a_network, "--a-network")
    b = read_network(options.b, options.leaky, options.b_network, "--b-network")
    samples = read_samples(options, a)
    path = joined(a, b, teacher, samples.given, options.below)
    along = losses_along(path, teacher, samples.held_out, options.points)
    line = losses_along(straight(a, b), teacher, samples.held_out, along.numel())[0]
    if options.save is not None:
        write_networks(path.points, options.save)
    if options.figure is not None:
        _draw(options.figure, along, line)
    highest, of_line = float(along.max()), float(line.max())
    ratio = of_line / highest if highest > 0 else None
    if options.json:
        emit(
            {
                "way_points": len(path.points),
                "moves": path.moves,
                "losses": along.tolist(),
                "line": line.tolist(),
                "largest": {"path": highest, "line": of_line, "ratio": ratio},
                "saved": None if options.save is None else str(options.save),
            }
        )
        return 0
    from understudy.report.terminal.tables import output, plain_table

    table = plain_table("segment", "what moves", "largest loss / output variance")
    for i, (move, losses) in enumerate(zip(path.moves, along, strict=True), 1):
        table.add_row(str(i), "weights of idle nodes" if move == "weights" else move, f"{float(losses.max()):.2e}")
    output().print(table)
    times = "" if ratio is None else f": {ratio:,.0f} times as much" if ratio >= _MUCH else ": the path is hardly lower"
    print(f"Largest on the path {highest:.2e}, on the straight line {of_line:.2e}{times}.")
    ends = float(along[0, 0]), float(along[-1, -1])
    if max(ends) > _NOTHING:
        print(
            f"The students themselves leave {ends[0]:.2g} and {ends[1]:.2g} of the output variance: where the teacher "
            "is not learned there is no low loss to keep; give trained ones."
        )
    if options.save is not None:
        print(f"{len(path.points)} way points: {options.save}")
    if options.figure is not None:
        print(f"figure: {options.figure}")
    return 0


def _draw(file: Path, along: Tensor, line: Tensor) -> None:
    import numpy as np

    from understudy.report.figures.lines import Lines, Panel, Series
    from understudy.store.files import disk_errors

    path = along.flatten().cpu().numpy()
    at = (np.arange(len(along))[:, None] + np.linspace(0, 1, along.shape[1])).ravel() / len(along)
    series = (
        Series("path", at, path),
        Series("straight line", np.linspace(0, 1, len(line)), line.cpu().numpy(), dashed=True),
    )
    figure = Lines((Panel("", "way from A to B", "loss / output variance", series, log_y=True),)).paper()
    with disk_errors(file, "choose another place with --figure"):
        figure.savefig(file, dpi=200)
