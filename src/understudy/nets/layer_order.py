"""Which layer of a file comes after which, and which BatchNorm follows which layer."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from understudy.errors import UserError
from understudy.nets.shape import Convolution
from understudy.nets.state_dict import Item, NamedLayer, NamedNorm

_Some = TypeVar("_Some", bound=Item)


def arranged(
    file: Path, items: Sequence[Item], in_order: bool, looks: Sequence[Convolution] | None = None
) -> tuple[list[NamedLayer], list[NamedNorm]]:
    """Layers from the inputs to the outputs, and the BatchNorms of the hidden ones, if there are any.

    Where convolutions are said to go over maps in some way, the lowest layers must be these.
    """
    layers = _ordered(file, [item for item in items if isinstance(item, NamedLayer)], in_order)
    norms = [item for item in items if isinstance(item, NamedNorm)]
    if not norms:
        return _chained(file, layers, looks), []
    follows = _by_number(layers, items if in_order else (), norms)
    if follows is None:
        items = _ordered(file, items, in_order)
        layers = [item for item in items if isinstance(item, NamedLayer)]
        follows = _by_place(file, items, layers)
    lacking = [str(layer) for layer in layers[:-1] if layer.name not in follows]
    if lacking:
        raise UserError(
            f"{file}: no BatchNorm follows the hidden layers {', '.join(lacking)}, but one follows others; each hidden "
            "layer needs one, or none may have one, so add or remove them and train again."
        )
    layers = _chained(file, layers, looks)
    return layers, [_fitting(file, layer, follows[layer.name]) for layer in layers[:-1]]


def _ordered(file: Path, items: Sequence[_Some], in_order: bool) -> list[_Some]:
    """By the numbers in the names where these alone differ, else as the file or the sizes have it."""
    families: dict[str, list[_Some]] = {}
    for item in items:
        families.setdefault(re.sub(r"\d+", "#", item.name), []).append(item)
    for family in families.values():
        family.sort(key=lambda item: _numbers_in(item.name))
    if len(families) == 1:
        return next(iter(families.values()))
    if in_order:
        return list(items)
    orders = _chains(list(families.values()), [])
    if len(orders) > 1:
        raise UserError(
            f"{file}: the layers {', '.join(map(str, items))} fit together in more than one order; number them in "
            "their names from the inputs to the outputs, as in 'layers.0.weight', 'layers.1.weight'."
        )
    return orders[0] if orders else list(items)


def _chains(families: Sequence[Sequence[_Some]], before: list[_Some]) -> list[list[_Some]]:
    """The orders whose sizes fit, each family in its own order; two are enough to know that there are several."""
    if not any(families):
        return [before]
    found: list[list[_Some]] = []
    for i, family in enumerate(families):
        if family and _fits(before, family[0]):
            rest = [*families[:i], family[1:], *families[i + 1 :]]
            found += _chains(rest, [*before, family[0]])
        if len(found) > 1:
            break
    return found


def _fits(before: Sequence[Item], item: Item) -> bool:
    below = next((other for other in reversed(before) if isinstance(other, NamedLayer)), None)
    if below is None:
        return not before or before[-1].sizes[1] == item.sizes[0]
    if isinstance(item, NamedLayer) and below.kernel != item.kernel:  # a map is flattened, and never made of nodes
        return bool(below.kernel) and item.sizes[0] % below.sizes[1] == 0
    return below.sizes[1] == item.sizes[0]


def _by_number(
    layers: Sequence[NamedLayer], order: Sequence[Item], norms: Sequence[NamedNorm]
) -> dict[str, NamedNorm] | None:
    """Where 'bn1' can only belong to 'conv1': BatchNorms by the names of the layers that they follow."""
    hidden = {_numbers_in(layer.name): layer.name for layer in layers[:-1]}
    follows = {hidden.get(_numbers_in(norm.name), ""): norm for norm in norms}
    place = {item.name: i for i, item in enumerate(order)}
    if "" in follows or () in hidden or len(follows) < len(norms) or len(hidden) < len(layers) - 1:
        return None
    # Defined before its layer it may be meant to come before it.
    return None if any(place.get(norm.name, 0) < place.get(name, 0) for name, norm in follows.items()) else follows


def _by_place(file: Path, items: Sequence[Item], layers: Sequence[NamedLayer]) -> dict[str, NamedNorm]:
    """Each after the layer that comes before it."""
    follows: dict[str, NamedNorm] = {}
    for below, item in itertools.pairwise([None, *items]):
        if not isinstance(item, NamedNorm):
            continue
        if not isinstance(below, NamedLayer) or below.name == layers[-1].name:
            where = "the last layer" if isinstance(below, NamedLayer) else below or "no layer"
            raise UserError(
                f"{file}: the BatchNorm {item} follows {where}, but only right after a hidden layer can one be read; "
                "fold it into the layers beside it, or number layers and BatchNorms alike in their names, as in "
                "'conv1' and 'bn1'."
            )
        follows[below.name] = item
    return follows


def _chained(file: Path, layers: list[NamedLayer], looks: Sequence[Convolution] | None) -> list[NamedLayer]:
    if looks is not None:
        found = [layer.weight.shape[-1] if layer.kernel else 0 for layer in layers]
        if found != [look.kernel for look in looks] + [0] * max(1, len(layers) - len(looks)):
            raise UserError(
                f"{file}: {len(looks)} convolutions of kernels {', '.join(str(look.kernel) for look in looks)} and "
                f"fully connected layers after them were said to be its layers, but these are "
                f"{', '.join(map(str, layers))}; say what the network was made with."
            )
    elif any(layer.kernel for layer in layers) and (
        layers[-1].kernel or not all(layer.kernel for layer in layers[:-1])
    ):
        raise UserError(
            f"{file}: the layers {', '.join(map(str, layers))} are not convolutions and one fully connected layer "
            "after them, as which alone a convolutional network is read; rewrite it so, or give kernels, strides and "
            "paddings: load(path, image=…, convolutions=…)."
        )
    for lower, upper in itertools.pairwise(layers):
        if lower.networks != upper.networks:
            raise UserError(
                f"{file}: {lower} and {upper} hold different numbers of networks; save the population again."
            )
        if not _fits([lower], upper):
            multiple = ", or the second a multiple, a map of each channel" if lower.kernel and not upper.kernel else ""
            raise UserError(
                f"{file}: the layers {lower} and {upper} do not follow each other: the first gives {lower.sizes[1]} "
                f"nodes and the second takes {upper.sizes[0]}, but the two must be equal{multiple}; save one plain "
                "stack of layers, in order."
            )
    return layers


def _fitting(file: Path, layer: NamedLayer, norm: NamedNorm) -> NamedNorm:
    if (norm.networks, norm.sizes[0]) != (layer.networks, layer.sizes[1]):
        raise UserError(
            f"{file}: the BatchNorm {norm} does not fit the layer {layer} that it follows, which gives "
            f"{layer.sizes[1]}; save the network again, in order."
        )
    return norm


def natural(name: str) -> list[str | int]:
    """What sorts 'conv2' before 'conv10'."""
    return [int(part) if i % 2 else part for i, part in enumerate(re.split(r"(\d+)", name))]


def _numbers_in(name: str) -> tuple[int, ...]:
    """All of them: (1, 10) of 'block1.conv10'."""
    return tuple(map(int, re.findall(r"\d+", name)))
