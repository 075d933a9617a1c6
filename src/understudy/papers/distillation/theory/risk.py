"""Transfer risk of linear students: p(θ), bounds, estimates and monotonicity (Phuong 2021, sec. 5.3.2 and D.4)."""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from understudy._errors import UserError
from understudy._numbers import number
from understudy.papers.distillation.theory.soft_labels import angle, unsigned_angle
from understudy.papers.distillation.theory.tasks import AngleTask, GivenTask

Alignment = Callable[[Tensor], Tensor]
"""p(θ) = P[ᾱ(w*, x) ≥ θ] for θ from 0 to π/2 (Phuong 2021, eq. 5.17), or an upper bound on it."""
_GRID, _ZOOMS = 513, 8
"""Points of a grid of angles, and number of times the grid is refined around its minimum."""
_CUTS = 33
"""Number of values of ε/‖ŵ‖ with which theorem D.4 is evaluated."""
_NUMBERS = 1 << 24
"""Number of students times inputs that are evaluated at once."""


class Band(NamedTuple):
    """Estimate of p(θ) from samples, within `width` of the true function at all θ with the given confidence."""

    angles: Float[Tensor, "sample"]
    """ᾱ(w*, x) of the samples, in ascending order."""
    width: float

    def p(self, theta: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        below = torch.searchsorted(self.angles, theta.to(self.angles).contiguous())
        return 1 - below.double() / len(self.angles)

    def low(self, theta: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        return (self.p(theta) - self.width).clamp_min(0.0)

    def high(self, theta: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Upper end of the band: a risk bound computed from it holds with the given confidence, for any choice of β."""
        return (self.p(theta) + self.width).clamp_max(1.0)


def band(x: Float[Tensor, "sample in"], teacher: Float[Tensor, "in"], confidence: float = 0.95) -> Band:
    """Estimate p(θ) from independent inputs, with the Dvoretzky-Kiefer-Wolfowitz band (Massart's constant)."""
    _validate_confidence(confidence)
    if not len(x):
        raise UserError("1 or more inputs are needed to estimate p(θ), got 0")
    angles = unsigned_angle(x, teacher.to(x)).double().sort().values
    return Band(angles, math.sqrt(math.log(2 / (1 - confidence)) / (2 * len(x))))


def risk_bound(p: Alignment, count: int, dim: int, *, slack: float = 0.0, printed: bool = False) -> float:
    """Bound the expected transfer risk by Phuong 2021, theorem 5.3 (D.4 with a slack) at the best β; 0 for n ≥ d.

    The proof gives p(β) + (1 − p(β)) p(π/2 − β)^n. The statement of the theorem, used with `printed`, omits the factor
    1 − p(β). `slack` is the largest angle between a student and ŵ (see `angle_slack`).
    """
    n = _count(count)
    if not 0 <= slack < math.pi / 2:
        raise UserError(f"slack must be an angle from 0 to below π/2, got {slack}")
    if count >= dim:  # with a slack the student is only near ŵ, but for n ≥ d it converges to ŵ by theorem 5.2
        return 0.0

    def bound(beta: Float[Tensor, "grid"]) -> Float[Tensor, "grid"]:
        hard, untaught = p(beta), p((math.pi / 2 - slack - beta).clamp_min(0.0)).pow(n)
        return hard + (untaught if printed else (1 - hard) * untaught)

    last = math.pi / 2 - slack
    low, high = torch.zeros_like(n), torch.full_like(n, last)
    unit = torch.linspace(0, 1, _GRID, dtype=torch.float64)
    best, where = torch.full_like(n, math.inf), low
    for _ in range(_ZOOMS):
        grid = low + unit * (high - low)
        value, index = bound(grid).min(-1, keepdim=True)
        if value < best:
            best, where = value, grid[index]
        step = (high - low) / (_GRID - 1)
        low, high = (where - step).clamp_min(0.0), (where + step).clamp_max(last)
    return float(best)


def angle_slack(relative: float, *, printed: bool = False) -> float:
    """Largest angle α(ŵ, w) with ‖w − ŵ‖ ≤ ε, which is arcsin(ε/‖ŵ‖), given `relative` = ε/‖ŵ‖.

    The bound √(2πε/‖ŵ‖) of Phuong 2021, lemma D.3, used with `printed`, is valid but of a larger order.
    """
    if not 0 <= relative <= (0.5 if printed else 1.0):
        raise UserError(f"the relative error ε/‖ŵ‖ must be from 0 to {0.5 if printed else 1:g}, got {relative}")
    return math.sqrt(2 * math.pi * relative) if printed else math.asin(relative)


class DeepBound(NamedTuple):
    """Bound on the risk of deep students, whose distance from ŵ differs between sets."""

    risk: float
    slack: float
    """Largest angle between a student and ŵ, over all sets but those `beyond`."""
    beyond: float
    """Share of sets with a larger angle, which is added to the risk."""


def deep_risk_bound(
    p: Alignment, count: int, dim: int, relative: Float[Tensor, "net"], *, printed: bool = False
) -> DeepBound:
    """Bound the risk of deep students (Phuong 2021, theorem D.4) from ε/‖ŵ‖ of many transfer sets of one size.

    The theorem treats ε/‖ŵ‖ as a constant, but ŵ depends on the set and can be arbitrarily short. Here sets above a
    threshold count as errors, and the threshold with the smallest bound is taken. ε/‖ŵ‖ is infinite where nothing is
    known of the student. `printed` uses the angle of lemma D.3 and omits the factor 1 − p(β).
    """
    if not len(relative):
        raise UserError("1 or more transfer sets are needed, got 0")
    if count >= dim and bool(relative.isfinite().all()):
        return DeepBound(0.0, 0.0, 0.0)
    best = DeepBound(1.0, 0.0, 1.0)
    most = math.pi / 8 if printed else 1.0
    for value in relative.double().quantile(torch.linspace(0, 1, _CUTS, dtype=torch.float64)).unique().tolist():
        if not value < most:
            break
        slack, beyond = angle_slack(value, printed=printed), float((relative > value).double().mean())
        risk = risk_bound(p, count, dim, slack=slack, printed=printed) + beyond
        best = min(best, DeepBound(risk, slack, beyond))
    return best


def polynomial_bound(kappa: float, count: int) -> float:
    """Bound (1 + (log n)^κ)/n^κ for p(θ) ≤ (1 − 2θ/π)^κ, from β = (π/2) n^(−1/n) (Phuong 2021, corollary 5.2)."""
    if not (math.isfinite(kappa) and kappa >= 0):
        raise UserError(f"κ must be finite and at least 0, got {kappa}")
    n = _count(count)
    return float((1 + n.log().pow(kappa)) / n.pow(kappa))


def large_margin_bound(p: Alignment, margin: float, count: int) -> float:
    """Bound γ^n, γ = p(margin), if no input is within `margin` of the teacher's boundary (Phuong 2021, cor. 5.1)."""
    beta = torch.tensor([margin, math.pi / 2 - margin], dtype=torch.float64)
    gamma, beyond = p(beta).tolist() if 0 < margin < math.pi / 2 else (1.0, 1.0)
    if beyond > 0 or gamma >= 1:
        raise UserError(
            f"corollary 5.1 needs a margin above 0 without inputs, got {number(margin, 'g')} with a share of "
            f"{number(beyond)} inside: choose a task with a margin, or theorem 5.3"
        )
    return float(_count(count).mul(math.log(gamma) if gamma else -math.inf).exp())


class Estimate(NamedTuple):
    """A mean with its confidence interval."""

    mean: float
    low: float
    high: float


def mean_risk(risks: Float[Tensor, "net"], confidence: float = 0.95) -> Estimate:
    """Estimate the expected risk over transfer sets from the exact risk of each.

    The interval follows from the central limit theorem, or, if all risks are 0, from exact binomial trials.
    """
    count = _validate_estimate(risks, confidence)
    mean = float(risks.mean())
    if not float(risks.max()) > 0 or count == 1:
        return Estimate(mean, 0.0, 1 - (1 - confidence) ** (1 / count) if mean == 0 else 1.0)
    wide = _quantile(confidence) * float(risks.std()) / math.sqrt(count)
    return Estimate(mean, max(0.0, mean - wide), min(1.0, mean + wide))


def errors(
    w: Float[Tensor, "*net in"], teacher: Float[Tensor, "in"], held_out: Float[Tensor, "sample in"]
) -> Bool[Tensor, "*net sample"]:
    """Whether student and teacher, both 1{wᵀx ≥ 0}, disagree on each input."""
    right = held_out @ teacher.to(held_out) >= 0
    flat = w.reshape(-1, w.shape[-1])
    rows = max(1, _NUMBERS // max(1, len(held_out)))
    parts = [right != (held_out @ flat[i : i + rows].to(held_out).T >= 0).T for i in range(0, len(flat), rows)]
    return torch.cat(parts).view(*w.shape[:-1], len(held_out))


def held_out_risk(wrong: Bool[Tensor, "net sample"], confidence: float = 0.95) -> Estimate:
    """Estimate the expected risk over transfer sets and inputs, from errors of all sets on the same held-out inputs.

    The variances of the means over sets and over inputs are added. If there are no errors, the interval follows from
    exact binomial trials, as many as there are pairs that share neither set nor input.
    """
    sets, samples = wrong.shape
    _validate_estimate(wrong, confidence)
    share = wrong.double()
    mean = float(share.mean())
    if mean in (0.0, 1.0) or min(sets, samples) < 2:
        rest = 1 - (1 - confidence) ** (1 / min(sets, samples))
        return Estimate(mean, 0.0 if mean < 1 else 1 - rest, rest if mean == 0 else 1.0)
    variance = float(share.mean(1).var()) / sets + float(share.mean(0).var()) / samples
    wide = _quantile(confidence) * math.sqrt(variance)
    return Estimate(mean, max(0.0, mean - wide), min(1.0, mean + wide))


def measured_risk(
    task: AngleTask | GivenTask, w: Float[Tensor, "net in"], confidence: float = 0.95
) -> tuple[Float[Tensor, "net"], Estimate]:
    """Transfer risk of each student, and its mean: exact for an angle task, else on the held-out inputs.

    Students of compact sets have fewer weights than the task has dimensions, and the same angle with the teacher.
    """
    if isinstance(task, AngleTask):
        risks = task.risk(angle(w, task.teacher[: w.shape[-1]]))
        return risks, mean_risk(risks, confidence)
    wrong = errors(w, task.teacher, task.held_out)
    return wrong.double().mean(-1), held_out_risk(wrong, confidence)


def nearer(
    fewer: Float[Tensor, "*net in"], more: Float[Tensor, "*net in"], teacher: Float[Tensor, "in"]
) -> Bool[Tensor, "*net"]:
    """Whether students of sets with one more input have a smaller angle ᾱ to the teacher (Phuong 2021, eq. 5.34)."""
    return unsigned_angle(more, teacher.to(more)) < unsigned_angle(fewer, teacher.to(fewer))


def estimate_share(true: Bool[Tensor, "net"], confidence: float = 0.95) -> Estimate:
    """Estimate a probability from independent trials, with Wilson's interval.

    The monotonicity index m(w) is that of trials `nearer` (Phuong 2021, eq. 5.34).
    """
    count = _validate_estimate(true, confidence)
    mean, z = float(true.double().mean()), _quantile(confidence)
    middle, wide = mean + z * z / (2 * count), z * math.sqrt((mean * (1 - mean) + z * z / (4 * count)) / count)
    low, high = ((middle + sign * wide) / (1 + z * z / count) for sign in (-1, 1))
    return Estimate(mean, max(0.0, low), min(1.0, high))


def _quantile(confidence: float) -> float:
    """Two-sided quantile of the standard normal distribution."""
    return math.sqrt(2) * float(torch.erfinv(torch.tensor(confidence, dtype=torch.float64)))


def _count(count: int) -> Float[Tensor, "1"]:
    """Size of a transfer set as a tensor, so that powers are those of torch."""
    if count < 1:
        raise UserError(f"a transfer set needs 1 or more inputs, got {count}")
    return torch.tensor([count], dtype=torch.float64)


def _validate_confidence(confidence: float) -> None:
    if not 0 < confidence < 1:
        raise UserError(f"confidence must be between 0 and 1, got {confidence}")


def _validate_estimate(values: Tensor, confidence: float) -> int:
    _validate_confidence(confidence)
    if not values.numel():
        raise UserError("1 or more transfer sets are needed, got 0")
    return len(values)
