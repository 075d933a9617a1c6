"""Pickles read as plain data: numbers, texts and containers. Nothing in a pickle is called but what a reader allows."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any, ClassVar, Protocol, runtime_checkable

_REFUSED = (
    *(pickle.BYTEARRAY8, pickle.NEXT_BUFFER, pickle.READONLY_BUFFER, pickle.EXT1, pickle.EXT2, pickle.EXT4),
    *(pickle.INST, pickle.OBJ, pickle.NEWOBJ, pickle.NEWOBJ_EX, pickle.PERSID),
)
"""Operations that numbers and containers do not need: they allocate what is declared, or make objects."""
_MOST_ARGUMENTS = 16
_PLAIN = (str, bytes, int, float, bool, type(None))
_KEYS = {
    pickle.SETITEM: slice(-2, -1),
    pickle.SETITEMS: slice(None, None, 2),
    pickle.DICT: slice(None, None, 2),
    pickle.ADDITEMS: slice(None),
    pickle.FROZENSET: slice(None),
}
"""Where operations find keys, or items of sets, on the stack."""
_WIDEST = 2**60
"""Numbers from which hashes can coincide, which would make dictionaries slow."""


@runtime_checkable
class PickleSource(Protocol):
    """Reader of a pickle that never returns more bytes than there are."""

    def read(self, count: int = -1, /) -> bytes:
        """Read at most so many bytes."""

    def readline(self) -> bytes:
        """Read a line."""


class PlainUnpickler(pickle._Unpickler):
    """Unpickle numbers, texts, lists, tuples, sets and dictionaries; `find_class` decides about everything else.

    Derived from the Python implementation, since the C one allocates as much memory as a pickle asks for, whatever the
    size of the file. What calls may make is bounded by the size of the pickle: see `spend`.

    Args:
        source: The pickle.
        size: Its bytes.
        encoding: Encoding of texts that Python 2 wrote.
    """

    dispatch: ClassVar[dict[int, Callable[..., Any]]] = {}
    stack: list[Any]

    def __init__(self, source: PickleSource, size: int, encoding: str = "utf-8") -> None:
        super().__init__(source, encoding=encoding)
        self._left = size

    def spend(self, count: int) -> None:
        """Count bytes or items that a call makes; together they are at most as many as the pickle has bytes.

        Args:
            count: How many.

        Raises:
            UnpicklingError: More than that.
        """
        self._left -= count
        if self._left < 0:
            raise pickle.UnpicklingError("calls make more than the pickle contains")

    def load_reduce(self) -> None:
        arguments = self.stack.pop()
        if type(arguments) is not tuple or len(arguments) > _MOST_ARGUMENTS:
            raise pickle.UnpicklingError("a call without a tuple of arguments")
        self.stack[-1] = self.stack[-1](*arguments)

    def load_build(self) -> None:
        """Hand a state to an object that keeps it; attributes of others are left out."""
        state = self.stack.pop()
        if (keep := getattr(type(self.stack[-1]), "keep_state", None)) is not None:
            keep(self.stack[-1], state)


def require_keys(keys: list[Any]) -> None:
    """Refuse keys whose hash takes long: nested tuples, which also end the process, and very large numbers."""
    for key in keys:
        for each in key if type(key) is tuple else (key,):
            if type(each) not in _PLAIN or (type(each) is int and abs(each) > _WIDEST):
                raise pickle.UnpicklingError(f"a key of type {type(each).__name__}")


def _with_keys(load: Callable[[Any], None], keys: slice) -> Callable[[Any], None]:
    """Make an operation that first validates the keys that it takes from the stack."""

    def checked(unpickler: PlainUnpickler) -> None:
        require_keys(unpickler.stack[keys])
        load(unpickler)

    return checked


def _operations() -> dict[int, Callable[..., Any]]:
    found = {code: load for code, load in pickle._Unpickler.dispatch.items() if bytes([code]) not in _REFUSED}
    found |= {code[0]: _with_keys(found[code[0]], keys) for code, keys in _KEYS.items()}
    return found | {
        pickle.REDUCE[0]: PlainUnpickler.load_reduce,
        pickle.BUILD[0]: PlainUnpickler.load_build,
    }


PlainUnpickler.dispatch = _operations()
