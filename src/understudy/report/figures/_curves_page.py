"""Curves as plotly's JSON for the page."""

from typing import Any

import numpy as np

from understudy.report import style
from understudy.report.figures import _plotly as pages
from understudy.report.figures.curves import BANDS, Curves, Panel, Series, log_ticks, readable_ticks

_MARGIN = 1.6
"""Factor by which a logarithmic axis may be longer than its values, at either end."""


def page(curves: Curves) -> pages.JSON:
    """Traces, layout and curves of single networks."""
    colours = curves.colours()
    followed = _followed(curves)
    data: list[pages.JSON] = []
    slopes: set[str] = set()
    for p, panel in enumerate(curves.panels):
        if not followed:
            data += [t for s in panel.series for t in _network_points(p, panel, s, colours[s.label])]
        for series in reversed(panel.series):
            x, _, low, high = panel.shown(series)
            if low is not None and high is not None and not series.points:
                opacity, group = 0.1 if curves.ramp else 0.18, series.label
                data += pages.band(p, x, low, high, colours[group], opacity, legendgroup=group)
        data += [_trace(curves, p, panel, series, colours[series.label]) for series in reversed(panel.series)]
        if panel.slope is not None:
            line = {"color": style.HAIRLINE, "width": 1.5, "dash": "dot"}
            named: pages.JSON = {"name": (words := panel.slope_words), "hoverinfo": "skip"}
            named["showlegend"] = words not in slopes
            data.append(pages.scatter(p, *panel.sloping(panel.slope), line=line, **named))
            slopes.add(words)
    made: pages.JSON = {"data": data, "layout": _layout(curves)}
    if followed and (own := _network_curves(curves)):
        made["networks"] = own
    return made


def _legend(curves: Curves, series: Series) -> pages.JSON:
    """Every label stands once in the legend, in the order of the panels; of a ramp only both ends."""
    first: dict[str, Series] = {}
    for panel in curves.panels:
        for each in panel.series:
            first.setdefault(each.label, each)
    labels = list(first)
    rank = labels.index(series.label)
    name, visible = series.label, first[series.label] is series
    if curves.ramp is not None:
        ends = {0: curves.ramp[0], len(labels) - 1: curves.ramp[1]}
        name, visible = ends.get(rank, name), visible and rank in ends
    return {"name": name, "legendgroup": series.label, "legendrank": rank, "showlegend": visible}


def _hover(panel: Panel, series: Series) -> str:
    where = "".join(f", {words}" for words in (series.part, panel.title.replace("\n", ", ")) if words)
    return f"<b>{series.label}</b>{where}<br>{panel.x_label} %{{x:,.6~g}}: {panel.y_label} %{{y:.4~g}}"


def _trace(curves: Curves, p: int, panel: Panel, series: Series, colour: str) -> pages.JSON:
    x, y, low, high = panel.shown(series)
    summary = f"<br>{BANDS[curves.band][0]}, {curves.note}" if curves.band else ""
    trace = pages.scatter(
        p,
        x,
        y,
        "markers" if series.points else "lines+markers" if curves.has_markers(panel, series) else "lines",
        line={"color": colour, "width": 1.5 if curves.ramp else 1.8, "dash": "dash" if series.dashed else "solid"},
        marker={"color": colour, "size": 5, "symbol": "circle-open" if series.dashed else "circle"},
        hovertemplate=f"{_hover(panel, series)}{summary}<extra></extra>",
        **_legend(curves, series),
    )
    if series.points and low is not None and high is not None:
        trace["error_y"] = {
            "type": "data",
            "symmetric": False,
            "array": pages.numbers(high - y),
            "arrayminus": pages.numbers(y - low),
            "color": colour,
            "thickness": 1,
            "width": 0,
        }
    if series.network is not None and series.network_y is None:
        trace["customdata"] = pages.identity(series.network, -1, -1) if len(x) else []
        trace["hovertemplate"] = "network %{customdata[0]}, " + trace["hovertemplate"]
    return trace


def _network_points(p: int, panel: Panel, series: Series, colour: str) -> list[pages.JSON]:
    """Single networks as faint points."""
    if series.network is None or series.network_y is None:
        return []
    at, net = np.nonzero(((series.network >= 0) & np.isfinite(series.network_y)).T)
    if not len(net):
        return []
    return [
        pages.scatter(
            p,
            np.asarray(series.x)[at],
            series.network_y[net, at],
            "markers",
            customdata=pages.identity(series.network[net, at], -1, -1),
            hovertemplate=f"network %{{customdata[0]}}, {_hover(panel, series)}<extra></extra>",
            marker={"size": 4, "color": colour, "opacity": 0.35},
            legendgroup=series.label,
            showlegend=False,
        )
    ]


def _of_networks(curves: Curves) -> list[tuple[int, np.ndarray, np.ndarray, np.ndarray]]:
    """Panel, x, network and values of each series that has single networks."""
    return [
        (p, np.asarray(s.x), s.network, s.network_y)
        for p, panel in enumerate(curves.panels)
        for s in panel.series
        if s.network is not None and s.network_y is not None
    ]


