"""Max-margin vectors of two classes and their support examples, exact to rounding (Phuong 2021, eqs. 3.6, 3.7)."""

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from understudy._errors import UserError
from understudy.data.separable import two_classes

_EQUAL = 1e-8
"""Distance from a margin of 1 within which an example counts as a support example."""


class MaxMargin(NamedTuple):
    """The shortest w with w·x_i ≥ 1 for all examples, and how well it meets the Karush-Kuhn-Tucker conditions."""

    vector: Float[Tensor, "in"]
    multipliers: Float[Tensor, "sample"]
    """α ≥ 0 with w = Σ α_i x_i; 0 except for support examples."""
    supports: Bool[Tensor, "sample"]
    """Which examples have w·x_i = 1."""
    spans: bool
    """Whether the support examples span the input space, as Phuong 2021, theorem 3.1 requires."""
    residual: float
    """Largest violation of the four conditions, all relative: margins of 1, α ≥ 0, slackness and stationarity."""


def max_margin(x: Float[Tensor, "sample in"]) -> MaxMargin:
    """Compute the max-margin vector of the examples of one class, by an active-set method on the multipliers.

    Non-negative least squares on [Xᵀ; 1ᵀ] α ≈ e finds the examples with α_i > 0 (the reduction of least-distance
    problems by Lawson and Hanson); w is the shortest solution of w·x_i = 1 on those.
    """
    from scipy.optimize import nnls

    if len(x) < 1 or not x.isfinite().all():
        raise UserError(f"a max-margin vector needs 1 or more examples of finite numbers, got {len(x)} examples")
    scale = float(torch.linalg.vector_norm(x.double(), dim=1).median())
    if scale == 0:
        raise UserError("half of the examples or more are zero, which no margin separates: leave them out")
    points = x.detach().double().cpu().numpy() / scale
    count, size = points.shape
    system = np.vstack((points.T, np.ones(count)))
    goal = np.zeros(size + 1)
    goal[-1] = 1
    found, _ = nnls(system, goal, maxiter=max(1_000, 30 * count))
    # 1 − Σα is 1/(1 + ‖w‖²), and vanishes as the convex hull of the examples approaches the origin.
    if not 1 - found.sum() > 1e-12:
        raise UserError(
            "no w has w·x > 0 for all examples: their convex hull contains 0, so they have no max-margin vector"
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
        max(
            0.0,
            1 - float(margins.min()),
            -float(multipliers.min()) / length**2,
            float((np.abs(multipliers) * np.abs(margins - 1)).max()) / length**2,
            float(np.linalg.norm(vector - points.T @ multipliers)) / length,
        ),
    )


class Margins(NamedTuple):
    """Max-margin vectors of both classes of one set."""

    positive: MaxMargin
    negative: MaxMargin

    @property
    def vectors(self) -> Float[Tensor, "2 in"]:
        """w+ and w−."""
        return torch.stack((self.positive.vector, self.negative.vector))

    @property
    def spans(self) -> bool:
        return self.positive.spans and self.negative.spans

    @property
    def residual(self) -> float:
        return max(self.positive.residual, self.negative.residual)


def margins(x: Float[Tensor, "sample in"], y: Shaped[Tensor, "sample"]) -> Margins:
    """Compute w+ (Phuong 2021, eq. 3.6) and w− (eq. 3.7) of examples of two classes."""
    signs = two_classes(y)
    return Margins(*(max_margin(x[signs == sign]) for sign in (1, -1)))


def max_margins(x: Float[Tensor, "net sample in"], y: Shaped[Tensor, "net sample"]) -> Float[Tensor, "net 2 in"]:
    """Compute w+ and w− of the examples of every network."""
    return torch.stack([margins(points, classes).vectors for points, classes in zip(x, y, strict=True)]).to(x.device)
