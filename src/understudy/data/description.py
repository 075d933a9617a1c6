"""Describe a source of inputs by plain values, and make it again from its description."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, cast

from understudy._errors import UserError
from understudy.data.source import Source
from understudy.nets import Population

_TEACHER = {"population": "teacher"}


def describe(source: Source) -> dict[str, Any] | None:
    """Describe a source, so that a run folder records on which inputs its networks were trained.

    Args:
        source: The source.

    Returns:
        The name of its class and its fields as plain values (a population becomes a reference to the group's teacher,
        a source its description), or None for a source that holds tensors, is not a dataclass or has a user's class.
    """
    from understudy import data

    if not is_dataclass(source) or getattr(data, type(source).__name__, None) is not type(source):
        return None
    values = {field.name: _plain(getattr(source, field.name)) for field in fields(source)}
    if any(value is NotImplemented for value in values.values()):
        return None
    return {"kind": type(source).__name__} | values


def restore(description: dict[str, Any], teacher: Population) -> Source:
    """Make a source again from its description.

    Args:
        description: What `describe` returned.
        teacher: The teacher of the group, for sources that are made with its knowledge.

    Returns:
        A source with the same inputs.

    Raises:
        UserError: If there is no source of this kind, or the files it reads are not there.
    """
    from understudy import data

    values = dict(description)
    kind = getattr(data, str(values.pop("kind")), None)
    if kind is None:
        raise UserError(f"understudy.data has no source {description['kind']}; upgrade understudy")
    return cast(Source, kind(**{name: _value(value, teacher) for name, value in values.items()}))


def _plain(value: Any) -> Any:
    match value:
        case None | bool() | int() | float() | str():
            return value
        case Path():
            return str(value)
        case tuple():
            parts = [_plain(part) for part in value]
            return NotImplemented if any(part is NotImplemented for part in parts) else parts
        case Population():
            return _TEACHER
        case Source():
            return describe(value) or NotImplemented
        case _:
            return NotImplemented


def _value(value: Any, teacher: Population) -> Any:
    if value == _TEACHER:
        return teacher
    if isinstance(value, dict):
        return restore(value, teacher)
    return tuple(_value(part, teacher) for part in value) if isinstance(value, list) else value
