"""The closed forms of `gaussian` beside samples, differences and sixty digits, each an independent judge of them.

The judge of small losses is the textbook's formula in decimal arithmetic of the standard library. With c = uᵀv and
s = √(‖u‖²‖v‖² − c²), E|uᵀx||vᵀx| = 2/π (s + c arctan(c/s)): nothing else is needed but arctan and π.
"""

import math
from collections.abc import Sequence
from decimal import Decimal, localcontext
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from understudy._random import Stream, normal, uniform
from understudy.papers.local.theory.gaussian import closed_forms as gaussian
from understudy.papers.local.theory.gaussian.pairs import units

_DIGITS = 60
_HALVINGS = 10
_STEP = 1e-4
"""Of differences of four points, for nodes of length about 1: their own error is of order 1e-16, rounding's 1e-12."""
_PIECES, _NODES = 20, 60
"""Intervals of length 1 on either side, beyond which a normal density is nothing, and points in each."""


class Sampled(NamedTuple):
    """Of every network the loss, then its slope along a random direction: closed forms and means over samples."""

    closed: Float[Tensor, "net 2"]
    mean: Float[Tensor, "net 2"]
    error: Float[Tensor, "net 2"]
    """Standard error of the mean."""


class Digits(NamedTuple):
    """L and ∇L of S4 eq. 1, each rounded once."""

    loss: float
    gradient: Float[Tensor, "student in"]


class Accuracy(NamedTuple):
    """Losses in 60 digits, and how far others are from them, relatively."""

    exact: Float[Tensor, "net"]
    off: Float[Tensor, "net"]
    gradient_off: Float[Tensor, "net"]
    textbook_off: Float[Tensor, "net"]


