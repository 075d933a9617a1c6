"""The L of every layer and heat maps of H* and β*: what they guarantee beyond the contract of all figures."""

import dataclasses
import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from contracts import test_figures as contract
from report import test_page as pages
from support.layer_figures import layer_specialization, matrix_images
from understudy import students, teachers
from understudy.measures import Correlation, diagonal_mass, modulated_fan_out, modulation, reorder_students
from understudy.nets import Layer
from understudy.report import figures
from understudy.report.figures.layer_specialization import _early
from understudy.report.figures.matrix_images import _blocks, _names
from understudy.report.story import Figure, Story

browser = pages.browser
decoded = contract._decode
_STEPS = (0, 100, 800)


@dataclasses.dataclass
class Reading:
    """Measurements of two students at one step, layer by layer."""

    rho: list[torch.Tensor]
    fan_out: list[torch.Tensor]
    matrices: list[dict[str, torch.Tensor]]


@pytest.fixture(scope="module")
def learning(one_thread):
    """Two students of three hidden layers, four times as wide as their teachers, before, early and after training."""
    draw = torch.Generator().manual_seed(3)

    def inputs(count):
        return 3 * torch.randn(count, 8, generator=draw)

    x = inputs(1_000)
    teacher = teachers.distinct_rows((8, 4, 5, 6, 4), seeds=[1, 2])
    teacher = teachers.standardised(teachers.half_active(teacher, x), x)
    student = students.like_linear(teacher, multiple=4)
    numbers = [part.clone().requires_grad_() for layer in student.layers for part in layer]

    def network():
        layers = tuple(Layer(*pair) for pair in zip(numbers[::2], numbers[1::2], strict=True))
        return dataclasses.replace(student, layers=layers)

    def probe():
        with torch.no_grad():
            ours, theirs = network().activations(x), teacher.activations(x)
            rho = []
            for t, s in zip(theirs.hidden, ours.hidden, strict=True):
                correlation = Correlation()
                correlation.update(t, s)
                rho.append(correlation.result())
            parts = modulation(teacher, network(), x, ("h_star", "beta_star"))
            matrices = [{"H*": part.h_star, "β*": part.beta_star} for part in parts]
            return Reading(rho, list(modulated_fan_out(network(), x)), matrices)

    readings = [probe()]
    for step in range(1, _STEPS[-1] + 1):
        batch = inputs(32)
        loss = (network()(batch) - teacher(batch)).square().mean((1, 2)).sum()
        with torch.no_grad():
            for number, slope in zip(numbers, torch.autograd.grad(loss, numbers), strict=True):
                number -= 0.2 * slope
        if step in _STEPS:
            readings.append(probe())
    return readings


def _the_l(readings):
    cells = []
    for layer in range(3):
        best = [reading.rho[layer].max(1) for reading in readings]
        nets, nodes = best[0].values.shape
        cells.append(
            figures.StudentNodes(
                np.stack([b.values.flatten().numpy() for b in best]),
                np.stack([reading.fan_out[layer].flatten().numpy() for reading in readings]),
                np.stack([b.indices.flatten().numpy() for b in best]),
                np.repeat(np.arange(nets), nodes),
                np.tile(np.arange(nodes), nets),
                np.repeat(np.arange(nets) + 1, nodes),
            )
        )
    mean = np.array([[reading.rho[layer].amax(2).mean().item() for reading in readings] for layer in range(3)])
    return figures.LayerSpecialization(("4×",), np.array(_STEPS), (tuple(cells),), mean[None])


def _the_images(readings, network=0):
    cells = []
    for layer in range(3):
        row = []
        for name in ("H*", "β*"):
            for reading in (readings[0], readings[-1]):
                matrix = reading.matrices[layer][name]
                rows, order = reorder_students(matrix, reading.rho[layer])
                mass = diagonal_mass(matrix, order)[network].item()
                row.append(figures.OrderedMatrix(rows[network].numpy(), order[network].numpy(), mass))
        cells.append(tuple(row))
    columns = ("H* before", "H* after", "β* before", "β* after")
    return figures.MatrixImages(columns, tuple(cells), network)


def test_a_dot_is_where_its_node_was_measured(learning):
    page = contract._check(_the_l(learning))
    assert [frame["name"] for frame in page["frames"]] == ["0", "100", "800"]
    for reading, frame in zip(learning, page["frames"], strict=True):
        for layer, dots in enumerate(frame["data"][:3]):
            network, teacher, student = decoded(dots["customdata"]).T
            rho = reading.rho[layer].numpy()
            assert len(student) == reading.fan_out[layer].numel() == len({*zip(network, student, strict=True)})
            assert decoded(dots["x"]) == pytest.approx(rho[network, :, student].max(1), abs=1e-5)
            assert decoded(dots["x"]) == pytest.approx(rho[network, teacher, student], abs=1e-5)
            assert decoded(dots["y"]) == pytest.approx(reading.fan_out[layer].numpy()[network, student], rel=1e-5)


