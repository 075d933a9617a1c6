"""How long each exit of a network takes on this machine (Phuong 2021, tables E.1 and E.2)."""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import NamedTuple

import torch
from torch import Tensor

from understudy._devices import resolve_device
from understudy._errors import UserError, kind_of
from understudy._memory import MOST
from understudy.nets.multi_exit.exits import MultiExit
from understudy.nets.multi_exit.files import SavedExits, load_exits
from understudy.nets.multi_exit.msdnet import MSDNet

ExitModule = MSDNet | MultiExit
Model = ExitModule | SavedExits | str | os.PathLike[str]

_WARM_UP = 3
"""Runs before those that are measured."""


class Timing(NamedTuple):
    """Time until an exit's output in ms: mean, standard deviation and median of repeated runs."""

    mean: float
    std: float
    median: float


@dataclass(frozen=True)
class ExitTimes:
    """Time until each exit's output.

    Attributes:
        budget: Of each exit where only this exit is wanted, and only what it depends on is computed.
        anytime: Of each exit where all exits before it are computed too.
        device: Device on which they were measured.
        repeats: Number of measured runs.
        images: Number of images in a run.
    """

    budget: tuple[Timing, ...]
    anytime: tuple[Timing, ...]
    device: str
    repeats: int
    images: int


def time_exits(model: Model, *, repeats: int = 20, images: int = 1, device: torch.device | str = "auto") -> ExitTimes:
    """Measure how long each exit takes, in evaluation mode without gradients.

    Args:
        model: A file that `save_exits` wrote, an `MSDNet`, or what `us.exits` or `load_exits` returned. The network is
            moved to the device.
        repeats: Number of measured runs.
        images: Number of images in a run.
        device: auto (a CUDA GPU if there is one), cpu or cuda.

    Returns:
        Mean, standard deviation and median of the time of each exit, alone (budget mode) and with all before it
        (anytime mode).

    Raises:
        UserError: A number out of range, a file that cannot be read, or a device that is not here.
    """
    require_counts(repeats=repeats, images=images)
    where = resolve_device(device)
    network = as_saved(model).network.to(where)
    like = next(network.parameters())
    x = torch.randn(images, *network.image_shape, generator=torch.Generator().manual_seed(0)).to(where, like.dtype)
    budget, anytime = time_alone(network, x, repeats), time_in_turn(network, x, repeats)
    return ExitTimes(budget, anytime, where.type, repeats, images)


def time_alone(network: ExitModule, x: Tensor, repeats: int) -> tuple[Timing, ...]:
    """Time of each exit alone; the exits take turns, so that all are measured under the same load.

    Args:
        network: The network, on the device of the images.
        x: The images.
        repeats: Number of measured runs.
    """

    def run() -> list[float]:
        times = []
        for exit in range(len(network.exit_names)):
            wait(x.device)
            start = perf_counter()
            for _ in network.iterate(x, only=exit):
                wait(x.device)
            times.append(1e3 * (perf_counter() - start))
        return times

    return _summarise(network, run, repeats)


def time_in_turn(network: ExitModule, x: Tensor, repeats: int) -> tuple[Timing, ...]:
    """Time until each exit, where one is computed after the other.

    Args:
        network: The network, on the device of the images.
        x: The images.
        repeats: Number of measured runs.
    """

    def run() -> list[float]:
        times = []
        wait(x.device)
        start = perf_counter()
        for _ in network.iterate(x):
            wait(x.device)
            times.append(1e3 * (perf_counter() - start))
        return times

    return _summarise(network, run, repeats)


def as_saved(model: Model) -> SavedExits:
    """Return a network with what is known about it; read it if its file is given.

    Args:
        model: A file that `save_exits` wrote, an `MSDNet`, or what `us.exits` or `load_exits` returned.

    Raises:
        UserError: Something else, or a file that cannot be read.
    """
    if isinstance(model, SavedExits):
        return model
    if isinstance(model, str | os.PathLike):
        return load_exits(model)
    if isinstance(model, MSDNet | MultiExit):
        return SavedExits(model)
    raise UserError(
        f"must be a file, an MSDNet, or what us.exits or load_exits returned, got {kind_of(model)}; put exits on a "
        "module with us.exits",
        "model",
    )


def require_counts(**counts: int) -> None:
    """Raise a `UserError` unless all are whole numbers from 1 to 10⁹."""
    for name, count in counts.items():
        if type(count) is not int or count < 1:
            raise UserError(f"must be a whole number of at least 1, got {count!r}", name)
        if count > MOST:
            raise UserError(f"must be at most {MOST:,}, got {count}", name)


def wait(device: torch.device) -> None:
    """Wait until a GPU has finished all submitted work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _summarise(network: ExitModule, run: Callable[[], list[float]], repeats: int) -> tuple[Timing, ...]:
    before = {part: part.training for part in network.modules()}
    network.eval()
    try:
        with torch.inference_mode():
            for _ in range(_WARM_UP):
                run()
            measured = [run() for _ in range(repeats)]
    finally:
        for part, training in before.items():
            part.training = training
    return tuple(
        Timing(statistics.fmean(each), statistics.stdev(each) if repeats > 1 else 0.0, statistics.median(each))
        for each in zip(*measured, strict=True)
    )
