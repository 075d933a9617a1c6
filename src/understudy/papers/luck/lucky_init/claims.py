"""What a run of lucky starts decides: Y10 and Y11."""

from __future__ import annotations

from dataclasses import fields
from decimal import Decimal
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from understudy.papers.luck.lucky_init.study import FIGURE, QUANTITIES, SETTINGS, Setting
from understudy.store import Claim, Run

if TYPE_CHECKING:
    from understudy.papers.luck.lucky_init.study import LuckyInit

PAPER = {(10.0, 10.0): (1.22, 0.001), (1.0, 1.0): (1.21, 0.09), (5.0, 0.0): (1.13, 0.37)}
"""Mean norms of the rows of V_u and V_r that count, at 2× after 5,000 steps, by p_W and p_V."""
AT, TWICE, WITHIN = 5_000, 2.0, 0.05
SHARE = 0.2
"""Of V_r, whose values are small: within this share of one, or half of its last printed digit."""
_ROUNDING = 1e-10
"""Bounds below this are not counted: what they bound is rounding."""
_SLACK = 1 + 1e-9
_FREE = ("seeds", "device", "dtype", "rules")


class Bounds(NamedTuple):
    """One theorem on the networks of one setting: [network, step], True where it is in force, and where it is kept."""

    in_force: np.ndarray
    kept: np.ndarray


def of_figure(run: Run, metric: str, layer: int, rule: str, multiple: float, start: tuple[float, float]) -> np.ndarray:
    """[seed, look] of a setting of fig 7."""
    columns = {name: run.column(name) for name in ("setting", "rule", "multiple", "p_w", "p_v")}
    wanted = {"setting": FIGURE, "rule": rule, "multiple": multiple, "p_w": start[0], "p_v": start[1]}
    there = np.logical_and.reduce([columns[name] == value for name, value in wanted.items()])
    values = run.series(metric, layer)[there]
    return values[:, np.isfinite(values).any(axis=0)]


def in_setting(run: Run, setting: Setting, metric: str, layer: int) -> np.ndarray:
    """[seed, step] of a setting of ours."""
    values = run.series(metric, layer)[run.column("setting") == str(setting)]
    return values[:, : 1 + _steps(run)]


def _steps(run: Run) -> int:
    return int(run.config["options"]["bounded"])


def bounds(run: Run, setting: Setting, prefix: str = "") -> Bounds:
    """Whether everything that a theorem bounds is kept, at every step at which its bounds are above rounding."""
    measured, bound = (
        np.stack([in_setting(run, setting, f"{head}{name}{tail}", min(q, 1)) for q, name in enumerate(_names(setting))])
        for head, tail in (("", ""), (prefix, "_bound"))
    )
    # A bound of 0 at the start is one, that of a start without error.
    counted = np.isfinite(bound).all(axis=0) & ((bound > _ROUNDING) | (bound[:, :, :1] == 0)).all(axis=0)
    return Bounds(counted, np.all(measured <= bound * _SLACK + 1e-12, axis=0))


def _names(setting: Setting) -> tuple[str, ...]:
    return QUANTITIES[setting.theorem]


def claims(study: LuckyInit, run: Run) -> list[Claim]:
    """Decided on the settings as they are by default, whatever the number of seeds; Y10 as soon as bounds are there."""
    plain = type(study)()
    changed = {f.name for f in fields(study) if getattr(study, f.name) != getattr(plain, f.name)} - set(_FREE)
    if changed or "rescaled" not in study.rules:
        return []
    return [
        _rates(run, 4, "", "theorem 4"),
        _rates(run, 5, "", "theorem 5 with the terms that its eqs. 41 to 54 lack"),
        _rates(run, 5, "printed_", "theorem 5 as printed"),
        _own_setting(study, run),
        *(_norms(run, start, *values) for start, values in PAPER.items()),
        _order(study, run),
    ]


