"""The activations of the papers are one family: identity above zero, a line of some slope below.

S0 sec 3: σ(x) = I[x ≥ 0] x + I[x < 0] c x. ReLU is c = 0, leaky ReLU any c, the absolute value of S4 c = −1.
"""

import torch
from jaxtyping import Float
from torch import Tensor


def activate(x: Float[Tensor, "*shape"], slope: float) -> Float[Tensor, "*shape"]:
    return torch.where(x >= 0, x, slope * x) if slope else x.clamp_min(0)


def gate(x: Float[Tensor, "*shape"], slope: float) -> Float[Tensor, "*shape"]:
    """The derivative of the activation at x: 1 for x ≥ 0, the slope below."""
    above = (x >= 0).to(x.dtype)
    return above if not slope else above * (1.0 - slope) + slope


def activation_name(slope: float) -> str:
    return {0.0: "relu", -1.0: "abs", 1.0: "linear"}.get(slope, f"leaky:{slope:g}")
