"""`understudy example`: a folder with a teacher, its students and inputs to try the commands on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from understudy.cli.parsing import emit


@dataclass(frozen=True, kw_only=True)
class Example:
    """Train a small teacher and three students of it, and write them to files of every kind that the commands read,
    with inputs.

    Nothing is overwritten by other contents.
    """

    folder: Path
    """Folder to write to; it is made if it does not exist."""
    seed: int = 1
    """Seed of the task, the initial weights and the inputs."""
    json: bool = False
    """Print one JSON object and nothing else."""


def run_example(options: Example) -> None:
    """Write example files, and print what each is and the commands to try."""
    from understudy.lab.example import COMMANDS, example

    made = example(options.folder, seed=options.seed)
    if options.json:
        emit({"folder": str(made.folder), "files": made.files, "notes": made.notes, "next": COMMANDS})
    else:
        print(made)
