"""`python -m understudy.cli …`: the console script, for processes that another process starts and that end with it."""

import ctypes
import os
import signal
import sys

from understudy.cli import main
from understudy.lab.reproduce.processes import PARENT

_PR_SET_PDEATHSIG = 1


def end_with(parent: int) -> None:
    """Interrupt this process when its parent ends in any way, also by SIGKILL, where the system is Linux.

    It is interrupted also where its parent runs in the background, which ignores SIGINT and so would its children.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGINT)
        if os.getppid() != parent:  # it has ended before
            sys.exit(130)


if parent := os.environ.get(PARENT):
    end_with(int(parent))
sys.exit(main())
