"""`understudy start`: initialise a student for a two-layer |·| teacher and, optionally, run gradient descent."""

from __future__ import annotations

import sys
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from understudy._errors import UserError
from understudy._numbers import number, typeset
from understudy.cli.inputs import validate_ending
from understudy.cli.networks import GivenNetworks, StackOptions
from understudy.cli.parsing import emit

if TYPE_CHECKING:
    from understudy.papers.local.theory.start_and_descend import Descent, NeuronCover, StartedStudent


@dataclass(frozen=True, kw_only=True)
class Start(StackOptions):
    """Initialise a student for a two-layer |·| teacher and, optionally, run gradient descent (Zhou, Ge & Jin 2021).

    Teacher: f*(x) = Σ a_i |u_i·x|, a file of two layers with one output, slope −1 and no biases, all a_i above 0.
    Student: f(x) = Σ ‖w_j‖ |w_j·x|. Losses are ½ E (f − f*)² over standard normal inputs, in closed form.
    """

    roles: ClassVar[tuple[str, ...]] = ("teacher",)

    teacher: Path
    """File of the teacher: safetensors, .pt2, .onnx, or a state dict of two nn.Linear written by torch.save."""
    by: Literal["near", "scattered", "subspace", "large", "small"] = "near"
    """near: at an angle from the teacher's neurons. scattered: random directions, lengths by least squares (algorithm
    1). subspace: the same within the span of the teacher, estimated from samples (algorithm 2). large, small: normal
    weights of one scale."""
    students: int | None = None
    """Number of student neurons, at least as many as the teacher has. By default twice as many."""
    angle: float | None = None
    """near: angle with the teacher's neurons in rad, from 0 to π/2. By default 0.1."""
    samples: int | None = None
    """subspace: number of samples that the span is estimated from."""
    scale: float | None = None
    """large, small: standard deviation of all weights. By default 1 for large and 0.01 for small."""
    seed: int = 1
    """Seed of all random numbers."""
    descend: int | None = None
    """Number of steps of gradient descent on the exact loss. By default none."""
    rate: float | None = None
    """Learning rate of descent. By default the bound of theorem 4, or less if the students are longer than the
    teacher."""
    batch: int | None = None
    """Descend on fresh mini-batches of this many samples instead of the exact loss."""
    within: float = 0.1
    """Angle in rad within which a student counts as near a teacher neuron."""
    teacher_network: int = 0
    """Index of the network to use, if the teacher's file contains several."""
    out: Path | None = None
    """Write the student to this file (.safetensors); after descent, the final one."""
    json: bool = False
    """Print one JSON object and nothing else."""


_OF_FILES = ("teacher", "teacher_network", "out", "json", *(field.name for field in fields(StackOptions)))


def run_start(options: Start) -> None:
    """Initialise a student for a two-layer |·| teacher and, optionally, run gradient descent."""
    validate_ending("--out", options.out, (".safetensors",))
    if options.out is not None and options.out.resolve() == options.teacher.resolve():
        raise UserError(f"--out must not be the teacher's own file, got {options.out}")
    from understudy.papers.local.shared import rate_warning
    from understudy.papers.local.theory import start_and_descend

    networks = GivenNetworks(options)
    teacher = networks.read("teacher", options.teacher, options.teacher_network)
    if teacher.slope != -1:
        raise UserError(
            f"{options.teacher}: the activation must be |·|, with slope −1 below zero, got slope "
            f"{number(teacher.slope, 'g')}; for a file that does not record the activation, add --activation abs"
        )
    chosen = {name: value for name, value in vars(options).items() if name not in _OF_FILES}
    started = start_and_descend.start(teacher, **chosen)
    descent = started.descent
    if descent is not None and descent.rate > descent.bound:
        print(f"warning: {rate_warning(descent.rate, descent.bound)}", file=sys.stderr)
    if options.out is not None:
        _write(options, started)
    if options.json:
        emit({"assumed": networks.assumed} | _as_json(options, started))
    else:
        networks.show()
        _show(options, started, teacher.sizes)


