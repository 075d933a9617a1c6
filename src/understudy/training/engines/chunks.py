"""Steps in chunks: samples are gathered for a chunk at once, and a GPU replays the chunk as a CUDA graph."""

from __future__ import annotations

from functools import cache
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from understudy.training.packing import State
from understudy.training.problem import Problem

CHUNK = 10
"""Steps in a chunk: enough to amortise the gathering, few enough to stay in cache."""


@runtime_checkable
class Work(Protocol):
    """Workspace that runs several steps of all networks in its own buffers."""

    def run(self, problem: Problem, state: State, first: int | Tensor, indices: Int[Tensor, "net step batch"]) -> None:
        """Run steps first, first + 1, …, each network with its own samples."""

    def reported_loss(self, problem: Problem, steps: int) -> Float[Tensor, "step net"]:
        """Return the losses of the steps just run."""


def run_in_chunks(
    work: Work, problem: Problem, state: State, first: int, indices: Int[Tensor, "net step batch"], chunk: int
) -> Float[Tensor, "net step"]:
    """Run all steps; return their losses."""
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
            work.run(problem, state, first + start, indices[:, start:stop])
        losses[:, start:stop] = work.reported_loss(problem, stop - start).T
    return losses


class _Graph:
    """CUDA graph of one chunk: launching its kernels one by one would take longer than they run."""

    def __init__(
        self, work: Work, problem: Problem, state: State, first: int, indices: Int[Tensor, "net step batch"]
    ) -> None:
        self.indices, steps = torch.empty_like(indices), indices.shape[1]
        self.first = torch.full((), first, dtype=torch.float64, device=indices.device)
        current = torch.cuda.current_stream()
        self.graph, capture = torch.cuda.CUDAGraph(), _capture_stream(indices.device, current.cuda_stream)
        # Memory of deleted graphs is returned only on request, and not during a capture.
        free, total = torch.cuda.mem_get_info(indices.device)
        if free < total // 4:
            torch.cuda.empty_cache()
        capture.wait_stream(current)
        with torch.cuda.stream(capture):
            # Other threads may use the GPU meanwhile.
            self.graph.capture_begin(capture_error_mode="thread_local")
            work.run(problem, state, self.first, self.indices)
            self.first.add_(steps)
            self.graph.capture_end()
        current.wait_stream(capture)

    def replay(self, indices: Int[Tensor, "net step batch"]) -> None:
        self.indices.copy_(indices)
        self.graph.replay()


@cache
def _capture_stream(device: torch.device, stream: int) -> torch.cuda.Stream:
    """Stream on which the steps of another stream are captured, and nothing else runs.

    torch reuses streams from a small pool. Capture on a high-priority stream, which no other code uses, so that no
    foreign kernels are recorded. Each stream has its own: graphs captured on one stream share a workspace for matrix
    products, and streams run in parallel.
    """
    return torch.cuda.Stream(device, priority=-1)


def gather_rows(
    source: Float[Tensor, "item sample number"],
    which: Int[Tensor, "net"],
    rows: Int[Tensor, "step net row"],
    into: Float[Tensor, "step net row number"],
) -> None:
    """Copy the rows that each network draws from its item of the source."""
    where = rows + (which * source.shape[1]).view(-1, 1)
    torch.index_select(source.flatten(0, 1), 0, where.flatten(), out=into.flatten(0, 2))
