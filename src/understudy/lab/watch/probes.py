"""Probes of a watched training: which node matches which in every pair of layers, and their files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Shaped, UInt

from understudy._errors import UserError
from understudy._states import read_state, write_state
from understudy.data.batches import Batch
from understudy.lab.align import Alignment, ModuleComparison
from understudy.measures.outgoing import outgoing_norms
from understudy.measures.timing import ranks


@dataclass(frozen=True)
class Nodes:
    """Layers of one network; their nodes are numbered one after another, those of the first layer first."""

    names: tuple[str, ...]
    widths: tuple[int, ...]

    @cached_property
    def starts(self) -> Int[np.ndarray, "layer"]:
        """Number of the first node of each layer."""
        return np.cumsum((0, *self.widths[:-1]))

    @cached_property
    def layer(self) -> Int[np.ndarray, "node"]:
        """Layer of each node."""
        return np.repeat(np.arange(len(self.widths)), self.widths)

    def slices(self) -> list[slice]:
        """Nodes of each layer."""
        return [slice(start, start + width) for start, width in zip(self.starts.tolist(), self.widths, strict=True)]


class WatchReading(NamedTuple):
    """What a probe finds: t and s are nodes of all teacher and student layers."""

    mean_best_correlation: Float[np.ndarray, "teacher_layer student_layer"]
    cka: Float[np.ndarray, "teacher_layer student_layer"]
    at_positions: Bool[np.ndarray, "teacher_layer student_layer"]
    student: Int[np.ndarray, "t student_layer"]
    """Node of each student layer that matches a teacher node best; −1 for a constant teacher node."""
    correlation: Float[np.ndarray, "t student_layer"]
    teacher: Int[np.ndarray, "s teacher_layer"]
    """Node of each teacher layer that matches a student node best; −1 for a constant student node."""
    teacher_correlation: Float[np.ndarray, "s teacher_layer"]
    fan_out: Float[np.ndarray, "s"]
    """Fan-out of each student node; NaN if no module reads the layer."""
    ranks: UInt[np.ndarray, "t s"] | None
    """Rank of each student node among those of its layer by correlation with a teacher node, from 0."""
    every: Float[np.ndarray, "t s"] | None = None
    """Correlation of every pair of nodes."""


class Probe(NamedTuple):
    """One probe of a training."""

    step: int
    """Optimiser steps before it."""
    seconds: float
    """Seconds since training began, without probes."""
    losses: dict[str, float]
    """Means since the probe before."""
    reading: WatchReading | None
    """None where the student's activations are not finite."""


def measure(comparison: ModuleComparison, given: Sequence[Batch]) -> tuple[WatchReading, Alignment]:
    """Compare both networks as they are at present."""
    alignment = comparison.compare(given)
    pairs = alignment.pairs
    teacher, student = layers_of(alignment)
    rho = torch.cat([torch.cat([pair.correlation for pair in row], 1) for row in pairs])
    placed = torch.cat([ranks(rho[:, some]) for some in student.slices()], 1)
    back = [rho[some].max(0) for some in teacher.slices()]
    known = torch.stack([(rho[some] != 0).any(0) for some in teacher.slices()], 1)
    whom = torch.where(known, torch.stack([best.indices for best in back], 1), -1)
    fans = [outgoing_norms(comparison.student.calls, call) for call in comparison.student.chosen]
    missing = [np.full(width, np.nan, np.float32) for width in student.widths]
    columns = range(len(student.names))
    reading = WatchReading(
        alignment.mean_best_correlation,
        alignment.cka,
        np.array([[pair.at_positions for pair in row] for row in pairs]),
        torch.stack([torch.cat([row[s].best for row in pairs]) for s in columns], 1).numpy().astype(np.int32),
        torch.stack([torch.cat([row[s].best_correlation for row in pairs]) for s in columns], 1).float().numpy(),
        whom.numpy().astype(np.int32),
        torch.stack([best.values for best in back], 1).float().numpy(),
        np.concatenate([no if fan is None else fan.cpu().numpy() for fan, no in zip(fans, missing, strict=True)]),
        placed.numpy().astype(np.uint16 if max(student.widths) <= 1 << 16 else np.uint32),
        rho.float().numpy(),
    )
    return reading, alignment


def layers_of(alignment: Alignment) -> tuple[Nodes, Nodes]:
    """Layers of the teacher and of the student, with their widths."""
    teacher = tuple(row[0].correlation.shape[0] for row in alignment.pairs)
    student = tuple(pair.correlation.shape[1] for pair in alignment.pairs[0])
    return Nodes(alignment.teacher_layers, teacher), Nodes(alignment.student_layers, student)


def save_probe(folder: Path, epoch: int, probe: Probe) -> None:
    """Write a probe to files from which `load_probes` continues; ranks, which are large, have a file of their own."""
    arrays: dict[str, Shaped[np.ndarray, "..."]] = {"step": np.array(probe.step)}
    if probe.reading is not None:
        found = probe.reading._replace(ranks=None, every=None)._asdict()
        arrays |= {name: np.ascontiguousarray(value) for name, value in found.items() if value is not None}
        _save(rank_file(folder, epoch), {"ranks": np.ascontiguousarray(probe.reading.ranks)}, {})
    _save(folder / f"probe-{epoch:06}.safetensors", arrays, {"seconds": probe.seconds, "losses": probe.losses})


def rank_file(folder: Path, epoch: int) -> Path:
    """File of the ranks of a probe."""
    return folder / f"ranks-{epoch:06}.safetensors"


def load_probes(folder: Path, most: int) -> list[Probe]:
    """Read the probes of an interrupted training up to a step; remove those after it."""
    found = []
    for place, file in enumerate(sorted(folder.glob("probe-*.safetensors"))):
        arrays, words = _load(file)
        if file.stem != f"probe-{place:06}":
            raise UserError(f"{folder}/probe-{place:06}.safetensors is missing; choose another out without resume")
        step, epoch = int(arrays.pop("step")), int(file.stem.removeprefix("probe-"))
        if step > most:
            file.unlink()
            rank_file(folder, epoch).unlink(missing_ok=True)
            continue
        ranked = rank_file(folder, epoch)
        arrays["ranks"] = _load(ranked)[0]["ranks"] if ranked.is_file() else None
        reading = WatchReading(**arrays) if "cka" in arrays else None
        found.append(Probe(step, words["seconds"], words["losses"], reading))
    return found


def _save(path: Path, arrays: dict[str, Any], words: dict[str, Any]) -> None:
    write_state(path, {name: torch.from_numpy(array) for name, array in arrays.items()}, {"file": path.name, **words})


def _load(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    remedy = "choose another out without resume"
    tensors, words = read_state(path, remedy)
    if words.get("file") != path.name:
        raise UserError(f"{path} is the file of another probe; {remedy}")
    return {name: tensor.numpy() for name, tensor in tensors.items()}, words
