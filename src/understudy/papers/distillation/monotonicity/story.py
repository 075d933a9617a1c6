"""Monotonicity in words and figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from understudy.papers.distillation.monotonicity.claims import correlation, learners
from understudy.papers.distillation.monotonicity.study import DESCENT, DISTILLATION, LIMIT, PATH, biased_name
from understudy.papers.distillation.shared import Cell
from understudy.report import style
from understudy.report.figures import Curves, Panel, Series
from understudy.report.story import Figure, Number, Story, counted
from understudy.store import Run

if TYPE_CHECKING:
    from understudy.papers.distillation.monotonicity.study import Monotonicity

_BIASED = "w_δ"
_COLOURS = {DISTILLATION: style.BLUE, DESCENT: style.ORANGE, LIMIT: style.VERMILLION, _BIASED: style.GREEN}

_SHORT = {LIMIT: "max-margin limit"}
_SAME = 1e-12
"""Degrees, no more than rounding."""


def story(study: Monotonicity, run: Run) -> Story:
    found = learners(run)
    sets = f"n = {counted(study.seeds, 'transfer set')}"
    deltas = ", ".join(f"{delta:g}" for delta in sorted(study.deltas))
    figures = (
        Figure(
            "monotonicity",
            "Monotonicity and risk",
            "Expected risk on new inputs, and how often one input more lowers the angle with the teacher; w_δ from "
            f"left to right with δ = {deltas}. Bars and band: {study.confidence:.0%} of the index.",
            "S3 fig 5.5",
            _scatter(study, found, sets),
        ),
        Figure(
            "one-more",
            "What one input more does",
            f"A point a transfer set: the angle with the teacher of the student of {counted(study.inputs, 'input')}, "
            f"and of one more. Below the dashed line the input helped: of distillation in {_helped(found)} sets. A "
            "max-margin separator stays as it is unless the new input falls within its margin.",
            "S3 lemma 5.1, eq. 5.34",
            _one_more(study, found, sets),
        ),
        Figure(
            "hard-targets",
            "Hard targets depend on when one stops",
            f"The hard-target learner along gradient descent at rate {study.rate:g}; dashed, the max-margin separator "
            f"whose direction it goes to, as slowly as 1/log of the steps. Figure 1 has it after {study.steps:,}.",
            "beside S3 fig 5.5",
            _path(study, run, found, sets),
        ),
    )
    return Story(_headline(study, found), _numbers(found), figures)


def _scatter(study: Monotonicity, found: dict[str, Cell], note: str) -> Curves:
    def series(label: str, some: list[Cell]) -> Series:
        x = np.array([cell.means["risk"].mean for cell in some])
        index = [cell.means["index"] for cell in some]
        y, low, high = (np.array([getattr(one, field) for one in index]) for field in ("mean", "low", "high"))
        return Series(label, x, y, low, high, points=label != _BIASED, colour=_COLOURS[label])

    biased = [found[biased_name(delta)] for delta in sorted(study.deltas)]
    alone = [series(name, [found[name]]) for name in (DISTILLATION, DESCENT, LIMIT)]
    every = (*alone, series(_BIASED, biased))
    return Curves((Panel("", "expected risk", "monotonicity index", every),), note)


def _one_more(study: Monotonicity, found: dict[str, Cell], note: str) -> Curves:
    names = (DISTILLATION, biased_name(max(study.deltas)), DESCENT, LIMIT)
    panels = []
    for name in names:
        cell = found[name]
        before, after = (np.degrees(cell.values[angle]) for angle in ("angle", "angle with one more"))
        ends = np.array([0.0, max(before.max(), after.max())])
        same = Series("no change", ends, ends, dashed=True, colour=style.SOFT)
        kept = float((np.abs(after - before) < _SAME).mean())
        who = _SHORT.get(name, name)
        title = f"{who}: {cell.means['index'].mean:.0%} nearer" + (f", {kept:.0%} the same" if kept else "")
        points = Series("a transfer set", before, after, points=True, colour=style.PURPLE, network=cell.networks)
        panels.append(Panel(title, f"angle, {counted(study.inputs, 'input')}, °", "angle, one more, °", (same, points)))
    return Curves(tuple(panels), note)


def _helped(found: dict[str, Cell]) -> str:
    nearer = found[DISTILLATION].values["nearer"]
    return f"{int(nearer.sum()):,} of {len(nearer):,}"


def _path(study: Monotonicity, run: Run, found: dict[str, Cell], note: str) -> Curves:
    network = int(np.flatnonzero(run.column("learner") == PATH)[0])
    panels = []
    for what, words in (("risk", "expected risk"), ("index", "monotonicity index")):
        mean, low, high = (run.series(f"{word} {what}")[network] for word in ("mean", "low", "high"))
        there = np.isfinite(mean)
        steps = run.epochs[there]
        path = Series("descent", steps, mean[there], low[there], high[there], colour=_COLOURS[DESCENT])
        ends, limit = steps[[0, -1]], found[LIMIT].means[what]
        mean, low, high = (np.full(2, getattr(limit, field)) for field in ("mean", "low", "high"))
        series = (path, Series("max-margin limit", ends, mean, low, high, dashed=True, colour=_COLOURS[LIMIT]))
        panels.append(Panel("", "step", words, series, log_x=True))
    return Curves(tuple(panels), note)


def _headline(study: Monotonicity, found: dict[str, Cell]) -> str:
    r = correlation([cell for name, cell in found.items() if name != LIMIT])
    risks = {name: cell.means["risk"].mean for name, cell in found.items()}
    indices = {name: cell.means["index"].mean for name, cell in found.items()}
    least, most = min(risks, key=risks.__getitem__), max(indices, key=indices.__getitem__)
    lowest, highest = f"the lowest of {len(found)} learners", "more than for any other"
    if least != DISTILLATION:
        lowest = f"where {least} has {risks[least]:.4f}"
    if most == DISTILLATION and list(indices.values()).count(indices[most]) > 1:
        highest = "as many as for another learner"
    elif most != DISTILLATION:
        highest = f"where {most} has {indices[most]:.1%}"
    return (
        f"Distillation from {counted(study.inputs, 'input')} has an expected risk of {risks[DISTILLATION]:.4f}, "
        f"{lowest}, and {indices[DISTILLATION]:.1%} of further inputs bring it nearer to its teacher, {highest}; hard "
        f"targets have {risks[DESCENT]:.4f} and {indices[DESCENT]:.1%} after "
        f"{counted(study.steps, 'step')}, {risks[LIMIT]:.4f} and {indices[LIMIT]:.1%} in the limit of infinitely many. "
        f"Correlation of the learners' risks and indices: {r}."
    )


def _numbers(found: dict[str, Cell]) -> tuple[Number, ...]:
    best = found[DISTILLATION].means
    r = correlation([cell for name, cell in found.items() if name != LIMIT])
    return (
        Number(f"{len(found[DISTILLATION].networks):,}", "transfer sets"),
        Number(f"{best['risk'].mean:.4f}", "expected risk, distillation"),
        Number(f"{best['index'].mean:.3f}", "monotonicity index, distillation"),
        *(
            [Number(f"{r.value:.2f}".replace("-", "−"), "correlation of risk and index")]
            if np.isfinite(r.value)
            else []
        ),
    )
