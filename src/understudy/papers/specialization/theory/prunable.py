"""Unspecialised students are prunable: theorem 2 and corollary 1 of Tian 2020, with constants, at any gradient.

Take a student o and the samples on which it is active. There g_o = v_oᵀ(f* − f) is a sum of an affine function of the
input and, over boundaries s, of c_s σ(u_s), with unit weights u_s; for a boundary s that is no teacher node's,
c_s = −v_oᵀ S_s with S_s = Σ v_k ‖w̃_k‖ over the students k that have it. The part of σ(u_s) that neither affine
functions nor other boundaries explain has a root mean square a over these samples: |v_oᵀ S_s| ≤ rms(g_o) / a = e_o,
and ‖S_s‖ ≤ √q / σ_min for q observers, with σ_min the smallest singular value of their stacked v_o / e_o. At zero
gradient S_s = 0, as the paper states; it needs no open set of inputs, but samples that separate the nodes (a > 0).

Two things differ from the paper. Because σ(−u) is σ(u) minus a linear function, S_s includes students of both
orientations: for those on one ray alone the proof (C.5, by lemma 4, which allows opposite weights) does not hold. And
corollary 1 therefore leaves a linear function where an unaligned boundary has students on both of its sides.
"""

import math
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from understudy.measures import observers_on_both_sides, regular
from understudy.measures.observers import MIN_COUNT
from understudy.nets import Layer, Population, activate
from understudy.theory.boundaries import ALIGNED, hyperplane_eps, same_ray
from understudy.theory.pair_geometry import shared_pair
from understudy.theory.result import Finding, Hypothesis, above, at_least, result
from understudy.theory.unexplained import output_variance

CO_LINEAR = 1e-9
"""ε up to which two nodes share a boundary."""
RANK = 1e-9
"""Ratio of smallest to largest singular value above which fan-outs are independent."""
_SAMPLES = 3
"""Samples per column that suffice to separate columns; the bound holds for any number."""
_OBSERVERS = 50
"""Observers that suffice in addition to two per output, the strongest first; the bound holds for any number."""
_ROUNDING = 1e-6
_ROWS = 4_096
"""Samples that are compared with all nodes at a time."""


def co_linear(layer: Layer, eps: float = CO_LINEAR) -> Bool[Tensor, "net node node"]:
    """Whether two nodes share a boundary up to ε in either orientation, directly or through other nodes.

    A node without a boundary is alone.
    """
    return _transitive(hyperplane_eps(layer, layer) <= eps)


def on_one_ray(layer: Layer, eps: float = CO_LINEAR) -> Bool[Tensor, "net node node"]:
    """Whether [w̃, b] of two nodes lie on one ray, the meaning of co-linear in Tian 2020, sec. 4."""
    return _transitive(same_ray(layer, layer, eps))


def _transitive(near: Bool[Tensor, "net node node"]) -> Bool[Tensor, "net node node"]:
    labels = [connected_components(csr_array(each.numpy()), directed=False)[1] for each in near.cpu()]
    groups = torch.from_numpy(np.stack(labels)).to(near.device)
    return groups.unsqueeze(2) == groups.unsqueeze(1)


def group_sums(student: Population, groups: Bool[Tensor, "net node node"]) -> Float[Tensor, "net node out"]:
    """Σ v_k' ‖w̃_k'‖ over the nodes k' of each node's group, for two-layer networks (theorem 2)."""
    length = torch.linalg.vector_norm(student.layers[0].weight, dim=2)
    regular_fan_out = student.layers[1].weight.mT * length.unsqueeze(2)
    return torch.bmm(groups.to(regular_fan_out.dtype), regular_fan_out)


