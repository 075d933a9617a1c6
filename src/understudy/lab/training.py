"""Run a study that trains: epoch by epoch, saved as it goes, with everything recorded."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from understudy._atomic import write_json
from understudy._errors import UserError
from understudy._numbers import number
from understudy._recorded import RANKS
from understudy.lab.interrupt import CtrlC
from understudy.lab.mean_ranks import add_mean_ranks
from understudy.lab.study import Experiment, TrainingStudy, ranked
from understudy.report.terminal.progress import GroupState, Progress, Watcher
from understudy.store.environment import environment
from understudy.store.folder import RunFolder
from understudy.store.tables import write_table
from understudy.store.weights import read_weights, write_weights
from understudy.store.writer import BackgroundWriter

if TYPE_CHECKING:
    from understudy.lab.cluster.engine import Cluster
    from understudy.training import Records, Training

TABLES = ("metrics", "nodes")
_SHORT_EPOCH = 2.0
"""Seconds: Ctrl-C waits for the end of an epoch that takes no longer."""
_ROW_BYTES = 20
"""About the bytes that a row of `nodes` takes on disk."""


def train(
    study: TrainingStudy, experiment: Experiment, training: Training, folder: RunFolder, watcher: Watcher
) -> None:
    """Train to the end, and write the tables, the weights and the environment."""
    from understudy.data import describe

    made_with = environment(study.device)
    seconds = _train(experiment, training, folder, watcher)
    watcher.say("writing tables, figures and the report")
    engines = ", ".join(sorted({row.engine for row in training.plan.rows}))
    _write_networks(experiment, training, folder)
    _write_weights(experiment, training, folder)
    # On which inputs each group was trained, so that the run can be checked without its study.
    groups = [{"networks": len(group.students), "data": describe(group.data)} for group in experiment.groups]
    write_json(folder.path / "groups.json", groups)
    if experiment.ranks:
        add_mean_ranks(folder.path)
    made_with |= recorded_networks(study)
    made_with |= {"engines": engines, "precision": training.precision, "seconds": round(seconds, 1)}
    write_json(folder.path / "environment.json", made_with | {"tables": ["networks", *TABLES]})


def recorded_networks(study: TrainingStudy) -> dict[str, Any]:
    """How files of the user's were read, and what was assumed about them, for `environment.json`."""
    found = study.read_networks()
    if not found:
        return {}
    read = {name: str(loaded) for name, loaded in found.items() if loaded.inferred}
    return {"assumed": {name: loaded.words for name, loaded in found.items()}} | ({"read_as": read} if read else {})


def make_training(study: TrainingStudy, experiment: Experiment, cluster: Cluster | None = None) -> Training:
    """The training of an experiment on the study's device and in its precision, here or on a cluster."""
    from understudy.training import Training

    options: dict[str, Any] = {
        "steps": experiment.steps,
        "device": study.device,
        "pairs": experiment.pairs,
        "ranks": experiment.ranks,
        "record": experiment.record,
        "tf32": study.dtype == "tf32",
    }
    if cluster is None:
        return Training(experiment.groups, experiment.optimiser, **options)
    from understudy.lab.cluster.training import ClusterTraining

    ends: dict[str, Any] = {"last": experiment.epochs, "keep": experiment.keep}
    return ClusterTraining(cluster, experiment.groups, experiment.optimiser, **ends, **options)


def with_recorded(study: TrainingStudy, experiment: Experiment) -> Experiment:
    """The experiment with the metrics that the user asked for."""
    names = experiment.record | set(study.record)
    epochs = ranked(experiment.epochs) if names & set(RANKS) else ()
    return replace(experiment, record=names, ranks=experiment.ranks or frozenset(epochs))


def disk_space(experiment: Experiment) -> int:
    """About the bytes that a run takes on disk: rows of nodes (twice while tables are joined) and saved weights."""
    from understudy.training.plan import rank_bytes

    rows, weights = 0, 0
    for group in experiment.groups:
        for m, n in zip(group.teacher.sizes[1:-1], group.students.sizes[1:-1], strict=True):
            rows += len(group.students) * (m + n + (m * n if experiment.pairs else 0))
        each = sum(math.prod(size) + size[0] for size in group.students.shape.weights)
        weights += each * len(group.students) * group.students.layers[0].weight.element_size()
    ranks = rank_bytes(experiment.groups, len(experiment.ranks))
    copies = 6 + len(experiment.keep) + experiment.optimiser.slots
    return 2 * _ROW_BYTES * rows * (experiment.epochs + 1) + weights * copies + 2 * ranks + 20_000_000


