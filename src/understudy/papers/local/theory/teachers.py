"""Teachers of Zhou, Ge & Jin 2021: f*(x) = Σ |w*_iᵀx|, drawn at random or read from a network, and validated."""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from understudy._errors import UserError
from understudy._numbers import number
from understudy._random import Stream, normal, uniform
from understudy.nets import Layer, Population
from understudy.papers.local.theory.gaussian.pairs import angles, units, validate_nodes
from understudy.papers.local.theory.setting import as_teachers

_PARALLEL = 1e-6
"""Angle, up to sign, within which two teacher neurons count as parallel: float32 resolves no smaller angle."""
_POOL, _POOLS, _STARTS = 512, 8, 64
"""Number of random directions from which separated ones are selected, and attempts to select them and to push lines
apart."""
_PUSHES = 500
"""Iterations that push lines apart which are too close."""


def validate_teachers(teachers: Float[Tensor, "net teacher in"], students: int | None = None) -> None:
    """Raise UserError for zero or parallel teacher neurons (assumptions 1 and 2), or fewer students than neurons."""
    validate_nodes(teachers, teachers)
    count = teachers.shape[-2]
    for i, network in enumerate(teachers):
        where = f" of network {i}" if len(teachers) > 1 else ""
        if not network.isfinite().all():
            raise UserError(f"the teacher{where} has weights that are not finite: use a teacher with finite weights")
        directions, lengths = units(network)
        if (lengths == 0).any():
            node = int((lengths == 0).nonzero()[0])
            raise UserError(f"teacher neuron {node}{where} is zero: remove it, it contributes nothing")
        between = angles(directions, directions).folded.fill_diagonal_(math.inf)
        if (between <= _PARALLEL).any():
            one, other = (between <= _PARALLEL).nonzero()[0].tolist()
            raise UserError(
                f"teacher neurons {one} and {other}{where} are parallel up to sign, which with |·| is one neuron: "
                "replace them by one neuron whose length is the sum of theirs"
            )
    if students is not None and students < count:
        raise UserError(f"the number of students must be at least {count}, the teacher's neurons, got {students}")


def teacher_nodes(network: Population) -> Float[Tensor, "net teacher in"]:
    """Teacher neurons w* = a u, in float64, of networks Σ a_i |u_iᵀx|; UserError for networks of another form."""
    if network.image or network.norms or len(network.layers) != 2 or network.sizes[-1] != 1:
        sizes = "-".join(map(str, network.sizes))
        raise UserError(f"the teacher must have two fully connected layers, one output and no BatchNorm, got {sizes}")
    if network.slope != -1:
        raise UserError(
            f"the teacher's activation must have slope −1 below zero, which is |·|, got {number(network.slope, 'g')}"
        )
    if any(layer.bias is not None and bool(layer.bias.any()) for layer in network.layers):
        raise UserError("the teacher must have no biases, or biases that are all 0")
    outputs = network.layers[1].weight[:, 0]
    if (outputs < 0).any():
        net, node = (outputs < 0).nonzero()[0].tolist()
        raise UserError(
            f"the teacher's output weights must be positive, got {number(float(outputs[net, node]))} for neuron "
            f"{node}: the theory covers sums of |·|, not differences"
        )
    nodes = as_teachers(network)
    validate_teachers(nodes)
    return nodes


def teacher_network(teachers: Float[Tensor, "net teacher in"], seeds: Sequence[int], slope: float = -1.0) -> Population:
    """Teachers as two-layer networks with output weights 1."""
    outputs = torch.ones_like(teachers[..., 0]).unsqueeze(-2)
    return Population((Layer(teachers.clone(), None), Layer(outputs, None)), torch.tensor(list(seeds)), slope)


