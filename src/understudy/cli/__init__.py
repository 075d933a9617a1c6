"""Words in, words out: the command line."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, make_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from understudy._errors import UserError
from understudy.cli.align import align_command
from understudy.cli.bench import bench_command
from understudy.cli.check import check_command
from understudy.cli.connect import connect_command
from understudy.cli.options import emit, parsed
from understudy.cli.plan import show_plan
from understudy.cli.prune import prune_command
from understudy.cli.start import start_command

if TYPE_CHECKING:
    from understudy.store import Run
    from understudy.studies import Study

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


@dataclass(frozen=True)
class _List:
    """The studies there are, and the runs made here."""

    out: Path = Path("runs")
    """Folder that holds runs."""
    json: bool = False
    """Print one JSON object and nothing else."""


@dataclass(frozen=True)
class _Report:
    """Decide a run's claims and draw its figures and page again, from its tables."""

    run: Path
    """The run's folder, as `understudy run` printed it."""
    json: bool = False
    """Print one JSON object and nothing else."""


@dataclass(frozen=True)
class _Claims:
    """What the papers claim, and what was measured: by the project's full runs, and by the runs made here."""

    out: Path = Path("runs")
    """Folder that holds runs."""
    keep: Path | None = None
    """A run's folder, whose claims go into the project's record."""
    markdown: bool = False
    """Print the record as a page in Markdown."""
    json: bool = False
    """Print one JSON object and nothing else."""


def _nearest(word: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(word, known, 1)
    return f"did you mean {near[0]}? " if near else ""


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
        "list": _list,
        "run": _run,
        "report": _report,
        "claims": _claims,
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
            f"{words[0]}: no such command; {_nearest(words[0], list(commands))}commands are {', '.join(commands)}"
        )
    return commands[words[0]](words[1:])


def _runs(out: Path) -> list[Run]:
    """The finished runs of known studies under a folder, oldest first."""
    from understudy.store import Run
    from understudy.studies import STUDIES

    pages = sorted(out.glob("*/*/report.html"), key=lambda page: page.stat().st_mtime)
    runs = []
    for page in pages:
        try:
            run = Run(page.parent)
            if run.config.get("study") in STUDIES:
                STUDIES[run.config["study"]].from_config(run.config)
                runs.append(run)
        except UserError as error:
            print(f"understudy: passed over: {error}", file=sys.stderr)
    return runs


def _list(words: list[str]) -> int:
    options = parsed(_List, words, "understudy list")
    from understudy.report.terminal import output, plain_table
    from understudy.studies import STUDIES

    runs = _runs(options.out)
    if options.json:
        studies = [
            {"name": s.name, "summary": s.summary, "figures": s.figures, "claims": s.decides.split()}
            for s in STUDIES.values()
        ]
        emit({"studies": studies, "runs": [{"study": r.config["study"], "run": str(r.folder)} for r in runs]})
        return 0
    table = plain_table("study", "what it shows", "figures", "claims")
    for study in STUDIES.values():
        table.add_row(study.name, study.summary, study.figures, study.decides)
    console = output()
    console.print(table)
    for run in runs:
        console.print(f"{run.config['study']:<14} {run.folder}", soft_wrap=True)
    return 0


def _study(words: list[str]) -> tuple[type[Study], list[str]]:
    from understudy.studies import STUDIES

    if not words or words[0].startswith("-"):
        if words and words[0] in ("-h", "--help"):
            print("usage: understudy run STUDY [options]\n")
            for study in STUDIES.values():
                print(f"  {study.name:<14} {study.summary}")
            print("\nOptions of a study: understudy run STUDY --help")
            raise SystemExit(0)
        raise UserError(f"run: name a study first; studies are {', '.join(STUDIES)}")
    if words[0] not in STUDIES:
        raise UserError(
            f"{words[0]}: no such study; {_nearest(words[0], list(STUDIES))}studies are {', '.join(STUDIES)}"
        )
    return STUDIES[words[0]], words[1:]


