"""Claim B4: representations of two digits are orthogonally separable (Phuong 2021, figs 3.3, 3.4)."""

import numpy as np

from understudy.claims import Claims, Verdict, every
from understudy.papers.separable.orthogonal_mnist.study import (
    LAYERS,
    SIGNIFICANT,
    TEST,
    TRAINING,
    OrthogonalMnist,
)
from understudy.store import Run

FEW = 10.0
"""“perhaps five or ten” of 128 singular values."""
MOST = 0.5
"""The thesis shows one network; “most” are more than half of ours, each of which is shown."""

claims = Claims(
    free="seeds dtype device data",
    tuned_on="seeds 1 to 5 with biases that were not scaled: “most” was read after these had been seen",
)


def end(run: Run, metric: str, layer: int = -1) -> np.ndarray:
    """The last value of a metric, of every network that did not diverge."""
    found: np.ndarray = run.array(metric, "network", layer=layer).dropna("network").to_numpy()
    return found


def violations(run: Run, kind: str, images: str) -> tuple[np.ndarray, np.ndarray]:
    """Shares of the pairs of one digit, and of two digits, that violate eq. 3.1 at layer 7 after training."""
    return end(run, f"alike {kind} {images}", LAYERS), end(run, f"apart {kind} {images}", LAYERS)


def share_range(shares: np.ndarray) -> str:
    """The range of shares, which may be tiny, in percent: `none to 0.0001%`."""
    low, high = (f"{100 * share:.3g}%" if share else "none" for share in (shares.min(), shares.max()))
    return low if low == high else f"{low} to {high}"


def _each(shares: np.ndarray) -> str:
    """One share per network, in percent."""
    return ", ".join(f"{100 * share:.2g}%" if share else "none" for share in shares)


@claims.claim(
    "B4",
    "{images} images, {kind} the ReLU",
    statement="the {images} images are orthogonally separable at layer 7, {kind} the ReLU: any two of one digit have a "
    "positive inner product, and any two of different digits none above 0 (eq. 3.1), in most networks",
    paper="layer-7 features are orthogonally separable (fig. 3.3, of one network)",
    values_are="share of pairs of one digit, or of two digits if it is larger, that violate this, per network",
    cases={"images": (TRAINING, TEST), "kind": ("after", "before")},
)
def separable(study: OrthogonalMnist, run: Run, images: str, kind: str) -> Verdict | None:
    if not run.select().alive.any():
        return None

    def test(metric: str, most: float = MOST) -> Verdict:
        alike, apart = (end(run, f"{pairs} {metric} {images}", LAYERS) for pairs in ("alike", "apart"))
        wrong = np.maximum(alike, apart)
        words = (
            f"{(wrong == 0).sum()} of {len(wrong)} networks; above 0 are, of the pairs of two digits, network by "
            f"network {_each(apart)}; not above 0 are, of the pairs of one digit, {share_range(alike)}"
        )
        found = (wrong == 0).mean()
        return Verdict(bool(found == 1 or found > most), words, len(wrong)).show(wrong, high=0.0)

    name = "all" if kind == "after" else "before"
    beside = {"every network": test(name, 1.0)}
    if kind == "after":
        beside |= {
            "cosines up to 0.05 counted as 0": test("nearly"),
            f"{study.compared:,} images, as in a figure": test("some"),
        }
    return test(name).with_variants(beside)


@claims.claim(
    "B4",
    "W7, {percent}%",
    statement=f"at most {FEW:g} singular values of W7 are above {{percent}}% of the largest, in most networks",
    paper="very few, perhaps five or ten, significantly non-zero singular values (fig. 3.4a, of one network)",
    values_are="number of such singular values, per network",
    cases={"percent": tuple(round(100 * each) for each in SIGNIFICANT)},
)
def few_singular_values(study: OrthogonalMnist, run: Run, percent: int) -> Verdict | None:
    if not run.select().alive.any():
        return None
    found = end(run, f"above {percent}%")
    each = ", ".join(f"{count:.0f}" for count in found)
    before = every(run.select().start(f"above {percent}%"), say="at the start {range:.0f}")
    words = f"network by network {each}"
    verdict = Verdict(bool((found <= FEW).mean() > MOST), words, len(found)).show(found, high=FEW)
    return verdict.also(before.measured).with_variants({"every network": every(found, at_most=FEW, say="{count}")})
