"""Shared by the figures of Phuong 2021, ch. 3: neurons as points, the max-margin vectors, and histograms."""

import numpy as np

from understudy.report import style
from understudy.report.figures import Series


def scatter(label: str, places: np.ndarray, colour: str, network: int | np.ndarray) -> Series:
    """Draw the neurons of one network as points; `places` is [neuron, axis]."""
    x, y = places.T
    return Series(label, x, y, points=True, colour=colour, network=np.full(len(places), network))


def by_sign(name: str, output: np.ndarray, places: np.ndarray, network: int | np.ndarray) -> tuple[Series, Series]:
    """Draw the neurons of one network by the sign of their output weights, which are called `name`."""
    return (
        scatter(f"{name} > 0", places[output > 0], style.ORANGE, network),
        scatter(f"{name} < 0", places[output <= 0], style.BLUE, network),
    )


def margin_rays(places: np.ndarray, cosine: float) -> tuple[Series, ...]:
    """Draw w₊ and w₋, whose cosine is given, beyond all neurons on their plane."""
    reach = 1.1 * np.nanmax(np.hypot(*places.T), initial=0.0)
    ends = {
        "w₊": (reach, 0.0, style.ORANGE),
        "w₋": (reach * cosine, reach * np.sqrt(max(0.0, 1 - cosine**2)), style.BLUE),
    }
    return tuple(
        Series(name, np.array([0.0, x]), np.array([0.0, y]), dashed=True, colour=colour)
        for name, (x, y, colour) in ends.items()
    )


def outline(label: str, counts: np.ndarray, edges: np.ndarray, colour: str, *, shares: bool = False) -> Series:
    """Draw a histogram of counts, or of their shares, as the outline of its bars."""
    counts = counts / max(1.0, counts.sum()) if shares else counts
    x, y = np.repeat(edges, 2), np.concatenate([[0.0], np.repeat(counts, 2), [0.0]])
    return Series(label, x, y, np.zeros_like(y), y, colour=colour)
