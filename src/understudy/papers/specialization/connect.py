"""`us.connect`: a path of low loss between two students of one teacher."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from understudy._errors import UserError
from understudy._memory import require_size
from understudy._numbers import number
from understudy._progress import steps
from understudy.data.given_inputs import Distribution, Drawn, Given, Split, split_inputs
from understudy.nets.given_networks import Network, as_population
from understudy.papers.specialization.theory.connectivity import (
    BELOW,
    WeightPath,
    connecting_path,
    losses_along,
    straight_path,
)

_PRODUCTS = 5
"""About how many products of all pairs of nodes a path takes: fits and correlations, as measured."""


@dataclass(frozen=True, eq=False, repr=False)
class Connection:
    """A path between two students, and the straight line beside it.

    Attributes:
        path: Way points, and what moves between consecutive ones.
        losses: Losses along each segment of the path on held-out inputs, as shares of the output variance.
        line: Losses along the straight line, at as many points.
    """

    path: WeightPath
    losses: Float[Tensor, "segment point"]
    line: Float[Tensor, "point"]

    @property
    def largest(self) -> float:
        """Largest loss on the path."""
        return float(self.losses.max())

    @property
    def largest_on_line(self) -> float:
        """Largest loss on the straight line."""
        return float(self.line.max())

    def __repr__(self) -> str:
        path, line = number(self.largest, ".2e"), number(self.largest_on_line, ".2e")
        return f"Connection({len(self.path.moves)} segments; largest loss {path}, on the straight line {line})"


def connect(
    a: Network,
    b: Network,
    teacher: Network,
    data: Given | None = None,
    *,
    below: float = BELOW,
    points: int = 9,
    inputs: Distribution = "gaussian",
    input_std: float = 1.5,
    samples: int = 10_000,
    seed: int = 1,
) -> Connection:
    """Connect two students of one teacher by line segments on which the loss stays low (Tian 2020, appendix E).

    Args:
        a: The student at the start of the path, of two layers: a population, a module of PyTorch, or a network file.
        b: The student at its end, of equal sizes.
        teacher: Their teacher.
        data: Inputs as a tensor, array, pandas frame or file (.npy, .npz, .parquet or .csv), of which every fifth is
            held out; or a source. Default: drawn at random.
        below: Student nodes whose best correlation with a teacher node is below this count as unspecialised.
        points: Points per segment at which the loss is measured.
        inputs: Distribution of drawn inputs.
        input_std: Standard deviation of drawn inputs.
        samples: Number of inputs to draw, and number of held-out inputs to test on.
        seed: Seed of drawn inputs.

    Returns:
        The path, and the losses along it and along the straight line.

    Raises:
        UserError: Networks or inputs that do not fit, no idle node, or a value out of range.
    """
    if points < 2:
        raise UserError(f"must be at least 2, got {points}", "points")
    if not -1 <= below <= 1:
        raise UserError(f"must be between −1 and 1, got {below}", "below")
    start = as_population("a", a, data)
    end, theirs = (as_population(*each, data).to(start.device) for each in (("b", b), ("teacher", teacher)))
    require_size("points", points, 8 * sum(layer.weight[0].numel() for layer in start.layers))
    x = split_inputs(data, start, Drawn(inputs, input_std, samples, seed))
    x = Split(*(each.to(start.device) for each in x))
    squares = sum((ours + other) ** 2 for ours, other in zip(start.sizes[1:-1], end.sizes[1:-1], strict=False))
    with steps("finding a path", multiplications=_PRODUCTS * len(x.given) * squares):
        path = connecting_path(start, end, theirs, x.given, below)
        losses = losses_along(path, theirs, x.held_out, points)
        line = losses_along(straight_path(start, end), theirs, x.held_out, losses.numel())[0]
    return Connection(path, losses, line)
