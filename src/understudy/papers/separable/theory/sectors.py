"""Sectors of the neurons of two-layer ReLU networks, and the two extremal ones (Phuong 2021, sec. 3.3).

Examples x_i have classes y_i of −1 and 1, networks are Σ a_j ρ(w_j·x), and the logistic loss has ℓ_i'(0) = −y_i/2.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from understudy._errors import UserError
from understudy._random import Stream, normal
from understudy.data.separable import require_separable, two_classes

_Neurons = Float[Tensor, "*#net node in"]
_Points = Float[Tensor, "*#net sample in"]
_Classes = Float[Tensor, "*#net sample"]
_SETTLED = 1e-10
"""Relative distance from g(w) = Cw at which a search has converged."""
_STEPS = 200
_SAME = 1e-6
"""Distance within which the ends of two searches count as equal."""
_TILE = 2048
"""Number of examples whose inner products with all others are computed at once."""


def sectors(w: _Neurons, x: _Points) -> Int[Tensor, "*net node sample"]:
    """Signs of w_j·x_i, one row per neuron (Phuong 2021, definition 3.1)."""
    return (w @ x.mT).sign().to(torch.int8)


def potential_gradient(w: _Neurons, x: _Points, y: _Classes) -> Float[Tensor, "*net node in"]:
    """Gradient g of G(w) = ½ Σ y_i ρ(w·x_i) where no w·x_i is zero (Phuong 2021, eqs. 3.12, B.1)."""
    return ((w @ x.mT > 0) * y.unsqueeze(-2)).to(w) @ x / 2


def extremal_sectors(x: _Points, y: _Classes) -> Int[Tensor, "*net 2 sample"]:
    """Extremal sectors σ+ and σ− of orthogonally separable examples (Phuong 2021, lemma 3.2, eqs. 3.13, 3.14)."""
    signs = two_classes(y)
    unit = torch.nn.functional.normalize(x, dim=-1)
    against = [
        ((some @ unit.mT < 0) & (own.unsqueeze(-1) != signs.unsqueeze(-2))).any(-1)
        for some, own in zip(unit.split(_TILE, -2), signs.split(_TILE, -1), strict=True)
    ]
    other = -torch.cat(against, -1).to(torch.int8)
    one = torch.ones_like(other)
    return torch.stack((torch.where(signs > 0, one, other), torch.where(signs < 0, one, other)), dim=-2)


def extremal_directions(x: _Points, y: _Classes) -> Float[Tensor, "*net 2 in"]:
    """The strict maximum and the strict minimum of G on the sphere, for orthogonally separable examples.

    By Phuong 2021, lemmas B.1 and 3.2, each is the mean of its class, normalised: among the sums over subsets of a
    class, the sum over all of its examples is the longest.
    """
    signs = two_classes(y).to(x)
    sums = torch.stack([(signs == sign).to(x).unsqueeze(-2) @ x for sign in (1, -1)], dim=-3).squeeze(-2)
    return torch.nn.functional.normalize(sums, dim=-1)


def search_extrema(
    starts: Float[Tensor, "start in"], x: Float[Tensor, "sample in"], y: Float[Tensor, "sample"], *, down: bool = False
) -> tuple[Float[Tensor, "start in"], Bool[Tensor, "start"], Bool[Tensor, "start"]]:
    """Ascend G on the sphere from many starts, or descend with `down`.

    Returns the directions of the ends, whether each settled, g(w) = Cw with C > 0 (Phuong 2021, lemma B.1), and whether
    it is off: no example is active, so that G is 0 in a neighbourhood. At a kink of G a search is neither.

    The ascent follows the gradient of G(w) − ½‖w‖², whose local maxima have the directions of those of G on the
    sphere. Along a line this function is quadratic between the points where an example becomes active or inactive, so
    that its first maximum is found exactly. For orthogonally separable examples every w·x_i then moves monotonically,
    and no ascent stops at a kink; for other examples one may, and does not count as settled.
    """
    signs = two_classes(y).to(starts) * (-1 if down else 1)
    w = torch.nn.functional.normalize(starts, dim=-1)
    for _ in range(_STEPS):
        ascent = potential_gradient(w, x, signs) - w
        moving = (ascent + w).any(-1) & (ascent.norm(dim=-1) > _SETTLED * w.norm(dim=-1))
        if not moving.any():
            break
        w = torch.where(moving.unsqueeze(-1), w + _first_maximum(w, ascent, x, signs).unsqueeze(-1) * ascent, w)
    pull = potential_gradient(w, x, signs)
    off = ~(w @ x.T > 0).any(-1)
    settled = ((pull - w).norm(dim=-1) <= _SETTLED * w.norm(dim=-1)) & ~off
    return torch.nn.functional.normalize(w, dim=-1), settled, off


class Extremes(NamedTuple):
    """Ends of searches for the maxima, or minima, of G, compared with Phuong 2021, lemma 3.2."""

    directions: int
    """Number of distinct directions at which searches settled."""
    settled: int
    """Number of searches that settled."""
    off: int
    """Number of searches that ended where no example is active and G is flat."""
    elsewhere: int
    """Number of searches that ended otherwise, for example at a kink."""
    gap: float
    """Largest distance of a settled end from the direction of the lemma; infinite if none settled."""
    agree: bool
    """Whether every settled end lies in the sector of eq. 3.13, or 3.14."""

    @property
    def holds(self) -> bool:
        """Whether all searches that are not off settled at the one direction of the lemma."""
        return self.directions == 1 and self.elsewhere == 0 and self.gap <= _SAME and self.agree


def compare_extrema(
    x: Float[Tensor, "sample in"], y: Float[Tensor, "sample"], count: int, seed: int
) -> tuple[Extremes, Extremes]:
    """Compare Phuong 2021, lemma 3.2 with `count` ascents and `count` descents of G from Gaussian directions."""
    if count < 1:
        raise UserError(f"count must be at least 1 search, got {count}")
    starts = normal(seed, Stream.DIRECTIONS, 0, count * x.shape[1]).view(count, -1).to(x)
    lengths = torch.linalg.vector_norm(x, dim=-1)
    found = []
    for down, wanted, sector in zip((False, True), extremal_directions(x, y), extremal_sectors(x, y), strict=True):
        ends, there, off = search_extrema(starts, x, y, down=down)
        settled = ends[there]
        products = settled @ x.T
        signs = torch.where(products.abs() <= _SETTLED * lengths, 0, products.sign()).to(torch.int8)
        found.append(
            Extremes(
                _count_distinct(settled),
                len(settled),
                int(off.sum()),
                int((~there & ~off).sum()),
                float((settled - wanted).norm(dim=-1).max()) if len(settled) else float("inf"),
                bool((signs == sector).all()),
            )
        )
    return found[0], found[1]


def _count_distinct(directions: Float[Tensor, "end in"]) -> int:
    count = 0
    while len(directions):
        count, directions = count + 1, directions[(directions - directions[0]).norm(dim=-1) > _SAME]
    return count


def _first_maximum(
    w: Float[Tensor, "start in"], ascent: Float[Tensor, "start in"], x: Tensor, y: Tensor
) -> Float[Tensor, "start"]:
    """Step size at which G(w) − ½‖w‖² first stops growing along the ascent; 1 if no example changes before that."""
    at, by = w @ x.T, ascent @ x.T
    when = torch.where(at * by < 0, -at / by, torch.where((at == 0) & (by > 0), 0.0, torch.inf))
    when, order = when.sort(dim=-1)
    # Where an example becomes active or inactive, the slope of ½ y ρ along the line changes by ½ y |x·ascent|.
    turns = torch.where(when.isfinite(), (y * by.abs() / 2).gather(-1, order), 0.0)
    square = ascent.square().sum(-1, keepdim=True)
    zero = torch.zeros_like(square)
    tops = 1 + torch.cat((zero, turns.cumsum(-1)), -1) / square.clamp_min(torch.finfo(w.dtype).tiny)
    begins, ends = torch.cat((zero, when), -1), torch.cat((when, zero + torch.inf), -1)
    first = (tops <= ends).int().argmax(-1, keepdim=True)
    return torch.maximum(begins.gather(-1, first), tops.gather(-1, first)).squeeze(-1)


def in_extremal_sector(
    signs: Int[Tensor, "*#net node sample"], a: Float[Tensor, "*#net node"], extremal: Int[Tensor, "*#net 2 sample"]
) -> Bool[Tensor, "*net node"]:
    """Whether each neuron is in the extremal sector of the sign of its output weight.

    A sector is 0 at an example that is orthogonal to all of the other class. There w·x ≤ 0 is enough: a neuron that
    starts with w·x < 0 never moves along that example. Almost no random set has such an example.
    """
    own = torch.where((a > 0).unsqueeze(-1), extremal[..., :1, :], extremal[..., 1:, :])
    fits = torch.where(own == 0, signs <= 0, signs == own)
    return fits.all(-1) & (a != 0)


class Absorption(NamedTuple):
    """Extremal sectors of neurons over the probes of a recorded path (Phuong 2021, lemma 3.3)."""

    entered: Int[Tensor, "net node"]
    """First probe at which a neuron is in its extremal sector; −1 if never."""
    left: Int[Tensor, "net node"]
    """First probe after that at which it is outside; −1 if it stayed, or never entered."""
    inside: Bool[Tensor, "probe net node"]
    """Whether it is in its extremal sector."""
    silent: Bool[Tensor, "probe net node"]
    """Whether it is active for no example."""


def absorption(
    w: Float[Tensor, "probe net node in"],
    a: Float[Tensor, "probe net node"],
    x: Float[Tensor, "net sample in"],
    y: Float[Tensor, "net sample"],
) -> Absorption:
    """Find when each neuron entered the extremal sector of its sign, and whether it left it.

    Phuong 2021, lemma 3.3 is stated for gradient flow. Steps of any size on any batch keep a neuron in its sector as
    well: only its class is active, and every example of it moves w·x_i away from 0 and increases |a|.
    """
    if not len(w) or len(w) != len(a):
        raise UserError(f"w and a need as many probes, 1 or more, got {len(w)} and {len(a)}")
    for points, classes in zip(x, y, strict=True):
        require_separable(points, classes)
    extremal = extremal_sectors(x, y)
    states = []
    for now, out in zip(w, a, strict=True):  # the signs of all probes at once would fill the memory
        signs = sectors(now, x)
        states.append((in_extremal_sector(signs, out, extremal), ~(signs > 0).any(-1)))
    inside, silent = (torch.stack(each) for each in zip(*states, strict=True))
    gone = inside.cummax(0).values & ~inside
    return Absorption(_first(inside), _first(gone), inside, silent)


def _first(which: Bool[Tensor, "probe net node"]) -> Int[Tensor, "net node"]:
    return torch.where(which.any(0), which.int().argmax(0), -1)
