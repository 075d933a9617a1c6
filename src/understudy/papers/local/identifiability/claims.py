"""What an identifiability run decides: Z1, Z9, Z11, Z12."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy import stats

from understudy.papers.local.identifiability.study import COEFFICIENTS, FAR, MATCHED
from understudy.papers.specialization.dynamics.claims import part
from understudy.report.style import number, signed
from understudy.store import Claim, Run
from understudy.store.claims import Variant

if TYPE_CHECKING:
    from understudy.papers.local.identifiability.study import Identifiability

ERRORS = 4.0
"""Standard errors within which every comparison has to be."""
DIFFERENCE, ACCURATE, LEAST = 1e-8, 0.01, 1e-12
"""Of differences; relative to the loss, and down to which losses."""
STEEPEST = 3.2
"""Slope of λ_min in Δ, at most."""
NOTHING = 1e-24
"""A loss of nothing: what rounding leaves of students whose loss is zero is its square, about 1e−32."""
CONVERGED = 1e-6
"""ReLU descent has come to loss zero."""
COEFFICIENT = 1e-12


@dataclass(frozen=True, eq=False)
class Sampled:
    """Every comparison of a closed form with a sample mean, in standard errors, signed."""

    network: np.ndarray
    off: np.ndarray

    @property
    def beyond(self) -> int:
        return int((np.abs(self.off) > ERRORS).sum())

    @property
    def by_chance(self) -> float:
        """How many would be beyond, were all differences chance."""
        return float(len(self.off) * 2 * stats.norm.sf(ERRORS))


def sampled(run: Run) -> Sampled:
    which = part(run, "sampled")
    off = []
    for what in ("loss", "slope"):
        closed, mean, error = (run.series(f"{what}_{name}")[which, 0] for name in ("closed", "mean", "error"))
        off.append((mean - closed) / error)
    return Sampled(np.tile(which, 2), np.concatenate(off))


def lowest_right(run: Run, name: str) -> float:
    """The smallest loss down to which all relative errors are at most 1%; infinite where that of the largest is not."""
    which = part(run, "digits")
    loss, off = run.series("exact")[which, 0], run.series(name)[which, 0]
    return float(loss[loss > loss[off > ACCURATE].max(initial=0.0)].min(initial=np.inf))


def slope(x: np.ndarray, y: np.ndarray) -> float:
    """Of y against x, both as logarithms, by least squares."""
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def eigenvalues(run: Run, **wanted: object) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Δ, λ_min and r of arrangements of teacher nodes, by Δ."""
    which = part(run, "lemma 10", **wanted)
    apart, least = (run.series(name)[which, 0] for name in ("separated", "least_eigenvalue"))
    order = np.argsort(apart)
    return apart[order], least[order], run.column("teacher_nodes")[which][order]


def decay(run: Run) -> float:
    """The power of k with which squares of Hermite coefficients go."""
    k, values = hermite(run, "coefficient")
    return slope(k[-len(FAR) :], values[-len(FAR) :] ** 2)


def hermite(run: Run, name: str) -> tuple[np.ndarray, np.ndarray]:
    which = part(run, "hermite")
    return run.column("k")[which], run.series(name)[which, 0]


def ended(run: Run, name: str, **wanted: object) -> np.ndarray:
    """A measure at the last step of descents."""
    return run.series(name)[part(run, "descent", **wanted), -1]


def claims(study: Identifiability, run: Run) -> list[Claim]:
    found: list[Claim] = []
    if study.seeds >= 100 and study.samples >= 50_000:
        found += [_monte_carlo(run), _differences(run)]
    if study.digits >= 60:
        found.append(_digits(run))
    if max(study.separation) / min(study.separation) >= 100 and len(study.fan) > 2:
        found.append(_lemma_10(study, run))
    as_set = study.rate == type(study)().rate
    if (
        as_set
        and study.descents >= 20
        and study.steps >= 20_000
        and min(map(len, (study.teacher_nodes, study.dim))) > 1
    ):
        found += [_claim_1(run), _reduction(study, run)]
    return [*found, _hermite(run)]


