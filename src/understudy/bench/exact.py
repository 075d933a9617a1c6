"""What descent on the exact loss of S4 costs: a large problem against its products, small ones against a loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from understudy.bench.clock import Measured, lasting
from understudy.bench.setting import Sizes, Tell
from understudy.papers.local.theory.descent import descend, rate_bound
from understudy.papers.local.theory.starts import near, random_teachers
from understudy.training.parallel import cores

_ANGLE = 0.03
"""Students so near their teacher neurons take the longest: what each bends away is counted too."""

_STEPS = 10
"""That are timed together: what a path has at its end is no part of a step."""


@dataclass(frozen=True)
class ExactStep:
    """Seconds of a step, and of its products alone, a value a repetition, both in float64 and with all cores."""

    step: Measured
    products: Measured

    @property
    def ratio(self) -> Measured:
        """Each step against the products timed just before it."""
        return Measured(tuple(s / p for s, p in zip(self.step.values, self.products.values, strict=True)))


@dataclass(frozen=True)
class SmallProblems:
    """Seconds that a step of one small problem takes, all batched or one after the other, a value a repetition."""

    batched: Measured
    looped: Measured

    @property
    def gain(self) -> Measured:
        """How many times as fast, each against the loop timed just before it."""
        both = zip(self.looped.values, self.batched.values, strict=True)
        return Measured(tuple(one_by_one / together for one_by_one, together in both))


def exact_step(sizes: Sizes, device: str, tell: Tell) -> ExactStep:
    """The products are the cosines of all pairs of the m + r neurons, and these, once they are signs, times all."""
    m, r, d = sizes.exact
    teachers = random_teachers(r, d, [1])
    students = near(teachers, m, _ANGLE, [1]).students.to(device)
    rate, teachers = float(rate_bound(teachers)), teachers.to(device)
    neurons = torch.cat([teachers[0], students[0]])
    pairs, pulls = neurons.new_empty(m + r, m + r), torch.empty_like(neurons)

    def products() -> None:
        torch.mm(neurons, neurons.T, out=pairs)
        torch.mm(pairs, neurons, out=pulls)

    def step() -> None:
        descend(students, teachers, rate, _STEPS, [_STEPS])

    alone, whole = _in_turns(products, step, "a step on the exact loss", sizes, device, tell)
    return ExactStep(Measured(tuple(s / _STEPS for s in whole)), Measured(alone))


def small_problems(sizes: Sizes, device: str, tell: Tell) -> SmallProblems:
    """Descent of many students that have nothing in common: as a population, and each by itself by the same code."""
    count, m, r, d = sizes.small
    seeds = range(1, count + 1)
    teachers = random_teachers(r, d, seeds)
    students = near(teachers, m, _ANGLE, seeds).students.to(device)
    rate, teachers = float(rate_bound(teachers).min()), teachers.to(device)

    def batched() -> None:
        descend(students, teachers, rate, _STEPS, [_STEPS])

    def looped() -> None:
        for one in range(count):
            descend(students[one : one + 1], teachers[one : one + 1], rate, _STEPS, [_STEPS])

    one_by_one, together = _in_turns(looped, batched, "small problems on the exact loss", sizes, device, tell)
    each = count * _STEPS
    return SmallProblems(*(Measured(tuple(s / each for s in seconds)) for seconds in (together, one_by_one)))


def _in_turns(
    one: Callable[[], None], other: Callable[[], None], what: str, sizes: Sizes, device: str, tell: Tell
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Seconds of each in every repetition, by all cores."""
    timed = []
    with _all_cores():
        one()
        other()
        for repetition in range(1, sizes.repetitions + 1):
            timed.append((lasting(one, device, sizes.least), lasting(other, device, sizes.least)))
            tell(f"{what}, {repetition} of {sizes.repetitions}")
    first, second = zip(*timed, strict=True)
    return first, second


@contextmanager
def _all_cores() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(cores())
    try:
        yield
    finally:
        torch.set_num_threads(before)
