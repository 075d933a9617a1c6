"""Match the nodes of two networks: modules of any kind by their activations, populations layer by layer."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import torch
from torch import nn

from understudy import measures
from understudy._atomic import disk_errors, write_bytes
from understudy._errors import UserError
from understudy._numbers import number
from understudy.data import Source
from understudy.data.batches import Batch, batches
from understudy.measures.layer_pairs import LayerAlignment, LayerPair, LayerPairs
from understudy.measures.recording import LayerActivations, Recorder, evaluated
from understudy.measures.submodules import Call, default_calls, matching_calls, require_matches
from understudy.nets import Population
from understudy.report.alignment import alignment_page, layer_table, node_table
from understudy.training.plan import available

if TYPE_CHECKING:
    from pandas import DataFrame

Layers = str | Sequence[str] | Mapping[str, str | Sequence[str]]
"""Names or patterns for both networks, or a dict with the keys `teacher` and `student`."""


_NUMBERS = 1 << 24
"""Most numbers in a batch of inputs on a GPU."""
_MUCH = 0.3
"""Correlation by chance above which a note says that samples are few."""


class Alignment(LayerAlignment):
    """Which node (unit or channel) of a student matches which of a teacher, for every pair of layers.

    Index it by two names of layers, `alignment["layer1", "layer2"]`, to get their `LayerPair`. `report(path)` writes a
    page, and `to_pandas()` returns a table.

    Attributes:
        teacher_layers: Names of the teacher's layers, in the order of its forward pass.
        student_layers: Names of the student's layers.
        pairs: One row per teacher layer, one `LayerPair` per student layer.
        samples: Number of samples.
        notes: What was assumed or left out.
    """

    def __repr__(self) -> str:
        size = f"{len(self.teacher_layers)} × {len(self.student_layers)} layers, {self.samples:,} samples"
        rows = [("teacher layer", "best student layer", "mean best correlation", "CKA", "recovered")]
        for teacher, student in self.best_layers.items():
            pair = self[teacher, student]
            shown = number(pair.mean_best_correlation, ".3f"), number(pair.cka, ".3f")
            rows.append((teacher, student, *shown, f"{pair.recovered} of {len(pair.best)}"))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(word.ljust(width) for word, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        return "\n".join([f"Alignment of {size}", *lines, *(f"note: {note}" for note in self.notes)])

    def _repr_html_(self) -> str:
        return f"<pre>{escape(repr(self))}</pre>"

    def to_pandas(self, table: str = "nodes") -> DataFrame:
        """Return a table as a data frame.

        Args:
            table: `nodes` has one row per pair of layers and teacher node, with its best student node (missing for a
                constant node); `layers` has one row per pair of layers.

        Returns:
            The data frame.

        Raises:
            UserError: There is no such table.
        """
        tables = {"nodes": node_table, "layers": layer_table}
        if table not in tables:
            raise UserError(f"table must be one of {', '.join(tables)}, got {table!r}")
        return tables[table](self).to_pandas()

    def report(self, path: str | Path) -> Path:
        """Write the report as one HTML file.

        Args:
            path: File to write, such as `alignment.html`.

        Returns:
            The file.

        Raises:
            UserError: The file cannot be written.
        """
        path = Path(path)
        content = alignment_page(self, "us.align(teacher, student, data).report(path)")
        with disk_errors(path, "choose another file"):
            write_bytes(path, content)
        return path


@overload
def align(teacher: Population, student: Population, data: Any) -> list[measures.LayerMatch]: ...


@overload
def align(
    teacher: nn.Module,
    student: nn.Module,
    data: Any,
    *,
    layers: Layers | None = None,
    axes: Mapping[str, int] | None = None,
    average: bool = False,
    batch: int | None = None,
) -> Alignment: ...


def align(
    teacher: nn.Module | Population,
    student: nn.Module | Population,
    data: Any,
    *,
    layers: Layers | None = None,
    axes: Mapping[str, int] | None = None,
    average: bool = False,
    batch: int | None = None,
) -> Alignment | list[measures.LayerMatch]:
    """Find which node of a student matches which node of a teacher, by correlation (Tian 2020, eq. 9).

    Two modules may be of any kind, depth and width. Activations of their submodules are recorded by hooks while both
    run on the data in evaluation mode. Nodes are on the last axis of [sample, …, feature], or on axis 1 of
    convolutional maps. Layers with the same positions are compared at every position of every sample, others after
    averaging over positions; padding that an `attention_mask` marks is left out. Sums are accumulated over batches, so
    that memory depends on the widths of layers and not on the number of samples.

    By default, layers are the submodules that call no others: activations, and norms or other layers to whose output no
    activation is applied directly. See `measures.submodules.default_calls`.

    Args:
        teacher: A module, or a population of one network.
        student: A module, or a population of one network if the teacher is one.
        data: Inputs: a tensor, numpy array or pandas frame [sample, …]; a DataLoader or another iterable of batches
            (tensors, arrays, tuples of which the first element is used, or dicts of keyword arguments); a source of
            `us.data`, of which the evaluation inputs of seed 0 are used. Populations take no dicts.
        layers: Names of submodules, with `*` and `?` as in file names, for both networks or as a dict with the keys
            `teacher` and `student`. Calls of a submodule that is called several times are `name#1`, `name#2`, ….
        axes: Axis of the nodes by name or pattern, where the default is not right.
        average: Average all layers over positions, so that all pairs are compared in the same rows.
        batch: Samples per batch where the data is not in batches. Default: 256 on the CPU; on a GPU, which more of them
            keep busy, 1,024, or fewer if samples are large.

    Returns:
        An `Alignment` of all pairs of layers; for populations one `LayerMatch` per hidden layer.

    Raises:
        UserError: Data that the networks cannot take, with NaN, or of another dtype or device; layers that match no
            submodule, or one that is called twice or not at all; activations that are not finite.
    """
    if isinstance(teacher, Population) and isinstance(student, Population):
        if layers is not None or axes is not None:
            raise UserError("layers and axes choose submodules of modules; populations are compared layer by layer")
        return measures.align(teacher, student, data)
    if not (isinstance(teacher, nn.Module) and isinstance(student, nn.Module)):
        kinds = f"{type(teacher).__name__} and {type(student).__name__}"
        raise UserError(f"teacher and student must be two nn.Modules or two populations, got {kinds}")
    given = batches(data, batch or default_batch((teacher, student), data))
    first = next(given)
    notes = ["inputs: the evaluation inputs of seed 0 of the source"] if isinstance(data, Source) else []
    with evaluated("teacher", teacher), evaluated("student", student):
        comparison = ModuleComparison(teacher, student, first, layers=layers, axes=axes, average=average)
        comparison.notes[:0] = notes
        return comparison.compare(itertools.chain([first], given))


def on_gpu(modules: Sequence[nn.Module]) -> bool:
    """Whether one of the modules is on a GPU."""
    return any(tensor.device.type == "cuda" for module in modules for tensor in module.parameters())


def default_batch(modules: Sequence[nn.Module], data: Any) -> int:
    """Samples per batch: few on the CPU, and as many as keep a GPU busy."""
    if not on_gpu(modules):
        return 256
    numbers = math.prod(getattr(data, "shape", ())[1:])
    return max(128, min(1_024, _NUMBERS // max(1, numbers)))


class ModuleComparison:
    """Two modules and the layers of both that are compared, on data and as often as wanted.

    Args:
        teacher: A module in evaluation mode.
        student: A module in evaluation mode.
        first: A batch on which to find out which submodules they call.
        layers: As for `align`.
        axes: As for `align`.
        average: As for `align`.

    Raises:
        UserError: As `align`.
    """

    def __init__(
        self,
        teacher: nn.Module,
        student: nn.Module,
        first: Batch,
        *,
        layers: Layers | None = None,
        axes: Mapping[str, int] | None = None,
        average: bool = False,
    ) -> None:
        self.teacher, self.student = Recorder("teacher", teacher, first), Recorder("student", student, first)
        self.notes = _choose((self.teacher, self.student), layers, axes or {})
        self._average = average

    def compare(self, given: Iterable[Batch]) -> Alignment:
        """Record the activations of both modules on batches, and match their nodes."""
        t, s = self.teacher, self.student
        sums = LayerPairs([call.name for call in t.chosen], [call.name for call in s.chosen], average=self._average)
        for i, each in enumerate(given):
            activations = t.record(each), s.record(each)
            if i == 0:
                _require_memory(sums, t, activations)
            sums.update(*activations)
        pairs = sums.results()
        notes = tuple(self.notes + _remarks(sums.names[0], pairs, sums.samples))
        return Alignment(*sums.names, pairs, sums.samples, notes)


def _choose(sides: tuple[Recorder, Recorder], layers: Layers | None, axes: Mapping[str, int]) -> list[str]:
    """Choose the layers of both networks; return notes on what was left out or assumed."""
    wanted = dict(layers) if isinstance(layers, Mapping) else dict.fromkeys(("teacher", "student"), layers)
    if unknown := set(wanted) - {"teacher", "student"}:
        raise UserError(f"layers has the keys teacher and student, got {', '.join(map(repr, sorted(unknown)))}")
    notes: list[str] = []
    found: dict[str, list[Call]] = {}
    for side in sides:
        patterns = _patterns(wanted.get(side.role))
        if patterns is None:
            chosen, more = default_calls(side.calls)
            found[side.role] = [call for call in chosen if call.sample is not None]
            missing = [call.name for call in chosen if call.sample is None]
            more += [f"{', '.join(missing)}: left out, without an axis of samples"] if missing else []
            notes += [f"{side.role} {note}" for note in more]
            if not found[side.role]:
                raise UserError(f"the {side.role} has no submodule with activations to compare; name some with layers=")
        else:
            found[side.role] = matching_calls(side.role, side.model, side.calls, patterns)
    shared = not isinstance(layers, Mapping)
    for some in [list(sides)] if shared else [[side] for side in sides]:
        patterns = _patterns(wanted.get(some[0].role))
        if patterns is not None:
            calls = [call for side in some for call in side.calls]
            require_matches(patterns, {side.role: found[side.role] for side in some}, calls)
    for side in sides:
        notes += side.choose(found[side.role], axes)
    return notes


def _patterns(asked: str | Sequence[str] | None) -> list[str] | None:
    return None if asked is None else [asked] if isinstance(asked, str) else list(asked)


def _require_memory(
    sums: LayerPairs, teacher: Recorder, activations: tuple[list[LayerActivations], list[LayerActivations]]
) -> None:
    need, free = sums.bytes(*activations), available(teacher.device or torch.device("cpu"))
    if need > free:
        width, name = max(
            (a.values.shape[2], name)
            for names, each in zip(sums.names, activations, strict=True)
            for a, name in zip(each, names, strict=True)
        )
        raise UserError(
            f"memory: the sums over all pairs of layers need {number(need / 1e9)} GB, but only {number(free / 1e9)} GB "
            f"may be used; choose fewer layers with layers= (the widest, {name!r}, has {width:,} nodes)"
        )


def _remarks(names: Sequence[str], pairs: Sequence[Sequence[LayerPair]], samples: int) -> list[str]:
    """Notes on what limits the result: averaged positions, constant nodes, few samples."""
    notes = []
    averaged, total = sum(not pair.at_positions for row in pairs for pair in row), sum(map(len, pairs))
    if 0 < averaged < total:
        notes.append(
            f"{averaged} of {total} pairs of layers have different positions and are compared after averaging over "
            "positions, the others at every position; average=True compares all alike"
        )
    elif averaged:
        notes.append("all layers are averaged over positions")
    for name, row in zip(names, pairs, strict=True):
        constant = int(torch.stack([pair.best < 0 for pair in row]).all(0).sum())
        if constant:
            nodes = len(row[0].best)
            notes.append(f"teacher {name}: {constant} of {nodes} nodes are constant and count as correlation 0")
    widest = max(pair.correlation.shape[1] for pair in pairs[0])
    chance = (2 * np.log(max(widest, 2)) / samples) ** 0.5
    if chance > _MUCH:
        notes.append(
            f"{samples:,} samples are few: the best of {widest:,} unrelated nodes would correlate at about "
            f"{number(min(chance, 1.0), '.2f')} by chance; give more samples"
        )
    return notes
