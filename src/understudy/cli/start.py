"""The command `understudy start`: a student to start from, for a teacher of |·| neurons, and descent from there."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from math import isfinite, log, pi
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from understudy.cli.inputs import check_ending, read_network
from understudy.cli.parsing import emit, parse
from understudy.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

    from understudy.papers.local.theory.starts import Start as Started

_ANGLE, _SCALES = 0.1, {"large": 1.0, "small": 0.01}
_BELONGS = {"samples": ("subspace",), "angle": ("near",), "scale": ("large", "small")}
_SLACK = 1e-9
"""Students put at the angle asked about are within it, whichever way the last digit goes."""
_ROUNDING = 1e-26
"""A loss below this share of the teacher's is of rounding alone."""


@dataclass(frozen=True, kw_only=True)
class Start:
    """A student to start from, for a teacher of your own: in the ways of "A Local Convergence Theory for Mildly
    Over-Parameterized Two-Layer Neural Network" (S4). On request gradient descent goes on from there.

    Teacher: f*(x) = Σ a_i |u_i·x|, a file of two layers with one output, slope −1 and no biases, all a_i above 0.
    Student: f(x) = Σ ‖w_j‖ |w_j·x|. Losses are ½ E (f − f*)² over standard normal inputs, exact and not of samples.
    """

    teacher: Path
    """The teacher's file: safetensors, or a state dict of two nn.Linear written by torch.save."""
    by: Literal["near", "scattered", "subspace", "large", "small"] = "near"
    """near: at an angle from the teacher's neurons. scattered: random directions, lengths by least squares
    (algorithm 1). subspace: the same within the span of the teacher as samples show it (algorithm 2). large, small:
    normal numbers of a scale."""
    students: int | None = None
    """How many students, no fewer than the teacher's neurons; left out, twice as many."""
    angle: float | None = None
    """near: angle with the teacher's neurons, in rad, from 0 to π/2; left out, 0.1."""
    samples: int | None = None
    """subspace: samples of the teacher to find its span by."""
    scale: float | None = None
    """large, small: standard deviation of all weights; left out, 1 for large and 0.01 for small."""
    seed: int = 1
    """Seed of all that is drawn."""
    descend: int | None = None
    """Go on by this many steps of gradient descent on the exact loss."""
    rate: float | None = None
    """Rate of descent; left out, the bound of theorem 4, or less where the students are longer than the teacher."""
    batch: int | None = None
    """Descend on fresh mini-batches of this many samples, instead of the exact loss."""
    within: float = 0.1
    """Angle in rad within which a student counts as near a teacher neuron."""
    teacher_network: int = 0
    """Which network of the teacher's file, where it holds several."""
    leaky: float | None = None
    """Slope of the activation below zero, for files that do not say: -1 is |·|."""
    out: Path | None = None
    """Write the student to this file (.safetensors); after descent, where it ended."""
    json: bool = False
    """Print one JSON object and nothing else."""


def start_command(words: list[str]) -> int:
    """`understudy start`."""
    options = parse(Start, words, "understudy start")
    _check(options)
    try:
        return _start(options)
    except KeyboardInterrupt:
        print("\nunderstudy: interrupted; nothing was written", file=sys.stderr)
        return 130


def _start(options: Start) -> int:
    from understudy.papers.local.theory.gaussian.closed_forms import kernel, loss
    from understudy.papers.local.theory.starts import subspace_angle

    teachers = _teacher(options)
    start = _students(options, teachers)
    students = start.students
    value, nothing = float(loss(students, teachers)), float(kernel(teachers, teachers).sum()) / 2
    told: dict[str, Any] = {
        "by": options.by,
        "students": students.shape[1],
        "loss": value,
        "share": value / nothing,
        "teacher_neurons": _near(options, students, teachers),
        "span_angle": float(subspace_angle(students.mT, teachers)) if options.by == "subspace" else None,
        "said": start.said,
        "descent": None,
        "saved": None if options.out is None else str(options.out),
    }
    if options.descend is not None:
        students, told["descent"] = _descend(options, students, teachers, nothing)
    if options.out is not None:
        _write(options, students)
    if options.json:
        emit(told)
    else:
        _show(options, teachers, told)
    return 0


