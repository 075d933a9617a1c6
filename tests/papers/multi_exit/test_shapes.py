"""Made images of forms and patterns: their counts, labels and moments, and what distinguishes the classes."""

import numpy as np
import pytest
import torch

from understudy.data import Cifar100
from understudy.data.images.normalisation import normalise
from understudy.papers.multi_exit.multi_exit.study import MADE_CLASSES
from understudy.papers.multi_exit.shapes import NAMES, Shapes

PER_CLASS, TEST = 40, 50


@pytest.fixture(scope="module")
def pictures():
    return Shapes(PER_CLASS, TEST).pictures()


def light(pictures, name):
    """Brightness of the images of a class that are not for testing, [image, row, column] from 0 to 1."""
    chosen = pictures.labels[: PER_CLASS * len(NAMES)] == NAMES.index(name)
    return pictures.pixels[: PER_CLASS * len(NAMES)][chosen].double().mean(1) / 255


def test_classes_take_turns_in_both_parts(pictures):
    assert len(NAMES) == len(set(NAMES)) == MADE_CLASSES
    assert pictures.pixels.shape == (PER_CLASS * MADE_CLASSES + TEST, *Cifar100.image)
    assert pictures.pixels.dtype == torch.uint8
    training, testing = pictures.labels.split([PER_CLASS * MADE_CLASSES, TEST])
    assert training.bincount().tolist() == [PER_CLASS] * MADE_CLASSES
    assert testing.tolist() == [i % MADE_CLASSES for i in range(TEST)]


def test_moments_normalise_the_images_that_are_not_for_testing(pictures):
    x = normalise(pictures.pixels[: PER_CLASS * MADE_CLASSES], pictures.mean, pictures.std).double()
    np.testing.assert_allclose(x.mean((0, 2, 3)), 0, atol=1e-6)
    np.testing.assert_allclose(x.std((0, 2, 3)), 1, rtol=1e-6)


def test_images_are_the_same_every_time_and_differ_from_each_other(pictures):
    more = Shapes(PER_CLASS, 2 * TEST).pictures()
    count = PER_CLASS * MADE_CLASSES
    assert torch.equal(more.pixels[:count], pictures.pixels[:count])
    assert len(more.pixels.flatten(1).unique(dim=0)) == len(more.pixels)


@pytest.mark.parametrize(
    ("form", "area"),
    [("disc", np.pi), ("square", 1.7**2), ("triangle", 1.8**2 / np.sqrt(3)), ("cross", 20 / 9), ("ring", 0.9 * np.pi)],
)
def test_forms_have_their_areas(pictures, form, area):
    """Radii are uniform from 9 to 13 pixels, so that their mean square is 121 + 4/3."""
    bright = (light(pictures, f"{form}, plain") > 0.5).double().sum((1, 2)).mean()
    assert bright == pytest.approx(area * (121 + 4 / 3), rel=0.1)
    for pattern in ("rows", "columns", "checks"):
        part = (light(pictures, f"{form}, {pattern}") > 0.5).double().sum((1, 2)).mean()
        assert 0.35 < part / bright < 0.65


@pytest.mark.parametrize("form", ["disc", "square", "ring"])
def test_patterns_vary_in_their_direction(pictures, form):
    def ratio(pattern):
        inside = light(pictures, f"{form}, {pattern}")
        down, across = (inside.diff(dim=dim).square().mean().item() for dim in (1, 2))
        return down / across

    assert ratio("rows") > 1.5 and ratio("columns") < 1 / 1.5
    assert 0.75 < ratio("plain") < 1.33 and 0.75 < ratio("checks") < 1.33
