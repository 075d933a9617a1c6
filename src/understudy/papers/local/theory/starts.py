"""Initial students of Zhou, Ge & Jin 2021: near teacher nodes, scattered (algorithm 1), in their span (algorithm 2).

Students are f(x) = Σ ‖w_i‖ |w_iᵀx|, teachers f*(x) = Σ |w*_iᵀx|, as in `gaussian`; every network is drawn from its own
seed.
"""

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from understudy._errors import UserError
from understudy._random import Stream, normal
from understudy.nets import Layer, Population
from understudy.papers.local.theory import gaussian
from understudy.papers.local.theory.gaussian.pairs import angles, units, validate_nodes
from understudy.papers.local.theory.teachers import validate_teachers

_NUMBERS = 1 << 21
"""Inputs times samples that are drawn at once."""
StartMethod = Literal["scattered", "subspace", "small", "large"]
"""Names of initialisations: algorithms 1 and 2, and normal weights of a small or large scale."""


class InitialStudents(NamedTuple):
    """Initial students, and notes for the user on how they were found."""

    students: Float[Tensor, "net student in"]
    notes: tuple[str, ...] = ()
    singular: tuple[int, ...] = ()
    """Dimensions of the Gram matrix that the least squares of each network ignored; empty if no lengths were fitted."""


def nearest(
    students: Float[Tensor, "*#net student in"], teachers: Float[Tensor, "*#net teacher in"]
) -> tuple[Int[Tensor, "*net student"], Float[Tensor, "*net student"]]:
    """Index of the teacher neuron nearest to each student up to sign, and the angle δ_j to it (sec. 5.1)."""
    validate_nodes(students, teachers)
    angle, which = angles(units(students)[0], units(teachers)[0]).folded.min(-1)
    return which, angle


def student_network(students: Float[Tensor, "net student in"], seeds: Sequence[int], slope: float = -1.0) -> Population:
    """Students as two-layer networks whose output weights are the lengths of the neurons."""
    lengths = torch.linalg.vector_norm(students, dim=-1).unsqueeze(-2)
    return Population((Layer(students, None), Layer(lengths, None)), torch.tensor(list(seeds)), slope)


def place_near(
    teachers: Float[Tensor, "#net teacher in"], students: int, angle: float | Float[Tensor, "net"], seeds: Sequence[int]
) -> InitialStudents:
    """Place student j at a given angle from teacher neuron i = j mod r, in a random direction.

    The students of a neuron share its length equally: Σ ‖w_j‖² = ‖w*_i‖. The angle is that of all networks, or one per
    network.
    """
    every = _one_per_seed(teachers, seeds, students)
    count, size = every.shape[-2:]
    turned = torch.as_tensor(angle, dtype=every.dtype, device=every.device).expand(len(every))[:, None, None]
    if not bool(((turned >= 0) & (turned <= math.pi / 2)).all()):
        raise UserError(f"angle must be between 0 and π/2, got {angle}")
    if size == 1 and bool((turned > 0).any()):
        raise UserError(f"angle must be 0 with one input, where all neurons are parallel, got {angle}")
    which = torch.arange(students) % count
    directions, lengths = units(every[:, which])
    drawn = _draw_normals(seeds, students, size).to(every)
    aside, _ = units(drawn - (drawn * directions).sum(-1, keepdim=True) * directions)
    shares = lengths / torch.bincount(which, minlength=count)[which].to(every)
    return InitialStudents(shares.sqrt().unsqueeze(-1) * (turned.cos() * directions + turned.sin() * aside))


def draw_normal(
    teachers: Float[Tensor, "#net teacher in"], students: int, scale: float, seeds: Sequence[int]
) -> InitialStudents:
    """Draw all weights from N(0, scale²): large for lazy training (fig. 1a), small for the mean field (fig. 1b)."""
    every = _one_per_seed(teachers, seeds, students)
    if not scale > 0 or not math.isfinite(scale):
        raise UserError(f"scale must be positive and finite, got {scale}")
    return InitialStudents(scale * _draw_normals(seeds, students, every.shape[-1]).to(every))


