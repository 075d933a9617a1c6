"""Teacher outputs on the evaluation sets, computed once, and the moments that a fused probe of students returns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from understudy.nets import Population
from understudy.training.objectives import Objective


class TeacherOutputs(NamedTuple):
    """Centred hidden activations of teachers with their means and sums of squares, and the students' targets."""

    hidden: tuple[Float[Tensor, "teacher sample node"], ...]
    mean: tuple[Float[Tensor, "teacher node"], ...]
    square: tuple[Float[Tensor, "teacher node"], ...]
    target: Float[Tensor, "teacher sample out"]


class Moments(NamedTuple):
    """Losses, and the moments of students from which correlations are computed, in float64."""

    loss: Float[Tensor, "net"]
    mean: Float[Tensor, "net student"]
    square: Float[Tensor, "net student"]
    cross: Float[Tensor, "net teacher student"]


def teacher_outputs(teacher: Population, x: Float[Tensor, "net sample in"], objective: Objective) -> TeacherOutputs:
    """Compute the outputs of teachers, each on its own inputs."""
    activations = teacher.activations(x)
    means = tuple(h.double().mean(1) for h in activations.hidden)
    hidden = tuple(h - mean.to(h.dtype).unsqueeze(1) for h, mean in zip(activations.hidden, means, strict=True))
    squares = tuple(h.double().square().sum(1) for h in hidden)
    return TeacherOutputs(hidden, means, squares, objective.target(activations.output))


def concatenate_outputs(outputs: Sequence[TeacherOutputs]) -> TeacherOutputs:
    """Concatenate the outputs of teachers of one shape."""
    hidden, means, squares = (
        tuple(torch.cat(layer) for layer in zip(*field, strict=True))
        for field in zip(*(each[:3] for each in outputs), strict=True)
    )
    return TeacherOutputs(hidden, means, squares, torch.cat([each.target for each in outputs]))
