"""Smaller teachers: the strongest nodes or channels of a network as a network of their own (S0 sec 7, fig 10)."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from jaxtyping import Float, Int
from torch import Tensor

from understudy.errors import UserError
from understudy.nets import Population, outgoing_weights, with_nodes


class Pruned(NamedTuple):
    """Networks of the nodes that were kept, and which these were."""

    network: Population
    kept: tuple[Int[Tensor, "net _"], ...]
    """A hidden layer each, in rising order."""


def pruned(network: Population, keep: Sequence[float] | float) -> Pruned:
    """Every network without the weaker nodes of its hidden layers, or channels, which go with all their weights.

    A node is as strong as its outgoing weights are large: their mean absolute value, over the nodes above, the kernel
    of a convolution and the positions of a map before it is flattened, in the network as it comes. `keep` is the share
    of nodes that stay, one number or one a hidden layer; their count is rounded. Of equally strong nodes the first
    stay. All networks come to the same sizes, each by its own strengths.
    """
    counts = _counts(network.sizes[1:-1], keep)
    kept = tuple(
        strength.sort(dim=1, descending=True, stable=True).indices[:, :count].sort(dim=1).values
        for strength, count in zip(_strengths(network), counts, strict=True)
    )
    return Pruned(with_nodes(network, kept), kept)


def _counts(hidden: Sequence[int], keep: Sequence[float] | float) -> list[int]:
    try:
        shares = [float(keep)] * len(hidden) if isinstance(keep, int | float) else [float(share) for share in keep]
    except (TypeError, ValueError):
        raise UserError(
            f"keep must be one share above 0 and at most 1 or one a hidden layer ({len(hidden)}), got {keep!r}"
        ) from None
    if len(shares) != len(hidden):
        raise UserError(f"keep must be one share or one a hidden layer ({len(hidden)}), got {len(shares)}")
    if not all(math.isfinite(share) and 0 < share <= 1 for share in shares):
        raise UserError(f"keep must be shares above 0 and at most 1, got {keep}")
    for layer, (nodes, share) in enumerate(zip(hidden, shares, strict=True), 1):
        if round(share * nodes) < 1:
            raise UserError(f"keep {share:g} leaves none of the {nodes} nodes of hidden layer {layer}: keep more")
    return [round(share * nodes) for nodes, share in zip(hidden, shares, strict=True)]


def _strengths(network: Population) -> list[Float[Tensor, "net node"]]:
    above = [outgoing_weights(network, layer) for layer in range(len(network.layers) - 1)]
    return [weight.double().abs().flatten(3).mean((1, 3)) for weight in above]
