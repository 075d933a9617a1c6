"""Conditions on the data in Tian 2020: η and μ (definition 6), τ (assumption 3), samples per band, augmentation."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from understudy._random import Stream, normal, uniform
from understudy.theory.boundaries import Planes, concatenate
from understudy.theory.isolation import smallest_eta, sorted_rows
from understudy.theory.pair_geometry import PairGeometry

WIDTHS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
"""Half-widths ε of the bands in which samples are counted."""
RANDOM = 256
"""Number of random planes."""
_PLANES = 16
"""Number of planes whose distances from all samples are sorted together."""
_PAIRS_AT_ONCE = 1 << 16
"""Pairs of points that are compared together."""


class Attained(NamedTuple):
    """A constant of the data, and the plane that attains it."""

    value: float
    where: str


class DataConditions(NamedTuple):
    """Constants of the data; nodes are those of the teacher's lowest layer that have a boundary."""

    eta_own: Attained
    """Smallest η of definition 6 over the boundaries of both networks."""
    eta_random: Attained
    mu_own: Attained
    mu_random: Attained
    mu_bound: float
    """Largest second moment in any direction: no direction needs a larger μ (Chebyshev)."""
    nodes: Int[Tensor, "teacher"]
    bands: Int[Tensor, "teacher width"]
    """Number of samples in I_j(ε), for ε in `WIDTHS`."""
    tau: Float[Tensor, "teacher"]
    """Largest τ with N[I_j(ε)] ≥ τ ε N at all of these ε (assumption 3 b)."""
    crossed: Bool[Tensor, "teacher"]
    """Whether samples lie on both sides of the boundary."""
    aware: Float[Tensor, "teacher"]
    """Share of the samples in the widest band that come with both points of definition 7 (b)."""
    agnostic: float
    """Share of all samples that come with both points along every axis (definition 7 a)."""


def conditions(pair: PairGeometry, seed: int = 1) -> DataConditions:
    """Measure the conditions on the data of a pair; `seed` draws the random planes."""
    x, dim = pair.x, pair.x.shape[1]
    own = concatenate(pair.student_planes, pair.teacher_planes)
    names = [f"student node {int(k)}" for k in pair.student_nodes]
    names += [f"teacher node {int(j)}" for j in pair.teacher_nodes]
    random = _random_planes(x, seed)
    random_names = [f"random direction {i}" for i in range(len(random))]
    away = pair.teacher_sample_distances
    widths = x.new_tensor(WIDTHS)
    bands = (away.abs().unsqueeze(2) <= widths).sum(0)
    inside = away.abs() <= WIDTHS[-1]
    lines, along_axes = Lines.of(x), torch.ones(len(x), dtype=torch.bool)
    for axis in torch.eye(dim, dtype=x.dtype):
        along_axes &= has_mirrored_pair(x, axis, lines)
        if not along_axes.any():
            break
    # With a single input, every direction is the axis.
    along = [along_axes if dim == 1 else has_mirrored_pair(x, weight, lines) for weight in pair.teacher_planes.normal]
    aware = [float(a[i].double().mean()) if i.any() else 0.0 for a, i in zip(along, inside.T, strict=True)]
    return DataConditions(
        eta_own=_largest(_smallest_etas(own, x), names),
        eta_random=_largest(_smallest_etas(random, x), random_names),
        mu_own=_largest(_smallest_mu(own, x), names),
        mu_random=_largest(_smallest_mu(random, x), random_names),
        mu_bound=float(torch.linalg.eigvalsh(x.T @ x / len(x))[-1]),
        nodes=pair.teacher_nodes,
        bands=bands,
        tau=(bands / (widths * len(x))).amin(1),
        crossed=(away > 0).any(0) & (away < 0).any(0),
        aware=torch.tensor(aware),
        agnostic=float(along_axes.double().mean()),
    )


def _largest(values: Float[Tensor, "plane"], names: list[str]) -> Attained:
    return Attained(float(values.max()), names[int(values.argmax())]) if len(values) else Attained(0.0, "no plane")


