"""Orthogonally separable data (Phuong 2021, eq. 3.1): sampling, and tests of labelled points.

Two points of one class have a positive inner product, two points of different classes one of at most 0. The thesis
adds (sec. 3.1) that the classes then lie in opposite orthants of some axes. This holds in the plane only: a circular
cone of 45° about (1, 1, 1) has no negative inner products, but no orthant contains one of more than 35.3°.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from understudy._errors import UserError
from understudy._numbers import number
from understudy._random import Stream, normal, uniform
from understudy.data.source import require_counts

_TILE = 2048
"""Points per side of a block of inner products that is computed at once."""


class Points(NamedTuple):
    """Points of every network, and their classes, −1 and 1."""

    x: Float[Tensor, "net sample in"]
    y: Float[Tensor, "net sample"]


def orthogonally_separable(
    dim: int, count: int, seeds: Sequence[int], *, tilt: bool = True, spanning: bool = False
) -> Points:
    """Draw Gaussian points in the first orthant (class 1) and the opposite one (class −1), in float64.

    Args:
        dim: Numbers per point.
        count: Points per network.
        seeds: One seed per network.
        tilt: Also require z·x ≥ 0 with z = (1, −1, 1, …), so that the classes are not mirror images of each other
            (Phuong 2021, sec. 3.4.1). Exactly one of g and −g passes this filter, so a point g of the first orthant
            goes to the class given by the sign of z·g, and no point is rejected. Without, classes are random.
        spanning: Rescale points so that the first `dim` of each class are its support examples and span the space, as
            theorem 3.1 requires. As drawn, the shortest points are the support examples and rarely span it.

    Raises:
        UserError: Too few points for two classes, or for `spanning`.
    """
    require_counts(dim=dim, count=count)
    z = torch.ones(dim, dtype=torch.float64)
    z[1::2] = -1
    found = []
    for seed in seeds:
        g = normal(seed, Stream.TRAIN, 0, count * dim).view(count, dim).abs()
        positive = g @ z >= 0 if tilt else uniform(seed, Stream.TRAIN, 1, count) < 0.5
        y = torch.where(positive, 1.0, -1.0).double()
        if bool(positive.all()) or not bool(positive.any()):
            least = "2 or more dimensions and " if dim == 1 and tilt else ""
            raise UserError(
                f"all {count} points in {dim} dimensions, seed {seed}, are in class {int(y[0])}: two classes are "
                f"needed, so choose {least}more points"
            )
        x = y.unsqueeze(-1) * g
        found.append((_span(x, y, seed) if spanning else x, y))
    return Points(*(torch.stack(part) for part in zip(*found, strict=True)))


def _span(x: Float[Tensor, "sample in"], y: Float[Tensor, "sample"], seed: int) -> Float[Tensor, "sample in"]:
    """Rescale points so that w, a positive sum of the first ones of a class, has margin 1 on these, more on others."""
    dim, x = x.shape[1], x.clone()
    for sign in (1, -1):
        mine = (y == sign).nonzero().flatten()
        if len(mine) < dim:
            raise UserError(
                f"seed {seed} has {len(mine)} points of class {sign}, fewer than the {dim} that span the space: choose "
                "more points"
            )
        w = torch.nn.functional.normalize(x[mine[:dim]], dim=1).mean(0)
        margins = x[mine] @ w / (x[mine] @ w).median()
        to = 1.1 * torch.where(margins < 1, 1 / margins, margins)
        to[:dim] = 1
        x[mine] *= (to / margins).unsqueeze(1)
    return x


def two_classes(labels: Shaped[Tensor, "*net sample"]) -> Float[Tensor, "*net sample"]:
    """Map labels of two classes to −1 (smaller number) and 1 (larger number), in float64.

    Raises:
        UserError: Labels that are not of two classes in every set.
    """
    classes = labels.unique().tolist()
    if len(classes) != 2:
        some = ", ".join(f"{c:g}" for c in classes[:5]) + (", …" if len(classes) > 5 else "")
        raise UserError(f"labels must have two classes, got {len(classes)} ({some})")
    y = torch.where(labels == classes[1], 1.0, -1.0).double()
    lacks = (y == y[..., :1]).all(-1)
    if lacks.any():
        where = int(lacks.reshape(-1).nonzero()[0])
        raise UserError(f"the points of network {where} are all in one class; two classes are needed")
    return y


class PointPair(NamedTuple):
    """Indices of two points, their classes as given, and their inner product."""

    first: int
    second: int
    classes: tuple[float, float]
    product: float

    def __str__(self) -> str:
        one, other = self.classes
        which = f"both of class {one:g}" if one == other else f"of classes {one:g} and {other:g}"
        wanted = "a product above 0" if one == other else "a product of at most 0"
        return (
            f"points {self.first} and {self.second}, {which}, have the inner product "
            f"{number(self.product, '.6g')}; orthogonal separability requires {wanted}"
        )


class Separability(NamedTuple):
    """Orthogonal separability of labelled points: extreme pairs, and counts of pairs that violate it."""

    same: PointPair
    """Pair of one class with the smallest inner product."""
    different: PointPair
    """Pair of two classes with the largest inner product."""
    wrong: int
    """Pairs that violate eq. 3.1."""
    pairs: int
    """All pairs, including each point with itself."""
    wrong_apart: int
    """Pairs of two classes that violate eq. 3.1."""
    pairs_apart: int
    """All pairs of two classes."""

    @property
    def holds(self) -> bool:
        """Whether the points are orthogonally separable."""
        return self.wrong == 0

    @property
    def share_apart(self) -> float:
        """Share of the pairs of two classes that violate eq. 3.1."""
        return self.wrong_apart / self.pairs_apart

    @property
    def share_alike(self) -> float:
        """Share of the pairs of one class that violate eq. 3.1."""
        return (self.wrong - self.wrong_apart) / (self.pairs - self.pairs_apart)

    @property
    def violation(self) -> PointPair | None:
        """Pair that violates eq. 3.1 the most, if any does."""
        if self.holds:
            return None
        return max(self.same, self.different, key=_excess)


def _excess(pair: PointPair) -> float:
    return -pair.product if pair.classes[0] == pair.classes[1] else pair.product


def separability(
    x: Float[Tensor, "sample in"], labels: Shaped[Tensor, "sample"], *, tolerance: float = 0.0
) -> Separability:
    """Test whether labelled points are orthogonally separable (Phuong 2021, eq. 3.1), in float64.

    Args:
        x: The points.
        labels: Their classes, any two numbers.
        tolerance: Cosines up to this count as 0, where rounding may have changed right angles.

    Raises:
        UserError: Points or labels that cannot be used, or a tolerance out of range.
    """
    if not 0 <= tolerance < 1:
        raise UserError(f"tolerance must be at least 0 and below 1, got {tolerance}")
    y = _validate_labels(x, labels)
    lengths = torch.linalg.vector_norm(x, dim=1, dtype=torch.float64)
    nearest: dict[bool, PointPair | None] = {True: None, False: None}
    wrong = wrong_apart = 0
    for rows, columns, products, once in _tiles(x):
        alike = y[rows, None] == y[columns]
        above = products - tolerance * lengths[rows, None] * lengths[columns] > 0
        wrong += int((once & (alike != above)).sum())
        wrong_apart += int((once & ~alike & above).sum())
        for same in (True, False):
            here = once & (alike == same)
            if not here.any():
                continue
            among = torch.where(here, products if same else -products, torch.inf)
            i, j = divmod(int(among.argmin()), len(columns))
            one, other = int(rows[i]), int(columns[j])
            pair = PointPair(one, other, (float(labels[one]), float(labels[other])), float(products[i, j]))
            last = nearest[same]
            if last is None or _excess(pair) > _excess(last):
                nearest[same] = pair
    same_pair, different = nearest[True], nearest[False]
    assert same_pair is not None and different is not None  # two classes, each point paired with itself
    apart = int((y > 0).sum()) * int((y < 0).sum())
    return Separability(same_pair, different, wrong, len(x) * (len(x) + 1) // 2, wrong_apart, apart)


def require_separable(x: Float[Tensor, "sample in"], labels: Shaped[Tensor, "sample"], tolerance: float = 0.0) -> None:
    """Raise a `UserError` that names the worst pair unless the points are orthogonally separable."""
    found = separability(x, labels, tolerance=tolerance)
    if found.violation is not None:
        raise UserError(
            f"the points are not orthogonally separable, which the theorems need: {found.violation}; {found.wrong:,} "
            f"of {found.pairs:,} pairs violate this"
        )


class Similarities(NamedTuple):
    """Histogram of the inner products of pairs of different points (Phuong 2021, fig. 3.3)."""

    edges: Float[Tensor, "edge"]
    between: Float[Tensor, "bin"]
    """Pairs of different classes."""
    within: Float[Tensor, "2 bin"]
    """Pairs within the class of the smaller number, and within the other."""


def similarities(x: Float[Tensor, "sample in"], labels: Shaped[Tensor, "sample"], bins: int = 60) -> Similarities:
    """Count the inner products of all pairs by classes, in equal bins from the smallest to the largest product."""
    require_counts(bins=bins)
    y = _validate_labels(x, labels)
    low, high = torch.inf, -torch.inf
    for rows, columns, products, once in _tiles(x):
        seen = products[once & (rows[:, None] != columns)]
        if len(seen):
            low, high = min(low, float(seen.min())), max(high, float(seen.max()))
    edges = torch.linspace(low, high if high > low else low + 1, bins + 1, dtype=torch.float64, device=x.device)
    counts = torch.zeros(3, bins, dtype=torch.float64, device=x.device)
    for rows, columns, products, once in _tiles(x):
        apart = once & (rows[:, None] != columns)
        place = (torch.searchsorted(edges, products, right=True) - 1).clamp_(0, bins - 1)
        sums = y[rows, None] + y[columns]
        for kind, total in enumerate((0, -2, 2)):
            counts[kind] += torch.bincount(place[apart & (sums == total)], minlength=bins)
    return Similarities(edges, counts[0], counts[1:])


def _validate_labels(x: Tensor, labels: Tensor) -> Float[Tensor, "sample"]:
    if len(x) != len(labels) or x.ndim != 2:
        raise UserError(
            f"points must be [sample, in] with one label each, got points {list(x.shape)} and {len(labels)} labels"
        )
    if not x.isfinite().all():
        raise UserError(f"point {int((~x.isfinite()).any(1).nonzero()[0])} has numbers that are not finite")
    return two_classes(labels)


def _tiles(
    x: Float[Tensor, "sample in"],
) -> Iterator[
    tuple[Int[Tensor, "row"], Int[Tensor, "column"], Float[Tensor, "row column"], Bool[Tensor, "row column"]]
]:
    """Yield blocks of inner products with the indices of their points, and a mask that counts each pair once."""
    parts = torch.arange(len(x), device=x.device).split(_TILE)
    for i, rows in enumerate(parts):
        for columns in parts[i:]:
            yield rows, columns, x[rows].double() @ x[columns].double().T, rows[:, None] <= columns
