"""Unexplained variance: losses as a share of the variance of the teacher outputs; a constant student has share 1."""

import torch
from jaxtyping import Float
from torch import Tensor

from understudy._errors import UserError
from understudy.measures.align import require_fitting
from understudy.nets import Population


def output_variance(teacher: Population, x: Float[Tensor, "..."]) -> Float[Tensor, "net"]:
    """Variance E‖f* − E f*‖² of the outputs, summed over outputs."""
    return teacher(x).var(1, correction=0).sum(1)


@torch.no_grad()
def unexplained(
    teacher: Population, students: Population, x: Float[Tensor, "sample in"], piece: int = 1 << 24
) -> Float[Tensor, "net"]:
    """Compute E‖f* − f‖² divided by the variance of f*, in float64.

    All students share one teacher, or each has its own; they are evaluated in pieces of about `piece` activations.

    Raises:
        UserError: Networks and inputs do not match, or the teacher outputs do not vary.
    """
    validate_pair(teacher, students, x)
    inputs, wide = x.double(), teacher.to(dtype=torch.float64)
    variance = output_variance(wide, inputs)
    if not bool((variance > 0).all()):
        raise UserError("the teacher outputs do not vary over the inputs; give inputs on which they do")
    targets = wide(inputs).expand(len(students), -1, -1)
    rows = max(1, piece // (len(x) * students.shape.activations))
    losses = [
        (students[i : i + rows].to(dtype=torch.float64)(inputs) - targets[i : i + rows]).square().sum(2).mean(1)
        for i in range(0, len(students), rows)
    ]
    return torch.cat(losses) / variance


def validate_pair(teacher: Population, students: Population, x: Float[Tensor, "sample in"]) -> None:
    """Raise a UserError if networks and inputs do not match."""
    if len(teacher) not in (1, len(students)):
        raise UserError(f"{len(students)} students need one teacher, or one teacher each, got {len(teacher)}")
    require_fitting(teacher, students, x)
