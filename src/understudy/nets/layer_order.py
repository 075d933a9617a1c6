"""Order of the layers of a file, and the layer that each BatchNorm follows."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from understudy._errors import UserError
from understudy.nets.shape import Convolution, pair
from understudy.nets.state_dict import Item, NamedLayer, NamedNorm

_Some = TypeVar("_Some", bound=Item)


def order_layers(
    file: Path, items: Sequence[Item], in_order: bool, convolutions: Sequence[Convolution] | None = None
) -> tuple[list[NamedLayer], list[NamedNorm]]:
    """Order layers from the inputs to the outputs, and find the BatchNorm of each hidden layer, if there are any.

    If `convolutions` are given, the lowest layers must be these.
    """
    layers = _sort_items(file, [item for item in items if isinstance(item, NamedLayer)], in_order)
    norms = [item for item in items if isinstance(item, NamedNorm)]
    if not norms:
        _validate_chain(file, layers, convolutions)
        return layers, []
    follows = _match_by_number(layers, items if in_order else (), norms)
    if follows is None:
        items = _sort_items(file, items, in_order)
        layers = [item for item in items if isinstance(item, NamedLayer)]
        follows = _match_by_place(file, items, layers)
    lacking = [str(layer) for layer in layers[:-1] if layer.name not in follows]
    if lacking:
        raise UserError(
            f"{file}: no BatchNorm follows the hidden layers {', '.join(lacking)}, but one follows others; either "
            "every hidden layer has one or none has, so add or remove them and train again."
        )
    _validate_chain(file, layers, convolutions)
    ordered = [follows[layer.name] for layer in layers[:-1]]
    for layer, norm in zip(layers, ordered, strict=False):
        _validate_norm(file, layer, norm)
    return layers, ordered


def _sort_items(file: Path, items: Sequence[_Some], in_order: bool) -> list[_Some]:
    """Sort by the numbers in the names if the names differ only in these, else by the file's order or the sizes."""
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
            f"{file}: the layers {', '.join(map(str, items))} fit together in more than one order; number them from "
            "the inputs to the outputs in their names, as in 'layers.0.weight', 'layers.1.weight'."
        )
    return orders[0] if orders else list(items)


def _chains(families: Sequence[Sequence[_Some]], before: list[_Some]) -> list[list[_Some]]:
    """Orders whose sizes fit, each family in its own order; stop at two, which prove that the order is ambiguous."""
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
    if (
        isinstance(item, NamedLayer) and below.kernel != item.kernel
    ):  # a map can be flattened, but nodes never form a map
        return bool(below.kernel) and item.sizes[0] % below.sizes[1] == 0
    return below.sizes[1] == item.sizes[0]


def _match_by_number(
    layers: Sequence[NamedLayer], order: Sequence[Item], norms: Sequence[NamedNorm]
) -> dict[str, NamedNorm] | None:
    """Match BatchNorms to layers by the numbers in their names ('bn1' to 'conv1'); None if that is ambiguous."""
    hidden = {_numbers_in(layer.name): layer.name for layer in layers[:-1]}
    follows = {hidden.get(_numbers_in(norm.name), ""): norm for norm in norms}
    place = {item.name: i for i, item in enumerate(order)}
    if "" in follows or () in hidden or len(follows) < len(norms) or len(hidden) < len(layers) - 1:
        return None
    # A BatchNorm defined before its layer may be meant to stand before it.
    return None if any(place.get(norm.name, 0) < place.get(name, 0) for name, norm in follows.items()) else follows


def _match_by_place(file: Path, items: Sequence[Item], layers: Sequence[NamedLayer]) -> dict[str, NamedNorm]:
    """Match each BatchNorm to the layer directly before it."""
    follows: dict[str, NamedNorm] = {}
    for below, item in itertools.pairwise([None, *items]):
        if not isinstance(item, NamedNorm):
            continue
        if not isinstance(below, NamedLayer) or below.name == layers[-1].name:
            where = "the last layer" if isinstance(below, NamedLayer) else below or "no layer"
            raise UserError(
                f"{file}: the BatchNorm {item} follows {where}, but it must directly follow a hidden layer; fold it "
                "into a neighbouring layer, or give layers and BatchNorms the same numbers in their names, as in "
                "'conv1' and 'bn1'."
            )
        follows[below.name] = item
    return follows


def _validate_chain(file: Path, layers: list[NamedLayer], convolutions: Sequence[Convolution] | None) -> None:
    if convolutions is not None:
        found = [tuple(layer.weight.shape[-2:]) if layer.kernel else 0 for layer in layers]
        if found != [pair(each.kernel) for each in convolutions] + [0] * max(1, len(layers) - len(convolutions)):
            raise UserError(
                f"{file}: expected {len(convolutions)} convolutions with kernels "
                f"{', '.join(str(each.kernel) for each in convolutions)}, then fully connected layers, got "
                f"{', '.join(map(str, layers))}; give the convolutions that the network was made with."
            )
    elif any(layer.kernel for layer in layers) and (
        layers[-1].kernel or not all(layer.kernel for layer in layers[:-1])
    ):
        raise UserError(
            f"{file}: expected convolutions followed by one linear layer, got {', '.join(map(str, layers))}; "
            "restructure the model, or give kernels, strides and paddings: load(path, image=…, convolutions=…)."
        )
    for lower, upper in itertools.pairwise(layers):
        if lower.networks != upper.networks:
            raise UserError(
                f"{file}: {lower} and {upper} have different numbers of networks; save the population again."
            )
        if not _fits([lower], upper):
            multiple = ", or the second a multiple, a map of each channel" if lower.kernel and not upper.kernel else ""
            raise UserError(
                f"{file}: the layers {lower} and {upper} do not fit together: the first has {lower.sizes[1]} nodes and "
                f"the second takes {upper.sizes[0]}, but the two must be equal{multiple}; save one plain stack of "
                "layers, in order."
            )


def _validate_norm(file: Path, layer: NamedLayer, norm: NamedNorm) -> None:
    if (norm.networks, norm.sizes[0]) != (layer.networks, layer.sizes[1]):
        raise UserError(
            f"{file}: the BatchNorm {norm} does not fit the layer {layer} that it follows, which has "
            f"{layer.sizes[1]}; save the network again, in order."
        )


def natural_key(name: str) -> list[str | int]:
    """Sort key that puts 'conv2' before 'conv10'."""
    return [int(part) if i % 2 else part for i, part in enumerate(re.split(r"(\d+)", name))]


def _numbers_in(name: str) -> tuple[int, ...]:
    """All numbers in a name: (1, 10) for 'block1.conv10'."""
    return tuple(map(int, re.findall(r"\d+", name)))