def _write(options: Start, started: StartedStudent) -> None:
    from understudy._atomic import disk_errors
    from understudy.nets import save
    from understudy.papers.local.theory.starts import student_network

    assert options.out is not None
    with disk_errors(options.out, "choose another place with --out"):
        save(student_network(started.final, [options.seed]), options.out, which=0)


def _as_json(options: Start, started: StartedStudent) -> dict[str, Any]:
    descent = started.descent
    return {
        "by": options.by,
        "students": started.students.shape[1],
        "loss": started.loss,
        "share": started.share,
        "teacher_neurons": [row._asdict() for row in started.teacher_neurons],
        "span_angle": started.span_angle,
        "description": started.notes,
        "said": started.notes,  # former name, until 0.3.0
        "descent": descent
        and {
            **{name: getattr(descent, name) for name in ("steps", "rate", "bound", "loss", "power")},
            "teacher_neurons": [row._asdict() for row in descent.teacher_neurons],
            "how": _change(started.loss, descent),
        },
        "saved": None if options.out is None else str(options.out),
    }


def _show(options: Start, started: StartedStudent, sizes: tuple[int, ...]) -> None:
    dim, neurons, _ = sizes
    teacher = f"{_count(neurons, 'teacher neuron')} in {_count(dim, 'dimension')}"
    print(f"{_count(started.students.shape[1], 'student')} of {teacher}, {started.placement}:")
    _print_neurons(started.teacher_neurons, options.within)
    for note in started.notes:
        print(f"note: {note}")
    if started.span_angle is not None:
        print(f"The span of the students is {number(started.span_angle, '.2g')} rad from the teacher's.")
    times = f"{started.share:,.1f} times" if started.share >= 2 else f"{number(started.share, '.2g')} of"
    if started.vanished:
        print(f"Loss {number(started.loss, '.1e')}, which is zero to rounding.")
    else:
        print(f"Loss {number(started.loss, '.3e')}: {times} the loss without students.")
    descent = started.descent
    if descent is not None:
        on = "" if options.batch is None else f" on mini-batches of {options.batch:,}"
        print(f"\nAfter {_count(descent.steps, 'step')} of gradient descent{on}, rate {number(descent.rate)}:")
        _print_neurons(descent.teacher_neurons, options.within)
        print(_change(started.loss, descent))
    if options.out is None:
        print("Nothing was written; --out student.safetensors saves the student.")
    else:
        print(f"student{'' if descent is None else ' after descent'}: {options.out}")


def _print_neurons(rows: list[NeuronCover], within: float) -> None:
    from understudy.report.terminal.tables import output, plain_table

    table = plain_table(
        "teacher neuron", "length", "students", "their mass", f"within {number(within, 'g')} rad", "nearest, rad"
    )
    for row in rows:
        nearest = "none" if row.nearest is None else number(row.nearest, ".2g")
        numbers = (number(value) for value in (row.length, row.students, row.mass, row.mass_within))
        table.add_row(str(row.neuron), *numbers, nearest)
    for column in table.columns:
        column.justify = "right"
    output().print(table)


def _change(before: float, descent: Descent) -> str:
    if not descent.loss < before:
        smaller = f"choose a smaller --rate, such as {descent.safe_rate:.2g}"
        return typeset(f"The loss rose from {before:.3e} to {descent.loss:.3e}") + f": {smaller}."
    power = "" if descent.power is None else f", over the last two thirds of the steps as t^{-descent.power:.2f}"
    rounding = ", which is zero to rounding" if descent.vanished else ""
    return typeset(f"The loss fell from {before:.3e} to {descent.loss:.3e}{power}{rounding}.")


def _count(count: int, one: str) -> str:
    return f"{count:,} {one}" if count == 1 else f"{count:,} {one}s"
