"""Distributions p(x|z) of data given a code, from the outputs of a decoder.

Every likelihood draws its samples from noise of the shape of the data, so that samples are a function of random numbers
that the caller chooses.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol, cast, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from understudy._errors import UserError
from understudy._numbers import number

END = 0
"""Token that ends a sentence, and fills the places after it."""


@runtime_checkable
class Likelihood(Protocol):
    """A distribution of data given a code."""

    name: ClassVar[str]
    """Its name as the argument `likelihood`."""
    reparametrised: ClassVar[bool]
    """Whether samples are differentiable functions of the decoder's outputs."""
    noise: ClassVar[Literal["normal", "uniform"]]
    """Distribution of the noise that samples are drawn from."""

    def log_prob(self, decoder: nn.Module, z: Tensor, x: Tensor) -> Float[Tensor, "sample"]:
        """Compute log p(x|z) in nats, row by row."""

    def sample(self, decoder: nn.Module, z: Tensor, noise: Tensor) -> Tensor:
        """Draw one x for each code from noise of the shape of x."""

    def require_output(self, decoder: nn.Module, z: Tensor, x: Tensor) -> None:
        """Raise a `UserError` unless the decoder's output for some codes fits all data, of which there may be more."""


@dataclass(frozen=True)
class GaussianLikelihood:
    """Independent normal numbers.

    The decoder returns a pair (means, log variances) of the shape of the data, or one tensor with the means first along
    its second axis. With `std`, it returns the means alone.

    Args:
        std: Standard deviation of all numbers. Default: the decoder returns log variances.

    Raises:
        UserError: A standard deviation that is not above 0.
    """

    std: float | None = None
    name: ClassVar[str] = "gaussian"
    reparametrised: ClassVar[bool] = True
    noise: ClassVar[Literal["normal", "uniform"]] = "normal"

    def __post_init__(self) -> None:
        if self.std is not None and not (math.isfinite(self.std) and self.std > 0):
            raise UserError(f"must be a finite number above 0, got {number(self.std)}", "std")

    def moments(self, decoder: nn.Module, z: Tensor) -> tuple[Tensor, Tensor]:
        """Compute means and log variances given codes.

        Args:
            decoder: The decoder.
            z: Codes, one per row.
        """
        output = decoder(z)
        if self.std is not None:
            return output, torch.full_like(output, 2 * math.log(self.std))
        mean, log_variance = output if isinstance(output, tuple | list) else torch.tensor_split(output, 2, dim=1)
        return mean, log_variance

    def log_prob(self, decoder: nn.Module, z: Tensor, x: Tensor) -> Float[Tensor, "sample"]:
        mean, log_variance = self.moments(decoder, z)
        squares = (x - mean).square() * (-log_variance).exp()
        return -(squares + log_variance + math.log(2 * math.pi)).flatten(1).sum(1) / 2

    def sample(self, decoder: nn.Module, z: Tensor, noise: Tensor) -> Tensor:
        mean, log_variance = self.moments(decoder, z)
        return mean + (log_variance / 2).exp() * noise

    def require_output(self, decoder: nn.Module, z: Tensor, x: Tensor) -> None:
        means, variances = (each.shape for each in self.moments(decoder, z))
        each = "means and log variances" if self.std is None else "means"
        _require_shape(means, z, x, each)
        _require_shape(variances, z, x, each)


@dataclass(frozen=True)
class BernoulliLikelihood:
    """Independent numbers 0 or 1; the decoder returns logits of the shape of the data."""

    name: ClassVar[str] = "bernoulli"
    reparametrised: ClassVar[bool] = False
    noise: ClassVar[Literal["normal", "uniform"]] = "uniform"

    def log_prob(self, decoder: nn.Module, z: Tensor, x: Tensor) -> Float[Tensor, "sample"]:
        logits = decoder(z)
        return (x * functional.logsigmoid(logits) + (1 - x) * functional.logsigmoid(-logits)).flatten(1).sum(1)

    def sample(self, decoder: nn.Module, z: Tensor, noise: Tensor) -> Tensor:
        logits = decoder(z)
        return (noise < logits.sigmoid()).to(logits.dtype)

    def require_output(self, decoder: nn.Module, z: Tensor, x: Tensor) -> None:
        _require_shape(decoder(z).shape, z, x, "logits")
        if bool(((x != 0) & (x != 1)).any()):
            raise UserError(
                f"must be 0 or 1 for the likelihood bernoulli, got {number(float(x.min()))} to "
                f"{number(float(x.max()))}; round them, or choose the likelihood gaussian",
                "data",
            )


