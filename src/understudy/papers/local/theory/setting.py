"""The setting of Zhou, Ge & Jin 2021 on given networks: their form of the weights, and the assumptions.

A network Σ a |uᵀx|, a ≥ 0, is brought into the form of `gaussian` by homogeneity: student nodes w = u √(a/‖u‖), teacher
nodes w* = a u. Losses are expectations under standard normal inputs; inputs of standard deviation σ multiply them by σ²
and change nothing else. The given samples only serve to test whether inputs are normal.
"""

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
    closest_pair,
    least_angle,
    local_geometry,
    log_threshold,
    mass_bound,
)
from understudy.theory.result import Hypothesis, above, at_least, at_most

ERRORS = 5.0
"""Number of standard errors by which moments of inputs that are taken for normal may deviate."""
_ROUNDING = 1e-22
"""Loss relative to the squared sum of the teacher's lengths below which all digits are rounding, with two students or
more per teacher node."""


class InputMoments(NamedTuple):
    """Standard deviation of inputs, and the largest deviations of their moments from isotropic normal ones.

    Deviations are in standard errors.
    """

    width: float
    mean: float
    covariance: float
    fourth: float

    @property
    def normal(self) -> bool:
        return max(self[1:]) <= ERRORS

    def __str__(self) -> str:
        return (
            f"mean, covariance and fourth moments deviate by up to {self.mean:.2g}, {self.covariance:.2g} and "
            f"{self.fourth:.2g} standard errors, standard deviation {self.width:.3g}"
        )


def moments(x: Float[Tensor, "sample in"]) -> InputMoments:
    """Compare the moments of inputs with those of isotropic normal inputs of the same standard deviation.

    Means are taken of each input, covariances and fourth moments of each pair, and z⁴ also over all inputs together.
    """
    x = x.double()
    samples, size = x.shape
    width = float(x.square().mean().sqrt())
    if not width > 0:
        return InputMoments(width, math.inf, math.inf, math.inf)
    z, same, root = x / width, torch.eye(size, dtype=torch.bool, device=x.device), math.sqrt(samples)
    squares = z.square()
    mean = z.mean(0).abs().max() * root
    covariance = (z.T @ z / samples - same.double()).abs() / torch.where(same, math.sqrt(2), 1.0)
    fourth = (squares.T @ squares / samples - torch.where(same, 3.0, 1.0)).abs()
    together = (squares.square().mean() - 3).abs() * math.sqrt(size / 96)  # variances of z⁴ and of z²z'²: 96 and 8
    fourth = torch.maximum((fourth / torch.where(same, math.sqrt(96), math.sqrt(8))).max(), together)
    return InputMoments(width, float(mean), float(covariance.max()) * root, float(fourth) * root)


def as_students(network: Population) -> Float[Tensor, "net student in"]:
    """Student nodes w = u √(a/‖u‖) of Σ a |uᵀx|, for which ‖w‖ |wᵀx| = a |uᵀx|."""
    lower, upper = (layer.weight.double() for layer in network.layers)
    lengths = torch.linalg.vector_norm(lower, dim=-1)
    scale = (upper[:, 0] / torch.where(lengths > 0, lengths, 1.0)).sqrt()
    return lower * scale.unsqueeze(-1)


def as_teachers(network: Population) -> Float[Tensor, "net teacher in"]:
    """Teacher nodes w* = a u of Σ a |uᵀx|."""
    lower, upper = (layer.weight.double() for layer in network.layers)
    return lower * upper.mT


class _GeometryCache(threading.local):
    """Geometry of the last networks that a thread measured."""

    networks: tuple[Tensor, Tensor] | None = None
    geometry: LocalGeometry


_cache = _GeometryCache()


