"""One network as affine maps in float64, with ReLU or leaky ReLU between them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import torch
from jaxtyping import Float

from understudy._errors import UserError
from understudy._numbers import number
from understudy._random import Stream, generator
from understudy.nets import Layer, Population
from understudy.nets.given_networks import Network, as_population
from understudy.theory.dense_networks import affine_maps, dense_sizes, describe_changes

MOST_WEIGHTS = 1 << 24
"""Largest number of weights of a convolution that is written as a matrix (128 MiB in float64)."""


@dataclass(frozen=True, eq=False)
class ReluNetwork:
    """h(x) = W_L ρ(… ρ(W_1 x + b_1) …) + b_L with ρ(u) = max(u, slope·u), in float64.

    Layers are counted from 1 as in Phuong & Lampert (2020); `weights[l − 1]` is W_l.

    Attributes:
        weights: W_1, …, W_L.
        biases: b_1, …, b_L.
        slope: Slope of the activation below zero, from 0 up to 1.
    """

    weights: tuple[Float[np.ndarray, "_out _in"], ...]
    biases: tuple[Float[np.ndarray, "_out"], ...]
    slope: float = 0.0

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Units from the inputs to the outputs: (d_0, …, d_L)."""
        return (self.weights[0].shape[1], *(len(bias) for bias in self.biases))

    @property
    def hidden(self) -> tuple[int, ...]:
        """Units of the hidden layers: (d_1, …, d_{L−1})."""
        return self.sizes[1:-1]

    def activate(self, u: np.ndarray) -> np.ndarray:
        """ρ(u), element by element."""
        found: np.ndarray = np.maximum(u, self.slope * u)
        return found

    def preactivations(self, x: Float[np.ndarray, "sample in"]) -> list[Float[np.ndarray, "sample unit"]]:
        """Values h^{1:l}(x) of the hidden units before the activation, for every hidden layer, and the outputs last."""
        found, h = [], x
        for i, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            found.append((self.activate(h) if i else h) @ weight.T + bias)
            h = found[-1]
        return found

    def __call__(self, x: Float[np.ndarray, "sample in"]) -> Float[np.ndarray, "sample out"]:
        """Compute the outputs."""
        return self.preactivations(x)[-1]

    def population(self) -> Population:
        """This network as a population of one."""
        layers = tuple(
            Layer(torch.from_numpy(weight.copy())[None], torch.from_numpy(bias.copy())[None])
            for weight, bias in zip(self.weights, self.biases, strict=True)
        )
        return Population(layers, torch.zeros(1, dtype=torch.int64), self.slope)


def random_network(sizes: Sequence[int], seed: int, slope: float = 0.0) -> ReluNetwork:
    """Draw a network with weights N(0, 2 / fan-in) and biases N(1, 0.5²), of which most units fold the usual box.

    Args:
        sizes: Units from the inputs to the outputs.
        seed: Seed of the weights.
        slope: Slope of the activation below zero.

    Returns:
        The network; almost surely it is general.
    """
    random = generator(seed, Stream.RELU_NETWORK)
    weights = tuple(random.normal(0.0, math.sqrt(2 / fan_in), (out, fan_in)) for fan_in, out in pairwise(sizes))
    return ReluNetwork(weights, tuple(random.normal(1.0, 0.5, out) for out in sizes[1:]), slope)


def as_relu_network(name: str, network: Network | ReluNetwork, which: int = 0) -> tuple[ReluNetwork, tuple[str, ...]]:
    """Write a user's network as affine maps in float64.

    BatchNorm in evaluation mode, average pooling and convolutions are affine and become part of the matrices.

    Args:
        name: Name of the argument, for errors.
        network: A population, a module of PyTorch, a network file, or a network that has this form already.
        which: Index of the network in a population.

    Returns:
        The network, and what was changed about its layers, in words.

    Raises:
        UserError: Activations other than ReLU and leaky ReLU, max pooling, convolutions too large to be written as
            matrices, weights that are not finite, or no network of this index.
    """
    if isinstance(network, ReluNetwork):
        return network, ()
    population = as_population(name, network)
    if not 0 <= which < len(population):
        raise UserError(f"{name}: there is no network {which} among {len(population)}; choose one from 0 up")
    population = population[which].to("cpu", torch.float64)
    if not 0 <= population.slope < 1:
        raise UserError(
            f"{name} must have ReLU or leaky ReLU activations (slopes from 0 up to 1), got slope "
            f"{number(population.slope, 'g')}: its folds do not determine its units"
        )
    _validate_size(name, population)
    weights, biases = ([part.numpy() for part in parts] for parts in affine_maps(population))
    if not all(np.isfinite(part).all() for part in (*weights, *biases)):
        raise UserError(f"{name} has weights that are not finite: train or load it again")
    return ReluNetwork(tuple(weights), tuple(biases), float(population.slope)), describe_changes(population)


def _validate_size(name: str, population: Population) -> None:
    shape = population.shape
    if population.image is None:
        return
    for i, convolution in enumerate(shape.resolved_convolutions):
        if convolution.pool is not None and convolution.pool.kind == "max":
            raise UserError(
                f"{name} has max pooling after layer {i + 1}, which is not a ReLU layer: use average pooling or strides"
            )
    units = dense_sizes(population)
    for i, (below, above) in enumerate(pairwise(units)):
        if below * above > MOST_WEIGHTS:
            raise UserError(
                f"{name}: layer {i + 1} has {below:,} × {above:,} weights as a matrix; at most {MOST_WEIGHTS:,} are "
                "allowed: use smaller images or fewer channels"
            )