class Residuals(NamedTuple):
    """Contribution of each student node's group of co-linear nodes in one network, and what is proved about it."""

    nearest: Float[Tensor, "node"]
    """Distance (`hyperplane_eps`) to the nearest teacher boundary."""
    size: Float[Tensor, "node"]
    """‖Σ v_k' ‖w̃_k'‖‖ over its group."""
    largest: float
    """Largest size of a group that is aligned with a teacher node; of all groups if none is aligned."""
    observers: Float[Tensor, "node"]
    """Number of students that observe its boundary, with `MIN_COUNT` samples on either side."""
    smallest: Float[Tensor, "node"]
    """For an unaligned node: smallest of the C singular values of its observers' fan-outs, relative to the largest; 0
    for fewer than C observers."""
    separation: Float[Tensor, "node"]
    """For an unaligned node: smallest part of its activation that other nodes and affine functions do not explain,
    over the observers where this part is not 0; 0 if these are fewer than C."""
    bound: Float[Tensor, "node"]
    """For an unaligned node: upper bound of `size`; infinite where nothing follows."""
    contribution: Float[Tensor, "node"]
    """Root mean square over the samples of what its group adds to the output: on one ray, `size` times that of σ(u)."""
    strongest: float
    """Largest contribution of an aligned group; of all groups if no aligned group contributes."""
    contribution_bound: Float[Tensor, "node"]
    """Upper bound of `contribution` that follows from `bound`."""
    unit_rms: Float[Tensor, "node"]
    """Root mean square of σ(u) of its node with unit weights."""

    @property
    def unaligned(self) -> list[int]:
        """The nodes whose boundary is no teacher node's."""
        return (~(self.nearest <= ALIGNED)).nonzero().flatten().tolist()


def residuals(
    teacher: Population, student: Population, x: Float[Tensor, "sample in"], below: float = math.inf
) -> Residuals:
    """Apply theorem 2 in its finite form to one teacher and one student of two layers, in float64.

    Args:
        teacher: The teacher.
        student: The student.
        x: The samples.
        below: Contribution, relative to the strongest, above which nothing has to be proved about a node: where all
            unaligned nodes contribute more, none is bounded.
    """
    pair = shared_pair(teacher, student, x)
    return pair.remember(("residuals", below), lambda: _residuals(teacher, student, x, below))


def _residuals(teacher: Population, student: Population, x: Float[Tensor, "sample in"], share: float) -> Residuals:
    below, fan_out = student.layers[0], student.layers[1].weight[0].T
    groups = co_linear(below)
    size = torch.linalg.vector_norm(group_sums(student, groups)[0], dim=1)
    nearest = hyperplane_eps(below, teacher.layers[0])[0].amin(1)
    aligned = nearest <= ALIGNED
    ours = size[aligned]
    sides = [observers_on_both_sides(below, below, some) for some in x.split(_ROWS)]
    above, behind = (torch.stack(counts).sum(0) for counts in zip(*((s.above, s.below) for s in sides), strict=True))
    seen = (torch.minimum(above, behind) >= MIN_COUNT)[0]  # [observed node, observer]
    strength = torch.linalg.vector_norm(fan_out, dim=1)
    asked = strength.argsort(descending=True, stable=True)[: _OBSERVERS + 2 * fan_out.shape[1]]
    moments = _moments(student, x)
    contribution, linear = _contributions(student, groups, moments)
    strongest = contribution[aligned].max() if len(ours) else contribution.new_zeros(())
    strongest = strongest if strongest > 0 else contribution.max()
    bound, smallest, left = (torch.full_like(size, value) for value in (math.inf, 0.0, 0.0))
    asking = (~aligned & (contribution <= share * strongest)).nonzero().flatten().tolist()
    separation, gradient = _independence(teacher, student, x, asked) if asking else (left, left)
    for k in asking:
        of = seen[k, asked] & (separation[:, k] > 0)
        if int(of.sum()) < fan_out.shape[1]:
            continue
        stacked, left[k] = fan_out[asked[of]], separation[of, k].min()
        singular = torch.linalg.svdvals(stacked)
        smallest[k] = singular[-1] / singular[0] if singular[0] > 0 else 0.0
        if smallest[k] > RANK:
            # A larger limit remains valid, and no limit may be 0.
            limit = (gradient[of] / separation[of, k]).clamp_min(_ROUNDING**2 * float(strength.max())).unsqueeze(1)
            shares = stacked / limit
            if bool(shares.isfinite().all()):
                bound[k] = math.sqrt(len(limit)) / torch.linalg.svdvals(shares)[-1]
    # Infinity times the 0 of a node that is never active would be NaN.
    unit_rms = moments.ahead.sqrt()
    kinked = torch.where(bound < math.inf, bound * unit_rms, math.inf)
    return Residuals(
        nearest=nearest,
        size=size,
        largest=float((ours if len(ours) else size).max()),
        observers=seen.sum(1).double(),
        smallest=smallest,
        separation=left,
        bound=bound,
        contribution=contribution,
        strongest=float(strongest),
        contribution_bound=kinked + linear,
        unit_rms=unit_rms,
    )


