"""BatchNorm as in torch.nn: running statistics in evaluation, statistics of the batch in training."""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from understudy._errors import UserError

EPS = 1e-5
"""Constant added to every variance."""
MOMENTUM = 0.1
"""Share by which a step moves the running statistics towards those of its batch: `running.lerp(batch, MOMENTUM)`."""


class Norm(NamedTuple):
    """BatchNorm of one hidden layer of every network; a node of a convolution is a channel."""

    mean: Float[Tensor, "net node"]
    """Running mean, used in evaluation."""
    variance: Float[Tensor, "net node"]
    """Running variance, used in evaluation."""
    scale: Float[Tensor, "net node"] | None
    """γ, or None without the affine part."""
    shift: Float[Tensor, "net node"] | None
    """β, or None without the affine part."""


class Statistics(NamedTuple):
    """Mean and unbiased variance over the rows of one batch, towards which the running statistics move."""

    mean: Float[Tensor, "net node"]
    variance: Float[Tensor, "net node"]


def fresh_norm(nets: int, nodes: int, affine: bool, like: Tensor) -> Norm:
    """Initial BatchNorm: mean 0, variance 1, scale 1, shift 0.

    Args:
        nets: Number of networks.
        nodes: Number of nodes or channels of the layer.
        affine: Whether it has a scale and a shift.
        like: Tensor whose dtype and device are used.

    Returns:
        The BatchNorm of one hidden layer.
    """
    zero, one = like.new_zeros(nets, nodes), like.new_ones(nets, nodes)
    return Norm(zero, one, one.clone() if affine else None, zero.clone() if affine else None)


def evaluation_scale(norm: Norm) -> Float[Tensor, "net node"]:
    """Factor γ/√(σ² + ε) by which BatchNorm multiplies each node in evaluation mode.

    Args:
        norm: BatchNorm of one hidden layer.

    Returns:
        One factor per node.
    """
    inverse_std = (norm.variance + EPS).rsqrt()
    return inverse_std if norm.scale is None else norm.scale * inverse_std


def batch_norm(
    h: Float[Tensor, "net row node"], norm: Norm, training: bool
) -> tuple[Float[Tensor, "net row node"], Statistics]:
    """Normalise every node over the rows, then apply its scale and shift.

    Args:
        h: Values of a layer; a row is a sample, or a sample at a position.
        norm: BatchNorm of the layer.
        training: Use the statistics of these rows (with the biased variance) instead of the running ones.

    Returns:
        The normalised values, and the statistics that were used.

    Raises:
        UserError: Fewer than two rows in training.
    """
    nets, rows, nodes = h.shape
    if training and rows < 2:
        raise UserError(
            f"BatchNorm needs batches of 2 or more samples in training, got {rows}: choose a larger batch, or networks "
            "without BatchNorm"
        )
    # All nodes of a row are contiguous, as in the memory layout of convolutions. A matrix and not an image: torch has
    # two layouts for images, and its kernels give wrong results where the gradient arrives in the other one.
    flat = h.transpose(0, 1).reshape(rows, nets * nodes)
    mean, variance = norm.mean.detach().flatten(), norm.variance.detach().flatten()
    if training:
        # With momentum 1 the running statistics become those of the batch.
        mean, variance = torch.zeros_like(mean), torch.zeros_like(variance)
    scale, shift = (None if part is None else part.flatten() for part in norm[2:])
    even = torch.nn.functional.batch_norm(flat, mean, variance, scale, shift, training, 1.0, EPS)
    back = even.view(rows, nets, nodes).transpose(0, 1)
    found = Statistics(mean.view(nets, nodes), variance.view(nets, nodes))
    # Keep the layout of the input: the next matrix product must read every network as it would without BatchNorm.
    return back.contiguous() if h.is_contiguous() else back, found
