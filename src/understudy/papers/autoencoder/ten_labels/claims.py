"""Claims M1 to M3 on ten labels: information, encoders, the gap and gradient estimators (Phuong 2021, ch. 4)."""

from __future__ import annotations

import math
from typing import Unpack

import numpy as np

from understudy.claims import Claims, Verdict, every, range_words, share
from understudy.claims.verdict import Bounds
from understudy.papers.autoencoder.deciding import NEAR, code_collapses, information_is_near
from understudy.papers.autoencoder.results import results, values_of
from understudy.papers.autoencoder.settings import BETA, PRIOR, CodeSetting
from understudy.papers.autoencoder.ten_labels.study import TenLabels
from understudy.store import Run

SHOWN = (0.0, 0.5, 1.0, 1.5, 2.0)
"""Targets of fig. 4.3b below the entropy of the labels."""
SHARPER = 0.9
"""Share of seeds in which posteriors must be sharper with resampling."""
AWAY = 0.05
"""KL term in nats above which a configuration is away from independence, so that its gap exceeds numerical errors."""
ERRORS = 4.0
"""Standard errors within which the mean of estimated gradients must be."""

claims = Claims(
    free="seeds device targets penalties methods starts warm_ups free_bits betas together",
    least={"seeds": 10},
    when=lambda study: (
        study.penalties[0] == 1
        and study.starts[0] == PRIOR
        and {*SHOWN, math.log(study.labels)} <= set(study.targets)
        and bool(study.mutual())
    ),
    tuned_on="seeds from 101 on",
)


@claims.claim(
    "M1",
    "ten labels",
    statement=f"information by quadrature within {NEAR:g} nats of M = 0, 0.5, 1, 1.5 and 2, in every seed",
    paper="the mutual autoencoder learns a wide range of codes (fig. 4.3b)",
    values_are="information minus M, in nats",
)
def information_as_asked(study: TenLabels, run: Run) -> Verdict:
    whole = (study.largest,)
    variants = {f"M = log {study.labels}": information_is_near(study, run, study.penalties[0], whole)}
    for penalty in study.penalties[1:]:
        variants[f"C = {penalty:g}"] = information_is_near(study, run, penalty, study.targets)
    return information_is_near(study, run, study.penalties[0], SHOWN).with_variants(variants)


@claims.claim(
    "M1",
    "collapse on ten labels",
    statement=f"the plain variational autoencoder has at most {NEAR:g} nats of information in every seed, like M = 0",
    paper="the top row of fig. 4.3b is the model learned by the VAE and by M = 0 (sec. 4.6.2)",
    values_are="information in nats: variational autoencoder, then M = 0",
    needs={"methods": BETA, "betas": 1.0},
)
def plain_collapses(study: TenLabels, run: Run) -> Verdict:
    return code_collapses(study, run)


def _pair(run: Run, settings: tuple[CodeSetting, CodeSetting], name: str) -> np.ndarray:
    """Values with the Gaussian and with the resampling encoder, [encoder, seed]."""
    found = results(run)
    return np.stack([values_of(found, setting, name) for setting in settings])


def _encoders_words(values: np.ndarray, spec: str) -> str:
    gaussian, several = (range_words(each, spec) for each in values)
    return f"Gaussian {gaussian}, resampling {several}"


@claims.claim(
    "M2",
    "encoder, C = {penalty:g}",
    statement="M = log {labels}, C = {penalty:g}: KL(q(z|x) ‖ p(z|x)) lower with the resampling encoder, in every seed",
    paper="better posterior approximations (fig. 4.2)",
    values_are="nats by which it is lower, one per seed",
    cases=lambda study, run: [{"penalty": penalty} for penalty in study.penalties],
)
def encoder_is_nearer(study: TenLabels, run: Run, penalty: float) -> Verdict:
    values = _pair(run, study.variants()[f"C = {penalty:g}"], "posterior_kl")
    return every(values[0] - values[1], above=0.0).say(_encoders_words(values, ".2g"))


