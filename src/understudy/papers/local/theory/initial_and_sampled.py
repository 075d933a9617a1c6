"""Theorems 5 and 6 of Zhou, Ge & Jin 2021, checked on given networks: random initial students, and sampled gradients.

Both have ε_0 of theorem 4, which no float64 resolves. What their proofs add to theorem 4 has explicit constants:

Lemma E.1. A random direction is within γ of a given line with probability p(γ) = I((d − 1)/2, ½; sin² γ), the
regularised incomplete beta function. Of m students, one is within γ of each of r teacher nodes with probability 1 − δ
if r (1 − p(γ))^m ≤ δ. Students of the lengths of their teacher nodes then have a loss of at most
2 (Σ‖w*_i‖)² sin²(γ/2), because | |w̄ᵀx| − |w̄*ᵀx| | is at most |(w̄ − w̄*)ᵀx|, and the lengths that minimise the loss have
no larger one.

Lemma F.1. |R(x)| is at most ‖x‖ S, S = max(Σ‖w_j‖², Σ‖w*_i‖), so that E‖∇L̂ − ∇L‖² ≤ 4 M S² d (d + 2)/N with N samples
and M = Σ‖w_j‖²; the printed proof has other constants. By Chebyshev the distance is at most ‖∇L‖/2 with probability
1 − δ if N ≥ 16 M S² d (d + 2)/(‖∇L‖² δ). The theorem asks for a larger N, at which this holds in all of its steps
together.
"""

import math

import torch
from jaxtyping import Float
from scipy.special import betainc, betaincinv, betaln
from torch import Tensor

from understudy._errors import UserError
from understudy.papers.local.theory import gaussian, starts
from understudy.papers.local.theory.descent import rate_bound
from understudy.papers.local.theory.gaussian.pairs import units
from understudy.papers.local.theory.geometry import log_threshold
from understudy.papers.local.theory.lemmas import local_finding, local_result
from understudy.papers.local.theory.setting import LocalSetting, moments
from understudy.theory.result import Finding, Hypothesis, at_least

FAILURE = 1e-3
"""Probability δ with which the statements may fail."""
MOST_FITTED = 500
"""Largest number of random students whose lengths are fitted."""


@local_result(
    "S4 theorem 5",
    about="random initial students",
    expected="enough random students have a small loss, from which descent converges",
    title="random initialisation",
    statement="Enough students of random directions whose lengths minimise the loss have, with probability 1 − δ, an "
    "initial loss of at most ε_0, from which gradient descent converges by theorem 4. Their number is exponential in "
    "the dimension d; with directions in the span of the teacher, estimated from samples, it is exponential in r.",
    measured="the numbers of students that are enough, by lemma E.1 with all constants and δ = 0.1%; the initial loss "
    "that the lemma guarantees for as many students as there are, and that of one draw",
    subject="dynamics",
)
def random_start(setting: LocalSetting) -> Finding:
    """Compare the number of students with lemma E.1, and the loss of a random start with the loss it guarantees."""
    teachers, (count, dim) = setting.teachers, setting.students.shape[1:]
    total, r = float(setting.lengths.sum()), len(setting.lengths)
    power = float(log_threshold(teachers))
    needed, within = (log_students_needed(power, total, r, size) for size in (dim, min(r, dim)))
    guaranteed = guaranteed_loss(total, r, dim, count)
    over = needed - math.log10(count)
    enough = Hypothesis(
        name="number of students",
        value=f"{count:,}",
        requirement=f"at least 10^{needed:.1f}, or 10^{within:.1f} in the span of the teacher, for an initial loss of "
        f"10^{power:.1f}, ε_0 with its open constant set to 1",
        holds=over <= 0,
        change="add students, or start near the teacher by other means; theorem 4 needs only a small initial loss",
        factor=1.0 if over <= 0 else 10**over if over < 300 else math.inf,
    )
    conclusion = (
        f"with probability {1 - FAILURE:g} as many random students have an initial loss of at most {guaranteed:.3g}, "
        "and of at most ε_0 if there are enough, from which descent converges"
    )
    if count > MOST_FITTED:
        return local_finding(setting, conclusion, f"more than {MOST_FITTED} students: not drawn", None, enough)
    try:
        drawn = float(gaussian.loss(starts.scatter(teachers, count, [1]).students, teachers))
    except UserError as error:
        return local_finding(setting, conclusion, f"not drawn: {error}", None, enough)
    measured = f"one draw of {count:,} random students has a loss of {drawn:.3g} of at most {guaranteed:.3g}"
    return local_finding(setting, conclusion, measured, drawn <= guaranteed, enough, amount=drawn, limit=guaranteed)


