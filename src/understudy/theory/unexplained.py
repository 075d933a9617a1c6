"""Losses as a share of the variance of the teacher's outputs: 1 is what a constant would leave."""

import torch
from jaxtyping import Float
from torch import Tensor

from understudy.errors import UserError
from understudy.nets import Population


def output_variance(teacher: Population, x: Float[Tensor, "..."]) -> Float[Tensor, "net"]:
    """E‖f* − E f*‖², summed over outputs."""
    return teacher(x).var(1, correction=0).sum(1)


@torch.no_grad()
def unexplained(
    teacher: Population, students: Population, x: Float[Tensor, "sample in"], piece: int = 1 << 24
) -> Float[Tensor, "net"]:
    """E‖f* − f‖² over the variance of f*, in float64: of many students of one teacher, or of one each.

    Students are taken in pieces of about so many activations.
    """
    check_pair(teacher, students, x)
    inputs, wide = x.double(), teacher.to(dtype=torch.float64)
    variance = output_variance(wide, inputs)
    if not bool((variance > 0).all()):
        raise UserError("the teacher's outputs do not vary over the inputs, so that no share of them is a loss")
    answers = wide(inputs).expand(len(students), -1, -1)
    rows = max(1, piece // (len(x) * students.shape.activations))
    losses = [
        (students[i : i + rows].to(dtype=torch.float64)(inputs) - answers[i : i + rows]).square().sum(2).mean(1)
        for i in range(0, len(students), rows)
    ]
    return torch.cat(losses) / variance


def check_pair(teacher: Population, students: Population, x: Float[Tensor, "sample in"]) -> None:
    """Refuse networks and inputs that do not belong together."""
    for name, ours, theirs in (
        ("inputs", students.inputs, teacher.inputs),
        ("outputs", students.sizes[-1], teacher.sizes[-1]),
    ):
        if ours != theirs:
            raise UserError(f"the student has {ours} {name} and the teacher {theirs}; they must be equal")
    if len(teacher) not in (1, len(students)):
        raise UserError(f"{len(students)} students were given {len(teacher)} teachers; give one, or one each")
    if x.ndim != 2 or not len(x):
        raise UserError(f"inputs of shape {tuple(x.shape)} were given; give samples × inputs, one sample or more")
    if x.shape[1] != students.inputs:
        raise UserError(f"the inputs have {x.shape[1]} numbers a sample; the networks take {students.inputs}")
