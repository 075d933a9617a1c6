"""Cost of descent on the exact loss (Zhou, Ge & Jin 2021): one large problem, and many small ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from understudy.bench.clock import Repetitions, all_cores, lasting
from understudy.bench.setting import Report, Sizes
from understudy.papers.local.theory.descent import descend, rate_bound
from understudy.papers.local.theory.starts import place_near
from understudy.papers.local.theory.teachers import random_teachers

_ANGLE = 0.03
"""Angle of students with their teacher neurons. Small angles are the slowest: they need a second-order term."""
_STEPS = 10
"""Steps timed together, so that the cost of the end of a descent is shared."""


@dataclass(frozen=True)
class ExactStep:
    """Seconds per step and per evaluation of its matrix products alone, in float64 on all cores."""

    step: Repetitions
    products: Repetitions

    @property
    def ratio(self) -> Repetitions:
        return self.step / self.products


@dataclass(frozen=True)
class SmallProblems:
    """Seconds per step of one small problem, with all of them batched and one after the other."""

    batched: Repetitions
    looped: Repetitions

    @property
    def gain(self) -> Repetitions:
        return self.looped / self.batched


def exact_step(sizes: Sizes, device: str, report: Report) -> ExactStep:
    """Time steps of one large problem against their two matrix products.

    The products are the cosines of all pairs of the m + r neurons, and a matrix of this shape times all neurons.
    """
    m, r, d = sizes.exact
    teachers = random_teachers(r, d, [1])
    students = place_near(teachers, m, _ANGLE, [1]).students.to(device)
    rate, teachers = float(rate_bound(teachers)), teachers.to(device)
    neurons = torch.cat([teachers[0], students[0]])
    pairs, pulls = neurons.new_empty(m + r, m + r), torch.empty_like(neurons)

    def products() -> None:
        torch.mm(neurons, neurons.T, out=pairs)
        torch.mm(pairs, neurons, out=pulls)

    def step() -> None:
        descend(students, teachers, rate, _STEPS, [_STEPS])

    alone, whole = _alternate(products, step, "a step on the exact loss", sizes, device, report)
    return ExactStep(whole / _STEPS, alone)


def small_problems(sizes: Sizes, device: str, report: Report) -> SmallProblems:
    """Time independent small problems as one population, and one by one with the same code."""
    count, m, r, d = sizes.small
    seeds = range(1, count + 1)
    teachers = random_teachers(r, d, seeds)
    students = place_near(teachers, m, _ANGLE, seeds).students.to(device)
    rate, teachers = float(rate_bound(teachers).min()), teachers.to(device)

    def batched() -> None:
        descend(students, teachers, rate, _STEPS, [_STEPS])

    def looped() -> None:
        for one in range(count):
            descend(students[one : one + 1], teachers[one : one + 1], rate, _STEPS, [_STEPS])

    one_by_one, together = _alternate(looped, batched, "small problems on the exact loss", sizes, device, report)
    steps = count * _STEPS
    return SmallProblems(together / steps, one_by_one / steps)


def _alternate(
    one: Callable[[], None], other: Callable[[], None], what: str, sizes: Sizes, device: str, report: Report
) -> tuple[Repetitions, Repetitions]:
    """Seconds per call of each function in every repetition, on all cores."""
    timed = []
    with all_cores():
        one()
        other()
        for repetition in range(1, sizes.repetitions + 1):
            timed.append((lasting(one, device, sizes.least), lasting(other, device, sizes.least)))
            report(f"{what}, {repetition} of {sizes.repetitions}")
    first, second = (Repetitions(values) for values in zip(*timed, strict=True))
    return first, second
