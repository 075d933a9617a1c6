"""Engines: implementations of the training steps. All agree with a plain loop by autograd and torch.optim."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from understudy.training.engines import autograd, batched, compiled, resident
from understudy.training.objectives import Objective
from understudy.training.optimisers import Optimiser
from understudy.training.packing import Packing, State
from understudy.training.problem import Problem


@dataclass(frozen=True)
class Engine:
    """An implementation of the training steps, and a test of which networks it supports."""

    run: Callable[[Problem, State, int, int], Float[Tensor, "net step"]]
    """run(problem, state, first, count): run steps first, …, first + count − 1 in place; return the reported batch loss
    of each step, measured before its update. On a GPU it may return before the steps are done."""
    supports: Callable[[Packing, Objective, Optimiser, Tensor], bool]
    """supports(packing, objective, optimiser, like): whether it can train these with the dtype and device of `like`."""


ENGINES: dict[str, Engine] = {
    "compiled": Engine(compiled.run, compiled.supports),
    "resident": Engine(resident.run, resident.supports),
    "batched": Engine(batched.run, batched.supports),
    "autograd": Engine(autograd.run, autograd.supports),
}
"""Engines by name, fastest first."""


def choose(packing: Packing, objective: Objective, optimiser: Optimiser, like: Tensor) -> str:
    """Name the fastest engine that supports these networks."""
    return next(name for name, engine in ENGINES.items() if engine.supports(packing, objective, optimiser, like))
