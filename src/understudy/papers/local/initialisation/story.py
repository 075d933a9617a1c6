"""Starts in words and figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from understudy.papers.local.initialisation.claims import by_samples, by_students, reached, slopes
from understudy.papers.local.initialisation.study import ALGORITHMS, BESIDE, REACHED
from understudy.papers.specialization.dynamics.claims import part
from understudy.report import style
from understudy.report.figures import Curves, Panel, Series
from understudy.report.story import Figure, Number, Story, counted
from understudy.store import Run

if TYPE_CHECKING:
    from understudy.papers.local.initialisation.study import Initialisation

_NAMES = {"scattered": "scattered", "subspace": "in the span", "small": "small", "large": "large"}
_COLOURS = dict(zip(_NAMES, (style.ORANGE, style.BLUE, style.GREEN, style.PURPLE), strict=True))
_FLOOR = 1e-16


def story(study: Initialisation, run: Run) -> Story:
    figures = [
        Figure(
            "start-loss",
            "Lengths fitted, the loss of random directions falls with their number",
            "The loss that students start at: directions from the whole space (algorithm 1), or from the span of the "
            "teacher as samples show it (algorithm 2), where the number of inputs no longer counts. Median and "
            f"quartiles.{_said(study, run, 'start')}",
            "S4 algorithms 1, 2",
            _losses(study, run),
        ),
        Figure(
            "descent",
            "Descent from these starts",
            "The loss of gradient descent, from the two and, beside them, from normal weights of small and of large "
            "scale; dashed 1e−6. Median and quartiles; large starts have a smaller rate."
            + _said(study, run, "descent")
            + "".join(f" Mind {caution}." for caution in study.warnings()),
            "S4 theorem 5",
            _descents(study, run),
        ),
    ]
    steep = slopes(study, run)
    if steep:
        span = Figure(
            "span",
            "Four times the samples, half the angle",
            "The largest angle between the teacher's span and the one that N samples show; dotted N^(−1/2). Median and "
            "quartiles.",
            "S4 lemma E.3",
            _spans(study, run),
        )
        figures.insert(1, span)
    found = {by: reached(study, run, by) for by in ALGORITHMS}
    count, total = (sum(values) for values in zip(*((f.arrived, len(f.steps)) for f in found.values()), strict=True))
    size = study.settings(study.dim)[-1]
    least = {by: float(np.median(by_students(run, by, *size)[1], 1)[-1]) for by in ALGORITHMS}
    numbers = [
        Number(f"{count} of {total}", "descents reach 1e−6"),
        *(
            Number(f"{np.median(f.steps):,.0f}" if f.arrived > len(f.steps) / 2 else "–", f"steps, {_NAMES[by]}")
            for by, f in found.items()
        ),
    ]
    if steep:
        numbers.append(Number(style.signed(round(float(np.median([*steep.values()])), 3)), "power of N of the angle"))
    return Story(
        f"With {max(study.students)} students of {counted(size[0], 'teacher node')} in {size[1]} dimensions and fitted "
        f"lengths, scattered ones start at a loss of {style.number(least['scattered'])}, those in the span that "
        f"{study.span_samples:,} samples show at {style.number(least['subspace'])}; descent from them reaches "
        f"1e−6 in {count} of {total} networks.",
        tuple(numbers),
        tuple(figures),
    )


def _said(study: Initialisation, run: Run, of: str) -> str:
    """What had to be done for these starts, in sentences."""
    from understudy.papers.local.theory.starts import span_notes

    words = []
    singular, idle = (run.series(name)[part(run, of), 0] for name in ("singular", "idle"))
    fitted = np.isfinite(singular)
    students = run.column("students")[part(run, of)].astype(float)
    if count := int((singular > 0).sum()):
        words.append(
            f"The Gram matrix of the directions is singular in {count:,} of {fitted.sum():,} starts, by up to "
            f"{counted(int(np.nanmax(singular)), 'dimension')}, left out of the least squares."
        )
    if np.nansum(idle):
        share = idle / students
        words.append(
            f"Least squares gives {np.nanmedian(share):.0%} of the students length 0 (median; at most "
            f"{np.nanmax(share):.0%}), and their gradient is 0 too."
        )
    sizes = study.settings(study.dim if of == "start" else study.descent_dim)
    notes = [note for size in sizes for note in span_notes(*size, study.span_samples)]
    words += [f"{note[0].upper()}{note[1:]}." for note in dict.fromkeys(notes)]
    return "".join(f" {word}" for word in words)


def _quartiles(label: str, x: np.ndarray, values: np.ndarray, colour: str | None = None) -> Series:
    """Of [x, seed]."""
    low, middle, high = np.nanquantile(values, [0.25, 0.5, 0.75], axis=1)
    return Series(label, x, middle, low, high, colour=colour)


def _losses(study: Initialisation, run: Run) -> Curves:
    panels = []
    for nodes, dim in study.settings(study.dim):
        lines = tuple(_quartiles(_NAMES[by], *by_students(run, by, nodes, dim), _COLOURS[by]) for by in ALGORITHMS)
        panels.append(Panel(f"r = {nodes}, d = {dim}", "students m", "loss at the start", lines, True, True))
    return Curves(tuple(panels), note=f"n = {counted(study.seeds, 'seed')}")


def _spans(study: Initialisation, run: Run) -> Curves:
    lines = []
    for nodes, dim in study.settings(study.dim):
        samples, angles = by_samples(run, nodes, dim)
        if len(samples):
            lines.append(_quartiles(f"r = {nodes}, d = {dim}", samples, angles))
    panel = Panel("", "samples N", "angle to the teacher's span (rad)", tuple(lines), True, True, slope=-0.5)
    return Curves((panel,), note=f"n = {counted(study.seeds, 'seed')}")


def _descents(study: Initialisation, run: Run) -> Curves:
    probes, panels = study.probes(), []
    at = np.isin(run.epochs, probes)
    for nodes, dim in study.settings(study.descent_dim):
        lines = []
        for by in (*ALGORITHMS, *BESIDE):
            which = part(run, "descent", by=by, teacher_nodes=nodes, dim=dim)
            losses = np.maximum(run.series("loss")[which][:, at], _FLOOR)
            there = np.isfinite(losses).any(0)
            there[0] = False  # step 0 has no place on a logarithmic axis
            lines.append(_quartiles(_NAMES[by], np.array(probes, float)[there], losses[:, there].T, _COLOURS[by]))
        panels.append(Panel(f"r = {nodes}, d = {dim}", "step", "loss", tuple(lines), True, True, REACHED, "1e−6"))
    return Curves(tuple(panels), note=f"n = {counted(study.descents, 'seed')}, m = {study.descent_students}")