def problem(students: int, teachers: int, dim: int, seeds: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Normal students and teacher nodes, of length about 1, one of each for every seed: [net, node, in]."""

    def draw(stream: Stream, nodes: int) -> Tensor:
        each = [normal(seed, stream, 0, nodes * dim).reshape(nodes, dim) for seed in seeds]
        return torch.stack(each) / math.sqrt(dim)

    return draw(Stream.STUDENT, students), draw(Stream.TEACHER, teachers)


def around(
    students: int, teachers: int, dim: int, span: tuple[float, float], seeds: Sequence[int]
) -> tuple[Tensor, Tensor]:
    """Students at about δ from ± teacher nodes, δ of each network between the ends of `span`, evenly in log δ.

    Where every node has several, those of a node add up to it but for their signs (Σ ‖w_j‖ w_j = w*) in networks of odd
    seed: their loss is of order δ³, as in S4 claim 2, and not of order δ².
    """
    _, theirs = problem(1, teachers, dim, seeds)
    ours = torch.empty(len(seeds), students, dim, dtype=torch.float64)
    own = torch.arange(students) % teachers
    crowd = torch.nn.functional.one_hot(own, teachers).to(torch.float64)
    for e, seed in enumerate(seeds):
        drawn = uniform(seed, Stream.STUDENT, 1, 1 + students)
        delta = span[0] * (span[1] / span[0]) ** drawn[0]
        share = 0.2 + drawn[1:]
        share = share / (crowd @ (crowd.T @ share))
        aside = normal(seed, Stream.STUDENT, 2, students * dim).reshape(students, dim) / math.sqrt(dim)
        if seed % 2 and students >= 2 * teachers:
            aside = aside - crowd @ (crowd.T @ (share.unsqueeze(1) * aside))
        lengths = theirs[e, own].norm(dim=1, keepdim=True)
        parts = share.unsqueeze(1) * (theirs[e, own] + delta * lengths * aside)
        signs = 1.0 - 2.0 * (uniform(seed, Stream.STUDENT, 3, students) < 0.5).to(torch.float64)
        ours[e] = signs.unsqueeze(1) * parts / parts.norm(dim=1, keepdim=True).sqrt()
    return ours, theirs


def sampled(
    students: Float[Tensor, "net student in"],
    teachers: Float[Tensor, "net teacher in"],
    samples: int,
    seeds: Sequence[int],
) -> Sampled:
    """The closed forms and a Monte Carlo of every network's own.

    ∇L in w is the mean of R (‖w‖ sgn(wᵀx) x + |wᵀx| w̄), R = f − f*.
    """
    values, gradients = gaussian.loss_and_gradient(students, teachers)
    found: list[tuple[list[float], Tensor, Tensor]] = []
    for e, seed in enumerate(seeds):
        w, dim = students[e], students.shape[-1]
        way = normal(seed, Stream.DIRECTIONS, 0, w.numel()).reshape(w.shape).to(w)
        way = way / way.norm()
        x = normal(seed, Stream.EVALUATION, 0, samples * dim, str(w.device)).reshape(samples, dim)
        z, (unit, length) = x @ w.T, units(w)
        rest = z.abs() @ length - (x @ teachers[e].T).abs().sum(1)
        moved = (z.sign() * (x @ way.T)) @ length + z.abs() @ (unit * way).sum(1)
        terms = torch.stack([rest.square() / 2, rest * moved], 1)
        both = [float(values[e]), float((gradients[e] * way).sum())]
        found.append((both, terms.mean(0), terms.std(0) / math.sqrt(samples)))
    closed_forms, means, errors = zip(*found, strict=True)
    closed = torch.tensor(closed_forms, dtype=torch.float64, device=students.device)
    return Sampled(closed, torch.stack(means), torch.stack(errors))


def differences(
    students: Float[Tensor, "net student in"], teachers: Float[Tensor, "net teacher in"]
) -> Float[Tensor, "net"]:
    """Largest distance of ∇L from differences of the loss over all weights, over the largest of ∇L."""
    _, gradient = gaussian.loss_and_gradient(students, teachers)
    flat = gradient.flatten(1)
    steps = _STEP * torch.eye(flat.shape[1]).to(flat).reshape(-1, *students.shape[1:])
    far_back, back, on, far_on = (
        gaussian.loss_and_gradient(students.unsqueeze(1) + k * steps, teachers.unsqueeze(1))[0] for k in (-2, -1, 1, 2)
    )
    by_steps = (far_back - 8 * back + 8 * on - far_on) / (12 * _STEP)
    return (by_steps - flat).abs().amax(1) / flat.abs().amax(1)


def textbook(
    students: Float[Tensor, "*net student in"], teachers: Float[Tensor, "*net teacher in"]
) -> Float[Tensor, "*net"]:
    """L with arccos of cosines, as one would write it down: a sum of large numbers that cancel, to about 1e-16."""
    nodes = torch.cat([students, teachers], -2)
    ones = teachers.new_ones(teachers.shape[:-1])
    outputs = torch.cat([students.norm(dim=-1), -ones], -1)
    lengths = nodes.norm(dim=-1)
    sizes = lengths.unsqueeze(-1) * lengths.unsqueeze(-2)
    cosines = (nodes @ nodes.mT / sizes).clamp(-1, 1)
    phi = cosines.arccos()
    products = 2 / math.pi * sizes * (phi.sin() + (math.pi / 2 - phi) * cosines)
    return torch.einsum("...i,...ij,...j->...", outputs, products, outputs) / 2


def in_digits(students: Float[Tensor, "student in"], teachers: Float[Tensor, "teacher in"]) -> Digits:
    """L and ∇L by the textbook's formulas in 60 digits: right to the last bit for losses above 1e-40."""
    with localcontext() as context:
        context.prec = _DIGITS
        ours, theirs = ([[Decimal(x) for x in row] for row in part.tolist()] for part in (students, teachers))
        nodes, m = ours + theirs, len(ours)
        squares = [_dot(u, u) for u in nodes]
        outputs = [square.sqrt() for square in squares[:m]] + [Decimal(-1)] * len(theirs)
        scale = 1 / (2 * _arctan(Decimal(1)))  # 2/π
        total, gradient = Decimal(0), []
        for i, u in enumerate(nodes):
            pull = [Decimal(0)] * len(u)
            for a, square, v in zip(outputs, squares, nodes, strict=True):
                across = _dot(u, v)
                sine = max(squares[i] * square - across * across, Decimal(0)).sqrt()
                # π/2 − φ, and E[|vᵀx| x sgn(uᵀx)] = 2/π ((π/2 − φ) v + ‖v‖ sin φ ū).
                rest = _arctan(across / sine) if sine else across.compare(Decimal(0)) / scale
                total += outputs[i] * a * (sine + across * rest)
                along = sine / squares[i] if squares[i] else Decimal(0)
                pull = [p + a * (rest * y + along * x) for p, x, y in zip(pull, u, v, strict=True)]
            if i < m:
                size = outputs[i]
                along = _dot(pull, u) / size if size else Decimal(0)
                gradient.append([float(scale * (size * p + along * x)) for p, x in zip(pull, u, strict=True)])
        return Digits(float(scale * total / 2), torch.tensor(gradient, dtype=torch.float64))


def accuracy(students: Float[Tensor, "net student in"], teachers: Float[Tensor, "net teacher in"]) -> Accuracy:
    """How far the closed forms in use, and the textbook's in the same arithmetic, are from 60 digits."""
    losses, gradients = gaussian.loss_and_gradient(students, teachers)
    exact = [in_digits(ours, theirs) for ours, theirs in zip(students, teachers, strict=True)]
    wanted = torch.tensor([each.loss for each in exact], dtype=losses.dtype, device=losses.device)
    slopes = torch.stack([each.gradient for each in exact]).to(losses)
    away = (gradients - slopes).flatten(1).norm(dim=1) / slopes.flatten(1).norm(dim=1)
    by_book = textbook(students, teachers)
    return Accuracy(wanted, (losses - wanted).abs() / wanted, away, (by_book - wanted).abs() / wanted)


def _dot(u: Sequence[Decimal], v: Sequence[Decimal]) -> Decimal:
    return sum((a * b for a, b in zip(u, v, strict=True)), Decimal(0))


def _arctan(x: Decimal) -> Decimal:
    """By its series, after halving the angle until few terms are left."""
    for _ in range(_HALVINGS):
        x = x / (1 + (1 + x * x).sqrt())
    square, power, total, n = x * x, x, x, 1
    while total + (power := -power * square) / (n := n + 2) != total:
        total += power / n
    return total * 2**_HALVINGS


def hermite_by_quadrature(k: int) -> float:
    """E[|x| h_k(x)], h_k normalised, by Gauss and Legendre's rule on intervals of length 1, which end at the kink."""
    at, weights = np.polynomial.legendre.leggauss(_NODES)
    x = (np.arange(-_PIECES, _PIECES)[:, None] + (at + 1) / 2).ravel()
    before, now = np.zeros_like(x), np.ones_like(x)
    for n in range(k):
        before, now = now, (x * now - math.sqrt(n) * before) / math.sqrt(n + 1)
    density = np.exp(-x * x / 2) / math.sqrt(2 * math.pi)
    return math.fsum((np.tile(weights / 2, 2 * _PIECES) * np.abs(x) * now * density).tolist())
