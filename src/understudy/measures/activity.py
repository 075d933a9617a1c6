"""Pre-activations of hidden nodes, and how often nodes are active."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from understudy.data.source import Inputs
from understudy.nets import Population, batch_norm, incoming, outgoing

_PIECE = 1 << 24
"""Activations per piece of work."""


def pre_activations(population: Population, x: Inputs) -> tuple[Float[Tensor, "net row node"], ...]:
    """Pre-activations of every hidden layer, before its activation (Phuong 2021, fig. 3.3; Tian 2020, sec. 3).

    In evaluation mode; BatchNorm before the activation is included.

    Args:
        population: The networks.
        x: Inputs shared by all networks, or one set per network.

    Returns:
        One tensor per hidden layer, the lowest first; a row is a sample, or for channels a sample at a position.

    Raises:
        UserError: The inputs have another size than the networks take.
    """
    population(x[..., :0, :])  # refuses inputs of another size
    h, found = x, []
    for i in range(len(population.layers) - 1):
        before = incoming(population, i, h)
        h, _ = outgoing(population, i, before)
        first = population.norms and population.norm_first
        found.append(batch_norm(before, population.norms[i], training=False)[0] if first else before)
    return tuple(found)


@torch.no_grad()
def active_share(population: Population, x: Inputs, layer: int = 0) -> Float[Tensor, "net node"]:
    """Share of samples on which each node of a hidden layer is active, its pre-activation above 0 (Tian 2020, sec. 3).

    A node that is active on almost no or almost all samples has a boundary that the data hardly sees: it is dead or
    linear there. For a channel, the share of samples and positions.

    Args:
        population: The networks.
        x: Inputs shared by all networks, or one set per network.
        layer: Hidden layer, 0 is the lowest.

    Returns:
        One share per node.

    Raises:
        ValueError: The layer is not a hidden layer.
        UserError: The inputs have another size than the networks take.
    """
    hidden = len(population.layers) - 1
    if not 0 <= layer < hidden:
        raise ValueError(f"layer must be a hidden layer, 0 to {hidden - 1}, got {layer}")
    # Each network by itself, in pieces that do not depend on how many there are: neither does the result.
    rows = max(1, _PIECE // population.shape.activations)
    each = [_active(population[e], x if x.ndim == 2 else x[e], layer, rows) for e in range(len(population))]
    return (torch.cat(each).double() / (x.shape[-2] * population.shape.positions[layer])).to(x.dtype)


def _active(network: Population, x: Float[Tensor, "sample in"], layer: int, rows: int) -> Int[Tensor, "1 node"]:
    """Number of rows on which each node of one network is active."""
    return torch.stack([(pre_activations(network, some)[layer] > 0).sum(1) for some in x.split(rows)]).sum(0)
