"""Modules of PyTorch as populations, and back: the graph of a module is followed, nothing is guessed."""

from __future__ import annotations

import contextlib
import io
import logging
import math
import warnings
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.parameter import is_lazy

from understudy._errors import UserError
from understudy._tensors import placed, require_finite
from understudy.nets.graphs.agreement import depends_on_data, noise, require_equal, require_equal_at_scales
from understudy.nets.graphs.evaluation import evaluated
from understudy.nets.graphs.programs import Program, parse_program, parse_trace
from understudy.nets.norm import EPS, Norm
from understudy.nets.population import Population

_TRACED = (1.0, 100.0, 0.0)
"""Multiples of the inputs on which modules are traced that cannot be exported."""


def from_module(
    model: nn.Module, inputs: Tensor | np.ndarray | None = None, *, image: tuple[int, ...] | None = None
) -> Population:
    """Convert a module to a population of one network, by its graph.

    Supported are linear layers and convolutions of one or two dimensions (any kernel, stride, padding, dilation and
    groups) with BatchNorm before or after the activation, ReLU, leaky ReLU and |·|, max, average and adaptive pooling,
    dropout and flattening, as modules or as functions. The module is read in evaluation mode, and the outputs of the
    population are compared with its own, on the inputs, on others, on multiples of them and on zeros.

    Args:
        model: The module: a stack of layers from the inputs to the outputs.
        inputs: A batch of inputs, in the shape that the module takes. Default: random ones.
        image: Height and width of the inputs of a convolutional module (or their length), if no inputs are given.

    Returns:
        One network, whose inputs are flat.

    Raises:
        UserError: An operation that a population cannot represent, by its name; inputs that the module does not take,
            or that are not finite floating-point numbers; outputs that differ from the module's, or that depend on the
            data by a branch.
    """
    if not isinstance(model, nn.Module):
        raise UserError(f"from_module takes an nn.Module, got a {type(model).__name__}")
    plain = unwrapped(model)
    name = type(plain).__name__
    with evaluated(name, plain):
        x = _example(plain, inputs, image)
        with _quiet():
            population = _follow(plain, x).population()
            batches = [x, noise(*x.shape, seed=1).to(x.device, x.dtype)]
            require_equal(population, plain, batches, name)
            require_equal_at_scales(population, plain, x, name)
    return population


def unwrapped(model: nn.Module) -> nn.Module:
    """Take the module out of `torch.compile` and `nn.DataParallel`."""
    while True:
        inner = getattr(model, "_orig_mod", None)
        if inner is None and isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
            inner = model.module
        if not isinstance(inner, nn.Module):
            return model
        model = inner


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep warnings, logs and prints of PyTorch's tracers from the user; errors are raised all the same."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        nowhere = io.StringIO()
        with warnings.catch_warnings(), contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def _follow(model: nn.Module, x: Tensor) -> Program:
    """Follow a module from its inputs to its outputs: exported, or else traced with its hooks and scripts."""
    try:
        return parse_program(torch.export.export(model, (x,)))
    except UserError:
        raise
    except Exception as error:  # of many kinds: whatever the module's own code raises
        try:
            return _trace(model, x)
        except Exception as again:
            if isinstance(again, UserError):
                raise
        raise UserError(
            f"{type(model).__name__} could not be followed from its inputs {list(x.shape)} to its outputs "
            f"({_first_line(error)}); give inputs that it takes, from_module(model, inputs=x), or wrap it in a module "
            "that takes one tensor and returns one"
        ) from error


def _trace(model: nn.Module, x: Tensor) -> Program:
    """Follow a module by running it, on inputs of several scales: tracing sees one path through its branches."""
    traced, *others = (make_fx(model, pre_dispatch=True)(factor * x) for factor in _TRACED)
    if any(other.code != traced.code for other in others):
        scales = ", ".join(f"{factor:g}" for factor in _TRACED)
        raise depends_on_data(type(model).__name__, f"with inputs times {scales} it computes different operations")
    return parse_trace(traced)


class LineConvolution(nn.Conv2d):
    """First convolution of a network on lines, whose height is 1: takes [sample, channel, length] as well."""

    def forward(self, x: Tensor) -> Tensor:
        """Convolve [sample, channel, length] or [sample, channel, 1, length]."""
        return super().forward(x.unsqueeze(2) if x.ndim == 3 else x)


