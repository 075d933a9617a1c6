"""The contract of all kinds of figures, and what single kinds guarantee beyond it."""

import base64
import dataclasses
import json
import re
from typing import Any

import matplotlib
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.text import Text
from PIL import Image

from support.curve_figures import (
    MULTIPLES,
    best_correlation,
    layer_curves,
    learning,
    lines,
    loss_curves,
    polarities,
    recovery_rate,
    sample_curves,
)
from support.fold_figures import fold_film, fold_sets, layered_graph
from support.layer_figures import layer_specialization, matrix_images
from support.plane_figures import trajectories
from understudy.report import figures, style


def specialization(panels=3, times=4, seeds=32, seed=0, multiples=MULTIPLES, **_):
    rng = np.random.default_rng(seed)
    rows, number = [], 0
    for p in range(panels):
        row = []
        for m in multiples:
            count = 10 * m * seeds
            good = rng.random(count) < 0.75 / m + 0.12
            corr = np.where(good, 1 - 0.004 * rng.exponential(1, count), rng.uniform(0.2, 0.97, count))
            norm = np.where(good, rng.uniform(0.3, 3.0, count) / (1 + rng.integers(0, 10, count)) ** (p * 0.5), 0)
            norm = norm + 0.03 * rng.exponential(1, count)
            grow = np.linspace(0.4, 1, times)[:, None]
            teacher = np.broadcast_to(rng.integers(0, 10, count), (times, count))
            network = number + np.repeat(np.arange(seeds), 10 * m)
            number += seeds
            student = np.tile(np.arange(10 * m), seeds)
            ids = np.repeat(np.arange(seeds) + 1, 10 * m)
            row.append(figures.StudentNodes(grow * corr, grow * norm, teacher, network, student, ids))
        rows.append(tuple(row))
    losses = np.geomspace(0.4, 2e-7, panels * len(multiples)).reshape(panels, len(multiples))
    return figures.Specialization(
        np.arange(panels), np.asarray(multiples), np.geomspace(1, 100, times).round(), tuple(rows), losses
    )


def focus_shift(panels=3, times=41, seed=0, teachers=5, **_):
    rng = np.random.default_rng(seed)
    t = np.linspace(0, 40, times)
    students = 10
    curves = 0.15 * rng.standard_normal((panels, teachers, students, 1)) + 0.02 * np.cumsum(
        rng.standard_normal((panels, teachers, students, times)), -1
    ) / np.sqrt(times / 40 + 1)

    def rise(at, top):
        return top / (1 + np.exp(-(t - at) / 1.3))

    for net in range(panels):
        for s in range(students):
            first, at = (0 if s % 2 else rng.integers(teachers)), rng.uniform(1, 5)
            curves[net, first, s] = 0.1 + rise(at, 0.85)
            if s % 3 == 1 and teachers > 1:
                last, turn = rng.integers(1, teachers), rng.uniform(10, 28)
                curves[net, first, s] -= rise(turn, 0.9)
                curves[net, last, s] = 0.05 + rise(turn, 0.94)
    shifted = np.tile((np.arange(students) % 3 == 1) & (teachers > 1), (panels, 1))
    return figures.FocusShift(t, curves.clip(-0.5, 1), np.arange(panels) + 7, np.arange(panels) + 1, shifted)


def hyperplanes(panels=4, times=60, seed=0, **_):
    rng = np.random.default_rng(seed)
    teacher_w, teacher_b = np.array([[1.0, 0.4], [-0.5, 1.0]]), np.array([0.1, -0.12])
    start_w, start_b = rng.standard_normal((6, 2)), 0.3 * rng.standard_normal(6)
    goal_w, goal_b = start_w + 0.2, start_b + 0.1
    for k, j in ((0, 0), (1, 0), (4, 1), (5, 1)):
        goal_w[k], goal_b[k] = teacher_w[j] * 1.7, teacher_b[j] * 1.7
    way = (1 - np.exp(-4 * np.linspace(0, 1, times)))[:, None]
    weights = start_w + way[..., None] * (goal_w - start_w)
    biases = start_b + way * (goal_b - start_b)
    norms = 0.6 + way * (np.array([2.27, 0.66, 0.01, 0.0, 2.19, 1.83]) - 0.6)
    loss = 0.5 * np.exp(-12 * np.linspace(0, 1, times))
    epochs = np.arange(times)
    moments = tuple(np.linspace(0, times - 1, panels).round().astype(int).tolist())
    return figures.Hyperplanes(epochs, teacher_w, teacher_b, weights, biases, norms, loss, moments=moments, network=3)


