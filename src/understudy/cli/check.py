"""The command `understudy check`: what the theorems say of networks in files, or of a run."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from understudy.cli.inputs import OnInputs, check_ending, inputs_in_words, read_inputs, read_network, read_networks
from understudy.cli.parsing import emit, parse
from understudy.errors import UserError

if TYPE_CHECKING:
    from understudy.lab.check_runs import Checks


@dataclass(frozen=True, kw_only=True)
class Check(OnInputs):
    """The theorems of the papers on your own networks: which teacher nodes are certified to have a student, which
    hypothesis fails elsewhere and by how much, what the data and the teacher are like, which students can be pruned.

    Files: safetensors, or state dicts of nn.Linear stacks written by torch.save. Students have each the teacher at the
    same place of its file, or all the only one. Of a run the last students are looked at, on their training inputs.
    """

    what: tuple[Path, ...]
    """TEACHER STUDENT, two network files; or RUN, the folder of a run alone."""
    samples: int = 10_000
    """How many inputs are drawn; of a run, how many of its own are looked at, at most."""
    network: tuple[int, ...] = ()
    """Which networks of a file that holds several, or of a run; left out, all, or 20 spread evenly over more."""
    teacher_network: int | None = None
    """One network of the teacher's file, for all students."""
    student_network: int | None = None
    """One network of the student's file alone."""
    html: Path | None = None
    """Write all findings to this page (.html)."""


def check_command(words: list[str]) -> int:
    """`understudy check`."""
    options = parse(Check, words, "understudy check")
    check_ending("--html", options.html, (".html", ".htm"))
    if len(options.what) not in (1, 2):
        raise UserError(
            f"check: {len(options.what)} paths were given; give two network files, TEACHER STUDENT, or the folder of a "
            "run alone"
        )
    found = _of_run(options) if len(options.what) == 1 else _of_files(options)
    if options.html is not None:
        _write(found, options.html, shlex.join(["understudy", "check", *words]))
    if options.json:
        alone = len(options.what) == 2 and found.of == 1
        emit(found[0].as_dict() if alone else found.as_dict())
        return 0
    from understudy.report.check.terminal import print_checks
    from understudy.report.terminal.tables import output

    print_checks(output(), found.networks, found.of)
    if options.html is not None:
        print(f"page: {options.html}")
    return 0


def _of_run(options: Check) -> Checks:
    from understudy.lab.check_runs import check

    (folder,) = options.what
    if folder.is_file():
        raise UserError(
            f"{folder}: one network file was given; name the teacher's and the student's, or a run's folder"
        )
    for name in ("data", "leaky", "teacher_network", "student_network"):
        if getattr(options, name) is not None:
            raise UserError(f"--{name.replace('_', '-')}: a run has its own; leave it out, or give two network files")
    return check(folder, networks=options.network or None, samples=options.samples)


def _of_files(options: Check) -> Checks:
    from understudy.lab.check_runs import check

    teacher, student = (
        read_networks(path, options.leaky) if which is None else read_network(path, options.leaky, which, option)
        for path, which, option in zip(
            options.what,
            (options.teacher_network, options.student_network),
            ("--teacher-network", "--student-network"),
            strict=True,
        )
    )
    if options.student_network is not None and options.teacher_network is None and len(teacher) > 1:
        # The student was chosen by its place, and its teacher is the one at the same.
        teacher = read_network(options.what[0], options.leaky, options.student_network, "--student-network")
    x = read_inputs(options, student)
    return check(teacher, student, x, networks=options.network or None, inputs=inputs_in_words(options))


def _write(found: Checks, path: Path, command: str) -> None:
    from understudy._atomic import write_bytes
    from understudy.report.check.page import check_page
    from understudy.store.files import disk_errors

    content = check_page(found.networks, found.of, command)
    with disk_errors(path, "choose another place with --html"):
        write_bytes(path, content)
