"""Networks on disk: populations as safetensors, and fully connected networks that others saved.

What others saved is read as numbers only: safetensors, and `torch.save` files under `weights_only`, so that no code in
a file is ever run. Whatever is not a stack of fully connected layers is refused in words.
"""

import itertools
import json
import math
import os
import pickle
import re
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from understudy._errors import UserError
from understudy.nets.population import Layer, Population

_FORMAT, _VERSION = "understudy", 1
_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_STATE_KEYS = ("state_dict", "model_state_dict", "model", "model_state", "network", "net", "weights", "params")
_WRAPPERS = ("module.", "_orig_mod.")  # what DataParallel and torch.compile put before every name
_SAVE_STATE = "save the state dict: torch.save(model.state_dict(), path)"
_ALLOWED = "safetensors or a state dict from torch.save"


class _Contents(NamedTuple):
    """The tensors of a file in its order, and what the file says about them."""

    tensors: dict[str, Tensor]
    slope: float | None = None
    ours: bool = False  # only our own files may stack networks: elsewhere a 3-D weight is a convolution
    in_order: bool = True  # safetensors are sorted by name, which says nothing about the order of layers


class _Named(NamedTuple):
    """A layer under the name that the file gives it."""

    name: str
    weight: Tensor
    bias: Tensor | None

    @property
    def sizes(self) -> tuple[int, int]:
        """Nodes in, nodes out."""
        return self.weight.shape[-1], self.weight.shape[-2]

    def __str__(self) -> str:
        return f"'{_member(self.name, 'weight')}' {_size(self.weight)}"


def save(population: Population, path: str | os.PathLike[str], *, which: int | None = None) -> None:
    """Write a population, or its network `which` alone, as safetensors.

    Tensors are `layers.{i}.weight` [E, out, in], `layers.{i}.bias` [E, out] and `seeds` [E]; a network alone has no
    axis E, so that other programs find plain matrices. The file appears whole or not at all.
    """
    if not len(population):
        raise UserError(f"{path}: the population holds 0 networks, so there is nothing to save; save 1 or more.")
    if which is not None:
        if not 0 <= which < len(population):
            raise UserError(
                f"{path}: network {which} was asked for, but the population holds networks 0 to {len(population) - 1}; "
                "choose one of these."
            )
        population = population[which]
    tensors = {"seeds": population.seeds}
    for i, (weight, bias) in enumerate(population.layers):
        tensors[f"layers.{i}.weight"] = weight if which is None else weight[0]
        if bias is not None:
            tensors[f"layers.{i}.bias"] = bias if which is None else bias[0]
    # One entry: safetensors writes several in no fixed order, and the same networks must give the same bytes.
    metadata = {_FORMAT: json.dumps({"version": _VERSION, "slope": float(population.slope)})}
    # Copies, because layers may be views of one buffer and safetensors refuses tensors that share memory.
    copies = {name: _own(tensor.detach().cpu()) for name, tensor in tensors.items()}
    _write_whole(Path(path), safetensors.torch.save(copies, metadata))


def load(path: str | os.PathLike[str], *, slope: float | None = None) -> Population:
    """Read a population from our own safetensors, or one network from a file of 2-D `*.weight` and `*.bias` tensors.

    Such a file is plain safetensors, or holds a state dict written by `torch.save`, possibly in a checkpoint under a
    usual key such as `model_state_dict`; the prefix of DataParallel is dropped. Layers follow the numbers in their
    names where all names differ in their numbers alone, else the order of the state dict; safetensors do not keep that
    order, so there the sizes must leave only one. Where some layers have a bias and others have none, the missing ones
    become zeros.

    `slope` is that of the activation below zero: by default the file's own, else 0 (ReLU). float16 and bfloat16 become
    float32, and layers of different precision the widest among them. A file without seeds numbers its networks from 0.
    """
    file = existing_file(path, f"{_ALLOWED} is needed")
    if slope is not None and not math.isfinite(slope):
        raise UserError(f"{file}: the slope {slope} was given, but a finite number is needed, such as 0 for ReLU.")
    contents = _read(file)
    seeds = contents.tensors.pop("seeds", None) if contents.ours else None
    layers = _chained(file, _ordered(file, _named_layers(file, contents), contents.in_order))
    stacked = tuple(_stacked(layers))
    return Population(stacked, _seeds(file, seeds, len(stacked[0].weight)), _first(slope, contents.slope, 0.0))