def correlation_matrix(panels=2, seed=0, **_):
    rng = np.random.default_rng(seed)
    layers = []
    for i in range(panels):
        teachers, students = 20 + 10 * i, 60 + 40 * i
        matrix = 0.15 * rng.standard_normal((teachers, students))
        matrix[rng.integers(0, teachers, students), np.arange(students)] = rng.uniform(0.5, 1, students)
        layers.append(matrix.clip(-1, 1))
    return figures.CorrelationMatrix(tuple(f"layer {i + 1}" for i in range(panels)), tuple(layers), network=12)


def layer_matrix(panels=2, seed=0, **_):
    values = np.random.default_rng(seed).random((panels, 19, 7))
    teacher = tuple(f"layer{i // 6 + 1}.{i % 6}.relu#2" for i in range(19))
    titles = ("mean best correlation", "linear CKA", *(f"measure {i}" for i in range(panels)))[:panels]
    return figures.LayerMatrix(titles, teacher, teacher[:7], values)


def recovery_time(panels=5, times=2, seed=0, **_):
    rng = np.random.default_rng(seed)
    nets = 32 if times > 1 else 1
    _, _, late = learning(panels, 20, 2, rng, lanes=nets)
    first = np.where(late > 100, np.inf, np.ceil(late))
    network = np.arange(panels * nets).reshape(panels, nets)
    notes = tuple(f"rank corr. −0.{96 - p}" for p in range(panels))
    return figures.RecoveryTime(polarities(panels), first, network, 100, notes)


def dots(panels=3, seeds=12, seed=0, **_):
    values = np.random.default_rng(seed).poisson(4, (panels, seeds)).astype(float)
    network = np.arange(values.size).reshape(values.shape)
    labels = tuple(f"{m}×" for m in range(1, panels + 1))
    return figures.Dots(labels, values, network, "students that shifted", "over-realization", bound=1.0)


def signed_histograms(panels=4, seed=0, **_):
    rng = np.random.default_rng(seed)
    layers = tuple(rng.normal(0.2 - 0.15 * i, 0.3, 64 * (i + 1)) for i in range(panels))
    return figures.SignedHistograms(tuple(f"layer {i + 1}" for i in range(panels)), layers, "BatchNorm shift")


def pictures(panels=3, seed=0, **_):
    rng = np.random.default_rng(seed)
    rows = [tuple(rng.integers(0, 256, (3, 32, 32), dtype=np.uint8) for _ in range(8 - i % 3)) for i in range(panels)]
    return figures.Pictures(tuple(f"exit {i + 1}" for i in range(panels)), tuple(rows))


def areas(panels=3, seed=0, **_):
    shares = np.random.default_rng(seed).dirichlet(np.ones(4), (panels, 50)).transpose(0, 2, 1)
    titles, labels = tuple(f"M = {m}" for m in range(panels)), tuple(f"label {i}" for i in range(4))
    how = {"stacked": True, "note": "seed 1 of n = 2"}
    return figures.Areas(titles, np.linspace(-4, 4, 50), shares, labels, "z", "p(x|z)", **how)


