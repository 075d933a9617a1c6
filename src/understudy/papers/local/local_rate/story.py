"""Descent near a teacher in words and figures."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import numpy as np

from understudy.papers.local.local_rate.claims import (
    CONSTANT,
    FACTOR,
    FALLS,
    LEMMAS,
    SLOPE,
    at,
    batched,
    below,
    end_shares,
    exact,
    exponents,
    label,
    lojasiewicz,
    slopes,
)
from understudy.papers.local.local_rate.study import FROM, TO
from understudy.report import style
from understudy.report.figures import Curves, Panel, Series
from understudy.report.story import Figure, Number, Story, counted
from understudy.store import Run

if TYPE_CHECKING:
    from understudy.papers.local.local_rate.study import LocalRate, Setting

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
    ratios = lojasiewicz(run)
    seen = ratios[exact(run)]
    least = float(np.nanmin(seen)) if np.isfinite(seen).any() else np.nan
    figures = (
        Figure(
            "loss",
            _loss_title(study, run, shown),
            f"Gradient {study.by} on the exact loss, every student begun {study.angle:g} rad from its teacher neuron. "
            "Dotted is 1/t: a loss that converges linearly bends down from it, a power law is a line.",
            "S4 theorem 4",
            _losses(study, run, shown),
        ),
        Figure(
            "ratio",
            "The gradient is no smaller than the loss allows" if least >= CONSTANT else "The gradient beside the loss",
            "‖∇L‖/L times √(r w_max), the least over all runs at a loss, below the threshold of lemma 8. Theorem 3: it "
            "stays above one constant.",
            "S4 theorem 3",
            _by_r(study, run, ratios, "‖∇L‖/L · √(r w_max)", np.min, bound=CONSTANT),
        ),
        Figure(
            "pl",
            _pl_title(study, run),
            "‖∇L‖²/L over the length of the shortest teacher neuron, the least over all runs at a loss. Where the PL "
            "inequality holds it stays above a constant; where it fails it goes to 0 with the loss.",
            "S4 sec 4",
            _by_r(study, run, _steep(run), "‖∇L‖²/L / w_min", np.min, slope=0.333),
        ),
        Figure(
            "lemmas",
            "What the proofs bound, by the loss",
            "The left side of each lemma, in units of what its right side has beside the loss, the largest over all "
            "runs at a loss. Dashed is the right side with constant 1: lines that fall as steeply are within it.",
            "S4 lemmas 8, 9, 11, C.3, C.4",
            _lemmas(study, run),
        ),
        Figure(
            "batches",
            _batch_title(study, run),
            f"{study.batch_multiple} times as many students, {study.batch_steps:,} steps, fresh samples in each: the "
            "loss on the way; the end loss, dashed that of the exact loss; how far they are apart.",
            "S4 theorem 6",
            _batches(study, run),
        ),
    )
    steep = f"below the threshold, ‖∇L‖ is at least {least:.2f} L / √(r w_max)"
    steep = steep if least == least else "no look was below the threshold of lemma 8"
    large = max(study.batch)
    (share,) = _spread(end_shares(study, run, large), (0.5,))
    ends = f"mini-batches of {large:,} end at {share:.3g} times the loss of the exact gradient"
    lost = run.networks.num_rows - run.networks["diverged_at"].null_count
    ends = ends if np.isfinite(share) and not lost else f"{lost:,} of {run.networks.num_rows:,} networks diverged"
    said = "".join(f" Warning: {caution}." for caution in study.warnings())
    return Story(
        f"{_fell(study, run)}; over {counted(runs, 'run')}, {steep}, and {ends}.{said}",
        (
            Number(f"{runs:,}", "runs on the exact loss"),
            Number(style.number(least), "least ‖∇L‖/L · √(r w_max)"),
            Number(
                style.number(float(_spread(at(run, "loss", exact(run), study.steps), (0.5,))[0])), "median end loss"
            ),
        ),
        tuple(figure for figure in figures if isinstance(figure.kind, Curves) and figure.kind.panels),
    )


def _kind(setting: Setting) -> tuple[int, int, float, float]:
    return setting.r, setting.d, setting.w_min, setting.w_max


def _between(study: LocalRate) -> tuple[int, int] | None:
    """Steps between which slopes are taken: those of the claims, or the last two thirds; None if not looked at."""
    ends = (FROM, TO) if study.steps >= TO else (max(1, study.steps // 3), study.steps)
    return ends if set(ends) <= set(study.probes) and ends[0] < ends[1] else None


def _fell(study: LocalRate, run: Run) -> str:
    """How steeply, over the kind of teacher that is shown first."""
    r, d, least, most = _kind(study.batched())
    more = [m for m in study.multiple if m > 1] or list(study.multiple)
    between = _between(study)
    plain = f"{study.by.capitalize()} of {study.steps:,} steps near {counted(r, 'teacher neuron')} in {d} dimensions"
    if between is None:
        return plain
    found = [slopes(run, exact(run, r=r, d=d, w_min=least, w_max=most, multiple=m), *between) for m in more]
    middle = {m: float(_spread(each, (0.5,))[0]) for m, each in zip(more, found, strict=True)}
    middle = {m: slope for m, slope in middle.items() if np.isfinite(slope)}
    if not middle:
        return plain
    goes = "falls" if max(middle.values()) < 0 else "rises" if min(middle.values()) > 0 else "goes"
    each = ", ".join(f"{style.signed(round(slope, 2))} for {m}×" for m, slope in middle.items())
    return f"Between steps {between[0]:,} and {between[1]:,} the loss {goes} with a log-log slope of {each}"


def _loss_title(study: LocalRate, run: Run, settings: list[Setting]) -> str:
    """By what all runs that are drawn do, those that diverged among them."""
    between = _between(study)
    if between is None:
        return "The loss on the way"
    networks = np.concatenate([exact(run, **setting._asdict()) for setting in settings])
    found = np.nan_to_num(slopes(run, networks, *between), nan=np.inf)
    rising, slow = int((found >= 0).sum()), int((found >= SLOPE).sum())
    if rising:
        return f"The loss does not fall in {rising:,} of {counted(len(found), 'run')}"
    if slow:
        return f"The loss falls, but not faster than 1/t in {slow:,} of {counted(len(found), 'run')}"
    return "The loss falls faster than 1/t" + (", however many students there are" if len(study.multiple) > 1 else "")


def _pl_title(study: LocalRate, run: Run) -> str:
    """That PL fails where, in every run with more students that has enough looks, ‖∇L‖²/L falls with the loss."""
    d = _widest(study)
    more = [exponents(run, "squared_ratio", exact(run, multiple=m, d=d)) for m in study.multiple if m > 1]
    found = np.concatenate([np.zeros(0), *more])
    found = found[np.isfinite(found)]
    if len(found) and (found > FALLS).all():
        return "With more students than teacher neurons the PL inequality fails"
    return "Whether the PL inequality holds"


def _batch_title(study: LocalRate, run: Run) -> str:
    (share,) = _spread(end_shares(study, run, min(study.batch)), (0.5,))
    alike = 1 / FACTOR <= share <= FACTOR
    return "Small mini-batches do as well, for labels have no noise" if alike else "Mini-batches beside the exact loss"


def _colours(study: LocalRate) -> dict[int, str]:
    return dict(zip(sorted(study.multiple), style.categories(len(study.multiple)), strict=True))


def _losses(study: LocalRate, run: Run, settings: list[Setting]) -> Curves:
    panels, colours = [], _colours(study)
    steps = np.array(study.probes[1:])
    place = np.searchsorted(run.epochs, steps)
    for setting in settings:
        lines = []
        for multiple in sorted(study.multiple, reverse=True):
            networks = exact(run, multiple=multiple, **setting._asdict())
            loss = run.series("loss")[networks][:, place]
            middle, low, high = (_drawn(q) for q in _spread(loss, (0.5, 0.25, 0.75)))
            lines.append(Series(label(multiple), steps, middle, low, high, colour=colours[multiple]))
        # A teacher of one's own has its angle, those that are drawn have at least theirs.
        title = study.named(setting)
        panels.append(Panel(title, "step t", "loss", tuple(lines), log_x=True, log_y=True, slope=-1.0))
    return Curves(_filled(panels), note=f"median and quartiles, n = {counted(study.seeds, 'seed')}")


def _filled(panels: Iterable[Panel]) -> tuple[Panel, ...]:
    """Those that have something to show."""
    return tuple(panel for panel in panels if any(np.isfinite(series.y).any() for series in panel.series))


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
) -> Curves:
    panels = []
    for r in dict.fromkeys(setting.r for setting in study.settings()):
        lines = _envelopes(study, run, values, how, r=r)
        if lines:
            panels.append(Panel(f"r = {r}", "loss", what, lines, True, True, bound, f"{CONSTANT:g}", slope))
    return Curves(tuple(panels), note=_noted(study, run))


def _lemmas(study: LocalRate, run: Run) -> Curves:
    """Left sides, in units of all that stands on the right beside the power of the loss."""
    panels = []
    for name, (title, side) in _SIDES.items():
        power, loss = LEMMAS[name], run.series("loss")
        with np.errstate(invalid="ignore", divide="ignore"):
            scaled = run.series(f"{name} left") / run.series(f"{name} right") * loss**power
        lines = _envelopes(study, run, scaled, np.max)
        if not lines:
            continue
        ends = np.array([min(s.x.min() for s in lines), max(s.x.max() for s in lines)])
        lines = (*lines, Series("proved, C = 1", ends, ends**power, dashed=True, colour=style.SOFT))
        panels.append(Panel(f"{name}: {title}", "loss", f"{side}, scaled", lines, log_x=True, log_y=power > 0))
    return Curves(tuple(panels), note=_noted(study, run), columns=3)


def _batches(study: LocalRate, run: Run) -> Curves:
    steps, sizes = np.array(study.batch_probes[1:]), np.array(sorted(study.batch))
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
    panels = (
        Panel("on the way", "step t", "loss", tuple(ways), log_x=True, log_y=True),
        Panel("at the end", "samples in a batch", "loss", (end,), True, True, bound, "exact loss"),
        Panel("how far apart", "samples in a batch", "|L / L exact − 1|", (distance,), True, True, slope=-0.5),
    )
    return Curves(_filled(panels), note=f"n = {study.seeds}")
