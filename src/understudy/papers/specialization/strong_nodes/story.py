"""Figures and headline of `strong-nodes` (Tian 2020, sec. 6; Tian 2019, sec. 5.3, fig. 6)."""

from collections.abc import Callable

import numpy as np

from understudy._numbers import number
from understudy.lab.layers import diverged_story, multiple_titles, some_diverged
from understudy.papers.specialization.strong_nodes.claims import gradients, sorted_strengths, student_counts
from understudy.papers.specialization.strong_nodes.study import StrongNodes
from understudy.report import style
from understudy.report.figures import Curves, Panel, Series
from understudy.report.story import Figure, Number, Story, counted
from understudy.store import Run
from understudy.store.arrays import Networks

Measure = Callable[[Networks], np.ndarray]
"""A value of each teacher node, [network, teacher]."""


def story(study: StrongNodes, run: Run) -> Story:
    """Gradient at recovery against strength, students per teacher node, and the gradient over training."""
    alive = run.select().alive
    if not alive.any():
        return diverged_story(study, run)
    note = f"n = {counted(study.seeds, 'seed')}"
    figures = (
        Figure(
            "gradients",
            "Strong teacher nodes are recovered while the gradient is large",
            "Norm of the gradient when a teacher node is first recovered, against the norm of its fan-out: median and "
            "quartiles over the seeds in which it is. Dotted: proportional.",
            "S0 sec. 6",
            Curves(_panels(study, run, gradients, "norm of the gradient", log=True), note, band="quartiles"),
        ),
        Figure(
            "students",
            "Strong teacher nodes are learned by several students",
            "Number of students above correlation 0.95 that match a teacher node best, after training, against the "
            "norm of its fan-out: median and quartiles over seeds.",
            "S1 sec. 5.3, fig. 6",
            Curves(_panels(study, run, student_counts, "students", log=False), note, band="quartiles"),
        ),
        Figure(
            "norms",
            "The gradient over training",
            "Norm of the gradient of ½‖f*−f‖² in all parameters on the evaluation samples: median and quartiles over "
            "seeds.",
            "S0 sec. 6",
            Curves.from_array(
                run.array("gradient_norm", "multiple polarity seed epoch"),
                panel="multiple",
                line="polarity",
                titles=multiple_titles(study.multiple),
                labels={p: f"p = {p:g}" for p in study.polarity},
                name="norm of the gradient",
                log_y=True,
            ),
        ),
    )
    trained = Networks(run, np.flatnonzero(alive))
    counts, norms = student_counts(trained), gradients(trained)
    ends = [row[np.isfinite(row)][[0, -1]] for row in norms if np.isfinite(row).any()]
    students = f"{np.median(counts[:, 0]):g}"
    numbers = [
        Number(f"{run.networks.num_rows:,}", "networks"),
        Number(students, "students of the strongest teacher node, median"),
    ]
    headline = f"The strongest teacher node is learned by {students} students (median)"
    if ends:
        ratio = number(float(np.median([first / last for first, last in ends])), ".2g")
        numbers.append(Number(f"{ratio}×", "gradient when the strongest recovered node is, to that of the weakest"))
        headline += (
            f", and when it is recovered the gradient is {ratio} times as large as when the weakest recovered node is"
        )
    return Story(f"{headline}.{some_diverged(run)}", tuple(numbers), figures)


def _panels(study: StrongNodes, run: Run, measure: Measure, words: str, log: bool) -> tuple[Panel, ...]:
    return tuple(_panel(study, run, k, measure, words, log) for k in study.multiple)


def _panel(study: StrongNodes, run: Run, multiple: float, measure: Measure, words: str, log: bool) -> Panel:
    series = []
    for polarity, colour in zip(study.polarity, style.ramp(len(study.polarity)), strict=True):
        some = run.select(multiple=multiple, polarity=polarity)
        index = some.index[some.alive]
        if not len(index):
            continue
        there = Networks(run, index)
        values, strength = measure(there).astype(float), np.median(sorted_strengths(there), axis=0)
        known = np.isfinite(values).any(0)
        if not known.any():
            continue
        low, middle, high = np.nanquantile(values[:, known], (0.25, 0.5, 0.75), axis=0)
        series.append(Series(f"p = {polarity:g}", strength[known], middle, low, high, colour=colour))
    slope = 1.0 if log and series else None
    names = ("norm of the fan-out of the teacher node", words)
    return Panel(f"{multiple:g}×", *names, tuple(series), log_x=True, log_y=log, slope=slope)
