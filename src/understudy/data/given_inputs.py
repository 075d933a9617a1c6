"""Inputs to measure networks on: given as an array, a frame, a file or a source, or drawn."""

from __future__ import annotations

import os
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from understudy._errors import UserError
from understudy._memory import MOST, require_size
from understudy.data.input_files import Frame, as_inputs, read_inputs
from understudy.data.source import Source
from understudy.data.synthetic import Gaussian, Uniform
from understudy.nets import Population

Distribution = Literal["gaussian", "uniform"]
Given = Tensor | np.ndarray | Frame | Source | str | os.PathLike[str]
"""A user's inputs: a tensor, an array, a pandas frame, a source, or a file."""
_KINDS = "a tensor, an array, a pandas frame, a source of us.data or a file"
_COPIES = 4
"""About how often drawn inputs are in memory: as random bits, as numbers, as inputs and as outputs of a layer."""
_HELD_OUT = 5
"""Every fifth sample of given inputs is held out."""


class Split(NamedTuple):
    """Inputs to select and fit on, and held-out inputs to test on, in float64."""

    given: Float[Tensor, "sample in"]
    held_out: Float[Tensor, "sample in"]


@dataclass(frozen=True)
class Drawn:
    """How inputs are drawn where none are given.

    Args:
        inputs: Distribution of each input.
        input_std: Standard deviation of each input.
        samples: Number of inputs.
        seed: Seed of the inputs.

    Raises:
        UserError: A value out of range.
    """

    inputs: Distribution = "gaussian"
    input_std: float = 1.5
    samples: int = 10_000
    seed: int = 1

    def __post_init__(self) -> None:
        if self.inputs not in ("gaussian", "uniform"):
            raise UserError(f"must be gaussian or uniform, got {self.inputs}", "inputs")
        if not 0 <= self.seed < 2**63:
            raise UserError(f"must be between 0 and 2^63 − 1, got {self.seed}", "seed")
        for name, value in (("samples", self.samples), ("input_std", self.input_std)):
            if not value > 0 or not isfinite(value):
                raise UserError(f"must be above 0, got {value:g}", name)
            if value > MOST:
                raise UserError(f"must be at most {MOST:,}, got {value}", name)

    def source(self, dim: int) -> Gaussian | Uniform:
        """A source of such inputs of this many numbers."""
        require_size("samples", self.samples, _COPIES * dim * 8)
        kind = Gaussian if self.inputs == "gaussian" else Uniform
        return kind(dim, self.input_std, train=self.samples, evaluation=self.samples)

    def __str__(self) -> str:
        return f"drawn: {self.inputs}, std {self.input_std:g}, seed {self.seed}"


def measuring_inputs(data: Given | None, networks: Population, drawn: Drawn) -> Float[Tensor, "sample in"]:
    """All inputs that are given, the evaluation inputs of a source, or drawn ones.

    Raises:
        UserError: Inputs that are not a finite matrix, or do not fit the networks.
    """
    if data is None:
        return drawn.source(networks.inputs).evaluating(drawn.seed)
    if isinstance(data, Source):
        return _fitting(data.evaluating(drawn.seed), networks, "")
    if isinstance(data, str | os.PathLike):
        image = networks.image and (networks.sizes[0], *networks.image)
        return _fitting(read_inputs(data, image=image), networks, f" in {Path(data)}")
    return _fitting(as_inputs(data, "data", _KINDS).cpu(), networks, "")


def split_inputs(data: Given | None, networks: Population, drawn: Drawn) -> Split:
    """Inputs and held-out inputs: every fifth of the given ones, the two sets of a source, or two drawn sets.

    Raises:
        UserError: Inputs that are not a finite matrix, fewer than five, or that do not fit the networks.
    """
    if data is None or isinstance(data, Source):
        source = drawn.source(networks.inputs) if data is None else data
        both = (draw(drawn.seed, dtype=torch.float64) for draw in (source.training, source.evaluating))
        return Split(*(_fitting(each, networks, "") for each in both))
    inputs = measuring_inputs(data, networks, drawn).double()
    if len(inputs) < _HELD_OUT:
        where = f" in {Path(data)}" if isinstance(data, str | os.PathLike) else ""
        raise UserError(f"must have at least {_HELD_OUT} samples, got {len(inputs)}{where}", "data")
    held = torch.arange(len(inputs)) % _HELD_OUT == _HELD_OUT - 1
    return Split(inputs[~held], inputs[held])


def _fitting(inputs: Tensor, networks: Population, where: str) -> Tensor:
    if inputs.shape[1] != networks.inputs:
        raise UserError(
            f"must have {networks.inputs} inputs per sample, as the networks do, got {inputs.shape[1]}{where}", "data"
        )
    return inputs
