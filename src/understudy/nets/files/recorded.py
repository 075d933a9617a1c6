"""Files that record the architecture of their networks: nothing is assumed, and what is stated must agree."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from understudy._errors import UserError
from understudy.nets.files.convolutions import require_fit
from understudy.nets.files.layer_order import order_layers
from understudy.nets.files.state_dict import Contents, read_items, stack_items
from understudy.nets.files.stated import Pooling, Stated, format_activation
from understudy.nets.population import Population, dtype_name
from understudy.nets.shape import Convolution, Pool, Shape, Sides, format_size, pair


def restore(file: Path, contents: Contents) -> Population:
    """Make the networks that `save` wrote.

    Args:
        file: The file, for messages.
        contents: Its tensors, and what it records about them.

    Returns:
        The networks.

    Raises:
        UserError: The file is damaged.
    """
    seeds = contents.tensors.pop("seeds", None)
    found = order_layers(file, read_items(file, contents), contents.in_order)
    filters = [layer for layer in found[0] if layer.kernel]
    if bool(filters) != (contents.image is not None):
        raise UserError(
            f"{file}: the recorded image {contents.image} does not fit the layers; save the networks again."
        )
    if contents.image is not None:
        require_fit(file, found[0], contents.image, contents.convolutions or (Convolution(),) * len(filters))
    layers, norms = stack_items(*found)
    return Population(
        layers,
        _seeds(file, seeds, len(layers[0].weight)),
        contents.slope or 0.0,
        norms,
        bool(norms) and bool(contents.norm_first),
        contents.image,
        contents.convolutions,
    )


def require_agreement(file: Path, shape: Shape, stated: Stated) -> None:
    """Require that what is stated is what a file records.

    Args:
        file: The file, for messages.
        shape: The recorded shape.
        stated: What is stated.

    Raises:
        UserError: Something else is stated, or something that the networks do not have.
    """
    how = shape.resolved_convolutions
    recorded = {
        "order": "the file records the order of its layers",
        "key": "the file records its networks without one",
        "norm_eps": "the file records ε of its BatchNorm" if shape.norm else "the network has no BatchNorm",
    }
    for name in stated.named(*recorded, *(("padding", "stride", "pool") if not how else ())):
        why = recorded.get(name, "the network has no convolution")
        raise UserError(f"{file}: {name} was given, but {why}; omit it.")
    pairs = {
        "activation": (stated.slope, shape.slope, format_activation(shape.slope)),
        "norm_order": (stated.norm_order, shape.norm, f"BatchNorm {shape.norm} it" if shape.norm else "no BatchNorm"),
        "image": (
            stated.sides,
            shape.image,
            f"images of {format_size(shape.image)}" if shape.image else "no convolution",
        ),
        "padding": (_pairs(stated.paddings(len(how))), _pairs([each.padding for each in how]), "another"),
        "stride": (_pairs(stated.strides(len(how))), _pairs([each.stride for each in how]), "another"),
        "pool": (
            _pooled(stated.pools(len(how)), shape.maps),
            _pooled([each.pool for each in how], shape.maps),
            "another",
        ),
    }
    for name, (given, found, words) in pairs.items():
        if given is not None and given != found:
            raise UserError(
                f"{file}: {name} {getattr(stated, name)} was given, but the file records {words}; omit it, or give it "
                f"for the other network only (--{name.replace('_', '-')} student=…)."
            )


def _pairs(sides: Sequence[Sides] | None) -> list[tuple[int, int]] | None:
    return None if sides is None else [pair(each) for each in sides]


def _pooled(pools: Sequence[Pooling] | None, maps: Sequence[tuple[int, int]]) -> list[object] | None:
    """Poolings with height and width of everything, so that equal ones compare as equal."""
    if pools is None:
        return None
    made = [Pool("average", size, size) if pool == "global" else pool for pool, size in zip(pools, maps, strict=True)]
    return [pool and (pool.kind, *map(pair, pool[1:])) for pool in made]


def _seeds(file: Path, seeds: Tensor | None, nets: int) -> Tensor:
    if seeds is None:
        return torch.arange(nets)
    if seeds.dtype != torch.int64 or seeds.shape != (nets,):
        raise UserError(
            f"{file}: the tensor 'seeds' must be int64 ({nets},), one per network, got {dtype_name(seeds.dtype)} "
            f"{tuple(seeds.shape)}; save the population again."
        )
    return seeds.clone()
