"""What a two-layer run decides: T1 to T6 and T10."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from understudy.measures import THRESHOLD
from understudy.store import Claim, Run
from understudy.studies.recovery import first_epochs, rank_correlations, recovery_rates, strengths
from understudy.studies.sweep import Sweep

if TYPE_CHECKING:
    from understudy.studies.two_layer import TwoLayer

_FIG8 = {0.5: -6.45, 1.0: -6.50, 1.5: -6.50, 2.0: -5.09, 2.5: -5.30}
"""log10 evaluation loss over the panels of S0 fig 8."""
_T1_TOLERANCE = 0.4
_FIGURES_STD = 1.5
"""Of the inputs that give the printed losses; the text of the papers says otherwise."""
_NOISE = 4.0
"""Standard errors by which a weaker node may be ahead of a stronger one: there are thousands of such pairs."""


def claims(study: TwoLayer, run: Run) -> list[Claim]:
    sweep = Sweep.of(run)
    parts: list[Callable[[TwoLayer, Sweep], Iterator[Claim]]]
    as_in_paper = (
        study.leaky == 0 and study.inputs == "gaussian" and study.input_std == _FIGURES_STD and _papers_training(study)
    )
    if as_in_paper and study.teacher_nodes == 20:
        parts = [_t1, _t2, _t3, _t5, _t6]
    elif as_in_paper and study.teacher_nodes == 10:
        parts = [_t4]
    elif _papers_training(study) and (study.leaky != 0 or study.inputs == "uniform"):
        parts = [_t10]
    else:
        return []
    return [claim for part in parts for claim in part(study, sweep)]


def _papers_training(study: TwoLayer) -> bool:
    training = (study.epochs, study.steps, study.batch, study.lr)
    data = (study.dim, study.outputs, study.train, study.evaluation)
    return training == (100, 1_000, 16, 0.01) and data == (100, 50, 10_000, 10_000)


def _t1(study: TwoLayer, sweep: Sweep, id: str = "T1", variant: str = "") -> Iterator[Claim]:
    final = np.log10(sweep.run.series("eval_loss")[:, -1])
    for polarity, paper in _FIG8.items():
        values = final[sweep.where(polarity, 5)]
        if len(values):
            middle = float(np.median(values))
            low, high = paper - _T1_TOLERANCE, paper + _T1_TOLERANCE
            yield Claim(
                id,
                "log10 evaluation loss after 100 epochs, 20 teacher nodes, 5×: median over seeds within 0.4",
                f"{paper:.2f}",
                f"{middle:.2f} (quartiles {_quartiles(values)})",
                len(values),
                low <= middle <= high,
                f"{variant}p = {polarity:g}",
                tuple(values),
                low,
                high,
            )


def _t2(study: TwoLayer, sweep: Sweep, id: str = "T2", variant: str = "") -> Iterator[Claim]:
    n = len(sweep.seeds)
    lead = [_largest_lead(rate, n) for epoch in (5, study.epochs) for rate in _curves(sweep, epoch)]
    if lead:
        yield Claim(
            id,
            f"recovery rate by teacher index, p > 0: no weaker node ahead by over {_NOISE:g} standard errors",
            "non-increasing in the index up to seed noise",
            f"largest lead of a weaker node {max(lead):.1f} standard errors",
            n,
            max(lead) <= _NOISE,
            f"{variant}order",
            tuple(lead),
            None,
            _NOISE,
        )
    networks = sweep.where(2.5, 5)
    # Narrower inputs than those of the figures slow learning down: which nodes are reached by epoch 100 is theirs.
    if len(networks) and study.input_std == _FIGURES_STD:
        best = sweep.run.matched("teacher", "correlation", epoch=study.epochs)[networks]
        rate = (best > THRESHOLD).mean(0)
        yield Claim(
            id,
            "p = 2.5, 5×: recovery rate at least 0.9 for the 6 strongest nodes, at most 0.1 from the 10th on",
            "≥ 0.9 for nodes 1–6, ≤ 0.1 from node 10",
            f"lowest of 1–6: {rate[:6].min():.2f}, highest from 10: {rate[9:].max():.2f}",
            len(networks),
            bool(rate[:6].min() >= 0.9 and rate[9:].max() <= 0.1),
            f"{variant}p = 2.5, 5×",
            tuple(rate),
        )


def _curves(sweep: Sweep, epoch: int) -> Iterator[np.ndarray]:
    for polarity, rates in zip(sweep.polarities, recovery_rates(sweep, epoch), strict=True):
        yield from (rate for rate in rates if polarity > 0 and np.isfinite(rate).all())


def _largest_lead(rate: np.ndarray, n: int) -> float:
    """The most by which a later node is ahead of an earlier one, in standard errors of their difference."""
    ahead = rate[None, :] - rate[:, None]
    pooled = (rate[None, :] + rate[:, None]) / 2
    error = np.sqrt(2 * np.clip(pooled * (1 - pooled), 1 / (4 * n), None) / n)
    return float(np.triu(ahead / error, 1).max())


def _t3(study: TwoLayer, sweep: Sweep) -> Iterator[Claim]:
    count = sweep.at(np.rint(sweep.run.series("recovered", 0)[:, -1] * study.teacher_nodes))
    for polarity, cell in zip(sweep.polarities, count, strict=True):
        if polarity >= 1 and _comparable(cell):
            means = np.nanmean(cell, axis=1)
            shown = _by_multiple(sweep, means, cell)
            yield Claim(
                "T3",
                "recovered teacher nodes (of 20, mean over seeds) at epoch 100 do not fall with over-realization",
                "10× ≥ 5× ≥ 2× ≥ 1×",
                shown,
                cell.shape[1],
                bool((np.diff(means) >= 0).all()),
                f"p = {polarity:g}",
                tuple(means),
            )
    five, one = (_recovered_all(sweep, multiple) for multiple in (5, 1))
    if len(five) and len(one):
        yield Claim(
            "T3",
            "p = 1: all 20 teacher nodes recovered at 5× in every seed, and not at 1×",
            "5× all 20, 1× not",
            f"all 20 in {five.sum()} of {len(five)} seeds at 5×, in {one.sum()} of {len(one)} at 1×",
            len(five),
            bool(five.all() and not one.all()),
            "p = 1, all 20",
            tuple(np.rint(study.teacher_nodes * sweep.run.series("recovered", 0)[sweep.where(1, 5), -1])),
            study.teacher_nodes,
        )


def _by_multiple(sweep: Sweep, middle: np.ndarray, cell: np.ndarray) -> str:
    """Each multiple's value with the quartiles over its seeds."""
    return ", ".join(
        f"{k:g}×: {m:.2f} ({_quartiles(row[np.isfinite(row)])})"
        for k, m, row in zip(sweep.multiples, middle, cell, strict=True)
    )


