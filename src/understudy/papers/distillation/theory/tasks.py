"""Transfer tasks of S3 chapter 5: inputs and a linear teacher, by angles to it or as a user's own data."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from understudy._random import Stream, words
from understudy.errors import UserError
from understudy.papers.distillation.theory.draws import normals, uniforms

_ANGLES, _DIRECTIONS, _COMPACT = (i << 24 for i in range(3))
"""Where the counters of each kind of number begin; a set has fewer inputs than lie between."""
_STEP, _REACH = 0.125, 40.0
"""Of the quadrature, in logits: its error is about exp(−π²/(2 step)) = 1e−17, and what falls by exp(−reach) is left."""
_ANGLES_AT_ONCE = 1 << 13
"""Angles whose risks are computed together."""


@dataclass(frozen=True)
class AngleTask:
    """Inputs ν (cos a w* + sin a u): ν normal, u a uniform direction across the unit teacher w*, a the angle.

    P[a ≥ θ] = (1 − θ/(π/2 − margin))^κ. Without a margin this is the κ-polynomial task of sec 5.4.1, and κ = 1 has
    uniform angles; with one, no input is within that angle of the teacher's boundary (fig. 5.2, left).
    """

    dim: int
    kappa: float = 1.0
    margin: float = 0.0

    def __post_init__(self) -> None:
        if self.dim < 2:
            raise UserError(f"inputs of {self.dim} numbers were asked for; allowed is 2 or more: one has no angles")
        if not (math.isfinite(self.kappa) and self.kappa > 0):
            raise UserError(
                f"κ = {self.kappa} was given; allowed is a finite number above 0: at 0 all inputs are on the teacher's "
                "boundary"
            )
        if not 0 <= self.margin < math.pi / 2:
            raise UserError(f"a margin of {self.margin} was given; allowed is an angle from 0 to below π/2")

    @property
    def widest(self) -> float:
        """The angle that none exceeds."""
        return math.pi / 2 - self.margin

    @property
    def teacher(self) -> Float[Tensor, "in"]:
        """The first of the unit vectors: any other is a rotation away."""
        return torch.eye(1, self.dim, dtype=torch.float64)[0]

    def p(self, theta: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """p(θ) = P[ᾱ(w*, x) ≥ θ] (eq. 5.17)."""
        return (1 - theta / self.widest).clamp(0, 1).pow(self.kappa)

    def angles(self, seeds: Sequence[int], count: int) -> Float[Tensor, "net sample"]:
        """ᾱ(w*, x_i) of the inputs that `inputs` draws."""
        return self._angles_and_lengths(seeds, count)[0]

    def _angles_and_lengths(self, seeds: Sequence[int], count: int) -> tuple[Tensor, Tensor]:
        which = _samples(count, _ANGLES)
        u = uniforms(seeds, Stream.TRANSFER, which, 1).squeeze(-1)
        # From words that the angle did not use.
        lengths = normals(seeds, Stream.TRANSFER, which, 6)[..., 4]
        return self.widest * -torch.expm1(u.log() / self.kappa), lengths

    def inputs(self, seeds: Sequence[int], count: int) -> Float[Tensor, "net sample in"]:
        """A set of inputs a seed. Input i follows from the seed and i alone: smaller sets begin larger ones."""
        drawn = normals(seeds, Stream.TRANSFER, _samples(count, _DIRECTIONS), self.dim - 1)
        return self._placed(seeds, drawn)

    def compact(self, seeds: Sequence[int], count: int) -> Float[Tensor, "net sample few"]:
        """Such sets, each turned about w* into its first n + 1 axes: whatever stays in the span has the same law there.

        Gaussian directions are turned into a triangle: χ of d − 1, d − 2, … on its diagonal (Bartlett), normals below.
        Other sets than those of `inputs`, from far fewer numbers where d is large; inputs are nested as there.
        """
        from scipy.special import gammaincinv

        across = min(count, self.dim - 1)
        which = _samples(count, _COMPACT)
        below = normals(seeds, Stream.TRANSFER, which, across).tril(-1)
        u = uniforms(seeds, Stream.TRANSFER_ACROSS, which[:across], 1).squeeze(-1)
        freedom = torch.arange(self.dim - 1, self.dim - 1 - across, -1, dtype=torch.float64)
        squares = torch.from_numpy(2 * gammaincinv(freedom.numpy() / 2, u.numpy()))
        below.diagonal(dim1=-2, dim2=-1).copy_(squares.sqrt())
        return self._placed(seeds, below)

    def _placed(self, seeds: Sequence[int], drawn: Float[Tensor, "net sample across"]) -> Tensor:
        a, lengths = self._angles_and_lengths(seeds, drawn.shape[-2])
        aside = drawn / torch.linalg.vector_norm(drawn, dim=-1, keepdim=True)
        unit = torch.cat((a.cos().unsqueeze(-1), a.sin().unsqueeze(-1) * aside), dim=-1)
        return lengths.unsqueeze(-1) * unit

    def risk(self, angle: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """The transfer risk (eq. 5.4) of any student at this angle α(w*, w), from 0 to π, by quadrature to rounding.

        A student at angle φ errs on an input where uᵀv < −cot φ cot a, v its direction across w*. With t = |uᵀv| and
        tan c = t tan φ this is ½ E p(π/2 − c), an integral over c from the margin to φ.
        """
        found = torch.empty_like(angle, dtype=torch.float64).flatten()
        known = angle.double().flatten()
        given = known.nan_to_num()
        for first in range(0, len(given), _ANGLES_AT_ONCE):
            part = slice(first, first + _ANGLES_AT_ONCE)
            found[part] = self._risk(given[part])
        return found.masked_fill(known.isnan(), math.nan).view(angle.shape)

    def _risk(self, angle: Float[Tensor, "student"]) -> Float[Tensor, "student"]:
        phi = torch.minimum(angle, math.pi - angle).clamp(0, math.pi / 2)
        if self.dim == 2:
            sharp = ((phi - self.margin).clamp_min(0) / self.widest).pow(self.kappa) / 2
        else:
            # Everything from the distances of c to its ends, and of φ to π/2, so that no digits are lost there.
            width = (phi - self.margin).clamp_min(torch.finfo(torch.float64).tiny).unsqueeze(-1)
            short = (math.pi / 2 - phi).clamp_min(1e-12).unsqueeze(-1)
            # The integrand falls as exp(y (1 + κ)) below t of about 1/√d, and as exp(−y (d − 2)/2) where t nears 1.
            low = _REACH / (1 + self.kappa) + math.log(self.dim) / 2
            high = 2 * _REACH / (self.dim - 2) + float(torch.log1p(width / short).max()) + 5
            y = torch.arange(-low, high, _STEP, dtype=torch.float64)
            above, left = width * y.sigmoid(), width * (-y).sigmoid()
            c, wide = self.margin + above, phi.unsqueeze(-1)
            below = (short + left).sin() * wide.sin()
            both = torch.where(wide + c < math.pi / 2, wide + c, 2 * short + left)
            rest = left.sin() * both.sin() / below.square()
            scale = math.lgamma((self.dim - 1) / 2) - math.lgamma((self.dim - 2) / 2) - math.lgamma(0.5)
            density = 2 * (scale + (self.dim - 4) / 2 * rest.clamp_min(1e-300).log()).exp()
            stretch = short.sin() / (below * (short + left).sin()) * above * (-y).sigmoid()
            sharp = ((above / self.widest).pow(self.kappa) * density * stretch).sum(-1) * _STEP / 2
            sharp = torch.where(phi < math.pi / 2 - 1e-12, sharp.clamp_max(0.5), 0.5)
            sharp = torch.where(phi <= self.margin, 0.0, sharp)
        return torch.where(angle > math.pi / 2, 1 - sharp, sharp)


def large_margin(dim: int, margin: float, kappa: float = 1.0) -> AngleTask:
    """The task of sec 5.3.2's large-margin case: no input within this angle of the teacher's boundary."""
    if not margin > 0:
        raise UserError(f"a margin of {margin} was given; allowed is an angle above 0 and below π/2")
    return AngleTask(dim, kappa, margin)


@dataclass(frozen=True, eq=False)
class GivenTask:
    """A user's inputs and a linear teacher: transfer sets are drawn from `pool`, risks are measured on `held_out`."""

    pool: Float[Tensor, "sample in"]
    teacher: Float[Tensor, "in"]
    held_out: Float[Tensor, "other in"]

    def __post_init__(self) -> None:
        for name, x in (("pool", self.pool), ("held-out inputs", self.held_out)):
            if x.shape[-1] != len(self.teacher):
                raise UserError(f"the {name} have {x.shape[-1]} numbers each and the teacher {len(self.teacher)}")
            if not len(x) or not bool(x.isfinite().all()):
                raise UserError(f"the {name} are {len(x)} inputs; allowed is 1 or more, of finite numbers")
        if not bool(self.teacher.isfinite().all()) or not bool(self.teacher.any()):
            raise UserError("the teacher is zero or not finite; allowed is any other: it has to have an opinion")

    @property
    def dim(self) -> int:
        return len(self.teacher)

    def inputs(self, seeds: Sequence[int], count: int) -> Float[Tensor, "net sample in"]:
        """A set a seed, drawn from the pool without putting back; smaller sets begin larger ones."""
        _samples(count, 0)
        if count > len(self.pool):
            raise UserError(f"sets of {count} inputs were asked for; allowed is up to {len(self.pool)}, the whole pool")
        order = [words(seed, Stream.TRANSFER, 0, len(self.pool)).topk(count, largest=False).indices for seed in seeds]
        return self.pool[torch.stack(order)]


