"""Which exit decides an image: the first from which on the prediction no longer changes."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor


class Decisions(NamedTuple):
    """Decisions of a network that evaluates one exit after the other.

    Attributes:
        exit: Exit that decides each image, counted from 0.
        label: Class that it decides for.
    """

    exit: Int[Tensor, "image"]
    label: Int[Tensor, "image"]


def deciding_exits(logits: Float[Tensor, "exit image class"]) -> Decisions:
    """Find the first exit from which on the class of the ensemble of all exits so far stays the same.

    The ensemble averages probabilities (Phuong 2021, sec. 6.2.2). Stopped at this exit or at any later one, anytime
    prediction gives the same class.

    Args:
        logits: Logits of every exit.

    Returns:
        The deciding exit of each image, and the class.
    """
    classes = logits.softmax(-1).cumsum(0).argmax(-1)
    changes = classes != classes[-1]
    places = torch.arange(1, len(classes) + 1, device=logits.device)[:, None]
    return Decisions((changes * places).amax(0), classes[-1])
