"""Gradient flows of many networks, each followed by an adaptive solver of its own."""

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float

from understudy._errors import UserError

Solve = Callable[[int, np.ndarray, np.ndarray], np.ndarray]
"""Follow one flow: (index of the network, start, ascending times above 0) -> position at each of these times.

Fewer rows than times are returned by a solver that gave up.
"""


def follow_flows(
    starts: Float[np.ndarray, "net *shape"], times: Sequence[float], solve: Solve
) -> Float[np.ndarray, "time net *shape"]:
    """Follow every network from its start and record where it is at the given times.

    Networks are followed one by one, so that the numbers of a network do not depend on the others.

    Args:
        starts: Position of every network at time 0.
        times: Ascending, finite times from 0.
        solve: Follows one network over the times above 0.

    Returns:
        The positions, in float64; NaN from the time at which a solver gave up.

    Raises:
        UserError: The times are negative, not finite or not in ascending order.
    """
    until = np.asarray(times, dtype=float)
    if not np.isfinite(until).all() or (until < 0).any() or (np.diff(until) < 0).any():
        raise UserError(f"times must be finite, at least 0 and in ascending order, got {list(times)}")
    positions = np.full((len(until), *starts.shape), np.nan)
    positions[until == 0] = starts
    ahead = until[until > 0]
    if len(ahead):
        for i, start in enumerate(starts):
            path = solve(i, start, ahead)
            positions[len(until) - len(ahead) :, i][: len(path)] = path
    return positions
