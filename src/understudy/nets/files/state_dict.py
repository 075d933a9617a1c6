"""Parse named tensors as layers: fully connected ones, convolutions and BatchNorm.

Names show which tensors belong to one layer. Anything else is rejected with a message.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from understudy._errors import UserError
from understudy._reading import require_plain_names
from understudy.nets.files.stated import Unstated
from understudy.nets.norm import Norm
from understudy.nets.population import Layer, dtype_name
from understudy.nets.shape import Convolution

SAVE_STATE = "save the state dict: torch.save(model.state_dict(), path)"
OTHERWISE = (
    "for other networks name the class that made them, --model FILE.py:Class (in Python model='FILE.py:Class'), or "
    "compare modules of any kind with us.align(teacher, student, data)"
)
_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_TORCHS, _OURS = ("running_mean", "running_var", "weight", "bias"), ("mean", "variance", "scale", "shift")
"""Names of the parts of a `Norm` in state dicts of torch, and in our own files."""
_COUNT = "num_batches_tracked"
_UNLIKE_A_STACK = {
    "a skip": r"down_?sample|short_?cut|skip|(?<![a-z])res(idual|_?net|_?block|_?unit|_?layer|_|\d|\.|$)|"
    r"(?<![a-z])layer\d+\.\d+\.conv\d",
    "a branch": r"branch|(?<![a-z])(actor|critic|aux(iliary)?)(?![a-z])",
    "attention": r"attn|attention|(?<![a-z])(q|k|v|qkv)_?(proj|lin)|(?<![a-z])(query|key|value)(?![a-z])",
    "an embedding": r"(?<![a-z])emb(ed.*)?(?![a-z])|(?<![a-z])w[tp]e(?![a-z])",
    "a transposed convolution": r"deconv|transpose|up_?conv",
}
"""Names that suggest something that a stack of layers does not have."""


class Contents(NamedTuple):
    """Tensors of a file, in its order, and what the file states about them."""

    tensors: dict[str, Tensor]
    slope: float | None = None
    image: tuple[int, int] | None = None
    norm_first: bool | None = None
    ours: bool = False  # written by `save`; only there is a 3-D weight a stack of networks, not a Conv1d
    in_order: bool = True  # whether the file keeps the order of layers; safetensors sort by name
    convolutions: tuple[Convolution, ...] | None = None
    key: str | None = None  # where in a checkpoint the tensors are
    others: tuple[str, ...] = ()  # where in it those of other networks are

    @property
    def norm_names(self) -> tuple[str, ...]:
        return _OURS if self.ours else _TORCHS


class NamedLayer(NamedTuple):
    """Layer with its name in the file."""

    name: str
    weight: Tensor
    bias: Tensor | None

    @property
    def kernel(self) -> int:
        """Number of kernel axes: 2 for a convolution, else 0."""
        return 2 if self.weight.ndim > 3 else 0

    @property
    def kernel_size(self) -> tuple[int, int]:
        """Height and width of the kernel of a convolution."""
        return self.weight.shape[-2], self.weight.shape[-1]

    @property
    def sizes(self) -> tuple[int, int]:
        """Nodes in, nodes out."""
        *_, out, into = self.weight.shape[: self.weight.ndim - self.kernel]
        return into, out

    @property
    def networks(self) -> tuple[int, ...]:
        """The network axis of a stack; empty for a single network."""
        return tuple(self.weight.shape[: -2 - self.kernel])

    def __str__(self) -> str:
        return f"'{tensor_name(self.name, 'weight')}' {_size(self.weight)}"


class NamedNorm(NamedTuple):
    """BatchNorm with its name in the file."""

    name: str
    norm: Norm

    @property
    def sizes(self) -> tuple[int, int]:
        """Nodes in, nodes out."""
        return self.norm.mean.shape[-1], self.norm.mean.shape[-1]

    @property
    def networks(self) -> tuple[int, ...]:
        """The network axis of a stack; empty for a single network."""
        return tuple(self.norm.mean.shape[:-1])

    def __str__(self) -> str:
        return f"'{self.name}' of {self.sizes[0]} nodes"


Item = NamedLayer | NamedNorm


def read_items(file: Path, contents: Contents, *, stack: bool = False) -> list[Item]:
    """Parse layers and BatchNorms, in the order of the file; validate each tensor and that those of a layer fit.

    Args:
        file: The file, for messages.
        contents: Its tensors.
        stack: Whether it is known that the layers are a stack, so that their names need not suggest one.

    Returns:
        The layers and BatchNorms.

    Raises:
        UserError: A tensor that belongs to neither, or whose name suggests something that a stack does not have.
    """
    require_plain_names(file, contents.tensors)
    tensors, normed = contents.tensors, norm_stems(contents)
    weights = [stem for stem, part in map(_parts, tensors) if part == "weight" and stem not in normed]
    for name in tensors:
        stem, part = _parts(name)
        if part not in ((*contents.norm_names, _COUNT) if stem in normed else ("weight", "bias")):
            raise UserError(
                f"{file}: the tensor '{name}' {_size(tensors[name])} belongs to no fully connected layer, convolution "
                "or BatchNorm, of which only '*.weight', '*.bias' and running statistics are read, as stacks of these "
                f"layers have them; {OTHERWISE}."
            )
    if not weights:
        raise UserError(
            f"{file}: no weights among its {len(tensors)} tensors, at least one '*.weight' is needed; {SAVE_STATE}."
        )
    for name in tensors:
        if _parts(name)[0] not in (*weights, *normed):
            raise UserError(
                f"{file}: the bias '{name}' has no weight of the same layer; remove it, or save the complete layer."
            )
    stems = list(dict.fromkeys(_parts(name)[0] for name in tensors))
    found = [read_norm(file, stem, contents) if stem in normed else _read_layer(file, stem, contents) for stem in stems]
    if not (stack or contents.ours):
        _require_names_of_a_stack(file, weights)
    return found


def _require_names_of_a_stack(file: Path, stems: Sequence[str]) -> None:
    for stem, (what, pattern) in itertools.product(stems, _UNLIKE_A_STACK.items()):
        if re.search(pattern, stem.lower()):
            raise Unstated(
                f"{file}: the name of '{tensor_name(stem, 'weight')}' suggests {what}, but only stacks of layers are "
                "read from tensors alone",
                f"{OTHERWISE}. If the layers do follow one another with nothing beside them, name all of them from the "
                "inputs to the outputs, --order NAME,NAME,… (in Python order=[…])",
                "order",
            )


def norm_stems(contents: Contents) -> list[str]:
    """Names of the BatchNorms: everything that has running statistics."""
    statistics = contents.norm_names[:2]
    return list(dict.fromkeys(stem for stem, part in map(_parts, contents.tensors) if part in statistics))


def _read_layer(file: Path, stem: str, contents: Contents) -> NamedLayer:
    name, bias_name = tensor_name(stem, "weight"), tensor_name(stem, "bias")
    weight, bias = contents.tensors[name], contents.tensors.get(bias_name)
    if weight.ndim == 1:
        raise UserError(
            f"{file}: the tensor '{name}' {_size(weight)} has one number per node, as in LayerNorm, PReLU, or "
            "BatchNorm without running statistics, which stacks of layers that are read from tensors alone do not "
            f"have; {OTHERWISE}."
        )
    if weight.ndim not in ((2, 3, 4, 5) if contents.ours else (2, 4)) or not weight.numel():
        raise UserError(
            f"{file}: the weight '{name}' has shape {_size(weight)}, but a layer is a non-empty 2-D matrix (out, in) "
            f"or convolution (out, in, height, width); {OTHERWISE}."
        )
    layer = NamedLayer(stem, weight, bias)
    nodes = (*layer.networks, layer.sizes[1])
    if bias is not None and tuple(bias.shape) != nodes:
        raise UserError(
            f"{file}: the bias '{bias_name}' must have shape {nodes} to fit the weight '{name}' {_size(weight)}, got "
            f"{_size(bias)}; save the layer again."
        )
    return NamedLayer(stem, _numbers(file, name, weight), None if bias is None else _numbers(file, bias_name, bias))


def read_norm(file: Path, stem: str, contents: Contents) -> NamedNorm:
    """Parse the BatchNorm of that name; validate its parts and that they fit together."""
    names = [tensor_name(stem, part) for part in contents.norm_names]
    parts = [contents.tensors.get(name) for name in names]
    for (name, part), (other, beside) in itertools.permutations(zip(names, parts, strict=True), 2):
        together = {name, other} in ({*names[:2]}, {*names[2:]})
        if part is None and beside is not None and together:
            raise UserError(f"{file}: the BatchNorm '{stem}' has '{other}' but no '{name}'; save the complete layer.")
        if part is not None and beside is not None and (part.shape != beside.shape or not part.numel()):
            raise UserError(
                f"{file}: '{name}' {_size(part)} and '{other}' {_size(beside)} belong to one BatchNorm and must have "
                "one shape, one number per node; save the layer again."
            )
    mean, variance, scale, shift = (
        None if part is None else _numbers(file, name, part) for name, part in zip(names, parts, strict=True)
    )
    assert mean is not None and variance is not None
    if mean.ndim not in ((1, 2) if contents.ours else (1,)):
        raise UserError(f"{file}: '{names[0]}' must have one number per node, got {_size(mean)}; save it again.")
    if (variance < 0).any():
        raise UserError(f"{file}: '{names[1]}' contains variances below 0; save the network again.")
    return NamedNorm(stem, Norm(mean, variance, scale, shift))


def _numbers(file: Path, name: str, tensor: Tensor) -> Tensor:
    """Copy a tensor to contiguous float32 or float64; reject other types and numbers that are not finite."""
    if tensor.dtype not in _FLOATS or tensor.layout != torch.strided or tensor.is_meta:
        given, remedy = (
            (dtype_name(tensor.dtype), "float") if tensor.dtype not in _FLOATS else ("sparse or absent", "to_dense")
        )
        raise UserError(
            f"{file}: the tensor '{name}' contains {given} numbers, but {', '.join(map(dtype_name, _FLOATS))} are "
            f"read; convert it, for example with tensor.{remedy}(), and save again."
        )
    wide = tensor.detach().to(torch.promote_types(tensor.dtype, torch.float32))
    bad = wide.numel() - int(torch.isfinite(wide).sum())
    if bad:
        raise UserError(
            f"{file}: {bad} of {wide.numel()} numbers of the tensor '{name}' are NaN or infinite; all must be finite, "
            "so use weights from before the network diverged."
        )
    return wide.clone(memory_format=torch.contiguous_format)


def stack_items(layers: Sequence[NamedLayer], norms: Sequence[NamedNorm]) -> tuple[tuple[Layer, ...], tuple[Norm, ...]]:
    """Convert to one precision with a network axis; if any layer has a bias (any norm an affine part), all get one."""
    biased, affine = any(layer.bias is not None for layer in layers), any(norm.norm.scale is not None for norm in norms)
    tensors = [*itertools.chain(*(layer[1:] for layer in layers), *(norm.norm for norm in norms))]
    double = any(t is not None and t.dtype == torch.float64 for t in tensors)

    def convert(tensor: Tensor) -> Tensor:
        return (tensor if layers[0].networks else tensor.unsqueeze(0)).to(torch.float64 if double else torch.float32)

    made = []
    for layer in layers:
        bias = layer.weight.new_zeros(*layer.networks, layer.sizes[1]) if layer.bias is None and biased else layer.bias
        made.append(Layer(convert(layer.weight), None if bias is None else convert(bias)))
    evened = []
    for _, (mean, variance, scale, shift) in norms:
        if affine and (scale is None or shift is None):
            scale, shift = torch.ones_like(mean), torch.zeros_like(mean)
        parts = None if scale is None else convert(scale), None if shift is None else convert(shift)
        evened.append(Norm(convert(mean), convert(variance), *parts))
    return tuple(made), tuple(evened)


def _parts(name: str) -> tuple[str, str]:
    """Split a tensor name: 'features.0.weight' into the layer 'features.0' and its part 'weight'."""
    stem, _, part = name.rpartition(".")
    return stem, part


def tensor_name(stem: str, part: str) -> str:
    """Tensor name of a part of a layer."""
    return f"{stem}.{part}" if stem else part


def _size(tensor: Tensor) -> str:
    return str(tuple(tensor.shape))
