"""Steps of a network, in the order in which inputs pass them, assembled into a population.

Readers of modules and of files give the steps; what a population cannot represent is refused here, by its name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from understudy._errors import UserError
from understudy._numbers import number
from understudy.nets.graphs.graph import OTHERWISE
from understudy.nets.norm import EPS, Norm, evaluation_scale
from understudy.nets.population import Layer, Population
from understudy.nets.shape import Convolution, Pool, pair


@dataclass(frozen=True, eq=False)
class Affine:
    """A linear layer, or a convolution with its kernel, stride and padding; weights without the network axis."""

    name: str
    weight: Tensor
    bias: Tensor | None
    convolution: Convolution | None = None


@dataclass(frozen=True, eq=False)
class Normalise:
    """BatchNorm in evaluation mode; tensors without the network axis."""

    name: str
    norm: Norm


@dataclass(frozen=True)
class Activate:
    """An activation that is the identity above zero."""

    name: str
    slope: float


@dataclass(frozen=True)
class Pooling:
    """Pooling of a feature map."""

    name: str
    pool: Pool


@dataclass(frozen=True)
class Padding:
    """Zeros around a map, which the convolution that follows takes over: before and after, of height and width."""

    name: str
    pads: tuple[tuple[int, int], tuple[int, int]]


@dataclass(frozen=True, eq=False)
class Shift:
    """A number added to each node; without the network axis."""

    name: str
    amount: Tensor


Step = Affine | Normalise | Activate | Pooling | Padding | Shift


@dataclass(eq=False)
class _Block:
    """A layer with what follows it, up to the next layer."""

    affine: Affine
    before: Normalise | None = None
    activation: Activate | None = None
    after: Normalise | None = None
    pooling: Pooling | None = None
    pooled_first: bool = False
    """Whether pooling stands before the activation."""


def assemble(steps: Sequence[Step], image: tuple[int, int] | None) -> Population:
    """Make the population of one network from its steps.

    Args:
        steps: What the inputs pass, from the lowest layer up.
        image: Height and width of the inputs, for convolutions.

    Returns:
        The network, with seed 0. BatchNorm is folded into the layer before it if layers have it in different places.

    Raises:
        UserError: A step that a population cannot represent, by its name.
    """
    blocks = _blocks(steps)
    *hidden, last = blocks
    for block in blocks:
        _validate(block, block is last)
    if last.before is not None:
        last.affine, last.before = _fold(last.affine, last.before), None
    slope = _common_slope(hidden)
    norms, first = _even_norms(hidden)
    convolutions = tuple(
        replace_pool(block.affine.convolution, block.pooling) for block in hidden if block.affine.convolution
    )
    return Population(
        _even_biases([block.affine for block in blocks]),
        torch.zeros(1, dtype=torch.int64),
        slope,
        norms,
        first,
        image if convolutions else None,
        convolutions or None,
    )


def reads_maps(step: Step) -> bool:
    """Whether a first step takes images."""
    return isinstance(step, Padding) or (isinstance(step, Affine) and step.convolution is not None)


def replace_pool(convolution: Convolution, pooling: Pooling | None) -> Convolution:
    """The convolution with the pooling that follows it."""
    return convolution._replace(pool=None if pooling is None else pooling.pool)


def _blocks(steps: Sequence[Step]) -> list[_Block]:
    blocks: list[_Block] = []
    padding: Padding | None = None
    for step in steps:
        if padding is not None and not (isinstance(step, Affine) and step.convolution is not None):
            break
        if isinstance(step, Padding):
            padding = step
        elif isinstance(step, Affine):
            step, padding = step if padding is None else _padded(step, padding), None
            if blocks and step.convolution is not None and blocks[-1].affine.convolution is None:
                raise UserError(f"{step.name}: a convolution above the linear layer {blocks[-1].affine.name}")
            blocks.append(_Block(step))
        elif not blocks:
            raise UserError(f"{step.name}: stands before the first layer; apply it to the data instead")
        elif isinstance(step, Shift):
            _add_shift(blocks[-1], step)
        elif isinstance(step, Normalise):
            _add_norm(blocks[-1], step)
        elif isinstance(step, Activate):
            if blocks[-1].activation is not None:
                raise UserError(f"{step.name}: a second activation of the layer {blocks[-1].affine.name}")
            blocks[-1].activation = step
        elif tuple(step.pool[1:]) != (1, 1, 0):
            _add_pooling(blocks[-1], step)
    if padding is not None:
        raise UserError(f"{padding.name}: padding is supported only directly before a convolution")
    if not blocks:
        raise UserError("the network has no linear layer and no convolution")
    return blocks


def pad_convolution(
    weight: Tensor, pads: Sequence[tuple[int, int]], stride: tuple[int, int]
) -> tuple[Tensor, Convolution]:
    """Weights and description of a convolution whose padding before and after may differ, with equal padding.

    Args:
        weight: [out, in, height, width].
        pads: Padding before and after, of height and width.
        stride: Stride.

    Returns:
        The weights, with zeros on the sides where less is padded, and the convolution.
    """
    padding = (max(pads[0]), max(pads[1]))
    # Where less is padded before, the kernel begins later: zeros before it. The same after it.
    (top, bottom), (left, right) = ((most - a, most - b) for most, (a, b) in zip(padding, pads, strict=True))
    weight = torch.nn.functional.pad(weight, (left, right, top, bottom)) if top or bottom or left or right else weight
    return weight, Convolution((weight.shape[2], weight.shape[3]), stride, padding)


def _padded(affine: Affine, step: Padding) -> Affine:
    """The convolution that computes what padding and this convolution compute together."""
    assert affine.convolution is not None
    own, stride = pair(affine.convolution.padding), pair(affine.convolution.stride)
    pads = [(most + a, most + b) for most, (a, b) in zip(own, step.pads, strict=True)]
    weight, convolution = pad_convolution(affine.weight, pads, stride)
    return replace(affine, weight=weight, convolution=convolution)


def _add_shift(block: _Block, step: Shift) -> None:
    """Add it to the bias of the layer."""
    if block.before or block.activation or block.after or block.pooling:
        raise UserError(f"{step.name}: a number added elsewhere than directly to the layer {block.affine.name}")
    bias = step.amount.to(block.affine.weight.dtype)
    block.affine = replace(block.affine, bias=bias if block.affine.bias is None else block.affine.bias + bias)


def _add_norm(block: _Block, step: Normalise) -> None:
    if len(step.norm.mean) != len(block.affine.weight):
        raise UserError(
            f"{step.name}: BatchNorm of {len(step.norm.mean)} values above the layer {block.affine.name}, which has "
            f"{len(block.affine.weight)} nodes; only one value per node or channel is supported"
        )
    if block.pooling is not None and not _commutes(step.norm, block.pooling.pool):
        raise UserError(
            f"{step.name}: BatchNorm after the pooling {block.pooling.name}, and the two do not commute; only average "
            "pooling without padding, and max pooling before BatchNorm with positive scales, do"
        )
    if block.activation is None and block.before is None:
        block.before = step
    elif block.activation is not None and block.after is None:
        block.after = step
    else:
        raise UserError(f"{step.name}: a second BatchNorm at the same place of the layer {block.affine.name}")


def _add_pooling(block: _Block, step: Pooling) -> None:
    if block.affine.convolution is None:
        raise UserError(f"{step.name}: pooling of the linear layer {block.affine.name}")
    if block.pooling is not None:
        step = Pooling(step.name, _pooled_twice(block.pooling, step))
    block.pooling, block.pooled_first = step, block.activation is None or block.pooled_first


def _commutes(norm: Norm, pool: Pool) -> bool:
    """Whether BatchNorm after a pooling computes the same as before it."""
    if pool.kind == "average":
        return not any(pair(pool.padding))
    return norm.scale is None or bool((norm.scale > 0).all())


def _pooled_twice(first: Pooling, second: Pooling) -> Pool:
    """One pooling that computes what two in a row compute, where there is one."""
    ours, theirs = first.pool, second.pool
    parts = [tuple(map(pair, pool[1:])) for pool in (ours, theirs)]
    (kernel, stride, padding), (above, step, more) = parts
    adjacent = ours.kind == "max" or kernel == stride
    if ours.kind != theirs.kind or not adjacent or any((*padding, *more)):
        raise UserError(
            f"{second.name}: a second pooling after {first.name}; only two max poolings, or two average poolings of "
            "which the first does not overlap, without padding, are one pooling"
        )
    whole = [k + (a - 1) * s for k, a, s in zip(kernel, above, stride, strict=True)]
    return Pool(ours.kind, (whole[0], whole[1]), (stride[0] * step[0], stride[1] * step[1]))


def _validate(block: _Block, last: bool) -> None:
    """Refuse what follows the outputs, and a pooling before an activation that does not commute with it."""
    found = block.activation or block.after or block.pooling
    if last and found is not None:
        raise UserError(f"{found.name}: follows the outputs; remove it from the model, or give the part below it")
    if last and block.affine.convolution is not None:
        raise UserError(f"{block.affine.name}: the last layer must be linear, got a convolution")
    pooling, activation = block.pooling, block.activation
    if pooling is None or activation is None or not block.pooled_first:
        return
    if pooling.pool.kind != "max" or activation.slope < 0:
        raise UserError(
            f"{pooling.name}: stands before the activation {activation.name}, and the two do not commute; only max "
            "pooling before ReLU or leaky ReLU does"
        )


def _common_slope(hidden: Sequence[_Block]) -> float:
    slopes = {block.affine.name: 1.0 if block.activation is None else block.activation.slope for block in hidden}
    if len(set(slopes.values())) > 1:
        each = ", ".join(f"{name}: {number(slope, 'g')}" for name, slope in slopes.items())
        raise UserError(
            f"all hidden layers must have one activation, got slopes below zero of {each} (1 is none); {OTHERWISE}"
        )
    return next(iter(slopes.values()), 0.0)


def _even_norms(hidden: Sequence[_Block]) -> tuple[tuple[Norm, ...], bool]:
    """Bring BatchNorm of all hidden layers to one place: one per layer, and whether it stands before the activation.

    Where layers have it in different places, those before the activation are folded into their layers, and layers
    without one after it get one that changes nothing.
    """
    before = [block.before.norm for block in hidden if block.before is not None and block.after is None]
    if before and len(before) == len(hidden):
        return _stack_norms(before), True
    for block in hidden:
        if block.before is not None:
            block.affine = _fold(block.affine, block.before)
    if not any(block.after for block in hidden):
        return (), False
    return _stack_norms(
        [_unchanged(block.affine) if b is None else b.norm for block in hidden for b in (block.after,)]
    ), False


def _unchanged(affine: Affine) -> Norm:
    """BatchNorm that changes nothing."""
    one = affine.weight.new_ones(len(affine.weight))
    return Norm(torch.zeros_like(one), one - EPS, one, torch.zeros_like(one))


def _stack_norms(norms: Sequence[Norm]) -> tuple[Norm, ...]:
    """Add the network axis; if any has an affine part, all get one."""
    affine = any(norm.scale is not None for norm in norms)
    made = []
    for mean, variance, scale, shift in norms:
        if affine and (scale is None or shift is None):
            scale, shift = torch.ones_like(mean), torch.zeros_like(mean)
        made.append(Norm._make(None if part is None else part.unsqueeze(0) for part in (mean, variance, scale, shift)))
    return tuple(made)


def _even_biases(affine: Sequence[Affine]) -> tuple[Layer, ...]:
    """Add the network axis; if any layer has a bias, all get one."""
    biased = any(each.bias is not None for each in affine)
    made = []
    for each in affine:
        bias = each.weight.new_zeros(len(each.weight)) if biased and each.bias is None else each.bias
        made.append(Layer(each.weight.unsqueeze(0), None if bias is None else bias.unsqueeze(0)))
    return tuple(made)


def _fold(affine: Affine, step: Normalise) -> Affine:
    """The layer that computes what this layer and BatchNorm in evaluation mode compute together, in float64."""
    norm = Norm._make(None if part is None else part.double().unsqueeze(0) for part in step.norm)
    scale = evaluation_scale(norm)[0]
    bias = torch.zeros_like(scale) if affine.bias is None else affine.bias.double()
    shift = 0.0 if norm.shift is None else norm.shift[0]
    weight = affine.weight.double() * scale.reshape(-1, *[1] * (affine.weight.ndim - 1))
    dtype = affine.weight.dtype
    return replace(affine, weight=weight.to(dtype), bias=((bias - norm.mean[0]) * scale + shift).to(dtype))
