"""Split of a labelled image set into few labelled images, some of them for model selection, and unlabelled ones."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor

from understudy._errors import UserError
from understudy._random import Stream, words
from understudy.data.source import require_counts


class LabelledSplit(NamedTuple):
    """Indices of images, each part in ascending order.

    Attributes:
        train: Labelled images to train on.
        selection: Labelled images for model selection.
        unlabelled: All others, whose labels are not used.
    """

    train: Int[Tensor, "train"]
    selection: Int[Tensor, "selection"]
    unlabelled: Int[Tensor, "unlabelled"]


def split_classes(labels: Int[Tensor, "image"], seed: int, *, per_class: int, selection: int) -> LabelledSplit:
    """Draw equally many labelled images of each class, some of them for model selection.

    With one seed, images for model selection are the same for every `per_class`, and more labelled images contain
    fewer ones.

    Args:
        labels: Class of each image.
        seed: Seed of the split.
        per_class: Labelled images of each class, those for model selection included.
        selection: Images of each class for model selection.

    Returns:
        Indices into `labels`.

    Raises:
        UserError: `selection` below 1 or not below the images of the smallest class, or `per_class` not above
            `selection` or above these images.
    """
    require_counts(selection=selection, per_class=per_class)
    counts = labels.unique(return_counts=True)[1]
    most = int(counts.min())
    if selection >= most:
        raise UserError(f"selection must be below {most}, the images of a class, got {selection}")
    if not selection < per_class <= most:
        raise UserError(
            f"per_class must be above the {selection} images per class for model selection and at most {most}, the "
            f"images of a class, got {per_class}"
        )
    drawn = words(seed, Stream.SUBSET, 0, len(labels)).argsort(stable=True)
    order = drawn[labels[drawn].argsort(stable=True)]  # by class, at random within each
    place = torch.empty_like(order)
    place[order] = torch.cat([torch.arange(int(count)) for count in counts])
    parts = (place >= selection) & (place < per_class), place < selection, place >= per_class
    return LabelledSplit(*(part.nonzero().flatten() for part in parts))
