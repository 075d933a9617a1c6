"""Calls of a module's submodules in one forward pass, and the choice of those whose outputs are compared."""

from __future__ import annotations

import difflib
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import activation, batchnorm, conv, dropout, instancenorm, pooling

from understudy._errors import UserError

CHANNELS = (conv._ConvNd, batchnorm._NormBase, instancenorm._InstanceNorm, nn.GroupNorm)
"""Modules whose outputs are [sample, channel, position …]."""
FEATURES = (nn.Linear, nn.LayerNorm, nn.RMSNorm, nn.Embedding, nn.RNNBase, nn.RNNCellBase, nn.MultiheadAttention)
"""Modules whose outputs are [sample, …, feature]."""
_NORMS = (batchnorm._NormBase, nn.GroupNorm, nn.LayerNorm, nn.RMSNorm)
_POOLS = tuple(
    kind for kind in vars(pooling).values() if isinstance(kind, type) and kind.__module__ == pooling.__name__
)
_PASSING = (nn.Identity, dropout._DropoutNd, nn.Flatten, nn.Unflatten, *_POOLS)
"""Modules that only pass on, rearrange or pool the nodes of their input."""
_SOURCE = "_understudy_call"
"""Attribute of a tensor: the call that returned it. It lives as long as the tensor, unlike an `id`."""


@dataclass(eq=False)
class Call:
    """A call of a submodule, in the order in which calls end."""

    module: str
    """Name of the submodule."""
    part: nn.Module
    number: int
    """1 for the first call of this submodule in a forward pass."""
    shape: tuple[int, ...]
    """Shape of its output; empty if that has no floating-point tensor."""
    axis: int
    """Axis of the nodes."""
    assumed: bool
    """Whether the axis is a guess from the number of axes."""
    source: Call | None
    """The call whose output is the input of this one."""
    time_major: bool
    """Whether its module takes [time, sample, feature]."""
    fed: tuple[int, ...]
    """Shape of its input; empty if that is not a tensor."""
    name: str = ""
    """Name of the submodule, with `#2` for the second of several calls."""
    sample: int | None = None
    """Axis of the samples; None if there is none."""
    inside: Call | None = None
    """The call within this one whose output this one returns."""


def floating(output: Any) -> Tensor | None:
    """First floating-point tensor of what a module returns: a tensor, or tuples, lists and dicts of them."""
    if isinstance(output, Tensor):
        return output if output.is_floating_point() else None
    parts = output.values() if isinstance(output, Mapping) else output if isinstance(output, tuple | list) else ()
    return next((found for part in parts if (found := floating(part)) is not None), None)


@contextmanager
def hooked(model: nn.Module, names: Sequence[str], hook: Callable[[str, nn.Module, Any, Any], None]) -> Iterator[None]:
    """Call `hook(name, module, inputs, output)` after each call of the named submodules.

    The fused kernels of attention layers, which do not call submodules, are switched off meanwhile.
    """
    parts = named_parts(model)
    fused = torch.backends.mha.get_fastpath_enabled()
    with ExitStack() as stack:
        stack.callback(torch.backends.mha.set_fastpath_enabled, fused)
        torch.backends.mha.set_fastpath_enabled(False)
        for name in names:

            def called(part: nn.Module, args: Any, kwargs: Any, output: Any, name: str = name) -> None:
                hook(name, part, (*args, *kwargs.values()), output)

            stack.callback(parts[name].register_forward_hook(called, with_kwargs=True).remove)
        yield


def named_parts(model: nn.Module) -> dict[str, nn.Module]:
    """Submodules by name, each once; the module itself, which comes first, has the name of its class."""
    named = dict(model.named_modules())
    root = type(model).__name__ + "()" * (type(model).__name__ in named)
    return {name or root: part for name, part in named.items()}


def trace(model: nn.Module, forward: Callable[[], object]) -> list[Call]:
    """Record which submodules a forward pass calls, and which output goes directly into which.

    Args:
        model: The module.
        forward: Runs it once.

    Returns:
        All calls, in the order in which they end.
    """
    calls: list[Call] = []
    numbers: dict[str, int] = {}
    labelled: list[weakref.ref[Tensor]] = []

    def record(name: str, part: nn.Module, inputs: Any, output: Any) -> None:
        numbers[name] = numbers.get(name, 0) + 1
        given, made = (next((v for v in inputs if isinstance(v, Tensor)), None)), floating(output)
        source = getattr(given, _SOURCE, None)
        shape = () if made is None else tuple(made.shape)
        inside = getattr(made, _SOURCE, None)
        axis, assumed = _axis(part, shape, inside, source, calls)
        time_major = getattr(part, "batch_first", True) is False
        fed = () if given is None else tuple(given.shape)
        call = Call(name, part, numbers[name], shape, axis, assumed, source, time_major, fed)
        # A module that works in place returns its input, whose label is that of a call before this one.
        if inside is not None and (part is model or inside.module.startswith(f"{name}.")):
            call.inside = inside
        calls.append(call)
        if made is not None:
            setattr(made, _SOURCE, source if isinstance(part, _PASSING) else call)
            labelled.append(weakref.ref(made))

    with hooked(model, list(named_parts(model)), record):
        forward()
    for tensor in labelled:  # an output may be a parameter, which stays
        if hasattr(tensor(), _SOURCE):
            delattr(tensor(), _SOURCE)
    for call in calls:
        call.name = call.module + f"#{call.number}" * (numbers[call.module] > 1)
    return calls


