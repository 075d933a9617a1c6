"""Which engines there are to test, on which devices, and with which networks each can be."""

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
    like = torch.zeros(1, dtype=dtype, device=device)
    return ENGINES[name].supports(Packing(Shape(tuple(sizes))), objective, optimiser, like)


def suited(sizes: Iterable[Sequence[int]], kinds: Iterable[str] = KINDS, objectives: Iterable[str] = OBJECTIVES):
    """Parametrised over every engine and device here, with those of the given networks and ways that it suits."""
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
"""Every engine on every device that is here: all of them can train two layers by plain SGD."""


def placed(posed: Problem, device: str) -> Problem:
    """The same problem on a device."""
    fields = {f.name: getattr(posed, f.name) for f in dataclasses.fields(posed)}
    tensors = {name: value.to(device) for name, value in fields.items() if isinstance(value, torch.Tensor)}
    return dataclasses.replace(posed, **tensors)
