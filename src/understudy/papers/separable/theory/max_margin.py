"""Max-margin vectors of the two classes and their support examples (S3 eqs. 3.6 and 3.7), exact to rounding."""

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from understudy.data.separable import two_classes
from understudy.errors import UserError

_EQUAL = 1e-8
"""Distance from a margin of 1 within which an example counts as a support example."""


class MaxMargin(NamedTuple):
    """The shortest w with w·x_i ≥ 1 for all examples, and how well it meets the conditions that make it so."""

    vector: Float[Tensor, "in"]
    multipliers: Float[Tensor, "sample"]
    """α ≥ 0 with w = Σ α_i x_i; 0 but for support examples."""
    supports: Bool[Tensor, "sample"]
    """Who has w·x_i = 1."""
    spans: bool
    """Whether the support examples span the space, which theorem 3.1 asks for."""
    feasibility: float
    """How far the least margin is below 1; 0 if it is not."""
    sign: float
    """How far the least multiplier is below 0."""
    slackness: float
    """The greatest α_i |w·x_i − 1|, over ‖w‖² = Σ α_i."""
    stationarity: float
    """‖w − Σ α_i x_i‖ over ‖w‖."""

    @property
    def residual(self) -> float:
        """The worst of the four conditions of Karush, Kuhn and Tucker."""
        return max(self.feasibility, self.sign, self.slackness, self.stationarity)


def max_margin(x: Float[Tensor, "sample in"]) -> MaxMargin:
    """Of the examples of one class, by an active-set method on the multipliers.

    Non-negative least squares on [Xᵀ; 1ᵀ] α ≈ e finds which examples carry w (Lawson and Hanson's reduction of least
    distance); then w is the shortest solution of w·x_i = 1 on those.
    """
    from scipy.optimize import nnls

    if len(x) < 1 or not x.isfinite().all():
        raise UserError(f"{len(x)} examples were given; allowed is 1 or more, of finite numbers")
    scale = float(torch.linalg.vector_norm(x.double(), dim=1).median())
    if scale == 0:
        raise UserError("half the examples are zero, which no margin separates: leave them out")
    points = x.detach().double().cpu().numpy() / scale
    count, size = points.shape
    system = np.vstack((points.T, np.ones(count)))
    goal = np.zeros(size + 1)
    goal[-1] = 1
    found, _ = nnls(system, goal, maxiter=max(1_000, 30 * count))
    # The rest is 1/(1 + ‖w‖²): next to nothing where the hull of the examples comes to the origin.
    rest = 1 - found.sum()
    if not rest > 1e-12:
        raise UserError(
            "no w has w·x > 0 for all these examples: 0 is within their convex hull, so they have no max-margin vector"
        )
    carrying = found > 1e-12 * found.max()
    vector = np.linalg.lstsq(points[carrying], np.ones(int(carrying.sum())), rcond=None)[0]
    multipliers = np.zeros(count)
    multipliers[carrying] = np.linalg.lstsq(points[carrying].T, vector, rcond=None)[0]
    margins = points @ vector
    supports = np.abs(margins - 1) <= _EQUAL
    length = float(np.linalg.norm(vector))
    return MaxMargin(
        torch.from_numpy(vector / scale),
        torch.from_numpy(multipliers / scale**2),
        torch.from_numpy(supports),
        bool(np.linalg.matrix_rank(points[supports]) == size),
        max(0.0, 1 - float(margins.min())),
        max(0.0, -float(multipliers.min()) / length**2),
        float((np.abs(multipliers) * np.abs(margins - 1)).max()) / length**2,
        float(np.linalg.norm(vector - points.T @ multipliers)) / length,
    )


class Margins(NamedTuple):
    """Those of both classes of one set; `supports` is over all of its examples."""

    positive: MaxMargin
    negative: MaxMargin
    supports: Bool[Tensor, "sample"]

    @property
    def vectors(self) -> Float[Tensor, "2 in"]:
        """w+ and w−."""
        return torch.stack((self.positive.vector, self.negative.vector))

    @property
    def spans(self) -> bool:
        return self.positive.spans and self.negative.spans


def margins(x: Float[Tensor, "sample in"], y: Float[Tensor, "sample"]) -> Margins:
    """w+ of eq. 3.6 and w− of eq. 3.7, of examples with two classes."""
    signs = two_classes(y)
    positive, negative = (max_margin(x[signs == sign]) for sign in (1, -1))
    supports = torch.zeros(len(x), dtype=torch.bool)
    supports[signs == 1], supports[signs == -1] = positive.supports, negative.supports
    return Margins(positive, negative, supports)


def max_margins(x: Float[Tensor, "net sample in"], y: Float[Tensor, "net sample"]) -> Float[Tensor, "net 2 in"]:
    """w+ and w− of every network's examples."""
    return torch.stack([margins(points, classes).vectors for points, classes in zip(x, y, strict=True)]).to(x.device)
