"""A study carried out: trained, recorded, resumed where it stopped, told."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa

from understudy.store import Run
from understudy.store.environment import environment
from understudy.store.files import write_json
from understudy.store.folder import RunFolder, write_table
from understudy.store.weights import read_weights, write_weights
from understudy.studies.study import Experiment, Study
from understudy.studies.tell import tell

if TYPE_CHECKING:
    from understudy.training import Training

_TABLES = ("metrics", "nodes")


@dataclass(frozen=True)
class Progress:
    """Where a run stands, for who watches."""

    epoch: int
    epochs: int
    alive: int
    networks: int
    loss: float
    recovered: float
    seconds: float
    seconds_left: float


class Watcher(Protocol):
    def start(self, folder: Path, epoch: int, epochs: int) -> None: ...

    def epoch(self, progress: Progress) -> None: ...

    def say(self, what: str) -> None: ...


def perform(study: Study, out: Path, watcher: Watcher) -> Run:
    """Run a study in its folder under `out`, from wherever it stopped; a finished one is only read."""
    study = study.resolved()
    with RunFolder.open(out, study.config(), _need(study)) as folder:
        if not folder.finished:
            experiment = study.experiment()
            seconds = _train(study, experiment, folder, watcher)
            watcher.say("writing tables, figures and the report")
            _finish(study, experiment, folder, seconds)
        return Run(folder.path)


def _need(study: Study) -> int:
    """Bytes on disk, about: a row a node and epoch, and the weights three times while the last state is replaced."""
    options = study.options()
    nodes = options.get("teacher_nodes", 10) * sum(options.get("multiple", (5,)))
    networks = study.seeds * len(options.get("polarity", (0,)))
    width = options.get("dim", 100) + options.get("outputs", 50)
    return int(networks * nodes * (16 * options.get("epochs", 100) + 4 * 4 * width)) + 20_000_000


def _train(study: Study, experiment: Experiment, folder: RunFolder, watcher: Watcher) -> float:
    """Train to the end, saving after every epoch; returns the seconds worked, those before a stop included."""
    from understudy.training import Training

    training = Training(
        experiment.groups,
        experiment.optimiser,
        steps=experiment.steps,
        objective=experiment.objective,
        device=study.options()["device"],
        pairs=experiment.pairs,
    )
    before = folder.state()
    seconds = before[1] if before else 0.0
    clock = time.monotonic()
    if before:
        training.load(before[0])
    watcher.start(folder.path, training.epoch, experiment.epochs)
    first = training.epoch
    while before is None or training.epoch < experiment.epochs:
        if before is None:
            before = ({}, 0.0)
        else:
            training.advance()
        records = training.probe()
        spent = time.monotonic() - clock
        if training.epoch in experiment.keep:
            write_weights(folder.progress / f"weights-{training.epoch:06}.safetensors", _named(training))
        tables = dict(zip(_TABLES, records, strict=True))
        folder.save(training.epoch, tables, training.state(), seconds + spent)
        pace = spent / max(training.epoch - first, 1)
        left = pace * (experiment.epochs - training.epoch)
        watcher.epoch(_progress(training, experiment, records.metrics, seconds + spent, left))
    _write_networks(experiment, training, folder)
    write_weights(folder.progress / "last.safetensors", _named(training))
    return seconds + time.monotonic() - clock


def _named(training: Training) -> dict[str, list[Any]]:
    return {f"epoch.{training.epoch}": training.populations()}


def _progress(training: Training, experiment: Experiment, metrics: pa.Table, seconds: float, left: float) -> Progress:
    def middle(metric: str, how: Callable[[np.ndarray], Any]) -> float:
        rows = metrics.filter(pa.compute.field("metric") == metric)["value"].to_numpy()
        return float(how(rows)) if len(rows) else float("nan")

    return Progress(
        training.epoch,
        experiment.epochs,
        int(training.alive.sum()),
        len(training),
        middle("eval_loss", np.median),
        middle("recovered", np.mean),
        seconds,
        left,
    )


def _write_networks(experiment: Experiment, training: Training, folder: RunFolder) -> None:
    names = list(experiment.parameters[0])
    diverged = [None if at < 0 else at for at in training.diverged_at.tolist()]
    columns: dict[str, pa.Array] = {"network": pa.array(range(len(training)), pa.int32())}
    columns |= {name: pa.array([row[name] for row in experiment.parameters]) for name in names}
    columns["diverged_at"] = pa.array(diverged, pa.int64())
    write_table(folder.path / "networks.parquet", pa.table(columns))


def _finish(study: Study, experiment: Experiment, folder: RunFolder, seconds: float) -> None:
    folder.gather(_TABLES, experiment.epochs)
    weights = {"teacher": [g.teacher for g in experiment.groups], "epoch.0": [g.students for g in experiment.groups]}
    for epoch in sorted(experiment.keep - {0, experiment.epochs}):
        weights[f"epoch.{epoch}"] = read_weights(folder.progress / f"weights-{epoch:06}.safetensors", f"epoch.{epoch}")
    last = f"epoch.{experiment.epochs}"
    weights[last] = read_weights(folder.progress / "last.safetensors", last)
    write_weights(folder.path / "weights.safetensors", weights)
    device = study.options()["device"]
    write_json(folder.path / "environment.json", environment(device) | {"seconds": round(seconds, 1)})
    tell(study, Run(folder.path))
    folder.finish()
