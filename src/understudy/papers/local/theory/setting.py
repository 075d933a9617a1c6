"""S4's setting on given networks: their nodes in the paper's form, normal inputs or not, and what all of it assumes.

A network Σ a |uᵀx|, a ≥ 0, is brought into the form of `gaussian` by homogeneity: students w = u √(a/‖u‖), teacher
nodes w* = a u. Losses are expectations under standard normal inputs; inputs of another width σ make them σ² times as
large and change nothing else. The samples that are given only tell whether inputs are normal.
"""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from understudy.nets import Population
from understudy.papers.local.theory.geometry import (
    LocalGeometry,
    closest,
    local_geometry,
    mass_bound,
    separation,
    threshold,
)
from understudy.theory.result import Hypothesis

ERRORS = 5.0
"""Standard errors by which moments of normal inputs may be off."""
_ZERO = 1e-22
"""Of the square of the teacher's lengths: a loss of which rounding leaves a digit, with two students a node or more."""


class Moments(NamedTuple):
    """How far inputs are from normal ones of one width in all directions, in standard errors; the largest of each."""

    width: float
    mean: float
    covariance: float
    fourth: float

    @property
    def normal(self) -> bool:
        return max(self.mean, self.covariance, self.fourth) <= ERRORS

    def __str__(self) -> str:
        return (
            f"mean, covariance and fourth moments up to {self.mean:.2g}, {self.covariance:.2g} and {self.fourth:.2g} "
            f"standard errors off, of width {self.width:.3g}"
        )


def moments(x: Float[Tensor, "sample in"]) -> Moments:
    """Of each input, each pair, and z⁴ of all; errors are those that normal inputs of that width would have."""
    x = x.double()
    samples, size = x.shape
    width = float(x.square().mean().sqrt())
    if not width > 0:
        return Moments(width, math.inf, math.inf, math.inf)
    z, same, root = x / width, torch.eye(size, dtype=torch.bool, device=x.device), math.sqrt(samples)
    squares = z.square()
    mean = z.mean(0).abs().max() * root
    covariance = (z.T @ z / samples - same.double()).abs() / torch.where(same, math.sqrt(2), 1.0)
    fourth = (squares.T @ squares / samples - torch.where(same, 3.0, 1.0)).abs()
    together = (squares.square().mean() - 3).abs() * math.sqrt(size / 96)  # variances of z⁴ and of z²z'²: 96 and 8
    fourth = torch.maximum((fourth / torch.where(same, math.sqrt(96), math.sqrt(8))).max(), together)
    return Moments(width, float(mean), float(covariance.max()) * root, float(fourth) * root)


def as_students(network: Population) -> Float[Tensor, "net student in"]:
    """w = u √(a/‖u‖) of Σ a |uᵀx|: ‖w‖ |wᵀx| = a |uᵀx|."""
    lower, upper = (layer.weight.double() for layer in network.layers)
    lengths = torch.linalg.vector_norm(lower, dim=-1)
    scale = (upper[:, 0] / torch.where(lengths > 0, lengths, 1.0)).sqrt()
    return lower * scale.unsqueeze(-1)


def as_teachers(network: Population) -> Float[Tensor, "net teacher in"]:
    """w* = a u of Σ a |uᵀx|."""
    lower, upper = (layer.weight.double() for layer in network.layers)
    return lower * upper.mT


class _Kept(threading.local):
    """What this thread measured last."""

    networks: tuple[Tensor, Tensor] | None = None
    geometry: LocalGeometry


_kept = _Kept()


