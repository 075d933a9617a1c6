"""Networks with the same output (Zhou, Ge & Jin 2021, claim 1 and appendix A), and node arrangements for lemma 10.

ReLU(z) = ½ z + ½ |z|: on symmetric inputs a ReLU network is the sum of a linear function and a network of |·|, which
are uncorrelated. Students of zero loss therefore lie on the lines of teacher nodes (theorem 2 for the |·| part), but
may point in either direction along them as long as Σ ‖w_j‖ w_j = Σ w*_i. If the linear part is fitted separately,
their signs do not matter.
"""

import math
from collections.abc import Sequence
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from understudy._errors import UserError
from understudy._random import Stream, normal
from understudy.papers.local.theory import gaussian, starts
from understudy.papers.local.theory.descent import descend
from understudy.papers.local.theory.gaussian.pairs import angles, units
from understudy.papers.local.theory.geometry import least_angle

_DRAWS = 2_000
_LENGTHS = 0.5, 2.0
"""Range of the length of the last node of a teacher that sums to zero; the other nodes have length 1."""
_ANGLE, _SCALE = 0.3, 0.1
"""Initial angle in radians from the opposite nodes, and standard deviation of small initial weights."""
InitialPosition = Literal["opposite", "anywhere"]


def zero_sum_teachers(
    count: int, size: int, seeds: Sequence[int], separation: float = 0.5
) -> Float[Tensor, "net teacher in"]:
    """Draw teachers whose nodes sum to zero (appendix A.2), at angles of at least `separation` up to sign."""
    if count < 3 or size < 2:
        raise UserError(
            "teachers that sum to zero need at least 3 nodes, since two would be opposite, and 2 inputs, got "
            f"{count} nodes of {size} inputs"
        )
    return torch.stack([_draw_zero_sum(count, size, seed, separation) for seed in seeds])


def _draw_zero_sum(count: int, size: int, seed: int, separation: float) -> Float[Tensor, "teacher in"]:
    for draw in range(_DRAWS):
        nodes, _ = units(normal(seed, Stream.TEACHER, draw, (count - 1) * size).view(-1, size))
        nodes = torch.cat([nodes, -nodes.sum(0, keepdim=True)])
        if _LENGTHS[0] <= nodes[-1].norm() <= _LENGTHS[1] and least_angle(nodes) >= separation:
            return nodes
    raise UserError(
        f"found no {count} nodes of {size} inputs that sum to zero at angles of {separation:g} or more in "
        f"{_DRAWS:,} draws: choose fewer nodes or more inputs"
    )


def opposite_students(teachers: Float[Tensor, "*net teacher in"]) -> Float[Tensor, "*net teacher in"]:
    """Students ‖w_i‖ w_i = −w*_i of appendix A.2: zero loss for ReLU if the teacher's nodes sum to zero.

    f − f* = −Σ w*_iᵀx; the proof prints 2 Σ w*_iᵀx, which is zero as well.
    """
    directions, lengths = units(teachers)
    return -lengths.sqrt().unsqueeze(-1) * directions


def teacher_angles(
    students: Float[Tensor, "*#net student in"], teachers: Float[Tensor, "*#net teacher in"]
) -> tuple[Float[Tensor, "*net student"], Float[Tensor, "*net student"]]:
    """Angle of each student with the nearest teacher node: of directions in [0, π], and of lines in [0, π/2].

    Directions matter for ReLU, only lines for |·|.
    """
    pairs = angles(units(students)[0], units(teachers)[0])
    return pairs.angle.amin(-1), pairs.folded.amin(-1)


def initial_students(
    teachers: Float[Tensor, "net teacher in"], students: int, position: InitialPosition, seeds: Sequence[int]
) -> Float[Tensor, "net student in"]:
    """Students at 0.3 rad from the opposite of teacher nodes, or small weights in random directions."""
    if position == "opposite":
        return starts.place_near(-teachers, students, _ANGLE, seeds).students
    return starts.draw_normal(teachers, students, _SCALE, seeds).students


def descend_relu(
    students: Float[Tensor, "net student in"],
    teachers: Float[Tensor, "net teacher in"],
    rate: float,
    probes: Sequence[int],
    linear: bool,
) -> tuple[Float[Tensor, "probe net student in"], Float[Tensor, "probe net"]]:
    """Run gradient descent on the exact loss of ReLU networks (eq. 5); return students and losses at the probes.

    With `linear`, students are of |·|, and learn what the best linear fit E[x f*] = ½ Σ w*_i of a ReLU teacher leaves,
    Σ |w*_iᵀx/2| (A.1). They start with half of their output, and the rate is doubled: with half of the output the
    curvature is half as large.
    """
    slope = -1.0 if linear else 0.0
    if linear:
        students, teachers, rate = students / math.sqrt(2), teachers / 2, 2 * rate
    path = descend(students, teachers, rate, probes[-1], probes, slope=slope)
    return path, gaussian.loss(path, teachers, slope)


def fan(count: int, spacing: float) -> Float[Tensor, "node 2"]:
    """Unit vectors in the plane, each at an angle of `spacing` from the previous one."""
    angle = spacing * torch.arange(count, dtype=torch.float64)
    return torch.stack([angle.cos(), angle.sin()], 1)