def _comparable(cell: np.ndarray) -> bool:
    """Several multiples, each with a network that did not diverge."""
    return len(cell) > 1 and bool(np.isfinite(cell).any(axis=1).all())


def _recovered_all(sweep: Sweep, multiple: float) -> np.ndarray:
    return sweep.run.series("recovered", 0)[sweep.where(1, multiple), -1] == 1


def unspecialised_share(run: Run, networks: np.ndarray, below: float) -> np.ndarray:
    """Each network's share of squared fan-out that sits on students whose best correlation is below a bound."""
    epoch = int(run.epochs[-1])
    rho, fan = (run.matched("student", column, epoch=epoch)[networks] for column in ("correlation", "fanout"))
    square = np.nan_to_num(fan) ** 2
    return np.where(rho < below, square, 0).sum(1) / square.sum(1)


def _t4(study: TwoLayer, sweep: Sweep, id: str = "T4", variant: str = "") -> Iterator[Claim]:
    for polarity in (p for p in sweep.polarities if p in (0, 1, 2)):
        for multiple in sweep.multiples:
            networks = sweep.where(polarity, multiple)
            if len(networks):
                share = unspecialised_share(sweep.run, networks, 0.8)
                yield Claim(
                    id,
                    "students whose best correlation is below 0.8 hold under 2% of their network's squared fan-out",
                    "< 2%",
                    f"largest {share.max():.2%}, median {np.median(share):.2%}; "
                    f"under 2% in {(share < 0.02).sum()} of {len(share)}",
                    len(networks),
                    bool((share < 0.02).all()),
                    f"{variant}p = {polarity:g}, {multiple:g}×",
                    tuple(share),
                    None,
                    0.02,
                )
    rho, fan = (sweep.run.matched("student", column, epoch=study.epochs) for column in ("correlation", "fanout"))
    relative = fan / np.nanmax(fan, axis=1, keepdims=True)
    for multiple in sweep.multiples:
        networks = np.concatenate([sweep.where(p, multiple) for p in (0, 1, 2)])
        small = relative[networks][rho[networks] < 0.5]
        if len(small):
            middle = float(np.median(small))
            yield Claim(
                id,
                "fan-out of students below 0.5, over the largest of their network: median at most 0.1",
                "near 5%",
                f"median {middle:.1%} over {len(small)} students (quartiles {_quartiles(small * 100, 1)} %)",
                len(small),
                middle <= 0.1,
                f"{variant}below 0.5, {multiple:g}×",
                tuple(small),
                None,
                0.1,
            )


