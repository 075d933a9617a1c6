"""The two-layer study in words and figures."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from understudy.lab.recovery import first_epochs, strengths
from understudy.papers.specialization.sweep import Sweep, rank_correlations, recovery_rates
from understudy.report import style
from understudy.report.figures import Curves, RecoveryTime, Specialization, StudentNodes
from understudy.report.story import Figure, Number, Story, counted
from understudy.store import Run

if TYPE_CHECKING:
    from understudy.papers.specialization.two_layer.study import TwoLayer

_EARLY = 5
_SLIDER = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
"""Epochs between the first and the last at which the page shows the L."""
_L_POLARITIES = (0.0, 1.0, 2.0)
"""Rows of S0 fig 5; a run of one teacher size shows all that it has."""


def story(study: TwoLayer, run: Run) -> Story:
    sweeps = [sweep for sweep in Sweep.each(run) if (sweep.network >= 0).any()]
    if not sweeps:
        return Story(_diverged(study, run), (Number(f"{run.networks.num_rows:,}", "networks, all diverged"),), ())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a setting in which every network diverged
        return _story(study, sweeps)


def _story(study: TwoLayer, sweeps: list[Sweep]) -> Story:
    """The figures of the papers at their teacher sizes, then which nodes and what loss at the other sizes."""
    main = _of_size(20, sweeps)
    several = len(sweeps) > 1
    figures = [
        _recovery_rate(study, main, several),
        _best_correlation(study, main, several),
        _specialization(study, _of_size(10, sweeps), several),
        _loss_curves(main, several),
        _recovery_time(study, main, several),
    ]
    for sweep in sweeps:
        if sweep is not main:
            figures += [
                _renamed(figure, sweep) for figure in (_recovery_rate(study, sweep, False), _loss_curves(sweep, False))
            ]
    return Story(_headline(study, main), _numbers(main, several), tuple(figures))


def _of_size(nodes: int, sweeps: list[Sweep]) -> Sweep:
    """The teacher size that the papers show, or the largest there is."""
    return next((sweep for sweep in sweeps if sweep.teacher_nodes == nodes), sweeps[-1])


def _with(sweep: Sweep, several: bool) -> str:
    """Which teachers a figure is about, where a run has several sizes of them."""
    return f" ({counted(sweep.teacher_nodes, 'teacher node')})" if several else ""


def _renamed(figure: Figure, sweep: Sweep) -> Figure:
    """A figure of another teacher size than the papers', under a name of its own."""
    words = f"{figure.title}, with {counted(sweep.teacher_nodes, 'teacher node')}"
    return replace(figure, name=f"{figure.name}-{sweep.teacher_nodes}", title=words)


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
    first = sweep.nodes_at(first_epochs(sweep.run))[p]
    middle = np.ceil(np.nanmedian(first, axis=1))
    m, ends = sweep.teacher_nodes, list(dict.fromkeys((_shown(sweep), 0)))

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
    lost, total = len(sweep.run.networks["diverged_at"].drop_null()), sweep.run.networks.num_rows
    after = f" {lost:,} of {total:,} networks diverged." if lost else ""
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
        return base
    parts = [f"{wide} ends below {narrow} at p = {where}"] if where else []
    parts += [f"{narrow} ends below {wide} at p = {elsewhere}"] if elsewhere else []
    return f"{base}: {'; '.join(parts)}"


def _numbers(sweep: Sweep, several: bool) -> tuple[Number, ...]:
    run = sweep.run
    wide = sweep.network[:, _shown(sweep)].ravel()
    wide = wide[wide >= 0]
    recovered = run.series("recovered", 0)[wide, -1].mean() if len(wide) else np.nan
    loss = np.median(run.series("eval_loss")[wide, -1]) if len(wide) else np.nan
    multiple = f"{sweep.multiples[_shown(sweep)]:g}×"
    which = f"{sweep.teacher_nodes} teacher nodes" if several else "teacher nodes"
    diverged = run.networks["diverged_at"].drop_null()
    numbers = (
        Number(f"{run.networks.num_rows:,}", "networks"),
        Number(f"{recovered:.0%}", f"of {which} recovered at {multiple}"),
        Number(f"{loss:.1e}", f"median evaluation loss at {multiple}{_with(sweep, several)}"),
    )
    return numbers if not len(diverged) else (*numbers, Number(f"{len(diverged):,}", "networks diverged"))


