"""Figures and headline of `two-layer` (Tian 2020, figs 5, 7, 8; Tian 2019, figs 3, 5, 7, 11)."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import xarray as xr

from understudy.lab.layers import diverged_story, multiple_curves, slider_epochs, some_diverged, student_nodes
from understudy.lab.recovery import first_epochs, strengths
from understudy.papers.specialization.two_layer.claims import (
    L_POLARITIES,
    SHOWN,
    best_correlations,
    by_size,
    rank_correlations,
    recovered_nodes,
)
from understudy.papers.specialization.two_layer.study import TwoLayer
from understudy.report import style
from understudy.report.figures import Curves, RecoveryTime, Specialization, StudentNodes
from understudy.report.story import Figure, Number, Story, counted
from understudy.store import Run
from understudy.store.arrays import Networks

_EARLY = 5
_SLIDER = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
"""Epochs, besides the last, at which the page shows every student."""


class Size(NamedTuple):
    """The networks with teachers of one size."""

    nodes: int
    networks: Networks
    loss: xr.DataArray
    """Evaluation loss by polarity, multiple, seed and epoch."""
    polarities: np.ndarray
    multiples: np.ndarray
    shown: float
    """The over-realization that is shown alone: that of the paper, or the widest."""
    seeds: str
    of: str = ""
    """Which teachers a figure is about, in runs with several sizes."""
    own: str = ""
    """The file of the user's own teacher, whose nodes are in the order of the file and which has no polarity."""

    @property
    def polarity(self) -> float:
        """The polarity that headline and numbers are about."""
        return 1.0 if 1.0 in self.polarities else float(self.polarities[len(self.polarities) // 2])

    @property
    def teacher(self) -> str:
        """The teachers that headline and numbers are about, in words."""
        return f"teacher {Path(self.own).name}" if self.own else f"polarity {self.polarity:g}"

    @property
    def run(self) -> Run:
        return self.networks.run

    def titles(self, notes: Sequence[str] = ()) -> dict[float, str]:
        """Titles of panels by polarity, each with a note on a second line."""
        lines = [f"\n{note}" if note else "" for note in notes] or [""] * len(self.polarities)
        names = [Path(self.own).name or f"p = {p:g}" for p in self.polarities]
        return {p: name + line for p, name, line in zip(self.polarities.tolist(), names, lines, strict=True)}

    @property
    def order(self) -> str:
        """The order of teacher nodes, in words."""
        return "in the order of the file" if self.own else "from the strongest node to the weakest"


def story(study: TwoLayer, run: Run) -> Story:
    """The papers' figures at their teacher sizes, then recovery and loss at the other sizes."""
    sizes = [
        _size(nodes, networks)._replace(own=study.teacher)
        for nodes, networks in by_size(run).items()
        if networks.alive.any()
    ]
    if not sizes:
        return diverged_story(study, run)
    if len(sizes) > 1:
        sizes = [size._replace(of=f" ({counted(size.nodes, 'teacher node')})") for size in sizes]
    main, ten = (next((size for size in sizes if size.nodes == m), sizes[-1]) for m in (20, 10))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # settings in which every network diverged
        figures = [
            _recovery_rate(study, main),
            _best_correlation(main),
            _specialization(ten, several=len(sizes) > 1),
            _loss_curves(main),
            _recovery_time(study, main),
        ]
        for size in (size._replace(of="") for size in sizes if size is not main):
            words = f", with {counted(size.nodes, 'teacher node')}"
            for figure in (_recovery_rate(study, size), _loss_curves(size)):
                figures.append(replace(figure, name=f"{figure.name}-{size.nodes}", title=figure.title + words))
        return Story(_headline(study, main), _numbers(main), tuple(figures))


def _size(nodes: int, networks: Networks) -> Size:
    loss = networks.array("eval_loss", "polarity multiple seed epoch")
    polarities, multiples = (loss[name].to_numpy() for name in ("polarity", "multiple"))
    shown = SHOWN if SHOWN in multiples else float(multiples[-1])
    return Size(nodes, networks, loss, polarities, multiples, shown, counted(loss.sizes["seed"], "seed"))


def _median_recovered(size: Size, multiple: float) -> tuple[float, float] | None:
    """Teacher nodes recovered at the end, and the epoch by which all are; medians of seeds, None if all diverged."""
    cell = size.networks.select(polarity=size.polarity, multiple=multiple)
    counts = np.round(cell.end("recovered", layer=0)[cell.alive] * size.nodes)
    if not len(counts):
        return None
    first = first_epochs(size.run)[cell.index[cell.alive], : size.nodes].max(axis=1)
    return float(np.median(counts)), float(np.ceil(np.median(first)))


def _headline(study: TwoLayer, size: Size) -> str:
    def sentence(multiple: float) -> str:
        students = "as many nodes as the teacher" if multiple == 1 else f"{multiple:g} times the teacher's nodes"
        recovered = _median_recovered(size, multiple)
        if recovered is None:
            return f"with {students} every network diverged"
        found, epoch = recovered
        when = f"by epoch {epoch if found == size.nodes and np.isfinite(epoch) else study.epochs:g}"
        share = f"all {found:g} teacher nodes" if found == size.nodes else f"{found:g} of {size.nodes}"
        return f"with {students} {share} were recovered {when}"

    words = "; ".join(sentence(k) for k in dict.fromkeys((size.shown, float(size.multiples[0]))))
    read = size.run.environment.get("read_as", {}).get("teacher", "")
    about = f"{size.teacher}, median of {size.seeds}"
    return f"{words[0].upper()}{words[1:]} ({about}).{some_diverged(size.run)}{f' {read}.' if read else ''}"


def _numbers(size: Size) -> tuple[Number, ...]:
    wide = size.networks.select(multiple=size.shown, polarity=size.polarity)
    recovered, loss = _median_recovered(size, size.shown), wide.end("eval_loss")[wide.alive]
    diverged = size.run.networks["diverged_at"].drop_null()
    where = f"at {size.shown:g}×, {size.teacher}"
    numbers = (
        Number(f"{size.run.networks.num_rows:,}", "networks in all settings"),
        Number(f"{recovered[0] if recovered else 0:g} of {size.nodes}", f"teacher nodes recovered {where}"),
        Number(f"{np.median(loss) if len(loss) else np.nan:.1e}", f"median evaluation loss {where}{size.of}"),
    )
    return (*numbers, Number(f"{len(diverged):,}", "networks diverged")) if len(diverged) else numbers


def _recovery_rate(study: TwoLayer, size: Size) -> Figure:
    early = min(_EARLY, study.epochs)
    rates = [recovered_nodes(size.networks, size.nodes, epoch) for epoch in (study.epochs, early)]
    both = xr.concat(rates, "time", coords="minimal", compat="override", join="outer")
    return Figure(
        "recovery-rate",
        "Which teacher nodes are recovered",
        f"Share of {size.seeds} in which each teacher node has a student above 0.95, {size.order}"
        f"{'' if size.own else ': strong nodes come first, and more student nodes reach weaker ones'}{size.of}.",
        "S0 fig. 7, S1 fig. 5",
        multiple_curves(
            both.assign_coords(time=[f"epoch {study.epochs}", f"epoch {early}"]).drop_vars("epoch", errors="ignore"),
            "polarity",
            size.titles(),
            name="success rate",
            x="teacher",
            style="time",
            band="mean",
            x_name="teacher index",
            limits=(-0.03, 1.03),
            note=f"n = {size.seeds}",
            columns=style.grid(len(size.polarities), 6)[1],
            height=1.35,
        ),
    )


def _best_correlation(size: Size) -> Figure:
    some = size.networks.select(multiple=size.shown)
    final = np.log10(size.loss.sel(multiple=size.shown).isel(epoch=-1).median("seed").to_numpy())
    return Figure(
        "best-correlation",
        "When each teacher node is learned",
        f"Correlation of each teacher node's best student over training at {size.shown:g}× (median over seeds)"
        f"{'' if size.own else ': strong nodes rise early, weak ones late or never'}{size.of}.",
        "S0 fig. 8, S1 fig. 7",
        Curves.from_array(
            best_correlations(some, size.nodes, "polarity seed epoch"),
            name="best correlation",
            panel="polarity",
            line="teacher",
            titles=size.titles([f"log10 loss {loss:.2f}" for loss in final]),
            labels={t: f"teacher node {t}" for t in range(size.nodes)},
            colours=style.ramp(size.nodes),
            limits=(0.0, 1.02),
            columns=style.grid(len(size.polarities), 5)[1],
            ramp=("first teacher node", "last") if size.own else ("strong teacher", "weak teacher"),
            height=1.5,
        ),
    )


def _loss_curves(size: Size) -> Figure:
    return Figure(
        "loss-curves",
        "What that does to the loss",
        f"{_loss_caption(size)}{size.of}.",
        "S1 fig. 11",
        multiple_curves(
            size.loss.copy(data=np.log10(size.loss)),
            "polarity",
            size.titles(),
            name="log₁₀ evaluation loss",
            columns=style.grid(len(size.polarities), 3)[1],
            height=1.55,
        ),
    )


def _loss_caption(size: Size) -> str:
    """States where wider students end lower, as measured."""
    base = "Evaluation loss over training, median and quartiles over seeds"
    final = size.loss.isel(epoch=-1).median("seed").transpose("polarity", "multiple").to_numpy()
    narrow, wide = (f"{k:g}×" for k in (size.multiples[0], size.multiples[-1]))
    lower: Mapping[str, np.ndarray] = {
        f"{wide} ends below {narrow}": final[:, -1] < final[:, 0],
        f"{narrow} ends below {wide}": final[:, -1] >= final[:, 0],
    }
    parts = [
        f"{words} at p = {', '.join(f'{p:g}' for p in size.polarities[where])}"
        for words, where in lower.items()
        if where.any()
    ]
    return base if narrow == wide or not parts else f"{base}: {'; '.join(parts)}"


def _specialization(size: Size, several: bool) -> Figure:
    run = size.run
    epochs = slider_epochs(run, _SLIDER)
    papers = np.isin(size.polarities, L_POLARITIES)
    rows = papers if several and papers.sum() == len(L_POLARITIES) else np.ones_like(papers)

    def cell(p: float, k: float) -> StudentNodes:
        some = size.networks.select(polarity=p, multiple=k)
        return student_nodes(run, some.index[some.alive], epochs)

    polarities = size.polarities[rows]
    cells = tuple(tuple(cell(p, k) for k in size.multiples) for p in polarities)
    losses = size.loss.isel(epoch=-1).median("seed").transpose("polarity", "multiple").to_numpy()[rows]
    return Figure(
        "specialization",
        "Unmatched students fall silent",
        "Every student node: correlation with its best teacher node, and fan-out. Students that have not specialised "
        f"(left) have little fan-out (bottom): the L{size.of}.",
        "S0 fig. 5, S1 fig. 3",
        Specialization(polarities, size.multiples, epochs, cells, losses),
    )


def _recovery_time(study: TwoLayer, size: Size) -> Figure:
    first, strength = (values[:, : size.nodes] for values in (first_epochs(size.run), strengths(size.run)))
    networks = size.loss.sel(multiple=size.shown)["network"].transpose("polarity", "seed").to_numpy()
    notes = []
    for row in networks:
        each = rank_correlations(first[row[row >= 0]], strength[row[row >= 0]])
        notes.append(f"rank correlation {np.median(each):.2f}" if len(each) else "")
    epochs = np.where((networks >= 0)[..., None], first[networks], np.nan)
    return Figure(
        "recovery-time",
        "Strength decides the order",
        f"Epoch at which each teacher node is first recovered at {size.shown:g}×, by teacher index {size.order}, "
        f"one point per node and network{size.of}.",
        "S0 fig. 8",
        RecoveryTime(size.polarities, epochs, networks, float(study.epochs), tuple(notes)),
    )
