"""Weights of all networks of a run in one safetensors file: `{who}.{group}.layers.{i}.weight`, `…bias`, `…seeds`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from understudy._errors import UserError
from understudy.nets import Layer, Population
from understudy.store.files import whole


def write_weights(path: Path, weights: Mapping[str, Sequence[Population]]) -> None:
    tensors: dict[str, Tensor] = {}
    slopes: dict[str, float] = {}
    for who, groups in weights.items():
        for g, population in enumerate(groups):
            slopes[f"{who}.{g}"] = population.slope
            tensors[f"{who}.{g}.seeds"] = population.seeds.cpu().clone()
            for i, (weight, bias) in enumerate(population.layers):
                tensors[f"{who}.{g}.layers.{i}.weight"] = weight.detach().cpu().clone().contiguous()
                if bias is not None:
                    tensors[f"{who}.{g}.layers.{i}.bias"] = bias.detach().cpu().clone().contiguous()
    with whole(path) as temporary:
        # One entry: safetensors puts several in any order, and the same weights are to be the same bytes.
        save_file(tensors, temporary, metadata={"slopes": json.dumps(slopes)})


def read_weights(path: Path, who: str) -> list[Population]:
    populations: list[Population] = []
    with safe_open(path, "pt") as file:
        names, slopes = set(file.keys()), json.loads((file.metadata() or {}).get("slopes", "{}"))
        while (stem := f"{who}.{len(populations)}") + ".seeds" in names:
            layers: list[Layer] = []
            while (weight := f"{stem}.layers.{len(layers)}.weight") in names:
                bias = weight.removesuffix("weight") + "bias"
                layers.append(Layer(file.get_tensor(weight), file.get_tensor(bias) if bias in names else None))
            populations.append(Population(tuple(layers), file.get_tensor(f"{stem}.seeds"), slopes.get(stem, 0.0)))
        if not populations:
            kept = sorted({name.rsplit(".layers", 1)[0].rsplit(".", 1)[0] for name in names if ".layers." in name})
            raise UserError(f"{path}: has no weights of {who}; it holds those of {', '.join(kept)}")
    return populations