def sentence_list(panels=3, seed=0, **_):
    words = np.random.default_rng(seed).choice(
        ["the", "film", "is", "<b>", "$x_1$", "&amp;", "very", "漢字"], (panels, 2, 4, 8)
    )
    lines = tuple(tuple(tuple(" ".join(line) for line in block) for block in setting) for setting in words)
    names, given = ("mean", "drawn", "drawn", "drawn"), ("the film is very $5 & <i>", "the film")
    settings = tuple(f"M = {m}" for m in range(panels))
    return figures.SentenceList(settings, given, names, lines, "seed 1 of n = 2", like=given)


def pairs(panels=3, seeds=12, seed=0, **_):
    values = np.random.default_rng(seed).normal([[-3], [-5], [-4]], 2, (panels, 3, seeds))
    network = np.arange(values.size).reshape(values.shape)
    labels, titles = ("re-initialised", "reset", "full student"), tuple(f"{m}×" for m in range(1, panels + 1))
    how = {"bound": -9.0, "colours": (style.BLUE, style.VERMILLION, style.HAIRLINE)}
    return figures.Dots(labels, values, network, "log₁₀ loss", titles=titles, joined=(0, 1), **how)


EXAMPLES = (
    recovery_rate,
    best_correlation,
    specialization,
    loss_curves,
    focus_shift,
    hyperplanes,
    sample_curves,
    correlation_matrix,
    layer_matrix,
    recovery_time,
    dots,
    pairs,
    layer_curves,
    layer_specialization,
    matrix_images,
    signed_histograms,
    lines,
    trajectories,
    fold_sets,
    fold_film,
    layered_graph,
    pictures,
    areas,
    sentence_list,
)
ALL = [pytest.param(example, id=example.__name__) for example in EXAMPLES]
SOME = [
    pytest.param(example, id=example.__name__, marks=[pytest.mark.deep] if i % 4 else [])
    for i, example in enumerate(EXAMPLES)
]
"""A quarter of the examples every day, and all under `make deep`."""


def _holed(kind):
    """Copy a figure with a tenth of its values missing, among them all of its first row."""
    rng = np.random.default_rng(5)

    def holed(value):
        if isinstance(value, np.ndarray) and value.ndim > 1 and value.dtype.kind == "f":
            value = np.where(rng.random(value.shape) < 0.1, np.nan, value)
            value[0] = np.nan
        return value

    spared = {"teacher_weights"}
    values = {f.name: getattr(kind, f.name) for f in dataclasses.fields(kind)}
    values = {k: v if k in spared else holed(v) for k, v in values.items()}
    if "cells" in values:
        values["cells"] = tuple(tuple(_holed(c) for c in row) for row in kind.cells)
    if isinstance(kind, figures.Curves):
        values["panels"] = tuple(_holed(panel) for panel in kind.panels)
    if isinstance(kind, figures.Panel):
        values["series"] = tuple(_holed_series(series, i == 0, rng) for i, series in enumerate(kind.series))
    if isinstance(kind, figures.CorrelationMatrix):
        values["correlation"] = tuple(holed(c) for c in kind.correlation)
    return type(kind)(**values)


def _holed_series(series, whole, rng):
    missing = np.full(len(series.y), True) if whole else rng.random(len(series.y)) < 0.1
    holed = {name: np.where(missing, np.nan, getattr(series, name)) for name in ("y", "low", "high", "network_y")}
    return dataclasses.replace(series, **{k: v for k, v in holed.items() if getattr(series, k) is not None})


def _texts(figure):
    return [t for t in figure.findobj(Text) if t.get_visible() and t.get_text().strip()]


