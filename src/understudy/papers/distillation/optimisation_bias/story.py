"""Figures and headline of `optimisation-bias` (Phuong 2021, fig. 5.4)."""

import numpy as np
import xarray as xr

from understudy.papers.distillation.optimisation_bias.claims import risk_steps
from understudy.papers.distillation.optimisation_bias.study import OptimisationBias
from understudy.papers.distillation.shared import estimate_words, estimates, mean_series, read_settings
from understudy.report import style
from understudy.report.figures import Curves, Dots, Panel
from understudy.report.story import Figure, Number, Story, counted
from understudy.store import Run
from understudy.store.units import read_units, unit_array


def story(study: OptimisationBias, run: Run) -> Story:
    """The risk and the angle of w_δ by δ, then the risk on every transfer set."""
    sets, settings = read_units(run, "sets"), read_settings(run)
    found, risk = estimates(settings, "risk", "delta"), unit_array(sets, "risk", "delta seed")
    angle = unit_array(sets, "angle", "delta seed")
    degrees = Curves.from_array(
        angle.copy(data=np.degrees(angle)).expand_dims(line=["angle"]),
        name="angle with the teacher, °",
        x="delta",
        x_name="δ",
        line="line",
        band="range",
        colours=[style.PURPLE],
    )
    risks = Panel("", "δ", "expected risk", (mean_series("risk", found, "delta", colour=style.GREEN),))
    once = settings.to_pylist()[0]
    figures = (
        Figure(
            "optimisation-bias",
            "Away from the solution of gradient descent",
            f"Share of the {once['held out']:,.0f} held-out inputs of {study.where} on which w_δ and its teacher "
            f"decide differently, and the angle of w_δ with the teacher; every w_δ fits the soft labels of its "
            f"{counted(study.inputs, 'input')}. Bands: {study.confidence:.0%} interval of the expected risk; range of "
            "the angles.",
            "S3 fig. 5.4",
            Curves((risks, *degrees.panels), f"n = {counted(study.seeds, 'transfer set')}"),
        ),
        Figure(
            "transfer-sets",
            "Each transfer set",
            "One point per transfer set: the share of held-out inputs on which w_δ and its teacher decide differently.",
            "S3 fig. 5.4, every set",
            Dots(
                tuple(f"{delta:g}" for delta in risk["delta"].to_numpy()),
                risk.to_numpy(),
                risk["unit"].to_numpy(),
                "risk",
                "δ",
                colours=(style.GREEN,) * risk.sizes["delta"],
                percent=True,
            ),
        ),
    )
    return Story(_headline(study, found, risk), _numbers(study, once, found), figures)


def _headline(study: OptimisationBias, found: xr.Dataset, risk: xr.DataArray) -> str:
    deltas = found["delta"].to_numpy().tolist()
    ends = [
        f"{estimate_words(found.sel(delta=delta))} at δ = {delta:g}"
        for delta in (deltas if len(deltas) < 3 else (deltas[0], deltas[-1]))
    ]
    words = f"On {study.where}, from {counted(study.inputs, 'input')}, the expected risk of w_δ is {' and '.join(ends)}"
    falls = [step for step in risk_steps(risk) if not step.mean > 0]
    if falls:
        return f"{words}, but not higher from δ = {falls[0].first:g} to {falls[0].second:g}."
    return f"{words}, and higher at each δ than at the one before." if len(deltas) > 2 else f"{words}."


def _numbers(study: OptimisationBias, once: dict[str, float], found: xr.Dataset) -> tuple[Number, ...]:
    right, first = once.get("right", np.nan), found.isel(delta=0)
    return (
        Number(f"{study.seeds:,}", "transfer sets"),
        Number(f"{once['pool']:,.0f}", "inputs that they are drawn from"),
        Number(f"{once['held out']:,.0f}", "held-out inputs"),
        *([Number(f"{right:.2%}", "accuracy of the teacher on its own inputs")] if np.isfinite(right) else []),
        Number(f"{first['mean'].item():.2g}", f"expected risk, δ = {first['delta'].item():g}"),
    )
