"""The command line: one file per command, each with a dataclass of options and a function that carries it out."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple, Union

from understudy._errors import UserError, suggest
from understudy.cli.align import Align, run_align
from understudy.cli.bench import Bench, run_bench
from understudy.cli.boundary import run_guarded
from understudy.cli.check import Check, run_check
from understudy.cli.claims import Claims, run_claims
from understudy.cli.compare import Compare, run_compare
from understudy.cli.connect import Connect, run_connect
from understudy.cli.example import Example, run_example
from understudy.cli.list import List, run_list
from understudy.cli.networks import StackOptions, current_words
from understudy.cli.parsing import parse
from understudy.cli.predict import Predict, run_predict
from understudy.cli.prune import Prune, run_prune
from understudy.cli.recover import Recover, run_recover
from understudy.cli.report import Report, run_report
from understudy.cli.reproduce import Reproduce, run_reproduce
from understudy.cli.run import run_options, run_study
from understudy.cli.start import Start, run_start


class _Command(NamedTuple):
    options: type
    function: Callable[[Any], None]


# tyro's own subcommands would build the options of every study before parsing, report a mistyped command without a
# suggestion, and list commands in one group. They are used for shell completion only, where everything is needed.
_COMMANDS = {
    "list": _Command(List, run_list),
    "report": _Command(Report, run_report),
    "claims": _Command(Claims, run_claims),
    "align": _Command(Align, run_align),
    "check": _Command(Check, run_check),
    "prune": _Command(Prune, run_prune),
    "connect": _Command(Connect, run_connect),
    "compare": _Command(Compare, run_compare),
    "recover": _Command(Recover, run_recover),
    "start": _Command(Start, run_start),
    "predict": _Command(Predict, run_predict),
    "example": _Command(Example, run_example),
    "reproduce": _Command(Reproduce, run_reproduce),
    "bench": _Command(Bench, run_bench),
}
_SHELLS = ("bash", "zsh", "fish", "tcsh")
_HELP = """\
understudy: a laboratory for teacher-student learning

Studies
  understudy list                       list the studies of each paper, and the runs made here
  understudy run STUDY [options]        run a study, or resume it; `run FILE.py` runs a study of your own
  understudy report RUN                 draw the figures and the page of a run again
  understudy claims                     show the claims of the papers with what was measured
  understudy reproduce [PAPER …]        run every study of the papers, and write one page about all of them

Your networks
  understudy example FOLDER             write a teacher, students and inputs to try these commands on
  understudy align TEACHER STUDENT      match student nodes with teacher nodes, in any two network files
  understudy check TEACHER STUDENT      check the theorems on two network files; `check RUN` on the networks of a run
  understudy prune STUDENT              remove the nodes of a student that learned nothing, and report the cost
  understudy connect A B                find a path of low loss between two students of one teacher
  understudy compare A B                decide whether two ReLU networks are one function; `compare RUN` for all pairs
  understudy recover NETWORK            recover the parameters of a ReLU network from its values alone
  understudy start TEACHER              initialise a student for a two-layer |·| teacher; optionally descend from there
  understudy predict NETWORK INPUTS     classify images within a time budget, or encode and decode sentences

This program
  understudy bench                      measure how fast this machine trains, compared with what it can do
  understudy COMMAND --help             show the options of a command; `understudy run STUDY --help` those of a study
  understudy --completion SHELL         print a completion script for bash, zsh, fish or tcsh; to try it in bash:
                                        source <(understudy --completion bash)
  understudy --version

Start with: understudy run two-layer --quick
"""


def main() -> int:
    """Run the console script and return its exit status.

    Returns:
        0; 1 for an error in understudy; 2 for an error that the user can correct; 130 if interrupted; 141 if the
        program that reads standard output ended first.
    """
    words = sys.argv[1:]
    return run_guarded(lambda: _dispatch(words), words)


def _dispatch(words: list[str]) -> None:
    name, rest = (words or ["--help"])[0], words[1:]
    if name in ("-h", "--help", "help"):
        print(_HELP, end="")
    elif name == "--version":
        from understudy import __version__

        print(f"understudy {__version__}")
    elif name == "--completion":
        _print_completion(rest)
    elif name == "run":
        run_study(rest)
    elif name in _COMMANDS:
        command = _COMMANDS[name]
        if issubclass(command.options, StackOptions):
            rest = current_words(rest)
        command.function(parse(command.options, rest, f"understudy {name}"))
    else:
        known = ["run", *_COMMANDS]
        raise UserError(f"there is no command {name!r}; {suggest(name, known)}commands are {', '.join(known)}")


def _print_completion(words: list[str]) -> None:
    """Print a shell script that completes commands, studies and options."""
    if len(words) != 1 or words[0] not in _SHELLS:
        raise UserError(f"--completion needs a shell, one of {', '.join(_SHELLS)}, got {' '.join(words) or 'nothing'}")
    from tyro.conf import subcommand

    from understudy.lab.discovery import studies

    def union(kinds: dict[str, type]) -> Any:
        return Union[tuple(Annotated[kind, subcommand(name)] for name, kind in kinds.items())]  # noqa: UP007

    runs = union({name: run_options(study, quick=False) for name, study in studies().items()})
    commands = {name: command.options for name, command in _COMMANDS.items()}
    parse(union({**commands, "run": runs}), ["--tyro-print-completion", *words], "understudy")
