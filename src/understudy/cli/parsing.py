"""Words of the command line as values: a wrong one is told which option it was for and what is allowed there."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Union, get_args, get_origin

if TYPE_CHECKING:
    from tyro.constructors import PrimitiveConstructorSpec, PrimitiveTypeInfo

Options = TypeVar("Options")

_PLAIN: dict[Any, tuple[str, str]] = {
    int: ("INT", "a whole number"),
    float: ("FLOAT", "a number"),
    Path: ("PATH", "a path"),
}


def emit(value: Any) -> None:
    """One JSON object on standard output, for a program."""
    print(json.dumps(value, ensure_ascii=False, allow_nan=False))


def parse(kind: type[Options], words: Sequence[str], prog: str) -> Options:
    """The options of a command; tyro prints what is wrong with them and ends with exit status 2."""
    import tyro

    config = (tyro.conf.FlagCreatePairsOff, tyro.conf.OmitArgPrefixes, tyro.conf.PositionalRequiredArgs)
    registry = tyro.constructors.ConstructorRegistry()
    registry.primitive_rule(_rule)
    with registry:
        return tyro.cli(kind, args=list(words), prog=prog, config=config)


def _rule(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
    """Numbers, paths, choices, several of them, and ones that may be left out; tyro reads the rest."""
    from tyro.constructors import PrimitiveConstructorSpec

    one: Any = info.type
    several = False
    if get_origin(one) in (Union, UnionType) and len(get_args(one)) == 2 and NoneType in get_args(one):
        one = next(part for part in get_args(one) if part is not NoneType)
    if get_origin(one) is tuple and get_args(one)[1:] == (...,):
        one, several = get_args(one)[0], True
    if one in _PLAIN:
        metavar, allowed = _PLAIN[one]
        read: Callable[[str], Any] = one
    elif get_origin(one) is Literal:
        metavar, allowed = f"{{{','.join(get_args(one))}}}", f"one of {', '.join(get_args(one))}"
        read = {choice: choice for choice in get_args(one)}.__getitem__
    else:
        return None
    item = _reader(read, allowed)
    return PrimitiveConstructorSpec(
        nargs="*" if several else 1,
        metavar=f"[{metavar} [{metavar} ...]]" if several else metavar,
        instance_from_str=lambda words: tuple(map(item, words)) if several else item(words[0]),
        is_instance=lambda value: True,
        str_from_instance=lambda value: [str(v) for v in value] if several else [str(value)],
    )


def _reader(read: Callable[[str], Any], allowed: str) -> Callable[[str], Any]:
    def item(word: str) -> Any:
        try:
            return read(word)
        except (ValueError, KeyError):
            raise ValueError(f"{word or 'nothing'} was given; allowed is {allowed}") from None

    return item


def nearest(word: str, known: Sequence[str]) -> str:
    """Suggest the known word that is closest to a mistyped one."""
    near = difflib.get_close_matches(word, known, 1)
    return f"did you mean {near[0]}? " if near else ""
