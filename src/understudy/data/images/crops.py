"""Random crops of padded images, and flips: drawn by the seed, the same bits on every device."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Int, UInt8
from torch import Tensor
from torch.nn.functional import pad

from understudy._random import Stream, integers, words
from understudy.data.images.base import ImageSource
from understudy.data.source import Device, Rows

BORDER = 4
"""Black pixels added on each side before a crop."""


class CroppedImages(ImageSource):
    """Image source that can crop and flip each training image anew in every epoch."""

    augment: bool

    @property
    def fresh(self) -> bool:
        """Whether every epoch has new training samples."""
        return self.augment

    def training(
        self, seed: int, epoch: int = 1, *, dtype: torch.dtype = torch.float32, device: Device = "cpu"
    ) -> Rows:
        """Training images of the network with this seed, augmented for this epoch if requested.

        Args:
            seed: Seed of the network.
            epoch: Epoch, counted from 1; it matters only with `augment`.
            dtype: Precision of the result.
            device: Device of the result.
        """
        if not self.augment:
            return super().training(seed, epoch, dtype=dtype, device=device)
        chosen = self._order(seed, Stream.TRAIN)
        shift, flip = (
            each[chosen.to(device)] for each in draw_crops(seed, epoch, self._available[0], device=str(device))
        )
        return self._normalise(
            chosen, dtype, device, lambda images, piece: crop_and_flip(images, shift[piece], flip[piece])
        )


def draw_crops(
    seed: int, epoch: int, count: int, border: int = BORDER, device: str = "cpu"
) -> tuple[Int[Tensor, "image 2"], Bool[Tensor, "image"]]:
    """Draw crops and flips, of which the first do not depend on how many are drawn.

    Args:
        seed: Seed of the network.
        epoch: Epoch, counted from 1.
        count: How many.
        border: Pixels added on each side of an image.
        device: Device of the result.

    Returns:
        First row and column of each crop in the padded image, 0 to 2 · border, and whether it is mirrored.
    """
    bits = words(seed, Stream.AUGMENTATION, epoch, 4 * count, device).view(count, 4)
    return integers(bits[:, :2], 2 * border + 1), integers(bits[:, 2], 2).bool()


def crop_and_flip(
    images: UInt8[Tensor, "image channel height width"],
    shift: Int[Tensor, "image 2"],
    flip: Bool[Tensor, "image"],
    border: int = BORDER,
) -> UInt8[Tensor, "image channel height width"]:
    """Pad images by black pixels, crop them to their size, and mirror some.

    Args:
        images: The images.
        shift: First row and column of each crop in the padded image, 0 to 2 · border.
        flip: Whether the crop is mirrored left to right.
        border: Black pixels added on each side.

    Returns:
        Images of the same size.
    """
    down, right = shift.unbind(1)
    height, width = images.shape[2:]
    windows = pad(images, (border,) * 4).unfold(2, height, 1).unfold(3, width, 1)
    cropped = windows[torch.arange(len(images), device=images.device), :, down, right]
    return torch.where(flip.view(-1, 1, 1, 1), cropped.flip(3), cropped)