def existing_file(path: str | os.PathLike[str], needed: str) -> Path:
    """The path of a file that is there and holds something, or an error that says what is `needed`."""
    file = Path(path)
    if not file.exists():
        raise UserError(f"{file}: there is no such file; {needed}, so check the path.")
    if file.is_dir():
        raise UserError(f"{file}: this is a directory; {needed}, so name a file in it.")
    if not file.is_file():
        raise UserError(f"{file}: this is not a regular file; {needed}, so copy the contents to one.")
    if not os.access(file, os.R_OK):
        raise UserError(f"{file}: the file may not be read; {needed}, so change its permissions.")
    if not file.stat().st_size:
        raise UserError(f"{file}: the file is empty (0 bytes); {needed}, so write or download it again.")
    return file


def _write_whole(path: Path, data: bytes) -> None:
    """Write beside the path, reach the disk, then take the name: no reader ever sees half a file."""
    if path.is_dir():
        raise UserError(f"{path}: this is a directory; name a file in it, for example {path / 'networks.safetensors'}.")
    if not path.parent.is_dir():
        raise UserError(f"{path}: the directory {path.parent} does not exist; create it or choose another.")
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with open(partial, "wb") as out:
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
        os.replace(partial, path)
    except OSError as error:
        raise UserError(
            f"{path}: the file could not be written ({error.strerror}); choose a directory with room and permission."
        ) from error
    finally:
        partial.unlink(missing_ok=True)


