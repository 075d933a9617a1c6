"""Networks that the benchmark trains: students of the two-layer study, as many as fill the machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from itertools import pairwise

import understudy as us
from understudy._cores import cores
from understudy.nets.multi_exit.grid import Grid
from understudy.training import SGD, Group, Objective, Optimiser, SquaredError, Training

Report = Callable[[str], None]
"""Called with a line of text after every repetition."""


@dataclass(frozen=True)
class Sizes:
    """Sizes of every measurement; the defaults are those of the two-layer study on two cores."""

    dim: int = 100
    teacher_nodes: int = 20
    outputs: int = 50
    multiples: tuple[int, ...] = (1, 5, 10)
    """Over-realizations measured one by one: n = 20, 100, 200."""
    mix: tuple[int, ...] = (1, 2, 5, 10)
    """Over-realizations trained together, as in the study, to measure the share of probing."""
    polarity: tuple[float, ...] = (0.0, 0.5, 1.0, 1.5, 2.0, 2.5)
    seeds: int = 8
    mix_seeds: int = 4
    probes: int = 2
    """Probed epochs timed together: the rows of one are made while the next trains."""
    batch: int = 16
    lr: float = 0.01
    steps: int = 1_000
    train: int = 10_000
    evaluation: int = 10_000
    repetitions: int = 5
    least: float = 0.5
    """Minimum duration of a repetition in seconds."""
    product: int = 4_096
    """Rows of the square matrices whose product defines the peak."""
    populations: tuple[int, ...] = (32, 100, 316, 1_000, 3_162, 10_000)
    population_seeds: int = 32
    population_repetitions: int = 3
    population_seconds: float = 1.5
    """Approximate seconds per epoch of a population; a large one takes fewer steps, but at least 300."""
    variant_widths: tuple[int, ...] = (20, 200)
    """Widths n at which other optimisers and objectives are compared with plain SGD, on a CPU."""
    deep: tuple[tuple[int, ...], ...] = ((5, 5), (10, 10), (5, 7, 10), (125, 125), (50, 75, 100, 125))
    """Hidden nodes of the teachers of deep networks, which have ten times as many, on a CPU."""
    deep_batch: int = 64
    deep_networks: int = 4
    exact: tuple[int, int, int] = (1_000, 20, 50)
    """Students, teacher neurons and inputs of the large problem on the exact loss."""
    small: tuple[int, int, int, int] = (1_000, 10, 3, 5)
    """Number of small problems on the exact loss, and students, teacher neurons and inputs of each."""
    exit_networks: int = 0
    """Networks with several exits trained side by side; 0 where there is no GPU to train them."""
    exit_grid: Grid = field(default_factory=Grid)
    """Architecture of the networks with several exits."""
    exit_batch: int = 64

    @classmethod
    def of(cls, device: str) -> Sizes:
        """Sizes that fill the cores or the GPU of this machine.

        Args:
            device: `cpu` or `cuda`.
        """
        if device == "cuda":
            exit_networks = 6 if find_spec("triton") else 0
            sized = cls(seeds=32, mix_seeds=32, probes=20, product=8_192, exit_networks=exit_networks)
            return replace(sized, variant_widths=(), deep=())
        return cls(seeds=max(8, 2 * cores()), mix_seeds=max(4, cores()), deep_networks=2 * cores())

    @property
    def widths(self) -> dict[int, int]:
        """Over-realization of each n."""
        return {multiple * self.teacher_nodes: multiple for multiple in self.multiples}

    @property
    def reports(self) -> int:
        """Number of times that progress is reported."""
        repeated = len(self.multiples) + 3 + bool(self.exit_networks) + len(self.variant_widths) + len(self.deep)
        return self.repetitions * repeated + self.population_repetitions * len(self.populations)

    def teacher(self, seeds: int) -> us.Population:
        """One teacher per seed and polarity, those of one seed next to each other.

        Args:
            seeds: Number of seeds, counted from 1.
        """
        cells = [(seed, p) for seed in range(1, seeds + 1) for p in self.polarity]
        return us.teachers.distinct_rows(
            (self.dim, self.teacher_nodes, self.outputs),
            seeds=[seed for seed, _ in cells],
            polarity=[p for _, p in cells],
        )

    def training(
        self,
        teacher: us.Population,
        multiples: Sequence[int],
        device: str,
        steps: int = 0,
        *,
        optimiser: Optimiser | None = None,
        objective: Objective | None = None,
    ) -> Training:
        """Training as in the study: one group per width, one network per teacher.

        Args:
            teacher: The teachers.
            multiples: Over-realization of each group.
            device: Where to train.
            steps: Steps per epoch. Default: those of these sizes.
            optimiser: Optimiser. Default: plain SGD.
            objective: Loss. Default: the squared error.
        """
        optimiser, objective = optimiser or SGD(lr=self.lr, batch=self.batch), objective or SquaredError()
        data = us.data.Gaussian(self.dim, train=self.train, evaluation=self.evaluation)
        groups = [Group(us.students.gaussian(teacher, multiple=k), teacher, data, objective) for k in multiples]
        return Training(groups, optimiser, steps=steps or self.steps, device=device)


def step_flops(sizes: Sequence[int], batch: int) -> int:
    """Floating-point operations of one step of one network of sizes (d, n, …, C), counting matrix products only.

    A layer with `into` × `out` weights takes 2·batch·into·out forward, the same for the gradient of its weights, and
    the same for the gradient of its inputs, which the lowest layer does not need.
    """
    products = [3 * into * out for into, out in pairwise(sizes)]
    return 2 * batch * (sum(products) - sizes[0] * sizes[1])


def network_steps(training: Training) -> int:
    """Steps of one epoch, summed over all networks that have not diverged."""
    return int(training.alive.sum()) * training.steps
