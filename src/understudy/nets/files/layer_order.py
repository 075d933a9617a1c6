"""Order of the layers of a file, and the layer that each BatchNorm follows."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from understudy._errors import UserError, suggest
from understudy.nets.files.state_dict import OTHERWISE, Item, NamedLayer, NamedNorm
from understudy.nets.files.stated import Assumed, Unstated

_Some = TypeVar("_Some", bound=Item)


def order_layers(
    file: Path, items: Sequence[Item], in_order: bool, order: Sequence[str] | None = None
) -> tuple[list[NamedLayer], list[NamedNorm]]:
    """Order layers from the inputs to the outputs, and find the BatchNorm of each hidden layer, if there are any.

    Numbers tell the order of layers whose names differ only in these. Otherwise the sizes must allow only one order:
    that of the file is the one in which layers were defined, which need not be the one in which they are used.

    Args:
        file: The file, for messages.
        items: Layers and BatchNorms, in the order of the file.
        in_order: Whether the file keeps the order in which layers were defined.
        order: Names of all layers from the inputs to the outputs, with or without those of BatchNorms.

    Returns:
        The layers, convolutions before linear ones, and the BatchNorm of each hidden layer or none.

    Raises:
        UserError: An order that is ambiguous or names other layers; layers or BatchNorms that do not fit together.
    """
    norms = [item for item in items if isinstance(item, NamedNorm)]
    placed = None if order is None else _place(file, items, order)
    if placed is None:
        layers = _sort_items(file, [item for item in items if isinstance(item, NamedLayer)], in_order)
    else:
        layers = [item for item in placed if isinstance(item, NamedLayer)]
    _validate_chain(file, layers)
    if not norms:
        return layers, []
    if placed is not None and len(placed) == len(items):
        follows = _match_by_place(file, placed, layers)
    else:
        follows = _match_by_number(layers, items if in_order else (), norms) or _match_by_place(
            file, _sort_with_norms(file, items, in_order, layers), layers
        )
    lacking = [str(layer) for layer in layers[:-1] if layer.name not in follows]
    if lacking:
        raise UserError(
            f"{file}: no BatchNorm follows the hidden layers {', '.join(lacking)}, but one follows others; either "
            f"every hidden layer has one or none has; {OTHERWISE}."
        )
    ordered = [follows[layer.name] for layer in layers[:-1]]
    for layer, norm in zip(layers, ordered, strict=False):
        _validate_norm(file, layer, norm)
    return layers, ordered


def assumed_order(
    layers: Sequence[NamedLayer], norms: Sequence[NamedNorm], order: Sequence[str] | None
) -> tuple[Assumed, ...]:
    """What was assumed about the order of layers and the places of BatchNorms: what names suggest and sizes leave open.

    Names that are indices in one container, such as '0' and '2' of an `nn.Sequential`, leave nothing open.

    Args:
        layers: The layers, from the inputs to the outputs.
        norms: The BatchNorm of each hidden layer, or none.
        order: The stated order, if there is one.

    Returns:
        What was assumed, with the argument that decides it.
    """
    named = {name.removesuffix(".weight") for name in order or ()}
    found = []
    if order is None and len(_chains(_containers(layers), [])) > 1:
        found.append("layers in the order of their numbers")
    sizes = [layers[0].sizes[0], *(layer.sizes[1] for layer in layers)]
    sizes += [upper.sizes[0] for lower, upper in itertools.pairwise(layers) if upper.sizes[0] != lower.sizes[1]]
    pairs = [
        f"{norm.name} after {layer.name}"
        for layer, norm in zip(layers, norms, strict=False)
        if norm.name not in named and sizes.count(norm.sizes[0]) > 1 and not _share_container(layer, norm)
    ]
    if pairs:
        shown = " and ".join(pairs) if len(pairs) < 3 else f"{pairs[0]}, …, {pairs[-1]}"
        found.append(f"BatchNorm {shown}")
    return tuple(Assumed(words, "order") for words in found)


def _containers(layers: Sequence[NamedLayer]) -> list[list[NamedLayer]]:
    """Layers by the containers whose indices order them; a layer without an index is alone."""
    found: dict[str, list[NamedLayer]] = {}
    for layer in layers:
        found.setdefault(_without_indices(layer.name), []).append(layer)
    return list(found.values())


def _share_container(layer: NamedLayer, norm: NamedNorm) -> bool:
    """Whether both names are indices in one container, as in 'features.0' and 'features.1'."""
    return all(re.fullmatch(r"(.*\.)?\d+", item.name) for item in (layer, norm)) and (
        layer.name.rpartition(".")[0] == norm.name.rpartition(".")[0]
    )


def _without_indices(name: str) -> str:
    """A name with '#' for each of its parts that is a number: 'block1.#.fc' for 'block1.0.fc'."""
    return ".".join("#" if part.isdigit() else part for part in name.split("."))


def _place(file: Path, items: Sequence[Item], order: Sequence[str]) -> list[Item]:
    """Layers, and BatchNorms where these are named too, in the stated order."""
    known = {item.name: item for item in items}
    names = [name.removesuffix(".weight") for name in order]
    for name in names:
        if name not in known:
            raise UserError(
                f"{file}: order has the name {name!r}, but there is no such layer; {suggest(name, list(known))}its "
                f"layers are {', '.join(known)}."
            )
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UserError(f"{file}: order has the name {twice!r} twice; a layer of a stack is used once. {OTHERWISE}.")
    # BatchNorms need not be named, but then none is.
    needed = {item.name for item in items if isinstance(item, NamedLayer)}
    needed = set(known) if {*names} - needed else needed
    if missing := [name for name in known if name in needed - {*names}]:
        raise UserError(f"{file}: order lacks {', '.join(missing)}; name all layers, from the inputs to the outputs.")
    return [known[name] for name in names]


def _sort_items(file: Path, items: Sequence[_Some], in_order: bool) -> list[_Some]:
    """Sort by the numbers in the names if the names differ only in these, else by the only order that sizes allow."""
    families: dict[str, list[_Some]] = {}
    for item in items:
        families.setdefault(re.sub(r"\d+", "#", item.name), []).append(item)
    for family in families.values():
        family.sort(key=lambda item: _numbers_in(item.name))
    if len(families) == 1:
        return next(iter(families.values()))
    orders = _chains(list(families.values()), [])
    if len(orders) > 1:
        names = [item.name for item in (items if in_order else orders[0])]
        example = "in the order of the file" if in_order else "for example"
        raise Unstated(
            f"{file}: the layers {', '.join(map(str, items))} fit together in more than one order, and their names do "
            "not determine which",
            "if they follow one another with nothing beside them, give the order from the inputs to the outputs, "
            f"{example} --order {','.join(names)} (in Python order={names}); for skips and branches name the class of "
            "the model, --model FILE.py:Class (in Python model='FILE.py:Class')",
            "order",
        )
    return orders[0] if orders else list(items)


def _sort_with_norms(file: Path, items: Sequence[Item], in_order: bool, layers: list[NamedLayer]) -> list[Item]:
    """Sort layers and BatchNorms; the layers must come out in the order that is already known."""
    found = _sort_items(file, items, in_order)
    if [item.name for item in found if isinstance(item, NamedLayer)] != [layer.name for layer in layers]:
        raise Unstated(
            f"{file}: it is not clear which layers its BatchNorms follow",
            "name these in their places among the layers, --order NAME,NAME,… (in Python order=[…])",
            "order",
        )
    return found


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
    if isinstance(item, NamedLayer) and below.kernel != item.kernel:
        # A map can be flattened, but nodes never form a map.
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
            raise Unstated(
                f"{file}: the BatchNorm {item} follows {where}, but it must directly follow a hidden layer",
                "name layers and BatchNorms from the inputs to the outputs, --order NAME,NAME,… (in Python order=[…]), "
                f"if that is not the order; {OTHERWISE}",
                "order",
            )
        follows[below.name] = item
    return follows


def _validate_chain(file: Path, layers: list[NamedLayer]) -> None:
    filters = sum(1 for layer in layers if layer.kernel)
    if layers[-1].kernel or any(layer.kernel for layer in layers[filters:]):
        raise UserError(
            f"{file}: expected convolutions followed by one or more linear layers, got {', '.join(map(str, layers))}; "
            f"{OTHERWISE}."
        )
    for lower, upper in itertools.pairwise(layers):
        if lower.networks != upper.networks:
            raise UserError(
                f"{file}: {lower} and {upper} have different numbers of networks; save the population again."
            )
        if not _fits([lower], upper):
            multiple = ", or the second a multiple, a map of each channel" if lower.kernel and not upper.kernel else ""
            raise Unstated(
                f"{file}: the layers {lower} and {upper} do not fit together: the first has {lower.sizes[1]} nodes and "
                f"the second takes {upper.sizes[0]}, but the two must be equal{multiple}",
                f"if the layers follow one another in another order, give it, --order NAME,NAME,… (in Python order=[…])"
                f"; {OTHERWISE}",
                "order",
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
