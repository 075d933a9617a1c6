"""Activations of a module's submodules, recorded batch by batch."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from understudy._errors import UserError
from understudy.data.batches import Batch
from understudy.measures.submodules import Call, floating, hooked, trace


class Activations(NamedTuple):
    """Activations of one layer on one batch."""

    values: Float[Tensor, "sample position node"]
    positions: tuple[int, ...]
    """Height and width of a map, or length of a sequence; empty if a sample has one value per node."""
    mask: Bool[Tensor, "sample position"] | None = None
    """Positions that count, where an attention mask leaves some out."""

    @property
    def rows(self) -> Float[Tensor, "row node"]:
        """Every sample at every position."""
        return self.values.flatten(0, 1) if self.mask is None else self.values[self.mask]

    @property
    def averaged(self) -> Float[Tensor, "sample node"]:
        """Mean over positions."""
        if self.mask is None:
            return self.values.mean(1)
        weight = self.mask.to(self.values.dtype)
        return torch.einsum("spu,sp->su", self.values, weight / weight.sum(1, keepdim=True).clamp_min(1.0))


@contextmanager
def evaluated(role: str, model: nn.Module) -> Iterator[None]:
    """Put a module in evaluation mode without gradients, and every part of it back to the mode it was in.

    Warns if a BatchNorm or dropout was in training mode.
    """
    training = [part for part in model.modules() if part.training]
    kinds = sorted({type(part).__name__ for part in training if isinstance(part, _BatchNorm | _DropoutNd)})
    if kinds:
        warnings.warn(
            f"the {role} is in training mode with {' and '.join(kinds)}; it is evaluated in evaluation mode and put "
            "back into training mode",
            stacklevel=5,
        )
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for part in training:
            part.training = True


class Recorder:
    """Records the activations of chosen calls of a module's submodules.

    Args:
        role: `teacher` or `student`, for errors.
        model: The module, in evaluation mode.
        batch: A batch on which to find out which submodules it calls.

    Raises:
        UserError: The module cannot take the batch.
    """

    def __init__(self, role: str, model: nn.Module, batch: Batch) -> None:
        self.role, self.model = role, getattr(model, "_orig_mod", model)  # of torch.compile, which ignores hooks
        tensors = [*self.model.parameters(), *self.model.buffers()]
        self.device = tensors[0].device if tensors else None
        self._dtype = next((t.dtype for t in tensors if t.is_floating_point()), None)
        self.calls = trace(self.model, lambda: self._forward(batch))
        self.chosen: list[Call] = []
        first = next(iter(batch.arrays.values()))
        self._time_major = [c for c in self.calls if c.time_major and len(c.fed) == 3]
        timed = next((c for c in self._time_major if c.fed[0] == len(first) != c.fed[1]), None)
        self._data_axis = 0 if timed is None or first.ndim < 2 else 1
        if timed is not None and batch.divided:
            raise UserError(
                f"{timed.module!r} of the {role} has batch_first=False and takes [time, sample, feature], so that data "
                "cannot be divided along its first axis; give an iterable of batches, or a module with batch_first=True"
            )

    def choose(self, calls: Sequence[Call], axes: Mapping[str, int]) -> list[str]:
        """Record these calls from now on.

        Args:
            calls: Calls among `calls`.
            axes: Axis of the nodes, by name or pattern.

        Returns:
            Notes on axes that are assumed.
        """
        for call in calls:
            axis = next((axis for pattern, axis in axes.items() if fnmatchcase(call.name, pattern)), None)
            if axis is not None and not -len(call.shape) <= axis < len(call.shape):
                raise UserError(f"axes: {call.name!r} has shape {list(call.shape)}, which has no axis {axis}")
            if axis is not None:
                call.axis, call.assumed = axis % len(call.shape), False
        self.chosen = list(calls)
        return [
            f"{self.role} {c.name}: nodes assumed on axis {c.axis} of {list(c.shape)}; axes={{{c.name!r}: …}} decides"
            for c in calls
            if c.assumed
        ]

    def record(self, batch: Batch) -> list[Activations]:
        """Run the module on a batch.

        Args:
            batch: The batch.

        Returns:
            Activations of the chosen calls. They are copies, since a module may change its input in place.

        Raises:
            UserError: The module cannot take the batch, or does not call a submodule as often as before.
        """
        wanted = {(call.module, call.number): i for i, call in enumerate(self.chosen)}
        counts = dict.fromkeys((call.module for call in self.chosen), 0)
        usual = {call.module: call.number for call in self.calls}
        found: dict[int, Activations] = {}

        def record(name: str, part: nn.Module, inputs: Any, output: Any) -> None:
            counts[name] += 1
            if (name, counts[name]) in wanted:
                place = wanted[name, counts[name]]
                found[place] = self._activations(self.chosen[place], floating(output), batch)

        with hooked(self.model, list(counts), record):
            self._forward(batch)
        for name, count in counts.items():
            if count != usual[name]:
                raise UserError(
                    f"{name!r} of the {self.role} is called {count} times on {batch.name} and {usual[name]} times on "
                    "the first batch; choose layers that are called equally often"
                )
        return [found[i] for i in range(len(self.chosen))]

    def _forward(self, batch: Batch) -> None:
        try:
            placed = batch.on(self.device, self._dtype)
        except UserError as error:
            raise UserError(f"the {self.role} cannot take the data: {error}") from error
        try:
            self.model(*placed.args, **placed.kwargs)
        except UserError:
            raise
        except Exception as error:
            given = ", ".join(f"{list(v.shape)} of {v.dtype}" for v in batch.arrays.values())
            raise UserError(
                f"the {self.role} ({type(self.model).__name__}) fails on {batch.name} of shape {given} with "
                f"{type(error).__name__}: {error}; give data as its forward takes it"
            ) from error

    def _activations(self, call: Call, output: Tensor | None, batch: Batch) -> Activations:
        if output is None or output.ndim != len(call.shape):
            raise UserError(f"{call.name!r} of the {self.role} returns another kind of output on {batch.name}")
        axis = self._sample_axis(call, tuple(output.shape), batch)
        kind = torch.promote_types(output.dtype, torch.float32)
        moved = output.detach().movedim((axis, call.axis), (0, -1))
        positions = tuple(moved.shape[1:-1])
        copied = moved.to(kind, copy=True, memory_format=torch.contiguous_format)
        values = copied.reshape(len(copied), -1, copied.shape[-1])
        mask = batch.kwargs.get("attention_mask")
        if mask is None or positions != tuple(mask.shape[1:]):
            return Activations(values, positions)
        return Activations(values, positions, torch.as_tensor(mask).to(values.device).bool().flatten(1))

    def _sample_axis(self, call: Call, shape: tuple[int, ...], batch: Batch) -> int:
        """Axis of an output that is the sample: 0, or 1 where modules take [time, sample, feature]."""
        samples = next(iter(batch.arrays.values())).shape[self._data_axis]
        axes = [i for i in (0, 1) if i < len(shape) and shape[i] == samples]
        if axes == [call.axis]:
            raise UserError(f"axes: axis {call.axis} of {call.name!r} of the {self.role} is the sample, not the nodes")
        axes = [i for i in axes if i != call.axis]
        if not axes or (len(axes) > 1 and self._time_major):
            why = "equals the length of sequences" if axes else "is on no axis of it"
            raise UserError(
                f"{call.name!r} of the {self.role} returns {list(shape)} on {batch.name} with {samples} samples: which "
                f"axis is the sample cannot be told, since their number {why}; give batches of another size, or choose "
                "other layers"
            )
        return axes[0]
