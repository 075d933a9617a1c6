"""The posterior p(z|x) of a model whose code has one coordinate, and how far the encoder is from it."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from understudy._errors import UserError
from understudy._numbers import number
from understudy._random import Stream, normal
from understudy.measures.information.quadrature import place_nodes
from understudy.measures.information.scalars import REACH
from understudy.nets.latent.codes import prior_log_prob
from understudy.nets.latent.model import LatentModel

_LARGEST_SHARE = 0.25
"""Probability of a cell above which a posterior is too narrow: its deviation is below 1.6 cells."""
_NUMBERS_AT_ONCE = 1 << 23
"""Densities that are computed at once."""


class Posterior(NamedTuple):
    """The posterior p(z|x) on the nodes of a quadrature rule.

    Attributes:
        z: The nodes.
        weight: Their weights.
        log_prob: Log density at each node, normalised by the rule.
        evidence: log p(x) of each row.
    """

    z: Float[Tensor, "node"]
    weight: Float[Tensor, "node"]
    log_prob: Float[Tensor, "node row"]
    evidence: Float[Tensor, "row"]

    @property
    def entropy(self) -> Float[Tensor, "row"]:
        """Entropy of the posterior of each row, in nats."""
        return self.weight @ torch.special.entr(self.log_prob.exp())


class Gap(NamedTuple):
    """KL divergence of an encoder from the posterior, in nats.

    Attributes:
        divergence: KL(q(z|x), p(z|x)) of each row.
        error: Its standard error; 0 for an encoder that draws one code.
        bias: By how much the divergence is too large on average, to first order; 0 for such an encoder.
    """

    divergence: Float[Tensor, "row"]
    error: Float[Tensor, "row"]
    bias: Float[Tensor, "row"]


@torch.no_grad()
def posterior(model: LatentModel, x: Tensor, cells: int = 512) -> Posterior:
    """Compute the posterior of a code with one coordinate by quadrature, from −10 to 10.

    Args:
        model: The model.
        x: Data, one row each.
        cells: Number of cells of equal length, with 8 nodes each.

    Raises:
        UserError: A code of more coordinates, or a posterior that is too narrow for the cells.
    """
    x = model.prepare(x)
    if model.latent != 1:
        raise UserError(f"must have a code of one coordinate, got {model.latent}", "model")
    edges = torch.linspace(-REACH, REACH, cells + 1, dtype=torch.float64, device=model.device)
    z, weight = (each.flatten() for each in place_nodes(torch.stack((edges[:-1], edges[1:]), 1)))
    codes = z.to(model.dtype)[:, None, None].expand(-1, len(x), 1)
    few = max(1, _NUMBERS_AT_ONCE // x.numel())
    joint = torch.cat([model.log_likelihood(part, x) + prior_log_prob(part) for part in codes.split(few)]).double()
    evidence = (joint + weight.log()[:, None]).logsumexp(0)
    log_prob = joint - evidence
    share = float((log_prob.exp() * weight[:, None]).view(cells, -1, len(x)).sum(1).max())
    if not share <= _LARGEST_SHARE:
        raise UserError(
            f"must be more than {cells:,}: a cell of length {number(2 * REACH / cells)} contains {number(share)} of a "
            "posterior",
            "cells",
        )
    return Posterior(z, weight, log_prob, evidence)


@torch.no_grad()
def encoder_gap(model: LatentModel, x: Tensor, *, draws: int = 1_000, seed: int = 0, cells: int = 512) -> Gap:
    """Compute how far the distribution of the codes that a model draws is from its posterior, KL(q(z|x), p(z|x)).

    With several codes for each row (`LatentModel.resamples`), the density of the chosen one is a mean over the codes
    that compete with it (Cremer et al. 2017), which is estimated by Monte Carlo and normalised. x log x is convex, so
    the divergence is too large on average, by half the variance of the estimated density divided by the density,
    integrated; `bias` is an estimate of that.

    Args:
        model: The model, whose code has one coordinate.
        x: Data, one row each.
        draws: Samples of the competing codes, at least 2.
        seed: Seed of these samples.
        cells: Number of cells of the quadrature over codes.

    Raises:
        UserError: A code of more coordinates, or a posterior that is too narrow for the cells.
    """
    exact = posterior(model, x, cells)
    x = model.prepare(x)
    others = model.resamples - 1
    if others and draws < 2:
        raise UserError(f"must be at least 2, which a standard error needs, got {draws}", "draws")
    size = (draws if others else 1, others, len(x), 1)
    noise = normal(seed, Stream.INFORMATION, 0, math.prod(size), model.device.type).view(size).to(model.dtype)
    codes = exact.z.to(model.dtype)[:, None, None].expand(-1, len(x), 1)
    # Of each draw: its part of the cross term, and its total probability, which is 1 on average.
    part, total = (torch.zeros(size[0], len(x), dtype=torch.float64, device=model.device) for _ in range(2))
    spread = torch.zeros(len(x), dtype=torch.float64, device=model.device)
    few = max(1, _NUMBERS_AT_ONCE // total.numel())
    for z, weight, log_prob in zip(*(each.split(few) for each in (codes, exact.weight, exact.log_prob)), strict=True):
        each = model.code_log_probs(z, x, noise).double().exp()  # [draw, node, row]
        q = each.mean(0)
        log_ratio = torch.where(q > 0, q.clamp_min(1e-300).log() - log_prob, 0.0)
        part += torch.einsum("n,dnr,nr->dr", weight, each, log_ratio)
        total += torch.einsum("n,dnr->dr", weight, each)
        if others:
            spread += weight @ torch.where(q > 0, each.var(0) / q.clamp_min(1e-300), 0.0)
    mass = total.mean(0)
    ratio = part.mean(0) / mass
    divergence = ratio - mass.log()
    if not others:
        return Gap(divergence, torch.zeros_like(divergence), torch.zeros_like(divergence))
    error = (part - ratio * total).std(0) / math.sqrt(draws)
    return Gap(divergence, error, (spread - total.var(0)) / (2 * draws))
