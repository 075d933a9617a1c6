"""Information by nested Monte Carlo, for every likelihood and every size of the code."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from understudy._random import Stream, normal, uniform
from understudy.nets.latent.codes import GaussianCode, prior_entropy, prior_log_prob
from understudy.nets.latent.model import LatentModel

QUANTILE = 1.96
"""Standard errors on each side of a 95% interval."""
_NUMBERS_AT_ONCE = 1 << 24
"""Numbers in the largest output of a module, for all pairs of a sample and a code that are computed at once."""
_PAIRS_AT_ONCE = 1 << 16
_PRIOR, _DATA, _CODE, _COMPONENT, _PURPOSES = range(5)


class NestedEstimate(NamedTuple):
    """Information by nested Monte Carlo, in nats.

    Attributes:
        value: The estimate.
        low: Lower end of the 95% interval, 1.96 standard errors below `lower`.
        high: Upper end of the interval, 1.96 standard errors above `upper`, at least 0.
        lower: An estimate that is too small on average.
        upper: An estimate that is too large on average.
        bound: H(z) + mean log r(z|x) over the same samples; None without an inference network.
        bound_error: Its standard error.
    """

    value: float
    low: float
    high: float
    lower: float
    upper: float
    bound: float | None
    bound_error: float | None


@torch.no_grad()
def nested_information(
    model: LatentModel, shape: torch.Size, *, samples: int, codes: int, seed: int = 0
) -> NestedEstimate:
    """Estimate I(z, x) = E log p(x|z) − E log p(x) from samples of the model.

    For each sample (z, x), p(x) is a mean over codes that are drawn for this sample alone, so that samples are
    independent and have a standard error. The codes come from a mixture π of the prior, the encoder and the inference
    network at x, in equal shares, and are weighted by p(x, z) / π(z|x): codes of the prior alone would miss those that
    explain an informative x.

    The logarithm of such a mean is too small on average, and the information too large (`upper`). If z itself is one of
    the codes, the information is too small on average (`lower`; Foster et al. 2020). Both errors are half the relative
    variance of the mean to first order; `value` counts z with half its weight, where they cancel.

    Args:
        model: The model, in evaluation mode.
        shape: Shape of one row of data.
        samples: Number of samples (z, x), at least 2.
        codes: Number of codes for each sample.
        seed: Seed; the result does not depend on how many pairs are computed at once, except for rounding.
    """
    pairs = max(1, min(_PAIRS_AT_ONCE, _NUMBERS_AT_ONCE // _largest_output(model, shape)))
    parts = []
    for rows in torch.arange(samples).split(max(1, pairs // codes)):
        parts.append(_log_ratios(model, shape, rows, codes, pairs, seed))
    value, lower, upper, log_r = torch.cat(parts, 1)
    bounded = model.infer is not None
    return NestedEstimate(
        float(value.mean()),
        float(lower.mean()) - QUANTILE * _standard_error(lower),
        max(float(upper.mean()) + QUANTILE * _standard_error(upper), 0.0),
        float(lower.mean()),
        float(upper.mean()),
        prior_entropy(model.latent) + float(log_r.mean()) if bounded else None,
        _standard_error(log_r) if bounded else None,
    )


def _log_ratios(
    model: LatentModel, shape: torch.Size, rows: Tensor, codes: int, pairs: int, seed: int
) -> Float[Tensor, "4 row"]:
    """Estimates of log p(x|z) − log p(x) of some samples (value, lower, upper), and log r(z|x)."""
    device = model.device
    step = _PURPOSES * rows.to(device)

    def draw(kind: str, purpose: int, *size: int) -> Tensor:
        make = normal if kind == "normal" else uniform
        drawn = make(seed, Stream.INFORMATION, step + purpose, math.prod(size), device.type)
        return drawn.to(model.dtype).unflatten(-1, size)

    z = draw("normal", _PRIOR, model.latent)
    x = model.sample(z, draw(model.likelihood.noise, _DATA, *(shape or (1,))).view(len(rows), *shape))
    given = model.log_likelihood(z, x).double()

    parts = [model.encode(x)] if model.infer is None else [model.encode(x), model.infer_code(x)]
    mean, log_variance = (
        torch.stack((torch.zeros_like(each[0]), *each)) for each in zip(*parts, strict=True)
    )  # [component, row, latent]; the first is the prior
    mixture = GaussianCode(mean, log_variance)

    def log_weight(z: Float[Tensor, "code row latent"], x: Tensor) -> Float[Tensor, "code row"]:
        proposal = mixture.log_prob(z.unsqueeze(1)).logsumexp(1) - math.log(len(mean))
        return (model.log_likelihood(z, x) + prior_log_prob(z) - proposal).double()

    component = (draw("uniform", _COMPONENT, codes) * len(mean)).long().clamp_max(len(mean) - 1).T
    each = torch.arange(len(rows), device=device)
    noise = draw("normal", _CODE, codes, model.latent).transpose(0, 1)
    chosen = GaussianCode(mean[component, each], log_variance[component, each])
    inner = chosen.sample(noise).split(max(1, pairs // len(rows)))
    rest = torch.cat([log_weight(few, x) for few in inner]).logsumexp(0)
    own = log_weight(z[None], x)[0]
    return torch.stack(
        (
            given - (torch.logaddexp(rest, own - math.log(2)) - math.log(codes + 0.5)),
            given - (torch.logaddexp(rest, own) - math.log(codes + 1)),
            given - (rest - math.log(codes)),
            parts[-1].log_prob(z).double(),
        )
    )


def _standard_error(values: Float[Tensor, "sample"]) -> float:
    """Standard error of the mean; infinite if a value is."""
    return float(values.std() / math.sqrt(len(values))) if values.isfinite().all() else math.inf


def _largest_output(model: LatentModel, shape: torch.Size) -> int:
    """Numbers in the largest output of a module for one pair of a code and a row, by which memory is planned."""
    sizes = [1]

    def record(module: nn.Module, given: Any, output: Any) -> None:
        sizes.append(sum(each.numel() for each in tree_leaves(output) if isinstance(each, Tensor)))

    hooks = [each.register_forward_hook(record) for each in model.modules()]
    try:
        z = torch.zeros(1, model.latent, dtype=model.dtype, device=model.device)
        noise = torch.full((1, *shape), 0.5, dtype=model.dtype, device=model.device)
        model.log_likelihood(z, model.sample(z, noise))
    finally:
        for hook in hooks:
            hook.remove()
    return max(sizes)
