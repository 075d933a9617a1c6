"""Figures and headline of `certificates` (Tian 2020, theorems 1, 3, 4, 5)."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from understudy._citations import cite
from understudy.lab.layers import some_diverged
from understudy.papers.specialization.certificates.claims import every_node, layer_values, least_samples, read_verdicts
from understudy.papers.specialization.certificates.study import AUGMENTED, Certificates
from understudy.report import style
from understudy.report.figures import Curves, Panel, Series
from understudy.report.story import Figure, Number, Story, counted
from understudy.store import Run

_THEOREMS = ("S0 theorem 3", "S0 theorem 4", "S0 theorem 1", "S0 theorem 5", "S1 theorem 4")
_COLOURS = dict(zip(_THEOREMS, style.categories(5), strict=True))
_FLOOR = 1e-17
"""Where distances of exactly 0 are drawn."""


def story(study: Certificates, run: Run) -> Story:
    """Certificates with more samples, during training, and on triples."""
    verdicts = read_verdicts(run)
    triples, setting, training = (verdicts[verdicts["part"] == part] for part in ("triples", "setting", "training"))
    students = f"n = {counted(study.students, 'seed')}, two nodes each"
    figures = (
        Figure(
            "samples",
            "Enough samples certify every node",
            f"Two teacher nodes in the plane at {study.angle:g}°, a student with {study.multiple:g} times the nodes "
            f"and weights at a relative distance of {study.distance:g}. Left: share of certified teacher nodes; "
            "middle: share of seeds in which all are certified; right: guaranteed ε, which falls as one over the "
            "number of samples.",
            "S0 theorems 3, 4",
            Curves(_setting(setting), note=f"n = {counted(study.seeds, 'seed')}: median, quartiles"),
        ),
        Figure(
            "training",
            "Certificates appear as training proceeds, and are conservative",
            f"Students with {study.multiple:g} times the nodes under full-batch gradient descent, certified with "
            f"{study.certify:,} samples. Top: share of teacher nodes that are certified; bottom: guaranteed ε of the "
            "certified nodes, and measured ε of the nearest student to any node, medians and quartiles.",
            "S0 theorems 3, 4",
            Curves(_training(study, training), note=students, columns=len(study.near)),
        ),
        Figure(
            "eps",
            "More samples guarantee more",
            f"After {study.epochs:,} epochs: guaranteed ε of the certified nodes and measured ε of all, medians and "
            "quartiles, against the number of samples.",
            "S0 theorems 3, 4",
            Curves(_against_samples(study, training), note=students, columns=len(study.near)),
        ),
        Figure(
            "triples",
            "Guaranteed and measured distances",
            "Every certificate of a triple: the measured ε of the nearest student against the guaranteed one. None may "
            "lie above the line; distances of 0 are drawn at the bottom.",
            "S0 theorems 1, 3, 4, 5",
            Curves((_bounded(triples),), note=f"{counted(study.triples, 'triple')}, guarantees up to 10"),
        ),
    )
    given, wrong = int(triples["certified"].sum()), int(triples["contradicted"].sum())
    least = {name: least_samples(setting, name) for name in AUGMENTED}
    return Story(
        f"Of {given:,} certificates over {counted(study.triples, 'triple')} of teacher, student and data, "
        f"{'none is' if not wrong else f'{wrong:,} are'} contradicted; in the plane {_least(study, least)}."
        f"{some_diverged(run)}",
        (
            Number(f"{given:,}", "certificates of triples"),
            Number(f"{wrong:,}", "contradicted"),
            Number(style.number(float(np.nanmax(layer_values(run, "rule")))), "largest error of the recursive rule"),
            *(Number(f"{count:,}", f"samples certify all by {name}") for name, count in least.items() if count),
        ),
        figures,
    )


def _least(study: Certificates, least: dict[str, int | None]) -> str:
    known = [count for count in least.values() if count]
    if not known:
        return f"{max(study.samples):,} samples do not certify both nodes of every teacher"
    return f"{min(known):,} samples certify both nodes of a teacher in {counted(study.seeds, 'seed')}"


def _quartiles(found: pd.DataFrame, result: str, key: str, column: str, label: str = "", **more: Any) -> Series:
    """Median and quartiles of one theorem's values, by samples or epochs."""
    found = found[found["result"] == result].groupby(key)[column].quantile([0.25, 0.5, 0.75]).unstack()
    low, middle, high = found.to_numpy().T.reshape(3, -1)
    more = {"colour": _COLOURS[result]} | more
    return Series(label or cite(result), found.index.to_numpy(), middle, low, high, **more)


def _lines(shares: Iterable[pd.Series]) -> tuple[Series, ...]:
    """One line per theorem."""
    return tuple(
        Series(cite(name), share.index.to_numpy(), share.to_numpy(), colour=_COLOURS[name])
        for name, share in zip(AUGMENTED, shares, strict=True)
    )


def _shares(found: pd.DataFrame, key: str) -> tuple[Series, ...]:
    """Share of teacher nodes that each theorem certifies, by samples or epochs."""
    return _lines(found[found["result"] == name].groupby(key)["certified"].mean() for name in AUGMENTED)


def _setting(found: pd.DataFrame) -> tuple[Panel, ...]:
    whole = _lines(every_node(found, name) for name in AUGMENTED)
    eps = tuple(_quartiles(found, name, "samples", "eps") for name in AUGMENTED)
    return (
        Panel("Teacher nodes", "samples", "share certified", _shares(found, "samples"), log_x=True),
        Panel("Seeds", "samples", "share with all certified", whole, log_x=True),
        Panel("Guarantee", "samples", "guaranteed ε", eps, log_x=True, log_y=True, slope=-1.0),
    )


def _start(near: float) -> str:
    return f"nearness {near:g} at the start" if near else "random start"


def _distances(found: pd.DataFrame, key: str) -> tuple[Series, ...]:
    """Guaranteed ε of each theorem, and the measured one."""
    first = next(iter(AUGMENTED))  # the measured distance is the same for all theorems
    return (
        *(_quartiles(found, name, key, "eps") for name in AUGMENTED),
        _quartiles(found, first, key, "nearest", "measured ε", dashed=True, colour=style.SOFT),
    )


def _training(study: Certificates, found: pd.DataFrame) -> tuple[Panel, ...]:
    found = found[found["samples"] == study.certify]
    starts = {near: found[found["near"] == near] for near in study.near}
    top = (Panel(_start(near), "epoch", "share certified", _shares(own, "epoch")) for near, own in starts.items())
    bottom = (Panel("", "epoch", "ε", _distances(own, "epoch"), log_y=True) for own in starts.values())
    return *top, *bottom


def _against_samples(study: Certificates, found: pd.DataFrame) -> tuple[Panel, ...]:
    found = found[found["epoch"] == study.epochs]
    return tuple(
        Panel(_start(near), "samples", "ε", _distances(found[found["near"] == near], "samples"), log_x=True, log_y=True)
        for near in study.near
    )


def _bounded(found: pd.DataFrame) -> Panel:
    given = found[found["certified"] & (found["eps"] <= 10)]
    series = (
        Series(
            cite(name),
            own["eps"].to_numpy(),
            np.maximum(own["nearest"].to_numpy(), _FLOOR),
            points=True,
            colour=_COLOURS[name],
        )
        for name, own in given.groupby("result")
    )
    ends = np.array([1e-8, 10.0])
    line = Series("measured = guaranteed", ends, ends, dashed=True, colour=style.SOFT)
    return Panel("", "guaranteed ε", "measured ε", (line, *series), log_x=True, log_y=True)
