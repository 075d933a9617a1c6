"""Data made with or without knowledge of the teacher: the augmentations of S0 Definition 7 and the sets of S0 fig 9."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from understudy._random import Stream, normal, uniform
from understudy.data.synthetic import Device, Gaussian, require_counts, require_positive
from understudy.errors import UserError
from understudy.nets import Population

_SIDES = (0.0, 1.0, -1.0)
"""Where the samples that one point gives lie: on the plane, before it, behind it."""


def agnostic(x: Float[Tensor, "sample dim"], eps: float, nodes: int, c: float = 1.0) -> Float[Tensor, "augmented dim"]:
    """S0 Definition 7 (a): D, then x ± 2ε e_u / (c K^{3/2}) for each direction u; (2d + 1)|D| samples.

    K = `nodes` counts the nodes of teacher and student, m_1 + n_1.
    """
    shift = _shift(eps, nodes, c) * torch.eye(x.shape[1], dtype=x.dtype, device=x.device)
    moved = [x + sign * along for along in shift for sign in (1.0, -1.0)]
    return torch.cat([x, *moved])


def aware(
    x: Float[Tensor, "sample dim"], teacher: Population, eps: float, nodes: int, c: float = 1.0
) -> Float[Tensor, "augmented dim"]:
    """S0 Definition 7 (b): D, then x ± 2ε w̃*_j / (c K^{3/2}) for each first-layer node j and each x of D in its band.

    The band I_j(ε) holds the x with |w̃*_jᵀx + b_j| ≤ ε. One teacher at a time: each has its own number of samples.
    """
    if len(teacher) != 1:
        raise UserError(f"teacher-aware augmentation takes one teacher, got {len(teacher)}: choose one, as teacher[0]")
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
    """Points beside the planes of each teacher's first-layer nodes: the teacher-aware sets of S0 fig 9.

    N(0, std²) points, the first that a Gaussian source of that seed trains on, are projected on the plane of a node
    (nodes in turn: point i goes to node i mod m). Each gives three samples: itself on the plane, and moved along +w̃ and
    −w̃ by a distance uniform in `moved`; all are rescaled to norm std √d. `moved=(1, 2)` is what the paper's released
    code does by default. One seed per network.
    """
    names = [int(seeds)] if isinstance(seeds, int) else [int(s) for s in seeds]
    if len(names) != len(teacher):
        raise UserError(f"seeds must be one per teacher ({len(teacher)}), got {len(names)}")
    _require_set(samples, moved, std)
    sets = [_beside_planes(teacher, n, seed, samples, moved, std, epoch) for n, seed in enumerate(names)]
    return torch.stack(sets).to(device=teacher.device, dtype=teacher.dtype)


@dataclass(frozen=True, eq=False)
class TeacherAware:
    """A source that trains on `teacher_aware` points and evaluates on plain Gaussian ones.

    Asked by seed, it uses the teacher of that seed; teachers of one seed have one first layer, whatever their polarity.
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
        return self.teacher.inputs

    def training(
        self, seed: int, epoch: int = 1, *, dtype: torch.dtype = torch.float32, device: Device = "cpu"
    ) -> Float[Tensor, "train dim"]:
        which = self._network(seed)
        step = epoch if self.fresh else 0
        x = _beside_planes(self.teacher, which, seed, self.train, self.moved, self.std, step, device)
        return x.to(dtype)

    def evaluating(
        self, seed: int, *, dtype: torch.dtype = torch.float32, device: Device = "cpu"
    ) -> Float[Tensor, "evaluation dim"]:
        plain = Gaussian(self.dim, std=self.std, evaluation=self.evaluation)
        return plain.evaluating(seed, dtype=dtype, device=device)

    def _network(self, seed: int) -> int:
        found = (self.teacher.seeds == seed).nonzero().flatten().tolist()
        if not found:
            known = sorted({int(s) for s in self.teacher.seeds})
            raise UserError(
                f"no teacher of seed {seed}; theirs go from {known[0]} to {known[-1]}: ask for one of these"
            )
        for part in self.teacher.layers[0]:
            if part is not None and not (part[found] == part[found[0]]).all():
                raise UserError(f"teachers of seed {seed} differ in their first layer: give each its own seed")
        return int(found[0])


def _beside_planes(
    teacher: Population,
    which: int,
    seed: int,
    samples: int,
    moved: tuple[float, float],
    std: float,
    step: int,
    device: Device = "cpu",
) -> Float[Tensor, "sample dim"]:
    """One network's teacher-aware points in float64."""
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
    beside = _at_distance(x, weight[node], bias[node], signed)[:samples]
    return _of_norm(beside, std * math.sqrt(dim))


def _at_distance(
    x: Float[Tensor, "sample dim"],
    weight: Float[Tensor, "sample dim"],
    bias: Float[Tensor, "sample"],
    distance: Float[Tensor, "sample"],
) -> Float[Tensor, "sample dim"]:
    """Each point carried along its plane's normal to a signed distance from the plane w̃ᵀx + b = 0."""
    length: Tensor = torch.linalg.vector_norm(weight, dim=1)
    now = ((weight * x).sum(1) + bias) / length
    return x + ((distance - now) / length).unsqueeze(1) * weight


def _of_norm(x: Float[Tensor, "sample dim"], norm: float) -> Float[Tensor, "sample dim"]:
    now: Tensor = torch.linalg.vector_norm(x, dim=1, keepdim=True)
    return x * (norm / now)


def _first_layer(
    teacher: Population, which: int, device: Device
) -> tuple[Float[Tensor, "node dim"], Float[Tensor, "node"]]:
    layer = teacher.layers[0]
    weight = layer.weight[which].to(device, torch.float64)
    bias = weight.new_zeros(len(weight)) if layer.bias is None else layer.bias[which].to(device, torch.float64)
    return weight, bias


def _shift(eps: float, nodes: int, c: float) -> float:
    require_positive(eps=eps, c=c)
    require_counts(nodes=nodes)
    return 2.0 * eps / (c * nodes * math.sqrt(nodes))


def _require_set(samples: int, moved: tuple[float, float], std: float, *, field: str = "samples") -> None:
    require_counts(**{field: samples})
    require_positive(std=std)
    low, high = moved
    if not (math.isfinite(high) and 0 <= low <= high):
        raise UserError(f"moved must be two distances, 0 ≤ least ≤ most, got {moved}")
