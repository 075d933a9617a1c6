"""Claims Z1, Z9, Z11, Z12: exactness of the closed forms, lemmas 10 and C.6, ReLU students (Zhou, Ge & Jin 2021)."""

from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from understudy.claims import Claims, Verdict, every, within
from understudy.papers.local.identifiability.study import COEFFICIENTS, FAR, MATCHED, SIZE, Identifiability
from understudy.papers.local.shared import log_slope
from understudy.report.style import number
from understudy.store import Run
from understudy.store.units import read_units

ERRORS = 4.0
"""Largest difference from a Monte Carlo estimate, in standard errors."""
DIFFERENCE, ACCURATE, LEAST = 1e-8, 0.01, 1e-12
"""Largest error of finite differences, largest relative error of small losses, and the least loss it applies to."""
STEEPEST = 3.2
"""Largest slope of log λ_min in log Δ."""
ZERO = 1e-24
"""Largest loss that counts as zero: the rounding error of a loss that is zero is about 10⁻³²."""
CONVERGED = 1e-6
"""Loss below which ReLU descent counts as converged to zero."""
MOST = 0.5
"""Share of the networks without a linear term that may match."""
COEFFICIENT = 1e-12
"""Largest error of a Hermite coefficient."""


def units(run: Run, table: str) -> pd.DataFrame:
    """A table of problems, solutions, eigenvalues or coefficients, one row each."""
    parts = {"problems": "sampled", "solutions": "digits", "eigenvalues": "lemma 10", "coefficients": "hermite"}
    return read_units(run, table, part=parts[table]).to_pandas()


def sampled_errors(run: Run) -> pd.DataFrame:
    """Monte Carlo estimates minus closed forms in standard errors, one row per problem: columns `loss` and `slope`."""
    found = units(run, "problems")
    for name in ("loss", "slope"):
        found[name] = (found[f"{name}_mean"] - found[f"{name}_closed"]) / found[f"{name}_error"]
    return found[[*SIZE, "loss", "slope"]]


def smallest_accurate(run: Run, column: str) -> float:
    """The smallest loss down to which all relative errors are at most 1%; infinite if that of the largest is not."""
    found = units(run, "solutions")
    loss = found["exact"].to_numpy()
    inaccurate = loss[found[column].to_numpy() > ACCURATE]
    return float(loss[loss > inaccurate.max(initial=0.0)].min(initial=np.inf))


def eigenvalues(run: Run, **where: Any) -> pd.DataFrame:
    """λ_min and Δ of arrangements of teacher nodes, in the order of Δ; `where` selects values of columns."""
    found = units(run, "eigenvalues")
    for name, value in where.items():
        found = found[found[name] == value]
    found = found.iloc[np.argsort(found["separated"].to_numpy())]
    return found.assign(over_cube=found["least_eigenvalue"] / found["separated"] ** 3)


def eigenvalue_slope(run: Run) -> float:
    """Slope of log λ_min in log Δ, for two teacher nodes."""
    two = eigenvalues(run, arranged="fan", teacher_nodes=2)
    return log_slope(two["separated"], two["least_eigenvalue"])


def decay(run: Run) -> float:
    """The power of k that squares of Hermite coefficients follow."""
    far = units(run, "coefficients")[-len(FAR) :]
    return log_slope(far["k"], far["coefficient"] ** 2)


def final(run: Run, metric: str, **where: Any) -> np.ndarray:
    """A metric at the end of descents; NaN if they diverged."""
    return run.select(**where).end(metric)


claims = Claims(tuned_on="")


def _many_problems(study: Identifiability) -> bool:
    return study.seeds >= 100 and study.samples >= 50_000


def _long_descents(study: Identifiability) -> bool:
    several = min(len(study.teacher_nodes), len(study.dim)) > 1
    return study.rate == type(study).rate and study.descents >= 20 and study.steps >= 20_000 and several


