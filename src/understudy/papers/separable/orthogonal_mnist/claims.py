"""What a run of orthogonal-mnist decides: B4."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from understudy.papers.separable.orthogonal_mnist.study import LAYERS, SIGNIFICANT, TEST, TRAINING
from understudy.store import Claim, Run
from understudy.store.claims import Variant

if TYPE_CHECKING:
    from understudy.papers.separable.orthogonal_mnist.study import OrthogonalMnist

FEW = 10
"""“perhaps five or ten” of 128 singular values."""


def alive(run: Run) -> np.ndarray:
    """Networks that did not diverge."""
    return np.flatnonzero([at is None for at in run.networks["diverged_at"].to_pylist()])


def end(run: Run, metric: str, layer: int = -1, look: int = -1) -> np.ndarray:
    """Of every network alive after training, or before."""
    return run.series(metric, layer)[alive(run), look]


def claims(study: OrthogonalMnist, run: Run) -> list[Claim]:
    if not study.as_in_the_thesis or not len(alive(run)):
        return []
    return [_separable(run, which) for which in (TRAINING, TEST)] + [_few(run)]


def broken(run: Run, kind: str, which: str, look: int = -1) -> tuple[np.ndarray, np.ndarray]:
    """At layer 7, of pairs of one digit and of two the shares that break eq. 3.1."""
    alike, apart = (end(run, f"{pairs} {kind} {which}", LAYERS, look) for pairs in ("alike", "apart"))
    return alike, apart


def ranged(shares: np.ndarray) -> str:
    """Of shares that may be next to nothing."""
    low, high = (f"{100 * share:.3g}%" if share else "none" for share in (shares.min(), shares.max()))
    return low if low == high else f"{low} to {high}"


def _separable(run: Run, which: str) -> Claim:
    alike, apart = broken(run, "all", which)
    beside = {"nearly": "cosines up to 0.05 counted as 0", "before": "before the ReLU"}
    return Claim(
        id="B4",
        statement=f"the {which} images are orthogonally separable as layer 7 gives them: every two of one digit have a positive "
        "inner product, every two of two digits none above 0 (eq. 3.1), in every network",
        paper="layer-7 features are orthogonally separable (fig 3.3)",
        measured=_words(alike, apart),
        n=len(alike),
        holds=bool((alike == 0).all() and (apart == 0).all()),
        part=f"{which} images",
        values=tuple(np.maximum(alike, apart).tolist()),
        high=0.0,
        variants=tuple(_beside(words, *broken(run, kind, which)) for kind, words in beside.items()),
    )


def _words(alike: np.ndarray, apart: np.ndarray) -> str:
    return f"of pairs of two digits {ranged(apart)} are above 0, of pairs of one digit {ranged(alike)} are not"


def _beside(where: str, alike: np.ndarray, apart: np.ndarray) -> Variant:
    return Variant(where, _words(alike, apart), bool((alike == 0).all() and (apart == 0).all()))


def _few(run: Run) -> Claim:
    count = end(run, "significant")
    low, high = int(count.min()), int(count.max())
    words = f"{low}" if low == high else f"{low} to {high}"
    before = end(run, "significant", look=0)
    return Claim(
        id="B4",
        statement=f"no more than {FEW} singular values of W7 are above {SIGNIFICANT:.0%} of the largest, in every network",
        paper="very few, perhaps five or ten, significantly non-zero singular values (fig 3.4a)",
        measured=f"{words}; at the start {int(before.min())} to {int(before.max())}",
        n=len(count),
        holds=high <= FEW,
        part="W7",
        values=tuple(count.tolist()),
        high=float(FEW),
    )
