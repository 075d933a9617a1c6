"""Noisy recovery: small gradients on a whole region (Tian 2019, theorem 5, with the constants of lemmas 5 and 6).

If |g_k| ≤ ε on a region in which the boundary of teacher node j contains a ball of radius r on the active side of
student k, then some boundary is aligned with j by sin θ ≤ K M ε/|α| and |b − b'| ≤ M2 ε/|α|. The volume of the part of
the ball within q = 5ε/|α| of other boundaries gives M = 10 V_{d−2}(r − q) / V_{d−1}(r − q), and M2 = 2 M0 M K + 5 with
M0 the largest ‖x‖. The paper's exponent δ is not needed: it cancels between M and ε^{1−δ}, and δ = 0 is best.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from understudy.papers.specialization.theory.sampled import describe_nearest, round_up
from understudy.theory.boundaries import plane_distances
from understudy.theory.pair_geometry import PairGeometry, per_teacher_node
from understudy.theory.result import INFORMATIVE, Finding, Hypothesis, result

_ROWS = 2_048
"""Samples that are compared with all students at a time, few enough for the cache."""


class RecoveryGuarantee(NamedTuple):
    """Guarantee of lemma 6: sin θ ≤ `sin` and |b − b'| ≤ `gap`."""

    sin: float
    gap: float


def recovery(eps: float, alpha: float, radius: float, dim: int, count: int, largest: float) -> RecoveryGuarantee:
    """Guarantee of lemmas 5 and 6 with δ = 0; infinite if the ball is too small for the gradient, or if dim = 1."""
    room = radius - 5 * eps / alpha if alpha > 0 else 0.0
    if room <= 0 or dim < 2:
        return RecoveryGuarantee(math.inf, math.inf)
    m = 10 * math.exp(_log_volume(dim - 2) - _log_volume(dim - 1)) / room
    return RecoveryGuarantee(count * m * eps / alpha, (2 * largest * m * count + 5) * eps / alpha)


def _log_volume(dim: int) -> float:
    """Logarithm of the volume of the unit ball."""
    return dim / 2 * math.log(math.pi) - math.lgamma(dim / 2 + 1)


@result(
    "S1 theorem 5",
    title="Noisy recovery",
    statement="If the gradient is at most ε at every input of a region that a teacher node's boundary crosses and a "
    "student observes, then some student's boundary is within a multiple of ε/α of it.",
    measured="ε, α and the radius of a ball on the boundary as estimated from the samples, and the guarantee that "
    "they would give. It never certifies: no finite data set shows that a gradient is small at every input",
    subject="teacher node",
    networks="two layers",
)
@per_teacher_node
def theorem_5(pair: PairGeometry, j: int) -> Finding:
    """Compute the guarantee that would follow if the gradient were as small everywhere as at the samples."""
    largest, radii = pair.largest_norm, pair.remember("radii", lambda: _radii(pair))
    best = RecoveryGuarantee(math.inf, math.inf)
    observer, most, ball = "no student is active beside the boundary", 0.0, 0.0
    alphas = pair.alphas(j, pair.x[:1])[0]
    for k, radius in zip(pair.student_nodes.tolist(), radii[j].tolist(), strict=True):
        alpha = abs(float(alphas[k])) * pair.slope_jump
        eps = float(pair.largest_gradients[k])
        count = len(pair.student_planes) + len(pair.teacher_planes)
        found = recovery(eps, alpha, radius, dim=pair.x.shape[1], count=count, largest=largest)
        if found.sin < best.sin:
            best, observer, most, ball = found, f"student node {k}", eps, radius
    hypotheses = (
        Hypothesis(
            "a gradient that is small at every input of a region",
            f"{observer}: at most {most:.3g}, measured at {len(pair.x):,} samples only",
            "at every input; finite data cannot show it",
            False,
            "see theorems 3 and 4 of Tian 2020, which need only finite data",
        ),
        Hypothesis(
            "a ball on the boundary, on the active side of an observer",
            f"radius {ball:.3g}",
            "above 5ε/|α|, in two dimensions or more",
            math.isfinite(best.sin),
            "train longer, or give data that surrounds this boundary",
        ),
        Hypothesis(INFORMATIVE, f"sin θ ≤ {best.sin:.3g}", "below 1", best.sin < 1, "train longer"),
    )
    near = pair.student_distances(j)
    return Finding(
        result="S1 theorem 5",
        about=pair.name(j),
        hypotheses=hypotheses,
        conclusion=f"a student has nearly the same boundary: sin θ ≤ {round_up(best.sin)}, "
        f"bias gap ≤ {round_up(best.gap)}",
        measured=describe_nearest(pair, j),
        agrees=bool(((near.sin <= best.sin) & (near.gap <= best.gap)).any()),
    )


def _radii(pair: PairGeometry) -> Float[Tensor, "teacher student"]:
    """Radii of the largest balls on teacher nodes' boundaries, in a student's active side and in the data's region.

    Centres are the projections of the samples on the boundary; the region is the ball of the largest sample.
    """
    planes, ours = [pair.teacher_plane(j) for j in range(len(pair.teacher_planes))], pair.student_planes
    # Distances from students change along a teacher node's normal by a constant rate.
    turns = [(ours.normal @ one.normal[0]).unsqueeze(0) for one in planes]
    sines = [plane_distances(one, ours).sin.clamp_min(1e-300) for one in planes]
    most = pair.x.new_zeros(len(planes), len(ours))
    parts = (each.split(_ROWS) for each in (pair.x, pair.squared_norms, pair.teacher_sample_distances))
    for some, squares, away in zip(*parts, strict=True):
        beside = ours.distances(some)
        for j, one in enumerate(planes):
            d = away[:, j].unsqueeze(1)
            # ‖x − d n‖² with n·x = d − b.
            feet = (squares.unsqueeze(1) - d * (d - 2 * one.offset)).clamp_min(0.0).sqrt()
            room = torch.addmm(beside, d, turns[j], alpha=-1) / sines[j]
            most[j] = torch.maximum(most[j], torch.minimum(pair.largest_norm - feet, room).amax(0))
    return most
