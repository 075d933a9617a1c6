"""Figures and headline of `monotonicity` (Phuong 2021, fig. 5.5, lemma 5.1)."""

import numpy as np
import pyarrow as pa
import xarray as xr

from understudy.claims import number
from understudy.papers.distillation.monotonicity.claims import Learners, correlation, read_learners
from understudy.papers.distillation.monotonicity.study import (
    DESCENT,
    DISTILLATION,
    LIMIT,
    PATH,
    Monotonicity,
    biased_name,
)
from understudy.papers.distillation.shared import estimates, mean_series
from understudy.report import style
from understudy.report.figures import Curves, Panel, Series
from understudy.report.story import Figure, Number, Story, counted
from understudy.store import Run

_BIASED = "w_δ"
_COLOURS = {DISTILLATION: style.BLUE, DESCENT: style.ORANGE, LIMIT: style.VERMILLION, _BIASED: style.GREEN}
_SHORT = {LIMIT: "max-margin limit"}
_SHOWN = 1_000
"""Most transfer sets that are drawn."""
_SAME = 1e-12
"""Differences of angles in degrees that are only rounding."""


def story(study: Monotonicity, run: Run) -> Story:
    """Monotonicity and risk of the learners, the effect of another input, and hard targets over training."""
    found = read_learners(study, run)
    sets = f"n = {counted(study.seeds, 'transfer set')}"
    helped = found.sets["nearer"].sel(learner=DISTILLATION).to_numpy()
    deltas = ", ".join(f"{delta:g}" for delta in sorted(study.deltas))
    figures = (
        Figure(
            "monotonicity",
            "Monotonicity and risk",
            "Expected risk on new inputs, and how often another input lowers the angle with the teacher; w_δ from left "
            f"to right with δ = {deltas}. Bars and band: {study.confidence:.0%} interval of the index.",
            "S3 fig. 5.5",
            _scatter(study, found, sets),
        ),
        Figure(
            "one-more",
            "The effect of another input",
            "One point per transfer set: the angle with the teacher of the student of "
            f"{counted(study.inputs, 'input')}, and of one more. Below the dashed line the input helped: for "
            f"distillation in {int(helped.sum()):,} of {len(helped):,} sets. A max-margin separator does not change "
            "unless the new input falls within its margin.",
            "S3 lemma 5.1, eq. 5.34",
            _one_more(study, found, sets),
        ),
        Figure(
            "hard-targets",
            "Hard targets depend on the number of steps",
            f"The hard-target learner along gradient descent at rate {study.rate:g}; dashed, the max-margin separator "
            "to whose direction it converges, as slowly as 1/log of the steps. Figure 1 shows it after "
            f"{study.steps:,} steps.",
            "S3 fig. 5.5, along gradient descent",
            _path(run, found, sets),
        ),
    )
    return Story(_headline(study, found), _numbers(found), figures)


def _scatter(study: Monotonicity, found: Learners, note: str) -> Curves:
    def series(label: str, names: list[str]) -> Series:
        x = found.risk["mean"].sel(learner=names).to_numpy()
        y, low, high = (found.monotonicity[end].sel(learner=names).to_numpy() for end in ("mean", "low", "high"))
        return Series(label, x, y, low, high, points=label != _BIASED, colour=_COLOURS[label])

    biased = [biased_name(delta) for delta in sorted(study.deltas)]
    alone = [series(name, [name]) for name in (DISTILLATION, DESCENT, LIMIT)]
    every = (*alone, series(_BIASED, biased))
    return Curves((Panel("", "expected risk", "monotonicity index", every),), note)


def _one_more(study: Monotonicity, found: Learners, note: str) -> Curves:
    panels = []
    for name in (DISTILLATION, biased_name(max(study.deltas)), DESCENT, LIMIT):
        own = found.sets.sel(learner=name)
        before, after = (np.degrees(own[angle].to_numpy()) for angle in ("angle", "angle with one more"))
        ends = np.array([0.0, max(before.max(), after.max())])
        same = Series("no change", ends, ends, dashed=True, colour=style.SOFT)
        kept = float((np.abs(after - before) < _SAME).mean())
        index = found.monotonicity["mean"].sel(learner=name).item()
        title = f"{_SHORT.get(name, name)}: {index:.0%} nearer" + (f", {kept:.0%} the same" if kept else "")
        unit = own["unit"].to_numpy()[:_SHOWN]
        points = Series(
            "a transfer set", before[:_SHOWN], after[:_SHOWN], points=True, colour=style.PURPLE, network=unit
        )
        panels.append(Panel(title, f"angle, {counted(study.inputs, 'input')}, °", "angle, one more, °", (same, points)))
    return Curves(tuple(panels), note)


def read_steps(run: Run) -> pa.Table:
    """One row per step at which the hard-target learner was probed, with means over transfer sets."""
    if "steps" in run.tables:
        return run.table("steps")
    # Runs of earlier versions have the means among the metrics of the first network.
    names = [f"{end} {what}" for what in ("risk", "index") for end in ("mean", "low", "high")]
    first = {name: run.array(name, learner=PATH).isel(network=0).dropna("epoch") for name in names}
    return pa.table({"step": first["mean risk"]["epoch"].to_numpy()} | {n: v.to_numpy() for n, v in first.items()})


def _path(run: Run, found: Learners, note: str) -> Curves:
    steps = read_steps(run)
    ends = steps["step"].to_numpy()[[0, -1]]
    each: dict[str, tuple[str, xr.Dataset]] = {
        "risk": ("expected risk", found.risk),
        "index": ("monotonicity index", found.monotonicity),
    }
    panels = []
    for name, (words, means) in each.items():
        path = mean_series("descent", estimates(steps, name, "step"), "step", colour=_COLOURS[DESCENT])
        mean, low, high = (np.full(2, means[end].sel(learner=LIMIT).item()) for end in ("mean", "low", "high"))
        limit = Series("max-margin limit", ends, mean, low, high, dashed=True, colour=_COLOURS[LIMIT])
        panels.append(Panel("", "step", words, (path, limit), log_x=True))
    return Curves(tuple(panels), note)


def _headline(study: Monotonicity, found: Learners) -> str:
    risks, indices = (
        dict(zip(each["learner"].to_numpy().tolist(), each["mean"].to_numpy().tolist(), strict=True))
        for each in (found.risk, found.monotonicity)
    )
    least, most = min(risks, key=risks.__getitem__), max(indices, key=indices.__getitem__)
    lowest, highest = f"the lowest of {len(risks)} learners", "more than for any other"
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
        f"Correlation of the learners' risks and indices: {correlation(found.sets, (LIMIT,))}."
    )


def _numbers(found: Learners) -> tuple[Number, ...]:
    risk, index = (each["mean"].sel(learner=DISTILLATION).item() for each in (found.risk, found.monotonicity))
    r = correlation(found.sets, (LIMIT,)).value
    return (
        Number(f"{found.sets.sizes['seed']:,}", "transfer sets"),
        Number(f"{risk:.4f}", "expected risk, distillation"),
        Number(f"{index:.3f}", "monotonicity index, distillation"),
        *([Number(number(r, ".2f"), "correlation of risk and index")] if np.isfinite(r) else []),
    )
