"""Certificates in words and figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from understudy.papers.specialization.certificates.claims import (
    Verdicts,
    by,
    every_node,
    least_samples,
    rule_errors,
    said,
)
from understudy.papers.specialization.certificates.study import AUGMENTED
from understudy.papers.specialization.deep.story import some_diverged
from understudy.report import style
from understudy.report.figures import Curves, Panel, Series
from understudy.report.story import Figure, Number, Story, counted
from understudy.store import Run

if TYPE_CHECKING:
    from understudy.papers.specialization.certificates.study import Certificates

_COLOURS = dict(
    zip(
        ("S0 theorem 3", "S0 theorem 4", "S0 theorem 1", "S0 theorem 5", "S1 theorem 4"),
        style.categories(5),
        strict=True,
    )
)
_TRUE = "true ε"


def story(study: Certificates, run: Run) -> Story:
    triples, setting = said(run, "triples"), said(run, "setting")
    figures = (
        Figure(
            "samples",
            "Enough samples certify every node",
            f"Two teacher nodes in the plane at {study.angle:g}°, a student of {study.multiple:g} times the nodes with "
            f"weights off by {study.distance:g}. Left: share of teacher nodes that are certified; middle: of seeds in "
            "which all are; right: the ε that is guaranteed, which falls as one over the number of samples.",
            "S0 theorems 3, 4",
            Curves(_setting(setting), note=f"n = {counted(study.seeds, 'seed')}: median, quartiles"),
        ),
        Figure(
            "training",
            "Certificates come with training, and promise less than is so",
            f"Students of {study.multiple:g} times the nodes under full-batch gradient descent, certified with "
            f"{study.certify:,} samples. Above: share of teacher nodes that are certified; below: the ε that is "
            "guaranteed to those, and that of the nearest student to any, medians and quartiles.",
            "S0 theorems 3, 4",
            Curves(_training(study, run), note=_students(study), columns=len(study.near)),
        ),
        Figure(
            "eps",
            "More samples guarantee more",
            f"After {study.epochs:,} epochs: guaranteed ε of the nodes that are certified, and the true one of all, "
            "medians and quartiles, against the samples that certify.",
            "S0 theorems 3, 4",
            Curves(_against_samples(study, run), note=_students(study), columns=len(study.near)),
        ),
        Figure(
            "triples",
            "What is guaranteed and what is so",
            "Every certificate that was given to a triple: the true ε of the nearest student against the guaranteed "
            "one. None may lie above the line; those at 0 lie at the bottom.",
            "S0 theorems 1, 3, 4, 5",
            Curves((_bounded(triples),), note=f"{counted(study.triples, 'triple')}, guarantees up to 10"),
        ),
    )
    given, wrong = int(triples.certified.sum()), int(triples.contradicted.sum())
    least = {name: least_samples(setting, name) for name in AUGMENTED}
    return Story(
        f"Of {given:,} certificates over {counted(study.triples, 'triple')} of teacher, student and data, "
        f"{'none is' if not wrong else f'{wrong:,} are'} contradicted; in the plane {_least(study, least)}."
        f"{some_diverged(run)}",
        (
            Number(f"{given:,}", "certificates of triples"),
            Number(f"{wrong:,}", "contradicted"),
            Number(style.number(float(np.nanmax(rule_errors(run)))), "largest error of the recursive rule"),
            *(Number(f"{count:,}", f"samples certify all, {name}") for name, count in least.items() if count),
        ),
        figures,
    )


def _least(study: Certificates, least: dict[str, int | None]) -> str:
    known = [count for count in least.values() if count]
    if not known:
        return f"not every node of two is certified with {max(study.samples):,} samples"
    return f"{min(known):,} samples certify both nodes of a teacher in {counted(study.seeds, 'seed')}"


def _students(study: Certificates) -> str:
    return f"n = {counted(study.students, 'seed')}, two nodes each"


def _quartiles(label: str, values: dict[int, np.ndarray], **how: str | bool) -> Series:
    """Medians of what is finite, by a whole number."""
    low, middle, high = (
        np.array([np.nanquantile(v, q) if np.isfinite(v).any() else np.nan for v in values.values()])
        for q in (0.25, 0.5, 0.75)
    )
    return Series(label, np.array(list(values)), middle, low, high, **how)  # type: ignore[arg-type]


def _share(label: str, values: dict[int, np.ndarray], colour: str) -> Series:
    return Series(label, np.array(list(values)), np.array([v.mean() for v in values.values()]), colour=colour)


def _setting(found: Verdicts) -> tuple[Panel, ...]:
    each = [_share(name, by(found.samples, found, name, found.certified), _COLOURS[name]) for name in AUGMENTED]
    whole = [
        Series(name, np.array(list(shares)), np.array(list(shares.values())), colour=_COLOURS[name])
        for name in AUGMENTED
        if (shares := every_node(found, name))
    ]
    eps = [_quartiles(name, by(found.samples, found, name, found.eps), colour=_COLOURS[name]) for name in AUGMENTED]
    return (
        Panel("Teacher nodes", "samples", "share certified", tuple(each), log_x=True),
        Panel("Seeds", "samples", "share with all certified", tuple(whole), log_x=True),
        Panel("Guarantee", "samples", "guaranteed ε", tuple(eps), log_x=True, log_y=True, slope=-1.0),
    )


def _start(near: float) -> str:
    return f"start near by {near:g}" if near else "start anywhere"


def _of_start(run: Run, near: float) -> Verdicts:
    found = said(run, "training")
    return found.some(run.column("near")[found.network] == near)


def _training(study: Certificates, run: Run) -> tuple[Panel, ...]:
    above, below = [], []
    for near in study.near:
        found = _of_start(run, near)
        found = found.some(found.samples == study.certify)
        shares = [_share(name, by(found.epoch, found, name, found.certified), _COLOURS[name]) for name in AUGMENTED]
        above.append(Panel(_start(near), "epoch", "share certified", tuple(shares)))
        below.append(Panel("", "epoch", "ε", (*_guaranteed(found, found.epoch), _true(found, found.epoch)), log_y=True))
    return *above, *below


def _against_samples(study: Certificates, run: Run) -> tuple[Panel, ...]:
    panels = []
    for near in study.near:
        found = _of_start(run, near)
        found = found.some(found.epoch == study.epochs)
        series = (*_guaranteed(found, found.samples), _true(found, found.samples))
        panels.append(Panel(_start(near), "samples", "ε", series, log_x=True, log_y=True))
    return tuple(panels)


def _guaranteed(found: Verdicts, key: np.ndarray) -> list[Series]:
    return [_quartiles(name, by(key, found, name, found.eps), colour=_COLOURS[name]) for name in AUGMENTED]


def _true(found: Verdicts, key: np.ndarray) -> Series:
    first = next(iter(AUGMENTED))
    return _quartiles(_TRUE, by(key, found, first, found.nearest), dashed=True, colour=style.SOFT)


def _bounded(found: Verdicts) -> Panel:
    given = found.some(found.certified & (found.eps <= 10))
    floor = 1e-17  # what is exact has a place too
    series = [
        Series(
            str(name),
            given.eps[here],
            np.maximum(given.nearest[here], floor),
            points=True,
            colour=_COLOURS[str(name)],
            network=given.network[here],
        )
        for name in np.unique(given.result)
        if (here := given.result == name).any()
    ]
    ends = np.array([1e-8, 10.0])
    line = Series("as far as guaranteed", ends, ends, dashed=True, colour=style.SOFT)
    return Panel("", "guaranteed ε", "true ε", (line, *series), log_x=True, log_y=True)
