"""The two-layer study in words and figures."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import numpy as np

from understudy.report.figures import (
    BestCorrelation,
    LossCurves,
    RecoveryRate,
    RecoveryTime,
    Specialization,
    StudentNodes,
)
from understudy.report.story import Figure, Number, Story, counted
from understudy.store import Run
from understudy.studies.recovery import first_epochs, rank_correlations, recovery_rates, strengths
from understudy.studies.sweep import Sweep

if TYPE_CHECKING:
    from understudy.studies.two_layer import TwoLayer

_EARLY = 5
_SLIDER = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
"""Epochs between the first and the last at which the page shows the L."""


def story(study: TwoLayer, run: Run) -> Story:
    sweep = Sweep.of(run)
    if (sweep.network < 0).all():
        return Story(_diverged(study, run), (Number(f"{run.networks.num_rows:,}", "networks, all diverged"),), ())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a setting in which every network diverged
        return _story(study, sweep)


def _story(study: TwoLayer, sweep: Sweep) -> Story:
    seeds = counted(len(sweep.seeds), "seed")
    figures = (
        Figure(
            "recovery-rate",
            "Which teacher nodes are recovered",
            f"Share of {seeds} in which each teacher node has a student above 0.95, from the strongest node to the "
            "weakest: strong nodes come first, and more student nodes reach weaker ones.",
            "S0 fig 7, S1 fig 5",
            _recovery_rate(study, sweep),
        ),
        Figure(
            "best-correlation",
            "When each teacher node is learned",
            "Correlation of each teacher node's best student over training (median over seeds): strong nodes rise "
            "early, weak ones late or never.",
            "S0 fig 8, S1 fig 7",
            _best_correlation(study, sweep),
        ),
        Figure(
            "specialization",
            "Students that match nobody fall silent",
            "Every student node: how well it matches its best teacher node, and how loudly it speaks. What is not "
            "specialised (left) has little fan-out (bottom): the L.",
            "S0 fig 5, S1 fig 3",
            _specialization(study, sweep),
        ),
        Figure(
            "loss-curves",
            "What that does to the loss",
            _loss_caption(sweep),
            "S1 fig 11",
            _loss_curves(sweep),
        ),
        Figure(
            "recovery-time",
            "Strength decides the order",
            "Epoch at which each teacher node is first recovered, by teacher index, from the strongest node to the "
            "weakest, one point a node and network.",
            "S0 fig 8",
            _recovery_time(study, sweep),
        ),
    )
    return Story(_headline(study, sweep), _numbers(study, sweep), figures)


def _shown(sweep: Sweep) -> int:
    """The multiple that S0 fig 8 shows, or the widest there is."""
    five = np.flatnonzero(sweep.multiples == 5)
    return int(five[0]) if len(five) else len(sweep.multiples) - 1


def _diverged(study: TwoLayer, run: Run) -> str:
    first, total = run.networks["diverged_at"].drop_null().to_numpy().min(), run.networks.num_rows
    return f"All {total:,} networks diverged, the first at step {first:,}: choose a smaller --lr than {study.lr:g}."


def _headline(study: TwoLayer, sweep: Sweep) -> str:
    polarity = 1.0 if 1.0 in sweep.polarities else float(sweep.polarities[len(sweep.polarities) // 2])
    p = int(np.flatnonzero(sweep.polarities == polarity)[0])
    first = sweep.at(first_epochs(sweep.run))[p]
    middle = np.ceil(np.nanmedian(first, axis=1))
    m, ends = study.teacher_nodes, list(dict.fromkeys((_shown(sweep), 0)))

    def sentence(k: int) -> str:
        multiple = sweep.multiples[k]
        students = "as many nodes as the teacher" if multiple == 1 else f"{multiple:g} times the teacher's nodes"
        if (sweep.network[p, k] < 0).all():
            return f"with {students} every network diverged"
        found = int(np.isfinite(middle[k]).sum())
        when = f"by epoch {middle[k].max() if found == m else study.epochs:g}"
        share = f"all {m} teacher nodes were recovered" if found == m else f"{found} of {m} were recovered"
        return f"with {students} {share} {when}"

    words = "; ".join(sentence(k) for k in ends)
    lost = int((sweep.network < 0).sum())
    after = f" {lost:,} of {sweep.network.size:,} networks diverged." if lost else ""
    seeds = counted(len(sweep.seeds), "seed")
    return f"{words[0].upper()}{words[1:]} (polarity {polarity:g}, median of {seeds}).{after}"


def _loss_caption(sweep: Sweep) -> str:
    """Says where wider students end lower, as it came out."""
    final = np.nanmedian(sweep.at(sweep.run.series("eval_loss")[:, -1]), axis=2)
    lower, higher = final[:, -1] < final[:, 0], final[:, -1] >= final[:, 0]
    narrow, wide = (f"{k:g}×" for k in (sweep.multiples[0], sweep.multiples[-1]))
    where, elsewhere = (", ".join(f"{p:g}" for p in sweep.polarities[is_so]) for is_so in (lower, higher))
    base = "Evaluation loss over training, median and quartiles over seeds"
    if narrow == wide or not (where or elsewhere):
        return base + "."
    parts = [f"{wide} ends below {narrow} at p = {where}"] if where else []
    parts += [f"{narrow} ends below {wide} at p = {elsewhere}"] if elsewhere else []
    return f"{base}: {'; '.join(parts)}."


def _numbers(study: TwoLayer, sweep: Sweep) -> tuple[Number, ...]:
    run = sweep.run
    wide = sweep.network[:, _shown(sweep)].ravel()
    wide = wide[wide >= 0]
    recovered = run.series("recovered", 0)[wide, -1].mean() if len(wide) else np.nan
    loss = np.median(run.series("eval_loss")[wide, -1]) if len(wide) else np.nan
    multiple = f"{sweep.multiples[_shown(sweep)]:g}×"
    diverged = run.networks["diverged_at"].drop_null()
    numbers = (
        Number(f"{run.networks.num_rows:,}", "networks"),
        Number(f"{recovered:.0%}", f"of teacher nodes recovered at {multiple}"),
        Number(f"{loss:.1e}", f"median evaluation loss at {multiple}"),
    )
    return numbers if not len(diverged) else (*numbers, Number(f"{len(diverged):,}", "networks diverged"))


def _over_seeds(values: np.ndarray, axis: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    low, middle, high = np.nanpercentile(values, (25, 50, 75), axis=axis)
    return middle, low, high


def _recovery_rate(study: TwoLayer, sweep: Sweep) -> RecoveryRate:
    early = min(_EARLY, study.epochs)
    soon, late = (recovery_rates(sweep, epoch) for epoch in (early, study.epochs))
    return RecoveryRate(sweep.polarities, sweep.multiples, soon, late, early, study.epochs, len(sweep.seeds))


def _best_correlation(study: TwoLayer, sweep: Sweep) -> BestCorrelation:
    k = _shown(sweep)
    each = sweep.at(sweep.run.matched("teacher", "correlation"))[:, k].swapaxes(2, 3)
    loss = sweep.at(sweep.run.series("eval_loss")[:, -1])[:, k]
    notes = tuple(f"log10 loss {np.log10(np.nanmedian(row)):.2f}" for row in loss)
    networks = sweep.network[:, k]
    there = networks >= 0
    panel = np.broadcast_to(np.arange(len(networks))[:, None], networks.shape)
    return BestCorrelation(
        sweep.polarities,
        sweep.run.epochs,
        *_over_seeds(each, axis=1),
        notes,
        len(sweep.seeds),
        networks[there],
        panel[there],
        each[there],
    )


def _loss_curves(sweep: Sweep) -> LossCurves:
    log = np.log10(sweep.run.series("eval_loss"))
    middle, low, high = _over_seeds(sweep.at(log), axis=2)
    there = sweep.network >= 0
    panel = np.broadcast_to(np.arange(len(sweep.polarities))[:, None, None], there.shape)
    networks = sweep.network[there]
    return LossCurves(
        sweep.polarities,
        sweep.multiples,
        sweep.run.epochs,
        middle,
        low,
        high,
        len(sweep.seeds),
        networks,
        panel[there],
        log[networks],
    )


def _specialization(study: TwoLayer, sweep: Sweep) -> Specialization:
    run = sweep.run
    epochs = np.array(sorted({e for e in _SLIDER if e < study.epochs} | {study.epochs}))
    rho, fan, teacher = (
        np.stack([run.matched("student", column, epoch=int(e)) for e in epochs])
        for column in ("correlation", "fanout", "teacher")
    )
    seeds = run.column("seed")

    def cell(p: float, k: float) -> StudentNodes:
        networks = sweep.where(p, k)
        students = round(k * study.teacher_nodes)
        return StudentNodes(
            rho[:, networks, :students].reshape(len(epochs), -1),
            fan[:, networks, :students].reshape(len(epochs), -1),
            teacher[:, networks, :students].reshape(len(epochs), -1).astype(int),
            np.repeat(networks, students),
            np.tile(np.arange(students), len(networks)),
            np.repeat(seeds[networks], students),
        )

    cells = tuple(tuple(cell(p, k) for k in sweep.multiples) for p in sweep.polarities)
    losses = np.nanmedian(sweep.at(run.series("eval_loss")[:, -1]), axis=2)
    return Specialization(sweep.polarities, sweep.multiples, epochs, cells, losses)


def _recovery_time(study: TwoLayer, sweep: Sweep) -> RecoveryTime:
    k = _shown(sweep)
    first, strength = first_epochs(sweep.run), strengths(sweep.run)
    notes = []
    for networks in sweep.network[:, k]:
        there = networks[networks >= 0]
        each = rank_correlations(first[there], strength[there])
        notes.append(f"rank correlation {np.median(each):.2f}" if len(each) else "")
    return RecoveryTime(sweep.polarities, sweep.at(first)[:, k], sweep.network[:, k], float(study.epochs), tuple(notes))
