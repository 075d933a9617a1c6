"""Overlap of nodes, and the constants of assumptions 2 and 3 (Tian et al. 2019, sec. 3).

A node is given by its extended weights [w, b], and inputs have a constant 1 appended. By eq. 7 of the paper, ψ_d is the
share of the inputs on which two nodes are both active, and ψ_l the mean product of their activations. The proofs (secs.
8.4, 8.5) compare students W with references R, the teacher's nodes: d*_jj' = ψ_d(w_j, r_j'), d_jj' = ψ_d(w_j, w_j'),
d**_jj' = ψ_d(r_j, r_j').
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from scipy.special import ndtr, owens_t
from torch import Tensor

from understudy.nets import Layer, Population

Nodes = Float[Tensor, "*#net node in"]
_STILL = 1e-9
"""Distance below which a node counts as not moved: a quotient by it would be dominated by rounding."""
_SHORTEST = 1e-300
"""Length below which weights are 0."""


class Overlap(NamedTuple):
    """ψ_d and ψ_l of every pair of nodes (Tian et al. 2019, eq. 7)."""

    d: Float[Tensor, "*net left right"]
    l: Float[Tensor, "*net left right"]  # noqa: E741


Overlaps = Callable[[Tensor, Tensor], Overlap]
"""Function of two sets of nodes that computes their overlap, for some distribution of inputs."""


def extended_weights(layer: Layer) -> Float[Tensor, "net node in"]:
    """Extended weights [w, b] of every node; w if there are no biases."""
    weight, bias = layer
    return weight if bias is None else torch.cat((weight, bias.unsqueeze(-1)), dim=-1)


def append_constant(teacher: Population, x: Tensor) -> Float[Tensor, "sample in"]:
    """Append a constant 1 to the inputs if the teacher's nodes have biases."""
    return x if teacher.layers[0].bias is None else torch.cat((x, torch.ones_like(x[:, :1])), dim=1)


def empirical(x: Float[Tensor, "sample in"]) -> Overlaps:
    """Overlap over given inputs, of the size of the extended weights."""

    def overlaps(left: Tensor, right: Tensor) -> Overlap:
        ours, theirs = (torch.einsum("...ni,si->...ns", nodes, x).clamp_min(0) for nodes in (left, right))
        gates = torch.einsum("...ns,...ms->...nm", (ours > 0).to(x), (theirs > 0).to(x))
        return Overlap(gates / len(x), torch.einsum("...ns,...ms->...nm", ours, theirs) / len(x))

    return overlaps


def gaussian(left: Float[Tensor, "*#net left in"], right: Float[Tensor, "*#net right in"]) -> Overlap:
    """Overlap for N(0, I) inputs in closed form, with any biases; accurate to about 10⁻¹⁶.

    Without biases ψ_d and ψ_l are the arc-cosine kernels (π − θ)/2π and ‖w‖‖w'‖(sin θ + (π − θ) cos θ)/2π. With biases
    ψ_d is the probability that two correlated normals exceed their thresholds, by Owen's T function, and ψ_l their
    truncated second moment (Rosenbaum 1961).
    """
    (u, s, a), (v, t, b) = _standard(left), _standard(right)
    u, s, a = u.unsqueeze(-2), s.unsqueeze(-1), a.unsqueeze(-1)
    v, t, b = v.unsqueeze(-3), t.unsqueeze(-2), b.unsqueeze(-2)
    difference, total = (u - v).norm(dim=-1), (u + v).norm(dim=-1)
    # 1 − cos θ and sin θ without cancellation for nearly parallel weights.
    less, sine = difference.square() / 2, difference * total / 2
    a, b, less, sine = (each.numpy() for each in torch.broadcast_tensors(a, b, less, sine))
    rho = 1 - less
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        one, two = ((far - near + near * less) / sine for near, far in ((a, b), (b, a)))
        one, two = (
            np.nan_to_num(one, nan=0.0, posinf=np.inf, neginf=-np.inf),
            np.nan_to_num(two, nan=0.0, posinf=np.inf),
        )
        turns = owens_t(a, one / a) + owens_t(b, two / b)
    both = (ndtr(a) + ndtr(b)) / 2 - turns - np.where((a < 0) != (b < 0), 0.5, 0.0)
    # `both` is P(X > −a, Y > −b). The moments need the densities at the thresholds.
    density, other = (np.exp(-h * h / 2) / math.sqrt(2 * math.pi) for h in (a, b))
    near, far = density * ndtr(one), other * ndtr(two)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        square = np.where(sine > 0, (a - b) ** 2 / sine**2 + 2 * a * b * less / sine**2, np.inf)
    corner = sine * np.exp(-square / 2) / (2 * math.pi)
    product = (rho + a * b) * both + b * near + a * far + corner
    # E[XY] contains −ρ(a·near + b·far), E[X] near + ρ·far and E[Y] far + ρ·near: the terms in ρ cancel.
    return Overlap(torch.from_numpy(both), s * t * torch.from_numpy(product))


