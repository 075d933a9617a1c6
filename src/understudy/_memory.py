"""Memory that may be used here, and sizes that fit in it."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

import psutil

from understudy._errors import TooLargeError, UserError
from understudy._numbers import number

MOST = 10**9
"""Largest magnitude of an option: beyond it no run would end, and tables, which count in 32 bits, would overflow."""
LIMIT = "UNDERSTUDY_MEMORY"
"""Environment variable with the bytes that a process may plan with, where less than all that is free."""
_MMAP_THRESHOLD = -3
"""Name of an option in glibc's malloc.h."""
_SHARE = 0.7
"""Share of the free memory that may be used."""
_CGROUP = Path("/sys/fs/cgroup")
"""Files of the memory limit of a container."""


def free_memory() -> int:
    """Bytes that may be used on the CPU: most of those that the machine, a container and this process have left."""
    left = int(min([psutil.virtual_memory().available, *_container(), *_process()]) * _SHARE)
    given = os.environ.get(LIMIT)
    if given is None:
        return left
    if not given.isascii() or not given.isdigit():
        raise UserError(f"the environment variable {LIMIT} must be a number of bytes, got {given!r}")
    return min(left, int(given))


def _container() -> list[int]:
    """Bytes left under the memory limit of a container (cgroup version 2), where one is set."""
    try:
        limit = (_CGROUP / "memory.max").read_text().strip()
        if not limit.isdigit():
            return []
        lines = (_CGROUP / "memory.stat").read_text().splitlines()
        file_cache = sum(int(line.split()[1]) for line in lines if line.startswith("inactive_file "))
        return [max(0, int(limit) - int((_CGROUP / "memory.current").read_text()) + file_cache)]
    except OSError:
        return []


def _process() -> list[int]:
    """Bytes left under the limit of the address space of this process (`ulimit -v`), where one is set."""
    if sys.platform == "win32":
        return []
    from resource import RLIM_INFINITY, RLIMIT_AS, getrlimit

    limit = getrlimit(RLIMIT_AS)[0]
    return [] if limit == RLIM_INFINITY else [max(0, limit - psutil.Process().memory_info().vms)]


def require_size(name: str, value: int, each: int = 8) -> None:
    """Refuse a size before anything of it is allocated.

    Args:
        name: The argument.
        value: Its value.
        each: Bytes that one takes at least.

    Raises:
        UserError: The value is larger than any size, or its memory is more than may be used.
    """
    if value > MOST:
        raise UserError(f"must be at most {MOST:,}, got {value}", name)
    need, free = value * each, free_memory()
    if need > free:
        raise TooLargeError(
            f"must be at most {free // each:,} here, got {value}: the memory for them is {number(need / 1e9)} GB, and "
            f"{number(free / 1e9)} GB may be used",
            name,
        )


def return_freed_memory() -> None:
    """Have glibc return every freed array of 8 MB or more to the system at once, for the rest of this process.

    By default it keeps arrays of up to 32 MB for later, in pieces that fit few others. Arrays that are made anew all
    the time get slower by this: commands call it, and no library function.
    """
    if sys.platform == "linux":
        set_option = getattr(ctypes.CDLL(None), "mallopt", None)
        if set_option is not None:
            set_option(_MMAP_THRESHOLD, 8 << 20)
