"""Comparisons of the closed forms of `gaussian` with samples, finite differences and 60-digit arithmetic.

Small losses are compared with the textbook formula in decimal arithmetic of the standard library. With c = uᵀv and
s = √(‖u‖²‖v‖² − c²), E|uᵀx||vᵀx| = 2/π (s + c arctan(c/s)), which needs only arctan and π.
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
from understudy.papers.local.theory import gaussian
from understudy.papers.local.theory.gaussian.pairs import units

_DIGITS = 60
_HALVINGS = 10
_STEP = 1e-4
"""Step of four-point differences, for nodes of length about 1: their error is of order 10⁻¹⁶, rounding 10⁻¹²."""
_PIECES, _NODES = 20, 60
"""Intervals of length 1 on either side, beyond which the normal density is negligible, and nodes in each."""


class Sampled(NamedTuple):
    """Loss of each network, and its slope along a random direction: closed forms and means over samples."""

    closed: Float[Tensor, "net 2"]
    mean: Float[Tensor, "net 2"]
    error: Float[Tensor, "net 2"]
    """Standard error of the mean."""


def random_problem(students: int, teachers: int, dim: int, seeds: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Draw normal student and teacher nodes of length about 1, [net, node, in], one network per seed."""

    def draw(stream: Stream, nodes: int) -> Tensor:
        each = [normal(seed, stream, 0, nodes * dim).reshape(nodes, dim) for seed in seeds]
        return torch.stack(each) / math.sqrt(dim)

    return draw(Stream.STUDENT, students), draw(Stream.TEACHER, teachers)


def problem_near_solution(
    students: int, teachers: int, dim: int, span: tuple[float, float], seeds: Sequence[int]
) -> tuple[Tensor, Tensor]:
    """Draw students at angles of about δ from ± teacher nodes, log δ of each network being uniform over `span`.

    Where every node has several students, those of networks with odd seeds add up to their node but for the signs
    (Σ ‖w_j‖ w_j = w*), so that the loss is of order δ³, as in claim 2, and not of order δ².
    """
    _, theirs = random_problem(1, teachers, dim, seeds)
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


def compare_with_samples(
    students: Float[Tensor, "net student in"],
    teachers: Float[Tensor, "net teacher in"],
    samples: int,
    seeds: Sequence[int],
) -> Sampled:
    """Compare the closed forms with a Monte Carlo estimate, with separate samples for each network.

    ∇L in w is the mean of R (‖w‖ sgn(wᵀx) x + |wᵀx| w̄), R = f − f*.
    """
    values, gradients = gaussian.loss_and_gradient(students, teachers)
    found: list[tuple[list[float], Tensor, Tensor]] = []
    for e, seed in enumerate(seeds):
        w, dim = students[e], students.shape[-1]
        direction = normal(seed, Stream.DIRECTIONS, 0, w.numel()).reshape(w.shape).to(w)
        direction = direction / direction.norm()
        x = normal(seed, Stream.EVALUATION, 0, samples * dim, str(w.device)).reshape(samples, dim)
        z, (unit, length) = x @ w.T, units(w)
        residual = z.abs() @ length - (x @ teachers[e].T).abs().sum(1)
        change = (z.sign() * (x @ direction.T)) @ length + z.abs() @ (unit * direction).sum(1)
        terms = torch.stack([residual.square() / 2, residual * change], 1)
        both = [float(values[e]), float((gradients[e] * direction).sum())]
        found.append((both, terms.mean(0), terms.std(0) / math.sqrt(samples)))
    closed_forms, means, errors = zip(*found, strict=True)
    closed = torch.tensor(closed_forms, dtype=torch.float64, device=students.device)
    return Sampled(closed, torch.stack(means), torch.stack(errors))


def finite_difference_error(
    students: Float[Tensor, "net student in"], teachers: Float[Tensor, "net teacher in"]
) -> Float[Tensor, "net"]:
    """Largest difference between ∇L and finite differences over all weights, relative to the largest entry of ∇L."""
    _, gradient = gaussian.loss_and_gradient(students, teachers)
    flat = gradient.flatten(1)
    steps = _STEP * torch.eye(flat.shape[1]).to(flat).reshape(-1, *students.shape[1:])
    far_back, back, on, far_on = (
        gaussian.loss_and_gradient(students.unsqueeze(1) + k * steps, teachers.unsqueeze(1))[0] for k in (-2, -1, 1, 2)
    )
    by_steps = (far_back - 8 * back + 8 * on - far_on) / (12 * _STEP)
    return (by_steps - flat).abs().amax(1) / flat.abs().amax(1)