def _standard(nodes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Directions, lengths, and biases relative to lengths; a bias of 0 becomes tiny, where Owen's T has its limit."""
    weight, bias = nodes[..., :-1], nodes[..., -1]
    length = weight.norm(dim=-1)
    bias = bias / length
    return weight / length.unsqueeze(-1), length, torch.where(bias == 0, torch.full_like(bias, 1e-290), bias)


class Lipschitz(NamedTuple):
    """Smallest constants with which assumption 2 (Tian et al. 2019, eq. 8) and lemma 4 hold in the proofs."""

    k_d: Float[Tensor, "*net"]
    k_l: Float[Tensor, "*net"]
    kappa: Float[Tensor, "*net"]
    """κ in |l*_jj − l_jj| ≤ κ l*_jj ‖δw_j‖, on the diagonal."""
    c_0: Float[Tensor, "*net"]
    """C_0 in |l*_jj − l_jj| ≤ C_0 l*_jj ‖δw_j‖² (lemma 4). Bounded as δw → 0 only without biases: with biases ψ_l(w, w)
    of unit [w, b] changes to first order."""


def lipschitz(references: Nodes, now: Nodes, overlaps: Overlaps) -> Lipschitz:
    """Compute the constants for students `now` and their references, in the same order of nodes.

    Compared are ψ(w_j, r_j') with ψ(w_j, w_j') (Tian et al. 2019, eq. 24), ψ(r_j', r_j) with ψ(r_j', w_j) (eq. 26),
    and, for each node and its own reference, the three values of ψ. ψ_d of a node and its reference decreases linearly
    in the angle, so that K_d ≥ 1/π even if the two are nearly equal.
    """
    between, theirs, ours = overlaps(now, references), overlaps(references, references), overlaps(now, now)
    moved = (now - references).norm(dim=-1)
    by_column, by_row = moved.unsqueeze(-2), moved.unsqueeze(-1)
    own = torch.eye(now.shape[-2], dtype=torch.bool)

    def least(cross: Tensor, base: Tensor, both: Tensor) -> Tensor:
        ratios = [
            _quotient(cross - both, cross, by_column),
            _quotient(base - cross, base, by_row),
            _quotient(base - cross, cross, by_row).where(own, 0),
            _quotient(cross - both, both, by_column).where(own, 0),
        ]
        return torch.stack(ratios).amax(dim=(0, -2, -1))

    change = (between.l - ours.l).diagonal(dim1=-2, dim2=-1)
    base = between.l.diagonal(dim1=-2, dim2=-1)
    return Lipschitz(
        least(between.d, theirs.d, ours.d),
        least(between.l, theirs.l, ours.l),
        _quotient(change, base, moved).amax(-1),
        _quotient(change, base, moved.square()).amax(-1),
    )


def over_steps(along: Lipschitz) -> Lipschitz:
    """The constants that hold at every step, given those [net, step] of each step."""
    return Lipschitz(*(each.amax(1) for each in along))


def _quotient(change: Tensor, base: Tensor, moved: Tensor) -> Tensor:
    """|change| / (base · moved); 0 if nothing changed or moved."""
    change, base, moved = torch.broadcast_tensors(change.abs(), base, moved)
    return torch.where((change == 0) | (moved < _STILL), 0, change / (base * moved).clamp_min(1e-300))


def small_overlap(nodes: Nodes, overlaps: Overlaps) -> tuple[Float[Tensor, "*net"], Float[Tensor, "*net"]]:
    """ε_d and ε_l of assumption 3: the largest ψ(r_j, r_j') / ψ(r_j, r_j) of two nodes (Tian et al. 2019, eq. 9).

    Relative to the smaller of the two diagonal values, because the proofs divide by either. 0 for a single node.
    """

    def largest(psi: Tensor) -> Tensor:
        ratio = psi / psi.diagonal(dim1=-2, dim2=-1).unsqueeze(-1)
        own = torch.eye(psi.shape[-1], dtype=torch.bool)
        return ratio.masked_fill(own, 0).nan_to_num(nan=math.inf).amax(dim=(-2, -1))

    found = overlaps(nodes, nodes)
    return largest(found.d), largest(found.l)


def angles(references: Float[Tensor, "*#node in"], now: Float[Tensor, "*#node in"]) -> Float[Tensor, "*node"]:
    """Angles θ_j between the extended weights of students and their references, accurate down to 10⁻¹⁶.

    Weights of 0 have no direction, and count as orthogonal to all others.
    """
    one, other = (nodes / nodes.norm(dim=-1, keepdim=True).clamp_min(_SHORTEST) for nodes in (references, now))
    return 2 * torch.atan2((one - other).norm(dim=-1), (one + other).norm(dim=-1))
