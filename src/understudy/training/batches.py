"""Batches: the samples of a step are a counter-based function of (seed, step), the same in every engine."""

import torch
from jaxtyping import Int
from torch import Tensor

from understudy._random import Stream, integers, words


def batch_indices(
    seeds: Int[Tensor, "net"], first: int, count: int, batch: int, samples: int
) -> Int[Tensor, "net step batch"]:
    """Draw rows with replacement for steps first, …, first + count − 1, counted from 0 over the whole training."""
    steps = torch.arange(first, first + count, device=seeds.device)
    bits = words(seeds.unsqueeze(1), Stream.BATCH, steps, batch, device=str(seeds.device))
    return integers(bits, samples)
