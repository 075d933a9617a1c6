"""What a training calls while it is watched: probes in between, and the run folder at the end."""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from understudy._errors import UserError
from understudy._numbers import number
from understudy.data import Source
from understudy.data.batches import Batch, batches
from understudy.lab.align import Layers, ModuleComparison, default_batch, on_gpu
from understudy.lab.study import FORMAT
from understudy.lab.watch.folder import WatchFolder
from understudy.lab.watch.losses import Losses
from understudy.lab.watch.probes import Nodes, Probe, WatchReading, layers_of, measure
from understudy.lab.watch.tables import MEASURED
from understudy.measures.evaluation_mode import evaluation_mode
from understudy.measures.layer_pairs import NotFiniteError
from understudy.report.story import counted
from understudy.store import Run
from understudy.store.config import Config
from understudy.store.environment import environment


def watch(
    teacher: nn.Module,
    student: nn.Module,
    data: Any,
    *,
    every: int = 500,
    out: str | os.PathLike[str],
    samples: int = 1_000,
    layers: Layers | None = None,
    axes: Mapping[str, int] | None = None,
    average: bool = False,
    batch: int | None = None,
    weights: bool = True,
    resume: int = 0,
) -> Watch:
    """Follow a training in any loop: which student node learned which teacher node, and when.

    Before the first step, every `every` optimiser steps and at the end, both networks are evaluated on the same data
    and compared as by `us.align`. Training is not changed: modes of modules, random numbers and gradients are as if
    there were no probes. The folder `out` is an ordinary run, readable at any time: also if training is killed it has
    everything up to the last probe.

    Where several processes train together, the first one records, and the others do nothing.

    Example:
        >>> with us.watch(teacher, student, x, every=500, out="runs/my-distillation") as watch:
        ...     for batch in loader:
        ...         loss = …
        ...         optimiser.step()
        ...         watch.step(loss=loss)

    Args:
        teacher: A module of any kind. It may change, as a moving average of the student does.
        student: The module that is trained.
        data: Inputs as for `us.align`: a tensor, an array, a `DataLoader` or another iterable of batches, or a source
            of `us.data`. The first `samples` of them are kept.
        every: Optimiser steps between two probes.
        out: Folder of the run, which must be new or empty.
        samples: Samples that are used; where the data is in batches, as many batches as have so many samples.
        layers: Names or patterns of submodules, as for `us.align`.
        axes: Axis of the nodes by name or pattern, where the default is not right.
        average: Average all layers over positions.
        batch: Samples per batch of a probe, where the data is not in batches. Default: as for `us.align`.
        weights: Whether to save the student's weights, before the first step and at the last probe.
        resume: Optimiser steps taken before: continue the interrupted training in `out` from there.

    Returns:
        What to call after each step; a context manager.

    Raises:
        UserError: `every`, `samples`, `out` or `resume` that cannot be used; networks, data and layers as for
            `us.align`.
    """
    for role, module in (("teacher", teacher), ("student", student)):
        if not isinstance(module, nn.Module):
            raise UserError(f"the {role} must be an nn.Module, got {type(module).__name__}")
    batch = default_batch((teacher, student), data) if batch is None else batch
    _require_counts(every=every, samples=samples, batch=batch)
    if resume < 0:
        raise UserError(f"resume must be the number of steps taken before, 0 or more, got {resume}")
    watching = Watch((teacher, student), Path(out), every, weights, resume)
    if not _other_process():
        watching.start(data, samples, batch, {"layers": layers, "axes": axes, "average": average})
    return watching


