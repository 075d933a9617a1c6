"""Single nodes of networks: their outgoing weights, and networks reduced to some of their nodes."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from understudy.nets.norm import Norm
from understudy.nets.population import Layer, Population


def outgoing_weights(network: Population, layer: int) -> Float[Tensor, "net out node ..."]:
    """Weights of the layer above a hidden layer, indexed by the node that they leave.

    Args:
        network: The networks.
        layer: Hidden layer, 0 is the lowest.

    Returns:
        Weights [net, out, node]. Channels have further axes: positions in the kernel, or positions of the feature map
        where that is flattened.
    """
    weight, nodes = network.layers[layer + 1].weight, network.sizes[layer + 1]
    return weight.unflatten(2, (nodes, -1)) if weight.ndim == 3 else weight


def with_nodes(network: Population, kept: Sequence[Int[Tensor, "net _"]]) -> Population:
    """Reduce every network to some nodes (or channels) of its hidden layers; the others go with all their weights.

    Args:
        network: The networks.
        kept: Indices of the nodes that stay, in their new order: one tensor per hidden layer.

    Returns:
        The smaller networks.
    """
    nets = torch.arange(len(network), device=network.device).unsqueeze(1)
    layers = []
    for i, (weight, bias) in enumerate(network.layers):
        if i:
            some = outgoing_weights(network, i - 1)[nets, :, kept[i - 1]].transpose(1, 2)
            weight = some.flatten(2) if weight.ndim == 3 else some
        if i < len(kept):
            weight, bias = weight[nets, kept[i]], None if bias is None else bias[nets, kept[i]]
        layers.append(Layer(weight, bias))
    norms = [
        Norm._make(None if part is None else part[nets, stay] for part in norm)
        for norm, stay in zip(network.norms, kept, strict=False)
    ]
    return replace(network, layers=tuple(layers), norms=tuple(norms))
