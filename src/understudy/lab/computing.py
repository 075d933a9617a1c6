"""Run a study that computes its tables piece by piece."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from understudy._atomic import write_json
from understudy._errors import UserError
from understudy._reading import read_json
from understudy.lab.cluster.pieces import compute_pieces
from understudy.lab.interrupt import CtrlC
from understudy.lab.study import ComputedStudy, LongCompute, Workplace
from understudy.report.terminal.progress import Watcher
from understudy.store.environment import environment
from understudy.store.folder import RunFolder
from understudy.store.pieces import PieceRecords
from understudy.store.tables import write_table
from understudy.store.weights import kept_weights, read_weights, write_weights

if TYPE_CHECKING:
    from understudy.lab.cluster.engine import Cluster
    from understudy.nets import Population

Pieces = Mapping[str, Callable[..., dict[str, Any]]]
_SOON = 5.0
"""Seconds between two lines of progress up to which Ctrl-C waits for the next one."""


def compute(
    study: ComputedStudy, pieces: Pieces, folder: RunFolder, watcher: Watcher, cluster: Cluster | None = None
) -> None:
    """Compute the pieces that are not in the folder yet, here or on a cluster, and join the tables and weights of all.

    One thread computes, except in long pieces: tensors are small, and sums come out the same on any number of cores.
    """
    seconds = folder.progress / "seconds.json"
    records = PieceRecords(folder.path.name, folder.progress)
    numbers, left = {name: number for number, name in enumerate(pieces, 1)}, dict(pieces)
    for name, number in numbers.items():
        problem = records.problem(number, name)
        if problem is None:
            del left[name]
            watcher.say(f"{number} of {len(pieces)}: {name}")
        elif problem:
            watcher.say(f"{problem}: computing {name} again")
    clock = _Clock(seconds)
    found = (
        _compute_here(left, numbers, folder, watcher, clock)
        if cluster is None
        else compute_pieces(cluster, left, folder.path)
    )
    for name, tables in found:
        clock.save()
        _save_piece(numbers[name], name, tables, folder, records)
        watcher.say(f"{numbers[name]} of {len(pieces)}: {name}")
    records.known = dict(sorted(records.known.items()))
    names = _join_tables(folder, records)
    write_weights(folder.path / "weights.safetensors", _join_weights(folder.progress, records))
    made_with = environment(study.device) | {"seconds": round(_read_seconds(seconds), 1), "tables": names}
    write_json(folder.path / "environment.json", made_with)


def _compute_here(
    pieces: Pieces, numbers: Mapping[str, int], folder: RunFolder, watcher: Watcher, clock: _Clock
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Compute pieces one after the other; a long one keeps its state until its tables have been saved."""
    from understudy.training.parallel import one_thread_each

    for name, piece in pieces.items():
        if not isinstance(piece, LongCompute):
            with one_thread_each():
                tables = piece()
            yield name, tables
            continue
        state = folder.progress / f"state-{numbers[name]:06}"
        yield name, _compute_long(piece, state, folder.path, watcher, clock)
        shutil.rmtree(state, ignore_errors=True)


def _save_piece(number: int, name: str, tables: dict[str, Any], folder: RunFolder, records: PieceRecords) -> None:
    """Write the tables and weights of a piece, and then its record."""
    files = []
    if weights := tables.pop("weights", None):
        groups = {who: [population] for who, population in weights.items()}
        files.append(f"weights-{number:06}.safetensors")
        write_weights(folder.progress / files[0], groups)
    for table, rows in tables.items():
        files.append(f"{table}-{number:06}.parquet")
        write_table(folder.progress / files[-1], rows)
    records.write(number, name, list(tables), files)


class _Clock:
    """Seconds worked, those before an interruption included."""

    def __init__(self, path: Path) -> None:
        self._path, self._before, self._start = path, _read_seconds(path), time.monotonic()

    def save(self) -> None:
        write_json(self._path, self._before + time.monotonic() - self._start)


def _compute_long(piece: LongCompute, state: Path, run: Path, watcher: Watcher, clock: _Clock) -> dict[str, Any]:
    """Compute a piece that saves its state in a folder; Ctrl-C waits for its next line of progress, if that is near."""
    state.mkdir(exist_ok=True)
    last = time.monotonic()
    with CtrlC() as ctrl_c:

        def say(line: str) -> None:
            nonlocal last
            if line:
                watcher.say(line)
            clock.save()
            ctrl_c.waits, last = time.monotonic() - last < _SOON, time.monotonic()
            if ctrl_c.came:
                raise KeyboardInterrupt

        return piece(Workplace(state, run, say))


def _join_tables(folder: RunFolder, records: PieceRecords) -> list[str]:
    """Write each table of the run from the rows of its pieces; return the names of the tables."""
    names: dict[str, list[Path]] = {}
    for number, record in records.known.items():
        for name in record["tables"]:
            names.setdefault(name, []).append(folder.progress / f"{name}-{number:06}.parquet")
    for name, parts in names.items():
        rows = pa.concat_tables([pq.read_table(part) for part in parts], promote_options="default")
        write_table(folder.path / f"{name}.parquet", rows)
    return list(names)


def _join_weights(progress: Path, records: PieceRecords) -> dict[str, list[Population]]:
    """The weights of all pieces that have any, one group each."""
    files = [file for record in records.known.values() for file in record["files"] if file.startswith("weights-")]
    parts = [progress / file for file in files if file.endswith(".safetensors")]
    names = kept_weights(parts[0]) if parts else ()
    return {who: [group for part in parts for group in read_weights(part, who)] for who in names}


def _read_seconds(path: Path) -> float:
    """Seconds worked so far, those before an interruption included; 0 where they cannot be read."""
    with suppress(UserError):
        seconds = read_json(path, "seconds are counted anew") if path.is_file() else 0.0
        if isinstance(seconds, int | float) and 0 <= seconds < math.inf:
            return float(seconds)
    return 0.0
