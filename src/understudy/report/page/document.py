"""The report page: story, figures, matching table, claims and settings of a run in one self-contained HTML file."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import PurePosixPath
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from understudy._citations import cite
from understudy.report.glossary import Glossary
from understudy.report.page.data import flat, inline_json, table_columns
from understudy.report.page.strip import strip
from understudy.report.page.templates import asset, render
from understudy.report.story import Figure, Story, split_headline
from understudy.store.claims import Claim, holding

MAXIMUM_BYTES = 8_000_000
_MOST_ROWS = 30_000
_NOTHING = Markup('{"data":[],"layout":{}}')
_EMPTY_HEIGHT = 40
_SCRIPTS = ("page.js", "figures.js", "grid.js", "table.js")
_DEFAULT_HEIGHT = 440
TABLE_LEAD = (
    "Each teacher node of each network at the end of training, with the student node that correlates best with it."
)


def page(
    *,
    title: str,
    story: Story,
    table: pa.Table,
    claims: list[Claim] | None,
    settings: dict[str, object],
    environment: dict[str, object],
    command: str,
    files: list[str],
    undecided: str = "",
    table_title: str = "Matched nodes",
    table_lead: str = TABLE_LEAD,
) -> bytes:
    """Write the page of a run; the same inputs give the same bytes.

    Curves of single networks, and then whole figures, are left out, the largest first, where the page would be larger
    than `MAXIMUM_BYTES`. Terms of the glossary are explained where the headline, a caption or a claim first uses
    them, and papers that have a code are cited by author and year.

    Args:
        title: Name and summary of the study.
        story: Headline, numbers and figures. A figure's `page()` returns plotly's `data` and `layout`, and optionally
            `frames` and `networks`: curves of single networks, drawn when one is marked, as `id` [N], `x` [T] or
            [N, T], `y` [N, T] or [N, m, T] (one line per teacher node), and `xaxis`, `yaxis`, one name or one per
            network.
        table: One row per network and teacher node; columns other than `MEASURED` are swept parameters.
        claims: The claims that the run decides; None where there is nothing to claim, as for networks of the user.
        settings: Options of the study.
        environment: Versions and hardware of the run.
        command: Command line that repeats the run.
        files: Files beside the page, to link.
        undecided: What would decide the study's other claims.
        table_title: Title of the table.
        table_lead: What a row of the table is.

    Returns:
        The HTML file.
    """
    glossary = Glossary()
    headline, details = (glossary.explain(cite(text)) for text in split_headline(story.headline))
    panels = [_Panel.of(figure, glossary.explain(cite(figure.caption)), files) for figure in story.figures]
    empty = [name for name in table.column_names if table.num_rows and table[name].null_count == table.num_rows]
    shown = _thin(table).drop_columns(empty)
    values = {
        "title": title,
        "headline": headline,
        "details": details,
        "undecided": undecided,
        "numbers": story.numbers,
        "claims": claims,
        "statements": [glossary.explain(cite(claim.statement)) for claim in claims or ()],
        "strip": strip,
        "holding": holding,
        "settings": list(flat(settings)),
        "environment": list(flat(environment)),
        "command": command,
        "files": files,
        "table": inline_json(table_columns(shown)),
        "rows_shown": shown.num_rows,
        "rows": table.num_rows,
        "table_title": table_title,
        "table_lead": table_lead,
        "has_table": bool(table.num_columns),
        "clickable": _clickable(any(panel.marks for panel in panels), "network" in table.column_names),
        "css": asset("page.css"),
        "script": Markup("\n").join(asset(name) for name in _SCRIPTS),
        "plotly": _packed_plotly(),
    }
    content = render("page.html", panels=panels, **values)
    while len(content) > MAXIMUM_BYTES and any(panel.curves or panel.spec != _NOTHING for panel in panels):
        i = max(range(len(panels)), key=lambda i: (len(panels[i].curves), len(panels[i].spec)))
        panels[i] = panels[i].without_curves() if panels[i].curves else panels[i].left_out()
        content = render("page.html", panels=panels, **values)
    return content


@dataclass(frozen=True)
class _Panel:
    """A figure of the story with its JSON; `curves` are separate because a page that is too large omits them first."""

    figure: Figure
    caption: Markup
    files: list[str]
    spec: Markup
    curves: Markup
    height: int
    minimum_width: int
    marks: bool
    """Whether a click on a point marks its network."""
    note: str = ""

    @classmethod
    def of(cls, figure: Figure, caption: Markup, files: list[str]) -> _Panel:
        drawn = figure.kind.page()
        layout = drawn.get("layout", {})
        meta = layout.get("meta")
        return cls(
            figure,
            caption,
            [name for name in files if PurePosixPath(name).stem == figure.name],
            spec=inline_json({key: drawn[key] for key in ("data", "layout", "frames") if key in drawn}),
            curves=inline_json(drawn["networks"]) if drawn.get("networks") else Markup(),
            height=int(layout.get("height") or _DEFAULT_HEIGHT),
            minimum_width=int(meta.get("minWidth", 0)) if isinstance(meta, Mapping) else 0,
            marks=any(map(_names_networks, drawn.get("data", ()))),
        )

    def without_curves(self) -> _Panel:
        note = "Curves of single networks are left out here to keep the page small."
        return replace(self, curves=Markup(), note=note)

    def left_out(self) -> _Panel:
        note = "This figure is too large for the page; its files for paper show all of it."
        return replace(self, spec=_NOTHING, curves=Markup(), height=_EMPTY_HEIGHT, minimum_width=0, note=note)


def _thin(table: pa.Table) -> pa.Table:
    """All rows, or those of as many networks, evenly chosen, as the page has room for; without networks the first."""
    if table.num_rows <= _MOST_ROWS or "network" not in table.column_names:
        return table.slice(0, _MOST_ROWS)
    networks = np.unique(table["network"].to_numpy())
    kept = max(1, int(len(networks) * _MOST_ROWS / table.num_rows))
    chosen = networks[np.linspace(0, len(networks) - 1, kept).round().astype(int)]
    return table.filter(pc.is_in(table["network"], pa.array(chosen, table["network"].type))).slice(0, _MOST_ROWS)


def _names_networks(trace: Mapping[str, Any]) -> bool:
    """Whether a trace names the network of each point, or of an image."""
    meta = trace.get("meta")
    return "customdata" in trace or (isinstance(meta, Mapping) and "network" in meta)


def _clickable(points: bool, rows: bool) -> str:
    """What a reader can click to mark a network."""
    if points and rows:
        return "a point, or a row of the table,"
    return "a point" if points else "a row of the table" if rows else ""


@cache
def _packed_plotly() -> str:
    """plotly.js, deflated to two fifths of its size: the page is shown before it is unpacked."""
    return base64.b64encode(zlib.compress(get_plotlyjs().encode(), 6)).decode()
