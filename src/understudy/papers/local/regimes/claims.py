"""What a run of regimes decides: Z6."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from understudy.papers.local.regimes.study import LARGE, LAZY, LOCAL, MEAN_FIELD, REGIMES
from understudy.store import Claim, Run
from understudy.store.claims import Variant

if TYPE_CHECKING:
    from understudy.papers.local.regimes.study import Regimes

TURN, NEAR = 0.1, 0.01
"""Radians: lazy students turn by less, the others end within so much of a teacher node, up to sign."""
SHARE = 0.01
"""Of its network's Σ ‖w‖²: a student with less carries no mass, and is counted apart."""
_FREE = ("seeds", "device", "looks")


class Regime(NamedTuple):
    """Networks from one start, in the order of their seeds; NaN from where one diverged on."""

    name: str
    networks: np.ndarray
    loss: np.ndarray
    """[seed, look]."""
    places: np.ndarray
    """[seed, look, student, 2]."""
    angles: np.ndarray
    """[seed, look, student]: with the nearest teacher node, up to sign."""

    @property
    def turns(self) -> np.ndarray:
        """[seed, look, student]: angle with the direction of the start."""
        z = self.places[..., 0] + 1j * self.places[..., 1]
        return np.abs(np.angle(z * z[:, :1].conj()))

    @property
    def shares(self) -> np.ndarray:
        """[seed, look, student] of Σ ‖w‖² in its network."""
        masses = (self.places**2).sum(-1)
        return masses / masses.sum(-1, keepdims=True)

    @property
    def heavy(self) -> np.ndarray:
        """[seed, student]: carries mass at the end; where a network diverged, all do."""
        return ~(self.shares[:, -1] < SHARE)

    @property
    def ends(self) -> np.ndarray:
        """[seed]: largest angle at the end of a student that carries mass; infinite where a network diverged."""
        return np.where(self.heavy, np.nan_to_num(self.angles[:, -1], nan=np.inf), 0.0).max(-1)

    @property
    def farthest(self) -> np.ndarray:
        """[seed]: by how much a student turned at most, over all looks; infinite where a network diverged."""
        return np.nan_to_num(self.turns, nan=np.inf).max((-2, -1))


def regimes(run: Run) -> dict[str, Regime]:
    of, lost = run.column("regime"), ~run.networks["diverged_at"].is_null().to_numpy()
    x, y, angles = (run.matched("student", name) for name in ("x", "y", "angle"))

    def ended(values: np.ndarray) -> np.ndarray:
        # Where all diverge the last look that any of them has is not the end.
        values = values.copy()
        values[lost, -1] = np.nan
        return values

    loss, places, angles = ended(run.series("loss")), ended(np.stack([x, y], -1)), ended(angles)
    return {
        name: Regime(name, networks, loss[networks], places[networks], angles[networks])
        for name in REGIMES
        for networks in [np.flatnonzero(of == name)]
    }


def claims(study: Regimes, run: Run) -> list[Claim]:
    """Decided on the settings as they are by default, whatever the number of seeds and of looks."""
    plain = type(study)()
    if any(getattr(study, f.name) != getattr(plain, f.name) for f in fields(study) if f.name not in _FREE):
        return []
    found = regimes(run)
    return [_lazy(found[LAZY], found[LARGE]), *(_matched(found[name]) for name in (MEAN_FIELD, LOCAL))]


def _lazy(lazy: Regime, large: Regime) -> Claim:
    turned = lazy.farthest
    return Claim(
        id="Z6",
        statement=f"lazy: no student turns by {TURN:g} rad or more at any look, in any seed (below: the most of each seed)",
        paper="student neurons do not move much",
        measured=f"most {turned.max():.2g} rad, median over seeds {np.median(turned):.2g}; median loss from "
        f"{np.median(lazy.loss[:, 0]):.2g} to {np.median(lazy.loss[:, -1]):.1e}",
        n=len(turned),
        holds=bool((turned < TURN).all()),
        part=LAZY,
        values=tuple(turned[np.isfinite(turned)].tolist()),
        low=None,
        high=TURN,
        variants=(Variant("the same start with nothing taken off", _turning(large), bool((large.farthest < TURN).all())),),
    )


def _turning(large: Regime) -> str:
    turned = large.farthest
    return f"from {turned.min():.2g} to {turned.max():.2g} rad at most in a seed"


def _matched(regime: Regime) -> Claim:
    ends = regime.ends
    return Claim(
        id="Z6",
        statement=f"{regime.name}: every student that carries mass, at least {SHARE:.0%} of its network's Σ ‖w‖², ends within "
        f"{NEAR:g} rad of ± a teacher node, in every seed (below: the largest angle of each seed)",
        paper="student neurons converge to one of the directions of teacher neurons",
        measured=f"{_within(regime)}; largest angle {ends.max():.1e} rad, median over seeds {np.median(ends):.1e}; "
        f"{light_words(regime)}",
        n=len(ends),
        holds=bool((ends < NEAR).all()),
        part=regime.name,
        values=tuple(ends[np.isfinite(ends)].tolist()),
        low=None,
        high=NEAR,
    )


def _within(regime: Regime) -> str:
    heavy, near = regime.heavy, regime.angles[:, -1] < NEAR
    return f"{(heavy & near).sum()} of the {heavy.sum()} that do"


def light_words(regime: Regime) -> str:
    """What became of the students that carry no mass."""
    light = ~regime.heavy
    if not light.any():
        return "none carries less"
    share, angle = regime.shares[:, -1], regime.angles[:, -1]
    far = light & (angle >= NEAR)
    held = np.where(light, share, 0.0).sum(-1)
    words = f"{light.sum()} of {light.size} carry less, together at most {held.max():.1%} of a network's"
    if not far.any():
        return f"{words}, and are as near"
    beyond = np.where(far, share, 0.0).sum(-1)
    return (
        f"{words}; {far.sum()} of them are further off, by up to {angle[far].max():.2g} rad, with at most "
        f"{share[far].max():.1e} each and {beyond.max():.1e} of a network together"
    )
