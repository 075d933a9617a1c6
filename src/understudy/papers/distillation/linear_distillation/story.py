"""Linear distillation in words and figures."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from understudy.papers.distillation.linear_distillation.claims import NEAR, Followed, followed, risks
from understudy.papers.distillation.linear_distillation.study import ANGLES, DESCENT, FLOW, OWN, STARTS
from understudy.papers.distillation.shared import Cell, cells, mean_series
from understudy.papers.specialization.deep.story import some_diverged
from understudy.report import style
from understudy.report.figures import Curves, Panel, Series
from understudy.report.story import Figure, Number, Story, counted
from understudy.store import Run

if TYPE_CHECKING:
    from understudy.papers.distillation.linear_distillation.study import LinearDistillation

_FLOOR = 1e-13
"""Distances and risks below are rounding, and are drawn here."""


def story(study: LinearDistillation, run: Run) -> Story:
    measured, students = risks(run), followed(run)
    sets = f"d = {study.dim}, {counted(study.seeds, 'transfer set')}"
    if study.data:
        sets = f"{counted(study.seeds, 'transfer set')} of {Path(study.data).name}"
    found = (
        *(_students(study, students) if students else ()),
        Figure(
            "risk",
            "The risk, and what bounds it",
            "The probability that a student decides otherwise than its teacher, mean over transfer sets with intervals "
            f"of {study.confidence:.0%}; dashed the bounds at their best β, of theorem 5.3 for one layer and of D.4, "
            "with the ε of theorem 5.2, for more." + _own_bound(study),
            "S3 theorem 5.3, D.4, corollaries 5.1, 5.2",
            Curves(tuple(_risk(study, task, measured) for task in _tasks(measured)), sets),
        ),
        Figure(
            "angles",
            "How inputs lie about the teacher",
            f"p(θ), the share of inputs at an angle of θ or more to the teacher, up to sign, with a band that holds "
            f"everywhere at once with a confidence of {study.confidence:.0%}"
            + ("." if study.data else "; dashed the truth."),
            "S3 fig 5.1, eq. 5.17",
            Curves(_alignment(run), sets),
        ),
        *(() if study.data else (_starts(study, run, sets),)),
    )
    return Story(_headline(study, run, students, measured), _numbers(students, measured), found)


def _colour(depth: int) -> str:
    return style.CATEGORIES[(depth - 1) % len(style.CATEGORIES)]


def _tasks(measured: dict[tuple[str, int], list[Cell]]) -> list[str]:
    return list(dict.fromkeys(task for task, _ in measured))


def _own_bound(study: LinearDistillation) -> str:
    return (
        " p(θ) is taken from the upper end of its band, so that bounds hold with its confidence." if study.data else ""
    )


def _students(study: LinearDistillation, found: list[Followed]) -> tuple[Figure, ...]:
    note = f"d = {study.dim}, {counted(study.students, 'transfer set')} of each size: median and range"
    tasks = list(dict.fromkeys(f.task for f in found))
    return (
        Figure(
            "learned",
            "Students learn the teacher's projection, and from n = d on the teacher",
            "Distance ‖w − ŵ‖ at the end of gradient flow, where ŵ is the teacher's projection on the span of its n "
            f"inputs; dashed the ε that theorem 5.2 allows a deep student of ‖w(0)‖ = {study.scale:g} where n < d. "
            f"Distances below {_FLOOR:g} are drawn there.",
            "S3 theorems 5.1, 5.2",
            Curves(tuple(_ends(study, task, found) for task in tasks), note),
        ),
        Figure(
            "training",
            "Over training",
            f"Distance from ŵ over time on the {tasks[0]} task, for three numbers of inputs: lines are gradient flow, "
            "dashed ones descent, whose time is rate × steps. Directions that inputs hardly show are learned last, and "
            "near n = d there are such.",
            "S3 theorems 5.1, 5.2",
            Curves(tuple(_courses(tasks[0], n, found) for n in _three(study)), note),
        ),
    )


def _three(study: LinearDistillation) -> list[int]:
    sizes = sorted(study.learned_inputs)
    around = [n for n in sizes if n >= study.dim] or sizes
    return sorted({sizes[0], around[0], sizes[-1]})


def _spread(label: str, x: np.ndarray, values: list[np.ndarray], **look: object) -> Series:
    quantiles = np.array([np.quantile(np.maximum(v, _FLOOR), (0, 0.5, 1)) for v in values])
    low, middle, high = quantiles.T
    return Series(label, x, middle, low, high, **look)  # type: ignore[arg-type]


def _ends(study: LinearDistillation, task: str, found: list[Followed]) -> Panel:
    series = []
    for depth in sorted(study.depths):
        of = [f for f in found if (f.task, f.depth, f.by) == (task, depth, FLOW)]
        x = np.array([f.inputs for f in of], float)
        series.append(_spread(f"L = {depth}", x, [f.end for f in of], colour=_colour(depth)))
        if depth > 1 and (x < study.dim).any():
            allowed = np.array([np.median(f.epsilon) if f.inputs < study.dim else np.nan for f in of])
            series.append(Series(f"ε, L = {depth}", x, allowed, dashed=True, colour=_colour(depth)))
    return Panel(
        f"{task} task", "n", "‖w − ŵ‖", tuple(series), log_y=True, bound=NEAR, bound_words=f"{style.number(NEAR)}"
    )


def _courses(task: str, n: int, found: list[Followed]) -> Panel:
    series = []
    for f in found:
        if (f.task, f.inputs) == (task, n):
            time = np.median(f.time, 0)
            label = f"L = {f.depth}" + (", descent" if f.by == DESCENT else "")
            errors = np.maximum(f.error[:, 1:], _FLOOR)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)  # of students that were all lost
                low, middle, high = np.nanquantile(errors, (0, 0.5, 1), axis=0)
            band = (low, high) if f.by == FLOW else (None, None)
            look = {"colour": _colour(f.depth), "dashed": f.by == DESCENT}
            series.append(Series(label, time[1:], middle, *band, **look))  # type: ignore[arg-type]
    return Panel(f"n = {n}", "time", "‖w − ŵ‖", tuple(series), log_x=True, log_y=True)


def _risk(study: LinearDistillation, task: str, measured: dict[tuple[str, int], list[Cell]]) -> Panel:
    series = []
    for depth in sorted(study.depths):
        found = measured[task, depth]
        x = np.array([cell.parameters["inputs"] for cell in found], float)
        series.append(_drawn(mean_series(f"L = {depth}", x, found, colour=_colour(depth))))
    for depth in sorted(study.depths):
        found = measured[task, depth]
        x = np.array([cell.parameters["inputs"] for cell in found], float)
        bound = _positive(np.array([cell.once["bound"] for cell in found]))
        series.append(Series(f"bound, L = {depth}", x, bound, dashed=True, colour=_colour(depth)))
    if "corollary" in measured[task, min(study.depths)][0].once:
        found = [c for c in measured[task, min(study.depths)] if c.parameters["inputs"] < study.dim]
        x = np.array([cell.parameters["inputs"] for cell in found], float)
        corollary = _positive(np.array([cell.once["corollary"] for cell in found]))
        series.append(Series("corollary", x, corollary, dashed=True, colour=style.CONTEXT))
    title = Path(study.data).name if task == OWN else f"{task} task"
    return Panel(title, "n", "transfer risk", tuple(series), log_x=True, log_y=True)


def _positive(values: np.ndarray) -> np.ndarray:
    return np.where(values > _FLOOR, values, np.nan)


def _drawn(series: Series) -> Series:
    """As a logarithmic axis has it: a risk of 0 is left out, a low limit of 0 is drawn a decade below the mean."""
    y = _positive(series.y)
    assert series.low is not None
    assert series.high is not None
    low = np.where(series.low > _FLOOR, series.low, y / 10)
    return Series(series.label, series.x, y, low, np.where(np.isnan(y), np.nan, series.high), colour=series.colour)


def _alignment(run: Run) -> tuple[Panel, ...]:
    panels = []
    for cell in cells(run, values=(), means=(), part=ANGLES):
        network = cell.networks[0]
        names = ("theta", "p", "low p", "high p", "exact p")
        theta, p, low, high, exact = (run.series(name)[network] for name in names)
        there = np.isfinite(theta)
        theta, p, low, high, exact = (v[there] for v in (theta, p, low, high, exact))
        series = [Series("from samples", theta, p, low, high, colour=style.BLUE)]
        if np.isfinite(exact).all():
            series.append(Series("exact", theta, exact, dashed=True, colour=style.VERMILLION))
        panels.append(Panel(f"{cell.parameters['task']}", "θ, rad", "p(θ)", tuple(series)))
    return tuple(panels)


def neither(run: Run) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Of each task lengths ‖w(0)‖, and the share of starts of which neither sign meets condition 5.12."""
    found: dict[str, list[tuple[float, float]]] = {}
    for cell in cells(run, values=("neither",), means=(), part=STARTS):
        share = float(cell.values["neither"].mean())
        found.setdefault(cell.parameters["task"], []).append((cell.parameters["scale"], share))
    return {task: (np.array([s for s, _ in rows]), np.array([v for _, v in rows])) for task, rows in found.items()}


