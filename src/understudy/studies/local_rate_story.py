"""Descent near a teacher in words and figures."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from understudy.report import style
from understudy.report.figures import Lines, Panel, Series
from understudy.report.story import Figure, Number, Story, counted
from understudy.store import Run
from understudy.studies.local_rate import FROM, TO
from understudy.studies.local_rate_claims import (
    CONSTANT,
    LEMMAS,
    at,
    batched,
    below,
    end_shares,
    exact,
    label,
    lojasiewicz,
    slopes,
)

if TYPE_CHECKING:
    from understudy.studies.local_rate import LocalRate, Setting

_SHOWN, _LOST = 1e-15, 1e6
"""Losses below and above this are not drawn: as many students as teacher neurons go down to rounding, and what diverges
up to any number."""
_BINS = 4
"""A decade of the loss."""
_SIDES = {
    "lemma 8": ("half of the mass is near", "angle δ"),
    "lemma 9": ("averages match", "largest ‖v‖"),
    "lemma 11": ("little bends", "‖R₂‖²"),
    "lemma C.3": ("mass is bounded", "Σ ‖w‖²"),
    "lemma C.4": ("angles are small", "Σ ‖w‖² δ²"),
}


def story(study: LocalRate, run: Run) -> Story:
    settings = study.settings()
    shown = [s for s in settings if (s.r, s.d, s.w_min, s.w_max) == _kind(study.batched())]
    runs = len(exact(run))
    figures = (
        Figure(
            "loss",
            "The loss falls faster than 1/t, however many students there are",
            f"Gradient {study.by} on the exact loss, every student begun {study.angle:g} rad from its teacher neuron. "
            "As many students as teacher neurons converge linearly; more by a power law, steeper than the dotted 1/t.",
            "S4 theorem 4",
            _losses(study, run, shown),
        ),
        Figure(
            "ratio",
            "The gradient is no smaller than the loss allows",
            "‖∇L‖/L times √(r w_max), the least over all runs at a loss, below the threshold of lemma 8. Theorem 3: it "
            "stays above one constant.",
            "S4 theorem 3",
            _by_r(study, run, lojasiewicz(run), "‖∇L‖/L · √(r w_max)", np.min, bound=CONSTANT),
        ),
        Figure(
            "pl",
            "With more students than teacher neurons the PL inequality fails",
            "‖∇L‖²/L over the length of the shortest teacher neuron, the least over all runs at a loss: a constant for "
            "as many students, and to 0 with the loss for more.",
            "S4 sec 4",
            _by_r(study, run, _steep(run), "‖∇L‖²/L / w_min", np.min, slope=0.333),
        ),
        Figure(
            "lemmas",
            "What the proofs bound goes to zero with the loss",
            "The left side of each lemma, in units of what its right side has beside the loss, the largest over all "
            "runs at a loss. Dashed is the right side with constant 1: lines that fall as steeply are within it.",
            "S4 lemmas 8, 9, 11, C.3, C.4",
            _lemmas(study, run),
        ),
        Figure(
            "batches",
            "Small mini-batches do as well, for labels have no noise",
            f"{study.batch_multiple} times as many students, {study.batch_steps:,} steps, fresh samples in each. Left: "
            "the loss on the way. Middle: the end loss, dashed that of the exact loss. Right: how far they are apart.",
            "S4 theorem 6",
            _batches(study, run),
        ),
    )
    ratios = lojasiewicz(run)
    least = float(np.nanmin(ratios)) if np.isfinite(ratios).any() else np.nan
    steep = f"below the threshold, ‖∇L‖ is at least {least:.2f} L / √(r w_max)"
    steep = steep if least == least else "no look was below the threshold of lemma 8"
    large = max(study.batch)
    (share,) = _spread(end_shares(study, run, large), (0.5,))
    ends = f"mini-batches of {large:,} end at {share:.3g} times the loss of the exact gradient"
    lost = run.networks.num_rows - run.networks["diverged_at"].null_count
    ends = ends if np.isfinite(share) and not lost else f"{lost:,} of {run.networks.num_rows:,} networks diverged"
    said = "".join(f" Warning: {caution}." for caution in study.cautions())
    return Story(
        f"{_fell(study, run)}; over {counted(runs, 'run')}, {steep}, and {ends}.{said}",
        (
            Number(f"{runs:,}", "runs on the exact loss"),
            Number(style.number(least), "least ‖∇L‖/L · √(r w_max)"),
            Number(
                style.number(float(_spread(at(run, "loss", exact(run), study.steps), (0.5,))[0])), "median end loss"
            ),
        ),
        figures,
    )


def _kind(setting: Setting) -> tuple[int, int, float, float]:
    return setting.r, setting.d, setting.w_min, setting.w_max


def _fell(study: LocalRate, run: Run) -> str:
    """How steeply, over the kind of teacher that is shown first."""
    r, d, least, most = _kind(study.batched())
    start, end = (FROM, TO) if study.steps >= TO else (max(1, study.steps // 3), study.steps)
    more = [m for m in study.multiple if m > 1] or list(study.multiple)
    steps = f"between steps {start:,} and {end:,}"
    if start not in study.looks or end not in study.looks:
        return f"{study.by.capitalize()} of {study.steps:,} steps near {counted(r, 'teacher neuron')} in {d} dimensions"
    found = [slopes(run, exact(run, r=r, d=d, w_min=least, w_max=most, multiple=m), start, end) for m in more]
    each = ", ".join(
        f"{style.signed(round(float(np.median(f)), 2))} for {m}×" for f, m in zip(found, more, strict=True)
    )
    return f"{steps[0].upper()}{steps[1:]} the loss falls with a log-log slope of {each}"


def _colours(study: LocalRate) -> dict[int, str]:
    return dict(zip(sorted(study.multiple), style.categories(len(study.multiple)), strict=True))


def _losses(study: LocalRate, run: Run, settings: list[Setting]) -> Lines:
    panels, colours = [], _colours(study)
    steps = np.array(study.looks[1:])
    place = np.searchsorted(run.epochs, steps)
    for setting in settings:
        lines = []
        for multiple in sorted(study.multiple, reverse=True):
            networks = exact(run, multiple=multiple, **setting._asdict())
            loss = run.series("loss")[networks][:, place]
            middle, low, high = (_drawn(q) for q in _spread(loss, (0.5, 0.25, 0.75)))
            lines.append(Series(label(multiple), steps, middle, low, high, colour=colours[multiple]))
        panels.append(Panel(str(setting), "step t", "loss", tuple(lines), log_x=True, log_y=True, slope=-1.0))
    return Lines(tuple(panels), note=f"median and quartiles, n = {counted(study.seeds, 'seed')}")


def _drawn(values: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        return np.where((values > _SHOWN) & (values < _LOST), values, np.nan)


def _spread(values: np.ndarray, quantiles: tuple[float, ...]) -> np.ndarray:
    """Over networks, those that diverged left out."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a setting in which every network diverged
        return np.nanquantile(values, quantiles, axis=0)


