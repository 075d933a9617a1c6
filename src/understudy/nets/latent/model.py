"""Models with a latent code: a standard normal prior, a decoder p(x|z), an encoder q(z|x), an inference network r(z|x).

Phuong 2021, ch. 4; the resampling encoder after Cremer et al. 2017.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from understudy._errors import UserError, first_line, kind_of, suggest
from understudy.nets.latent.codes import GaussianCode, as_code, prior_log_prob
from understudy.nets.latent.layers import require_sizes
from understudy.nets.latent.likelihoods import (
    LIKELIHOODS,
    BernoulliLikelihood,
    CategoricalLikelihood,
    GaussianLikelihood,
    Likelihood,
    SequenceLikelihood,
)

_Result = TypeVar("_Result")


class LatentModel(nn.Module):
    """A generative model p(z) p(x|z) with a standard normal prior, and an encoder that approximates p(z|x).

    Any pair of modules can be used. An encoder returns the means and log variances of a code, as a pair or as one
    tensor with the means first; what a decoder returns depends on the likelihood.

    Args:
        encoder: Module from data to the parameters of q(z|x).
        decoder: Module from codes [row, latent] to the parameters of p(x|z).
        infer: Module from data to the parameters of r(z|x), by which information is bounded. Default: none.
        likelihood: gaussian, bernoulli, categorical, sequence, or a `Likelihood`. Default: sequence for whole numbers
            if the decoder has a method `generate`, categorical for other whole numbers, gaussian for the rest, once
            `prepare` has seen data.
        latent: Number of coordinates of the code. Default: as many as the encoder's output has, once `prepare` has seen
            data.
        resamples: Number k of codes that the encoder draws, of which one is chosen by its importance weight; 1 for the
            encoder's own distribution.

    Raises:
        UserError: An unknown likelihood, or a number out of range.
    """

    def __init__(
        self,
        encoder: nn.Module,
        decoder: nn.Module,
        infer: nn.Module | None = None,
        *,
        likelihood: str | Likelihood = "auto",
        latent: int | None = None,
        resamples: int = 1,
    ) -> None:
        super().__init__()
        if isinstance(likelihood, str) and likelihood not in ("auto", *LIKELIHOODS):
            near = suggest(likelihood, tuple(LIKELIHOODS))
            raise UserError(f"must be one of auto, {', '.join(LIKELIHOODS)}, got {likelihood!r}; {near}", "likelihood")
        require_sizes(resamples=resamples, latent=1 if latent is None else latent)
        self.encoder, self.decoder, self.infer = encoder, decoder, infer
        known = likelihood if isinstance(likelihood, Likelihood) else LIKELIHOODS.get(likelihood)
        self._likelihood = known() if isinstance(known, type) else known
        self._latent = latent
        self.resamples = resamples

    @property
    def likelihood(self) -> Likelihood:
        """The distribution of data given a code.

        Raises:
            UserError: It was not given, and no data have been seen.
        """
        if self._likelihood is None:
            raise UserError("is not known yet; give it, or call prepare(x) with some data", "likelihood")
        return self._likelihood

    @property
    def latent(self) -> int:
        """Number of coordinates of the code.

        Raises:
            UserError: It was not given, and no data have been seen.
        """
        if self._latent is None:
            raise UserError("is not known yet; give it, or call prepare(x) with some data", "latent")
        return self._latent

    @property
    def dtype(self) -> torch.dtype:
        """Precision of the modules' parameters."""
        return next((p.dtype for p in self.parameters() if p.is_floating_point()), torch.get_default_dtype())

    @property
    def device(self) -> torch.device:
        """Device of the modules' parameters."""
        return next(self.parameters(), torch.empty(0)).device

    @torch.no_grad()
    def prepare(self, x: Tensor | np.ndarray) -> Tensor:
        """Determine the likelihood and the size of the code from data, and validate the modules' outputs.

        Args:
            x: Data, one row each; a few rows are enough, but all that are given are validated.

        Returns:
            The data as the modules take them, on their device: numbers in their precision, classes and tokens as int64.

        Raises:
            UserError: Data that are empty or not finite, or modules whose outputs do not fit them.
        """
        x = self._read(x).to(self.device)
        training = [each for each in self.modules() if each.training]
        self.eval()  # two rows must not change the statistics of BatchNorm
        try:
            self._validate_outputs(x)
        finally:
            for each in training:
                each.training = True
        return x

    def encode(self, x: Tensor) -> GaussianCode:
        """Compute the encoder's distribution q(z|x).

        Args:
            x: Data.
        """
        return as_code(self.encoder(x))

    def infer_code(self, x: Tensor) -> GaussianCode:
        """Compute the inference network's distribution r(z|x).

        Args:
            x: Data.

        Raises:
            UserError: The model has no inference network.
        """
        if self.infer is None:
            raise UserError("is missing, which bounds the information; give a module like the encoder", "infer")
        return as_code(self.infer(x))

    def log_likelihood(self, z: Float[Tensor, "*sample row latent"], x: Tensor) -> Float[Tensor, "*sample row"]:
        """Compute log p(x|z) in nats.

        Args:
            z: Codes; leading axes are several codes for each row.
            x: Data.
        """
        many = z.shape[:-2].numel()
        repeated = x.expand(many, *x.shape).flatten(0, 1)
        return self.likelihood.log_prob(self.decoder, z.flatten(0, -2), repeated).view(z.shape[:-1])

    def sample(self, z: Float[Tensor, "row latent"], noise: Tensor) -> Tensor:
        """Draw one x for each code.

        Args:
            z: Codes.
            noise: Normal or uniform numbers of the shape of the data, as the likelihood asks for.
        """
        return self.likelihood.sample(self.decoder, z, noise)

    def log_weights(
        self, x: Tensor, noise: Float[Tensor, "sample row latent"]
    ) -> tuple[Float[Tensor, "sample row latent"], Float[Tensor, "sample row"]]:
        """Draw codes from the encoder, and compute log p(x, z) / q(z|x) of each.

        Args:
            x: Data.
            noise: Standard normal numbers.

        Returns:
            The codes, and their log importance weights.
        """
        code = self.encode(x)
        z = code.sample(noise)
        return z, self.log_likelihood(z, x) + prior_log_prob(z) - code.log_prob(z)

    def draw_codes(
        self, x: Tensor, noise: Float[Tensor, "resample row latent"], choice: Float[Tensor, "row"]
    ) -> Float[Tensor, "row latent"]:
        """Draw a code for each x: of several from the encoder, one by its importance weight (Cremer et al. 2017).

        Args:
            x: Data.
            noise: Standard normal numbers, k for each row.
            choice: A uniform number for each row, by which one of the k is chosen.
        """
        z, log_weight = self.log_weights(x, noise)
        cumulative = log_weight.softmax(0).cumsum(0)
        chosen = (choice > cumulative[:-1]).sum(0)
        return z.gather(0, chosen[None, :, None].expand(1, *z.shape[1:]))[0]

    def code_log_prob(
        self, z: Float[Tensor, "point row latent"], x: Tensor, noise: Float[Tensor, "sample other row latent"]
    ) -> Float[Tensor, "point row"]:
        """Estimate the log density of `draw_codes` by Monte Carlo (Cremer et al. 2017).

        The density is an average over the k − 1 codes that compete with z, of which the estimate of the density is
        unbiased; its logarithm is therefore too small on average, by about half the relative variance of the estimate.

        Args:
            z: Codes.
            x: Data.
            noise: Standard normal numbers for the competing codes; k − 1 for each row, any number of samples.

        Returns:
            The estimate; without competitors (k = 1) the exact density of the encoder.
        """
        return self.code_log_probs(z, x, noise).logsumexp(0) - math.log(len(noise))

    def code_log_probs(
        self, z: Float[Tensor, "point row latent"], x: Tensor, noise: Float[Tensor, "sample other row latent"]
    ) -> Float[Tensor, "sample point row"]:
        """Compute the log density of `draw_codes` with each sample of its competing codes, of which it is the mean.

        Args:
            z: Codes.
            x: Data.
            noise: Standard normal numbers for the competing codes; k − 1 for each row, any number of samples.
        """
        samples, others = noise.shape[:2]
        if not others:
            return self.encode(x).log_prob(z).expand(samples, *z.shape[:-1])
        own = self.log_likelihood(z, x) + prior_log_prob(z)
        weight = own - self.encode(x).log_prob(z)
        rest = self.log_weights(x, noise.flatten(0, 1))[1].view(samples, others, -1).logsumexp(1)
        return own - torch.logaddexp(weight, rest[:, None]) + math.log(others + 1)

    def _read(self, x: Any) -> Tensor:
        """Validate data as far as no module is needed, and convert them to what the modules take."""
        try:
            x = torch.as_tensor(x)
        except (TypeError, ValueError, RuntimeError):
            raise UserError(f"must be a tensor or an array of numbers, got {kind_of(x)}", "data") from None
        if x.ndim < 1 or not len(x) or not x.numel():
            raise UserError("must have at least one row", "data")
        if x.is_complex():
            raise UserError(f"must be real numbers, got {x.dtype}", "data")
        if x.is_floating_point() and not x.isfinite().all():
            raise UserError("must be finite numbers, got NaN or infinity", "data")
        if self._likelihood is None:
            discrete = SequenceLikelihood() if hasattr(self.decoder, "generate") else CategoricalLikelihood()
            self._likelihood = GaussianLikelihood() if x.is_floating_point() else discrete
        kind = self._likelihood
        if isinstance(kind, CategoricalLikelihood | SequenceLikelihood):
            if x.is_floating_point():
                raise UserError(
                    f"must be whole numbers for the likelihood {kind.name}, got {x.dtype}; convert them with .long()",
                    "data",
                )
            return x.long()
        if isinstance(kind, GaussianLikelihood | BernoulliLikelihood):
            if x.ndim < 2:
                raise UserError(
                    f"must have an axis of rows and one of numbers, got the shape {list(x.shape)}; add one with "
                    "x[:, None]",
                    "data",
                )
            return x.to(self.dtype)
        return x.to(self.dtype) if x.is_floating_point() else x

    def _validate_outputs(self, x: Tensor) -> None:
        """Raise a `UserError` unless the modules' outputs fit the data; determine the size of the code."""
        few = x[:2]
        code = _attempt("encoder", lambda: as_code(self.encoder(few)), few)
        wanted = (len(few), code.mean.shape[-1] if self._latent is None else self._latent)
        inferred = self.infer and _attempt("infer", lambda: self.infer_code(few), few)
        for name, part in (("encoder", code), ("infer", inferred)):
            for each in part or ():
                if each.shape != wanted:
                    raise UserError(
                        f"must return as many means as log variances of codes, {wanted[1]} for each row, got "
                        f"{list(each.shape[1:])}",
                        name,
                    )
        self._latent = wanted[1]
        z, likelihood = code.mean.new_zeros(wanted), self.likelihood
        _attempt("decoder", lambda: likelihood.require_output(self.decoder, z, x), z)


def _attempt(name: str, call: Callable[[], _Result], given: Tensor) -> _Result:
    """Call a module of the user's, and name it if it fails."""
    try:
        return call()
    except UserError:
        raise
    except Exception as error:  # a module of the user's can raise any exception
        raise UserError(
            f"fails on a tensor of shape {list(given.shape)} and {given.dtype} ({first_line(error)})", name
        ) from error
