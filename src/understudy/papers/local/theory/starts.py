"""How students of S4 start: near teacher neurons, scattered (algorithm 1), in their span (algorithm 2), at a scale.

Students are f(x) = Σ ‖w_i‖ |w_iᵀx|, teachers f*(x) = Σ |w*_iᵀx|, as in `gaussian`; each is drawn by its own seed.
"""

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from understudy._random import Stream, normal, uniform
from understudy.errors import UserError
from understudy.nets import Layer, Population
from understudy.papers.local.theory.gaussian.closed_forms import kernel
from understudy.papers.local.theory.gaussian.pairs import angles, same_inputs, units
from understudy.papers.local.theory.setting import as_teachers

_PARALLEL = 1e-6
"""Angle, up to sign, within which two teacher neurons count as parallel: numbers of float32 are no closer."""
_NUMBERS = 1 << 21
"""Inputs times samples that are drawn together."""
_POOL, _POOLS = 512, 8
"""Directions to choose separated ones from, and how often they are drawn."""
_PUSHES = 500
"""How often lines that are too close are pushed apart."""

By = Literal["scattered", "subspace", "small", "large"]
"""Starts by name: algorithms 1 and 2, and all weights at one scale."""


class Start(NamedTuple):
    """Students, and what had to be done that a user should know."""

    students: Float[Tensor, "net student in"]
    said: tuple[str, ...] = ()
    singular: tuple[int, ...] = ()
    """Of each network, how many dimensions of the Gram matrix of its directions were left out of the least squares; of
    lengths that are not fitted nothing."""


def check_teachers(teachers: Float[Tensor, "net teacher in"], students: int | None = None) -> None:
    """Refuse teachers with a zero neuron, or two along one line (S4 assumptions 1 and 2), and fewer students."""
    same_inputs(teachers, teachers)
    count = teachers.shape[-2]
    for i, network in enumerate(teachers):
        where = f" of network {i}" if len(teachers) > 1 else ""
        if not network.isfinite().all():
            raise UserError(f"the teacher{where} has weights that are not finite numbers: give one that has none")
        directions, lengths = units(network)
        if (lengths == 0).any():
            node = int((lengths == 0).nonzero()[0])
            raise UserError(f"teacher neuron {node}{where} is zero: leave it out, it adds nothing")
        apart = angles(directions, directions).folded.fill_diagonal_(math.inf)
        if (apart <= _PARALLEL).any():
            one, other = (apart <= _PARALLEL).nonzero()[0].tolist()
            raise UserError(
                f"teacher neurons {one} and {other}{where} are parallel, up to sign: with |·| they are one neuron, so "
                "put one in their place, with their lengths together"
            )
    if students is not None and students < count:
        raise UserError(f"{students} students were asked for; allowed is {count} or more, the neurons of the teacher")


def nearest(
    students: Float[Tensor, "*#net student in"], teachers: Float[Tensor, "*#net teacher in"]
) -> tuple[Int[Tensor, "*net student"], Float[Tensor, "*net student"]]:
    """The teacher neuron nearest to every student, up to sign, and the angle to it: T_i and δ_j of S4 sec 5."""
    same_inputs(students, teachers)
    angle, which = angles(units(students)[0], units(teachers)[0]).folded.min(-1)
    return which, angle


def teacher_nodes(network: Population) -> Float[Tensor, "net teacher in"]:
    """The neurons w* of teachers given as networks Σ a_i |u_iᵀx|: a |uᵀx| = |(a u)ᵀx|, in float64."""
    if network.image or network.norms or len(network.layers) != 2 or network.sizes[-1] != 1:
        sizes = "-".join(map(str, network.sizes))
        raise UserError(f"the teacher is {sizes}; allowed are two fully connected layers, one output, no BatchNorm")
    if network.slope != -1:
        raise UserError(f"the teacher's activation has slope {network.slope:g} below zero; allowed is −1, which is |·|")
    if any(layer.bias is not None and bool(layer.bias.any()) for layer in network.layers):
        raise UserError("the teacher has biases; allowed is one without, or whose biases are all 0")
    outputs = network.layers[1].weight[:, 0]
    if (outputs < 0).any():
        net, node = (outputs < 0).nonzero()[0].tolist()
        raise UserError(
            f"the output weight of teacher neuron {node} is {float(outputs[net, node]):.3g}; allowed are numbers above "
            "0: S4 is of sums of |·|, not of differences"
        )
    nodes = as_teachers(network)
    check_teachers(nodes)
    return nodes


def teacher_network(teachers: Float[Tensor, "net teacher in"], seeds: Sequence[int], slope: float = -1.0) -> Population:
    """Teachers as networks of two layers, whose output weights are 1."""
    outputs = torch.ones_like(teachers[..., 0]).unsqueeze(-2)
    return Population((Layer(teachers.clone(), None), Layer(outputs, None)), torch.tensor(list(seeds)), slope)


