"""Claims Y10 and Y11: the bounds of theorems 4 and 5, and the norms of fan-outs (Tian et al. 2019, fig. 7)."""

from decimal import Decimal
from typing import NamedTuple

import numpy as np
import xarray as xr

from understudy.claims import Claims, Verdict, number
from understudy.papers.luck.lucky_init.study import FIGURE, QUANTITIES, SETTINGS, LuckyInit, NearSetting
from understudy.store import Run

PAPER = {(10.0, 10.0): (1.22, 0.001), (1.0, 1.0): (1.21, 0.09), (5.0, 0.0): (1.13, 0.37)}
"""Mean norms of the rows of V_u and V_r at 2× after 5,000 steps in the paper, by p_W and p_V."""
AT, TWICE, WITHIN = 5_000, 2.0, 0.05
SHARE = 0.2
"""Relative tolerance of V_r, whose values are small; at least half of the last printed digit is allowed."""
_ROUNDING = 1e-10
"""Smaller bounds are not checked: the values that they bound are rounding errors."""
_SLACK = 1 + 1e-9
_TRIAL = "settings in an earlier trial, whose seeds are not recorded"

claims = Claims(
    free="seeds device dtype rules",
    when=lambda study: "rescaled" in study.rules,
    tuned_on=_TRIAL,
)


def of_figure(run: Run, metric: str, rule: str) -> xr.DataArray:
    """A metric of the networks of fig. 7 by start (such as `(10, 0)`), multiple, seed and step."""
    some = run.select(setting=FIGURE, rule=rule)
    starts = dict.fromkeys(zip(some.column("p_w").tolist(), some.column("p_v").tolist(), strict=True))
    found = [some.array(metric, "multiple seed epoch", p_w=w, p_v=v) for w, v in starts]
    joined = xr.concat(found, "start", coords="different", compat="equals", join="outer")
    return joined.assign_coords(start=[start_name(start) for start in starts])


def start_name(start: tuple[float, float]) -> str:
    """The start with these p_W and p_V, as arrays and figures name it."""
    return f"({start[0]:g}, {start[1]:g})"


def in_setting(run: Run, setting: NearSetting, metric: str) -> xr.DataArray:
    """A metric of one of our own settings by seed and step; NaN where it was not recorded."""
    some, steps = run.select(setting=str(setting)), np.arange(run.options["bounded"] + 1)
    if metric not in run.metric_names:  # the bounds of a theorem that applies to no network
        return some.array(QUANTITIES[setting.theorem][0], "seed epoch") * np.nan
    return some.array(metric, "seed epoch").reindex(epoch=steps)


class TheoremBounds(NamedTuple):
    """One theorem on the networks of one setting, by seed and step."""

    in_force: np.ndarray
    """Whether the theorem applies, with bounds above rounding."""
    kept: np.ndarray
    """Whether everything that it bounds is within its bound."""


def bounds(run: Run, setting: NearSetting, prefix: str = "") -> TheoremBounds:
    """Compare everything that a theorem bounds with its bound, at every step."""
    names = QUANTITIES[setting.theorem]
    measured, bound = (
        np.stack([in_setting(run, setting, f"{head}{name}{tail}").to_numpy() for name in names])
        for head, tail in (("", ""), (prefix, "_bound"))
    )
    # A bound of 0 at the start is checked, too: it is that of a start without error.
    checked = np.isfinite(bound).all(axis=0) & ((bound > _ROUNDING) | (bound[:, :, :1] == 0)).all(axis=0)
    return TheoremBounds(checked, np.all(measured <= bound * _SLACK + 1e-12, axis=0))


@claims.claim(
    "Y10",
    "{part}",
    statement="where its conditions hold, with the K of the whole trajectory, each bound is kept at every step of the "
    "expected dynamics",
    paper="bounds hold at every step",
    cases=lambda study, run: [
        {"part": "theorem 4", "theorem": 4, "prefix": ""},
        {"part": "theorem 5 with the terms that its eqs. 41 to 54 lack", "theorem": 5, "prefix": ""},
        {"part": "theorem 5 as printed", "theorem": 5, "prefix": "printed_"},
    ],
    tuned_on="settings by a search, whose seeds are not recorded",
)
def bounds_hold(study: LuckyInit, run: Run, part: str, theorem: int, prefix: str) -> Verdict:
    ours = [setting for setting in SETTINGS if setting.theorem == theorem]
    found = [bounds(run, setting, prefix) for setting in ours]
    forced = [int(each.in_force.sum()) for each in found]
    broken = sum(int((each.in_force & ~each.kept).sum()) for each in found)
    networks = sum(int(each.in_force.any(axis=1).sum()) for each in found)
    where = ", ".join(
        f"{setting.students} at threshold {setting.threshold:g}: {count:,}"
        for setting, count in zip(ours, forced, strict=True)
    )
    words = (
        f"broken at {broken:,} of {sum(forced):,} network-steps at which it applies ({where}), in {networks:,} of "
        f"{sum(len(each.kept) for each in found):,} networks"
    )
    return Verdict(bool(sum(forced) and not broken), words, networks)


