"""A strip: a small plot of the values that decide a claim, with the tolerance of the claim."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from markupsafe import Markup

from understudy._numbers import number

WIDTH, HEIGHT, FOOT = 240, 58, 40
MARGIN = 6
TICKS = 60
"""At most this many values are drawn one by one, more as a histogram."""
BINS = 48


def strip(values: Sequence[float], low: float | None, high: float | None) -> Markup:
    """Draw values and tolerance as inline SVG; the page's stylesheet colours it, and a label describes it in words."""
    finite = sorted(value for value in values if math.isfinite(value))
    if not finite:
        return Markup('<p class="strip note">no distribution stored</p>')
    bounds = [bound for bound in (low, high) if bound is not None and math.isfinite(bound)]
    left, right = min(finite + bounds), max(finite + bounds)
    room = (right - left) * 0.06 or abs(left) * 0.1 or 1.0
    left, right = left - room, right + room

    def x(value: float) -> float:
        return MARGIN + (value - left) / (right - left) * (WIDTH - 2 * MARGIN)

    marks = _ticks([x(value) for value in finite]) if len(finite) <= TICKS else _bars([x(value) for value in finite])
    begin = 0.0 if low is None or not math.isfinite(low) else x(low)
    end = float(WIDTH) if high is None or not math.isfinite(high) else x(high)
    band = (
        f'<rect class="tolerance" x="{begin:.1f}" y="0" width="{max(end - begin, 1.5):.1f}" height="{FOOT}"/>'
        if bounds
        else ""
    )
    edges = "".join(f'<path class="bound" d="M{x(bound):.1f} 0V{FOOT}"/>' for bound in bounds)
    words = _words(len(values), finite, low, high)
    return Markup(
        f'<svg class="strip" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{words}">'
        f'{band}<path class="axis" d="M0 {FOOT}H{WIDTH}"/>{marks}{edges}{_labels(finite, bounds, x)}</svg>'
    )


def _ticks(places: Sequence[float]) -> str:
    path = "".join(f"M{place:.1f} 12V{FOOT}" for place in places)
    return f'<path class="tick" d="{path}"/>'


def _bars(places: Sequence[float]) -> str:
    wide = (WIDTH - 2 * MARGIN) / BINS
    counts = [0] * BINS
    for place in places:
        counts[min(int((place - MARGIN) / wide), BINS - 1)] += 1
    tall = (FOOT - 6) / max(counts)
    path = "".join(
        f"M{MARGIN + i * wide + 0.3:.1f} {FOOT}v{-count * tall:.1f}h{wide - 0.6:.1f}V{FOOT}z"
        for i, count in enumerate(counts)
        if count
    )
    return f'<path class="bar" d="{path}"/>'


def _labels(finite: Sequence[float], bounds: Sequence[float], x: Callable[[float], float]) -> str:
    """Label the bounds of the tolerance, or the ends of the values, with one label where two would collide."""
    shown = sorted(set(bounds or (finite[0], finite[-1])))
    places = [x(value) for value in shown]
    if len(shown) == 2 and places[1] - places[0] < 64:
        text, middle = f"{number(shown[0])} to {number(shown[1])}", sum(places) / 2
        return _label(text, middle)
    return "".join(_label(number(value), place) for value, place in zip(shown, places, strict=True))


def _label(text: str, place: float) -> str:
    half = 3.2 * len(text)
    anchor, at = ("start", 0.0) if place < half else ("end", WIDTH) if place > WIDTH - half else ("middle", place)
    return f'<text x="{at:.1f}" y="{HEIGHT - 4}" text-anchor="{anchor}">{text}</text>'


def _words(count: int, finite: Sequence[float], low: float | None, high: float | None) -> str:
    text = f"{count:,} values from {number(finite[0])} to {number(finite[-1])}"
    if low is None and high is None:
        return text
    inside = sum((low is None or value >= low) and (high is None or value <= high) for value in finite)
    ends = [f"from {number(low)}"] if low is not None else []
    ends += [f"to {number(high)}"] if high is not None else []
    return f"{text}; {inside:,} within the tolerance {' '.join(ends)}"
