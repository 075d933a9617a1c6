"""Networks written as fully connected ones without BatchNorm that compute the same function.

BatchNorm in evaluation mode, convolutions and average pooling are affine, so that they become part of the matrices
between two activations. A statement about a network's function or its nodes then applies to them as to any fully
connected network; a statement about training does not, because training changes other parameters.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from understudy.nets import Layer, Population, evaluation_scale, incoming

MOST_NODES = 64
"""Largest number of nodes of a layer, one for each channel and position, for which the theorems are checked."""


class DenseNetwork(NamedTuple):
    """A network as a fully connected one without BatchNorm, or the reason why it cannot be written as one."""

    network: Population | None
    changes: tuple[str, ...]
    """What was changed about its layers, in words; empty if nothing was."""
    why: str = ""


def as_dense(network: Population, most: int = MOST_NODES) -> DenseNetwork:
    """Write one network as a fully connected one without BatchNorm, in evaluation mode and in float64.

    Args:
        network: A population of one network.
        most: Largest number of nodes of a layer of a convolutional network.

    Returns:
        The network, unchanged if it has this form already; none for max pooling and for more nodes.
    """
    if network.shape.dense:
        return DenseNetwork(network, ())
    layers = [i for i, one in enumerate(network.shape.resolved_convolutions, 1) if one.pool and one.pool.kind == "max"]
    if layers:
        return DenseNetwork(None, (), f"max pooling after layer {layers[0]}, which is not an affine map")
    _, *nodes = dense_sizes(network)
    if network.image is not None and max(nodes) > most:
        return DenseNetwork(
            None, (), f"{max(nodes):,} nodes (channels at positions) in one layer; at most {most:,} are checked"
        )
    weights, biases = affine_maps(network.to(dtype=torch.float64))
    made = tuple(Layer(weight[None], bias[None]) for weight, bias in zip(weights, biases, strict=True))
    return DenseNetwork(Population(made, network.seeds, network.slope), describe_changes(network))


def dense_sizes(network: Population) -> list[int]:
    """Nodes of every layer where convolutions are written as matrices: one for each channel and position."""
    hidden = [nodes * places for nodes, places in zip(network.sizes[1:-1], network.shape.positions, strict=True)]
    return [network.inputs, *hidden, network.sizes[-1]]


def affine_maps(network: Population) -> tuple[list[Float[Tensor, "out in"]], list[Float[Tensor, "out"]]]:
    """Compute the matrices and biases between the activations of consecutive layers of one network in float64.

    A row of a convolution's activations is a position, so that nodes are numbered by position first, then channel.
    """
    weights, biases = [], []
    scale, shift = torch.ones(1), torch.zeros(1)  # of BatchNorm after the activation below
    nodes = dense_sizes(network)
    linear = replace(network, layers=tuple(Layer(layer.weight, None) for layer in network.layers))
    for i, channels in enumerate(network.sizes[:-1]):
        zero, basis = torch.zeros(1, nodes[i], dtype=torch.float64), torch.eye(nodes[i], dtype=torch.float64)
        if i:
            zero, basis = zero.view(1, -1, channels), basis.view(1, -1, channels)
        weight, bias = incoming(linear, i, basis).reshape(nodes[i], -1).T, incoming(network, i, zero).flatten()
        if i and network.norms and not network.norm_first:
            repeat = nodes[i] // channels
            bias = bias + weight @ shift.repeat(repeat)
            weight = weight * scale.repeat(repeat)
        if i < len(network.norms):
            norm = network.norms[i]
            scale = evaluation_scale(norm)[0]
            shift = (norm.shift[0] if norm.shift is not None else torch.zeros_like(scale)) - scale * norm.mean[0]
            if network.norm_first:
                repeat = len(bias) // len(scale)
                weight, bias = (
                    scale.repeat(repeat)[:, None] * weight,
                    scale.repeat(repeat) * bias + shift.repeat(repeat),
                )
        weights.append(weight.detach().contiguous())
        biases.append(bias.detach().contiguous())
    return weights, biases


def describe_changes(network: Population) -> tuple[str, ...]:
    """Describe how a network is written as a fully connected one without BatchNorm."""
    changes = []
    if network.norms:
        where = "before" if network.norm_first else "after"
        layer = "the layer below it" if network.norm_first else "the layer above it"
        changes.append(f"BatchNorm {where} the activation is folded into {layer}")
    if network.image is not None:
        changes.append("convolutions are written as matrices, a unit for each channel and position")
    return tuple(changes)
