"""Curves: what they guarantee beyond the contract of all figures."""

import dataclasses
import json

import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

from contracts import test_figures as contract
from support.curve_figures import (
    LAYERS,
    best_correlation,
    curves_of_layers,
    labels,
    layer_curves,
    layers,
    lines,
    losses_by_samples,
    recovery_rate,
    sample_curves,
    sample_losses,
    stacked,
    titles,
)
from understudy._numbers import number
from understudy.report import style
from understudy.report.figures import Curves, Panel, Series
from understudy.report.figures._curves_array import quantiles
from understudy.report.figures.curves import log_ticks

decoded = contract._decode


def _drawn(page):
    return [t for t in page["data"] if t.get("hoverinfo") != "skip"]


def _one(*series, note="n = 1 seed", **axes):
    return Curves((Panel("", "time", "length", series, **axes),), note=note)


def _lines(page):
    return [t for t in page["data"] if t["mode"] != "markers" and t.get("hoverinfo") != "skip"]


# Panels with axes of their own


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
    (shape,) = Curves((plain, bounded)).page()["layout"]["shapes"]
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
    contract._check(Curves(panels, note="n = 1"))
    empty = Series("a", np.full(4, np.nan), np.full(4, np.nan))
    contract._check(_one(empty))
    json.dumps(_one(empty, log_x=True, log_y=True, slope=1.0).page(), allow_nan=False)


def test_arrays_of_a_series_that_do_not_fit_are_named():
    with pytest.raises(ValueError, match=r"Series\.high has shape \(3,\).*\(4,\)"):
        Series("a", np.zeros(4), np.zeros(4), high=np.zeros(3))
    with pytest.raises(ValueError, match=r"Series\.network has shape \(4,\).*\(2, 4\)"):
        Series("a", np.zeros(4), np.zeros(4), network=np.zeros(4, int), network_y=np.zeros((2, 4)))


# Panels with axes in common


def test_each_layer_of_each_panel_is_a_line_of_medians():
    kind = layer_curves()
    lines = _lines(kind.page())
    medians = layers().median("seed").transpose("multiple", "layer", "epoch").values
    assert len(lines) == 2 * len(LAYERS)
    for trace in lines:
        p, i = int(trace["xaxis"] == "x2"), LAYERS.index(trace["name"])
        assert decoded(trace["y"]) == pytest.approx(medians[p, i], rel=1e-5)
        assert trace["line"]["color"] == style.layer_colours(4)[i]
    on_paper = [line.get_ydata() for line in kind.paper().axes[1].lines[:4]]
    np.testing.assert_allclose(on_paper, medians[1, ::-1])


def test_the_legend_names_each_layer_once_from_the_lowest():
    shown = [t for t in _lines(layer_curves().page()) if t["showlegend"]]
    assert [t["name"] for t in sorted(shown, key=lambda t: t["legendrank"])] == list(LAYERS)


@given(st.integers(1, 12))
def test_layers_go_from_dark_to_light_and_leave_out_the_lightest(count):
    def light(colour):
        red, green, blue = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
        return 0.2126 * red**2.2 + 0.7152 * green**2.2 + 0.0722 * blue**2.2

    values = [light(colour) for colour in style.layer_colours(count)]
    assert values == sorted(values)
    assert max(values) < light(style.ramp(2)[1])


def test_every_line_is_named_at_its_end_or_in_the_key():
    for panels, direct in ((3, True), (8, False)):
        figure = layer_curves(panels=panels).paper()
        texts = [t.get_text() for ax in figure.axes for t in ax.texts]
        key = [t.get_text() for t in figure.legends[0].get_texts()]
        assert texts == (list(LAYERS) * panels if direct else [])
        assert set(LAYERS) <= set(key) or direct
        assert {"median", "quartiles", "0.95", "n = 8 seeds"} <= set(key)


def test_a_line_that_stops_early_is_named_where_it_stopped():
    array = layers(panels=1)
    array[:, :, 2, 20:] = np.nan
    array[:, :, 3] = np.nan
    figure = curves_of_layers(array).paper()
    assert [t.get_text() for t in figure.axes[0].texts] == ["layer 1", "layer 2", "layer 3"]


