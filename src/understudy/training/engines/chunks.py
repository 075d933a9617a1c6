"""Steps a few at a time: their samples are gathered at once, and on a card they are recorded once and replayed."""

from __future__ import annotations

from functools import cache
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from understudy.training.batches import batch_indices
from understudy.training.packing import State
from understudy.training.problem import Problem

CHUNK = 10
"""Steps whose samples are gathered at once: enough to hide the call, few enough to stay in cache."""


@runtime_checkable
class Work(Protocol):
    """What takes some steps of all networks, in buffers of its own."""

    def take(self, problem: Problem, state: State, first: int | Tensor, indices: Int[Tensor, "net step batch"]) -> None:
        """Steps first, first + 1, …, each network with its own samples."""

    def reported(self, problem: Problem, steps: int) -> Float[Tensor, "step net"]:
        """The losses of the steps just taken."""


def drawn(problem: Problem, first: int, count: int) -> Int[Tensor, "net step batch"]:
    """The samples of every step: those of its batch, or all."""
    batch, samples = problem.optimiser.batch, problem.inputs.shape[1]
    if batch is None:
        return torch.arange(samples, device=problem.seeds.device).expand(len(problem), count, samples)
    return batch_indices(problem.seeds, first, count, batch, samples)


def in_chunks(
    work: Work, problem: Problem, state: State, first: int, indices: Int[Tensor, "net step batch"], chunk: int
) -> Float[Tensor, "net step"]:
    """All steps; returns their losses."""
    nets, count, _ = indices.shape
    losses = problem.inputs.new_empty(nets, count)
    graph = None
    for start in range(0, count, chunk):
        stop = min(start + chunk, count)
        if problem.inputs.is_cuda and start == chunk and stop < count:
            graph = _Graph(work, problem, state, first + start, indices[:, start:stop])
        if graph is not None and stop - start == chunk:
            graph.replay(indices[:, start:stop])
        else:
            work.take(problem, state, first + start, indices[:, start:stop])
        losses[:, start:stop] = work.reported(problem, stop - start).T
    return losses


class _Graph:
    """The kernels of some steps on a card, recorded once: launching them one by one would take longer than they do."""

    def __init__(
        self, work: Work, problem: Problem, state: State, first: int, indices: Int[Tensor, "net step batch"]
    ) -> None:
        self.indices, steps = torch.empty_like(indices), indices.shape[1]
        self.first = torch.full((), first, dtype=torch.float64, device=indices.device)
        here = torch.cuda.current_stream()
        self.graph, beside = torch.cuda.CUDAGraph(), _recorder(indices.device, here.cuda_stream)
        # What graphs that are gone have held is given back only when asked for, and not while one is recorded.
        free, total = torch.cuda.mem_get_info(indices.device)
        if free < total // 4:
            torch.cuda.empty_cache()
        beside.wait_stream(here)
        with torch.cuda.stream(beside):
            # Other threads may use the card meanwhile.
            self.graph.capture_begin(capture_error_mode="thread_local")
            work.take(problem, state, self.first, self.indices)
            self.first.add_(steps)
            self.graph.capture_end()
        here.wait_stream(beside)

    def replay(self, indices: Int[Tensor, "net step batch"]) -> None:
        self.indices.copy_(indices)
        self.graph.replay()


@cache
def _recorder(device: torch.device, lane: int) -> torch.cuda.Stream:
    """Where the steps of a lane are recorded, and nothing else goes. Streams come from a few that torch hands out in
    turn: one of another priority is never one that somebody works on, whose doings would be recorded too. One for each
    lane: what is recorded on one stream shares room for its products, and lanes go side by side."""
    return torch.cuda.Stream(device, priority=-1)


def gathered(
    source: Float[Tensor, "item sample number"],
    which: Int[Tensor, "net"],
    rows: Int[Tensor, "step net row"],
    into: Float[Tensor, "step net row number"],
) -> None:
    """The rows that each network draws from its item of the source."""
    where = rows + (which * source.shape[1]).view(-1, 1)
    torch.index_select(source.flatten(0, 1), 0, where.flatten(), out=into.flatten(0, 2))