def _array(sweep: Sweep, values: np.ndarray, dims: tuple[str, ...], k: int | None = None) -> xr.DataArray:
    """Label values with the parameters of a sweep; `k` is the multiple that they are of, if it is one."""
    named = {"polarity": sweep.polarities, "multiple": sweep.multiples, "epoch": sweep.run.epochs}
    networks, where = sweep.network, ("polarity", "multiple", "seed")
    if k is not None:
        networks, where = networks[:, k], ("polarity", "seed")
    coords = {dim: named[dim] for dim in dims if dim in named}
    return xr.DataArray(values, dims=dims, coords=coords | {"network": (where, networks)})


def _polarities(sweep: Sweep, notes: Sequence[str] = ()) -> dict[float, str]:
    """Titles of panels by polarity, each with a note on a second line."""
    polarities = sweep.polarities.tolist()
    return {p: f"p = {p:g}" + (f"\n{note}" if note else "") for p, note in zip_longest(polarities, notes)}


def _columns(sweep: Sweep, most: int) -> int:
    return style.grid(len(sweep.polarities), most)[1]


def _multiples(sweep: Sweep) -> dict[float, str]:
    return {k: f"{k:g}×" for k in sweep.multiples.tolist()}


def _recovery_rate(study: TwoLayer, sweep: Sweep, several: bool) -> Figure:
    early, seeds = min(_EARLY, study.epochs), len(sweep.seeds)
    soon, late = (recovery_rates(sweep, epoch) for epoch in (early, study.epochs))
    return Figure(
        "recovery-rate",
        "Which teacher nodes are recovered",
        f"Share of {counted(seeds, 'seed')} in which each teacher node has a student above 0.95, from the strongest "
        f"node to the weakest: strong nodes come first, and more student nodes reach weaker ones"
        f"{_with(sweep, several)}.",
        "S0 fig 7, S1 fig 5",
        Curves.from_array(
            xr.DataArray(
                np.stack([late, soon]),
                dims=("epoch", "polarity", "multiple", "teacher"),
                coords={
                    "epoch": [f"epoch {study.epochs}", f"epoch {early}"],
                    "polarity": sweep.polarities,
                    "multiple": sweep.multiples,
                },
            ),
            name="success rate",
            x="teacher",
            panel="polarity",
            line="multiple",
            style="epoch",
            over=(),
            titles=_polarities(sweep),
            labels=_multiples(sweep),
            x_name="teacher index",
            colours="multiples",
            limits=(-0.03, 1.03),
            note=f"n = {counted(seeds, 'seed')}",
            columns=_columns(sweep, 6),
            height=1.35,
        ),
    )


def _best_correlation(study: TwoLayer, sweep: Sweep, several: bool) -> Figure:
    k = _shown(sweep)
    each = sweep.nodes_at(sweep.run.matched("teacher", "correlation"))[:, k].swapaxes(2, 3)
    loss = sweep.at(sweep.run.series("eval_loss")[:, -1])[:, k]
    notes = tuple(f"log10 loss {np.log10(np.nanmedian(row)):.2f}" for row in loss)
    kind = Curves.from_array(
        _array(sweep, each, ("polarity", "seed", "teacher", "epoch"), k),
        name="best correlation",
        panel="polarity",
        line="teacher",
        titles=_polarities(sweep, notes),
        labels={t: f"teacher node {t}" for t in range(sweep.teacher_nodes)},
        colours=style.ramp(sweep.teacher_nodes),
        limits=(0.0, 1.02),
        columns=_columns(sweep, 5),
        ramp=("strong teacher", "weak teacher"),
        height=1.5,
    )
    return Figure(
        "best-correlation",
        "When each teacher node is learned",
        "Correlation of each teacher node's best student over training (median over seeds): strong nodes rise "
        f"early, weak ones late or never{_with(sweep, several)}.",
        "S0 fig 8, S1 fig 7",
        kind,
    )