def test_lines_that_all_end_low_are_named_above_the_numbers_of_the_axis():
    array = layers()
    array[:] = np.linspace(1, 0, array.sizes["epoch"])
    figure = curves_of_layers(array).paper()
    for ax in figure.axes[:2]:
        heights = sorted(text.xy[1] for text in ax.texts if text.get_text() in LAYERS)
        assert len(heights) == len(LAYERS) and heights[0] >= 0.04 - 1e-9
        assert np.diff(heights) == pytest.approx(0.085)


def test_the_bound_lies_across_every_panel():
    page = layer_curves(panels=3).page()
    assert [(s["xref"], s["yref"], s["y0"], s["y1"]) for s in page["layout"]["shapes"]] == [
        ("x domain", "y", 0.95, 0.95),
        ("x2 domain", "y2", 0.95, 0.95),
        ("x3 domain", "y3", 0.95, 0.95),
    ]
    assert "shapes" not in curves_of_layers(layers(), bound=None).page()["layout"]


def test_a_marked_network_shows_its_layers_as_one_curve_with_gaps():
    kind = layer_curves(times=5)
    own = contract._check(kind)["networks"]
    assert own["id"] == list(range(16))
    assert own["xaxis"] == ["x"] * 8 + ["x2"] * 8
    assert own["x"] == [0, 25, 50, 75, 100, 100] * 4
    curve = decoded(own["y"])[9].reshape(4, 6)
    assert np.isnan(curve[:, -1]).all()
    np.testing.assert_allclose(curve[:, :-1], layers(times=5)[1, 1], rtol=1e-6)


def test_curves_of_very_many_networks_are_thinned_from_the_first_epoch_to_the_last():
    kind = layer_curves(panels=1, times=201, seeds=400)
    own = kind.page()["networks"]
    per_layer = len(own["x"]) // 4
    assert per_layer < 202
    assert own["x"][0] == 0
    assert own["x"][per_layer - 2 : per_layer] == [100, 100]
    assert own["y"]["shape"] == [400, 4 * per_layer]
    assert np.isnan(decoded(own["y"])[:, per_layer - 1 :: per_layer]).all()


def test_networks_that_diverged_have_no_curve():
    array = layers()
    array.coords["network"][0, 3] = -1
    own = curves_of_layers(array).page()["networks"]
    assert own["id"] == [0, 1, 2, *range(4, 16)]


def test_against_samples_every_network_is_a_point_where_it_ended():
    kind = sample_losses()
    page = contract._check(kind)
    assert "networks" not in page
    points = [t for t in page["data"] if t["mode"] == "markers"]
    assert [len(t["x"]) for t in points] == [12] * 4
    evaluation = points[2]
    assert (evaluation["xaxis"], evaluation["legendgroup"]) == ("x2", "evaluation")
    whose = decoded(evaluation["customdata"])[:, 0].tolist()
    for x, y, network in zip(evaluation["x"], evaluation["y"], whose, strict=True):
        wanted = losses_by_samples().isel(loss=1, line=0)
        at, net = np.argwhere(wanted.network.values == network)[0]
        assert x == wanted.samples[at]
        assert y == pytest.approx(float(wanted[net, at]), rel=1e-4)


def test_kinds_of_loss_have_axes_of_their_own():
    kind = sample_losses()
    layout = kind.page()["layout"]
    assert layout["yaxis"]["type"] == layout["xaxis"]["type"] == "log"
    assert "matches" not in layout["yaxis2"]
    mse, entropy = kind.paper().axes
    assert mse.get_ylim()[1] < entropy.get_ylim()[1] / 5
    shared = sample_losses(own_scales=False)
    assert shared.page()["layout"]["yaxis2"]["matches"] == "y"
    mse, entropy = shared.paper().axes
    assert mse.get_ylim() == entropy.get_ylim()


