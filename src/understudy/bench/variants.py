"""Rates of other optimisers and objectives against plain SGD, and of deep networks against a large product."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import understudy as us
from understudy.bench.clock import Repetitions, lasting
from understudy.bench.rates import product
from understudy.bench.setting import Report, Sizes, network_steps, step_flops
from understudy.training import SGD, Adam, CrossEntropy, Group, Objective, Optimiser, SquaredError, Training

_PIECE_FLOPS = 1e10
"""Approximate operations of one network in an epoch of the deep networks."""
_LEAST_STEPS = 20
_DEEP_RATE = 1e-5
"""Learning rate at which no deep network diverges: one that does takes no further step."""


@dataclass(frozen=True)
class Variants:
    """Network-steps per second of plain SGD on the squared error, and of the same networks trained otherwise."""

    plain: Repetitions
    others: dict[str, Repetitions]

    @property
    def ratios(self) -> dict[str, Repetitions]:
        """Rate of each variant, divided by that of plain SGD."""
        return {name: rate / self.plain for name, rate in self.others.items()}


@dataclass(frozen=True)
class DeepRate:
    """FLOP/s of the matrix product, and network-steps per second of networks of several layers."""

    peak: Repetitions
    steps: Repetitions
    flops: int
    """Floating-point operations per network and step."""
    engine: str

    @property
    def share_of_peak(self) -> Repetitions:
        return self.steps * self.flops / self.peak


def variants(sizes: Sizes, report: Report) -> dict[int, Variants]:
    """Time two-layer networks of each width with every optimiser and objective, plain SGD first."""
    teacher, found = sizes.teacher(sizes.seeds), {}
    for n in sizes.variant_widths:
        trainings = {
            name: sizes.training(teacher, (n // sizes.teacher_nodes,), "cpu", optimiser=optimiser, objective=objective)
            for name, (optimiser, objective) in _kinds(sizes).items()
        }
        timed = _alternate(trainings, f"other optimisers and objectives at n = {n}", sizes, report)
        plain, *others = timed
        found[n] = Variants(timed[plain], {name: timed[name] for name in others})
    return found


def _kinds(sizes: Sizes) -> dict[str, tuple[Optimiser, Objective]]:
    lr, batch, squared = sizes.lr, sizes.batch, SquaredError()
    return {
        "plain SGD": (SGD(lr=lr, batch=batch), squared),
        "weight decay": (SGD(lr=lr, batch=batch, decay=1e-4), squared),
        "momentum": (SGD(lr=lr / 10, batch=batch, momentum=0.9), squared),
        "Nesterov": (SGD(lr=lr / 10, batch=batch, momentum=0.9, nesterov=True), squared),
        "Adam": (Adam(lr=lr / 10, batch=batch), squared),
        "cross-entropy": (SGD(lr=lr, batch=batch), CrossEntropy()),
    }


def _alternate(trainings: dict[str, Training], what: str, sizes: Sizes, report: Report) -> dict[str, Repetitions]:
    """Network-steps per second of every training, in turns; the first epoch is warm-up."""
    for training in trainings.values():
        training.advance()
    timed: dict[str, list[float]] = {name: [] for name in trainings}
    for repetition in range(1, sizes.repetitions + 1):
        for name, training in trainings.items():
            timed[name].append(network_steps(training) / lasting(training.advance, "cpu", sizes.least))
        report(f"{what}, {repetition} of {sizes.repetitions}")
    return {name: Repetitions(tuple(values)) for name, values in timed.items()}


def deep_rates(sizes: Sizes, report: Report) -> dict[str, DeepRate]:
    """Time networks of several layers in turns with a large matrix product; the key is their sizes, as 100-50-75-50."""
    multiply, found = product(sizes.product, "cpu"), {}
    lasting(multiply, "cpu", least=0)
    for hidden in sizes.deep:
        training = _deep_training(sizes, hidden)
        training.advance()
        shape = training.groups[0].students.sizes
        name, timed = "-".join(map(str, shape)), []
        for repetition in range(1, sizes.repetitions + 1):
            peak = 2 * sizes.product**3 / lasting(multiply, "cpu", sizes.least)
            timed.append((peak, network_steps(training) / lasting(training.advance, "cpu", sizes.least)))
            report(f"{name}, {repetition} of {sizes.repetitions}")
        peaks, steps = (Repetitions(values) for values in zip(*timed, strict=True))
        found[name] = DeepRate(peaks, steps, step_flops(shape, sizes.deep_batch), training.groups[0].engine)
    return found


def _deep_training(sizes: Sizes, hidden: Sequence[int]) -> Training:
    """Students with ten times as many hidden nodes as their teachers."""
    seeds = range(1, sizes.deep_networks + 1)
    teacher = us.teachers.distinct_rows((sizes.dim, *hidden, sizes.outputs), seeds=seeds, polarity=1.0)
    data = us.data.Gaussian(sizes.dim, train=sizes.train, evaluation=sizes.evaluation)
    group = Group(us.students.gaussian(teacher, multiple=10), teacher, data)
    steps = max(_LEAST_STEPS, round(_PIECE_FLOPS / step_flops(group.students.sizes, sizes.deep_batch)))
    return Training([group], SGD(lr=_DEEP_RATE, batch=sizes.deep_batch), steps=min(steps, sizes.steps))
