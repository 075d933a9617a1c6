"""Fan-out: norm of a node's outgoing weights (y axis of Tian 2020, fig. 5)."""

import torch
from jaxtyping import Float
from torch import Tensor

from understudy.nets import Population, outgoing_weights


def fan_out(population: Population, layer: int = 0) -> Float[Tensor, "net node"]:
    """Norm ‖v_k‖ of the outgoing weights of every node of a hidden layer (Tian 2020, sec. 7, fig. 5, eq. 10).

    For a channel: all outgoing weights, over the kernel or over the positions of its flattened feature map.

    Args:
        population: The networks.
        layer: Hidden layer, 0 is the lowest.

    Returns:
        One norm per node.

    Raises:
        ValueError: The layer is not a hidden layer.
    """
    hidden = len(population.layers) - 1
    if not 0 <= layer < hidden:
        raise ValueError(f"layer must be a hidden layer, 0 to {hidden - 1}, got {layer}")
    norm: Tensor = torch.linalg.vector_norm(outgoing_weights(population, layer).flatten(3), dim=(1, 3))
    return norm


def contribution(population: Population, layer: int = 0) -> Float[Tensor, "net node"]:
    """Fan-out ‖v_k‖ ‖w̃_k‖ of the node after making it regular (Tian 2020, Definition 1 and Theorem 2).

    Multiplying w_k and b_k by c > 0 and dividing v_k by c changes neither the function nor this number.

    Args:
        population: The networks.
        layer: Hidden layer, 0 is the lowest.

    Returns:
        One number per node.

    Raises:
        ValueError: The layer is not a hidden layer.
    """
    return fan_out(population, layer) * torch.linalg.vector_norm(population.layers[layer].weight.flatten(2), dim=2)
