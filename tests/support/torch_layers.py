"""Layers of torch with the parameters of ours."""

import torch
from torch import nn

from understudy.nets.latent.recurrent import LSTM


def as_torch_lstm(layer: LSTM) -> nn.LSTM:
    """Build torch's layer with the same parameters in float64; its second vector of biases is zero."""
    other = nn.LSTM(layer.inputs, layer.hidden, batch_first=True).double()
    with torch.no_grad():
        for name in ("weight_ih", "weight_hh"):
            getattr(other, f"{name}_l0").copy_(getattr(layer, name))
        other.bias_ih_l0.copy_(layer.bias)
        other.bias_hh_l0.zero_()
    return other
