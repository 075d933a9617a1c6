"""Lucky starts in words and figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from understudy.papers.luck.lucky_init.claims import bounds, in_setting, of_figure
from understudy.papers.luck.lucky_init.study import QUANTITIES, SETTINGS, Setting
from understudy.papers.specialization.deep.story import some_diverged
from understudy.report import style
from understudy.report.figures import Curves, Panel, Series
from understudy.report.story import Figure, Number, Story, counted
from understudy.store import Run

if TYPE_CHECKING:
    from understudy.papers.luck.lucky_init.study import LuckyInit

_RULES = {
    "rescaled": ("The near students take over", "S2 eq. 6, columns of W and V rescaled after every step", "S2 fig 7"),
    "free": ("Without rescaling", "S2 eq. 6 as it stands", "S2 eq. 6"),
    "sgd": ("Under plain SGD", "SGD on the same batches, nothing rescaled", "S2 fig 7, by SGD"),
}
_WORDS = {"sin_angle": "sin θ", "fan_out_gap": "‖v − v*‖ of the near", "other_fan_out": "‖v‖ of the others"}


def story(study: LuckyInit, run: Run) -> Story:
    note = f"n = {counted(study.seeds, 'seed')}: mean ± standard deviation"
    figures = [
        Figure(
            f"norms-{rule}",
            title,
            f"{words}: mean norms of the fan-outs of students that start near teacher nodes (V_u) and of the others "
            "(V_r). Rows are over-parameterizations, columns starts.",
            source,
            Curves(tuple(_panels(study, run, rule)), note, columns=len(study.starts)),
        )
        for rule, (title, words, source) in _RULES.items()
        if rule in study.rules
    ]
    figures.append(
        Figure(
            "cosines",
            "How near the near ones come",
            "Mean cosine of the weights [w, b] of the first students with those of their teacher nodes, by start.",
            "S2 theorem 5: W_u → W*",
            Curves(tuple(_cosines(study, run)), note, columns=len(study.multiple)),
        )
    )
    four, five = ([s for s in SETTINGS if s.theorem == theorem] for theorem in (4, 5))
    figures += [
        Figure(
            f"theorem-{settings[0].theorem}",
            f"Theorem {settings[0].theorem} at work",
            "What the theorem bounds (solid, the largest of all seeds) and its bound (dashed, the largest of the "
            "networks in which its conditions hold), at every step of the expected dynamics. Nodes are active where "
            "what comes in is more than so many standard deviations above its mean.",
            f"S2 theorem {settings[0].theorem}",
            Curves(tuple(_bounded(run, s) for s in settings), columns=2),
        )
        for settings in (four, five)
    ]
    return Story(_headline(study, run) + some_diverged(run), _numbers(study, run), tuple(figures))


def _spread(label: str, x: np.ndarray, values: np.ndarray, **look: object) -> Series:
    mean, std = values.mean(axis=0), values.std(axis=0)
    return Series(label, x, mean, mean - std, mean + std, **look)  # type: ignore[arg-type]


def _panels(study: LuckyInit, run: Run, rule: str) -> list[Panel]:
    x = np.array(study.looks)
    return [
        Panel(
            f"{multiple:g}×, p_W = {start[0]:g}, p_V = {start[1]:g}",
            "step",
            "norm of rows",
            tuple(
                _spread(label, x, of_figure(run, name, 1, rule, multiple, start), colour=colour)
                for name, label, colour in (("v_u", "V_u", style.BLUE), ("v_r", "V_r", style.VERMILLION))
            ),
        )
        for multiple in study.multiple
        for start in study.starts
    ]


def _cosines(study: LuckyInit, run: Run) -> list[Panel]:
    colours = dict(zip(study.starts, style.categories(len(study.starts)), strict=True))
    x = np.array(study.looks)
    return [
        Panel(
            f"{multiple:g}×, {_RULES[rule][1].split(',')[0]}",
            "step",
            "mean cosine of W_u and W*",
            tuple(
                _spread(
                    f"({start[0]:g}, {start[1]:g})",
                    x,
                    of_figure(run, "cosine", 0, rule, multiple, start),
                    colour=colours[start],
                )
                for start in study.starts
            ),
        )
        for rule in study.rules
        for multiple in study.multiple
    ]


def _bounded(run: Run, setting: Setting) -> Panel:
    series = []
    for q, name in enumerate(QUANTITIES[setting.theorem]):
        measured, bound = (in_setting(run, setting, name + end, min(q, 1)) for end in ("", "_bound"))
        x, colour = np.arange(measured.shape[1]), style.CATEGORIES[q]
        series.append(Series(_WORDS[name], x, _shown(measured.max(axis=0)), colour=colour))
        if np.isfinite(bound).any():
            top = _shown(np.nanmax(bound, axis=0))
            series.append(Series(f"bound of {_WORDS[name]}", x, top, dashed=True, colour=colour))
    students = f"{setting.nodes} + {setting.others}" if setting.others else f"{setting.nodes}"
    force = in_setting(run, setting, "in_force", -1)[:, 0]
    title = f"{students} nodes, threshold {setting.threshold:g}: {int(force.sum())} of {len(force)} in force"
    return Panel(title, "step", "", tuple(series), log_y=True)


def _shown(values: np.ndarray) -> np.ndarray:
    """Nothing below what rounding leaves."""
    return np.where(values > 1e-13, values, np.nan)


def _headline(study: LuckyInit, run: Run) -> str:
    multiple, rule = study.multiple[0], study.rules[0]

    def ended(start: tuple[float, float]) -> str:
        u, r = (of_figure(run, name, 1, rule, multiple, start)[:, -1].mean() for name in ("v_u", "v_r"))
        return f"{u:.2f} and {r:.3f} from p_W = {start[0]:g}, p_V = {start[1]:g}"

    return (
        f"With {multiple:g} times the nodes, after {study.steps:,} steps, rows of V_u and V_r have mean norms of "
        f"{', '.join(map(ended, study.starts))}."
    )


def _numbers(study: LuckyInit, run: Run) -> tuple[Number, ...]:
    found = [bounds(run, setting) for setting in SETTINGS]
    forced, broken = sum(int(f.in_force.sum()) for f in found), sum(int((f.in_force & ~f.kept).sum()) for f in found)
    return (
        Number(f"{run.networks.num_rows:,}", "networks"),
        Number(f"{forced:,}", "network-steps on which a theorem is in force"),
        Number(f"{broken:,}", "of them break its bound, constants corrected"),
    )