def _check(options: Start) -> None:
    """What can be said before any file is read."""
    check_ending("--out", options.out, (".safetensors",))
    if options.out is not None and options.out.resolve() == options.teacher.resolve():
        raise UserError(f"--out: {options.out} is the teacher's own file; choose another")
    for name, ways in _BELONGS.items():
        given = getattr(options, name)
        if given is not None and options.by not in ways:
            raise UserError(f"--{name}: {given} was given; it belongs to --by {' or '.join(ways)}, not {options.by}")
    for name in ("rate", "batch"):
        if (given := getattr(options, name)) is not None and options.descend is None:
            raise UserError(f"--{name}: {given} was given; it is of descent, so say how many steps with --descend")
    if options.by == "subspace" and options.samples is None:
        raise UserError("--samples: nothing was given; subspace finds the span by samples, such as --samples 100000")
    for name in ("samples", "descend", "batch"):
        if (given := getattr(options, name)) is not None and given < 1:
            raise UserError(f"--{name}: {given} was given; allowed is a whole number from 1")
    for name in ("scale", "rate"):
        if (given := getattr(options, name)) is not None and not (given > 0 and isfinite(given)):
            raise UserError(f"--{name}: {given} was given; allowed is a finite number above 0")
    for name in ("angle", "within"):
        if (given := getattr(options, name)) is not None and not 0 <= given <= pi / 2:
            raise UserError(f"--{name}: {given} was given; allowed is a number from 0 to π/2 = 1.5708, in rad")
    if not 0 <= options.seed < 2**63:
        raise UserError(f"--seed: {options.seed} was given; allowed is a whole number from 0 to 2^63 − 1")


def _teacher(options: Start) -> Tensor:
    from understudy.papers.local.theory.starts import teacher_nodes

    network = read_network(options.teacher, options.leaky, options.teacher_network, "--teacher-network")
    if network.slope != -1:
        raise UserError(
            f"{options.teacher}: the activation has slope {network.slope:g} below zero; allowed is −1, which is |·|; "
            "for a file that does not say so, add --leaky -1"
        )
    try:
        return teacher_nodes(network)
    except UserError as error:
        raise UserError(f"{options.teacher}: {error}") from error


def _students(options: Start, teachers: Tensor) -> Started:
    from understudy.papers.local.theory import starts

    neurons = teachers.shape[1]
    count = 2 * neurons if options.students is None else options.students
    if count < neurons:
        raise UserError(
            f"--students: {count} was given; the teacher has {neurons} neurons, so allowed is {neurons} or more"
        )
    _refuse_too_many(count)
    seeds = [options.seed]
    if options.by == "near":
        return starts.near(teachers, count, _angle(options, teachers.shape[2]), seeds)
    if options.by == "scattered":
        return starts.scattered(teachers, count, seeds)
    if options.by == "subspace":
        return starts.in_subspace(teachers, count, options.samples or 0, seeds)
    return starts.scaled(teachers, count, options.scale or _SCALES[options.by], seeds)


def _refuse_too_many(students: int) -> None:
    """Whose angles with each other do not fit into memory."""
    from torch import device

    from understudy.training.plan import available

    need, free = 8 * students**2, available(device("cpu"))
    if need > free:
        raise UserError(
            f"--students: {students} was given; every two of them have an angle, which takes {need / 1e9:.3g} GB, and "
            f"{free / 1e9:.3g} GB may be used: allowed here is up to {int((free / 8) ** 0.5)}"
        )


def _angle(options: Start, dim: int) -> float:
    """With one input all neurons are along one line."""
    return (_ANGLE if dim > 1 else 0.0) if options.angle is None else options.angle


def _near(options: Start, students: Tensor, teachers: Tensor) -> list[dict[str, Any]]:
    """Of every teacher neuron: its students, which are nearest to it, and what they have of its length."""
    from understudy.papers.local.theory.starts import nearest

    which, angles = nearest(students[0], teachers[0])
    mass, rows = students[0].square().sum(-1), []
    for neuron, length in enumerate(teachers[0].norm(dim=-1).tolist()):
        own = (which == neuron) & (mass > 0)
        close = own & (angles <= options.within + _SLACK)
        rows.append(
            {
                "neuron": neuron,
                "length": length,
                "students": int(own.sum()),
                "mass": float(mass[own].sum()),
                "mass_within": float(mass[close].sum()),
                "nearest": float(angles[own].min()) if own.any() else None,
            }
        )
    return rows