def _steep(run: Run) -> np.ndarray:
    return np.where(below(run), run.series("squared_ratio") / run.column("shortest")[:, None], np.nan)


def _envelope(run: Run, values: np.ndarray, networks: np.ndarray, how: Callable) -> tuple[np.ndarray, np.ndarray]:
    """The least or the largest value at a loss, over looks of networks: losses by quarters of a decade."""
    loss, value = run.series("loss")[networks].ravel(), values[networks].ravel()
    there = np.isfinite(value) & (loss > _SHOWN) & below(run)[networks].ravel()
    place = np.floor(np.log10(loss[there]) * _BINS).astype(int)
    bins = np.unique(place)
    return 10 ** ((bins + 0.5) / _BINS), np.array([how(value[there][place == b]) for b in bins])


def _envelopes(study: LocalRate, run: Run, values: np.ndarray, how: Callable, **wanted: object) -> tuple[Series, ...]:
    """A line for every m / r, those with more students first, in as many dimensions as there are.

    Not in the plane beside them: two students at one angle from a neuron often begin at one place there, and stay one.
    """
    colours, lines, d = _colours(study), [], _widest(study)
    for multiple in sorted(study.multiple, key=lambda m: (m == 1, m)):
        x, y = _envelope(run, values, exact(run, multiple=multiple, d=d, **wanted), how)
        if len(x):
            lines.append(Series(label(multiple), x, y, colour=colours[multiple]))
    return tuple(lines)


