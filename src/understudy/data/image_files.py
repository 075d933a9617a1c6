"""Images of the user: arrays in .npy, .npz, .safetensors or .pt, or files and folders of PNG and JPEG."""

from __future__ import annotations

import os
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Shaped
from numpy.typing import NDArray
from torch import Tensor

from understudy._errors import UserError, first_line, kind_of
from understudy.data.input_files import read_numpy
from understudy.nets.files.io import existing_file
from understudy.nets.files.safetensors_files import read_safetensors
from understudy.nets.files.torch_files import read_torch

_ARRAYS = (".npy", ".npz", ".safetensors", ".pt", ".pth")
_PICTURES = (".png", ".jpg", ".jpeg")
_PNG = b"\x89PNG\r\n\x1a\n"
"""First bytes of a PNG file."""
_NEEDED = f"images are needed: an array ({', '.join(_ARRAYS)}), or files ({', '.join(_PICTURES)}) or a folder of them"
_CHANNELS = {"1": 1, "L": 1, "LA": 2, "P": 3, "RGB": 3, "RGBA": 4, "CMYK": 4}
_NAMES = ("images", "x")
_MOST_NAMED = 5
_KINDS = ("uint8", "float16", "bfloat16", "float32", "float64")

ImagePath = str | os.PathLike[str]


class GivenImages(NamedTuple):
    """Images in the layout of a network, with a name for each.

    Attributes:
        values: The images: uint8 from 0 to 255, or floating point, already normalised.
        names: File of each image, or its index in an array.
    """

    values: Shaped[Tensor, "image ..."]
    names: list[str]


def read_images(given: Any, shape: Sequence[int]) -> GivenImages:
    """Read images that must have the shape which a network takes.

    Args:
        given: A tensor, an array, a file (.npy, .npz, .safetensors, .pt, .png, .jpg), a folder of PNG and JPEG files,
            or a sequence of such files and folders. Arrays are uint8 from 0 to 255 or floating point, and images
            [channel, row, column] or [row, column, channel].
        shape: Channels, rows and columns that the network takes.

    Raises:
        UserError: Something that cannot be read, no images, or images of another size or channel count.
    """
    if isinstance(given, Tensor | np.ndarray):
        return _arranged("images", given, shape)
    paths = [given] if isinstance(given, str | os.PathLike) else given
    wrong = [each for each in paths if not isinstance(each, str | os.PathLike)] if isinstance(paths, Sequence) else []
    if wrong or not isinstance(paths, Sequence):
        got = f"{kind_of(given)} with {kind_of(wrong[0])}; stack images into one array" if wrong else kind_of(given)
        raise UserError(f"must be a tensor, an array, or paths of files, got {got}", "images")
    if not paths:
        raise UserError(f"{_NEEDED}, got none")
    parts = [_read(Path(each), shape, alone=len(paths) == 1) for each in paths]
    if len({part.values.dtype for part in parts}) > 1:
        raise UserError(
            "images must be all uint8 or all floating point, got both; convert some, or predict in two calls"
        )
    names = [name for part in parts for name in part.names]
    return GivenImages(torch.cat([part.values for part in parts]), names)


def _read(path: Path, shape: Sequence[int], *, alone: bool) -> GivenImages:
    """Images of a file or folder; those of an array are named by their index, and by its file if it is not alone."""
    if path.suffix.lower() in _ARRAYS and not path.is_dir():
        values, names = _arranged(str(path), _read_array(existing_file(path, _NEEDED)), shape)
        return GivenImages(values, names if alone else [f"{path}[{name}]" for name in names])
    files = _pictures(path)
    return GivenImages(torch.stack([_read_picture(file, shape) for file in files]), [str(file) for file in files])


def _read_array(file: Path) -> NDArray[Any] | Tensor:
    if file.suffix.lower() in (".npy", ".npz"):
        return read_numpy(file)
    try:
        if file.suffix.lower() == ".safetensors":
            found: Any = read_safetensors(file, "save the images as one tensor")[0]
        else:
            found = read_torch(file)
    except UserError:
        raise
    except Exception as error:  # arbitrary bytes can raise any exception in a decoder
        # The message for other objects than tensors names what the file refers to.
        reason = "" if isinstance(error, pickle.UnpicklingError) else f" ({first_line(error)})"
        raise UserError(
            f"{file}: the file is truncated, damaged, or contains something other than tensors{reason}; save the "
            "images as one tensor"
        ) from error
    if isinstance(found, Tensor) and not found.is_meta:
        return found
    items = found.items() if isinstance(found, dict) else ()
    tensors = {str(name): each for name, each in items if isinstance(each, Tensor) and not each.is_meta}
    for name in tensors if len(tensors) == 1 else _NAMES:
        if name in tensors:
            return tensors[name]
    more = f" and {len(tensors) - _MOST_NAMED} more" if len(tensors) > _MOST_NAMED else ""
    got = ", ".join([*tensors][:_MOST_NAMED]) + more or "none"
    raise UserError(f"{file}: one tensor, or one named {' or '.join(_NAMES)}, is needed, got {got}")


