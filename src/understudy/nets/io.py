"""Networks on disk: populations as safetensors, and networks that others saved.

What others saved is read as numbers only: safetensors, and `torch.save` files under `weights_only`, so that no code in
a file is ever run.
"""

import json
import math
import os
import pickle
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from jaxtyping import Float
from torch import Tensor

from understudy._atomic import write_bytes
from understudy.errors import UserError
from understudy.nets.layer_order import arranged, natural
from understudy.nets.norm import Norm
from understudy.nets.population import Layer, Population
from understudy.nets.shape import Convolution
from understudy.nets.state_dict import (
    SAVE_STATE,
    Contents,
    image_of,
    named,
    norm_stems,
    read_norm,
    stacked,
    tensor_name,
    word,
)

_FORMAT, _VERSION = "understudy", 1
_STATE_KEYS = ("state_dict", "model_state_dict", "model", "model_state", "network", "net", "weights", "params")
_WRAPPERS = ("module.", "_orig_mod.")  # what DataParallel and torch.compile put before every name
_ALLOWED = "safetensors or a state dict from torch.save"


def save(population: Population, path: str | os.PathLike[str], *, which: int | None = None) -> None:
    """Write a population, or its network `which` alone, as safetensors.

    Tensors are `layers.{i}.weight` [E, out, in] or [E, out, in, k, k], `layers.{i}.bias` [E, out], `seeds` [E], and
    where there is BatchNorm `norms.{i}.mean`, `.variance`, `.scale` and `.shift` [E, out]; a network alone has no axis
    E, so that other programs find plain matrices. The file appears whole or not at all.
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
    parts: dict[str, Layer | Norm] = {f"layers.{i}": layer for i, layer in enumerate(population.layers)}
    parts |= {f"norms.{i}": norm for i, norm in enumerate(population.norms)}
    for stem, part in parts.items():
        held = {f"{stem}.{name}": tensor for name, tensor in part._asdict().items() if tensor is not None}
        tensors |= {name: tensor if which is None else tensor[0] for name, tensor in held.items()}
    said: dict[str, Any] = {"version": _VERSION, "slope": float(population.slope)}
    said |= {"image": population.image} if population.image else {}
    said |= {"norm": population.shape.norm} if population.norms else {}
    said |= {"convolutions": looks} if (looks := population.shape.convolutions) else {}
    # One entry: safetensors writes several in no fixed order, and the same networks must give the same bytes.
    metadata = {_FORMAT: json.dumps(said)}
    # Copies, because layers may be views of one buffer and safetensors refuses tensors that share memory.
    copies = {
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format) for name, tensor in tensors.items()
    }
    _write(Path(path), safetensors.torch.save(copies, metadata))


def load(
    path: str | os.PathLike[str],
    *,
    slope: float | None = None,
    image: tuple[int, int] | None = None,
    norm_first: bool | None = None,
    convolutions: Sequence[Sequence[int]] | None = None,
) -> Population:
    """Read a population from our own safetensors, or one network from another program's file of named tensors.

    Such a file is plain safetensors, or holds a state dict written by `torch.save`, possibly in a checkpoint under a
    usual key such as `model_state_dict`; the prefix of DataParallel is dropped. It holds a stack of `nn.Linear`, or of
    `nn.Conv2d` with 3×3 kernels, no padding and stride 1, and one `nn.Linear` after them; where `convolutions` are
    given, other kernels, and several `nn.Linear`. A BatchNorm follows each hidden layer or none. Layers follow the
    numbers in their names where all names differ in their numbers alone, else the order of the state dict; safetensors
    do not keep that order, so there the sizes must leave only one. Where some layers have a bias, or some BatchNorms a
    scale and a shift, and others have none, the missing ones become zeros, and scales ones.

    Four things a state dict does not say. `slope` is that of the activation below zero: by default the file's own,
    else 0 (ReLU). `image` is the height and width of the inputs of convolutions: by default the file's own, else the
    square that fits the last layer; paddings, strides and pooling cannot be seen in a file, so give it where you know
    it, and a network that does not shrink by two pixels a convolution is refused. `convolutions` say how it shrinks
    instead, each (kernel, stride, padding), from the lowest up, and need the image. `norm_first` says that BatchNorm
    stands before the activation: by default the file's own, else after it, as in the papers.

    float16 and bfloat16 become float32, and layers of different precision the widest among them. A file without seeds
    numbers its networks from 0.
    """
    file = existing_file(path, f"{_ALLOWED} is needed")
    if slope is not None and not math.isfinite(slope):
        raise UserError(f"{file}: the slope {slope} was given, but a finite number is needed, such as 0 for ReLU.")
    contents = _read(file)
    if convolutions is not None:
        contents = contents._replace(convolutions=_looks(file, convolutions))
    seeds = contents.tensors.pop("seeds", None) if contents.ours else None
    found = arranged(file, named(file, contents), contents.in_order, contents.convolutions)
    size = image_of(file, found[0], image or contents.image, contents.convolutions)
    layers, norms = stacked(*found)
    return Population(
        layers,
        _seeds(file, seeds, len(layers[0].weight)),
        next(value for value in (slope, contents.slope, 0.0) if value is not None),
        norms,
        bool(norms) and bool(contents.norm_first if norm_first is None else norm_first),
        size,
        contents.convolutions,
    )


def _looks(file: Path, given: Sequence[Sequence[int]]) -> tuple[Convolution, ...]:
    try:
        return tuple(Convolution(*each) for each in given)
    except TypeError as error:
        raise UserError(
            f"{file}: the convolutions {given} were given, but each is (kernel, stride, padding); give these."
        ) from error


def bn_biases(path: str | os.PathLike[str]) -> list[tuple[str, Float[Tensor, "*net node"]]]:
    """The shift of every BatchNorm of a network file, under its name there: whatever else the network is made of.

    From below zero it keeps most samples from passing a ReLU that follows (S2 sec 4.1, figs 6 and 18). They come in the
    order of a state dict; safetensors do not keep that, so there by name, with numbers as numbers. A BatchNorm without
    an affine part has none.
    """
    file = existing_file(path, f"{_ALLOWED} is needed")
    contents = _read(file)
    stems, (*_, shift) = norm_stems(contents), contents.norm_names
    if not stems:
        raise UserError(
            f"{file}: no BatchNorm was found among its {len(contents.tensors)} tensors, but at least one "
            f"'*.{contents.norm_names[0]}' is needed; choose a network with BatchNorm, saved with its running "
            "statistics."
        )
    if not contents.in_order:
        stems.sort(key=natural)
    shifts = {tensor_name(stem, shift): read_norm(file, stem, contents).norm.shift for stem in stems}
    found = [(name, tensor) for name, tensor in shifts.items() if tensor is not None]
    if not found:
        raise UserError(
            f"{file}: none of its {len(stems)} BatchNorms has a shift, as none has an affine part; choose a network "
            "that has."
        )
    return found


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


def _write(path: Path, data: bytes) -> None:
    if path.is_dir():
        raise UserError(f"{path}: this is a directory; name a file in it, for example {path / 'networks.safetensors'}.")
    if not path.parent.is_dir():
        raise UserError(f"{path}: the directory {path.parent} does not exist; create it or choose another.")
    try:
        write_bytes(path, data)
    except OSError as error:
        raise UserError(
            f"{path}: the file could not be written ({error.strerror}); choose a directory with room and permission."
        ) from error


def _read(file: Path) -> Contents:
    """Tell the formats apart by their first bytes, not by the ending of the name."""
    with open(file, "rb") as source:
        start = source.read(9)
    # A safetensors file starts with the length of its header, far below 2^32, in eight bytes.
    if file.suffix == ".safetensors" or (start[4:8] == bytes(4) and start[8:] == b"{"):
        return _read_safetensors(file)
    if start.startswith(b"PK\x03\x04") or (start[:1] == b"\x80" and start[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05")):
        return Contents(_state_dict(file, _read_torch(file)))
    raise UserError(
        f"{file}: the file starts with {start!r}, so it is neither safetensors nor written by torch.save, or is cut "
        f"short; copy it again, or {SAVE_STATE}."
    )


def _read_safetensors(file: Path) -> Contents:
    try:
        with safetensors.safe_open(file, framework="pt") as source:
            metadata = source.metadata() or {}
            tensors = {name: source.get_tensor(name) for name in source.keys()}  # noqa: SIM118, it is not a mapping
    except Exception as error:  # whatever the decoder makes of arbitrary bytes
        raise UserError(
            f"{file}: the safetensors file is cut short or damaged ({_brief(error)}); save or download it again."
        ) from error
    return Contents(tensors, in_order=False, ours=_FORMAT in metadata, **_said(file, metadata.get(_FORMAT)))


def _said(file: Path, text: str | None) -> dict[str, Any]:
    """What a file of our own says of its networks beside their weights; of another's, nothing."""
    if text is None:
        return {}
    try:
        said = json.loads(text)
        version, slope, image, norm = said["version"], float(said["slope"]), said.get("image"), said.get("norm")
        if image is not None:
            height, width = image = tuple(image)
            if not all(isinstance(side, int) and side > 0 for side in (height, width)):
                raise ValueError(image)
        if norm not in (None, "before", "after"):
            raise ValueError(norm)
        looks = said.get("convolutions")
        looks = None if looks is None else tuple(Convolution(*(int(n) for n in each)) for each in looks)
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
    return {"slope": slope, "image": image, "norm_first": norm == "before", "convolutions": looks}


