"""Which channels of early exits' features match which of the last exit's."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from understudy.measures.correlation import correlation
from understudy.nets.multi_exit.msdnet import MSDNet


@torch.no_grad()
def channel_correlations(
    network: MSDNet, x: Float[Tensor, "image colour row column"]
) -> Float[Tensor, "early last channel"]:
    """Correlate the channels of each early exit with those of the last exit, over images.

    A channel's value on an image is its mean over rows and columns, which is what the classifier of its exit reads. As
    in `understudy.measures`, the last exit is the teacher and an early exit the student.

    Args:
        network: The network, in evaluation mode.
        x: Normalised images on the device of the network.

    Returns:
        Correlation of every channel of the last exit with every channel of each earlier exit.
    """
    features = torch.stack([each.mean((2, 3)) for each in network.exit_features(x)])
    return correlation(features[-1:].expand_as(features[:-1]), features[:-1])
