"""Figures and headline of `linear-distillation` (Phuong 2021, theorems 5.1 to 5.3)."""

from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pyarrow as pa
import xarray as xr

from understudy.lab.layers import some_diverged
from understudy.papers.distillation.linear_distillation import claims
from understudy.papers.distillation.linear_distillation.study import DESCENT, FLOW, NEAR, OWN, LinearDistillation
from understudy.papers.distillation.shared import estimates, line_series, mean_series, read_settings
from understudy.report import style
from understudy.report.figures import Curves, Panel, Series
from understudy.report.story import Figure, Number, Story, counted
from understudy.store import Run
from understudy.store.arrays import Networks
from understudy.store.units import read_units, unit_array

_FLOOR = 1e-13
"""Distances and risks below are rounding; distances are drawn here."""
_DRAWN = 500
"""Number of inputs that are drawn in the plane."""
_OWN_BOUND = " p(θ) is taken from the upper end of its band, so that the bounds are valid with its confidence."


def story(study: LinearDistillation, run: Run) -> Story:
    """Where students end, over training; their risk and its bounds; angles of inputs; starts."""
    settings, students = read_settings(run, part="risk"), claims.select_students(run)
    sets = f"d = {study.dim}, {counted(study.seeds, 'transfer set')}"
    if study.data:
        sets = f"{counted(study.seeds, 'transfer set')} of {Path(study.data).name}"
    figures = (
        *(_students(study, students) if students else ()),
        Figure(
            "risk",
            "The risk and its bounds",
            "The probability that a student and its teacher decide differently, mean over transfer sets with intervals "
            f"of {study.confidence:.0%}; dashed the bounds at their best β, of theorem 5.3 for one layer and of D.4, "
            "with the ε of theorem 5.2, for more." + (_OWN_BOUND if study.data else ""),
            "S3 theorem 5.3, D.4, corollaries 5.1, 5.2",
            Curves(tuple(_risk(study, task, settings) for task in settings["task"].unique().to_pylist()), sets),
        ),
        Figure(
            "angles",
            "Angles between inputs and teacher",
            "p(θ), the share of inputs at an angle of θ or more to the teacher, up to sign, with a band that is valid "
            f"at all θ at once with a confidence of {study.confidence:.0%}"
            + ("." if study.data else "; dashed the exact function."),
            "S3 fig. 5.1, eq. 5.17",
            Curves(_alignment(read_angles(run)), sets),
        ),
        *(() if study.data else (_plane(study), _starts(study, run, sets))),
    )
    return Story(_headline(study, run, students, settings), _numbers(students, settings), figures)


def _colour(depth: int) -> str:
    return style.CATEGORIES[(depth - 1) % len(style.CATEGORIES)]


def _students(study: LinearDistillation, students: Networks) -> tuple[Figure, ...]:
    note = f"d = {study.dim}, {counted(study.students, 'transfer set')} of each size"
    task = students.values("task")[0]
    return (
        Figure(
            "learned",
            "Students learn the teacher's projection, and from n = d on the teacher",
            "Distance ‖w − ŵ‖ at the end of gradient flow, where ŵ is the teacher's projection on the span of the n "
            f"inputs; dashed the ε that theorem 5.2 allows a deep student with ‖w(0)‖ = {study.scale:g} for n < d. "
            f"Distances below {_FLOOR:g} are drawn there.",
            "S3 theorems 5.1, 5.2",
            Curves(_ends(study, students), note, band="range"),
        ),
        Figure(
            "training",
            "Over training",
            f"Distance from ŵ over time on the {task} task, for three numbers of inputs: solid lines are gradient "
            "flow, with the range over sets, dashed lines are gradient descent, whose time is rate × steps, until it "
            "is as near as the theorems state. Directions in which inputs hardly vary are learned last, and near n = d "
            "there are such.",
            "S3 theorems 5.1, 5.2",
            Curves(tuple(_courses(students.select(task=task, inputs=n), n) for n in _three(study)), note),
        ),
    )


def _three(study: LinearDistillation) -> list[int]:
    """The smallest and the largest number of inputs, and the first from d on."""
    sizes = sorted(study.learned_inputs)
    enough = [n for n in sizes if n >= study.dim] or sizes
    return sorted({sizes[0], enough[0], sizes[-1]})


