"""`understudy run STUDY --plan`: how the study would be executed on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from understudy._numbers import number
from understudy.cli.parsing import emit

if TYPE_CHECKING:
    from understudy.lab.study import PiecesPlan, Study

_GIGA = 1e9


def show_plan(study: Study, out: Path, as_json: bool) -> None:
    """Show groups, pieces, memory and approximate time; nothing is trained or written."""
    from understudy._numbers import duration
    from understudy.lab.execute import plan
    from understudy.lab.study import PiecesPlan
    from understudy.report.terminal.tables import output, plain_table

    found = plan(study, out)
    if isinstance(found, PiecesPlan):
        return _show_pieces(study, found, as_json)
    experiment, labels, ahead = found
    probes = experiment.epochs + 1
    seconds = ahead.estimate_seconds(experiment.epochs, probes)
    flop = [row.step_flops * experiment.epochs + row.probe_flops * probes for row in ahead.rows]
    if as_json:
        rows = [
            {"group": label, "networks": row.networks, "sizes": row.sizes, "engine": row.engine}
            | {"at_once": row.piece_size, "pieces": row.pieces, "flop": work}
            for label, row, work in zip(labels, ahead.rows, flop, strict=True)
        ]
        emit(
            {"study": study.name, "device": str(ahead.device), "epochs": experiment.epochs, "steps": experiment.steps}
            | {"groups": rows, "waves": len(ahead.waves), "memory": ahead.memory, "free": ahead.free}
            | {"seconds": seconds}
        )
        return None
    networks = sum(row.networks for row in ahead.rows)
    console = output()
    console.print(
        f"{study.command()}: {networks:,} networks, {experiment.epochs:,} epochs of {experiment.steps:,} steps, "
        f"on {ahead.device}\n",
        soft_wrap=True,
    )
    table = plain_table("group", "networks", "sizes", "engine", "at once", "pieces", "TFLOP")
    for label, row, work in zip(labels, ahead.rows, flop, strict=True):
        sizes, counts = "-".join(map(str, row.sizes)), (f"{row.piece_size:,}", f"{row.pieces:,}")
        table.add_row(label, f"{row.networks:,}", sizes, row.engine, *counts, number(work / 1e12))
    console.print(table)
    parts = ", ".join(f"{name.replace('_', ' ')} {number(count / _GIGA)}" for name, count in ahead.memory.items())
    total = sum(ahead.memory.values()) / _GIGA
    console.print(
        f"memory: {number(total)} GB of {number(ahead.free / _GIGA)} GB that may be used ({parts})", soft_wrap=True
    )
    if len(ahead.waves) > 1:
        console.print(f"the data does not fit into memory: {len(ahead.waves)} waves per epoch, each regenerates it")
    console.print(f"time: about {duration(seconds)}, from the rate of a large matrix product measured now")
    return None


def _show_pieces(study: Study, found: PiecesPlan, as_json: bool) -> None:
    """Show what a computed study that trains would do."""
    from understudy._numbers import duration
    from understudy.report.terminal.tables import output, plain_table

    if as_json:
        return emit({"study": study.name, "groups": list(found.rows), "notes": found.notes, "seconds": found.seconds})
    console = output()
    console.print(f"{study.command()}: {found.summary}\n", soft_wrap=True)
    table = plain_table(*(name.replace("_", " ") for name in found.rows[0]))
    for row in found.rows:
        table.add_row(*(f"{value:,}" if isinstance(value, int) else str(value) for value in row.values()))
    console.print(table)
    for note in found.notes:
        console.print(note, soft_wrap=True)
    return console.print(f"time: about {duration(found.seconds)}, from steps taken now", soft_wrap=True)
