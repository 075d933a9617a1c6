"""Gaussian distributions of a latent code: the prior, an encoder q(z|x), an inference network r(z|x)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

_LOG_2PI = math.log(2 * math.pi)


class GaussianCode(NamedTuple):
    """Normal distributions of a code with independent coordinates, one for each input.

    Attributes:
        mean: Means.
        log_variance: Logarithms of the variances.
    """

    mean: Float[Tensor, "*input latent"]
    log_variance: Float[Tensor, "*input latent"]

    def sample(self, noise: Float[Tensor, "*noise latent"]) -> Float[Tensor, "*samples latent"]:
        """Map standard normal noise to codes, differentiable in the mean and the variance.

        Args:
            noise: Standard normal numbers; leading axes broadcast with those of the code.
        """
        return self.mean + (self.log_variance / 2).exp() * noise

    def log_prob(self, z: Float[Tensor, "*codes latent"]) -> Float[Tensor, "*samples"]:
        """Compute the log density of codes.

        Args:
            z: Codes; leading axes broadcast with those of the code.
        """
        squares = (z - self.mean).square() * (-self.log_variance).exp()
        return -(squares + self.log_variance + _LOG_2PI).sum(-1) / 2

    def divergence(self) -> Float[Tensor, "*input latent"]:
        """KL divergence from the standard normal prior, coordinate by coordinate, in nats."""
        return (self.mean.square() + self.log_variance.exp() - 1 - self.log_variance) / 2


def prior_log_prob(z: Float[Tensor, "*sample latent"]) -> Float[Tensor, "*sample"]:
    """Compute the log density of codes under the standard normal prior.

    Args:
        z: Codes.
    """
    return -(z.square() + _LOG_2PI).sum(-1) / 2


def prior_entropy(latent: int) -> float:
    """Entropy of the standard normal prior in nats, ½ log(2πe) per coordinate.

    Args:
        latent: Number of coordinates.
    """
    return latent * (_LOG_2PI + 1) / 2


def as_code(output: Tensor | Sequence[Tensor]) -> GaussianCode:
    """Read the output of an encoder or inference network.

    Args:
        output: Means and log variances: a pair, or one tensor whose last axis has the means first.
    """
    mean, log_variance = torch.tensor_split(output, 2, dim=-1) if isinstance(output, Tensor) else output
    return GaussianCode(mean, log_variance)
