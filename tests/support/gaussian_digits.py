"""Random problems for tests of closed forms on normal inputs, and the textbook formulas in arbitrary precision."""

import math

import mpmath as mp
import numpy as np
import torch
from hypothesis import strategies as st

F = torch.float64
SLOPES = (-1.0, 0.0, 0.3, -0.4, 1.0)
slopes = st.sampled_from(SLOPES)
seeds = st.integers(0, 10**6)


def tensor(*rows):
    return torch.tensor(rows, dtype=F)


def random(seed, *shape):
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape))


def around(seed, m, r, d, delta, balanced=True):
    """Students around ± the directions of teacher nodes; if balanced, their average is the node up to order δ²."""
    teachers, noise, share = random(seed, r, d), random(seed + 1, m, d), random(seed + 2, m).abs() + 0.1
    own = torch.arange(m) % r
    share = share / torch.zeros(r, dtype=F).index_add(0, own, share)[own]
    if balanced:
        noise = noise - torch.zeros(r, d, dtype=F).index_add(0, own, share[:, None] * noise)[own]
        noise = noise * share[:, None]
    parts = share[:, None] * teachers[own] + delta * noise
    signs = torch.where(random(seed + 3, m, 1) < 0, -1.0, 1.0)
    return signs * parts / parts.norm(dim=1, keepdim=True).sqrt(), teachers


# Textbook formulas in the current precision of mpmath.


def precise(tensor):
    return [[mp.mpf(x) for x in row] for row in tensor.tolist()]


def dot(u, v):
    return mp.fsum(a * b for a, b in zip(u, v, strict=True))


def length(u):
    return mp.sqrt(dot(u, u))


def between(u, v):
    return mp.acos(max(min(dot(u, v) / (length(u) * length(v)), mp.mpf(1)), mp.mpf(-1)))


def product_of(u, v):
    """E|uᵀx||vᵀx|."""
    phi = between(u, v)
    return 2 / mp.pi * length(u) * length(v) * (mp.sin(phi) + (mp.pi / 2 - phi) * mp.cos(phi))


def in_digits(nodes, outputs):
    """½ E R², R = Σ c|uᵀx|, and E[R x sgn(uᵀx)] of every node."""
    pairs = [(c, u) for c, u in zip(outputs, nodes, strict=True)]
    total = mp.fsum(c * e * product_of(u, v) for c, u in pairs for e, v in pairs) / 2
    pulls = []
    for u in nodes:
        phis = [between(u, v) for v in nodes]
        across = mp.fsum(c * length(v) * mp.sin(phi) for (c, v), phi in zip(pairs, phis, strict=True)) / length(u)
        pull = [
            mp.fsum(c * (1 - 2 * phi / mp.pi) * v[i] for (c, v), phi in zip(pairs, phis, strict=True))
            + 2 / mp.pi * across * u[i]
            for i in range(len(u))
        ]
        pulls.append(pull)
    return total, pulls


def exact_gradient(students, teachers):
    """L and ∇L of Zhou, Ge & Jin 2021, eq. 1."""
    ours, theirs = precise(students), precise(teachers)
    value, pulls = in_digits(ours + theirs, [length(w) for w in ours] + [mp.mpf(-1)] * len(theirs))
    gradient = []
    for w, pull in zip(ours, pulls, strict=False):
        size, along = length(w), dot(w, pull)
        gradient.append([size * p + along * x / size for p, x in zip(pull, w, strict=True)])
    return value, gradient


def distance(found, wanted):
    """Relative distance of a float64 matrix from an mpmath matrix."""
    gap = mp.sqrt(
        mp.fsum(
            (mp.mpf(a) - b) ** 2 for x, y in zip(found.tolist(), wanted, strict=True) for a, b in zip(x, y, strict=True)
        )
    )
    return float(gap / mp.sqrt(mp.fsum(b * b for row in wanted for b in row)))


def integral(function, low, high, nodes=60):
    at, weights = np.polynomial.legendre.leggauss(nodes)
    half = (high - low) / 2
    return half * math.fsum(w * function(low + half * (1 + x)) for x, w in zip(at, weights, strict=True))
