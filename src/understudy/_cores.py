"""Number of CPU cores that this process may use."""

import os


def cores() -> int:
    """Count the CPU cores available to this process, which may be fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