def initialise(
    by: StartMethod,
    teachers: Float[Tensor, "net teacher in"],
    students: int,
    seeds: Sequence[int],
    samples: int,
    mass: float,
) -> InitialStudents:
    """Initialise students by a named method.

    Args:
        by: "scattered" is algorithm 1, "subspace" algorithm 2; "small" and "large" draw normal weights.
        teachers: teacher neurons w*.
        students: number of students per network.
        seeds: one seed per network.
        samples: samples of the teacher, for "subspace".
        mass: expected Σ ‖w‖² relative to Σ ‖w*‖, for "small" and "large".
    """
    if by == "scattered":
        return scatter(teachers, students, seeds)
    if by == "subspace":
        return scatter_in_subspace(teachers, students, samples, seeds)
    unit = draw_normal(teachers, students, 1.0, seeds)
    wanted = mass * teachers.norm(dim=-1).sum(-1) / (students * teachers.shape[-1])
    return unit._replace(students=wanted.sqrt()[:, None, None] * unit.students)


def stable_rate(
    rate: float, students: Float[Tensor, "net student in"], teachers: Float[Tensor, "net teacher in"]
) -> Float[Tensor, "net"]:
    """Divide the rate by the ratio of the students' mass to that of a solution, where this ratio is above 1.

    The Hessian grows with Σ ‖w‖², which is Σ ‖w*‖ in solutions: a rate that converges there diverges from large starts.
    """
    more = students.square().sum((-2, -1)) / teachers.norm(dim=-1).sum(-1)
    return rate / more.clamp_min(1.0)


def scatter(teachers: Float[Tensor, "#net teacher in"], students: int, seeds: Sequence[int]) -> InitialStudents:
    """Algorithm 1: random directions, with the lengths that minimise the loss.

    The directions depend on the number of students as well as on the seed.
    """
    every = _one_per_seed(teachers, seeds, students)
    return _fit_lengths(_draw_normals(seeds, students, every.shape[-1], students).to(every), every)


def scatter_in_subspace(
    teachers: Float[Tensor, "#net teacher in"], students: int, samples: int, seeds: Sequence[int]
) -> InitialStudents:
    """Algorithm 2: random directions in the span estimated from samples, with lengths as in algorithm 1."""
    every = _one_per_seed(teachers, seeds, students)
    basis = estimate_span(every, samples, seeds)
    within = _draw_normals(seeds, students, basis.shape[-1], students).to(every)
    start = _fit_lengths(within @ basis.mT, every)
    count, size = every.shape[-2:]
    return start._replace(notes=(*span_notes(count, size, samples), *start.notes))


def span_notes(count: int, size: int, samples: int) -> tuple[str, ...]:
    """Notes for the user on the span of `count` neurons in `size` dimensions estimated from samples."""
    notes = []
    if samples < size:
        notes.append(f"{samples:,} samples in {size} dimensions are too few to estimate the span: it is mostly noise")
    if count >= size:
        notes.append(f"{count} neurons in {size} dimensions: the subspace is the whole space")
    return tuple(notes)


def estimate_span(
    teachers: Float[Tensor, "#net teacher in"], samples: int, seeds: Sequence[int]
) -> Float[Tensor, "net in span"]:
    """Span of the teacher's r neurons, estimated from samples (algorithm 2, lemma E.2)."""
    return leading_span(estimate_moment(teachers, samples, seeds), teachers.shape[-2])


def leading_span(moment: Float[Tensor, "*net in in"], count: int) -> Float[Tensor, "*net in span"]:
    """Eigenvectors of the `count` largest eigenvalues of M̂, or all if there are fewer."""
    _, vectors = torch.linalg.eigh(moment)
    return vectors[..., -min(count, moment.shape[-1]) :]


