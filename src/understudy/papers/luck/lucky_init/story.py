"""Figures and headline of `lucky-init` (Tian et al. 2019, fig. 7, theorems 4 and 5)."""

from typing import Any

import numpy as np
import xarray as xr

from understudy.lab.layers import multiple_titles, some_diverged
from understudy.papers.luck.lucky_init.claims import bounds, in_setting, of_figure, start_name
from understudy.papers.luck.lucky_init.study import QUANTITIES, SETTINGS, LuckyInit, NearSetting
from understudy.report import style
from understudy.report.figures import Curves, Panel, Series
from understudy.report.story import Figure, Number, Story
from understudy.store import Run

_RULES = {
    "rescaled": ("The near students take over", "Eq. 6, columns of W and V rescaled after every step", "S2 fig. 7"),
    "free": ("Without rescaling", "Eq. 6 without rescaling", "S2 eq. 6"),
    "sgd": ("Under plain SGD", "SGD on the same batches, without rescaling", "S2 fig. 7, by SGD"),
}
_RULE_TITLES = {"rescaled": "eq. 6, rescaled", "free": "eq. 6", "sgd": "SGD"}
_BOUNDED = {"sin_angle": "sin θ", "fan_out_gap": "‖v − v*‖ of the near", "other_fan_out": "‖v‖ of the others"}


def story(study: LuckyInit, run: Run) -> Story:
    """The figure of the paper by each rule, how close the near students come, and the bounds of the theorems."""
    figures = [
        Figure(
            f"norms-{rule}",
            title,
            f"{words}: mean norms of the fan-outs of students that start near teacher nodes (V_u) and of the others "
            "(V_r). Rows are over-parameterizations, columns starts.",
            source,
            _curves(
                study,
                "part",
                {part: of_figure(run, name, rule) for part, name in (("V_u", "v_u"), ("V_r", "v_r"))},
                name="norm of rows",
                panel=("multiple", "start"),
                line="part",
                colours=(style.BLUE, style.VERMILLION),
                columns=len(study.starts),
            ),
        )
        for rule, (title, words, source) in _RULES.items()
        if rule in study.rules
    ]
    figures.append(
        Figure(
            "cosines",
            "How close the near students come",
            "Mean cosine of the weights [w, b] of the first students with those of their teacher nodes, by start "
            "(p_W, p_V).",
            "S2 theorem 5: W_u → W*",
            _curves(
                study,
                "rule",
                {rule: of_figure(run, "cosine", rule) for rule in study.rules},
                name="mean cosine of W_u and W*",
                panel=("rule", "multiple"),
                line="start",
                colours="categories",
                columns=len(study.multiple),
            ),
        )
    )
    figures += [
        Figure(
            f"theorem-{theorem}",
            f"The bounds of theorem {theorem}",
            "What the theorem bounds (solid, the largest over seeds) and its bound (dashed, the largest over networks "
            "to which it applies), at every step of the expected dynamics. Nodes are active where the pre-activation "
            "is more standard deviations above its mean than the threshold.",
            f"S2 theorem {theorem}",
            Curves(tuple(_bounded(run, setting) for setting in SETTINGS if setting.theorem == theorem), columns=2),
        )
        for theorem in QUANTITIES
    ]
    return Story(_headline(study, run) + some_diverged(run), _numbers(run), tuple(figures))


def _curves(study: LuckyInit, dim: str, parts: dict[str, xr.DataArray], **more: Any) -> Curves:
    """Curves over steps of arrays that are joined along a new dimension."""
    whole = xr.concat(list(parts.values()), dim, coords="different", compat="equals", join="outer")
    starts = {start_name((w, v)): f"p_W = {w:g}, p_V = {v:g}" for w, v in study.starts}
    return Curves.from_array(
        whole.assign_coords({dim: list(parts)}),
        band="deviation",
        titles=multiple_titles(study.multiple) | _RULE_TITLES | starts,
        x_name="step",
        **more,
    )


def _bounded(run: Run, setting: NearSetting) -> Panel:
    series = []
    for name, colour in zip(QUANTITIES[setting.theorem], style.CATEGORIES, strict=False):
        measured, bound = (in_setting(run, setting, name + end).max("seed") for end in ("", "_bound"))
        x = measured["epoch"].to_numpy()
        series.append(Series(_BOUNDED[name], x, _above_rounding(measured.to_numpy()), colour=colour))
        if bound.notnull().any():
            label = f"bound of {_BOUNDED[name]}"
            series.append(Series(label, x, _above_rounding(bound.to_numpy()), dashed=True, colour=colour))
    force = in_setting(run, setting, "in_force").isel(epoch=0)
    applies = f"applies in {int(force.sum())} of {force.size}"
    title = f"{setting.students} nodes, threshold {setting.threshold:g}: {applies}"
    return Panel(title, "step", "", tuple(series), log_y=True)


def _above_rounding(values: np.ndarray) -> np.ndarray:
    return np.where(values > 1e-13, values, np.nan)


def _headline(study: LuckyInit, run: Run) -> str:
    multiple = study.multiple[0]
    u, r = (
        of_figure(run, name, study.rules[0]).sel(multiple=multiple).isel(epoch=-1).mean("seed").to_numpy()
        for name in ("v_u", "v_r")
    )
    ends = [
        f"{near:.2f} and {others:.3f} from p_W = {start[0]:g}, p_V = {start[1]:g}"
        for start, near, others in zip(study.starts, u, r, strict=True)
    ]
    return (
        f"With {multiple:g} times the nodes, after {study.steps:,} steps, rows of V_u and V_r have mean norms of "
        f"{', '.join(ends)}."
    )


def _numbers(run: Run) -> tuple[Number, ...]:
    found = [bounds(run, setting) for setting in SETTINGS]
    forced, broken = sum(int(f.in_force.sum()) for f in found), sum(int((f.in_force & ~f.kept).sum()) for f in found)
    return (
        Number(f"{run.networks.num_rows:,}", "networks"),
        Number(f"{forced:,}", "network-steps to which a theorem applies"),
        Number(f"{broken:,}", "of them break its bound, constants corrected"),
    )