def _starts(study: LinearDistillation, run: Run, sets: str) -> Figure:
    series = tuple(Series(f"{task} task", *values) for task, values in neither(run).items())
    panel = Panel("", "‖w(0)‖", "share of starts", series, log_x=True)
    return Figure(
        "starts",
        "Starts of which neither sign is downhill",
        "The share of random starts w(0) where neither w(0) nor −w(0) has a lower loss than 0, as condition 5.12 asks, "
        f"on sets of {counted(min(study.learned_inputs), 'input')}. The thesis says that one of them always has; the "
        "shorter w(0), the fewer are the exceptions.",
        "S3 sec 5.3.1",
        Curves((panel,), sets),
    )


def _headline(
    study: LinearDistillation, run: Run, students: list[Followed], measured: dict[tuple[str, int], list[Cell]]
) -> str:
    every = [(cell.means["risk"].mean, cell.once["bound"]) for found in measured.values() for cell in found]
    under = sum(mean <= bound + 1e-12 for mean, bound in every)
    words = f"The mean risk is under its bound in {under} of {len(every)} settings."
    if study.data:
        found = measured[OWN, min(study.depths)]
        first, last = found[0], found[-1]
        right = run.series("right")[0]
        fitted = right[np.isfinite(right)]
        teacher = (
            f"a logistic regression that is right on {fitted[0]:.1%} of its inputs" if len(fitted) else "the teacher"
        )
        more = (
            f" and {_number(last.means['risk'].mean)} after {last.parameters['inputs']:,}" if last is not first else ""
        )
        return (
            f"Students of {teacher} decide otherwise with a probability of {_number(first.means['risk'].mean)} after "
            f"{counted(first.parameters['inputs'], 'soft label')}{more}. {words}"
        )
    flows = [f for f in students if f.by == FLOW]
    exact = [f for f in flows if f.depth == 1 or f.inputs >= study.dim]
    deep = [f for f in flows if f.depth > 1 and f.inputs < study.dim]
    said = f"Gradient flow ends within {style.number(max(f.end.max() for f in exact))} of ŵ" if exact else ""
    if any(f.hold.any() for f in deep):
        held = np.concatenate([f.hold > 0 for f in deep])
        within = np.concatenate([f.end <= f.epsilon * (1 + 1e-12) for f in deep])
        part = f"within theorem 5.2's ε in {(within & held).sum()} of {held.sum()} deep students of fewer than d inputs"
        said = f"{said}, and {part}" if said else f"Gradient flow ends {part}"
    return (f"{said}. {words}" if said else words) + some_diverged(run)


def _numbers(students: list[Followed], measured: dict[tuple[str, int], list[Cell]]) -> tuple[Number, ...]:
    first = next(iter(measured.values()))
    numbers = [
        Number(_number(cell.means["risk"].mean), "mean risk, " + ", ".join(_where(cell)))
        for cell in (first[0], first[len(first) // 2])[: len(first)]
    ]
    if students:
        flows = [f for f in students if f.by == FLOW]
        numbers.insert(0, Number(f"{sum(len(f.networks) for f in students):,}", "students followed"))
        numbers.append(Number(style.number(max(f.off.max() for f in flows)), "from the closed form at most, by flow"))
    return tuple(numbers)


def _number(value: float) -> str:
    return style.number(value) if value else "0"


def _where(cell: Cell) -> tuple[str, ...]:
    of = cell.parameters
    return of["task"], f"n = {of['inputs']}", f"L = {of['depth']}"
