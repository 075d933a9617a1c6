"""Pull of a teacher node on a student node on spherically symmetric inputs (Tian 2019, theorem 6, secs. 5.2 and 8.14).

E[x z_k f*_j] = (s²/2π) ‖w*_j‖ [(π − θ) ŵ*_j + sin θ ŵ_k], where s² is the variance of every input and θ the angle
between the two. The printed formula has a further factor ‖w_k‖, which cannot be right: z_k is a gate, and scaling w_k
does not change it. For leaky ReLU of slope c it is (1 − c)² times that, plus c s² w*_j, because
σ_c(u) = (1 − c) σ(u) + c u, and likewise for z.
"""

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from scipy import stats
from torch import Tensor

from understudy._errors import UserError
from understudy._random import Stream, normal, uniform
from understudy.nets import Population
from understudy.nets.activation import activate, gate
from understudy.theory.result import Finding, Hypothesis, above, at_least, at_most, result

Inputs = Literal["normal", "sphere"]
CHANCE = 2 * float(stats.norm.sf(4))
"""Probability that a normal number is more than 4 standard errors off."""
_ROUNDING = 1e-12
_ROWS = 2_048
"""Samples that are added up at a time, few enough for the cache."""
_PASSING = 300
"""Expected number of samples that pass both nodes from which their mean is nearly normal."""
COMPONENTS = ("along", "across", "outside")
"""Along w*, orthogonal to it in the plane of both on the student's side, and out of that plane."""


class PullComparison(NamedTuple):
    """Sample mean of x z_k f*_j, closed form, and the standard error that their difference should have."""

    mean: Float[Tensor, "student teacher in"]
    closed: Float[Tensor, "student teacher in"]
    error: Float[Tensor, "student teacher in"]
    passing: Float[Tensor, "student teacher"]
    """Expected number of samples that pass both nodes."""

    @property
    def off(self) -> Float[Tensor, "student teacher in"]:
        """Difference in standard errors; 0 where it is rounding, as for opposite nodes, which pass nothing."""
        difference = (self.mean - self.closed).abs()
        rounding = _ROUNDING * self.closed.nan_to_num(0.0).abs().amax()
        return torch.where(difference <= rounding, 0.0, difference / self.error)


class SampledPulls(NamedTuple):
    """Monte Carlo estimates for pairs of a teacher and a student node, in units of s²‖w*‖."""

    theta: Float[Tensor, "pair"]
    closed: Float[Tensor, "pair component"]
    mean: Float[Tensor, "pair component"]
    error: Float[Tensor, "pair component"]


def angle(a: Float[Tensor, "*#shape in"], b: Float[Tensor, "*#shape in"]) -> Float[Tensor, "*shape"]:
    """Angle between two vectors from 0 to π, as precise near both ends as in the middle; NaN where one is zero."""
    a, b = (v / v.norm(dim=-1, keepdim=True) for v in (a, b))
    return 2 * torch.atan2((a - b).norm(dim=-1), (a + b).norm(dim=-1))


def pull(
    teacher: Float[Tensor, "*net teacher in"],
    student: Float[Tensor, "*net student in"],
    variance: float | Tensor = 1.0,
    slope: float = 0.0,
) -> Float[Tensor, "*net student teacher in"]:
    """E[x z_k f*_j] of every pair for spherically symmetric inputs of a given variance; NaN for zero weights."""
    theirs, ours = teacher.unsqueeze(-3), student.unsqueeze(-2)
    theta = angle(theirs, ours).unsqueeze(-1)
    length = theirs.norm(dim=-1, keepdim=True)
    bent = (math.pi - theta) * theirs + theta.sin() * length * ours / ours.norm(dim=-1, keepdim=True)
    return variance * ((1 - slope) ** 2 / (2 * math.pi) * bent + slope * theirs)


