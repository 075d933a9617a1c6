"""Networks as users give them: populations, modules of PyTorch, or files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeGuard

import numpy as np
import torch
from torch import Tensor, nn

from understudy._errors import UserError
from understudy.nets import Population, from_module, load

Network = Population | nn.Module | str | os.PathLike[str]
"""A user's network: a population, a module of PyTorch, or a network file."""


def as_population(name: str, network: Network, data: object = None) -> Population:
    """Convert a user's network to a population.

    Args:
        name: Name of the argument, for errors.
        network: A population, a module, which is converted by `from_module`, or a file, which is read by `load`.
        data: Data that the network is applied to. Tensors and arrays of more than two axes, such as images, state the
            shape of inputs that a module takes.

    Returns:
        The population, as it is if it is one.

    Raises:
        UserError: Something else, a file that cannot be read, or a module that cannot be converted.
    """
    if isinstance(network, Population):
        return network
    if isinstance(network, str | os.PathLike):
        return load(network)
    if not isinstance(network, nn.Module):
        raise UserError(
            f"must be a population, a module of PyTorch or a network file, got {type(network).__name__}", name
        )
    try:
        return from_module(network, _first_samples(network, data))
    except UserError as error:
        raise UserError(f"{name}: {error}") from error


def input_shape(module: nn.Module, population: Population, data: object) -> Sequence[int]:
    """Shape of one sample as a converted module takes it."""
    if _has_axes(data):
        return tuple(data.shape[1:])
    if population.image is None:
        return (population.inputs,)
    first = next(part for part in module.modules() if isinstance(part, nn.Conv1d | nn.Conv2d))
    return (population.sizes[0], *population.image[-1 if isinstance(first, nn.Conv1d) else 0 :])


def _has_axes(data: object) -> TypeGuard[Tensor | np.ndarray]:
    """Whether samples have axes of their own."""
    return isinstance(data, Tensor | np.ndarray) and data.ndim > 2


def _first_samples(module: nn.Module, data: object) -> Tensor | None:
    if not _has_axes(data):
        return None
    some = data[:8] if isinstance(data, Tensor) else torch.from_numpy(np.asarray(data[:8], dtype=np.float64))
    like = next((part for part in module.parameters() if part.is_floating_point()), some)
    return some.detach().to(like.device, like.dtype)
