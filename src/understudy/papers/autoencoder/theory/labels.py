"""Theorem 4.2 on labels, exactly: how far a model of equally likely labels is from the optimum of its lower bound.

Theorem 4.2 states that with a Gaussian prior and Gaussian encoders of discrete data, the independent configuration
q(z|x) = p(z), p(x|z) = q(x) is the only global optimum of the evidence lower bound, if the decoder is powerful enough.
For data with the distribution q(x), the bound is −H(x) − KL(q(x) q(z|x) ‖ p(z) p(x|z)), so this divergence is the gap
from the optimum. It is at least KL(q(z) ‖ p(z)), which no decoder removes: q(z) = Σ q(x) q(z|x) is a finite mixture of
Gaussians, and equals p(z) only where each of them does. With a resampling encoder neither holds.
"""

from __future__ import annotations

import copy
import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from understudy.measures.information.quadrature import integrate
from understudy.measures.information.scalars import class_log_probs
from understudy.nets.latent.codes import prior_log_prob
from understudy.nets.latent.model import LatentModel
from understudy.papers.autoencoder.theory.resampling import Density, encoder_density

_REACH, _CELLS = 10.0, 256
_AROUND = (-10.0, -6.0, -3.0, -1.0, 0.0, 1.0, 3.0, 6.0, 10.0)
"""Edges of cells around each mean of the encoder, in its standard deviations."""
_PIECE = 512
"""Codes that are evaluated at once; the density of a resampling encoder takes hundreds of numbers for each."""


class LabelCode(NamedTuple):
    """Exact values of a model of equally likely labels, in nats.

    Attributes:
        likelihood: Mean of log p(x) over the labels; at most −log n.
        elbo: Evidence lower bound with the encoder's distribution.
        gap: KL(q(x) q(z|x) ‖ p(z) p(x|z)), by which the bound is below its optimum −log n.
        aggregate: KL(q(z) ‖ p(z)), the part of the gap that no decoder removes.
        kl: KL(q(z|x) ‖ p(z)), mean over labels: the KL term of the bound.
        posterior_kl: KL(q(z|x) ‖ p(z|x)), mean over labels.
        posterior_entropy: Differential entropy of p(z|x), mean over labels.
        error: Estimate of the numerical error, on the safe side; infinite if the integrals did not settle.
    """

    likelihood: float
    elbo: float
    gap: float
    aggregate: float
    kl: float
    posterior_kl: float
    posterior_entropy: float
    error: float


@torch.no_grad()
def label_code(model: LatentModel, labels: int, tolerance: float = 1e-6) -> LabelCode:
    """Compute the exact values of a model by quadrature over its code.

    Args:
        model: A model of labels with a code of one coordinate.
        labels: Number n of labels, each of which the data have equally often.
        tolerance: Error that is accepted, in nats.
    """
    model = copy.deepcopy(model).double()
    x = torch.arange(labels)
    code, density = model.encode(x), encoder_density(model, x)

    def components(z: Tensor) -> Tensor:
        joint = class_log_probs(model, z[:, None]) + prior_log_prob(z[:, None])[:, None]
        p, log_q = joint.exp(), density(z)
        q = log_q.exp()
        mixture = q.mean(1)
        aggregate = torch.xlogy(mixture, mixture) - mixture * prior_log_prob(z[:, None])
        prior_cross = q * prior_log_prob(z[:, None])[:, None]
        parts = (p, p * joint, _times(q, log_q), _times(q, joint), prior_cross, q, aggregate[:, None])
        return torch.cat(parts, 1)

    mean, std = code.mean, (code.log_variance / 2).exp()
    around = (mean + std * torch.tensor(_AROUND, dtype=torch.float64)).flatten()
    edges = torch.cat((torch.linspace(-_REACH, _REACH, _CELLS + 1, dtype=torch.float64), around)).unique()
    found = integrate(components, edges, tolerance / 16, piece=_PIECE)
    evidence, p_log_p, q_log_q, q_log_p, q_log_prior, mass, (aggregate,) = (
        each.flatten() for each in found.value.split([labels] * 6 + [1])
    )
    log_evidence = evidence.log()
    elbo = float((q_log_p - q_log_q).mean())
    masses = torch.stack((evidence.sum() - 1, *(mass - 1))).abs().max()
    settled = found.converged and bool(masses < tolerance)
    return LabelCode(
        likelihood=float(log_evidence.mean()),
        elbo=elbo,
        gap=-math.log(labels) - elbo,
        aggregate=float(aggregate),
        kl=float((q_log_q - q_log_prior).mean()),
        posterior_kl=float((q_log_q - q_log_p + log_evidence).mean()),
        posterior_entropy=float((log_evidence - p_log_p / evidence).mean()),
        error=float(found.error.max() * labels + masses) if settled else math.inf,
    )


class LabelDensities(NamedTuple):
    """Probabilities and densities of a model of labels at given codes.

    Attributes:
        probability: p(x|z).
        posterior: p(z|x).
        encoder: q(z|x), after resampling if the encoder draws several codes.
    """

    probability: Float[Tensor, "node label"]
    posterior: Float[Tensor, "node label"]
    encoder: Float[Tensor, "node label"]


@torch.no_grad()
def label_densities(model: LatentModel, labels: int, z: Float[Tensor, "node"]) -> LabelDensities:
    """Compute probabilities of labels and densities of codes.

    Args:
        model: A model of labels with a code of one coordinate.
        labels: Number of labels.
        z: Codes.
    """
    model, z = copy.deepcopy(model).double(), z.double()
    density: Density = encoder_density(model, torch.arange(labels))
    edges = torch.linspace(-_REACH, _REACH, _CELLS + 1, dtype=torch.float64)

    def joint(at: Tensor) -> Tensor:
        return (class_log_probs(model, at[:, None]) + prior_log_prob(at[:, None])[:, None]).exp()

    evidence = integrate(joint, edges).value
    encoder = torch.cat([density(few) for few in z.split(_PIECE)]).exp()
    return LabelDensities(class_log_probs(model, z[:, None]).exp(), joint(z) / evidence, encoder)


def _times(weight: Tensor, log: Tensor) -> Tensor:
    """Product in which a weight of 0 counts as 0, also where the logarithm is infinite."""
    return torch.where(weight > 0, weight * log, 0.0)
