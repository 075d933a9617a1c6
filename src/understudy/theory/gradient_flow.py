"""Gradient flow on the squared error for populations: the velocity of every parameter, and Euler steps along it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from understudy._errors import UserError
from understudy.data import Source
from understudy.data.source import Inputs
from understudy.nets import Layer, Norm, Population, training_pass

_Part = TypeVar("_Part", Layer, Norm)
_ROWS = 1 << 12
"""Samples whose activations are in memory at a time, except with BatchNorm, which needs all of them."""

Velocity = Callable[[Population, Population, Float[Tensor, "..."]], Population]
"""Velocity of every parameter of a student, as a population of its shape, from (teacher, student, inputs)."""


def velocity(teacher: Population, student: Population, x: Inputs) -> Population:
    """Negative gradient of ½‖f* − f‖² averaged over the samples, by backpropagation.

    Tian 2020, eqn 2; Tian et al. 2019, eqn 1. BatchNorm uses the statistics of the given samples, as in training; its
    running statistics do not move.
    """
    if teacher.sizes[-1] != student.sizes[-1]:
        raise UserError(
            f"teacher and student must have the same number of outputs, got {teacher.sizes[-1]} and {student.sizes[-1]}"
        )
    leaves = student._with_each(lambda part: part.detach().requires_grad_(), student.seeds)
    moving = [part for layer in leaves.layers for part in layer if part is not None]
    moving += [part for norm in leaves.norms for part in norm[2:] if part is not None]
    samples, total = x.shape[-2], [torch.zeros_like(part) for part in moving]
    for some in torch.split(x, samples if student.norms else _ROWS, -2):
        with torch.enable_grad():
            every = some if x.ndim == 3 else some.expand(len(student), *some.shape)
            missing = teacher(some).detach() - training_pass(leaves, every)[0].output
            # Summed over networks, so that each network gets the gradient of its own mean.
            loss = missing.square().sum(2).mean(1).sum() / 2
        for by, each in zip(total, torch.autograd.grad(loss, moving), strict=True):
            by -= each * (some.shape[-2] / samples)
    found = dict(zip(map(id, moving), total, strict=True))
    return leaves._with_each(lambda part: found.get(id(part), torch.zeros_like(part)).detach(), student.seeds)


def move(student: Population, by: Population, time: float) -> Population:
    """Move the parameters of a student at a constant velocity for some time."""

    def each(ours: tuple[_Part, ...], theirs: tuple[_Part, ...]) -> tuple[_Part, ...]:
        return tuple(
            type(part)._make(None if p is None or v is None else p + time * v for p, v in zip(part, other, strict=True))
            for part, other in zip(ours, theirs, strict=True)
        )

    return replace(student, layers=each(student.layers, by.layers), norms=each(student.norms, by.norms))


def descent(
    teacher: Population,
    student: Population,
    batches: Iterable[Float[Tensor, "net sample in"]],
    lr: float,
    along: Velocity = velocity,
) -> Iterator[Population]:
    """Yield the student after each batch; with the default velocity this is plain SGD."""
    for x in batches:
        student = move(student, along(teacher, student, x), lr)
        yield student


def batches(
    source: Source, seeds: Sequence[int], batch: int, steps: int, device: torch.device | str = "cpu"
) -> Iterator[Float[Tensor, "net sample in"]]:
    """Yield consecutive float64 batches, one per seed, of a source that draws new samples every epoch."""
    each = source.train // batch
    for step in range(steps):
        if step % each == 0:
            x = torch.stack([source.training(seed, step // each + 1, dtype=torch.float64) for seed in seeds]).to(device)
        yield x[:, step % each * batch :][:, :batch]
