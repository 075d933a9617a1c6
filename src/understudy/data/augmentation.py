"""Data built with or without knowledge of the teacher (Tian 2020, Definition 7 and fig. 9)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from understudy._errors import UserError
from understudy._random import Stream, normal, uniform
from understudy.data.derived import Derived
from understudy.data.source import Device, Rows, require_counts, require_positive
from understudy.data.synthetic import Gaussian
from understudy.nets import Population
from understudy.teachers.assumptions import double

_SIDES = (0.0, 1.0, -1.0)
"""Sides of the plane on which the samples of one point lie: on it, in front of it, behind it."""


def agnostic(x: Rows, eps: float, nodes: int, c: float = 1.0) -> Float[Tensor, "augmented dim"]:
    """Teacher-agnostic augmentation: D, then x ± 2ε e_u / (c K^{3/2}) for each axis u (Tian 2020, Definition 7a).

    Args:
        x: The samples D.
        eps: ε, which scales the shift.
        nodes: K, the number of first-layer nodes of teacher and student together, m_1 + n_1.
        c: c of the definition, which divides the shift.

    Returns:
        (2d + 1)|D| samples, D first.

    Raises:
        UserError: A number that is not positive.
    """
    shift = _shift(eps, nodes, c) * torch.eye(x.shape[1], dtype=x.dtype, device=x.device)
    moved = [x + sign * along for along in shift for sign in (1.0, -1.0)]
    return torch.cat([x, *moved])


def aware(x: Rows, teacher: Population, eps: float, nodes: int, c: float = 1.0) -> Float[Tensor, "augmented dim"]:
    """Teacher-aware augmentation: D, then x ± 2ε w̃*_j / (c K^{3/2}) for nodes j near x (Tian 2020, Definition 7b).

    Node j of the first layer contributes the x of D in its band I_j(ε) = {x : |w̃*_jᵀx + b_j| ≤ ε}.

    Args:
        x: The samples D.
        teacher: A single teacher, since each has its own number of samples.
        eps: ε, half the width of the band; it also scales the shift.
        nodes: K, as for `agnostic`.
        c: c of the definition, which divides the shift.

    Returns:
        D, then two samples for each node and each sample in its band.

    Raises:
        UserError: Several teachers, or a number that is not positive.
    """
    if len(teacher) != 1:
        raise UserError(
            f"teacher-aware augmentation takes one teacher, got {len(teacher)}: choose one, for example teacher[0]"
        )
    weight, bias = _first_layer(teacher, 0, x.device)
    step = _shift(eps, nodes, c)
    inside = (x.double() @ weight.T + bias).abs() <= eps
    moved = [
        x[near] + (sign * step * w).to(x.dtype)
        for w, near in zip(weight, inside.T, strict=True)
        for sign in (1.0, -1.0)
    ]
    return torch.cat([x, *moved])


def teacher_aware(
    teacher: Population,
    seeds: int | Iterable[int],
    samples: int,
    *,
    moved: tuple[float, float] = (10.0, 11.0),
    std: float = 1.5,
    epoch: int = 0,
) -> Float[Tensor, "net sample dim"]:
    """Samples near the boundaries of each teacher's first-layer nodes: the teacher-aware sets of Tian 2020, fig. 9.

    Points from N(0, std²), the first training points of a Gaussian source with that seed, are projected on the
    boundary of a node (point i on that of node i mod m). Each gives three samples: the projection itself, and the
    projection moved along +w̃ and −w̃; all are rescaled to norm std √d.

    Args:
        teacher: The teachers.
        seeds: One seed per teacher.
        samples: Samples per teacher.
        moved: Range from which the distance is drawn uniformly; (1, 2) is the default of the paper's released code.
        std: Standard deviation of the points.
        epoch: Random step of the draw.

    Returns:
        The samples of each teacher, in its precision and on its device.

    Raises:
        UserError: A wrong number of seeds, or an option out of range.
    """
    names = [int(seeds)] if isinstance(seeds, int) else [int(s) for s in seeds]
    if len(names) != len(teacher):
        raise UserError(f"seeds must be one per teacher ({len(teacher)}), got {len(names)}")
    _require_set(samples, moved, std)
    sets = [_sample_near_planes(teacher, n, seed, samples, moved, std, epoch) for n, seed in enumerate(names)]
    return torch.stack(sets).to(device=teacher.device, dtype=teacher.dtype)


@dataclass(frozen=True, eq=False)
class TeacherAware:
    """Source of `teacher_aware` training samples and plain Gaussian evaluation samples.

    A network uses the teacher of its seed; teachers of one seed must have the same first layer.

    `moved` and `std` are those of `teacher_aware`; the other arguments are those of `Gaussian`.
    """

    teacher: Population
    train: int = 10_000
    evaluation: int = 10_000
    moved: tuple[float, float] = (10.0, 11.0)
    std: float = 1.5
    fresh: bool = False

    def __post_init__(self) -> None:
        require_counts(evaluation=self.evaluation)
        _require_set(self.train, self.moved, self.std, field="train")

    @property
    def dim(self) -> int:
        """Numbers per sample."""
        return self.teacher.inputs

    def training(
        self, seed: int, epoch: int = 1, *, dtype: torch.dtype = torch.float32, device: Device = "cpu"
    ) -> Rows:
        """Training inputs of the network with this seed.

        Args:
            seed: Seed of the network.
            epoch: Epoch, counted from 1; it matters only if `fresh`.
            dtype: Precision of the result.
            device: Device of the result.

        Raises:
            UserError: No teacher has this seed, or teachers of this seed differ in their first layer.
        """
        which, step = self._find_teacher(seed), epoch if self.fresh else 0
        x = _sample_near_planes(self.teacher, which, seed, self.train, self.moved, self.std, step, device)
        return x.to(dtype)

    def evaluating(self, seed: int, *, dtype: torch.dtype = torch.float32, device: Device = "cpu") -> Rows:
        """Evaluation inputs of the network with this seed.

        Args:
            seed: Seed of the network.
            dtype: Precision of the result.
            device: Device of the result.
        """
        plain = Gaussian(self.dim, std=self.std, evaluation=self.evaluation)
        return plain.evaluating(seed, dtype=dtype, device=device)

    def _find_teacher(self, seed: int) -> int:
        found = (self.teacher.seeds == seed).nonzero().flatten().tolist()
        if not found:
            known = sorted({int(s) for s in self.teacher.seeds})
            raise UserError(f"no teacher has seed {seed}: choose one of the teachers' seeds, {known[0]} to {known[-1]}")
        for part in self.teacher.layers[0]:
            if part is not None and not (part[found] == part[found[0]]).all():
                raise UserError(f"teachers of seed {seed} differ in their first layer: give each its own seed")
        return int(found[0])


@dataclass(frozen=True, eq=False)
class Augmented(Derived):
    """Source of augmented training samples aug(D), on which theorems 3 and 4 of Tian 2020 train (Definition 7).

    D are the training samples of another source, whose evaluation samples stay as they are.

    Args:
        source: The other source.
        eps: ε, which scales the shift.
        nodes: K, the number of first-layer nodes of teacher and student together, m_1 + n_1.
        c: c of the definition, which divides the shift.
        teacher: Makes the augmentation teacher-aware (`aware`); without it, it is teacher-agnostic (`agnostic`). A
            single teacher, since each has its own number of samples: the source serves the network of its seed.

    Raises:
        UserError: A number that is not positive, several teachers, or a teacher-aware augmentation of fresh samples.
    """

    eps: float
    nodes: int
    c: float = 1.0
    teacher: Population | None = None

    def __post_init__(self) -> None:
        _shift(self.eps, self.nodes, self.c)
        if self.teacher is not None and self.fresh:
            raise UserError("the number of teacher-aware samples differs between epochs: give a source without fresh")
        if self.teacher is not None and len(self.teacher) != 1:
            raise UserError(
                f"teacher-aware augmentation takes one teacher, got {len(self.teacher)}: make one source for each"
            )

    @cached_property
    def train(self) -> int:
        """Number of augmented training samples."""
        if self.teacher is None:
            return (2 * self.dim + 1) * self.source.train
        return len(self.training(int(self.teacher.seeds[0])))

    def training(
        self, seed: int, epoch: int = 1, *, dtype: torch.dtype = torch.float32, device: Device = "cpu"
    ) -> Rows:
        """Training inputs of the network with this seed: D, then the shifted samples.

        Args:
            seed: Seed of the network.
            epoch: Epoch, counted from 1; it matters only if `fresh`.
            dtype: Precision of the result.
            device: Device of the result.

        Raises:
            UserError: The seed is not the teacher's, where the augmentation is teacher-aware.
        """
        x = self.source.training(seed, epoch, dtype=torch.float64, device=device)
        if self.teacher is None:
            return agnostic(x, self.eps, self.nodes, self.c).to(dtype)
        if (own := int(self.teacher.seeds[0])) != seed:
            raise UserError(f"these samples are made for the teacher of seed {own}, got a network of seed {seed}")
        return aware(x, self.teacher, self.eps, self.nodes, self.c).to(dtype)


def _sample_near_planes(
    teacher: Population,
    which: int,
    seed: int,
    samples: int,
    moved: tuple[float, float],
    std: float,
    step: int,
    device: Device = "cpu",
) -> Float[Tensor, "sample dim"]:
    """Draw the teacher-aware samples of one network in float64."""
    weight, bias = _first_layer(teacher, which, device)
    dim = weight.shape[1]
    points = -(-samples // len(_SIDES))
    x = std * normal(seed, Stream.TRAIN, step, points * dim, str(device)).view(points, dim)
    low, high = moved
    distance = low + (high - low) * uniform(seed, Stream.AUGMENTATION, step, points, str(device))
    node = torch.arange(points, device=weight.device) % len(weight)
    sides = torch.tensor(_SIDES, dtype=torch.float64, device=weight.device)
    signed = (distance.unsqueeze(1) * sides).flatten()
    x, node = (each.repeat_interleave(len(_SIDES), dim=0) for each in (x, node))
    moved_x = _move_to_distance(x, weight[node], bias[node], signed)[:samples]
    return moved_x * (std * math.sqrt(dim) / torch.linalg.vector_norm(moved_x, dim=1, keepdim=True))


def _move_to_distance(x: Rows, weight: Rows, bias: Float[Tensor, "sample"], distance: Float[Tensor, "sample"]) -> Rows:
    """Move each point along the normal of its plane w̃ᵀx + b = 0 to a signed distance from it."""
    length: Tensor = torch.linalg.vector_norm(weight, dim=1)
    now = ((weight * x).sum(1) + bias) / length
    return x + ((distance - now) / length).unsqueeze(1) * weight


def _first_layer(
    teacher: Population, which: int, device: Device
) -> tuple[Float[Tensor, "node dim"], Float[Tensor, "node"]]:
    weight, bias = double(teacher[which].layers[0])
    return weight.to(device), bias.to(device)


def _shift(eps: float, nodes: int, c: float) -> float:
    require_positive(eps=eps, c=c)
    require_counts(nodes=nodes)
    return 2.0 * eps / (c * nodes * math.sqrt(nodes))


def _require_set(samples: int, moved: tuple[float, float], std: float, *, field: str = "samples") -> None:
    require_counts(**{field: samples})
    require_positive(std=std)
    low, high = moved
    if not (math.isfinite(high) and 0 <= low <= high):
        raise UserError(f"moved must be two distances with 0 ≤ first ≤ second, got {moved}")