def _ends(study: LinearDistillation, students: Networks) -> tuple[Panel, ...]:
    """Distances at the end of flow by the number of inputs, one panel per task and one line per depth."""
    dims, flows = "task depth inputs seed", students.select(by=FLOW)
    error = flows.array("error", dims)
    depths = error["depth"].to_numpy().astype(int).tolist()
    drawn = Curves.from_array(
        error.copy(data=np.maximum(error, _FLOOR)),
        name="‖w − ŵ‖",
        x="inputs",
        panel="task",
        line="depth",
        band="range",
        titles={task: f"{task} task" for task in error["task"].to_numpy().tolist()},
        labels={depth: f"L = {depth}" for depth in depths},
        x_name="n",
        colours=[_colour(depth) for depth in depths],
        bound=(NEAR, style.number(NEAR)),
        log_y=True,
    )
    epsilon = flows.array("epsilon", f"{dims} epoch", diverged=True).isel(epoch=0).median("seed")
    epsilon = epsilon.where(epsilon["inputs"] < study.dim)
    panels = []
    for panel, own in zip(drawn.panels, epsilon, strict=True):
        allowed = tuple(
            Series(f"ε, L = {depth}", own["inputs"].to_numpy(), line.to_numpy(), dashed=True, colour=_colour(depth))
            for depth, line in zip(depths, own.transpose("depth", "inputs"), strict=True)
            if depth > 1 and line.notnull().any()
        )
        panels.append(replace(panel, series=panel.series + allowed))
    return tuple(panels)


def _courses(students: Networks, n: int) -> Panel:
    """Distance from ŵ over time, one line per depth and optimiser."""
    series = []
    for depth, by in product(students.values("depth"), (FLOW, DESCENT)):
        found, flows = students.select(depth=depth, by=by), by == FLOW
        time = found.array("time", diverged=True).median("network")
        error = found.array("error", diverged=True).reindex(epoch=time["epoch"]).clip(min=_FLOOR)
        middle, low, high = (getattr(error, name)("network")[1:].to_numpy() for name in ("median", "min", "max"))
        band = {"low": low, "high": high} if flows else {}
        label = f"L = {depth:g}" if flows else f"L = {depth:g}, descent"
        line = Series(label, time[1:].to_numpy(), middle, dashed=not flows, colour=_colour(int(depth)), **band)
        series.append(line)
    return Panel(f"n = {n}", "time", "‖w − ŵ‖", tuple(series), log_x=True, log_y=True)


def _risk(study: LinearDistillation, task: str, settings: pa.Table) -> Panel:
    """Mean risk by the number of inputs, one line per depth, with the bounds."""
    series = []
    for depth in sorted(study.depths):
        risk = _drawable(estimates(settings, "risk", "inputs", task=task, depth=depth))
        series.append(mean_series(f"L = {depth}", risk, "inputs", colour=_colour(depth)))
    for depth in sorted(study.depths):
        bound = _positive(unit_array(settings, "bound", "inputs", task=task, depth=depth))
        series.append(line_series(f"bound, L = {depth}", bound, dashed=True, colour=_colour(depth)))
    corollary = unit_array(settings, "corollary", "inputs", task=task, depth=min(study.depths))
    if corollary.notnull().any():
        few = _positive(corollary[corollary["inputs"] < study.dim])
        series.append(line_series("corollary", few, dashed=True, colour=style.CONTEXT))
    title = Path(study.data).name if task == OWN else f"{task} task"
    return Panel(title, "n", "transfer risk", tuple(series), log_x=True, log_y=True)


def _positive(values: xr.DataArray) -> xr.DataArray:
    return values.where(values > _FLOOR)


def _drawable(found: xr.Dataset) -> xr.Dataset:
    """Means for a logarithmic axis: risks of 0 are left out, low limits of 0 are a decade below the mean."""
    mean, low = _positive(found["mean"]), found["low"]
    return found.assign(mean=mean, low=low.where(low > _FLOOR, mean / 10), high=found["high"].where(mean.notnull()))


def read_angles(run: Run) -> pa.Table:
    """One row per task and angle θ: p(θ) with its band, and the accuracy of a fitted teacher as `right`."""
    if "angles" in run.tables:
        return run.table("angles")
    # Runs of earlier versions have one network per task, with the angles as its epochs.
    tasks = run.select(part="angles")
    names = [n for n in ("theta", "p", "low p", "high p", "exact p", "right") if n in run.metric_names]
    columns = {name: tasks.array(name).reindex(epoch=run.epochs).to_numpy() for name in names}
    there = np.isfinite(columns["theta"])
    rows = {"task": np.repeat(tasks.column("task"), there.sum(1))}
    return pa.table(rows | {name: values[there] for name, values in columns.items()})


def _alignment(angles: pa.Table) -> tuple[Panel, ...]:
    panels = []
    for task in angles["task"].unique().to_pylist():
        p, low, high, exact = (
            unit_array(angles, name, "theta", task=task) for name in ("p", "low p", "high p", "exact p")
        )
        theta = p["theta"].to_numpy()
        series = [Series("from samples", theta, p.to_numpy(), low.to_numpy(), high.to_numpy(), colour=style.BLUE)]
        if exact.notnull().all():
            series.append(Series("exact", theta, exact.to_numpy(), dashed=True, colour=style.VERMILLION))
        panels.append(Panel(task, "θ, rad", "p(θ)", tuple(series)))
    return tuple(panels)