def compare_pull(
    teacher: Float[Tensor, "teacher in"],
    student: Float[Tensor, "student in"],
    x: Float[Tensor, "sample in"],
    slope: float = 0.0,
) -> PullComparison:
    """Compare the mean over x with the closed form for the variance of x.

    The difference for one sample is ‖x‖² (u z f*(u) − closed/d), u its direction: given the lengths, its standard error
    is known. An error estimated from the samples would be far too small where few of them pass both gates.
    """
    samples, dim = x.shape
    mean = _weighted_sums(teacher, student, x, slope) / samples
    closed, square = pull(teacher, student, 1.0, slope), pull_square(teacher, student, slope)
    lengths = torch.einsum("si,si->s", x, x)
    spread = (square / (dim * (dim + 2)) - closed.square() / dim**2).clamp_min(0)
    error = (lengths.square().sum() * spread).sqrt() / samples
    passing = samples * (math.pi - angle(teacher.unsqueeze(0), student.unsqueeze(1))) / (2 * math.pi)
    return PullComparison(mean, closed * lengths.mean() / dim, error, passing)


def _weighted_sums(
    teacher: Float[Tensor, "teacher in"],
    student: Float[Tensor, "student in"],
    x: Float[Tensor, "sample in"],
    slope: float,
) -> Float[Tensor, "student teacher in"]:
    """Σ z_k f*_j x over the samples, of each pair, by the samples that pass the teacher node."""
    sums = x.new_zeros(len(student), len(teacher), x.shape[1])
    for some in x.split(_ROWS):
        z, strength = gate(some @ student.T, slope).to(x.dtype), activate(some @ teacher.T, slope)
        for j, weight in enumerate(strength.T):
            passing = weight.nonzero().flatten()
            sums[:, j] += (z[passing] * weight[passing].unsqueeze(1)).T @ some[passing]
    return sums


def pull_square(
    teacher: Float[Tensor, "*net teacher in"], student: Float[Tensor, "*net student in"], slope: float = 0.0
) -> Float[Tensor, "*net student teacher in"]:
    """E[(x z_k f*_j)²] of every component for standard normal x, by integrals over the angles that both nodes pass.

    For leaky ReLU of slope c it is (1 − c²)² times that, plus c² E[x² (w*ᵀx)²].
    """
    theirs, ours = teacher.unsqueeze(-3), student.unsqueeze(-2)
    theta = angle(theirs, ours).unsqueeze(-1)
    length = theirs.norm(dim=-1, keepdim=True)
    along = (theirs / length).expand(*theta.shape[:-1], -1)
    across = ours - (ours * along).sum(-1, keepdim=True) * along
    across = (across / across.norm(dim=-1, keepdim=True)).nan_to_num(0.0)
    open_, twice, four = math.pi - theta, (2 * theta).sin(), (4 * theta).sin()
    cos2 = open_ / 2 + twice / 4
    cos4, cos3_sin, cos2_sin2 = 3 * open_ / 8 + twice / 4 - four / 32, theta.sin() ** 4 / 4, open_ / 8 + four / 32
    # In the plane E ρ⁴ = 8; out of it x² is independent, and E ρ² = 2.
    inside = 8 * (cos4 * along**2 + 2 * cos3_sin * along * across + cos2_sin2 * across**2)
    outside = 2 * cos2 * (1 - along**2 - across**2)
    every = 1 + 2 * along**2
    return length**2 * ((1 - slope**2) ** 2 * (inside + outside) / (2 * math.pi) + slope**2 * every)


def sample_pulls(
    dim: int, seeds: Sequence[int], samples: int, inputs: Inputs = "normal", std: float = 1.0, slope: float = 0.0
) -> SampledPulls:
    """Draw one pair per seed, at a uniform angle from 0 to π and of random plane and lengths, and estimate its pull."""
    each = [_sample_pull(dim, seed, samples, inputs, std, slope) for seed in seeds]
    return SampledPulls(*(torch.stack(parts) for parts in zip(*each, strict=True)))