def _sharper(run: Run, settings: tuple[CodeSetting, CodeSetting]) -> Verdict:
    values = _pair(run, settings, "posterior_entropy")
    return share(values[1] < values[0], at_least=SHARPER).also(_encoders_words(values, ".2f"))


@claims.claim(
    "M2",
    "posterior",
    statement="M = log {labels}, C = 1, start at the prior: entropy of the model's posterior p(z|x) lower with the "
    f"resampling encoder, in at least {SHARPER:.0%} of the seeds",
    paper="sharper, closer-to-deterministic model posteriors (fig. 4.2)",
)
def posterior_is_sharper(study: TenLabels, run: Run) -> Verdict:
    (_, usual), *others = study.variants().items()
    return _sharper(run, usual).with_variants({words: _sharper(run, settings) for words, settings in others})


@claims.claim(
    "M3",
    "gap",
    statement=f"every trained network with a Gaussian encoder whose KL term exceeds {AWAY:g} nats has a positive gap "
    "KL(q(z) ‖ p(z)), beyond the numerical error",
    paper="the independent configuration is the only global optimum (theorem 4.2)",
    values_are="log₁₀ of the gap in nats",
)
def gap_is_positive(study: TenLabels, run: Run) -> Verdict | None:
    found = results(run)
    rows = found[(found["resamples"] == 1) & (found["kl"] > AWAY)]
    if not len(rows):
        return None
    gap, error = rows["aggregate"].to_numpy(float), rows["error"].to_numpy(float)
    verdict = every(
        gap - error, above=0.0, say=f"{range_words(gap, '.2g')} nats; numerical error below {error.max():.0e}"
    )
    several = found[found["resamples"] > 1]["aggregate"]
    if len(several):
        verdict = verdict.also(f"with resampling {range_words(several, '.2g')}")
    return verdict.show(np.log10(np.maximum(gap, 1e-300)))


@claims.claim(
    "M3",
    "REINFORCE, {estimator}",
    statement="the mean of {estimates} estimated gradients of the information, {estimator}, is within four standard "
    "errors of the exact gradient at M = 0.5 and log {labels}, in every seed",
    paper="REINFORCE estimates the gradient (eq. C.19)",
    values_are="distance in standard errors",
    cases={"estimator": ("no baseline", "baseline")},
)
def estimator_is_unbiased(study: TenLabels, run: Run, estimator: str) -> Verdict:
    values = _at_ends(study, run, f"distance, {estimator}")
    relative = range_words(_at_ends(study, run, f"relative distance, {estimator}"), ".2g")
    return every(values, at_most=ERRORS, n=study.seeds).also(f"{relative} of the gradient's length")


def _at_ends(study: TenLabels, run: Run, name: str) -> np.ndarray:
    """Values at M = 0.5 and at log 10."""
    found, settings = results(run), {setting.strength: setting for setting in study.mutual()}
    return np.stack([values_of(found, settings[target], name) for target in study.ends])


@claims.claim(
    "M3",
    "baseline, M = 0.5",
    statement="at M = 0.5 the baseline lowers the variance of the gradient, in every seed",
    paper="none: the thesis estimates without a baseline (eq. C.19)",
    values_are="variance with baseline over variance without",
)
def baseline_lowers(study: TenLabels, run: Run) -> Verdict:
    return _baseline(study, run, 0, below=1.0)


@claims.claim(
    "M3",
    "baseline, M = log {labels}",
    statement="at M = log {labels}, near determinism, the baseline raises the variance of the gradient, in every seed",
    paper="none: the thesis estimates without a baseline (eq. C.19)",
    values_are="variance with baseline over variance without",
)
def baseline_raises(study: TenLabels, run: Run) -> Verdict:
    return _baseline(study, run, 1, above=1.0)


def _baseline(study: TenLabels, run: Run, end: int, **bounds: Unpack[Bounds]) -> Verdict:
    without, with_one = (_at_ends(study, run, f"variance, {name}")[end] for name in ("no baseline", "baseline"))
    words = f"variance {range_words(without, '.2g')} without, {range_words(with_one, '.2g')} with baseline"
    return every(with_one / without, **bounds).say(words)
