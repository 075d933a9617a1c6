"""The ways to take many steps. Every engine gives what the plain reference loop gives."""

from collections.abc import Callable

from jaxtyping import Float
from torch import Tensor

from understudy.training.engines.batched import batched
from understudy.training.packing import State
from understudy.training.problem import Problem

Engine = Callable[[Problem, State, int, int], Float[Tensor, "net step"]]
"""engine(problem, state, first, count): take steps first … first + count − 1 in place; return each step's reported
batch loss, measured before its update."""

ENGINES: dict[str, Engine] = {"batched": batched}
