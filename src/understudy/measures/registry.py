"""Every measure of a pair of networks under one signature, with what the mathematics says of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeVar

from torch import Tensor

from understudy.measures.pair import Pair

Axis = Literal["net", "teacher", "student"]
Symmetry = Literal["student permutation", "teacher permutation", "positive rescaling"]


@dataclass(frozen=True)
class Measure:
    """A function of a pair, its citation, the axes of its result, and what leaves it as it is.

    `invariant` is what the mathematics says, no more and no less. Permuting students (teachers) permutes the result
    along its student (teacher) axis, or leaves it unchanged where it has none; positive rescaling multiplies w_k and
    b_k of students by c_k > 0 and divides v_k by c_k. `deep` tells whether it is defined above the lowest layer.
    """

    name: str
    function: Callable[[Pair], Tensor]
    cites: str
    shape: tuple[Axis, ...]
    invariant: frozenset[Symmetry]
    deep: bool

    def __call__(self, pair: Pair) -> Tensor:
        return self.function(pair)

    @property
    def doc(self) -> str:
        return (self.function.__doc__ or "").strip()


Function = TypeVar("Function", bound=Callable[..., Tensor])
_MEASURES: dict[str, Measure] = {}


def measure(
    *, cites: str, shape: tuple[Axis, ...], invariant: tuple[Symmetry, ...], deep: bool = True
) -> Callable[[Function], Function]:
    """Registers a measure under its function's name and gives the function back unchanged."""

    def register(function: Function) -> Function:
        name = function.__name__
        if name in _MEASURES:
            raise ValueError(f"two measures are called {name}: rename one")
        _MEASURES[name] = Measure(name, function, cites, shape, frozenset(invariant), deep)
        return function

    return register


def registered() -> tuple[Measure, ...]:
    """All measures of a pair, in the order of their registration."""
    return tuple(_MEASURES.values())