def test_an_axis_of_few_decades_has_more_than_powers_of_ten():
    kind = sample_losses()
    mse, _ = kind.paper().axes
    low, high = mse.get_ylim()
    assert sum(low <= tick <= high for tick in mse.get_yticks()) >= 3
    wide = sample_losses(factor=np.geomspace(1, 1e-6, 4))
    for axis in ("yaxis", "yaxis2"):
        layout = wide.page()["layout"][axis]
        assert layout["ticktext"] == [number(10.0 ** round(np.log10(v)), ".0e") for v in layout["tickvals"]]
    assert len(kind.page()["layout"]["yaxis"]["tickvals"]) >= 3


def test_panels_keep_the_rows_they_are_given():
    kind = dataclasses.replace(layer_curves(panels=8), columns=4)
    places = [ax.get_subplotspec() for ax in kind.paper().axes]
    assert [(p.rowspan.start, p.colspan.start) for p in places] == [(r, c) for r in range(2) for c in range(4)]
    one = kind.page()["layout"]
    assert one["xaxis"]["domain"] == one["xaxis5"]["domain"]


def test_hovering_names_the_line_and_its_values():
    hover = _lines(layer_curves().page())[0]["hovertemplate"]
    assert "layer 4" in hover
    assert "1×" in hover
    assert "epoch %{x:,.6~g}: mean best correlation %{y:.4~g}<br>median, n = 8 seeds" in hover
    point = sample_losses().page()["data"][0]["hovertemplate"]
    assert point.startswith("network %{customdata[0]}, <b>evaluation")
    assert "number of samples %{x:,.6~g}: loss" in point


def test_no_words_overlap_against_samples(monkeypatch):
    contract.test_no_words_overlap(lambda: sample_losses(), None, monkeypatch)
    json.dumps(sample_losses(seeds=1).page(), allow_nan=False)


# From labelled arrays


@given(st.integers(1, 6), st.integers(0, 1000))
def test_quantiles_are_those_of_numpy(seeds, seed):
    rng = np.random.default_rng(seed)
    values = np.where(rng.random((3, seeds, 4)) < 0.3, np.nan, rng.standard_normal((3, seeds, 4)))
    values[:, 0, 0] = 1.0
    values[:, 0] = np.nan_to_num(values[:, 0])
    for share, found in zip((0.5, 0.25, 0.75), quantiles(values, (0.5, 0.25, 0.75), axis=1), strict=True):
        np.testing.assert_array_equal(found, np.nanquantile(values, share, axis=1))


def test_infinite_values_leave_gaps():
    array = layers()
    array[0, :, 0, 3] = -np.inf
    page = contract._check(curves_of_layers(array))
    first = next(t for t in _lines(page) if t["name"] == "layer 1")
    assert first["y"][3] is None


def test_panels_lines_and_epochs_without_values_are_left_out():
    array = layers(panels=3)
    array[1] = np.nan
    array[0, :, 2] = np.nan
    array[..., 5] = np.nan
    kind = curves_of_layers(array)
    assert titles(kind) == ("1×", "3×")
    assert [len(panel.series) for panel in kind.panels] == [3, 4]
    assert all(len(series.x) == 40 for panel in kind.panels for series in panel.series)
    assert kind.colours() == dict(zip(LAYERS, style.layer_colours(4), strict=True))
    contract._check(kind)
    contract._check(curves_of_layers(array * np.nan))


def test_dimensions_can_be_taken_together_and_their_values_named():
    kind = Curves.from_array(
        layers().assign_coords(multiple=[1.0, 2.5]),
        name="rho",
        line=("multiple", "layer"),
        labels={2.5: "wide", (1.0, "layer 1"): "first"},
        colours="categories",
    )
    assert titles(kind) == ("",)
    assert labels(kind)[:2] == ("first", "1, layer 2")
    assert labels(kind)[4] == "wide, layer 1"
    assert kind.colours()["first"] == style.BLUE.lower()


