"""How fast linear students learn (S3 sec 5.3.2, D.4): p(θ), the risk bounds, risks and monotonicity of learners."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from understudy.errors import UserError
from understudy.papers.distillation.theory.soft_labels import angle, unsigned_angle
from understudy.papers.distillation.theory.tasks import AngleTask, GivenTask

Alignment = Callable[[Tensor], Tensor]
"""p(θ) = P[ᾱ(w*, x) ≥ θ] (eq. 5.17), or a bound on it from above, of angles from 0 to π/2."""
_GRID, _ZOOMS = 513, 8
"""Angles looked at together, and how often the best of them and its neighbours are looked into."""
_CUTS = 33
"""Values of ε/‖ŵ‖ that theorem D.4 is tried with."""
_NUMBERS = 1 << 24
"""Students times inputs that are looked at together."""


class Band(NamedTuple):
    """p(θ) from samples, within `width` of the truth at all θ at once with the asked confidence."""

    angles: Float[Tensor, "sample"]
    """ᾱ(w*, x) of the samples, in order."""
    width: float

    def p(self, theta: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        below = torch.searchsorted(self.angles, theta.to(self.angles).contiguous())
        return 1 - below.double() / len(self.angles)

    def low(self, theta: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        return (self.p(theta) - self.width).clamp_min(0.0)

    def high(self, theta: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """A bound given this in place of p holds with the asked confidence, whatever β it chooses."""
        return (self.p(theta) + self.width).clamp_max(1.0)


def band(x: Float[Tensor, "sample in"], teacher: Float[Tensor, "in"], confidence: float = 0.95) -> Band:
    """p(θ) of independent inputs, with the band of Dvoretzky, Kiefer and Wolfowitz (Massart's constant)."""
    _check_confidence(confidence)
    if not len(x):
        raise UserError("0 inputs were given; allowed is 1 or more")
    angles = unsigned_angle(x, teacher.to(x)).double().sort().values
    return Band(angles, math.sqrt(math.log(2 / (1 - confidence)) / (2 * len(x))))


class Bound(NamedTuple):
    """A bound on the expected transfer risk, and the β that gives it."""

    risk: Float[Tensor, "size"]
    beta: Float[Tensor, "size"]


def risk_bound(p: Alignment, counts: Sequence[int], dim: int, *, slack: float = 0.0, printed: bool = False) -> Bound:
    """Theorem 5.3 (D.4 with a slack) at the best β, of transfer sets of each size: 0 from n = d on.

    The proof ends in p(β) + (1 − p(β)) p(π/2 − β)^n, which is taken; the statement, which `printed` asks for, leaves
    the factor 1 − p(β) out. `slack` is the angle within which students are of ŵ (`angle_slack`).
    """
    _check_counts(counts)
    if not 0 <= slack < math.pi / 2:
        raise UserError(f"a slack of {slack} was given; allowed is an angle from 0 to below π/2")
    n = torch.tensor(list(counts), dtype=torch.float64).unsqueeze(-1)

    def bound(beta: Float[Tensor, "size grid"]) -> Float[Tensor, "size grid"]:
        hard, untaught = p(beta), p((math.pi / 2 - slack - beta).clamp_min(0.0)).pow(n)
        return hard + (untaught if printed else (1 - hard) * untaught)

    last = math.pi / 2 - slack
    low, high = torch.zeros_like(n), torch.full_like(n, last)
    unit = torch.linspace(0, 1, _GRID, dtype=torch.float64)
    best = torch.full((len(n), 1), math.inf, dtype=torch.float64)
    where = torch.zeros_like(best)
    for _ in range(_ZOOMS):
        grid = low + unit * (high - low)
        value, index = bound(grid).min(-1, keepdim=True)
        better = value < best
        best, where = torch.where(better, value, best), torch.where(better, grid.gather(-1, index), where)
        step = (high - low) / (_GRID - 1)
        low, high = (where - step).clamp_min(0.0), (where + step).clamp_max(last)
    known = n.squeeze(-1) >= dim
    # With a slack the student only nears ŵ, but from n = d on theorem 5.2 says that it gets there.
    return Bound(torch.where(known, 0.0, best.squeeze(-1)), where.squeeze(-1))


def angle_slack(relative: float, *, printed: bool = False) -> float:
    """The largest α(ŵ, w) with ‖w − ŵ‖ ≤ ε, given ε/‖ŵ‖: arcsin(ε/‖ŵ‖), attained.

    Lemma D.3's √(2πε/‖ŵ‖), which `printed` asks for, is true but of the wrong order. Theorem D.4 takes ε/‖ŵ‖ for a
    constant; ŵ depends on the transfer set, so that its expectation needs the largest that occurs.
    """
    if not 0 <= relative <= (0.5 if printed else 1.0):
        raise UserError(
            f"an error of {relative} in parts of ‖ŵ‖ was given; allowed is a number from 0 to {0.5 if printed else 1:g}"
        )
    return math.sqrt(2 * math.pi * relative) if printed else math.asin(relative)


class DeepBound(NamedTuple):
    """Theorem D.4 over sets whose students end at distances of their own from ŵ."""

    risk: float
    slack: float
    """The angle that all but some sets' students are within of ŵ."""
    beyond: float
    """Those sets' share, which is added."""


def deep_risk_bound(
    p: Alignment, count: int, dim: int, relative: Float[Tensor, "net"], *, printed: bool = False
) -> DeepBound:
    """Theorem D.4 for sets of one size, given ε/‖ŵ‖ of many of them, infinite where nothing is known of the student.

    The theorem takes ε/‖ŵ‖ for a constant. It is not one: ŵ may be as short as one likes. So the sets with more than
    some value count as errors, and the best value is taken; `printed` takes lemma D.3's angle and leaves 1 − p(β) out.
    """
    _check_counts([count])
    if not len(relative):
        raise UserError("0 transfer sets were given; allowed is 1 or more")
    if count >= dim and bool(relative.isfinite().all()):
        return DeepBound(0.0, 0.0, 0.0)
    best = DeepBound(1.0, 0.0, 1.0)
    most = math.pi / 8 if printed else 1.0
    for value in relative.double().quantile(torch.linspace(0, 1, _CUTS, dtype=torch.float64)).unique().tolist():
        if not value < most:
            break
        slack, beyond = angle_slack(value, printed=printed), float((relative > value).double().mean())
        risk = float(risk_bound(p, [count], dim, slack=slack, printed=printed).risk) + beyond
        best = min(best, DeepBound(risk, slack, beyond))
    return best


def polynomial_bound(kappa: float, counts: Sequence[int]) -> Float[Tensor, "size"]:
    """Corollary 5.2, (1 + (log n)^κ)/n^κ where p(θ) ≤ (1 − 2θ/π)^κ: right as printed, at β = (π/2) n^(−1/n)."""
    if not (math.isfinite(kappa) and kappa >= 0):
        raise UserError(f"κ = {kappa} was given; allowed is a finite number of at least 0")
    _check_counts(counts)
    n = torch.tensor(list(counts), dtype=torch.float64)
    return (1 + n.log().pow(kappa)) / n.pow(kappa)


def large_margin_bound(p: Alignment, margin: float, counts: Sequence[int]) -> Float[Tensor, "size"]:
    """Corollary 5.1, γ^n with γ = p(margin) where no input is within `margin` of the teacher's boundary."""
    _check_counts(counts)
    beta = torch.tensor([margin, math.pi / 2 - margin], dtype=torch.float64)
    gamma, beyond = p(beta).tolist() if 0 < margin < math.pi / 2 else (1.0, 1.0)
    if beyond > 0 or gamma >= 1:
        raise UserError(
            f"corollary 5.1 needs a margin above 0 that no input is within, and was given {margin:g}, with a share of "
            f"{beyond:.3g} within: choose a task with a margin, or theorem 5.3"
        )
    return torch.tensor(list(counts), dtype=torch.float64).mul(math.log(gamma) if gamma else -math.inf).exp()


class Estimate(NamedTuple):
    """A mean, between bounds of the asked confidence."""

    mean: float
    low: float
    high: float
    sets: int
    """Independent transfer sets."""


def mean_risk(risks: Float[Tensor, "net"], confidence: float = 0.95) -> Estimate:
    """The expected risk over transfer sets from each set's exact one, by the central limit; all 0 by exact trials."""
    count = _check_estimate(risks, confidence)
    mean = float(risks.mean())
    if not float(risks.max()) > 0 or count == 1:
        return Estimate(mean, 0.0, 1 - (1 - confidence) ** (1 / count) if mean == 0 else 1.0, count)
    wide = _quantile(confidence) * float(risks.std()) / math.sqrt(count)
    return Estimate(mean, max(0.0, mean - wide), min(1.0, mean + wide), count)


def errors(
    w: Float[Tensor, "*net in"], teacher: Float[Tensor, "in"], held_out: Float[Tensor, "sample in"]
) -> Bool[Tensor, "*net sample"]:
    """Where each student decides otherwise than the teacher, 1{wᵀx ≥ 0} both."""
    right = held_out @ teacher.to(held_out) >= 0
    flat = w.reshape(-1, w.shape[-1])
    rows = max(1, _NUMBERS // max(1, len(held_out)))
    parts = [right != (held_out @ flat[i : i + rows].to(held_out).T >= 0).T for i in range(0, len(flat), rows)]
    return torch.cat(parts).view(*w.shape[:-1], len(held_out))


def held_out_risk(wrong: Bool[Tensor, "net sample"], confidence: float = 0.95) -> Estimate:
    """The expected risk over transfer sets and inputs from errors of all sets on the same held-out inputs.

    Both vary: the variances of the sets' means and of the inputs' means add up. Where nothing went wrong, by exact
    trials of as many pairs as share neither.
    """
    sets, samples = wrong.shape
    _check_estimate(wrong, confidence)
    share = wrong.double()
    mean = float(share.mean())
    if mean in (0.0, 1.0) or min(sets, samples) < 2:
        rest = 1 - (1 - confidence) ** (1 / min(sets, samples))
        return Estimate(mean, 0.0 if mean < 1 else 1 - rest, rest if mean == 0 else 1.0, sets)
    variance = float(share.mean(1).var()) / sets + float(share.mean(0).var()) / samples
    wide = _quantile(confidence) * math.sqrt(variance)
    return Estimate(mean, max(0.0, mean - wide), min(1.0, mean + wide), sets)


def measured_risk(
    task: AngleTask | GivenTask, w: Float[Tensor, "net in"], confidence: float = 0.95
) -> tuple[Float[Tensor, "net"], Estimate]:
    """The transfer risk of each student, exact for an angle task and on the held-out inputs of another; and its mean.

    Students of compact sets have fewer weights than there are dimensions, and the same angle with the teacher.
    """
    if isinstance(task, AngleTask):
        risks = task.risk(angle(w, task.teacher[: w.shape[-1]]))
        return risks, mean_risk(risks, confidence)
    wrong = errors(w, task.teacher, task.held_out)
    return wrong.double().mean(-1), held_out_risk(wrong, confidence)


def nearer(
    fewer: Float[Tensor, "*net in"], more: Float[Tensor, "*net in"], teacher: Float[Tensor, "in"]
) -> Bool[Tensor, "*net"]:
    """Where students of sets and one input more are nearer to the teacher, by ᾱ, than those of the sets (eq. 5.34)."""
    return unsigned_angle(more, teacher.to(more)) < unsigned_angle(fewer, teacher.to(fewer))


def monotonicity(
    fewer: Float[Tensor, "net in"],
    more: Float[Tensor, "net in"],
    teacher: Float[Tensor, "in"],
    confidence: float = 0.95,
) -> Estimate:
    """m(w) of eq. 5.34: how often one input more brings a learner nearer to its teacher, with Wilson's interval.

    `fewer` are its students of sets of n inputs, `more` those of the same sets and one input more.
    """
    return share(nearer(fewer, more, teacher), confidence)


def share(true: Bool[Tensor, "net"], confidence: float = 0.95) -> Estimate:
    """The probability of what was true of some sets, with Wilson's interval."""
    count = _check_estimate(true, confidence)
    mean, z = float(true.double().mean()), _quantile(confidence)
    middle, wide = mean + z * z / (2 * count), z * math.sqrt((mean * (1 - mean) + z * z / (4 * count)) / count)
    low, high = ((middle + sign * wide) / (1 + z * z / count) for sign in (-1, 1))
    return Estimate(mean, max(0.0, low), min(1.0, high), count)


def _quantile(confidence: float) -> float:
    """Of both sides of the normal."""
    return math.sqrt(2) * float(torch.erfinv(torch.tensor(confidence, dtype=torch.float64)))


def _check_counts(counts: Sequence[int]) -> None:
    if not counts or min(counts) < 1:
        raise UserError(f"sets of {list(counts)} inputs were asked for; allowed is 1 or more")


def _check_confidence(confidence: float) -> None:
    if not 0 < confidence < 1:
        raise UserError(f"a confidence of {confidence} was asked for; allowed is a number between 0 and 1")


def _check_estimate(values: Tensor, confidence: float) -> int:
    _check_confidence(confidence)
    if not values.numel():
        raise UserError("0 transfer sets were given; allowed is 1 or more")
    return len(values)
