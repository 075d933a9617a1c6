"""Adjust a teacher to given inputs: hidden biases, and the scale of its outputs."""

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from understudy._errors import UserError
from understudy.nets import Layer, Population, incoming, outgoing, stack
from understudy.teachers.assumptions import double, format_list, iterate_networks, true_indices


def half_active(teacher: Population, x: Float[Tensor, "sample in"] | Float[Tensor, "net sample in"]) -> Population:
    """Set hidden biases, from the lowest layer up, so that each node is active on half of `x` (Tian 2020, app. F).

    A bias becomes minus the median of its node's pre-activation without bias (the mean of the two middle values). A
    channel of a convolution is active on half of all positions of all samples.

    Args:
        teacher: The teachers.
        x: Inputs shared by all teachers, or one set per teacher.

    Returns:
        The teachers with these biases.

    Raises:
        UserError: BatchNorm stands before the activation, or the inputs do not fit.
    """
    if teacher.norms and teacher.norm_first:
        raise UserError(
            "half_active sets biases, but BatchNorm before the activation cancels them: give a teacher with BatchNorm "
            "after the activation, or without"
        )
    return stack([_half_active(network, inputs) for network, inputs in iterate_networks(teacher, x)])


def standardised(teacher: Population, x: Float[Tensor, "sample in"] | Float[Tensor, "net sample in"]) -> Population:
    """Scale and shift the output layer so that each output has mean 0 and standard deviation 1 on `x`.

    Args:
        teacher: The teachers.
        x: Inputs shared by all teachers, or one set per teacher.

    Returns:
        The teachers with another output layer.

    Raises:
        UserError: An output is constant on `x`, or the inputs do not fit.
    """
    return stack([_standardised(network, inputs) for network, inputs in iterate_networks(teacher, x)])


def _half_active(network: Population, x: Float[Tensor, "sample in"]) -> Population:
    exact = network.to(dtype=torch.float64)
    exact = replace(exact, layers=tuple(Layer(weight, None) for weight, _ in exact.layers))
    h, layers = x, []
    for i, layer in enumerate(network.layers[:-1]):
        into = incoming(exact, i, h)
        ordered, count = into[0].sort(dim=0).values, into.shape[1]
        bias = -((ordered[(count - 1) // 2] + ordered[count // 2]) / 2).to(network.dtype).unsqueeze(0)
        layers.append(Layer(layer.weight, bias))
        h, _ = outgoing(exact, i, into + bias.double())
    top = network.layers[-1]
    layers.append(Layer(top.weight, top.weight.new_zeros(top.weight.shape[:2]) if top.bias is None else top.bias))
    return replace(network, layers=tuple(layers))


def _standardised(network: Population, x: Float[Tensor, "sample in"]) -> Population:
    outputs = network.to(dtype=torch.float64)(x)[0]
    mean, std = outputs.mean(0), outputs.std(0, correction=0)
    if constant := true_indices(std <= 1e-12 * outputs.abs().amax(0)):
        raise UserError(
            f"outputs {format_list(constant)} of the teacher of seed {int(network.seeds[0])} are constant on these "
            f"{len(x)} samples and cannot be scaled to standard deviation 1: use more samples or another teacher"
        )
    weight, bias = double(network.layers[-1])
    top = Layer(*(t.to(network.dtype).unsqueeze(0) for t in (weight / std.unsqueeze(1), (bias - mean) / std)))
    return replace(network, layers=(*network.layers[:-1], top))