def _check(kind, folder=None):
    """Check the contract: sizes and fonts on paper, plain JSON on the page."""
    figure = kind.paper()
    assert figure.get_figwidth() in (style.NARROW, style.WIDE)
    assert figure.get_figheight() < 9
    assert {t.get_fontfamily()[0] for t in _texts(figure)} == {"DejaVu Sans"}
    assert all(7 <= t.get_fontsize() <= 9 for t in _texts(figure))
    page = kind.page()
    written = json.dumps(page, allow_nan=False)
    assert len(written) < 1_500_000
    assert set(page) <= {"data", "layout", "frames", "networks"}
    assert page["layout"]["meta"]["minWidth"] >= 360
    assert page["layout"]["height"] > 200
    for unwanted in ("paper_bgcolor", "plot_bgcolor", "template"):
        assert unwanted not in page["layout"]
    assert "color" not in page["layout"]["font"]
    assert all("color" not in note["font"] for note in page["layout"]["annotations"])
    axes = {"x", "y"} | {k.replace("axis", "") for k in page["layout"] if re.fullmatch(r"[xy]axis\d*", k)}
    for trace in page["data"]:
        assert trace.get("xaxis", "x") in axes
        assert trace.get("yaxis", "y") in axes
        assert trace.get("hoverinfo") == "skip" or "hovertemplate" in trace
        _check_points(trace)
    for frame in page.get("frames", []):
        assert len(frame["data"]) == len(frame["traces"])
        assert frame["name"] in {s["label"] for s in page["layout"]["sliders"][0]["steps"]}
    if "networks" in page:
        own = page["networks"]
        assert len(own["id"]) == len(own["xaxis"]) == len(own["yaxis"]) == own["y"]["shape"][0]
        assert len(own["x"]) == own["y"]["shape"][-1]
        assert set(own["xaxis"]) | set(own["yaxis"]) <= axes
        assert _decode(own["y"]).size == np.prod(own["y"]["shape"])
    return page


def _decode(array: Any) -> np.ndarray:
    if isinstance(array, list):
        return np.array([np.nan if v is None else v for v in array]) if array else np.zeros(0)
    flat = np.frombuffer(base64.b64decode(array["bdata"]), dtype=array["dtype"])
    shape = array.get("shape", [-1])
    return flat.reshape([int(s) for s in shape.split(",")] if isinstance(shape, str) else shape)


def _check_points(trace):
    if trace["type"] in ("heatmap", "image"):
        return
    x, y = _decode(trace["x"]), _decode(trace["y"])
    assert len(x) == len(y) <= 20_000
    if len(trace.get("customdata", [])) and len(x):
        whose = _decode(trace["customdata"])
        assert whose.shape == (len(x), 3)
        assert (whose >= -1).all()


def test_every_kind_has_an_example():
    assert set(figures.KINDS) == {type(example()) for example in EXAMPLES}
    assert all(kind.__dataclass_params__.frozen and not kind.__dataclass_params__.eq for kind in figures.KINDS)


@pytest.mark.parametrize("example", ALL)
def test_realistic_data(example):
    _check(example())


@pytest.mark.parametrize("example", ALL)
@pytest.mark.parametrize("few", [{"panels": 1}, {"times": 1, "seeds": 1}, {"panels": 1, "times": 1, "seeds": 1}])
def test_one_panel_one_epoch_one_network(example, few):
    _check(example(**few))


@pytest.mark.parametrize("example", ALL)
def test_missing_values(example):
    _check(_holed(example(panels=2, seeds=2)))


@pytest.mark.parametrize("example", SOME)
def test_files_are_the_same_each_time(example, tmp_path):
    kind = example(panels=2, seeds=2)
    first = style.save(kind.paper(), tmp_path / "first")
    second = style.save(example(panels=2, seeds=2).paper(), tmp_path / "second.part")
    assert second[0].name == "second.part.pdf"
    assert [one.read_bytes() for one in first] == [two.read_bytes() for two in second]
    pdf, svg = first[0].read_bytes(), first[1].read_text()
    assert b"/Type3" not in pdf
    assert b"/CreationDate" not in pdf
    assert "<dc:date>" not in svg
    assert json.dumps(kind.page()) == json.dumps(example(panels=2, seeds=2).page())


def test_one_figure_saved_twice_gives_the_same_files(tmp_path):
    figure = dots().paper()
    first, second = (style.save(figure, tmp_path / name) for name in ("first", "second"))
    assert [one.read_bytes() for one in first] == [two.read_bytes() for two in second]


