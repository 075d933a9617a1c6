"""Unspecialised students are prunable: S0 Theorem 2 and Corollary 1, with constants, on samples and at any gradient.

Take a student o and the samples on which it is active. There g_o = v_oᵀ(f* − f) is a sum over boundaries s of
c_s σ(u_s), with unit weights u_s, and of an affine function of the input; for a boundary s that is no teacher node's,
c_s = −v_oᵀ S_s with S_s = Σ v_k ‖w̃_k‖ over the students k that have it. The part of σ(u_s) that neither affine
functions nor other boundaries explain has a root mean square a over these samples: |v_oᵀ S_s| ≤ rms(g_o) / a = e_o,
and ‖S_s‖ ≤ √q / σ_min for q observers, with σ_min the smallest singular value of their stacked v_o / e_o. At zero
gradient S_s = 0, the paper's statement; it needs no open set of inputs, but samples that tell nodes apart (a > 0).

Two things differ from the paper. Since σ(−u) is σ(u) less a linear function, S_s counts students of both orientations:
of those on one ray alone the proof (C.5, by Lemma 4, which allows opposite weights) does not follow. And Corollary 1 so
leaves a linear function where an unaligned boundary has students on both of its sides.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from understudy.measures import observers_on_both_sides, regular
from understudy.nets import Layer, Population, activate
from understudy.theory.boundaries import ALIGNED, hyperplane_eps, same_boundary, same_ray
from understudy.theory.result import Finding, Hypothesis, result
from understudy.theory.unexplained import output_variance

CO_LINEAR = 1e-9
"""ε under which two nodes have one boundary."""
RANK = 1e-9
"""Of the largest singular value, what a smallest one must exceed: fan-outs are independent."""
_SAMPLES = 3
"""Samples a column that are enough to tell columns apart; the bound holds for any number."""
_OBSERVERS = 50
"""Observers that are enough beyond two an output, the strongest first; the bound holds for any number."""
_ROUNDING = 1e-6


def co_linear(layer: Layer, eps: float = CO_LINEAR) -> Bool[Tensor, "net node node"]:
    """Whether two nodes have one boundary up to ε, in either orientation, or are linked by nodes that do.

    A node without a boundary is alone.
    """
    return _linked(same_boundary(layer, layer, eps))


def on_one_ray(layer: Layer, eps: float = CO_LINEAR) -> Bool[Tensor, "net node node"]:
    """The same of nodes that are active on one side: [w̃, b] on one ray, as S0 sec 4 means co-linear."""
    return _linked(same_ray(layer, layer, eps))


def _linked(near: Bool[Tensor, "net node node"]) -> Bool[Tensor, "net node node"]:
    linked = near | torch.eye(near.shape[1], dtype=torch.bool, device=near.device)
    while True:
        further = torch.bmm(linked.double(), linked.double()) > 0
        if bool((further == linked).all()):
            return linked
        linked = further


def group_sums(student: Population, groups: Bool[Tensor, "net node node"]) -> Float[Tensor, "net node out"]:
    """Σ v_k' ‖w̃_k'‖ over the nodes k' of each node's group (S0 Theorem 2), of two-layer networks."""
    length = torch.linalg.vector_norm(student.layers[0].weight, dim=2)
    regular_fan_out = student.layers[1].weight.mT * length.unsqueeze(2)
    return torch.bmm(groups.to(regular_fan_out.dtype), regular_fan_out)


class Residuals(NamedTuple):
    """Each student node of one network: what its group of co-linear nodes gives on, and what is proved about it."""

    nearest: Float[Tensor, "node"]
    """Distance (`hyperplane_eps`) to the nearest teacher boundary."""
    size: Float[Tensor, "node"]
    """‖Σ v_k' ‖w̃_k'‖‖ of its group."""
    largest: float
    """The largest size of a group that is aligned with a teacher node; of all groups where none is."""
    observers: Float[Tensor, "node"]
    """How many students see its boundary, with `MIN_COUNT` samples on either side."""
    smallest: Float[Tensor, "node"]
    """Of an unaligned node: smallest of the C singular values of its observers' fan-outs over the largest; 0 where
    there are fewer than C."""
    apart: Float[Tensor, "node"]
    """Of an unaligned node: smallest part of its activation that other nodes and affine functions leave, over the
    observers at which there is one; 0 where these are fewer than C."""
    bound: Float[Tensor, "node"]
    """Of an unaligned node: what `size` cannot exceed; infinite where nothing follows."""
    given: Float[Tensor, "node"]
    """Root mean square over the samples of what its group adds to the output: on one ray, `size` times that of σ(u)."""
    strongest: float
    """The largest of these over aligned groups; over all where no aligned group gives anything on."""
    most: Float[Tensor, "node"]
    """What `given` cannot exceed, by `bound`."""

    @property
    def unaligned(self) -> list[int]:
        """The nodes whose boundary is no teacher node's."""
        return (~(self.nearest <= ALIGNED)).nonzero().flatten().tolist()


