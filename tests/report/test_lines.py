"""Lines over any two quantities: what they promise beyond the contract of all figures."""

import dataclasses
import json

import numpy as np
import pytest

from contracts import test_figures as contract
from support.curve_figures import lines
from understudy.report import style
from understudy.report.figures import Lines, Panel, Series

decoded = contract._decode


def _drawn(page):
    return [t for t in page["data"] if t.get("hoverinfo") != "skip"]


def _one(*series, note="n = 1 seed", **axes):
    return Lines((Panel("", "time", "length", series, **axes),), note=note)


def test_every_series_is_drawn_in_its_panel_with_its_values():
    kind = lines()
    page = kind.page()
    for p, panel in enumerate(kind.panels):
        here = [t for t in _drawn(page) if t["xaxis"] == ("x" if p == 0 else f"x{p + 1}")]
        assert {t["name"] for t in here} == {s.label for s in panel.series}
        for trace in here:
            series = next(s for s in panel.series if s.label == trace["name"])
            assert decoded(trace["x"]) == pytest.approx(series.x, rel=1e-5)
            assert decoded(trace["y"]) == pytest.approx(series.y, rel=1e-5)
        on_paper = [line.get_ydata() for line in kind.paper().axes[p].lines]
        for series in panel.series:
            assert any(np.array_equal(y, series.y) for y in on_paper if len(y) == len(series.y))


def test_one_name_has_one_colour_and_stands_once_in_the_legend_in_its_order():
    page = lines(panels=4).page()
    for name in ("closed form", "mean", "Monte Carlo"):
        assert len({t["line"]["color"] for t in _drawn(page) if t["name"] == name}) == 1
    shown = sorted((t for t in _drawn(page) if t["showlegend"]), key=lambda t: t["legendrank"])
    assert [t["name"] for t in shown] == ["closed form", "mean", "Monte Carlo"]
    assert len([t for t in page["data"] if t.get("name") == "slope −1" and t["showlegend"]]) == 1


def test_a_colour_that_is_given_is_kept():
    x = np.arange(3.0)
    kind = _one(Series("a", x, x), Series("b", x, x + 1, colour=style.CONTEXT), Series("c", x, x + 2))
    colours = {t["name"]: t["line"]["color"] for t in kind.page()["data"]}
    assert colours == {"a": style.BLUE.lower(), "b": style.CONTEXT, "c": style.VERMILLION.lower()}


def test_a_spread_is_a_band_for_lines_and_a_bar_for_points():
    x = np.arange(5.0)
    line, points = (Series("a", x, x, x - 1, x + 2, points=points) for points in (False, True))
    band, _ = _one(line).page()["data"]
    assert band["fill"] == "toself"
    (trace,) = _one(points).page()["data"]
    assert trace["mode"] == "markers"
    assert trace["error_y"]["array"] == [2.0] * 5
    assert trace["error_y"]["arrayminus"] == [1.0] * 5
    bars = [line for line in _one(points).paper().axes[0].lines if len(line.get_xdata()) == 2]
    assert [tuple(bar.get_ydata()) for bar in bars] == [(v - 1, v + 2) for v in x]


def test_short_names_stand_at_the_ends_of_their_lines_and_long_ones_in_the_key():
    x = np.arange(20.0)
    for label, direct in (("both layers", True), ("both layers at once, and v = ‖w‖", False)):
        figure = _one(Series(label, x, x), Series("one", x, 2 * x)).paper()
        assert ([t.get_text() for t in figure.axes[0].texts] == [label, "one"]) is direct
        assert (label in [t.get_text() for t in figure.legends[0].get_texts()]) is not direct


def test_a_key_of_many_long_names_stays_inside_the_figure(monkeypatch):
    x = np.arange(20.0)
    names = [f"a series with a long name, number {i}" for i in range(7)]
    kind = _one(*(Series(name, x, i * x) for i, name in enumerate(names)))
    contract.test_no_words_overlap(lambda: kind, None, monkeypatch)


def test_lines_of_few_values_show_where_they_are():
    x = np.geomspace(1, 10, 5)
    (few,) = _one(Series("a", x, x)).page()["data"]
    (many,) = _one(Series("a", np.arange(30.0), np.arange(30.0))).page()["data"]
    (dashed,) = _one(Series("a", x, x, dashed=True)).page()["data"]
    assert [t["mode"] for t in (few, many, dashed)] == ["lines+markers", "lines", "lines"]
    assert dashed["line"]["dash"] == "dash"


