"""`us.folds`: tables, affine maps, figures and pages of fold-sets, and their errors."""

import numpy as np
import pytest
import torch
from torch import nn

import understudy as us
from understudy import UserError
from understudy.papers.equivalence.fold_film import film
from understudy.papers.equivalence.theory.relu_network import ReluNetwork, random_network


@pytest.fixture(scope="module")
def found():
    return us.folds(random_network((2, 6, 4, 1), 1))


def test_tables_agree_with_each_other(found):
    units, edges, cells = (found.to_pandas(name) for name in ("units", "edges", "cells"))
    assert len(units) == 10
    assert len(cells) == found.cells == len(found.areas)
    assert len(edges) == found.edges == found.edges_per_layer.sum()
    lengths = edges.groupby(["layer", "unit"])["length"].sum()
    for layer, part in enumerate(found.lengths, start=1):
        for unit, length in enumerate(part):
            assert lengths.get((layer, unit), 0.0) == pytest.approx(length)
    assert units["length"].sum() == pytest.approx(edges["length"].sum())
    assert units["visible_length"].sum() == pytest.approx(edges["length"][edges["folds_function"]].sum())
    assert cells["area"].sum() == pytest.approx(16)
    with pytest.raises(UserError, match="units, cells, edges, got 'folds'"):
        found.to_pandas("folds")


def test_affine_maps_of_single_cells(found):
    for cell in (0, found.cells - 1):
        weight, bias = found.affine_map(cell)
        corners = found.subdivision.corners[found.subdivision.offsets[cell] : found.subdivision.offsets[cell + 1]]
        x = found.subdivision.points[corners]
        assert x @ weight.T + bias == pytest.approx(found.network(x), abs=1e-12)
        assert np.append(weight[0], bias) == pytest.approx(found.subdivision.pieces.maps[cell, 0], abs=1e-12)
    with pytest.raises(UserError, match=f"from 0 to {found.cells - 1}, got −1|got -1"):
        found.affine_map(-1)


def test_modules_and_populations():
    module = nn.Sequential(nn.Linear(2, 5), nn.LeakyReLU(0.1), nn.Linear(5, 1)).double()
    of_module = us.folds(module, window=((-1, 1), (0, 3)))
    population = us.from_module(module)
    assert us.folds(population, ((-1, 1), (0, 3)), which=0).cells == of_module.cells
    x = torch.from_numpy(of_module.subdivision.centres)
    weight, bias = of_module.affine_map(0)
    assert x[0].numpy() @ weight.T + bias == pytest.approx(module(x[:1])[0].detach().numpy())
    with pytest.raises(UserError, match="network 3"):
        us.folds(population, which=3)


def test_planes_through_three_inputs():
    network = random_network((6, 10, 8, 2), 1)
    points = np.random.default_rng(1).normal(size=(3, 6))
    found = us.folds(network, through=points)
    weight, bias = found.affine_map(0)
    assert (weight.shape, bias.shape) == ((2, 6), (2,))
    x = found.subdivision.plane.inputs_at(found.subdivision.centres[:1])
    assert x @ weight.T + bias == pytest.approx(network(x))
    with pytest.raises(UserError, match="6 inputs"):
        us.folds(network)
    with pytest.raises(UserError, match="one line"):
        us.folds(network, through=[points[0], points[1], points[0]])


def test_words(found):
    words = repr(found)
    assert words.startswith(f"Folds of a network 2-6-4-1: {found.cells} cells, {found.edges} edges")
    assert "[−2, 2] × [−2, 2]" in words
    assert "does not fold" not in words
    hidden = ReluNetwork((np.eye(2), np.ones((1, 2)), np.ones((1, 1))), (np.zeros(2), -np.ones(1), np.zeros(1)))
    tent = us.folds(hidden)
    assert "4 edges at which a unit changes sign and the function does not fold" in repr(tent)
    assert "<pre>" in tent._repr_html_()


@pytest.mark.parametrize(("name", "begins"), [("a.pdf", b"%PDF"), ("a.svg", b"<?xml"), ("a.png", b"\x89PNG")])
def test_figures(found, tmp_path, name, begins):
    path = found.figure(tmp_path / name)
    assert path.read_bytes().startswith(begins)


def test_other_files_are_refused(found, tmp_path):
    with pytest.raises(UserError, match=r"\.pdf, \.svg, \.png, got 'a\.gif'"):
        found.figure(tmp_path / "a.gif")
    with pytest.raises(UserError, match=r"must end in \.html, \.htm, got 'x\.txt'"):
        found.report(tmp_path / "x.txt")
    assert not list(tmp_path.iterdir())


def test_windows_that_are_too_large_say_so(found, tmp_path):
    assert found.unresolved == ""
    with pytest.warns(UserWarning, match=r"^folds: cells may be missing: .* nearer to each other than about 1 are not"):
        large = us.folds(random_network((2, 6, 4, 1), 1), window=(-1e12, 1e12))
    assert large.cells < us.folds(random_network((2, 6, 4, 1), 1), window=(-1e3, 1e3)).cells
    assert "cells may be missing" in repr(large)
    assert "cells may be missing" in large.report(tmp_path / "large.html").read_text()


def test_page(found, tmp_path):
    path = found.report(tmp_path / "folds.html")
    text = path.read_text()
    assert f"affine on {found.cells} cells" in text
    assert "Which fold bends at which" in text
    assert '<h2 id="table-title">Hidden units</h2>' in text
    assert ">Hidden units</a>" in text
    assert "Matched nodes" not in text


def test_greedy_panels_show_the_canonical_representation(found):
    panel = found.panel(greedy=True)
    assert (panel.layers == found.surface.segment_layers).all()
    assert set(panel.layers) <= {1, 2}
    least = found.panel(least=0.2)
    assert 0 < len(least.layers) < found.edges


def test_films(found):
    networks = [random_network((2, 6, 4, 1), seed) for seed in (1, 2)]
    made = film(networks, [0, 1000], teacher=networks[0])
    assert [panel.title for panel in made.panels] == ["0", "1,000"]
    assert len(made.behind) == found.edges
    assert [frame["name"] for frame in made.page()["frames"]] == ["0", "1,000"]
    with pytest.raises(UserError, match="each of the 2 networks, got 1"):
        film(networks, [0])
    with pytest.raises(UserError, match="networks must contain at least one network"):
        film([], [])


def test_large_fold_sets_show_the_longest_folds():
    many = us.folds(random_network((2, 150, 100, 1), 1))
    assert many.edges > 24_000
    page = many.fold_sets().page()
    shown = sum(trace["mode"] == "lines" for trace in page["data"])
    assert shown >= 4
    assert "the longest 24,000 shown" in str(page["layout"]["annotations"])
