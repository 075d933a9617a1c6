"""Claim M1 on the normal: the information is what was asked for (Phuong 2021, fig. 4.3a)."""

from __future__ import annotations

from understudy.claims import Claims, Verdict
from understudy.papers.autoencoder.deciding import NEAR, code_collapses, information_is_near
from understudy.papers.autoencoder.settings import BETA
from understudy.papers.autoencoder.split_normal.study import SplitNormal
from understudy.store import Run

SHOWN = (0.0, 0.6, 1.2, 1.8)
"""Targets of fig. 4.3a."""

claims = Claims(
    free="seeds device targets penalties methods warm_ups free_bits betas together",
    least={"seeds": 3},
    when=lambda study: study.penalties[0] == 1 and set(SHOWN) <= set(study.targets) and bool(study.mutual()),
    tuned_on="seeds from 101 on",
)


@claims.claim(
    "M1",
    "splitting the normal",
    statement=f"information by quadrature within {NEAR:g} nats of M = 0, 0.6, 1.2 and 1.8, in every seed",
    paper="the mutual autoencoder can encode any pre-specified amount of information (fig. 4.3a)",
    values_are="information minus M, in nats",
)
def information_as_asked(study: SplitNormal, run: Run) -> Verdict:
    verdict = information_is_near(study, run, study.penalties[0], SHOWN)
    others = tuple(target for target in study.targets if target not in SHOWN)
    variants = {"other M": information_is_near(study, run, study.penalties[0], others)} if others else {}
    variants |= {f"C = {each:g}": information_is_near(study, run, each, study.targets) for each in study.penalties[1:]}
    return verdict.with_variants(variants)


@claims.claim(
    "M1",
    "collapse on the normal",
    statement=f"the plain variational autoencoder has at most {NEAR:g} nats of information in every seed, like M = 0",
    paper="the trivial optimum is recovered by the VAE and by M = 0 (sec. 4.6.1)",
    values_are="information in nats: variational autoencoder, then M = 0",
    needs={"methods": BETA, "betas": 1.0},
)
def plain_collapses(study: SplitNormal, run: Run) -> Verdict:
    return code_collapses(study, run)