def residuals(
    teacher: Population, student: Population, x: Float[Tensor, "sample in"], aligned: float = ALIGNED
) -> Residuals:
    """S0 Theorem 2 in its finite form on one teacher and one student of two layers, in float64."""
    below, fan_out = student.layers[0], student.layers[1].weight[0].T
    groups = co_linear(below)
    size = torch.linalg.vector_norm(group_sums(student, groups)[0], dim=1)
    nearest = hyperplane_eps(below, teacher.layers[0])[0].amin(1)
    ours = size[nearest <= aligned]
    seen = observers_on_both_sides(below, below, x).observed[0]  # [seen node, observer]
    strength = torch.linalg.vector_norm(fan_out, dim=1)
    asked = strength.argsort(descending=True, stable=True)[: _OBSERVERS + 2 * fan_out.shape[1]]
    apart, gradient = _independence(teacher, student, x, asked)
    bound, smallest, left = (torch.full_like(size, value) for value in (math.inf, 0.0, 0.0))
    for k in (~(nearest <= aligned)).nonzero().flatten().tolist():
        of = seen[k, asked] & (apart[:, k] > 0)
        if int(of.sum()) < fan_out.shape[1]:
            continue
        stacked, left[k] = fan_out[asked[of]], apart[of, k].min()
        singular = torch.linalg.svdvals(stacked)
        smallest[k] = singular[-1] / singular[0] if singular[0] > 0 else 0.0
        if smallest[k] > RANK:
            most = gradient[of] / apart[of, k]
            # A larger limit is one too, and none may be 0.
            most = torch.maximum(most, _ROUNDING**2 * strength.max()).unsqueeze(1)
            shares = stacked / most
            if bool(shares.isfinite().all()):
                bound[k] = math.sqrt(len(most)) / torch.linalg.svdvals(shares)[-1]
    given, least = _given_on(student, groups, x)
    strongest = given[nearest <= aligned].max() if len(ours) else given.new_zeros(())
    return Residuals(
        nearest,
        size,
        float((ours if len(ours) else size).max()),
        seen.sum(1).double(),
        smallest,
        left,
        bound,
        given,
        float(strongest if strongest > 0 else given.max()),
        # Infinity times the 0 of a node that is never active would be no number.
        torch.where(bound < math.inf, bound * _rms(activate(_signed(below, x), student.slope)), math.inf) + least,
    )


def _given_on(
    student: Population, groups: Bool[Tensor, "net node node"], x: Float[Tensor, "sample in"]
) -> tuple[Float[Tensor, "node"], Float[Tensor, "node"]]:
    """Rms of what each node's group adds to the output, and of the linear part that Theorem 2 does not bound.

    With fan-outs S on the node's own ray and S' on the opposite one this is S σ(u) + S' σ(−u), and as σ(−u) is
    σ(u) − (1 + slope) u, it is also (S + S') σ(u) − (1 + slope) S' u.
    """
    u = _signed(student.layers[0], x)
    ahead = group_sums(student, on_one_ray(student.layers[0]) & groups)[0]
    behind = group_sums(student, groups)[0] - ahead
    # Sums of both orders of addition differ by rounding where nobody is opposite.
    behind = torch.where((groups & ~on_one_ray(student.layers[0]))[0].any(1, keepdim=True), behind, 0.0)
    one, other = activate(u, student.slope), activate(-u, student.slope)
    both = (ahead * behind).sum(1) * (one * other).mean(0)
    alone = [torch.linalg.vector_norm(s, dim=1) * _rms(f) for s, f in ((ahead, one), (behind, other))]
    given = (alone[0].square() + 2 * both + alone[1].square()).clamp_min(0.0).sqrt()
    return given, (1 + student.slope) * torch.linalg.vector_norm(behind, dim=1) * _rms(u)


def _signed(layer: Layer, x: Float[Tensor, "sample in"]) -> Float[Tensor, "sample node"]:
    """Signed distances to the boundaries of a layer's nodes; 0 to that of a node which has none."""
    units = regular(layer)
    return x @ units.weight[0].T + units.bias[0].nan_to_num(posinf=0.0)


