"""Modules of PyTorch reduced to some nodes of their hidden layers, of the class that they had."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from understudy._errors import UserError
from understudy.nets.graphs.agreement import require_equal
from understudy.nets.population import Population

_Affine = nn.Linear | nn.Conv1d | nn.Conv2d


class SmallerModule(NamedTuple):
    """A module with the nodes that were kept."""

    module: nn.Module
    note: str
    """Reason why the result is not of the given class; empty if it is."""


class _Layer(NamedTuple):
    """A layer of a module, with the normalisations that follow it before the next layer."""

    name: str
    affine: _Affine
    norms: list[_BatchNorm]


def smaller_module(
    module: nn.Module, network: Population, kept: Sequence[Int[Tensor, "_"]], x: Tensor, refitted: bool
) -> SmallerModule:
    """Reduce a copy of a module to some nodes of its hidden layers, or convert the smaller network where that fails.

    The copy has smaller `nn.Linear`, `nn.Conv1d`, `nn.Conv2d` and BatchNorm parts in the same places, and the
    precision, device and mode of the module. Its outputs are compared with those of the smaller network.

    Args:
        module: The module.
        network: The network with the kept nodes only, converted from the module.
        kept: Indices of the kept nodes per hidden layer.
        x: Samples in the shape that the module takes.
        refitted: Whether the output layer of the network was fitted again.

    Returns:
        A module of the same class; or, where its code or its parts do not allow that, the network as `nn.Sequential`
        with the reason.
    """
    try:
        return SmallerModule(_reduced(module, network, kept, x, refitted), "")
    except UserError as error:
        return SmallerModule(network.to_module(), str(error))
    except Exception as error:  # of many kinds: whatever the module's own code raises
        lines = str(error).strip().splitlines() or [type(error).__name__]
        return SmallerModule(network.to_module(), f"{type(module).__name__} fails with fewer nodes: {lines[0][:200]}")


@torch.no_grad()
def _reduced(module: nn.Module, network: Population, kept: Sequence[Tensor], x: Tensor, refitted: bool) -> nn.Module:
    like = next(module.parameters())
    x = x.to(like.device, like.dtype)
    copy = deepcopy(module).eval()
    layers = _layers(copy, x)
    if len(layers) != len(network.layers):
        raise UserError(
            f"{type(module).__name__} computes {len(network.layers)} layers, but calls {len(layers)} modules of "
            "nn.Linear and nn.Conv: others are computed by functions"
        )
    below = None
    for layer, stay in zip(layers, [*kept, None], strict=True):
        below = _reduce(layer, below, stay)
    if refitted:
        _refit(layers[-1], network)
    require_equal(network.to(like.device), copy, [x], type(module).__name__)
    for ours, theirs in zip(copy.modules(), module.modules(), strict=True):
        ours.training = theirs.training
    return copy


def _layers(module: nn.Module, x: Tensor) -> list[_Layer]:
    """The layers in the order in which the module calls them."""
    called: list[tuple[str, nn.Module]] = []
    parts = {part: name for name, part in module.named_modules() if isinstance(part, _Affine | _BatchNorm)}
    hooks = [part.register_forward_hook(lambda part, *_: called.append((parts[part], part))) for part in parts]
    try:
        module(x)
    finally:
        for hook in hooks:
            hook.remove()
    layers: list[_Layer] = []
    for name, part in called:
        if sum(each is part for _, each in called) > 1:
            raise UserError(f"{name} is used more than once")
        if isinstance(part, _Affine):
            layers.append(_Layer(name, part, []))
        elif isinstance(part, _BatchNorm):
            layers[-1].norms.append(part)
    return layers


def _reduce(layer: _Layer, below: tuple[int, Tensor] | None, stay: Tensor | None) -> tuple[int, Tensor] | None:
    """Reduce a layer to the nodes that stay, and its inputs to those that stayed below; return these for the next."""
    name, part, norms = layer
    own = part._parameters.get("weight")
    if own is None:
        raise UserError(f"{name} computes its weights from others, as weight_norm does; remove that first")
    if getattr(part, "groups", 1) != 1:
        raise UserError(f"{name} is a convolution in {part.groups} groups, which must keep their sizes")
    weight, nodes = own.detach(), own.shape[0]
    if below is not None:
        before, stayed = below
        # A linear layer above a convolution reads the positions of each channel one after the other.
        weight = weight.unflatten(1, (before, -1))[:, stayed.to(weight.device)].flatten(1, 2)
    inputs = "in_features" if isinstance(part, nn.Linear) else "in_channels"
    setattr(part, inputs, weight.shape[1])
    _set(part, "weight", weight)
    if stay is None:
        return None
    for each in (part, *norms):
        for parameter in ("weight", "bias", "running_mean", "running_var"):
            tensor = getattr(each, parameter, None)
            if tensor is not None:
                _set(each, parameter, tensor[stay.to(tensor.device)])
    for norm in norms:
        norm.num_features = len(stay)
    setattr(part, "out" + inputs.removeprefix("in"), len(stay))
    return nodes, stay


def _refit(layer: _Layer, network: Population) -> None:
    """Give the output layer the weights of the network."""
    if layer.norms:
        raise UserError(f"{layer.name} is followed by BatchNorm, which has no place in output weights fitted again")
    part = layer.affine
    for name, tensor in network.layers[-1]._asdict().items():
        if tensor is not None:
            _set(part, name, tensor[0].to(part.weight.device, part.weight.dtype))


def _set(part: nn.Module, name: str, tensor: Tensor) -> None:
    """Replace a parameter or a buffer by a copy of a tensor."""
    copy = tensor.detach().clone(memory_format=torch.contiguous_format)
    if name in part._buffers:
        setattr(part, name, copy)
        return
    before = part._parameters.get(name)
    setattr(part, name, nn.Parameter(copy, before.requires_grad if before is not None else True))