@dataclass(frozen=True, eq=False)
class LocalSetting:
    """One teacher, one student and inputs in the form of Zhou, Ge & Jin 2021."""

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
        """Geometry of both networks, cached across results: with 1,000 students it takes seconds."""
        networks = (self.students, self.teachers)
        if _cache.networks is None or not all(map(torch.equal, networks, _cache.networks)):
            _cache.geometry, _cache.networks = local_geometry(*networks), networks
        return _cache.geometry

    @property
    def loss(self) -> float:
        return float(self.geometry.loss)

    @property
    def rounding(self) -> float:
        """Loss at or below which all digits are rounding."""
        return _ROUNDING * float(self.lengths.sum()) ** 2

    @cached_property
    def safe_loss(self) -> Float[Tensor, "1"]:
        """Upper bound on the true loss: the computed loss, but at least the part that rounding may hide."""
        return self.geometry.loss.clamp_min(self.rounding)

    @property
    def scale(self) -> float:
        """√(r w_max)."""
        return math.sqrt(len(self.lengths) * float(self.lengths.max()))

    @property
    def kappa(self) -> float:
        """κ of theorem 3 with the constants of its proof: (2 Σ‖w_j‖² + 4 Σ‖w*_i‖)^(−½), Σ‖w_j‖² by lemma C.3."""
        mass = float(mass_bound(self.safe_loss, self.teachers))
        return (2 * mass + 4 * float(self.lengths.sum())) ** -0.5

    @cached_property
    def finite(self) -> bool:
        squares = (self.students.square().sum((1, 2)), self.teachers.square().sum((1, 2)).square())
        return all(bool(part.isfinite().all()) for part in squares)

    @property
    def measurable(self) -> bool:
        """Whether the closed forms are defined: finite weights and teacher nodes of positive length."""
        return self.finite and bool((self.lengths > 0).all())

    @cached_property
    def assumptions(self) -> tuple[Hypothesis, ...]:
        """Hypotheses of every result: normal inputs and m ≥ r (definition 1), assumptions 1 and 2."""
        found, shortest, count = moments(self.x), int(self.lengths.argmin()), len(self.lengths)
        angle = float(least_angle(self.teachers)) if self.finite else 0.0
        nodes = " {} and {}".format(*closest_pair(self.teachers[0])) if self.finite and count > 1 else ""
        return (
            at_most(
                "normal inputs",
                max(found[1:]),
                ERRORS,
                shown=str(found) if found.normal else f"not Gaussian: {found}",
                requirement=f"isotropic normal inputs, each deviation at most {ERRORS:g} standard errors",
                change="draw inputs from N(0, σ²I): the closed forms hold for these only",
            ),
            Hypothesis(
                name="lengths of teacher nodes",
                value=f"{float(self.lengths[shortest]):.3g} (node {shortest}) to {float(self.lengths.max()):.3g}",
                requirement="positive and finite",
                holds=self.finite and bool(self.lengths[shortest] > 0),
                change="remove nodes of length 0, and scale down weights that overflow",
            ),
            above(
                "angle of teacher nodes",
                angle,
                1e-12,
                shown=f"{angle:.3g} up to sign, between nodes{nodes}" if count > 1 else "a single node",
                requirement="more than 0",
                change=f"merge the parallel teacher nodes{nodes}",
            ),
            at_least(
                "students",
                self.students.shape[1],
                count,
                requirement=f"at least {count}, the number of teacher nodes",
                change="add students",
            ),
        )

    def loss_hypothesis(self, measured: str) -> Hypothesis:
        """Hypothesis L ≤ ε_0 of theorems 3 and 4; `measured` is reported with the loss, since ε_0 is rarely reached."""
        power = float(log_threshold(self.teachers))
        over = (math.log10(self.loss) if self.loss > 0 else -math.inf) - power
        return Hypothesis(
            name="loss",
            value=f"{self.loss:.3g}, at which {measured}",
            requirement=f"at most 10^{power:.1f}, ε_0 of the proof with its open constant set to 1",
            holds=over <= 0,
            change="train longer; float64 cannot resolve thresholds below 10⁻²², where only the measured value counts",
            factor=10**over if 0 < over < 300 else 1.0 if over <= 0 else math.inf,
        )
