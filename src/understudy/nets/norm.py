"""BatchNorm as torch.nn has it: by running statistics outside training, by those of the batch within."""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from understudy.errors import UserError

EPS = 1e-5
"""Added to every variance."""
MOMENTUM = 0.1
"""How far a step moves the running statistics to those of its batch: `running.lerp(batch, MOMENTUM)`."""


class Norm(NamedTuple):
    """BatchNorm of one hidden layer of every network; a node of a convolution is a channel."""

    mean: Float[Tensor, "net node"]
    variance: Float[Tensor, "net node"]
    """Running statistics: what is used outside training."""
    scale: Float[Tensor, "net node"] | None
    shift: Float[Tensor, "net node"] | None
    """None: without the affine part."""


class Statistics(NamedTuple):
    """Of one batch, over its rows: what the running ones move to. The variance is the unbiased one."""

    mean: Float[Tensor, "net node"]
    variance: Float[Tensor, "net node"]


def fresh_norm(nets: int, nodes: int, affine: bool, like: Tensor) -> Norm:
    """How BatchNorm starts: mean 0, variance 1, scale 1, shift 0."""
    zero, one = like.new_zeros(nets, nodes), like.new_ones(nets, nodes)
    return Norm(zero, one, one.clone() if affine else None, zero.clone() if affine else None)


def slope_of(norm: Norm) -> Float[Tensor, "net node"]:
    """Outside training BatchNorm multiplies by this, and adds something."""
    steepness = (norm.variance + EPS).rsqrt()
    return steepness if norm.scale is None else norm.scale * steepness


def normalised(
    h: Float[Tensor, "net row node"], norm: Norm, training: bool
) -> tuple[Float[Tensor, "net row node"], Statistics]:
    """Every node scaled and shifted by its statistics over the rows, and these.

    In training these are the batch's, which normalise by the biased variance; else the running ones.
    """
    nets, rows, nodes = h.shape
    if training and rows < 2:
        raise UserError(
            f"BatchNorm needs batches of 2 or more samples in training, and a layer got {rows} sample(s): "
            "choose a larger batch, or networks without BatchNorm"
        )
    # All nodes of a row next to each other, as convolutions lie in memory anyway. A matrix, not a picture: of pictures
    # torch knows two layouts, and where the gradient comes in the other one its kernels have been found to err.
    flat = h.transpose(0, 1).reshape(rows, nets * nodes)
    mean, variance = norm.mean.detach().flatten(), norm.variance.detach().flatten()
    if training:
        # Moved by a momentum of 1, running statistics are those of the batch.
        mean, variance = torch.zeros_like(mean), torch.zeros_like(variance)
    scale, shift = (None if part is None else part.flatten() for part in norm[2:])
    even = torch.nn.functional.batch_norm(flat, mean, variance, scale, shift, training, 1.0, EPS)
    back = even.view(rows, nets, nodes).transpose(0, 1)
    found = Statistics(mean.view(nets, nodes), variance.view(nets, nodes))
    # In the layout that came: the next product of matrices must find every network as it would without BatchNorm.
    return back.contiguous() if h.is_contiguous() else back, found