@pytest.mark.parametrize(
    ("band", "line", "words", "note"),
    [
        ("quartiles", "median", "quartiles", "median and quartiles, n = 8 seeds"),
        ("range", "median", "smallest to largest", "median, smallest and largest, n = 8 seeds"),
        ("deviation", "mean", "± 1 standard deviation", "mean ± 1 standard deviation, n = 8 seeds"),
    ],
)
def test_bands_are_computed_and_named(band, line, words, note):
    array = layers(panels=1)
    kind = curves_of_layers(array, band=band)
    middle, low, high = (stacked(kind, field)[0, 0] for field in ("y", "low", "high"))
    each = array.values[0, :, 0]
    wanted = {
        "quartiles": np.quantile(each, [0.5, 0.25, 0.75], axis=0),
        "range": (np.median(each, axis=0), each.min(axis=0), each.max(axis=0)),
        "deviation": each.mean(axis=0) + np.array([[0], [-1], [1]]) * each.std(axis=0),
    }[band]
    np.testing.assert_allclose([middle, low, high], wanted)
    key = [text.get_text() for text in kind.paper().legends[0].get_texts()]
    assert key == [line, words, "0.95", "n = 8 seeds"]
    page = json.dumps(kind.page(), ensure_ascii=False)
    assert f"{note}; dashed: 0.95" in page
    others = {"median", "quartiles", "smallest", "mean ±"} - set(line.split()) - {words.split()[0]}
    assert not any(other in page for other in others if other not in note)


def test_a_deviation_on_a_logarithmic_axis_is_that_of_the_logarithm():
    kind = curves_of_layers(layers(panels=1), band="deviation", log_y=True, limits=None)
    each = np.log10(layers(panels=1).values[0, :, 0])
    series = kind.panels[0].series[0]
    np.testing.assert_allclose(series.y, 10 ** each.mean(axis=0))
    np.testing.assert_allclose(series.low, 10 ** (each.mean(axis=0) - each.std(axis=0)))


def test_without_a_band_lines_stand_alone():
    kind = curves_of_layers(layers(), band=None)
    assert stacked(kind, "y").shape == (2, 4, 41)
    assert all(series.low is None for panel in kind.panels for series in panel.series)
    summaries = Curves.from_array(layers().median("seed"), name="rho", panel="multiple", line="layer", over=None)
    np.testing.assert_allclose(stacked(summaries, "y"), stacked(kind, "y"))
    assert summaries.note == ""


def test_networks_may_be_missing_in_any_form():
    array = layers()
    network = np.where(np.arange(16).reshape(2, 8) == 3, np.nan, np.arange(16.0).reshape(2, 8))
    own = curves_of_layers(array.assign_coords(network=(("multiple", "seed"), network))).page()["networks"]
    assert own["id"] == [0, 1, 2, *range(4, 16)]
    assert "networks" not in curves_of_layers(array.drop_vars("network")).page()


def test_every_dimension_needs_a_role():
    with pytest.raises(ValueError, match="dimension 'layer' has no role: select one of its values"):
        Curves.from_array(layers(), name="rho", panel="multiple")
    with pytest.raises(ValueError, match="the array has no dimension 'norm': it has multiple, seed, layer, epoch"):
        Curves.from_array(layers(), name="rho", panel="norm", line="layer")
    with pytest.raises(ValueError, match="style must have at most two values, one solid and one dashed, got 4"):
        Curves.from_array(layers(), name="rho", panel="multiple", style="layer")
    with pytest.raises(ValueError, match=r"colours must be one per line \(4\), got 1"):
        curves_of_layers(layers(), colours=("#000000",))


def test_a_ramp_names_the_ends_alone():
    kind = best_correlation(panels=2, times=5)
    page = contract._check(kind)
    shown = [t["name"] for t in _drawn(page) if t["showlegend"]]
    assert sorted(shown) == ["strong teacher", "weak teacher"]
    words = {text.get_text() for text in contract._texts(kind.paper())}
    assert {"strong\nteacher", "weak\nteacher"} <= words and "teacher node 3" not in words
    assert page["networks"]["y"]["shape"] == [24, 20, 5]
    hover = next(t["hovertemplate"] for t in _drawn(page) if t["name"] == "teacher node 3")
    assert hover.startswith("<b>teacher node 3</b>, p = 0.5, log₁₀ loss −6.50<br>epoch")


