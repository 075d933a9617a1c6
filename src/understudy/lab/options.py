"""Constraints on the options of studies: stated in their annotations, validated and reported in one place."""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from itertools import product
from numbers import Integral, Real
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from annotated_types import Ge, Gt, Le, Lt

from understudy._errors import UserError, suggest
from understudy._memory import MOST
from understudy._numbers import typeset


@dataclass(frozen=True)
class Distinct:
    """Several values of an option must differ from each other."""


@dataclass(frozen=True)
class Among:
    """Every word of an option must be one of these."""

    words: tuple[str, ...]


@dataclass(frozen=True)
class MayBeEmpty:
    """An option that takes several values may have none."""


@dataclass(frozen=True)
class Unsized:
    """The option is no size: however large, it takes time or nothing, but no memory."""


@dataclass(frozen=True)
class _FileOption:
    """The option names a file whose contents belong to the configuration of a run."""


InputFile = Annotated[str, _FileOption()]
"""A user's file; a changed file gets a new run folder."""
Count = Annotated[int, Ge(1)]
"""A whole number of at least 1."""
Steps = Annotated[int, Ge(1), Unsized()]
"""A whole number of at least 1 that takes time but no memory, such as steps."""
Counts = Annotated[tuple[int, ...], Ge(1), Distinct()]
"""Different whole numbers of at least 1."""
Sizes = Annotated[tuple[int, ...], Ge(1)]
"""Whole numbers of at least 1, such as the nodes of layers."""
Positive = Annotated[float, Gt(0)]
"""A number above 0."""
Positives = Annotated[tuple[float, ...], Gt(0), Distinct()]
"""Different numbers above 0."""
NonNegative = Annotated[float, Ge(0)]
"""A number of at least 0."""
NonNegatives = Annotated[tuple[float, ...], Ge(0), Distinct()]
"""Different numbers of at least 0."""
Angle = Annotated[float, Gt(0), Le(math.pi / 2)]
"""An angle in rad, above 0 and at most π/2."""
Share = Annotated[float, Gt(0), Lt(1)]
"""A share above 0 and below 1."""

_BOUNDS = ((Ge, "ge", "at least"), (Gt, "gt", "above"), (Le, "le", "at most"), (Lt, "lt", "below"))


def validate_options(study: object) -> None:
    """Refuse the first option whose value its annotation does not allow.

    Raises:
        UserError: Naming the option, what is allowed and what was given.
    """
    kind: type[Any] = type(study)
    for name, constraints in _constraints(kind).items():
        _validate(option(name), getattr(study, name), constraints)


def _constraints(kind: type[Any]) -> dict[str, tuple[Any, ...]]:
    hints = get_type_hints(kind, include_extras=True)
    return {field.name: getattr(hints[field.name], "__metadata__", ()) for field in fields(kind)}


