"""The loop as anybody writes it in PyTorch: one network at a time, autograd, torch.optim; a process for every core."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from time import perf_counter
from typing import Protocol

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

import understudy as us
from understudy.bench.clock import wait
from understudy.bench.setting import Sizes
from understudy.training.parallel import cores

_STEPS = 50
"""Steps between two looks at the clock."""


class PlainLoop:
    """One student, its data and its optimiser."""

    def __init__(
        self,
        student: us.Population,
        inputs: Float[Tensor, "sample in"],
        targets: Float[Tensor, "sample out"],
        lr: float,
        device: str = "cpu",
    ) -> None:
        d, n, c = student.sizes
        self.model = nn.Sequential(nn.Linear(d, n), nn.ReLU(), nn.Linear(n, c)).to(device, student.dtype)
        names = ("0.weight", "0.bias", "2.weight", "2.bias")
        given = (tensor[0] for layer in student.layers for tensor in layer if tensor is not None)
        self.model.load_state_dict(dict(zip(names, given, strict=True)))
        self.inputs, self.targets = inputs.to(device), targets.to(device)
        self.optimiser = torch.optim.SGD(self.model.parameters(), lr=lr)

    def train(self, batches: Iterable[Int[Tensor, "batch"]]) -> Float[Tensor, "step"]:
        """A step a batch; returns the mean squared error of each, as the tables show it."""
        losses = []
        for rows in batches:
            error = self.model(self.inputs[rows]) - self.targets[rows]
            loss = error.square().sum(1).mean() / 2
            self.optimiser.zero_grad()
            loss.backward()
            self.optimiser.step()
            losses.append(loss.detach() * (2 / error.shape[1]))
        return torch.stack(losses)


class _Loops:
    """The plain loop at every width, one network each."""

    def __init__(self, sizes: Sizes, seed: int, device: str) -> None:
        self.device, self.batch = device, sizes.batch
        teacher = us.teachers.separated((sizes.dim, sizes.teacher_nodes, sizes.outputs), seeds=seed, polarity=1.0)
        x = us.data.Gaussian(sizes.dim, train=sizes.train).training(seed)
        y = teacher(x)[0]
        self.loops = {
            n: PlainLoop(us.students.gaussian(teacher, multiple=k), x, y, sizes.lr, device)
            for n, k in sizes.widths.items()
        }

    def rate(self, n: int, least: float) -> float:
        """Network-steps a second."""
        loop = self.loops[n]
        wait(self.device)
        start, steps = perf_counter(), 0
        while True:
            samples = len(loop.inputs)
            loop.train(torch.randint(samples, (self.batch,), device=self.device) for _ in range(_STEPS))
            wait(self.device)
            steps += _STEPS
            if (passed := perf_counter() - start) >= least:
                return steps / passed


class Rate(Protocol):
    """rate(n, least): network-steps a second of the whole machine, over `least` seconds or more."""

    def __call__(self, n: int, least: float) -> float: ...


@contextmanager
def plain_loops(sizes: Sizes, device: str) -> Iterator[Rate]:
    """All cores busy with networks side by side, each a process of one thread; on a card one network at a time."""
    if device == "cuda":
        yield _Loops(sizes, 1, device).rate
        return
    context = multiprocessing.get_context("spawn")
    pipes = [context.Pipe() for _ in range(cores())]
    workers = [
        context.Process(target=_work, args=(theirs, sizes, seed), daemon=True)
        for seed, (_, theirs) in enumerate(pipes, start=1)
    ]

    def rate(n: int, least: float) -> float:
        for ours, _ in pipes:
            ours.send((n, least))
        return sum(ours.recv() for ours, _ in pipes)

    try:
        for worker, (_, theirs) in zip(workers, pipes, strict=True):
            worker.start()
            theirs.close()  # here: then a worker that dies ends the wait for its answer
        yield rate
    finally:
        for worker, (ours, _) in zip(workers, pipes, strict=True):
            ours.close()
            if worker.pid is not None:
                worker.join()


def _work(pipe: Connection, sizes: Sizes, seed: int) -> None:
    """A worker's life: until the other end is closed, train as long as it is told."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    loops = _Loops(sizes, seed, "cpu")
    while True:
        try:
            n, least = pipe.recv()
            pipe.send(loops.rate(n, least))
        except (EOFError, BrokenPipeError):
            return
