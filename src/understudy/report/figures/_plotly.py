"""Parts of the page's figures: plotly's traces, axes and typed arrays as plain JSON."""

import base64
import math
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.colors import to_hex

from understudy.report.style import HAIRLINE, evenly

JSON = dict[str, Any]

_CODES = {"f4": "<f4", "i1": "|i1", "i2": "<i2", "i4": "<i4", "u1": "|u1"}
AT_ONCE = {"mode": "immediate", "frame": {"duration": 0, "redraw": True}, "transition": {"duration": 0}}
"""How a frame is shown without an animation."""
_SMALL = 48
_MOST_BYTES = 750_000
"""Size of the curves of single networks; longer ones are thinned."""


def typed(values: Any, dtype: str = "f4") -> JSON:
    """Encode a numeric array in plotly's binary form; NaN stays NaN, which plotly leaves out."""
    array = np.ascontiguousarray(np.asarray(values), dtype=_CODES[dtype])
    coded: JSON = {"dtype": dtype, "bdata": base64.b64encode(array.tobytes()).decode()}
    return coded if array.ndim == 1 else {**coded, "shape": ", ".join(map(str, array.shape))}


def numbers(values: Any) -> Any:
    """Encode a one-dimensional array: as a list of numbers and None if short, typed if long."""
    array = np.asarray(values, dtype=float)
    if array.size > _SMALL:
        return typed(array)
    return [float(f"{v:.6g}") if math.isfinite(v) else None for v in array.tolist()]


def identity(network: Any, teacher: Any, student: Any) -> Any:
    """Network, teacher node and student node of each point, one row per point; −1 where one does not apply."""
    rows = np.stack([np.atleast_1d(a) for a in np.broadcast_arrays(network, teacher, student)], axis=-1).astype(int)
    if rows.size <= _SMALL:
        return rows.tolist()
    return typed(rows, "i2" if np.abs(rows).max() < 2**15 else "i4")


def axes_of(panel: int) -> tuple[str, str]:
    """Names of a panel's axes: `x`, `y` for the first, `x2`, `y2` for the second."""
    suffix = "" if panel == 0 else str(panel + 1)
    return "x" + suffix, "y" + suffix


def at(panel: int) -> JSON:
    """The axes of a trace in a panel."""
    return dict(zip(("xaxis", "yaxis"), axes_of(panel), strict=True))


def axis(layout: JSON, letter: str, panel: int) -> JSON:
    """The `x` or `y` axis of a panel in a layout."""
    found: JSON = layout[f"{letter}axis{axes_of(panel)[0][1:]}"]
    return found


def points(x: Any, y: Any) -> JSON:
    return {"x": numbers(x), "y": numbers(y)}


def scatter(panel: int, x: Any, y: Any, mode: str = "lines", **trace: Any) -> JSON:
    """A trace of lines, markers or text in a panel."""
    return {"type": "scatter", "mode": mode, **points(x, y), **at(panel), **trace}


def heat_map(panel: int, z: Any, x: list[str], y: list[Any], **trace: Any) -> JSON:
    """An image of numbers, in the colours of the layout's `coloraxis`."""
    return {"type": "heatmap", "z": z, "x": x, "y": y, "coloraxis": "coloraxis", **at(panel), **trace}


def band(panel: int, x: Any, low: Any, high: Any, colour: str, opacity: float, **trace: Any) -> list[JSON]:
    """Area between two curves, as one closed outline for each stretch without gaps."""
    x, low, high = (np.asarray(a, dtype=float) for a in (x, low, high))
    whole = np.isfinite(low) & np.isfinite(high)
    cuts = np.flatnonzero(np.diff(whole.astype(int))) + 1
    outline: list[np.ndarray] = []
    for part in np.split(np.arange(len(x)), cuts):
        if len(part) > 1 and whole[part[0]]:
            if outline:
                outline.append(np.full((1, 2), np.nan))
            there, back = np.stack([x[part], low[part]], 1), np.stack([x[part], high[part]], 1)[::-1]
            outline += [there, back]
    if not outline:
        return []
    look = {"line": {"width": 0}, "fill": "toself", "fillcolor": faded(colour, opacity), "hoverinfo": "skip"}
    x, y = np.concatenate(outline).T
    return [scatter(panel, x, y) | look | {"showlegend": False, **trace}]


