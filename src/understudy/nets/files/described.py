"""Weights as safetensors with a description in the metadata: how such files are written, recognised and read."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
from torch import nn

from understudy._atomic import disk_errors, write_bytes
from understudy._errors import UserError
from understudy._reading import parse_json
from understudy.nets.files.io import existing_file
from understudy.nets.files.safetensors_files import count_tensors, read_metadata, read_safetensors


@dataclass(frozen=True)
class DescribedFile:
    """A kind of file: safetensors whose metadata have a description under a key of its own.

    Args:
        key: The key.
        version: Version of the description that is written and read.
        contents: What the file describes, with its article, as in "a model with a latent code".
        subject: The same in one word, as in "model".
        writer: Name of the function that writes such files.
    """

    key: str
    version: int
    contents: str
    subject: str
    writer: str

    @property
    def needed(self) -> str:
        """What to give instead of another file."""
        return _needed([self])

    @property
    def again(self) -> str:
        """What to do about a file that cannot be used."""
        return f"save the {self.subject} again with {self.writer}"

    def write(self, path: str | os.PathLike[str], module: nn.Module, description: Mapping[str, Any]) -> None:
        """Write the weights of a module with a description; the file appears complete or not at all.

        Args:
            path: The file; its directory must exist.
            module: The module.
            description: Values that JSON can represent.

        Raises:
            UserError: A path that cannot be written.
        """
        # Copies, because safetensors rejects tensors that share memory, as tied weights do.
        tensors = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in module.state_dict().items()}
        text = json.dumps({"version": self.version, **description}, allow_nan=False)
        file = Path(path)
        with disk_errors(file, "choose another place"):
            # A single entry: safetensors writes several in no fixed order, and equal networks must give equal bytes.
            write_bytes(file, safetensors.torch.save(tensors, {self.key: text}))

    def read(self, file: Path) -> dict[str, Any]:
        """Read what a file states about its module.

        Args:
            file: An existing file.

        Raises:
            UserError: Another file, a truncated or damaged one, or one of another version.
        """
        find_kind(file, [self])
        try:
            stated = parse_json(file, _read_metadata(file, self.needed)[self.key], self.again, "its description")
            version = stated["version"]
        except (ValueError, KeyError, TypeError):
            raise UserError(f"{file}: its metadata are damaged; {self.again}") from None
        if version != self.version:
            raise UserError(
                f"{file}: the file has format version {version}, but this understudy reads version {self.version}; "
                f"upgrade understudy, or {self.again}"
            )
        return dict(stated)

    def require_layers(self, file: Path, layers: object) -> None:
        """Refuse an architecture with more layers than the file has tensors, before it is built.

        Args:
            file: An existing file.
            layers: Number of layers that it states; anything else than a whole number is ignored.

        Raises:
            UserError: More of them.
        """
        count = count_tensors(file, self.again)
        if isinstance(layers, int) and layers > count:
            shown = f"{layers:,}" if layers < 10**30 else "more than 10^30"
            raise UserError(
                f"{file}: its architecture has {shown} layers, but the file has {count:,} tensors; {self.again}"
            )

    def fill(self, file: Path, module: nn.Module) -> None:
        """Fill a module, which may be on the device meta, with the weights of a file.

        Args:
            file: An existing file.
            module: The module, which then has the precision of the file.

        Raises:
            UserError: Names, shapes or types that are not those of the module, or values that are not finite.
        """
        wanted, given = module.state_dict(), read_safetensors(file, self.again)[0]
        problems = [f"{name} is missing" for name in wanted if name not in given]
        problems += [f"{name} is unexpected" for name in given if name not in wanted]
        problems += [
            f"{name} has shape {list(given[name].shape)} instead of {list(tensor.shape)}"
            for name, tensor in wanted.items()
            if name in given and given[name].shape != tensor.shape
        ]
        problems += [
            f"{name} has values of type {given[name].dtype}"
            for name, tensor in wanted.items()
            if name in given and given[name].is_floating_point() != tensor.is_floating_point()
        ]
        kinds = sorted({str(each.dtype) for each in given.values() if each.is_floating_point()})
        if not problems and len(kinds) > 1:
            problems = [f"floating-point values have different types, {', '.join(kinds)}"]
        if problems:
            more = f" and {len(problems) - 1} more" if len(problems) > 1 else ""
            raise UserError(f"{file}: its weights do not match its architecture ({problems[0]}{more}); {self.again}")
        require_finite(file, given)
        # Copies, because the memory of the file is not aligned, by which the last bits of products differ.
        module.load_state_dict({name: tensor.clone() for name, tensor in given.items()}, assign=True)


def find_kind(path: str | os.PathLike[str], kinds: Sequence[DescribedFile]) -> DescribedFile:
    """Find out of which kind a file is.

    Args:
        path: The file.
        kinds: The kinds that it may have.

    Raises:
        UserError: No such file, another one, or a truncated or damaged one.
    """
    needed = _needed(kinds)
    file = existing_file(path, needed)
    metadata = _read_metadata(file, needed)
    for kind in kinds:
        if kind.key in metadata:
            return kind
    contents = " or ".join(kind.contents for kind in kinds)
    raise UserError(f"{file}: the file does not record {contents}; {needed}")


def _needed(kinds: Sequence[DescribedFile]) -> str:
    return f"a file that {' or '.join(kind.writer for kind in kinds)} wrote is needed"


def _read_metadata(file: Path, needed: str) -> dict[str, str]:
    """The metadata of a safetensors file, by key."""
    with open(file, "rb") as source:
        start = source.read(9)
    # A safetensors file starts with the length of its header, far below 2^32, in eight bytes.
    if not (start[4:8] == bytes(4) and start[8:] == b"{"):
        raise UserError(f"{file}: this is not a safetensors file; {needed}")
    return read_metadata(file, "save or copy it again")


def require_finite(file: Path, tensors: Mapping[str, Any]) -> None:
    """Raise a `UserError` unless all values of a file's tensors are finite."""
    for name, tensor in tensors.items():
        if not tensor.isfinite().all():
            raise UserError(
                f"{file}: {name} has values that are NaN or infinite, so training diverged or the file is damaged; "
                "choose another file"
            )
