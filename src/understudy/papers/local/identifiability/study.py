"""The study `identifiability`: whether a loss of zero means that students match, and whether small losses are exact.

Zhou, Ge & Jin 2021, claim 1, theorem 2, lemmas 10, C.6, app. A.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

import numpy as np
import pyarrow as pa
from annotated_types import Ge, Gt, Le

from understudy._errors import UserError
from understudy.lab.options import Count, Counts, Distinct, Positive, Steps
from understudy.lab.pieces import blocks, log_probes, network_tables, unit_table
from understudy.lab.study import ExactStudy, Piece
from understudy.papers.local.shared import endpoints, measure, node_rows, rate_warnings

if TYPE_CHECKING:
    from torch import Tensor

    from understudy.lab.study import Tables
    from understudy.store import Run

SIZE = ("students", "teacher_nodes", "dim")
"""Columns of the size of a problem."""
SIZES = (1, 1, 2), (3, 3, 5), (8, 3, 5), (20, 4, 10), (40, 5, 20)
"""Students, teacher nodes and inputs of random problems."""
SOLUTIONS = (1, 1, 2), (3, 3, 5), (9, 3, 5), (20, 4, 10), (60, 12, 10)
"""Students, teacher nodes and inputs of problems close to a solution."""
SPAN = 1e-6, 0.3
"""Smallest and largest angle of students of these, in rad, approximately."""
COEFFICIENTS = 20
"""Largest k of Hermite coefficients that are computed by quadrature, too."""
FAR = tuple(2 * int(k) for k in np.unique(np.geomspace(50, 5_000, 25).round()))
"""k of Hermite coefficients whose decay is fitted; odd ones are 0."""
MATCHED = 0.01
"""Angle, in rad, within which a student matches a teacher node."""
_Angles = Annotated[tuple[float, ...], Gt(0), Le(np.pi / 2), Distinct()]
_DIGITS_PER_PIECE = 20
"""Problems in 60 digits per piece."""
_SEPARATION = 0.5
"""Least angle between two nodes of the teachers of the reduction, up to sign, in rad."""
_DIMS, _TEACHERS = (3, 5, 10), range(1, 11)
"""Numbers of inputs, and seeds for each, of random teachers whose λ_min is computed."""


@dataclass(frozen=True)
class Identifiability(ExactStudy):
    """Closed forms against independent methods, λ_min of lemma 10, and ReLU students of zero loss that do not match."""

    name: ClassVar[str] = "identifiability"
    summary: ClassVar[str] = "losses exact down to 10⁻¹², and whether a loss of zero means that students match"
    figures: ClassVar[str] = "S4 claim 1, theorem 2, lemmas 10, C.6, app. A"
    decides: ClassVar[str] = "Z1 Z9 Z11 Z12"
    arrays: ClassVar[tuple[str, ...]] = (
        "samples dim",
        "teacher_nodes dim",
        "descents teacher_nodes dim",
        "descents multiple teacher_nodes dim",
    )

    seeds: Count = 100
    """Number of random problems of every size for Monte Carlo and finite differences, counted from 1."""
    samples: Annotated[int, Ge(100)] = 50_000
    """Monte Carlo samples of each problem."""
    digits: Count = 60
    """Number of problems close to a solution, of every size, that are computed in 60 digits."""
    separation: _Angles = (0.003, 0.006, 0.01, 0.02, 0.03, 0.06, 0.1, 0.2, 0.3, 0.6, 1.0)
    """Δ: angles between neighbouring teacher nodes whose λ_min is computed, in rad; at least two."""
    fan: Annotated[tuple[int, ...], Ge(2), Distinct()] = (2, 3, 4, 6, 8, 12, 16, 24, 32)
    """Numbers of teacher nodes whose λ_min is computed, including 2."""
    descents: Count = 20
    """Number of seeds of ReLU teachers of each size below."""
    teacher_nodes: Annotated[tuple[int, ...], Ge(3), Distinct()] = (3, 5)
    """Numbers of nodes of ReLU teachers, which sum to zero."""
    dim: Annotated[tuple[int, ...], Ge(2), Distinct()] = (3, 10)
    """Numbers of inputs of ReLU teachers."""
    multiple: Counts = (1, 2)
    """Numbers of students per teacher node."""
    rate: Positive = 0.05
    """Learning rate of gradient descent. With a fitted linear term the remaining loss has a quarter of the curvature,
    and the rate is four times as large."""
    batch: Count = 250
    """Fresh samples in each step of descent with and without a linear term, which is fitted to the same samples."""
    steps: Steps = 40_000
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
            batch=100,
        )

    def validate(self) -> None:
        if len(self.separation) < 2:
            raise UserError(f"--separation must have at least two values, got {self.separation[0]:g}")
        if 2 not in self.fan:
            raise UserError(f"--fan must include 2, got {' '.join(map(str, self.fan))}")
        if self.batch < 2 * max(self.dim):
            raise UserError(f"--batch must be at least twice --dim ({2 * max(self.dim)}), got {self.batch}")

    def warnings(self) -> tuple[str, ...]:
        # The bound applies to ReLU, too: where the loss is zero, the largest eigenvalue of its Hessian is at most
        # S + ¼ λ, S = Σ ‖w*‖, with λ ≥ 8 S/π that of |·|.
        seeds, sizes = range(1, self.descents + 1), product(self.teacher_nodes, self.dim)
        return rate_warnings(self.rate, (self._zero_sum(*size, seeds) for size in sizes))

    def _zero_sum(self, nodes: int, dim: int, seeds: Sequence[int]) -> Tensor:
        """One ReLU teacher per seed, whose nodes sum to zero."""
        from understudy.papers.local.theory.identifiability import zero_sum_teachers

        try:
            return zero_sum_teachers(nodes, dim, seeds)
        except UserError as error:
            raise UserError(f"--teacher-nodes {nodes} with --dim {dim}: {error}") from error

    def pieces(self, *runs: Run) -> Iterator[Piece]:
        for size in SIZES:
            yield Piece(f"samples and differences, {size_words(size)}", 0, partial(self._problems, size))
        for size in SOLUTIONS:
            for seeds in blocks(range(1, self.digits + 1), _DIGITS_PER_PIECE):
                name = f"60 digits, {size_words(size)}, {seeds[0]} to {seeds[-1]}"
                yield Piece(name, 0, partial(self._solutions, size, seeds))
        for nodes in self.fan:
            spacings = [spacing for spacing in sorted(self.separation) if nodes * spacing <= np.pi]
            if spacings:
                yield Piece(f"λ_min of {nodes} nodes in a fan", 0, partial(self._fan, nodes, spacings))
            yield Piece(f"λ_min of {nodes} random nodes", 0, partial(self._random, nodes))
        yield Piece("Hermite coefficients", 0, self._coefficients)
        seeds = range(1, self.descents + 1)
        for nodes, dim in product(self.teacher_nodes, self.dim):
            name = f"ReLU students without a match, r = {nodes}, d = {dim}"
            yield Piece(name, len(seeds), partial(self._opposite, nodes, dim, seeds))
            for multiple in self.multiple:
                words = f"r = {nodes}, d = {dim}, m = {multiple * nodes}"
                compute = partial(self._descent, nodes, dim, multiple, seeds)
                yield Piece(f"descent on the exact loss, {words}", len(seeds), compute)
                for linear in (False, True):
                    what = "a fitted linear term" if linear else "no linear term"
                    compute = partial(self._reduction, nodes, dim, multiple, linear, seeds)
                    yield Piece(f"descent on samples with {what}, {words}", len(seeds), compute)

    def _problems(self, size: tuple[int, int, int], first: int) -> Tables:
        """One row per random problem: loss and slope by closed forms and by samples, and the error of the gradient."""
        from understudy.papers.local.identifiability import trials

        students, teachers = map(self.to_device, trials.random_problem(*size, self.seed_names))
        found = trials.compare_with_samples(students, teachers, self.samples, self.seed_names)
        values = {
            f"{what}_{name}": getattr(found, name).cpu().numpy()[:, i]
            for i, what in enumerate(("loss", "slope"))
            for name in found._fields
        }
        values["difference"] = trials.finite_difference_error(students, teachers).cpu().numpy()
        return {"problems": unit_table(seed=self.seed_names, **_columns(size), **values)}

    def _solutions(self, size: tuple[int, int, int], seeds: range, first: int) -> Tables:
        """One row per problem close to a solution: its loss in 60 digits, and relative errors."""
        from understudy.papers.local.identifiability import trials

        found = trials.accuracy(*map(self.to_device, trials.problem_near_solution(*size, SPAN, seeds)))
        values = {name: value.cpu().numpy() for name, value in found.items()}
        return {"solutions": unit_table(seed=seeds, **_columns(size), **values)}

    def _fan(self, nodes: int, spacings: list[float], first: int) -> Tables:
        import torch

        from understudy.papers.local.theory.identifiability import fan

        teachers = torch.stack([fan(nodes, spacing) for spacing in spacings])
        return {"eigenvalues": self._eigenvalues(teachers, seed=1, arranged="fan", dim=2)}

    def _random(self, nodes: int, first: int) -> Tables:
        from understudy.papers.local.theory.teachers import random_teachers

        parts = [
            self._eigenvalues(random_teachers(nodes, dim, _TEACHERS), seed=_TEACHERS, arranged="random", dim=dim)
            for dim in _DIMS
        ]
        return {"eigenvalues": pa.concat_tables(parts)}

    def _eigenvalues(self, teachers: Tensor, **parameters: Any) -> pa.Table:
        """One row per arrangement of teacher nodes: λ_min, and its least angle."""
        from understudy.papers.local.theory.gaussian import least_eigenvalue
        from understudy.papers.local.theory.geometry import least_angle

        teachers = self.to_device(teachers)
        values = {"least_eigenvalue": least_eigenvalue(teachers), "separated": least_angle(teachers)}
        found = {name: value.cpu().numpy() for name, value in values.items()}
        return unit_table(**parameters, teacher_nodes=teachers.shape[1], **found)

    def _coefficients(self, first: int) -> Tables:
        """One row per Hermite coefficient."""
        from understudy.papers.local.identifiability.trials import hermite_by_quadrature
        from understudy.papers.local.theory.gaussian import hermite

        k = [*range(COEFFICIENTS + 1), *FAR]
        integrals = [hermite_by_quadrature(each) if each <= COEFFICIENTS else np.nan for each in k]
        rows = unit_table(k=k, coefficient=[hermite(each) for each in k], quadrature=integrals)
        return {"coefficients": rows}

    def _opposite(self, nodes: int, dim: int, seeds: Sequence[int], first: int) -> Tables:
        """Students of zero loss, opposite to the teacher nodes."""
        from understudy.papers.local.theory import gaussian, identifiability
        from understudy.papers.local.theory.geometry import least_angle

        teachers = self.to_device(self._zero_sum(nodes, dim, seeds))
        students = identifiability.opposite_students(teachers)
        values = {
            "loss": gaussian.loss(students, teachers, 0.0),
            "nearest": identifiability.teacher_angles(students, teachers)[0].amin(-1),
            "separated": least_angle(teachers),
        }
        found = {name: value.cpu().numpy()[None] for name, value in values.items()}
        return network_tables(first, seeds, {"part": "claim 1", "teacher_nodes": nodes, "dim": dim}, (0,), found)

    def _descent(self, nodes: int, dim: int, multiple: int, seeds: Sequence[int], first: int) -> Tables:
        """Gradient descent of ReLU students on the exact loss of a teacher that sums to zero."""
        from understudy.papers.local.theory import gaussian
        from understudy.papers.local.theory.descent import descend
        from understudy.papers.local.theory.identifiability import opposite_starts

        probes = log_probes(self.steps)
        teachers = self._zero_sum(nodes, dim, seeds)
        students = self.to_device(opposite_starts(teachers, multiple * nodes, seeds))
        teachers = self.to_device(teachers)
        path = descend(students, teachers, self.rate, self.steps, probes, slope=0.0)
        loss, norm = gaussian.loss(path, teachers, 0.0), gaussian.gradient(path, teachers, 0.0).flatten(-2).norm(dim=-1)
        own = {"loss": loss, "gradient_norm": norm, "ratio": norm / loss, "squared_ratio": norm.square() / loss}
        swept = {"part": "descent"} | _columns((multiple * nodes, nodes, dim))
        return self._measured(swept, probes, path, teachers, own, seeds, first)

    def _reduction(self, nodes: int, dim: int, multiple: int, linear: bool, seeds: Sequence[int], first: int) -> Tables:
        """Gradient descent of ReLU students on samples of any teacher, with or without a fitted linear term.

        The loss is the exact one, that is with the best linear term, a quarter of that of |·| students.
        """
        from understudy.papers.local.theory import gaussian
        from understudy.papers.local.theory import identifiability as relu
        from understudy.papers.local.theory.teachers import random_teachers

        probes = log_probes(self.steps)
        teachers = random_teachers(nodes, dim, seeds, _SEPARATION)
        students = self.to_device(relu.opposite_starts(teachers, multiple * nodes, seeds))
        teachers, rate = self.to_device(teachers), 4 * self.rate if linear else self.rate
        path, terms = relu.descend_on_samples(students, teachers, rate, probes, self.batch, seeds, linear)
        own = {"loss": gaussian.loss(path, teachers) / 4 if linear else gaussian.loss(path, teachers, 0.0)}
        if linear:
            own["fit_error"] = (terms - relu.linear_term(path, teachers)).norm(dim=-1)
            own["linear_term"] = terms.norm(dim=-1)
        swept = {"part": "reduction", "linear": linear} | _columns((multiple * nodes, nodes, dim))
        return self._measured(swept, probes, path, teachers, own, seeds, first)

    def _measured(
        self,
        swept: dict[str, Any],
        probes: Sequence[int],
        path: Tensor,
        teachers: Tensor,
        own: dict[str, Tensor],
        seeds: Sequence[int],
        first: int,
    ) -> Tables:
        """Tables of ReLU students with their angles, and the paper's quantities for their |·| part, as at this rate.

        Those that `own` has too, such as the loss, are `absolute_loss` and so on.
        """
        from understudy.papers.local.theory.identifiability import teacher_angles

        direction, line = teacher_angles(path, teachers)
        found = measure(path, teachers, self.rate)
        descended = ("loss", "gradient_norm", "ratio", "squared_ratio")
        values = {f"absolute_{name}" if name in descended else name: v for name, v in found.values.items()}
        own |= {"nearest": direction.amin(-1), "farthest_line": line.amax(-1)}
        values |= {name: value.cpu().numpy() for name, value in own.items()}
        rows, weights = node_rows(first, probes, found), endpoints(path, teachers, seeds, 0.0)
        return network_tables(first, seeds, swept, probes, values, rows, weights)


def _columns(size: tuple[int, int, int]) -> dict[str, int]:
    return dict(zip(SIZE, size, strict=True))


def size_words(size: tuple[int, int, int]) -> str:
    """The size of a problem in words: `m = 8, r = 3, d = 5`."""
    return "m = {}, r = {}, d = {}".format(*size)
