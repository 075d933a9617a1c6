"""Figures and headline of `initialisation` (Zhou, Ge & Jin 2021, algorithms 1, 2, theorem 5)."""

from dataclasses import replace
from typing import Any

import numpy as np
import xarray as xr

from understudy.papers.local.initialisation.claims import descents, initial_losses, sample_slopes, span_units
from understudy.papers.local.initialisation.study import ALGORITHMS, REACHED, Initialisation
from understudy.papers.local.shared import warning_words
from understudy.report import style
from understudy.report.figures import Curves
from understudy.report.story import Figure, Number, Story, counted
from understudy.store import Run

_NAMES = {"scattered": "scattered", "subspace": "in the span", "small": "small", "large": "large"}
_COLOURS = (style.ORANGE, style.BLUE, style.GREEN, style.PURPLE)
_FLOOR = 1e-16
"""Smaller losses are drawn here."""


def story(study: Initialisation, run: Run) -> Story:
    """Initial losses, estimated spans, and descent."""
    figures = (
        Figure(
            "start-loss",
            "With fitted lengths, the loss of random directions falls with their number",
            "Initial loss of students with directions from the whole space (algorithm 1), or from the teacher's span "
            "estimated from samples (algorithm 2), where the number of inputs does not matter."
            + _notes(study, run, "start"),
            "S4 algorithms 1, 2",
            _losses(study, run),
        ),
        *_spans(study, run),
        Figure(
            "descent",
            "Descent from these initial weights",
            "Loss of gradient descent from both and, for comparison, from normal weights of small and of large scale "
            "(with a smaller rate); dashed is 10⁻⁶." + _notes(study, run, "descent") + warning_words(study),
            "S4 theorem 5",
            _descents(study, run),
        ),
    )
    found = {by: descents(run, by) for by in ALGORITHMS}
    reached = f"{sum(f.arrived for f in found.values())} of {sum(len(f.steps) for f in found.values())}"
    numbers = [
        Number(reached, "descents reach 10⁻⁶"),
        *(
            Number(f"{np.median(f.steps):,.0f}" if f.arrived > len(f.steps) / 2 else "–", f"steps, {_NAMES[by]}")
            for by, f in found.items()
        ),
    ]
    if steep := sample_slopes(study, run):
        numbers.append(Number(f"{round(float(np.median([*steep.values()])), 3):g}", "power of N of the angle"))
    nodes, dim = study.settings(study.dim)[-1]
    least = initial_losses(run, nodes, dim).isel(students=-1).median("seed")
    scattered, subspace = (style.number(float(least.sel(by=by))) for by in ALGORITHMS)
    return Story(
        f"With {max(study.students)} students of {counted(nodes, 'teacher node')} in {dim} dimensions and fitted "
        f"lengths, scattered ones have an initial loss of {scattered}, those in the span estimated from "
        f"{study.span_samples:,} samples {subspace}; descent from them reaches 10⁻⁶ in {reached} networks.",
        tuple(numbers),
        figures,
    )


def _notes(study: Initialisation, run: Run, part: str) -> str:
    """Sentences on singular least squares, students of length 0 and spans, for the networks of one part of the run."""
    from understudy.papers.local.theory.starts import span_notes

    some = run.select(part=part)
    singular, idle = some.start("singular"), some.start("idle")
    share = idle / some.column("students").astype(float)
    words = []
    if count := int((singular > 0).sum()):
        words.append(
            f"The Gram matrix of the directions is singular in {count:,} of {np.isfinite(singular).sum():,} networks, "
            f"by up to {counted(int(np.nanmax(singular)), 'dimension')}, which least squares leaves out."
        )
    if np.nansum(idle):
        words.append(
            f"Least squares gives {np.nanmedian(share):.0%} of the students length 0 (median; at most "
            f"{np.nanmax(share):.0%}), and their gradient is 0, too."
        )
    sizes = study.settings(study.dim if part == "start" else study.descent_dim)
    notes = [note for size in sizes for note in span_notes(*size, study.span_samples)]
    words += [f"{note[0].upper()}{note[1:]}." for note in dict.fromkeys(notes)]
    return "".join(f" {word}" for word in words)


def _size_words(nodes: int, dim: int) -> str:
    return f"r = {nodes}, d = {dim}"


def _by_size(study: Initialisation, dims: tuple[int, ...], losses: xr.DataArray, **more: Any) -> Curves:
    """Losses in one panel per size of the teacher, with one line per kind of initial weights."""
    drawn = Curves.from_array(
        losses,
        panel=("teacher_nodes", "dim"),
        line="by",
        titles={size: _size_words(*size) for size in study.settings(dims)},
        labels=_NAMES,
        colours=_COLOURS[: losses.sizes["by"]],
        log_x=True,
        log_y=True,
        **more,
    )
    return replace(drawn, share="none")


def _losses(study: Initialisation, run: Run) -> Curves:
    losses = run.array("loss", "teacher_nodes dim by students seed", part="start")
    return _by_size(study, study.dim, losses, name="initial loss", x="students", x_name="students m")


def _spans(study: Initialisation, run: Run) -> list[Figure]:
    """Angle of the estimated span and distance of the moment by the samples; no figure with fewer than two numbers."""
    columns = {"angle": "angle to the teacher's span (rad)", "distance": "distance of moments ‖M̂ − M‖"}
    panels, shown = [], None
    for column, name in columns.items():
        found = {size: each for size, each in span_units(study, run, column).items() if len(each) > 1}
        if not found:
            continue
        array = xr.concat([xr.DataArray(each) for each in found.values()], "size")
        shown = Curves.from_array(
            array.assign_coords(size=[_size_words(*size) for size in found]),
            name=name,
            x="samples",
            panel=(),
            line="size",
            x_name="samples N",
            colours="categories",
            log_x=True,
            log_y=True,
        )
        panels += [replace(panel, slope=-0.5) for panel in shown.panels]
    if shown is None:
        return []
    return [
        Figure(
            "span",
            "Four times the samples, half the angle",
            "Largest angle between the teacher's span and the span estimated from N samples, and the distance of the "
            "matrix M̂ that it is estimated from to its expectation M; dotted is N^(−1/2).",
            "S4 lemma E.3",
            replace(shown, panels=tuple(panels), share="none"),
        )
    ]


def _descents(study: Initialisation, run: Run) -> Curves:
    loss = run.array("loss", "teacher_nodes dim by seed epoch", part="descent").clip(min=_FLOOR)
    return _by_size(
        study,
        study.descent_dim,
        loss.isel(epoch=slice(1, None)),  # a logarithmic axis has no step 0
        name="loss",
        x_name="step",
        bound=(REACHED, "10⁻⁶"),
        note=f"n = {counted(study.descents, 'seed')}, m = {study.descent_students}",
    )
