"""What a two-layer run decides: T1 to T6 and T10."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from understudy.lab.recovery import first_epochs, strengths
from understudy.measures import THRESHOLD
from understudy.papers.specialization.sweep import Sweep, rank_correlations, recovery_rates
from understudy.store import Claim, Run
from understudy.store.claims import Variant

if TYPE_CHECKING:
    from understudy.papers.specialization.two_layer.study import TwoLayer

_FIG8 = {0.5: -6.45, 1.0: -6.50, 1.5: -6.50, 2.0: -5.09, 2.5: -5.30}
"""log10 evaluation loss over the panels of S0 fig 8."""
_T1_TOLERANCE = 0.4
_FIGURES_STD = 1.5
"""Of the inputs that give the printed losses; the text of the papers says otherwise."""
_NOISE = 4.0
"""Standard errors by which a weaker node may be ahead of a stronger one: there are thousands of such pairs."""


class Finding(NamedTuple):
    """A claim as the networks of one teacher size decide it, and in few words what was measured."""

    claim: Claim
    brief: str


Maker = Callable[[Sweep], Iterator[Finding]]


def claims(study: TwoLayer, run: Run) -> list[Claim]:
    if not _papers_training(study):
        return []
    if study.leaky != 0 or study.inputs == "uniform":
        parts = _t10(study)
    elif study.input_std == _FIGURES_STD:
        parts = [(20, partial(part, study)) for part in (_t1, _t2, _t3, _t5, _t6)]
        parts.insert(3, (10, partial(_t4, study)))
    else:
        return []
    sweeps = Sweep.each(run)
    return [claim for nodes, make in parts for claim in _decided(make, nodes, sweeps)]


def _decided(make: Maker, nodes: int, sweeps: list[Sweep]) -> Iterator[Claim]:
    """Claims on the teacher size of the paper, each with what the other sizes of the sweep gave beside it."""
    if nodes not in [sweep.teacher_nodes for sweep in sweeps]:
        return
    found = {sweep.teacher_nodes: {finding.claim.part: finding for finding in make(sweep)} for sweep in sweeps}
    for part, (claim, _) in found.pop(nodes).items():
        yield replace(
            claim,
            beside=tuple(
                Variant(f"{other} nodes", same[part].brief, same[part].claim.holds)
                for other, same in found.items()
                if part in same
            ),
        )


def _papers_training(study: TwoLayer) -> bool:
    training = (study.epochs, study.steps, study.batch, study.lr)
    data = (study.dim, study.outputs, study.train, study.evaluation)
    return training == (100, 1_000, 16, 0.01) and data == (100, 50, 10_000, 10_000)


def _t1(study: TwoLayer, sweep: Sweep, id: str = "T1", variant: str = "") -> Iterator[Finding]:
    if sweep.teacher_nodes != 20:
        return  # the paper prints no losses of other sizes
    final = np.log10(sweep.run.series("eval_loss")[:, -1])
    for polarity, paper in _FIG8.items():
        values = final[sweep.where(polarity, 5)]
        if len(values):
            middle = float(np.median(values))
            low, high = paper - _T1_TOLERANCE, paper + _T1_TOLERANCE
            claim = Claim(
                id=id,
                statement="log10 evaluation loss after 100 epochs, 20 teacher nodes, 5×: median over seeds within 0.4",
                paper=f"{paper:.2f}",
                measured=f"{middle:.2f} (quartiles {_quartiles(values)})",
                n=len(values),
                holds=low <= middle <= high,
                part=f"{variant}p = {polarity:g}",
                values=tuple(values),
                low=low,
                high=high,
            )
            yield Finding(claim, "")


def _t2(study: TwoLayer, sweep: Sweep, id: str = "T2", variant: str = "") -> Iterator[Finding]:
    n = len(sweep.seeds)
    lead = [_largest_lead(rate, n) for epoch in (5, study.epochs) for rate in _curves(sweep, epoch)]
    if lead:
        claim = Claim(
            id=id,
            statement=f"recovery rate by teacher index, p > 0: no weaker node ahead by over {_NOISE:g} standard errors",
            paper="non-increasing in the index up to seed noise",
            measured=f"largest lead of a weaker node {max(lead):.1f} standard errors",
            n=n,
            holds=max(lead) <= _NOISE,
            part=f"{variant}order",
            values=tuple(lead),
            low=None,
            high=_NOISE,
        )
        yield Finding(claim, f"{max(lead):.1f}")
    networks = sweep.where(2.5, 5)
    # Narrower inputs than those of the figures slow learning down: which nodes are reached by epoch 100 is theirs.
    if len(networks) and study.input_std == _FIGURES_STD and sweep.teacher_nodes == 20:
        best = sweep.run.matched("teacher", "correlation", epoch=study.epochs)[networks]
        rate = (best > THRESHOLD).mean(0)
        claim = Claim(
            id=id,
            statement="p = 2.5, 5×: recovery rate at least 0.9 for the 6 strongest nodes, at most 0.1 from the 10th on",
            paper="≥ 0.9 for nodes 1–6, ≤ 0.1 from node 10",
            measured=f"lowest of 1–6: {rate[:6].min():.2f}, highest from 10: {rate[9:].max():.2f}",
            n=len(networks),
            holds=bool(rate[:6].min() >= 0.9 and rate[9:].max() <= 0.1),
            part=f"{variant}p = 2.5, 5×",
            values=tuple(rate),
        )
        yield Finding(claim, "")


def _curves(sweep: Sweep, epoch: int) -> Iterator[np.ndarray]:
    for polarity, rates in zip(sweep.polarities, recovery_rates(sweep, epoch), strict=True):
        yield from (rate for rate in rates if polarity > 0 and np.isfinite(rate).all())


def _largest_lead(rate: np.ndarray, n: int) -> float:
    """The most by which a later node is ahead of an earlier one, in standard errors of their difference."""
    ahead = rate[None, :] - rate[:, None]
    pooled = (rate[None, :] + rate[:, None]) / 2
    error = np.sqrt(2 * np.clip(pooled * (1 - pooled), 1 / (4 * n), None) / n)
    return float(np.triu(ahead / error, 1).max())


def _t3(study: TwoLayer, sweep: Sweep) -> Iterator[Finding]:
    m, share = sweep.teacher_nodes, sweep.run.series("recovered", 0)[:, -1]
    count = sweep.at(np.rint(share * m))
    for polarity, cell in zip(sweep.polarities, count, strict=True):
        if polarity >= 1 and _comparable(cell):
            means = np.nanmean(cell, axis=1)
            claim = Claim(
                id="T3",
                statement=f"recovered teacher nodes (of {m}, mean over seeds) at epoch 100 do not fall with over-realization",
                paper="10× ≥ 5× ≥ 2× ≥ 1×",
                measured=_by_multiple(sweep, means, cell),
                n=cell.shape[1],
                holds=bool((np.diff(means) >= 0).all()),
                part=f"p = {polarity:g}",
                values=tuple(means),
            )
            yield Finding(claim, _by_multiple(sweep, means))
    five, one = (share[sweep.where(1, multiple)] for multiple in (5, 1))
    if len(five) and len(one):
        everywhere = f"in {(five == 1).sum()} of {len(five)} seeds at 5×, in {(one == 1).sum()} of {len(one)} at 1×"
        claim = Claim(
            id="T3",
            statement=f"p = 1: all {m} teacher nodes recovered at 5× in every seed, and not at 1×",
            paper=f"5× all {m}, 1× not",
            measured=f"all {m} {everywhere}",
            n=len(five),
            holds=bool((five == 1).all() and not (one == 1).all()),
            part="p = 1, all nodes",
            values=tuple(np.rint(m * five)),
            low=m,
        )
        yield Finding(claim, f"all {m} {everywhere}")


def _by_multiple(sweep: Sweep, middle: np.ndarray, cell: np.ndarray | None = None) -> str:
    """Each multiple's value, with the quartiles over its seeds where they are given."""
    values = [f"{k:g}×: {m:.2f}" for k, m in zip(sweep.multiples, middle, strict=True)]
    if cell is not None:
        values = [f"{v} ({_quartiles(row[np.isfinite(row)])})" for v, row in zip(values, cell, strict=True)]
    return ", ".join(values)


