"""Exact specialization at zero gradient: Tian 2020, theorem 1 (two layers) and Tian 2019, theorem 4 (more layers).

Both assume infinitely many samples: the gradient vanishes on an open set. Finite data cannot show that, so the gradient
is also evaluated where the proof uses it: at a point of the teacher node's boundary, on the active side of the observer
and between samples, and on either side of it, nearer than any other boundary. If it vanishes there too, the kinks on
that boundary cancel, and some other node has the same boundary.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from understudy.papers.specialization.theory.induced import TooManyBoundaries, induced_planes
from understudy.papers.specialization.theory.sampled import describe_nearest
from understudy.theory.boundaries import Planes, concatenate, plane_distances
from understudy.theory.isolation import kink_bound
from understudy.theory.pair_geometry import PairGeometry, per_teacher_node
from understudy.theory.result import Finding, Hypothesis, above, at_most, result

SAME = 1e-8
"""Distance up to which two boundaries count as equal."""
_ZERO = 16.0
"""Multiple of the rounding error up to which a gradient is zero to machine precision."""
_OBSERVERS = 8
"""Number of students that are tried as observers, those with the smallest gradients first."""
_SIDE = 32
"""Samples on either side whose connecting segments are tried for a point of the boundary."""


def _finding(pair: PairGeometry, j: int, name: str, deep: bool) -> Finding:
    """The j-th teacher node with a boundary: if it is observed at zero gradient, a student has the same boundary."""
    conclusion = "a student has the same boundary, in one orientation or the other"
    measured = describe_nearest(pair, j)
    best: tuple[Hypothesis, ...] = ()
    for k in pair.student_nodes[pair.largest_gradients[pair.student_nodes].argsort()][:_OBSERVERS].tolist():
        hypotheses = _hypotheses(pair, j, k, deep)
        if not best or sum(h.holds for h in hypotheses) > sum(h.holds for h in best):
            best = hypotheses
        if all(h.holds for h in hypotheses):
            break
    if not best:
        none = Hypothesis("an observer", "no student has a boundary", "at least one student", False, "other students")
        return Finding(name, pair.name(j), (none,), conclusion, measured)
    return Finding(
        result=name,
        about=pair.name(j),
        hypotheses=best,
        conclusion=conclusion,
        measured=measured,
        agrees=bool((pair.student_distances(j).eps <= SAME).any()),
        eps=SAME if all(h.holds for h in best) else None,
    )


def _hypotheses(pair: PairGeometry, j: int, k: int, deep: bool) -> tuple[Hypothesis, ...]:
    """Hypotheses for teacher node j and observer k, up to the first that fails before the boundary is examined."""
    one = pair.teacher_plane(j)
    signed, active = pair.teacher_sample_distances[:, j], pair.active_rows[k]
    upper, lower = active & (signed > 0), active & (signed < 0)
    above_it, below_it = int(upper.sum()), int(lower.sum())
    seen = Hypothesis(
        "observed",
        f"student node {k} is active at {above_it:,} samples on one side and {below_it:,} on the other",
        "both sides",
        bool(above_it and below_it),
        "data that crosses this boundary where a student is active",
    )
    if not seen.holds:
        return (seen,)
    excess = float(pair.gradient_excess[k])
    zero = at_most(
        "zero gradient at every sample that the observer sees",
        excess,
        _ZERO,
        shown=f"at most {float(pair.largest_gradients[k]):.3g}, {excess:.2g} times its rounding error",
        requirement=f"at most {_ZERO:g} times",
        change="train to machine precision in float64; theorems 3 to 5 of Tian 2020 allow small gradients",
    )
    if not zero.holds:
        return seen, zero
    try:
        at, room, rivals = _boundary_point(pair, j, pair.x[upper][:_SIDE], pair.x[lower][:_SIDE], deep)
    except TooManyBoundaries as error:
        return seen, zero, error.hypothesis
    alpha = float(pair.alpha(k, j, at.unsqueeze(0))[0]) * pair.slope_jump
    half = room / 2
    points = torch.stack((at, at + half * one.normal[0], at - half * one.normal[0]))
    beside = float(pair.gradient(points).upper[:, k].max())
    bound = kink_bound(alpha, half, 0.0)
    nearest = float(plane_distances(one, rivals).eps.min()) if len(rivals) else 1.0
    return (
        seen,
        zero,
        Hypothesis(
            "zero gradient on the boundary and beside it",
            f"at most {beside:.3g} within {half:.3g} of a point between samples",
            f"below |α| · {half:.3g} / 5 = {bound:.3g}, with α = {alpha:.3g}",
            beside < bound,
            "a student whose fan-out is not orthogonal to this node's, and more training",
            beside / bound if bound > 0 else float("inf"),
        ),
        above(
            "no other node of the teacher, nor of a higher layer, on the same boundary",
            nearest,
            SAME,
            shown=f"the nearest at ε = {nearest:.3g}",
            change="a teacher without two nodes on one boundary",
        ),
    )


def _boundary_point(
    pair: PairGeometry, j: int, upper: Float[Tensor, "upper in"], lower: Float[Tensor, "lower in"], deep: bool
) -> tuple[Float[Tensor, "in"], float, Planes]:
    """Among the points where segments between samples cross the boundary, the farthest from other boundaries.

    Returned with its distance from them, and the boundaries of nodes other than the students of the lowest layer.
    """
    one = pair.teacher_plane(j)
    up, down = (one.distances(side)[:, 0].abs() for side in (upper, lower))
    share = (up.unsqueeze(1) / (up.unsqueeze(1) + down)).unsqueeze(2)
    points = (upper.unsqueeze(1) + share * (lower - upper.unsqueeze(1))).flatten(0, 1)
    points = points - one.distances(points) * one.normal
    rivals = pair.teacher_planes.select(pair.other_teachers(j))
    rivals = concatenate(rivals, induced_planes(pair, j, points)) if deep else rivals
    others = concatenate(pair.student_planes, rivals)
    others = others.select((plane_distances(one, others).eps > SAME).nonzero().flatten())
    room = others.distances(points).abs().amin(1) if len(others) else points.new_ones(len(points))
    which = int(room.argmax())
    return points[which], float(room[which]), rivals


_ZERO_GRADIENT = (
    "If a student observes a teacher node's boundary, their α is not zero, and the gradient is zero at every input, "
    "then some student has exactly the same boundary."
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
@per_teacher_node
def theorem_1(pair: PairGeometry, j: int) -> Finding:
    """Certify a node of a two-layer teacher."""
    return _finding(pair, j, "S0 theorem 1", False)


@result(
    "S1 theorem 4",
    title="Exact specialization of the lowest layer, more layers",
    statement=_ZERO_GRADIENT
    + " In deep networks this holds inside one linear region of the layers above, with α of that region.",
    measured="as for S0 theorem 1, counting the boundaries that higher layers induce around the point",
    subject="teacher node",
    networks="deep",
)
@per_teacher_node
def theorem_4_deep(pair: PairGeometry, j: int) -> Finding:
    """Certify a node of the lowest layer of a deep teacher."""
    return _finding(pair, j, "S1 theorem 4", True)
