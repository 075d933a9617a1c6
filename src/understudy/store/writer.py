"""Write epochs to disk while the next ones train."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import TYPE_CHECKING, Self

import pyarrow as pa

from understudy.store.folder import RunFolder
from understudy.store.tables import Growing
from understudy.store.weights import write_weights

if TYPE_CHECKING:
    from torch import Tensor

    from understudy.nets import Population

_REST, _LONGEST = 5.0, 2.0
"""Pause before the next save: this many times the duration of the last save, and at most so many seconds."""
_BEHIND = 4
"""Jobs that may wait; each holds the tensors of an epoch's rows."""


class BackgroundWriter:
    """Background writer. Jobs run in submission order; an exception in the thread is re-raised by the next call.

    Rows are added to the tables of the run, which appear when training ends. Until then they are also in the parts that
    `save` writes together with a state, from which an interrupted run resumes.
    """

    def __init__(self, folder: RunFolder, tables: Sequence[str], *, resumes: bool) -> None:
        self._folder = folder
        self._tables = {table: Growing(folder.path / f"{table}.parquet") for table in tables}
        self._since: dict[str, list[pa.Table]] = {table: [] for table in tables}
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="writer")
        self._jobs: list[Future[None]] = []
        self._saving: Future[None] | None = None
        self._rests_until = -math.inf
        self._broken = False
        if resumes:
            self._do(self._resume)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._thread.shutdown()
        for table in self._tables.values():
            table.drop()
        if kind is None or issubclass(kind, KeyboardInterrupt):
            self._raise()

    def add(self, rows: Callable[[], dict[str, pa.Table]]) -> None:
        """Add the rows of an epoch, made by the writing thread; wait if it is more than a few epochs behind."""
        if len(self._jobs) > _BEHIND:
            self._jobs[-_BEHIND].result()
        self._do(self._grow, rows)

    def keep(self, name: str, weights: Mapping[str, Sequence[Population]]) -> None:
        """Write populations to a part, which the next state lists."""
        write_weights(self._folder.progress / name, weights)
        self._do(self._folder.add_part, name)

    def due(self) -> bool:
        """Whether to save now: the last save is done, and its pause is over."""
        return (self._saving is None or self._saving.done()) and time.monotonic() >= self._rests_until

    def save(self, epoch: int, state: dict[str, Tensor], seconds: float, then: Callable[[], None]) -> None:
        """Save everything up to an epoch with a copy of the state after it, then call `then`."""
        kept = {name: tensor.clone() if tensor.device.type == "cpu" else tensor.cpu() for name, tensor in state.items()}
        self._saving = self._do(self._save, epoch, kept, seconds, then)

    def wait(self) -> None:
        """Wait for all jobs."""
        for job in self._jobs:
            job.result()
        self._jobs.clear()

    def finish(self) -> None:
        """Complete the tables of the run, after the last epoch."""
        self._do(self._close)
        self.wait()

    def _do(self, job: Callable[..., None], *what: object) -> Future[None]:
        self._raise()
        self._jobs.append(self._thread.submit(self._unless_broken, job, *what))
        return self._jobs[-1]

    def _unless_broken(self, job: Callable[..., None], *what: object) -> None:
        """Write nothing more after a failure: a state implies that all rows before it are on disk."""
        if not self._broken:
            try:
                job(*what)
            except BaseException:
                self._broken = True
                raise

    def _raise(self) -> None:
        done = [job for job in self._jobs if job.done()]
        self._jobs = [job for job in self._jobs if not job.done()]
        for job in done:
            job.result()

    def _resume(self) -> None:
        for table, growing in self._tables.items():
            for rows in self._folder.saved(table):
                growing.add(rows)

    def _grow(self, rows: Callable[[], dict[str, pa.Table]]) -> None:
        for table, each in rows().items():
            self._since[table].append(each)
            self._tables[table].add(each)

    def _save(self, epoch: int, state: dict[str, Tensor], seconds: float, then: Callable[[], None]) -> None:
        start = time.monotonic()
        rows = {table: pa.concat_tables(parts) for table, parts in self._since.items() if parts}
        self._since = {table: [] for table in self._since}
        self._folder.save(epoch, rows, state, seconds)
        took = time.monotonic() - start
        then()
        self._rests_until = time.monotonic() + min(_REST * took, _LONGEST)

    def _close(self) -> None:
        for table in self._tables.values():
            table.close()