def across(panel: int, y: float) -> JSON:
    """A dashed line across a panel at height `y`."""
    xaxis, yaxis = axes_of(panel)
    line = {"color": HAIRLINE, "width": 1, "dash": "dash"}
    return {"type": "line", "xref": f"{xaxis} domain", "yref": yaxis, "x0": 0, "x1": 1, "y0": y, "y1": y, "line": line}


def faded(colour: str, opacity: float) -> str:
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{opacity:g})"


def text(panel: int | None, content: str, x: float, y: float, **how: Any) -> JSON:
    """Text at a position from 0 to 1 in a panel, or in the whole figure."""
    names = axes_of(panel) if panel is not None else None
    return {
        "text": content,
        "x": x,
        "y": y,
        "xref": f"{names[0]} domain" if names else "paper",
        "yref": f"{names[1]} domain" if names else "paper",
        "showarrow": False,
        "font": {"size": 12},
        **how,
    }


def title(words: str) -> JSON:
    """Name of an axis."""
    return {"text": words, "standoff": 6, "font": {"size": 12}}


def layout(
    titles: Sequence[str],
    columns: int,
    *,
    x: Mapping[str, Any] | None = None,
    y: Mapping[str, Any] | None = None,
    x_title: str = "",
    y_title: str = "",
    note: str = "",
    row_height: int = 230,
    column_width: int = 170,
    shared: bool = True,
    legend: bool = True,
    below: int = 0,
    x_left: bool = False,
) -> JSON:
    """Layout of panels in rows, with titles, one name for all x axes, and a note such as the number of seeds."""
    count, rows = len(titles), math.ceil(len(titles) / columns)
    margin = {"l": 58, "r": 16, "t": 58 if legend else 30, "b": 48 + below}
    inner = rows * row_height
    gap_x, gap_y = 26 / 1126 if shared else 50 / 1126, 42 / (inner + 42 * (rows - 1))
    wide, high = (1 - gap_x * (columns - 1)) / columns, (1 - gap_y * (rows - 1)) / rows
    made: JSON = {
        "height": inner + 42 * (rows - 1) + margin["t"] + margin["b"],
        "margin": margin,
        "hovermode": "closest",
        "font": {"size": 12},
        "showlegend": legend,
        "legend": {
            "orientation": "h",
            "x": 0,
            "xanchor": "left",
            "yref": "container",
            "y": 0.995,
            "yanchor": "top",
            "tracegroupgap": 0,  # two rows, as on a narrow screen, must fit above the titles
        },
        "meta": {"minWidth": max(360, columns * column_width + margin["l"] + margin["r"])},
        "annotations": [],
    }
    line = {
        "showgrid": False,
        "zeroline": False,
        "showline": True,
        "linecolor": HAIRLINE,
        "linewidth": 1,
        "ticks": "outside",
        "ticklen": 4,
        "tickcolor": HAIRLINE,
        "exponentformat": "power",
    }
    for i, heading in enumerate(titles):
        row, column = divmod(i, columns)
        xn, yn = axes_of(i)
        top = 1 - row * (high + gap_y)
        lowest = i + columns >= count
        across = [round(column * (wide + gap_x), 5), round(min(1.0, column * (wide + gap_x) + wide), 5)]
        xaxis: JSON = {**line, **(x or {}), "domain": across, "anchor": yn}
        yaxis: JSON = {**line, **(y or {}), "domain": [round(max(0.0, top - high), 5), round(top, 5)], "anchor": xn}
        if shared and i:
            xaxis["matches"], yaxis["matches"] = "x", "y"
        if shared:
            xaxis["showticklabels"], yaxis["showticklabels"] = lowest, column == 0
        if column == 0 and y_title:
            yaxis["title"] = title(y_title)
        made["xaxis" + xn[1:]], made["yaxis" + yn[1:]] = xaxis, yaxis
        if heading:
            made["annotations"].append(text(i, heading, 0.5, 1, yanchor="bottom", yshift=3))
    if x_title:
        # A long note needs the right half of a narrow figure: the name of the axis then stands on the left.
        where = (0, "left") if x_left else (0.5, "center")
        made["annotations"].append(text(None, x_title, where[0], 0, xanchor=where[1], yanchor="top", yshift=-24))
    if note:
        small = {"size": 11}
        made["annotations"].append(
            text(None, note, 1, 0, xanchor="right", yanchor="top", yshift=-25, font=small, opacity=0.7, align="right")
        )
    return made


