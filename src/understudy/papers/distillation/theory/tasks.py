"""Transfer tasks: a linear teacher with inputs at random angles to it, or with given inputs (Phuong 2021, ch. 5)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from understudy._errors import UserError
from understudy._random import Stream, normal, uniform, words

_ANGLES, _DIRECTIONS, _COMPACT = (i << 24 for i in range(3))
"""First step of the random stream for each kind of number; a set has fewer inputs than the distance between two."""
_STEP, _REACH = 0.125, 40.0
"""Step and reach of the quadrature in logits: errors of about exp(−π²/(2 step)) = 10⁻¹⁷ and exp(−reach)."""
_ANGLES_AT_ONCE = 1 << 13
"""Number of angles whose risks are computed at once."""


@dataclass(frozen=True)
class AngleTask:
    """Inputs ν (cos a w* + sin a u): ν standard normal, u a uniform direction orthogonal to the unit teacher w*.

    The angle a has P[a ≥ θ] = (1 − θ/(π/2 − margin))^κ. Without a margin this is the κ-polynomial task of Phuong 2021,
    sec. 5.4.1, with uniform angles for κ = 1; with a margin, no input is within that angle of the teacher's boundary
    (fig. 5.2, left).
    """

    dim: int
    kappa: float = 1.0
    margin: float = 0.0
    draw: int = 0
    """Tasks of different numbers draw independent sets for the same seeds."""

    def __post_init__(self) -> None:
        if self.dim < 2:
            raise UserError(f"dim must be at least 2, got {self.dim}: in one dimension there are no angles")
        if not (math.isfinite(self.kappa) and self.kappa > 0):
            raise UserError(
                f"κ must be finite and above 0, got {self.kappa}: at 0 all inputs are on the teacher's boundary"
            )
        if not 0 <= self.draw < 1 << 30:
            raise UserError(f"draw must be at least 0 and below 2³⁰, got {self.draw}")
        if not 0 <= self.margin < math.pi / 2:
            raise UserError(f"margin must be an angle from 0 to below π/2, got {self.margin}")

    @property
    def widest(self) -> float:
        """Largest possible angle."""
        return math.pi / 2 - self.margin

    @property
    def teacher(self) -> Float[Tensor, "in"]:
        """The first unit vector, without loss of generality: the task is invariant to rotations."""
        return torch.eye(1, self.dim, dtype=torch.float64)[0]

    def p(self, theta: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """p(θ) = P[ᾱ(w*, x) ≥ θ] (Phuong 2021, eq. 5.17)."""
        return (1 - theta / self.widest).clamp(0, 1).pow(self.kappa)

    def angles_and_lengths(self, seeds: Sequence[int], count: int) -> tuple[Tensor, Tensor]:
        """Angles ᾱ(w*, x_i) and signed lengths of the inputs drawn by `inputs` and `compact`."""
        which = self._which(count, _ANGLES)
        u = uniform(_column(seeds), Stream.TRANSFER, which, 1).squeeze(-1)
        # Random words that the angle does not use.
        lengths = normal(_column(seeds), Stream.TRANSFER, which, 6)[..., 4]
        return self.widest * -torch.expm1(u.log() / self.kappa), lengths

    def inputs(self, seeds: Sequence[int], count: int) -> Float[Tensor, "net sample in"]:
        """Draw one set of inputs per seed. Input i depends on the seed and i only, so that sets are nested."""
        drawn = normal(_column(seeds), Stream.TRANSFER, self._which(count, _DIRECTIONS), self.dim - 1)
        return self._place(seeds, drawn)

    def compact(self, seeds: Sequence[int], count: int) -> Float[Tensor, "net sample few"]:
        """Draw sets of the same distribution, rotated about w* into the first n + 1 axes.

        Any learner that stays in the span of the inputs has the same distribution of angles. Gaussian directions become
        a triangular matrix (Bartlett), with χ variables of d − 1, d − 2, … degrees of freedom on the diagonal and
        normals below it. The sets differ from those of `inputs`, need far fewer numbers if d is large, and are nested.
        """
        from scipy.special import gammaincinv

        across = min(count, self.dim - 1)
        which = self._which(count, _COMPACT)
        below = normal(_column(seeds), Stream.TRANSFER, which, across).tril(-1)
        u = uniform(_column(seeds), Stream.TRANSFER_ACROSS, which[:across], 1).squeeze(-1)
        freedom = torch.arange(self.dim - 1, self.dim - 1 - across, -1, dtype=torch.float64)
        squares = torch.from_numpy(2 * gammaincinv(freedom.numpy() / 2, u.numpy()))
        below.diagonal(dim1=-2, dim2=-1).copy_(squares.sqrt())
        return self._place(seeds, below)

    def _which(self, count: int, first: int) -> Int[Tensor, "sample"]:
        """Steps of the random streams of one draw."""
        return (self.draw << 32) + _samples(count, first)

    def _place(self, seeds: Sequence[int], drawn: Float[Tensor, "net sample across"]) -> Tensor:
        a, lengths = self.angles_and_lengths(seeds, drawn.shape[-2])
        aside = drawn / torch.linalg.vector_norm(drawn, dim=-1, keepdim=True)
        unit = torch.cat((a.cos().unsqueeze(-1), a.sin().unsqueeze(-1) * aside), dim=-1)
        return lengths.unsqueeze(-1) * unit

    def risk(self, angle: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Transfer risk of a student at angle α(w*, w) from 0 to π, by quadrature to rounding (Phuong 2021, eq. 5.4).

        A student at angle φ errs on an input if uᵀv < −cot φ cot a, with v the direction of its component orthogonal
        to w*. With t = |uᵀv| and tan c = t tan φ the risk is ½ E p(π/2 − c), an integral over c from the margin to φ.
        """
        known = angle.double().flatten()
        found = torch.cat([self._risk(part) for part in known.nan_to_num().split(_ANGLES_AT_ONCE)])
        return found.masked_fill(known.isnan(), math.nan).view(angle.shape)

    def _risk(self, angle: Float[Tensor, "student"]) -> Float[Tensor, "student"]:
        phi = torch.minimum(angle, math.pi - angle).clamp(0, math.pi / 2)
        if self.dim == 2:
            sharp = ((phi - self.margin).clamp_min(0) / self.widest).pow(self.kappa) / 2
        else:
            # All terms use the distances of c from its limits, and of φ from π/2, to avoid cancellation there.
            width = (phi - self.margin).clamp_min(torch.finfo(torch.float64).tiny).unsqueeze(-1)
            short = (math.pi / 2 - phi).clamp_min(1e-12).unsqueeze(-1)
            # The integrand decays as exp(y (1 + κ)) for t below about 1/√d, and as exp(−y (d − 2)/2) as t approaches 1.
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


