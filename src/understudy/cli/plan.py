"""What `understudy run STUDY --plan` shows: how the study would be carried out here."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from understudy.cli.parsing import emit

if TYPE_CHECKING:
    from understudy.lab.study import Study

_GIGA = 1e9


def show_plan(study: Study, out: Path, as_json: bool) -> None:
    """Groups, pieces, memory and about how long; nothing is trained or written."""
    from understudy.lab.execute import plan
    from understudy.report.terminal.tables import duration, output, plain_table

    experiment, labels, ahead = plan(study, out)
    looks = experiment.epochs + 1
    seconds = ahead.seconds(experiment.epochs, looks)
    if as_json:
        rows = [
            {"group": label, "networks": row.networks, "sizes": row.sizes, "engine": row.engine}
            | {"at_once": row.at_once, "pieces": row.pieces, "flop": row.work * experiment.epochs + row.looking * looks}
            for label, row in zip(labels, ahead.rows, strict=True)
        ]
        emit(
            {"study": study.name, "device": str(ahead.device), "epochs": experiment.epochs, "steps": experiment.steps}
            | {"groups": rows, "waves": len(ahead.waves), "memory": ahead.memory, "free": ahead.free}
            | {"seconds": seconds}
        )
        return
    networks = sum(row.networks for row in ahead.rows)
    console = output()
    console.print(
        f"{study.command()}: {networks:,} networks, {experiment.epochs:,} epochs of {experiment.steps:,} steps, "
        f"on {ahead.device}\n",
        soft_wrap=True,
    )
    table = plain_table("group", "networks", "sizes", "engine", "at once", "pieces", "TFLOP")
    for label, row in zip(labels, ahead.rows, strict=True):
        tera = (row.work * experiment.epochs + row.looking * looks) / 1e12
        sizes = "-".join(map(str, row.sizes))
        table.add_row(
            label, f"{row.networks:,}", sizes, row.engine, f"{row.at_once:,}", f"{row.pieces:,}", f"{tera:.3g}"
        )
    console.print(table)
    parts = ", ".join(f"{name} {count / _GIGA:.3g}" for name, count in ahead.memory.items())
    total = sum(ahead.memory.values()) / _GIGA
    console.print(f"memory: {total:.3g} GB of {ahead.free / _GIGA:.3g} GB that may be used ({parts})", soft_wrap=True)
    if len(ahead.waves) > 1:
        console.print(f"the data does not fit at once: {len(ahead.waves)} waves an epoch, each makes its data anew")
    console.print(f"time: about {duration(seconds)}, from the rate of a large matrix product measured now")