def test_training_raises_the_diagonal_of_real_networks_and_the_figure_shows_it(learning):
    kind = _the_images(learning)
    for row in kind.cells:
        h_before, h_after, beta_before, beta_after = (matrix.diagonal for matrix in row)
        assert h_after > max(h_before, beta_after) and beta_after > beta_before
    words = {note["text"] for note in contract._check(kind)["layout"]["annotations"]}
    after = kind.cells[0][1].diagonal
    assert after > 0.1 and f"H* after, diagonal {100 * after:.0f}%" in words
    assert any(f"diagonal {100 * after:.0f}%" in ax.get_title() for ax in kind.paper().axes)


def test_a_cell_of_an_image_is_the_entry_of_the_student_and_teacher_it_names(learning):
    page = _the_images(learning, network=1).page()
    for layer, name, column in ((0, "H*", 1), (2, "β*", 3)):
        image, matrix = page["data"][4 * layer + column], learning[-1].matrices[layer][name][1].numpy()
        students_, teachers_ = (np.array(image[axis], dtype=int) for axis in "yx")
        assert len({*students_}) == len(students_) == len(teachers_) and set(students_) < set(range(len(matrix)))
        shown = matrix[np.ix_(students_, teachers_)]
        wanted = 100 * shown / np.abs(shown).max()
        assert decoded(image["z"]) == pytest.approx(wanted, abs=0.5 + 1e-4)
        assert image["meta"] == {"network": 1}


def test_one_group_is_drawn_as_the_paper_does_with_layers_as_rows_and_epochs_as_columns():
    kind = layer_specialization(panels=3, times=4)
    axes = kind.paper().axes
    assert [ax.get_title() for ax in axes[:4]] == [f"epoch {e:g}" for e in kind.epochs]
    assert [ax.get_ylabel() for ax in axes[::4]] == ["layer 3", "layer 2", "layer 1"]
    shown = axes[1].collections[0].get_offsets().data
    top = kind.cells[0][2]
    assert sorted(shown.tolist()) == sorted(np.stack([top.correlation[1], top.fan_out[1]], 1).tolist())
    assert len(axes) == 12


def test_several_groups_are_rows_at_the_last_epoch():
    kind = layer_specialization(panels=3, groups=2)
    axes = kind.paper().axes
    assert [ax.get_title() for ax in axes] == ["layer 1", "layer 2", "layer 3", "", "", ""]
    assert [ax.get_ylabel() for ax in axes[::3]] == ["2×", "3×"]
    shown = axes[4].collections[0].get_offsets().data
    assert sorted(shown[:, 1]) == sorted(kind.cells[1][1].fan_out[-1])


def test_students_that_match_no_teacher_node_stay_inside_their_panel():
    kind = layer_specialization(panels=2, times=3)
    assert kind.paper().axes[0].get_xlim() == (0, 1) and kind.page()["layout"]["xaxis"]["range"] == [0, 1.02]
    first, second = kind.cells[0]
    away = dataclasses.replace(second, correlation=np.where(second.student == 3, -0.12, second.correlation))
    moved = dataclasses.replace(kind, cells=((first, away),))
    assert {ax.get_xlim() for ax in moved.paper().axes} == {(-0.15, 1)}
    assert all(moved.page()["layout"][axis]["range"] == [-0.15, 1.02] for axis in ("xaxis", "xaxis2"))


def test_a_panel_has_one_range_over_epochs_that_is_its_own():
    kind = layer_specialization(panels=3, groups=2)
    small = tuple(dataclasses.replace(cell, fan_out=0.05 * cell.fan_out) for cell in kind.cells[1])
    kind = dataclasses.replace(kind, cells=(kind.cells[0], small))
    layout, axes = kind.page()["layout"], kind.paper().axes
    for i, cell in enumerate(cell for row in kind.cells for cell in row):
        axis = layout["yaxis" + (str(i + 1) if i else "")]
        low, high = axis["range"]
        assert low == 0 and 1.05 * cell.fan_out.max() < high < 1.3 * cell.fan_out.max() and "matches" not in axis
        low, high = axes[i].get_ylim()
        assert low == 0 and 1.05 * cell.fan_out[-1].max() < high < 1.3 * cell.fan_out[-1].max()