def _rms(values: Float[Tensor, "sample node"]) -> Float[Tensor, "node"]:
    return values.square().mean(0).sqrt()


def _independence(
    teacher: Population, student: Population, x: Float[Tensor, "sample in"], observers: Int[Tensor, "observer"]
) -> tuple[Float[Tensor, "observer node"], Float[Tensor, "observer"]]:
    """For every observer and node: rms of what of σ(u_k) the rest leaves, where the observer is active; rms of g_o."""
    both = [torch.cat((a, b), 1) for a, b in zip(_parts(student.layers[0]), _parts(teacher.layers[0]), strict=True)]
    every = Layer(*both)
    nodes, inputs = student.sizes[1], student.inputs
    # A boundary is one column, whichever of its nodes comes first.
    first = co_linear(every)[0].double().argmax(1)
    units = regular(every)
    kinked = activate(x @ units.weight[0].T + units.bias[0].nan_to_num(posinf=0.0), student.slope)
    error = teacher(x)[0] - student(x)[0]
    active = x @ student.layers[0].weight[0].T + _parts(student.layers[0])[1][0] > 0
    apart, gradient = x.new_zeros(len(observers), nodes), x.new_zeros(len(observers))
    for i, o in enumerate(observers.tolist()):
        rows = active[:, o].nonzero().flatten()[: _SAMPLES * (inputs + 1 + both[0].shape[1])]
        gradient[i] = (error[rows] @ student.layers[1].weight[0, :, o]).square().mean().sqrt() if len(rows) else 0.0
        sign = (x[rows] @ units.weight[0].T + units.bias[0]) > 0
        # Without samples on both sides a node is affine there, and among the affine functions already.
        there = (sign.any(0) & ~sign.all(0) & (first == torch.arange(len(first), device=x.device))).nonzero().flatten()
        columns = torch.cat((x[rows], torch.ones_like(x[rows, :1]), kinked[rows][:, there]), 1)
        if len(rows) < columns.shape[1]:
            continue
        left = torch.zeros(len(first), dtype=x.dtype, device=x.device)
        left[there] = _unexplained(columns)[inputs + 1 :]
        apart[i] = left[first[:nodes]]
    return apart, gradient


def _unexplained(columns: Float[Tensor, "row column"]) -> Float[Tensor, "column"]:
    """Root mean square of each column less its projection on the others; 0 up to rounding where they explain it."""
    scale = torch.linalg.vector_norm(columns, dim=0).clamp_min(torch.finfo(columns.dtype).tiny)
    triangle = torch.linalg.qr(columns / scale, mode="r").R
    eye = torch.eye(len(triangle), dtype=columns.dtype, device=columns.device)
    # (RᵀR)⁻¹ has one over the squared remainder on its diagonal.
    inverse = torch.linalg.solve_triangular(triangle, eye, upper=True)
    left = 1 / torch.linalg.vector_norm(inverse, dim=1)
    return torch.where(left > 1e-12, left, 0.0).nan_to_num(0.0) * scale / math.sqrt(len(columns))


def _parts(layer: Layer) -> tuple[Tensor, Tensor]:
    return layer.weight, layer.weight.new_zeros(layer.weight.shape[:2]) if layer.bias is None else layer.bias


@result(
    "S0 theorem 2",
    title="Unspecialised student nodes are prunable",
    statement="Where the gradient is zero, the fan-outs of the students that share a boundary which is no teacher "
    "node's add up to nothing, if C students with independent fan-outs see that boundary; a small gradient leaves a "
    "small sum.",
    measured="the number of students that observe the boundary, the smallest singular value of their fan-outs, how "
    "well the samples separate the activations of different nodes, and the bound on the contribution of the group "
    "next to its measured contribution",
    subject="student node",
    networks="two layers",
)
def theorem_2(teacher: Population, student: Population, x: Float[Tensor, "sample in"]) -> list[Finding]:
    """A finding for each student whose boundary is no teacher node's."""
    found, outputs = residuals(teacher, student, x), student.sizes[-1]
    return [finding(k, found, outputs) for k in found.unaligned]


