"""Two-layer students that move by S2 eq. 6, and teachers for them: the simulation of S2 fig 7, and theorems 4 and 5's.

With inputs whitened and separated expectations, Ẇ = W*H* − WH and V̇ = L*V* − LV, where H* = (V*Vᵀ) ∘ D* and
H = (VVᵀ) ∘ D (S2 theorems 2 and 5). The columns of the paper's W are the extended weights [w, b] of the hidden nodes,
the rows of V their fan-outs; there is no output bias.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from understudy import teachers
from understudy._random import Stream, normal, words
from understudy.errors import UserError
from understudy.nets import Layer, Population
from understudy.papers.luck.theory.overlap import Overlaps, angles, extended, gaussian, projected

Rule = Literal["rescaled", "free", "sgd"]
"""S2 eq. 6 with the columns of W and V brought back to length 1 after every step, without that, or SGD's gradient."""
_AT_ONCE = 1 << 22
"""Inputs that are drawn at a time on a card."""


def unit_columns(
    sizes: tuple[int, int, int], *, seeds: Iterable[int], dtype: torch.dtype = torch.float32
) -> Population:
    """Teachers of S2 fig 7: entries from {−.5, …, .5}, biases among them, then [w, b] of each node and the weights into
    each output scaled to length 1."""
    dim, nodes, outputs = sizes
    drawn = teachers.separated((dim + 1, nodes, outputs), seeds=seeds, dtype=torch.float64)
    (wide, _), (top, _) = drawn.layers
    lengths = top.norm(dim=2, keepdim=True)
    if not lengths.all():
        raise UserError(
            f"an output of a teacher of sizes {sizes} takes nothing from any node: give it more hidden nodes"
        )
    layers = Layer(wide[:, :, :-1], wide[:, :, -1]), Layer(top / lengths, None)
    return Population(layers, drawn.seeds).to(dtype=dtype)


def apart(nodes: int, dim: int, outputs: int, *, threshold: float, cosine: float, seeds: Iterable[int]) -> Population:
    """Teachers whose nodes are seldom active together: unit [w, b] with b = −threshold·‖w‖ and one cosine between any
    two weights, turned at random; fan-outs are orthonormal, of length 1. In float64."""
    if not (cosine * (nodes - 1) > -1 and cosine < 1) or nodes > min(dim, outputs):
        raise UserError(
            f"{nodes} nodes with cosine {cosine:g} in {dim} dimensions and {outputs} outputs: give a cosine above "
            "−1/(nodes − 1) and below 1, and no more nodes than dimensions and outputs"
        )
    names = [int(seed) for seed in seeds]
    gram = (1 - cosine) * torch.eye(nodes, dtype=torch.float64) + cosine
    values, vectors = torch.linalg.eigh(gram)
    root = vectors * values.sqrt() @ vectors.T

    def frame(stream: Stream, seed: int, size: int) -> Tensor:
        return torch.linalg.qr(normal(seed, stream, 0, size * nodes).view(size, nodes)).Q

    length = math.sqrt(1 + threshold**2)
    weight = torch.stack([root @ frame(Stream.TEACHER, seed, dim).T for seed in names]) / length
    top = torch.stack([frame(Stream.TEACHER_OUTPUT, seed, outputs) for seed in names])
    bias = torch.full(weight.shape[:2], -threshold / length, dtype=torch.float64)
    return Population((Layer(weight, bias), Layer(top, None)), torch.tensor(names))


class Pair(NamedTuple):
    """Teachers and students for them."""

    teacher: Population
    students: Population