def _sample_pull(dim: int, seed: int, samples: int, inputs: Inputs, std: float, slope: float) -> tuple[Tensor, ...]:
    step = 2 * dim + (inputs == "sphere")
    theta, *lengths = uniform(seed, Stream.TEACHER_OUTPUT, step, 3).unbind()
    theta, (theirs, ours) = math.pi * theta, (torch.exp(2 * length - 1) for length in lengths)
    frame = torch.linalg.qr(normal(seed, Stream.TEACHER, step, 3 * dim).reshape(dim, 3)[:, : min(dim, 3)])[0].T
    teacher = theirs * frame[0]
    student = ours * (theta.cos() * frame[0] + theta.sin() * frame[1])
    x = draw_inputs(seed, step, samples, dim, inputs, std)
    strength = gate(x @ student, slope) * activate(x @ teacher, slope) / (std**2 * theirs)
    values = (x @ frame.T) * strength.unsqueeze(1)
    closed = frame @ pull(teacher[None], student[None], 1.0, slope)[0, 0] / theirs
    gap = torch.full((3 - len(frame),), torch.nan, dtype=x.dtype)
    parts = closed, values.mean(0), values.std(0) / math.sqrt(samples)
    return theta, *(torch.cat([part, gap]) for part in parts)


def draw_inputs(seed: int, step: int, samples: int, dim: int, inputs: Inputs, std: float) -> Float[Tensor, "sample in"]:
    """Draw normal inputs, or inputs of one length, with variance `std`² per coordinate."""
    x = normal(seed, Stream.EVALUATION, step, samples * dim).reshape(samples, dim)
    return std * (x if inputs == "normal" else math.sqrt(dim) * x / x.norm(dim=1, keepdim=True))


def largest_by_chance(comparisons: int) -> float:
    """Standard errors that the largest of several differences exceeds as rarely as one difference exceeds 4."""
    return float(stats.norm.isf(CHANCE / 2 / max(comparisons, 1)))


@result(
    "S1 theorem 6",
    title="pull of a teacher node on a student node",
    statement="On spherically symmetric inputs, the mean of x over the samples on which a student node is active, "
    "weighted by a teacher node's activation, lies between the weights of the two and follows from their angle.",
    measured="whether lengths, biases and inputs satisfy the hypotheses, and the largest difference between the "
    "closed form and the mean over the samples, in standard errors",
    subject="dynamics",
)
def spherical_pull(teacher: Population, student: Population, x: Float[Tensor, "sample in"]) -> list[Finding]:
    """Compare the mean over x with the closed form for every pair of nodes of the lowest layers."""
    if len(x) < 2:
        raise UserError(
            "theorem 6 of Tian 2019 compares a mean with its standard error and needs 2 samples or more, got 1"
        )
    theirs, ours = teacher.layers[0], student.layers[0]
    shortest = min(float(layer.weight[0].norm(dim=1).min()) for layer in (theirs, ours))
    lengths = above("shortest weights", shortest, change="leave nodes without weights out")
    hypotheses = (lengths, _biases(theirs, ours), *_spherical(x, theirs, ours))
    found = compare_pull(theirs.weight[0], ours.weight[0], x, student.slope)
    compared = found.passing >= _PASSING
    off = torch.where(compared, found.off.amax(-1), 0.0)
    differences = int(compared.sum()) * x.shape[1]
    k, j = divmod(int(off.argmax()), off.shape[1])
    most, theta = largest_by_chance(differences), math.degrees(float(angle(theirs.weight[0, j], ours.weight[0, k])))
    return [
        Finding(
            result="S1 theorem 6",
            about=f"lowest layer, {off.shape[0]} student and {off.shape[1]} teacher nodes",
            hypotheses=hypotheses,
            conclusion="E[x z f*] = s²‖w*‖/2π [(π − θ) ŵ* + sin θ ŵ]"
            + (f" (1 − c)² + c s² w*, c = {student.slope:g}," if student.slope else "")
            + " for every pair, between w and w*",
            measured=f"largest of {differences:,} differences {float(off.max()):.1f} standard errors, student node {k} "
            f"and teacher node {j}, {theta:.0f}° apart; by chance at most {most:.1f}. {int(compared.sum()):,} of "
            f"{off.numel():,} pairs are compared"
            if differences
            else f"too few samples: no pair is passed by {_PASSING} of them",
            agrees=bool(off.max() <= most) if differences else None,
        )
    ]