class Logistic(NamedTuple):
    """A logistic regression through 0, and what it separates."""

    weights: Float[Tensor, "in"]
    classes: tuple[object, object]
    """The labels that count as 0 and as 1."""
    right: float
    """Share of the inputs on the side of their label."""
    gradient: float
    """Length of the gradient that is left."""


def logistic_regression(
    x: Float[Tensor, "sample in"],
    labels: Shaped[Tensor, "sample"],
    ridge: float | None = None,
    names: Sequence[object] | None = None,
) -> Logistic:
    """The w that minimises mean cross-entropy with the labels + ridge/2 ‖w‖², to the optimum by Newton's method.

    A ridge of 1/samples is a standard normal prior, and is taken where none is given. Without one, inputs that can be
    separated have no optimum, and are refused. `names` are what labels 0, 1, … are called.
    """
    samples = len(x)
    found = labels.unique().tolist()
    called = found if names is None else [names[int(label)] for label in found]
    if len(labels) != samples:
        raise UserError(f"{len(labels)} labels were given for {samples} inputs: each needs one")
    _two_classes(called)
    if not bool(x.isfinite().all()):
        raise UserError("there are inputs that are not finite numbers: leave them out")
    weight = 1 / samples if ridge is None else ridge
    if not (math.isfinite(weight) and weight >= 0):
        raise UserError(f"ridge {ridge} was given; allowed is a finite number of at least 0")
    rows = x.detach().double().cpu().numpy()
    sides = np.where((labels == found[1]).cpu().numpy(), 1.0, -1.0)
    w, left = _newton(rows * sides[:, None], weight)
    margins = rows @ w * sides
    if not left <= 1e-8 * max(1.0, float(np.linalg.norm(rows, axis=1).mean())) or (weight == 0 and margins.min() > 0):
        raise UserError(
            "a hyperplane separates the classes, or all but separates them, so that without a ridge no weights are the "
            "best: give a ridge above 0"
        )
    right = float(((rows @ w >= 0) == (sides > 0)).mean())
    return Logistic(torch.from_numpy(w), (called[0], called[1]), right, left)


