"""Operations of ONNX as steps of a network."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from understudy._errors import UserError
from understudy.nets.graphs.aten import (
    Read,
    Window,
    convolution,
    normalisation,
    overall,
    pooling,
    sides,
    vector,
    widen,
    zero_padding,
)
from understudy.nets.graphs.onnx_files import AGAIN
from understudy.nets.graphs.steps import Activate, Affine, Shift, Step
from understudy.nets.shape import Pool


def _weight(name: str, array: Any) -> Any:
    """An array as a tensor in float32 or float64; None stays None."""
    if array is None:
        return None
    kind = np.asarray(array)
    plain = kind if kind.dtype in (np.float32, np.float64) else kind.astype(np.float32)
    return widen(name, torch.from_numpy(np.array(plain, order="C")))


def _required(name: str, array: Any) -> Tensor:
    tensor: Tensor | None = _weight(name, array)
    if tensor is None:
        raise UserError(f"{name}: its weights are computed, but must be given; {AGAIN} with weights as constants")
    return tensor


def _gemm(name: str, given: Mapping[str, Any], size: tuple[int, ...]) -> Iterator[Step]:
    weight, bias = given["alpha"] * _required(name, given["B"]), _weight(name, given.get("C"))
    if given["transA"] or len(size) != 1:
        raise UserError(f"{name}: a linear layer on inputs of shape {list(size)}, transA={given['transA']}")
    weight = (weight if given["transB"] else weight.T).contiguous()
    shift = None if bias is None else vector(name, given["beta"] * bias, (len(weight),))
    yield Affine(name, weight, shift)


def _matmul(name: str, given: Mapping[str, Any], size: tuple[int, ...]) -> Iterator[Step]:
    weight = _required(name, given["B"])
    if weight.ndim != 2 or len(size) != 1:
        raise UserError(f"{name}: a product of values {list(size)} with a tensor {list(weight.shape)} is not a layer")
    yield Affine(name, weight.T.contiguous(), None)


def _add(name: str, given: Mapping[str, Any], size: tuple[int, ...]) -> Iterator[Step]:
    other = given["A"] if given["B"] is None else given["B"]
    yield Shift(name, vector(name, _required(name, other), size))


def _pads(name: str, given: Mapping[str, Any], size: tuple[int, ...], kernel: list[int]) -> list[tuple[int, int]]:
    """Padding before and after, of height and width."""
    auto, line = given["auto_pad"], len(size) == 2
    if auto == "NOTSET":
        pads = list(given.get("pads") or [0] * (2 * len(kernel)))
        found = list(zip(pads[: len(kernel)], pads[len(kernel) :], strict=True))
    else:
        strides, dilations = (given.get(key) or [1] * len(kernel) for key in ("strides", "dilations"))
        found = []
        for side, k, by, apart in zip(size[1:], kernel, strides, dilations, strict=True):
            total = max(0, (-(-side // by) - 1) * by + (k - 1) * apart + 1 - side) if auto != "VALID" else 0
            small, large = total // 2, total - total // 2
            found.append((small, large) if auto == "SAME_UPPER" else (large, small))
    if any(each < 0 for both in found for each in both):
        raise UserError(f"{name}: negative padding {found} is not supported")
    return [(0, 0), *found] if line else found


def _conv(name: str, given: Mapping[str, Any], size: tuple[int, ...]) -> Iterator[Step]:
    weight, line = _required(name, given["W"]), len(size) == 2
    if weight.ndim != len(size) + 1 or len(size) > 3:
        raise UserError(f"{name}: a convolution of {weight.ndim - 2} dimensions on inputs of shape {list(size)}")
    kernel = list(weight.shape[2:])
    ones = [1] * len(kernel)
    stride, dilation = (sides(given.get(key) or ones, line, 1) for key in ("strides", "dilations"))
    pads = _pads(name, given, size, kernel)
    weight = weight.unsqueeze(2) if line else weight
    window = Window(stride, dilation, pads, given["group"])
    yield convolution(name, weight, _weight(name, given.get("B")), window, size)


def _batch_norm(name: str, given: Mapping[str, Any], size: tuple[int, ...]) -> Iterator[Step]:
    if given.get("training_mode"):
        raise UserError(f"{name}: BatchNorm in training mode depends on the batch; {AGAIN} in evaluation mode")
    mean, variance = given.get("input_mean", given.get("mean")), given.get("input_var", given.get("var"))
    parts = [_required(name, part) for part in (mean, variance, given["scale"], given["B"])]
    yield normalisation(name, parts, given["epsilon"])


def _dropout(name: str, given: Mapping[str, Any], size: tuple[int, ...]) -> Iterator[Step]:
    if given.get("training_mode") is not None and np.any(given["training_mode"]):
        raise UserError(f"{name}: Dropout in training mode makes outputs random; {AGAIN} in evaluation mode")
    yield from ()


def _activation(slope: float | None) -> Read:
    def read(name: str, given: Mapping[str, Any], size: tuple[int, ...]) -> Iterator[Step]:
        yield Activate(name, round(float(given["alpha"]), 9) if slope is None else slope)

    return read


def _clip(name: str, given: Mapping[str, Any], size: tuple[int, ...]) -> Iterator[Step]:
    low, high = (None if given.get(key) is None else float(given[key]) for key in ("min", "max"))
    # Before opset 11 the bounds are attributes, whose defaults are the largest numbers of float32.
    unbounded = high is None or high >= float(np.finfo(np.float32).max)
    if low != 0 or not unbounded:
        raise UserError(f"{name}: clipping is supported only as ReLU, from 0 up, got {low} to {high}")
    yield Activate(name, 0.0)


def _pad(name: str, given: Mapping[str, Any], size: tuple[int, ...]) -> Iterator[Step]:
    mode, value = given.get("mode") or "constant", given.get("constant_value", given.get("value"))
    if mode != "constant" or (value is not None and np.any(value)):
        raise UserError(f"{name}: padding is supported only with zeros, got the mode {mode} and the value {value}")
    if given.get("pads") is None:
        raise UserError(f"{name}: its padding is computed, but must be given; {AGAIN} with fixed sizes")
    pads, axes = [int(each) for each in given["pads"]], given.get("axes")
    both = list(zip(pads[: len(pads) // 2], pads[len(pads) // 2 :], strict=True))
    every = [(0, 0)] * (len(size) + 1)
    for axis, each in zip(range(len(both)) if axes is None else axes, both, strict=True):
        every[int(axis)] = each
    yield zero_padding(name, every, size)


def _pool(kind: Literal["max", "average"]) -> Read:
    def read(name: str, given: Mapping[str, Any], size: tuple[int, ...]) -> Iterator[Step]:
        line, kernel = len(size) == 2, list(given["kernel_shape"])
        if any(each != 1 for each in given.get("dilations") or ()):
            raise UserError(f"{name}: dilated pooling is not supported")
        pads = _pads(name, given, size, kernel)
        if any(before != after for before, after in pads):
            raise UserError(f"{name}: pooling with the padding {pads}, which is not symmetric, is not supported")
        stride = sides(given.get("strides") or [1] * len(kernel), line, 1)
        pool = Pool(kind, sides(kernel, line, 1), stride, (pads[0][0], pads[1][0]))
        yield pooling(name, pool, size, bool(given.get("ceil_mode")), kind == "max" or bool(given["count_include_pad"]))

    return read


def _global(kind: Literal["max", "average"]) -> Read:
    def read(name: str, given: Mapping[str, Any], size: tuple[int, ...]) -> Iterator[Step]:
        yield overall(name, kind, range(2, len(size) + 1), size)

    return read


def _reduce(kind: Literal["max", "average"]) -> Read:
    """Mean or maximum over all positions of a map."""

    def read(name: str, given: Mapping[str, Any], size: tuple[int, ...]) -> Iterator[Step]:
        axes = given.get("axes")
        yield overall(name, kind, None if axes is None else [int(axis) for axis in axes], size)

    return read


READERS: dict[str, Read] = {
    "Gemm": _gemm,
    "MatMul": _matmul,
    "Add": _add,
    "Conv": _conv,
    "BatchNormalization": _batch_norm,
    "Dropout": _dropout,
    "Relu": _activation(0.0),
    "LeakyRelu": _activation(None),
    "Abs": _activation(-1.0),
    "Clip": _clip,
    "Pad": _pad,
    "MaxPool": _pool("max"),
    "AveragePool": _pool("average"),
    "GlobalMaxPool": _global("max"),
    "GlobalAveragePool": _global("average"),
    "ReduceMax": _reduce("max"),
    "ReduceMean": _reduce("average"),
}
