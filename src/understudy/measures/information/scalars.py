"""Information by quadrature: a code of one coordinate, and data that are a single class or a single real number."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from understudy.measures.information.quadrature import (
    Integral,
    integrate,
    normal_density,
    place_nodes,
    split_cells,
)
from understudy.nets.latent.codes import prior_entropy
from understudy.nets.latent.likelihoods import BernoulliLikelihood, CategoricalLikelihood, GaussianLikelihood
from understudy.nets.latent.model import LatentModel

REACH = 10.0
"""Codes beyond this many standard deviations of the prior are left out: their probability is below 2×10⁻²³."""
_FIRST_CELLS = 256
_STEPS = (4.0, 2.0, 1.0)
"""Standard deviations of p(x|z) by which its mean may move within a cell, in turn, until the result settles."""
_STILL = 1e-4
"""Standard deviations of p(x|z) by which its mean may move within a cell that is not halved, smoothly or not."""
_SMOOTH = 0.9
"""Share of its movement in a cell that it may have in half of it."""
_NARROWEST = 1e-13
"""Prior probability of cells of codes that are not made smaller."""
_MOST_NODES = 1 << 22
"""Codes that are used at most."""
_MOST_PAIRS = 1 << 29
"""Pairs of a code and a number whose density is computed at most."""
_PAIRS_AT_ONCE = 1 << 22
_NOISE_CELLS = (16, 32)
"""Cells of the rules over the noise of x, whose difference is the error."""
_TAIL = 10.0
"""Standard deviations of p(x|z) beyond which its density counts as 0: it is below 10⁻²¹ of its maximum."""


class Quadrature(NamedTuple):
    """Information by quadrature.

    Attributes:
        information: I(z, x) in nats.
        error: Estimate of the numerical error, on the safe side.
        converged: Whether it is below the tolerance.
        bound: H(z) + E log r(z|x); None without an inference network.
        bound_error: Its numerical error.
    """

    information: float
    error: float
    converged: bool
    bound: float | None = None
    bound_error: float = 0.0


def has_classes(model: LatentModel, shape: torch.Size) -> bool:
    """Whether data are a single class: a categorical variable, or one number that is 0 or 1.

    Args:
        model: The model.
        shape: Shape of one row of data.
    """
    return isinstance(model.likelihood, CategoricalLikelihood | BernoulliLikelihood) and shape.numel() == 1


def has_number(model: LatentModel, shape: torch.Size) -> bool:
    """Whether data are a single real number, normal given the code.

    Args:
        model: The model.
        shape: Shape of one row of data.
    """
    return isinstance(model.likelihood, GaussianLikelihood) and shape.numel() == 1


def class_log_probs(model: LatentModel, z: Float[Tensor, "row latent"]) -> Float[Tensor, "row class"]:
    """Compute log p(x|z) for all classes x, where `has_classes` holds.

    Args:
        model: The model.
        z: Codes.
    """
    logits = model.decoder(z)
    if isinstance(model.likelihood, BernoulliLikelihood):
        logits = logits.flatten()
        return torch.stack((functional.logsigmoid(-logits), functional.logsigmoid(logits)), 1).double()
    return logits.double().log_softmax(-1).flatten(0, -2)


def all_classes(model: LatentModel, shape: torch.Size, count: int, like: Tensor) -> Tensor:
    """List every class once, as data.

    Args:
        model: The model.
        shape: Shape of one row of data.
        count: Number of classes.
        like: A tensor of codes, from which device and dtype are taken.
    """
    classes = torch.arange(count, device=like.device)
    return (classes.to(like.dtype) if isinstance(model.likelihood, BernoulliLikelihood) else classes).view(
        count, *shape
    )


def integrate_classes(model: LatentModel, shape: torch.Size, like: Tensor, tolerance: float) -> Quadrature:
    """Compute I(z, x) = H(x) − E H(x|z) for a single class and a code of one coordinate.

    Args:
        model: The model.
        shape: Shape of one row of data.
        like: A tensor of codes, from which device and dtype are taken.
        tolerance: Error that is accepted, in nats.
    """
    count = class_log_probs(model, like.new_zeros(1, 1)).shape[-1]
    inference = model.infer and model.infer_code(all_classes(model, shape, count, like))

    def components(z: Tensor) -> Tensor:
        z = z[:, None]
        p = class_log_probs(model, z.to(like.dtype)).exp()
        parts = [p, torch.special.entr(p).sum(1, keepdim=True)]
        if inference:
            each = inference.log_prob(z.to(like.dtype)[:, None]).double()
            parts.append(torch.where(p > 0, p * each, 0.0).sum(1, keepdim=True))
        return torch.cat(parts, 1) * normal_density(z)

    edges = torch.linspace(-REACH, REACH, _FIRST_CELLS + 1, dtype=torch.float64, device=like.device)
    found = integrate(components, edges, tolerance / 4, piece=max(64, _PAIRS_AT_ONCE // (count + 1)))
    p = found.value[:count]
    value = float(torch.special.entr(p).sum() - found.value[count])
    # dH(x) = −Σ (1 + log p) dp; classes of probability 0 contribute nothing.
    weight = torch.where(p > 0, (1 + p.clamp_min(1e-300).log()).abs(), 0.0)
    error = float((weight * found.error[:count]).sum() + found.error[count])
    bound = float(found.value[count + 1]) + prior_entropy(1) if inference else None
    return Quadrature(
        max(value, 0.0),
        error,
        _settled(found, count) and error <= tolerance,
        bound,
        float(found.error[count + 1]) if inference else 0.0,
    )


def integrate_number(model: LatentModel, shape: torch.Size, like: Tensor, tolerance: float) -> Quadrature:
    """Compute I(z, x) = h(x) − E h(x|z) for a single real number and a code of one coordinate.

    Cells of codes are so small that the mean of p(x|z) moves by a few of its standard deviations within each; the cells
    of x are halved until the entropy settles. The total probability of the cells of x shows whether a peak of p(x) was
    missed.

    Args:
        model: The model, with a Gaussian likelihood.
        shape: Shape of one row of data.
        like: A tensor of codes, from which device and dtype are taken.
        tolerance: Error that is accepted, in nats.
    """
    before = None
    value, error = math.nan, math.inf
    for step in _STEPS:
        mixture = _resolve(model, like, step)
        if mixture is None:
            break
        value, error = _information_of(mixture, tolerance)
        if before is not None:
            error += abs(value - before)
            if error <= tolerance:
                return Quadrature(max(value, 0.0), error, True, *_bound_of_number(model, shape, like, tolerance))
        before = value
    return Quadrature(value, error, False)


def _bound_of_number(
    model: LatentModel, shape: torch.Size, like: Tensor, tolerance: float
) -> tuple[float | None, float]:
    """H(z) + E log r(z|x), by quadrature over codes and, at each, over the noise of x; and its error."""
    if model.infer is None:
        return None, 0.0
    rules = []
    for count in _NOISE_CELLS:
        edges = torch.linspace(-REACH, REACH, count + 1, dtype=torch.float64, device=like.device)
        noise, weight = (each.flatten() for each in place_nodes(torch.stack((edges[:-1], edges[1:]), 1)))
        rules.append((noise, weight * normal_density(noise)))

    def components(z: Tensor) -> Tensor:
        mean, std = _moments(model, z, like)
        means = []
        for noise, weight in rules:
            x = (mean[:, None] + std[:, None] * noise).to(like.dtype)
            r = model.infer_code(x.view(-1, *shape))
            each = r.log_prob(z.repeat_interleave(len(noise))[:, None]).double().view(x.shape)
            means.append(each @ weight)
        return torch.stack(means, 1) * normal_density(z)[:, None]

    edges = torch.linspace(-REACH, REACH, _FIRST_CELLS // 2 + 1, dtype=torch.float64, device=like.device)
    found = integrate(components, edges, tolerance, most=1 << 13, piece=1 << 12)
    coarse, fine = found.value.tolist()
    return fine + prior_entropy(1), abs(fine - coarse) + float(found.error[1])


class _Mixture(NamedTuple):
    """p(x) as a sum over codes: their weights, and the mean and standard deviation of p(x|z)."""

    z: Tensor
    weight: Tensor
    mean: Tensor
    std: Tensor


def _resolve(model: LatentModel, like: Tensor, step: float) -> _Mixture | None:
    """Cells in which p(x|z) moves by less than `step`, and by less than in the cell before it was halved, so that it is
    smooth there; None if there would be too many."""
    edges = torch.linspace(-REACH, REACH, _FIRST_CELLS + 1, dtype=torch.float64, device=like.device)
    cells = torch.stack((edges[:-1], edges[1:]), 1)
    before = torch.zeros(len(cells), dtype=torch.float64, device=like.device)
    parts: list[_Mixture] = []
    count = 0
    while len(cells):
        z, weight = place_nodes(cells)
        count += z.numel()
        if count > _MOST_NODES:
            return None
        mean, std = _moments(model, z.flatten(), like)
        if not (mean.isfinite().all() and std.isfinite().all() and (std > 0).all()):
            return None
        mean, std = mean.view(z.shape), std.view(z.shape)
        moved = (mean.amax(1) - mean.amin(1)) / std.amin(1) + 4 * (std.amax(1) / std.amin(1)).log()
        probability = (cells[:, 1] - cells[:, 0]) * normal_density(cells.abs().amin(1))
        jumps = (moved > _STILL) & (moved > _SMOOTH * before)
        chosen = ((moved > step) | jumps) & (probability > _NARROWEST)
        kept = ~chosen
        parts.append(_Mixture(*(each[kept].flatten() for each in (z, weight * normal_density(z), mean, std))))
        _, cells = split_cells(cells, chosen)
        before = moved[chosen].repeat_interleave(2)
    return _Mixture(*(torch.cat(each) for each in zip(*parts, strict=True)))


def _moments(model: LatentModel, z: Tensor, like: Tensor) -> tuple[Tensor, Tensor]:
    assert isinstance(model.likelihood, GaussianLikelihood)
    parts = []
    for few in z.to(like.dtype).split(1 << 16):
        mean, log_variance = model.likelihood.moments(model.decoder, few[:, None])
        parts.append((mean.double().flatten(), (log_variance.double() / 2).exp().flatten()))
    means, stds = zip(*parts, strict=True)
    return torch.cat(means), torch.cat(stds)


def _information_of(mixture: _Mixture, tolerance: float) -> tuple[float, float]:
    """Information, and its error as far as the integral over x is concerned; infinite if a peak of p(x) was missed."""
    given = float((mixture.weight * mixture.std.log()).sum()) + (math.log(2 * math.pi) + 1) / 2
    value, error = math.nan, math.inf
    pairs = _Budget(_MOST_PAIRS)
    for representatives in (32, 256, 2_048):

        def components(x: Tensor, budget: _Budget = pairs) -> Tensor:
            p = _density(mixture, x, budget)
            return torch.stack((p, torch.special.entr(p)), 1)

        found = integrate(components, _edges(mixture, representatives), tolerance / 4)
        missed = abs(float(found.value[0]) - 1)
        value, error = float(found.value[1]) - given, float(found.error[1]) + missed
        if not found.converged:
            return value, math.inf
        if missed <= tolerance / 4:
            return value, error
    return value, math.inf


class _Budget:
    """Number of pairs that may still be computed."""

    def __init__(self, pairs: int) -> None:
        self.left = pairs


def _edges(mixture: _Mixture, count: int) -> Tensor:
    """Edges of cells of x around the peaks of p(x|z) at codes that represent the prior."""
    device = mixture.z.device
    quantiles = torch.special.ndtri((torch.arange(count, dtype=torch.float64, device=device) + 0.5) / count)
    order = mixture.z.argsort()
    at = torch.cat((quantiles, torch.arange(-8.0, 9.0, dtype=torch.float64, device=device)))
    chosen = order[torch.searchsorted(mixture.z[order], at).clamp_max(len(order) - 1)]
    around = torch.tensor((-10.0, -6.0, -3.0, -1.0, 0.0, 1.0, 3.0, 6.0, 10.0), dtype=torch.float64, device=device)
    return (mixture.mean[chosen, None] + around * mixture.std[chosen, None]).flatten().unique()


def _density(mixture: _Mixture, x: Tensor, budget: _Budget) -> Tensor:
    """p(x), from the codes whose p(x|z) reaches x; NaN once the budget is used up."""
    order = x.argsort()
    low, high = mixture.mean - _TAIL * mixture.std, mixture.mean + _TAIL * mixture.std
    weight = mixture.weight / (mixture.std * math.sqrt(2 * math.pi))
    found = torch.full_like(x, math.nan)
    for some in order.split(256):
        near = ((low <= x[some[-1]]) & (high >= x[some[0]])).nonzero().flatten()
        budget.left -= len(some) * len(near)
        if budget.left < 0:
            break
        total = torch.zeros_like(x[some])
        for few in near.split(max(1, _PAIRS_AT_ONCE // len(some))):
            distance = (x[some, None] - mixture.mean[few]) / mixture.std[few]
            total += (-distance.square() / 2).exp() @ weight[few]
        found[some] = total
    return found


def _settled(found: Integral, count: int) -> bool:
    """Whether the integrals that the information needs are finite and settled, and the probabilities add up to 1."""
    finite = bool(found.value[: count + 1].isfinite().all())
    return finite and found.converged and abs(float(found.value[:count].sum()) - 1) < 1e-6