def _random_planes(x: Float[Tensor, "sample in"], seed: int) -> Planes:
    """Planes with random normals through random samples."""
    dim = x.shape[1]
    toward = normal(seed, Stream.DIRECTIONS, 0, RANDOM * dim).view(RANDOM, dim).to(x)
    toward = toward / torch.linalg.vector_norm(toward, dim=1, keepdim=True)
    through = x[(uniform(seed, Stream.DIRECTIONS, 1, RANDOM) * len(x)).long().clamp_max(len(x) - 1)]
    return Planes(toward, -(toward * through).sum(1))


def _smallest_etas(planes: Planes, x: Float[Tensor, "sample in"]) -> Float[Tensor, "plane"]:
    """Smallest η of each plane, a few planes at a time."""
    parts = (planes.select(some) for some in torch.arange(len(planes)).split(_PLANES))
    return torch.cat([smallest_eta(part.distances(x), x.shape[1]) for part in parts])


def _smallest_mu(planes: Planes, x: Float[Tensor, "sample in"]) -> Float[Tensor, "plane"]:
    """Smallest μ per direction with N[|w̃ᵀx̃| ≥ 1/t] ≤ μ t² N for all t (eqn 7)."""
    ranks = torch.arange(len(x), 0, -1, dtype=x.dtype)
    each = (sorted_rows((some @ x.T).abs()) for some in planes.normal.split(_PLANES))
    return torch.cat([(ranks * far.square() / len(x)).amax(1) for far in each])


class Lines(NamedTuple):
    """What identifies lines through samples, whatever their direction."""

    toward: Float[Tensor, "in"]
    """A random direction."""
    projection: Float[Tensor, "sample"]
    """The samples along it."""
    scale: float

    @staticmethod
    def of(x: Float[Tensor, "sample in"]) -> Lines:
        toward = normal(7, Stream.DIRECTIONS, 2, x.shape[1]).to(x)
        return Lines(toward, x @ toward, float(x.abs().max()) + 1e-300)


def has_mirrored_pair(
    x: Float[Tensor, "sample in"], along: Float[Tensor, "in"], lines: Lines | None = None
) -> Bool[Tensor, "sample"]:
    """Whether the data contains x + s·along and x − s·along for some s, per sample: the trace of an augmentation.

    Samples on a common line of that direction are identified by a random projection of the remaining coordinates, and
    are neighbours when sorted by it.
    """
    samples, dim = x.shape
    length = x @ along
    toward, projection, scale = lines or Lines.of(x)
    mark = ((projection - length * (along @ toward)) / scale * 1e9).round() if dim > 1 else length * 0
    found = torch.zeros(samples, dtype=torch.bool)
    near = sorted_rows(mark.unsqueeze(0))[0]
    if not bool((near[2:] == near[:-2]).any()):  # no three samples on one line
        return found
    order = torch.argsort(length, stable=True)
    order = order[torch.argsort(mark[order], stable=True)]
    _, runs = torch.unique_consecutive(mark[order], return_counts=True)
    long = (runs >= 3).nonzero().flatten()
    for end, count in zip(runs.cumsum(0)[long].tolist(), runs[long].tolist(), strict=True):
        line = order[end - count : end]
        found[line] = _is_midpoint(length[line], scale)
    return found


def _is_midpoint(positions: Float[Tensor, "point"], scale: float) -> Bool[Tensor, "point"]:
    """Whether a position on a line is the midpoint of two others.

    Equal up to rounding; on long lines nearly to the last bit, because with many pairs some come close by chance.
    """
    places, back = torch.unique(positions, return_inverse=True)
    count = len(places)
    slack = scale * min(1e-9, max(1e-3 / count**2, 1e-14))
    found = torch.zeros(count, dtype=torch.bool)
    start = 0
    while start < count:
        # One of the two points is on the side with fewer points.
        left = 2 * start < count
        stop = start + max(1, _PAIRS_AT_ONCE // (count - start if not left else count // 2 + 1))
        stop = min(stop, (count + 1) // 2 if left else count)
        some, others = places[start:stop].unsqueeze(1), places[:stop] if left else places[start:]
        mirrored = 2 * some - others
        near = torch.searchsorted(places, mirrored).clamp_max(count - 1)
        off = torch.minimum((places[near] - mirrored).abs(), (places[(near - 1).clamp_min(0)] - mirrored).abs())
        found[start:stop] = ((off <= slack) & ((some - others).abs() > slack)).any(1)
        start = stop
    return found[back]
