"""Initial weights of modules as a function of the seed."""

from __future__ import annotations

import math
from typing import TypeVar, cast

import torch
from torch import Tensor, nn

from understudy._errors import UserError
from understudy._random import Stream, normal, uniform
from understudy.nets.latent.layers import Table
from understudy.nets.latent.recurrent import LSTM

Module = TypeVar("Module", bound=nn.Module)

_EMBEDDING_STD = 0.1
_KINDS = (nn.Linear, nn.Embedding, LSTM, Table)


@torch.no_grad()
def initialise(module: Module, seed: int) -> Module:
    """Draw the initial weights of a module in place.

    Weights and biases of linear layers are drawn from U(−1/√inputs, 1/√inputs), embeddings from N(0, 0.1²), and weights
    and biases of LSTM layers from U(−1/√hidden, 1/√hidden), except that the biases of forget gates are 1, so that cells
    keep what they have at first (Gers, Schmidhuber and Cummins 2000). Tables are 0.

    Args:
        module: A module of `nn.Linear`, `nn.Embedding`, `LSTM` and `Table`. Parts that are initialised separately with
            the same seed get the same numbers, so give a model as a whole.
        seed: Seed; the weights depend on nothing else besides the architecture.

    Returns:
        The module.

    Raises:
        UserError: A seed out of range, or other modules with parameters; the module is then left as it was.
    """
    if not 0 <= seed < 2**63:
        raise UserError(f"must be between 0 and 2^63 − 1, got {seed}", "seed")
    parts = {name: part for name, part in module.named_modules() if [*part.parameters(recurse=False)]}
    for name, part in parts.items():
        if not isinstance(part, _KINDS):
            raise UserError(
                f"has parameters in {name or 'itself'} ({type(part).__module__}.{type(part).__name__}), for which no "
                "initial weights are defined; give modules of nn.Linear, nn.Embedding, and understudy's LSTM and Table",
                "module",
            )
    step = 0
    for part in parts.values():
        for parameter in part.parameters(recurse=False):
            parameter.copy_(_draw(part, parameter, seed, step))
            step += 1
        if isinstance(part, LSTM):
            part.bias[part.hidden : 2 * part.hidden] = 1.0
    return module


def _draw(part: nn.Module, like: Tensor, seed: int, step: int) -> Tensor:
    """Initial values of a parameter of a layer, in float64."""
    if isinstance(part, Table):
        return torch.zeros_like(like)
    if isinstance(part, nn.Embedding):
        return normal(seed, Stream.STUDENT, step, like.numel()).view(like.shape) * _EMBEDDING_STD
    count = part.hidden if isinstance(part, LSTM) else cast(nn.Linear, part).in_features
    return (2 * uniform(seed, Stream.STUDENT, step, like.numel()).view(like.shape) - 1) / math.sqrt(count)
