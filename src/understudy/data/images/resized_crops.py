"""Crops of photographs of any size to squares: at random for training, the centre for evaluation.

The transforms are those with which networks for ImageNet are usually trained (Szegedy et al. 2015; torchvision's
`RandomResizedCrop`, `Resize` and `CenterCrop`), with bilinear interpolation that averages where it shrinks.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from jaxtyping import Int
from PIL.Image import Image, Resampling, Transpose
from torch import Tensor

from understudy._random import Stream, integers, words

_AREA = 0.08, 1.0
_RATIO = 3 / 4, 4 / 3
_ATTEMPTS = 10
_WORDS = 4 * _ATTEMPTS + 1


class PixelBox(NamedTuple):
    """A rectangle of pixels."""

    left: int
    top: int
    width: int
    height: int


def draw_words(seed: int, epoch: int, index: Int[Tensor, "row"]) -> Int[Tensor, "row word"]:
    """Draw the random words with which each image is cropped and flipped, a function of (seed, epoch, image).

    Args:
        seed: Seed of the network.
        epoch: Epoch, counted from 1.
        index: Index of each image, below 2³².
    """
    return words(seed, Stream.AUGMENTATION, (epoch << 32) + index.long(), _WORDS)


def draw_box(bits: Int[Tensor, "word"], width: int, height: int) -> PixelBox:
    """Draw a rectangle with 8 to 100% of an image's area and an aspect ratio of 3/4 to 4/3.

    The area is uniform, and so is the logarithm of the ratio. A rectangle that does not fit is drawn again, up to ten
    times; then it is the largest central one with such a ratio.

    Args:
        bits: Random words of the image, of `draw_words`.
        width: Width of the image.
        height: Height of the image.
    """
    lowest, highest = map(math.log, _RATIO)
    for attempt in bits[: 4 * _ATTEMPTS].view(_ATTEMPTS, 4):
        portion, slant = ((attempt[:2].double() + 0.5) / 2.0**32).tolist()
        area = width * height * (_AREA[0] + portion * (_AREA[1] - _AREA[0]))
        ratio = math.exp(lowest + slant * (highest - lowest))
        wide, high = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < wide <= width and 0 < high <= height:
            left, top = (
                int(integers(attempt[2 + i], room)) for i, room in enumerate((width - wide + 1, height - high + 1))
            )
            return PixelBox(left, top, wide, high)
    wide = min(width, round(height * _RATIO[1]))
    high = min(height, round(width / _RATIO[0]))
    return PixelBox((width - wide) // 2, (height - high) // 2, wide, high)


def random_crop(image: Image, bits: Int[Tensor, "word"], size: int) -> Image:
    """Crop an image at random, resize the crop to a square, and mirror every second one.

    Args:
        image: The image.
        bits: Random words of the image, of `draw_words`.
        size: Side of the square.
    """
    box = draw_box(bits, *image.size)
    part = image.crop((box.left, box.top, box.left + box.width, box.top + box.height))
    part = part.resize((size, size), Resampling.BILINEAR)
    return part.transpose(Transpose.FLIP_LEFT_RIGHT) if integers(bits[-1], 2) else part


def central_crop(image: Image, size: int) -> Image:
    """Resize an image so that its shorter side has 256/224 of a size, and cut a square of that size from its centre.

    Args:
        image: The image.
        size: Side of the square.
    """
    shorter, least = round(size * 256 / 224), min(image.size)
    width, height = (shorter * side // least for side in image.size)
    left, top = round((width - size) / 2), round((height - size) / 2)
    return image.resize((width, height), Resampling.BILINEAR).crop((left, top, left + size, top + size))
