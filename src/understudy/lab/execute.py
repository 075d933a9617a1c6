"""A study carried out: trained, recorded, resumed where it stopped, told."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from understudy._atomic import write_json
from understudy.errors import UserError
from understudy.lab.interrupt import CtrlC
from understudy.lab.mean_ranks import add_mean_ranks
from understudy.lab.study import Experiment, Study
from understudy.lab.write_report import write_report
from understudy.report.terminal.progress import Progress, Standing, Watcher
from understudy.store import Run
from understudy.store.environment import environment
from understudy.store.folder import RunFolder
from understudy.store.tables import write_table
from understudy.store.weights import kept_weights, read_weights, write_weights
from understudy.store.writer import BackgroundWriter

if TYPE_CHECKING:
    from understudy.nets import Population
    from understudy.training import Records, Training
    from understudy.training.plan import Plan

Pieces = Mapping[str, Callable[[], dict[str, Any]]]

_TABLES = ("metrics", "nodes")
_FOUND = ("networks", "metrics", "nodes")
"""Written in this order, so that a piece whose last table is there is whole."""
_MOMENT = 2.0
"""Seconds: an epoch that takes no longer is ended before Ctrl-C is heeded."""


def execute(study: Study, out: Path, watcher: Watcher) -> Run:
    """Run a study in its folder under `out`, from wherever it stopped; a finished one is only read."""
    study = study.resolved()
    runs = cache(lambda: [_first(study, need, out, watcher) for need in study.needs()])
    if not study.trains:
        return _look(study, cache(lambda: study.pieces(*runs())), out, watcher)
    experiment = cache(lambda: _experiment(study, runs()))
    with RunFolder.open(out, study.config(), lambda: _need(experiment())) as folder:
        if not folder.finished:
            made_with = environment(study.device)
            training, seconds = _train(study, experiment(), folder, watcher)
            watcher.say("writing tables, figures and the report")
            engines = ", ".join(sorted({row.engine for row in training.plan.rows}))
            made_with |= {"engines": engines, "precision": training.precision, "seconds": round(seconds, 1)}
            _finish(study, experiment(), training, folder, made_with)
        return Run(folder.path)


def _look(study: Study, pieces: Callable[[], Pieces], out: Path, watcher: Watcher) -> Run:
    """A study that trains nothing: what it finds, piece by piece, is written and told.

    Made by one thread, as experiments are: tensors are small, and sums come out the same whatever the cores.
    """
    from understudy.training.parallel import one_thread_each

    with RunFolder.open(out, study.config(), lambda: 20_000_000 * (1 + len(pieces()))) as folder:
        if not folder.finished:
            watcher.say(f"{study.command()}: in {folder.path}")
            made, worked = pieces(), folder.progress / "seconds.json"
            for done, (name, make) in enumerate(made.items(), 1):
                last = folder.progress / f"{_FOUND[-1]}-{done:06}.parquet"
                if not last.is_file():
                    clock = time.monotonic()
                    with one_thread_each():
                        found = make()
                    write_json(worked, _seconds(worked) + time.monotonic() - clock)
                    if weights := found.get("weights"):
                        kept = {who: [population] for who, population in weights.items()}
                        write_weights(folder.progress / f"weights-{done:06}.safetensors", kept)
                    for table in _FOUND:
                        write_table(folder.progress / f"{table}-{done:06}.parquet", found[table])
                watcher.say(f"{done} of {len(made)}: {name}")
            for table in _FOUND:
                parts = [pq.read_table(part) for part in sorted(folder.progress.glob(f"{table}-*.parquet"))]
                write_table(folder.path / f"{table}.parquet", pa.concat_tables(parts, promote_options="default"))
            write_weights(folder.path / "weights.safetensors", _joined(folder.progress))
            made_with = environment(study.device) | {"seconds": round(_seconds(worked), 1)}
            write_json(folder.path / "environment.json", made_with)
            write_report(study, Run(folder.path))
            folder.finish()
        return Run(folder.path)


def _joined(progress: Path) -> dict[str, list[Population]]:
    """The weights of all pieces that have any, a group each."""
    parts = sorted(progress.glob("weights-*.safetensors"))
    whose = kept_weights(parts[0]) if parts else ()
    return {who: [group for part in parts for group in read_weights(part, who)] for who in whose}


def _seconds(path: Path) -> float:
    """Worked so far, before a stop too."""
    return float(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else 0.0


def _first(study: Study, need: Study, out: Path, watcher: Watcher) -> Run:
    watcher.say(f"{study.name} starts from {need.command()}")
    return execute(need, out, watcher)


def plan(study: Study, out: Path) -> tuple[Experiment, list[str], Plan]:
    """How a study would be carried out here, with what sets each group apart; nothing is trained or written."""
    study = study.resolved()
    if not study.trains:
        first = "; ".join(f"{need.command()} --plan" for need in study.needs())
        raise UserError(f"--plan: {study.name} trains nothing itself" + (f"; see {first}" if first else ""))
    runs = []
    for need in study.needs():
        folder = RunFolder.of(out, need.resolved().config())
        if not folder.finished:
            raise UserError(f"{study.name} starts from another run, which is not in {out}; first {need.command()}")
        runs.append(Run(folder.path))
    experiment = _experiment(study, runs)
    return experiment, _group_labels(experiment), _training(study, experiment).plan


def _experiment(study: Study, runs: Sequence[Run]) -> Experiment:
    """Made by one thread: networks are too small to share out, and threads that wait for each other are slow."""
    from understudy.training.parallel import one_thread_each

    with one_thread_each():
        return study.after(*runs)


def _need(experiment: Experiment) -> int:
    """Bytes on disk, about: 20 a row of nodes, twice while tables are joined, and the weights as often as kept."""
    rows, weights, ranks = 0, 0, 0
    for group in experiment.groups:
        for m, n in zip(group.teacher.sizes[1:-1], group.students.sizes[1:-1], strict=True):
            rows += len(group.students) * (m + n + (m * n if experiment.pairs else 0))
            ranks += len(group.students) * 2 * m * n * len(experiment.ranks)
        each = sum(math.prod(size) + size[0] for size in group.students.shape.weights)
        weights += each * len(group.students) * group.students.layers[0].weight.element_size()
    kept = 6 + len(experiment.keep) + experiment.optimiser.slots
    return 2 * 20 * rows * (experiment.epochs + 1) + weights * kept + 2 * ranks + 20_000_000


def _training(study: Study, experiment: Experiment) -> Training:
    from understudy.training import Training

    return Training(
        experiment.groups,
        experiment.optimiser,
        steps=experiment.steps,
        device=study.device,
        pairs=experiment.pairs,
        ranks=experiment.ranks,
        tf32=study.dtype == "tf32",
    )


def _train(study: Study, experiment: Experiment, folder: RunFolder, watcher: Watcher) -> tuple[Training, float]:
    """Train to the end, saving as it goes; returns also the seconds worked, those before a stop included."""
    training = _training(study, experiment)
    before = folder.state()
    seconds = before[1] if before else 0.0
    clock = time.monotonic()
    if before:
        training.load(before[0])
    watcher.start(folder.path, training.epoch, experiment.epochs)
    first = training.epoch
    unsaid: list[Callable[[], Progress]] = []
    tables = (*_TABLES, "ranks") if experiment.ranks else _TABLES
    with BackgroundWriter(folder, tables, training.epoch if before else None) as keeper, CtrlC() as ctrl_c:
        while before is None or training.epoch < experiment.epochs:
            start = time.monotonic()
            if before is None:
                before = ({}, 0.0)
            else:
                training.advance()
            records = training.probe()
            spent = time.monotonic() - clock
            if training.epoch in experiment.keep:
                write_weights(folder.progress / f"weights-{training.epoch:06}.safetensors", _named(training))
            keeper.add(records.tables)
            left = spent / max(training.epoch - first, 1) * (experiment.epochs - training.epoch)
            unsaid.append(partial(_progress, experiment, records, training.epoch, left))
            ctrl_c.waits = time.monotonic() - start < _MOMENT
            if keeper.due() or ctrl_c.came or training.epoch == experiment.epochs:
                keeper.save(training.epoch, training.state(), seconds + spent, partial(_say, watcher, unsaid))
                unsaid = []
            if ctrl_c.came:
                raise KeyboardInterrupt
        ctrl_c.waits = False
        keeper.finish()
    _write_networks(experiment, training, folder)
    return training, seconds + time.monotonic() - clock


def _say(watcher: Watcher, what: list[Callable[[], Progress]]) -> None:
    """What is said to be done is on disk."""
    for progress in what:
        watcher.epoch(progress())


def _named(training: Training) -> dict[str, list[Any]]:
    return {f"epoch.{training.epoch}": training.populations()}


def _progress(experiment: Experiment, records: Records, epoch: int, left: float) -> Progress:
    metrics, alive = records.metrics, records.alive.numpy()
    values = {name: np.full(len(alive), np.nan) for name in ("eval_loss", "recovered")}
    for name, into in values.items():
        rows = metrics.filter(pc.field("metric") == name)
        network = rows["network"].to_numpy()
        layers = np.bincount(network, minlength=len(alive))
        sums = np.bincount(network, rows["value"].to_numpy(), len(alive))
        into[layers > 0] = sums[layers > 0] / layers[layers > 0]  # over all layers alike

    def standing(label: str, which: slice) -> Standing:
        loss, recovered = (v[which][~np.isnan(v[which])] for v in values.values())
        known = bool(len(loss))
        return Standing(
            label,
            int(alive[which].sum()),
            len(alive[which]),
            float(np.median(loss)) if known else np.nan,
            float(np.mean(recovered)) if known else np.nan,
        )

    groups = zip(_group_labels(experiment), _group_slices(experiment), strict=True)
    each = tuple(standing(label, group) for label, group in groups)
    return Progress(epoch, experiment.epochs, left, standing("all", slice(None)), each)


def _group_slices(experiment: Experiment) -> list[slice]:
    ends = np.cumsum([0, *(len(group.students) for group in experiment.groups)])
    return [slice(start, stop) for start, stop in pairwise(ends.tolist())]


def _group_labels(experiment: Experiment) -> list[str]:
    """What sets each group apart: the parameters that its networks share and other groups do not."""
    groups = [experiment.parameters[group] for group in _group_slices(experiment)]
    first = groups[0][0]
    shared = [name for name in first if all(len({row[name] for row in group}) == 1 for group in groups)]
    telling = [name for name in shared if len({group[0][name] for group in groups}) > 1]
    return [", ".join(f"{name} {_short(group[0][name])}" for name in telling) or "all" for group in groups]


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _write_networks(experiment: Experiment, training: Training, folder: RunFolder) -> None:
    names = list(experiment.parameters[0])
    diverged = [None if at < 0 else at for at in training.diverged_at.tolist()]
    columns: dict[str, pa.Array] = {"network": pa.array(range(len(training)), pa.int32())}
    columns |= {name: pa.array([row[name] for row in experiment.parameters]) for name in names}
    columns["diverged_at"] = pa.array(diverged, pa.int64())
    write_table(folder.path / "networks.parquet", pa.table(columns))


def _finish(
    study: Study, experiment: Experiment, training: Training, folder: RunFolder, made_with: dict[str, Any]
) -> None:
    weights = {"teacher": [g.teacher for g in experiment.groups], "epoch.0": [g.students for g in experiment.groups]}
    for epoch in sorted(experiment.keep - {0, experiment.epochs}):
        weights[f"epoch.{epoch}"] = read_weights(folder.progress / f"weights-{epoch:06}.safetensors", f"epoch.{epoch}")
    write_weights(folder.path / "weights.safetensors", weights | _named(training))
    write_json(folder.path / "environment.json", made_with)
    if experiment.ranks:
        add_mean_ranks(folder.path)
    write_report(study, Run(folder.path))
    folder.finish()
