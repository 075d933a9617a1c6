"""What a user states about a network whose file contains only tensors, and what is assumed in its place."""

from __future__ import annotations

import contextlib
import math
import numbers
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from understudy._errors import UserError
from understudy.nets.shape import Pool, Sides, pair

Pooling = Pool | Literal["global"] | None
"""Pooling of a map as it is stated: the size of a global average is that of the map."""

_SLOPES = {"relu": 0.0, "abs": -1.0, "linear": 1.0}
_SIDES = r"\d+(?:x\d+)?"
_POOL = re.compile(rf"(max|average):({_SIDES})(?:/({_SIDES}))?(?:\+({_SIDES}))?")
AS_MODULES = (
    "networks with others are compared as modules: us.align(teacher, student, data), or understudy align with --model "
    "FILE.py:Class"
)


class Unstated(UserError):
    """Something that changes the function of a network, is not in its file, and must be stated.

    Args:
        problem: What is not in the file.
        remedy: How the options of a command and the arguments of `load` state it.
        argument: The argument of `load` that states it.
    """

    def __init__(self, problem: str, remedy: str, argument: str) -> None:
        super().__init__(f"{problem}; {remedy}.")
        self.problem, self.argument = problem, argument


class Assumed(NamedTuple):
    """Something that is not in a file and was assumed."""

    words: str
    argument: str
    """The argument that decides it."""


@dataclass(frozen=True, kw_only=True)
class Stated:
    """What is stated about a network: each argument as in `load`, None if it is not stated.

    Raises:
        UserError: A value that is not among the allowed ones.
    """

    activation: str | float | None = None
    norm_order: str | None = None
    norm_eps: float | None = None
    padding: int | Sequence[Sides] | None = None
    stride: int | Sequence[Sides] | None = None
    pool: str | Sequence[str] | None = None
    image: int | Sequence[int] | None = None
    order: Sequence[str] | None = None
    key: str | None = None
    model: str | None = None
    model_args: Sequence[str] | None = None

    def __post_init__(self) -> None:
        _ = self.slope
        if self.norm_order is not None and not _is_one_of(self.norm_order, "before", "after"):
            raise UserError(f"must be before or after (the activation), got {self.norm_order!r}", "norm_order")
        if self.norm_eps is not None and not (_is_number(self.norm_eps) and 0 <= self.norm_eps < math.inf):
            raise UserError(f"must be a finite number of at least 0, as in 0.001, got {self.norm_eps!r}", "norm_eps")
        for name, least in (("padding", 0), ("stride", 1)):
            for each in _listed(getattr(self, name)):
                _validate_sides(each, least, name)
        for word in _listed(self.pool):
            parse_pool(word)
        if self.image is not None and self.sides is None:
            raise UserError(
                "must be the height and width of the inputs, two whole numbers above 0, or one for both, got "
                f"{self.image!r}",
                "image",
            )
        if self.order is not None and not _is_words(self.order):
            raise UserError(f"must be a list of names of layers, from the inputs up, got {self.order!r}", "order")
        if self.key is not None and not (isinstance(self.key, str) and self.key):
            raise UserError(f"must be a key of the checkpoint or a prefix of its tensors, got {self.key!r}", "key")
        if self.model_args is not None and not _is_words(self.model_args):
            raise UserError(
                f"must be a list of words such as '10' or 'width=10', got {self.model_args!r}", "model_args"
            )
        if self.model is None:
            if self.model_args:
                raise UserError("needs model, the class or function that it is for", "model_args")
        elif not isinstance(self.model, str):
            raise UserError(
                f"must be FILE.py:Class or PACKAGE:NAME, got a {type(self.model).__name__}; us.from_module converts a "
                "module at hand",
                "model",
            )

    @property
    def slope(self) -> float | None:
        """Slope of the activation below zero."""
        given = self.activation
        if given is None:
            return None
        slope = None
        if isinstance(given, str):
            word, _, number = given.partition(":")
            with contextlib.suppress(ValueError):
                slope = _SLOPES.get(given, float(number) if word == "leaky" else None)
        elif _is_number(given):
            slope = float(given)
        if slope is None or not math.isfinite(slope):
            raise UserError(
                "must be relu, leaky:SLOPE (a finite number, as in leaky:0.1), abs or linear, got "
                f"{given!r}; {AS_MODULES}",
                "activation",
            )
        return slope

    @property
    def sides(self) -> tuple[int, int] | None:
        """Height and width of the inputs; None if they are not stated, or not as two whole numbers above 0."""
        both = [self.image, self.image] if isinstance(self.image, int) else _listed(self.image)
        return (both[0], both[1]) if len(both) == 2 and all(_whole(side, 1) for side in both) else None

    def paddings(self, count: int) -> tuple[Sides, ...] | None:
        """Padding of each convolution; None if it is not stated.

        Args:
            count: Number of convolutions.

        Raises:
            UserError: Several are stated, but not one for each convolution.
        """
        return _spread(self.padding, count, "padding")

    def strides(self, count: int) -> tuple[Sides, ...] | None:
        """Stride of each convolution; None if it is not stated.

        Args:
            count: Number of convolutions.

        Raises:
            UserError: Several are stated, but not one for each convolution.
        """
        return _spread(self.stride, count, "stride")

    def pools(self, count: int) -> tuple[Pooling, ...] | None:
        """Pooling after each convolution, a single global average being that of the last; None if it is not stated.

        Args:
            count: Number of convolutions.

        Raises:
            UserError: Several are stated, but not one for each convolution.
        """
        if self.pool == "global":
            return (None,) * (count - 1) + ("global",)
        words = _spread(self.pool, count, "pool")
        return None if words is None else tuple(map(parse_pool, words))

    def named(self, *names: str) -> list[str]:
        """Select the arguments that are stated among these.

        Args:
            *names: Names of arguments.
        """
        return [name for name in names if getattr(self, name) is not None]


