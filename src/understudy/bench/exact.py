"""What a step of descent on the exact loss of S4 costs, against the matrix products that it cannot do without."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from understudy.bench.clock import Measured, lasting
from understudy.bench.setting import Sizes, Tell
from understudy.theory.descent import descend, rate_bound
from understudy.theory.starts import near, random_teachers
from understudy.training.workers import cores

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

    timed, before = [], torch.get_num_threads()
    torch.set_num_threads(cores())
    try:
        step()
        products()
        for repetition in range(1, sizes.repetitions + 1):
            alone = lasting(products, device, sizes.least)
            timed.append((lasting(step, device, sizes.least) / _STEPS, alone))
            tell(f"a step on the exact loss, {repetition} of {sizes.repetitions}")
    finally:
        torch.set_num_threads(before)
    return ExactStep(*(Measured(values) for values in zip(*timed, strict=True)))