def _comparable(cell: np.ndarray) -> bool:
    """Several multiples, each with a network that did not diverge."""
    return len(cell) > 1 and bool(np.isfinite(cell).any(axis=1).all())


def unspecialised_share(run: Run, networks: np.ndarray, below: float) -> np.ndarray:
    """Each network's share of squared fan-out that sits on students whose best correlation is below a bound."""
    epoch = int(run.epochs[-1])
    rho, fan = (run.matched("student", column, epoch=epoch)[networks] for column in ("correlation", "fanout"))
    square = np.nan_to_num(fan) ** 2
    return np.where(rho < below, square, 0).sum(1) / square.sum(1)


def _t4(study: TwoLayer, sweep: Sweep, id: str = "T4", variant: str = "") -> Iterator[Finding]:
    for polarity in (p for p in sweep.polarities if p in (0, 1, 2)):
        for multiple in sweep.multiples:
            networks = sweep.where(polarity, multiple)
            if len(networks):
                share = unspecialised_share(sweep.run, networks, 0.8)
                small = f"under 2% in {(share < 0.02).sum()} of {len(share)}"
                claim = Claim(
                    id=id,
                    statement="students whose best correlation is below 0.8 hold under 2% of their network's squared fan-out",
                    paper="< 2%",
                    measured=f"largest {share.max():.2%}, median {np.median(share):.2%}; {small}",
                    n=len(networks),
                    holds=bool((share < 0.02).all()),
                    part=f"{variant}p = {polarity:g}, {multiple:g}×",
                    values=tuple(share),
                    low=None,
                    high=0.02,
                )
                yield Finding(claim, small)
    rho, fan = (sweep.run.matched("student", column, epoch=study.epochs) for column in ("correlation", "fanout"))
    for multiple in sweep.multiples:
        networks = np.concatenate([sweep.where(p, multiple) for p in (0, 1, 2)])
        relative = fan[networks] / np.nanmax(fan[networks], axis=1, keepdims=True)
        quiet = relative[rho[networks] < 0.5]
        if len(quiet):
            middle = float(np.median(quiet))
            claim = Claim(
                id=id,
                statement="fan-out of students below 0.5, over the largest of their network: median at most 0.1",
                paper="near 5%",
                measured=f"median {middle:.1%} over {len(quiet)} students (quartiles {_quartiles(quiet * 100, 1)} %)",
                n=len(quiet),
                holds=middle <= 0.1,
                part=f"{variant}below 0.5, {multiple:g}×",
                values=tuple(quiet),
                low=None,
                high=0.1,
            )
            yield Finding(claim, f"{middle:.1%} over {len(quiet)}")


