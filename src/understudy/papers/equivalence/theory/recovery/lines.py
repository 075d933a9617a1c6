"""Folds of a piecewise affine function along lines, and on short segments where one is expected.

Between two points of a line at which value and slope are known, the two affine pieces intersect in one point. If the
function agrees there with both, it has exactly one fold in between (up to rounding); otherwise the line is cut in two.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from understudy.papers.equivalence.theory.recovery.oracle import EDGE, Oracle

_NODE = 1e-4
"""Length over which slopes are measured, as a share of the line."""

_SHORTEST = 1e-6
"""Length, as a share of the line, below which an interval with several folds is given up."""

_TOLERANCE = 30.0
"""Rounding errors by which two values that should agree may differ."""


@dataclass(frozen=True, eq=False)
class FoldPoints:
    """Fold points met along lines.

    Attributes:
        points: The points.
        directions: Direction of the line through each, of unit length.
    """

    points: Float[np.ndarray, "fold in"]
    directions: Float[np.ndarray, "fold in"]


@dataclass(frozen=True, eq=False)
class Located:
    """Folds located on short segments.

    Attributes:
        found: Whether the segment has exactly one fold.
        points: Where it is; the middle of the segment where none is found.
        before: Slope along the segment before the fold.
        after: Slope after it.
    """

    found: np.ndarray
    points: Float[np.ndarray, "segment in"]
    before: Float[np.ndarray, "segment out"]
    after: Float[np.ndarray, "segment out"]


def draw_chords(random: np.random.Generator, lines: int, inputs: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw ends of lines: half of them between corners of the cube, where units that fold little of it are met."""
    ends = EDGE * random.uniform(-1, 1, (2, lines, inputs))
    corners = EDGE * random.choice((-1.0, 1.0), (2, lines, inputs))
    corner = (np.arange(lines) % 2 == 0)[:, None]
    # The other half ends on random faces.
    face = ends / np.abs(ends).max(axis=-1, keepdims=True) * EDGE
    start, end = np.where(corner, corners, face)
    end = np.where((start == end).all(axis=1, keepdims=True), -end, end)
    return start, end


def _cross(
    values: tuple[np.ndarray, np.ndarray], slopes: tuple[np.ndarray, np.ndarray], length: np.ndarray
) -> np.ndarray:
    """Distance from the left end at which two affine pieces are nearest, over all outputs; NaN for parallel ones."""
    bend = slopes[0] - slopes[1]
    gap = values[1] - values[0] - slopes[1] * length[:, None]
    size = (bend**2).sum(1)
    with np.errstate(invalid="ignore", divide="ignore"):
        found: np.ndarray = (gap * bend).sum(1) / size
    return np.where(size > 0, found, np.nan)


