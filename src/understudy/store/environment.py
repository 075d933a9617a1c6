"""The environment of a run: versions, hardware, commit."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

import understudy

_PACKAGES = ("torch", "numpy", "scipy", "numba", "pyarrow", "safetensors")


def environment(device: str) -> dict[str, Any]:
    """Versions, hardware and commit, for `environment.json`."""
    return {
        "understudy": understudy.__version__,
        "commit": commit(),
        "python": platform.python_version(),
        "packages": {name: metadata.version(name) for name in _PACKAGES},
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "cores": os.cpu_count(),
        "device": _gpu() if device.startswith("cuda") else "cpu",
    }


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor()


def _gpu() -> str:
    import torch

    return torch.cuda.get_device_name()


def commit() -> str | None:
    """The commit of the checkout that this code was imported from, with `+` if it has changes; None outside one."""
    here = Path(__file__).resolve().parent

    def git(*words: str) -> str | None:
        try:
            done = subprocess.run(
                ["git", "-C", str(here), *words], capture_output=True, text=True, timeout=10, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    head = git("rev-parse", "HEAD")
    if head is None or git("ls-files", "--error-unmatch", __file__) is None:
        return None
    return head[:12] + ("+" if git("status", "--porcelain", "--untracked-files=no") else "")