def _rates(run: Run, theorem: int, prefix: str, part: str) -> Claim:
    ours = [setting for setting in SETTINGS if setting.theorem == theorem]
    found = [bounds(run, setting, prefix) for setting in ours]
    forced = np.array([f.in_force.sum() for f in found])
    broken = np.array([(f.in_force & ~f.kept).sum() for f in found])
    networks = sum(int(f.in_force.any(axis=1).sum()) for f in found)
    where = ", ".join(
        f"{setting.nodes}{f' + {setting.others}' if setting.others else ''} at threshold {setting.threshold:g}: "
        f"{count:,}"
        for setting, count in zip(ours, forced, strict=True)
    )
    return Claim(
        id="Y10",
        statement="where its conditions hold, with the K of the whole path, each bound is kept at every step of the expected "
        "dynamics",
        paper="bounds hold at every step",
        measured=f"broken at {broken.sum():,} of {forced.sum():,} network-steps in force ({where}), {networks:,} of "
        f"{sum(len(f.kept) for f in found):,} networks",
        n=networks,
        holds=bool(forced.sum() and not broken.sum()),
        part=part,
    )


def _own_setting(study: LuckyInit, run: Run) -> Claim:
    """Fig 7's own networks: no theorem speaks of them."""
    gamma = {
        (name, layer): np.concatenate(
            [of_figure(run, name, layer, "rescaled", m, start) for m in study.multiple for start in study.starts]
        )
        for name, layer in (
            ("gamma_4", 0),
            ("printed_gamma_5", 1),
            ("in_force_4", 0),
            ("in_force_5", 1),
            ("printed_in_force_5", 1),
        )
    }
    count = int(np.any([gamma[key].any(axis=1) for key in gamma if "in_force" in key[0]], axis=0).sum())
    four, five = gamma["gamma_4", 0], gamma["printed_gamma_5", 1]
    return Claim(
        id="Y10",
        statement="in fig 7's own networks, first and last: whether the conditions of theorem 4 (for the near students alone) or "
        "of theorem 5 hold",
        paper="small overlap is assumed",
        measured=f"in {count:,} of {len(four):,} networks; γ of theorem 4 is {four.max():.3g} at most, of theorem 5 "
        f"{five.max():.3g}",
        n=len(four),
        holds=count > 0,
        part="fig 7's networks",
    )


def slack(others: float) -> float:
    """How far V_r may be from a printed value."""
    return max(SHARE * others, 0.5 * 10.0 ** int(Decimal(repr(others)).as_tuple().exponent))


def _norms(run: Run, start: tuple[float, float], near: float, others: float) -> Claim:
    look = AT // int(run.config["options"]["every"])
    found = [of_figure(run, name, 1, "rescaled", TWICE, start)[:, look] for name in ("v_u", "v_r")]
    off = slack(others)
    (u, r), (du, dr) = ([float(part.mean()) for part in found], [float(part.std()) for part in found])
    return Claim(
        id="Y11",
        statement=f"mean norms of the rows of V_u and V_r at 2× after {AT:,} steps, mean over seeds: V_u within {WITHIN:g}, V_r "
        f"within {SHARE:.0%} or half of the last digit, {off:.2g} (below: those of V_r)",
        paper=f"{near:g} / {others:g}",
        measured=f"{u:.3f} / {r:.4f} (standard deviations {du:.3f}, {dr:.4f})",
        n=len(found[0]),
        holds=abs(u - near) <= WITHIN and abs(r - others) <= off,
        part=f"p_W = {start[0]:g}, p_V = {start[1]:g}",
        values=tuple(found[1].tolist()),
        low=others - off,
        high=others + off,
    )


def _order(study: LuckyInit, run: Run) -> Claim:
    """Rows of V_r fall and rows of V_u grow, from every start that is near; most from the nearest."""
    said, holds = [], True
    for multiple in study.multiple:
        left = {}
        for start in PAPER:
            u, r = (of_figure(run, name, 1, "rescaled", multiple, start) for name in ("v_u", "v_r"))
            left[start] = float((r[:, -1] / r[:, 0]).mean())
            holds &= bool((r[:, -1] < r[:, 0]).all() and (u[:, -1] > u[:, 0]).all())
        nearest, *further = left.values()
        holds &= all(nearest < other for other in further)
        said.append(f"{multiple:g}×: {', '.join(f'{value:.3f}' for value in left.values())}")
    starts = ", ".join(f"({w:g}, {v:g})" for w, v in PAPER)
    return Claim(
        id="Y11",
        statement=f"for (p_W, p_V) = {starts}, in every seed and at every over-parameterization, rows of V_r are shorter at the "
        "end than at the start and rows of V_u longer; from the nearest start the share that is left of V_r is least",
        paper="V_r to 0 while V_u grows, faster the closer the start",
        measured=f"left of V_r after {study.steps:,} steps, mean over seeds, {'; '.join(said)}",
        n=study.seeds,
        holds=holds,
        part="order",
    )
