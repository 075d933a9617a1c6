"""Figures and headline of `equivalence` (Phuong & Lampert 2020, theorem 2.1, lemma 2.4)."""

import numpy as np
import pandas as pd

from understudy.papers.equivalence.equivalence import claims
from understudy.papers.equivalence.equivalence.study import ZERO, Equivalence
from understudy.report import style
from understudy.report.figures import Curves, Dots, Panel, Series
from understudy.report.story import Figure, Number, Story, counted
from understudy.store import Run

_FLOOR = 1e-17
"""Smallest difference that is drawn."""
_LEAST = 1e-34
"""Smallest loss that is drawn."""


def story(study: Equivalence, run: Run) -> Story:
    """Differences of equal and changed pairs, the networks of lemma 2.4, and students of zero loss."""
    equal, changed = claims.pairs(run, changed=False), claims.pairs(run, changed=True)
    recognised = int((equal["relation"] == "permutation and scaling").sum())
    distinguished = int((changed["relation"] == "different").sum())
    counts, built = claims.student_counts(run), claims.constructed(run)
    figures = [
        Figure(
            "pairs",
            "Equal and changed networks are distinguished",
            "Largest differences of canonical parameters and of outputs: pairs of one function, permuted and rescaled "
            f"over {study.magnitudes:g} orders of magnitude, and pairs with one weight changed by {study.change:g} "
            "relative. Parameters are relative to the length of a unit's weights and bias, outputs to their standard "
            "deviation on the box.",
            "S3 theorem 2.1",
            _differences(equal, changed, study.tolerance),
        )
    ]
    words = f"{recognised:,} of {len(equal):,} pairs of one function are recognised, and {distinguished:,} of "
    words += (
        f"{len(changed):,} pairs with one weight changed by {study.change:g} are distinguished by a witness, an input "
    )
    words += "at which the outputs differ"
    numbers = [
        Number(f"{recognised:,} of {len(equal):,}", "pairs of one function recognised"),
        Number(style.number(float(equal["map_error"].max())), "largest relative error of the scalings"),
        Number(f"{distinguished:,} of {len(changed):,}", "changed pairs with a witness"),
    ]
    if len(built):
        found = built[built["relation"] != "not recovered"]
        match = int((found["relation"] == "permutation and scaling").sum())
        some = f"all {len(found)}" if match == len(found) > 1 else f"{match} of {len(found)}"
        words += f"; {some} networks of lemma 2.4 recovered from their outputs have the constructed parameters"
        numbers.append(Number(f"{len(found)} of {len(built)}", "networks of lemma 2.4 recovered from their outputs"))
        if len(found):
            figures.append(_constructed(found))
    if len(counts):
        zero, same = int(counts["zero"].sum()), int(counts["as_teacher"].sum())
        words += f"; {same} of {zero:,} students of zero loss are the teacher's function on the whole box"
        numbers.append(Number(f"{same} of {zero:,}", "students of zero loss that are the teacher's function"))
        figures.append(_students(run, counts))
    return Story(f"{words}.", tuple(numbers), tuple(figures))


def _differences(equal: pd.DataFrame, changed: pd.DataFrame, tolerance: float) -> Curves:
    def series(label: str, rows: pd.DataFrame, colour: str) -> Series:
        x, y = (np.maximum(rows[name].to_numpy(float), _FLOOR) for name in ("parameters", "outputs"))
        return Series(label, x, y, points=True, colour=colour)

    panels = []
    for layers, ours in equal.groupby("layers"):
        theirs = changed[changed["layers"] == layers]
        drawn = series("one function", ours, style.BLUE), series("one weight changed", theirs, style.VERMILLION)
        panels.append(Panel(f"{layers} layers", "parameters", "outputs", drawn, True, True, tolerance, "tolerance"))
    return Curves(tuple(panels), note=f"n = {len(equal) + len(changed):,} pairs")


def _constructed(found: pd.DataFrame) -> Figure:
    columns = {
        f"{layers} layers": (np.maximum(some["parameters"].to_numpy(float), _FLOOR), np.full(len(some), -1))
        for layers, some in found.groupby("layers")
    }
    return Figure(
        "constructed",
        "The function determines the parameters",
        "Networks of lemma 2.4, recovered from their outputs alone: largest difference from the constructed parameters "
        "after matching, one point per architecture.",
        "S3 lemma 2.4",
        Dots.from_columns(columns, "difference of parameters", bound=1e-9, bound_words="tolerance", floor=_FLOOR),
    )


def _students(run: Run, counts: pd.DataFrame) -> Figure:
    found = run.table("students").to_pandas()
    panels = []
    for teacher, some in found.groupby("teacher", sort=False):
        lines = []
        for hidden, own in some.groupby("hidden", sort=False):
            losses = np.maximum(np.sort(own["loss"].to_numpy(float)), _LEAST)
            lines.append(Series(f"{hidden} units", np.arange(1, len(losses) + 1) / len(losses), losses))
        panels.append(
            Panel(f"teacher {teacher}", "share of students", "loss / variance", tuple(lines), False, True, ZERO, "zero")
        )
    parts = [
        f"{row.hidden} units, teacher {row.teacher}: {row.zero} of {row.students} reach zero, "
        f"{counted(row.functions, 'function')} and {counted(row.parameters, 'set')} of parameters, "
        f"{row.as_teacher} the teacher's function" + (f", {row.undecided} not decided" if row.undecided else "")
        for row in counts.itertuples()
    ]
    return Figure(
        "students",
        "Zero loss on samples is not yet the same function",
        "Losses of students fitted to a teacher by the Levenberg–Marquardt method, in ascending order. On the box, up "
        f"to permutation and scaling: {'; '.join(parts)}.",
        "S3 theorem 2.1",
        Curves(tuple(panels)),
    )