def diverging(name: str, most: float = 1) -> JSON:
    """Colour scale of a heat map of numbers around zero, from red at −`most` to blue, with its colour bar."""
    colours = matplotlib.colormaps["RdBu"]
    return {
        "cmin": -most,
        "cmax": most,
        "colorscale": [[i / 10, to_hex(colours(i / 10))] for i in range(11)],
        "colorbar": {
            "title": title(name),
            "thickness": 10,
            "outlinewidth": 0,
            "tickvals": [-most, 0, most],
        },
    }


def animated(page: JSON, names: Sequence[str], frames: Sequence[list[JSON]], prefix: str, *, first: int = 0) -> JSON:
    """Add frames and a slider over them, which starts at the first; a single frame needs none.

    Args:
        page: Traces and layout; the traces that frames change become those of the first frame.
        names: Name of each frame.
        frames: What each frame changes, trace by trace.
        prefix: What is written before the name of the frame that is shown.
        first: The first of the traces that frames change.

    Returns:
        The page.
    """
    if len(names) < 2:
        return page
    page["layout"]["sliders"] = [
        {
            "active": 0,
            "steps": [{"label": name, "method": "animate", "args": [[name], AT_ONCE]} for name in names],
            "y": 0.0,
            "yanchor": "top",
            "pad": {"t": 44, "b": 4},
            "currentvalue": {"prefix": prefix, "xanchor": "left"},
            "bordercolor": HAIRLINE,
            "tickcolor": HAIRLINE,
            "bgcolor": "rgba(138,138,138,0.35)",
            "activebgcolor": HAIRLINE,
        }
    ]
    for trace, moved in zip(page["data"][first:], frames[0], strict=False):
        trace |= moved
    page["frames"] = [
        {"name": name, "data": frame, "traces": list(range(first, first + len(frame)))}
        for name, frame in zip(names, frames, strict=True)
    ]
    return page


def own_curves(ids: Any, panel: Any, x: Any, y: Any, *, joined: bool) -> JSON:
    """Curves of single networks, for the page to draw when a network is marked.

    Args:
        ids: The networks, [network].
        panel: The panel of each.
        x: Values of x, [time]; thinned evenly where the curves would be too large.
        y: The networks' curves, [network, line, time].
        joined: Whether a network's lines are joined to one curve with gaps. Otherwise they are teacher nodes, and the
            page emphasises the one that is marked.
    """
    y, x = np.asarray(y, dtype="<f4"), np.asarray(x, dtype=float)
    most = max(2, _MOST_BYTES // max(1, 4 * y[..., 0].size) - joined)
    kept = evenly(len(x), min(len(x), most))
    x, y = x[kept], y[..., kept]
    if joined:
        gap = np.full((*y.shape[:-1], 1), np.nan, dtype="<f4")
        x = np.tile(np.append(x, x[-1]), y.shape[1])
        y = np.concatenate([y, gap], axis=-1).reshape(len(y), -1)
    xaxes, yaxes = zip(*(axes_of(p) for p in panel), strict=True)
    return {
        "id": list(ids),
        "xaxis": list(xaxes),
        "yaxis": list(yaxes),
        "x": [float(f"{v:.6g}") for v in x],
        "y": {"dtype": "f4", "shape": list(y.shape), "bdata": base64.b64encode(y.tobytes()).decode()},
    }