def _train(experiment: Experiment, training: Training, folder: RunFolder, watcher: Watcher) -> float:
    """Train to the end, saving on the way; return the seconds worked, those before an interruption included."""
    saved = folder.resume()
    seconds = saved.seconds if saved else 0.0
    clock = time.monotonic()
    if saved:
        for problem in saved.problems:
            watcher.say(f"{problem}: going on from epoch {saved.epoch}")
        training.load_state_dict(saved.state)
        if not 0 <= training.epoch == saved.epoch <= experiment.epochs:
            raise UserError(f"{folder.progress} has a state of another training; remove it to start over")
    watcher.start(folder.path, training.epoch, experiment.epochs)
    first = training.epoch
    unreported: list[Callable[[], Progress]] = []
    tables = (*TABLES, "ranks") if experiment.ranks else TABLES
    started = saved is not None
    with BackgroundWriter(folder, tables, resumes=started) as writer, CtrlC() as ctrl_c:
        while not started or training.epoch < experiment.epochs:
            start = time.monotonic()
            if started:
                training.advance()
            started = True
            records = training.probe()
            spent = time.monotonic() - clock
            if training.epoch in experiment.keep:
                writer.keep(f"weights-{training.epoch:06}.safetensors", _named(training))
            writer.add(records.tables)
            left = spent / max(training.epoch - first, 1) * (experiment.epochs - training.epoch)
            unreported.append(partial(_progress, experiment, records, training.epoch, left))
            ctrl_c.waits = time.monotonic() - start < _SHORT_EPOCH
            if training.at_rest and (writer.due() or ctrl_c.came or training.epoch == experiment.epochs):
                writer.save(
                    training.epoch, training.state_dict(), seconds + spent, partial(_report, watcher, unreported)
                )
                unreported = []
            if ctrl_c.came and training.at_rest:
                raise KeyboardInterrupt
        ctrl_c.waits = False
        writer.finish()
    return seconds + time.monotonic() - clock


def _report(watcher: Watcher, epochs: list[Callable[[], Progress]]) -> None:
    """Report epochs once they are on disk."""
    for progress in epochs:
        watcher.epoch(progress())


def _progress(experiment: Experiment, records: Records, epoch: int, left: float) -> Progress:
    metrics, alive = records.metrics, records.alive.numpy()
    values = {name: np.full(len(alive), np.nan) for name in ("eval_loss", "recovered")}
    for name, into in values.items():
        rows = metrics.filter(pc.field("metric") == name)
        network = rows["network"].to_numpy()
        layers = np.bincount(network, minlength=len(alive))
        sums = np.bincount(network, rows["value"].to_numpy(), len(alive))
        into[layers > 0] = sums[layers > 0] / layers[layers > 0]  # mean over layers

    def group_state(label: str, which: slice) -> GroupState:
        loss, recovered = (v[which][~np.isnan(v[which])] for v in values.values())
        middle, mean = (float(np.median(loss)), float(np.mean(recovered))) if len(loss) else (np.nan, np.nan)
        return GroupState(label, int(alive[which].sum()), len(alive[which]), middle, mean)

    groups = zip(group_labels(experiment), _group_slices(experiment), strict=True)
    each = tuple(group_state(label, group) for label, group in groups)
    return Progress(epoch, experiment.epochs, left, group_state("all", slice(None)), each)


def _group_slices(experiment: Experiment) -> list[slice]:
    ends = np.cumsum([0, *(len(group.students) for group in experiment.groups)])
    return [slice(start, stop) for start, stop in pairwise(ends.tolist())]


def group_labels(experiment: Experiment) -> list[str]:
    """The label of each group: the parameters that its networks share and that differ between groups."""
    groups = [experiment.parameters[group] for group in _group_slices(experiment)]
    first = groups[0][0]
    shared = [name for name in first if all(len({row[name] for row in group}) == 1 for group in groups)]
    different = [name for name in shared if len({group[0][name] for group in groups}) > 1]
    return [", ".join(f"{name} {_short(group[0][name])}" for name in different) or "all" for group in groups]


def _short(value: Any) -> str:
    return number(value, "g") if isinstance(value, float) else str(value)


def _write_networks(experiment: Experiment, training: Training, folder: RunFolder) -> None:
    diverged = [None if at < 0 else at for at in training.diverged_at.tolist()]
    network = {"network": pa.array(range(len(training)), pa.int32())}
    columns = {name: [row[name] for row in experiment.parameters] for name in experiment.parameters[0]}
    rows = pa.table(network | columns | {"diverged_at": pa.array(diverged, pa.int64())})
    write_table(folder.path / "networks.parquet", rows)


def _write_weights(experiment: Experiment, training: Training, folder: RunFolder) -> None:
    weights = {"teacher": [g.teacher for g in experiment.groups], "epoch.0": [g.students for g in experiment.groups]}
    for epoch in sorted(experiment.keep - {0, experiment.epochs}):
        weights[f"epoch.{epoch}"] = read_weights(folder.progress / f"weights-{epoch:06}.safetensors", f"epoch.{epoch}")
    write_weights(folder.path / "weights.safetensors", weights | _named(training))


def _named(training: Training) -> dict[str, list[Any]]:
    return {f"epoch.{training.epoch}": training.populations()}
