"""Network files: populations as safetensors, and networks saved by other programs.

Files of other programs are read as numbers only, so that no code in a file is ever executed, and no file makes more
than a few times its size in memory.
"""

import json
import math
import os
import pickle
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from jaxtyping import Float
from torch import Tensor

from understudy._atomic import write_bytes
from understudy._errors import UserError
from understudy._reading import existing_file as existing_file
from understudy._reading import parse_json, require_plain_names
from understudy.nets.files.checkpoints import select_state, several_networks
from understudy.nets.files.layer_order import natural_key
from understudy.nets.files.safetensors_files import read_safetensors
from understudy.nets.files.state_dict import SAVE_STATE, Contents, norm_stems, read_norm, tensor_name
from understudy.nets.files.torch_files import TorchScriptError, read_torch
from understudy.nets.norm import Norm
from understudy.nets.population import Layer, Population
from understudy.nets.shape import convolution, stored

_FORMAT, _VERSION = "understudy", 1
_MOST_PIXELS = 2**26
"""Pixels of the largest image for which a file may record a network."""
_SHOWN = 300
"""Characters of metadata that an error shows."""
ALLOWED = "safetensors or a state dict from torch.save"
_WHOLE = (
    f"{SAVE_STATE}, and name the class of the model with --model FILE.py:Class (in Python model='FILE.py:Class') if it "
    "is not a stack of layers; or export the model to a .pt2 file with torch.export.save, or to ONNX"
)


def save(population: Population, path: str | os.PathLike[str], *, which: int | None = None) -> None:
    """Save a population, or one of its networks, as safetensors; the file appears complete or not at all.

    Tensors are `layers.{i}.weight` [E, out, in] or [E, out, in, k, k], `layers.{i}.bias` [E, out], `seeds` [E], and
    with BatchNorm `norms.{i}.mean`, `.variance`, `.scale` and `.shift` [E, out]. A single network (`which`) has no
    axis E, so that other programs find plain matrices.

    Args:
        population: The networks.
        path: File to write; its directory must exist.
        which: Index of the only network to save. Default: all.

    Raises:
        UserError: No networks, an index that does not exist, or a path that cannot be written.
    """
    if not len(population):
        raise UserError(f"{path}: the population has 0 networks; save at least 1.")
    if which is not None:
        if not 0 <= which < len(population):
            raise UserError(
                f"{path}: there is no network {which}; the population has networks 0 to {len(population) - 1}, choose "
                "one of these."
            )
        population = population[which]
    tensors = {"seeds": population.seeds}
    parts: dict[str, Layer | Norm] = {f"layers.{i}": layer for i, layer in enumerate(population.layers)}
    parts |= {f"norms.{i}": norm for i, norm in enumerate(population.norms)}
    for stem, part in parts.items():
        held = {f"{stem}.{name}": tensor for name, tensor in part._asdict().items() if tensor is not None}
        tensors |= {name: tensor if which is None else tensor[0] for name, tensor in held.items()}
    description: dict[str, Any] = {"version": _VERSION, "slope": float(population.slope)}
    description |= {"image": population.image} if population.image else {}
    description |= {"norm": population.shape.norm} if population.norms else {}
    description |= {"convolutions": given} if (given := stored(population.shape.convolutions)) else {}
    # A single entry: safetensors writes several in no fixed order, and equal networks must give equal bytes.
    metadata = {_FORMAT: json.dumps(description)}
    # Copies, because layers may be views of one buffer and safetensors rejects tensors that share memory.
    copies = {
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format) for name, tensor in tensors.items()
    }
    _write(Path(path), safetensors.torch.save(copies, metadata))


def bn_biases(path: str | os.PathLike[str], *, key: str | None = None) -> list[tuple[str, Float[Tensor, "*net node"]]]:
    """Read the shift (bias) of every BatchNorm in a network file, whatever other layers the network has.

    A negative shift keeps most samples from passing the ReLU that follows (Tian et al. 2019, sec. 4.1, figs. 6, 18).

    Args:
        path: A state dict written by `torch.save`, or safetensors.
        key: Key or prefix of the network, in a checkpoint of several.

    Returns:
        (tensor name, shift) of every BatchNorm with an affine part, in the order of the state dict; of safetensors,
        which do not keep that order, sorted by name.

    Raises:
        UserError: The file cannot be read, has several networks of which none is chosen, or has no BatchNorm with an
            affine part.
    """
    file = existing_file(path, f"{ALLOWED} is needed")
    contents = _read_only_network(file, key)
    require_plain_names(file, contents.tensors)
    stems, (*_, shift) = norm_stems(contents), contents.norm_names
    if not stems:
        raise UserError(
            f"{file}: no BatchNorm among its {len(contents.tensors)} tensors, at least one "
            f"'*.{contents.norm_names[0]}' is needed; choose a network with BatchNorm, saved with its running "
            "statistics."
        )
    if not contents.in_order:
        stems.sort(key=natural_key)
    shifts = {tensor_name(stem, shift): read_norm(file, stem, contents).norm.shift for stem in stems}
    found = [(name, tensor) for name, tensor in shifts.items() if tensor is not None]
    if not found:
        raise UserError(
            f"{file}: none of its {len(stems)} BatchNorms has an affine part, so there is no shift to read; choose a "
            "network with affine BatchNorm."
        )
    return found


