"""Curves of layers: what they promise beyond the contract of all figures."""

import dataclasses
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts import test_figures as contract
from support.curve_figures import LAYERS, layer_curves, sample_losses
from understudy.report import style
from understudy.report.figures.layer_curves import layer_colours

decoded = contract._decode


def _lines(page):
    return [t for t in page["data"] if t["mode"] != "markers" and t.get("hoverinfo") != "skip"]


def test_a_line_a_layer_and_panel_with_its_median():
    kind = layer_curves()
    lines = _lines(kind.page())
    assert len(lines) == 2 * len(LAYERS)
    for trace in lines:
        p, i = int(trace["xaxis"] == "x2"), LAYERS.index(trace["name"])
        assert decoded(trace["y"]) == pytest.approx(kind.values[p, i], rel=1e-5)
        assert trace["line"]["color"] == layer_colours(4)[i]
    on_paper = [line.get_ydata() for line in kind.paper().axes[1].lines[:4]]
    np.testing.assert_allclose(on_paper, kind.values[1, ::-1])


def test_the_legend_names_each_layer_once_from_the_lowest():
    shown = [t for t in _lines(layer_curves().page()) if t["showlegend"]]
    assert [t["name"] for t in sorted(shown, key=lambda t: t["legendrank"])] == list(LAYERS)


@given(st.integers(1, 12))
def test_layers_go_from_dark_to_light_and_leave_out_the_lightest(count):
    def light(colour):
        red, green, blue = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
        return 0.2126 * red**2.2 + 0.7152 * green**2.2 + 0.0722 * blue**2.2

    values = [light(colour) for colour in layer_colours(count)]
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
    kind = layer_curves(panels=1)
    values = kind.values.copy()
    values[0, 2, 20:] = np.nan
    values[0, 3] = np.nan
    figure = dataclasses.replace(kind, values=values).paper()
    assert [t.get_text() for t in figure.axes[0].texts] == ["layer 1", "layer 2", "layer 3"]


def test_lines_that_all_end_low_are_named_above_the_numbers_of_the_axis():
    kind = layer_curves()
    end = np.linspace(1, 0, len(kind.x)) * np.ones_like(kind.values)
    figure = dataclasses.replace(kind, values=end, low=end, high=end, network_values=None, network=None).paper()
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
    assert "shapes" not in dataclasses.replace(layer_curves(), bound=None).page()["layout"]


def test_a_marked_network_shows_its_layers_as_one_curve_with_gaps():
    kind = layer_curves(times=5)
    own = contract._check(kind)["networks"]
    assert own["id"] == list(range(16))
    assert own["xaxis"] == ["x"] * 8 + ["x2"] * 8
    assert own["x"] == [0, 25, 50, 75, 100, 100] * 4
    curve = decoded(own["y"])[9].reshape(4, 6)
    assert np.isnan(curve[:, -1]).all()
    np.testing.assert_allclose(curve[:, :-1], kind.network_values[1, 1], rtol=1e-6)


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
    kind = layer_curves()
    network = kind.network.copy()
    network[0, 3] = -1
    own = dataclasses.replace(kind, network=network).page()["networks"]
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
        net, at = np.argwhere(kind.network[1] == network)[0]
        assert x == kind.x[at]
        assert y == pytest.approx(kind.network_values[1, net, 0, at], rel=1e-4)


def test_kinds_of_loss_have_axes_of_their_own():
    kind = sample_losses()
    layout = kind.page()["layout"]
    assert layout["yaxis"]["type"] == layout["xaxis"]["type"] == "log"
    assert "matches" not in layout["yaxis2"]
    mse, entropy = kind.paper().axes
    assert mse.get_ylim()[1] < entropy.get_ylim()[1] / 5
    shared = dataclasses.replace(kind, own_scales=False)
    assert shared.page()["layout"]["yaxis2"]["matches"] == "y"
    mse, entropy = shared.paper().axes
    assert mse.get_ylim() == entropy.get_ylim()


def test_an_axis_of_few_decades_has_more_than_powers_of_ten():
    kind = sample_losses()
    mse, _ = kind.paper().axes
    low, high = mse.get_ylim()
    assert sum(low <= tick <= high for tick in mse.get_yticks()) >= 3
    wide = dataclasses.replace(kind, values=kind.values * np.geomspace(1, 1e-6, 4))
    assert [wide.page()["layout"][axis]["dtick"] for axis in ("yaxis", "yaxis2")] == [1, 1]
    assert kind.page()["layout"]["yaxis"]["dtick"] == "D2"


def test_panels_keep_the_rows_they_are_given():
    kind = dataclasses.replace(layer_curves(panels=8), columns=4)
    places = [ax.get_subplotspec() for ax in kind.paper().axes]
    assert [(p.rowspan.start, p.colspan.start) for p in places] == [(r, c) for r in range(2) for c in range(4)]
    one = kind.page()["layout"]
    assert one["xaxis"]["domain"] == one["xaxis5"]["domain"]


def test_what_is_under_the_pointer_is_said():
    hover = _lines(layer_curves().page())[0]["hovertemplate"]
    assert "layer 4" in hover
    assert "1×" in hover
    assert "epoch %{x}: mean best correlation %{y:.4~g}<br>median of 8 seeds" in hover
    point = sample_losses().page()["data"][0]["hovertemplate"]
    assert point.startswith("network %{customdata[0]}, <b>evaluation")
    assert "%{x:,} samples: loss" in point


def test_arrays_that_do_not_fit_are_named():
    kind = layer_curves()
    with pytest.raises(ValueError, match=r"LayerCurves\.low has shape \(2, 3, 41\).*\(2, 4, 41\)"):
        dataclasses.replace(kind, low=kind.low[:, :3])
    with pytest.raises(ValueError, match=r"LayerCurves\.network_values has shape"):
        dataclasses.replace(kind, network_values=kind.network_values[:, :3])
    with pytest.raises(ValueError, match=r"LayerCurves\.colours has shape \(1,\)"):
        dataclasses.replace(kind, colours=("#000000",))


def test_no_words_overlap_against_samples(monkeypatch):
    contract.test_no_words_overlap(lambda: sample_losses(), None, monkeypatch)
    json.dumps(sample_losses(seeds=1).page(), allow_nan=False)
