"""Named tensors as a network: stacks of fully connected layers or convolutions, with BatchNorm or without.

Names say which tensors belong together. Whatever is not such a stack is refused in words.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from understudy.errors import UserError
from understudy.nets.norm import Norm
from understudy.nets.population import Layer
from understudy.nets.shape import Convolution, Shape

SAVE_STATE = "save the state dict: torch.save(model.state_dict(), path)"
_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_TORCHS, _OURS = ("running_mean", "running_var", "weight", "bias"), ("mean", "variance", "scale", "shift")
"""Under which names a BatchNorm keeps the parts of a `Norm`."""
_COUNT = "num_batches_tracked"


class Contents(NamedTuple):
    """The tensors of a file in its order, and what the file says about them."""

    tensors: dict[str, Tensor]
    slope: float | None = None
    image: tuple[int, int] | None = None
    norm_first: bool | None = None
    ours: bool = False  # only our own files may stack networks: elsewhere a 3-D weight is a convolution of one axis
    in_order: bool = True  # safetensors are sorted by name, which says nothing about the order of layers
    convolutions: tuple[Convolution, ...] | None = None

    @property
    def norm_names(self) -> tuple[str, ...]:
        return _OURS if self.ours else _TORCHS


class NamedLayer(NamedTuple):
    """A layer under the name that the file gives it."""

    name: str
    weight: Tensor
    bias: Tensor | None

    @property
    def kernel(self) -> int:
        """Axes of the kernel: 2 for a convolution."""
        return 2 if self.weight.ndim > 3 else 0

    @property
    def sizes(self) -> tuple[int, int]:
        """Nodes in, nodes out."""
        *_, out, into = self.weight.shape[: self.weight.ndim - self.kernel]
        return into, out

    @property
    def networks(self) -> tuple[int, ...]:
        """How many are stacked, where there are several."""
        return tuple(self.weight.shape[: -2 - self.kernel])

    def __str__(self) -> str:
        return f"'{tensor_name(self.name, 'weight')}' {_size(self.weight)}"


class NamedNorm(NamedTuple):
    """A BatchNorm under the name that the file gives it."""

    name: str
    norm: Norm

    @property
    def sizes(self) -> tuple[int, int]:
        """Nodes in, nodes out."""
        return self.norm.mean.shape[-1], self.norm.mean.shape[-1]

    @property
    def networks(self) -> tuple[int, ...]:
        """How many are stacked, where there are several."""
        return tuple(self.norm.mean.shape[:-1])

    def __str__(self) -> str:
        return f"'{self.name}' of {self.sizes[0]} nodes"


Item = NamedLayer | NamedNorm


def named(file: Path, contents: Contents) -> list[Item]:
    """Layers and BatchNorms in the order of the file, each tensor checked by itself and against its neighbours."""
    tensors, normed = contents.tensors, norm_stems(contents)
    weights = [stem for stem, part in map(_parts, tensors) if part == "weight" and stem not in normed]
    for name in tensors:
        stem, part = _parts(name)
        if part not in ((*contents.norm_names, _COUNT) if stem in normed else ("weight", "bias")):
            raise UserError(
                f"{file}: the tensor '{name}' {_size(tensors[name])} belongs to no fully connected layer, 3 × 3 "
                "convolution or BatchNorm, of which only '*.weight' and '*.bias' and running statistics are read; "
                "remove it or fold it into the layers beside it."
            )
    if not weights:
        raise UserError(
            f"{file}: no weights were found among its {len(tensors)} tensors, but at least one '*.weight' is needed; "
            f"{SAVE_STATE}."
        )
    for name in tensors:
        if _parts(name)[0] not in (*weights, *normed):
            raise UserError(f"{file}: the bias '{name}' has no weight beside it; remove it, or save its layer whole.")
    stems = dict.fromkeys(_parts(name)[0] for name in tensors)
    return [read_norm(file, stem, contents) if stem in normed else _layer(file, stem, contents) for stem in stems]


def norm_stems(contents: Contents) -> list[str]:
    """What has running statistics is a BatchNorm."""
    statistics = contents.norm_names[:2]
    return list(dict.fromkeys(stem for stem, part in map(_parts, contents.tensors) if part in statistics))


def _layer(file: Path, stem: str, contents: Contents) -> NamedLayer:
    name, bias_name = tensor_name(stem, "weight"), tensor_name(stem, "bias")
    weight, bias = contents.tensors[name], contents.tensors.get(bias_name)
    allowed = (2, 3, 4, 5) if contents.ours else (2, 4)
    kernels = {(look.kernel, look.kernel) for look in contents.convolutions or (Convolution(),)}
    if weight.ndim not in allowed or not weight.numel() or (weight.ndim > 3 and weight.shape[-2:] not in kernels):
        raise UserError(
            f"{file}: the weight '{name}' has shape {_size(weight)}, but a layer is a 2-D matrix (out, in) or a 3 × 3 "
            "convolution (out, in, 3, 3), of at least one number; other kernels are read where strides and paddings "
            "are given, load(path, image=…, convolutions=…), and other layers are not, so rewrite the network in these."
        )
    layer = NamedLayer(stem, weight, bias)
    nodes = (*layer.networks, layer.sizes[1])
    if bias is not None and tuple(bias.shape) != nodes:
        raise UserError(
            f"{file}: the bias '{bias_name}' has shape {_size(bias)}, but the weight '{name}' {_size(weight)} needs "
            f"{nodes}; save the layer again."
        )
    return NamedLayer(stem, _numbers(file, name, weight), None if bias is None else _numbers(file, bias_name, bias))


def read_norm(file: Path, stem: str, contents: Contents) -> NamedNorm:
    """The BatchNorm of that name, its parts checked by themselves and against each other."""
    names = [tensor_name(stem, part) for part in contents.norm_names]
    parts = [contents.tensors.get(name) for name in names]
    for (name, part), (other, beside) in itertools.permutations(zip(names, parts, strict=True), 2):
        together = {name, other} in ({*names[:2]}, {*names[2:]})
        if part is None and beside is not None and together:
            raise UserError(f"{file}: the BatchNorm '{stem}' has '{other}' and no '{name}'; save the layer whole.")
        if part is not None and beside is not None and (part.shape != beside.shape or not part.numel()):
            raise UserError(
                f"{file}: '{name}' {_size(part)} and '{other}' {_size(beside)} belong to one BatchNorm and must be of "
                "one shape, a number a node; save the layer again."
            )
    mean, variance, scale, shift = (
        None if part is None else _numbers(file, name, part) for name, part in zip(names, parts, strict=True)
    )
    assert mean is not None and variance is not None
    if mean.ndim not in ((1, 2) if contents.ours else (1,)):
        raise UserError(f"{file}: '{names[0]}' is {_size(mean)}, but a BatchNorm has one number a node; save it again.")
    if (variance < 0).any():
        raise UserError(f"{file}: '{names[1]}' holds variances below 0; save the network again.")
    return NamedNorm(stem, Norm(mean, variance, scale, shift))


def _numbers(file: Path, name: str, tensor: Tensor) -> Tensor:
    """Finite numbers of float32 or float64 in memory of their own."""
    if tensor.dtype not in _FLOATS or tensor.layout != torch.strided or tensor.is_meta:
        given, remedy = (
            (word(tensor.dtype), "float") if tensor.dtype not in _FLOATS else ("sparse or absent", "to_dense")
        )
        raise UserError(
            f"{file}: the tensor '{name}' holds {given} numbers, but {', '.join(map(word, _FLOATS))} are read; "
            f"convert it, for example with tensor.{remedy}(), and save again."
        )
    wide = tensor.detach().to(torch.promote_types(tensor.dtype, torch.float32))
    bad = wide.numel() - int(torch.isfinite(wide).sum())
    if bad:
        raise UserError(
            f"{file}: the tensor '{name}' holds {bad} of {wide.numel()} numbers that are NaN or infinite, but all must "
            "be finite; save the network from before it diverged."
        )
    return wide.clone(memory_format=torch.contiguous_format)


def image_of(
    file: Path,
    layers: Sequence[NamedLayer],
    given: tuple[int, int] | None,
    looks: tuple[Convolution, ...] | None = None,
) -> tuple[int, int] | None:
    """Height and width of the inputs of convolutions, from what their last feature map must be."""
    *convolutions, last = (layer for i, layer in enumerate(layers) if looks is None or i <= len(looks))
    if given is not None and len(given) != 2:
        raise UserError(f"{file}: the image {given} was given, but it is (height, width); give these two.")
    if not layers[0].kernel:
        if given is not None:
            raise UserError(f"{file}: the image {given} was given, but the network has no convolution; leave it out.")
        return None
    channels, off = convolutions[-1].sizes[1], 2 * len(convolutions)
    area = last.sizes[0] // channels
    if looks is not None:
        if given is None:
            raise UserError(f"{file}: say the height and width of the inputs too: load(path, image=(height, width)).")
        sizes = (layers[0].sizes[0], *(layer.sizes[1] for layer in layers))
        try:
            left = Shape(sizes, image=given, convolutions=looks).maps[-1]
        except UserError as error:
            raise UserError(f"{file}: {error}.") from None
        if math.prod(left) != area:
            raise UserError(
                f"{file}: the convolutions given leave {left[0]} × {left[1]} of images of {given[0]} × {given[1]}, but "
                f"the layer {last} takes {area} numbers of each of {channels} channels; give the kernels, strides and "
                "paddings that the network was made with."
            )
        return given
    side = math.isqrt(area)
    height, width = given or (side + off, side + off)
    if given is None and side * side != area:
        raise UserError(
            f"{file}: the last layer {last} takes {area} numbers of each of {channels} channels, which is no square "
            "map; say the height and width of the inputs: load(path, image=(height, width))."
        )
    if min(height, width) <= off or (height - off) * (width - off) != area:
        raise UserError(
            f"{file}: after {len(convolutions)} convolutions, each of which takes two pixels off height and width, "
            f"images of {height} × {width} leave {max(0, height - off)} × {max(0, width - off)}, but the last layer "
            f"{last} takes {area} numbers of each of {channels} channels; give the size that the network was made "
            "for. Padding, strides and pooling cannot be read."
        )
    return height, width


def stacked(layers: Sequence[NamedLayer], norms: Sequence[NamedNorm]) -> tuple[tuple[Layer, ...], tuple[Norm, ...]]:
    """With an axis of networks, of one precision, and all with a bias, or a scale and a shift, if any has one."""
    biased, affine = any(layer.bias is not None for layer in layers), any(norm.norm.scale is not None for norm in norms)
    tensors = [*itertools.chain(*(layer[1:] for layer in layers), *(norm.norm for norm in norms))]
    double = any(t is not None and t.dtype == torch.float64 for t in tensors)

    def whole(tensor: Tensor) -> Tensor:
        return (tensor if layers[0].networks else tensor.unsqueeze(0)).to(torch.float64 if double else torch.float32)

    made = []
    for layer in layers:
        bias = layer.weight.new_zeros(*layer.networks, layer.sizes[1]) if layer.bias is None and biased else layer.bias
        made.append(Layer(whole(layer.weight), None if bias is None else whole(bias)))
    evened = []
    for _, (mean, variance, scale, shift) in norms:
        if affine and (scale is None or shift is None):
            scale, shift = torch.ones_like(mean), torch.zeros_like(mean)
        parts = None if scale is None else whole(scale), None if shift is None else whole(shift)
        evened.append(Norm(whole(mean), whole(variance), *parts))
    return tuple(made), tuple(evened)


def _parts(name: str) -> tuple[str, str]:
    """Of 'features.0.weight' the layer 'features.0' and its part 'weight'."""
    stem, _, part = name.rpartition(".")
    return stem, part


def tensor_name(stem: str, part: str) -> str:
    """The name of a layer's part."""
    return f"{stem}.{part}" if stem else part


def _size(tensor: Tensor) -> str:
    return str(tuple(tensor.shape))


def word(dtype: torch.dtype) -> str:
    """A dtype in words."""
    return str(dtype).removeprefix("torch.")
