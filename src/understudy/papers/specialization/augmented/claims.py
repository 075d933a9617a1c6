"""Claim P3: the number of samples that align students with the teacher grows no faster than in theorems 3 and 4."""

from typing import Any

import numpy as np

from understudy.claims import Claims, Verdict, mean_above, number
from understudy.papers.specialization.augmented.study import NORMAL, AugmentedData
from understudy.store import Run

ALIGNED = 0.75
"""Least share of the teacher nodes with which a student must be aligned."""
THEOREMS = {"agnostic": "theorem 3", "aware": "theorem 4"}
EXPONENTS = {
    "agnostic": {"dim": 2.0, "teacher_nodes": 2.5, "active": 1.0, "eps": 1.0},
    "aware": {"dim": 1.0, "teacher_nodes": 2.5, "active": 1.0, "eps": 1.0},
}
"""Exponents of d, K, 1/κ and 1/ε in the number of samples (Tian 2020, theorems 3, 4)."""
SYMBOLS = {"dim": "d", "teacher_nodes": "K", "active": "1/κ", "eps": "1/ε"}


def aligned_share(run: Run, eps: float) -> np.ndarray:
    """Share of the teacher nodes that have an ε-aligned student, per network; NaN where it diverged."""
    epoch = int(run.epochs[-1])
    sin, gap = (run.matched("teacher", column, epoch=epoch) for column in ("sin_angle", "bias_gap"))
    there = np.isfinite(sin)
    near = (there & (np.maximum(sin, gap) <= eps)).sum(axis=1)
    share = near / np.where(there.any(axis=1), there.sum(axis=1), np.nan)
    share[[at is not None for at in run.networks["diverged_at"].to_pylist()]] = np.nan
    return share


def samples_needed(study: AugmentedData, run: Run, data: str, factor: str) -> tuple[np.ndarray, np.ndarray]:
    """The values of a factor, ascending, and the samples that each seed needs [value, seed].

    The least number of samples from which on the student is aligned with enough teacher nodes; infinite if there is
    none. For κ it is multiplied by the density of the inputs at the teacher's boundaries, relative to that at the
    origin: theorems 3 and 4 count samples near boundaries, which become fewer the further away boundaries are.
    """
    first = study.settings[0]._asdict()
    columns = {name: run.column(name) for name in (*first, "data", "samples", "seed")}
    fixed = columns["data"] == data
    for name in set(first) - {factor}:
        fixed &= columns[name] == first[name]
    values = np.unique(study.eps if factor == "eps" else columns[factor][fixed])
    needed = []
    for value in values:
        share = aligned_share(run, value if factor == "eps" else study.eps[0])
        here = fixed if factor == "eps" else fixed & (columns[factor] == value)
        needed.append([_least(share, columns["samples"], here & (columns["seed"] == k)) for k in study.seed_names])
    found = np.array(needed)
    if factor == "active":
        densities = np.array([NORMAL.pdf(NORMAL.inv_cdf(value)) / NORMAL.pdf(0.0) for value in values])
        found *= densities[:, None]
    return values, found


def _least(share: np.ndarray, samples: np.ndarray, own: np.ndarray) -> float:
    """The least number of samples from which on the shares of the given networks are high enough."""
    rows = np.flatnonzero(own)
    rows = rows[samples[rows].argsort()]
    enough = np.minimum.accumulate((share[rows] >= ALIGNED)[::-1])[::-1]
    return float(samples[rows[enough.argmax()]]) if enough.any() else np.inf


def sizes(study: AugmentedData, factor: str, values: np.ndarray) -> np.ndarray:
    """d, K, 1/κ or 1/ε for values of a factor."""
    if factor == "teacher_nodes":
        cells = [study.settings[0]._replace(teacher_nodes=int(value)) for value in values]
        return np.array([study.boundaries(cell) for cell in cells], float)
    return values.astype(float) if factor == "dim" else 1 / values


claims = Claims(
    fixed="samples dim teacher_nodes active over_realization eps outputs epochs steps batch lr",
    least={"seeds": 16},
    tuned_on="seeds 101 to 104",
)


def _cases(study: AugmentedData, run: Run) -> list[dict[str, Any]]:
    return [
        {"data": data, "theorem": theorem, "factor": factor, "symbol": SYMBOLS[factor], "exponent": exponent}
        for data, theorem in THEOREMS.items()
        if data in study.data
        for factor, exponent in EXPONENTS[data].items()
    ]


@claims.claim(
    "P3",
    "{theorem}, {symbol}",
    statement="trained on augmented data ({theorem}), the number of samples from which on students are aligned with "
    f"{ALIGNED:.0%} of the teacher nodes (within ε) grows with {{symbol}} at most with the theorem's exponent "
    "(mean over seeds of fitted exponents, two standard errors allowed)",
    paper="exponent {exponent:g}",
    values_are="exponent of the theorem less the fitted one, per seed",
    cases=_cases,
)
def samples_grow_no_faster(
    study: AugmentedData, run: Run, data: str, theorem: str, factor: str, symbol: str, exponent: float
) -> Verdict:
    values, needed = samples_needed(study, run, data, factor)
    medians = ", ".join(number(value, ".0f") for value in np.median(needed, axis=1))
    ready = np.isfinite(needed).all()
    fitted = np.full(needed.shape[1], np.nan)
    if ready:
        fitted = np.polyfit(np.log(sizes(study, factor, values)), np.log(needed), 1)[0]
    words = f"exponent {number(float(fitted.mean()), '.2f')}; samples {medians} (medians)"
    enough = "more samples, with which every student is aligned"
    if not ready:
        return Verdict(None, f"samples {medians} (medians)", needed.shape[1], would_decide=enough)
    return mean_above(exponent - fitted, errors=-2, say=words)
