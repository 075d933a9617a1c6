"""Figures and headline of `data-geometry` (Phuong 2021, fig. 5.3, theorem 5.3)."""

import math

import numpy as np
import pyarrow as pa
import xarray as xr

from understudy.papers.distillation.data_geometry.study import DataGeometry
from understudy.papers.distillation.shared import estimates, line_series, mean_series, read_settings
from understudy.report import style
from understudy.report.figures import Curves, Panel, Series
from understudy.report.story import Figure, Number, Story, counted
from understudy.store import Run
from understudy.store.units import read_units, unit_array

_SHOWN = 100
"""Number of sets whose own risks are drawn."""
_BOUNDS = {"bound": ("theorem 5.3", style.VERMILLION), "corollary": ("corollary 5.2", style.ORANGE)}


def story(study: DataGeometry, run: Run) -> Story:
    """The risk by κ, its bounds, and the angles between inputs and teacher."""
    sets, settings = read_units(run, "sets"), read_settings(run)
    found = estimates(settings, "risk", "kappa")
    risk = mean_series("mean risk", found, "kappa", colour=style.BLUE)
    bounds = (
        line_series(label, unit_array(settings, name, "kappa"), dashed=True, colour=colour)
        for name, (label, colour) in _BOUNDS.items()
    )
    setting = f"d = {study.dim:,}, n = {study.inputs:,}, {counted(study.seeds, 'transfer set')}"
    figures = (
        Figure(
            "risk",
            "The better inputs are aligned with the teacher, the lower the risk",
            "The probability that a student and its teacher decide differently, exact for every set and averaged over "
            f"sets, with intervals of {study.confidence:.0%}: on a linear axis as in the thesis, and on a logarithmic "
            f"one, with {min(_SHOWN, study.seeds)} single sets.",
            "S3 fig. 5.3",
            Curves(
                (
                    Panel("", "κ", "transfer risk", (risk,)),
                    Panel("", "κ", "transfer risk", (risk, _single_sets(sets)), log_y=True),
                ),
                setting,
            ),
        ),
        Figure(
            "bounds",
            "The bounds of the theorem, and the measured risk",
            "Mean risk, the bound of theorem 5.3 at its best β, and that of corollary 5.2, (1 + (log n)^κ)/n^κ, which "
            "is above 1 if κ is small.",
            "S3 theorem 5.3, corollary 5.2",
            Curves((Panel("", "κ", "transfer risk", (risk, *bounds), log_y=True),), setting),
        ),
        Figure(
            "angles",
            "Angles between inputs and teacher",
            "p(θ), the probability of an angle of θ or more between an input and the teacher, up to sign, for each κ; "
            "and the resulting angle between student and teacher, mean over sets and 5% to 95% of them.",
            "S3 fig. 5.1, eq. 5.17",
            Curves((_alignment(study), _angles(sets)), setting),
        ),
    )
    return Story(_headline(study, found["mean"]), _numbers(sets, found["mean"]), figures)


def _single_sets(sets: pa.Table) -> Series:
    shown = unit_array(sets, "risk", "kappa seed").isel(seed=slice(_SHOWN)).stack(set=("kappa", "seed"))
    x, unit = (shown[name].to_numpy() for name in ("kappa", "unit"))
    return Series("one set", x, shown.to_numpy(), points=True, colour=style.CONTEXT, network=unit)


def _alignment(study: DataGeometry) -> Panel:
    theta = np.linspace(0, math.pi / 2, 91)
    kappas = sorted(study.kappa)
    series = tuple(
        Series(f"κ = {kappa:g}", theta, (1 - 2 * theta / math.pi) ** kappa, colour=colour)
        for kappa, colour in zip(kappas, style.ramp(len(kappas)), strict=True)
    )
    return Panel("", "θ, rad", "p(θ)", series)


def _angles(sets: pa.Table) -> Panel:
    angles = unit_array(sets, "angle", "kappa seed")
    low, high = np.quantile(angles.to_numpy(), (0.05, 0.95), axis=1)
    mean, kappas = angles.mean("seed").to_numpy(), angles["kappa"].to_numpy()
    return Panel("", "κ", "angle, rad", (Series("student", kappas, mean, low, high, colour=style.BLUE),))


def _headline(study: DataGeometry, means: xr.DataArray) -> str:
    each = [f"{style.number(mean.item())} at κ = {mean['kappa'].item():g}" for mean in means]
    falls = len(means) > 1 and bool((np.diff(means) < 0).all())
    words = " to ".join((each[0], each[-1])) if len(each) > 1 else each[0]
    verb = "falls at every step from" if falls else "goes from" if len(each) > 1 else "is"
    return (
        f"From {counted(study.inputs, 'soft label')} in {study.dim:,} dimensions the mean risk of a linear student "
        f"{verb} {words}."
    )


def _numbers(sets: pa.Table, means: xr.DataArray) -> tuple[Number, ...]:
    kappas = means["kappa"].to_numpy().tolist()
    uniform = [kappa for kappa in kappas[1:-1] if kappa == 1]  # uniform angles
    shown = dict.fromkeys([kappas[0], *uniform, kappas[-1]])
    return (
        Number(f"{sets.num_rows:,}", "transfer sets"),
        *(Number(style.number(means.sel(kappa=k).item()), f"mean risk at κ = {k:g}") for k in shown),
    )