def textbook_loss(
    students: Float[Tensor, "*net student in"], teachers: Float[Tensor, "*net teacher in"]
) -> Float[Tensor, "*net"]:
    """L by the textbook formula with arccos: a sum of large numbers that cancel, with an error of about 10⁻¹⁶."""
    nodes = torch.cat([students, teachers], -2)
    ones = teachers.new_ones(teachers.shape[:-1])
    outputs = torch.cat([students.norm(dim=-1), -ones], -1)
    lengths = nodes.norm(dim=-1)
    sizes = lengths.unsqueeze(-1) * lengths.unsqueeze(-2)
    cosines = (nodes @ nodes.mT / sizes).clamp(-1, 1)
    phi = cosines.arccos()
    products = 2 / math.pi * sizes * (phi.sin() + (math.pi / 2 - phi) * cosines)
    return torch.einsum("...i,...ij,...j->...", outputs, products, outputs) / 2


def exact_gradient(students: Tensor, teachers: Tensor) -> tuple[float, Tensor]:
    """L and ∇L of one network by the textbook formulas in 60 digits: right to the last bit for losses above 10⁻⁴⁰."""
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
                complement = _arctan(across / sine) if sine else across.compare(Decimal(0)) / scale
                total += outputs[i] * a * (sine + across * complement)
                along = sine / squares[i] if squares[i] else Decimal(0)
                pull = [p + a * (complement * y + along * x) for p, x, y in zip(pull, u, v, strict=True)]
            if i < m:
                size = outputs[i]
                along = _dot(pull, u) / size if size else Decimal(0)
                gradient.append([float(scale * (size * p + along * x)) for p, x in zip(pull, u, strict=True)])
        return float(scale * total / 2), torch.tensor(gradient, dtype=torch.float64)


def accuracy(students: Float[Tensor, "net student in"], teachers: Float[Tensor, "net teacher in"]) -> dict[str, Tensor]:
    """Losses in 60 digits, and relative errors of `gaussian` and of the textbook formula, both in float64."""
    losses, gradients = gaussian.loss_and_gradient(students, teachers)
    values, each = zip(*map(exact_gradient, students, teachers), strict=True)
    exact, slopes = torch.tensor(values, dtype=losses.dtype, device=losses.device), torch.stack(each).to(losses)
    return {
        "exact": exact,
        "off": (losses - exact).abs() / exact,
        "gradient_off": (gradients - slopes).flatten(1).norm(dim=1) / slopes.flatten(1).norm(dim=1),
        "textbook_off": (textbook_loss(students, teachers) - exact).abs() / exact,
    }


def _dot(u: Sequence[Decimal], v: Sequence[Decimal]) -> Decimal:
    return sum((a * b for a, b in zip(u, v, strict=True)), Decimal(0))


def _arctan(x: Decimal) -> Decimal:
    """Arctangent by its power series, after halving the angle until it converges fast."""
    for _ in range(_HALVINGS):
        x = x / (1 + (1 + x * x).sqrt())
    square, power, total, n = x * x, x, x, 1
    while total + (power := -power * square) / (n := n + 2) != total:
        total += power / n
    return total * 2**_HALVINGS


def hermite_by_quadrature(k: int) -> float:
    """E[|x| h_k(x)], h_k normalised, by Gauss–Legendre quadrature on intervals of length 1 that end at the kink."""
    at, weights = np.polynomial.legendre.leggauss(_NODES)
    x = (np.arange(-_PIECES, _PIECES)[:, None] + (at + 1) / 2).ravel()
    before, now = np.zeros_like(x), np.ones_like(x)
    for n in range(k):
        before, now = now, (x * now - math.sqrt(n) * before) / math.sqrt(n + 1)
    density = np.exp(-x * x / 2) / math.sqrt(2 * math.pi)
    return math.fsum((np.tile(weights / 2, 2 * _PIECES) * np.abs(x) * now * density).tolist())