def _arranged(where: str, given: NDArray[Any] | Tensor, shape: Sequence[int]) -> GivenImages:
    """Images of an array with channels first, as the network takes them."""
    kind = given.dtype.name if isinstance(given, np.ndarray) else str(given.dtype).removeprefix("torch.")
    if kind not in _KINDS:
        raise UserError(
            f"{where}: values must be uint8 (0 to 255) or floating point (already normalised), got {kind}; convert them"
        )
    if isinstance(given, np.ndarray):
        given = torch.from_numpy(np.ascontiguousarray(given, given.dtype.newbyteorder("=")))
    values, wanted = given.detach().cpu(), tuple(shape)
    last = (*wanted[1:], wanted[0])
    if len(wanted) == 3 and wanted[0] == 1 and tuple(values.shape[-2:]) == wanted[1:] and values.ndim < 4:
        values = values.reshape(-1, *wanted)  # grey images without an axis of channels, several or one
    if tuple(values.shape) in (wanted, last):
        values = values[None]
    if len(wanted) == 3 and tuple(values.shape[1:]) == last and last != wanted:
        values = values.permute(0, 3, 1, 2)
    if tuple(values.shape[1:]) != wanted:
        raise UserError(f"{where}: {_takes(wanted)}, got an array of shape {list(given.shape)}; resize or convert it")
    if not len(values):
        raise UserError(f"{where}: at least one image is needed, got none")
    if values.is_floating_point():
        if not values.isfinite().all():
            first = int((~values.isfinite()).flatten(1).any(1).int().argmax())
            raise UserError(
                f"{where}: all values must be finite, but image {first} (counted from 0) has NaN or infinite ones; "
                "correct or remove it"
            )
        values = values.float()
    return GivenImages(values.contiguous(), [str(i) for i in range(len(values))])


def _pictures(path: Path) -> list[Path]:
    """The files of a folder, or the file itself."""
    if not path.is_dir():
        existing_file(path, _NEEDED)
        if path.suffix.lower() not in _PICTURES:
            raise UserError(f"{path}: {_NEEDED}, got the suffix {path.suffix or '(none)'}; convert the file")
        return [path]
    files = sorted(file for file in path.iterdir() if file.suffix.lower() in _PICTURES and file.name[0] != ".")
    if not files:
        raise UserError(f"{path}: the folder contains no {', '.join(_PICTURES)} files; {_NEEDED}")
    return files


def _read_picture(file: Path, shape: Sequence[int]) -> Tensor:
    from PIL import Image

    try:
        # Only these formats: others start programs, or may be of any size when they are decoded.
        require_intact(file)
        with Image.open(file, formats=("PNG", "JPEG")) as image:
            mode, size = image.mode, image.size
            if mode in _CHANNELS and (_CHANNELS[mode], size[1], size[0]) != tuple(shape):
                raise _other_size(file, mode, size, shape)
            image.load()
            pixels = np.array(image.convert("RGB") if mode == "P" else image.convert("L") if mode == "1" else image)
    except UserError:
        raise
    except Exception as error:  # arbitrary bytes can raise any exception in a decoder
        raise UserError(
            f"{file}: this is not an image, or a damaged one ({first_line(error)}); write or copy it again"
        ) from error
    if mode not in _CHANNELS:
        raise UserError(f"{file}: images must have 8 bits a channel, got the mode {mode}; convert it")
    return torch.from_numpy(pixels.reshape(size[1], size[0], -1)).permute(2, 0, 1).contiguous()


def require_intact(file: Path) -> None:
    """Raise an error if a part of a PNG file differs from its checksum: a decoder does not compare those of pixels.

    Raises:
        Exception: Any, as arbitrary bytes can cause in a decoder.
    """
    from PIL import Image

    with file.open("rb") as opened:
        is_png = opened.read(len(_PNG)) == _PNG
    if is_png:
        with Image.open(file, formats=("PNG",)) as image:
            image.verify()


def _other_size(file: Path, mode: str, size: Sequence[int], shape: Sequence[int]) -> UserError:
    return UserError(
        f"{file}: {_takes(shape)}, got {size[1]} × {size[0]} pixels with {_channels(_CHANNELS[mode])} ({mode}); resize "
        "or convert it"
    )


def _takes(shape: Sequence[int]) -> str:
    if len(shape) != 3:
        return f"the network takes inputs of shape {list(shape)}"
    return f"the network takes images of {shape[1]} × {shape[2]} pixels with {_channels(shape[0])}"


def _channels(count: int) -> str:
    return f"{count} channel{'' if count == 1 else 's'}"
