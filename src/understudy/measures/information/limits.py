"""How much information a code can have about given data at most."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from understudy._numbers import number
from understudy.nets.latent.codes import prior_entropy
from understudy.nets.latent.likelihoods import (
    END,
    BernoulliLikelihood,
    CategoricalLikelihood,
    GaussianLikelihood,
    SequenceLikelihood,
    counted_places,
)
from understudy.nets.latent.model import LatentModel


class Limit(NamedTuple):
    """The most information that a code can have, in nats.

    Attributes:
        nats: The limit.
        reason: What sets it.
    """

    nats: float
    reason: str


def information_limit(model: LatentModel, x: Tensor) -> Limit:
    """Compute the most information that a code can have if the model has the distribution of the data.

    For discrete data it is the entropy of the rows. For numbers with a given standard deviation σ of p(x|z) it is
    Σ ½ log(vᵢ / σ²), as a density with the variances vᵢ of the data has the largest entropy if it is normal. Numbers
    whose variance the decoder determines have no limit of their own. In every case, a code of d coordinates carries at
    most d times the entropy of a normal number that is rounded to the precision of the modules.

    Args:
        model: The model, after `prepare`.
        x: Data, as `prepare` returns them.
    """
    likelihood = model.likelihood
    coordinates = "1 coordinate" if model.latent == 1 else f"{model.latent:,} coordinates"
    reason = f"what a code of {coordinates} in {str(model.dtype).removeprefix('torch.')} can carry"
    limits = [Limit(model.latent * _rounded_entropy(model.dtype), reason)]
    if isinstance(likelihood, BernoulliLikelihood | CategoricalLikelihood | SequenceLikelihood):
        limits.append(Limit(_row_entropy(x, isinstance(likelihood, SequenceLikelihood)), "the entropy of the data"))
    if isinstance(likelihood, GaussianLikelihood) and likelihood.std is not None:
        ratio = x.flatten(1).double().var(0, correction=0) / likelihood.std**2
        reason = f"what numbers of the variance of the data can carry through noise of std {number(likelihood.std)}"
        limits.append(Limit(float(ratio.clamp_min(1.0).log().sum()) / 2, reason))
    return min(limits, key=lambda limit: limit.nats)


def _row_entropy(x: Tensor, sequences: bool) -> float:
    """Entropy of the distribution that has each row as often as the data, in nats."""
    rows = torch.where(counted_places(x), x, END) if sequences else x
    counts = rows.flatten(1).unique(dim=0, return_counts=True)[1] if x.ndim > 1 else rows.unique(return_counts=True)[1]
    return float(torch.special.entr(counts.double() / len(x)).sum())


def _rounded_entropy(dtype: torch.dtype) -> float:
    """Entropy of a standard normal number z after rounding, in nats: h(z) − E log(distance of neighbours at z)."""
    exponents = torch.arange(-64, 6, dtype=torch.float64)
    below = torch.special.erf(2.0 ** torch.arange(-64, 7, dtype=torch.float64) / math.sqrt(2))
    mean_exponent = float((exponents * below.diff()).sum())
    return prior_entropy(1) - math.log(torch.finfo(dtype).eps) - math.log(2) * mean_exponent
