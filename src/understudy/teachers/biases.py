"""Move the biases of a teacher, or standardise its outputs, on given inputs."""

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor

from understudy.errors import UserError
from understudy.nets import Layer, Population, incoming, outgoing, stack
from understudy.teachers.assumptions import double, indices, listed, one_by_one


def half_active(teacher: Population, x: Float[Tensor, "sample in"] | Float[Tensor, "net sample in"]) -> Population:
    """Hidden biases moved, from the lowest layer up, so that each node is active on half of x (S0 app F).

    A bias becomes minus the median of what comes into its node: the middle of the two middle values. A channel of a
    convolution is active on half of all positions of all samples.
    """
    if teacher.norms and teacher.norm_first:
        raise UserError(
            "half_active moves biases, and this teacher has BatchNorm between them and the activation, which takes "
            "them away again: give a teacher with BatchNorm after the activation, or without"
        )
    return stack([_half_active(network, inputs) for network, inputs in one_by_one(teacher, x)])


def standardised(teacher: Population, x: Float[Tensor, "sample in"] | Float[Tensor, "net sample in"]) -> Population:
    """The output layer scaled and shifted so that each output has mean 0 and standard deviation 1 on x."""
    return stack([_standardised(network, inputs) for network, inputs in one_by_one(teacher, x)])


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
    if constant := indices(std <= 1e-12 * outputs.abs().amax(0)):
        raise UserError(
            f"outputs {listed(constant)} of the teacher of seed {int(network.seeds[0])} are constant on these "
            f"{len(x)} samples and cannot be scaled to standard deviation 1: use more samples or another teacher"
        )
    weight, bias = double(network.layers[-1])
    top = Layer(*(t.to(network.dtype).unsqueeze(0) for t in (weight / std.unsqueeze(1), (bias - mean) / std)))
    return replace(network, layers=(*network.layers[:-1], top))
