"""Modules of PyTorch as populations, and back: the graph of a module is followed, nothing is guessed."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import Tensor, nn

from understudy._errors import UserError
from understudy.nets.norm import EPS, Norm
from understudy.nets.population import Population
from understudy.nets.shape import Convolution, Pool
from understudy.nets.steps import Activate, Affine, Normalise, Pooling, Step, assemble

_TOLERANCE = 1e-5
"""Largest difference of outputs from the module's, relative to the largest output."""
_SKIPPED = ("dropout", "feature_dropout", "alpha_dropout", "contiguous", "clone", "alias", "detach", "to", "getitem 0")
_RESHAPED = ("flatten", "view", "reshape", "squeeze", "_unsafe_view")


_OTHERWISE = "understudy.align(teacher, student, data) compares modules of any kind by their activations"


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
        population = from_program(program)
        _require_equal(population, model, x)
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


def from_program(program: torch.export.ExportedProgram) -> Population:
    """Convert an exported program, as `torch.export.export` returns it or a `.pt2` file contains it.

    Args:
        program: The program of a module in evaluation mode, with one tensor of inputs.

    Returns:
        One network, whose inputs are flat.

    Raises:
        UserError: An operation that a population cannot represent, by its name.
    """
    graph = _Graph(program)
    sides = graph.input_size[2:]
    return assemble(list(graph.steps()), _as_image(sides) if sides else None)


class _Graph:
    """The graph of an exported program, followed from its input to its output."""

    def __init__(self, program: torch.export.ExportedProgram) -> None:
        signature = program.graph_signature
        names = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
        held = {**program.state_dict, **program.constants}
        constants = getattr(signature, "inputs_to_lifted_tensor_constants", {})
        self._tensors = {node: held[name] for node, name in {**names, **constants}.items() if name in held}
        self._nodes = list(program.graph.nodes)
        given = [node for node in self._nodes if node.op == "placeholder" and node.name in signature.user_inputs]
        if len(given) != 1:
            raise UserError(f"the module must take one tensor of inputs, got {len(given)}")
        self._input = given[0]

    @property
    def input_size(self) -> tuple[int, ...]:
        return tuple(self._input.meta["val"].shape)

    def steps(self) -> Iterator[Step]:
        """Steps from the input to the output; every operation must use the result of the one before, once."""
        current = self._input
        while True:
            # What nothing uses is left out, such as the indices of max pooling.
            users = [node for node in current.users if node.op != "output" and node.users]
            ends = any(node.op == "output" for node in current.users)
            if ends and not users:
                return
            if len(users) != 1 or ends:
                words = ", ".join(_name(node) for node in users) or "nothing"
                raise UserError(
                    f"{_name(current)}: its result is used by {words}, but only stacks of layers without skips are "
                    f"supported; {_OTHERWISE}"
                )
            (node,) = users
            yield from self._read(node, current)
            current = node

    def _read(self, node: torch.fx.Node, before: torch.fx.Node) -> Iterator[Step]:
        operation, name = _operation(node), _name(node)
        if operation in _SKIPPED:
            return
        if operation in _RESHAPED:
            _require_flat(node, before)
            return
        read = _READERS.get(operation)
        if read is None or node.args[0] is not before:
            raise UserError(
                f"{name}: the operation {operation} is not among those of stacks of layers (linear, convolution, "
                f"BatchNorm, ReLU, leaky ReLU, absolute value, pooling, dropout, flattening); {_OTHERWISE}"
            )
        yield from read(name, self._arguments(node), tuple(before.meta["val"].shape))

    def _arguments(self, node: torch.fx.Node) -> dict[str, Any]:
        """Arguments by the names of the operation's schema, with tensors and defaults filled in."""
        schema = node.target._schema.arguments  # type: ignore[union-attr]
        given = dict(zip((each.name for each in schema), node.args, strict=False)) | dict(node.kwargs)
        found = {each.name: given.get(each.name, each.default_value) for each in schema}
        return {
            key: self._tensors.get(value.name) if isinstance(value, torch.fx.Node) else value
            for key, value in found.items()
        }


def _operation(node: torch.fx.Node) -> str:
    """Name of an operation without its overload: `relu`, `conv2d`."""
    if node.target is operator.getitem:
        return "getitem" if node.args[1] else "getitem 0"
    name = str(node.target).removeprefix("aten.").split(".")[0]
    return name.removesuffix("_") or name


