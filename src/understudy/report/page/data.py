"""Values of a page as JSON: arrays in plotly's binary form, tables column by column."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from markupsafe import Markup

from understudy._citations import cite
from understudy._numbers import number

MEASURED = frozenset(
    "network layer teacher strength student correlation sin_angle bias_gap recovered_at "  # noqa: SIM905
    "correlation_before rank_before fan_out settled_at".split()
)
"""Columns of the table that are not swept parameters."""
_FEW = 64
"""Columns of numbers with at most this many distinct values are stored as these values and codes: exact, and small."""


def inline_json(value: object) -> Markup:
    """JSON for a script element: no part of it can end the element or open a comment."""
    text = json.dumps(_plain(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029"))


def _plain(value: object) -> object:
    """Convert to JSON types: arrays to plotly's typed arrays, NaN to null, numbers to seven digits."""
    match value:
        case np.ndarray() if value.dtype.kind in "iuf":
            return typed_array(value)
        case np.ndarray():
            return [_plain(item) for item in value.tolist()]
        case np.generic():
            return _plain(value.item())
        case float():
            return float(f"{value:.7g}") if math.isfinite(value) else None
        case Mapping():
            return {str(key): _plain(item) for key, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
        case None | str() | int():
            return value
        case _:
            return str(value)


def typed_array(array: np.ndarray) -> dict[str, Any]:
    """Encode as `{"dtype", "bdata", "shape"}`: integers in the smallest exact type, other numbers as float32."""
    if array.dtype.kind == "f":
        small = array.astype("<f4")
    else:
        low, high = (int(array.min()), int(array.max())) if array.size else (0, 0)
        types = ("i1", "u1", "i2", "u2", "i4", "u4")
        fits = (t for t in types if np.iinfo(t).min <= low and high <= np.iinfo(t).max)
        small = array.astype("<" + next(fits, "f8"))
    spec: dict[str, Any] = {"dtype": small.dtype.str.lstrip("<|"), "bdata": base64.b64encode(small.tobytes()).decode()}
    return spec if array.ndim == 1 else spec | {"shape": list(array.shape)}


def table_columns(table: pa.Table) -> dict[str, Any]:
    return {
        "rows": table.num_rows,
        "columns": [
            {"name": name, "parameter": name not in MEASURED} | _column(column.combine_chunks())
            for name, column in zip(table.column_names, table.columns, strict=True)
        ],
    }


def _column(column: pa.Array) -> dict[str, Any]:
    """Encode a column as numbers, with NaN for null, or as its distinct values and one code per row."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _column(column.cast(kind.value_type))
    whole = pa.types.is_integer(kind)
    if whole and column.null_count == 0:
        return {"whole": True, "numbers": typed_array(column.to_numpy(zero_copy_only=False))}
    numeric = whole or pa.types.is_floating(kind)
    if numeric and (whole or pc.count_distinct(column).as_py() > _FEW):
        return {"whole": whole, "numbers": typed_array(column.cast(pa.float64()).to_numpy(zero_copy_only=False))}
    coded = column.dictionary_encode(null_encoding="encode")
    values = coded.dictionary.to_pylist()
    return {
        "values": [value if numeric or value is None else cite(words(value)) for value in values],
        "codes": typed_array(coded.indices.to_numpy(zero_copy_only=False)),
    }


def words(value: object) -> str:
    """Write a setting for people."""
    match value:
        case None:
            return "none"
        case bool():
            return "yes" if value else "no"
        case float():
            return number(value, ".10g")
        case list() | tuple():
            return ", ".join(words(item) for item in value)
        case _:
            return str(value)


def flat(settings: Mapping[str, object], prefix: str = "") -> Iterable[tuple[str, str]]:
    """Names and values of nested settings, in one list."""
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", words(value)