@dataclass(frozen=True, eq=False)
class GivenTask:
    """Given inputs and a linear teacher: transfer sets are drawn from `pool`, risks are measured on `held_out`."""

    pool: Float[Tensor, "sample in"]
    teacher: Float[Tensor, "in"]
    held_out: Float[Tensor, "other in"]
    right: float | None = None
    """Share of the inputs of its own that a fitted teacher classifies correctly; None if its weights were given."""

    def __post_init__(self) -> None:
        for name, x in (("pool", self.pool), ("held-out inputs", self.held_out)):
            if x.shape[-1] != len(self.teacher):
                raise UserError(f"the {name} have {x.shape[-1]} numbers each, but the teacher has {len(self.teacher)}")
            if not len(x) or not bool(x.isfinite().all()):
                raise UserError(f"the {name} must be 1 or more inputs of finite numbers, got {len(x)}")
        if not bool(self.teacher.isfinite().all()) or not bool(self.teacher.any()):
            raise UserError("the teacher is zero or not finite, so that it classifies no input: give other weights")

    @property
    def dim(self) -> int:
        return len(self.teacher)

    def inputs(self, seeds: Sequence[int], count: int) -> Float[Tensor, "net sample in"]:
        """Draw one set per seed from the pool without replacement; smaller sets are prefixes of larger ones."""
        _samples(count, 0)
        if count > len(self.pool):
            raise UserError(f"a set can have at most the {len(self.pool)} inputs of the pool, got {count}")
        order = [words(seed, Stream.TRANSFER, 0, len(self.pool)).topk(count, largest=False).indices for seed in seeds]
        return self.pool[torch.stack(order)]


def logistic_regression(
    x: Float[Tensor, "sample in"], labels: Shaped[Tensor, "sample"], names: Sequence[object] | None = None
) -> tuple[Float[Tensor, "in"], float]:
    """Minimise mean cross-entropy + ‖w‖²/(2 samples), the ridge of a standard normal prior, by Newton's method.

    Returns:
        The weights, without an intercept, and the share of the inputs that they classify correctly.
    """
    samples = len(x)
    if len(labels) != samples:
        raise UserError(f"one label per input is needed ({samples}), got {len(labels)}")
    second = _two_classes(labels, names)[1]
    if not bool(x.isfinite().all()):
        raise UserError("some inputs are not finite: leave them out")
    rows = x.detach().double().cpu().numpy()
    sides = np.where((labels == second).cpu().numpy(), 1.0, -1.0)
    w, left = _newton(rows * sides[:, None], 1 / samples)
    if not left <= 1e-8 * max(1.0, float(np.linalg.norm(rows, axis=1).mean())):
        raise UserError("the logistic regression did not converge: scale the inputs to about 1")
    return torch.from_numpy(w), float(((rows @ w >= 0) == (sides > 0)).mean())


