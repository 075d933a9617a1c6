"""The activations of the papers are one family: identity above zero, a line of some slope below.

S0 sec 3: σ(x) = I[x ≥ 0] x + I[x < 0] c x. ReLU is c = 0, leaky ReLU any c, the absolute value of S4 c = −1.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def activate(x: Float[Tensor, "*shape"], slope: float, out: Tensor | None = None) -> Float[Tensor, "*shape"]:
    """x for x ≥ 0, slope·x below."""
    if not slope:
        return torch.clamp_min(x, 0, out=out)
    return torch.where(x >= 0, x, slope * x, out=out)


def gate(x: Float[Tensor, "*shape"], slope: float) -> Float[Tensor, "*shape"] | Bool[Tensor, "*shape"]:
    """What multiplies a gradient on its way back: 1 for x ≥ 0, the slope below."""
    above = x >= 0
    # Numbers of x's own precision: plain ones would be rounded to float32 on the way.
    return above if not slope else torch.where(above, x.new_ones(()), x.new_full((), slope))