def _widest(study: LocalRate) -> int:
    return max(setting.d for setting in study.settings())


def _noted(study: LocalRate, run: Run) -> str:
    d = _widest(study)
    return f"d = {d}, n = {len(exact(run, d=d)):,} runs"


def _by_r(
    study: LocalRate,
    run: Run,
    values: np.ndarray,
    what: str,
    how: Callable,
    bound: float | None = None,
    slope: float | None = None,
) -> Lines:
    panels = []
    for r in dict.fromkeys(setting.r for setting in study.settings()):
        lines = _envelopes(study, run, values, how, r=r)
        sloping = slope if lines else None
        title = f"r = {r}" if lines else f"r = {r}: no look below the threshold"
        panels.append(Panel(title, "loss", what, lines, True, True, bound, f"{CONSTANT:g}", sloping))
    return Lines(tuple(panels), note=_noted(study, run))


def _lemmas(study: LocalRate, run: Run) -> Lines:
    """Left sides, in units of all that stands on the right beside the power of the loss."""
    panels = []
    for name, (title, side) in _SIDES.items():
        power, loss = LEMMAS[name], run.series("loss")
        with np.errstate(invalid="ignore", divide="ignore"):
            scaled = run.series(f"{name} left") / run.series(f"{name} right") * loss**power
        lines = _envelopes(study, run, scaled, np.max)
        if lines:
            ends = np.array([min(s.x.min() for s in lines), max(s.x.max() for s in lines)])
            lines = (*lines, Series("proved, C = 1", ends, ends**power, dashed=True, colour=style.SOFT))
        panels.append(Panel(f"{name}: {title}", "loss", f"{side}, scaled", lines, log_x=True, log_y=power > 0))
    return Lines(tuple(panels), note=_noted(study, run), columns=3)


def _batches(study: LocalRate, run: Run) -> Lines:
    steps, sizes = np.array(study.batch_looks[1:]), np.array(sorted(study.batch))
    place = np.searchsorted(run.epochs, steps)
    colours = style.categories(len(sizes) + 1)
    ways = []
    for batch, colour in zip((0, *sizes.tolist()), (style.SOFT, *colours), strict=False):
        loss = _drawn(_spread(run.series("loss")[batched(run, batch)][:, place], (0.5,))[0])
        ways.append(Series(f"batch {batch}" if batch else "exact loss", steps, loss, dashed=not batch, colour=colour))
    ends = np.array([at(run, "loss", batched(run, int(batch)), study.batch_steps) for batch in sizes])
    low, middle, high = _spread(_drawn(ends).T, (0.0, 0.5, 1.0))
    (whole,) = _spread(_drawn(at(run, "loss", batched(run, 0), study.batch_steps)), (0.5,))
    bound = float(whole) if np.isfinite(whole) else None
    apart = np.array([np.abs(end_shares(study, run, int(batch)) - 1) for batch in sizes])
    nearest, half, furthest = _spread(_drawn(apart).T, (0.25, 0.5, 0.75))
    colour = style.CATEGORIES[0]
    end = Series("median", sizes, middle, low, high, colour=colour)
    distance = Series("median", sizes, half, nearest, furthest, colour=colour)
    return Lines(
        (
            Panel("on the way", "step t", "loss", tuple(ways), log_x=True, log_y=True),
            Panel("at the end", "samples in a batch", "loss", (end,), True, True, bound, "exact loss"),
            Panel("how far apart", "samples in a batch", "|L / L exact − 1|", (distance,), True, True, slope=-0.5),
        ),
        note=f"n = {study.seeds}",
    )
