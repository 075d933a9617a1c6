"""Orthogonally separable points (S3 eq. 3.1): drawn without rejection, and any labelled points tested for it.

Points of one class have positive inner products, points of different classes none above 0. That they then lie in
opposite orthants of some axes, as sec 3.1 says, is so in the plane only: a round cone of 45° about (1, 1, 1) has no
products below 0, and no orthant holds one of more than 35.3°.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from understudy._random import Stream, normal, uniform
from understudy.data.synthetic import require_counts
from understudy.errors import UserError

_TILE = 2048
"""Points a side of the block of inner products that is looked at together."""


class Points(NamedTuple):
    """Points of every network's own, and their classes, −1 and 1."""

    x: Float[Tensor, "net sample in"]
    y: Float[Tensor, "net sample"]


def orthogonally_separable(
    dim: int, count: int, seeds: Sequence[int], *, tilt: bool = True, spanning: bool = False
) -> Points:
    """Gaussian points of the first orthant, class 1, and of its opposite, class −1, of each seed's own, in float64.

    With `tilt`, z·x ≥ 0 besides, z = (1, −1, 1, …), which keeps the classes from being each other's mirror image (S3
    sec 3.4.1). Of a point g of the first orthant exactly one of g and −g passes that filter: so g goes to the class
    that z·g has the sign of, and nothing is thrown away. Without, a coin says.

    With `spanning`, lengths of points are changed so that the first `dim` of each class are its support examples, which
    span the space, as theorem 3.1 asks: the smallest of points as drawn are, and hardly ever span it.
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
            least = "2 inputs or more and " if dim == 1 and tilt else ""
            raise UserError(
                f"{count} points in {dim} dimensions, seed {seed}, are all of class {int(y[0])}: two classes are "
                f"needed, so ask for {least}more points"
            )
        x = y.unsqueeze(-1) * g
        found.append((_spanning(x, y, seed) if spanning else x, y))
    return Points(*(torch.stack(part) for part in zip(*found, strict=True)))


def _spanning(x: Float[Tensor, "sample in"], y: Float[Tensor, "sample"], seed: int) -> Float[Tensor, "sample in"]:
    """Points on the same rays: w, a positive sum of the first of a class, has 1 on these and more on the others."""
    dim, x = x.shape[1], x.clone()
    for sign in (1, -1):
        mine = (y == sign).nonzero().flatten()
        if len(mine) < dim:
            raise UserError(
                f"seed {seed} draws {len(mine)} points of class {sign}, fewer than the {dim} that span the space: ask "
                "for more points"
            )
        w = torch.nn.functional.normalize(x[mine[:dim]], dim=1).mean(0)
        margins = x[mine] @ w / (x[mine] @ w).median()
        to = 1.1 * torch.where(margins < 1, 1 / margins, margins)
        to[:dim] = 1
        x[mine] *= (to / margins).unsqueeze(1)
    return x


def two_classes(labels: Shaped[Tensor, "*net sample"]) -> Float[Tensor, "*net sample"]:
    """−1 for the class of the smaller number, 1 for that of the larger; every set must have both, and no third."""
    classes = labels.unique().tolist()
    if len(classes) != 2:
        some = ", ".join(f"{c:g}" for c in classes[:5]) + (", …" if len(classes) > 5 else "")
        raise UserError(f"labels of {len(classes)} classes were given ({some}); allowed are those of two")
    y = torch.where(labels == classes[1], 1.0, -1.0).double()
    lacks = (y == y[..., :1]).all(-1)
    if lacks.any():
        where = int(lacks.reshape(-1).nonzero()[0])
        raise UserError(f"the points of network {where} are all of one class; allowed are those of two")
    return y


class Pair(NamedTuple):
    """Two points by their numbers from 0, their classes as given, and their inner product."""

    first: int
    second: int
    classes: tuple[float, float]
    product: float

    def __str__(self) -> str:
        one, other = self.classes
        which = f"both of class {one:g}" if one == other else f"of classes {one:g} and {other:g}"
        wanted = "above 0" if one == other else "0 or below"
        return (
            f"points {self.first} and {self.second}, {which}, have the inner product {self.product:.6g}: orthogonally "
            f"separable ones have {wanted}"
        )


class Separability(NamedTuple):
    """How near labelled points are to being orthogonally separable, or to not being so."""

    same: Pair
    """The pair of one class with the least product."""
    different: Pair
    """The pair of two classes with the greatest."""
    wrong: int
    """Pairs that break eq. 3.1."""
    pairs: int
    """All pairs, each point with itself among them."""
    wrong_apart: int
    """Pairs of two classes that break eq. 3.1."""
    pairs_apart: int
    """All pairs of two classes."""

    @property
    def holds(self) -> bool:
        return self.wrong == 0

    @property
    def share_apart(self) -> float:
        """Of the pairs of two classes, those that break eq. 3.1."""
        return self.wrong_apart / self.pairs_apart

    @property
    def share_alike(self) -> float:
        """Of the pairs of one class."""
        return (self.wrong - self.wrong_apart) / (self.pairs - self.pairs_apart)

    @property
    def violation(self) -> Pair | None:
        """The pair that breaks eq. 3.1 the most; none if none does."""
        if self.holds:
            return None
        return max(self.same, self.different, key=_excess)


def _excess(pair: Pair) -> float:
    return -pair.product if pair.classes[0] == pair.classes[1] else pair.product


def separability(
    x: Float[Tensor, "sample in"], labels: Shaped[Tensor, "sample"], *, tolerance: float = 0.0
) -> Separability:
    """Whether labelled points are orthogonally separable, in float64, whatever two numbers name their classes.

    `tolerance`: cosines up to this count as 0, where rounding may have moved points that were at right angles.
    """
    if not 0 <= tolerance < 1:
        raise UserError(f"tolerance {tolerance} was given; allowed is a number from 0 to below 1")
    y = _labelled(x, labels)
    lengths = torch.linalg.vector_norm(x, dim=1, dtype=torch.float64)
    nearest: dict[bool, Pair | None] = {True: None, False: None}
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
            pair = Pair(one, other, (float(labels[one]), float(labels[other])), float(products[i, j]))
            last = nearest[same]
            if last is None or _excess(pair) > _excess(last):
                nearest[same] = pair
    same_pair, different = nearest[True], nearest[False]
    assert same_pair is not None and different is not None  # two classes, and every point is a pair with itself
    apart = int((y > 0).sum()) * int((y < 0).sum())
    return Separability(same_pair, different, wrong, len(x) * (len(x) + 1) // 2, wrong_apart, apart)


def require_separable(x: Float[Tensor, "sample in"], labels: Shaped[Tensor, "sample"], tolerance: float = 0.0) -> None:
    """Refuse points that are not orthogonally separable, by the pair that is so the least."""
    found = separability(x, labels, tolerance=tolerance)
    if found.violation is not None:
        raise UserError(
            f"the points are not orthogonally separable, which the theorems need: {found.violation}; {found.wrong:,} "
            f"of {found.pairs:,} pairs are wrong"
        )


class Similarities(NamedTuple):
    """How many pairs of two different points have an inner product between one edge and the next (S3 fig 3.3)."""

    edges: Float[Tensor, "edge"]
    between: Float[Tensor, "bin"]
    """Pairs of different classes."""
    within: Float[Tensor, "2 bin"]
    """Pairs of the class of the smaller number, and of the other."""


def similarities(x: Float[Tensor, "sample in"], labels: Shaped[Tensor, "sample"], bins: int = 60) -> Similarities:
    """Inner products of all pairs, counted by classes; the edges are even, from the least product to the greatest."""
    require_counts(bins=bins)
    y = _labelled(x, labels)
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


def _labelled(x: Tensor, labels: Tensor) -> Float[Tensor, "sample"]:
    if len(x) != len(labels) or x.ndim != 2:
        raise UserError(
            f"points {list(x.shape)} and {len(labels)} labels were given; allowed is a label for every point"
        )
    if not x.isfinite().all():
        raise UserError(f"point {int((~x.isfinite()).any(1).nonzero()[0])} is not of finite numbers")
    return two_classes(labels)


def _tiles(
    x: Float[Tensor, "sample in"],
) -> Iterator[
    tuple[Int[Tensor, "row"], Int[Tensor, "column"], Float[Tensor, "row column"], Bool[Tensor, "row column"]]
]:
    """Inner products a block at a time, with the numbers of the points, and where a pair is met for the first time."""
    parts = torch.arange(len(x), device=x.device).split(_TILE)
    for i, rows in enumerate(parts):
        for columns in parts[i:]:
            yield rows, columns, x[rows].double() @ x[columns].double().T, rows[:, None] <= columns