def _t5(study: TwoLayer, sweep: Sweep) -> Iterator[Finding]:
    first, strength = (of(sweep.run)[:, : sweep.teacher_nodes] for of in (first_epochs, strengths))
    for polarity in (p for p in sweep.polarities if p >= 1):
        networks = sweep.where(polarity, 5)
        if len(networks):
            each = rank_correlations(first[networks], strength[networks])
            if not len(each):
                continue
            middle, reached = float(np.median(each)), np.isfinite(first[networks]).sum(1).mean()
            latest = np.where(np.isinf(first[networks]), study.epochs + 1, first[networks])
            tied = np.median(rank_correlations(latest, strength[networks]))
            claim = Claim(
                id="T5",
                statement="rank correlation of strength and epoch of recovery over the nodes recovered, 5×: median over seeds",
                paper="≤ −0.9",
                measured=f"{middle:.3f} (quartiles {_quartiles(each)}) over {reached:.1f} nodes; "
                f"{tied:.3f} over all, those never recovered tied last",
                n=len(each),
                holds=middle <= -0.9,
                part=f"p = {polarity:g}",
                values=tuple(each),
                low=None,
                high=-0.9,
            )
            yield Finding(claim, f"{middle:.3f} over {reached:.1f} nodes")


def _t6(study: TwoLayer, sweep: Sweep) -> Iterator[Finding]:
    final = sweep.at(np.log10(sweep.run.series("eval_loss")[:, -1]))
    for polarity, cell in zip(sweep.polarities, final, strict=True):
        if polarity >= 1 and _comparable(cell):
            medians = np.nanmedian(cell, axis=1)
            claim = Claim(
                id="T6",
                statement="median log10 evaluation loss after 100 epochs falls with over-realization",
                paper="1× > 2× > 5× > 10×",
                measured=_by_multiple(sweep, medians, cell),
                n=cell.shape[1],
                holds=bool((np.diff(medians) < 0).all()),
                part=f"p = {polarity:g}",
                values=tuple(medians),
            )
            yield Finding(claim, _by_multiple(sweep, medians))


def _t10(study: TwoLayer) -> list[tuple[int, Maker]]:
    uniform, papers_std = study.inputs == "uniform", study.input_std == _FIGURES_STD
    inputs = (
        f"uniform ±{math.sqrt(3) * study.input_std:.2g}"
        if uniform
        else ""
        if papers_std
        else f"std {study.input_std:g}"
    )
    variant = ", ".join(part for part in (f"leaky {study.leaky:g}" if study.leaky else "", inputs) if part)
    parts: list[tuple[int, Maker]] = [
        (10, partial(_t4, study, id="T10", variant=f"{variant}, T4, ")),
        (20, partial(_t2, study, id="T10", variant=f"{variant}, T2, ")),
    ]
    if uniform and not study.leaky:
        same = partial(_t1, study, id="T10", variant=f"{variant}, T1, ")
        parts.append((20, same if papers_std else partial(_slower, variant=variant)))
    return parts


def _slower(sweep: Sweep, variant: str) -> Iterator[Finding]:
    """The U[−1, 1] of the text, where the figures' inputs reach at least the 6 strongest nodes (T2)."""
    networks = sweep.where(2.5, 5)
    if len(networks) and sweep.teacher_nodes == 20:
        count = np.rint(sweep.run.series("recovered", 0)[networks, -1] * sweep.teacher_nodes)
        claim = Claim(
            id="T10",
            statement="learning is slower: at p = 2.5, 5× fewer than 6 nodes recovered after 100 epochs, median over seeds",
            paper="4 of 20",
            measured=f"{np.median(count):g} of 20 (quartiles {_quartiles(count, 0)})",
            n=len(count),
            holds=bool(np.median(count) < 6),
            part=f"{variant}, slower",
            values=tuple(count),
            low=None,
            high=6.0,
        )
        yield Finding(claim, "")


def _quartiles(values: np.ndarray, digits: int = 2) -> str:
    low, high = np.percentile(values, (25, 75))
    return f"{low:.{digits}f} to {high:.{digits}f}"