@claims.claim(
    "Z1",
    "Monte Carlo",
    statement="random problems with 1 to 40 students, each with its own samples: the loss, and its slope along a "
    f"random direction of all weights, within {ERRORS:g} standard errors of the closed forms",
    paper="equal",
    values_are="difference in standard errors",
    when=_many_problems,
)
def closed_forms_agree_with_samples(study: Identifiability, run: Run) -> Verdict:
    errors = sampled_errors(run)
    off = np.abs(errors[["loss", "slope"]].to_numpy().T.ravel())
    by_chance = len(off) * 2 * stats.norm.sf(ERRORS)
    return every(
        off,
        at_most=ERRORS,
        n=len(errors),
        say=f"{(off > ERRORS).sum()} of {len(off):,} beyond {ERRORS:g} standard errors, where chance gives "
        f"{by_chance:.2f}; largest {{most:.2f}}",
    )


@claims.claim(
    "Z1",
    "differences",
    statement="the same problems: every entry of the gradient and finite differences of the loss, relative to the "
    "largest entry",
    paper="to 10⁻⁸",
    when=_many_problems,
)
def gradients_agree_with_differences(study: Identifiability, run: Run) -> Verdict:
    off = units(run, "problems")["difference"].to_numpy()
    return every(off, at_most=DIFFERENCE, say=f"largest difference {number(off.max())}")


@claims.claim(
    "Z1",
    "small losses",
    statement="networks close to a solution, up to 60 students of 12 nodes: relative error of loss and gradient "
    "against the textbook formula in 60 digits, at losses of 10⁻¹² and more",
    paper="1% relative down to 10⁻¹²",
    values_are="relative error of the loss, per problem",
    when=lambda study: study.digits >= 60,
)
def small_losses_are_accurate(study: Identifiability, run: Run) -> Verdict:
    found = units(run, "solutions")
    small = found[found["exact"] >= LEAST]
    loss, gradient, textbook = (small[name] for name in ("off", "gradient_off", "textbook_off"))
    decided = every(
        loss,
        at_most=ACCURATE,
        say=f"largest error {number(loss.max())} of the loss and {number(gradient.max())} of the gradient; at most 1% "
        f"down to {number(smallest_accurate(run, 'off'))}; the smallest loss measured is "
        f"{number(found['exact'].min())}",
    )
    other = every(
        textbook,
        at_most=ACCURATE,
        say=f"largest error {number(textbook.max())} at losses of 10⁻¹² and more; at most 1% down to "
        f"{number(smallest_accurate(run, 'textbook_off'))}",
    )
    both = decided & every(gradient, at_most=ACCURATE, say="")
    return both.with_variants({"the textbook formula in float64": other})


@claims.claim(
    "Z9",
    statement="λ_min(M) of two teacher nodes at the angle Δ: log-log slope in Δ at most 3.2",
    paper="Ω(Δ³/r³)",
    when=lambda study: max(study.separation) / min(study.separation) >= 100 and len(study.fan) > 2,
)
def least_eigenvalue(study: Identifiability, run: Run) -> Verdict:
    two, found = eigenvalues(run, arranged="fan", teacher_nodes=2), eigenvalues(run)
    apart, least, slope = two["separated"], two["least_eigenvalue"], eigenvalue_slope(run)
    closed = np.abs(least / (2 / np.pi * (apart - np.sin(apart))) - 1).max()
    decided = every(
        [slope],
        at_most=STEEPEST,
        n=len(two),
        say=f"slope {slope:.3f} for Δ from {apart.min():g} to {apart.max():g}; within {number(float(closed))} of "
        "2/π (Δ − sin Δ)",
    )
    constant = (found["least_eigenvalue"] * found["teacher_nodes"] ** 3 / found["separated"] ** 3).min()
    narrow = min(study.separation)
    fans = {nodes: eigenvalues(run, arranged="fan", teacher_nodes=nodes) for nodes in study.fan}
    falls = {r: fan["over_cube"].iloc[0] for r, fan in fans.items() if fan["separated"].min() <= 1.01 * narrow}
    most = max(falls)
    more = Verdict(
        bool(constant > 0),
        f"λ_min r³/Δ³ is {constant:.3g} or more, and λ_min/Δ³ {found['over_cube'].min():.4f} or more, over "
        f"{len(found)} teachers; in a fan λ_min/Δ³ falls from {falls[2]:.4f} for 2 nodes to {falls[most]:.4f} for "
        f"{most}, at Δ = {narrow:g}",
        len(found),
    )
    return decided.with_variants({"more nodes, in the plane and at random in 3, 5 and 10 dimensions": more})


