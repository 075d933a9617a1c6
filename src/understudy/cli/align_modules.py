"""`understudy align` of modules that are no stacks of layers: every layer with every layer, by activations."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from understudy._errors import UserError

if TYPE_CHECKING:
    from torch import Tensor, nn

    from understudy.lab.align import Alignment


def align_modules(teacher: nn.Module, student: nn.Module, data: Path) -> Alignment:
    """Compare two modules by their activations.

    Args:
        teacher: A module.
        student: A module.
        data: File of inputs, in the shape that the modules take.

    Returns:
        All pairs of layers.

    Raises:
        UserError: Inputs that the modules do not take.
    """
    from understudy.lab.align import align

    try:
        return align(teacher, student, read_array(data))
    except UserError as error:
        raise UserError(f"--data {data}: {error}") from error


def read_array(path: Path) -> Tensor:
    """Read inputs with all their axes; floating-point numbers become float32, and others int64.

    Args:
        path: The file: .npy, or another that contains a matrix.

    Returns:
        The inputs, [sample, …].

    Raises:
        UserError: The file cannot be read.
    """
    import numpy as np
    import torch

    from understudy.data.input_files import read_inputs
    from understudy.nets.files.io import existing_file

    if path.suffix != ".npy":
        return read_inputs(path).float()
    file = existing_file(path, "an array of inputs (.npy) is needed")
    try:
        found = np.load(file, allow_pickle=False)
    except Exception as error:  # arbitrary bytes can raise any exception in a decoder
        raise UserError(f"{file}: the file is damaged or no array of numbers; write it with numpy.save.") from error
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