def _t5(study: TwoLayer, sweep: Sweep) -> Iterator[Claim]:
    first, strength = first_epochs(sweep.run), strengths(sweep.run)
    for polarity in (p for p in sweep.polarities if p >= 1):
        networks = sweep.where(polarity, 5)
        if len(networks):
            each = rank_correlations(first[networks], strength[networks])
            if not len(each):
                continue
            middle, reached = float(np.median(each)), np.isfinite(first[networks]).sum(1).mean()
            latest = np.where(np.isinf(first[networks]), study.epochs + 1, first[networks])
            tied = np.median(rank_correlations(latest, strength[networks]))
            yield Claim(
                "T5",
                "rank correlation of strength and epoch of recovery over the nodes recovered, 5×: median over seeds",
                "≤ −0.9",
                f"{middle:.3f} (quartiles {_quartiles(each)}) over {reached:.1f} nodes; "
                f"{tied:.3f} over all, those never recovered tied last",
                len(each),
                middle <= -0.9,
                f"p = {polarity:g}",
                tuple(each),
                None,
                -0.9,
            )


def _t6(study: TwoLayer, sweep: Sweep) -> Iterator[Claim]:
    final = sweep.at(np.log10(sweep.run.series("eval_loss")[:, -1]))
    for polarity, cell in zip(sweep.polarities, final, strict=True):
        if polarity >= 1 and _comparable(cell):
            medians = np.nanmedian(cell, axis=1)
            shown = _by_multiple(sweep, medians, cell)
            yield Claim(
                "T6",
                "median log10 evaluation loss after 100 epochs falls with over-realization",
                "1× > 2× > 5× > 10×",
                shown,
                cell.shape[1],
                bool((np.diff(medians) < 0).all()),
                f"p = {polarity:g}",
                tuple(medians),
            )


def _t10(study: TwoLayer, sweep: Sweep) -> Iterator[Claim]:
    uniform, papers_std = study.inputs == "uniform", study.input_std == _FIGURES_STD
    inputs = (
        f"uniform ±{math.sqrt(3) * study.input_std:.2g}"
        if uniform
        else ""
        if papers_std
        else f"std {study.input_std:g}"
    )
    variant = ", ".join(part for part in (f"leaky {study.leaky:g}" if study.leaky else "", inputs) if part)
    if study.teacher_nodes == 10:
        yield from _t4(study, sweep, "T10", f"{variant}, T4, ")
    if study.teacher_nodes == 20:
        yield from _t2(study, sweep, "T10", f"{variant}, T2, ")
        if uniform and not study.leaky:
            yield from _t1(study, sweep, "T10", f"{variant}, T1, ") if papers_std else _slower(study, sweep, variant)


def _slower(study: TwoLayer, sweep: Sweep, variant: str) -> Iterator[Claim]:
    """The U[−1, 1] of the text, where the figures' inputs reach at least the 6 strongest nodes (T2)."""
    networks = sweep.where(2.5, 5)
    if len(networks):
        count = np.rint(sweep.run.series("recovered", 0)[networks, -1] * study.teacher_nodes)
        yield Claim(
            "T10",
            "learning is slower: at p = 2.5, 5× fewer than 6 nodes recovered after 100 epochs, median over seeds",
            "4 of 20",
            f"{np.median(count):g} of 20 (quartiles {_quartiles(count, 0)})",
            len(count),
            bool(np.median(count) < 6),
            f"{variant}, slower",
            tuple(count),
            None,
            6.0,
        )


def _quartiles(values: np.ndarray, digits: int = 2) -> str:
    low, high = np.percentile(values, (25, 75))
    return f"{low:.{digits}f} to {high:.{digits}f}"