def student_network(students: Float[Tensor, "net student in"], seeds: Sequence[int], slope: float = -1.0) -> Population:
    """Students as networks of two layers, whose output weights are the lengths of the neurons."""
    lengths = torch.linalg.vector_norm(students, dim=-1).unsqueeze(-2)
    return Population((Layer(students, None), Layer(lengths, None)), torch.tensor(list(seeds)), slope)


def near(teachers: Float[Tensor, "#net teacher in"], students: int, angle: float, seeds: Sequence[int]) -> Start:
    """Student j is at this angle from teacher neuron j mod r; those of one share its length, Σ ‖w_j‖² = ‖w*_i‖."""
    every = _each(teachers, seeds, students)
    count, size = every.shape[-2:]
    if not 0 <= angle <= math.pi / 2:
        raise UserError(f"angle {angle} was given; allowed is a number from 0 to π/2")
    if size == 1 and angle > 0:
        raise UserError(
            f"students at an angle of {angle} were asked for; with one input there are none, so allowed is 0"
        )
    which = torch.arange(students) % count
    directions, lengths = units(every[:, which])
    drawn = _normals(seeds, students, size).to(every)
    aside, _ = units(drawn - (drawn * directions).sum(-1, keepdim=True) * directions)
    shares = lengths / torch.bincount(which, minlength=count)[which].to(every)
    return Start(shares.sqrt().unsqueeze(-1) * (math.cos(angle) * directions + math.sin(angle) * aside))


def scaled(teachers: Float[Tensor, "#net teacher in"], students: int, scale: float, seeds: Sequence[int]) -> Start:
    """All entries from N(0, scale²): large for lazy training (S4 fig 1a), small for the mean field (fig 1b)."""
    every = _each(teachers, seeds, students)
    if not scale > 0 or not math.isfinite(scale):
        raise UserError(f"scale {scale} was given; allowed is a finite number above 0")
    return Start(scale * _normals(seeds, students, every.shape[-1]).to(every))


def begin(
    by: By, teachers: Float[Tensor, "net teacher in"], students: int, seeds: Sequence[int], samples: int, mass: float
) -> Start:
    """Students by algorithm 1, by algorithm 2 with `samples`, or normal with about Σ ‖w‖² = `mass` Σ ‖w*‖."""
    if by == "scattered":
        return scattered(teachers, students, seeds)
    if by == "subspace":
        return in_subspace(teachers, students, samples, seeds)
    unit = scaled(teachers, students, 1.0, seeds)
    wanted = mass * teachers.norm(dim=-1).sum(-1) / (students * teachers.shape[-1])
    return unit._replace(students=wanted.sqrt()[:, None, None] * unit.students)


def tempered(
    rate: float, students: Float[Tensor, "net student in"], teachers: Float[Tensor, "net teacher in"]
) -> Float[Tensor, "net"]:
    """The rate, made smaller where students have more mass than a solution, as many times as they do.

    The Hessian grows with Σ ‖w‖², which is Σ ‖w*‖ in solutions: a rate that is right there diverges from large starts.
    """
    more = students.square().sum((-2, -1)) / teachers.norm(dim=-1).sum(-1)
    return rate / more.clamp_min(1.0)


def scattered(teachers: Float[Tensor, "#net teacher in"], students: int, seeds: Sequence[int]) -> Start:
    """Algorithm 1: random directions, others for every number of them, with lengths that bring them nearest to the
    teacher."""
    every = _each(teachers, seeds, students)
    return _fitted(_normals(seeds, students, every.shape[-1], students).to(every), every)


def in_subspace(teachers: Float[Tensor, "#net teacher in"], students: int, samples: int, seeds: Sequence[int]) -> Start:
    """Algorithm 2: random directions in the span that samples of the teacher show, with lengths as in algorithm 1."""
    every = _each(teachers, seeds, students)
    basis = estimated_span(every, samples, seeds)
    within = _normals(seeds, students, basis.shape[-1], students).to(every)
    start = _fitted(within @ basis.mT, every)
    count, size = every.shape[-2:]
    return start._replace(said=(*span_notes(count, size, samples), *start.said))


def span_notes(count: int, size: int, samples: int) -> tuple[str, ...]:
    """What a user should know of the span that samples show of so many neurons in so many dimensions."""
    said = []
    if samples < size:
        said.append(f"{samples:,} samples in {size} dimensions are too few to show the span: it is mostly chance")
    if count >= size:
        said.append(f"{count} neurons in {size} dimensions: the subspace is all of the space")
    return tuple(said)


