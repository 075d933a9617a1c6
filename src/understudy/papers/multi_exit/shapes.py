"""Made images of forms and patterns with labels, which take the place of CIFAR-100 in runs without downloaded files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from understudy._random import Stream, generator
from understudy.data.images.cifar100 import StoredImages

_Array = NDArray[np.float32]

_FORMS: dict[str, Callable[[_Array, _Array, _Array], _Array]] = {
    "disc": lambda x, y, radius: radius - np.hypot(x, y),
    "square": lambda x, y, radius: 0.85 * radius - np.maximum(np.abs(x), np.abs(y)),
    "triangle": lambda x, y, radius: 0.6 * radius - np.maximum(y, np.sqrt(0.75) * np.abs(x) - 0.5 * y),
    "cross": lambda x, y, radius: np.maximum(_bar(x, y, radius), _bar(y, x, radius)),
    "ring": lambda x, y, radius: 0.3 * radius - np.abs(np.hypot(x, y) - 0.75 * radius),
}
"""Distance in pixels, inwards, from the border of each form."""
_PATTERNS: dict[str, Callable[[_Array, _Array], _Array]] = {
    "plain": lambda across, along: np.ones_like(along),
    "rows": lambda across, along: along,
    "columns": lambda across, along: across,
    "checks": lambda across, along: across * along,
}
"""Value of each pattern, positive where it is bright, from a wave in each direction."""
NAMES = tuple(f"{form}, {pattern}" for form, pattern in product(_FORMS, _PATTERNS))
"""Names of the 20 classes."""
SIZE = 32
"""Rows and columns of an image, as many as CIFAR-100 has."""
_NOISE = 0.1
"""Standard deviation of the noise of each pixel and colour, whose values are from 0 to 1."""
_SEED = 1
"""Seed of all images."""


@dataclass(frozen=True)
class Shapes:
    """Images of 20 classes: each is one of five forms, filled with one of four patterns, on a dark ground.

    Place, size, inclination and colour of the form, period and phase of the pattern, and the colour of the ground are
    random, and every pixel has noise. The mirror images of a class are as probable as its images.

    Args:
        per_class: Images of each class that are not for testing.
        test: Number of test images.
    """

    per_class: int
    test: int

    names: ClassVar[tuple[str, ...]] = NAMES

    def pictures(self) -> StoredImages:
        """Return the images that are not for testing, then the test images, and the moments of the former.

        The classes take turns.
        """
        return _draw_all(self.per_class, self.test)


@cache
def _draw_all(per_class: int, test: int) -> StoredImages:
    classes, each_tested = len(NAMES), -(-test // len(NAMES))
    parts = _draw(Stream.TRAIN, per_class), _draw(Stream.EVALUATION, each_tested)[:test]
    pixels = torch.from_numpy(np.concatenate(parts))
    labels = torch.arange(len(pixels)) % classes  # right for both parts, as the first has all classes equally often
    values = pixels[: per_class * classes].double() / 255
    mean, std = values.mean((0, 2, 3)).tolist(), values.std((0, 2, 3)).tolist()
    return StoredImages(pixels, labels, tuple(mean), tuple(std))


def _draw(stream: Stream, count: int) -> NDArray[np.uint8]:
    """Draw a number of images of each class; the classes take turns."""
    kinds = product(_FORMS.values(), _PATTERNS.values())
    drawn = [_draw_class(generator(_SEED, stream, i), count, *kind) for i, kind in enumerate(kinds)]
    return np.stack(drawn, axis=1).reshape(-1, 3, SIZE, SIZE)


def _draw_class(
    random: np.random.Generator,
    count: int,
    form: Callable[[_Array, _Array, _Array], _Array],
    pattern: Callable[[_Array, _Array], _Array],
) -> NDArray[np.uint8]:
    """Draw images [image, colour, row, column] of one class."""

    def each(low: float, high: float, colours: int = 1) -> _Array:
        return random.uniform(low, high, (count, colours, 1, 1)).astype(np.float32)

    row, column = np.indices((SIZE, SIZE), np.float32) - (SIZE - 1) / 2
    down, right, angle = row - each(-4, 4), column - each(-4, 4), each(-0.25, 0.25)
    x, y = np.cos(angle) * right + np.sin(angle) * down, np.cos(angle) * down - np.sin(angle) * right
    cover = np.clip(0.5 + form(x, y, each(9, 13)), 0, 1)
    across, along = (np.sin(2 * np.pi * (at / each(7, 10) + each(0, 1))) for at in (x, y))
    light = 0.5 + 0.5 * np.clip(3 * pattern(across, along), -1, 1)
    ground, bright = each(0, 0.25, colours=3), each(0.75, 1, colours=3)
    values = ground + (bright - ground) * cover * light
    values += _NOISE * random.standard_normal(values.shape, np.float32)
    return np.round(255 * np.clip(values, 0, 1)).astype(np.uint8)


def _bar(along: _Array, across: _Array, length: _Array) -> _Array:
    """Distance in pixels, inwards, from the border of a bar."""
    return np.minimum(length / 3 - np.abs(across), length - np.abs(along))
