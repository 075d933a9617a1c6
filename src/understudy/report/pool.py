"""Figures for paper, drawn by several processes at once: matplotlib draws one figure at a time."""

from __future__ import annotations

import io
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from types import ModuleType, TracebackType
from typing import Any, Self

from understudy._cores import cores
from understudy.report.story import Kind
from understudy.report.style import files

_MOST = 4
Files = dict[str, bytes]
"""The files of a figure, by file extension."""


def endings(kind: Kind) -> tuple[str, ...]:
    """File extensions of a figure; animated figures also have a GIF."""
    return ("pdf", "svg", "gif") if hasattr(kind, "film") else ("pdf", "svg")


def draw(kind: Kind) -> Files:
    """Draw all files of a figure."""
    made = files(kind.paper())
    if hasattr(kind, "film"):
        film = io.BytesIO()
        kind.film(film)
        made["gif"] = film.getvalue()
    return made


class FigurePool:
    """Worker processes that draw figures for as long as the block lasts.

    A figure that a worker cannot draw is drawn in this process, where its error surfaces.

    Args:
        count: Number of workers; by default one less than there are CPU cores, at most four.
    """

    def __init__(self, count: int | None = None) -> None:
        self._count = min(_MOST, cores() - 1) if count is None else count
        self._executor: ProcessPoolExecutor | None = None
        self._begun: list[tuple[Kind, Future[Files] | None]] = []

    def __enter__(self) -> Self:
        if self._count:
            spawn = multiprocessing.get_context("spawn")
            self._executor = ProcessPoolExecutor(self._count, mp_context=spawn, initializer=_initialise)
            for _ in range(self._count):  # start the workers now: importing matplotlib takes a while
                self._submit(os.getpid)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._executor is not None:
            self._executor.shutdown(cancel_futures=True)

    def begin(self, kinds: Sequence[Kind]) -> None:
        """Start drawing figures and return at once; this process keeps its share for `finish`."""
        share = self._count + 1
        self._begun = [(kind, self._submit(draw, kind) if i % share else None) for i, kind in enumerate(kinds)]

    def finish(self) -> list[Files]:
        """Return the files of each figure."""
        here = {i: draw(kind) for i, (kind, future) in enumerate(self._begun) if future is None}
        return [_result(kind, future) if future else here[i] for i, (kind, future) in enumerate(self._begun)]

    def _submit(self, task: Callable[..., Any], *arguments: Any) -> Future[Any] | None:
        if self._executor is None:
            return None
        try:
            with _bare_start():
                return self._executor.submit(task, *arguments)
        except BrokenExecutor:
            return None


def _result(kind: Kind, future: Future[Files]) -> Files:
    try:
        return future.result()
    except Exception:  # of any kind: if the figure itself is wrong, drawing it here raises the same error
        return draw(kind)


@contextmanager
def _bare_start() -> Iterator[None]:
    """Start workers without the main module, which may be a user's script without a guard, and with one thread each."""
    main = sys.modules["__main__"]
    limits = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    before = {name: os.environ.get(name) for name in limits}
    sys.modules["__main__"] = ModuleType("__main__")
    os.environ.update(limits)
    try:
        yield
    finally:
        sys.modules["__main__"] = main
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


def _initialise() -> None:
    """Prepare a worker: it leaves Ctrl-C to the main process, and ends with it even if that is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