@settings(max_examples=8, deadline=None, derandomize=True)
@given(panels=st.integers(1, 8), example=st.sampled_from(sorted(EXAMPLES, key=lambda example: example.__name__)))
def test_any_number_of_panels(panels, example):
    _check(example(panels=min(panels, 4) if example is focus_shift else panels, seeds=1, times=3))


@pytest.mark.parametrize("example", ALL)
@pytest.mark.parametrize("panels", [None, 1, 2])
def test_no_words_overlap(example, panels, monkeypatch):
    figure = (example(panels=panels) if panels else example()).paper()
    drawn = []
    monkeypatch.setattr(Text, "draw", lambda text, renderer: drawn.append(text))
    figure.draw_without_rendering()
    boxes = [(t.get_text(), t.get_window_extent()) for t in drawn if t.get_visible() and t.get_text().strip()]
    assert len(boxes) > (0 if example is pictures else 5)
    page = figure.bbox
    for words, box in boxes:
        assert page.x0 - 1 <= box.x0 and box.x1 <= page.x1 + 1, words
        assert page.y0 - 1 <= box.y0 and box.y1 <= page.y1 + 1, words
    for i, (words, box) in enumerate(boxes):
        for others, other in boxes[i + 1 :]:
            wide = min(box.x1, other.x1) - max(box.x0, other.x0)
            high = min(box.y1, other.y1) - max(box.y0, other.y0)
            assert wide < 1 or high < 1, (words, others)


@pytest.mark.parametrize("example", [example for example in EXAMPLES if example is not pictures])
def test_the_number_of_networks_is_written(example):
    words = " ".join(t.get_text() for t in _texts(example().paper()))
    assert re.search(r"n = \d+|\d+ students|‖v‖", words)


def test_nothing_global_changes(tmp_path):
    before = dict(matplotlib.rcParams)
    with matplotlib.rc_context({"axes.grid": True, "font.size": 20}):
        figure = recovery_rate(panels=1).paper()
        style.save(figure, tmp_path / "figure")
        assert matplotlib.rcParams["font.size"] == 20
    assert not figure.axes[0].xaxis.get_gridlines()[0].get_visible()
    assert dict(matplotlib.rcParams) == before


def test_a_multiple_has_one_colour_in_all_figures():
    wanted = [style.multiple_colour(m) for m in MULTIPLES]
    assert wanted == [c.lower() for c in (style.ORANGE, style.SKY, style.GREEN, style.BLUE)]
    for kind in (recovery_rate(), loss_curves()):
        on_paper = {line.get_color() for ax in kind.paper().axes for line in ax.lines}
        on_page = {t["line"]["color"] for t in kind.page()["data"] if t.get("hoverinfo") != "skip"}
        assert on_paper == on_page == set(wanted)


def test_multiples_go_from_light_to_dark():
    def light(multiple):
        red, green, blue = matplotlib.colors.to_rgb(style.multiple_colour(multiple))
        return 0.2126 * red**2.2 + 0.7152 * green**2.2 + 0.0722 * blue**2.2

    values = [light(m) for m in (1, 2, 3, 5, 7, 10, 20)]
    assert values == sorted(values, reverse=True)
    assert len({style.multiple_colour(m) for m in (1, 1.5, 2, 3, 5, 7, 10, 20)}) == 8


@given(st.lists(st.floats(-10, 10), min_size=1, max_size=8), st.floats(0.01, 2))
def test_labels_are_spread(wanted, gap):
    wanted = np.array(wanted)
    placed = style.spread(wanted, gap)
    order = np.argsort(wanted, kind="stable")
    assert (np.diff(placed[order]) >= gap - 1e-9).all()
    assert placed.mean() == pytest.approx(wanted.mean(), abs=1e-9)


def test_labels_that_have_room_stay():
    assert style.spread(np.array([3.0, 0.0, 0.1]), 0.5) == pytest.approx([3.0, -0.2, 0.3])