def _monte_carlo(run: Run) -> Claim:
    every = sampled(run)
    off = np.abs(every.off)
    problems = len(np.unique(every.network))
    return Claim(
        id="Z1",
        statement=f"{problems:,} random problems, 1 to 40 students, each with a Monte Carlo of its own: the loss, and its slope "
        "along a random direction of all weights, within 4 standard errors of the closed forms",
        paper="equal",
        measured=f"{every.beyond} of {len(off):,} beyond 4 standard errors, where chance gives {every.by_chance:.2f}; largest "
        f"{off.max():.2f}",
        n=problems,
        holds=every.beyond == 0,
        part="Monte Carlo",
        values=tuple(off.tolist()),
        high=ERRORS,
    )


def _differences(run: Run) -> Claim:
    off = run.series("difference")[part(run, "sampled"), 0]
    return Claim(
        id="Z1",
        statement="the same problems: every entry of the gradient and differences of the loss, over the largest entry",
        paper="to 1e−8",
        measured=f"largest difference {number(off.max())}",
        n=len(off),
        holds=bool((off <= DIFFERENCE).all()),
        part="differences",
        values=tuple(off.tolist()),
        high=DIFFERENCE,
    )


def _digits(run: Run) -> Claim:
    which = part(run, "digits")
    exact, off, slopes, book = (run.series(name)[which, 0] for name in ("exact", "off", "gradient_off", "textbook_off"))
    there = exact >= LEAST
    low = lowest_right(run, "textbook_off")
    return Claim(
        id="Z1",
        statement="networks close to a solution, up to 60 students of 12 nodes: loss and gradient relative to the textbook's "
        "formula in 60 digits, at losses of 1e−12 and more",
        paper="1% relative down to 1e−12",
        measured=f"largest error {number(off[there].max())} of the loss and {number(slopes[there].max())} of the gradient; "
        f"at most 1% down to {number(lowest_right(run, 'off'))}, the least loss looked at being {number(exact.min())}",
        n=int(there.sum()),
        holds=bool((off[there] <= ACCURATE).all() and (slopes[there] <= ACCURATE).all()),
        part="small losses",
        values=tuple(off[there].tolist()),
        low=None,
        high=ACCURATE,
        variants=(
            Variant(
                "the textbook's form in float64",
                f"largest error {number(book[there].max())} at losses of 1e−12 and more; at most 1% down to "
                f"{number(low)}",
                bool((book[there] <= ACCURATE).all()),
            ),
        ),
    )


def _lemma_10(study: Identifiability, run: Run) -> Claim:
    apart, least, _ = eigenvalues(run, arranged="fan", teacher_nodes=2)
    steep = slope(apart, least)
    closed = np.abs(least / (2 / np.pi * (apart - np.sin(apart))) - 1).max()
    every, values, nodes = eigenvalues(run)
    constant = (values * nodes**3 / every**3).min()
    narrow = min(study.separation)
    which = [eigenvalues(run, arranged="fan", teacher_nodes=n) for n in study.fan]
    falls = {int(r[0]): least[0] / apart[0] ** 3 for apart, least, r in which if len(r) and apart[0] <= 1.01 * narrow}
    most = max(falls)
    return Claim(
        id="Z9",
        statement=f"λ_min(M) of two teacher nodes, Δ from {apart.min():g} to {apart.max():g}: slope in Δ, log-log, at most 3.2",
        paper="Ω(Δ³/r³)",
        measured=f"slope {steep:.3f}; within {number(float(closed))} of 2/π (Δ − sin Δ)",
        n=len(apart),
        holds=steep <= STEEPEST,
        values=(steep,),
        high=STEEPEST,
        variants=(
            Variant(
                "more nodes, in the plane and at random in 3, 5 and 10 dimensions",
                f"λ_min r³/Δ³ is {constant:.3g} or more, and λ_min/Δ³ {(values / every**3).min():.4f} or more, over "
                f"{len(every)} teachers; in a fan λ_min/Δ³ falls from {falls[2]:.4f} for 2 nodes to {falls[most]:.4f} "
                f"for {most}, at Δ = {narrow:g}",
                bool(constant > 0),
            ),
        ),
    )


