"""Gradient of the information of discrete data: exact, and the variance of its estimators (Phuong 2021, app. C.3).

With s = ∇ log p(x|z), in the parameters of the decoder, and the reward f = log r(z|x), the gradient of the bound in
theorem 4.1 is E f s. REINFORCE averages f s over n samples. Subtracting from each reward the mean of the others gives
the sample covariance of f and s, since E[s|z] = 0; it is unbiased too, and its variance is that of a U-statistic.
"""

from __future__ import annotations

import copy
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call, grad, jacrev, vmap

from understudy._random import Stream, normal, uniform
from understudy.measures.information.quadrature import normal_density, place_nodes
from understudy.nets.latent.model import LatentModel
from understudy.training.latent.objective import infomax

_REACH, _CELLS = 8.5, 96
_CHUNK = 64
"""Codes whose gradients are held at once."""
_BATCHES = 64
"""Batches whose gradients are held at once."""


class GradientMoments(NamedTuple):
    """The exact gradient of the information, and moments that determine the variance of its estimators.

    Variances are traces of the covariance matrix, over all parameters of the decoder.

    Attributes:
        gradient: E f s, one number per parameter.
        reward_mean: E f.
        reward_square: E f².
        score: E ‖s‖².
        reward_score: E f ‖s‖².
        reward_square_score: E f² ‖s‖².
    """

    gradient: Float[Tensor, "parameter"]
    reward_mean: float
    reward_square: float
    score: float
    reward_score: float
    reward_square_score: float

    @property
    def norm(self) -> float:
        """Length of the gradient."""
        return float(self.gradient.norm())

    def variance(self, samples: int, baseline: bool) -> float:
        """Variance of the estimate from a batch, summed over parameters.

        Args:
            samples: Samples n in the batch, at least 2 with a baseline.
            baseline: Whether each reward is compared with the mean of the others.
        """
        if not baseline:
            return (self.reward_square_score - self.norm**2) / samples
        centred = self._second_moment(self.reward_mean)
        spread = self.reward_square - self.reward_mean**2
        pairs = samples * (samples - 1)
        return (samples - 2) / pairs * (centred - self.norm**2) + (centred + spread * self.score) / pairs

    def least_variance(self, samples: int) -> float:
        """Variance with the best constant baseline, E f ‖s‖² / E ‖s‖².

        Args:
            samples: Samples in the batch.
        """
        best = self.reward_score / self.score if self.score else 0.0
        return (self._second_moment(best) - self.norm**2) / samples

    def _second_moment(self, constant: float) -> float:
        """E (f − constant)² ‖s‖²."""
        return self.reward_square_score - 2 * constant * self.reward_score + constant**2 * self.score


def gradient_moments(model: LatentModel, labels: int) -> GradientMoments:
    """Compute the exact gradient of the information in the decoder's parameters, by quadrature over the code.

    Args:
        model: A model of labels with a code of one coordinate and an inference network.
        labels: Number of labels.
    """
    model = copy.deepcopy(model).double().requires_grad_(False)
    edges = torch.linspace(-_REACH, _REACH, _CELLS + 1, dtype=torch.float64)
    z, weights = (part.flatten() for part in place_nodes(torch.stack((edges[:-1], edges[1:]), 1)))
    weights = weights * normal_density(z)
    reward = model.infer_code(torch.arange(labels)).log_prob(z[:, None, None])
    parameters: dict[str, Tensor] = dict(model.decoder.named_parameters())

    def log_probs(values: dict[str, Tensor], at: Tensor) -> Tensor:
        output: Tensor = functional_call(model.decoder, values, (at.view(1, 1),))
        return output[0].log_softmax(-1)

    scores = vmap(jacrev(log_probs), in_dims=(None, 0))
    gradient = torch.zeros(sum(each.numel() for each in parameters.values()), dtype=torch.float64)
    moments = torch.zeros(5, dtype=torch.float64)
    for at, weight, f in zip(z.split(_CHUNK), weights.split(_CHUNK), reward.split(_CHUNK), strict=True):
        s = torch.cat([each.flatten(2) for each in scores(parameters, at).values()], 2)
        p = vmap(log_probs, in_dims=(None, 0))(parameters, at).exp() * weight[:, None]
        gradient += torch.einsum("zx,zxp->p", p * f, s)
        squares = s.square().sum(2)
        kinds = (f, f**2, squares, f * squares, f**2 * squares)
        moments += torch.stack([(p * each).sum() for each in kinds])
    return GradientMoments(gradient, *moments.tolist())


def estimate_gradients(
    model: LatentModel, *, batches: int, samples: int, baseline: bool, seed: int
) -> Float[Tensor, "batch parameter"]:
    """Estimate the gradient of the information from batches of samples of the model, as training does.

    Args:
        model: A model of labels with a code of one coordinate and an inference network.
        batches: Number of estimates.
        samples: Samples of each.
        baseline: Whether each reward is compared with the mean of the others.
        seed: Seed of the samples.
    """
    model = copy.deepcopy(model).double().requires_grad_(False)
    parameters: dict[str, Tensor] = {f"model.decoder.{name}": each for name, each in model.decoder.named_parameters()}
    loss = _Surrogate(model, baseline)

    def surrogate(values: dict[str, Tensor], prior: Tensor, noise: Tensor) -> Tensor:
        found: Tensor = functional_call(loss, values, (prior, noise))
        return found

    estimate = vmap(grad(surrogate), in_dims=(None, 0, 0))
    parts = []
    for start in range(0, batches, _BATCHES):
        count = min(_BATCHES, batches - start) * samples
        prior = normal(seed, Stream.EVALUATION, 2 * start, count).view(-1, samples, 1)
        noise = uniform(seed, Stream.EVALUATION, 2 * start + 1, count).view(-1, samples)
        found = estimate(parameters, prior, noise)
        parts.append(torch.cat([each.flatten(1) for each in found.values()], 1))
    return torch.cat(parts)


class _Surrogate(nn.Module):
    def __init__(self, model: LatentModel, baseline: bool) -> None:
        super().__init__()
        self.model, self.baseline = model, baseline

    def forward(self, prior: Tensor, noise: Tensor) -> Tensor:
        return infomax(self.model, prior, noise, self.baseline).surrogate
