"""Exact density of the resampling encoder for a code of one coordinate (Phuong 2021, sec. 4.5; Cremer et al. 2017).

The encoder draws k codes from q(z|x) and keeps one of them by its importance weight w(z) = p(x, z) / q(z|x). What is
kept has the density k q(z|x) E[w(z) / (w(z) + w₂ + … + w_k)] over k − 1 independent competitors. As 1/a is the integral
of e^(−at) over t > 0, the expectation is that of φ(τ / w(z))^(k − 1) over τ ~ Exp(1), where φ(t) = E e^(−t w) is an
integral over one competitor.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from understudy.measures.information.quadrature import normal_density, place_nodes
from understudy.nets.latent.codes import prior_log_prob
from understudy.nets.latent.model import LatentModel

_STEP = 0.4
"""Step of the trapezoidal rule in log τ, whose error falls exponentially in 1 / step; below 10⁻¹⁰ at this one."""
_FIRST, _LAST = -40.0, 4.4
"""Ends of log τ: the integrand is below 10⁻¹⁷ beyond them."""
_SMALLEST, _LARGEST = -80.0, 40.0
"""log w(z) beyond which the expectation has settled."""
_REACH, _CELLS = 9.0, 256
"""Standard deviations of q(z|x), and cells, over which competitors are integrated."""

Density = Callable[[Float[Tensor, "node"]], Float[Tensor, "node row"]]
"""Log densities of a code given each row of data, at any codes."""


def encoder_density(model: LatentModel, x: Tensor) -> Density:
    """Prepare the log density of the code that the encoder gives, after resampling if it draws several codes.

    Args:
        model: A model in float64 with a code of one coordinate.
        x: Data, one row each.

    Returns:
        A function of codes.
    """
    code = model.encode(x)
    if model.resamples == 1:
        return lambda z: code.log_prob(z[:, None, None])

    mean, std = code.mean[:, 0], (code.log_variance[:, 0] / 2).exp()
    edges = torch.linspace(-_REACH, _REACH, _CELLS + 1, dtype=torch.float64)
    at, weights = (part.flatten() for part in place_nodes(torch.stack((edges[:-1], edges[1:]), 1)))
    competitors = _log_weights(model, x, mean + std * at[:, None])  # [node, row]
    probability = (weights * normal_density(at))[:, None]
    log_t = torch.arange(_FIRST - _LARGEST, _LAST - _SMALLEST + _STEP, _STEP, dtype=torch.float64)
    # φ at every t, to the power k − 1.
    others = torch.stack([(probability * (-(s + competitors).exp()).exp()).sum(0) for s in log_t])
    others = others.clamp(0.0, 1.0) ** (model.resamples - 1)

    def log_density(z: Tensor) -> Tensor:
        own = code.log_prob(z[:, None, None])
        log_weight = _log_weights(model, x, z[:, None].expand(-1, len(x)))
        log_tau = log_t + log_weight.clamp(_SMALLEST, _LARGEST)[..., None]  # [node, row, t]
        expected = ((log_tau - log_tau.exp()).exp() * others.T).sum(-1) * _STEP
        return own + expected.log() + math.log(model.resamples)

    return log_density


def _log_weights(model: LatentModel, x: Tensor, z: Float[Tensor, "node row"]) -> Float[Tensor, "node row"]:
    """log p(x, z) / q(z|x)."""
    z = z[..., None]
    return model.log_likelihood(z, x) + prior_log_prob(z) - model.encode(x).log_prob(z)