def _plane(study: LinearDistillation) -> Figure:
    """Inputs of the tasks of corollaries 5.1 and 5.2 in two dimensions."""
    from understudy.papers.distillation.theory.tasks import AngleTask

    tasks = {f"κ = {study.kappa:g}, no input within {study.margin:g} rad": AngleTask(2, study.kappa, study.margin)}
    tasks |= {f"κ = {kappa:g}": AngleTask(2, kappa) for kappa in (1.0, 2.0)}
    panels = []
    for title, task in tasks.items():
        x, y = task.inputs([1], _DRAWN)[0].T.numpy()
        boundary = Series("boundary of the teacher", np.zeros(2), np.array([-3.0, 3.0]), dashed=True, colour=style.SOFT)
        teacher = Series("teacher", np.array([0.0, 2.0]), np.zeros(2), colour=style.VERMILLION)
        inputs = Series("input", x, y, points=True, colour=style.BLUE)
        panels.append(Panel(title, "along the teacher", "across", (boundary, inputs, teacher)))
    return Figure(
        "plane",
        "Tasks with a large margin, and with polynomially few inputs near the boundary",
        f"{_DRAWN} inputs in two dimensions: with an angular margin at the teacher's boundary (corollary 5.1), and "
        "with P[angle ≥ θ] = (1 − 2θ/π)^κ for κ = 1 and 2 (corollary 5.2).",
        "S3 fig. 5.2",
        Curves(tuple(panels), ""),
    )


def neither_share(run: Run) -> xr.DataArray:
    """Share of starts where neither sign meets condition 5.12, by ‖w(0)‖, [task, scale]."""
    starts = read_units(run, "starts", part="starts")
    return unit_array(starts, "neither", "task scale seed").mean("seed")


def _starts(study: LinearDistillation, run: Run, sets: str) -> Figure:
    shares = neither_share(run)
    scales = shares["scale"].to_numpy()
    series = tuple(Series(f"{share['task'].item()} task", scales, share.to_numpy()) for share in shares)
    return Figure(
        "starts",
        "Starts where neither sign lowers the loss",
        "The share of random starts w(0) where neither w(0) nor −w(0) has a lower loss than 0, as condition 5.12 "
        f"requires, on sets of {counted(min(study.learned_inputs), 'input')}. The thesis states that one of them "
        "always has; the shorter w(0), the fewer the exceptions.",
        "S3 sec. 5.3.1",
        Curves((Panel("", "‖w(0)‖", "share of starts", series, log_x=True),), sets),
    )


def _headline(study: LinearDistillation, run: Run, students: Networks | None, settings: pa.Table) -> str:
    mean, bound = (settings[name].to_numpy() for name in ("mean risk", "bound"))
    words = f"The mean risk is under its bound in {(mean <= bound + claims.ROUNDING).sum()} of {len(mean)} settings."
    if study.data:
        return f"{_own_data(study, read_angles(run), settings)} {words}"
    parts = []
    flows = students.select(by=FLOW) if students else None
    if flows is not None:
        deep = (flows.column("depth") > 1) & (flows.column("inputs") < study.dim)
        found = claims.ends(flows)
        if (~deep).any():
            parts.append(f"within {style.number(found.error[~deep].max())} of ŵ")
        held, within = found.counted & deep, found.within & deep
        if held.any():
            count = f"{(within & held).sum()} of {held.sum()}"
            parts.append(f"within theorem 5.2's ε in {count} deep students of fewer than d inputs")
    ended = f"Gradient flow ends {', and '.join(parts)}. " if parts else ""
    return f"{ended}{words}{some_diverged(run)}"


def _own_data(study: LinearDistillation, angles: pa.Table, settings: pa.Table) -> str:
    risk = estimates(settings, "risk", "inputs", task=OWN, depth=min(study.depths))["mean"]
    first, last = risk[0], risk[-1]
    right = angles["right"][0].as_py() if "right" in angles.column_names else None
    teacher = "the teacher" if right is None else f"a logistic regression with an accuracy of {right:.1%} on its inputs"
    more = f" and {_number(last.item())} after {last['inputs'].item():,}" if len(risk) > 1 else ""
    return (
        f"Students of {teacher} decide differently with a probability of {_number(first.item())} after "
        f"{counted(first['inputs'].item(), 'soft label')}{more}."
    )


def _numbers(students: Networks | None, settings: pa.Table) -> tuple[Number, ...]:
    row = settings.to_pylist()[0]
    risk = estimates(settings, "risk", "inputs", task=row["task"], depth=row["depth"])["mean"]
    shown = risk.isel(inputs=list(dict.fromkeys([0, len(risk) // 2])))
    where = f"mean risk, {row['task']}, n = {{}}, L = {row['depth']}"
    numbers = [Number(_number(each.item()), where.format(each["inputs"].item())) for each in shown]
    if students:
        off = style.number(claims.at_start(students.select(by=FLOW), "off").max())
        numbers.insert(0, Number(f"{len(students):,}", "students followed"))
        numbers.append(Number(off, "largest distance of flow from the closed form"))
    return tuple(numbers)


def _number(value: float) -> str:
    return style.number(value) if value else "0"
