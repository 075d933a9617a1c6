"""Single nodes of networks: what leaves each, and networks of some of them."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from understudy.nets.norm import Norm
from understudy.nets.population import Layer, Population


def outgoing_weights(network: Population, layer: int) -> Float[Tensor, "net out node ..."]:
    """The weights of the layer above a hidden layer, by the node that they leave.

    Behind it follow, of a channel, places in the kernel, or positions of its map where that is flattened.
    """
    weight, nodes = network.layers[layer + 1].weight, network.sizes[layer + 1]
    return weight.unflatten(2, (nodes, -1)) if weight.ndim == 3 else weight


def with_nodes(network: Population, kept: Sequence[Int[Tensor, "net _"]]) -> Population:
    """Every network with only those nodes of its hidden layers, or channels, in that order; a tensor each layer.

    The others go with all their weights.
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
