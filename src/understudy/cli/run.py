"""`understudy run STUDY|FILE.py`: run a study, or resume it where it stopped."""

from __future__ import annotations

import sys
from dataclasses import field, make_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from understudy._errors import UserError
from understudy.cli.parsing import parse
from understudy.cli.plan import show_plan
from understudy.cli.report import show_run

if TYPE_CHECKING:
    from understudy.lab import Study

_USAGE = """\
usage: understudy run STUDY [options]
       understudy run FILE.py [options]       a study of your own, defined in a file

Run a study. The same command resumes a run that was interrupted. Options of a study: understudy run STUDY --help
"""


def run_study(words: list[str]) -> None:
    """Run the study that the first word names, with the options that follow."""
    if words[:1] in (["-h"], ["--help"]):
        return _print_help()
    study = _find_study(words)
    chosen = parse_run(study, _current_names(study, words[1:]), f"understudy run {words[0]}")
    if chosen.plan:
        return show_plan(chosen.study, chosen.out, chosen.json)
    from understudy.lab.run import run
    from understudy.lab.subject import study_subject

    return show_run(run(chosen.study, out=chosen.out, cluster=chosen.cluster), study_subject(chosen.study), chosen.json)


def _find_study(words: list[str]) -> type[Study]:
    """The study that the first word names."""
    from understudy.lab import studies
    from understudy.lab.run import find_study

    name = words[0] if words else ""
    if not name or name.startswith("-"):
        known = ", ".join(studies())
        raise UserError(f"run needs the name of a study first: one of {known}, or a file such as study.py")
    return find_study(name)


def _current_names(study: type[Study], words: list[str]) -> list[str]:
    """Replace former names of options by the present ones, with a notice."""
    from understudy.lab.options import option

    names = {option(old): option(new) for old, new in study.renamed.items()}
    current = []
    for word in words:
        name, equals, value = word.partition("=")
        if name in names:
            print(f"understudy: {name} is now called {names[name]}", file=sys.stderr)
        current.append(names.get(name, name) + equals + value)
    return current


def parse_run(study: type[Study], words: list[str], prog: str) -> Any:
    """Parse the study's options and those of every run."""
    chosen: Any = parse(run_options(study, "--quick" in words), words, prog)
    return replace(chosen, study=study(**chosen.study.options()))


def run_options(study: type[Study], quick: bool) -> type:
    """The study's options and those of every run; `quick` uses the small defaults."""
    from tyro.conf import arg

    # Validated after parsing only: tyro would print an error of its own around any ValueError.
    unvalidated = type(study.__name__, (study,), {"__post_init__": lambda self: None, "__doc__": study.__doc__})
    default = (study.quick() if quick else study()).options()
    out = "Folder that contains the runs; this one is written to OUT/STUDY/<hash of its configuration>."
    small = "Use small defaults that finish in seconds; explicit options still take precedence."
    ahead = "Only show how the study would be executed here: groups, pieces, memory, approximate time."
    cluster = "Compute on a cluster: ray for the one that is known here, or ray:ADDRESS; by default in this process."
    one_object = "Print one JSON object on standard output and nothing else."
    options: list[Any] = [
        ("study", unvalidated, field(default=unvalidated(**default))),
        ("out", Annotated[Path, arg(help=out)], field(default=Path("runs"))),
        ("quick", Annotated[bool, arg(help=small)], field(default=False)),
        ("plan", Annotated[bool, arg(help=ahead)], field(default=False)),
        ("cluster", Annotated[str, arg(help=cluster)], field(default="")),
        ("json", Annotated[bool, arg(help=one_object)], field(default=False)),
    ]
    return make_dataclass("Options", options, frozen=True, namespace={"__doc__": ""})


def _print_help() -> None:
    from understudy.cli.list import heading
    from understudy.lab.discovery import studies_by_paper

    print(_USAGE)
    for paper, studies in studies_by_paper().items():
        print(heading(paper)[0])
        for study in studies:
            print(f"  {study.name:<20} {study.summary}")