def _axis(
    part: nn.Module, shape: tuple[int, ...], inside: Call | None, source: Call | None, calls: Sequence[Call]
) -> tuple[int, bool]:
    """Axis of the nodes of an output: by the module, else as in the call that made it, fed it or has its shape."""
    last = len(shape) - 1
    if len(shape) < 3 or isinstance(part, FEATURES):
        return last, False
    if isinstance(part, CHANNELS):
        return 1, False
    same = next((call for call in reversed(calls) if call.shape == shape), None)
    for call in (inside, source, same):
        if call is not None and len(call.shape) == len(shape):
            return call.axis, call.assumed
    return (last if len(shape) == 3 else 1), True


def default_calls(calls: Sequence[Call]) -> tuple[list[Call], list[str]]:
    """Choose calls to compare: those of modules that call no others.

    Where one is applied directly to the output of another and keeps its shape, the activation of them is chosen, else
    the norm. Left out are modules that only pass on or pool their input, and modules with parameters that are called
    more than once.

    Args:
        calls: Calls of one forward pass.

    Returns:
        The chosen calls, and notes on what was left out.
    """
    names = {call.module for call in calls}
    root = calls[-1].module
    inner = {name for name in names if name != root and any(other.startswith(f"{name}.") for other in names)}
    inner |= {root} if len(names) > 1 else set()
    leaves = [c for c in calls if c.module not in inner and len(c.shape) > 1 and not isinstance(c.part, _PASSING)]
    repeated = {c.module for c in leaves if c.number > 1 and _rank(c.part) < 2}
    kept = [c for c in leaves if c.module not in repeated]
    worse = set()
    for call in kept:
        if call.source is not None and call.source.shape == call.shape and _rank(call.part):
            worse.add(min(call, call.source, key=lambda c: _rank(c.part)))
    chosen = [call for call in kept if call not in worse]
    notes = [f"{', '.join(sorted(repeated))}: left out, called more than once"] if repeated else []
    before = sum(_rank(call.part) < 2 for call in chosen[:-1])
    if before:
        notes.append(
            f"{before} of {len(chosen)} layers are recorded before any function, such as F.relu, of their output"
        )
    return chosen, notes


def _rank(part: nn.Module) -> int:
    """2 for activations (modules without parameters, and those of torch), 1 for norms, 0 for other layers."""
    known = type(part).__module__ == activation.__name__ and not isinstance(part, nn.MultiheadAttention)
    if isinstance(part, _NORMS):
        return 1
    return 2 if known or not any(True for _ in part.parameters()) else 0


def matching_calls(role: str, model: nn.Module, calls: Sequence[Call], patterns: Sequence[str]) -> list[Call]:
    """Choose calls by names or patterns such as `layer1.*`.

    Args:
        role: `teacher` or `student`, for errors.
        model: The module.
        calls: Calls of one forward pass.
        patterns: Names of submodules, with `*`, `?` and `[…]` as in file names; `#2` at the end is a second call.

    Returns:
        The calls that match, in the order of the forward pass.

    Raises:
        UserError: A pattern names a submodule that is not called, or is called several times.
    """
    numbers = {call.module: call.number for call in calls}
    chosen: set[int] = set()
    for pattern in patterns:
        found = [call for call in calls if fnmatchcase(call.name, pattern)]
        chosen |= {id(call) for call in found}
        if found:
            continue
        for name in (name for name in named_parts(model) if fnmatchcase(name, pattern)):
            if name not in numbers:
                raise UserError(
                    f"layers: {name!r} of the {role} is not called in its forward pass, so that it has no activations; "
                    f"choose among {_some(calls)}"
                )
            each = " and ".join(repr(f"{name}#{i + 1}") for i in range(min(numbers[name], 3)))
            raise UserError(
                f"layers: {name!r} of the {role} is called {numbers[name]} times in its forward pass; "
                f"choose calls by number, {each}, or all with {name + '#*'!r}"
            )
    picked = [call for call in calls if id(call) in chosen]
    for call in picked:
        if len(call.shape) < 2:
            raise UserError(
                f"layers: {call.name!r} of the {role} returns no floating-point tensor [sample, …]; "
                f"choose among {_some(calls)}"
            )
    return picked


def require_matches(patterns: Sequence[str], found: Mapping[str, Sequence[Call]], calls: Sequence[Call]) -> None:
    """Raise a `UserError` unless each pattern matches some network, and each network has a match.

    Args:
        patterns: Names or patterns.
        found: Calls that were chosen, by role.
        calls: All calls of these networks, to suggest names.
    """
    chosen = [call for each in found.values() for call in each]
    for pattern in patterns:
        if not any(fnmatchcase(call.name, pattern) for call in chosen):
            near = difflib.get_close_matches(pattern, {call.name for call in calls}, 3)
            hint = f"did you mean {' or '.join(map(repr, near))}? " if near else ""
            raise UserError(f"layers: no submodule matches {pattern!r}; {hint}there are {_some(calls)}")
    for role, each in found.items():
        if not each:
            raise UserError(
                f"layers: no submodule of the {role} matches {', '.join(map(repr, patterns))}; give each network its "
                "own with layers={'teacher': […], 'student': […]}"
            )


def _some(calls: Sequence[Call]) -> str:
    names = list(dict.fromkeys(call.name for call in calls if len(call.shape) > 1))
    return ", ".join(names[:12]) + f", … ({len(names)} in all)" * (len(names) > 12)
