"""`understudy check`: the theorems of the papers on networks in files, or on a run."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from understudy._errors import UserError
from understudy._memory import return_freed_memory
from understudy.cli import inputs
from understudy.cli.networks import DESCRIBING, GivenNetworks, NetworkOptions
from understudy.cli.parsing import emit

if TYPE_CHECKING:
    from understudy.lab.check_runs import Checks


@dataclass(frozen=True, kw_only=True)
class Check(NetworkOptions, inputs.InputOptions):
    """Check the theorems of the papers on your own networks: which teacher nodes are certified to have a student, which
    hypotheses fail and by what factor, properties of the data and the teacher, which students can be pruned. Results
    that are not stated for such networks are listed with the reason.

    Files: safetensors, .pt2, .onnx, or state dicts written by torch.save. Students are paired with teachers by index; a
    single teacher is shared by all students. For a run, the last students are checked on their training inputs. One
    network file with --labels is checked as a classifier, without a teacher.
    """

    roles: ClassVar[tuple[str, ...]] = ("teacher", "student")

    paths: tuple[Path, ...]
    """TEACHER STUDENT, two network files; RUN, the folder of a run; or NETWORK, a classifier, with --labels."""
    samples: int = 10_000
    """Number of inputs to draw; for a run, the maximum number of its own inputs to use."""
    labels: Path | None = None
    """Class of each input of --data, for the theorems on classification: .npy, or .npz with the array y."""
    start: Path | None = None
    """File of the students before training, for the theorems on training. By default the given students are taken for
    the start of further training; for a run, its first students are used."""
    network: tuple[int, ...] = ()
    """Indices of the networks to check, in files with several or in a run. By default all, or 20 evenly spaced ones if
    there are more."""
    teacher_network: int | None = None
    """Index of one network of the teacher's file, to use for all students."""
    student_network: int | None = None
    """Index of one network of the student's file, to check it alone."""
    html: Path | None = None
    """Write all findings to this page (.html)."""


def run_check(options: Check) -> None:
    """Print what the theorems say about two network files or the networks of a run."""
    inputs.validate_ending("--html", options.html, (".html", ".htm"))
    if len(options.paths) not in (1, 2):
        raise UserError(
            f"check needs two network files, TEACHER STUDENT, or the folder of a run; got {len(options.paths)} paths"
        )
    return_freed_memory()
    networks = GivenNetworks(options)
    files = len(options.paths) == 2 or options.labels is not None
    if options.labels is not None and options.data is None:
        raise UserError("--labels are those of the inputs of --data; give their file")
    found = _check_files(options, networks) if files else _check_run(options)
    if options.html is not None:
        _write(found, options.html, networks.lines)
    if options.json:
        shown = found[0].as_dict() if files and found.of == 1 else found.as_dict()
        emit(shown | ({"assumed": networks.assumed} if files else {}))
        return
    networks.show()
    from understudy.report.check.terminal import print_checks
    from understudy.report.terminal.tables import output

    print_checks(output(), found.networks, found.of)
    if options.html is not None:
        print(f"page: {options.html}")


def _check_run(options: Check) -> Checks:
    from understudy.lab import check_runs

    (folder,) = options.paths
    if folder.is_file():
        raise UserError(
            f"{folder} is one network file; give those of the teacher and the student, a run's folder, or the network "
            "with --data and --labels"
        )
    for name in ("data", "start", "teacher_network", "student_network", *DESCRIBING):
        if getattr(options, name) not in (None, ()):
            raise UserError(f"--{name.replace('_', '-')} does not apply to a run; omit it, or give two network files")
    return check_runs.check(folder, networks=options.network or None, samples=options.samples)


def _check_files(options: Check, networks: GivenNetworks) -> Checks:
    from understudy.lab import check_runs

    given = {"networks": options.network or None, "labels": options.labels} | inputs.drawing(options)
    teacher = None
    if len(options.paths) > 1:
        teacher = networks.read("teacher", options.paths[0], options.teacher_network)
        if options.teacher_network is None and options.student_network is not None and len(teacher) > 1:
            # Students are paired with teachers by index.
            teacher = networks.read("teacher", options.paths[0], options.student_network, "--student-network")
    # Before the student, whose description is then shown: both have the same layers.
    start = options.start and networks.read("student", options.start, options.student_network, "--student-network")
    student = networks.read("student", options.paths[-1], options.student_network)
    if teacher is None:
        return check_runs.check(student, start=start, **given)
    return check_runs.check(teacher, student, start=start, **given)


def _write(found: Checks, path: Path, notes: Sequence[str]) -> None:
    from understudy._atomic import disk_errors, write_bytes
    from understudy.report.check.page import check_page

    content = check_page(found.networks, found.of, shlex.join(["understudy", *sys.argv[1:]]), notes)
    with disk_errors(path, "choose another place with --html"):
        write_bytes(path, content)