class Given(NamedTuple):
    """A user's data in independent parts."""

    task: GivenTask
    fitted: Logistic | None
    """The regression that is the teacher, on inputs of its own; none where the user gave the weights."""


def given_task(
    x: Float[Tensor, "sample in"],
    labels: Shaped[Tensor, "sample"] | None = None,
    teacher: Float[Tensor, "in"] | None = None,
    names: Sequence[object] | None = None,
) -> Given:
    """One third of the inputs, in random order, to fit a teacher to, one to draw sets from, one to measure risks on.

    The theorems are of inputs that know nothing of the teacher, so that it has a part of its own; where it is given
    there are two halves. `names` are what labels 0, 1, … are called.
    """
    if (labels is None) == (teacher is None):
        raise UserError("labels or a teacher's weights are needed, and not both")
    parts = 2 if labels is None else 3
    if len(x) < 2 * parts:
        raise UserError(f"{len(x)} inputs were given; allowed is {2 * parts} or more, which are cut into {parts} parts")
    order = words(0, Stream.TRANSFER, 0, len(x)).argsort()
    held_out, pool, *own = (x.double()[part] for part in order.chunk(parts))
    if labels is None:
        assert teacher is not None
        return Given(GivenTask(pool, teacher.double(), held_out), None)
    if len(labels) != len(x):
        raise UserError(f"{len(labels)} labels were given for {len(x)} inputs: each needs one")
    found = labels.unique().tolist()
    _two_classes(found if names is None else [names[int(label)] for label in found])
    seen = labels[order.chunk(parts)[2]]
    if len(seen.unique()) < 2:
        raise UserError(
            f"the third of the inputs that a teacher is fitted to, {len(seen)} of {len(x)}, has one class alone: give "
            "more inputs of the other"
        )
    fitted = logistic_regression(own[0], seen, names=names)
    return Given(GivenTask(pool, fitted.weights, held_out), fitted)


