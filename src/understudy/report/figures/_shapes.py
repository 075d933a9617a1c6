"""Validation of the shapes of a figure's arrays, before anything is drawn."""

from typing import Any

import numpy as np


def agree(kind: object, shapes: dict[str, tuple[int, ...]]) -> None:
    """Raise a ValueError that names the first field of `kind` whose shape is not the one given."""
    for field, wanted in shapes.items():
        value: Any = getattr(kind, field)
        if value is not None and np.shape(value) != wanted:
            name = type(kind).__name__
            raise ValueError(
                f"{name}.{field} has shape {np.shape(value)} where the other fields make it {wanted}: "
                f"give {name} arrays with the axes that its docstrings name."
            )