@local_result(
    "S4 theorem 6",
    about="the given samples as a batch",
    expected="a step of stochastic gradient descent lowers the loss as one of gradient descent does",
    title="convergence with samples",
    statement="Stochastic gradient descent with enough fresh samples in every batch has, with probability 1 − δ, a "
    "loss of order r w_max / (η t) after t steps from a loss below a threshold.",
    measured="the distance of the gradient on the given samples from the exact one, next to the bound of lemma F.1 "
    "with all constants and δ = 0.1%, and the decrease of the exact loss in a step on these samples",
    subject="dynamics",
)
def sampled_step(setting: LocalSetting) -> Finding:
    """Take one step at η₀ on the given samples, scaled to variance 1, and compare the exact loss before and after."""
    students, teachers = setting.students, setting.teachers
    count = len(setting.x)
    rate = float(rate_bound(teachers))
    loss, gradient = gaussian.loss_and_gradient(students, teachers)
    norm = float(gradient.norm())
    sampled = gradient_on_samples(students[0], teachers[0], setting.x / moments(setting.x).width)
    error, second = float((sampled - gradient[0]).norm()), sampled_error_bound(students[0], teachers[0])
    decrease = float(loss) - float(gaussian.loss(students - rate * sampled, teachers))
    least = rate * setting.kappa**2 / 4 * setting.loss**2
    bound = math.sqrt(second / (count * FAILURE))
    conclusion = (
        f"with probability {1 - FAILURE:g} ‖∇L̂ − ∇L‖ is at most {bound:.3g}, and with enough samples a step at η = "
        f"{rate:.3g} decreases the loss by at least η κ² L²/4 = {least:.2g}"
    )
    measured = (
        f"‖∇L̂ − ∇L‖ is {error:.3g}, ‖∇L‖ is {norm:.3g}; a step at η = {rate:.3g} on these samples decreases the loss "
        f"by {decrease:.3g}"
    )
    enough = at_least(
        "samples per batch",
        count,
        math.ceil(min(4 * second / (norm**2 * FAILURE), 1e300)) if norm > 0 else 10**300,
        shown=f"{count:,}",
        requirement=f"at least {4 * second / (norm**2 * FAILURE) if norm > 0 else math.inf:.3g}, for one step",
        change="larger batches",
    )
    hypotheses = setting.loss_hypothesis(measured), enough
    return local_finding(
        setting, conclusion, measured, decrease >= least and error <= bound, *hypotheses, amount=error, limit=bound
    )


def log_share_within(log_sine: float, dim: int) -> float:
    """Compute log₁₀ of the share of directions whose angle to a line has at most this log₁₀ sine."""
    if dim == 1 or log_sine >= 0:
        return 0.0
    share = float(betainc((dim - 1) / 2, 0.5, 10 ** (2 * log_sine))) if log_sine > -100 else 0.0
    if share > 1e-250:
        return math.log10(share)
    first = (dim - 1) / 2  # the leading term of the incomplete beta function
    return 2 * first * log_sine - math.log10(first) - float(betaln(first, 0.5)) / math.log(10)


def log_students_needed(power: float, total: float, nodes: int, dim: int) -> float:
    """Compute log₁₀ of the number of random students that have a loss of at most 10^power, by lemma E.1.

    Args:
        power: log₁₀ of the loss.
        total: Σ‖w*_i‖.
        nodes: Number r of teacher nodes.
        dim: Dimension in which directions are drawn.
    """
    half = (power - math.log10(2)) / 2 - math.log10(total)  # log₁₀ sin(γ/2)
    if half >= math.log10(math.sin(math.pi / 4)):
        return 0.0
    cosine = math.sqrt(1 - 10 ** (2 * half)) if half > -100 else 1.0
    share = log_share_within(math.log10(2) + half + math.log10(cosine), dim)
    attempts = math.log(nodes / FAILURE)
    if share < -8:
        return math.log10(attempts) - share
    if share == 0:
        return 0.0
    return max(0.0, math.log10(attempts / -math.log1p(-(10**share))))


def guaranteed_loss(total: float, nodes: int, dim: int, students: int) -> float:
    """Compute the loss that random students have at most, with probability 1 − `FAILURE`, by lemma E.1."""
    if dim == 1:
        return 0.0
    share = -math.expm1(math.log(FAILURE / nodes) / students)
    sine_squared = float(betaincinv((dim - 1) / 2, 0.5, share))
    half = (1 - math.sqrt(max(0.0, 1 - sine_squared))) / 2  # sin²(γ/2)
    return 2 * total**2 * half


def gradient_on_samples(
    students: Float[Tensor, "student in"], teachers: Float[Tensor, "teacher in"], x: Float[Tensor, "sample in"]
) -> Float[Tensor, "student in"]:
    """Compute the gradient of ½ mean R² over given samples."""
    ours, directions, lengths = x @ students.T, *units(students)
    residual = ours.abs() @ lengths - (x @ teachers.T).abs().sum(-1)
    pulls = (ours.sign() * residual.unsqueeze(-1)).T @ x / len(x)
    return lengths.unsqueeze(-1) * (pulls + (pulls * directions).sum(-1, keepdim=True) * directions)


def sampled_error_bound(students: Float[Tensor, "student in"], teachers: Float[Tensor, "teacher in"]) -> float:
    """Bound N E‖∇L̂ − ∇L‖² for N samples by 4 M S² d (d + 2) (lemma F.1)."""
    mass, total = float(students.square().sum()), float(torch.linalg.vector_norm(teachers, dim=-1).sum())
    dim = students.shape[-1]
    return 4 * mass * max(mass, total) ** 2 * dim * (dim + 2)
