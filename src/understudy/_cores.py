"""Number of CPU cores that this process may use."""

import os

LIMIT = "UNDERSTUDY_CORES"
"""Environment variable with the number of cores that a process may use, where fewer than those it has."""


def cores() -> int:
    """Count the CPU cores available to this process, which may be fewer than the machine has."""
    found = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    given = os.environ.get(LIMIT, "")
    return max(1, min(found, int(given))) if given.isascii() and given.isdigit() else found
