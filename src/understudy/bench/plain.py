"""Plain PyTorch loop: one network at a time with autograd and torch.optim, one process per core."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import cache, partial

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

import understudy as us
from understudy._cores import cores
from understudy.bench.clock import lasting
from understudy.bench.setting import Sizes

_STEPS = 50
"""Steps between two readings of the clock."""


class PlainLoop:
    """Trains one student with autograd and torch.optim."""

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
        """Take one step per batch, and return the mean squared error of each step."""
        losses = []
        for rows in batches:
            error = self.model(self.inputs[rows]) - self.targets[rows]
            loss = error.square().sum(1).mean() / 2
            self.optimiser.zero_grad()
            loss.backward()
            self.optimiser.step()
            losses.append(loss.detach() * (2 / error.shape[1]))
        return torch.stack(losses)


@contextmanager
def plain_loops(sizes: Sizes, device: str) -> Iterator[Callable[[int, float], float]]:
    """Give `rate(n, least)`: network-steps per second of the whole machine, over `least` seconds or more.

    On a CPU every core trains a network in its own single-threaded process; on a GPU one network trains at a time.
    """
    if device == "cuda":
        yield partial(_rate, sizes, device)
        return
    count = cores()
    with ProcessPoolExecutor(count, multiprocessing.get_context("spawn"), _start_worker) as workers:
        yield lambda n, least: sum(workers.map(partial(_rate, sizes, device, n), [least] * count))


def _start_worker() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)


def _rate(sizes: Sizes, device: str, n: int, least: float) -> float:
    loop = _loop(sizes, device, n)

    def train() -> None:
        samples = len(loop.inputs)
        loop.train(torch.randint(samples, (sizes.batch,), device=device) for _ in range(_STEPS))

    return _STEPS / lasting(train, device, least)


@cache
def _loop(sizes: Sizes, device: str, n: int) -> PlainLoop:
    teacher = us.teachers.distinct_rows((sizes.dim, sizes.teacher_nodes, sizes.outputs), seeds=1, polarity=1.0)
    x = us.data.Gaussian(sizes.dim, train=sizes.train).training(1)
    student = us.students.gaussian(teacher, multiple=sizes.widths[n])
    return PlainLoop(student, x, teacher(x)[0], sizes.lr, device)