def folds_on_lines(
    oracle: Oracle, start: Float[np.ndarray, "line in"], end: Float[np.ndarray, "line in"], random: np.random.Generator
) -> FoldPoints:
    """Find all folds along lines, except pairs nearer to each other than a millionth of the line.

    Args:
        oracle: The function.
        start: Where each line begins.
        end: Where it ends.
        random: Generator for the points at which lines are cut.

    Returns:
        The folds.
    """
    total = np.linalg.norm(end - start, axis=1)
    direction = (end - start) / total[:, None]
    line = np.arange(len(start))
    node = _NODE * total
    at = np.stack([np.zeros_like(total), node, total - node, total])
    values = oracle((start + at[..., None] * direction).reshape(-1, start.shape[1])).reshape(4, len(line), -1)
    a, b, fa, fb = at[0], at[3], values[0], values[3]
    sa, sb = (values[1] - fa) / node[:, None], (fb - values[2]) / node[:, None]
    points, directions = [], []
    while len(line):
        length = b - a
        tolerance = _TOLERANCE * oracle.rounding * (1 + length / node[line])
        affine = (np.abs(fb - fa - sa * length[:, None]).max(1) <= tolerance) & (
            np.abs(fb - fa - sb * length[:, None]).max(1) <= tolerance
        )
        if affine.any():
            # A function that bends and bends back looks affine from both ends: compare a point in between.
            part = random.uniform(0.3, 0.7, int(affine.sum())) * length[affine]
            between = oracle(start[line[affine]] + (a[affine] + part)[:, None] * direction[line[affine]])
            error = np.abs(between - fa[affine] - sa[affine] * part[:, None]).max(1)
            affine[affine] = error <= tolerance[affine]
        cross = _cross((fa, fb), (sa, sb), length)
        inside = ~affine & (cross > 0) & (cross < length)
        single = np.zeros(len(line), bool)
        if inside.any():
            # Where it bends back after the intersection it agrees there too: one more point of each piece is compared,
            # and one on either side of the intersection, since it may bend elsewhere and pass through it.
            rest = length - cross
            step = np.stack([cross, 0.6 * cross, 0.98 * cross, cross + 0.4 * rest, cross + 0.02 * rest])
            step = step[:, inside, None]
            base, along = start[line[inside]] + a[inside, None] * direction[line[inside]], direction[line[inside]]
            x = base + step * along
            expected = fa[inside] + sa[inside] * step
            expected[3:] = fb[inside] + sb[inside] * (step[3:] - length[inside, None])
            error = np.abs(oracle(x.reshape(-1, x.shape[2])).reshape(expected.shape) - expected).max((0, 2))
            single[inside] = error <= tolerance[inside]
            points.append(x[0, single[inside]])
            directions.append(along[single[inside]])
        cut = ~affine & ~single & (length > _SHORTEST * total[line])
        line, a, b, fa, fb, sa, sb, length = (each[cut] for each in (line, a, b, fa, fb, sa, sb, length))
        if not len(line):
            break
        middle = a + length * random.uniform(0.4, 0.6, len(line))
        width = np.minimum(node[line], 0.1 * length)
        ends = [start[line] + (middle + side * width)[:, None] * direction[line] for side in (-0.5, 0.5)]
        low, high = oracle(np.concatenate(ends)).reshape(2, len(line), -1)
        fm, sm = (low + high) / 2, (high - low) / width[:, None]
        line = np.concatenate([line, line])
        a, b = np.concatenate([a, middle]), np.concatenate([middle, b])
        fa, fb = np.concatenate([fa, fm]), np.concatenate([fm, fb])
        sa, sb = np.concatenate([sa, sm]), np.concatenate([sm, sb])
    empty = np.zeros((0, start.shape[1]))
    return FoldPoints(np.concatenate([empty, *points]), np.concatenate([empty, *directions]))


def locate(
    oracle: Oracle,
    middle: Float[np.ndarray, "segment in"],
    direction: Float[np.ndarray, "segment in"],
    half: float | np.ndarray,
    slopes: tuple[np.ndarray, np.ndarray] | None = None,
) -> Located:
    """Locate the single fold in the inner half of short segments, to rounding.

    Args:
        oracle: The function.
        middle: Middle of each segment.
        direction: Unit vector along each.
        half: Half of the length of each segment.
        slopes: Slopes before and after the fold where they are known; otherwise they are measured, with two more
            evaluations for each segment.

    Returns:
        The folds; segments with none or several are marked as not found.
    """
    count = len(middle)
    half = np.broadcast_to(np.asarray(half, dtype=np.float64), (count,))
    sides = (-1.0, 1.0) if slopes is not None else (-1.0, 1.0, -0.5, 0.5)
    ends = [middle + (side * half)[:, None] * direction for side in sides]
    values = oracle(np.concatenate(ends)).reshape(len(sides), count, -1)
    if slopes is None:
        before = (values[2] - values[0]) / (half / 2)[:, None]
        after = (values[1] - values[3]) / (half / 2)[:, None]
    else:
        before, after = (np.broadcast_to(each, values[0].shape) for each in slopes)
    cross = _cross((values[0], values[1]), (before, after), 2 * half)
    tolerance = _TOLERANCE * oracle.rounding
    bends = (np.abs(before - after) * half[:, None]).max(1) > 10 * tolerance
    found = bends & (cross > 0.5 * half) & (cross < 1.5 * half)
    points = middle.copy()
    if found.any():
        points[found] += ((cross - half)[:, None] * direction)[found]
        expected = values[0] + before * cross[:, None]
        found[found] = np.abs(oracle(points[found]) - expected[found]).max(1) <= 4 * tolerance
    points[~found] = middle[~found]
    return Located(found, points, before, after)