def _read(file: Path) -> _Contents:
    """Tell the formats apart by their first bytes, not by the ending of the name."""
    with open(file, "rb") as source:
        start = source.read(9)
    # A safetensors file starts with the length of its header, far below 2^32, in eight bytes.
    if file.suffix == ".safetensors" or (start[4:8] == bytes(4) and start[8:] == b"{"):
        return _read_safetensors(file)
    if start.startswith(b"PK\x03\x04") or (start[:1] == b"\x80" and start[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05")):
        return _Contents(_state_dict(file, _read_torch(file)))
    raise UserError(
        f"{file}: the file starts with {start!r}, so it is neither safetensors nor written by torch.save, or is cut "
        f"short; copy it again, or {_SAVE_STATE}."
    )


def _read_safetensors(file: Path) -> _Contents:
    try:
        with safetensors.safe_open(file, framework="pt") as source:
            metadata = source.metadata() or {}
            tensors = {name: source.get_tensor(name) for name in source.keys()}  # noqa: SIM118, it is not a mapping
    except Exception as error:  # whatever the decoder makes of arbitrary bytes
        raise UserError(
            f"{file}: the safetensors file is cut short or damaged ({_brief(error)}); save or download it again."
        ) from error
    said = _said(file, metadata.get(_FORMAT))
    return _Contents(tensors, said.get("slope"), _FORMAT in metadata, in_order=False)


def _said(file: Path, text: str | None) -> dict[str, Any]:
    """What a file of our own says of its networks beside their weights; of another's, nothing."""
    if text is None:
        return {}
    try:
        said = json.loads(text)
        version, slope = said["version"], float(said["slope"])
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{file}: the metadata {text!r} is damaged; save the networks again.") from error
    if version != _VERSION:
        raise UserError(
            f"{file}: the file has format version {version}, but this understudy reads version {_VERSION}; "
            "upgrade understudy, or save the networks again."
        )
    if not math.isfinite(slope):
        raise UserError(
            f"{file}: the metadata gives the slope {slope}, but a finite number is needed; save the networks again."
        )
    return {"slope": slope}


def _read_torch(file: Path) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what torch warns of becomes an error below
            return torch.load(file, weights_only=True, map_location="cpu")
    except pickle.UnpicklingError as error:
        raise UserError(
            f"{file}: the file holds Python code or objects that are not tensors, and none of it was run; "
            f"{_SAVE_STATE}."
        ) from error
    except Exception as error:  # whatever the decoder makes of arbitrary bytes
        if "TorchScript" in str(error):
            raise UserError(f"{file}: this is a TorchScript archive, which holds a program; {_SAVE_STATE}.") from error
        raise UserError(
            f"{file}: the file is cut short, damaged or not written by torch.save; copy it again, or {_SAVE_STATE}."
        ) from error


def _state_dict(file: Path, found: Any) -> dict[str, Tensor]:
    """The state dict that was saved, or that lies in a checkpoint, its names without wrappers."""
    if isinstance(found, Mapping):
        found = next((found[key] for key in _STATE_KEYS if isinstance(found.get(key), Mapping)), found)
    if not isinstance(found, Mapping):
        raise UserError(
            f"{file}: the file holds one {type(found).__name__}, but a state dict is needed; {_SAVE_STATE}."
        )
    state = dict(found)
    for name, tensor in state.items():
        if not isinstance(name, str) or not isinstance(tensor, Tensor):
            raise UserError(
                f"{file}: entry {name!r} has type {type(tensor).__name__}, but a state dict of named tensors is "
                f"needed, alone or under one of the keys {', '.join(_STATE_KEYS)}; {_SAVE_STATE}."
            )
    for prefix in _WRAPPERS:
        if all(name.startswith(prefix) for name in state):
            state = {name.removeprefix(prefix): tensor for name, tensor in state.items()}
    return state


def _named_layers(file: Path, contents: _Contents) -> list[_Named]:
    """The layers in the order of the file, each tensor checked by itself and against its bias."""
    tensors = contents.tensors
    for name in tensors:
        if name.rpartition(".")[2] not in ("weight", "bias"):
            raise UserError(
                f"{file}: the tensor '{name}' {_size(tensors[name])} belongs to no fully connected layer, of which "
                "only '*.weight' and '*.bias' are read; remove it or fold it into the layers beside it."
            )
    stems = [name.rpartition(".")[0] for name in tensors if name.rpartition(".")[2] == "weight"]
    if not stems:
        raise UserError(
            f"{file}: no weights were found among its {len(tensors)} tensors, but at least one '*.weight' is needed; "
            f"{_SAVE_STATE}."
        )
    for name in tensors:
        if name.rpartition(".")[0] not in stems:
            raise UserError(f"{file}: the bias '{name}' has no weight beside it; remove it, or save its layer whole.")
    allowed = (2, 3) if contents.ours else (2,)
    return [_named(file, stem, tensors, allowed) for stem in stems]


def _named(file: Path, stem: str, tensors: Mapping[str, Tensor], allowed: tuple[int, ...]) -> _Named:
    name = _member(stem, "weight")
    weight, bias = tensors[name], tensors.get(_member(stem, "bias"))
    if weight.ndim not in allowed or not weight.numel():
        raise UserError(
            f"{file}: the weight '{name}' has shape {_size(weight)}, but a fully connected layer is a 2-D matrix "
            "(out, in) of at least one number; networks with convolutions or other layers cannot be read, so rewrite "
            "it as fully connected layers."
        )
    if bias is not None and bias.shape != weight.shape[:-1]:
        raise UserError(
            f"{file}: the bias '{_member(stem, 'bias')}' has shape {_size(bias)}, but the weight '{name}' "
            f"{_size(weight)} needs {_size(weight[..., 0])}; save the layer again."
        )
    bias = None if bias is None else _numbers(file, _member(stem, "bias"), bias)
    return _Named(stem, _numbers(file, name, weight), bias)


def _numbers(file: Path, name: str, tensor: Tensor) -> Tensor:
    """Finite numbers of float32 or float64 in memory of their own."""
    if tensor.dtype not in _FLOATS or tensor.layout != torch.strided or tensor.is_meta:
        given, remedy = (
            (_word(tensor.dtype), "float") if tensor.dtype not in _FLOATS else ("sparse or absent", "to_dense")
        )
        raise UserError(
            f"{file}: the tensor '{name}' holds {given} numbers, but {', '.join(map(_word, _FLOATS))} are read; "
            f"convert it, for example with tensor.{remedy}(), and save again."
        )
    wide = tensor.detach().to(torch.promote_types(tensor.dtype, torch.float32))
    bad = wide.numel() - int(torch.isfinite(wide).sum())
    if bad:
        raise UserError(
            f"{file}: the tensor '{name}' holds {bad} of {wide.numel()} numbers that are NaN or infinite, but all must "
            "be finite; save the network from before it diverged."
        )
    return _own(wide)


def _ordered(file: Path, layers: list[_Named], in_order: bool) -> list[_Named]:
    """By the numbers in the names where these alone differ, else as the file or the sizes have it."""
    families: dict[str, list[_Named]] = {}
    for layer in layers:
        families.setdefault(re.sub(r"\d+", "#", layer.name), []).append(layer)
    for family in families.values():
        family.sort(key=lambda layer: [int(number) for number in re.findall(r"\d+", layer.name)])
    if len(families) == 1:
        return next(iter(families.values()))
    if in_order:
        return layers
    orders = _chains(list(families.values()), [])
    if len(orders) > 1:
        raise UserError(
            f"{file}: the layers {', '.join(map(str, layers))} fit together in more than one order; number them in "
            "their names from the inputs to the outputs, as in 'layers.0.weight', 'layers.1.weight'."
        )
    return orders[0] if orders else layers


def _chains(families: Sequence[Sequence[_Named]], before: list[_Named]) -> list[list[_Named]]:
    """The orders whose sizes fit, each family in its own order; two are enough to know that there are several."""
    if not any(families):
        return [before]
    found: list[list[_Named]] = []
    for i, family in enumerate(families):
        if family and (not before or before[-1].sizes[1] == family[0].sizes[0]):
            rest = [*families[:i], family[1:], *families[i + 1 :]]
            found += _chains(rest, [*before, family[0]])
        if len(found) > 1:
            break
    return found


def _chained(file: Path, layers: list[_Named]) -> list[_Named]:
    for lower, upper in itertools.pairwise(layers):
        if lower.weight.shape[:-2] != upper.weight.shape[:-2]:
            raise UserError(
                f"{file}: {lower} and {upper} hold different numbers of networks; save the population again."
            )
        if lower.sizes[1] != upper.sizes[0]:
            raise UserError(
                f"{file}: the layers {lower} and {upper} do not follow each other: the first gives {lower.sizes[1]} "
                f"nodes and the second takes {upper.sizes[0]}, but the two must be equal; save one plain stack of "
                "layers, in order."
            )
    return layers


def _stacked(layers: list[_Named]) -> list[Layer]:
    """Layers with an axis of networks, of one precision, and all with a bias if any has one."""
    biases = [layer.bias for layer in layers if layer.bias is not None]
    double = any(tensor.dtype == torch.float64 for tensor in (*biases, *(layer.weight for layer in layers)))
    dtype = torch.float64 if double else torch.float32
    stacked = []
    for _, weight, bias in layers:
        if bias is None and biases:
            bias = torch.zeros(weight.shape[:-1])
        weight = weight if weight.ndim == 3 else weight.unsqueeze(0)
        stacked.append(Layer(weight.to(dtype), None if bias is None else bias.to(dtype).reshape(weight.shape[:2])))
    return stacked


def _seeds(file: Path, seeds: Tensor | None, nets: int) -> Tensor:
    if seeds is None:
        return torch.arange(nets)
    if seeds.dtype != torch.int64 or seeds.shape != (nets,):
        raise UserError(
            f"{file}: the tensor 'seeds' is {_word(seeds.dtype)} {_size(seeds)}, but int64 ({nets},) is needed, one "
            "for each network; save the population again."
        )
    return seeds.clone()


def _own(tensor: Tensor) -> Tensor:
    return tensor.clone(memory_format=torch.contiguous_format)


def _first(*values: float | None) -> float:
    return next(value for value in values if value is not None)


def _member(stem: str, kind: str) -> str:
    return f"{stem}.{kind}" if stem else kind


def _size(tensor: Tensor) -> str:
    return str(tuple(tensor.shape))


def _word(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _brief(error: Exception) -> str:
    """The first line of what a decoder says, without its full stop."""
    lines = str(error).strip().splitlines()
    return lines[0][:120].rstrip(".") if lines else type(error).__name__
