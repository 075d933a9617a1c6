"""Claim Z6: lazy students keep their directions, others turn to teacher nodes (Zhou, Ge & Jin 2021, fig. 1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from understudy.claims import Claims, Verdict, every, number
from understudy.papers.local.regimes.study import LARGE, LAZY, LOCAL, MEAN_FIELD, REGIMES
from understudy.store import Run

if TYPE_CHECKING:
    from understudy.papers.local.regimes.study import Regimes

TURN, NEAR = 0.1, 0.01
"""Angles in rad: below the first, a lazy student counts as not turned; below the second, a student as matched."""
SHARE = 0.01
"""Share of its network's Σ ‖w‖² below which a student counts as carrying no mass."""


class Regime(NamedTuple):
    """Networks of one regime, in the order of their seeds; NaN after a network has diverged."""

    name: str
    networks: np.ndarray
    loss: np.ndarray
    """[seed, probe]."""
    places: np.ndarray
    """[seed, probe, student, 2]."""
    angles: np.ndarray
    """[seed, probe, student]: angle to the nearest teacher node, up to sign."""

    @property
    def turns(self) -> np.ndarray:
        """[seed, probe, student]: angle to the initial direction."""
        z = self.places[..., 0] + 1j * self.places[..., 1]
        return np.abs(np.angle(z * z[:, :1].conj()))

    @property
    def shares(self) -> np.ndarray:
        """[seed, probe, student]: share of the network's Σ ‖w‖²."""
        masses = (self.places**2).sum(-1)
        return masses / masses.sum(-1, keepdims=True)

    @property
    def heavy(self) -> np.ndarray:
        """[seed, student]: carries mass at the end; in a network that diverged, all do."""
        return ~(self.shares[:, -1] < SHARE)

    @property
    def ends(self) -> np.ndarray:
        """[seed]: largest angle at the end of a student that carries mass; infinite if the network diverged."""
        return np.where(self.heavy, np.nan_to_num(self.angles[:, -1], nan=np.inf), 0.0).max(-1)

    @property
    def farthest(self) -> np.ndarray:
        """[seed]: largest turn of a student at any probe; infinite if the network diverged."""
        return np.nan_to_num(self.turns, nan=np.inf).max((-2, -1))


def regimes(run: Run) -> dict[str, Regime]:
    """The networks of each regime by its name."""
    x, y, angles = (run.matched("student", name) for name in ("x", "y", "angle"))

    def regime(name: str) -> Regime:
        some = run.select(regime=name)
        found = [values[some.index] for values in (run.series("loss"), np.stack([x, y], -1), angles)]
        for values in found:
            values[~some.alive, -1] = np.nan  # if all networks diverge, the last recorded probe is not the end
        return Regime(name, some.index, *found)

    return {name: regime(name) for name in REGIMES}


claims = Claims(free="seeds device probes")


@claims.claim(
    "Z6",
    LAZY,
    statement=f"lazy: no student turns by {TURN:g} rad or more at any probe, in any seed",
    paper="student neurons do not move much",
    values_are="largest turn, per seed",
)
def lazy_students_stay(study: Regimes, run: Run) -> Verdict:
    found = regimes(run)
    return stays(found[LAZY]).beside({"the same initial weights without centring": stays(found[LARGE])})


def stays(regime: Regime) -> Verdict:
    """No student turns by much."""
    turned, (start, end) = regime.farthest, np.median(regime.loss[:, [0, -1]], axis=0)
    least, most, middle = (number(value, ".2g") for value in (turned.min(), turned.max(), np.median(turned)))
    return every(
        turned,
        below=TURN,
        say=f"largest turn of a seed {least} to {most} rad, median {middle}; median loss from {number(start, '.2g')} "
        f"to {number(end, '.1e')}",
    )


@claims.claim(
    "Z6",
    "{regime}",
    statement=f"{{regime}}: every student that carries at least {SHARE:.0%} of its network's Σ ‖w‖² ends within "
    f"{NEAR:g} rad of ± a teacher node, in every seed",
    paper="student neurons converge to one of the directions of teacher neurons",
    values_are="largest angle, per seed",
    cases={"regime": (MEAN_FIELD, LOCAL)},
)
def students_turn_to_teacher_nodes(study: Regimes, run: Run, regime: str) -> Verdict:
    return matches(regimes(run)[regime])


def matches(regime: Regime) -> Verdict:
    """Every student that carries mass ends near a teacher node."""
    heavy, near, ends = regime.heavy, regime.angles[:, -1] < NEAR, regime.ends
    return every(
        ends,
        below=NEAR,
        say=f"{(heavy & near).sum()} of these {heavy.sum()} students; largest angle {number(ends.max(), '.1e')} rad, "
        f"median over seeds {number(np.median(ends), '.1e')}; {light_words(regime)}",
    )


def light_words(regime: Regime) -> str:
    """The mass and the angles of the students that carry no mass, in words."""
    light = ~regime.heavy
    if not light.any():
        return "no student carries less"
    share, angle = regime.shares[:, -1], regime.angles[:, -1]
    far = light & (angle >= NEAR)
    held = np.where(light, share, 0.0).sum(-1)
    words = f"{light.sum()} of {light.size} students carry less, together at most {held.max():.1%} per network"
    if not far.any():
        return f"{words}, and end as near"
    beyond = np.where(far, share, 0.0).sum(-1)
    return (
        f"{words}; {far.sum()} of them end farther away, by up to {angle[far].max():.2g} rad, with at most "
        f"{number(share[far].max(), '.1e')} of the mass each and {number(beyond.max(), '.1e')} together"
    )
