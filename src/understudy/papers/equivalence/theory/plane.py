"""Two-dimensional windows: rectangles of two inputs, or of a plane through the space of inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from understudy._errors import UserError
from understudy._numbers import number
from understudy.papers.equivalence.theory.domain import LOWER, UPPER, Box

MARGIN = 0.25
"""Share of its edges by which the rectangle around three points is enlarged on every side."""
_COLLINEAR = 1e-9
"""Least distance of a third point from the line through the others, as a share of the largest distance."""
_ROUNDED = 1e-6
"""Largest rounding error of coordinates, as a share of the shorter edge of the rectangle."""

Window = Box | Sequence[Sequence[float]] | Sequence[float] | np.ndarray
"""A rectangle: lower and upper ends for both inputs together, or an interval for each: ((x0, x1), (y0, y1))."""
Points = Sequence[Sequence[float] | np.ndarray] | np.ndarray
"""Three inputs, one row each."""


@dataclass(frozen=True, eq=False)
class Plane:
    """A rectangle in a plane: points origin + u·axes[0] + v·axes[1] with (u, v) between `lower` and `upper`.

    Attributes:
        origin: The input at (0, 0).
        axes: Two orthonormal directions, so that lengths and areas in (u, v) are those of the inputs.
        lower: Least u and v.
        upper: Largest u and v.
    """

    origin: Float[np.ndarray, "in"]
    axes: Float[np.ndarray, "2 in"]
    lower: Float[np.ndarray, "2"]
    upper: Float[np.ndarray, "2"]

    @property
    def inputs(self) -> int:
        """Number of inputs."""
        return len(self.origin)

    @property
    def centre(self) -> Float[np.ndarray, "2"]:
        """The middle of the rectangle, in (u, v)."""
        return (self.lower + self.upper) / 2

    @property
    def half(self) -> Float[np.ndarray, "2"]:
        """Half of the length of each edge."""
        return (self.upper - self.lower) / 2

    @property
    def area(self) -> float:
        """Area of the rectangle."""
        return float(np.prod(self.upper - self.lower))

    def inputs_at(self, uv: Float[np.ndarray, "*shape 2"]) -> Float[np.ndarray, "*shape in"]:
        """Inputs at points of the plane."""
        found: np.ndarray = self.origin + uv @ self.axes
        return found


def as_plane(window: Window | Plane | None, through: Points | None, inputs: int) -> Plane:
    """Build the rectangle that a user describes.

    Args:
        window: For networks with two inputs: lower and upper end for both, or an interval for each; None for [−2, 2]².
        through: Three inputs. The rectangle contains them and is a quarter of its edges larger on every side; u points
            from the first to the second, and v is orthogonal to it, towards the third.
        inputs: Number of inputs of the network.

    Returns:
        The rectangle.

    Raises:
        UserError: Both, a window for another number of inputs, ends or points that are not finite, a window of zero
            area or so far from zero that its coordinates are rounded, or points on one line.
    """
    if isinstance(window, Plane):
        if window.inputs != inputs:
            raise UserError(f"must be in a space of {inputs} inputs, got {window.inputs}", "window")
        return window
    if through is not None:
        if window is not None:
            raise UserError("through and window exclude each other; give one of them")
        return plane_through(through, inputs)
    if inputs != 2:
        raise UserError(
            f"must be given for a network of {inputs} inputs: three inputs, whose plane is shown (a window needs a "
            "network of 2 inputs)",
            "through",
        )
    lower, upper = _ends(window)
    if not (np.isfinite(lower).all() and np.isfinite(upper).all()):
        raise UserError("must be bounded: its ends must be finite numbers", "window")
    if not (lower < upper).all():
        i = int(np.argmin(upper - lower))
        raise UserError(
            f"must have a positive area, got {number(lower[i], 'g')} to {number(upper[i], 'g')} for input {i + 1}: "
            "give a lower end below the upper one",
            "window",
        )
    return _validated(Plane(np.zeros(2), np.eye(2), lower, upper), "window")


def _validated(plane: Plane, argument: str) -> Plane:
    """Refuse a rectangle so far from zero that float64 rounds coordinates to a visible share of its edges."""
    corners = plane.inputs_at(np.array([plane.lower, plane.upper]))
    rounding, edge = float(np.spacing(np.abs(corners).max())), float((plane.upper - plane.lower).min())
    if rounding > _ROUNDED * edge:
        raise UserError(
            f"must be larger or nearer to zero: float64 rounds its coordinates to {number(rounding, '.1e')}, and its "
            f"shorter edge is {number(edge, '.1e')}",
            argument,
        )
    return plane


def _ends(window: Window | None) -> tuple[np.ndarray, np.ndarray]:
    """Lower and upper ends of a window."""
    if window is None:
        return np.full(2, LOWER), np.full(2, UPPER)
    if isinstance(window, Box):
        if window.inputs != 2:
            raise UserError(f"must be a box of 2 inputs, got {window.inputs}", "window")
        return window.lower, window.upper
    try:
        given = np.asarray(window, dtype=np.float64)
    except (TypeError, ValueError):
        given = np.zeros(())
    if given.shape == (2,):
        given = np.stack([given, given])
    if given.shape != (2, 2):
        raise UserError(
            f"must be its lower and upper end, or one such pair for each of the 2 inputs, got {window!r}", "window"
        )
    return given[:, 0].copy(), given[:, 1].copy()


def plane_through(points: Points, inputs: int) -> Plane:
    """Span a rectangle around three inputs.

    Args:
        points: The inputs, one row each.
        inputs: Number of inputs of the network.

    Returns:
        The rectangle, which contains the points; the first is its origin.

    Raises:
        UserError: Not three points, of another size, not finite, or on one line.
    """
    try:
        given = np.asarray(points, dtype=np.float64)
    except (TypeError, ValueError):
        given = np.zeros(())
    if given.shape != (3, inputs):
        raise UserError(f"must be three points of {inputs} numbers each, got {_shape_words(given)}", "through")
    if not np.isfinite(given).all():
        raise UserError("must be three points of finite numbers", "through")
    p, q, r = given
    distances = [float(np.linalg.norm(b - a)) for a, b in ((p, q), (q, r), (p, r))]
    along, across = q - p, r - p
    if distances[0] > 0:
        along = along / distances[0]
        across = across - (across @ along) * along
        across = across - (across @ along) * along  # once more, against round-off
    height = float(np.linalg.norm(across))
    if distances[0] <= _COLLINEAR * max(distances) or height <= _COLLINEAR * max(distances):
        raise UserError(
            f"must be three points that are not on one line, got distances {', '.join(number(d) for d in distances)}: "
            "move one of them",
            "through",
        )
    axes = np.stack([along, across / height])
    uv = (given - p) @ axes.T
    lower, upper = uv.min(axis=0), uv.max(axis=0)
    margin = MARGIN * (upper - lower)
    return _validated(Plane(p, axes, lower - margin, upper + margin), "through")


def _shape_words(given: np.ndarray) -> str:
    return f"an array of shape {given.shape}" if given.ndim else "something else"