@claims.claim(
    "Y10",
    "networks of fig. 7",
    statement="the conditions of theorem 4 (for the near students alone) or of theorem 5 hold in networks of fig. 7, "
    "at the start or at the end",
    paper="small overlap is assumed",
    tuned_on="",
)
def applies_to_the_figure(study: LuckyInit, run: Run) -> Verdict:
    """The networks of fig. 7 themselves, to which the theorems do not apply."""
    force = [of_figure(run, name, "rescaled") > 0 for name in ("in_force_4", "in_force_5", "printed_in_force_5")]
    networks = (force[0] | force[1] | force[2]).any("epoch")
    four, five = (of_figure(run, name, "rescaled").max().item() for name in ("gamma_4", "printed_gamma_5"))
    words = (
        f"in {int(networks.sum()):,} of {networks.size:,} networks; γ of theorem 4 is at most {number(four)}, of "
        f"theorem 5 {number(five)}"
    )
    return Verdict(bool(networks.any()), words, networks.size)


def tolerance(others: float) -> float:
    """How far V_r may be from a printed value."""
    return max(SHARE * others, 0.5 * 10.0 ** int(Decimal(repr(others)).as_tuple().exponent))


@claims.claim(
    "Y11",
    "p_W = {p_w:g}, p_V = {p_v:g}",
    statement=f"mean norms of the rows of V_u and V_r at 2× after {AT:,} steps, mean over seeds: V_u within "
    f"{WITHIN:g}, V_r within {SHARE:.0%} or half of the last printed digit, {{off:.2g}}",
    paper="{near:g} / {others:g}",
    values_are="mean norm of the rows of V_r, per seed",
    tuned_on=f"{_TRIAL}; the bound of V_r on seeds 1 to 32, which decide it",
    cases=lambda study, run: [
        {"p_w": w, "p_v": v, "near": near, "others": others, "off": tolerance(others)}
        for (w, v), (near, others) in PAPER.items()
    ],
)
def norms(study: LuckyInit, run: Run, p_w: float, p_v: float, near: float, others: float, off: float) -> Verdict:
    some = run.select(setting=FIGURE, rule="rescaled", multiple=TWICE, p_w=p_w, p_v=p_v)
    u, r = (some.array(name, "seed", epoch=AT).to_numpy() for name in ("v_u", "v_r"))
    holds = bool(abs(u.mean() - near) <= WITHIN and abs(r.mean() - others) <= off)
    words = f"{u.mean():.3f} / {r.mean():.4f} (standard deviations {u.std():.3f}, {r.std():.4f})"
    return Verdict(holds, words, len(u)).show(r, low=others - off, high=others + off)


@claims.claim(
    "Y11",
    "order",
    statement=f"for (p_W, p_V) = {', '.join(map(start_name, PAPER))}, in every seed and at every "
    "over-parameterization, rows of V_r are shorter at the end than at the start and rows of V_u longer; the remaining "
    "share of V_r is least for the nearest start",
    paper="V_r to 0 while V_u grows, faster the closer the start",
)
def nearest_fastest(study: LuckyInit, run: Run) -> Verdict:
    u, r = (of_figure(run, name, "rescaled").sel(start=list(map(start_name, PAPER))) for name in ("v_u", "v_r"))
    moved = (r.isel(epoch=-1) < r.isel(epoch=0)) & (u.isel(epoch=-1) > u.isel(epoch=0))
    left = (r.isel(epoch=-1) / r.isel(epoch=0)).mean("seed", skipna=False)
    nearest = left.isel(start=0) < left.isel(start=slice(1, None))
    words = [f"{k:g}×: {', '.join(f'{x:.3f}' for x in left.sel(multiple=k).to_numpy())}" for k in study.multiple]
    measured = f"share of V_r after {study.steps:,} steps, mean over seeds, {'; '.join(words)}"
    return Verdict(bool(moved.all() and nearest.all()), measured, study.seeds)
