"""The page: a run's story, figures, who-learned-whom table, claims and making in one self-contained HTML file."""

from __future__ import annotations

import base64
import json
import math
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from html import escape
from importlib.resources import files as package_files
from pathlib import PurePosixPath
from string import Template
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from plotly.offline import get_plotlyjs

from understudy.report.page.strip import strip
from understudy.report.story import Figure, Number, Story
from understudy.store.claims import Claim, Variant

MAXIMUM_BYTES = 8_000_000
_MOST_ROWS = 30_000
_NOTHING = '{"data":[],"layout":{}}'
_EMPTY_HEIGHT = 40
MEASURED = frozenset(
    "network layer teacher strength student correlation sin_angle bias_gap recovered_at".split()  # noqa: SIM905
)
"""Columns of the table that are not swept parameters."""

_SCRIPTS = ("page.js", "figures.js", "grid.js", "table.js")
_DEFAULT_HEIGHT = 440
_FEW = 64
"""A column of numbers with at most this many values is kept as those values and codes: exact, and small."""


def page(
    *,
    title: str,
    story: Story,
    table: pa.Table,
    claims: list[Claim],
    settings: dict[str, object],
    environment: dict[str, object],
    command: str,
    files: list[str],
) -> bytes:
    """The page as a file; the same inputs give the same bytes.

    `table` has a row per network and teacher node; its columns beside `MEASURED` are the swept parameters. A figure's
    `page()` gives plotly's `data` and `layout` and may give `frames` and `networks`: curves of single networks, drawn
    when one is marked, as `id` [N], `x` [T] or [N, T], `y` [N, T] or [N, m, T] (a line a teacher node), and `xaxis`,
    `yaxis`, one name or one a network. Curves are left out, largest first, where the page would pass `MAXIMUM_BYTES`.
    """
    panels = [_Panel.of(figure, figure.kind.page()) for figure in story.figures]
    shown = _thinned(table)
    texts = {
        "title": escape(title),
        "headline": escape(story.headline),
        "numbers": "\n".join(_number(number) for number in story.numbers),
        "claims": _claims(claims),
        "settings": _facts(settings),
        "environment": _facts(environment),
        "command": escape(command),
        "files": "\n".join(f"<li>{_link(name, name)}</li>" for name in files),
        "table": _inline(_columns(shown)),
        "table_note": _table_note(shown, table),
        "lead": _lead(any(panel.marks for panel in panels), bool(table.num_columns)),
        "no_table": "" if table.num_columns else " hidden",
        "css": _asset("page.css"),
        "script": "\n".join(_asset(name) for name in _SCRIPTS),
        "plotly": _packed_plotly(),
    }
    content = _assemble(texts, panels, files)
    while len(content) > MAXIMUM_BYTES and any(panel.curves for panel in panels):
        largest = max(range(len(panels)), key=lambda i: len(panels[i].curves))
        panels[largest] = panels[largest].without_curves()
        content = _assemble(texts, panels, files)
    while len(content) > MAXIMUM_BYTES and any(panel.spec != _NOTHING for panel in panels):
        largest = max(range(len(panels)), key=lambda i: len(panels[i].spec))
        panels[largest] = panels[largest].left_out()
        content = _assemble(texts, panels, files)
    return content


