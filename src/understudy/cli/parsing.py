"""Parse the options of a command with tyro, and print results for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Union, get_args, get_origin

from understudy.cli.streams import encodes_unicode

if TYPE_CHECKING:
    from tyro.constructors import PrimitiveConstructorSpec, PrimitiveTypeInfo

Options = TypeVar("Options")

_NAMES: dict[Any, tuple[str, str]] = {
    int: ("INT", "a whole number"),
    float: ("FLOAT", "a number"),
    Path: ("PATH", "a path"),
}


class RepeatedWords(tuple[str, ...]):
    """Words of an option that takes one and may be repeated."""


def emit(value: Any) -> None:
    """Print one JSON object on standard output."""
    print(json.dumps(value, ensure_ascii=not encodes_unicode(sys.stdout), allow_nan=False))


def parse(kind: type[Options], words: Sequence[str], prog: str) -> Options:
    """Parse the options of a command; on an error tyro prints it and ends with exit status 2."""
    import tyro
    from tyro import conf

    markers = (
        conf.FlagCreatePairsOff,
        conf.OmitArgPrefixes,
        conf.OmitSubcommandPrefixes,
        conf.PositionalMetavarFromFieldName,
        conf.PositionalRequiredArgs,
    )
    registry = tyro.constructors.ConstructorRegistry()
    registry.primitive_rule(_rule)
    with registry:
        return tyro.cli(kind, args=list(words), prog=prog, config=markers)


def _rule(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
    """Numbers, paths and choices, optional or repeated, with our own error messages; tyro reads all other types."""
    from tyro.conf import UseAppendAction
    from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

    one: Any = info.type
    if one is RepeatedWords:
        repeated = PrimitiveTypeInfo.make(UseAppendAction[tuple[str, ...]], info.markers)
        found = ConstructorRegistry.get_primitive_spec(repeated)
        return found if isinstance(found, PrimitiveConstructorSpec) else None
    several = False
    if get_origin(one) in (Union, UnionType) and len(get_args(one)) == 2 and NoneType in get_args(one):
        one = next(part for part in get_args(one) if part is not NoneType)
    if get_origin(one) is tuple and get_args(one)[1:] == (...,):
        one, several = get_args(one)[0], True
    choices = get_args(one) if get_origin(one) is Literal else None
    read: Callable[[str], Any] = str
    if choices:
        metavar = f"{{{','.join(choices)}}}"
    elif one in _NAMES:
        metavar, read = _NAMES[one][0], _reader(one)
    else:
        return None
    return PrimitiveConstructorSpec(
        nargs="*" if several else 1,
        metavar=f"[{metavar} [{metavar} ...]]" if several else metavar,
        instance_from_str=lambda words: tuple(map(read, words)) if several else read(words[0]),
        is_instance=lambda value: True,
        str_from_instance=lambda value: [str(v) for v in value] if several else [str(value)],
        choices=choices,
    )


def _reader(kind: Any) -> Callable[[str], Any]:
    def read(word: str) -> Any:
        try:
            value = kind(word)
        except ValueError:
            raise ValueError(f"must be {_NAMES[kind][1]}, got {word!r}") from None
        if kind is int and abs(value) >= 2**63:
            raise ValueError(f"must be a whole number between −2^63 and 2^63, got {word!r}")
        return value

    return read