def _read_torch(file: Path) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what torch warns of becomes an error below
            return torch.load(file, weights_only=True, map_location="cpu")
    except pickle.UnpicklingError as error:
        raise UserError(
            f"{file}: the file holds Python code or objects that are not tensors, and none of it was run; {SAVE_STATE}."
        ) from error
    except Exception as error:  # whatever the decoder makes of arbitrary bytes
        if "TorchScript" in str(error):
            raise UserError(f"{file}: this is a TorchScript archive, which holds a program; {SAVE_STATE}.") from error
        raise UserError(
            f"{file}: the file is cut short, damaged or not written by torch.save; copy it again, or {SAVE_STATE}."
        ) from error


def _state_dict(file: Path, found: Any) -> dict[str, Tensor]:
    """The state dict that was saved, or that lies in a checkpoint, its names without wrappers."""
    if isinstance(found, Mapping):
        found = next((found[key] for key in _STATE_KEYS if isinstance(found.get(key), Mapping)), found)
    if not isinstance(found, Mapping):
        raise UserError(f"{file}: the file holds one {type(found).__name__}, but a state dict is needed; {SAVE_STATE}.")
    state = dict(found)
    for name, tensor in state.items():
        if not isinstance(name, str) or not isinstance(tensor, Tensor):
            raise UserError(
                f"{file}: entry {name!r} has type {type(tensor).__name__}, but a state dict of named tensors is "
                f"needed, alone or under one of the keys {', '.join(_STATE_KEYS)}; {SAVE_STATE}."
            )
    for prefix in _WRAPPERS:
        if all(name.startswith(prefix) for name in state):
            state = {name.removeprefix(prefix): tensor for name, tensor in state.items()}
    return state


def _seeds(file: Path, seeds: Tensor | None, nets: int) -> Tensor:
    if seeds is None:
        return torch.arange(nets)
    if seeds.dtype != torch.int64 or seeds.shape != (nets,):
        raise UserError(
            f"{file}: the tensor 'seeds' is {word(seeds.dtype)} {tuple(seeds.shape)}, but int64 ({nets},) is needed, "
            "one for each network; save the population again."
        )
    return seeds.clone()


def _brief(error: Exception) -> str:
    """The first line of what a decoder says, without its full stop."""
    lines = str(error).strip().splitlines()
    return lines[0][:120].rstrip(".") if lines else type(error).__name__