def test_the_mean_correlation_moves_with_the_slider():
    kind = layer_specialization(panels=2, times=3)
    page = kind.page()
    assert [trace["text"] for trace in page["data"][2:]] == [["ρ̄ = 0.200"], ["ρ̄ = 0.200"]]
    for time, frame in enumerate(page["frames"]):
        assert frame["traces"] == [0, 1, 2, 3]
        assert [part["text"][0] for part in frame["data"][2:]] == [f"ρ̄ = {v:.3f}" for v in kind.rho_mean[0, :, time]]
    unknown = dataclasses.replace(kind, rho_mean=np.full((1, 2, 3), np.nan))
    assert unknown.page()["data"][-1]["text"] == [""]


def test_too_many_nodes_are_drawn_at_random_the_same_at_every_epoch_with_a_note():
    kind = layer_specialization(times=40, seeds=60)
    page = contract._check(kind)
    assert len(page["frames"]) <= 12
    names = [frame["name"] for frame in page["frames"]]
    assert names[0] == "0" and names[-1] == "100"
    shown = [decoded(frame["data"][3]["customdata"])[:, [0, 2]] for frame in page["frames"]]
    assert all((one == shown[0]).all() for one in shown)
    most = len(shown[0])
    assert 1_000 < most <= 1_500 < kind.cells[0][3].seed.size == 6_600
    assert len(np.unique(shown[0][:, 0])) == 60, "all networks take part"
    words = json.dumps(page["layout"], ensure_ascii=False)
    assert f"at most {most:,} of the 3,000 to 6,600 nodes of a panel, drawn at random" in words
    assert json.dumps(page) == json.dumps(layer_specialization(times=40, seeds=60).page())
    assert "at random" not in json.dumps(layer_specialization().page())


@given(st.lists(st.integers(1, 500), min_size=1, max_size=60, unique=True), st.integers(3, 12), st.booleans())
def test_chosen_epochs_begin_and_end_with_the_run(steps, most, from_zero):
    epochs = np.array([0] * from_zero + sorted(steps))
    chosen = _early(epochs, most)
    assert chosen == sorted(set(chosen)) and len(chosen) <= most
    assert chosen[0] == 0 and chosen[-1] == len(epochs) - 1
    assert len(epochs) > most or len(chosen) == len(epochs)


def test_epochs_are_closer_together_at_the_beginning():
    assert _early(np.arange(101), 5) == [0, 1, 5, 22, 100]


def test_a_block_is_its_largest_entry_with_its_sign():
    matrix = np.array(
        [[1.0, -3.0, 0.0, 0.5], [2.0, 0.0, -0.2, 0.1], [0.0, 0.0, np.nan, np.nan], [0, 7, np.nan, np.nan]]
    )
    expected = np.array([[-3.0, 0.5], [7.0, np.nan]])
    assert _blocks(matrix, 2) == pytest.approx(expected, nan_ok=True)
    assert _blocks(matrix, 4) == pytest.approx(matrix, nan_ok=True)
    assert _names(np.array([5, 3, 9, 1]), 2) == ["5, 3", "9, 1"]
    assert _names(np.arange(8), 2) == ["0 … 3 (4)", "4 … 7 (4)"]
    assert _names(np.array([5, 3]), 2) == ["5", "3"]


@given(arrays(float, st.tuples(st.integers(1, 30), st.integers(1, 30)), elements=st.floats(-9, 9)), st.integers(1, 12))
def test_blocks_keep_the_largest_entry_and_invent_none(matrix, most):
    reduced = _blocks(matrix, most)
    assert reduced.shape == tuple(min(size, most) for size in matrix.shape)
    assert np.isin(reduced, matrix).all()
    assert np.abs(reduced).max() == np.abs(matrix).max()
    assert sum(len(np.unique(name.split(", "))) for name in _names(np.arange(3 * most), most)) == 3 * most


def test_a_large_matrix_keeps_its_diagonal_on_the_page_and_names_each_cell():
    kind = matrix_images(panels=2, teachers=500, multiple=1)
    page = contract._check(kind)
    image = decoded(page["data"][1]["z"])
    side = len(image)
    assert side < 500 and image.shape == (side, side)
    off = np.abs(image[~np.eye(side, dtype=bool)])
    assert np.diag(image).min() > 50 > off.max()
    assert page["data"][1]["x"][0] == "0, 1" or page["data"][1]["x"][0] == "0"
    said = "neighbouring entries shown by the largest"
    assert said in json.dumps(page["layout"]) and said not in json.dumps(matrix_images().page())


def test_the_papers_own_size_fits_the_page():
    kind = matrix_images(panels=4, teachers=125, multiple=10)
    page = contract._check(kind)
    assert decoded(page["data"][0]["z"]).shape == (125, 125)


