"""Weights of all networks of a run in one safetensors file: `{who}.{group}.layers.{i}.weight`, `…bias`, `…seeds`, and
`{who}.{group}.norms.{i}.mean`, … where they have BatchNorm."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor

from understudy._atomic import atomic_path
from understudy._errors import UserError
from understudy.nets import Layer, Norm, Population
from understudy.nets.files.safetensors_files import opened
from understudy.nets.shape import convolution, stored

_PARTS: dict[str, type[Layer] | type[Norm]] = {"layers": Layer, "norms": Norm}

_REMEDY = "move the folder away and run the same command"


def write_weights(path: Path, weights: Mapping[str, Sequence[Population]]) -> None:
    """Write populations by name, one per group."""
    tensors: dict[str, Tensor] = {}
    slopes: dict[str, float] = {}
    kinds: dict[str, dict[str, Any]] = {}
    for who, groups in weights.items():
        for g, population in enumerate(groups):
            stem = f"{who}.{g}"
            slopes[stem] = population.slope
            if not population.shape.dense:
                kinds[stem] = {"image": population.image, "norm_first": population.norm_first}
                # Written only if it is not the default: files of the same networks keep the same bytes.
                convolutions = stored(population.shape.convolutions)
                kinds[stem] |= {"convolutions": convolutions} if convolutions else {}
            tensors[f"{stem}.seeds"] = population.seeds.cpu().clone()
            for kind in _PARTS:
                for i, part in enumerate(getattr(population, kind)):
                    named = {f"{stem}.{kind}.{i}.{name}": tensor for name, tensor in part._asdict().items()}
                    tensors |= {
                        name: tensor.detach().cpu().clone().contiguous()
                        for name, tensor in named.items()
                        if tensor is not None
                    }
    # One entry: safetensors writes several in no fixed order, and the same weights must give the same bytes.
    said = {"slopes": slopes, "kinds": kinds} if kinds else slopes
    with atomic_path(path) as temporary:
        save_file(tensors, temporary, metadata={"slopes": json.dumps(said)})


def read_weights(path: Path, who: str) -> list[Population]:
    """Read the populations of one name, one per group."""
    populations: list[Population] = []
    with opened(path, _REMEDY) as file:
        names, said = set(file.keys()), json.loads((file.metadata() or {}).get("slopes", "{}"))
        slopes, kinds = (said["slopes"], said["kinds"]) if "kinds" in said else (said, {})
        while (stem := f"{who}.{len(populations)}") + ".seeds" in names:
            layers, norms = (_read(file, names, f"{stem}.{kind}", make) for kind, make in _PARTS.items())
            kind = kinds.get(stem, {})
            image, convolutions = kind.get("image"), kind.get("convolutions")
            populations.append(
                Population(
                    tuple(layers),
                    file.get_tensor(f"{stem}.seeds"),
                    slopes.get(stem, 0.0),
                    tuple(norms),
                    kind.get("norm_first", False),
                    None if image is None else (image[0], image[1]),
                    None if convolutions is None else tuple(map(convolution, convolutions)),
                )
            )
        if not populations:
            raise UserError(f"{path}: has no weights of {who}; {_contents(names)}")
    return populations


def shared_networks(groups: Sequence[Population]) -> Population | None:
    """The one network that all networks of all groups are, or the networks that all groups have; None if neither."""
    first = [_tensors(group) for group in groups]

    def all_are(some: Sequence[Tensor]) -> bool:
        return all(
            a.shape[1:] == b.shape[1:] and bool((a == b).all())
            for tensors in first
            for a, b in zip(tensors, some, strict=True)
        )

    if all_are([tensor[:1] for tensor in first[0]]):
        return groups[0][0]
    return groups[0] if len({len(group) for group in groups}) == 1 and all_are(first[0]) else None


def _tensors(networks: Population) -> list[Tensor]:
    return [tensor for part in (*networks.layers, *networks.norms) for tensor in part if tensor is not None]


def kept_weights(path: Path) -> list[str]:
    """Names of the populations in a file."""
    with opened(path, _REMEDY) as file:
        return _whose(file.keys())


def _contents(names: Iterable[str]) -> str:
    """What a file contains, in words."""
    names = set(names)
    if whose := _whose(names):
        return f"it holds those of {', '.join(whose)}"
    if watched := [each for each in ("start", "last") if any(name.startswith(f"{each}.") for name in names)]:
        kinds = " and ".join(f"{each}.…" for each in watched)
        return f"it holds tensors of modules, {kinds}, which safetensors.torch.load_file reads"
    return "it holds those of none"


def _whose(names: Iterable[str]) -> list[str]:
    return sorted({name.rsplit(".layers", 1)[0].rsplit(".", 1)[0] for name in names if ".layers." in name})


def _read(file: Any, names: set[str], stem: str, make: type[Any]) -> list[Any]:
    """Read the layers, or the norms, under a name."""
    parts: list[Any] = []
    while f"{stem}.{len(parts)}.{make._fields[0]}" in names:
        of = [f"{stem}.{len(parts)}.{field}" for field in make._fields]
        parts.append(make._make(file.get_tensor(name) if name in names else None for name in of))
    return parts