def finding(k: int, found: Residuals, outputs: int) -> Finding:
    """Theorem 2 on one unaligned student, with amounts as shares of what the strongest aligned group gives on."""
    observers, smallest, apart = int(found.observers[k]), float(found.smallest[k]), float(found.apart[k])
    size, bound, largest = float(found.size[k]), float(found.bound[k]), found.largest
    given, most, strongest = float(found.given[k]), float(found.most[k]), found.strongest
    hypotheses = (
        Hypothesis(
            "observers",
            f"{observers}",
            f"at least {outputs}, as many as outputs",
            observers >= outputs,
            "more students, or inputs on both sides of its boundary where others are active",
            outputs / max(observers, 1),
        ),
        Hypothesis(
            "independent fan-outs",
            f"smallest singular value {smallest:.1e} of the largest",
            f"above {RANK:g}",
            smallest > RANK,
            "fewer outputs than students have learned to tell apart",
        ),
        Hypothesis(
            "samples that tell nodes apart",
            f"{apart:.1e} of its activation is no other node's",
            f"above 0 at {outputs} observers",
            apart > 0,
            "more samples: beyond inputs and nodes together where each observer is active",
        ),
    )
    return Finding(
        "S0 theorem 2",
        f"student node {k}",
        hypotheses,
        f"its group gives on at most {most / strongest:.2g} of what the strongest aligned one does"
        if math.isfinite(most) and strongest > 0
        else "at zero gradient its group's fan-outs would add up to nothing",
        f"{given / strongest:.2g} of what the strongest aligned one does"
        if strongest > 0
        else "no node gives anything on",
        size <= bound * (1 + _ROUNDING) + _ROUNDING * largest if math.isfinite(bound) else None,
        amount=given / strongest if strongest > 0 else 0.0,
        limit=most / strongest if strongest > 0 else math.inf,
    )


def unaligned_share(
    teacher: Population, student: Population, x: Float[Tensor, "sample in"], aligned: float = ALIGNED
) -> Float[Tensor, "net"]:
    """E‖Σ v_k f_k‖² over the students k without a teacher's boundary, as a share of the variance of the outputs f*."""
    alone = ~same_boundary(student.layers[0], teacher.layers[0], aligned).any(2)
    (hidden,) = student.activations(x).hidden
    part = torch.bmm(hidden * alone.unsqueeze(1), student.layers[1].weight.mT)
    return part.square().sum(2).mean(1) / output_variance(teacher, x)


@result(
    "S0 corollary 1",
    title="All unspecialised student nodes together contribute nothing",
    statement="Where the gradient is zero and each boundary that is no teacher node's is seen by enough students, the "
    "students without a teacher's boundary add nothing to the output, or a linear function where some of them are "
    "opposite.",
    measured="the share of the output variance that is due to students without a teacher's boundary, next to the sum "
    "of the bounds of theorem 2 over their groups",
    subject="student node",
    networks="two layers",
)
def corollary_1(teacher: Population, student: Population, x: Float[Tensor, "sample in"]) -> list[Finding]:
    """One finding: how much of the output is theirs, beside the sum of what Theorem 2 leaves to each group."""
    found = residuals(teacher, student, x)
    alone = ~(found.nearest <= ALIGNED)
    groups, rays = co_linear(student.layers[0])[0], on_one_ray(student.layers[0])[0]
    opposite = int((alone & (groups & ~rays).any(1)).sum())
    bounded = int((found.bound[alone] < math.inf).sum())
    first = groups.double().argmax(1) == torch.arange(len(groups), device=x.device)
    rms = _rms(activate(_signed(student.layers[0], x), student.slope))
    variance = float(output_variance(teacher, x))
    limit = float((found.bound * rms)[alone & first].sum()) ** 2 / variance if variance > 0 else math.nan
    share, count = float(unaligned_share(teacher, student, x)), int(alone.sum())
    hypotheses = (
        Hypothesis(
            "Theorem 2 holds of each",
            f"{bounded} of {count} unaligned students",
            "all of them",
            bounded == count,
            "what Theorem 2 says of each student that it does not hold of",
        ),
        Hypothesis(
            "no two opposite",
            f"{opposite} unaligned students",
            "none",
            not opposite,
            "opposite students, [w, b] and [−w, −b], add up to a linear function",
        ),
    )
    return [
        Finding(
            "S0 corollary 1",
            f"{count} of {len(alone)} student nodes",
            hypotheses,
            f"their contribution is at most {limit:.2g} of the output variance"
            if math.isfinite(limit)
            else "at zero gradient their contribution would be nothing",
            f"{share:.2g} of the output variance",
            share <= limit * (1 + _ROUNDING) + _ROUNDING if math.isfinite(limit) else None,
        )
    ]
