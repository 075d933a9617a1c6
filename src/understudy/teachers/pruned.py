"""Smaller teachers: the strongest nodes or channels of a network as a network (Tian 2020, sec. 7, fig. 10)."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from jaxtyping import Int
from torch import Tensor

from understudy._errors import UserError
from understudy.nets import Population, outgoing_weights, with_nodes


class Pruned(NamedTuple):
    """Pruned networks, and the nodes that they kept."""

    network: Population
    kept: tuple[Int[Tensor, "net _"], ...]
    """Indices of the kept nodes in ascending order, one tensor per hidden layer."""


def pruned(network: Population, keep: Sequence[float] | float) -> Pruned:
    """Remove the weakest nodes (or channels) of every hidden layer, with all their weights.

    The strength of a node is the mean absolute value of its outgoing weights in the unpruned network: over the nodes
    above, the kernel of a convolution and the positions of a flattened feature map. Among equally strong nodes the
    first are kept. All networks get the same sizes, each by its own strengths.

    Args:
        network: The networks.
        keep: Share of nodes to keep, above 0 and at most 1: one number, or one per hidden layer. Counts are rounded.

    Returns:
        The smaller networks, and the indices of the nodes that they kept.

    Raises:
        UserError: A share out of range, a wrong number of shares, or a layer that would lose all its nodes.
    """
    counts = _counts(network.sizes[1:-1], keep)
    above = (outgoing_weights(network, layer) for layer in range(len(network.layers) - 1))
    strengths = (weight.double().abs().flatten(3).mean((1, 3)) for weight in above)
    kept = tuple(
        strength.sort(dim=1, descending=True, stable=True).indices[:, :count].sort(dim=1).values
        for strength, count in zip(strengths, counts, strict=True)
    )
    return Pruned(with_nodes(network, kept), kept)


def _counts(hidden: Sequence[int], keep: Sequence[float] | float) -> list[int]:
    try:
        shares = [float(keep)] * len(hidden) if isinstance(keep, int | float) else [float(share) for share in keep]
    except (TypeError, ValueError):
        raise UserError(
            f"keep must be one share above 0 and at most 1 or one per hidden layer ({len(hidden)}), got {keep!r}"
        ) from None
    if len(shares) != len(hidden):
        raise UserError(f"keep must be one share or one per hidden layer ({len(hidden)}), got {len(shares)}")
    if not all(math.isfinite(share) and 0 < share <= 1 for share in shares):
        raise UserError(f"keep must be shares above 0 and at most 1, got {keep}")
    for layer, (nodes, share) in enumerate(zip(hidden, shares, strict=True), 1):
        if round(share * nodes) < 1:
            raise UserError(f"keep {share:g} leaves none of the {nodes} nodes of hidden layer {layer}: keep more")
    return [round(share * nodes) for nodes, share in zip(hidden, shares, strict=True)]
