"""Files from which an interrupted computation goes on: each carries a checksum of its contents."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from understudy._atomic import atomic_path
from understudy._errors import UserError, first_line
from understudy._reading import existing_file

if TYPE_CHECKING:
    from torch import Tensor

_KEY = "state"
_PIECE = 2**22


class DamagedStateError(UserError):
    """A state or a part of it is missing, damaged, or of something else."""


def checksum_of_file(path: Path) -> str:
    """Checksum (CRC-32) of the contents of a file; other contents have the same one with probability 2⁻³²."""
    found = 0
    with open(path, "rb") as file:
        while piece := file.read(_PIECE):
            found = zlib.crc32(piece, found)
    return f"{found:08x}"


def checksum_of_values(value: Any) -> str:
    """Checksum (CRC-32) of plain values."""
    return f"{zlib.crc32(json.dumps(value, sort_keys=True).encode()):08x}"


def write_state(path: Path, tensors: Mapping[str, Tensor], stated: Mapping[str, Any]) -> None:
    """Write a state with a checksum; the file appears complete or not at all.

    Args:
        path: The file.
        tensors: Tensors by name.
        stated: Plain values, for which JSON is written.
    """
    from safetensors.torch import save_file

    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    # One entry: safetensors writes several in no fixed order, and the same state must give the same bytes.
    text = json.dumps({"stated": dict(stated), "checksum": _checksum(plain, dict(stated))})
    with atomic_path(path) as temporary:
        save_file(plain, temporary, metadata={_KEY: text})


def read_state(path: Path, remedy: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read a state that `write_state` wrote.

    Args:
        path: The file.
        remedy: What to do about a damaged file.

    Returns:
        Tensors by name, and plain values.

    Raises:
        DamagedStateError: No such file, a damaged one, or one whose contents were changed.
    """
    from safetensors import safe_open

    try:
        existing_file(path, "a saved state is needed")
        with safe_open(path, "pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118, it is not a mapping
            text = (file.metadata() or {}).get(_KEY)
        if text is None:
            raise ValueError("it has no checksum, so another version wrote it")
        found = json.loads(text)
        stated = found["stated"]
        if found["checksum"] != _checksum(tensors, stated):
            raise ValueError("its contents do not match its checksum")
    except Exception as error:  # arbitrary bytes can raise any exception in a decoder
        reason = str(error).removeprefix(f"{path}: ") if isinstance(error, UserError) else first_line(error)
        raise DamagedStateError(f"{path}: the saved state cannot be read ({reason}); {remedy}") from error
    return tensors, dict(stated)


def saved_training(folder: Path, name: str, kind: str) -> tuple[Path, dict[str, Tensor], dict[str, Any]] | None:
    """Read the state that a training saved in a folder of the user's, and remove what a killed process left there.

    Args:
        folder: The folder.
        name: Name of the file.
        kind: Its `format`, which only this kind of training writes.

    Returns:
        The file, tensors by name, and plain values; None if nothing is saved.

    Raises:
        UserError: No such folder, a damaged file, or one of another kind.
    """
    if not folder.is_dir():
        raise UserError(f"{folder}: the folder for the state of the training does not exist; create it")
    for unfinished in folder.glob(f".{name}.*"):
        unfinished.unlink(missing_ok=True)
    file = folder / name
    if not file.exists():
        return None
    tensors, stated = read_state(file, "remove the file to start over")
    if stated.get("format") != kind:
        raise UserError(f"{file}: this is the state of something else than this training; choose another folder")
    return file, tensors, stated


def _checksum(tensors: Mapping[str, Tensor], stated: Any) -> str:
    """Checksum of names, shapes, types and bytes of tensors, and of plain values."""
    import torch

    names = sorted(tensors)
    shapes = [[name, str(tensors[name].dtype), list(tensors[name].shape)] for name in names]
    found = zlib.crc32(json.dumps([shapes, stated], sort_keys=True).encode())
    for name in names:
        found = zlib.crc32(tensors[name].flatten().view(torch.uint8).numpy().data, found)
    return f"{found:08x}"