def test_parts_are_told_apart_by_dashes():
    for kind, solid, dashed in ((recovery_rate(), "epoch 100", "epoch 5"), (sample_curves(), "evaluation", "training")):
        page = kind.page()
        assert {t["line"]["dash"] for t in _lines(page) if f"</b>, {solid}, " in t["hovertemplate"]} == {"solid"}
        assert {t["line"]["dash"] for t in _lines(page) if f"</b>, {dashed}, " in t["hovertemplate"]} == {"dash"}
        assert all(t["line"]["dash"] == "solid" for t in _lines(page) if t["showlegend"])
        notes = [note["text"] for note in page["layout"]["annotations"]]
        assert any(note.startswith(f"solid: {solid}, dashed: {dashed}; ") for note in notes)
        assert {solid, dashed} <= {text.get_text() for text in kind.paper().legends[0].get_texts()}


def test_arrays_stay_as_they_are():
    array = layers()
    before = array.copy(deep=True)
    curves_of_layers(array).page()
    xr.testing.assert_identical(array, before)


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [
        (1e-3, 1, ["10⁻³", "10⁻²", "10⁻¹", "1"]),
        (0.5, 2000, ["1", "10¹", "10²", "10³"]),
        (1e-5, 1e-3, ["10⁻⁵", "10⁻⁴", "10⁻³"]),
        (0.01, 0.1, ["0.01", "0.02", "0.05", "0.1"]),
        (2e-5, 2e-4, ["2×10⁻⁵", "5×10⁻⁵", "10⁻⁴", "2×10⁻⁴"]),
        (2.1, 2.9, ["2.1", "2.9"]),
    ],
)
def test_decades_are_labelled_alike(low, high, words):
    assert log_ticks(low, high)[1] == words


@given(st.floats(-12, 12), st.floats(0.01, 20))
def test_ticks_of_logarithmic_axes_are_few_and_inside(start, width):
    low, high = 10.0**start, 10.0 ** (start + width)
    ticks, words = log_ticks(low, high)
    assert 2 <= len(ticks) <= 9 and len(set(words)) == len(words)
    assert all(low * 0.99 <= tick <= high * 1.01 for tick in ticks)


def test_the_paper_labels_decades_like_the_page():
    kind = Curves((Panel("", "x", "y", (Series("a", np.arange(1, 6), 10.0 ** -np.arange(1, 6)),), log_y=True),))
    labels = [label.get_text() for label in kind.paper().axes[0].get_yticklabels()]
    assert {"10⁻¹", "10⁻³", "10⁻⁵"} <= set(labels) and not any("$" in label for label in labels)


def test_the_mean_of_networks_without_a_band_keeps_single_networks():
    values = xr.DataArray(
        np.array([[0.0, 1.0], [1.0, 1.0], [np.nan, 0.0]]),
        dims=("seed", "epoch"),
        coords={"network": ("seed", [4, 5, 6]), "epoch": [0, 1]},
    )
    (panel,) = Curves.from_array(values, name="share", band="mean").panels
    assert panel.series[0].y.tolist() == pytest.approx([0.5, 2 / 3]) and panel.series[0].low is None
    assert panel.series[0].network[:, 0].tolist() == [4, 5, 6]


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=6), st.floats(0.01, 0.5))
def test_labels_are_apart_and_no_farther_from_their_lines_than_needed(wanted, gap):
    places = style.spread(np.array(wanted), gap)
    ordered = np.sort(places)
    assert (np.diff(ordered) >= gap - 1e-9).all()
    assert (np.argsort(places) == np.argsort(wanted, kind="stable")).all()
    # Labels that touch stand around the mean of their lines.
    for block in np.split(np.arange(len(places)), np.flatnonzero(np.diff(ordered) > gap + 1e-9) + 1):
        assert ordered[block].mean() == pytest.approx(np.sort(wanted)[block].mean(), abs=1e-9)


def test_no_label_has_no_place():
    assert style.spread(np.zeros(0), 0.1).shape == (0,)