@dataclass(frozen=True, eq=False)
class Setting:
    """One teacher, one student and inputs, in the paper's form."""

    teacher: Population
    student: Population
    x: Float[Tensor, "sample in"]

    @cached_property
    def students(self) -> Float[Tensor, "1 student in"]:
        return as_students(self.student)

    @cached_property
    def teachers(self) -> Float[Tensor, "1 teacher in"]:
        return as_teachers(self.teacher)

    @cached_property
    def lengths(self) -> Float[Tensor, "teacher"]:
        return torch.linalg.vector_norm(self.teachers[0], dim=-1)

    @cached_property
    def geometry(self) -> LocalGeometry:
        """Of the last networks it is kept: every result asks for the same, and of 1,000 students it takes seconds."""
        networks = (self.students, self.teachers)
        if _kept.networks is None or not all(map(torch.equal, networks, _kept.networks)):
            _kept.geometry, _kept.networks = local_geometry(*networks), networks
        return _kept.geometry

    @property
    def loss(self) -> float:
        return float(self.geometry.loss)

    @cached_property
    def at_least(self) -> Float[Tensor, "1"]:
        """The loss, or what rounding may have hidden of it."""
        return self.geometry.loss.clamp_min(self.zero)

    @property
    def zero(self) -> float:
        return _ZERO * float(self.lengths.sum()) ** 2

    @property
    def scale(self) -> float:
        """√(r w_max)."""
        return math.sqrt(len(self.lengths) * float(self.lengths.max()))

    @property
    def kappa(self) -> float:
        """κ of theorem 3 as its proof has it: (2 Σ‖w_j‖² + 4 Σ‖w*_i‖)^(−½), the first by lemma C.3."""
        mass = float(mass_bound(self.at_least, self.teachers))
        return (2 * mass + 4 * float(self.lengths.sum())) ** -0.5

    @cached_property
    def finite(self) -> bool:
        squares = (self.students.square().sum((1, 2)), self.teachers.square().sum((1, 2)).square())
        return all(bool(part.isfinite().all()) for part in squares)

    @cached_property
    def assumed(self) -> tuple[Hypothesis, ...]:
        """What all of S4 assumes: definition 1, assumptions 1 and 2."""
        found, shortest = moments(self.x), int(self.lengths.argmin())
        students, count = self.students.shape[1], len(self.lengths)
        apart = float(separation(self.teachers)) if self.finite else 0.0
        of = ", of nodes {} and {}".format(*closest(self.teachers[0])) if self.finite and count > 1 else ""
        return (
            Hypothesis(
                "normal inputs",
                str(found) if found.normal else f"not Gaussian: {found}",
                f"each within {ERRORS:g} of a normal of one width in all directions",
                found.normal,
                "give inputs drawn from N(0, σ²I): the closed forms are of these alone",
                max(1.0, *(part / ERRORS for part in found[1:])),
            ),
            Hypothesis(
                "lengths of teacher nodes",
                f"{float(self.lengths[shortest]):.3g} (node {shortest}) to {float(self.lengths.max()):.3g}",
                "more than 0, and finite",
                self.finite and bool(self.lengths[shortest] > 0),
                "leave nodes that give nothing on out, and scale weights that overflow down",
            ),
            Hypothesis(
                "angle of teacher nodes",
                f"at least {apart:.3g} up to sign{of}" if count > 1 else "only one",
                "more than 0",
                apart > 1e-12,
                f"make one of teacher nodes that are parallel{of.replace(', of', ':')}",
            ),
            Hypothesis(
                "students",
                f"{students}",
                f"at least {count}, as there are teacher nodes",
                students >= count,
                "give more",
            ),
        )

    @property
    def measurable(self) -> bool:
        """Whether there is a closed form to measure anything by."""
        return self.finite and bool((self.lengths > 0).all())

    def below(self, told: str) -> Hypothesis:
        """The loss below ε_0, with what is so beside it."""
        power = float(threshold(self.teachers))
        over = (math.log10(self.loss) if self.loss > 0 else -math.inf) - power
        return Hypothesis(
            "loss",
            f"{self.loss:.3g}, at which {told}",
            f"at most 10^{power:.1f}, ε_0 of the proof with 1 for its constant",
            over <= 0,
            "train on; a threshold below 1e-22 is out of reach in float64, and what is measured is all there is",
            10**over if 0 < over < 300 else 1.0 if over <= 0 else math.inf,
        )