def _claim_1(run: Run) -> Claim:
    which = part(run, "claim 1")
    loss, nearest, apart = (run.series(name)[which, 0] for name in ("loss", "nearest", "separated"))
    after, still = (ended(run, name, start="opposite", linear=False) for name in ("loss", "nearest"))
    return Claim(
        id="Z11",
        statement="ReLU teachers whose nodes sum to zero, students ‖w_i‖ w_i = −w*_i: loss 0 up to rounding, and no student "
        "within Δ of the direction of a teacher node; descent from 0.3 rad off them comes to a loss below 1e−6, and no "
        "student to within 0.01 rad",
        paper="loss 0, unmatched",
        measured=f"loss at most {number(loss.max())}, nearest student {nearest.min():.2f} rad; after descent at most "
        f"{number(after.max())}, and {still.min():.2f} rad",
        n=len(loss),
        holds=bool(
            (loss <= NOTHING).all()
            and (nearest >= apart * (1 - 1e-9)).all()
            and (after <= CONVERGED).all()
            and (still > MATCHED).all()
        ),
        part="ReLU",
        values=tuple(nearest.tolist()),
        low=MATCHED,
    )


def _reduction(study: Identifiability, run: Run) -> Claim:
    farthest = ended(run, "farthest_line", start="opposite", linear=True)
    loss = ended(run, "loss", start="opposite", linear=True)
    lines = ended(run, "farthest_line", start="opposite", linear=False)
    share, small = (ended(run, name, start="anywhere", linear=True) for name in ("on_a_line", "loss"))
    return Claim(
        id="Z11",
        statement=f"the same starts with the linear term fitted first: after {study.steps:,} steps every student within 0.01 rad "
        "of a teacher node, up to sign",
        paper="matching returns",
        measured=f"{int((farthest < MATCHED).sum())} of {len(farthest)} networks; farthest student {farthest.max():.4f} "
        f"rad, loss at most {number(loss.max())}",
        n=len(farthest),
        holds=bool((farthest < MATCHED).all()),
        part="reduction",
        values=tuple(farthest.tolist()),
        low=None,
        high=MATCHED,
        variants=(
            Variant(
                "small starts that point anywhere",
                f"{share.mean():.0%} of the students are within 0.01 rad after {study.steps:,} steps, at losses of at "
                f"most {number(small.max())}; all are in {int((share == 1).sum())} of {len(share)} networks",
                bool((share == 1).all()),
            ),
            Variant(
                "ReLU without the linear term, up to sign",
                f"farthest student {lines.max():.4f} rad: they come to the lines of teacher nodes as well, and "
                "point the wrong way",
                bool((lines < MATCHED).all()),
            ),
        ),
    )


def _hermite(run: Run) -> Claim:
    k, closed = hermite(run, "coefficient")
    integrals = hermite(run, "quadrature")[1]
    off = np.abs(closed - integrals)[k <= COEFFICIENTS]
    power = decay(run)
    return Claim(
        id="Z12",
        statement="Hermite coefficients of |x|, k from 0 to 20, by the formula of lemma C.6 and by quadrature",
        paper="to 1e−12",
        measured=f"largest difference {number(off.max())}",
        n=len(off),
        holds=bool((off <= COEFFICIENT).all()),
        values=tuple(off.tolist()),
        high=COEFFICIENT,
        variants=(
            Variant(
                "the decay printed beside the formula, σ̂² = Θ(k^(−3/2))",
                f"σ̂² goes as k to the power {signed(round(power, 3))}, fitted from k = {FAR[0]} to {FAR[-1]:,}",
                abs(power + 1.5) <= 0.05,
            ),
        ),
    )
