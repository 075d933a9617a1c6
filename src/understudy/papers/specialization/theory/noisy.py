"""Noisy recovery, theorem 5 of S1 with the constants of its lemmas 5 and 6: small gradients on a whole region.

If |g_k| ≤ ε on a region in which the boundary of teacher node j has a ball of radius r on the active side of k, then
some boundary is aligned with j by sin θ ≤ K M ε/|α| and |b − b'| ≤ M2 ε/|α|. The volume of the ball in which other
boundaries come nearer than q = 5ε/|α| gives M = 10 V_{d−2}(r − q) / V_{d−1}(r − q), and M2 = 2 M0 M K + 5 with M0 the
largest ‖x‖. The paper's exponent δ is not needed: it cancels between M and ε^{1−δ}, and δ = 0 is the best choice.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from understudy.nets import Population
from understudy.papers.specialization.theory.sampled import measured_nearest, up
from understudy.theory.boundaries import Planes, apart
from understudy.theory.result import Finding, Hypothesis, result
from understudy.theory.scene import Scene


class Recovery(NamedTuple):
    """The guarantee of lemma 6: sin θ ≤ `sin` and |b − b'| ≤ `gap`."""

    sin: float
    gap: float


def recovery(eps: float, alpha: float, radius: float, dim: int, count: int, largest: float) -> Recovery:
    """Lemmas 5 and 6 of S1 with δ = 0; infinite where the ball is too small for the gradient, or in one dimension."""
    room = radius - 5 * eps / alpha if alpha > 0 else 0.0
    if room <= 0 or dim < 2:
        return Recovery(math.inf, math.inf)
    m = 10 * math.exp(_log_volume(dim - 2) - _log_volume(dim - 1)) / room
    return Recovery(count * m * eps / alpha, (2 * largest * m * count + 5) * eps / alpha)


def _log_volume(dim: int) -> float:
    """ln of the volume of the ball of radius 1."""
    return dim / 2 * math.log(math.pi) - math.lgamma(dim / 2 + 1)


@result(
    "S1 theorem 5",
    title="Noisy recovery",
    statement="If the gradient is at most ε at every input of a region through which a teacher node's boundary "
    "passes, seen by a student, then some student's boundary is within a multiple of ε/α of it.",
    measured="ε, α and the radius of a ball on the boundary as estimated from the samples, and the guarantee that "
    "they would give. It never certifies: no finite data set shows that a gradient is small at every input",
    subject="teacher node",
    networks="two layers",
)
def theorem_5(teacher: Population, student: Population, x: Float[Tensor, "sample in"]) -> Sequence[Finding]:
    """Every teacher node: what would follow if the gradient were as small everywhere as at the samples."""
    sight = Scene(teacher, student, x)
    return [_finding(sight, j) for j in range(len(sight.theirs))]


def _finding(sight: Scene, j: int) -> Finding:
    one, about = sight.one(j), f"teacher node {int(sight.nodes[j])}"
    largest = float(torch.linalg.vector_norm(sight.x, dim=1).max())
    best = Recovery(math.inf, math.inf)
    told = "no student is active beside the boundary", 0.0, 0.0
    for k, radius in zip(sight.students.tolist(), _radii(sight, one, largest).tolist(), strict=True):
        alpha = abs(float(sight.alpha(k, j, sight.x[:1])[0])) * sight.kinked
        eps = float(sight.flattest[k])
        found = recovery(eps, alpha, radius, sight.x.shape[1], len(sight.ours) + len(sight.theirs), largest)
        if found.sin < best.sin:
            best, told = found, (f"student node {k}", eps, radius)
    near = sight.nearest(j)
    hypotheses = (
        Hypothesis(
            "a gradient that is small at every input of a region",
            f"{told[0]}: at most {told[1]:.3g}, seen at {len(sight.x):,} samples only",
            "at every input; finite data cannot show it",
            False,
            "see theorems 3 and 4 of S0, which take finite data",
        ),
        Hypothesis(
            "a ball on the boundary, on the active side of an observer",
            f"radius {told[2]:.3g}",
            "above 5ε/|α|, in two dimensions or more",
            math.isfinite(best.sin),
            "train longer, or data that surrounds this boundary",
        ),
        Hypothesis(
            "a guarantee that says something", f"sin θ ≤ {best.sin:.3g}", "below 1", best.sin < 1, "train longer"
        ),
    )
    within = bool(((near.sin <= best.sin) & (near.gap <= best.gap)).any())
    conclusion = f"a student has nearly its boundary: sin θ ≤ {up(best.sin)}, bias gap ≤ {up(best.gap)}"
    return Finding("S1 theorem 5", about, hypotheses, conclusion, measured_nearest(sight, j), within)


def _radii(sight: Scene, one: Planes, largest: float) -> Float[Tensor, "student"]:
    """Of the samples' feet on the boundary that each observer sees, the largest ball in its active side and the data.

    The data's region is taken to be the ball of its largest sample.
    """
    feet = sight.x - one.distances(sight.x) * one.normal
    inside = largest - torch.linalg.vector_norm(feet, dim=1, keepdim=True)
    room = sight.ours.distances(feet) / apart(one, sight.ours).sin.clamp_min(1e-300)
    return torch.minimum(inside, room).amax(0).clamp_min(0.0)
