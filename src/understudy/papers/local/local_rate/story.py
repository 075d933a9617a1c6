"""Figures and headline of `local-rate` (Zhou, Ge & Jin 2021, theorems 3, 4, 6 and their lemmas)."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import xarray as xr

from understudy.lab.layers import some_diverged
from understudy.papers.local.local_rate import claims
from understudy.papers.local.local_rate.study import FROM, LEVELS, TO, LocalRate, RateSetting
from understudy.papers.local.shared import warning_words
from understudy.report import style
from understudy.report.figures import Curves, Panel, Series
from understudy.report.story import Figure, Number, Story, counted
from understudy.store import Run

_SMALLEST, _LARGEST = 1e-15, 1e6
"""Losses outside of these are not drawn: with m = r they fall to rounding errors, and before divergence they rise to
any number."""
_RATIO = "‖∇L‖/L · √(r w_max)"
_STATIONARY = 1e-3
"""Smaller values of it are drawn here."""
_SIDES = {
    "lemma 8": ("half of the mass is near", "angle δ"),
    "lemma 9": ("averages match", "largest ‖v‖"),
    "lemma 11": ("small nonlinear part", "‖R₂‖²"),
    "lemma C.3": ("mass is bounded", "Σ ‖w‖²"),
    "lemma C.4": ("angles are small", "Σ ‖w‖² δ²"),
}
"""Title and left side of each lemma."""


def story(study: LocalRate, run: Run) -> Story:
    """Losses over steps, the gradient and the left sides of the lemmas by the loss, and mini-batches."""
    runs, (_, searched) = run.select(part="exact"), claims.searched(run, LEVELS[0])
    least = float(np.min(searched, initial=np.inf))
    shown = [setting for setting in study.settings() if _kind(setting) == _kind(study.batch_setting())]
    figures = (
        Figure(
            "loss",
            _loss_title(study, run, shown),
            f"Gradient {study.by} on the exact loss from students {study.angle:g} Δ away from their teacher neurons. "
            "Dotted is 1/t; linear convergence bends down from it, a power law is a straight line.",
            "S4 theorem 4",
            _losses(study, run, shown),
        ),
        Figure(
            "ratio",
            "The gradient is bounded below by the loss"
            if np.isfinite(least) and least >= claims.CONSTANT
            else "Gradient and loss",
            "‖∇L‖/L times √(r w_max): the least over all runs at a given loss, below the threshold of lemma 8, and "
            "(points) the smallest that a search over all students of at most 1, 10 and 100 times that loss finds for "
            "each teacher. Theorem 3: below a threshold it stays above one constant. Beyond it there are stationary "
            "points.",
            "S4 theorem 3",
            _ratios(study, run),
        ),
        Figure(
            "pl",
            _pl_title(study, run),
            "‖∇L‖²/L relative to the length of the shortest teacher neuron, the least over all runs at a given loss. "
            "Where the PL inequality holds it stays above a constant; where it fails it converges to 0 with the loss.",
            "S4 sec. 4",
            _by_r(study, run, claims.squared_ratios(run), "‖∇L‖²/L / w_min", slope=0.333),
        ),
        Figure(
            "lemmas",
            "Quantities that the proofs bound, by the loss",
            "Left side of each lemma divided by the factors of its right side other than the loss, the largest over "
            "all runs at a given loss. Dashed is the right side with constant 1: lines that fall as steeply obey it.",
            "S4 lemmas 8, 9, 11, C.3, C.4",
            _lemmas(study, run),
        ),
        Figure(
            "batches",
            _batch_title(study, run),
            f"m = {study.batch_multiple}r, {study.batch_steps:,} steps, fresh samples at each: median loss over steps; "
            "end loss, smallest to largest, with that of the exact loss dashed; their relative distance, with "
            "quartiles.",
            "S4 theorem 6",
            _batches(study, run),
        ),
        Figure(
            "samples",
            "Gradients of mini-batches, and descents that arrive",
            "Left: distance of the gradient of N samples from the exact one, root mean square over draws, median over "
            "teachers and quartiles; dotted is N^(−1/2). Right: share of the runs whose loss is at most "
            f"{style.number(claims.target(study))} at step {study.batch_steps:,}.",
            "S4 lemma F.1, theorem 6",
            _samples(study, run),
        ),
    )
    numbers = (
        Number(f"{len(runs):,}", "runs on the exact loss"),
        Number(style.number(least), "least ‖∇L‖/L · √(r w_max)"),
        Number(style.number(float(runs.array("loss", "network").median())), "median end loss"),
    )
    drawn = tuple(figure for figure in figures if isinstance(figure.kind, Curves) and figure.kind.panels)
    return Story(_headline(study, run, len(runs), least), numbers, drawn)


def _headline(study: LocalRate, run: Run, runs: int, least: float) -> str:
    steep = "no students below the threshold of lemma 8 were found"
    if np.isfinite(least):
        steep = f"below the threshold, the search finds no ‖∇L‖ smaller than {least:.2f} L / √(r w_max)"
    large = max(study.batch)
    share = float(claims.end_ratios(study, run).sel(batch=large).median())
    lost = some_diverged(run)
    end = "" if lost else f", and mini-batches of {large:,} end at {share:.3g} times the loss of the exact gradient"
    return f"{_fall(study, run)}; over {counted(runs, 'run')}, {steep}{end}.{lost}{warning_words(study)}"


def _kind(setting: RateSetting) -> dict[str, Any]:
    """A kind of teacher without its separation."""
    return {"r": setting.r, "d": setting.d, "w_min": setting.w_min, "w_max": setting.w_max}


def _fit_steps(study: LocalRate) -> tuple[int, int] | None:
    """Steps between which slopes are measured: those of the claims, or the last two thirds; None if not probed."""
    ends = (FROM, TO) if study.steps >= TO else (max(1, study.steps // 3), study.steps)
    return ends if set(ends) <= set(study.probes) and ends[0] < ends[1] else None


def _fall(study: LocalRate, run: Run) -> str:
    """How steeply the loss falls for the kind of teacher that is shown first."""
    kind = _kind(study.batch_setting())
    more = [m for m in study.multiple if m > 1] or list(study.multiple)
    steps = _fit_steps(study)
    every = (
        {m: claims.loss_slopes(run.select(part="exact", multiple=m, **kind), *steps).median() for m in more}
        if steps
        else {}
    )
    middle = {m: float(slope) for m, slope in every.items() if np.isfinite(slope)}
    if not middle or steps is None:
        neurons = counted(kind["r"], "teacher neuron")
        return f"{study.by.capitalize()} of {study.steps:,} steps near {neurons} in {kind['d']} dimensions"
    goes = "falls" if max(middle.values()) < 0 else "rises" if min(middle.values()) > 0 else "changes"
    each = ", ".join(f"{round(slope, 2):g} for {m}×" for m, slope in middle.items())
    return f"Between steps {steps[0]:,} and {steps[1]:,} the loss {goes} with a log-log slope of {each}"


def _loss_title(study: LocalRate, run: Run, settings: list[RateSetting]) -> str:
    """States what all runs do that are drawn, including those that diverged."""
    steps = _fit_steps(study)
    if steps is None:
        return "Loss over training"
    found = np.concatenate(
        [claims.loss_slopes(run.select(part="exact", **setting._asdict()), *steps) for setting in settings]
    )
    found = np.nan_to_num(found, nan=np.inf)
    rising, slow = int((found >= 0).sum()), int((found >= claims.SLOPE).sum())
    if rising:
        return f"The loss does not fall in {rising:,} of {counted(len(found), 'run')}"
    if slow:
        return f"The loss falls, but not faster than 1/t in {slow:,} of {counted(len(found), 'run')}"
    return "The loss falls faster than 1/t" + (", for any number of students" if len(study.multiple) > 1 else "")


def _pl_title(study: LocalRate, run: Run) -> str:
    """States that PL fails if ‖∇L‖²/L falls with the loss in every run with m > r that has enough probes."""
    multiples = [m for m in study.multiple if m > 1]
    some = run.select(part="exact", multiple=multiples, d=_widest(study))
    found = claims.exponents(run, "squared_ratio", some.index)
    found = found[np.isfinite(found)]
    if len(found) and (found > claims.FALLS).all():
        return "With more students than teacher neurons the PL inequality fails"
    return "The PL inequality"


def _batch_title(study: LocalRate, run: Run) -> str:
    share = float(claims.end_ratios(study, run).sel(batch=min(study.batch)).median())
    if 1 / claims.FACTOR <= share <= claims.FACTOR:
        return "Small mini-batches do as well, because labels have no noise"
    return "Mini-batches and the exact loss"


def _colours(study: LocalRate) -> dict[int, str]:
    return dict(zip(sorted(study.multiple), style.categories(len(study.multiple)), strict=True))


def _drawable(values: xr.DataArray) -> xr.DataArray:
    return values.where((values > _SMALLEST) & (values < _LARGEST))


def _losses(study: LocalRate, run: Run, settings: list[RateSetting]) -> Curves:
    multiples, colours = sorted(study.multiple, reverse=True), _colours(study)
    some = run.select(part="exact", separation=[setting.separation for setting in settings], **_kind(settings[0]))
    loss = some.array("loss", "separation multiple seed epoch").sel(multiple=multiples)
    loss = loss.where(_drawable(loss.median("seed")).notnull()).isel(epoch=slice(1, None))
    drawn = Curves.from_array(
        loss,
        name="loss",
        panel="separation",
        line="multiple",
        titles={setting.separation: study.setting_words(setting) for setting in settings},
        labels={m: claims.label(m) for m in multiples},
        x_name="step t",
        colours=[colours[m] for m in multiples],
        log_x=True,
        log_y=True,
        own_scales=True,
    )
    panels = tuple(replace(panel, slope=-1.0) for panel in drawn.panels if panel.series)
    return replace(drawn, panels=panels, share="none")


def _envelopes(
    study: LocalRate, run: Run, values: np.ndarray, summary: Callable[[Any], Any], **where: Any
) -> tuple[Series, ...]:
    """Least or largest values [network, probe] by the loss, in bins; one line per m / r, more students first.

    Only networks with the largest number of inputs: in the plane, two students at one angle from a neuron often start
    in one place, and stay equal.
    """
    colours, lines = _colours(study), []
    there = np.isfinite(values) & (run.series("loss") > _SMALLEST) & claims.below(run)
    for multiple in sorted(study.multiple, key=lambda m: (m == 1, m)):
        networks = run.select(part="exact", multiple=multiple, d=_widest(study), **where).index
        loss, value = (array[networks][there[networks]] for array in (run.series("loss"), values))
        place = np.floor(np.log10(loss) * claims.BINS).astype(int)
        bins = np.unique(place)
        if len(bins):
            y = np.array([summary(value[place == one]) for one in bins])
            lines.append(
                Series(claims.label(multiple), 10 ** ((bins + 0.5) / claims.BINS), y, colour=colours[multiple])
            )
    return tuple(lines)


def _widest(study: LocalRate) -> int:
    return max(setting.d for setting in study.settings())


def _count(study: LocalRate, run: Run) -> str:
    d = _widest(study)
    return f"d = {d}, n = {len(run.select(part='exact', d=d)):,} runs"


def _by_r(study: LocalRate, run: Run, values: np.ndarray, name: str, **more: Any) -> Curves:
    """The least values by the loss, in one panel per number of teacher neurons."""
    lines = {r: _envelopes(study, run, values, np.min, r=r) for r in run.select(part="exact").values("r")}
    panels = (Panel(f"r = {r}", "loss", name, each, True, True, **more) for r, each in lines.items() if each)
    return Curves(tuple(panels), note=_count(study, run))


def _ratios(study: LocalRate, run: Run) -> Curves:
    """‖∇L‖/L along descents, and the smallest that the search found, in one panel per number of teacher neurons."""
    words = f"{claims.CONSTANT:.2f}, of the proof"
    drawn = _by_r(study, run, claims.lojasiewicz(run), _RATIO, bound=claims.CONSTANT, bound_words=words)
    panels, colours = {panel.title: panel for panel in drawn.panels}, style.ramp(len(LEVELS))
    for r in run.select(part="search").values("r"):
        points = []
        for level, colour in zip(LEVELS, colours, strict=True):
            some, scaled = claims.searched(run, level)
            here = some.column("r") == r
            label = "search" if level == LEVELS[0] else f"search, {level:g} times the loss"
            x, y = some.end("loss")[here], np.maximum(scaled[here], _STATIONARY)
            points.append(Series(label, x, y, points=True, colour=colour))
        title = f"r = {r}"
        panel = panels.get(title, Panel(title, "loss", _RATIO, (), True, True, claims.CONSTANT, words))
        panels[title] = replace(panel, series=(*panel.series, *points))
    return replace(drawn, panels=tuple(panels[title] for title in sorted(panels)))


def _lemmas(study: LocalRate, run: Run) -> Curves:
    """Left sides, divided by all factors of the right side but the power of the loss."""
    panels = []
    for name, (title, side) in _SIDES.items():
        power = claims.LEMMAS[name]
        with np.errstate(invalid="ignore", divide="ignore"):
            scaled = run.series(f"{name} left") / run.series(f"{name} right") * run.series("loss") ** power
        lines = _envelopes(study, run, scaled, np.max)
        if lines:
            ends = np.array([min(s.x.min() for s in lines), max(s.x.max() for s in lines)])
            lines = (*lines, Series("proved, C = 1", ends, ends**power, dashed=True, colour=style.SOFT))
            panels.append(Panel(f"{name}: {title}", "loss", f"{side}, scaled", lines, log_x=True, log_y=power > 0))
    return Curves(tuple(panels), note=_count(study, run), columns=3)


def _batches(study: LocalRate, run: Run) -> Curves:
    loss = _drawable(run.array("loss", "batch seed epoch", part="batch").drop_vars("network"))
    ends = loss.sel(epoch=study.batch_steps, drop=True)
    exact = float(ends.sel(batch=0).median())
    apart = _drawable(abs(claims.end_ratios(study, run) - 1))

    def panel(values: xr.DataArray, title: str, name: str = "loss", **more: Any) -> Panel:
        axes: dict[str, Any] = {"x": "batch", "x_name": "samples per batch", "labels": {(): "median"}} | more
        return Curves.from_array(values, name=name, titles={(): title}, log_x=True, log_y=True, **axes).panels[0]

    over_steps: dict[str, Any] = {
        "x": "epoch",
        "x_name": "step t",
        "line": "batch",
        "labels": {0: "exact loss"} | {batch: f"batch {batch}" for batch in study.batch},
        "colours": (style.SOFT, *style.categories(len(study.batch))),
    }
    bound = (exact, "exact loss") if np.isfinite(exact) else None
    panels = (
        panel(loss.isel(epoch=slice(1, None)), "over training", band=None, **over_steps),
        panel(ends.drop_sel(batch=0), "at the end", band="range", bound=bound),
        panel(apart, "relative distance", "|L / L exact − 1|"),
    )
    drawn = (replace(each, slope=-0.5) if each is panels[-1] else each for each in panels if each.series)
    return Curves(tuple(drawn), note=f"n = {counted(study.batch_seeds, 'seed')}")


def _samples(study: LocalRate, run: Run) -> Curves:
    """Distances of sampled gradients from the exact one, and shares of the runs that arrive, by the batch size."""
    found = claims.gradient_errors(run)
    errors = found.groupby(["r", "batch"])["error"].quantile([0.5, 0.25, 0.75]).unstack()
    kinds = sorted(found["r"].unique())
    lines = []
    for r, colour in zip(kinds, style.categories(len(kinds)), strict=True):
        own = errors.loc[r]
        middle, low, high = own[[0.5, 0.25, 0.75]].to_numpy().T
        lines.append(Series(f"r = {r}", own.index.to_numpy(float), middle, low, high, colour=colour))
    share = claims.arrivals(study, run).drop_sel(batch=0).mean("seed")
    arrived = Series("", share["batch"].to_numpy().astype(float), share.to_numpy(), colour=style.BLUE)
    panels = (
        Panel("distance of gradients", "samples N", "‖∇L̂ − ∇L‖", tuple(lines), True, True, slope=-0.5),
        Panel("runs that arrive", "samples N", "share of runs", (arrived,), log_x=True),
    )
    return Curves(panels, note=f"n = {counted(study.seeds, 'seed')}, and {study.batch_seeds:,} for the shares")
