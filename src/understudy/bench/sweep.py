"""The whole two-layer study as one command, in a process of its own, and what its time went to."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

from understudy.lab.execute import execute
from understudy.papers.specialization.two_layer.study import TwoLayer
from understudy.report.terminal.progress import Progress


@dataclass(frozen=True)
class Swept:
    """Seconds from the start of the command to its end; `parts` are what the process itself saw of them."""

    seconds: float
    networks: int
    run: str
    parts: dict[str, float]


def sweep(out: Path, device: str, options: dict[str, Any] | None = None) -> Swept:
    """Run the study in a folder that has none yet: Python's start and every file written are in the seconds."""
    words = json.dumps({"device": device, **(options or {})})
    start = perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "understudy.bench.sweep", str(out), words], stdout=subprocess.PIPE, text=True, check=True
    )
    seconds = perf_counter() - start
    told = json.loads(done.stdout)
    parts = {"starting Python": seconds - sum(told["parts"].values()), **told["parts"]}
    return Swept(seconds, told["networks"], told["run"], parts)


class _Clock:
    """Watches a run, and notes when a part of it begins."""

    def __init__(self) -> None:
        self.began = [("teachers and students", perf_counter())]

    def start(self, folder: Path, epoch: int, epochs: int) -> None:
        self.began.append(("data and the first look", perf_counter()))

    def epoch(self, progress: Progress) -> None:
        if progress.epoch == 0:
            self.began.append(("epochs", perf_counter()))
        print(f"epoch {progress.epoch} of {progress.epochs}", file=sys.stderr)

    def say(self, what: str) -> None:
        self.began.append(("tables, figures and page", perf_counter()))

    def parts(self) -> dict[str, float]:
        ends = [time for _, time in self.began[1:]] + [perf_counter()]
        return {name: end - began for (name, began), end in zip(self.began, ends, strict=True)}


def _main(out: str, words: str) -> None:
    clock = _Clock()
    run = execute(TwoLayer.from_config({"options": json.loads(words)}), Path(out), clock)
    print(json.dumps({"networks": run.networks.num_rows, "run": str(run.folder), "parts": clock.parts()}))


if __name__ == "__main__":
    _main(*sys.argv[1:])