def _biases(*layers: tuple[Tensor, Tensor | None]) -> Hypothesis:
    each = [
        (bias[0].abs() / weight[0].norm(dim=1)).nan_to_num(0.0, posinf=math.inf).max()
        for weight, bias in layers
        if bias is not None
    ]
    most = max(map(float, each), default=0.0)
    return Hypothesis(
        "largest bias over the length of its weights",
        f"{most:.3g}",
        "0",
        most == 0,
        "set the biases of the lowest layer of both networks to zero; the closed form has none",
    )


def _spherical(x: Tensor, *layers: tuple[Tensor, Tensor | None]) -> list[Hypothesis]:
    """Test whether the directions of x are uniform on the sphere, whatever the lengths.

    Mean and covariance of the directions (chi-squared: their entries are independent in the limit); then, along each
    input and each node, their mean, mean size and mean square, weighted by squared length as in the theorem.
    """
    samples, dim = x.shape
    length = x.norm(dim=1, keepdim=True)
    u = (x / length).masked_fill_(length == 0, 0.0)
    covariance = u.T @ u / samples
    eigenvalues = torch.linalg.eigvalsh(x.T @ x / samples)
    eigenvalues = eigenvalues / eigenvalues.mean()
    mean = float(samples * dim * u.mean(0).square().sum())
    uneven = float(samples * dim * (dim + 2) / 2 * (covariance - torch.eye(dim, dtype=x.dtype) / dim).square().sum())
    chances = (
        float(stats.chi2.sf(mean, dim)),
        float(stats.chi2.sf(uneven, (dim + 2) * (dim - 1) / 2)) if dim > 1 else 1.0,
    )
    nodes = torch.cat([weight[0][weight[0].norm(dim=1) > 0] for weight, _ in layers])
    axes = torch.cat([torch.eye(dim, dtype=x.dtype), nodes / nodes.norm(dim=1, keepdim=True)])
    size = length.square()
    absolute = math.exp(math.lgamma(dim / 2) - math.lgamma((dim + 1) / 2)) / math.sqrt(math.pi)
    off, expectations = 0.0, (0.0, absolute, 1 / dim)
    sums = x.new_zeros(3, len(axes))
    for some, weight in zip(u.split(_ROWS), size.split(_ROWS), strict=True):
        seen = some @ axes.T
        for total, values, expected in zip(sums, (seen, seen.abs(), seen.square()), expectations, strict=True):
            total += (weight * (values - expected)).sum(0)
    seconds = (1 / dim, 1 / dim, 3 / (dim * (dim + 2)))
    for total, expected, second in zip(sums, expectations, seconds, strict=True):
        moved = (total / samples).abs().max()
        error = (size.square().sum() * (second - expected**2)).sqrt() / samples
        off = max(off, float(moved / error) if moved > _ROUNDING * size.mean() else 0.0)
    most = largest_by_chance(3 * len(axes))
    change = "give inputs whose direction is uniform, such as us.data.Gaussian"
    rare = f"a chance of at least {CHANCE:.1g}, four standard errors"
    lopsided = float(x.mean(0).norm() / size.mean().sqrt())
    return [
        at_least(
            "inputs are centred",
            chances[0],
            CHANCE,
            shown=f"mean {lopsided:.2g} of their length, which sampling explains with a chance of {chances[0]:.2g}",
            requirement=rare,
            change="subtract the mean of the inputs, or " + change,
        ),
        at_least(
            "inputs vary alike in all directions",
            chances[1],
            CHANCE,
            shown=f"second moments {float(eigenvalues[0]):.3g} to {float(eigenvalues[-1]):.3g} of their mean, which "
            f"sampling explains with a chance of {chances[1]:.2g}",
            requirement=rare,
            change="whiten the inputs, or " + change,
        ),
        at_most(
            "moments along inputs and nodes",
            off,
            most,
            shown=f"{off:.1f} standard errors off those of a sphere",
            requirement=f"at most {most:.1f} among {3 * len(axes):,}",
            change=change,
        ),
    ]
