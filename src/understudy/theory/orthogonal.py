"""What two-layer ReLU networks become on orthogonally separable examples (S3 theorem 3.1): two kinds of neurons."""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

HIGH = 0.9
"""Correlation with a max-margin direction above which S3 sec 3.4.1 counts a neuron as aligned."""


def own_correlation(
    w: Float[Tensor, "*#net node in"], a: Float[Tensor, "*#net node"], margins: Float[Tensor, "*#net 2 in"]
) -> Float[Tensor, "*net node"]:
    """Cosine of every neuron and the max-margin vector of its sign, w+ where a_j > 0, w− elsewhere (fig 3.1c)."""
    both = correlations(w, margins)
    return torch.where(a > 0, both[..., 0], both[..., 1])


def nearest_correlation(
    w: Float[Tensor, "*#net node in"], margins: Float[Tensor, "*#net 2 in"]
) -> Float[Tensor, "*net node"]:
    """Cosine of every neuron and the nearer of the two max-margin vectors: deep networks have no signs (fig 3.2g)."""
    return correlations(w, margins).amax(-1)


def correlations(
    w: Float[Tensor, "*#net node in"], margins: Float[Tensor, "*#net 2 in"]
) -> Float[Tensor, "*net node 2"]:
    """Cosines of neurons and w+, w−; 0 for a neuron that is zero."""
    return torch.nn.functional.normalize(w, dim=-1) @ torch.nn.functional.normalize(margins, dim=-1).mT


def aligned_share(correlation: Float[Tensor, "*net node"], above: float = HIGH) -> Float[Tensor, "*net"]:
    """The share of neurons with a correlation above a limit."""
    return (correlation > above).double().mean(-1)


def singular_values(w: Float[Tensor, "*net node in"]) -> Float[Tensor, "*net value"]:
    """From the largest down."""
    return torch.linalg.svdvals(w)


def third_over_first(w: Float[Tensor, "*net node in"]) -> Float[Tensor, "*net"]:
    """How far a matrix is from rank two: σ3/σ1, 0 where there is no third.

    What training adds is nearer to rank two than the weights, which keep what they began with: of W = W_0 + ΔW the
    third singular value is at most σ1(W_0) + σ3(ΔW) (Weyl).
    """
    values = singular_values(w)
    return values[..., 2] / values[..., 0] if values.shape[-1] > 2 else torch.zeros_like(values[..., 0])


def projected(w: Float[Tensor, "*net node in"]) -> Float[Tensor, "*net node 2"]:
    """Rows on the first two right singular vectors (figs 3.1b, 3.2d to f), whose largest entries are made positive."""
    _, _, axes = torch.linalg.svd(w, full_matrices=False)
    axes = axes[..., :2, :]
    largest = axes.gather(-1, axes.abs().argmax(-1, keepdim=True))
    found = w @ (axes * largest.sign()).mT
    return torch.nn.functional.pad(found, (0, 2 - found.shape[-1]))


class Limit(NamedTuple):
    """Distances from what theorem 3.1 says weights go to, for the u and z ≥ 0 that bring the first layer nearest."""

    hidden: Float[Tensor, "*net"]
    """‖W/‖W‖ − (u w+ᵀ + z w−ᵀ)‖ of eq. 3.8."""
    output: Float[Tensor, "*net"]
    """‖a/‖a‖ − (u‖w+‖ − z‖w−‖)‖ of eq. 3.9."""


def limit(
    w: Float[Tensor, "*#net node in"], a: Float[Tensor, "*#net node"], margins: Float[Tensor, "*#net 2 in"]
) -> Limit:
    """Where each neuron has w+ or w− by the sign of its a_j: one of u_j and z_j is zero."""
    lengths = torch.linalg.vector_norm(w, dim=-1)
    shares = lengths / torch.linalg.vector_norm(lengths, dim=-1, keepdim=True)
    own = own_correlation(w, a, margins).clamp(0, 1)
    # A cosine near 1 has lost the digits of the sine, the difference of unit vectors has not.
    unit, both = (torch.nn.functional.normalize(each, dim=-1) for each in (w, margins))
    target = torch.where((a > 0).unsqueeze(-1), both[..., :1, :], both[..., 1:, :])
    sine = torch.linalg.vector_norm(unit - own.unsqueeze(-1) * target, dim=-1)
    ends = a / torch.linalg.vector_norm(a, dim=-1, keepdim=True) - a.sign() * shares * own
    return Limit(torch.linalg.vector_norm(shares * sine, dim=-1), torch.linalg.vector_norm(ends, dim=-1))
