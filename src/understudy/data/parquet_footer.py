"""Footer of a Parquet file: how many values its columns declare.

PyArrow reads damaged footers with an error, except where the metadata of a column are asked for: there an exception of
C++ ends the process. The footer is a structure in the compact protocol of Thrift
(https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

_ROW_GROUPS, _COLUMNS, _METADATA, _VALUES = 4, 1, 3, 5
"""Fields of FileMetaData, RowGroup, ColumnChunk and ColumnMetaData."""
_END = 8
"""Bytes after the footer: its length, and PAR1."""
_TRUE, _FALSE, _STRUCT = 1, 2, 12


def declared_values(file: Path) -> int:
    """Number of values that all column chunks of a Parquet file declare together.

    Args:
        file: A Parquet file that PyArrow has opened.

    Raises:
        ValueError: A footer that is damaged; other exceptions of its decoder, such as IndexError, say the same.
    """
    with open(file, "rb") as source:
        size = source.seek(0, 2)
        source.seek(size - _END)
        length = int.from_bytes(source.read(4), "little")
        source.seek(size - _END - length)
        footer = _Compact(source.read(length)).struct()
    return sum(
        _whole(column[_METADATA][_VALUES])
        for group in footer.get(_ROW_GROUPS, [])
        for column in group.get(_COLUMNS, [])
        if _METADATA in column
    )


def _whole(value: object) -> int:
    if not isinstance(value, int) or value < 0:
        raise ValueError(f"a number of values must be at least 0, got {value!r}")
    return value


class _Compact:
    """Decoder of the compact protocol; structures are dicts by field number."""

    def __init__(self, content: bytes) -> None:
        self.content, self.at = content, 0
        self.readers: dict[int, Callable[[], Any]] = {
            **dict.fromkeys((_TRUE, _FALSE, 3), self.byte),
            **dict.fromkeys((4, 5, 6), self.signed),
            7: lambda: self.skip(8),
            8: lambda: self.skip(self.unsigned()),
            **dict.fromkeys((9, 10), self.sequence),
            11: self.pairs,
            _STRUCT: self.struct,
        }

    def byte(self) -> int:
        self.at += 1
        return self.content[self.at - 1]

    def unsigned(self) -> int:
        found = 0
        for shift in range(0, 64, 7):
            one = self.byte()
            found |= (one & 127) << shift
            if one < 128:
                return found
        raise ValueError("a number has more than 64 bits")

    def signed(self) -> int:
        """A whole number of at most 64 bits, in the zigzag code."""
        code = self.unsigned()
        return code >> 1 ^ -(code & 1)

    def skip(self, length: int) -> None:
        self.at += length
        if self.at > len(self.content):
            raise ValueError("the footer ends too early")

    def sequence(self) -> list[Any]:
        head = self.byte()
        count = head >> 4 if head < 240 else self.unsigned()
        read = self.readers[head & 15]
        return [found for _ in range(count) if (found := read())]  # empty structures would take 64 bytes for one

    def pairs(self) -> None:
        count = self.unsigned()
        kinds = self.byte() if count else 0
        for _ in range(count):
            self.readers[kinds >> 4]()
            self.readers[kinds & 15]()

    def struct(self) -> dict[int, Any]:
        found: dict[int, Any] = {}
        number = 0
        while head := self.byte():
            number = number + (head >> 4) if head >> 4 else self.signed()
            kind = head & 15
            found[number] = kind == _TRUE if kind in (_TRUE, _FALSE) else self.readers[kind]()
        return found