class _Moments(NamedTuple):
    """Mean products over the samples, u being the distances from a node's boundary."""

    ahead: Float[Tensor, "node"]
    """E σ(u)²."""
    behind: Float[Tensor, "node"]
    """E σ(−u)²."""
    both: Float[Tensor, "node"]
    """E σ(u) σ(−u)."""
    linear: Float[Tensor, "node"]
    """E u²."""


def _moments(student: Population, x: Float[Tensor, "sample in"]) -> _Moments:
    sums = x.new_zeros(4, student.sizes[1])
    for some in x.split(_ROWS):
        u = _signed_distances(student.layers[0], some)
        one, other = activate(u, student.slope), activate(-u, student.slope)
        for total, terms in zip(sums, (one.square(), other.square(), one * other, u.square()), strict=True):
            total += terms.sum(0)
    return _Moments(*(sums / len(x)))


def _contributions(
    student: Population, groups: Bool[Tensor, "net node node"], moments: _Moments
) -> tuple[Float[Tensor, "node"], Float[Tensor, "node"]]:
    """Rms of what each node's group adds to the output, and of its linear part, which theorem 2 does not bound.

    With u the distances from a node's boundary, and fan-outs S on the node's own ray and S' on the opposite one
    the group adds S σ(u) + S' σ(−u); as σ(−u) is σ(u) − (1 + slope) u, this is also (S + S') σ(u) − (1 + slope) S' u.
    """
    ray = on_one_ray(student.layers[0])
    ahead = group_sums(student, ray & groups)[0]
    behind = group_sums(student, groups)[0] - ahead
    # Where no node is opposite, the two sums differ by rounding only.
    behind = torch.where((groups & ~ray)[0].any(1, keepdim=True), behind, 0.0)
    both = (ahead * behind).sum(1) * moments.both
    parts = (ahead, moments.ahead), (behind, moments.behind)
    alone = [torch.linalg.vector_norm(s, dim=1) * square.sqrt() for s, square in parts]
    contribution = (alone[0].square() + 2 * both + alone[1].square()).clamp_min(0.0).sqrt()
    return contribution, (1 + student.slope) * torch.linalg.vector_norm(behind, dim=1) * moments.linear.sqrt()


def _signed_distances(layer: Layer, x: Float[Tensor, "sample in"]) -> Float[Tensor, "sample node"]:
    """Signed distances to the boundaries of a layer's nodes; 0 for a node without a boundary."""
    units = regular(layer)
    return x @ units.weight[0].T + units.bias[0].nan_to_num(posinf=0.0)


