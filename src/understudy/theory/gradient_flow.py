"""Gradient flow on the squared error for populations: how fast every parameter moves, and Euler steps along it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from understudy.data import Source
from understudy.errors import UserError
from understudy.nets import Layer, Norm, Population, training_pass

_Part = TypeVar("_Part", Layer, Norm)


@runtime_checkable
class Velocity(Protocol):
    """What moves a student towards its teacher: each number stands where what it moves stands in the student."""

    def __call__(self, teacher: Population, student: Population, x: Float[Tensor, "..."]) -> Population: ...


def velocity(
    teacher: Population, student: Population, x: Float[Tensor, "sample in"] | Float[Tensor, "net sample in"]
) -> Population:
    """Minus the gradient of ½‖f* − f‖² averaged over the samples (S0 eqn 2, S2 eqn 1), by backpropagation.

    BatchNorm goes by the statistics of the given samples, as in training; its running statistics do not move.
    """
    if teacher.sizes[-1] != student.sizes[-1]:
        raise UserError(
            f"the teacher has {teacher.sizes[-1]} outputs and the student {student.sizes[-1]}: choose networks of as "
            "many outputs"
        )
    leaves = student._with_each(lambda part: part.detach().requires_grad_(), student.seeds)
    with torch.enable_grad():
        every = x if x.ndim == 3 else x.expand(len(student), *x.shape)
        missing = teacher(x).detach() - training_pass(leaves, every)[0].output
        # The sum over networks: each gets the gradient of its own mean.
        loss = missing.square().sum(2).mean(1).sum() / 2
        moving = [part for layer in leaves.layers for part in layer if part is not None]
        moving += [part for norm in leaves.norms for part in norm[2:] if part is not None]
        found = {id(part): -by for part, by in zip(moving, torch.autograd.grad(loss, moving), strict=True)}
    return leaves._with_each(lambda part: found.get(id(part), torch.zeros_like(part)).detach(), student.seeds)


def moved(student: Population, by: Population, time: float) -> Population:
    """Where the student is after it has moved at a velocity for some time."""

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
    """The student after every batch; with backpropagation this is plain SGD."""
    for x in batches:
        student = moved(student, along(teacher, student, x), lr)
        yield student


def batches(
    source: Source, seeds: Sequence[int], batch: int, steps: int, device: torch.device | str = "cpu"
) -> Iterator[Float[Tensor, "net sample in"]]:
    """Of a source that draws anew every epoch, consecutive batches of each seed, in float64; epochs follow on."""
    each = source.train // batch
    for step in range(steps):
        if step % each == 0:
            x = torch.stack([source.training(seed, step // each + 1, dtype=torch.float64) for seed in seeds]).to(device)
        yield x[:, step % each * batch :][:, :batch]
