"""Which networks have the same output: S4 claim 1 and appendix A, and arrangements for lemma 10.

ReLU(z) = ½ z + ½ |z|: on symmetric inputs a ReLU network is a line and a network of |·|, which do not mix. Students
without loss therefore lie on the lines of teacher nodes (theorem 2, for the part of |·|), but may point either way
along them as long as Σ ‖w_j‖ w_j = Σ w*_i. Once the line is fitted by itself, ways no longer count.
"""

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from understudy._random import Stream, normal
from understudy.errors import UserError
from understudy.papers.local.theory import geometry as local_geometry
from understudy.papers.local.theory import starts
from understudy.papers.local.theory.descent import descend
from understudy.papers.local.theory.gaussian import closed_forms as gaussian
from understudy.papers.local.theory.gaussian.pairs import angles, units

_DRAWS = 2_000
_LENGTHS = 0.5, 2.0
"""Of the last node of teachers that sum to zero, the others being of length 1."""

_OFF, _SMALL = 0.3, 0.1
"""Radians, and the scale of weights, at which students begin."""
Begun = Literal["opposite", "anywhere"]


class Reduced(NamedTuple):
    """A ReLU teacher as a line and a teacher of |·|: Σ ReLU(w*_iᵀx) = βᵀx + Σ |v_iᵀx|."""

    linear: Float[Tensor, "*net in"]
    teachers: Float[Tensor, "*net teacher in"]


class Apart(NamedTuple):
    """Of every student the angle with the nearest teacher node: as a direction in [0, π], as a line in [0, π/2]."""

    direction: Float[Tensor, "*net student"]
    line: Float[Tensor, "*net student"]


def zero_sum(count: int, size: int, seeds: Sequence[int], separation: float = 0.5) -> Float[Tensor, "net teacher in"]:
    """Random teachers whose nodes sum to zero (S4 A.2), at angles of `separation` or more, up to sign."""
    if count < 3 or size < 2:
        raise UserError(
            f"{count} nodes of {size} inputs that sum to zero were asked for; allowed are 3 nodes or more of 2 inputs "
            "or more, since two such nodes are opposite"
        )
    return torch.stack([_zero_sum(count, size, seed, separation) for seed in seeds])


def _zero_sum(count: int, size: int, seed: int, separation: float) -> Float[Tensor, "teacher in"]:
    for draw in range(_DRAWS):
        nodes, _ = units(normal(seed, Stream.TEACHER, draw, (count - 1) * size).view(-1, size))
        nodes = torch.cat([nodes, -nodes.sum(0, keepdim=True)])
        if _LENGTHS[0] <= nodes[-1].norm() <= _LENGTHS[1] and local_geometry.separation(nodes) >= separation:
            return nodes
    raise UserError(
        f"no {count} nodes of {size} inputs that sum to zero at angles of {separation:g} or more were found in "
        f"{_DRAWS:,} draws: ask for fewer nodes or more inputs"
    )


def opposite(teachers: Float[Tensor, "*net teacher in"]) -> Float[Tensor, "*net teacher in"]:
    """The students of S4 A.2, ‖w_i‖ w_i = −w*_i: without loss for ReLU if the teacher's nodes sum to zero.

    f − f* is −Σ w*_iᵀx; the proof prints 2 Σ w*_iᵀx, which is zero as well.
    """
    directions, lengths = units(teachers)
    return -lengths.sqrt().unsqueeze(-1) * directions


def reduced(teachers: Float[Tensor, "*net teacher in"]) -> Reduced:
    """A ReLU teacher whose best linear fit is taken off: β = E[x f*] = ½ Σ w*_i (S4 A.1), and |·| of w*_i/2 is left."""
    return Reduced(teachers.sum(-2) / 2, teachers / 2)


def apart(students: Float[Tensor, "*#net student in"], teachers: Float[Tensor, "*#net teacher in"]) -> Apart:
    """How far students are from teacher nodes: for ReLU the way along a line counts, for |·| it does not."""
    pairs = angles(units(students)[0], units(teachers)[0])
    return Apart(pairs.angle.amin(-1), pairs.folded.amin(-1))


def beginning(
    teachers: Float[Tensor, "net teacher in"], students: int, begun: Begun, seeds: Sequence[int]
) -> Float[Tensor, "net student in"]:
    """Students 0.3 rad off the `opposite` of teacher nodes, any way, or small and pointing anywhere."""
    if begun == "opposite":
        return starts.near(-teachers, students, _OFF, seeds).students
    return starts.scaled(teachers, students, _SMALL, seeds).students


def descend_relu(
    students: Float[Tensor, "net student in"],
    teachers: Float[Tensor, "net teacher in"],
    rate: float,
    looks: Sequence[int],
) -> tuple[Float[Tensor, "look net student in"], Float[Tensor, "look net"]]:
    """Gradient descent on the exact loss of ReLU networks (S4 eq. 5): students and losses at the steps in `looks`."""
    now, kept = students, []
    for step in range(looks[-1] + 1):
        kept += [now] * (step in looks)
        if step < looks[-1]:
            now = now - rate * gaussian.gradient(now, teachers, 0.0)
    path = torch.stack(kept)
    return path, gaussian.loss(path, teachers, 0.0)


def slopes(
    path: Float[Tensor, "look net student in"],
    teachers: Float[Tensor, "net teacher in"],
    loss: Float[Tensor, "look net"],
) -> dict[str, Float[Tensor, "look net"]]:
    """‖∇L‖, ‖∇L‖/L and ‖∇L‖²/L of ReLU students, by the names that `local_geometry` has for those of |·|."""
    norm = gaussian.gradient(path, teachers, 0.0).flatten(-2).norm(dim=-1)
    return {"gradient_norm": norm, "ratio": norm / loss, "squared_ratio": norm.square() / loss}


def descend_reduced(
    students: Float[Tensor, "net student in"],
    teachers: Float[Tensor, "net teacher in"],
    rate: float,
    looks: Sequence[int],
) -> tuple[Float[Tensor, "look net student in"], Float[Tensor, "look net"]]:
    """The same after the linear term is fitted: |·| students, begun at half of the output, of what is left of teachers.

    The rate is twice what is given, since with half of the output the loss bends half as much.
    """
    left = reduced(teachers).teachers
    path = descend(students / math.sqrt(2), left, 2 * rate, looks[-1], looks)
    return path, gaussian.loss(path, left)


def fan(count: int, spacing: float) -> Float[Tensor, "node 2"]:
    """Unit vectors in the plane, each at an angle of `spacing` from the one before."""
    angle = spacing * torch.arange(count, dtype=torch.float64)
    return torch.stack([angle.cos(), angle.sin()], 1)