def lucky(
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
) -> Pair:
    """Students as theorems 4 and 5 have them, in float64: one for each teacher node and `others` that have none.

    All hidden nodes are those of `apart`, but that the first are moved off their teachers by about `angle`, in radians,
    and their fan-outs by `missed`; the others have fan-outs of length `fan_out`.
    """
    whole = apart(nodes + others, dim, max(nodes + others, 2), threshold=threshold, cosine=cosine, seeds=seeds)
    w, v = extended(whole.layers[0]), whole.layers[1].weight

    def noise(layer: int, shape: torch.Size, along: int) -> Tensor:
        drawn = [normal(int(s), Stream.STUDENT, layer << 32, shape.numel()).view(shape) for s in whole.seeds]
        together = torch.stack(drawn)
        return together / together.norm(dim=along, keepdim=True)

    off, push = noise(0, w.shape[1:], 2), noise(1, v.shape[1:], 1)
    near = torch.arange(nodes + others) < nodes
    moved = torch.where(near.unsqueeze(1), w + angle * off, w)
    tops = torch.where(near, v + missed * push, fan_out * push)
    return Pair(
        _with(whole, w[:, :nodes], v[:, :, :nodes]), _with(whole, moved / moved.norm(dim=2, keepdim=True), tops)
    )


def simulated(
    teacher: Population,
    students: Population,
    *,
    rule: Rule,
    lr: float = 0.05,
    batch: int = 64,
    looks: Sequence[int],
) -> Iterator[Population]:
    """The students at the steps given, in rising order, on fresh N(0, I) batches that depend on a network's seed alone.

    On a processor by compiled code (`_modulated_steps`), all cores side by side; elsewhere by `step` in tensors.
    """
    _checked(teacher, students)
    now, w_star, v_star = students, extended(teacher.layers[0]), teacher.layers[1].weight
    at = 0
    for look in looks:
        if students.device.type == "cpu":
            now = _compiled(w_star, v_star, now, rule, lr, batch, at, look)
        else:
            now = _in_tensors(w_star, v_star, now, rule, lr, batch, at, look)
        at = look
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
    """Extended weights and fan-outs one step on; the last column of x is 1."""
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


def _checked(teacher: Population, students: Population) -> None:
    for who, networks in (("teachers", teacher), ("students", students)):
        (_, bias), (_, top) = networks.layers
        if len(networks.layers) != 2 or bias is None or top is not None or networks.slope or networks.norms:
            raise UserError(f"the {who} must have two layers, ReLU, hidden biases and no output bias")
    if len(teacher) != len(students) or (teacher.sizes[0], teacher.sizes[2]) != (students.sizes[0], students.sizes[2]):
        raise UserError(
            f"{len(teacher)} teachers of sizes {teacher.sizes} and {len(students)} students of sizes {students.sizes} "
            "do not go together: give a teacher a student, of the same inputs and outputs"
        )


def _with(networks: Population, w: Tensor, v: Tensor) -> Population:
    return Population((Layer(w[:, :, :-1], w[:, :, -1]), Layer(v, None)), networks.seeds, networks.slope)


