"""Claim E3: parameters from the function alone (Phuong & Lampert 2020, theorem 2.1)."""

import numpy as np
import pandas as pd

from understudy.claims import Claims, Verdict, share
from understudy.papers.equivalence.recovery.study import RARE, USUAL, Recovery
from understudy.report.style import number
from understudy.store import Run

ERROR = 1e-8
"""Largest relative error of parameters that counts as recovered."""
SHARE = 0.95
"""Least share of networks that are recovered."""
DECIDED = ("20-10-1", "10-10-10-1", "20-10-10-1")
"""Architectures on which the claim is decided; others are reported."""


def recoveries(run: Run, kind: str = "", sizes: str = "") -> pd.DataFrame:
    """One row per network, of one kind and architecture where they are given; `recovered` is decided by the error."""
    found = run.table("recoveries").to_pandas()
    found["recovered"] = found["error"] <= ERROR
    if kind:
        found = found[found["kind"] == kind]
    return found[found["sizes"] == sizes] if sizes else found


def summary(found: pd.DataFrame) -> str:
    """How many networks were recovered, with errors and evaluations, in words."""
    good = found[found["recovered"]]
    words = f"{len(good)} of {len(found)}"
    if len(good):
        words += f", error at most {number(good['error'].max())}"
    words += f", {int(found['evaluations'].median()):,} evaluations (median), at most {found['evaluations'].max():,}"
    free = int((found["free"] > 0).sum())
    return words + (f"; of {free} the function does not determine all parameters" if free else "")


claims = Claims(fixed="least", least={"seeds": 25}, tuned_on="seeds that overlap those that decide it")


@claims.claim(
    "E3",
    "{sizes}",
    statement="random networks {sizes} of which every unit folds at least {least:g} of the box: parameters to 10⁻⁸ up "
    "to permutation and scaling, in at least 95% of the seeds",
    paper="the function determines the parameters",
    cases=lambda study, run: [{"sizes": words} for words in study.architecture if words in DECIDED],
)
def parameters_are_recovered(study: Recovery, run: Run, sizes: str) -> Verdict:
    found = recoveries(run, USUAL, sizes)
    others = [words for words in study.architecture if words not in DECIDED] if sizes == DECIDED[0] else []
    verdict = share(found["recovered"], at_least=SHARE, say=summary(found))
    return verdict.with_variants(
        {
            words: share(some["recovered"], at_least=SHARE, say=summary(some))
            for words in others
            if len(some := recoveries(run, USUAL, words))
        }
    )


@claims.claim(
    "E3",
    "no wrong answer",
    statement="every recovery that is reported as complete has the parameters of the network, to 10⁻⁸",
    paper="no wrong answer without its residual",
)
def complete_is_right(study: Recovery, run: Run) -> Verdict:
    found = recoveries(run)
    complete = found[found["complete"].astype(bool)]
    wrong = int((~complete["recovered"]).sum())
    rare = found[found["kind"] == RARE]
    words = f"{len(complete)} of {len(found)} complete, {wrong} of them wrong"
    if len(rare):
        words += f"; where a unit folds less than {study.least:g} of the box {summary(rare)}"
    return Verdict(wrong == 0 and len(complete) > 0, words, len(found), tuple(np.asarray(complete["error"], float)))