def _two_classes(called: Sequence[object]) -> None:
    if len(called) != 2:
        shown = ", ".join(map(str, called[:5])) + (", …" if len(called) > 5 else "")
        kinds = "1 class" if len(called) == 1 else f"{len(called)} classes"
        raise UserError(f"labels of {kinds} were given ({shown}); allowed are two classes")


def _newton(signed: np.ndarray, ridge: float) -> tuple[np.ndarray, float]:
    """Damped Newton on mean log(1 + exp(−zᵀw)) + ridge/2 ‖w‖²; in the span of the rows where the Hessian has a null."""
    samples, size = signed.shape

    def value(w: np.ndarray) -> float:
        return float(np.logaddexp(0, -(signed @ w)).mean() + ridge / 2 * w @ w)

    w, now = np.zeros(size), math.log(2)
    slope = np.zeros(size)
    for _ in range(100):
        margins = signed @ w
        wrong = np.exp(-np.logaddexp(0, margins))
        slope = -(signed.T @ wrong) / samples + ridge * w
        # Without a ridge, weights that separate everything are better the longer they are.
        if np.linalg.norm(slope) <= 1e-14 or (ridge == 0 and margins.min() > 0):
            break
        hessian = (signed * (wrong * (1 - wrong))[:, None]).T @ signed / samples + ridge * np.eye(size)
        step = np.linalg.solve(hessian, slope) if ridge else np.linalg.lstsq(hessian, slope, rcond=1e-13)[0]
        scale = 1.0
        while (after := value(w - scale * step)) > now - 1e-4 * scale * (slope @ step) and scale > 1e-10:
            scale /= 2
        if not after < now:
            # Below the digits of the loss: whole steps go on while they shorten the gradient.
            there = w - step
            wrong = np.exp(-np.logaddexp(0, signed @ there))
            if not np.linalg.norm(-(signed.T @ wrong) / samples + ridge * there) < 0.9 * np.linalg.norm(slope):
                break
            scale, after = 1.0, min(now, value(there))
        w, now = w - scale * step, after
    return w, float(np.linalg.norm(slope))


def _samples(count: int, first: int) -> Tensor:
    if not 1 <= count < _DIRECTIONS:
        raise UserError(f"sets of {count} inputs were asked for; allowed is 1 to {_DIRECTIONS - 1}")
    return first + torch.arange(count)
