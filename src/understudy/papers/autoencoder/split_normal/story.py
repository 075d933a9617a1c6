"""Figures and headline of `split-normal` (Phuong 2021, fig. 4.3a)."""

from __future__ import annotations

import math

import numpy as np

from understudy._numbers import number
from understudy.papers.autoencoder.figures import numbers, remedy_figures, target_figures, training_figure
from understudy.papers.autoencoder.results import results, rows_of, values_of
from understudy.papers.autoencoder.settings import BETA
from understudy.papers.autoencoder.split_normal.study import SplitNormal
from understudy.papers.autoencoder.theory.normal import ENTROPY
from understudy.report.figures import Areas
from understudy.report.story import Figure, Story, counted
from understudy.store import Run

_X = np.linspace(-4, 4, 401)


def story(study: SplitNormal, run: Run) -> Story:
    """Densities for each target, then information against targets, other remedies, and the course of training."""
    figures = (
        *_densities(study, run),
        *target_figures(study, run, "S3 fig. 4.3a"),
        *remedy_figures(study, run, -ENTROPY),
        training_figure(study, run),
    )
    return Story(_headline(study, run), numbers(study, run), figures)


def _headline(study: SplitNormal, run: Run) -> str:
    found = results(run)
    if found["diverged_at"].notna().all():
        return "All networks diverged; lower --rate."
    parts = []
    if settings := study.mutual():
        off = [values_of(found, each, "information") - each.strength for each in settings]
        kept = np.concatenate([each[np.isfinite(each)] for each in off])
        ends = " to ".join(f"{end:g}" for end in dict.fromkeys((min(study.targets), max(study.targets))))
        if len(kept):
            parts.append(
                f"Asked for M = {ends} nats, mutual autoencoders have that information within "
                f"{number(np.abs(kept).max(), '.2f')} nats"
            )
    for setting in study.remedies():
        values = values_of(found, setting, "information")
        if setting.method == BETA and setting.strength == 1 and np.isfinite(values).any():
            reached = number(np.nanmax(values), ".2f")
            parts.append(f"a plain variational autoencoder has {'at most ' if study.seeds > 1 else ''}{reached}")
    if not parts:
        return f"{counted(len(found), 'network')} trained on standard normal data."
    return (
        f"{'; '.join(parts)[:1].upper()}{'; '.join(parts)[1:]}. {counted(study.seeds, 'seed')}, {study.steps:,} steps."
    )


def _densities(study: SplitNormal, run: Run) -> tuple[Figure, ...]:
    settings = study.mutual()
    rows = [rows for rows in zip(settings, rows_of(run, "conditionals", settings), strict=True) if len(rows[1])]
    if not rows:
        return ()
    codes = rows[0][1]["z"].to_numpy(float)
    prior = np.exp(-(codes**2) / 2) / math.sqrt(2 * math.pi)
    values = []
    for _, found in rows:
        mean, std = (found[name].to_numpy(float)[:, None] for name in ("mean", "std"))
        density = np.exp(-(((_X - mean) / std) ** 2) / 2) / (std * math.sqrt(2 * math.pi))
        values.append(density * prior[:, None])
    caption = (
        "Densities p(x|z) p(z) of six codes z, in models that were asked for M nats of information. The more "
        "information, the narrower is what each code stands for; the data are the same."
    )
    kind = Areas(
        tuple(f"M = {setting.strength:g}" for setting, _ in rows),
        _X,
        np.array(values),
        tuple(f"z = {z:g}" for z in codes),
        "x",
        "p(x|z) p(z)",
        note=f"seed {study.first_seed}, C = {study.penalties[0]:g}",
    )
    return (Figure("densities", "The normal, split", caption, "S3 fig. 4.3a", kind),)
