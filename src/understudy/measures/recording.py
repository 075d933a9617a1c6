"""Activations of a module's submodules, recorded batch by batch."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from understudy._errors import UserError
from understudy.data.batches import Batch
from understudy.measures.submodules import Call, floating, hooked, trace
from understudy.nets.graphs import evaluation


class LayerActivations(NamedTuple):
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


def evaluated(role: str, model: nn.Module) -> AbstractContextManager[None]:
    """Put a module in evaluation mode without gradients, and every part of it back to the mode it was in.

    Warns if a BatchNorm or dropout was in training mode.
    """
    return evaluation.evaluated(f"the {role}", model, stacklevel=5)


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
        self.calls = trace(self.model, lambda: self._forward(batch))
        self.chosen: list[Call] = []
        self._data_axis = self._find_samples(batch)

    @property
    def device(self) -> torch.device | None:
        """Device of the module's parameters at present; None if it has none."""
        return next((tensor.device for tensor in self._tensors()), None)

    @property
    def _dtype(self) -> torch.dtype | None:
        return next((tensor.dtype for tensor in self._tensors() if tensor.is_floating_point()), None)

    def _tensors(self) -> Iterator[Tensor]:
        return itertools.chain(self.model.parameters(), self.model.buffers())

    def _find_samples(self, batch: Batch) -> int:
        """Find the axis of samples of the data, and by leaving out the last sample that of every output."""
        shape = next(iter(batch.arrays.values())).shape
        timed = [c for c in self.calls if c.time_major and len(c.fed) == 3 and c.fed[0] == shape[0]]
        if timed and timed[0].fed[1] == shape[0]:
            raise UserError(
                f"{timed[0].module!r} of the {self.role} has batch_first=False and takes [time, sample, feature]; "
                f"{batch.name} has as many samples as steps, {shape[0]}, so that they cannot be told apart; "
                "give batches of another size"
            )
        if timed and batch.divided:
            raise UserError(
                f"{timed[0].module!r} of the {self.role} has batch_first=False and takes [time, sample, feature], so "
                "that data cannot be divided along its first axis; give an iterable of batches, or use batch_first=True"
            )
        axis = 1 if timed and len(shape) > 1 else 0
        if shape[axis] == 1:
            for call in self.calls:
                call.sample = axis if call.shape[axis : axis + 1] == (1,) else None
            return axis
        fewer = trace(self.model, lambda: self._forward(batch.shortened(axis)))
        shapes = {(call.module, call.number): call.shape for call in fewer}
        for call in self.calls:
            other = shapes.get((call.module, call.number), ())
            changed = [i for i, (a, b) in enumerate(zip(call.shape, other, strict=False)) if a != b]
            call.sample = changed[0] if len(changed) == 1 and call.shape[changed[0]] == shape[axis] else None
        return axis

    def choose(self, calls: Sequence[Call], axes: Mapping[str, int]) -> list[str]:
        """Record these calls from now on.

        Args:
            calls: Calls among `calls`.
            axes: Axis of the nodes, by name or pattern.

        Returns:
            Notes on axes that are assumed.
        """
        for call in calls:
            if call.sample is None:
                raise UserError(
                    f"layers: {call.name!r} of the {self.role} returns {list(call.shape)}, which has no axis of "
                    "samples; choose other layers"
                )
            axis = next((axis for pattern, axis in axes.items() if fnmatchcase(call.name, pattern)), None)
            if axis is not None and not -len(call.shape) <= axis < len(call.shape):
                raise UserError(f"axes: {call.name!r} has shape {list(call.shape)}, which has no axis {axis}")
            if axis is not None:
                call.axis, call.assumed = axis % len(call.shape), False
            if call.axis == call.sample:
                raise UserError(
                    f"axes: axis {call.axis} of {call.name!r} of the {self.role} is the sample, not the nodes"
                )
        self.chosen = list(calls)
        return [
            f"{self.role} {c.name}: nodes assumed on axis {c.axis} of {list(c.shape)}; axes={{{c.name!r}: …}} decides"
            for c in calls
            if c.assumed
        ]

    def record(self, batch: Batch) -> list[LayerActivations]:
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
        found: dict[int, LayerActivations] = {}

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

    def _activations(self, call: Call, output: Tensor | None, batch: Batch) -> LayerActivations:
        samples = next(iter(batch.arrays.values())).shape[self._data_axis]
        if output is None or output.ndim != len(call.shape) or output.shape[call.sample or 0] != samples:
            raise UserError(f"{call.name!r} of the {self.role} returns another kind of output on {batch.name}")
        kind = torch.promote_types(output.dtype, torch.float32)
        moved = output.detach().movedim((call.sample or 0, call.axis), (0, -1))
        positions = tuple(moved.shape[1:-1])
        copied = moved.to(kind, copy=True, memory_format=torch.contiguous_format)
        values = copied.reshape(len(copied), -1, copied.shape[-1])
        mask = batch.kwargs.get("attention_mask")
        if mask is None or positions != tuple(mask.shape[1:]):
            return LayerActivations(values, positions)
        return LayerActivations(values, positions, torch.as_tensor(mask).to(values.device).bool().flatten(1))