@dataclass(frozen=True)
class _Panel:
    """A figure of the story with its JSON; `curves` apart, since they are what a page too large can do without."""

    figure: Figure
    spec: str
    curves: str
    height: int
    minimum_width: int
    note: str = ""
    marks: bool = False
    """A click on a point marks its network."""

    @classmethod
    def of(cls, figure: Figure, drawn: Mapping[str, Any]) -> _Panel:
        layout = drawn.get("layout", {})
        meta = layout.get("meta")
        spec = {key: drawn[key] for key in ("data", "layout", "frames") if key in drawn}
        return cls(
            figure,
            spec=_inline(spec),
            curves=_inline(drawn["networks"]) if drawn.get("networks") else "",
            height=int(layout.get("height") or _DEFAULT_HEIGHT),
            minimum_width=int(meta.get("minWidth", 0)) if isinstance(meta, Mapping) else 0,
            marks=any(map(_names_networks, drawn.get("data", ()))),
        )

    def without_curves(self) -> _Panel:
        note = "Curves of single networks are left out here to keep the page small."
        return _Panel(self.figure, self.spec, "", self.height, self.minimum_width, note)

    def left_out(self) -> _Panel:
        note = "This figure is too large for the page; its files for paper have all of it."
        return _Panel(self.figure, _NOTHING, "", _EMPTY_HEIGHT, 0, note)

    def html(self, number: int, files: Iterable[str]) -> str:
        figure = self.figure
        beside = [name for name in files if PurePosixPath(name).stem == figure.name]
        source = " · ".join(
            ([f"after {escape(figure.source)}"] if figure.source else [])
            + [_link(name, PurePosixPath(name).suffix.lstrip(".").upper()) for name in beside]
        )
        note = f'<p class="note">{self.note}</p>' if self.note else ""
        curves = f'<script type="application/json" class="curves">{self.curves}</script>' if self.curves else ""
        return f"""<figure class="figure" id="figure-{number}" data-name="{escape(figure.name)}">
<figcaption>
<h3><span class="ordinal">{number}</span>{escape(figure.title)}</h3>
<p class="caption">{escape(figure.caption)}</p>
<p class="source">{source}</p>
</figcaption>
<div class="plot-box"><div class="plot" style="height:{self.height}px;min-width:{self.minimum_width}px"></div></div>
{note}<script type="application/json" class="spec">{self.spec}</script>{curves}
</figure>"""


def _thinned(table: pa.Table) -> pa.Table:
    """The rows of all networks, or of evenly as many whole networks as the page can carry."""
    if table.num_rows <= _MOST_ROWS:
        return table
    networks = np.unique(table["network"].to_numpy())
    kept = max(1, int(len(networks) * _MOST_ROWS / table.num_rows))
    chosen = networks[np.linspace(0, len(networks) - 1, kept).round().astype(int)]
    return table.filter(pc.is_in(table["network"], pa.array(chosen, table["network"].type))).slice(0, _MOST_ROWS)


def _names_networks(trace: Mapping[str, Any]) -> bool:
    """Each point its own, or an image the one it is of."""
    meta = trace.get("meta")
    return "customdata" in trace or (isinstance(meta, Mapping) and "network" in meta)


def _lead(points: bool, rows: bool) -> str:
    """What a click does, of what there is to click on."""
    if not points and not rows:
        return ""
    what = "a point, or a row of the table," if points and rows else "a point" if points else "a row of the table"
    return f'<p class="lead screen">Click {what} to mark its network in every figure. Escape clears.</p>'


def _table_note(shown: pa.Table, table: pa.Table) -> str:
    if shown.num_rows == table.num_rows:
        return ""
    return (
        f'<p class="note">The page carries {shown.num_rows:,} of {table.num_rows:,} rows, evenly over the networks; '
        "nodes.parquet has all of them.</p>"
    )


def _assemble(texts: Mapping[str, str], panels: Iterable[_Panel], files: list[str]) -> bytes:
    figures = "\n".join(panel.html(number, files) for number, panel in enumerate(panels, 1))
    return Template(_asset("page.html")).substitute(texts, figures=figures).encode()


def _asset(name: str) -> str:
    return package_files("understudy.report.page").joinpath("assets", name).read_text(encoding="utf-8")


@cache
def _packed_plotly() -> str:
    """plotly.js deflated to two fifths of its size: the page is read and shown before it is unpacked."""
    return base64.b64encode(zlib.compress(get_plotlyjs().encode(), 6)).decode()