def test_colours_are_relative_to_each_matrix_and_keep_the_sign():
    kind = matrix_images(panels=1)
    first, *others = kind.cells[0]
    louder = dataclasses.replace(first, values=-1e-6 * first.values)
    turned = dataclasses.replace(kind, cells=((louder, *others),)).page()["data"]
    plain = kind.page()["data"]
    assert (decoded(turned[0]["z"]) == -decoded(plain[0]["z"])).all()
    assert np.abs(decoded(plain[0]["z"])).max() == 100
    assert turned[0]["hovertemplate"] != plain[0]["hovertemplate"]
    zeros = dataclasses.replace(first, values=np.zeros_like(first.values))
    assert not decoded(dataclasses.replace(kind, cells=((zeros, *others),)).page()["data"][0]["z"]).any()


def test_only_matched_students_are_shown():
    kind = matrix_images(panels=2)
    assert [ax.get_ylabel() for ax in kind.paper().axes[:8:4]] == [
        "layer 1\n10 of 40 students",
        "layer 2\n15 of 60 students",
    ]
    assert kind.page()["data"][0]["y"] == [str(s) for s in kind.cells[0][0].student[:10]]
    assert matrix_images(panels=1, multiple=1).paper().axes[0].get_ylabel() == "layer 1\n10 students"


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(layer_specialization(groups=3), id="groups"),
        pytest.param(layer_specialization(times=1, panels=3), id="one-moment"),
        pytest.param(layer_specialization(panels=8, times=2), id="eight-layers"),
        pytest.param(matrix_images(panels=6, teachers=90), id="six-images"),
        pytest.param(
            dataclasses.replace(
                matrix_images(), columns=("H* before", "H* after"), cells=tuple(r[:2] for r in matrix_images().cells)
            ),
            id="two-columns",
        ),
    ],
)
def test_texts_of_other_forms_do_not_overlap(kind, monkeypatch):
    contract._check(kind)
    contract.test_no_words_overlap(lambda: kind, None, monkeypatch)


def test_arrays_that_do_not_fit_are_named():
    kind = layer_specialization(panels=2, times=3)
    with pytest.raises(ValueError, match=r"LayerSpecialization\.rho_mean has shape \(1, 2, 2\).*\(1, 2, 3\).*give"):
        dataclasses.replace(kind, rho_mean=np.zeros((1, 2, 2)))
    with pytest.raises(ValueError, match=r"LayerSpecialization\.cells must be 1 rows of 2 panels: give"):
        dataclasses.replace(kind, cells=(kind.cells[0][:1],))
    with pytest.raises(ValueError, match="LayerSpecialization needs its nodes at all 4 epochs"):
        dataclasses.replace(kind, epochs=np.arange(4), rho_mean=np.zeros((1, 2, 4)))
    with pytest.raises(ValueError, match=r"OrderedMatrix\.values has 2 students for 3 teacher nodes: give"):
        figures.OrderedMatrix(np.zeros((2, 3)), np.arange(2), 0.0)
    images = matrix_images(panels=2)
    with pytest.raises(ValueError, match=r"each row of MatrixImages\.cells must have one matrix per column \(4\)"):
        dataclasses.replace(images, cells=(images.cells[0][:3],))
    with pytest.raises(ValueError, match="must have one shape: give one row per layer"):
        dataclasses.replace(images, cells=((*images.cells[0][:2], *images.cells[1][2:]),))


def test_the_slider_moves_dots_and_words_and_an_image_marks_its_network(browser, tmp_path):
    kinds = (layer_specialization(panels=2, times=3), matrix_images(panels=1))
    shown = tuple(Figure(f"f{i}", "", "", "", kind) for i, kind in enumerate(kinds))
    path = tmp_path / "report.html"
    pages.write_page(path, **pages.inputs(story=Story("Layers.", (), shown), files=[]))
    page = pages.Opened(browser, path)
    page.draw_all(2)
    plot = "document.querySelector('#figure-1 .plot')"
    assert page.js(f"return {plot}.data[2].text[0]") == "ρ̄ = 0.200"
    rail = page.find("#figure-1 .slider-rail-touch-rect")
    page.js("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", rail)
    from selenium.webdriver import ActionChains

    dots = np.array(page.js(f"return Array.from({plot}.data[0].x)"))
    assert dots.max() < 0.31
    ActionChains(browser).move_to_element_with_offset(rail, rail.rect["width"] / 2 - 12, 0).click().perform()
    page.until(f"{plot}.data[2].text[0] === 'ρ̄ = 0.990'")
    assert np.array(page.js(f"return Array.from({plot}.data[0].x)")).max() > 0.9
    image = page.find("#figure-2 .plot")
    page.js("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", image)
    ActionChains(browser).move_to_element_with_offset(image, 60, 0).pause(0.3).click().perform()
    page.until("!document.querySelector('#chip').hidden")
    said = page.find("#chip span").text
    assert said.startswith("network 12 · ") and " · teacher node " in said
    assert page.complaints() == []
