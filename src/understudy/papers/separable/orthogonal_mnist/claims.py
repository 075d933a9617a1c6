"""Claim B4: representations of two digits are orthogonally separable (Phuong 2021, figs 3.3, 3.4)."""

import numpy as np

from understudy.claims import Claims, Verdict, every
from understudy.papers.separable.orthogonal_mnist.study import SIGNIFICANT, TEST, TRAINING, OrthogonalMnist
from understudy.store import Run

FEW = 10.0
"""“perhaps five or ten” of 128 singular values."""

claims = Claims(free="seeds dtype device data")


def end(run: Run, metric: str) -> np.ndarray:
    """The last value of a metric, of every network that did not diverge."""
    found: np.ndarray = run.array(metric, "network").dropna("network").to_numpy()
    return found


def violations(run: Run, kind: str, images: str) -> tuple[np.ndarray, np.ndarray]:
    """Shares of the pairs of one digit, and of two digits, that violate eq. 3.1 at layer 7 after training."""
    return end(run, f"alike {kind} {images}"), end(run, f"apart {kind} {images}")


def share_range(shares: np.ndarray) -> str:
    """The range of shares, which may be tiny, in percent: `none to 0.0001%`."""
    low, high = (f"{100 * share:.3g}%" if share else "none" for share in (shares.min(), shares.max()))
    return low if low == high else f"{low} to {high}"


@claims.claim(
    "B4",
    "{images} images",
    statement="the {images} images are orthogonally separable at the output of layer 7: any two of one digit have a "
    "positive inner product, and any two of different digits none above 0 (eq. 3.1), in every network",
    paper="layer-7 features are orthogonally separable (fig. 3.3)",
    values_are="share of pairs of one digit, or of two digits if it is larger, that violate this, per network",
    cases={"images": (TRAINING, TEST)},
)
def separable(study: OrthogonalMnist, run: Run, images: str) -> Verdict | None:
    if not run.select().alive.any():
        return None

    def test(kind: str) -> Verdict:
        alike, apart = violations(run, kind, images)
        words = (
            f"{share_range(apart)} of the pairs of two digits are above 0, {share_range(alike)} of the pairs of one "
            "digit are not above 0"
        )
        return every(np.maximum(alike, apart), at_most=0.0, say=words)

    variants = {"cosines up to 0.05 counted as 0": test("nearly"), "before the ReLU": test("before")}
    return test("all").with_variants(variants)


@claims.claim(
    "B4",
    "W7",
    statement=f"at most {FEW:g} singular values of W7 are above {SIGNIFICANT:.0%} of the largest, in every network",
    paper="very few, perhaps five or ten, significantly non-zero singular values (fig. 3.4a)",
    values_are="number of such singular values, per network",
)
def few_singular_values(study: OrthogonalMnist, run: Run) -> Verdict | None:
    if not run.select().alive.any():
        return None
    before = every(run.select().start("significant"), say="at the start {range:.0f}")
    return every(end(run, "significant"), at_most=FEW, say="{range:.0f}").also(before.measured)
