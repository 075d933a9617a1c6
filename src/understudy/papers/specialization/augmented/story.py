"""Figures and headline of `augmented` (Tian 2020, theorems 3, 4)."""

import numpy as np

from understudy.lab.layers import diverged_story, some_diverged
from understudy.papers.specialization.augmented.claims import (
    ALIGNED,
    EXPONENTS,
    SYMBOLS,
    aligned_share,
    samples_needed,
    sizes,
)
from understudy.papers.specialization.augmented.study import AugmentedData
from understudy.report import style
from understudy.report.figures import Curves, Panel, Series
from understudy.report.story import Figure, Number, Story, counted
from understudy.store import Run

NAMES = {"agnostic": "along the axes", "aware": "along the teacher's weights", "plain": "not augmented"}
_COLOURS = dict(zip(NAMES, style.categories(len(NAMES)), strict=True))


def story(study: AugmentedData, run: Run) -> Story:
    """Aligned teacher nodes against samples, and the samples that are needed against d, K and κ."""
    share = aligned_share(run, study.eps[0])
    if np.isnan(share).all():
        return diverged_story(study, run)
    note = f"n = {counted(study.seeds, 'seed')}: median, quartiles"
    figures = (
        Figure(
            "aligned",
            "More samples align more nodes",
            f"Share of the teacher nodes that have a student within ε = {study.eps[0]:g}, against the number of "
            "samples before augmentation: first setting, mean over seeds.",
            "S0 theorems 3, 4",
            Curves((_aligned(study, run, share),), note=f"n = {counted(study.seeds, 'seed')}"),
        ),
        Figure(
            "needed",
            "How many samples students need",
            f"Samples from which on {ALIGNED:.0%} of the teacher nodes are aligned, against the inputs d, the nodes K "
            "of teacher and student, the share κ of the inputs on which a node is active (there relative to their "
            "density at the boundaries), and ε. Dotted: the exponent of theorem 3.",
            "S0 theorems 3, 4",
            Curves(tuple(_needed(study, run, factor) for factor in SYMBOLS), note=note, columns=2),
        ),
    )
    return Story(_headline(study, run), _numbers(study, run), figures)


def _aligned(study: AugmentedData, run: Run, share: np.ndarray) -> Panel:
    first, samples = study.settings[0], np.sort(study.samples)
    here = np.ones(len(share), bool)
    for name, value in zip(first._fields, first, strict=True):
        here &= run.column(name) == value
    series = []
    for kind in study.data:
        own = here & (run.column("data") == kind)
        means = [np.nanmean(share[own & (run.column("samples") == n)]) for n in samples]
        series.append(Series(NAMES[kind], samples, np.array(means), colour=_COLOURS[kind]))
    return Panel("", "samples", "share of teacher nodes aligned", tuple(series), log_x=True)


def _needed(study: AugmentedData, run: Run, factor: str) -> Panel:
    series = []
    for kind in study.data:
        values, needed = samples_needed(study, run, kind, factor)
        low, middle, high = np.percentile(np.where(np.isfinite(needed), needed, np.nan), (25, 50, 75), axis=1)
        series.append(Series(NAMES[kind], sizes(study, factor, values), middle, low, high, colour=_COLOURS[kind]))
    exponent = EXPONENTS["agnostic"][factor]
    return Panel("", SYMBOLS[factor], "samples", tuple(series), log_x=True, log_y=True, slope=exponent)


def _headline(study: AugmentedData, run: Run) -> str:
    parts = []
    for kind in study.data:
        values, needed = samples_needed(study, run, kind, "dim")
        (at,) = np.flatnonzero(values == study.settings[0].dim)
        middle = np.median(needed[at])
        count = f"{middle:,.0f}" if np.isfinite(middle) else f"more than {max(study.samples):,}"
        parts.append(f"{count} {NAMES[kind]}")
    return (
        f"Students are aligned with {ALIGNED:.0%} of the teacher nodes from this number of samples on: "
        f"{', '.join(parts)} (medians of {counted(study.seeds, 'seed')}).{some_diverged(run)}"
    )


def _numbers(study: AugmentedData, run: Run) -> tuple[Number, ...]:
    numbers = [Number(f"{run.networks.num_rows:,}", "networks")]
    for factor, symbol in SYMBOLS.items():
        values, needed = samples_needed(study, run, study.data[0], factor)
        if len(values) > 1 and np.isfinite(needed).all():
            fitted = np.polyfit(np.log(sizes(study, factor, values)), np.log(needed), 1)[0]
            numbers.append(Number(f"{fitted.mean():.2f}", f"exponent of {symbol} in the samples needed"))
    return tuple(numbers)