def parse_pool(word: str) -> Pooling:
    """Parse a pooling: none, global, or max or average with kernel, stride and padding, as in `max:3/2+1`.

    Raises:
        UserError: Anything else.
    """
    if word == "none":
        return None
    if word == "global":
        return "global"
    found = _POOL.fullmatch(word) if isinstance(word, str) else None
    if found is None:
        raise UserError(
            "must be none, global (the average of the whole map), or max or average with the kernel, and stride and "
            f"padding where they differ from kernel and 0, as in max:2, average:3/2 or max:3/2+1, got {word!r}",
            "pool",
        )
    kind, kernel, stride, padding = found.groups()
    sides = parse_sides(kernel), parse_sides(stride or kernel), parse_sides(padding or "0")
    for side, least in zip(sides, (1, 1, 0), strict=True):
        _validate_sides(side, least, "pool")
    return Pool("max" if kind == "max" else "average", *sides)


def parse_sides(word: str) -> Sides:
    """Parse a whole number, or height and width as in `28x32`; equal ones become one number.

    Raises:
        ValueError: Anything else.
    """
    height, *width = (int(side) for side in word.split("x"))
    if len(width) > 1:
        raise ValueError(word)
    return height if width in ([], [height]) else (height, width[0])


def format_pool(pool: Pooling) -> str:
    """The word that `parse_pool` reads."""
    if pool is None or pool == "global":
        return pool or "none"
    kernel, stride, padding = (format_sides(side) for side in pool[1:])
    return (
        f"{pool.kind}:{kernel}" + (f"/{stride}" if stride != kernel else "") + (f"+{padding}" if pool.padding else "")
    )


def format_sides(sides: Sides) -> str:
    """A whole number, or height and width as in `28x32`."""
    return str(sides) if isinstance(sides, int) else "x".join(map(str, sides))


def format_activation(slope: float) -> str:
    """Name of the activation of this slope below zero."""
    return {0.0: "ReLU", 1.0: "no activation", -1.0: "|·|"}.get(slope, f"leaky ReLU of slope {slope:g}")


def _listed(given: Any) -> list[Any]:
    """All values of an argument that is one value or a sequence of them."""
    if given is None:
        return []
    return list(given) if isinstance(given, Sequence) and not isinstance(given, str) else [given]


def _is_one_of(given: Any, *words: str) -> bool:
    return isinstance(given, str) and given in words


def _is_number(given: Any) -> bool:
    return isinstance(given, numbers.Real) and not isinstance(given, bool)


def _is_words(given: Any) -> bool:
    """Whether this is a sequence of words, which a single word is not."""
    return isinstance(given, Sequence) and not isinstance(given, str) and all(isinstance(word, str) for word in given)


def _spread(given: Any, count: int, name: str) -> tuple[Any, ...] | None:
    """One value for each convolution."""
    if given is None:
        return None
    values = _listed(given)
    if len(values) not in (1, count):
        raise UserError(f"must be one, or one for each of {count} convolutions, got {len(values)}", name)
    return tuple(values * count if len(values) == 1 else values)


def _whole(value: Any, least: int) -> bool:
    return type(value) is int and value >= least


def _validate_sides(value: Any, least: int, name: str) -> None:
    sides = pair(value) if isinstance(value, int) else tuple(_listed(value))
    if len(sides) != 2 or not all(_whole(side, least) for side in sides):
        raise UserError(
            f"must be whole numbers of at least {least}, or (height, width) of these, one for each convolution, got "
            f"{value!r}",
            name,
        )
