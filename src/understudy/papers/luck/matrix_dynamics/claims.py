"""What a run of matrix dynamics decides: Y8. Layers are counted from the lowest, which is layer 1."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from understudy.papers.luck.matrix_dynamics.study import PATHS, layers
from understudy.store import Claim, Run

if TYPE_CHECKING:
    from understudy.papers.luck.matrix_dynamics.study import MatrixDynamics

EXACT = 1e-10
"""How far apart, relatively, velocities may be where the theorem assumes nothing."""
_FREE = ("seeds", "device")


class Depth(NamedTuple):
    """Networks of one teacher, by path and seed; NaN from where one diverged on."""

    hidden: str
    loss: np.ndarray
    """[path, seed, look]."""
    rho: np.ndarray
    """[path, seed, hidden layer, look]: mean best correlation."""
    cosine: np.ndarray
    distance: np.ndarray
    """[path, seed, layer, look] of both velocities, the outputs' layer last."""
    eqn: np.ndarray
    """[path, seed, hidden layer, look, 2]: relative errors of eqns 4 and 5."""

    @property
    def whole(self) -> np.ndarray:
        """[seed]: neither of the two diverged."""
        return np.isfinite(self.loss).all(axis=(0, 2))


def depths(study: MatrixDynamics, run: Run) -> list[Depth]:
    """In the order of the teachers; those that diverged are there up to where they did."""
    number = {(row["hidden"], row["path"], row["seed"]): row["network"] for row in run.networks.to_pylist()}

    alive = run.networks["diverged_at"].is_null().to_numpy()

    def networks(hidden: str) -> np.ndarray:
        return np.array([[number[hidden, way, seed + 1] for seed in range(study.seeds)] for way in PATHS])

    def of(hidden: str, metric: str, *which: int) -> np.ndarray:
        return np.stack([run.series(metric, layer)[networks(hidden)] for layer in which], axis=2)

    def losses(hidden: str) -> np.ndarray:
        found = of(hidden, "eval_loss", -1)[:, :, 0]
        # Where all diverge the last look that any of them has is not the end.
        found[~alive[networks(hidden)], -1] = np.nan
        return found

    return [
        Depth(
            hidden,
            losses(hidden),
            of(hidden, "rho_mean", *range(count)),
            of(hidden, "cosine", *range(count + 1)),
            of(hidden, "distance", *range(count + 1)),
            np.stack([of(hidden, metric, *range(count)) for metric in ("eqn_4", "eqn_5")], axis=-1),
        )
        for hidden in study.hidden
        for count in [len(layers(hidden))]
    ]


def claims(study: MatrixDynamics, run: Run) -> list[Claim]:
    """Decided on the settings as they are by default, whatever the number of seeds."""
    plain = type(study)()
    if any(getattr(study, f.name) != getattr(plain, f.name) for f in fields(study) if f.name not in _FREE):
        return []
    found = depths(study, run)
    return [_top(found), *(claim for depth in found for claim in (_direction(depth), _loss(depth)))]


def _top(found: list[Depth]) -> Claim:
    worst = np.stack([np.nanmax(depth.distance[:, :, -1]) for depth in found])
    return Claim(
        id="Y8",
        statement="at the highest layer, where the theorem assumes nothing, eqn 6 is minus the gradient at every look, on both "
        f"paths: relative distance at most {EXACT:g} (below: the largest of each teacher)",
        paper="equal",
        measured=f"at most {worst.max():.1e}",
        n=sum(depth.loss.shape[1] for depth in found),
        holds=bool(worst.max() <= EXACT),
        part="top layer",
        values=tuple(worst.tolist()),
        low=None,
        high=EXACT,
    )


def _direction(depth: Depth) -> Claim:
    cosine, distance = depth.cosine[:, :, :-1], depth.distance[:, :, :-1]
    least = np.nanmin(cosine, axis=(0, 2, 3))
    middle = "; ".join(f"on {way}'s way, {_by_layer(cosine[p], distance[p])}" for p, way in enumerate(PATHS))
    below = int((cosine <= 0).sum())
    return Claim(
        id="Y8",
        statement="below the highest layer the cosine of eqn 6 and minus the gradient is above 0 at every look of every seed, on "
        "both paths (below: the least of each seed)",
        paper="simulated beside SGD",
        measured=f"least {least.min():.2f}, not above 0 in {below:,} of {np.isfinite(cosine).sum():,}; medians over seeds and "
        f"looks: {middle}",
        n=len(least),
        holds=below == 0,
        part=f"direction, {depth.hidden}",
        values=tuple(least.tolist()),
        low=0.0,
        high=None,
    )


def _by_layer(cosine: np.ndarray, distance: np.ndarray) -> str:
    return ", ".join(
        f"layer {layer + 1}: cosine {np.nanmedian(cosine[:, layer]):.2f}, "
        f"distance {np.nanmedian(distance[:, layer]):.2f}"
        for layer in range(cosine.shape[1])
    )


def _loss(depth: Depth) -> Claim:
    """One that diverged does not end lower."""
    loss, rho = np.log10(depth.loss), depth.rho.mean(axis=2)
    gain = loss[0, :, -1] - loss[0, :, 0]
    lost = int(np.isnan(gain).sum())
    diverged = f", {lost} diverged" if lost else ""
    (ours, theirs), (ours_rho, theirs_rho) = (np.nanmedian(part[:, :, -1], axis=1) for part in (loss, rho))
    return Claim(
        id="Y8",
        statement="the simulated dynamics end at a lower evaluation loss than they began with, in every seed (below: log10 of "
        "the ratio)",
        paper="simulated beside SGD",
        measured=f"in {(gain < 0).sum()} of {len(gain)}{diverged}; median log10 losses {np.median(loss[:, :, 0]):.2f} at the "
        f"start, {ours:.2f} by eqn 6, {theirs:.2f} by SGD; mean best correlations {ours_rho:.3f} and {theirs_rho:.3f}",
        n=len(gain),
        holds=bool((gain < 0).all()),
        part=f"loss, {depth.hidden}",
        values=tuple(gain[np.isfinite(gain)].tolist()),
        low=None,
        high=0.0,
    )
