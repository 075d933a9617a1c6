"""Figures for paper drawn by several processes at once: matplotlib draws one at a time."""

from __future__ import annotations

import io
import os
import pickle
import subprocess
import sys
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from types import TracebackType
from typing import IO, Any, Self

from understudy._cores import cores
from understudy.report.story import Kind
from understudy.report.style import files

_MOST = 4
_HELLO = "from understudy.report.artists import serve; serve()"
Drawn = dict[str, bytes]
"""A figure's files by their endings."""


def endings(kind: Kind) -> tuple[str, ...]:
    """Of the files of a figure: it may move."""
    return ("pdf", "svg", "gif") if hasattr(kind, "film") else ("pdf", "svg")


def drawn(kind: Kind) -> Drawn:
    """All files of a figure."""
    made = files(kind.paper())
    if hasattr(kind, "film"):
        film = io.BytesIO()
        kind.film(film)
        made["gif"] = film.getvalue()
    return made


class FigurePool:
    """Processes that draw beside this one for as long as the block lasts, as many as there are cores to spare.

    They are given figures and answer with their files through pipes, so they end with this process however it ends.
    What one of them fails to draw is drawn here.
    """

    def __init__(self, count: int | None = None) -> None:
        self._count = min(_MOST, cores() - 1) if count is None else count
        self._hired: list[subprocess.Popen[bytes]] = []
        self._threads = ThreadPoolExecutor(max(1, self._count))
        self._at_work: list[Future[None]] = []
        self._kinds: Sequence[Kind] = ()
        self._left: deque[int] = deque()
        self._done: dict[int, Drawn] = {}

    def __enter__(self) -> Self:
        alone = os.environ | dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
        for _ in range(self._count):
            self._hired.append(
                subprocess.Popen(
                    [sys.executable, "-c", _HELLO],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    env=alone,
                )
            )
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._left.clear()
        for artist in self._hired:
            artist.kill()
        self._threads.shutdown()
        for artist in self._hired:
            for pipe in (artist.stdin, artist.stdout):
                if pipe is not None:
                    _close(pipe)
            artist.wait()

    def begin(self, kinds: Sequence[Kind]) -> None:
        """Have figures drawn; go on with something else, then call `finish`."""
        self._kinds, self._left = kinds, deque(range(len(kinds)))
        self._at_work = [self._threads.submit(self._have_drawn, artist) for artist in self._hired]

    def finish(self) -> list[Drawn]:
        """Each figure's files; what no one has begun is drawn here meanwhile."""
        self._draw_here()
        wait(self._at_work)
        self._draw_here()
        return [self._done[i] for i in range(len(self._kinds))]

    def _draw_here(self) -> None:
        while (i := self._next()) is not None:
            self._done[i] = drawn(self._kinds[i])

    def _have_drawn(self, artist: subprocess.Popen[bytes]) -> None:
        assert artist.stdin and artist.stdout
        while (i := self._next()) is not None:
            try:
                _send(artist.stdin, self._kinds[i])
                self._done[i] = _received(artist.stdout)
            except Exception:  # whatever it was: the figure is drawn here, where its error is told
                self._left.append(i)
                return

    def _next(self) -> int | None:
        try:
            return self._left.popleft()
        except IndexError:
            return None


def serve() -> None:
    """What an artist does: draw what comes in on standard input until nothing more comes."""
    while True:
        try:
            kind = _received(sys.stdin.buffer)
        except EOFError:
            return
        _send(sys.stdout.buffer, drawn(kind))


def _send(pipe: IO[bytes], what: Any) -> None:
    data = pickle.dumps(what)
    pipe.write(len(data).to_bytes(8))
    pipe.write(data)
    pipe.flush()


def _received(pipe: IO[bytes]) -> Any:
    """Only what our own process at the other end has sent."""
    size = int.from_bytes(_exactly(pipe, 8))
    return pickle.loads(_exactly(pipe, size))


def _exactly(pipe: IO[bytes], size: int) -> bytes:
    data = pipe.read(size)
    if len(data) < size:
        raise EOFError
    return data


def _close(pipe: IO[bytes]) -> None:
    try:
        pipe.close()
    except OSError:  # what it still held cannot be sent any more
        return