def read_tensors(file: Path, key: str | None = None) -> dict[str, Tensor]:
    """Read the named tensors of a safetensors file or of a state dict, without executing code in it.

    Args:
        file: An existing file.
        key: Key or prefix of the tensors, in a checkpoint of several networks.

    Returns:
        Tensors by name, without prefixes of wrappers such as DataParallel.

    Raises:
        UserError: The file is damaged, contains something other than tensors, or has several networks of which none
            is chosen.
    """
    return _read_only_network(file, key).tensors


def _read_only_network(file: Path, key: str | None) -> Contents:
    """Read a file of one network, or the one that is chosen."""
    contents = read_contents(file, key)
    if contents.others:
        raise several_networks(file, [*filter(None, [contents.key]), *contents.others])
    return contents


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


def read_contents(file: Path, key: str | None = None) -> Contents:
    """Read a file in the format that its first bytes show; the suffix of the name need not match.

    Args:
        file: An existing file.
        key: Key of a state dict in a checkpoint, or prefix of the names of tensors. Default: a usual key, and all
            tensors there.

    Returns:
        Its tensors, what it records about them if `save` wrote it, and which other networks a checkpoint has.

    Raises:
        UserError: The file is damaged, contains something other than tensors, or has nothing under the key.
    """
    with open(file, "rb") as source:
        start = source.read(9)
    # A safetensors file starts with the length of its header, far below 2^32, in eight bytes.
    if file.suffix == ".safetensors" or (start[4:8] == bytes(4) and start[8:] == b"{"):
        contents = _read_safetensors(file)
        if key is None:
            return contents
        if contents.ours:
            raise UserError(f"{file}: key was given, but the file records its networks without one; omit it.")
        return contents._replace(tensors=select_state(file, contents.tensors, key).tensors, key=key)
    if start.startswith(b"PK\x03\x04") or (start[:1] == b"\x80" and start[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05")):
        return Contents(**select_state(file, _read_torch(file), key)._asdict())
    raise UserError(
        f"{file}: the file starts with {start!r}, so it is neither safetensors nor written by torch.save, or it is "
        f"truncated; copy it again, or {SAVE_STATE}."
    )


def _read_safetensors(file: Path) -> Contents:
    tensors, metadata = read_safetensors(file, "save or download it again.")
    return Contents(
        tensors, in_order=False, ours=_FORMAT in metadata, **_parse_description(file, metadata.get(_FORMAT))
    )


def _parse_description(file: Path, text: str | None) -> dict[str, Any]:
    """Parse what our own files state about their networks besides weights; nothing for files of other programs."""
    if text is None:
        return {}
    stated = parse_json(file, text, "save the networks again.", "the metadata")
    try:
        version, slope, image, norm = stated["version"], float(stated["slope"]), stated.get("image"), stated.get("norm")
        if image is not None:
            height, width = image = tuple(image)
            if not all(type(side) is int and side > 0 for side in (height, width)) or height * width > _MOST_PIXELS:
                raise ValueError(image)
        if norm not in (None, "before", "after"):
            raise ValueError(norm)
        given = stated.get("convolutions")
        convolutions = None if given is None else tuple(map(convolution, given))
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise UserError(f"{file}: the metadata {text[:_SHOWN]!r} is damaged; save the networks again.") from error
    if version != _VERSION:
        raise UserError(
            f"{file}: the file has format version {version}, but this understudy reads version {_VERSION}; "
            "upgrade understudy, or save the networks again."
        )
    if not math.isfinite(slope):
        raise UserError(
            f"{file}: the slope in the metadata must be a finite number, got {slope}; save the networks again."
        )
    return {"slope": slope, "image": image, "norm_first": norm == "before", "convolutions": convolutions}


def _read_torch(file: Path) -> Any:
    try:
        return read_torch(file)
    except UserError:
        raise
    except pickle.UnpicklingError as error:
        raise UserError(
            f"{file}: the file contains Python code or objects other than tensors (nothing was executed); {_WHOLE}."
        ) from error
    except TorchScriptError as error:
        raise UserError(f"{file}: this is a TorchScript archive, which contains a program; {_WHOLE}.") from error
    except Exception as error:  # arbitrary bytes can raise any exception in a decoder
        raise UserError(
            f"{file}: the file is truncated, damaged or not written by torch.save; copy it again, or {SAVE_STATE}."
        ) from error