def _run_options(study: type[Study], quick: bool) -> type:
    """The study's options beside those of every run; `--quick` changes the defaults, and what is typed wins."""
    from tyro.conf import arg

    out = "Folder that holds runs; this one goes to OUT/STUDY/<hash of its configuration>."
    small = "The same study made small: other defaults, and what is typed wins."
    ahead = "Only show how it would be carried out here: groups, pieces, memory, about how long."
    one_object = "Print one JSON object on standard output, and nothing else there."
    options: list[Any] = [
        ("study", study, field(default=study.quick() if quick else study())),
        ("out", Annotated[Path, arg(help=out)], field(default=Path("runs"))),
        ("quick", Annotated[bool, arg(help=small)], field(default=False)),
        ("plan", Annotated[bool, arg(help=ahead)], field(default=False)),
        ("json", Annotated[bool, arg(help=one_object)], field(default=False)),
    ]
    return make_dataclass("Options", options, frozen=True, namespace={"__doc__": ""})


def _run(words: list[str]) -> int:
    kind, rest = _study(words)
    options: Any = parsed(_run_options(kind, "--quick" in rest), rest, f"understudy run {kind.name}")
    if options.plan:
        show_plan(options.study, options.out, options.json)
        return 0
    from understudy.report.terminal import Watch
    from understudy.studies.perform import perform

    with Watch(options.study.command()) as watch:
        run = perform(options.study, options.out, watch)
    _show(run, options.json)
    return 0


def _show(run: Run, as_json: bool) -> None:
    from understudy.report.terminal import claims_table, output, summary_table
    from understudy.studies.summary import summary

    headline = (run.folder / "headline.txt").read_text(encoding="utf-8").strip()
    if as_json:
        claims = [claim.as_dict() for claim in run.claims]
        emit(
            {"run": str(run.folder), "headline": headline, "claims": claims, "report": str(run.folder / "report.html")}
        )
        return
    console = output()
    if settings := summary(run):
        console.print(summary_table(settings))
    console.print(f"{headline}\n", soft_wrap=True)
    if run.claims:
        console.print(claims_table(run.claims))
    console.print(f"report: {run.folder / 'report.html'}", soft_wrap=True)


def _report(words: list[str]) -> int:
    options = parsed(_Report, words, "understudy report")
    from understudy.store import Run
    from understudy.store.files import disk_errors
    from understudy.store.folder import RunFolder
    from understudy.studies.tell import tell

    run = Run(options.run)
    kind = _known_study(run)
    with disk_errors(run.folder, "make it writable, or copy the run elsewhere"), RunFolder(run.folder).alone():
        tell(kind.from_config(run.config), run)
    _show(Run(options.run), options.json)
    return 0


def _known_study(run: Run) -> type[Study]:
    from understudy.studies import STUDIES

    kind = STUDIES.get(run.config.get("study", ""))
    if kind is None:
        raise UserError(
            f"{run.folder}: is of study {run.config.get('study')}, which is not one of {', '.join(STUDIES)}"
        )
    return kind


def _claims(words: list[str]) -> int:
    options = parsed(_Claims, words, "understudy claims")
    from rich.text import Text

    from understudy.report.terminal import output, plain_table, verdict
    from understudy.store import Run
    from understudy.store.files import disk_errors
    from understudy.studies import record

    if options.keep is not None:
        run = Run(options.keep)
        _known_study(run)
        with disk_errors(record.RECORD, "make it writable"):
            kept = record.keep(run)
        print(f"{kept} claims of {options.keep} are in the record {record.RECORD}")
        return 0
    if options.markdown:
        print(record.as_markdown(), end="")
        return 0
    kept_here = [(f"{m.machine}, {m.commit}", m) for m in record.recorded()]
    made_here = [(str(run.folder), m) for run in _runs(options.out) for m in record.measured(run)]
    if options.json:
        entries = [{"from": where} | m.as_dict() for where, m in kept_here + made_here]
        listed = [{"id": r.id, "statement": r.statement, "value": r.value, "study": r.study} for r in record.rows()]
        emit({"claims": [row | {"measured": [e for e in entries if e["id"] == row["id"]]} for row in listed]})
        return 0
    table = plain_table("claim", "what", "paper", "measured", "n", "holds", "from")
    for row in record.rows():
        found = [(where, m.claim) for where, m in kept_here + made_here if m.claim.id == row.id]
        if not found:
            table.add_row(row.id, Text(row.statement), row.value, "", "", verdict(None), row.study)
            continue
        holding = f"{sum(claim.holds for _, claim in found)} of {len(found)}"
        table.add_row(row.id, Text(row.statement, style="bold"), "", "", "", holding, "")
        for where, claim in found:
            part = Text(f"  {claim.part or claim.statement}")
            table.add_row("", part, claim.paper, claim.measured, f"{claim.n:,}", verdict(claim.holds), where)
    output().print(table)
    return 0