def _followed(curves: Curves) -> bool:
    """Whether single networks have curves: each row of values belongs to one network."""
    rows = [network for _, _, network, _ in _of_networks(curves)]
    return bool(rows) and all(row.shape[1] > 1 and (row == row[:, :1]).all() for row in rows)


def _network_curves(curves: Curves) -> pages.JSON:
    """Curves of each network in each panel, for the page to draw when the network is marked."""
    found: dict[tuple[int, int], list[np.ndarray]] = {}
    series = _of_networks(curves)
    for p, _, networks, values in series:
        for network, y in zip(networks[:, 0].tolist(), values, strict=True):
            if network >= 0:
                found.setdefault((p, network), []).append(y)
    most = max(map(len, found.values()), default=0)
    x = series[0][1]
    gap = np.full(len(x), np.nan)
    y = np.array([[*own, *[gap] * (most - len(own))] for own in found.values()])
    panel_of, ids = [p for p, _ in found], [network for _, network in found]
    return pages.own_curves(ids, panel_of, x, y, joined=curves.ramp is None) if ids else {}


def _layout(curves: Curves) -> pages.JSON:
    _, columns = curves.grid()
    titles = [panel.title.replace("\n", "<br>") for panel in curves.panels]
    if curves.share == "none":
        layout = _own_axes(curves, titles, columns)
    else:
        first = curves.panels[0]
        x: pages.JSON = {}
        if first.log_x and len(curves.x_values()):
            ticks, words = readable_ticks(curves.x_values())
            x = {"type": "log", "tickvals": ticks, "ticktext": words}
        layout = pages.layout(
            titles,
            columns,
            x=x,
            y={} if first.limits is None or first.log_y else {"range": list(first.limits)},
            x_title=first.x_label,
            y_title=first.y_label,
            note=_note(curves),
            x_left=True,
            row_height=260,
            column_width=230 if columns < 4 else 190 if columns < 6 else 170,
            shared=curves.share == "axes",
        )
        for p, panel in enumerate(curves.panels):
            compared = curves.panels if curves.share == "axes" else (panel,)
            pages.axis(layout, "y", p).update(_scale(panel.log_y, [s.y for each in compared for s in each.series]))
    if any("<br>" in title for title in titles):
        layout["margin"]["t"] += 14
    for p, panel in enumerate(curves.panels):
        if panel.bound is not None:
            label = {"text": panel.bound_words, "textposition": "end", "font": {"size": 11}, "yanchor": "bottom"}
            named = {"label": label} if curves.share == "none" else {}
            layout.setdefault("shapes", []).append(pages.across(p, panel.bound) | named)
    return layout


def _own_axes(curves: Curves, titles: list[str], columns: int) -> pages.JSON:
    layout = pages.layout(
        titles,
        columns,
        note=curves.note,
        row_height=300,
        column_width=290,
        shared=False,
        below=16 if curves.note else 0,
    )
    if curves.note:
        layout["annotations"][-1]["yshift"] -= 18  # below the names of the axes
    for p, panel in enumerate(curves.panels):
        x, y = (pages.axis(layout, letter, p) for letter in "xy")
        x |= _scale(panel.log_x, [s.x for s in panel.series]) | {"title": pages.title(panel.x_label)}
        y |= _scale(panel.log_y, [s.y for s in panel.series]) | {"title": pages.title(panel.y_label)}
        if panel.limits is not None and not panel.log_y:
            y["range"] = list(panel.limits)
        # The names of a panel's own axes take their room from the panel.
        if p % columns:
            x["domain"][0] = round(x["domain"][0] + 0.035, 5)
        if p // columns < (len(curves.panels) - 1) // columns:
            y["domain"][0] = round(y["domain"][0] + 30 / layout["height"], 5)
    return layout


def _note(curves: Curves) -> str:
    """What lines, bands and dashes stand for, and the number of networks."""
    dashes = ", ".join(f"{'dashed' if dashed else 'solid'}: {part}" for part, dashed in curves.parts().items())
    what = ", ".join(words for words in (BANDS[curves.band][2] if curves.band else "", curves.note) if words)
    bound = next((panel.bound_words for panel in curves.panels if panel.bound is not None), "")
    return "; ".join(words for words in (dashes, what, f"dashed: {bound}" if bound else "") if words)


def _scale(log: bool, values: list[Any]) -> pages.JSON:
    if not log:
        return {}
    kept = np.concatenate([np.zeros(0), *(np.asarray(v, dtype=float).ravel() for v in values)])
    kept = kept[np.isfinite(kept) & (kept > 0)]
    if not len(kept):
        return {"type": "log"}
    # Room for the margin that plotly adds on either side.
    ticks, words = log_ticks(kept.min() / _MARGIN, kept.max() * _MARGIN)
    return {"type": "log", "tickvals": ticks, "ticktext": words}
