"""Operations of PyTorch as steps of a network."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from understudy._errors import UserError
from understudy._numbers import number
from understudy.nets.graphs.graph import LARGEST
from understudy.nets.graphs.steps import Activate, Affine, Normalise, Padding, Pooling, Shift, Step, pad_convolution
from understudy.nets.norm import EPS, Norm
from understudy.nets.shape import Pool, pair

Read = Callable[[str, Mapping[str, Any], tuple[int, ...]], Iterator[Step]]
"""Steps of an operation from its name, its arguments by name and the size of what it reads, without samples."""

RESHAPED = ("flatten", "view", "reshape", "_unsafe_view", "unsqueeze", "unflatten", "squeeze")
SKIPPED = ("contiguous", "clone", "alias", "detach", "detach_", "to", "_to_copy", "getitem 0", "lift_fresh_copy")
SCALARS = ("sym_size", "sym_numel")
"""Operations that read the size of a value."""
FOLDED = (
    *(
        "abs",
        "add",
        "clone",
        "detach",
        "div",
        "dot",
        "exp",
        "expand",
        "flatten",
        "linalg_vector_norm",
        "mul",
        "mv",
        "neg",
    ),
    *("norm_except_dim", "permute", "pow", "reciprocal", "reshape", "rsqrt", "sqrt", "squeeze", "sub", "sum", "t"),
    *(
        "transpose",
        "unsqueeze",
        "view",
        "_weight_norm",
        "matmul",
        "clamp_min",
        "to",
        "_to_copy",
        "mm",
        "vdot",
        "numpy_T",
    ),
)
"""Operations that compute weights from other weights, as parametrizations do."""


def widen(name: str, tensor: Tensor | None) -> Any:
    """Copy in float32 or float64; None stays None.

    Raises:
        UserError: Numbers that are not floating-point, or not finite.
    """
    if tensor is None:
        return None
    if not isinstance(tensor, Tensor) or not tensor.is_floating_point():
        kind = getattr(tensor, "dtype", type(tensor).__name__)
        raise UserError(f"{name}: its tensors must be floating-point numbers, got {kind}")
    wide = tensor.detach().to(torch.promote_types(tensor.dtype, torch.float32))
    if not wide.isfinite().all():
        raise UserError(f"{name}: some of its weights are NaN or infinite; use weights from before it diverged")
    return wide.clone(memory_format=torch.contiguous_format)


def as_image(sides: Sequence[int]) -> tuple[int, int]:
    """Height and width of a map; a line has height 1."""
    return (1, sides[0]) if len(sides) == 1 else (sides[0], sides[1])


def ungroup(weight: Tensor, groups: int) -> Tensor:
    """Weights of a convolution in groups as those of one over all channels, 0 between groups."""
    if groups == 1:
        return weight
    out, into = weight.shape[0] // groups, weight.shape[1]
    whole = weight.new_zeros(weight.shape[0], into * groups, *weight.shape[2:])
    for g in range(groups):
        whole[g * out : (g + 1) * out, g * into : (g + 1) * into] = weight[g * out : (g + 1) * out]
    return whole


def dilate(weight: Tensor, dilation: tuple[int, int]) -> Tensor:
    """Weights of a dilated convolution as those of a larger kernel, 0 in between."""
    if dilation == (1, 1):
        return weight
    sides = [(side - 1) * by + 1 for side, by in zip(weight.shape[2:], dilation, strict=True)]
    whole = weight.new_zeros(*weight.shape[:2], *sides)
    whole[:, :, :: dilation[0], :: dilation[1]] = weight
    return whole


def normalisation(name: str, parts: Sequence[Tensor | None], eps: float) -> Normalise:
    """BatchNorm with any ε, as one with ours.

    Args:
        name: Its name.
        parts: Running mean and variance, scale and shift.
        eps: Constant added to the variance.

    Returns:
        The step.

    Raises:
        UserError: No running statistics, or variances that would become negative.
    """
    mean, variance, scale, shift = (widen(name, part) for part in parts)
    if mean is None or variance is None:
        raise UserError(f"{name}: BatchNorm without running statistics depends on the batch; train it with them")
    if (variance + eps <= 0).any():
        raise UserError(
            f"{name}: BatchNorm with ε = {number(eps, 'g')} and variances down to "
            f"{number(variance.min(), 'g')} divides by 0"
        )
    # Population's ε is added to every variance. Where it is more than both together, the scale makes up for it.
    exact = variance.double() + eps
    variance = variance if eps == EPS else (exact - EPS).clamp_min(0).to(variance.dtype)
    if (exact < EPS).any():
        factor = ((variance.double() + EPS) / exact).sqrt().to(variance.dtype)
        scale = factor if scale is None else scale * factor
    if scale is None and shift is not None:
        scale = torch.ones_like(shift)
    if scale is not None and shift is None:
        shift = torch.zeros_like(scale)
    return Normalise(name, Norm(mean, variance, scale, shift))


def _linear(name: str, given: Mapping[str, Any], size: tuple[int, ...]) -> Iterator[Step]:
    _require_line(name, size)
    yield Affine(name, widen(name, given["weight"]), widen(name, given["bias"]))


def _product(name: str, given: Mapping[str, Any], size: tuple[int, ...]) -> Iterator[Step]:
    """Matrix product of inputs with weights, with an added bias in `addmm`."""
    _require_line(name, size)
    weight = widen(name, given.get("mat2", given.get("other")))
    if weight is None or weight.ndim != 2:
        raise UserError(f"{name}: a product of values with each other or with no matrix is not a layer")
    bias = widen(name, given["self"]) if "beta" in given else None
    if bias is not None and (given["beta"] != 1 or given["alpha"] != 1 or bias.ndim != 1):
        raise UserError(f"{name}: a product with factors alpha, beta or a matrix added is not supported")
    yield Affine(name, weight.T.contiguous(), bias)


def _shift(sign: int) -> Read:
    def read(name: str, given: Mapping[str, Any], size: tuple[int, ...]) -> Iterator[Step]:
        other = given["self"] if given["other"] is None else given["other"]
        tensor = other if isinstance(other, Tensor) else torch.tensor(float(other), dtype=torch.float64)
        yield Shift(name, vector(name, sign * _factor(name, given) * widen(name, tensor), size))

    return read


def _factor(name: str, given: Mapping[str, Any]) -> float:
    if given["other"] is None and given["alpha"] != 1:
        raise UserError(f"{name}: adding values with a factor alpha is not supported")
    return given["alpha"]


def vector(name: str, tensor: Tensor, size: tuple[int, ...]) -> Tensor:
    """One number per node from a tensor that is broadcast against values of this size.

    Raises:
        UserError: The tensor has different numbers at the positions of a node, or does not fit.
    """
    wanted = [1, size[0], *[1] * (len(size) - 1)]
    padded = (
        tensor.reshape([1] * (len(wanted) - tensor.ndim) + list(tensor.shape)) if tensor.ndim <= len(wanted) else tensor
    )
    if any(side not in (1, want) for side, want in zip(padded.shape, wanted, strict=False)) or tensor.ndim > len(
        wanted
    ):
        raise UserError(
            f"{name}: adds a tensor {list(tensor.shape)} to values of shape {list(size)}; one number per node or "
            "channel is supported"
        )
    return padded.flatten().expand(size[0]).clone()


def _require_line(name: str, size: tuple[int, ...]) -> None:
    if len(size) != 1:
        raise UserError(f"{name}: a linear layer on inputs of shape {list(size)}; flatten them first")


def _convolution(name: str, given: Mapping[str, Any], size: tuple[int, ...]) -> Iterator[Step]:
    if given.get("transposed"):
        raise UserError(f"{name}: a transposed convolution is not supported")
    weight, line = widen(name, given["weight"]), len(size) == 2
    if weight.ndim != len(size) + 1 or len(size) > 3:
        raise UserError(f"{name}: a convolution of {weight.ndim - 2} dimensions on inputs of shape {list(size)}")
    weight = weight.unsqueeze(2) if line else weight
    dilation, padding = sides(given["dilation"], line, 1), given["padding"]
    if padding == "same":
        total = [by * (side - 1) for by, side in zip(dilation, weight.shape[2:], strict=True)]
        pads = [(each // 2, each - each // 2) for each in total]
    else:
        pads = [(each, each) for each in sides([0] if padding == "valid" else padding, line, 0)]
    stride = sides(given["stride"], line, 1)
    yield convolution(name, weight, widen(name, given["bias"]), Window(stride, dilation, pads, given["groups"]), size)


class Window(NamedTuple):
    """How the kernel of a convolution moves: for height and width each."""

    stride: tuple[int, int]
    dilation: tuple[int, int]
    pads: Sequence[tuple[int, int]]
    """Padding before and after."""
    groups: int


def convolution(name: str, weight: Tensor, bias: Tensor | None, window: Window, size: tuple[int, ...]) -> Affine:
    """A convolution with dilation, groups and any padding as one with a larger kernel and symmetric padding.

    Args:
        name: Its name.
        weight: [out, in, height, width].
        bias: [out].
        window: How the kernel moves.
        size: Axes of what it reads, without samples.

    Returns:
        The layer.

    Raises:
        UserError: The kernel does not fit the map, or becomes too large.
    """
    stride, dilation, pads, groups = window
    padding = (max(pads[0]), max(pads[1]))
    spans = [(side - 1) * by + 1 for side, by in zip(weight.shape[2:], dilation, strict=True)]
    padded = [side + sum(both) for side, both in zip(as_image(size[1:]), pads, strict=True)]
    whole = [span + 2 * most - sum(both) for span, most, both in zip(spans, padding, pads, strict=True)]
    if min(*stride, *dilation, groups, *spans) < 1 or weight.shape[1] * groups != size[0] or len(weight) % groups:
        raise UserError(f"{name}: a convolution {list(weight.shape)} with {window} does not fit maps {list(size)}")
    if any(span > side for span, side in zip(spans, padded, strict=True)):
        raise UserError(f"{name}: a kernel that spans {spans} pixels does not fit a padded map of {padded}")
    if max(math.prod(whole) * len(weight) * size[0], len(weight) * math.prod(padded)) > 10 * LARGEST:
        raise UserError(f"{name}: a convolution {list(weight.shape)} with {window} on maps {list(size)} is too large")
    weight = dilate(ungroup(weight, groups), dilation)
    weight, described = pad_convolution(weight, pads, stride)
    return Affine(name, weight, bias, described)


def _pad(name: str, given: Mapping[str, Any], size: tuple[int, ...]) -> Iterator[Step]:
    if given.get("mode", "constant") != "constant" or given.get("value"):
        raise UserError(f"{name}: padding is supported only with zeros, got {given.get('mode') or given['value']}")
    pads = list(given["pad"])
    yield zero_padding(name, [(pads[i], pads[i + 1]) for i in range(0, len(pads), 2)][::-1], size)


def zero_padding(name: str, pads: Sequence[tuple[int, int]], size: tuple[int, ...]) -> Padding:
    """Padding of a map by zeros.

    Args:
        name: Its name.
        pads: Padding before and after, of the last axes.
        size: Axes of what it reads, without samples.

    Returns:
        The step.

    Raises:
        UserError: Padding of other axes, or negative padding.
    """
    every = [(0, 0)] * (len(size) + 1 - len(pads)) + list(pads)
    if len(size) not in (2, 3) or any(map(any, every[:2])) or min(map(min, every)) < 0:
        raise UserError(f"{name}: pads values of shape {list(size)} by {list(pads)}; only maps can be padded, by zeros")
    both = [(0, 0), *every[2:]] if len(size) == 2 else every[2:]
    return Padding(name, (both[0], both[1]))


def sides(given: Sequence[int], line: bool, alone: int) -> tuple[int, int]:
    """Height and width; a line has the height `alone`."""
    values = [*given]
    if len(values) == 1:
        values = [alone if line else values[0], values[0]]
    return values[0], values[1]


def _batch_norm(name: str, given: Mapping[str, Any], size: tuple[int, ...]) -> Iterator[Step]:
    if given.get("training") and given["running_mean"] is not None:
        raise UserError(f"{name}: BatchNorm in training mode depends on the batch; export the model after model.eval()")
    names = ("running_mean", "running_var", "weight", "bias")
    yield normalisation(name, [given[part] for part in names], given["eps"])


def _activation(slope: float | None) -> Read:
    def read(name: str, given: Mapping[str, Any], size: tuple[int, ...]) -> Iterator[Step]:
        yield Activate(name, float(given["negative_slope"]) if slope is None else slope)

    return read


def _clamp(name: str, given: Mapping[str, Any], size: tuple[int, ...]) -> Iterator[Step]:
    if given["min"] != 0 or given.get("max") is not None:
        raise UserError(f"{name}: clamping is supported only as ReLU: from 0 up")
    yield Activate(name, 0.0)


def _dropout(name: str, given: Mapping[str, Any], size: tuple[int, ...]) -> Iterator[Step]:
    if given["train"] and given["p"]:
        raise UserError(
            f"{name}: dropout also in evaluation mode makes outputs random; use nn.Dropout, or "
            "F.dropout(x, training=self.training)"
        )
    yield from ()


def _pooling(kind: Literal["max", "average"]) -> Read:
    def read(name: str, given: Mapping[str, Any], size: tuple[int, ...]) -> Iterator[Step]:
        line = len(size) == 2
        if given.get("divisor_override") is not None:
            raise UserError(f"{name}: pooling with divisor_override={given['divisor_override']} is not supported")
        if any(each != 1 for each in given.get("dilation") or ()):
            raise UserError(f"{name}: dilated pooling is not supported")
        kernel = sides(given["kernel_size"], line, 1)
        stride = sides(given["stride"], line, 1) if given["stride"] else kernel
        pool = Pool(kind, kernel, stride, sides(given["padding"], line, 0))
        yield pooling(name, pool, size, given["ceil_mode"], given.get("count_include_pad", True))

    return read


def pooling(name: str, pool: Pool, size: tuple[int, ...], ceil_mode: bool, count_padding: bool) -> Pooling:
    """A pooling, if its options make no difference.

    Raises:
        UserError: They do.
    """
    parts = zip(as_image(size[1:]), pair(pool.kernel), pair(pool.stride), pair(pool.padding), strict=True)
    if ceil_mode and any((side + 2 * padding - kernel) % stride for side, kernel, stride, padding in parts):
        raise UserError(
            f"{name}: pooling with ceil_mode=True of a map that it does not divide, {list(size[1:])}, is not supported"
        )
    if not count_padding and any(pair(pool.padding)):
        raise UserError(f"{name}: average pooling with count_include_pad=False and padding is not supported")
    return Pooling(name, pool)


def _adaptive(kind: Literal["max", "average"]) -> Read:
    def read(name: str, given: Mapping[str, Any], size: tuple[int, ...]) -> Iterator[Step]:
        found, wanted = as_image(size[1:]), sides(given["output_size"], len(size) == 2, 1)
        slides = [_adaptive_slide(side, want) for side, want in zip(found, wanted, strict=True)]
        if None in slides:
            raise UserError(
                f"{name}: adaptive pooling from {list(found)} to {list(wanted)} has kernels of different sizes; only "
                "sizes that divide the map are supported"
            )
        (height, down), (width, across) = (each for each in slides if each is not None)
        yield Pooling(name, Pool(kind, (height, width), (down, across)))

    return read


def _adaptive_slide(side: int, want: int) -> tuple[int, int] | None:
    """Kernel and stride of an adaptive pooling along one axis; None if its kernels are not all alike."""
    starts = [i * side // want for i in range(want)]
    kernels = {-(-(i + 1) * side // want) - start for i, start in enumerate(starts)}
    strides = {b - a for a, b in itertools.pairwise(starts)}
    if len(kernels) != 1 or len(strides) > 1:
        return None
    (kernel,) = kernels
    return kernel, next(iter(strides), kernel)


def _overall(kind: Literal["max", "average"]) -> Read:
    """Mean or maximum over all positions of a map."""

    def read(name: str, given: Mapping[str, Any], size: tuple[int, ...]) -> Iterator[Step]:
        yield overall(name, kind, given["dim"], size)

    return read


def overall(name: str, kind: Literal["max", "average"], axes: Sequence[int] | None, size: tuple[int, ...]) -> Pooling:
    """Pooling over all positions of a map, as a mean or maximum over these axes.

    Raises:
        UserError: Other axes.
    """
    found = sorted(axis % (len(size) + 1) for axis in axes or ())
    if len(size) < 2 or found != list(range(2, len(size) + 1)):
        raise UserError(f"{name}: a mean or maximum over axes {axes} is supported only over all positions of a map")
    return Pooling(name, Pool(kind, as_image(size[1:]), as_image(size[1:])))


READERS: dict[str, Read] = {
    "linear": _linear,
    "addmm": _product,
    "mm": _product,
    "matmul": _product,
    "add": _shift(1),
    "sub": _shift(-1),
    "conv1d": _convolution,
    "conv2d": _convolution,
    "convolution": _convolution,
    "batch_norm": _batch_norm,
    "_native_batch_norm_legit_no_training": _batch_norm,
    "relu": _activation(0.0),
    "leaky_relu": _activation(None),
    "abs": _activation(-1.0),
    "clamp": _clamp,
    "clamp_min": _clamp,
    "pad": _pad,
    "constant_pad_nd": _pad,
    "dropout": _dropout,
    "feature_dropout": _dropout,
    "alpha_dropout": _dropout,
    "feature_alpha_dropout": _dropout,
    "max_pool1d": _pooling("max"),
    "max_pool2d": _pooling("max"),
    "max_pool2d_with_indices": _pooling("max"),
    "avg_pool1d": _pooling("average"),
    "avg_pool2d": _pooling("average"),
    "adaptive_avg_pool1d": _adaptive("average"),
    "adaptive_avg_pool2d": _adaptive("average"),
    "_adaptive_avg_pool2d": _adaptive("average"),
    "adaptive_max_pool1d": _adaptive("max"),
    "adaptive_max_pool2d": _adaptive("max"),
    "mean": _overall("average"),
    "amax": _overall("max"),
}
