"""Claims Y6 and Y7: the pull of a teacher node, norm ratios, and slow starts (Tian 2019, theorems 6, 7, sec. 5.3)."""

from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from scipy import stats

from understudy.claims import Claims, Verdict, every
from understudy.papers.specialization.dynamics.study import NodeDynamics
from understudy.report.style import number
from understudy.store import Run
from understudy.store.units import read_units

ERRORS = 4.0
"""Standard errors within which every comparison must be."""
AGREE = 1e-6
SLOPE = 0.05
"""Largest relative distance of a slope from 1, and of a rate from ε (our bound)."""
STILL = 1e-6
"""Largest change of ln of a norm ratio over the second half of the time for it to count as constant (our bound)."""
ALIGNED = 0.9999
"""Cosine with w* above which a node counts as pointing along it."""


def read_pulls(run: Run) -> pd.DataFrame:
    """One row per pair and component: closed form, sample mean, standard error, and the difference `off` in errors."""
    found = read_units(run, "pulls", part="pull").to_pandas()
    if "pulls" not in run.tables:  # an older run: pairs are its first networks, and their components are in nodes
        nodes = run.nodes.to_pandas()
        found = found.loc[nodes["network"]].reset_index(drop=True).join(nodes)
    difference, error = (found["mean"] - found["closed"]).to_numpy(), found["error"].to_numpy()
    off = np.divide(difference, error, out=np.zeros_like(difference), where=difference != 0)
    return found.assign(off=off)


def count_pairs(pulls: pd.DataFrame) -> int:
    """Number of pairs of nodes: each has one component along w*."""
    return int((pulls["component"] == "along").sum())


def expected_beyond(comparisons: int) -> float:
    """Expected number of comparisons beyond the bound if all differences were chance."""
    return float(comparisons * 2 * stats.norm.sf(ERRORS))


def read_escapes(run: Run) -> pd.DataFrame:
    """One row per law of motion and initial distance ε from π, with the time to turn to π/2."""
    return read_units(run, "escapes", part="leaving").to_pandas()


def contest_array(study: NodeDynamics, run: Run, metric: str) -> xr.DataArray:
    """A metric of nodes that share a target, by `extra`, `seed` and `time`."""
    found = run.array(metric, "extra seed epoch", part="contest")
    return found.assign_coords(epoch=study.times()[found["epoch"]]).rename(epoch="time")


def growth(study: NodeDynamics, run: Run, extra: float) -> np.ndarray:
    """Slope of ln of the norm ratio over time while the other node points along w*, [seed]; NaN if it never does.

    The time ends when that node turns away: a node that keeps losing is finally pushed to the other side.
    """
    ratio, cosine = (contest_array(study, run, name).sel(extra=extra) for name in ("log_ratio", "cosine"))
    slopes = np.full(ratio.sizes["seed"], np.nan)
    for i, there in enumerate((cosine > ALIGNED).to_numpy()):
        if there.sum() > 2:
            slopes[i] = np.polyfit(ratio["time"].to_numpy()[there], ratio.to_numpy()[i, there], 1)[0]
    return slopes


def escape_slope(escapes: pd.DataFrame, law: str) -> float:
    """Slope of the time to leave π − ε against 1/ε, both as logarithms."""
    own = escapes[escapes["law"] == law]
    return float(np.polyfit(-np.log(own["eps"].to_numpy()), np.log(own["time"].to_numpy()), 1)[0])


def _near_one(values: Any, **more: Any) -> Verdict:
    return every(values, at_least=1 - SLOPE, at_most=1 + SLOPE, **more)


claims = Claims(tuned_on="")


@claims.claim(
    "Y6",
    statement="in {pairs:,} pairs of a teacher and a student node, on normal inputs and on a sphere, each with its own "
    "Monte Carlo estimate, every component of the pull is within 4 standard errors of the closed form",
    paper="equal",
    values_are="difference in standard errors, per component",
    when=lambda study: study.pairs >= 1_000 and study.samples >= 20_000 and study.leaky == 0,
)
def pull(study: NodeDynamics, run: Run) -> Verdict:
    found = read_pulls(run)
    off = found["off"].abs().to_numpy()
    words = (
        f"{(off > ERRORS).sum()} of {len(off):,} components beyond 4 standard errors, where chance gives "
        f"{expected_beyond(len(off)):.2f}; largest {off.max():.2f}"
    )
    return every(off, at_most=ERRORS, n=count_pairs(found), say=words)


@claims.claim(
    "Y7",
    "norm ratios",
    statement="in two-layer students of 1 and 5 times the teacher's nodes, ReLU and leaky ReLU, d/dt ln of every norm "
    "ratio by theorem 7 equals that of a small gradient step",
    paper="equal",
    values_are="largest difference relative to the fastest motion of the network, per network",
    when=lambda study: study.flows >= 20,
)
def norm_ratios(study: NodeDynamics, run: Run) -> Verdict:
    off = run.select(part="steps").end("off")
    return every(off, at_most=AGREE, say=f"largest difference {number(off.max())}")


@claims.claim(
    "Y7",
    "symmetry breaking",
    statement="{nodes} nodes share a target w* of length 1: norm ratios are constant once nodes are aligned; if one "
    "node sees 1 + ε of the target they grow as e^(εt), at a rate within 5% of ε, while the others point along w*",
    paper="constant; exponential growth",
    values_are="rate of growth divided by ε, per initial weights",
    when=lambda study: study.flows >= 20 and study.start <= 1e-4 and study.until >= 50 and max(study.extra) > 0,
    tuned_on="one draw of initial weights, which is not recorded",
)
def symmetry_breaking(study: NodeDynamics, run: Run) -> Verdict:
    rates = {extra: growth(study, run, extra) / extra for extra in study.extra if extra > 0}
    spans = ", ".join(f"{rate.min():.4f} to {rate.max():.4f} at ε = {extra:g}" for extra, rate in rates.items())
    half = contest_array(study, run, "log_ratio").sel(extra=0.0).isel(time=[len(study.times()) // 2, -1])
    moved = float(np.abs(half.diff("time")).max())
    still = f"without ε, ln of the ratio moves by {number(moved)} over the second half"
    return _near_one(np.concatenate([*rates.values()]), say=f"rate over ε {spans}") & every(
        moved, at_most=STILL, say=still
    )


@claims.claim(
    "Y7",
    "slow start",
    statement="the time to turn from π − ε to π/2 grows as 1/ε, log-log slope within 5% of 1, by θ̇ = −(π − θ) sin θ "
    "and by gradient flow of both layers of one node that starts with v = ‖w‖",
    paper="grows as 1/ε",
    values_are="log-log slopes of the time against 1/ε",
    when=lambda study: max(study.eps) / min(study.eps) >= 999,
)
def slow_start(study: NodeDynamics, run: Run) -> Verdict:
    escapes, least = read_escapes(run), min(study.eps)
    angle, both, lower = (escape_slope(escapes, law) for law in ("angle", "both layers", "lower layer"))
    time = escapes.loc[(escapes["law"] == "lower layer") & (escapes["eps"] == least), "time"].iloc[0]
    held = (
        f"slope {lower:.2f}: ẇ then has no factor ‖w‖, and w first shrinks, then turns after about 2 ln(π/ε), "
        f"{time:.1f} at ε = {least:g}"
    )
    words = f"slopes {angle:.4f} and {both:.4f}, ε from {max(study.eps):g} to {least:g}"
    found = _near_one((angle, both), n=2 * len(study.eps), say=words)
    return found.with_variants({"output weight fixed at 1": _near_one(lower, say=held)})