@dataclass(frozen=True)
class CategoricalLikelihood:
    """Independent classes, counted from 0; the decoder returns logits with one more axis than the data, the last."""

    name: ClassVar[str] = "categorical"
    reparametrised: ClassVar[bool] = False
    noise: ClassVar[Literal["normal", "uniform"]] = "uniform"

    def log_prob(self, decoder: nn.Module, z: Tensor, x: Tensor) -> Float[Tensor, "sample"]:
        each = decoder(z).log_softmax(-1).gather(-1, x.unsqueeze(-1)).squeeze(-1)
        return each.flatten(1).sum(1) if each.ndim > 1 else each

    def sample(self, decoder: nn.Module, z: Tensor, noise: Tensor) -> Tensor:
        return draw_class(decoder(z), noise)

    def require_output(self, decoder: nn.Module, z: Tensor, x: Tensor) -> None:
        shape = decoder(z).shape
        _require_shape(shape[:-1], z, x, "logits, without their last axis,")
        _require_classes(x, shape[-1], "classes")


class SequenceDecoder(Protocol):
    """What a decoder of sequences must offer."""

    def __call__(self, z: Float[Tensor, "row latent"], x: Int[Tensor, "row place"]) -> Float[Tensor, "row place word"]:
        """Compute the logits of each token given the code and the tokens before it."""

    def generate(self, z: Float[Tensor, "row latent"], noise: Float[Tensor, "row place"]) -> Int[Tensor, "row place"]:
        """Draw one token after the other, each from one uniform number; `END` fills what follows the end."""


@dataclass(frozen=True)
class SequenceLikelihood:
    """Sequences of tokens that end with `END`, or at the last place; the decoder is a `SequenceDecoder`."""

    name: ClassVar[str] = "sequence"
    reparametrised: ClassVar[bool] = False
    noise: ClassVar[Literal["normal", "uniform"]] = "uniform"

    def log_prob(self, decoder: nn.Module, z: Tensor, x: Tensor) -> Float[Tensor, "sample"]:
        each = decoder(z, x).log_softmax(-1).gather(-1, x.unsqueeze(-1)).squeeze(-1)
        return torch.where(counted_places(x), each, 0.0).sum(1)

    def sample(self, decoder: nn.Module, z: Tensor, noise: Tensor) -> Tensor:
        return cast(SequenceDecoder, decoder).generate(z, noise)

    def require_output(self, decoder: nn.Module, z: Tensor, x: Tensor) -> None:
        if not callable(getattr(decoder, "generate", None)):
            raise UserError(
                "must have a method generate(z, noise), which draws sequences, for the likelihood sequence", "decoder"
            )
        shape = decoder(z, x[: len(z)]).shape
        _require_shape(shape[:-1], z, x, "logits, without their last axis,")
        _require_classes(x, shape[-1], "tokens")


LIKELIHOODS: dict[str, type[Likelihood]] = {
    each.name: each for each in (GaussianLikelihood, BernoulliLikelihood, CategoricalLikelihood, SequenceLikelihood)
}


def counted_places(x: Int[Tensor, "row place"]) -> Tensor:
    """Find the places of sequences up to the first `END`, which is included; what follows is padding.

    Args:
        x: Tokens.
    """
    ends = (x == END).long()
    return ends.cumsum(1) - ends == 0


def draw_class(logits: Float[Tensor, "*sample choice"], noise: Float[Tensor, "*sample"]) -> Int[Tensor, "*sample"]:
    """Draw a class from each row of logits by inverting its distribution function.

    Args:
        logits: Logits.
        noise: Uniform numbers in (0, 1), one per row.
    """
    cumulative = logits.softmax(-1).cumsum(-1)
    # The last sum may be a rounding below 1: it is left out, and every number above the others is the last class.
    return (noise.unsqueeze(-1) > cumulative[..., :-1]).sum(-1)


def _require_shape(given: torch.Size, z: Tensor, x: Tensor, what: str) -> None:
    if given != (len(z), *x.shape[1:]):
        got = f"{list(given[1:])}" if given[:1] == (len(z),) else f"the shape {list(given)} for {len(z)} codes"
        raise UserError(
            f"must return {what} of the shape of the data, {list(x.shape[1:])} for each row, got {got}", "decoder"
        )


def _require_classes(x: Tensor, count: int, what: str) -> None:
    low, high = int(x.min()), int(x.max())
    if not 0 <= low <= high < count:
        raise UserError(
            f"must be {what} from 0 to {count - 1}, as many as the decoder has logits, got {number(low)} to "
            f"{number(high)}",
            "data",
        )
