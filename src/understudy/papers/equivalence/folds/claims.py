"""Claim E2: exact fold-sets in two dimensions, and lemmas 2.1 to 2.3 of Phuong & Lampert (2020)."""

import numpy as np
import pandas as pd

from understudy.claims import Claims, Verdict, every
from understudy.papers.equivalence.folds.study import FoldStudy
from understudy.report.style import number
from understudy.store import Run

MAP, AREA = 1e-10, 1e-12
"""Largest relative error of an affine map, and of the sum of all areas."""
FOLD = 1e-9
"""Least jump of the gradient at a fold, as a share of the largest gradient: round-off is about 10⁻¹⁵."""


def windows(run: Run) -> pd.DataFrame:
    """One row per random transparent network."""
    return run.table("windows").to_pandas()


claims = Claims(least={"seeds": 200}, tuned_on="")


@claims.claim(
    "E2",
    "affine maps",
    statement="random transparent networks on [−2, 2]²: the affine map of every cell and the network at its corners, "
    "relative to the largest output",
    paper="to 10⁻¹⁰",
    values_are="largest error, per network",
)
def maps_are_exact(study: FoldStudy, run: Run) -> Verdict:
    found = windows(run)
    error = found["map_error"].to_numpy()
    return every(error, at_most=MAP, say=f"largest error {number(error.max())}, {found['cells'].sum():,} cells")


@claims.claim(
    "E2",
    "tiling",
    statement="random transparent networks: areas of the cells add up to that of the window, and no fold is left "
    "undecided",
    paper="cells tile the window",
    values_are="relative error of the area, per network",
)
def cells_tile(study: FoldStudy, run: Run) -> Verdict:
    found = windows(run)
    error, undecided = found["area_error"].to_numpy(), int(found["undecided"].sum())
    decided = every(error, at_most=AREA, say=f"largest error {number(error.max())}; {undecided} folds left undecided")
    return decided & Verdict(undecided == 0, "", len(found))


@claims.claim(
    "E2",
    "counts",
    statement="random transparent networks: as many cells as linear programming finds, every activation pattern of a "
    "grid of {grid} × {grid} points is that of a cell, and every point inside of a cell has its pattern",
    paper="counts equal brute force",
)
def counts_agree(study: FoldStudy, run: Run) -> Verdict:
    found = windows(run)
    same = (found["cells"] == found["linear_programming"]).to_numpy()
    strange, wrong = int(found["grid_strange"].sum()), int(found["grid_wrong"].sum())
    words = (
        f"equal counts in {same.sum():,} of {len(same):,} networks with {found['cells'].min()} to "
        f"{found['cells'].max()} cells; {strange} patterns without a cell, {wrong} points with another pattern"
    )
    return Verdict(bool(same.all()) and strange == wrong == 0, words, len(found))


@claims.claim(
    "E2",
    "lemma 2.1",
    statement="general transparent networks: the gradient of the output jumps at every zero of every unit",
    paper="all zeros of units are folds",
    values_are="smallest jump as a share of the largest gradient, per network",
)
def all_zeros_are_folds(study: FoldStudy, run: Run) -> Verdict:
    found = windows(run)
    jump = found["smallest_jump"].to_numpy()
    jump = jump[np.isfinite(jump)]
    return every(
        jump, above=FOLD, n=len(found), say=f"smallest jump {number(jump.min())}, {found['edges'].sum():,} folds"
    )


@claims.claim(
    "E2",
    "lemma 2.2",
    statement="random transparent networks: the fold-set is a piece-wise linear surface of order at most L − 1",
    paper="order at most L − 1",
)
def orders(study: FoldStudy, run: Run) -> Verdict:
    found = windows(run)
    depth = found["hidden"].str.split("-").str.len()
    holds = ((found["left_over"] == 0) & (found["order"] <= depth)).to_numpy()
    less = int((found["order"] < depth).sum())
    words = f"{holds.sum():,} of {len(holds):,} networks; the order is less than L − 1 in {less:,}"
    return Verdict(bool(holds.all()), words, len(found))


def _layers(run: Run, excluded: str, words: str) -> Verdict:
    """Networks none of whose piece-wise hyperplanes is in a layer that lemma 2.3 excludes."""
    found = windows(run)
    good = (found["mixed"] + found[excluded] == 0).to_numpy()
    pieces = f"{found['pieces'].sum():,} piece-wise hyperplanes"
    return Verdict(bool(good.all()), f"{good.sum():,} of {len(good):,} networks, {pieces}{words}", len(good))


@claims.claim(
    "E2",
    "lemma 2.3, as printed",
    statement="random transparent networks: every piece-wise hyperplane of layer k is part of the zeros of one unit of "
    "a layer from k to λ − m, where m is the longest path of the dependency graph from it",
    paper="k ≤ l ≤ λ − m",
)
def layers_are_bounded_as_printed(study: FoldStudy, run: Run) -> Verdict:
    why = (
        "; elsewhere a straight fold of a higher layer is assigned to a lower one, and folds that cross it are divided "
        "there without bending"
    )
    return _layers(run, "excluded_straight", why)


@claims.claim(
    "E2",
    "lemma 2.3, where folds bend",
    statement="random transparent networks: every piece-wise hyperplane of layer k is part of the zeros of one unit of "
    "a layer from k to λ − m, where m is the longest path along edges at which the upper fold bends or ends",
    paper="k ≤ l ≤ λ − m",
)
def layers_are_bounded(study: FoldStudy, run: Run) -> Verdict:
    found = windows(run)
    identified = found["identified"].sum() / found["pieces"].sum()
    return _layers(run, "excluded", f"; the layer of {identified:.0%} is identified")