def _in_tensors(
    w_star: Tensor, v_star: Tensor, now: Population, rule: Rule, lr: float, batch: int, first: int, last: int
) -> Population:
    w, v = extended(now.layers[0]), now.layers[1].weight
    seeds, which = now.seeds.unique(return_inverse=True)
    count = batch * now.sizes[0]
    several = max(1, _AT_ONCE // (count * len(seeds)))
    for start in range(first, last, several):
        steps = torch.arange(start, min(start + several, last), device=now.device)
        for drawn in _normals(seeds, steps, count):
            x = drawn.to(w).view(len(seeds), batch, -1)
            x = torch.cat((x, torch.ones_like(x[..., :1])), dim=-1)[which]
            w, v = step(w_star, v_star, w, v, x, lr, rule)
    return _with(now, w, v)


def _normals(seeds: Tensor, steps: Tensor, count: int) -> Float[Tensor, "step seed count"]:
    """What `data.Gaussian` draws for each seed, a step an epoch."""
    bits = words(seeds, Stream.TRAIN, steps.unsqueeze(1), 2 * (-(-count // 2)), str(seeds.device))
    u = (bits.double() + 0.5) / 2.0**32
    radius, angle = (-2.0 * u[..., 0::2].log()).sqrt(), 2.0 * math.pi * u[..., 1::2]
    return torch.stack((radius * angle.cos(), radius * angle.sin()), dim=-1).flatten(-2)[..., :count]


def _compiled(
    w_star: Tensor, v_star: Tensor, now: Population, rule: Rule, lr: float, batch: int, first: int, last: int
) -> Population:
    from understudy.papers.luck.theory import simulation_cpu as compiled
    from understudy.training.parallel import run_parallel

    _, nodes, outputs = now.sizes
    w, v = _padded(extended(now.layers[0]).mT, columns=True), _padded(now.layers[1].weight.mT, True, True)
    theirs = _padded(w_star.mT, columns=True), _padded(v_star.mT, True, True)

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
    return _with(now, weight.contiguous(), top.contiguous())


def _padded(matrices: Tensor, columns: bool = False, rows: bool = False) -> np.ndarray:
    """With zeros up to whole blocks of the compiled code."""
    from understudy.training.kernels.cpu import PAD

    nets, high, wide = matrices.shape
    shape = nets, -(-high // PAD) * PAD if rows else high, -(-wide // PAD) * PAD if columns else wide
    padded = np.zeros(shape, matrices.numpy().dtype)
    padded[:, :high, :wide] = matrices.numpy()
    return padded


class Look(NamedTuple):
    """How far students are that move: those that began near teacher nodes, of the same numbers, and the others."""

    cosine: Float[Tensor, "net"]
    """Mean over the near ones, with their own teacher nodes."""
    near: Float[Tensor, "net"]
    others: Float[Tensor, "net"]
    """Mean norms of the rows of V_u and V_r."""
    fan_out: Float[Tensor, "net node"]
    closest: Int[Tensor, "net node"]
    """Each student's closest teacher node."""
    closeness: Float[Tensor, "net node"]
    """The cosine of the two."""


def look(teacher: Population, students: Population) -> Look:
    """Angles are those of [w, b]; in float64."""
    theirs, ours = (extended(p.layers[0]).double() for p in (teacher, students))
    m, fan_out = theirs.shape[1], students.layers[1].weight.double().norm(dim=1)
    every = angles(theirs.unsqueeze(2), ours.unsqueeze(1)).cos()
    closeness, closest = every.max(1)
    own = every[:, :, :m].diagonal(dim1=1, dim2=2).mean(1)
    return Look(own, fan_out[:, :m].mean(1), fan_out[:, m:].mean(1), fan_out, closest, closeness)


class Path(NamedTuple):
    """Every step of the expected dynamics, the start first."""

    w: Float[Tensor, "net step node in"]
    v: Float[Tensor, "net step out node"]


def at_once(students: Population) -> Path:
    """Students as a path of a single step."""
    return Path(extended(students.layers[0]).unsqueeze(1), students.layers[1].weight.unsqueeze(1))


def expected(
    teacher: Population,
    students: Population,
    *,
    lr: float,
    steps: int,
    top_down: bool,
    overlaps: Overlaps = gaussian,
) -> Path:
    """The dynamics of S2 theorems 4 and 5 in float64, by default under N(0, I) inputs with expectations in closed form.

    Weights move by ẇ_j = P⊥(W*h*_j − Wh_j) and keep length 1. With `top_down` β = VVᵀ and V̇ = L*V* − LV (theorem 5);
    without, the signal from above is uniform and V stays (theorem 4).
    """
    w_star, v_star = extended(teacher.layers[0]).double(), teacher.layers[1].weight.double()
    w, v = extended(students.layers[0]).double(), students.layers[1].weight.double()
    path = [(w, v)]
    for _ in range(steps):
        cross, own = overlaps(w, w_star), overlaps(w, w)
        beta = (v.mT @ v_star, v.mT @ v) if top_down else (1.0, 1.0)
        moved = w + lr * projected(w_star, w, cross, own, *beta)
        w = moved / moved.norm(dim=-1, keepdim=True)
        v = v + lr * (v_star @ cross.l.mT - v @ own.l) if top_down else v
        path.append((w, v))
    return Path(*(torch.stack(parts, dim=1) for parts in zip(*path, strict=True)))
