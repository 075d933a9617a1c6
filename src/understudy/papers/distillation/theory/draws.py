"""Random numbers of transfer sets: each is a function of (seed, stream, step, index)."""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from understudy._random import Stream, words


def uniforms(
    seeds: Sequence[int], stream: Stream, step: int | Int[Tensor, "step"], count: int
) -> Float[Tensor, "net *step count"]:
    """Draw float64 numbers in (0, 1), one row per seed."""
    names = torch.tensor(list(seeds), dtype=torch.int64)
    if isinstance(step, Tensor):
        names = names.unsqueeze(-1)
    return (words(names, stream, step, count).double() + 0.5) / 2.0**32


def normals(
    seeds: Sequence[int], stream: Stream, step: int | Int[Tensor, "step"], count: int
) -> Float[Tensor, "net *step count"]:
    """Draw float64 standard normals by the Box-Muller transform, one row per seed."""
    u = uniforms(seeds, stream, step, 2 * (-(-count // 2)))
    radius, turn = (-2.0 * u[..., 0::2].log()).sqrt(), 2.0 * math.pi * u[..., 1::2]
    return torch.stack((radius * turn.cos(), radius * turn.sin()), dim=-1).flatten(-2)[..., :count]
