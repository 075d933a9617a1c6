"""Fan-out of the nodes of any module: norm of the weights that read a layer's output."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.modules import conv

from understudy.measures.submodules import Call


def outgoing_norms(calls: Sequence[Call], call: Call) -> Float[Tensor, "node"] | None:
    """Norm of the weights by which linear and convolutional modules read each node of a layer (Tian 2020, fig. 5).

    A module reads a layer if its input is the layer's output, unchanged or pooled, flattened or dropped out by modules
    in between. What goes through a function, such as a residual sum, is not followed.

    Args:
        calls: All calls of a forward pass, as `trace` records them.
        call: The layer.

    Returns:
        One norm per node, over all modules that read it; None if none is found.
    """
    nodes = call.shape[call.axis]
    readers = [each for each in calls if each.source is not None and _innermost(each.source) is call]
    squares = [found for each in readers if (found := _squares(each.part, nodes, call)) is not None]
    return torch.stack(squares).sum(0).sqrt() if squares else None


def _innermost(call: Call) -> Call:
    """The call that made what a call returns: the last layer of a block, where the block returns its output."""
    while call.inside is not None:
        call = call.inside
    return call


def _squares(part: nn.Module, nodes: int, call: Call) -> Float[Tensor, "node"] | None:
    """Sum of the squared weights by which a module reads each node; None if it has no such weights."""
    if isinstance(part, nn.Linear):
        each = part.weight.detach().float().square().sum(0)
        flattened = call.axis == 1 and len(call.shape) > 2 and len(each) % nodes == 0
        return each if len(each) == nodes else each.view(nodes, -1).sum(1) if flattened else None
    if not isinstance(part, conv._ConvNd) or part.in_channels != nodes:
        return None
    weight = part.weight.detach().float().square()
    if part.transposed:  # [in, out / groups, kernel …]
        return weight.flatten(1).sum(1)
    # [out, in / groups, kernel …]: each group of outputs reads its own group of inputs.
    return weight.flatten(2).unflatten(0, (part.groups, -1)).sum((1, 3)).flatten()
