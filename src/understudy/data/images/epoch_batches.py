"""Batches of an epoch for one network: which images, which crops and which flips, as functions of (seed, epoch)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor

from understudy._errors import UserError
from understudy._random import Stream, words
from understudy.data.images.crops import BORDER, crop_and_flip, draw_crops
from understudy.data.images.normalisation import normalise
from understudy.data.source import require_counts


class EpochBatches(NamedTuple):
    """Batches of an epoch.

    Attributes:
        index: Which image each row of a batch is.
        shift: First row and column of its crop in the padded image, 0 to 2 · border.
        flip: Whether the crop is mirrored left to right.
    """

    index: Int[Tensor, "step row"]  # type: ignore[assignment]  # the name hides tuple.index
    shift: Int[Tensor, "step row 2"]
    flip: Bool[Tensor, "step row"]


def draw_epoch(
    seed: int,
    epoch: int,
    images: Int[Tensor, "image"],
    batch: int,
    border: int = BORDER,
    extra: Int[Tensor, "extra"] | None = None,
    steps: int | None = None,
) -> EpochBatches:
    """Draw the batches of one epoch: every image at most once, an incomplete last batch dropped.

    The result depends on nothing but the arguments, and the first `batch` rows of a batch not on `extra`.

    Args:
        seed: Seed of the network.
        epoch: Epoch, counted from 1.
        images: Indices of the images of which each epoch is a new permutation.
        batch: Images per batch.
        border: Black pixels that crops add on each side of an image.
        extra: Indices of further images (semi-supervised), of which each batch has `batch` after the others. They are
            taken one after another from permutations that continue over all epochs, so that the numbers of times that
            two images came never differ by more than one.
        steps: Batches, the same number in every epoch. Default: as many as `images` fill.

    Returns:
        Indices, crops and flips of `batch` rows per step, or of twice as many with `extra`.

    Raises:
        UserError: Fewer images than a batch has or `steps` need, no extra images, or a count out of range.
    """
    require_counts(epoch=epoch, batch=batch)
    if len(images) < batch:
        raise UserError(f"batch must be at most the number of images ({len(images):,}), got {batch:,}")
    most = len(images) // batch
    steps = most if steps is None else steps
    require_counts(steps=steps)
    if steps > most:
        raise UserError(
            f"steps must be at most {most:,}, the full batches of {batch:,} that {len(images):,} images fill, got "
            f"{steps:,}"
        )
    if border < 0:
        raise UserError(f"border must be at least 0 pixels, got {border}")
    count = steps * batch
    order = words(seed, Stream.BATCH, epoch, len(images)).argsort(stable=True)[:count].to(images.device)
    rows = [images[order]]
    if extra is not None:
        rows.append(_draw_extra(seed, (epoch - 1) * count, count, extra))
    shift, flip = draw_crops(seed, epoch, len(rows) * count, border)
    return EpochBatches(*(_as_batches(each, steps, batch) for each in (torch.cat(rows), shift, flip)))


def _draw_extra(seed: int, start: int, count: int, extra: Int[Tensor, "extra"]) -> Int[Tensor, "count"]:
    """Entries `start` to `start + count` of the permutations of the extra images, one after another."""
    size = len(extra)
    if not size:
        raise UserError("extra must have at least 1 image, got 0; without unlabelled images, omit it")
    first, last = start // size, (start + count - 1) // size
    orders = [words(seed, Stream.UNLABELLED, cycle, size).argsort(stable=True) for cycle in range(first, last + 1)]
    begin = start - first * size
    return extra[torch.cat(orders)[begin : begin + count].to(extra.device)]


def _as_batches(rows: Tensor, steps: int, batch: int) -> Tensor:
    """Cut rows into batches; rows after the first steps · batch are appended to the batches in their order."""
    parts = rows.split(steps * batch)
    return torch.cat([part.view(steps, batch, *rows.shape[1:]) for part in parts], dim=1)


def crop_batch(
    pixels: UInt8[Tensor, "image channel height width"],
    index: Int[Tensor, "row"],
    shift: Int[Tensor, "row 2"],
    flip: Bool[Tensor, "row"],
    mean: Sequence[float],
    std: Sequence[float],
    border: int = BORDER,
) -> Float[Tensor, "row channel height width"]:
    """Crop, flip and normalise one batch of images, with black padding before the normalisation.

    Args:
        pixels: All images of a data set, 0 to 255, on any device.
        index: Which image each row is.
        shift: First row and column of each crop in the padded image, 0 to 2 · border; `border` keeps the image.
        flip: Whether the row is mirrored left to right.
        mean: Mean of each channel, for values in [0, 1].
        std: Standard deviation of each channel.
        border: Black pixels added on each side.

    Returns:
        The batch in float32 on the device of `pixels`: the float64 result rounded, so the same bits on every device.
    """
    index, shift, flip = (each.to(pixels.device) for each in (index, shift, flip))
    return normalise(crop_and_flip(pixels[index], shift, flip, border), mean, std)
