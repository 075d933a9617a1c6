"""Run a study in its folder: resume it where it stopped, write its tables and its report."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from understudy._errors import UserError
from understudy.lab.capacity import naming_causes, require_capacity
from understudy.lab.computing import Pieces, compute
from understudy.lab.study import (
    ComputedStudy,
    Experiment,
    LongCompute,
    PiecesPlan,
    Study,
    TrainingStudy,
    named_pieces,
)
from understudy.lab.training import disk_space, group_labels, make_training, train, with_recorded
from understudy.lab.write_report import write_report
from understudy.report.terminal.progress import Watcher
from understudy.store import Run
from understudy.store.folder import RunFolder

if TYPE_CHECKING:
    from understudy.lab.cluster.engine import Cluster
    from understudy.training.plan import Plan

_PIECE_BYTES = 20_000_000
"""About the disk space that a piece of a computed study takes."""


def execute(study: Study, out: Path, watcher: Watcher, engine: str = "") -> Run:
    """Run a study in its folder `out/<study>/<hash of its configuration>`, and return the finished run.

    A study that was interrupted resumes where it stopped; a finished one is only read. Studies it depends on run first.

    Args:
        study: The study.
        out: Folder that contains the runs.
        watcher: Receives the progress.
        engine: The cluster that computes, such as `ray`; empty for this process.
    """
    if engine:
        from understudy.lab.cluster.engine import require_engine

        require_engine(engine)
    study = study.resolved()
    require_capacity(study)
    with naming_causes(study):
        return _execute(study, out, watcher, engine)


def _execute(study: Study, out: Path, watcher: Watcher, engine: str) -> Run:
    """Plan a study, and then run it in its folder: what cannot be planned leaves no folder behind."""

    runs = cache(lambda: [_depend(study, other, out, watcher, engine) for other in study.depends_on()])
    missing = [parent for parent in (out / study.name, out, *out.parents) if not parent.exists()]
    match study:
        case TrainingStudy():
            experiment = cache(lambda: _experiment(study, runs()))
            training = cache(lambda: make_training(study, experiment()))

            def space() -> int:
                if not engine:
                    training()  # which is refused before the folder is made if it does not fit in memory
                return disk_space(experiment())

            with RunFolder.open(out, study.config(), space) as folder:
                if not folder.finished:
                    with _nothing_left(folder, missing), _cluster(study, engine) as cluster:
                        trained = make_training(study, experiment(), cluster) if cluster else training()
                        train(study, experiment(), trained, folder, watcher)
                    write_report(study, Run(folder.path))
                    folder.finish()
        case ComputedStudy():
            pieces = cache(lambda: named_pieces(study, *runs()))
            with RunFolder.open(out, study.config(), lambda: _piece_space(pieces())) as folder:
                if not folder.finished:
                    watcher.say(f"{study.command()}: in {folder.path}")
                    with _nothing_left(folder, missing), _cluster(study, engine) as cluster:
                        compute(study, pieces(), folder, watcher, cluster)
                    write_report(study, Run(folder.path))
                    folder.finish()
        case _:
            raise TypeError(f"{type(study).__name__} must be a TrainingStudy or a ComputedStudy")
    return Run(folder.path)


@contextmanager
def _cluster(study: Study, engine: str) -> Iterator[Cluster | None]:
    """The cluster of this name, if it is one."""
    if not engine:
        yield None
        return
    from understudy.lab.cluster.engine import connect

    with connect(engine, gpu=study.device == "cuda" and study.gains_from_gpu) as cluster:
        yield cluster


@contextmanager
def _nothing_left(folder: RunFolder, missing: Sequence[Path]) -> Iterator[None]:
    """Remove the folder of a run that fails before anything of it has been computed, and those made for it."""
    try:
        yield
    except Exception:
        if not any(path.is_file() and path.name != "seconds.json" for path in folder.progress.rglob("*")):
            shutil.rmtree(folder.path)
            with suppress(OSError):  # another run has come into one of them
                for parent in missing:
                    parent.rmdir()
        raise


def plan(study: Study, out: Path) -> tuple[Experiment, list[str], Plan] | PiecesPlan:
    """Plan how a study would be trained here, without training or writing anything.

    Returns:
        The experiment, the label of each group, and the plan; or what a computed study that trains would do.

    Raises:
        UserError: If the study trains nothing itself, or a run that it depends on does not exist yet.
    """
    study = study.resolved()
    require_capacity(study)
    with naming_causes(study):
        return _plan(study, out)


def _plan(study: Study, out: Path) -> tuple[Experiment, list[str], Plan] | PiecesPlan:
    if isinstance(study, ComputedStudy) and (planned := study.planned()) is not None:
        return planned
    if not isinstance(study, TrainingStudy):
        first = "; ".join(f"{other.command()} --plan" for other in study.depends_on())
        raise UserError(
            f"--plan needs a study that trains; {study.name} does not" + (f": see {first}" if first else "")
        )
    runs = []
    for other in study.depends_on():
        folder = RunFolder.of(out, other.resolved().config())
        if not folder.finished:
            raise UserError(f"{study.name} starts from another run, which is not in {out}; first {other.command()}")
        runs.append(Run(folder.path))
    experiment = _experiment(study, runs)
    return experiment, group_labels(experiment), make_training(study, experiment).plan


def _piece_space(pieces: Pieces) -> int:
    """About the bytes that a computed study takes on disk."""
    long = sum(piece.bytes for piece in pieces.values() if isinstance(piece, LongCompute))
    return _PIECE_BYTES * (1 + len(pieces)) + long


def _depend(study: Study, other: Study, out: Path, watcher: Watcher, engine: str) -> Run:
    watcher.say(f"{study.name} starts from {other.command()}")
    return execute(other, out, watcher, engine)


def _experiment(study: TrainingStudy, runs: Sequence[Run]) -> Experiment:
    """Build the experiment with one thread: the networks are too small for torch's threads to pay off."""
    from understudy.training.parallel import one_thread_each

    with one_thread_each():
        return with_recorded(study, study.experiment(*runs))
