"""Exact values of a model of standard normal data with a Gaussian code of one coordinate (Phuong 2021, sec. 4.6.1).

The normal can be split without loss: with z ~ N(0, 1) and x|z ~ N(ρz, 1 − ρ²) the data are N(0, 1) for every ρ, p(z|x)
is Gaussian, and the information is −½ log(1 − ρ²). Theorem 4.2 therefore does not hold for continuous data.
"""

from __future__ import annotations

import copy
import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from understudy.measures.information.quadrature import normal_density, place_nodes
from understudy.nets.latent.likelihoods import GaussianLikelihood
from understudy.nets.latent.model import LatentModel

ENTROPY = (math.log(2 * math.pi) + 1) / 2
"""Differential entropy of the data in nats."""
_REACH = 8.5
_DATA_CELLS = 64
_NOISE_CELLS = 24
_CODE_CELLS = (256, 512, 1_024, 2_048, 4_096)
"""Cells of codes, doubled until the likelihood settles."""
_PAIRS = 1 << 21


class NormalCode(NamedTuple):
    """Exact values of a model of standard normal data, in nats.

    Attributes:
        likelihood: Mean of log p(x) over the data; at most minus their entropy. NaN if the quadrature did not settle.
        elbo: Evidence lower bound.
        kl: KL(q(z|x) ‖ p(z)), mean over the data: the KL term of the bound.
    """

    likelihood: float
    elbo: float
    kl: float


@torch.no_grad()
def normal_code(model: LatentModel, tolerance: float = 1e-4) -> NormalCode:
    """Compute the exact values of a model by quadrature over data and code.

    Args:
        model: A model of one real number, with a Gaussian likelihood and a code of one coordinate.
        tolerance: Change by which halving the cells of codes may still alter the likelihood.
    """
    model = copy.deepcopy(model).double()
    x, weight = _nodes(_DATA_CELLS)
    weight = weight * normal_density(x)
    code = model.encode(x[:, None])
    kl = float((weight * code.divergence().sum(-1)).sum())
    noise, own = _nodes(_NOISE_CELLS)
    z = code.sample(noise[:, None, None])  # [noise, data, 1]
    reconstruction = model.log_likelihood(z, x[:, None])
    elbo = float(((own * normal_density(noise))[:, None] * weight * reconstruction).sum()) - kl
    before = math.nan
    for cells in _CODE_CELLS:
        likelihood = float((weight * _log_evidence(model, x, cells)).sum())
        if abs(likelihood - before) <= tolerance:
            return NormalCode(likelihood, elbo, kl)
        before = likelihood
    return NormalCode(math.nan, elbo, kl)


@torch.no_grad()
def conditionals(model: LatentModel, z: Float[Tensor, "node"]) -> tuple[Float[Tensor, "node"], Float[Tensor, "node"]]:
    """Compute the mean and standard deviation of p(x|z) at given codes.

    Args:
        model: A model of one real number with a Gaussian likelihood.
        z: Codes.
    """
    model = copy.deepcopy(model).double()
    assert isinstance(model.likelihood, GaussianLikelihood)
    mean, log_variance = model.likelihood.moments(model.decoder, z.double()[:, None])
    return mean[:, 0], (log_variance[:, 0] / 2).exp()


def _log_evidence(model: LatentModel, x: Tensor, cells: int) -> Tensor:
    """log p(x), from a sum over codes."""
    z, weight = _nodes(cells)
    mean, std = conditionals(model, z)
    log_weight = weight.log() - z.square() / 2 - std.log() - math.log(2 * math.pi)
    parts = []
    for few in x.split(max(1, _PAIRS // len(z))):
        distance = (few[:, None] - mean) / std
        parts.append((log_weight - distance.square() / 2).logsumexp(1))
    return torch.cat(parts)


def _nodes(cells: int) -> tuple[Tensor, Tensor]:
    """Nodes and weights of the integral over all numbers that a standard normal reaches."""
    edges = torch.linspace(-_REACH, _REACH, cells + 1, dtype=torch.float64)
    nodes, weights = place_nodes(torch.stack((edges[:-1], edges[1:]), 1))
    return nodes.flatten(), weights.flatten()
