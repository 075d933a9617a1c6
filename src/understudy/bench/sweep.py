"""The whole two-layer study as one command in its own process, with a breakdown of its time."""

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
    """Seconds from the start of the command to its end, and its parts as the process itself timed them."""

    seconds: float
    networks: int
    run: str
    parts: dict[str, float]


def sweep(out: Path, device: str, options: dict[str, Any] | None = None) -> Swept:
    """Run the study in a new folder; the time includes the start of Python and every file written."""
    words = json.dumps({"device": device, **(options or {})})
    start = perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "understudy.bench.sweep", str(out), words], stdout=subprocess.PIPE, text=True, check=True
    )
    seconds = perf_counter() - start
    ended = json.loads(done.stdout)
    parts = {"starting Python": seconds - sum(ended["parts"].values()), **ended["parts"]}
    return Swept(seconds, ended["networks"], ended["run"], parts)


class _PartClock:
    """Watches a run and records when each part of it begins."""

    def __init__(self) -> None:
        self.began = [("teachers and students", perf_counter())]

    def start(self, folder: Path, epoch: int, epochs: int) -> None:
        self.began.append(("data and the first probe", perf_counter()))

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
    clock = _PartClock()
    run = execute(TwoLayer.from_config({"options": json.loads(words)}), Path(out), clock)
    print(json.dumps({"networks": run.networks.num_rows, "run": str(run.folder), "parts": clock.parts()}))


if __name__ == "__main__":
    _main(*sys.argv[1:])
