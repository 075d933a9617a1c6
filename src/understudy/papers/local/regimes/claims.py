"""Claim Z6: lazy students keep their directions, others turn to teacher nodes (Zhou, Ge & Jin 2021, fig. 1)."""

import numpy as np
import xarray as xr

from understudy.claims import Claims, Verdict, every, number
from understudy.papers.local.regimes.study import LARGE, LAZY, LOCAL, MEAN_FIELD, Regimes
from understudy.store import Run

TURN, NEAR = 0.1, 0.01
"""Angles in rad: below the first, a lazy student counts as not turned; below the second, a student as matched."""
SHARE = 0.01
"""Share of its network's Σ ‖w‖² below which a student counts as carrying no mass."""


def regimes(run: Run) -> xr.Dataset:
    """The `loss` of every network, and what `add_turns` measures of its students, by regime, seed and epoch."""
    nodes = {name: run.array(name, "regime seed epoch student", diverged=True) for name in ("x", "y", "angle")}
    found = xr.Dataset(nodes | {"loss": run.array("loss", "regime seed epoch", diverged=True)})
    ended = run.array("loss", "regime seed").notnull().drop_vars("network")
    return add_turns(found.where(ended | (found["epoch"] < found["epoch"][-1])))


def add_turns(students: xr.Dataset) -> xr.Dataset:
    """Students at `x` and `y` with their `turn`, the angle to the initial direction, and `share` of Σ ‖w‖².

    `angle` is that to the nearest teacher node, up to sign; all are NaN after a network has diverged.
    """
    z, mass = students["x"] + 1j * students["y"], students["x"] ** 2 + students["y"] ** 2
    turned = z * z.isel(epoch=0).conj()
    return students.assign(
        turn=abs(np.arctan2(turned.imag, turned.real)), share=mass / mass.sum("student", skipna=False)
    )


def heavy(found: xr.Dataset) -> np.ndarray:
    """Whether a student carries mass at the end, […, student]; in a network that diverged, all do."""
    return ~(found["share"].isel(epoch=-1) < SHARE).to_numpy()


def largest_angles(found: xr.Dataset) -> np.ndarray:
    """Largest angle at the end of a student that carries mass, […]; infinite if the network diverged."""
    return np.where(heavy(found), np.nan_to_num(found["angle"].isel(epoch=-1), nan=np.inf), 0.0).max(-1)


def largest_turns(found: xr.Dataset) -> np.ndarray:
    """Largest turn of a student at any probe, […]; infinite if the network diverged."""
    return found["turn"].fillna(np.inf).max(("epoch", "student")).to_numpy()


claims = Claims(free="seeds device probes", tuned_on="other draws, which are not recorded")


@claims.claim(
    "Z6",
    LAZY,
    statement=f"lazy: no student turns by {TURN:g} rad or more at any probe, in any seed",
    paper="student neurons do not move much",
    values_are="largest turn, per seed",
)
def lazy_students_stay(study: Regimes, run: Run) -> Verdict:
    lazy, large = (stays(regimes(run).sel(regime=name)) for name in (LAZY, LARGE))
    return lazy.with_variants({"the same initial weights without centring": large})


def stays(found: xr.Dataset) -> Verdict:
    """No student of a regime turns by much."""
    turned, (start, end) = largest_turns(found), np.median(found["loss"].isel(epoch=[0, -1]), axis=0)
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
    return matches(regimes(run).sel(regime=regime))


def matches(found: xr.Dataset) -> Verdict:
    """Every student of a regime that carries mass ends near a teacher node."""
    carries, ends = heavy(found), largest_angles(found)
    near = carries & (found["angle"].isel(epoch=-1) < NEAR).to_numpy()
    return every(
        ends,
        below=NEAR,
        say=f"{near.sum()} of these {carries.sum()} students; largest angle {number(ends.max(), '.1e')} rad, "
        f"median over seeds {number(np.median(ends), '.1e')}; {light_words(found)}",
    )


def light_words(found: xr.Dataset) -> str:
    """The mass and the angles of the students of a regime that carry no mass, in words."""
    light = ~heavy(found)
    if not light.any():
        return "no student carries less"
    share, angle = (found[name].isel(epoch=-1).to_numpy() for name in ("share", "angle"))
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
