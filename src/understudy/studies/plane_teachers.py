"""Teachers of two nodes in the plane, whose boundaries cross at a given angle."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from understudy.nets import Layer, Population
from understudy.teachers import regular, separated


def crossing(seeds: Sequence[int], *, outputs: int, angle: float, bias: float, dtype: torch.dtype) -> Population:
    """Node 0 in a random direction, node 1 turned from it by `angle` degrees; fan-outs as in `teachers.separated`.

    The papers give no teacher for their two-dimensional figures. Both boundaries w·x + b = 0 lie |b| from the origin,
    on the sides that the weights point to when b < 0.
    """
    first = regular((2, 2, outputs), seeds=seeds, bias=bias, dtype=torch.float64).layers[0]
    top = separated((2, 2, outputs), seeds=seeds, dtype=torch.float64).layers[1]
    turn = math.radians(angle)
    rotation = torch.tensor([[math.cos(turn), math.sin(turn)], [-math.sin(turn), math.cos(turn)]], dtype=torch.float64)
    weight = torch.stack((first.weight[:, 0], first.weight[:, 0] @ rotation), dim=1)
    network = Population((Layer(weight, first.bias), top), torch.tensor(list(seeds)), 0.0)
    return network.to(dtype=dtype)
