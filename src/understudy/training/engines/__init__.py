"""The ways to take many steps. Every engine gives what the plain reference loop gives."""

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
    """One way to take steps, and which networks it can take them with."""

    take: Callable[[Problem, State, int, int], Float[Tensor, "net step"]]
    """take(problem, state, first, count): take steps first … first + count − 1 in place; return each step's reported
    batch loss, measured before its update. On a card it may return before the steps are done."""
    supports: Callable[[Packing, Objective, Optimiser, Tensor], bool]
    """suits(packing, objective, optimiser, like): whether it can, with numbers of `like`'s kind and on its device."""


ENGINES: dict[str, Engine] = {
    "compiled": Engine(compiled.compiled, compiled.supports),
    "resident": Engine(resident.resident, resident.supports),
    "batched": Engine(batched.batched, batched.supports),
    "autograd": Engine(autograd.autograd, autograd.supports),
}
"""The fastest first."""


def choose(packing: Packing, objective: Objective, optimiser: Optimiser, like: Tensor) -> str:
    """The name of the fastest engine that suits."""
    return next(name for name, engine in ENGINES.items() if engine.supports(packing, objective, optimiser, like))
