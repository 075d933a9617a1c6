"""What S0's theorems ask of data: η and μ of Definition 6, τ of Assumption 3, samples a band, augmentation."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from understudy._random import Stream, normal, uniform
from understudy.theory.boundaries import Planes
from understudy.theory.isolation import scatter
from understudy.theory.scene import Scene, joined

WIDTHS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
"""The ε at which bands are counted."""
RANDOM = 256
_AT_ONCE = 1 << 16
"""Pairs of points that are looked at together."""


class Attained(NamedTuple):
    """A constant of the data, and the plane that attains it."""

    value: float
    where: str


class Conditions(NamedTuple):
    """The data as the theorems see it; nodes are those of the teacher's lowest layer that have a boundary."""

    eta_own: Attained
    """The smallest η of Definition 6 over the boundaries of both networks."""
    eta_random: Attained
    mu_own: Attained
    mu_random: Attained
    mu_bound: float
    """The largest second moment in any direction: no direction needs a larger μ (Chebyshev)."""
    nodes: Int[Tensor, "teacher"]
    bands: Int[Tensor, "teacher width"]
    """Samples in I_j(ε), for ε in `WIDTHS`."""
    tau: Float[Tensor, "teacher"]
    """The largest τ with N[I_j(ε)] ≥ τ ε N at all of these ε (Assumption 3 b)."""
    crossed: Bool[Tensor, "teacher"]
    """Whether samples lie on both sides of the boundary."""
    aware: Float[Tensor, "teacher"]
    """Share of the samples within the widest band that come with both points of Definition 7 (b)."""
    agnostic: float
    """Share of all samples that come with both points along every axis (Definition 7 a)."""


def conditions(sight: Scene, seed: int = 1) -> Conditions:
    """All of it, for the data of a scene."""
    x, dim = sight.x, sight.x.shape[1]
    own = joined(sight.ours, sight.theirs)
    names = [f"student node {int(k)}" for k in sight.students] + [f"teacher node {int(j)}" for j in sight.nodes]
    random = _random(x, seed)
    drawn = [f"random direction {i}" for i in range(len(random))]
    away = sight.theirs.distances(x)
    widths = x.new_tensor(WIDTHS)
    bands = (away.abs().unsqueeze(2) <= widths).sum(0)
    inside = away.abs() <= WIDTHS[-1]
    axes = torch.eye(dim, dtype=x.dtype)
    along_axes = torch.ones(len(x), dtype=torch.bool)
    for axis in axes:
        along_axes &= neighboured(x, axis)
        if not along_axes.any():
            break
    # On a line every direction is the axis.
    moved = [along_axes if dim == 1 else neighboured(x, normal_) for normal_ in sight.theirs.normal]
    return Conditions(
        _most(scatter(own.distances(x), dim), names),
        _most(scatter(random.distances(x), dim), drawn),
        _most(_tails(own, x), names),
        _most(_tails(random, x), drawn),
        float(torch.linalg.eigvalsh(x.T @ x / len(x))[-1]),
        sight.nodes,
        bands,
        (bands / (widths * len(x))).amin(1),
        (away > 0).any(0) & (away < 0).any(0),
        torch.tensor([float(m[i].double().mean()) if i.any() else 0.0 for m, i in zip(moved, inside.T, strict=True)]),
        float(along_axes.double().mean()),
    )


def _most(values: Float[Tensor, "plane"], names: list[str]) -> Attained:
    return Attained(float(values.max()), names[int(values.argmax())]) if len(values) else Attained(0.0, "no plane")


def _random(x: Float[Tensor, "sample in"], seed: int) -> Planes:
    """Planes of random directions through samples."""
    dim = x.shape[1]
    toward = normal(seed, Stream.DIRECTIONS, 0, RANDOM * dim).view(RANDOM, dim).to(x)
    toward = toward / torch.linalg.vector_norm(toward, dim=1, keepdim=True)
    through = x[(uniform(seed, Stream.DIRECTIONS, 1, RANDOM) * len(x)).long().clamp_max(len(x) - 1)]
    return Planes(toward, -(toward * through).sum(1))


def _tails(several: Planes, x: Float[Tensor, "sample in"]) -> Float[Tensor, "plane"]:
    """The smallest μ with N[|w̃ᵀx̃| ≥ 1/t] ≤ μ t² N for all t, of each direction (eqn 7)."""
    far = (several.normal @ x.T).abs().sort(dim=1, descending=True).values
    ranks = torch.arange(1, len(x) + 1, dtype=x.dtype)
    return (ranks * far.square() / len(x)).amax(1)


def neighboured(x: Float[Tensor, "sample in"], along: Float[Tensor, "in"]) -> Bool[Tensor, "sample"]:
    """Which samples come with x + s·along and x − s·along for some s: what an augmentation leaves in the data.

    Samples on one line of that direction are told by two random projections of what is left without it, and lie next to
    each other when sorted by these.
    """
    samples, dim = x.shape
    length = (x * along).sum(1)
    flat = x - length.unsqueeze(1) * along
    scale = float(x.abs().max()) + 1e-300
    mark = (flat @ normal(7, Stream.DIRECTIONS, 2, dim).to(x) / scale * 1e9).round() if dim > 1 else length * 0
    order = torch.argsort(length, stable=True)
    order = order[torch.argsort(mark[order], stable=True)]
    found = torch.zeros(samples, dtype=torch.bool)
    _, runs = torch.unique_consecutive(mark[order], return_counts=True)
    start = 0
    for count in runs.tolist():
        if count >= 3:
            line = order[start : start + count]
            found[line] = _symmetric(length[line], scale)
        start += count
    return found


def _symmetric(positions: Float[Tensor, "point"], scale: float) -> Bool[Tensor, "point"]:
    """Of positions on a line, which have two others at equal distances on either side.

    Equal up to rounding; on long lines nearly to the last bit, since with many pairs others come close by chance.
    """
    places, back = torch.unique(positions, return_inverse=True)
    count = len(places)
    slack = scale * min(1e-9, max(1e-3 / count**2, 1e-14))
    has = torch.zeros(count, dtype=torch.bool)
    start = 0
    while start < count:
        # One of the two is on the side that has fewer points.
        left = 2 * start < count
        stop = start + max(1, _AT_ONCE // (count - start if not left else count // 2 + 1))
        stop = min(stop, (count + 1) // 2 if left else count)
        some, others = places[start:stop].unsqueeze(1), places[:stop] if left else places[start:]
        mirrored = 2 * some - others
        near = torch.searchsorted(places, mirrored).clamp_max(count - 1)
        off = torch.minimum((places[near] - mirrored).abs(), (places[(near - 1).clamp_min(0)] - mirrored).abs())
        has[start:stop] = ((off <= slack) & ((some - others).abs() > slack)).any(1)
        start = stop
    return has[back]