class Watch:
    """A training that is followed: call `step` after each optimiser step, and `close` at the end.

    As a context manager it closes itself; after an exception it leaves the run as it is at the last probe.

    Attributes:
        steps: Optimiser steps so far.
        folder: Folder of the run.
    """

    def __init__(
        self, modules: tuple[nn.Module, nn.Module], folder: Path, every: int, weights: bool, resume: int
    ) -> None:
        self.steps, self.folder = resume, folder
        self._modules, self._every, self._weights, self._first = modules, every, weights, resume
        self._losses = Losses()
        self._files: WatchFolder | None = None
        self._watching = self._closed = False
        self._began = self._clock()
        self._set_up = self._spent = 0.0

    def start(self, data: Any, samples: int, batch: int, options: Mapping[str, Any]) -> None:
        """Find the layers, make or open the folder, and probe both networks as they are; `us.watch` calls it.

        Args:
            data: Inputs as for `us.watch`.
            samples: Samples that are used.
            batch: Samples per batch of a probe.
            options: `layers`, `axes` and `average` of `us.watch`, by name.

        Raises:
            UserError: A folder, networks, data or layers that cannot be used.
        """
        with evaluation_mode(*self._modules):
            self._data = _held(data, samples, batch)
            self._comparison = ModuleComparison(*self._modules, self._data[0], **options)
            if isinstance(data, Source):
                self._comparison.notes.append("inputs: the evaluation inputs of seed 0 of the source")
            self._reading, alignment = measure(self._comparison, self._data)
        self._layers = layers_of(alignment)
        notes = [*alignment.notes, *_unread(self._layers[1], self._reading)]
        config = _config(self._modules, self._layers, {"every": self._every, "samples": alignment.samples, **options})
        self._files = WatchFolder(self.folder, config, self._layers, self.steps)
        probes, earlier = self._files.probes, self._files.environment
        self._before = probes[-1].seconds if probes else 0.0
        self._spent_before = earlier.get("probe_seconds", 0.0)
        self._files.environment = environment("cuda" if on_gpu(self._modules) else "cpu") | {"notes": notes}
        losses = probes[-1].losses if probes and probes[-1].step == self.steps else {}
        self._record(self._reading, losses, self._before)
        self._files.wait()
        self._watching, now = True, self._clock()
        self._set_up, self._began = now - self._began, now
        sizes = " × ".join(str(len(nodes.names)) for nodes in self._layers)
        words = f"{alignment.samples:,} samples, a probe every {counted(self._every, 'step')}"
        _say(f"watching in {self.folder}: {sizes} layers, {words}")
        for note in notes:
            _say(f"note: {note}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is None:
            self.close()
        else:
            self.stop()

    def step(self, loss: Any = None, /, **losses: Any) -> None:
        """Count an optimiser step, and probe both networks if it is time.

        Args:
            loss: The loss of the step, called `loss` in the run: a number, or a tensor of one, for which a GPU is not
                waited for.
            **losses: Losses by other names.

        Raises:
            UserError: A loss that is not one number or has the name of a measurement, or a training that was closed.
        """
        if self._closed:
            raise UserError(f"{self.folder} is closed; follow another training with us.watch")
        self.steps += 1
        if not self._watching:
            return
        start = time.perf_counter()
        given = losses if loss is None else {"loss": loss} | losses
        if taken := [name for name in given if name in MEASURED]:
            raise UserError(f"{taken[0]} is the name of a measurement of the run; give the loss another name")
        self._losses.add(self.steps, given)
        self._spent += time.perf_counter() - start
        if self.steps % self._every == 0:
            self._probe()

    def close(self) -> None:
        """Probe once more unless the last step was probed, write the report, and print the overhead."""
        if self._closed or self._files is None:
            return
        if self.steps == self._first:
            warnings.warn(
                "watch.step() was never called, so that the run has no probe after the first; call it after each "
                "optimiser step",
                stacklevel=2,
            )
        elif self._watching and self._files.probes[-1].step < self.steps:
            self._probe()
        self._closed, words = True, self._overhead()
        self._files.close(finished=True, facts=self._facts(self._before + self._trained()))
        start = time.perf_counter()
        page = Run(self.folder).report()
        _say(f"{words}; report, in {time.perf_counter() - start:.1f} s: {page}")

    def stop(self) -> None:
        """Leave the run as it is at the last probe: readable, and to be continued with `resume`."""
        if self._closed or self._files is None:
            return
        self._closed, words = True, self._overhead()
        try:
            self._files.close(finished=False, facts=self._facts(self._before + self._trained()))
        except UserError as error:  # it must not hide the exception that ended the training
            _say(str(error))
            return
        _say(
            f"stopped at step {self.steps:,}: {self.folder} has everything up to step "
            f"{self._files.probes[-1].step:,}, and us.watch(…, resume=STEP) continues it; {words}"
        )

    def lightning(self) -> Any:
        """Return a callback for Lightning's `Trainer`, which calls `step` and `close`.

        Raises:
            UserError: Lightning is not installed.
        """
        from understudy.lab.watch.adapters import lightning_callback

        return lightning_callback(self)

    def transformers(self) -> Any:
        """Return a callback for Hugging Face's `Trainer`, which calls `step` and `close`.

        Raises:
            UserError: transformers is not installed.
        """
        from understudy.lab.watch.adapters import transformers_callback

        return transformers_callback(self)

    def _probe(self) -> None:
        """Measure both networks and record the probe. Where that fails, training goes on unwatched, with a warning."""
        assert self._files is not None
        start = self._clock()
        trained = self._before + self._trained()
        before, losses = self._files.probes[-1].step, self._losses.means()
        try:
            reading = self._measure()
            unchanged = reading is not None and _equal(reading, self._reading)
            self._reading = reading or self._reading
            self._record(reading, losses, trained)
            if unchanged:
                _warn(
                    f"nothing changed in the student between steps {before:,} and {self.steps:,}: is the module given "
                    "to us.watch the one that is trained?"
                )
        except UserError as error:
            self._watching = False
            _warn(f"watching stops at step {self.steps:,}, and training goes on: {error}")
        finally:
            self._spent += self._clock() - start

    def _measure(self) -> WatchReading | None:
        """Compare both networks; None where the student's activations are not finite."""
        try:
            with evaluation_mode(*self._modules):
                reading, alignment = measure(self._comparison, self._data)
        except NotFiniteError:
            self._losses.diverged_at = self._losses.diverged_at or self.steps
            return None
        if layers_of(alignment) != self._layers:
            raise UserError("a layer has another number of nodes than before; watch each network by itself")
        return reading

    def _record(self, reading: WatchReading | None, losses: dict[str, float], trained: float) -> None:
        """Add a probe to the run."""
        assert self._files is not None
        weights = _copied(self._modules[1]) if self._weights else {}
        probe = Probe(self.steps, trained, losses, reading)
        self._files.add(probe, weights, self._losses.diverged_at, self._facts(trained))

    def _facts(self, trained: float) -> dict[str, Any]:
        """What the environment records of the training, given its seconds without probes, earlier parts included."""
        spent = self._spent_before + self._spent
        share = round(spent / trained, 5) if trained else None
        times = {"seconds": trained, "probe_seconds": spent, "set_up_seconds": self._set_up}
        return {"steps": self.steps, "overhead": share} | {name: round(value, 3) for name, value in times.items()}

    def _trained(self) -> float:
        """Seconds of this part of the training without probes."""
        return self._clock() - self._began - self._spent

    def _overhead(self) -> str:
        trained = self._trained()
        share = number(100 * self._spent / max(trained, 1e-9), ".2g")
        times = f"{self._spent:.1f} s in probes, {trained:.1f} s of training"
        return f"overhead {share}% ({times}), after {self._set_up:.1f} s of set-up with the first probe"

    def _clock(self) -> float:
        """The time when everything that was started on a GPU is done."""
        for device in {t.device for module in self._modules for t in module.parameters() if t.device.type == "cuda"}:
            torch.cuda.synchronize(device)
        return time.perf_counter()


def _require_counts(**counts: int) -> None:
    for name, value in counts.items():
        if not isinstance(value, int) or value < 1:
            raise UserError(f"{name} must be a whole number of at least 1, got {value!r}")


def _held(data: Any, samples: int, batch: int) -> list[Batch]:
    """Copies of the first samples of the data."""
    if isinstance(data, Tensor | np.ndarray) and data.ndim > 1:
        data = data[:samples]
    found, count = list[Batch](), 0
    for each in batches(data, min(batch, samples)):
        found.append(each.copied())
        count += len(next(iter(each.arrays.values())))
        if count >= samples:
            break
    return found


def _equal(a: WatchReading, b: WatchReading) -> bool:
    """Whether all correlations are the same."""
    return a.every is not None and b.every is not None and np.array_equal(a.every, b.every)


def _unread(student: Nodes, reading: WatchReading) -> list[str]:
    """A note on the student layers whose fan-outs are not known."""
    layers = list(zip(student.names, student.slices(), strict=True))[:-1]  # nothing reads the output
    unread = [name for name, some in layers if np.isnan(reading.fan_out[some]).all()]
    words = f"fan-outs are missing of {', '.join(unread)}: no linear or convolutional module that reads them is found"
    return [words] if unread else []


def _config(modules: tuple[nn.Module, nn.Module], layers: tuple[Nodes, Nodes], options: Mapping[str, Any]) -> Config:
    """What fixes the run: options, and the layers of both networks with their widths."""
    networks = {
        role: {"class": type(module).__name__, "layers": list(nodes.names), "nodes": list(nodes.widths)}
        for role, module, nodes in zip(("teacher", "student"), modules, layers, strict=True)
    }
    given = {name: _plain(value) for name, value in options.items() if value is not None}
    return {"study": "watch", "format": FORMAT, "options": given | networks}


def _plain(value: Any) -> Any:
    """Options as TOML has them."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    return list(value) if isinstance(value, tuple | list) else value


def _copied(module: nn.Module) -> dict[str, Tensor]:
    """Copies of a module's tensors on the CPU, by name."""
    model = getattr(module, "_orig_mod", module)  # of torch.compile, which adds a prefix to names
    named = {name: value for name, value in model.state_dict().items() if isinstance(value, Tensor)}
    return {name: value.detach().to("cpu", copy=True).contiguous() for name, value in named.items()}


def _other_process() -> bool:
    """Whether another of the processes that train together is the first, as torchrun and Lightning number them."""
    return int(os.environ.get("RANK") or os.environ.get("LOCAL_RANK") or 0) > 0


def _say(words: str) -> None:
    print(f"understudy: {words}", file=sys.stderr, flush=True)


def _warn(words: str) -> None:
    """Warn at the line that called `step` or `close`."""
    warnings.warn(words, stacklevel=4)
