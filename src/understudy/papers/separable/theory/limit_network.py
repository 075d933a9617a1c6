"""The network of max-margin neurons: its function, and whether it is a KKT point (Phuong 2021, cor. 3.1, lemma B.6).

Networks have two layers, h(x) = Σ a_j ρ(w_j·x); ‖θ‖² is the sum of the squares of all their weights.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from understudy._errors import UserError
from understudy._random import Stream, uniform
from understudy.data.separable import two_classes
from understudy.papers.separable.theory.max_margin import Margins
from understudy.papers.separable.theory.training import Classes, Examples, Weights, logistic_gradient, neurons, outputs

_Margins = Float[Tensor, "*#net 2 in"]
_NEURONS = 10
"""Number of neurons of the max-margin network whose optimality is checked."""


def max_margin_network(u: Float[Tensor, "*net node"], z: Float[Tensor, "*net node"], margins: _Margins) -> Weights:
    """Build the network of Phuong 2021, lemma B.6: neurons u_j w+ and z_j w−, u and z scaled as the lemma requires.

    Args:
        u: Sizes along w+, at least 0, and 0 where z is not.
        z: Sizes along w−, likewise.
        margins: w+ and w−.

    Returns:
        W̃ and ã of eqs. B.45 and B.46, with ‖u‖² = 1/‖w+‖ and ‖z‖² = 1/‖w−‖, so that h(x) = ρ(w+·x) − ρ(w−·x).

    Raises:
        UserError: Sizes that are negative, both above 0 for one neuron, or all 0 for one class.
    """
    sizes = torch.stack((u, z), -2)
    if not bool((sizes >= 0).all() & ((u == 0) | (z == 0)).all() & (sizes > 0).any(-1).all()):
        raise UserError("u and z must be at least 0, one of them 0 for every neuron, and each above 0 for some neuron")
    lengths = torch.linalg.vector_norm(margins, dim=-1, keepdim=True)
    scaled = sizes / torch.linalg.vector_norm(sizes, dim=-1, keepdim=True) / lengths.sqrt()
    signs = torch.tensor([1.0, -1.0]).to(scaled)
    return scaled.mT @ margins, (signs * lengths.squeeze(-1)).unsqueeze(-2) @ scaled


def limit_multipliers(found: Margins, y: Float[Tensor, "sample"]) -> Float[Tensor, "sample"]:
    """Multipliers λ of the max-margin network (Phuong 2021, eq. B.59), from those of w+ and w−.

    Args:
        found: The max-margin vectors of both classes of one set.
        y: Classes of the examples, −1 and 1.
    """
    multipliers = torch.zeros_like(y)
    for sign, side in ((1, found.positive), (-1, found.negative)):
        multipliers[y == sign] = side.multipliers.to(y) / torch.linalg.vector_norm(side.vector).to(y)
    return multipliers


def limit_residual(found: Margins, x: Float[Tensor, "sample in"], y: Float[Tensor, "sample"], seed: int) -> float:
    """Measure how far the max-margin network of one set, with random sizes, is from a KKT point (lemma B.6)."""
    sizes = uniform(seed, Stream.DIRECTIONS, 2 << 32, _NEURONS).to(x)
    ones = torch.arange(_NEURONS) % 2 == 0
    network = max_margin_network(torch.where(ones, sizes, 0.0), torch.where(ones, 0.0, sizes), found.vectors.to(x))
    signs = two_classes(y).to(x)
    return float(optimality(network, x, signs, limit_multipliers(found, signs)).residual)


class Optimality(NamedTuple):
    """How far networks are from a KKT point of min ½‖θ‖² subject to y_i h(x_i) ≥ 1 (Phuong 2021, eq. B.47)."""

    margin: Float[Tensor, "*net"]
    """Least y_i h(x_i), before networks are rescaled so that it is 1."""
    slackness: Float[Tensor, "*net"]
    """Σ λ_i (y_i h(x_i) − 1) / ‖θ‖²."""
    stationarity: Float[Tensor, "*net"]
    """‖θ − Σ λ_i y_i ∂h(x_i)‖ / ‖θ‖."""

    @property
    def residual(self) -> Float[Tensor, "*net"]:
        """The larger violation; infinite where an example is misclassified, so that no rescaling is feasible."""
        return torch.where(self.margin > 0, torch.maximum(self.slackness, self.stationarity), torch.inf)


def optimality(
    weights: Weights, x: Examples, y: Classes, multipliers: Float[Tensor, "*#net sample"] | None = None
) -> Optimality:
    """Measure how far two-layer networks, rescaled to a least margin of 1, are from a KKT point of the margin problem.

    Args:
        weights: The networks.
        x: Examples.
        y: Their classes, −1 and 1.
        multipliers: λ_i ≥ 0 of the rescaled networks. By default proportional to −ℓ_i′ of the logistic loss, which
            gradient flow weighs examples by (Lyu and Li 2020), with the factor that fits best.

    Returns:
        The least margin, and the violations of slackness and stationarity after rescaling.
    """
    margins = y * outputs(weights, x)
    least = margins.amin(-1)
    # h is homogeneous of degree 2 in the weights.
    scale = least.clamp_min(torch.finfo(least.dtype).tiny).rsqrt()[..., None, None]
    network = tuple(scale * part for part in weights)
    square = torch.stack([part.square().sum((-2, -1)) for part in network]).sum(0)
    # The margins, from which the loss of the rescaled network would differ, are those of the network as it is.
    slopes = torch.softmax(torch.nn.functional.logsigmoid(-margins), -1) if multipliers is None else multipliers
    pull = [-part for part in logistic_gradient(network, x, y, weighted_by=slopes)]
    if multipliers is None:
        along = torch.stack([(a * b).sum((-2, -1)) for a, b in zip(network, pull, strict=True)]).sum(0)
        size = torch.stack([part.square().sum((-2, -1)) for part in pull]).sum(0)
        factor = (along / size).clamp_min(0)
        slopes, pull = factor.unsqueeze(-1) * slopes, [factor[..., None, None] * part for part in pull]
    off = torch.stack([(a - b).square().sum((-2, -1)) for a, b in zip(network, pull, strict=True)]).sum(0)
    slack = (slopes * (margins / least.unsqueeze(-1) - 1)).sum(-1)
    return Optimality(least, slack / square, (off / square).sqrt())


class FunctionLimit(NamedTuple):
    """The nearest function u ρ(w+·x) − z ρ(w−·x) to h(x)/‖θ‖² (Phuong 2021, corollary 3.1)."""

    u: Float[Tensor, "*net"]
    z: Float[Tensor, "*net"]
    distance: Float[Tensor, "*net"]
    """Root mean squared difference over the inputs, relative to that of h(x)/‖θ‖²."""


def function_limit(weights: Weights, margins: _Margins, x: Examples) -> FunctionLimit:
    """Fit u, z ≥ 0 of Phuong 2021, eq. 3.10 to two-layer networks by least squares over inputs.

    Args:
        weights: The networks.
        margins: w+ and w−.
        x: Inputs at which functions are compared.

    Returns:
        u, z and the distance; of a network that has converged, u = z = 1/(2(‖w+‖ + ‖w−‖)) if both classes end with the
        same margin, as at the KKT point of lemma B.6.
    """
    w, a = neurons(weights)
    square = w.square().sum((-2, -1)) + a.square().sum(-1)
    h = outputs(weights, x) / square.unsqueeze(-1)
    one, other = (x @ margins.mT).relu().unbind(-1)
    products = torch.stack([(one * h).sum(-1), -(other * h).sum(-1)], -1)
    cross, squares = -(one * other).sum(-1), torch.stack([one.square().sum(-1), other.square().sum(-1)], -1)
    determinant = squares.prod(-1) - cross.square()
    both = (squares.flip(-1) * products - cross.unsqueeze(-1) * products.flip(-1)) / determinant.unsqueeze(-1)
    # Where the least-squares solution leaves the quadrant, the best point is on one of its two edges.
    alone = (products / squares).clamp_min(0)
    better = (products[..., 0] * alone[..., 0] >= products[..., 1] * alone[..., 1]).unsqueeze(-1)
    edge = torch.where(better, alone * torch.tensor([1.0, 0.0]).to(x), alone * torch.tensor([0.0, 1.0]).to(x))
    u, z = torch.where((both >= 0).all(-1, keepdim=True), both, edge).unbind(-1)
    gap = h - u.unsqueeze(-1) * one + z.unsqueeze(-1) * other
    return FunctionLimit(u, z, torch.linalg.vector_norm(gap, dim=-1) / torch.linalg.vector_norm(h, dim=-1))
