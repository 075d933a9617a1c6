"""Problem: the tensors on which an engine trains some networks, and the samples of its steps."""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from understudy._random import Stream, integers, words
from understudy.training.objectives import Objective
from understudy.training.optimisers import Optimiser
from understudy.training.packing import Packing


@dataclass(frozen=True, eq=False)
class Problem:
    """Training data of E networks of one shape. Networks of one seed share inputs, those of one teacher targets."""

    packing: Packing
    objective: Objective
    optimiser: Optimiser
    inputs: Float[Tensor, "set sample in"]
    targets: Float[Tensor, "teacher sample out"]
    set_of: Int[Tensor, "net"]
    teacher_of: Int[Tensor, "net"]
    seeds: Int[Tensor, "net"]
    rate: Float[Tensor, "net"]

    def __len__(self) -> int:
        return len(self.seeds)

    def pick(self, which: Int[Tensor, "some"]) -> "Problem":
        """Select some of the networks."""
        per_net = {name: getattr(self, name)[which] for name in ("set_of", "teacher_of", "seeds", "rate")}
        return replace(self, **per_net)

    def draw_batches(self, first: int, count: int) -> Int[Tensor, "net step batch"]:
        """Draw the samples of every step: a batch, or all samples."""
        batch, samples = self.optimiser.batch, self.inputs.shape[1]
        if batch is None:
            return torch.arange(samples, device=self.seeds.device).expand(len(self), count, samples)
        return batch_indices(self.seeds, first, count, batch, samples)


def batch_indices(
    seeds: Int[Tensor, "net"], first: int, count: int, batch: int, samples: int
) -> Int[Tensor, "net step batch"]:
    """Draw rows with replacement for steps first, …, first + count − 1, counted from 0 over the whole training.

    They are a counter-based function of (seed, step), the same in every engine.
    """
    steps = torch.arange(first, first + count, device=seeds.device)
    bits = words(seeds.unsqueeze(1), Stream.BATCH, steps, batch, device=str(seeds.device))
    return integers(bits, samples)