def estimate_moment(
    teachers: Float[Tensor, "#net teacher in"], samples: int, seeds: Sequence[int]
) -> Float[Tensor, "net in in"]:
    """M̂ = mean of y (xxᵀ − I) over samples (x, y) of the teacher (algorithm 2); its expectation is `teacher_moment`."""
    every = _one_per_seed(teachers, seeds)
    size = every.shape[-1]
    if samples < 1:
        raise UserError(f"the number of samples must be at least 1, got {samples}")
    rows = max(1, _NUMBERS // size)
    moments = torch.zeros(len(every), size, size, dtype=every.dtype, device=every.device)
    for seed, network, moment in zip(seeds, every, moments, strict=True):
        for part in range(-(-samples // rows)):
            here = min(rows, samples - part * rows)
            x = normal(seed, Stream.SPAN, part, here * size, str(every.device)).view(here, size)
            y = (x @ network.T).abs().sum(-1)
            moment += x.T @ (y.unsqueeze(-1) * x)
            moment.diagonal().sub_(y.sum())
    return moments / samples


def teacher_moment(teachers: Float[Tensor, "*net teacher in"]) -> Float[Tensor, "*net in in"]:
    """M = E[f*(x) (xxᵀ − I)] = √(2/π) Σ ‖w*_i‖ w̄*_i w̄*_iᵀ: the constant c of eq. 14 is E|z|(z² − 1), z normal."""
    directions, lengths = units(teachers)
    return math.sqrt(2 / math.pi) * directions.mT @ (lengths.unsqueeze(-1) * directions)


def subspace_angle(
    basis: Float[Tensor, "*#net in span"], teachers: Float[Tensor, "*#net teacher in"]
) -> Float[Tensor, "*net"]:
    """Largest angle between the span of the teacher's neurons and a subspace, given by any basis of it.

    It is the arctangent of the largest sine over the smallest cosine, so that small angles keep all their digits.
    """
    nets = torch.broadcast_shapes(basis.shape[:-2], teachers.shape[:-2])
    bases, nodes = (part.expand(*nets, *part.shape[-2:]).reshape(-1, *part.shape[-2:]) for part in (basis, teachers))
    found = [_largest_angle(_orthonormal(b), _orthonormal(w.T)) for b, w in zip(bases, nodes, strict=True)]
    return torch.stack(found).reshape(nets)


def _one_per_seed(
    teachers: Float[Tensor, "#net teacher in"], seeds: Sequence[int], students: int | None = None
) -> Float[Tensor, "net teacher in"]:
    """Validated teachers, one for every seed."""
    validate_teachers(teachers, students)
    if len(teachers) not in (1, len(seeds)):
        raise UserError(f"give one teacher, or one per seed, got {len(teachers)} teachers and {len(seeds)} seeds")
    return teachers.expand(len(seeds), *teachers.shape[1:])


def _draw_normals(seeds: Sequence[int], rows: int, columns: int, draw: int = 0) -> Float[Tensor, "net row column"]:
    return torch.stack([normal(seed, Stream.STUDENT, draw, rows * columns).view(rows, columns) for seed in seeds])


def _fit_lengths(drawn: Float[Tensor, "net student in"], teachers: Float[Tensor, "net teacher in"]) -> InitialStudents:
    """Students along the drawn directions, with squared lengths z ≥ 0 that minimise ½ E (Σ z_i |w̄_iᵀx| − f*)²."""
    directions, _ = units(drawn)
    squares, singular, idle = [], [], []
    for ours, theirs in zip(directions, teachers, strict=True):
        gram = gaussian.kernel(ours, ours).cpu().numpy()
        target = gaussian.kernel(ours, theirs).sum(-1).cpu().numpy()
        z, rank = least_squares(gram, target)
        squares.append(torch.from_numpy(z).to(drawn))
        singular.append(len(z) - rank)
        idle.append(int((z == 0).sum()))
    notes = []
    total = drawn.shape[-2]
    up_to = "" if len(drawn) == 1 else "up to "
    if max(singular):
        notes.append(
            f"the Gram matrix of the {total:,} directions is singular: least squares ignored {up_to}{max(singular):,} "
            "of its dimensions"
        )
    if max(idle):
        notes.append(
            f"least squares gave {up_to}{max(idle):,} of the {total:,} students length 0; their gradient is 0, so that "
            "they stay there"
        )
    students = torch.stack(squares).sqrt().unsqueeze(-1) * directions
    return InitialStudents(students, tuple(notes), tuple(singular))


def least_squares(gram: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, int]:
    """Minimiser z ≥ 0 of ½ zᵀGz − zᵀk, and the rank of G; eigenvectors with eigenvalue 0 to rounding are ignored."""
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
    # With fewer dimensions than the teacher's span, one of its directions is at a right angle.
    cosine = torch.linalg.svdvals(inside)[-1] if ours.shape[1] >= theirs.shape[1] else torch.zeros_like(sine)
    return torch.atan2(sine, cosine)