def random_teachers(
    r: int,
    d: int,
    seeds: Sequence[int],
    separation: float = 0.0,
    w_min: float = 1.0,
    w_max: float = 1.0,
) -> Float[Tensor, "net teacher in"]:
    """Draw teachers of r neurons in d dimensions, in float64, that satisfy assumptions 1 and 2 of Zhou, Ge & Jin 2021.

    Random directions are accepted if they are far enough from those before; where too few are found, random ones are
    pushed apart.

    Args:
        r: number of neurons.
        d: number of inputs.
        seeds: one seed per teacher.
        separation: Δ, the smallest angle between two neurons up to sign.
        w_min: smallest length of a neuron; lengths are uniform from w_min to w_max.
        w_max: largest length of a neuron.

    Raises:
        UserError: an argument is out of range, or no such directions exist or were found.
    """
    if r < 1 or d < 1:
        raise UserError(f"a teacher must have at least 1 neuron and 1 input, got {r} neurons and {d} inputs")
    if not 0 < w_min <= w_max < math.inf:
        raise UserError(f"lengths must satisfy 0 < w_min ≤ w_max < ∞, got w_min = {w_min:g} and w_max = {w_max:g}")
    if not 0 <= separation <= math.pi / 2:
        raise UserError(f"separation must be between 0 and π/2 = {math.pi / 2:.4g}, got {separation:g}")
    most = _largest_separation(r, d)
    if separation > most + 1e-12 or (d == 1 and r > 1):
        raise UserError(
            f"{r} lines in {d} dimensions cannot be separated by {separation:g}: the maximum is {most:.4g}; choose a "
            "smaller separation, fewer neurons or more inputs"
        )
    found = []
    for seed in seeds:
        lengths = w_min + (w_max - w_min) * uniform(seed, Stream.TEACHER_OUTPUT, 0, r)
        found.append(lengths.unsqueeze(-1) * _draw_separated(r, d, seed, max(separation, 2 * _PARALLEL)))
    return torch.stack(found)


def _largest_separation(count: int, size: int) -> float:
    """Upper bound on the smallest angle of r lines in d dimensions (Welch 1974); in the plane π/r, which is smaller."""
    if count <= size:
        return math.pi / 2
    if size == 1:
        return 0.0
    return math.pi / count if size == 2 else math.acos(math.sqrt((count - size) / (size * (count - 1))))


def _draw_separated(count: int, size: int, seed: int, separation: float) -> Float[Tensor, "teacher in"]:
    pool = max(_POOL, 4 * count)

    def draw(attempt: int) -> Float[Tensor, "pool in"]:
        return units(normal(seed, Stream.TEACHER, attempt, pool * size).view(pool, size))[0]

    for drawn in map(draw, range(_POOLS)):
        far = (angles(drawn, drawn).folded >= separation).numpy()
        chosen: list[int] = []
        for i in range(pool):
            if far[i, chosen].all():
                chosen.append(i)
            if len(chosen) == count:
                return drawn[chosen]
    for drawn in map(draw, range(_STARTS)):
        lines = _push_apart(drawn[:count], separation)
        between = angles(lines, lines).folded.fill_diagonal_(math.inf)
        if between.min() >= separation * (1 - 1e-9):
            turn, _ = torch.linalg.qr(drawn[count : count + size].T)
            return lines @ turn.T
    raise UserError(
        f"found no {count} lines in {size} dimensions at angles of {separation:g} or more in {_STARTS} attempts: "
        "choose a smaller separation, fewer neurons or more inputs"
    )


def _push_apart(lines: Float[Tensor, "teacher in"], separation: float) -> Float[Tensor, "teacher in"]:
    """Alternate between clamping the products of lines that are too close and refitting lines to the products."""
    # The margin makes the requested separation reachable in finitely many iterations.
    limit = math.cos(min(separation * (1 + 1e-6), math.pi / 2))
    size = lines.shape[1]
    for _ in range(_PUSHES):
        products = (lines @ lines.T).clamp(-limit, limit).fill_diagonal_(1.0)
        values, vectors = torch.linalg.eigh(products)
        values, vectors = values[-size:].clamp_min(0), vectors[:, -size:]
        lines, _ = units(torch.nn.functional.pad(vectors * values.sqrt(), (0, max(0, size - len(products)))))
    return lines
