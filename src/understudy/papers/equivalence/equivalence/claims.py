"""Claims E1 and E4: permutation and scaling, witnesses, and the networks of lemma 2.4 (Phuong & Lampert 2020)."""

import numpy as np
import pandas as pd

from understudy.claims import Claims, Verdict, every, number, share
from understudy.papers.equivalence.equivalence.study import ZERO, Equivalence
from understudy.store import Run

MAPS = 1e-9
"""Largest relative error of the scalings that are found."""
FEWEST = 1_000
"""Pairs of either kind on which the claim is decided."""
ARCHITECTURES = 20
"""Architectures on which lemma 2.4 is decided."""


def pairs(run: Run, changed: bool) -> pd.DataFrame:
    """One row per pair of one function, or with a changed weight."""
    found = run.table("pairs").to_pandas()
    return found[(found["changed_layer"] > 0) == changed]


def constructed(run: Run) -> pd.DataFrame:
    """One row per architecture of lemma 2.4."""
    if "constructed" not in run.tables:
        return pd.DataFrame()
    return run.table("constructed").to_pandas()


def student_counts(run: Run) -> pd.DataFrame:
    """One row per teacher and width: students, those of zero loss, and how many functions and parameters they are."""
    columns = ("students", "zero", "functions", "parameters", "as_teacher", "undecided")
    if "students" not in run.tables:
        return pd.DataFrame({name: [] for name in ("teacher", "hidden", *columns)})
    rows = []
    for (teacher, hidden), some in run.table("students").to_pandas().groupby(["teacher", "hidden"], sort=False):
        zero = some[some["loss"] < ZERO]
        counts = (
            len(some),
            len(zero),
            zero["function"].nunique(),
            zero["parameter_class"].nunique(),
            int((zero["function"] == 0).sum()),
            int(zero["undecided"].sum()),
        )
        rows.append({"teacher": teacher, "hidden": hidden} | dict(zip(columns, counts, strict=True)))
    return pd.DataFrame(rows)


def _enough(study: Equivalence) -> bool:
    paper = study.tolerance <= 1e-9 and study.magnitudes >= 6 and set(study.layers) >= {2, 3, 4, 5}
    return paper and study.seeds * len(study.layers) >= FEWEST


claims = Claims(tuned_on="seeds that overlap those that decide it")


@claims.claim(
    "E1",
    "pairs of one function",
    statement="networks of 2 to 5 layers with non-increasing widths, permuted and rescaled over {magnitudes:g} orders "
    f"of magnitude: recognised, with the maps P_l exact and M_l to {number(MAPS, 'g')}",
    paper="permutation and positive scaling",
    when=_enough,
)
def equal_pairs(study: Equivalence, run: Run) -> Verdict:
    found = pairs(run, changed=False)
    recognised = share(found["relation"] == "permutation and scaling", at_least=1.0, say="{count} recognised")
    return recognised & every(found["map_error"], at_most=MAPS, say="scalings to {most:.1e}")


@claims.claim(
    "E1",
    "one weight changed",
    statement="one weight that acts on at least 1/1000 of the box, changed by {change:g} relative: distinguished, "
    "with an input at which outputs differ",
    paper="no other redundancy",
    when=lambda study: _enough(study) and study.change <= 1e-4,
)
def changed_pairs(study: Equivalence, run: Run) -> Verdict:
    found = pairs(run, changed=True)
    distinguished = share(found["relation"] == "different", at_least=1.0, say="{count} distinguished")
    least = np.min(found["outputs"])
    words = f"largest difference of outputs at least {number(least, '.1e')} of their standard deviation"
    return distinguished.also(words)


def _all_constructed(study: Equivalence) -> bool:
    return study.constructed >= ARCHITECTURES and study.tolerance <= 1e-9


@claims.claim(
    "E4",
    "constructed",
    statement=f"networks of {ARCHITECTURES} architectures: transparent on the box, and from every unit of layer l a "
    "path of length L − 1 − l in the dependency graph of the folds, each proved by points or cells",
    paper="d_l paths of length L − 1 − l from distinct vertices",
    when=_all_constructed,
)
def paths(study: Equivalence, run: Run) -> Verdict:
    found = constructed(run)
    return share(found["paths"] & found["transparent"], at_least=1.0, say="{count} architectures")


@claims.claim(
    "E4",
    "recovered from outputs",
    statement=f"networks of lemma 2.4, constructed for {ARCHITECTURES} architectures: every network that is recovered "
    "from the outputs alone has the same parameters up to permutation and scaling",
    paper="parameters are determined",
    when=_all_constructed,
)
def recovered(study: Equivalence, run: Run) -> Verdict:
    found = constructed(run)
    complete = found[found["relation"] != "not recovered"]
    equal = share(complete["relation"] == "permutation and scaling", at_least=1.0, say="{count} recovered match")
    worst = number(float(complete["parameters"].max()), ".1e") if len(complete) else "none"
    words = f"parameters to {worst}; {len(complete)} of {len(found)} recovered"
    return equal.also(words)
