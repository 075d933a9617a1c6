"""Modules of PyTorch as populations, and back: the graph of a module is followed, nothing is guessed."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from understudy._errors import UserError
from understudy.nets.agreement import noise, require_equal
from understudy.nets.norm import EPS, Norm
from understudy.nets.population import Population
from understudy.nets.programs import from_program as from_program
from understudy.nets.programs import parse_program


def from_module(model: nn.Module, inputs: Tensor | None = None, *, image: tuple[int, ...] | None = None) -> Population:
    """Convert a module to a population of one network, by its graph.

    Supported are linear layers and convolutions of one or two dimensions (any kernel, stride, padding, dilation and
    groups) with BatchNorm before or after the activation, ReLU, leaky ReLU and |·|, max, average and adaptive pooling,
    dropout and flattening, as modules or as functions. The module is read in evaluation mode, and the outputs of the
    population are compared with its own.

    Args:
        model: The module: a stack of layers from the inputs to the outputs.
        inputs: A batch of inputs, in the shape that the module takes. Default: random ones.
        image: Height and width of the inputs of a convolutional module (or their length), if no inputs are given.

    Returns:
        One network, whose inputs are flat.

    Raises:
        UserError: An operation that a population cannot represent, by its name; inputs that the module does not take;
            outputs that differ from the module's.
    """
    with _evaluated(model):
        x = _example(model, inputs, image)
        try:
            program = torch.export.export(model, (x,))
        except Exception as error:  # of many kinds: whatever the module's own code raises
            raise UserError(
                f"{type(model).__name__} could not be followed from its inputs {list(x.shape)} to its outputs "
                f"({_first_line(error)}); give inputs that it takes: from_module(model, inputs=x)"
            ) from error
        population = parse_program(program).population()
        require_equal(population, model, [x, noise(*x.shape, seed=1).to(x.device, x.dtype)], type(model).__name__)
    return population


def to_module(population: Population, which: int = 0) -> nn.Sequential:
    """Convert one network of a population to a module in evaluation mode, with copies of its weights.

    Args:
        population: The networks.
        which: Index of the network.

    Returns:
        The layers in order. It takes [sample, input], or for convolutions [sample, channel, height, width].

    Raises:
        UserError: There is no such network.
    """
    if not 0 <= which < len(population):
        raise UserError(
            f"which must be between 0 and {len(population) - 1}, the networks of the population, got {which}"
        )
    one, parts = population[which], list[nn.Module]()
    convolutions = one.shape.resolved_convolutions
    for i, (weight, bias) in enumerate(one.layers):
        hidden, convolution = i < len(one.layers) - 1, convolutions[i] if i < len(convolutions) else None
        if convolution is None:
            parts += [nn.Flatten()] if i and i == len(convolutions) else []
            layer: nn.Linear | nn.Conv2d = nn.Linear(weight.shape[2], weight.shape[1], bias is not None)
        else:
            layer = nn.Conv2d(weight.shape[2], weight.shape[1], *convolution[:3], bias=bias is not None)
        parts.append(_filled(layer, {"weight": weight[0], "bias": None if bias is None else bias[0]}))
        if hidden:
            slope = one.slope
            activation: list[nn.Module] = [nn.ReLU() if slope == 0 else nn.LeakyReLU(slope)] if slope != 1 else []
            norm: list[nn.Module] = [_norm_module(one.norms[i], convolution is not None)] if one.norms else []
            parts += [*norm, *activation] if one.norm_first else [*activation, *norm]
        if convolution is not None and convolution.pool is not None:
            pooling = nn.MaxPool2d if convolution.pool.kind == "max" else nn.AvgPool2d
            parts.append(pooling(*convolution.pool[1:]))
    return nn.Sequential(*parts).to(one.device, one.dtype).eval()


def _norm_module(norm: Norm, images: bool) -> nn.Module:
    nodes, affine = norm.mean.shape[1], norm.scale is not None
    made = (nn.BatchNorm2d if images else nn.BatchNorm1d)(nodes, eps=EPS, affine=affine)
    names = ("running_mean", "running_var", "weight", "bias")
    return _filled(made, {name: None if part is None else part[0] for name, part in zip(names, norm, strict=True)})


def _filled(module: nn.Module, tensors: dict[str, Tensor | None]) -> nn.Module:
    """Replace a module's tensors by copies of the given ones, in their precision."""
    for name, tensor in tensors.items():
        if tensor is not None:
            getattr(module, name).data = tensor.detach().clone()
    return module


@contextmanager
def _evaluated(model: nn.Module) -> Iterator[None]:
    """Put every part of a module in evaluation mode, and back to the mode it was in."""
    training = [part for part in model.modules() if part.training]
    depends = [
        part for part in training if isinstance(part, nn.modules.batchnorm._BatchNorm | nn.modules.dropout._DropoutNd)
    ]
    if depends:
        warnings.warn(
            f"{type(model).__name__} is in training mode; it is read in evaluation mode, in which BatchNorm uses its "
            "running statistics and dropout does nothing",
            stacklevel=4,
        )
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for part in training:
            part.training = True


def _example(model: nn.Module, inputs: Tensor | None, image: tuple[int, ...] | None) -> Tensor:
    """Inputs of the shape that the module takes: given ones, or random ones for its first layer."""
    if inputs is not None:
        return torch.as_tensor(inputs)[:64]
    first = next((part for part in model.modules() if isinstance(part, nn.Linear | nn.Conv1d | nn.Conv2d)), None)
    if first is None:
        raise UserError(
            f"{type(model).__name__} has no nn.Linear, nn.Conv1d or nn.Conv2d; give a batch of its inputs: "
            "from_module(model, inputs=x)"
        )
    if isinstance(first, nn.Linear):
        size: tuple[int, ...] = (first.in_features,)
    elif image is None:
        raise UserError(
            f"{type(model).__name__} has convolutions, whose inputs can have any size; give it: from_module(model, "
            "image=(height, width)), or a batch of inputs, from_module(model, inputs=x)"
        )
    else:
        size = (first.in_channels, *image)
    return noise(8, *size).to(first.weight.device, first.weight.dtype)


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:200] if lines else type(error).__name__
