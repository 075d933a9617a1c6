"""What a dynamics run decides: Y6, Y7."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy import stats

from understudy.report.style import number
from understudy.store import Claim, Run
from understudy.store.claims import Variant

if TYPE_CHECKING:
    from understudy.papers.specialization.dynamics.study import NodeDynamics

ERRORS = 4.0
"""Standard errors within which every comparison has to be."""
AGREE = 1e-6
SLOPE = 0.05
"""How far the slope may be from 1, and a rate from ε, relatively: bounds of ours."""
STILL = 1e-6
"""Of ln of a norm ratio, over the second half of the time: it no longer changes."""
ALIGNED = 0.9999
"""Cosine with w* from which a node counts as pointing there."""


@dataclass(frozen=True, eq=False)
class Pulls:
    """Every comparison of a sample mean with the closed form."""

    network: np.ndarray
    theta: np.ndarray
    dim: np.ndarray
    component: np.ndarray
    closed: np.ndarray
    mean: np.ndarray
    error: np.ndarray

    @property
    def off(self) -> np.ndarray:
        """In standard errors, signed; 0 where there is neither a difference nor an error."""
        difference = self.mean - self.closed
        return np.divide(difference, self.error, out=np.zeros_like(difference), where=difference != 0)

    @property
    def beyond(self) -> int:
        return int((np.abs(self.off) > ERRORS).sum())

    @property
    def by_chance(self) -> float:
        """How many would be beyond, were all differences chance."""
        return float(len(self.off) * 2 * stats.norm.sf(ERRORS))


def pulls(run: Run) -> Pulls:
    network = run.nodes["network"].to_numpy()
    columns = {name: run.nodes[name].to_numpy() for name in ("closed", "mean", "error")}
    component = np.array(run.nodes["component"].to_pylist())
    return Pulls(network, run.series("theta")[network, 0], run.column("dim")[network], component, **columns)


def part(run: Run, name: str, **wanted: object) -> np.ndarray:
    """Networks of one part of the study, such as those with one ε."""
    which = np.array(run.networks["part"].to_pylist()) == name
    for column, value in wanted.items():
        which &= np.array([v == value for v in run.networks[column].to_pylist()])
    return np.flatnonzero(which)


def growth(study: NodeDynamics, run: Run, extra: float) -> np.ndarray:
    """The slope of ln of the norm ratio over time while the loser points along w*, a start each; NaN if it never does.

    From when it has come to point there until it turns away: one that keeps losing is in the end pushed round.
    """
    networks, times = part(run, "contest", extra=extra), study.times()
    ratio, cosine = (run.series(name)[networks][:, : len(times)] for name in ("log_ratio", "cosine"))
    slopes = np.full(len(networks), np.nan)
    for i, there in enumerate(cosine > ALIGNED):
        if there.sum() > 2:
            slopes[i] = np.polyfit(times[there], ratio[i, there], 1)[0]
    return slopes


def leaving_slope(run: Run, law: str) -> float:
    """Of the time to leave π − ε against 1/ε, both as logarithms."""
    networks = part(run, "leaving", law=law)
    return float(np.polyfit(-np.log(run.column("eps")[networks]), np.log(run.series("time")[networks, 0]), 1)[0])


def claims(study: NodeDynamics, run: Run) -> list[Claim]:
    found: list[Claim] = []
    if study.seeds * len(study.dim) * len(study.inputs) >= 1_000 and study.samples >= 20_000 and study.leaky == 0:
        found.append(_pull(run))
    if study.flows >= 20:
        found.append(_steps(run))
        if study.start <= 1e-4 and study.until >= 50 and max(study.extra) > 0:
            found.append(_breaking(study, run))
    if max(study.eps) / min(study.eps) >= 999:
        found.append(_slow(study, run))
    return found


def _pull(run: Run) -> Claim:
    every = pulls(run)
    off, pairs = np.abs(every.off), len(np.unique(every.network))
    return Claim(
        id="Y6",
        statement=f"{pairs:,} pairs of a teacher and a student node on normal inputs and on a sphere, each with a Monte Carlo of "
        f"its own, {len(off):,} components: every one within 4 standard errors of the closed form",
        paper="equal",
        measured=f"{every.beyond} beyond 4 standard errors, where chance gives {every.by_chance:.2f}; largest {off.max():.2f}",
        n=pairs,
        holds=every.beyond == 0,
        values=tuple(off.tolist()),
        high=ERRORS,
    )


def _steps(run: Run) -> Claim:
    off = run.series("off")[part(run, "steps"), 0]
    return Claim(
        id="Y7",
        statement="two-layer students, 1 and 5 times the nodes, ReLU and leaky: d/dt ln of every norm ratio as theorem 7 has it "
        "and by a small gradient step, relative to the fastest motion of the network",
        paper="equal",
        measured=f"largest difference {number(off.max())}",
        n=len(off),
        holds=bool((off <= AGREE).all()),
        part="norm ratios",
        values=tuple(off.tolist()),
        low=None,
        high=AGREE,
    )


def _breaking(study: NodeDynamics, run: Run) -> Claim:
    more = [extra for extra in study.extra if extra > 0]
    rates = [growth(study, run, extra) / extra for extra in more]
    half = run.series("log_ratio")[part(run, "contest", extra=0.0)][
        :, [len(study.times()) // 2, len(study.times()) - 1]
    ]
    moved = float(np.abs(half[:, 1] - half[:, 0]).max())
    every = np.concatenate(rates)
    spans = ", ".join(
        f"{np.min(rate):.4f} to {np.max(rate):.4f} at ε = {e:g}" for e, rate in zip(more, rates, strict=True)
    )
    return Claim(
        id="Y7",
        statement=f"{study.nodes} nodes that share a target w* of length 1: norm ratios stay once nodes are aligned, and grow as "
        "e^{εt}, rate within 5% of ε, if one node sees 1 + ε of it, for as long as the others point along w*",
        paper="constant; exponential growth",
        measured=f"rate over ε {spans}; without ε, ln of the ratio moves by {number(moved)} over the second half",
        n=len(every),
        holds=bool((np.abs(every - 1) <= SLOPE).all()) and moved <= STILL,
        part="symmetry breaking",
        values=tuple(every.tolist()),
        low=1 - SLOPE,
        high=1 + SLOPE,
    )


def _slow(study: NodeDynamics, run: Run) -> Claim:
    angle, both, lower = (leaving_slope(run, law) for law in ("angle", "both layers", "lower layer"))
    least = part(run, "leaving", law="lower layer", eps=min(study.eps))
    time = float(run.series("time")[least[0], 0])
    return Claim(
        id="Y7",
        statement=f"time to turn from π − ε to π/2, ε from {max(study.eps):g} down to {min(study.eps):g}: slope against 1/ε, "
        "log-log, of θ̇ = −(π − θ) sin θ and of gradient flow of both layers of one node, begun with v = ‖w‖",
        paper="grows as 1/ε",
        measured=f"slopes {angle:.4f} and {both:.4f}",
        n=2 * len(study.eps),
        holds=abs(angle - 1) <= SLOPE and abs(both - 1) <= SLOPE,
        part="slow start",
        values=(angle, both),
        low=1 - SLOPE,
        high=1 + SLOPE,
        variants=(
            Variant(
                "output weight held at 1",
                f"slope {lower:.2f}: ẇ has no factor ‖w‖ then, w shrinks first and turns after about 2 ln(π/ε), "
                f"{time:.1f} at ε = {min(study.eps):g}",
                abs(lower - 1) <= SLOPE,
            ),
        ),
    )
