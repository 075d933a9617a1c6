"""The command line."""

from __future__ import annotations

import sys
from collections.abc import Callable

from understudy.cli.align import align_command
from understudy.cli.bench import bench_command
from understudy.cli.check import check_command
from understudy.cli.claims import claims_command
from understudy.cli.connect import connect_command
from understudy.cli.list import list_command
from understudy.cli.parsing import nearest
from understudy.cli.prune import prune_command
from understudy.cli.report import report_command
from understudy.cli.run import run_command
from understudy.cli.start import start_command
from understudy.errors import UserError

_HELP = """\
understudy: a laboratory for teacher-student learning

  understudy list                       the studies, and the runs made here
  understudy run STUDY [options]        run a study; the same command goes on where it stopped
  understudy report RUN                 draw a run's figures and page again
  understudy claims                     what the papers claim, and what was measured
  understudy align TEACHER STUDENT      which student node matches which teacher node, in any two network files
  understudy check TEACHER STUDENT      what the theorems say of two network files; `check RUN` of a run's networks
  understudy prune STUDENT              a student without the nodes that learned nothing, and what that costs
  understudy connect A B                a path of low loss between two students of one teacher
  understudy start TEACHER              a student to start from, for a teacher of |·| neurons, and descent from there
  understudy bench                      how fast this machine trains, against what it can do

  understudy COMMAND --help             the options of a command; `understudy run STUDY --help` those of a study
  understudy --version

Start with: understudy run two-layer --quick
"""


def main() -> int:
    """The console script. Exit status 2: something the user can put right; 130: interrupted."""
    words = sys.argv[1:]
    try:
        return _dispatch(words)
    except UserError as error:
        print(f"understudy: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nunderstudy: interrupted; the same command goes on where it stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:
        sys.stderr.close()
        return 141


def _dispatch(words: list[str]) -> int:
    commands: dict[str, Callable[[list[str]], int]] = {
        "list": list_command,
        "run": run_command,
        "report": report_command,
        "claims": claims_command,
        "align": align_command,
        "check": check_command,
        "prune": prune_command,
        "connect": connect_command,
        "start": start_command,
        "bench": bench_command,
    }
    if not words or words[0] in ("-h", "--help", "help"):
        print(_HELP, end="")
        return 0
    if words[0] == "--version":
        import understudy

        print(f"understudy {understudy.__version__}")
        return 0
    if words[0] not in commands:
        raise UserError(
            f"{words[0]}: no such command; {nearest(words[0], list(commands))}commands are {', '.join(commands)}"
        )
    return commands[words[0]](words[1:])
