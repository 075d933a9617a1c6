"""`understudy run STUDY`: run a study, or go on where it stopped."""

from __future__ import annotations

from dataclasses import field, make_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from understudy.cli.parsing import emit, nearest, parse
from understudy.cli.plan import show_plan
from understudy.errors import UserError

if TYPE_CHECKING:
    from understudy.lab import Study
    from understudy.store import Run


def run_command(words: list[str]) -> int:
    kind, rest = _study(words)
    options: Any = parse(run_options(kind, "--quick" in rest), rest, f"understudy run {kind.name}")
    if options.plan:
        show_plan(options.study, options.out, options.json)
        return 0
    from understudy.lab.execute import execute
    from understudy.report.terminal.tables import Watch

    with Watch(options.study.command()) as watch:
        run = execute(options.study, options.out, watch)
    show(run, options.json)
    return 0


def _study(words: list[str]) -> tuple[type[Study], list[str]]:
    from understudy.lab.discovery import studies

    if not words or words[0].startswith("-"):
        if words and words[0] in ("-h", "--help"):
            print("usage: understudy run STUDY [options]\n")
            for study in studies().values():
                print(f"  {study.name:<14} {study.summary}")
            print("\nOptions of a study: understudy run STUDY --help")
            raise SystemExit(0)
        raise UserError(f"run: name a study first; studies are {', '.join(studies())}")
    if words[0] not in studies():
        raise UserError(
            f"{words[0]}: no such study; {nearest(words[0], list(studies()))}studies are {', '.join(studies())}"
        )
    return studies()[words[0]], words[1:]


def run_options(study: type[Study], quick: bool) -> type:
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


def show(run: Run, as_json: bool) -> None:
    from understudy.lab.summary import summary
    from understudy.report.terminal.tables import claims_table, output, summary_table

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
