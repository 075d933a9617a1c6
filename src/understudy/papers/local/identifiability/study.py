"""Whether a loss of zero means that students are the teacher, and whether losses that small are computed right: S4."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np

from understudy.errors import UserError
from understudy.lab.options import check
from understudy.lab.pieces import log_probes, network_tables
from understudy.lab.study import ExactStudy, Piece
from understudy.papers.local.shared import Measured, endpoints, measure, node_rows, rate_warning

if TYPE_CHECKING:
    from torch import Tensor

    from understudy.lab.study import Tables
    from understudy.papers.local.theory.identifiability import InitialPosition
    from understudy.store import Run

SIZES = (1, 1, 2), (3, 3, 5), (8, 3, 5), (20, 4, 10), (40, 5, 20)
"""Students, teacher nodes and inputs of the random problems."""
SOLUTIONS = (1, 1, 2), (3, 3, 5), (9, 3, 5), (20, 4, 10), (60, 12, 10)
"""And of students close to a solution."""
SPAN = 1e-6, 0.3
"""From how near to how far, in radians, about."""
COEFFICIENTS = 20
FAR = tuple(2 * int(k) for k in np.unique(np.geomspace(50, 5_000, 25).round()))
"""Hermite coefficients whose decay is fitted, the odd ones being 0."""
_BLOCK = 20
"""Problems in 60 digits of a piece."""
MATCHED = 0.01
"""Angle within which a student matches a teacher node."""
STARTS: tuple[InitialPosition, ...] = ("opposite", "anywhere")


@dataclass(frozen=True)
class Identifiability(ExactStudy):
    """Closed forms against independent judges; λ_min of lemma 10; ReLU students without loss that match nobody."""

    name: ClassVar[str] = "identifiability"
    summary: ClassVar[str] = "losses exact down to 1e−12, and whether a loss of zero means that students match"
    figures: ClassVar[str] = "S4 claim 1, theorem 2, lemmas 10, C.6, app A"
    decides: ClassVar[str] = "Z1 Z9 Z11 Z12"

    seeds: int = 100
    """How many random problems of every size for Monte Carlo and differences, counted from 1."""
    samples: int = 50_000
    """Inputs of each problem's Monte Carlo."""
    digits: int = 60
    """How many networks close to a solution, for every size, are computed in 60 digits."""
    separation: tuple[float, ...] = (0.003, 0.006, 0.01, 0.02, 0.03, 0.06, 0.1, 0.2, 0.3, 0.6, 1.0)
    """Δ: angles between the teacher nodes whose λ_min is computed, in radians."""
    fan: tuple[int, ...] = (2, 3, 4, 6, 8, 12, 16, 24, 32)
    """Numbers of teacher nodes whose λ_min is computed; 2 has to be there."""
    descents: int = 20
    """Seeds of ReLU teachers for each of the sizes that follow."""
    teacher_nodes: tuple[int, ...] = (3, 5)
    """Nodes of ReLU teachers, which sum to zero."""
    dim: tuple[int, ...] = (3, 10)
    """Their inputs."""
    multiple: tuple[int, ...] = (1, 2)
    """Students for every teacher node."""
    rate: float = 0.05
    """Learning rate of gradient descent on the exact loss; with the linear term fitted first, what is left is half as
    large, and the rate twice this."""
    steps: int = 40_000
    """Steps of gradient descent."""

    @classmethod
    def quick(cls) -> Self:
        return cls(
            seeds=10,
            samples=10_000,
            digits=6,
            separation=(0.01, 0.03, 0.1, 0.3, 1.0),
            fan=(2, 3, 6, 12),
            descents=4,
            teacher_nodes=(3,),
            dim=(3,),
            steps=10_000,
        )

    def validate(self) -> None:
        super().validate()
        check(self, "samples", least=100)
        for field in ("digits", "descents", "steps"):
            check(self, field, least=1)
        check(self, "separation", above=0, distinct=True)
        check(self, "fan", least=2, distinct=True)
        check(self, "teacher_nodes", least=3, distinct=True)
        check(self, "dim", least=2, distinct=True)
        check(self, "multiple", least=1, distinct=True)
        check(self, "rate", above=0)
        if len(self.separation) < 2 or max(self.separation) > np.pi / 2:
            given = " ".join(f"{s:g}" for s in self.separation)
            raise UserError(f"--separation: {given} was given; allowed are two numbers or more, up to π/2")
        if 2 not in self.fan:
            given = " ".join(map(str, self.fan))
            raise UserError(f"--fan: {given} was given; 2 has to be among them")

    def warnings(self) -> tuple[str, ...]:
        from understudy.papers.local.theory.descent import rate_bound

        # Also of ReLU, whose Hessian where the loss is zero has a smaller largest eigenvalue: with S = Σ ‖w*‖, no more
        # than S and a quarter of that of |·|, which is 8 S/π or more.
        seeds = range(1, self.descents + 1)
        sizes = product(self.teacher_nodes, self.dim)
        bound = min(float(rate_bound(self._zero_sum(nodes, dim, seeds)).min()) for nodes, dim in sizes)
        return (rate_warning(self.rate, bound),) if self.rate > bound else ()

    def _zero_sum(self, nodes: int, dim: int, seeds: Sequence[int]) -> Tensor:
        from understudy.papers.local.theory.identifiability import zero_sum_teachers

        try:
            return zero_sum_teachers(nodes, dim, seeds)
        except UserError as error:
            raise UserError(f"--teacher-nodes {nodes} with --dim {dim}: {error}") from error

    def probes(self) -> tuple[int, ...]:
        return log_probes(self.steps)

    def pieces(self, *runs: Run) -> Iterator[Piece]:
        every = range(1, self.seeds + 1)
        for size in SIZES:
            name = "samples and differences, m = {}, r = {}, d = {}".format(*size)
            yield Piece(name, len(every), partial(self._sampled, size, every))
        for size in SOLUTIONS:
            for first in range(1, self.digits + 1, _BLOCK):
                some = range(first, min(first + _BLOCK, self.digits + 1))
                name = "60 digits, m = {}, r = {}, d = {}, ".format(*size) + f"{some[0]} to {some[-1]}"
                yield Piece(name, len(some), partial(self._digits, size, some))
        for nodes in self.fan:
            spacings = tuple(s for s in sorted(self.separation) if nodes * s <= np.pi)
            if spacings:
                yield Piece(f"λ_min of {nodes} nodes in a fan", len(spacings), partial(self._fan, nodes, spacings))
            yield Piece(f"λ_min of {nodes} random nodes", 3 * 10, partial(self._random, nodes))
        numbers = [*range(COEFFICIENTS + 1), *FAR]
        yield Piece("Hermite coefficients", len(numbers), partial(self._hermite, numbers))
        seeds = range(1, self.descents + 1)
        for nodes in self.teacher_nodes:
            for dim in self.dim:
                name = f"ReLU students that match nobody, r = {nodes}, d = {dim}"
                yield Piece(name, len(seeds), partial(self._opposite, nodes, dim, seeds))
                for multiple in self.multiple:
                    for start in STARTS:
                        for linear in (False, True):
                            what = "linear term fitted first" if linear else "ReLU"
                            name = f"descent, {what}, r = {nodes}, d = {dim}, m = {multiple * nodes}, from {start}"
                            made = partial(self._descent, nodes, dim, multiple, start, linear, seeds)
                            yield Piece(name, len(seeds), made)

    def _sampled(self, size: tuple[int, int, int], seeds: Sequence[int], first: int) -> Tables:
        from understudy.papers.local.identifiability import trials

        students, teachers = map(self.to_device, trials.random_problem(*size, seeds))
        found = trials.compare_with_samples(students, teachers, self.samples, seeds)
        values = {
            f"{what}_{name}": getattr(found, name).cpu().numpy()[:, i][None]
            for i, what in enumerate(("loss", "slope"))
            for name in found._fields
        }
        values["difference"] = trials.finite_difference_error(students, teachers).cpu().numpy()[None]
        return network_tables(first, seeds, {"part": "sampled"} | _sizes(size), (0,), values)

    def _digits(self, size: tuple[int, int, int], seeds: Sequence[int], first: int) -> Tables:
        from understudy.papers.local.identifiability import trials

        found = trials.accuracy(*map(self.to_device, trials.problem_near_solution(*size, SPAN, seeds)))
        values = {name: value.cpu().numpy()[None] for name, value in found._asdict().items()}
        return network_tables(first, seeds, {"part": "digits"} | _sizes(size), (0,), values)

    def _fan(self, nodes: int, spacings: tuple[float, ...], first: int) -> Tables:
        import torch

        from understudy.papers.local.theory.gaussian import least_eigenvalue
        from understudy.papers.local.theory.geometry import least_angle
        from understudy.papers.local.theory.identifiability import fan

        teachers = self.to_device(torch.stack([fan(nodes, spacing) for spacing in spacings]))
        values = {"least_eigenvalue": least_eigenvalue(teachers), "separated": least_angle(teachers)}
        parameters = {"part": "lemma 10", "arranged": "fan", "teacher_nodes": nodes, "dim": 2}
        found = {name: value.cpu().numpy()[None] for name, value in values.items()}
        return network_tables(first, [1] * len(spacings), parameters, (0,), found)

    def _random(self, nodes: int, first: int) -> Tables:
        import torch

        from understudy.papers.local.theory.gaussian import least_eigenvalue
        from understudy.papers.local.theory.geometry import least_angle
        from understudy.papers.local.theory.teachers import random_teachers

        seeds = range(1, 11)
        least, apart, dims = [], [], []
        for dim in (3, 5, 10):
            teachers = self.to_device(random_teachers(nodes, dim, seeds))
            least.append(least_eigenvalue(teachers))
            apart.append(least_angle(teachers))
            dims += [dim] * len(seeds)
        found = {"least_eigenvalue": torch.cat(least), "separated": torch.cat(apart)}
        values = {name: value.cpu().numpy()[None] for name, value in found.items()}
        parameters = {"part": "lemma 10", "arranged": "random", "teacher_nodes": nodes, "dim": dims}
        return network_tables(first, [*seeds] * 3, parameters, (0,), values)

    def _hermite(self, numbers: list[int], first: int) -> Tables:
        from understudy.papers.local.identifiability.trials import hermite_by_quadrature
        from understudy.papers.local.theory.gaussian import hermite

        integrals = [hermite_by_quadrature(k) if k <= COEFFICIENTS else np.nan for k in numbers]
        values = {"coefficient": np.array([[hermite(k) for k in numbers]]), "quadrature": np.array([integrals])}
        return network_tables(first, [1] * len(numbers), {"part": "hermite", "k": numbers}, (0,), values)

    def _opposite(self, nodes: int, dim: int, seeds: Sequence[int], first: int) -> Tables:
        from understudy.papers.local.theory import gaussian, identifiability
        from understudy.papers.local.theory.geometry import least_angle

        teachers = self.to_device(self._zero_sum(nodes, dim, seeds))
        students = identifiability.opposite_students(teachers)
        values = {
            "loss": gaussian.loss(students, teachers, 0.0),
            "nearest": identifiability.teacher_angles(students, teachers).direction.amin(-1),
            "separated": least_angle(teachers),
        }
        found = {name: value.cpu().numpy()[None] for name, value in values.items()}
        return network_tables(first, seeds, {"part": "claim 1", "teacher_nodes": nodes, "dim": dim}, (0,), found)

    def _descent(
        self,
        nodes: int,
        dim: int,
        multiple: int,
        start: InitialPosition,
        linear: bool,
        seeds: Sequence[int],
        first: int,
    ) -> Tables:
        """S4's quantities are of networks of |·|: of ReLU students those of the part of |·|, whose loss and gradient
        are `absolute_loss` and so on; `loss`, `gradient_norm` and their ratios are of what is descended on."""
        from understudy.papers.local.theory import identifiability as relu

        probes = self.probes()
        teachers = self._zero_sum(nodes, dim, seeds)
        students = self.to_device(relu.initial_students(teachers, multiple * nodes, start, seeds))
        teachers = self.to_device(teachers)
        way = relu.descend_reduced if linear else relu.descend_relu
        path, loss = way(students, teachers, self.rate, probes)
        apart = relu.teacher_angles(path, teachers)
        of, rate = (relu.subtract_linear_fit(teachers).teachers, 2 * self.rate) if linear else (teachers, self.rate)
        found = measure(path, of, rate)
        own = {
            "loss": loss,
            "nearest": apart.direction.amin(-1),
            "farthest_line": apart.line.amax(-1),
            "on_a_line": (apart.line < MATCHED).double().mean(-1),
        }
        if not linear:
            own |= relu.relu_gradient_norms(path, teachers, loss)
        values = (found.values if linear else _of_the_bend(found)) | {k: v.cpu().numpy() for k, v in own.items()}
        parameters = {"part": "descent", "start": start, "linear": linear} | _sizes((multiple * nodes, nodes, dim))
        kept = endpoints(path, of, seeds, -1.0 if linear else 0.0)
        return network_tables(first, seeds, parameters, probes, values, node_rows(first, probes, found), kept)


def _of_the_bend(found: Measured) -> dict[str, np.ndarray]:
    """What is of the part of |·|, where something else is descended on, by names that say so."""
    descended = ("loss", "gradient_norm", "ratio", "squared_ratio")
    return {f"absolute_{k}" if k in descended else k: v for k, v in found.values.items()}


def _sizes(size: tuple[int, int, int]) -> dict[str, int]:
    return dict(zip(("students", "teacher_nodes", "dim"), size, strict=True))
