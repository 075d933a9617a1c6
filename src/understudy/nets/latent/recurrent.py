"""LSTM layers (Hochreiter and Schmidhuber 1997) as products of matrices, one place after the other.

They compute what `torch.nn.LSTM` does, but as pure functions of parameters and inputs that `torch.vmap` can apply to
stacked parameters.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

State = tuple[Float[Tensor, "*row hidden"], Float[Tensor, "*row hidden"]]
"""Output and cell of every node."""


class LSTM(nn.Module):
    """An LSTM layer; its gates are in the order input, forget, cell, output, as in `torch.nn.LSTM`.

    It has one vector of biases, the sum of the two that `torch.nn.LSTM` has. Parameters are drawn from
    U(−1/√hidden, 1/√hidden) with torch's random numbers; `initialise` makes them a function of a seed.

    Args:
        inputs: Numbers in the input of each place.
        hidden: Number of nodes.
    """

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.inputs, self.hidden = inputs, hidden
        self.weight_ih = nn.Parameter(torch.empty(4 * hidden, inputs))
        self.weight_hh = nn.Parameter(torch.empty(4 * hidden, hidden))
        self.bias = nn.Parameter(torch.empty(4 * hidden))
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -1 / math.sqrt(hidden), 1 / math.sqrt(hidden))

    def project(self, x: Float[Tensor, "*place inputs"]) -> Float[Tensor, "*place gate"]:
        """Compute what inputs contribute to the gates, for all places at once.

        Args:
            x: Inputs, or the first numbers of each; further ones are then added by the caller.
        """
        return functional.linear(x, self.weight_ih[:, : x.shape[-1]], self.bias)

    def start(self, like: Float[Tensor, "row *_"]) -> State:
        """Return the state before the first place, which is zero.

        Args:
            like: A tensor with as many rows, on the same device.
        """
        zero = like.new_zeros(len(like), self.hidden)
        return zero, zero

    def step(self, projected: Float[Tensor, "row gate"], state: State) -> State:
        """Compute the state after one more place.

        Args:
            projected: What the input of this place contributes to the gates.
            state: State before it.
        """
        output, cell = state
        return open_gates(projected + functional.linear(output, self.weight_hh), cell)


def open_gates(gates: Float[Tensor, "*row gate"], cell: Float[Tensor, "*row hidden"]) -> State:
    """Compute outputs and cells from the gates before their activations.

    Args:
        gates: Input, forget, cell and output gates.
        cell: Cells before.
    """
    opened, kept, _, shown = gates.sigmoid().chunk(4, -1)  # of all at once, which is faster than of three parts
    cell = kept * cell + opened * gates.chunk(4, -1)[2].tanh()
    return shown * cell.tanh(), cell