def _name(node: torch.fx.Node) -> str:
    """Name of the module that an operation belongs to, as users know it."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    path, kind = stack[-1] if stack else ("", "")
    return f"{path} ({str(kind).rpartition('.')[2]})" if path else node.name


def _require_flat(node: torch.fx.Node, before: torch.fx.Node) -> None:
    shape, below = tuple(node.meta["val"].shape), tuple(before.meta["val"].shape)
    if shape[0] != below[0] or len(shape) != 2:
        raise UserError(f"{_name(node)}: reshapes {list(below[1:])} to {list(shape[1:])}; only flattening is supported")


Read = Callable[[str, dict[str, Any], tuple[int, ...]], Iterator[Step]]


def _linear(name: str, given: dict[str, Any], size: tuple[int, ...]) -> Iterator[Step]:
    if len(size) != 2:
        raise UserError(f"{name}: a linear layer on inputs of shape {list(size[1:])}; flatten them first")
    yield Affine(name, _float(name, given["weight"]), _float(name, given["bias"]))


def _convolution(name: str, given: dict[str, Any], size: tuple[int, ...]) -> Iterator[Step]:
    weight, line = _float(name, given["weight"]), len(size) == 3
    weight = weight.unsqueeze(2) if line else weight
    weight = _dilate(_ungroup(weight, given["groups"]), _sides(given["dilation"], line, 1))
    kernel = (weight.shape[2], weight.shape[3])
    padding = given["padding"]
    if padding == "same" and any(side % 2 == 0 for side in kernel):
        raise UserError(f"{name}: padding 'same' of an even kernel is not symmetric; give the padding as numbers")
    if isinstance(padding, str):
        padding = [side // 2 if padding == "same" else 0 for side in kernel]
    how = Convolution(kernel, _sides(given["stride"], line, 1), _sides(padding, line, 0))
    yield Affine(name, weight, _float(name, given["bias"]), how)


def _sides(given: Sequence[int], line: bool, alone: int) -> tuple[int, int]:
    """Height and width; a line has the height `alone`."""
    values = [*given]
    if len(values) == 1:
        values = [alone if line else values[0], values[0]]
    return values[0], values[1]


def _ungroup(weight: Tensor, groups: int) -> Tensor:
    """Weights of a convolution in groups as those of one over all channels, 0 between groups."""
    if groups == 1:
        return weight
    out, into = weight.shape[0] // groups, weight.shape[1]
    whole = weight.new_zeros(weight.shape[0], into * groups, *weight.shape[2:])
    for g in range(groups):
        whole[g * out : (g + 1) * out, g * into : (g + 1) * into] = weight[g * out : (g + 1) * out]
    return whole


def _dilate(weight: Tensor, dilation: tuple[int, int]) -> Tensor:
    """Weights of a dilated convolution as those of a larger kernel, 0 in between."""
    if dilation == (1, 1):
        return weight
    sides = [(side - 1) * by + 1 for side, by in zip(weight.shape[2:], dilation, strict=True)]
    whole = weight.new_zeros(*weight.shape[:2], *sides)
    whole[:, :, :: dilation[0], :: dilation[1]] = weight
    return whole


def _batch_norm(name: str, given: dict[str, Any], size: tuple[int, ...]) -> Iterator[Step]:
    mean, variance = (_float(name, given[part]) for part in ("running_mean", "running_var"))
    if mean is None or variance is None:
        raise UserError(f"{name}: BatchNorm without running statistics depends on the batch; train it with them")
    variance = variance + (given["eps"] - EPS)
    if (variance < 0).any():
        raise UserError(f"{name}: BatchNorm with ε = {given['eps']:g} below {EPS:g} and variances near 0")
    scale, shift = (_float(name, given[part]) for part in ("weight", "bias"))
    if scale is not None and shift is None:
        shift = torch.zeros_like(scale)
    yield Normalise(name, Norm(mean, variance, scale, shift))


def _activation(slope: float | None) -> Read:
    def read(name: str, given: dict[str, Any], size: tuple[int, ...]) -> Iterator[Step]:
        yield Activate(name, float(given["negative_slope"]) if slope is None else slope)

    return read


def _pooling(kind: Literal["max", "average"]) -> Read:
    def read(name: str, given: dict[str, Any], size: tuple[int, ...]) -> Iterator[Step]:
        line = len(size) == 3
        usual = {"ceil_mode": False, "divisor_override": None}
        usual |= {"count_include_pad": True} if any(given["padding"]) else {}
        for option, value in usual.items():
            if given.get(option, value) != value:
                raise UserError(f"{name}: pooling with {option}={given[option]} is not supported, only {value}")
        if any(each != 1 for each in given.get("dilation") or ()):
            raise UserError(f"{name}: dilated pooling is not supported")
        kernel = _sides(given["kernel_size"], line, 1)
        stride = _sides(given["stride"], line, 1) if given["stride"] else kernel
        yield Pooling(name, Pool(kind, kernel, stride, _sides(given["padding"], line, 0)))

    return read


def _adaptive(kind: Literal["max", "average"]) -> Read:
    def read(name: str, given: dict[str, Any], size: tuple[int, ...]) -> Iterator[Step]:
        sides, wanted = _as_image(size[2:]), _sides(given["output_size"], len(size) == 3, 1)
        if any(side % want for side, want in zip(sides, wanted, strict=True)):
            raise UserError(
                f"{name}: adaptive pooling from {list(sides)} to {list(wanted)} has kernels of different sizes; only "
                "sizes that divide the map are supported"
            )
        kernel = (sides[0] // wanted[0], sides[1] // wanted[1])
        yield Pooling(name, Pool(kind, kernel, kernel))

    return read


def _mean(name: str, given: dict[str, Any], size: tuple[int, ...]) -> Iterator[Step]:
    axes = sorted(axis % len(size) for axis in given["dim"] or ())
    if len(size) < 3 or axes != list(range(2, len(size))):
        raise UserError(f"{name}: a mean over axes {given['dim']} is supported only over all positions of a map")
    yield Pooling(name, Pool("average", _as_image(size[2:]), _as_image(size[2:])))


_READERS: dict[str, Read] = {
    "linear": _linear,
    "conv1d": _convolution,
    "conv2d": _convolution,
    "batch_norm": _batch_norm,
    "relu": _activation(0.0),
    "leaky_relu": _activation(None),
    "abs": _activation(-1.0),
    "max_pool1d": _pooling("max"),
    "max_pool2d": _pooling("max"),
    "avg_pool1d": _pooling("average"),
    "avg_pool2d": _pooling("average"),
    "adaptive_avg_pool1d": _adaptive("average"),
    "adaptive_avg_pool2d": _adaptive("average"),
    "adaptive_max_pool1d": _adaptive("max"),
    "adaptive_max_pool2d": _adaptive("max"),
    "mean": _mean,
}


def _float(name: str, tensor: Tensor | None) -> Any:
    """A copy in float32 or float64; None stays None."""
    if tensor is None:
        return None
    if not tensor.is_floating_point():
        raise UserError(f"{name}: its tensors must be floating-point numbers, got {tensor.dtype}")
    wide = tensor.detach().to(torch.promote_types(tensor.dtype, torch.float32))
    if not wide.isfinite().all():
        raise UserError(f"{name}: some of its weights are NaN or infinite; use weights from before it diverged")
    return wide.clone(memory_format=torch.contiguous_format)


def _as_image(sides: Sequence[int]) -> tuple[int, int]:
    return (1, sides[0]) if len(sides) == 1 else (sides[0], sides[1])


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
    generator = torch.Generator().manual_seed(0)
    weight = first.weight
    return torch.randn(8, *size, generator=generator).to(weight.device, weight.dtype)


def _require_equal(population: Population, model: nn.Module, x: Tensor) -> None:
    """Compare outputs with the module's, on the example and on random inputs of its shape."""
    noise = torch.randn(x.shape, generator=torch.Generator().manual_seed(1)).to(x.device, x.dtype)
    for inputs in (x, noise):
        wanted = model(inputs)
        found = population(inputs.flatten(1).to(population.dtype))[0].to(wanted.dtype)
        scale = float(wanted.abs().max())
        largest = float((found - wanted).abs().max())
        if not largest <= max(_TOLERANCE, 20 * torch.finfo(wanted.dtype).eps) * scale:
            raise UserError(
                f"the converted network differs from {type(model).__name__} by {largest:.2g}, with outputs up to "
                f"{scale:.2g}; this is an error of the conversion, or the module depends on more than its inputs"
            )


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:200] if lines else type(error).__name__
