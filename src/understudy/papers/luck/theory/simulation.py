"""Simulation of two-layer students by the matrix dynamics (Tian et al. 2019, eq. 6, fig. 7, theorems 4 and 5).

With whitened inputs and factorised expectations, Ẇ = W*H* − WH and V̇ = L*V* − LV, where H* = (V*Vᵀ) ∘ D* and
H = (VVᵀ) ∘ D (theorems 2 and 5). The columns of W in the paper are the extended weights [w, b] of the hidden nodes, the
rows of V their fan-outs. There is no output bias.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from understudy import teachers
from understudy._errors import UserError
from understudy._random import Stream, normal
from understudy.nets import Layer, Population
from understudy.papers.luck.theory.near_students import projected_velocity
from understudy.papers.luck.theory.overlap import Overlaps, angles, extended_weights, gaussian
from understudy.teachers.rarely_coactive import rarely_coactive

Rule = Literal["rescaled", "free", "sgd"]
"""Eq. 6 with the columns of W and V rescaled to length 1 after every step, eq. 6 without that, or SGD."""
_AT_ONCE = 1 << 22
"""Number of inputs drawn at once on a GPU."""


def unit_columns(
    sizes: tuple[int, int, int], *, seeds: Iterable[int], dtype: torch.dtype = torch.float32
) -> Population:
    """Draw the teachers of Tian et al. 2019, fig. 7: weights and biases from {−.5, …, .5}, in columns of length 1.

    The extended weights [w, b] of every node and the weights of every output are scaled to length 1.
    """
    dim, nodes, outputs = sizes
    drawn = teachers.distinct_rows((dim + 1, nodes, outputs), seeds=seeds, dtype=torch.float64)
    (wide, _), (top, _) = drawn.layers
    lengths = top.norm(dim=2, keepdim=True)
    if not lengths.all():
        raise UserError(
            f"an output of a teacher of sizes {sizes} has only zero weights: give the teacher more hidden nodes"
        )
    layers = Layer(wide[:, :, :-1], wide[:, :, -1]), Layer(top / lengths, None)
    return Population(layers, drawn.seeds).to(dtype=dtype)


def lucky_pair(
    nodes: int,
    others: int,
    dim: int,
    *,
    threshold: float,
    cosine: float,
    angle: float,
    missed: float,
    fan_out: float,
    seeds: Iterable[int],
) -> tuple[Population, Population]:
    """Draw teachers and students of theorems 4 and 5 in float64: one near each teacher node, and `others` without one.

    All hidden nodes start from those of `rarely_coactive`. The first `nodes` are moved off their teacher nodes by about
    `angle` radians and their fan-outs by `missed`; the fan-outs of the others have length `fan_out`.
    """
    count = nodes + others
    whole = rarely_coactive(count, dim, max(count, 2), threshold=threshold, cosine=cosine, seeds=seeds)
    w, v = extended_weights(whole.layers[0]), whole.layers[1].weight

    def noise(layer: int, shape: torch.Size, along: int) -> Tensor:
        drawn = torch.stack([normal(int(s), Stream.STUDENT, layer << 32, shape.numel()) for s in whole.seeds])
        drawn = drawn.view(-1, *shape)
        return drawn / drawn.norm(dim=along, keepdim=True)

    off, push = noise(0, w.shape[1:], 2), noise(1, v.shape[1:], 1)
    near = torch.arange(count) < nodes
    moved = torch.where(near.unsqueeze(1), w + angle * off, w)
    tops = torch.where(near, v + missed * push, fan_out * push)
    unit = moved / moved.norm(dim=2, keepdim=True)
    return with_weights(whole, w[:, :nodes], v[:, :, :nodes]), with_weights(whole, unit, tops)


def simulate(
    teacher: Population, students: Population, *, rule: Rule, lr: float = 0.05, batch: int = 64, probes: Sequence[int]
) -> Iterator[Population]:
    """Yield the students after each number of steps in `probes`, in ascending order.

    Every step takes a new N(0, I) batch, which depends on the seed of the network only. On the CPU the steps are
    compiled (`simulation_cpu`) and run on all cores; on a GPU they are tensor operations (`step`).
    """
    _validate(teacher, students)
    now, w_star, v_star = students, extended_weights(teacher.layers[0]), teacher.layers[1].weight
    advance = _advance_compiled if students.device.type == "cpu" else _advance_tensors
    at = 0
    for probe in probes:
        now = advance(w_star, v_star, now, rule, lr, batch, at, probe)
        at = probe
        yield now


def step(
    w_star: Float[Tensor, "net teacher in"],
    v_star: Float[Tensor, "net out teacher"],
    w: Float[Tensor, "net node in"],
    v: Float[Tensor, "net out node"],
    x: Float[Tensor, "net sample in"],
    lr: float,
    rule: Rule,
) -> tuple[Float[Tensor, "net node in"], Float[Tensor, "net out node"]]:
    """Extended weights and fan-outs after one step; the last column of x is 1."""
    z, z_star = x @ w.mT, x @ w_star.mT
    f, f_star = z.clamp_min(0), z_star.clamp_min(0)
    missed = (f_star @ v_star.mT - f @ v.mT) / x.shape[1]
    if rule == "sgd":
        dw = ((missed @ v) * (z > 0)).mT @ x
    else:
        open_, open_star = (z > 0).to(x), (z_star > 0).to(x)
        h_star = (v.mT @ v_star) * (open_.mT @ open_star) / x.shape[1]
        h = (v.mT @ v) * (open_.mT @ open_) / x.shape[1]
        dw = h_star @ w_star - h @ w
    w, v = w + lr * dw, v + lr * missed.mT @ f
    if rule == "rescaled":
        w, v = w / w.norm(dim=-1, keepdim=True), v / v.norm(dim=-1, keepdim=True)
    return w, v


def _validate(teacher: Population, students: Population) -> None:
    for name, networks in (("teachers", teacher), ("students", students)):
        (_, bias), (_, top) = networks.layers
        if len(networks.layers) != 2 or bias is None or top is not None or networks.slope or networks.norms:
            raise UserError(f"the {name} must have two layers, ReLU, hidden biases and no output bias")
    if len(teacher) != len(students) or (teacher.sizes[0], teacher.sizes[2]) != (students.sizes[0], students.sizes[2]):
        raise UserError(
            "one student per teacher is needed, with the same inputs and outputs, got "
            f"{len(teacher)} teachers of sizes {teacher.sizes} and {len(students)} students of sizes {students.sizes}"
        )


def with_weights(networks: Population, w: Tensor, v: Tensor) -> Population:
    """Networks with the extended weights w and the fan-outs v."""
    return Population((Layer(w[:, :, :-1], w[:, :, -1]), Layer(v, None)), networks.seeds, networks.slope)


def _advance_tensors(
    w_star: Tensor, v_star: Tensor, now: Population, rule: Rule, lr: float, batch: int, first: int, last: int
) -> Population:
    w, v = extended_weights(now.layers[0]), now.layers[1].weight
    seeds, which = now.seeds.unique(return_inverse=True)
    count = batch * now.sizes[0]
    several = max(1, _AT_ONCE // (count * len(seeds)))
    for start in range(first, last, several):
        steps = torch.arange(start, min(start + several, last), device=now.device)
        # A step draws what `data.Gaussian` draws for the seed in the epoch of that number.
        for drawn in normal(seeds, Stream.TRAIN, steps.unsqueeze(1), count, str(seeds.device)):
            x = drawn.to(w).view(len(seeds), batch, -1)
            x = torch.cat((x, torch.ones_like(x[..., :1])), dim=-1)[which]
            w, v = step(w_star, v_star, w, v, x, lr, rule)
    return with_weights(now, w, v)


def _advance_compiled(
    w_star: Tensor, v_star: Tensor, now: Population, rule: Rule, lr: float, batch: int, first: int, last: int
) -> Population:
    from understudy.papers.luck.theory import simulation_cpu as compiled
    from understudy.training.parallel import run_parallel

    _, nodes, outputs = now.sizes
    w, v = _pad(extended_weights(now.layers[0]).mT), _pad(now.layers[1].weight.mT, rows=True)
    theirs = _pad(w_star.mT), _pad(v_star.mT, rows=True)

    def advance(rows: np.ndarray) -> None:
        ours, tops, seed = w[rows], v[rows], int(now.seeds[rows[0]])
        compiled.run(
            ours, tops, *(t[rows] for t in theirs), nodes, outputs, seed, first, last - first, batch, lr,
            rule != "sgd", rule == "rescaled",
        )  # fmt: skip
        w[rows], v[rows] = ours, tops

    groups = [np.flatnonzero(now.seeds.numpy() == seed) for seed in now.seeds.unique().numpy()]
    run_parallel(advance, groups, now.device)
    weight, top = torch.from_numpy(w[:, :, :nodes]).mT, torch.from_numpy(v[:, :nodes, :outputs]).mT
    return with_weights(now, weight.contiguous(), top.contiguous())


def _pad(matrices: Tensor, rows: bool = False) -> np.ndarray:
    """Copy matrices with columns, and if wanted rows, padded with zeros to whole blocks of the compiled code."""
    from understudy.training.kernels.cpu import PAD

    high, wide = matrices.shape[1:]
    return F.pad(matrices, (0, -wide % PAD, 0, -high % PAD if rows else 0)).contiguous().numpy()


class StudentReading(NamedTuple):
    """Measurements of students: the first m, [u], start near the m teacher nodes, the others are [r]."""

    cosine: Float[Tensor, "net"]
    """Mean cosine of the students of [u] with their teacher nodes."""
    near: Float[Tensor, "net"]
    """Mean norm of the rows of V_u."""
    others: Float[Tensor, "net"]
    """Mean norm of the rows of V_r."""
    fan_out: Float[Tensor, "net node"]
    """Norms of the rows of V."""
    closest: Int[Tensor, "net node"]
    """Closest teacher node of each student."""
    closeness: Float[Tensor, "net node"]
    """Cosine of a student with its closest teacher node."""


def probe_students(teacher: Population, students: Population) -> StudentReading:
    """Measure cosines of extended weights [w, b] and fan-outs, in float64."""
    theirs, ours = (extended_weights(p.layers[0]).double() for p in (teacher, students))
    m, fan_out = theirs.shape[1], students.layers[1].weight.double().norm(dim=1)
    every = angles(theirs.unsqueeze(2), ours.unsqueeze(1)).cos()
    closeness, closest = every.max(1)
    own = every[:, :, :m].diagonal(dim1=1, dim2=2).mean(1)
    return StudentReading(own, fan_out[:, :m].mean(1), fan_out[:, m:].mean(1), fan_out, closest, closeness)


class Trajectory(NamedTuple):
    """Extended weights and fan-outs at every step, including the start."""

    w: Float[Tensor, "net step node in"]
    v: Float[Tensor, "net step out node"]


def as_trajectory(students: Population) -> Trajectory:
    """Current weights of students as a trajectory of length 1."""
    return Trajectory(extended_weights(students.layers[0]).unsqueeze(1), students.layers[1].weight.unsqueeze(1))


def expected_dynamics(
    teacher: Population, students: Population, *, lr: float, steps: int, top_down: bool, overlaps: Overlaps = gaussian
) -> Trajectory:
    """Simulate the dynamics of Tian et al. 2019, theorems 4 and 5 in float64, by default for N(0, I) inputs.

    Expectations are computed by `overlaps`. Weights move by ẇ_j = P⊥(W*h*_j − Wh_j) and keep length 1. With `top_down`,
    β = VVᵀ and V̇ = L*V* − LV (theorem 5); without, the top-down signal is uniform and V is constant (theorem 4).
    """
    w_star, v_star = extended_weights(teacher.layers[0]).double(), teacher.layers[1].weight.double()
    w, v = extended_weights(students.layers[0]).double(), students.layers[1].weight.double()
    path = [(w, v)]
    for _ in range(steps):
        cross, own = overlaps(w, w_star), overlaps(w, w)
        beta = (v.mT @ v_star, v.mT @ v) if top_down else (1.0, 1.0)
        moved = w + lr * projected_velocity(w_star, w, cross, own, *beta)
        w = moved / moved.norm(dim=-1, keepdim=True)
        v = v + lr * (v_star @ cross.l.mT - v @ own.l) if top_down else v
        path.append((w, v))
    return Trajectory(*(torch.stack(parts, dim=1) for parts in zip(*path, strict=True)))
