"""Sectors of neurons of two-layer ReLU networks, and the two that training ends in (S3 sec 3.3, lemmas 3.1 to 3.3).

Examples x_i have classes y_i of −1 and 1, networks Σ a_j ρ(w_j·x). With the logistic loss ℓ_i'(0) = −y_i/2.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from understudy._random import Stream, normal
from understudy.data.separable import require_separable, two_classes
from understudy.errors import UserError

_SETTLED = 1e-10
"""Relative distance from g(w) = Cw at which a search has come to its end."""
_STEPS = 200
_SAME = 1e-6
"""Distance within which two ends of searches are one."""
_TILE = 2048
"""Examples whose products with all others are looked at together."""


def sectors(w: Float[Tensor, "*#net node in"], x: Float[Tensor, "*#net sample in"]) -> Int[Tensor, "*net node sample"]:
    """σ of definition 3.1: the signs of w_j·x_i, one row a neuron."""
    return (w @ x.mT).sign().to(torch.int8)


def potential(
    w: Float[Tensor, "*#net node in"], x: Float[Tensor, "*#net sample in"], y: Float[Tensor, "*#net sample"]
) -> Float[Tensor, "*net node"]:
    """G of eq. 3.12, ½ Σ y_i ρ(w·x_i), of vectors of any length: it grows with the length."""
    return ((w @ x.mT).relu() @ y.unsqueeze(-1).to(w)).squeeze(-1) / 2


def slope(
    w: Float[Tensor, "*#net node in"], x: Float[Tensor, "*#net sample in"], y: Float[Tensor, "*#net sample"]
) -> Float[Tensor, "*net node in"]:
    """The gradient of G, g of eq. B.1 where no w·x_i is zero."""
    return ((w @ x.mT > 0) * y.unsqueeze(-2)).to(w) @ x / 2


def extremal_sectors(
    x: Float[Tensor, "*net sample in"], y: Float[Tensor, "*net sample"], *, tolerance: float = 0.0
) -> Int[Tensor, "*net 2 sample"]:
    """σ+ and σ− of lemma 3.2 (eqs. 3.13 and 3.14), of orthogonally separable examples.

    `tolerance`: cosines up to this count as 0.
    """
    _require(x, y, tolerance)
    return _sectors_of_classes(x, y, tolerance)


def _sectors_of_classes(x: Tensor, y: Tensor, tolerance: float = 0.0) -> Tensor:
    signs = two_classes(y)
    unit = torch.nn.functional.normalize(x, dim=-1)
    against = [
        ((some @ unit.mT < -tolerance) & (own.unsqueeze(-1) != signs.unsqueeze(-2))).any(-1)
        for some, own in zip(unit.split(_TILE, -2), signs.split(_TILE, -1), strict=True)
    ]
    other = -torch.cat(against, -1).to(torch.int8)
    one = torch.ones_like(other)
    return torch.stack((torch.where(signs > 0, one, other), torch.where(signs < 0, one, other)), dim=-2)


def extremal_directions(
    x: Float[Tensor, "*net sample in"], y: Float[Tensor, "*net sample"]
) -> Float[Tensor, "*net 2 in"]:
    """The strict maximum of G on the sphere, and its strict minimum, of orthogonally separable examples.

    Lemmas B.1 and 3.2 leave one place for each: the mean of its class, at length 1. Of all sums over subsets of the
    class that of all examples is the longest, so that nothing is beyond it.
    """
    _require(x, y)
    return _means_of_classes(x, y)


def _means_of_classes(x: Tensor, y: Tensor) -> Tensor:
    signs = two_classes(y).to(x)
    sums = torch.stack([(signs == sign).to(x).unsqueeze(-2) @ x for sign in (1, -1)], dim=-3).squeeze(-2)
    return torch.nn.functional.normalize(sums, dim=-1)


def _require(x: Tensor, y: Tensor, tolerance: float = 0.0) -> None:
    for points, labels in zip(x.reshape(-1, *x.shape[-2:]), y.reshape(-1, y.shape[-1]), strict=True):
        require_separable(points, labels, tolerance)


class Search(NamedTuple):
    """Where ascents of G ended, or descents."""

    directions: Float[Tensor, "start in"]
    settled: Bool[Tensor, "start"]
    """Whether g(w) = Cw with C > 0 there (lemma B.1); not so on a kink, or for those that no example moves."""
    off: Bool[Tensor, "start"]
    """Those that are active for no example: G is 0 around them."""


def search(
    starts: Float[Tensor, "start in"], x: Float[Tensor, "sample in"], y: Float[Tensor, "sample"], *, down: bool = False
) -> Search:
    """Climb G on the sphere from many starts, or go down.

    What climbs is G(w) − ½‖w‖², whose local maxima point where those of G on the sphere do, along its gradient. On a
    line it is quadratic between the places where an example goes on or off, so that the first maximum is found exactly.
    Of orthogonally separable examples every w·x_i then moves one way only, and no kink holds an ascent; of others one
    may, and is not settled.
    """
    signs = two_classes(y).to(starts) * (-1 if down else 1)
    w = torch.nn.functional.normalize(starts, dim=-1)
    for _ in range(_STEPS):
        way = slope(w, x, signs) - w
        moving = (way + w).any(-1) & (way.norm(dim=-1) > _SETTLED * w.norm(dim=-1))
        if not moving.any():
            break
        w = torch.where(moving.unsqueeze(-1), w + _first_maximum(w, way, x, signs).unsqueeze(-1) * way, w)
    pull = slope(w, x, signs)
    off = ~(w @ x.T > 0).any(-1)
    settled = ((pull - w).norm(dim=-1) <= _SETTLED * w.norm(dim=-1)) & ~off
    return Search(torch.nn.functional.normalize(w, dim=-1), settled, off)


class Extremes(NamedTuple):
    """What searches from many starts found on one side of G, beside lemma 3.2."""

    directions: int
    """How many different ones they settled at."""
    settled: int
    off: int
    """Searches that end where no example is active, and G is flat."""
    elsewhere: int
    """Searches that end in neither way, such as on a kink."""
    gap: float
    """The largest distance of an end from the direction of the lemma; infinite if none settled."""
    agree: bool
    """Whether every end lies in the sector of eq. 3.13, or 3.14."""

    @property
    def holds(self) -> bool:
        """One direction, as the lemma has it, and nothing else."""
        return self.directions == 1 and self.elsewhere == 0 and self.gap <= _SAME and self.agree


def searched(
    x: Float[Tensor, "sample in"], y: Float[Tensor, "sample"], count: int, seed: int
) -> tuple[Extremes, Extremes]:
    """Lemma 3.2 against `count` searches up, and as many down, from Gaussian directions."""
    if count < 1:
        raise UserError(f"{count} searches were asked for; allowed is 1 or more")
    starts = normal(seed, Stream.DIRECTIONS, 0, count * x.shape[1]).view(count, -1).to(x)
    lengths = torch.linalg.vector_norm(x, dim=-1)
    found = []
    for down, wanted, sector in zip((False, True), _means_of_classes(x, y), _sectors_of_classes(x, y), strict=True):
        ends = search(starts, x, y, down=down)
        there = ends.directions[ends.settled]
        products = there @ x.T
        signs = torch.where(products.abs() <= _SETTLED * lengths, 0, products.sign()).to(torch.int8)
        found.append(
            Extremes(
                _different(there),
                len(there),
                int(ends.off.sum()),
                int((~ends.settled & ~ends.off).sum()),
                float((there - wanted).norm(dim=-1).max()) if len(there) else float("inf"),
                bool((signs == sector).all()),
            )
        )
    return found[0], found[1]


def _different(directions: Float[Tensor, "end in"]) -> int:
    count = 0
    while len(directions):
        count, directions = count + 1, directions[(directions - directions[0]).norm(dim=-1) > _SAME]
    return count


def _first_maximum(
    w: Float[Tensor, "start in"], way: Float[Tensor, "start in"], x: Tensor, y: Tensor
) -> Float[Tensor, "start"]:
    """How far along the way G(w) − ½‖w‖² first stops growing; with 1 if no example goes on or off before."""
    at, by = w @ x.T, way @ x.T
    when = torch.where(at * by < 0, -at / by, torch.where((at == 0) & (by > 0), 0.0, torch.inf))
    when, order = when.sort(dim=-1)
    # Whether an example goes on or off, the slope of ½ y ρ along the way changes by ½ y |x·way|.
    turns = torch.where(when.isfinite(), (y * by.abs() / 2).gather(-1, order), 0.0)
    square = way.square().sum(-1, keepdim=True)
    zero = torch.zeros_like(square)
    tops = 1 + torch.cat((zero, turns.cumsum(-1)), -1) / square.clamp_min(torch.finfo(w.dtype).tiny)
    begins, ends = torch.cat((zero, when), -1), torch.cat((when, zero + torch.inf), -1)
    first = (tops <= ends).int().argmax(-1, keepdim=True)
    return torch.maximum(begins.gather(-1, first), tops.gather(-1, first)).squeeze(-1)


def within(
    signs: Int[Tensor, "*#net node sample"], a: Float[Tensor, "*#net node"], extremal: Int[Tensor, "*#net 2 sample"]
) -> Bool[Tensor, "*net node"]:
    """Which neurons are in the extremal sector of the sign of their output weight.

    Where that has a 0, an example at right angles to all of the other class, "not active" is enough: a neuron that
    began below 0 there never moves along it. Almost no drawn set has such an example.
    """
    own = torch.where((a > 0).unsqueeze(-1), extremal[..., :1, :], extremal[..., 1:, :])
    fits = torch.where(own == 0, signs <= 0, signs == own)
    return fits.all(-1) & (a != 0)


class Absorption(NamedTuple):
    """What lemma 3.3 says, of neurons over recorded looks."""

    entered: Int[Tensor, "net node"]
    """The look at which a neuron is first in its extremal sector; −1: never."""
    left: Int[Tensor, "net node"]
    """The first look after that at which it is not; −1: it stayed, or never entered."""
    turned: Bool[Tensor, "net node"]
    """Whether its output weight ever changed its sign; in gradient flow from a balanced start none does (lemma B.4)."""
    inside: Bool[Tensor, "look net node"]
    """Whether it is in its extremal sector, look by look."""
    silent: Bool[Tensor, "look net node"]
    """Whether it is active for no example."""

    @property
    def off(self) -> Bool[Tensor, "net node"]:
        """Active for no example at the last look: it no longer moves."""
        return self.silent[-1]

    @property
    def absorbed(self) -> Bool[Tensor, "net node"]:
        """Who entered and never left."""
        return (self.entered >= 0) & (self.left < 0)

    @property
    def undecided(self) -> Bool[Tensor, "net node"]:
        """Who is neither off nor in its extremal sector for good."""
        return ~self.absorbed & ~self.off


def absorption(
    w: Float[Tensor, "look net node in"],
    a: Float[Tensor, "look net node"],
    x: Float[Tensor, "net sample in"],
    y: Float[Tensor, "net sample"],
) -> Absorption:
    """When each neuron entered the extremal sector of its sign, and whether it ever left.

    Lemma 3.3 is of gradient flow. Steps of any size and batch keep a neuron there just as well: all that is active is
    its class, every example of which moves w·x_i away from 0, and makes |a| larger.
    """
    if not len(w) or len(w) != len(a):
        raise UserError(f"{len(w)} looks at neurons and {len(a)} at output weights were given; allowed is 1 or more")
    extremal = extremal_sectors(x, y)
    states = []
    for now, out in zip(w, a, strict=True):  # signs of all looks at once would be larger than the record itself
        signs = sectors(now, x)
        states.append((within(signs, out, extremal), ~(signs > 0).any(-1)))
    inside, silent = (torch.stack(each) for each in zip(*states, strict=True))
    gone = inside.cummax(0).values & ~inside
    return Absorption(_first(inside), _first(gone), (a.sign() != a[:1].sign()).any(0), inside, silent)


def _first(which: Bool[Tensor, "look net node"]) -> Int[Tensor, "net node"]:
    return torch.where(which.any(0), which.int().argmax(0), -1)