def test_a_logarithmic_axis_leaves_out_what_it_has_no_place_for():
    x = np.array([0.0, 1.0, 10.0, 100.0])
    y = np.array([1.0, -1.0, 10.0, 1000.0])
    page = contract._check(_one(Series("a", x, y, y - 1, y + 1), log_x=True, log_y=True))
    assert page["data"][-1]["x"] == [None, 1.0, 10.0, 100.0]
    assert page["data"][-1]["y"] == [1.0, None, 10.0, 1000.0]
    assert page["layout"]["xaxis"]["type"] == page["layout"]["yaxis"]["type"] == "log"


def test_the_slope_goes_through_the_last_value_of_the_first_series():
    x = np.array([1.0, 10.0, 100.0])
    kind = _one(Series("a", x, 3 * x**2), Series("b", x, x), log_x=True, log_y=True, slope=2.0)
    slope = kind.page()["data"][-1]
    assert (slope["name"], slope["x"], slope["y"]) == ("slope 2", [1.0, 100.0], [3.0, 30_000.0])
    assert "slope 2" in [t.get_text() for t in kind.paper().legends[0].get_texts()]


def test_a_slope_needs_logarithmic_axes():
    with pytest.raises(ValueError, match="has a slope: give it logarithmic axes"):
        _one(Series("a", np.ones(2), np.ones(2)), log_x=True, slope=1.0)


def test_a_bound_lies_across_its_panel_alone():
    x = np.arange(3.0)
    plain = Panel("a", "time", "length", (Series("a", x, x),))
    bounded = dataclasses.replace(plain, bound=1.5, bound_words="1.5")
    (shape,) = Lines((plain, bounded)).page()["layout"]["shapes"]
    assert (shape["xref"], shape["yref"], shape["y0"], shape["y1"]) == ("x2 domain", "y2", 1.5, 1.5)
    assert shape["label"]["text"] == "1.5"


def test_every_panel_names_its_own_axes_and_they_have_room():
    kind = dataclasses.replace(lines(panels=4), columns=2)
    layout = kind.page()["layout"]
    for p, panel in enumerate(kind.panels):
        suffix = "" if p == 0 else str(p + 1)
        assert layout[f"xaxis{suffix}"]["title"]["text"] == panel.x_label
        assert layout[f"yaxis{suffix}"]["title"]["text"] == panel.y_label
        assert "matches" not in layout[f"xaxis{suffix}"]
    between = layout["yaxis"]["domain"][0] - layout["yaxis3"]["domain"][1]
    assert between * layout["height"] > 60
    assert layout["xaxis2"]["domain"][0] - layout["xaxis"]["domain"][1] > 0.05


def test_networks_can_be_marked():
    x = np.arange(3.0)
    (trace,) = _one(Series("a", x, x, points=True, network=np.array([7, 8, 9]))).page()["data"]
    assert trace["customdata"] == [[7, -1, -1], [8, -1, -1], [9, -1, -1]]
    assert trace["hovertemplate"].startswith("network %{customdata[0]}, <b>a</b>")


def test_what_is_missing_leaves_gaps():
    kind = lines(panels=2)
    rng = np.random.default_rng(0)

    def holed(series):
        y = np.where(rng.random(len(series.y)) < 0.2, np.nan, series.y)
        return dataclasses.replace(series, y=y, low=None if series.low is None else np.full_like(y, np.nan))

    panels = tuple(dataclasses.replace(p, series=tuple(map(holed, p.series))) for p in kind.panels)
    contract._check(Lines(panels, note="n = 1"))
    empty = Series("a", np.full(4, np.nan), np.full(4, np.nan))
    contract._check(_one(empty))
    json.dumps(_one(empty, log_x=True, log_y=True, slope=1.0).page(), allow_nan=False)


def test_arrays_that_do_not_fit_are_named():
    with pytest.raises(ValueError, match=r"Series\.high has shape \(3,\).*\(4,\)"):
        Series("a", np.zeros(4), np.zeros(4), high=np.zeros(3))
