"""Claim D4: wider students match every layer better and are more accurate, on CIFAR-10 (Tian 2020, fig. 10)."""

import numpy as np

from understudy.claims import Claims, Verdict, every, number
from understudy.papers.specialization.cifar.study import Cifar
from understudy.store import Run

PAPERS = {1.0: 0.7967, 2.0: 0.8309, 5.0: 0.8385}
"""Evaluation accuracy by over-realization (Tian 2020, fig. 10)."""
WITHIN, AHEAD = 0.03, 0.01
"""Largest distance of an accuracy from the paper's, and least distance of 2× above 1×."""

# The paper does not state training and pruning: these settings were found to give its values. Rates are free.
claims = Claims(
    fixed="teacher_layers norm teacher_epochs epochs batch train evaluation images",
    when=lambda study: set(study.keep) == {0.5} and set(PAPERS) <= set(study.multiple),
)


def _ends(run: Run, metric: str) -> tuple[np.ndarray, int]:
    """Values after training [multiple, seed, (layer)] at the paper's over-realizations, and how many seeds are left."""
    dims = "multiple seed layer" if metric == "rho_mean" else "multiple seed"
    found = run.array(metric, dims, multiple=list(PAPERS))
    return found.to_numpy(), int((found["network"] >= 0).sum("seed").min())


@claims.claim(
    "D4",
    "accuracy",
    statement=f"evaluation accuracy of 1×, 2×, 5×, mean over seeds: each within {100 * WITHIN:g} points of the paper's",
    paper=", ".join(f"{accuracy:.2%}" for accuracy in PAPERS.values()),
    values_are="percentage points above the paper's accuracy, per network",
)
def accuracies(study: Cifar, run: Run) -> Verdict | None:
    accuracy, n = _ends(run, "accuracy")
    if not n:
        return None
    words = ", ".join(f"{mean:.1%}" for mean in np.nanmean(accuracy, axis=1))
    teacher = np.nanmean(_ends(run, "teacher_accuracy")[0])
    off = accuracy - np.array(list(PAPERS.values()))[:, None]
    found = every(np.nanmean(off, axis=1), at_least=-WITHIN, at_most=WITHIN, n=n)
    return found.say(f"{words}; pruned teacher {teacher:.1%}").show(100 * off, low=-100 * WITHIN, high=100 * WITHIN)


@claims.claim(
    "D4",
    "order of accuracies",
    statement=f"evaluation accuracy, mean over seeds: 2× at least {100 * AHEAD:g} point above 1×, 5× not below 2×",
    paper="3.42 and 0.76 points above",
)
def accuracy_rises(study: Cifar, run: Run) -> Verdict | None:
    accuracy, n = _ends(run, "accuracy")
    if not n:
        return None
    first, second = np.diff(np.nanmean(accuracy, axis=1))
    words = f"{number(100 * first, '.2f')} and {number(100 * second, '.2f')} points above"
    return Verdict(bool(first >= AHEAD and second >= 0), words, n)


@claims.claim(
    "D4",
    "correlation",
    statement="mean best correlation after training, mean over seeds: in every layer that of 5× is above that of 2×, "
    "and that of 2× above that of 1×",
    paper="5× > 2× > 1×",
    values_are="rise from one over-realization to the next, per layer",
)
def correlation_rises(study: Cifar, run: Run) -> Verdict | None:
    each, n = _ends(run, "rho_mean")
    if not n:
        return None
    rho = np.nanmean(each, axis=1)
    rows = {k: ", ".join(number(value, ".3f") for value in row) for k, row in zip(PAPERS, rho, strict=True)}
    words = "; ".join(f"{k:g}×: {row}" for k, row in rows.items())
    return every(np.diff(rho, axis=0), above=0.0, n=n, say=words)
