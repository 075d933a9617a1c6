"""Where the gradient is zero, specialization is exact: theorem 1 of S0 for two layers, theorem 4 of S1 for more.

Both speak of infinitely many samples: the gradient vanishes on an open set. Finite data cannot show that, so beside the
samples the gradient is looked at where the proof looks: at a point of the teacher node's boundary, inside the active
side of the observer and between samples, and on either side of it, nearer than any other boundary. If it vanishes there
too, kinks on that boundary cancel, and some other node has its boundary in the same place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from understudy.nets import Population
from understudy.papers.specialization.theory.induced import MOST, TooMany, induced
from understudy.papers.specialization.theory.sampled import measured_nearest
from understudy.theory.boundaries import Planes, apart
from understudy.theory.isolation import kink
from understudy.theory.result import Finding, Hypothesis, result
from understudy.theory.scene import Scene, joined

SAME = 1e-8
"""Boundaries nearer than this are one."""
_ZERO = 16.0
"""Times the rounding error: a gradient below it is zero to machine precision."""
_OBSERVERS = 8
"""Students that are tried, those of the smallest gradients first."""
_SIDE = 32
"""Samples on either side whose connecting lines are tried for a point of the boundary."""


class _Spot(NamedTuple):
    """A point of the boundary, and how far from it other boundaries stay."""

    at: Float[Tensor, "in"]
    room: float
    rivals: Planes
    """Boundaries that are no student's of the lowest layer."""


def exactly(sight: Scene, j: int, name: str, deep: bool) -> Finding:
    """The j-th teacher node with a boundary: observed, gradient zero, hence a student on the same boundary."""
    about, one = f"teacher node {int(sight.nodes[j])}", sight.one(j)
    conclusion = "a student has the same boundary, in one orientation or the other"
    measured, near = measured_nearest(sight, j), sight.nearest(j)
    agrees = bool((near.eps <= SAME).any())
    best: tuple[int, tuple[Hypothesis, ...]] | None = None
    for k in sight.students[sight.flattest[sight.students].argsort()][:_OBSERVERS].tolist():
        hypotheses = _hypotheses(sight, j, k, one, deep)
        held = sum(h.holds for h in hypotheses)
        if best is None or held > best[0]:
            best = held, hypotheses
        if held == len(hypotheses):
            break
    if best is None:
        nobody = Hypothesis("an observer", "no student has a boundary", "one student at least", False, "other students")
        return Finding(name, about, (nobody,), conclusion, measured, None)
    whole = all(h.holds for h in best[1])
    return Finding(name, about, best[1], conclusion, measured, agrees, SAME if whole else None)


def _hypotheses(sight: Scene, j: int, k: int, one: Planes, deep: bool) -> tuple[Hypothesis, ...]:
    signed, active = one.distances(sight.x)[:, 0], sight.active[:, k]
    above, below = (active & (signed > 0)).sum(), (active & (signed < 0)).sum()
    seen = Hypothesis(
        "observed",
        f"student node {k} is active at {int(above):,} samples on one side and {int(below):,} on the other",
        "both sides",
        bool(above and below),
        "data that crosses this boundary where a student is active",
    )
    if not seen.holds:
        return (seen,)
    excess = float(sight.excess[k])
    zero = Hypothesis(
        "zero gradient at every sample that the observer sees",
        f"at most {float(sight.flattest[k]):.3g}, {excess:.2g} times its rounding error",
        f"at most {_ZERO:g} times",
        excess <= _ZERO,
        "train to machine precision in float64; theorems 3 to 5 of S0 take small gradients",
        max(excess / _ZERO, 1.0),
    )
    if not zero.holds:
        return seen, zero
    try:
        spot = _spot(sight, j, k, one, deep)
    except TooMany as error:
        return seen, zero, Hypothesis("boundaries that can be counted", str(error), f"at most {MOST:,}", False)
    alpha = float(sight.alpha(k, j, spot.at.unsqueeze(0))[0]) * sight.kinked
    half = spot.room / 2
    points = torch.stack((spot.at, spot.at + half * one.normal[0], spot.at - half * one.normal[0]))
    beside = float(sight.gradient(points).most[:, k].max())
    bound = kink(alpha, half, 0.0)
    nearest = float(apart(one, spot.rivals).eps.min()) if len(spot.rivals) else 1.0
    return (
        seen,
        zero,
        Hypothesis(
            "zero gradient on the boundary and beside it",
            f"at most {beside:.3g} within {half:.3g} of a point between samples",
            f"below |α| · {half:.3g} / 5 = {bound:.3g}, with α = {alpha:.3g}",
            beside < bound,
            "a student whose fan-out is not at right angles to this node's, and more training",
            beside / bound if bound > 0 else float("inf"),
        ),
        Hypothesis(
            "no other node of the teacher, nor of a higher layer, on the same boundary",
            f"the nearest at ε = {nearest:.3g}",
            f"above {SAME:g}",
            nearest > SAME,
            "a teacher without two nodes on one boundary",
        ),
    )


def _spot(sight: Scene, j: int, k: int, one: Planes, deep: bool) -> _Spot:
    """Of the points where lines between samples cross the boundary, that with most room around it."""
    signed = one.distances(sight.x)[:, 0]
    active = sight.active[:, k]
    upper = sight.x[active & (signed > 0)][:_SIDE]
    lower = sight.x[active & (signed < 0)][:_SIDE]
    up, down = (one.distances(side)[:, 0].abs() for side in (upper, lower))
    share = (up.unsqueeze(1) / (up.unsqueeze(1) + down)).unsqueeze(2)
    points = (upper.unsqueeze(1) + share * (lower - upper.unsqueeze(1))).flatten(0, 1)
    points = points - one.distances(points) * one.normal
    rivals = sight.theirs.some(sight.rest(j))
    rivals = joined(rivals, induced(sight, j, points)) if deep else rivals
    others = joined(sight.ours, rivals)
    others = others.some((apart(one, others).eps > SAME).nonzero().flatten())
    room = others.distances(points).abs().amin(1) if len(others) else points.new_ones(len(points))
    which = int(room.argmax())
    return _Spot(points[which], float(room[which]), rivals)


_ZERO_GRADIENT = (
    "If a teacher node's boundary is seen by a student, α of the two is not zero, and the gradient is zero at every "
    "input, then some student has exactly the same boundary."
)


@result(
    "S0 theorem 1",
    title="Exact specialization, two layers",
    statement=_ZERO_GRADIENT,
    measured="an observer, its gradient at all samples in units of its rounding error, and its gradient at a point of "
    "the boundary between samples and on either side of it; then the distance of the nearest student",
    subject="teacher node",
    networks="two layers",
)
def theorem_1(teacher: Population, student: Population, x: Float[Tensor, "sample in"]) -> Sequence[Finding]:
    """Every teacher node, at samples and at a point of its boundary."""
    sight = Scene(teacher, student, x)
    return [exactly(sight, j, "S0 theorem 1", False) for j in range(len(sight.theirs))]


@result(
    "S1 theorem 4",
    title="Exact specialization of the lowest layer, more layers",
    statement=_ZERO_GRADIENT
    + " In deep networks this holds inside one linear region of the layers above, with α of that region.",
    measured="as for S0 theorem 1, counting the boundaries that higher layers induce around the point",
    subject="teacher node",
    networks="deep",
)
def theorem_4_deep(teacher: Population, student: Population, x: Float[Tensor, "sample in"]) -> Sequence[Finding]:
    """The same in deep networks, inside one linear region."""
    sight = Scene(teacher, student, x)
    return [exactly(sight, j, "S1 theorem 4", True) for j in range(len(sight.theirs))]
