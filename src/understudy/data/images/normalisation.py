"""Normalisation of images by the moments of their channels, the same bits on every device."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float, UInt8
from torch import Tensor


def normalise(
    images: UInt8[Tensor, "image channel height width"], mean: Sequence[float], std: Sequence[float]
) -> Float[Tensor, "image channel height width"]:
    """Normalise images in float64 and round to float32.

    Args:
        images: Images, 0 to 255, on any device.
        mean: Mean of each channel, for values in [0, 1].
        std: Standard deviation of each channel.

    Returns:
        (images / 255 − mean) / std in float32, on the device of the images.
    """
    centre, spread = (torch.tensor(tuple(each), dtype=torch.float64).view(-1, 1, 1) for each in (mean, std))
    # In two steps, since a GPU would round a fused operation once where a CPU rounds twice.
    scale, offset = (each.to(images.device) for each in (1.0 / (255.0 * spread), centre / spread))
    return images.double().mul_(scale).sub_(offset).float()
