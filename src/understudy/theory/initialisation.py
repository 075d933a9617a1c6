"""The starts of S4 by name, as a study compares them: algorithms 1 and 2, and all weights at one scale."""

from collections.abc import Sequence
from typing import Literal

from jaxtyping import Float
from torch import Tensor

from understudy.theory import starts

By = Literal["scattered", "subspace", "small", "large"]


def begin(
    by: By, teachers: Float[Tensor, "net teacher in"], students: int, seeds: Sequence[int], samples: int, mass: float
) -> starts.Start:
    """Students by algorithm 1, by algorithm 2 with `samples`, or normal with about Σ ‖w‖² = `mass` Σ ‖w*‖."""
    if by == "scattered":
        return starts.scattered(teachers, students, seeds)
    if by == "subspace":
        return starts.in_subspace(teachers, students, samples, seeds)
    unit = starts.scaled(teachers, students, 1.0, seeds)
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
