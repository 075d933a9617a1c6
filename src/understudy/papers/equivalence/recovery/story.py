"""Figures and headline of `recovery` (Phuong & Lampert 2020, theorem 2.1)."""

import numpy as np
import pandas as pd

from understudy.papers.equivalence.recovery.claims import ERROR, recoveries
from understudy.papers.equivalence.recovery.study import USUAL, Recovery
from understudy.report import style
from understudy.report.figures import Curves, Dots, Panel, Series
from understudy.report.story import Figure, Number, Story
from understudy.store import Run

_FLOOR = 1e-16
"""Smallest error that is drawn."""


def story(study: Recovery, run: Run) -> Story:
    """Errors and evaluations by architecture, and by how much of the box the units fold."""
    found = recoveries(run)
    usual = found[found["kind"] == USUAL]
    parts = []
    numbers = []
    for words in study.architecture:
        some = usual[usual["sizes"] == words]
        if len(some):
            count = f"{int(some['recovered'].sum())} of {len(some)}"
            parts.append(f"{count} of {words}")
            numbers.append(Number(count, f"networks {words}, {int(some['evaluations'].median()):,} evaluations"))
    errors = usual["error"][usual["recovered"]]
    largest = f", to {style.number(float(errors.max()))}" if len(errors) else ""
    headline = (
        f"The parameters of {len(errors)} of {len(usual)} random networks follow from their values alone{largest}. By "
        f"architecture: {', '.join(parts)}."
    )
    skipped = "; ".join(
        f"{words}: {int(some['skipped'].iloc[0])}"
        for words in study.architecture
        if len(some := usual[usual["sizes"] == words])
    )
    figures = (
        Figure(
            "errors",
            "Parameters are found to rounding",
            "Largest relative difference of parameters after matching, one point per network of which every unit folds "
            f"at least {study.least:g} of the box; networks that were drawn and fold less: {skipped}. Where the "
            "function does not determine all parameters, others with the same values are found.",
            "S3 theorem 2.1",
            Dots.from_columns(
                _columns(study, usual), "error of parameters", bound=ERROR, bound_words="found", floor=_FLOOR
            ),
        ),
        Figure(
            "shares",
            "What folds little of the box is still found",
            "Error of parameters by the smallest share of the box on the smaller side of a unit's fold; networks that "
            "were not found at all are drawn at 1.",
            "S3 theorem 2.1",
            _by_share(study, found),
        ),
        Figure(
            "evaluations",
            "Evaluations by number of parameters",
            "Inputs at which the function was evaluated, one point per network.",
            "S3 theorem 2.1",
            _evaluations(study, found),
        ),
    )
    return Story(headline, tuple(numbers), figures)


def _error(found: pd.DataFrame) -> np.ndarray:
    return np.clip(found["error"].fillna(1.0).to_numpy(float), _FLOOR, 1.0)


def _columns(study: Recovery, usual: pd.DataFrame) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    columns = {}
    for words in study.architecture:
        some = usual[usual["sizes"] == words]
        if len(some):
            columns[words] = _error(some), np.full(len(some), -1)
    return columns


def _by_share(study: Recovery, found: pd.DataFrame) -> Curves:
    series = [
        Series(words, some["share"].to_numpy(float), _error(some), points=True)
        for words in study.architecture
        if len(some := found[found["sizes"] == words])
    ]
    panel = Panel("", "smallest share of the box", "error of parameters", tuple(series), True, True, ERROR, "found")
    return Curves((panel,), note=f"n = {len(found)} networks")


def _evaluations(study: Recovery, found: pd.DataFrame) -> Curves:
    series = [
        Series(words, some["parameters"].to_numpy(float), some["evaluations"].to_numpy(float), points=True)
        for words in study.architecture
        if len(some := found[found["sizes"] == words])
    ]
    return Curves(
        (Panel("", "parameters", "evaluations", tuple(series), True, True),), note=f"n = {len(found)} networks"
    )
