"""Batches of any data that a module takes: tensors, arrays, frames, sources, loaders and other iterables."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from understudy._errors import UserError
from understudy._tensors import placed, require_finite
from understudy.data.source import Source

_KINDS = (
    "a tensor, a numpy array, a pandas frame, a DataLoader, a list of batches (tensors, arrays, tuples with the inputs "
    "first, or dicts of keyword arguments), or a source of us.data"
)

_ROWS = 1 << 16
"""Samples per batch where all of them are joined again."""


class Batch(NamedTuple):
    """Arguments with which a module is called on one batch, and how errors name the batch."""

    args: tuple[Any, ...]  # one, or none
    kwargs: dict[str, Any]
    name: str = "data"
    divided: bool = False
    """Whether the batch was cut from an array along its first axis."""

    @property
    def arrays(self) -> dict[str, Tensor | np.ndarray]:
        """Tensors and arrays among the arguments, by the name that errors use for them."""
        named: dict[str, Any] = dict(zip((self.name,), self.args, strict=False))
        named |= {f"{self.name}[{key!r}]": value for key, value in self.kwargs.items()}
        return {name: value for name, value in named.items() if isinstance(value, Tensor | np.ndarray)}

    def copied(self) -> Batch:
        """A copy that does not change with the data."""
        args = tuple(map(_copy, self.args))
        return self._replace(args=args, kwargs={name: _copy(value) for name, value in self.kwargs.items()})

    def shortened(self, axis: int) -> Batch:
        """The batch without its last sample, where samples are on this axis of the first array."""
        samples = next(iter(self.arrays.values())).shape[axis]

        def short(value: Any) -> Any:
            fits = isinstance(value, Tensor | np.ndarray) and value.ndim > axis and value.shape[axis] == samples
            return value[(slice(None),) * axis + (slice(samples - 1),)] if fits else value

        return self._replace(args=tuple(map(short, self.args)), kwargs={k: short(v) for k, v in self.kwargs.items()})

    def on(self, device: torch.device | None, dtype: torch.dtype | None) -> Batch:
        """Copy the batch to a module's device.

        Arrays take the module's dtype where they are floating-point numbers. A tensor keeps the dtype that it was
        given, and is refused where the module has another one, or where it lies on another accelerator.

        Args:
            device: Device of the module's parameters; None if it has none.
            dtype: Floating-point type of the module's parameters; None if it has none.

        Raises:
            UserError: A tensor of another dtype or device.
        """
        given = [placed(value, self.name, device, dtype) for value in self.args]
        named = {k: placed(v, f"{self.name}[{k!r}]", device, dtype) for k, v in self.kwargs.items()}
        return Batch(tuple(given), named, self.name, self.divided)


def _copy(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().clone()
    return np.copy(value) if isinstance(value, np.ndarray) else value


def batches(data: Any, size: int) -> Iterator[Batch]:
    """Divide data into batches, or take the batches that it consists of.

    Args:
        data: A tensor, numpy array or pandas frame whose first axis is the sample; a `Dataset`; a source, of which the
            evaluation inputs of seed 0 are used; a dict, which is one batch of keyword arguments; or an iterable of
            batches: tensors, arrays, tuples or lists of which the first element is used, or dicts.
        size: Samples per batch where the data is not in batches.

    Returns:
        The batches, of which there is at least one.

    Raises:
        UserError: Data of another kind, without samples, with values that are not numbers, or with NaN or infinity.
    """
    if size < 1:
        raise UserError(f"batch must be at least 1 sample, got {size}")
    found = (batch if batch.divided else _finite(batch) for batch in _divided(data, size))
    first = next(found, None)
    if first is None:
        raise UserError(f"data has no samples; give {_KINDS}")
    return itertools.chain([first], found)


def as_rows(data: Any) -> Tensor:
    """Join all samples of data to one matrix [sample, input]; samples with several axes are flattened.

    Args:
        data: As for `batches`, except dicts.

    Returns:
        The samples, in the dtype that they have.

    Raises:
        UserError: Data of another kind, without samples, with values that are not numbers, or with NaN or infinity;
            batches of different sizes.
    """
    rows: list[Tensor] = []
    for batch in batches(data, _ROWS):
        if not batch.args:
            raise UserError(f"{batch.name} is a dict of keyword arguments, but populations take one array of inputs")
        rows.append(placed(batch.args[0], batch.name, None, None).detach().flatten(1))
        if rows[-1].shape[1] != rows[0].shape[1]:
            raise UserError(f"{batch.name} has {rows[-1].shape[1]} inputs per sample, and the first {rows[0].shape[1]}")
    return torch.cat(rows) if len(rows) > 1 else rows[0]


def _divided(data: Any, size: int) -> Iterator[Batch]:
    if isinstance(data, str | bytes | tuple) or callable(getattr(data, "read", None)):
        hint = "a tuple is one batch, put it into a list" if isinstance(data, tuple) else "us.data.File reads files"
        raise UserError(f"data is of type {type(data).__name__} ({hint}); give {_KINDS}")
    if isinstance(data, Source):
        data = data.evaluating(0).numpy()
    elif hasattr(data, "to_numpy") and hasattr(data, "columns"):
        data = _frame(data)
    if isinstance(data, Tensor | np.ndarray):
        if data.ndim < 2:
            raise UserError(f"data must be [sample, …], with at least two axes, got shape {list(data.shape)}")
        _finite(Batch((data,), {}))
        for start in range(0, len(data), size):
            yield Batch((data[start : start + size],), {}, divided=True)
        return
    if isinstance(data, Dataset) and hasattr(data, "__len__"):
        data = DataLoader(data, batch_size=size)
    if isinstance(data, Mapping):
        data = [data]
    if not isinstance(data, Iterable):
        raise UserError(f"data is of type {type(data).__name__}; give {_KINDS}")
    for i, item in enumerate(data):
        yield _batch(item, f"batch {i} of data")


def _batch(item: Any, name: str) -> Batch:
    """Arguments of one item of an iterable."""
    if isinstance(item, Mapping):
        return Batch((), dict(item), name)
    if isinstance(item, tuple | list) and len(item):
        item = item[0]
    if isinstance(item, Mapping):
        return Batch((), dict(item), name)
    if hasattr(item, "to_numpy") and hasattr(item, "columns"):
        item = _frame(item)
    if not isinstance(item, Tensor | np.ndarray):
        kind = type(item).__name__
        raise UserError(f"{name} is of type {kind}; give tensors, arrays, tuples with the inputs first, or dicts")
    if item.ndim < 2:
        raise UserError(
            f"{name} has shape {list(item.shape)}, without an axis for samples; give batches [sample, …], "
            "not single samples"
        )
    return Batch((item,), {}, name)


def _frame(frame: Any) -> np.ndarray:
    """Numbers of a pandas frame."""
    for column, kind in zip(frame.columns, frame.dtypes, strict=True):
        if getattr(kind, "kind", "O") not in "biuf":
            raise UserError(f"data: column {column!r} is {kind}, not a number; leave it out or convert it")
    return np.asarray(frame.to_numpy(dtype=np.float64))


def _finite(batch: Batch) -> Batch:
    """Refuse a batch with NaN, infinity or values that are not numbers."""
    if not batch.arrays:
        raise UserError(f"{batch.name} has no tensor or array; give {_KINDS}")
    for name, value in batch.arrays.items():
        require_finite(name, value)
    return batch
