"""Figures and headline of `flat-minima` (Tian et al. 2019, sec. 3.3)."""

import numpy as np
import xarray as xr

from understudy.lab.layers import diverged_story, multiple_curves, some_diverged
from understudy.papers.luck.flat_minima.claims import by_teacher, by_width
from understudy.papers.luck.flat_minima.study import FLAT, FlatMinima
from understudy.report import style
from understudy.report.figures import Curves, Panel, Series
from understudy.report.story import Figure, Number, Story, counted
from understudy.store import Run

_SIZES = np.linspace(0.0, 1.0, 101)
"""Places in a spectrum, as shares of the number of eigenvalues."""


def story(study: FlatMinima, run: Run) -> Story:
    """Spectra of the Hessian, its largest eigenvalue over training, and the share of flat directions by width."""
    if "flat_share" not in run.metric_names:
        return diverged_story(study, run)
    last = by_width(study, run, "flat_share").isel(epoch=-1).median("seed")
    m, widest = study.teacher_nodes[0], max(n for _, n in study.groups)
    figures = (
        Figure(
            "spectra",
            "Most eigenvalues of wide students are near zero",
            "Size of the eigenvalues of the Hessian after training, relative to the largest, in descending order: "
            f"median over seeds. Left: students of {counted(m, 'teacher node')}, by width. Right: {widest} student "
            f"nodes, by the number of teacher nodes. Dashed: {FLAT:g}, below which a direction counts as flat.",
            "S2 sec. 3.3, fig. 2",
            Curves(_spectra(study, run), f"n = {counted(study.seeds, 'seed')}"),
        ),
        Figure(
            "largest",
            "The largest eigenvalue over training",
            f"Largest eigenvalue of the Hessian after every epoch, students of {counted(m, 'teacher node')}: median "
            "and quartiles over seeds.",
            "S2 sec. 3.3",
            multiple_curves(by_width(study, run, "hessian_eigenvalue_1"), name="largest eigenvalue", log_y=True),
        ),
        Figure(
            "losses",
            "How well they are trained",
            f"Evaluation loss of students of {counted(m, 'teacher node')}: median and quartiles over seeds.",
            "",
            multiple_curves(by_width(study, run, "eval_loss"), name="evaluation loss", log_y=True),
        ),
    )
    by_size = by_teacher(study, run, "flat_share").isel(epoch=-1).median("seed")
    numbers = (
        Number(f"{run.networks.num_rows:,}", "networks"),
        *(Number(f"{v:.0%}", f"flat directions at {k:g}×") for k, v in zip(study.multiple, last.values, strict=True)),
    )
    headline = (
        f"{_listed(last, '×')} of the directions are flat with {counted(m, 'teacher node')}, and "
        f"{_listed(by_size, ' teacher nodes')} with {widest} student nodes.{some_diverged(run)}"
    )
    return Story(headline, numbers, figures)


def _listed(values: xr.DataArray, unit: str) -> str:
    (name,) = values.dims
    return ", ".join(f"{v:.0%} ({k:g}{unit})" for k, v in zip(values[name].values, values.values, strict=True))


def _spectra(study: FlatMinima, run: Run) -> tuple[Panel, Panel]:
    groups = study.groups
    widths = [group for group in groups if group[0] == study.teacher_nodes[0]]
    widest = [group for group in groups if group[1] == max(n for _, n in groups)]
    lines = [(f"{n / m:g}×", m, n) for m, n in widths], [(f"{m} teacher nodes", m, n) for m, n in widest]
    return _panel(run, "by width", lines[0]), _panel(run, "by teacher", lines[1])


def _panel(run: Run, title: str, lines: list[tuple[str, int, int]]) -> Panel:
    series = []
    for (label, m, n), colour in zip(lines, style.ramp(len(lines)), strict=True):
        some = run.select(teacher_nodes=m, student_nodes=n).index
        if len(found := [each for network in some if (each := _spectrum(run, int(network))) is not None]):
            series.append(Series(label, 100 * _SIZES, np.median(found, axis=0), colour=colour))
    names = ("place, % of the eigenvalues", "size / largest")
    return Panel(title, *names, tuple(series), log_y=True, bound=FLAT, bound_words="flat below")


def _spectrum(run: Run, network: int) -> np.ndarray | None:
    """Sizes of the eigenvalues of a network after training, relative to the largest, at `_SIZES`; None if diverged."""
    rows = run.table("spectra")
    mine = rows.filter((rows["network"].to_numpy() == network) & (rows["epoch"].to_numpy() > 0))
    values = np.sort(np.abs(mine["value"].to_numpy()))[::-1]
    if not len(values):
        return None
    return np.interp(_SIZES, np.linspace(0.0, 1.0, len(values)), values / values[0])
