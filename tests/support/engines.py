"""Parametrisation of tests over engines, devices and the networks that each engine supports."""

import dataclasses
import itertools
from collections.abc import Iterable, Sequence

import pytest
import torch

from support.problems import OBJECTIVES, optimisers
from understudy.nets import Shape
from understudy.training import Objective, Optimiser
from understudy.training.engines import ENGINES
from understudy.training.packing import Packing
from understudy.training.problem import Problem

DEVICES = ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",)
KINDS = tuple(optimisers(batch=4, lr=0.1))


def supports(
    name: str,
    device: str,
    sizes: Sequence[int],
    optimiser: Optimiser,
    objective: Objective,
    dtype: torch.dtype = torch.float64,
) -> bool:
    """Whether an engine supports dense networks of these sizes on a device."""
    like = torch.zeros(1, dtype=dtype, device=device)
    return ENGINES[name].supports(Packing(Shape(tuple(sizes))), objective, optimiser, like)


def supported_cases(
    sizes: Iterable[Sequence[int]], kinds: Iterable[str] = KINDS, objectives: Iterable[str] = OBJECTIVES
):
    """Parametrise over every engine and available device, with the given cases that the engine supports."""
    cases = [
        pytest.param(name, device, size, kind, objective, id="-".join((name, device, str(size), kind, objective)))
        for name, device, size, kind, objective in itertools.product(ENGINES, DEVICES, sizes, kinds, objectives)
        if supports(name, device, size, optimisers(4, 0.1)[kind], OBJECTIVES[objective])
    ]
    return pytest.mark.parametrize(("engine", "device", "sizes", "kind", "objective"), cases)


PAIRS = [
    pair
    for pair in itertools.product(ENGINES, DEVICES)
    if supports(*pair, (3, 4, 2), optimisers(4, 0.1)["sgd"], OBJECTIVES["squared"])
]
engines = pytest.mark.parametrize(("engine", "device"), PAIRS)
"""Every engine on every available device: all of them support two-layer networks by plain SGD."""


def to_device(posed: Problem, device: str) -> Problem:
    """Copy a problem to a device."""
    fields = {f.name: getattr(posed, f.name) for f in dataclasses.fields(posed)}
    tensors = {name: value.to(device) for name, value in fields.items() if isinstance(value, torch.Tensor)}
    return dataclasses.replace(posed, **tensors)