def to_module(population: Population, which: int = 0) -> nn.Sequential:
    """Convert one network of a population to a module in evaluation mode, with copies of its weights.

    Args:
        population: The networks.
        which: Index of the network.

    Returns:
        The layers in order. It takes [sample, input], or for convolutions [sample, channel, height, width]; where
        images have height 1, as those of `nn.Conv1d`, also [sample, channel, length].

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
            kind = LineConvolution if not i and one.image and one.image[0] == 1 else nn.Conv2d
            layer = kind(weight.shape[2], weight.shape[1], *convolution[:3], bias=bias is not None)
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


def _example(model: nn.Module, inputs: Tensor | np.ndarray | None, image: tuple[int, ...] | None) -> Tensor:
    """Inputs of the shape that the module takes: given ones, or random ones for its first layer."""
    name = type(model).__name__
    weights = [weight for weight in (*model.parameters(), *model.buffers()) if weight.is_floating_point()]
    if any(is_lazy(weight) for weight in weights):
        raise UserError(f"{name} has lazy layers without weights yet; call it once on its inputs, or load its weights")
    if any(weight.is_meta for weight in weights):
        raise UserError(f"{name} has weights on the device meta, which has no numbers; load its weights")
    if inputs is not None:
        return _validated(inputs, weights[0] if weights else None)
    layers = [part for part in model.modules() if isinstance(part, nn.Linear | nn.Conv1d | nn.Conv2d)]
    if not layers:
        raise UserError(
            f"{name} has no nn.Linear, nn.Conv1d or nn.Conv2d; give a batch of its inputs: from_module(model, inputs=x)"
        )
    if image is None and not isinstance(layers[0], nn.Linear):
        raise UserError(
            f"{name} has convolutions, whose inputs can have any size; give it: from_module(model, image=(height, "
            "width)), or a batch of inputs, from_module(model, inputs=x)"
        )
    if any(isinstance(part, LineConvolution) for part in layers) and isinstance(image, tuple | list):
        image = (1, *image) if len(image) == 1 else image
    examples = [_inputs_of(part, image) for part in layers if image is None or not isinstance(part, nn.Linear)]
    for x in examples:  # layers need not be defined in the order in which they are used
        with contextlib.suppress(Exception), _quiet():
            model(x)
            return x
    return (examples or [_inputs_of(layers[0], None)])[0]


def _validated(inputs: Tensor | np.ndarray, like: Tensor | None) -> Tensor:
    """First samples of the inputs, finite numbers, on the device and in the precision of a module's weights."""
    given = inputs if isinstance(inputs, Tensor | np.ndarray) else np.asarray(inputs)
    if given.ndim < 2 or not math.prod(given.shape):
        raise UserError(f"inputs must be [sample, …] with at least one sample, got {list(given.shape)}")
    given = given[:64]
    require_finite("inputs", given)
    if not (given.is_floating_point() if isinstance(given, Tensor) else given.dtype.kind == "f"):
        wanted = torch.float32 if like is None else like.dtype
        raise UserError(
            f"inputs must be floating-point numbers, as the module's parameters ({wanted}), got {given.dtype}; convert "
            "them"
        )
    if like is None:
        return torch.as_tensor(given)
    x: Tensor = placed(
        given.detach().to(like.dtype) if isinstance(given, Tensor) else given, "inputs", like.device, like.dtype
    )
    return x


def _inputs_of(layer: nn.Module, image: tuple[int, ...] | None) -> Tensor:
    """Random inputs of the size that a layer takes."""
    assert isinstance(layer, nn.Linear | nn.Conv1d | nn.Conv2d)
    if isinstance(layer, nn.Linear):
        size: tuple[int, ...] = (layer.in_features,)
    else:
        sides, axes = tuple(image) if isinstance(image, tuple | list) else (image,), layer.weight.ndim - 2
        sides = sides[1:] if axes == 1 and len(sides) == 2 and sides[0] == 1 else sides
        if len(sides) != axes or any(type(side) is not int or side < 1 for side in sides):
            wanted = "(height, width)" if axes == 2 else "(length,)"
            raise UserError(f"image must be {wanted}, whole numbers, got {image}")
        size = (layer.in_channels, *(int(side) for side in sides if side is not None))
    return noise(8, *size).to(layer.weight.device, layer.weight.dtype)


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:200] if lines else type(error).__name__