def _inline(value: object) -> str:
    """JSON that may stand inside a script element: nothing in it can end the element or open a comment."""
    text = json.dumps(_plain(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _plain(value: object) -> object:
    """What JSON knows: arrays as plotly's typed arrays, NaN as null, seven digits, which is all a screen can show."""
    match value:
        case np.ndarray() if value.dtype.kind in "iuf":
            return _typed(value)
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


def _typed(array: np.ndarray) -> dict[str, Any]:
    """`{"dtype", "bdata", "shape"}` of the smallest type that keeps an integer exact, and float32 for the rest."""
    if array.dtype.kind == "f":
        small = array.astype("<f4")
    else:
        low, high = (int(array.min()), int(array.max())) if array.size else (0, 0)
        types = ("i1", "u1", "i2", "u2", "i4", "u4")
        fits = (t for t in types if np.iinfo(t).min <= low and high <= np.iinfo(t).max)
        small = array.astype("<" + next(fits, "f8"))
    spec: dict[str, Any] = {"dtype": small.dtype.str.lstrip("<|"), "bdata": base64.b64encode(small.tobytes()).decode()}
    return spec if array.ndim == 1 else spec | {"shape": list(array.shape)}


def _columns(table: pa.Table) -> dict[str, Any]:
    return {
        "rows": table.num_rows,
        "columns": [
            {"name": name, "parameter": name not in MEASURED} | _column(column.combine_chunks())
            for name, column in zip(table.column_names, table.columns, strict=True)
        ],
    }


def _column(column: pa.Array) -> dict[str, Any]:
    """A column as numbers, with NaN for null, or as its distinct values and a code a row."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _column(column.cast(kind.value_type))
    whole = pa.types.is_integer(kind)
    if whole and column.null_count == 0:
        return {"whole": True, "numbers": _typed(column.to_numpy(zero_copy_only=False))}
    numeric = whole or pa.types.is_floating(kind)
    if numeric and (whole or pc.count_distinct(column).as_py() > _FEW):
        return {"whole": whole, "numbers": _typed(column.cast(pa.float64()).to_numpy(zero_copy_only=False))}
    coded = column.dictionary_encode(null_encoding="encode")
    values = coded.dictionary.to_pylist()
    return {
        "values": [value if numeric or value is None else _word(value) for value in values],
        "codes": _typed(coded.indices.to_numpy(zero_copy_only=False)),
    }


def _word(value: object) -> str:
    """A setting in words."""
    match value:
        case None:
            return "none"
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.10g}"
        case list() | tuple():
            return ", ".join(_word(item) for item in value)
        case _:
            return str(value)


def _flat(settings: Mapping[str, object], prefix: str = "") -> Iterable[tuple[str, str]]:
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", _word(value)


def _facts(settings: Mapping[str, object]) -> str:
    rows = (f"<div><dt>{escape(key)}</dt><dd>{escape(value)}</dd></div>" for key, value in _flat(settings))
    return f'<dl class="facts">{"".join(rows)}</dl>'


def _number(number: Number) -> str:
    return f"<div><dt>{escape(number.label)}</dt><dd>{escape(number.value)}</dd></div>"


def _link(name: str, text: str) -> str:
    """`./` keeps a name with a colon from being read as a scheme."""
    return f'<a href="./{escape(quote(name))}">{escape(text)}</a>'


def _claims(claims: Iterable[Claim]) -> str:
    rows = "\n".join(_claim(claim) for claim in claims)
    return f'<ul class="claims">\n{rows}\n</ul>' if rows else '<p class="note">This run decides no claim.</p>'


def _claim(claim: Claim) -> str:
    state, symbol, word = ("holds", "✓", "holds") if claim.holds else ("fails", "✗", "does not hold")
    part = f' <span class="part">{escape(claim.part)}</span>' if claim.part else ""
    beside = "".join(_beside(other) for other in claim.variants)
    return f"""<li class="claim">
<p class="verdict {state}"><span aria-hidden="true">{symbol}</span> {word}</p>
<div class="statement"><p class="id">{escape(claim.id)}{part}</p><p>{escape(claim.statement)}</p></div>
<dl><div><dt>paper</dt><dd>{escape(claim.paper)}</dd></div>
<div><dt>here</dt><dd>{escape(claim.measured)}</dd></div>
<div><dt>n</dt><dd>{claim.n:,}</dd></div>{beside}</dl>
{strip(claim.values, claim.low, claim.high)}
</li>"""


def _beside(other: Variant) -> str:
    symbol, word = ("✓", "holds") if other.holds else ("✗", "does not hold")
    verdict = f'<span title="{word}" aria-label="{word}">{symbol}</span>'
    return f'<div class="beside"><dt>{escape(other.where)}</dt><dd>{escape(other.measured)} {verdict}</dd></div>'