def _independence(
    teacher: Population, student: Population, x: Float[Tensor, "sample in"], observers: Int[Tensor, "observer"]
) -> tuple[Float[Tensor, "observer node"], Float[Tensor, "observer"]]:
    """Rms of the part of σ(u_k) that the rest does not explain where each observer is active, and rms of g_o."""
    both = zip(_weight_and_bias(student.layers[0]), _weight_and_bias(teacher.layers[0]), strict=True)
    every = Layer(*(torch.cat(parts, 1) for parts in both))
    nodes, inputs = student.sizes[1], student.inputs
    # A boundary is one column, whichever of its nodes comes first.
    first = co_linear(every)[0].double().argmax(1)
    units = regular(every)
    active = shared_pair(teacher, student, x).active
    separation, gradient = x.new_zeros(len(observers), nodes), x.new_zeros(len(observers))
    for i, o in enumerate(observers.tolist()):
        rows = active[:, o].nonzero().flatten()[: _SAMPLES * (inputs + 1 + len(first))]
        some = x[rows]
        error = (teacher(some)[0] - student(some)[0]) @ student.layers[1].weight[0, :, o]
        gradient[i] = error.square().mean().sqrt() if len(rows) else 0.0
        sign = (some @ units.weight[0].T + units.bias[0]) > 0
        # Without samples on both sides a node is affine there, and already among the affine functions.
        there = (sign.any(0) & ~sign.all(0) & (first == torch.arange(len(first), device=x.device))).nonzero().flatten()
        kinked = activate(_signed_distances(every, some), student.slope)
        columns = torch.cat((some, torch.ones_like(some[:, :1]), kinked[:, there]), 1)
        if len(rows) < columns.shape[1]:
            continue
        left = torch.zeros(len(first), dtype=x.dtype, device=x.device)
        left[there] = _unexplained(columns)[inputs + 1 :]
        separation[i] = left[first[:nodes]]
    return separation, gradient


def _unexplained(columns: Float[Tensor, "row column"]) -> Float[Tensor, "column"]:
    """Rms of each column minus its projection on the others; 0 up to rounding where the others explain it."""
    scale = torch.linalg.vector_norm(columns, dim=0).clamp_min(torch.finfo(columns.dtype).tiny)
    triangle = torch.linalg.qr(columns / scale, mode="r").R
    eye = torch.eye(len(triangle), dtype=columns.dtype, device=columns.device)
    # The diagonal of (RᵀR)⁻¹ is one over the squared remainders.
    inverse = torch.linalg.solve_triangular(triangle, eye, upper=True)
    left = 1 / torch.linalg.vector_norm(inverse, dim=1)
    return torch.where(left > 1e-12, left, 0.0).nan_to_num(0.0) * scale / math.sqrt(len(columns))


def _weight_and_bias(layer: Layer) -> tuple[Tensor, Tensor]:
    return layer.weight, layer.weight.new_zeros(layer.weight.shape[:2]) if layer.bias is None else layer.bias


@result(
    "S0 theorem 2",
    title="Unspecialised student nodes are prunable",
    statement="At zero gradient, the fan-outs of the students that share a boundary which is no teacher node's sum to "
    "zero if C students with independent fan-outs observe that boundary; at a small gradient, the sum is small.",
    measured="the number of students that observe the boundary, the smallest singular value of their fan-outs, how "
    "well the samples separate the activations of different nodes, and the bound on the contribution of the group "
    "next to its measured contribution",
    subject="student node",
    networks="two layers",
)
def theorem_2(teacher: Population, student: Population, x: Float[Tensor, "sample in"]) -> list[Finding]:
    """Return one finding for each student whose boundary is no teacher node's."""
    found, outputs = residuals(teacher, student, x), student.sizes[-1]
    return [prunable_finding(k, found, outputs) for k in found.unaligned]