def estimated_span(
    teachers: Float[Tensor, "#net teacher in"], samples: int, seeds: Sequence[int]
) -> Float[Tensor, "net in span"]:
    """The first r eigenvectors of M̂ = mean of y (xxᵀ − I) over samples of the teacher (S4 lemma E.2).

    M = √(2/π) Σ ‖w*_i‖ w̄*_i w̄*_iᵀ: the c of eq. 14 is E|z|(z² − 1), z standard normal.
    """
    every = _each(teachers, seeds)
    count, size = every.shape[-2:]
    if samples < 1:
        raise UserError(f"{samples} samples were asked for; allowed is 1 or more")
    rows = max(1, _NUMBERS // size)
    moments = torch.zeros(len(every), size, size, dtype=every.dtype, device=every.device)
    for seed, network, moment in zip(seeds, every, moments, strict=True):
        for part in range(-(-samples // rows)):
            here = min(rows, samples - part * rows)
            x = normal(seed, Stream.SPAN, part, here * size, str(every.device)).view(here, size)
            y = (x @ network.T).abs().sum(-1)
            moment += x.T @ (y.unsqueeze(-1) * x)
            moment.diagonal().sub_(y.sum())
    _, vectors = torch.linalg.eigh(moments / samples)
    return vectors[..., -min(count, size) :]


def subspace_angle(
    basis: Float[Tensor, "*#net in span"], teachers: Float[Tensor, "*#net teacher in"]
) -> Float[Tensor, "*net"]:
    """The largest angle between the span of the teacher's neurons and a subspace, given by any basis of it.

    Its tangent is that of the largest sine and the least cosine, so that small angles keep all their digits.
    """
    nets = torch.broadcast_shapes(basis.shape[:-2], teachers.shape[:-2])
    found = [
        _largest_angle(_orthonormal(ours), _orthonormal(theirs.T))
        for ours, theirs in zip(
            basis.expand(*nets, *basis.shape[-2:]).reshape(-1, *basis.shape[-2:]),
            teachers.expand(*nets, *teachers.shape[-2:]).reshape(-1, *teachers.shape[-2:]),
            strict=True,
        )
    ]
    return torch.stack(found).reshape(nets)


def random_teachers(
    r: int,
    d: int,
    seeds: Sequence[int],
    separation: float = 0.0,
    w_min: float = 1.0,
    w_max: float = 1.0,
) -> Float[Tensor, "net teacher in"]:
    """Teachers of r neurons in d dimensions whose angles, up to sign, are at least Δ (S4 assumption 1).

    Directions are random, and taken if they are far enough from those before; where that finds none, random ones are
    pushed apart. Lengths are uniform from w_min to w_max.
    """
    if r < 1 or d < 1:
        raise UserError(f"{r} neurons of {d} inputs were asked for; allowed is 1 or more of each")
    if not 0 < w_min <= w_max < math.inf:
        raise UserError(f"lengths from {w_min:g} to {w_max:g} were asked for; allowed is 0 < w_min ≤ w_max")
    if not 0 <= separation <= math.pi / 2:
        raise UserError(f"separation {separation:g} was given; allowed is a number from 0 to π/2 = {math.pi / 2:.4g}")
    most = _widest(r, d)
    if separation > most + 1e-12 or (d == 1 and r > 1):
        raise UserError(
            f"{r} lines in {d} dimensions cannot all be {separation:g} apart: the most that can be is "
            f"{most:.4g}, so ask for less, fewer neurons or more inputs"
        )
    found = []
    for seed in seeds:
        lengths = w_min + (w_max - w_min) * uniform(seed, Stream.TEACHER_OUTPUT, 0, r)
        found.append(lengths.unsqueeze(-1) * _separated(r, d, seed, max(separation, 2 * _PARALLEL)))
    return torch.stack(found)


def _each(
    teachers: Float[Tensor, "#net teacher in"], seeds: Sequence[int], students: int | None = None
) -> Float[Tensor, "net teacher in"]:
    """A teacher for every seed."""
    check_teachers(teachers, students)
    if len(teachers) not in (1, len(seeds)):
        raise UserError(f"{len(teachers)} teachers and {len(seeds)} seeds were given: give one teacher, or one a seed")
    return teachers.expand(len(seeds), *teachers.shape[1:])


def _normals(seeds: Sequence[int], rows: int, columns: int, draw: int = 0) -> Float[Tensor, "net row column"]:
    return torch.stack([normal(seed, Stream.STUDENT, draw, rows * columns).view(rows, columns) for seed in seeds])


def _fitted(drawn: Float[Tensor, "net student in"], teachers: Float[Tensor, "net teacher in"]) -> Start:
    """Students along the drawn directions, with squared lengths z ≥ 0 of least ½ E (Σ z_i |w̄_iᵀx| − f*)²."""
    directions, _ = units(drawn)
    squares, notes = [], []
    for ours, theirs in zip(directions, teachers, strict=True):
        gram = kernel(ours, ours).cpu().numpy()
        target = kernel(ours, theirs).sum(-1).cpu().numpy()
        z, rank = least_squares(gram, target)
        squares.append(torch.from_numpy(z).to(drawn))
        notes.append((len(z) - rank, int((z == 0).sum())))
    said = []
    lost, idle = (max(note[i] for note in notes) for i in (0, 1))
    total = drawn.shape[-2]
    some = "" if len(drawn) == 1 else "up to "
    if lost:
        said.append(
            f"the Gram matrix of the {total:,} directions is singular: {some}{lost:,} of its dimensions say nothing, "
            "and were left out of the least squares"
        )
    if idle:
        said.append(
            f"least squares gives {some}{idle:,} of the {total:,} students length 0; their gradient is 0 too, so they "
            "stay"
        )
    singular = tuple(left for left, _ in notes)
    return Start(torch.stack(squares).sqrt().unsqueeze(-1) * directions, tuple(said), singular)


def least_squares(gram: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, int]:
    """z ≥ 0 of least ½ zᵀGz − zᵀk, and the rank of G: by its eigenvectors, without those it is zero on to rounding."""
    from scipy.optimize import nnls

    values, vectors = np.linalg.eigh(gram)
    kept = values > len(values) * np.finfo(float).eps * values[-1]
    roots = np.sqrt(values[kept])
    z, _ = nnls(roots[:, None] * vectors[:, kept].T, vectors[:, kept].T @ target / roots, maxiter=30 * len(values))
    return z, int(kept.sum())


def _orthonormal(columns: Float[Tensor, "in any"]) -> Float[Tensor, "in rank"]:
    left, values, _ = torch.linalg.svd(columns, full_matrices=False)
    return left[:, values > max(columns.shape) * torch.finfo(columns.dtype).eps * values[0]]


def _largest_angle(ours: Float[Tensor, "in one"], theirs: Float[Tensor, "in other"]) -> Float[Tensor, ""]:
    inside = ours.T @ theirs
    sine = torch.linalg.matrix_norm(theirs - ours @ inside, 2)
    # With fewer dimensions than the teacher's, some of its directions are at a right angle.
    cosine = torch.linalg.svdvals(inside)[-1] if ours.shape[1] >= theirs.shape[1] else torch.zeros_like(sine)
    return torch.atan2(sine, cosine)


def _widest(count: int, size: int) -> float:
    """No r lines in d dimensions are further apart than this (Welch 1974); in the plane π/r, which is less."""
    if count <= size:
        return math.pi / 2
    if size == 1:
        return 0.0
    return math.pi / count if size == 2 else math.acos(math.sqrt((count - size) / (size * (count - 1))))


def _separated(count: int, size: int, seed: int, separation: float) -> Float[Tensor, "teacher in"]:
    pool = max(_POOL, 4 * count)
    for attempt in range(_POOLS):
        drawn, _ = units(normal(seed, Stream.TEACHER, attempt, pool * size).view(pool, size))
        far = (angles(drawn, drawn).folded >= separation).numpy()
        chosen: list[int] = []
        for i in range(pool):
            if far[i, chosen].all():
                chosen.append(i)
            if len(chosen) == count:
                return drawn[chosen]
    for attempt in range(_POOLS):
        drawn, _ = units(normal(seed, Stream.TEACHER, attempt, pool * size).view(pool, size))
        lines = _pushed(drawn[:count], separation)
        apart = angles(lines, lines).folded.fill_diagonal_(math.inf)
        if apart.min() >= separation * (1 - 1e-9):
            turn, _ = torch.linalg.qr(drawn[count : count + size].T)
            return lines @ turn.T
    raise UserError(
        f"no {count} lines in {size} dimensions at angles of {separation:g} or more were found, from {_POOLS} random "
        "starts: ask for less separation, fewer neurons or more inputs"
    )


def _pushed(lines: Float[Tensor, "teacher in"], separation: float) -> Float[Tensor, "teacher in"]:
    """In turn: products of lines that are too close are brought to their limit, and lines made that fit them best."""
    # A little further than asked for, so that what is asked for is reached in finitely many turns.
    limit = math.cos(min(separation * (1 + 1e-6), math.pi / 2))
    size = lines.shape[1]
    for _ in range(_PUSHES):
        products = (lines @ lines.T).clamp(-limit, limit).fill_diagonal_(1.0)
        values, vectors = torch.linalg.eigh(products)
        values, vectors = values[-size:].clamp_min(0), vectors[:, -size:]
        lines, _ = units(torch.nn.functional.pad(vectors * values.sqrt(), (0, max(0, size - len(products)))))
    return lines
