"""Small networks and problems to train them on; each is a pure function of its arguments."""

import itertools
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from understudy._random import Stream, normal
from understudy.nets import Layer, Population
from understudy.training import GD, SGD, Adam, CrossEntropy, Objective, Optimiser, SquaredError
from understudy.training.optimisers import rates
from understudy.training.packing import Packing, State
from understudy.training.problem import Problem

SLOPES = {"relu": 0.0, "leaky-0.1": 0.1, "leaky-0.5": 0.5, "abs": -1.0}
OBJECTIVES = {"squared": SquaredError(), "hard": CrossEntropy(), "soft": CrossEntropy(soft=True)}


def optimisers(batch: int | None, lr: float | Sequence[float], schedule: tuple = ()) -> dict[str, Optimiser]:
    """One optimiser of every kind, by name."""
    given = {"lr": lr, "batch": batch, "schedule": schedule}
    return {
        "sgd": SGD(**given),
        "momentum": SGD(**given, momentum=0.9),
        "nesterov": SGD(**given, momentum=0.8, nesterov=True, decay=0.05),
        "adam": Adam(**given, decay=0.5),
        "gd": GD(lr, schedule),
    }


def gaussians(seed: int, *shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """Draw Gaussian numbers as a function of seed and shape."""
    return normal(seed, Stream.EVALUATION, 0, math.prod(shape)).view(shape).to(dtype)


def population(
    sizes: Sequence[int],
    nets: int,
    *,
    slope: float = 0.0,
    bias: bool = True,
    dtype: torch.dtype = torch.float64,
    first_seed: int = 10,
) -> Population:
    """Draw networks with weights N(0, 1/fan-in), biases N(0, 1/4) and seeds first_seed, first_seed + 1, …"""
    layers = tuple(
        Layer(
            gaussians(2 * i, nets, out, into, dtype=dtype) / math.sqrt(into),
            gaussians(2 * i + 1, nets, out, dtype=dtype) / 2 if bias else None,
        )
        for i, (into, out) in enumerate(itertools.pairwise(sizes), first_seed)
    )
    return Population(layers, torch.arange(first_seed, first_seed + nets), slope)


def problem(students: Population, optimiser: Optimiser, objective: Objective, samples: int = 20) -> Problem:
    """Pose a problem with two sets of inputs and one teacher per network, assigned in reverse order."""
    nets, sizes, dtype = len(students), students.sizes, students.dtype
    teachers = gaussians(1001, nets, samples, sizes[-1], dtype=dtype)
    return Problem(
        Packing(students.shape),
        objective,
        optimiser,
        gaussians(1000, 2, samples, students.inputs, dtype=dtype),
        objective.target(teachers),
        torch.arange(nets) % 2,
        torch.arange(nets).flip(0),
        students.seeds,
        rates(optimiser, nets, epoch=1),
    )


def start(posed: Problem, students: Population) -> State:
    """Initial state: the students' parameters and running statistics, and zero slots."""
    return posed.packing.state(students, posed.optimiser.slots)
