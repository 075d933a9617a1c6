"""Local optima of units with value exactly zero: folds that touch without crossing (Phuong & Lampert 2020, sec. 2.2).

On the cells of the layers below, a unit is affine. It has a local optimum of value zero where it is zero on a whole
cell, or where its zero set meets cells on their boundary only, all on one side.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.optimize import linprog

from understudy.papers.equivalence.theory.cells import CONSTANT, Cells, in_unit_box
from understudy.papers.equivalence.theory.linear_programs import crossing

TOUCH = 1e-10
"""Distance, where the box is [−1, 1]^d, within which a zero set touches a cell."""
_NEAR = 1e-8


class Optimum(NamedTuple):
    """An input at which a unit is zero and has one sign around it; layers are counted from 1, units from 0."""

    layer: int
    unit: int
    x: Float[np.ndarray, "in"]


def zero_optimum(found: Cells) -> Optimum | None:
    """Find a local optimum of value zero of a unit in the layer above the cells.

    Args:
        found: Cells of the layers below this layer.

    Returns:
        The first one that is found, or None.
    """
    box, layer = found.box, found.layers + 1
    weights, biases = in_unit_box(box, *found.maps(layer))
    slopes = np.linalg.norm(weights, axis=2)
    possible = np.abs(weights).max(initial=0.0) + np.abs(biases).max(initial=0.0)
    varying = slopes > CONSTANT * max(possible, 1e-300)
    flat = np.argwhere(~varying & (np.abs(biases) <= CONSTANT * possible))
    if len(flat):
        cell, unit = flat[0].tolist()
        return Optimum(layer, unit, found.centres[cell])
    divisor = np.where(varying, slopes, 1.0)
    units, offsets = np.where(varying[..., None], weights, 0.0) / divisor[..., None], biases / divisor
    if layer == 1:
        return None  # affine on the whole box, and not constant
    centres = (found.centres - box.centre) / box.half
    sides = np.empty((len(found), units.shape[1]), bool)
    touching = []
    for cell in range(len(found)):
        arguments = *found.polytope(cell), centres[cell], units[cell], offsets[cell]
        sides[cell] = crossing(*arguments, TOUCH)
        touching += [(cell, unit) for unit in np.flatnonzero(crossing(*arguments, -TOUCH) & ~sides[cell])]
    signs = np.sign(np.einsum("cui,ci->cu", units, centres) + offsets)
    for cell, unit in touching:
        point = _inner_zero(found, cell, signs[cell, unit] * units[cell, unit], signs[cell, unit] * offsets[cell, unit])
        if point is None:
            continue
        around = _cells_around(found, box.centre + box.half * point)
        if not sides[around, unit].any() and len(set(signs[around, unit].tolist()) - {0.0}) < 2:
            return Optimum(layer, int(unit), box.centre + box.half * point)
    return None


def _inner_zero(found: Cells, cell: int, weight: np.ndarray, bias: float) -> np.ndarray | None:
    """Point of a cell where a nonnegative function is zero, as far as possible from the sides of the box."""
    rows, bounds = found.polytope(cell)
    inputs = len(weight)
    slack = np.zeros((len(rows) + 1, 1))
    slack[: 2 * inputs] = 1.0
    answer = linprog(
        -np.eye(inputs + 1)[-1],
        np.hstack([np.vstack([rows, weight]), slack]),
        np.append(bounds, TOUCH - bias),
        bounds=(None, None),
        method="highs",
    )
    inside = answer.status == 0 and answer.x[-1] > _NEAR
    return answer.x[:-1] if inside else None


def _cells_around(found: Cells, x: np.ndarray) -> np.ndarray:
    """Cells that contain a point or have it on their boundary."""
    values = np.hstack([part[0] / max(np.abs(part).max(), 1.0) for part in found.network.preactivations(x[None])[:-1]])
    values = values[: found.patterns.shape[1]]
    near: np.ndarray = ((found.patterns == (values >= 0)) | (np.abs(values) <= _NEAR)).all(1)
    return near