def given_task(
    x: Float[Tensor, "sample in"],
    labels: Shaped[Tensor, "sample"] | None = None,
    teacher: Float[Tensor, "in"] | None = None,
    names: Sequence[object] | None = None,
) -> GivenTask:
    """Split shuffled inputs into thirds: to fit a teacher, to draw transfer sets, and to measure risks.

    The theorems need inputs that are independent of the teacher, so that it is fitted to a part of its own. If the
    weights of the teacher are given, there are two halves. `names` are the names of labels 0, 1, ….
    """
    if (labels is None) == (teacher is None):
        raise UserError("give either labels or the weights of a teacher")
    parts = 2 if labels is None else 3
    if len(x) < 2 * parts:
        raise UserError(f"{2 * parts} or more inputs are needed, to be split into {parts} parts, got {len(x)}")
    order = words(0, Stream.TRANSFER, 0, len(x)).argsort()
    held_out, pool, *own = (x.double()[part] for part in order.chunk(parts))
    if labels is None:
        assert teacher is not None
        return GivenTask(pool, teacher.double(), held_out)
    if len(labels) != len(x):
        raise UserError(f"one label per input is needed ({len(x)}), got {len(labels)}")
    _two_classes(labels, names)
    seen = labels[order.chunk(parts)[2]]
    if len(seen.unique()) < 2:
        raise UserError(
            f"the {len(seen)} of {len(x)} inputs to which the teacher is fitted are all of one class: give more inputs "
            "of the other"
        )
    weights, right = logistic_regression(own[0], seen, names)
    return GivenTask(pool, weights, held_out, right)


def _two_classes(labels: Tensor, names: Sequence[object] | None) -> list[float]:
    """The two labels, in ascending order; `names` are the names of labels 0, 1, … in an error message."""
    found: list[float] = labels.unique().tolist()
    if len(found) != 2:
        called = found if names is None else [names[int(label)] for label in found]
        shown = ", ".join(map(str, called[:5])) + (", …" if len(called) > 5 else "")
        kinds = "1 class" if len(called) == 1 else f"{len(called)} classes"
        raise UserError(f"labels must have two classes, got {kinds} ({shown})")
    return found


def _newton(signed: np.ndarray, ridge: float) -> tuple[np.ndarray, float]:
    """Minimise mean log(1 + exp(−zᵀw)) + ridge/2 ‖w‖² by damped Newton steps; w and the length of the gradient."""
    samples, size = signed.shape

    def value(w: np.ndarray) -> float:
        return float(np.logaddexp(0, -(signed @ w)).mean() + ridge / 2 * w @ w)

    w, now = np.zeros(size), math.log(2)
    slope = np.zeros(size)
    for _ in range(100):
        wrong = np.exp(-np.logaddexp(0, signed @ w))
        slope = -(signed.T @ wrong) / samples + ridge * w
        if np.linalg.norm(slope) <= 1e-14:
            break
        hessian = (signed * (wrong * (1 - wrong))[:, None]).T @ signed / samples + ridge * np.eye(size)
        step = np.linalg.solve(hessian, slope)
        scale = 1.0
        while (after := value(w - scale * step)) > now - 1e-4 * scale * (slope @ step) and scale > 1e-10:
            scale /= 2
        if not after < now:
            # The change is below the precision of the loss: take full steps while they reduce the gradient.
            there = w - step
            wrong = np.exp(-np.logaddexp(0, signed @ there))
            if not np.linalg.norm(-(signed.T @ wrong) / samples + ridge * there) < 0.9 * np.linalg.norm(slope):
                break
            scale, after = 1.0, min(now, value(there))
        w, now = w - scale * step, after
    return w, float(np.linalg.norm(slope))


def _column(seeds: Sequence[int]) -> Tensor:
    """Seeds that broadcast against the indices of inputs."""
    return torch.tensor(list(seeds)).unsqueeze(-1)


def _samples(count: int, first: int) -> Tensor:
    if not 1 <= count < _DIRECTIONS:
        raise UserError(f"a set can have from 1 to {_DIRECTIONS - 1:,} inputs, got {count}")
    return first + torch.arange(count)