def converted(kind: type[Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Values of options as a study has them: a sequence or a single value as a tuple, numbers of numpy as plain ones.

    Raises:
        UserError: The study has no such option, or a value is of another type.
    """
    hints, known = get_type_hints(kind), [field.name for field in fields(kind)]
    for name in given:
        if name not in known:
            near = suggest(name, known)
            raise UserError(f"{kind.name} has no option {name!r}; {near}its options are {', '.join(known)}")
    return {name: _convert(name, hints[name], value) for name, value in given.items()}


def _convert(name: str, hint: Any, value: Any) -> Any:
    if get_origin(hint) is not tuple:
        return _convert_one(name, hint, value)
    several = value if isinstance(value, Iterable) and not isinstance(value, str) else (value,)
    return tuple(_convert_one(name, get_args(hint)[0], each) for each in several)


def _convert_one(name: str, kind: Any, value: Any) -> Any:
    if get_origin(kind) is Literal:
        wanted, fits = f"one of {', '.join(get_args(kind))}", isinstance(value, str) and value in get_args(kind)
        kind = str
    elif kind is str:
        wanted, fits = "a word or a path", isinstance(value, str | os.PathLike)
    else:
        wanted = "a whole number" if kind is int else "a number"
        fits = isinstance(value, Integral if kind is int else Real) and not isinstance(value, bool)
    if not fits:
        shown = repr(value) if isinstance(value, str | Real | None) else type(value).__name__
        raise UserError(f"must be {wanted}, got {shown}", name)
    return kind(value)


def sizes(study: object) -> dict[str, int]:
    """Options of a study that are sizes, each with its largest value: whole numbers of what is held in memory."""
    hints, held = get_type_hints(type(study)), {}
    for name, constraints in _constraints(type(study)).items():
        one = get_args(hints[name])[:1] if get_origin(hints[name]) in (tuple, Union, UnionType) else (hints[name],)
        if int in one and not any(isinstance(constraint, Unsized) for constraint in constraints):
            value = getattr(study, name)
            held[name] = max(value) if isinstance(value, tuple) else value
    return held


def file_options(kind: type[Any]) -> list[str]:
    """The options of a study that name files."""
    return [
        name for name, constraints in _constraints(kind).items() if any(isinstance(c, _FileOption) for c in constraints)
    ]


def _validate(name: str, given: Any, constraints: tuple[Any, ...]) -> None:
    values = given if isinstance(given, tuple) else (given,)
    if not values and not any(isinstance(constraint, MayBeEmpty) for constraint in constraints):
        raise UserError(f"{name} needs at least one value")
    wanted = _describe(constraints)
    for value in values:
        if isinstance(value, float) and not math.isfinite(value):
            raise UserError(f"{name} must be {wanted or 'a finite number'}, got {value:g}")
        if not all(_allows(constraint, value) for constraint in constraints):
            raise UserError(f"{name} must be {wanted}, got {typed(value)}")
        if isinstance(value, int | float) and abs(value) > MOST:
            bound = f"at least {_bound(-MOST)}" if value < 0 else f"at most {_bound(MOST)}"
            raise UserError(f"{name} must be {bound}, got {typed(value)}")
    if any(isinstance(constraint, Distinct) for constraint in constraints) and len(set(values)) < len(values):
        raise UserError(f"{name} takes each value once, got {' '.join(typed(value) for value in values)}")


def _describe(constraints: tuple[Any, ...]) -> str:
    """The bounds of an option in words, such as `above 0 and at most 1`."""
    parts = [
        f"{words} {_bound(getattr(constraint, field))}"
        for constraint in constraints
        for kind, field, words in _BOUNDS
        if isinstance(constraint, kind)
    ]
    parts += [f"one of {', '.join(constraint.words)}" for constraint in constraints if isinstance(constraint, Among)]
    return " and ".join(parts)


def _bound(value: Any) -> str:
    return "π/2" if value == math.pi / 2 else typeset(f"{value:,}")


def _allows(constraint: Any, value: Any) -> bool:
    match constraint:
        case Ge():
            return bool(value >= constraint.ge)
        case Gt():
            return bool(value > constraint.gt)
        case Le():
            return bool(value <= constraint.le)
        case Lt():
            return bool(value < constraint.lt)
        case Among():
            return value in constraint.words
    return True


def option(name: str) -> str:
    """The option of a field as it is typed: `--teacher-nodes`."""
    return f"--{name.replace('_', '-')}"


def typed(value: Any) -> str:
    """A value as a person types it, which is read back as the same value."""
    short = f"{value:g}" if isinstance(value, float) else shlex.quote(str(value))
    return short if not isinstance(value, float) or not math.isfinite(value) or float(short) == value else repr(value)


def validate_widths(teacher_nodes: int | Iterable[int], multiples: tuple[float, ...], name: str = "--multiple") -> None:
    """Refuse a multiple of the teacher's nodes, of one or several layers, that is not a whole number of nodes."""
    layers = (teacher_nodes,) if isinstance(teacher_nodes, int) else teacher_nodes
    for layer, multiple in product(layers, multiples):
        nodes = multiple * layer
        if nodes < 1 or abs(nodes - round(nodes)) > 1e-9 * nodes:
            raise UserError(
                f"{name} {multiple:g} × {layer} teacher nodes = {nodes:g} student nodes; choose a multiple "
                "that gives a whole number of at least 1"
            )


def validate_batch(samples: int, batch: int) -> None:
    """Refuse a batch that is larger than the training set."""
    if samples < batch:
        raise UserError(f"--batch must be at most the number of training samples ({samples:,}), got {batch}")
