"""Ctrl-C that waits for the end of a short epoch."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Self


class CtrlC:
    """While `waits` is set, the first Ctrl-C only sets `came`; a second one, or one at another time, interrupts.

    Nothing changes where Ctrl-C has another handler, or outside the main thread.
    """

    def __init__(self) -> None:
        self.waits = self.came = False
        self._ours = False

    def __enter__(self) -> Self:
        here = threading.current_thread() is threading.main_thread()
        self._ours = here and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if self._ours:
            signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if not self.waits or self.came:
            raise KeyboardInterrupt
        self.came = True
