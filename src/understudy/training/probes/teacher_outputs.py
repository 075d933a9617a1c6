"""What teachers answer on the evaluation sets, once, and what a look at their students finds against it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from understudy.nets import Population
from understudy.training.objectives import Objective


class TeacherOutputs(NamedTuple):
    """What teachers answer on their evaluation sets; activations centred, and their means and squared lengths."""

    hidden: tuple[Float[Tensor, "teacher sample node"], ...]
    mean: tuple[Float[Tensor, "teacher node"], ...]
    square: tuple[Float[Tensor, "teacher node"], ...]
    target: Float[Tensor, "teacher sample out"]


def answered(teacher: Population, x: Float[Tensor, "net sample in"], objective: Objective) -> TeacherOutputs:
    """The answers of teachers, each on inputs of its own."""
    activations = teacher.activations(x)
    means = tuple(h.double().mean(1) for h in activations.hidden)
    hidden = tuple(h - mean.to(h.dtype).unsqueeze(1) for h, mean in zip(activations.hidden, means, strict=True))
    squares = tuple(h.double().square().sum(1) for h in hidden)
    return TeacherOutputs(hidden, means, squares, objective.target(activations.output))


def joined(answers: Sequence[TeacherOutputs]) -> TeacherOutputs:
    """Those of several teachers of one shape, stacked."""
    hidden, means, squares = (
        tuple(torch.cat(layer) for layer in zip(*field, strict=True))
        for field in zip(*(each[:3] for each in answers), strict=True)
    )
    return TeacherOutputs(hidden, means, squares, torch.cat([each.target for each in answers]))


class Moments(NamedTuple):
    """What losses and correlations are made of, in float64."""

    loss: Float[Tensor, "net"]
    mean: Float[Tensor, "net student"]
    square: Float[Tensor, "net student"]
    cross: Float[Tensor, "net teacher student"]
