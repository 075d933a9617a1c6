"""How much a node says to the layer above: the norm of its outgoing weights, the y axis of the L in S0 fig 5."""

import torch
from jaxtyping import Float
from torch import Tensor

from understudy.nets import Population, outgoing_weights


def fan_out(population: Population, layer: int = 0) -> Float[Tensor, "net node"]:
    """‖v_k‖ of every node of a hidden layer, 0 the lowest (S0 sec 7 and fig 5; a teacher node's strength, eqn 10).

    Of a channel, all weights that leave it: whole kernels, or those of every place of its feature map.
    """
    _refuse_output(population, layer)
    norm: Tensor = torch.linalg.vector_norm(outgoing_weights(population, layer).flatten(3), dim=(1, 3))
    return norm


def contribution(population: Population, layer: int = 0) -> Float[Tensor, "net node"]:
    """‖v_k‖ ‖w̃_k‖: the fan-out of the node made regular (S0 Definition 1), the summand of S0 Theorem 2.

    Multiplying w_k and b_k by c > 0 and dividing v_k by c changes neither the function nor this number.
    """
    _refuse_output(population, layer)
    length: Tensor = torch.linalg.vector_norm(population.layers[layer].weight.flatten(2), dim=2)
    return fan_out(population, layer) * length


def _refuse_output(population: Population, layer: int) -> None:
    hidden = len(population.layers) - 1
    if not 0 <= layer < hidden:
        raise ValueError(f"layer {layer} has no outgoing weights: choose a hidden layer from 0 to {hidden - 1}")
