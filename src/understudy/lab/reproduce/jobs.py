"""Which runs reproduce a paper: those that its claims need, and the runs that these start from, which come first."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from understudy._devices import resolve_device
from understudy._errors import UserError
from understudy.claims.catalogue import rows
from understudy.data.images.base import data_folder
from understudy.lab.discovery import studies, studies_by_paper
from understudy.lab.study import Study
from understudy.store.folder import RunFolder

_MEASURED = Path(__file__).parent / "measured.json"
"""Seconds and bytes of runs that were made before, by label and device."""


@dataclass(frozen=True, eq=False)
class Job:
    """A run to make.

    Attributes:
        study: The study, on its device.
        label: Its command without `understudy run`, as the catalogue has it, or with `--quick`.
        paper: Name of the folder of its paper.
        folder: Folder of the run.
        after: Jobs that must be finished before.
        seconds: About the time that it takes; None where it was never measured.
        bytes: About its disk space; None where it was never measured.
    """

    study: Study
    label: str
    paper: str
    folder: Path
    after: tuple[Job, ...] = ()
    seconds: float | None = None
    bytes: int | None = None

    @property
    def gpu(self) -> bool:
        """Whether the run needs the GPU for itself."""
        return self.study.device == "cuda"

    @property
    def finished(self) -> bool:
        """Whether the run is there already."""
        return RunFolder(self.folder).finished


class Missing(NamedTuple):
    """A run that cannot be made here, because files are missing: its study, with the options of that run."""

    paper: str
    study: str
    why: str


def plan_jobs(papers: Sequence[str], out: Path, *, quick: bool, device: str) -> tuple[list[Job], list[Missing]]:
    """The runs that reproduce papers: each study once and, unless `quick`, with the options that its claims need.

    Args:
        papers: Names of the papers' folders; empty for all papers.
        out: Folder that contains the runs.
        quick: Whether studies have their small defaults.
        device: auto, cpu or cuda. Studies that do not gain from a GPU always run on the CPU.

    Returns:
        The jobs, each after those that it starts from, and the studies whose files are missing.

    Raises:
        UserError: There is no such paper or device, or nothing can run.
    """
    known = {paper.rpartition(".")[2]: all_ for paper, all_ in studies_by_paper().items()}
    if unknown := [paper for paper in papers if paper not in known]:
        raise UserError(f"there is no paper {unknown[0]!r}; papers are {', '.join(known)}")
    if twice := [paper for i, paper in enumerate(papers) if paper in papers[:i]]:
        raise UserError(f"each paper can be named once, got {twice[0]} twice")
    gpu = resolve_device(device).type == "cuda"
    jobs: dict[Path, Job] = {}
    missing: list[Missing] = []

    def add(study: Study, label: str, paper: str) -> Job:
        study = replace(study, device="cuda" if gpu and _on_gpu(study) else "cpu").resolved()
        folder = RunFolder.of(out, study.config()).path
        if folder not in jobs:
            after = tuple(add(other, f"{other.name} for {label}", paper) for other in study.depends_on())
            jobs[folder] = Job(study, label, paper, folder, after, *_measured(label, study.device))
        return jobs[folder]

    for paper in papers or known:
        for kind in known[paper]:
            for words in [["--quick"]] if quick else commands(kind.name):
                try:
                    study = study_of(kind.name, _with_files(words))
                    study.require_data()
                    add(study, " ".join([kind.name, *words]), paper)
                except UserError as error:
                    own = [] if quick else words
                    missing.append(Missing(paper, " ".join([kind.name, *own]), str(error)))
                    if not own:
                        break  # the other runs of the study need the same files
    if not jobs:
        raise UserError("nothing can be run: " + "; ".join(f"{name}: {why}" for _, name, why in missing))
    return list(jobs.values()), missing


def study_of(name: str, words: Sequence[str]) -> Study:
    """The study of this name, with options as they are typed after `understudy run`."""
    # By name: the command line, which parses options, imports this package.
    parsed = import_module("understudy.cli.run").parse_run(studies()[name], list(words), f"understudy run {name}")
    study: Study = parsed.study
    return study


def commands(study: str) -> list[list[str]]:
    """Options of the runs of a study that the catalogue's claims need, its defaults first."""
    found: list[list[str]] = [[]]
    for row in rows():
        found += [words[1:] for words in map(str.split, row.runs) if words[0] == study and words[1:] not in found]
    return found


def _with_files(words: Sequence[str]) -> list[str]:
    """The words of a command, with the path of each network file that is in the folder of data but not in this one."""
    folder = data_folder(None)
    return [
        str(folder / word)
        if word.endswith(".safetensors") and not Path(word).exists() and (folder / word).exists()
        else word
        for word in words
    ]


def _on_gpu(study: Study) -> bool:
    """Whether a study gains from a GPU, or starts from one that does, which has the same device."""
    return study.gains_from_gpu or any(map(_on_gpu, study.depends_on()))


def _measured(label: str, device: str) -> tuple[float | None, int | None]:
    """Seconds and bytes of a run that was made before on such a device; None where they are not known."""
    found = _known_sizes().get(label, {}).get(device)
    return (found["seconds"], found["bytes"]) if found else (None, None)


@cache
def _known_sizes() -> dict[str, Any]:
    known: dict[str, Any] = json.loads(_MEASURED.read_text(encoding="utf-8"))
    return known