@pytest.mark.parametrize(
    ("value", "words"), [(0.25, "0.25"), (0.0, "0.00"), (3.2e-7, "3.2×10⁻⁷"), (-0.5, "−0.50"), (np.nan, "–")]
)
def test_numbers_in_words(value, words):
    assert style.number(value) == words


def test_film(tmp_path):
    hyperplanes(times=120).film(tmp_path / "long.gif")
    assert (tmp_path / "long.gif").stat().st_size < 3_000_000
    with Image.open(tmp_path / "long.gif") as film:
        assert film.n_frames == 90
        assert film.convert("RGB").getpixel((1, 1)) == (255, 255, 255)
    for name in ("a.gif", "b.gif"):
        hyperplanes(times=6).film(tmp_path / name)
    assert (tmp_path / "a.gif").read_bytes() == (tmp_path / "b.gif").read_bytes()
    hyperplanes(times=1, panels=1).film(tmp_path / "still.gif")


def test_boundaries_are_where_the_node_turns_on():
    kind = hyperplanes()
    teacher = kind.page()["data"][0]
    points = np.stack([_decode(teacher["x"]), _decode(teacher["y"])], axis=1)
    assert points @ kind.teacher_weights[0] + kind.teacher_biases[0] == pytest.approx(0, abs=1e-5)
    assert np.abs(points).max() == pytest.approx(kind.half_width)


def test_students_are_ordered_by_the_teacher_node_they_match():
    correlation = np.array([[0.1, 0.9, 0.2, 0.95], [0.8, 0.0, 0.7, 0.1]])
    assert figures.correlation_matrix.match_order(correlation).tolist() == [3, 1, 0, 2]


def test_too_many_points_are_thinned_by_whole_seeds():
    kind = specialization(times=12)
    page = _check(kind)
    shown = kind.shown_seeds()
    assert 1 < len(shown) < 32
    assert f"n = 32 seeds, {len(shown)} shown" in json.dumps(page["layout"], ensure_ascii=False)
    networks = np.unique(_decode(page["data"][0]["customdata"])[:, 0])
    assert len(networks) == len(shown)


def test_focus_shift_marks_the_students_that_turned():
    kind = focus_shift()
    turned = [t for t in kind.page()["data"] if t["line"]["width"] > 1]
    assert {int(_decode(t["customdata"])[0, 2]) % 3 for t in turned} == {1}
    marked = np.zeros((3, 10), dtype=bool)
    assert not any(t["line"]["width"] > 1 for t in dataclasses.replace(kind, shifted=marked).page()["data"])


def test_never_recovered_is_on_the_top_edge():
    kind = figures.RecoveryTime(np.ones(1), np.array([[[3.0, np.inf], [5.0, np.inf]]]), np.array([[4, 9]]), 100.0)
    never, known, median = kind.page()["data"]
    assert never["customdata"] == [[4, 1, -1], [9, 1, -1]]
    assert min(never["y"]) > 100
    assert known["y"] == [3.0, 5.0]
    assert median["y"] == [4.0]


def test_sample_curves_show_every_network_where_it_ended():
    kind = sample_curves(times=2, seeds=3)
    kind.panels[0].series[0].network[0, 0] = -1
    points = [t for t in kind.page()["data"] if t["mode"] == "markers"]
    assert [t["customdata"][0] for t in points] == [[n, -1, -1] for n in (1, 6, 12, 18)]
    assert points[0]["x"] == [150] * 2 + [300] * 3
    assert points[3]["y"] == pytest.approx(kind.panels[1].series[1].network_y.T.ravel(), rel=1e-4)
    assert (points[3]["xaxis"], points[3]["legendgroup"]) == ("x2", "teacher-agnostic")
    for words in ("network %{customdata[0]}", "teacher-agnostic", "p = 1", "number of samples %{x", "loss %{y"):
        assert words in points[3]["hovertemplate"]


def test_arrays_that_do_not_fit_are_named():
    with pytest.raises(ValueError, match=r"Dots\.network has shape \(1, 4\).*\(3, 12\).*give"):
        dataclasses.replace(dots(), network=np.zeros((1, 4), int))
