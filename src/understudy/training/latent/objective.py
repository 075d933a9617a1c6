"""What a model with a latent code maximises: the evidence lower bound, and how much information the code has.

Phuong 2021, eq. 4.11 and appendix C; free bits after Kingma et al. 2016, the weight of the KL term after Higgins et al.
2017, its warm-up after Bowman et al. 2016, several importance samples after Burda et al. 2016.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from understudy._errors import UserError
from understudy._numbers import number
from understudy.nets.latent.codes import prior_entropy, prior_log_prob
from understudy.nets.latent.model import LatentModel


@dataclass(frozen=True)
class CodeObjective:
    """The objective of a mutual autoencoder (Phuong 2021, eq. 4.11) or, without a target, of a variational autoencoder.

    Args:
        target: M, the information between code and data that is asked for, in nats; None for a variational autoencoder.
        penalty: C, the weight of the distance of the estimated information from the target.
        penalty_from: Steps before the penalty enters the objective.
        beta: Weight of the KL term; 1 for the evidence lower bound.
        warm_up: Steps over which this weight increases from 0.
        free_bits: KL divergence of each coordinate of the code, averaged over a batch, below which it is not penalised,
            in nats.
        baseline: Whether the gradient of the information of discrete data subtracts, from each sample's log r(z|x), the
            mean over the other samples; see `infomax`.
        clip: Largest norm of the gradient of the evidence lower bound; longer ones are shortened.
        clip_information: The same for the gradient of the information, before it is multiplied by the penalty.

    Raises:
        UserError: A number out of range.
    """

    target: float | None = None
    penalty: float = 1.0
    penalty_from: int = 0
    beta: float = 1.0
    warm_up: int = 0
    free_bits: float = 0.0
    baseline: bool = True
    clip: float = math.inf
    clip_information: float = math.inf

    def __post_init__(self) -> None:
        if self.target is not None:
            _require(self.target >= 0, "target", "at least 0 nats", self.target)
        _require(self.penalty > 0, "penalty", "above 0", self.penalty)
        _require(self.beta >= 0, "beta", "at least 0", self.beta)
        _require(self.free_bits >= 0, "free_bits", "at least 0 nats", self.free_bits)
        for name in ("clip", "clip_information"):
            if not getattr(self, name) > 0:
                raise UserError(f"must be above 0, got {number(getattr(self, name))}", name)
        for name in ("penalty_from", "warm_up"):
            if getattr(self, name) < 0:
                raise UserError(f"must be a number of steps of at least 0, got {getattr(self, name)}", name)

    def weights(self, step: int) -> TermWeights:
        """Weights of the terms of the objective at a step, counted from 0.

        Args:
            step: The step.
        """
        rising = min(1.0, step / self.warm_up) if self.warm_up else 1.0
        penalised = self.target is not None and step >= self.penalty_from
        return TermWeights(
            beta=self.beta * rising,
            free_bits=self.free_bits,
            target=self.target or 0.0,
            penalty=self.penalty if penalised else 0.0,
        )


class TermWeights(NamedTuple):
    """Weights of the terms of an objective at one step; tensors with one number per network in a population.

    Attributes:
        beta: Weight of the KL term.
        free_bits: KL divergence per coordinate that is not penalised.
        target: Information asked for.
        penalty: Weight of its distance; 0 where it is not penalised.
    """

    beta: float | Tensor
    free_bits: float | Tensor
    target: float | Tensor
    penalty: float | Tensor


class Noise(NamedTuple):
    """Random numbers of an update of the model.

    Attributes:
        code: Standard normal numbers for codes of the encoder, k for each row.
        prior: Standard normal numbers: codes of the prior.
        data: Normal or uniform numbers for the data that are drawn at these codes.
    """

    code: Float[Tensor, "resample row latent"]
    prior: Float[Tensor, "sample latent"]
    data: Tensor


class Bound(NamedTuple):
    """The evidence lower bound and its parts, averaged over a batch, in nats.

    Attributes:
        objective: What is maximised: with a weight of the KL term or free bits, not the bound itself.
        elbo: The bound; with several importance samples, the tighter bound of Burda et al. (2016).
        divergence: KL divergence of the encoder from the prior.
    """

    objective: Float[Tensor, ""]
    elbo: Float[Tensor, ""]
    divergence: Float[Tensor, ""]


class Infomax(NamedTuple):
    """The estimate H(z) + E log r(z|x) of the information, and a function with its gradient.

    Attributes:
        information: The estimate from a batch, in nats; on average it is a lower bound (Phuong 2021, theorem 4.1).
        surrogate: A number whose gradient in the decoder's parameters estimates that of the information.
    """

    information: Float[Tensor, ""]
    surrogate: Float[Tensor, ""]


def lower_bound(model: LatentModel, x: Tensor, noise: Tensor, weights: TermWeights) -> Bound:
    """Estimate the evidence lower bound of a batch.

    With several importance samples it is the bound of Burda et al. (2016), which is at most the evidence lower bound of
    the code that is chosen among them by importance weights (Cremer et al. 2017).

    Args:
        model: The model.
        x: A batch of data.
        noise: Standard normal numbers [resample, row, latent] for codes of the encoder; with one for each row, the KL
            term is computed exactly.
        weights: Weights of the KL term.
    """
    code = model.encode(x)
    z = code.sample(noise)
    reconstruction = model.log_likelihood(z, x)
    each = code.divergence().mean(0)
    divergence = each.sum()
    if len(noise) == 1:
        likelihood = reconstruction.mean()
        free = torch.maximum(each, torch.as_tensor(weights.free_bits).to(each))
        return Bound(likelihood - weights.beta * free.sum(), likelihood - divergence, divergence)
    ratio = prior_log_prob(z) - code.log_prob(z)
    several = math.log(len(noise))
    elbo = ((reconstruction + ratio).logsumexp(0) - several).mean()
    objective = ((reconstruction + weights.beta * ratio).logsumexp(0) - several).mean()
    return Bound(objective, elbo, divergence)


def infomax(model: LatentModel, prior: Tensor, noise: Tensor, baseline: bool = True) -> Infomax:
    """Estimate the information between code and data by the bound of Barber and Agakov (2003), with its gradient.

    The inference network is held fixed. Continuous data are reparametrised, so that the gradient passes through them;
    discrete ones use REINFORCE (Williams 1992): the mean of log r(z|x) ∇ log p(x|z), which is eq. C.19 of Phuong (2021)
    without a baseline. The baseline is the mean of log r(z|x) over the other samples of the batch, which are
    independent of this one, so that the gradient remains unbiased. It lowers the variance if rewards are nearly equal,
    as they are where the code has little information, and can raise it near determinism, where samples with a large
    gradient are rare and have other rewards than most.

    Args:
        model: The model, with an inference network.
        prior: Standard normal numbers: codes of the prior.
        noise: Numbers from which data are drawn at these codes.
        baseline: Whether REINFORCE subtracts from each log r(z|x) the mean over the other samples.
    """
    entropy = prior_entropy(prior.shape[-1])
    if model.likelihood.reparametrised:
        mean = model.infer_code(model.sample(prior, noise)).log_prob(prior).mean()
        return Infomax(entropy + mean.detach(), mean)
    with torch.no_grad():
        x = model.sample(prior, noise)
        found = model.infer_code(x).log_prob(prior)
        reward = found
        if baseline and len(found) > 1:
            reward = found - (found.sum() - found) / (len(found) - 1)
    surrogate = (reward * model.log_likelihood(prior, x)).mean()
    return Infomax(entropy + found.mean(), surrogate)


def inference_loss(model: LatentModel, prior: Tensor, noise: Tensor) -> Float[Tensor, ""]:
    """Compute the mean of −log r(z|x) over samples of the model, which the inference network minimises.

    Args:
        model: The model, with an inference network; data are drawn from it without gradients.
        prior: Standard normal numbers: codes of the prior.
        noise: Numbers from which data are drawn at these codes.
    """
    with torch.no_grad():
        x = model.sample(prior, noise)
    return -model.infer_code(x).log_prob(prior).mean()


def _require(holds: bool, name: str, wanted: str, given: float) -> None:
    if not (holds and math.isfinite(given)):
        raise UserError(f"must be a finite number, {wanted}, got {number(given)}", name)