@claims.claim(
    "Z11",
    "ReLU",
    statement="ReLU teachers whose nodes sum to zero, students ‖w_i‖ w_i = −w*_i: loss 0 up to rounding, and no "
    "student within Δ of the direction of a teacher node; descent from 0.3 rad away from them reaches a loss below "
    "10⁻⁶, with no student within 0.01 rad",
    paper="loss 0, unmatched",
    values_are="least angle between a student and a teacher node, per network",
    when=_long_descents,
    tuned_on="the number of steps on seeds 1 to 20, which decide it",
)
def zero_loss_without_match(study: Identifiability, run: Run) -> Verdict:
    some = run.select(part="claim 1")
    loss, nearest, apart = (some.end(name) for name in ("loss", "nearest", "separated"))
    after, still = (final(run, name, part="descent") for name in ("loss", "nearest"))
    initially = (loss <= ZERO).all() and (nearest >= apart * (1 - 1e-9)).all()
    holds = bool(initially and (after <= CONVERGED).all() and (still > MATCHED).all())
    words = (
        f"loss at most {number(loss.max())}, nearest student {nearest.min():.2f} rad; after descent at most "
        f"{number(after.max())}, and {still.min():.2f} rad"
    )
    return Verdict(holds, words, len(loss)).show(nearest, low=MATCHED)


@claims.claim(
    "Z11",
    "reduction",
    statement="random ReLU teachers, students 0.3 rad from the opposite of their nodes, {batch} fresh samples in each "
    "step: with a linear term fitted to them by least squares (eq. 6) every student ends within 0.01 rad of a teacher "
    "node, up to sign, after {steps:,} steps in every network; without it (eq. 5) this fails in most networks",
    paper="with a fitted linear term, a teacher of |·| nodes",
    values_are="largest angle with the linear term, per network",
    when=lambda study: _long_descents(study) and study.batch >= Identifiability.batch,
    tuned_on="seeds 101 and 102",
)
def linear_fit_restores_matching(study: Identifiability, run: Run) -> Verdict:
    farthest, loss, without = (
        final(run, name, part="reduction", linear=linear)
        for name, linear in (("farthest_line", True), ("loss", True), ("farthest_line", False))
    )
    error, size = (run.select(part="reduction", linear=True).start(name) for name in ("fit_error", "linear_term"))
    matched = within(without, below=MATCHED)
    decided = every(
        farthest,
        below=MATCHED,
        say=f"{{count}} networks; farthest student {{most:.4f}} rad, loss at most {number(loss.max())}; the fitted "
        f"term differs from its expectation by {np.median(error / size):.1%} at first (median); without it "
        f"{int(matched.sum())} of {len(matched)} networks, with a median of the farthest student of "
        f"{np.nanmedian(without):.2f} rad",
    )
    relu = every(
        final(run, "farthest_line", part="descent"),
        below=MATCHED,
        say="farthest student {most:.4f} rad: where the loss is zero, ReLU students are on the lines of teacher nodes, "
        "too, with the opposite direction",
    )
    beside = {"teachers that sum to zero, without the linear term, up to sign": relu}
    return (decided & Verdict(bool(matched.mean() < MOST), "", len(matched))).with_variants(beside)


@claims.claim(
    "Z12",
    statement=f"Hermite coefficients of |x|, k from 0 to {COEFFICIENTS}, by the formula of lemma C.6 and by quadrature",
    paper="to 10⁻¹²",
    values_are="difference, per coefficient",
)
def hermite_coefficients(study: Identifiability, run: Run) -> Verdict:
    found = units(run, "coefficients")
    found = found[found["k"] <= COEFFICIENTS]
    off = np.abs(found["coefficient"] - found["quadrature"]).to_numpy()
    power = decay(run)
    words = f"σ̂² follows k to the power {round(power, 3):g}, fitted from k = {FAR[0]} to {FAR[-1]:,}"
    printed = Verdict(abs(power + 1.5) <= 0.05, words, len(FAR))
    decided = every(off, at_most=COEFFICIENT, say=f"largest difference {number(off.max())}")
    return decided.with_variants({"the decay printed with the formula, σ̂² = Θ(k^(−3/2))": printed})
