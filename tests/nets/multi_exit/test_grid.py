"""The grid of a multi-scale DenseNet: which convolutions there are, what each reads, and errors of sizes."""

import itertools

import pytest

import understudy as us
from understudy.nets.multi_exit.grid import Grid, parse_grid

GRIDS = {
    "cifar": Grid(),
    "imagenet": Grid.imagenet(),
    "one scale": Grid(image=9, channels=(3,), layers=2, exits=(1, 2)),
    "shallow": Grid(image=16, channels=(2, 4, 6), layers=3, exits=(1, 3)),
    "odd sizes": Grid(image=27, channels=(3, 2, 4), layers=7, exits=(2, 3, 7), bottleneck=1),
}


@pytest.fixture(params=GRIDS.values(), ids=list(GRIDS))
def grid(request):
    return request.param


def test_the_sizes_of_the_paper():
    cifar, imagenet = GRIDS["cifar"], GRIDS["imagenet"]
    assert (cifar.scales, cifar.layers, cifar.exits) == (3, 24, (4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24))
    assert (imagenet.scales, imagenet.layers, imagenet.exits) == (4, 38, (10, 17, 24, 31, 38))
    assert cifar.sizes == (32, 16, 8) and imagenet.sizes == (56, 28, 14, 7)
    assert cifar.transitions == (8, 16)
    # 1 + 8 widths halved to 4, 4 + 8 to 6, and 6 + 8 at the end, of 24 channels each.
    assert [cifar.exit_inputs(m)[1] // 24 for m in range(11)] == [5, 7, 4, 6, 8, 10, 6, 8, 10, 12, 14]


def test_convolutions_append_to_features_without_gaps(grid):
    have = {"image": grid.colours}
    for step in grid.convolutions:
        assert step.offset == have.get(step.target, 0), step
        assert step.inputs <= have[step.source], step
        have[step.target] = step.offset + step.outputs
    names = [step.name for step in grid.convolutions]
    assert len(names) == len(set(names))


def test_every_convolution_is_used_by_an_exit(grid):
    assert set().union(*grid.paths) == set(grid.convolutions)
    assert isinstance(grid.steps[-1], int)


def test_paths_are_in_order_and_what_an_exit_depends_on(grid):
    order = {step: place for place, step in enumerate(grid.steps)}
    for exit, path in enumerate(grid.paths):
        assert [order[step] for step in path] == sorted(order[step] for step in path)
        assert all(order[step] < order[exit] for step in path)
        made = {"image": grid.colours}
        for step in path:
            assert made[step.source] >= step.inputs
            made[step.target] = max(made.get(step.target, 0), step.offset + step.outputs)
        name, channels = grid.exit_inputs(exit)
        assert made[name] == channels
        read = {name: channels}
        for step in reversed(path):
            assert read[step.target] > step.offset, f"{step} is not needed"
            read[step.source] = max(read.get(step.source, 0), step.inputs)


def test_finer_scales_are_dropped_near_the_end():
    scales = [list(Grid().scales_after(layer)) for layer in (1, 22, 23, 24)]
    assert scales == [[0, 1, 2], [0, 1, 2], [1, 2], [2]]


def test_text_gives_the_same_grid(grid):
    assert Grid.from_json(grid.to_json()) == grid


@pytest.mark.parametrize("text", ["3", "{", '{"layers": "many"}', '{"depth": 3}', '{"exits": [30]}'])
def test_other_texts_are_rejected(text):
    with pytest.raises(us.UserError, match=r"x\.safetensors: its architecture cannot be read"):
        parse_grid(text, "x.safetensors")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"classes": 0}, "classes must be a whole number of at least 1, got 0"),
        ({"channels": ()}, "channels must have a number for each scale, got none"),
        ({"channels": (6, 0)}, "channels must be a whole number of at least 1, got 0"),
        ({"channels": (5, 7)}, "channels must be even for every scale but the finest, got 7"),
        ({"layers": 2, "exits": (2,)}, "layers must be at least the number of scales (3), got 2"),
        ({"exits": ()}, "exits must name at least one layer, got none"),
        ({"exits": (4, 25)}, "exits must be layers from 1 to 24, got 25"),
        ({"exits": (0, 24)}, "exits must be a whole number of at least 1, got 0"),
        ({"exits": (8, 4, 24)}, "exits must be in increasing order, each layer once, got 8, 4, 24"),
        ({"exits": (4, 4, 24)}, "exits must be in increasing order, each layer once, got 4, 4, 24"),
        ({"exits": (4, 22)}, "exits must end with the last layer (24), got 22"),
        ({"stem": "large"}, "stem must be plain or imagenet, got 'large'"),
        ({"image": 12}, "image must be at least 13 pixels wide for 3 scales, got 12: exits need 4 × 4 features"),
        ({"image": 48, "stem": "imagenet"}, "image must be at least 49 pixels wide for 3 scales, got 48"),
    ],
)
def test_sizes_that_do_not_fit(given, message):
    with pytest.raises(us.UserError) as error:
        Grid(**given)
    assert message in str(error.value)


def test_the_least_image_is_enough():
    for scales, stem in itertools.product((1, 2, 3), ("plain", "imagenet")):
        least = 3 * 2 ** (scales - 1) * (4 if stem == "imagenet" else 1) + 1
        assert Grid(image=least, channels=(2,) * scales, stem=stem).coarsest == 4
        with pytest.raises(us.UserError, match=f"at least {least} pixels"):
            Grid(image=least - 1, channels=(2,) * scales, stem=stem)


@pytest.mark.wrong_shapes
def test_other_types():
    assert Grid(exits=range(4, 25, 2), channels=[6, 12, 24]) == Grid()
    with pytest.raises(us.UserError, match=r"layers must be a whole number of at least 1, got 24\.0"):
        Grid(layers=24.0)
    with pytest.raises(us.UserError, match="grid must be a Grid, got an int"):
        us.MSDNet(10)
    for name in ("channels", "exits"):
        with pytest.raises(us.UserError, match=rf"{name} must be several whole numbers, as in \(6, 12, 24\), got 24"):
            Grid(**{name: 24})
    with pytest.raises(us.UserError, match=r"module must be an nn\.Module, got an int"):
        us.exits(3, ["a"], example=(3, 8, 8))
