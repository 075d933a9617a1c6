"""`understudy align` of modules that are not stacks of layers: every layer with every layer, by activations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from understudy._errors import UserError

if TYPE_CHECKING:
    from torch import Tensor, nn

    from understudy.lab.align import Alignment
    from understudy.nets import Population


def align_modules(
    teacher: nn.Module, student: nn.Module, data: Path, image: tuple[int, int] | None = None
) -> Alignment:
    """Compare two modules by their activations.

    Args:
        teacher: A module.
        student: A module.
        data: File of inputs, in the shape that the modules take.
        image: Height and width of the inputs. Flat rows of the file are images, channel by channel, if their size fits.

    Returns:
        All pairs of layers.

    Raises:
        UserError: Inputs that the modules do not take.
    """
    from understudy.lab.align import align

    try:
        return align(teacher, student, _images(read_array(data), image))
    except UserError as error:
        raise UserError(f"--data {data}: {error}") from error


def _images(rows: Tensor, image: tuple[int, int] | None) -> Tensor:
    """Flat rows as images of a height and width, if their size fits."""
    if rows.ndim != 2 or image is None or rows.shape[1] % (image[0] * image[1]):
        return rows
    return rows.unflatten(1, (-1, *image))


def align_as_modules(teacher: Population, student: Population, x: Tensor, notes: Sequence[str]) -> Alignment:
    """Compare all pairs of layers of two stacks, in float64.

    Args:
        teacher: A population of one network.
        student: A population of one network with as many inputs.
        x: Inputs, [sample, input].
        notes: What the result is to note besides.

    Returns:
        All pairs of layers.
    """
    import torch

    from understudy.lab.align import align

    image = (teacher.sizes[0], *teacher.image) if teacher.image else (teacher.inputs,)
    modules = [each.to(dtype=torch.float64).to_module() for each in (teacher, student)]
    found = align(modules[0], modules[1], x.double().unflatten(1, image))
    return replace(found, notes=(*notes, *found.notes))


def read_array(path: Path) -> Tensor:
    """Read inputs with all their axes; floating-point numbers become float32, and others int64.

    Args:
        path: The file: .npy, or another that contains a matrix.

    Returns:
        The inputs, [sample, …].

    Raises:
        UserError: The file cannot be read.
    """
    import torch

    from understudy.data.input_files import read_inputs, read_numpy
    from understudy.nets.files.io import existing_file

    if path.suffix != ".npy":
        return read_inputs(path).float()
    file = existing_file(path, "an array of inputs (.npy) is needed")
    found = read_numpy(file)
    if found.dtype.kind not in "biuf" or found.ndim < 2:
        raise UserError(
            f"{file}: the array must contain numbers, [samples, …], got {found.dtype} of shape {found.shape}."
        )
    return torch.from_numpy(found.astype("float32" if found.dtype.kind == "f" else "int64"))


def as_json(found: Alignment) -> dict[str, Any]:
    """All pairs of layers as plain values."""
    return {
        "teacher_layers": list(found.teacher_layers),
        "student_layers": list(found.student_layers),
        "samples": found.samples,
        "pairs": [
            [
                {
                    "correlation": pair.correlation.tolist(),
                    "best": pair.best.tolist(),
                    "best_correlation": pair.best_correlation.tolist(),
                    "mean_best_correlation": pair.mean_best_correlation,
                    "cka": pair.cka,
                    "recovered": pair.recovered,
                }
                for pair in row
            ]
            for row in found.pairs
        ],
        "notes": list(found.notes),
    }