def _descend(options: Start, students: Tensor, teachers: Tensor, nothing: float) -> tuple[Tensor, dict[str, Any]]:
    """Where descent ends, and how: the loss fell as t^(−power) over the last two thirds of the steps."""
    from understudy.papers.local.shared import above_bound, log_probes
    from understudy.papers.local.theory.descent import descend, rate_bound
    from understudy.papers.local.theory.gaussian.closed_forms import loss
    from understudy.papers.local.theory.starts import tempered

    steps, bound = options.descend or 0, float(rate_bound(teachers))
    sure = float(tempered(bound, students, teachers))
    rate = sure if options.rate is None else options.rate
    if rate > bound:
        print(f"warning: {above_bound(rate, bound)}", file=sys.stderr)
    third = -(-steps // 3)
    probes = sorted({*log_probes(steps), third})
    path = descend(students, teachers, rate, steps, probes, batch=options.batch, seeds=[options.seed])
    lost = path.isnan().flatten(1).any(1)
    smaller = sure if sure < rate else rate / 10
    if lost.any():
        at = int(lost.nonzero()[0])
        raise UserError(
            f"--rate: at {rate:g} the weights grew beyond all numbers between steps {probes[at - 1]:,} and "
            f"{probes[at]:,}, and nothing was written; choose a smaller one, such as {smaller:.2g}"
        )
    losses = dict(zip(probes, loss(path, teachers)[:, 0].tolist(), strict=True))
    before, after = losses[0], losses[steps]
    zero = after < _ROUNDING * nothing
    power = None if zero or steps < 3 else log(losses[third] / after) / log(steps / third)
    if not after < before:
        how = f"The loss rose from {before:.3e} to {after:.3e}: choose a smaller --rate, such as {smaller:.2g}."
    else:
        as_power = "" if power is None else f", over the last two thirds of the steps as t^{-power:.2f}"
        rounding = ", which is zero to rounding" if zero else ""
        how = f"The loss fell from {before:.3e} to {after:.3e}{as_power.replace('-', '−')}{rounding}."
    return path[-1], {
        "steps": steps,
        "rate": rate,
        "bound": bound,
        "loss": after,
        "power": power,
        "teacher_neurons": _near(options, path[-1], teachers),
        "how": how,
    }


def _write(options: Start, students: Tensor) -> None:
    from understudy.nets import save
    from understudy.papers.local.theory.starts import student_network
    from understudy.store.files import disk_errors

    assert options.out is not None
    with disk_errors(options.out, "choose another place with --out"):
        save(student_network(students, [options.seed]), options.out, which=0)


def _show(options: Start, teachers: Tensor, told: dict[str, Any]) -> None:
    _, neurons, dim = teachers.shape
    sizes = f"{_many(neurons, 'teacher neuron')} in {_many(dim, 'dimension')}"
    print(f"{_many(told['students'], 'student')} of {sizes}, {_way(options, dim)}:")
    _table(options, told["teacher_neurons"])
    for note in told["said"]:
        print(f"note: {note}")
    if told["span_angle"] is not None:
        print(f"The span of the students is {told['span_angle']:.2g} rad from the teacher's.")
    print(_loss(told["loss"], told["share"]))
    descent = told["descent"]
    if descent is not None:
        on = "" if options.batch is None else f" on mini-batches of {options.batch:,}"
        print(f"\nAfter {_many(descent['steps'], 'step')} of gradient descent{on}, rate {descent['rate']:.3g}:")
        _table(options, descent["teacher_neurons"])
        print(descent["how"])
    if options.out is None:
        print("Nothing was written; --out student.safetensors keeps the student.")
    else:
        print(f"student{'' if descent is None else ' after descent'}: {options.out}")


def _way(options: Start, dim: int) -> str:
    if options.by == "near":
        return f"{_angle(options, dim):g} rad from these"
    if options.by == "scattered":
        return "in random directions"
    if options.by == "subspace":
        return f"in the span that {options.samples:,} samples show"
    return f"drawn with standard deviation {options.scale or _SCALES[options.by]:g}"


def _table(options: Start, rows: list[dict[str, Any]]) -> None:
    from understudy.report.terminal.tables import output, plain_table

    names = ("teacher neuron", "length", "students", "their mass", f"within {options.within:g} rad", "nearest, rad")
    table = plain_table(*names)
    for row in rows:
        nearest = "none" if row["nearest"] is None else f"{row['nearest']:.2g}"
        numbers = (f"{row[name]:.3g}" for name in ("length", "students", "mass", "mass_within"))
        table.add_row(str(row["neuron"]), *numbers, nearest)
    for column in table.columns:
        column.justify = "right"
    output().print(table)


def _loss(value: float, share: float) -> str:
    """Beside that of a student that gives 0 everywhere."""
    if share < _ROUNDING:
        return f"Loss {value:.1e}, which is zero to rounding."
    times = f"{share:,.1f} times" if share >= 2 else f"{share:.2g} of"
    return f"Loss {value:.3e}: {times} what no students at all would leave."


def _many(count: int, one: str) -> str:
    return f"{count:,} {one}" if count == 1 else f"{count:,} {one}s"