def prunable_finding(k: int, found: Residuals, outputs: int) -> Finding:
    """Apply theorem 2 to one unaligned student; amounts are relative to the strongest aligned group."""
    observers, separation = int(found.observers[k]), float(found.separation[k])
    size, bound, strongest = float(found.size[k]), float(found.bound[k]), found.strongest
    amount = float(found.contribution[k]) / strongest if strongest > 0 else 0.0
    limit = float(found.contribution_bound[k]) / strongest if strongest > 0 else math.inf
    hypotheses = (
        Hypothesis(
            "observers",
            f"{observers}",
            f"at least {outputs}, as many as outputs",
            observers >= outputs,
            "more students, or inputs on both sides of its boundary where others are active",
            outputs / max(observers, 1),
        ),
        above(
            "independent fan-outs",
            float(found.smallest[k]),
            RANK,
            shown=f"smallest singular value {float(found.smallest[k]):.1e} of the largest",
            change="fewer outputs than students have learned to distinguish",
        ),
        above(
            "samples that separate nodes",
            separation,
            shown=f"{separation:.1e} of its activation is no other node's",
            requirement=f"above 0 at {outputs} observers",
            change="more samples than inputs and nodes together where each observer is active",
        ),
    )
    return Finding(
        result="S0 theorem 2",
        about=f"student node {k}",
        hypotheses=hypotheses,
        conclusion=f"its group contributes at most {limit:.2g} of what the strongest aligned group does"
        if math.isfinite(limit)
        else "at zero gradient the fan-outs of its group would sum to zero",
        measured=f"{amount:.2g} of what the strongest aligned group contributes"
        if strongest > 0
        else "no node contributes anything",
        agrees=size <= bound * (1 + _ROUNDING) + _ROUNDING * found.largest if math.isfinite(bound) else None,
        amount=amount,
        limit=limit,
    )


def unaligned_share(teacher: Population, student: Population, x: Float[Tensor, "sample in"]) -> Float[Tensor, "net"]:
    """E‖Σ v_k f_k‖² over the students k without a teacher's boundary, as a share of the variance of the outputs f*."""
    alone = ~(hyperplane_eps(student.layers[0], teacher.layers[0]) <= ALIGNED).any(2)
    total = x.new_zeros(len(student))
    for some in x.split(_ROWS):
        (hidden,) = student.activations(some).hidden
        total += torch.bmm(hidden * alone.unsqueeze(1), student.layers[1].weight.mT).square().sum((1, 2))
    return total / len(x) / output_variance(teacher, x)


@result(
    "S0 corollary 1",
    title="All unspecialised student nodes together contribute nothing",
    statement="At zero gradient, if each boundary that is no teacher node's is observed by enough students, the "
    "students without a teacher's boundary add nothing to the output, or a linear function if some of them are "
    "opposite.",
    measured="the share of the output variance that is due to students without a teacher's boundary, next to the sum "
    "of the bounds of theorem 2 over their groups",
    subject="student node",
    networks="two layers",
)
def corollary_1(teacher: Population, student: Population, x: Float[Tensor, "sample in"]) -> list[Finding]:
    """Compare the share of unaligned students in the output with the sum of the bounds of theorem 2."""
    found = residuals(teacher, student, x)
    alone = ~(found.nearest <= ALIGNED)
    groups, rays = co_linear(student.layers[0])[0], on_one_ray(student.layers[0])[0]
    opposite = int((alone & (groups & ~rays).any(1)).sum())
    bounded = int((found.bound[alone] < math.inf).sum())
    first = groups.double().argmax(1) == torch.arange(len(groups), device=x.device)
    variance = float(output_variance(teacher, x))
    total = float((found.bound * found.unit_rms)[alone & first].sum())
    limit = total**2 / variance if variance > 0 else math.nan
    share, count = float(unaligned_share(teacher, student, x)), int(alone.sum())
    hypotheses = (
        at_least(
            "theorem 2 holds for each",
            bounded,
            count,
            shown=f"{bounded} of {count} unaligned students",
            requirement="all of them",
            change="see the hypotheses of theorem 2 for the students for which it does not hold",
        ),
        Hypothesis(
            "no two opposite",
            f"{opposite} unaligned students",
            "none",
            not opposite,
            "opposite students, [w, b] and [−w, −b], sum to a linear function",
        ),
    )
    return [
        Finding(
            result="S0 corollary 1",
            about=f"{count} of {len(alone)} student nodes",
            hypotheses=hypotheses,
            conclusion=f"their contribution is at most {limit:.2g} of the output variance"
            if math.isfinite(limit)
            else "at zero gradient their contribution would be zero",
            measured=f"{share:.2g} of the output variance",
            agrees=share <= limit * (1 + _ROUNDING) + _ROUNDING if math.isfinite(limit) else None,
        )
    ]