def _loss_curves(sweep: Sweep, several: bool) -> Figure:
    log = np.log10(sweep.run.series("eval_loss"))
    kind = Curves.from_array(
        _array(sweep, sweep.at(log), ("polarity", "multiple", "seed", "epoch")),
        name="log₁₀ evaluation loss",
        panel="polarity",
        line="multiple",
        titles=_polarities(sweep),
        labels=_multiples(sweep),
        colours="multiples",
        columns=_columns(sweep, 3),
        height=1.55,
    )
    caption = f"{_loss_caption(sweep)}{_with(sweep, several)}."
    return Figure("loss-curves", "What that does to the loss", caption, "S1 fig 11", kind)


def _specialization(study: TwoLayer, sweep: Sweep, several: bool) -> Figure:
    run, m = sweep.run, sweep.teacher_nodes
    epochs = np.array(sorted({e for e in _SLIDER if e < study.epochs} | {study.epochs}))
    rho, fan, teacher = (
        np.stack([run.matched("student", column, epoch=int(e)) for e in epochs])
        for column in ("correlation", "fanout", "teacher")
    )
    seeds = run.column("seed")
    papers = np.isin(sweep.polarities, _L_POLARITIES)
    rows = papers if several and papers.sum() == len(_L_POLARITIES) else np.ones_like(papers)
    polarities = sweep.polarities[rows]

    def cell(p: float, k: float) -> StudentNodes:
        networks = sweep.where(p, k)
        students = round(k * m)
        return StudentNodes(
            rho[:, networks, :students].reshape(len(epochs), -1),
            fan[:, networks, :students].reshape(len(epochs), -1),
            teacher[:, networks, :students].reshape(len(epochs), -1).astype(int),
            np.repeat(networks, students),
            np.tile(np.arange(students), len(networks)),
            np.repeat(seeds[networks], students),
        )

    cells = tuple(tuple(cell(p, k) for k in sweep.multiples) for p in polarities)
    losses = np.nanmedian(sweep.at(run.series("eval_loss")[:, -1]), axis=2)[rows]
    return Figure(
        "specialization",
        "Students that match nobody fall silent",
        "Every student node: how well it matches its best teacher node, and how loudly it speaks. What is not "
        f"specialised (left) has little fan-out (bottom): the L{_with(sweep, several)}.",
        "S0 fig 5, S1 fig 3",
        Specialization(polarities, sweep.multiples, epochs, cells, losses),
    )


def _recovery_time(study: TwoLayer, sweep: Sweep, several: bool) -> Figure:
    k, m = _shown(sweep), sweep.teacher_nodes
    first, strength = first_epochs(sweep.run)[:, :m], strengths(sweep.run)[:, :m]
    notes = []
    for networks in sweep.network[:, k]:
        there = networks[networks >= 0]
        each = rank_correlations(first[there], strength[there])
        notes.append(f"rank correlation {np.median(each):.2f}" if len(each) else "")
    return Figure(
        "recovery-time",
        "Strength decides the order",
        "Epoch at which each teacher node is first recovered, by teacher index, from the strongest node to the "
        f"weakest, one point a node and network{_with(sweep, several)}.",
        "S0 fig 8",
        RecoveryTime(sweep.polarities, sweep.at(first)[:, k], sweep.network[:, k], float(study.epochs), tuple(notes)),
    )
