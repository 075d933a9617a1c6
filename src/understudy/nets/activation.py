"""Piece-wise linear activations: the identity above zero, a line of some slope c below (Tian 2020, sec. 3).

σ(x) = I[x ≥ 0] x + I[x < 0] c x. ReLU is c = 0, leaky ReLU any c, the absolute value (Zhou, Ge & Jin 2021) c = −1.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def activate(x: Float[Tensor, "*shape"], slope: float, out: Tensor | None = None) -> Float[Tensor, "*shape"]:
    """Apply the activation: x for x ≥ 0, slope·x below (Tian 2020, sec. 3).

    Args:
        x: Pre-activations.
        slope: Slope below zero; 0 is ReLU.
        out: Tensor to write the result to; may be `x` itself.

    Returns:
        Activations of the same shape.
    """
    if not slope:
        return torch.clamp_min(x, 0, out=out)
    return torch.where(x >= 0, x, slope * x, out=out)


def gate(x: Float[Tensor, "*shape"], slope: float) -> Float[Tensor, "*shape"] | Bool[Tensor, "*shape"]:
    """Derivative of the activation: 1 for x ≥ 0, the slope below (Tian 2020, sec. 3).

    Args:
        x: Pre-activations.
        slope: Slope below zero; 0 is ReLU.

    Returns:
        The derivative at every entry; boolean for ReLU.
    """
    above = x >= 0
    # Scalars of x's own precision: Python numbers would be rounded to float32 first.
    return above if not slope else torch.where(above, x.new_ones(()), x.new_full((), slope))
