"""Initialise one student for a given teacher and run gradient descent from there: what `understudy start` computes."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite, log, pi
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from understudy._errors import UserError
from understudy._memory import MOST
from understudy._numbers import number
from understudy.lab.pieces import log_probes
from understudy.nets.given_networks import Network, as_population
from understudy.papers.local.theory import descent, starts
from understudy.papers.local.theory.gaussian import kernel, loss
from understudy.papers.local.theory.teachers import teacher_nodes
from understudy.training.plan import available

_ANGLE, _SCALES = 0.1, {"large": 1.0, "small": 0.01}
_APPLIES = {"samples": ("subspace",), "angle": ("near",), "scale": ("large", "small")}
_SLACK = 1e-9
"""Tolerance in rad, so that students placed exactly at the angle `within` count as within it."""
_ROUNDING = 1e-26
"""A loss below this share of the loss of the zero student consists of rounding errors only."""


class NeuronCover(NamedTuple):
    """Students that are nearest to one teacher neuron; `mass` is the sum of their squared lengths."""

    neuron: int
    length: float
    students: int
    mass: float
    mass_within: float
    nearest: float | None
    """Angle of the nearest student in rad, if there is one."""


@dataclass(frozen=True, eq=False)
class Descent:
    """Gradient descent from a start: the loss falls as t^(−power) over the last two thirds of the steps."""

    students: Float[Tensor, "1 student in"]
    steps: int
    rate: float
    bound: float
    """Largest rate at which descent near the teacher is certain to lower the loss."""
    safe_rate: float
    """A rate to try if the loss rose."""
    loss: float
    power: float | None
    vanished: bool
    """True if the loss is zero to rounding."""
    teacher_neurons: list[NeuronCover]


@dataclass(frozen=True, eq=False)
class StartedStudent:
    """A student, its exact loss, and the descent from there if one was requested."""

    students: Float[Tensor, "1 student in"]
    placement: str
    loss: float
    share: float
    """Loss divided by that of a student that is 0 everywhere."""
    vanished: bool
    """True if the loss is zero to rounding."""
    teacher_neurons: list[NeuronCover]
    span_angle: float | None
    notes: tuple[str, ...]
    descent: Descent | None

    @property
    def final(self) -> Float[Tensor, "1 student in"]:
        return self.students if self.descent is None else self.descent.students


def start(
    teacher: Network,
    *,
    by: Literal["near", "scattered", "subspace", "large", "small"] = "near",
    students: int | None = None,
    angle: float | None = None,
    samples: int | None = None,
    scale: float | None = None,
    seed: int = 1,
    descend: int | None = None,
    rate: float | None = None,
    batch: int | None = None,
    within: float = 0.1,
) -> StartedStudent:
    """Initialise a student for a two-layer |·| teacher and, optionally, run gradient descent.

    The teacher is f*(x) = Σ a_i |u_i·x| with a_i > 0, the student f(x) = Σ ‖w_j‖ |w_j·x|. Losses are ½ E (f − f*)² over
    standard normal inputs, in closed form (Zhou, Ge & Jin 2021).

    Args:
        teacher: One network of two layers with one output, slope −1 and no biases: a population, a module of PyTorch,
            or a network file.
        by: `near`: at an angle from the teacher's neurons. `scattered`: random directions, lengths by least squares
            (algorithm 1). `subspace`: the same within the span of the teacher, estimated from samples (algorithm 2).
            `large`, `small`: normal weights of one scale.
        students: Number of student neurons, at least as many as the teacher has; by default twice as many.
        angle: Angle with the teacher's neurons in rad, for `near`; by default 0.1.
        samples: Number of samples that the span is estimated from, for `subspace`.
        scale: Standard deviation of all weights; by default 1 for `large` and 0.01 for `small`.
        seed: Seed of all random numbers.
        descend: Number of steps of gradient descent; by default none.
        rate: Learning rate; by default the bound of theorem 4, or less if the students are longer than the teacher.
        batch: Samples per step; by default steps follow the exact loss.
        within: Angle in rad within which a student counts as near a teacher neuron.

    Returns:
        The student with its exact loss and the students near each teacher neuron, before and after descent.

    Raises:
        UserError: An option is out of range or does not apply, the teacher is of another form, or descent diverges.
    """
    given = {"angle": angle, "samples": samples, "scale": scale, "seed": seed, "within": within}
    _validate(by, given | {"descend": descend, "rate": rate, "batch": batch})
    teachers = teacher_nodes(as_population("teacher", teacher))
    _, neurons, dim = teachers.shape
    count = 2 * neurons if students is None else students
    _validate_students(count, neurons)
    if by == "near":
        angle = (_ANGLE if dim > 1 else 0.0) if angle is None else angle
        made, placement = starts.place_near(teachers, count, angle, [seed]), f"{number(angle, 'g')} rad from these"
    elif by == "scattered":
        made, placement = starts.scatter(teachers, count, [seed]), "in random directions"
    elif by == "subspace":
        made = starts.scatter_in_subspace(teachers, count, samples or 0, [seed])
        placement = f"in the span estimated from {samples:,} samples"
    else:
        scale = scale or _SCALES[by]
        made = starts.draw_normal(teachers, count, scale, [seed])
        placement = f"drawn with standard deviation {number(scale, 'g')}"
    value, zero = float(loss(made.students, teachers)), float(kernel(teachers, teachers).sum()) / 2
    return StartedStudent(
        students=made.students,
        placement=placement,
        loss=value,
        share=value / zero,
        vanished=value / zero < _ROUNDING,
        teacher_neurons=_cover(made.students, teachers, within),
        span_angle=float(starts.subspace_angle(made.students.mT, teachers)) if by == "subspace" else None,
        notes=made.notes,
        descent=_descend(made.students, teachers, descend, rate, batch, seed, within) if descend else None,
    )


def _validate(by: str, given: dict[str, Any]) -> None:
    for name, kinds in _APPLIES.items():
        if given[name] is not None and by not in kinds:
            raise UserError(f"--{name} only applies with --by {' or '.join(kinds)}, not with --by {by}")
    for name in ("rate", "batch"):
        if given[name] is not None and given["descend"] is None:
            raise UserError(f"--{name} only applies to descent; add the number of steps with --descend")
    if by == "subspace" and given["samples"] is None:
        raise UserError("--by subspace estimates the span from samples; add their number, such as --samples 100000")
    known = {name: value for name, value in given.items() if value is not None}
    for name, value in known.items():
        if name in ("samples", "descend", "batch") and value < 1:
            raise UserError(f"--{name} must be at least 1, got {value}")
        if name in ("scale", "rate") and not (value > 0 and isfinite(value)):
            raise UserError(f"--{name} must be above 0, got {value:g}")
        if name in ("samples", "descend", "batch", "scale", "rate") and value > MOST:
            raise UserError(f"--{name} must be at most {MOST:,}, got {value}")
        if name in ("angle", "within") and not 0 <= value <= pi / 2:
            raise UserError(f"--{name} must be between 0 and π/2 = 1.5708 rad, got {value}")
        if name == "seed" and not 0 <= value < 2**63:
            raise UserError(f"--seed must be between 0 and 2^63 − 1, got {value}")


def _validate_students(count: int, neurons: int) -> None:
    if count < neurons:
        raise UserError(f"--students must be at least the number of teacher neurons ({neurons}), got {count}")
    need, free = 8 * count**2, available(torch.device("cpu"))
    if need > free:
        raise UserError(
            f"--students must be at most {int((free / 8) ** 0.5)} here, got {count}: the angles of all pairs take "
            f"{number(need / 1e9)} GB, and {number(free / 1e9)} GB may be used"
        )


def _cover(students: Tensor, teachers: Tensor, within: float) -> list[NeuronCover]:
    which, angles = starts.nearest(students[0], teachers[0])
    mass, rows = students[0].square().sum(-1), []
    for neuron, length in enumerate(teachers[0].norm(dim=-1).tolist()):
        own = (which == neuron) & (mass > 0)
        close = own & (angles <= within + _SLACK)
        nearest = float(angles[own].min()) if own.any() else None
        rows.append(
            NeuronCover(neuron, length, int(own.sum()), float(mass[own].sum()), float(mass[close].sum()), nearest)
        )
    return rows


def _descend(
    students: Tensor, teachers: Tensor, steps: int, rate: float | None, batch: int | None, seed: int, within: float
) -> Descent:
    bound = float(descent.rate_bound(teachers))
    certain = float(starts.stable_rate(bound, students, teachers))
    rate = certain if rate is None else rate
    safe = certain if certain < rate else rate / 10
    third = -(-steps // 3)
    probes = sorted({*log_probes(steps), third})
    path = descent.descend(students, teachers, rate, steps, probes, batch=batch, seeds=[seed])
    lost = path.isnan().flatten(1).any(1)
    if lost.any():
        at = int(lost.nonzero()[0])
        raise UserError(
            f"--rate {rate:g} is too large: the weights overflowed between steps {probes[at - 1]:,} and "
            f"{probes[at]:,}, and nothing was written; choose a smaller one, such as {safe:.2g}"
        )
    losses = dict(zip(probes, loss(path, teachers)[:, 0].tolist(), strict=True))
    end = losses[steps]
    vanished = end < _ROUNDING * float(kernel(teachers, teachers).sum()) / 2
    power = None if vanished or steps < 3 else log(losses[third] / end) / log(steps / third)
    return Descent(path[-1], steps, rate, bound, safe, end, power, vanished, _cover(path[-1], teachers, within))
