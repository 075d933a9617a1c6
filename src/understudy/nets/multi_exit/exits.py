"""`us.exits`: exits on the layers of any module, which are then computed one after the other.

The module's own code is followed once by `torch.fx`; its operations are then run node by node, so that the computation
can stop at each exit and continue from there.
"""

from __future__ import annotations

import difflib
import inspect
import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, cast

import torch
from jaxtyping import Float
from torch import Tensor, fx, nn

from understudy._errors import UserError, first_line, kind_of
from understudy.nets.multi_exit.grid import SMALLEST, require_exit
from understudy.nets.multi_exit.msdnet import ExitHead, initialise

_VARIADIC = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD


class LinearHead(nn.Module):
    """Classifier of an exit on features that the paper's head does not suit: a linear layer.

    Args:
        shape: Shape of one image's features. Small maps [channel, row, column] are averaged over their places; features
            of other shapes are flattened.
        classes: Number of classes.
    """

    def __init__(self, shape: Sequence[int], classes: int) -> None:
        super().__init__()
        self.averaged = len(shape) == 3
        self.classifier = nn.Linear(shape[0] if self.averaged else torch.Size(shape).numel(), classes)

    def features(self, x: Float[Tensor, "image ..."]) -> Float[Tensor, "image ..."]:
        """The features themselves: there are no convolutions."""
        return x

    def forward(self, x: Float[Tensor, "image ..."]) -> Float[Tensor, "image class"]:
        """Logits of the classes."""
        return self.classifier(x.mean((2, 3)) if self.averaged else x.flatten(1))


class Trace(NamedTuple):
    """Operations of a module as `torch.fx` recorded them.

    Attributes:
        graph: The operations in the order in which they are computed.
        stops: Names of the nodes whose values are exits' features, in this order.
        final: Whether the module's own output is the last exit.
    """

    graph: fx.Graph
    stops: tuple[str, ...]
    final: bool


class MultiExit(nn.Module):
    """A module with exits; called with images, it returns the logits of every exit (exit, image, class).

    `exits` makes it.

    Args:
        body: The module that has the exits.
        heads: Classifier of each exit, without the module's own output.
        traces: Operations of the body in training mode and in evaluation mode.
        exit_names: Where each exit is.
        image_shape: Shape of one input.
        classes: Number of classes.
    """

    def __init__(
        self,
        body: nn.Module,
        heads: Sequence[nn.Module],
        *,
        traces: dict[bool, Trace],
        exit_names: tuple[str, ...],
        image_shape: tuple[int, ...],
        classes: int,
    ) -> None:
        super().__init__()
        self.body, self.exits = body, nn.ModuleList(heads)
        self.exit_names, self.image_shape, self.classes = exit_names, image_shape, classes
        self._traces = traces

    def forward(self, x: Float[Tensor, "image ..."]) -> Float[Tensor, "exit image class"]:
        """Logits of every exit."""
        return torch.stack(list(self.iterate(x)))

    def iterate(self, x: Float[Tensor, "image ..."], only: int | None = None) -> Iterator[Float[Tensor, "image class"]]:
        """Logits of one exit after the other; nothing beyond an exit is computed before the next is asked for.

        Args:
            x: The images.
            only: An exit, counted from 0: only its logits are computed, and nothing after it.

        Raises:
            UserError: There is no such exit.
        """
        require_exit(only, len(self.exit_names))
        for exit, features in enumerate(_run(self.body, self._traces[self.training], x)):
            if only is None or only == exit:
                yield self.exits[exit](_own(features)) if exit < len(self.exits) else features
            if only == exit:
                return

    def exit_features(self, x: Float[Tensor, "image ..."]) -> list[Float[Tensor, "image ..."]]:
        """Features of each exit's head, without the module's own output, which has no head.

        They are the outputs of the head's last convolution after BatchNorm and ReLU [image, feature, row, column], or,
        if the head has none, the features that it reads.

        Args:
            x: The images.
        """
        heads = cast(list[ExitHead | LinearHead], list(self.exits))
        found = zip(heads, _run(self.body, self._traces[self.training], x), strict=False)
        return [head.features(features.clone()) for head, features in found]


def _own(features: Tensor) -> Tensor:
    """A copy if a gradient may be needed: the body may change its features in place after a head has kept them."""
    return features.clone() if torch.is_grad_enabled() else features


def exits(
    module: nn.Module,
    at: Sequence[str | int],
    *,
    example: Tensor | Sequence[int],
    classes: int | None = None,
    final: bool = True,
    width: int = 128,
) -> MultiExit:
    """Put exits on the layers of a module, with the heads of MSDNet (Huang et al. 2018).

    A head is two 3×3 convolutions with stride 2, BatchNorm and ReLU, average pooling and a linear layer. Features with
    fewer than 4 rows or columns are averaged over their places, and features without rows and columns are flattened;
    these have the linear layer only. The module itself becomes part of the result, and is not copied.

    Args:
        module: The network. Its `forward` takes one tensor, and must not branch on values or sizes of tensors.
        at: Names of the layers whose outputs the exits read, as in `module.named_modules()`, or indices into an
            `nn.Sequential`; in the order in which they are computed.
        example: A batch of inputs, or the shape of one input (channels, rows, columns).
        classes: Number of classes. Default: that of the module's own output.
        final: Whether the module's own output [image, class] is the last exit.
        width: Channels of the convolutions of the heads.

    Returns:
        A module with new heads; `forward(x)` returns logits [exit, image, class], and `iterate(x)` computes one exit
        after the other.

    Raises:
        UserError: No exits, layers that do not exist, are not computed or are computed several times, exits out of
            order, a module that cannot be followed, or an output that does not fit.
    """
    if not isinstance(module, nn.Module):
        raise UserError(f"must be an nn.Module, got {kind_of(module)}", "module")
    for name, count in (("width", width), ("classes", 1 if classes is None else classes)):
        if type(count) is not int or count < 1:
            raise UserError(f"must be a whole number of at least 1, got {count!r}", name)
    names = _layer_names(module, at)
    traces = {training: _trace(module, names, final, training) for training in (True, False)}
    x = _example(module, example)
    with _mode(module, False), torch.no_grad():
        features = _evaluate(module, traces[False], x, names)
        _require_equal(module, x, names, features)
    found = _classes(features.pop() if final else None, classes, len(x))
    heads = [_head(each, found, width) for each in features]
    shown = (*names, "output") if final else tuple(names)
    made = MultiExit(module, heads, traces=traces, exit_names=shown, image_shape=tuple(x.shape[1:]), classes=found)
    made.training = module.training  # parts of the body keep their own modes, such as frozen BatchNorm
    made.exits.train(module.training)
    return made


def _layer_names(module: nn.Module, at: Sequence[str | int]) -> list[str]:
    """Names of the layers, all of which exist."""
    if isinstance(at, str | int):
        at = [at]
    wrong = [each for each in at if not isinstance(each, str | int)] if isinstance(at, Sequence) else [at]
    if wrong:
        raise UserError(f"must be names of layers or indices into an nn.Sequential, got {kind_of(wrong[0])}", "at")
    if not at:
        raise UserError("must name at least one layer, got none", "at")
    known = [name for name, _ in module.named_modules() if name]
    names = [_indexed(module, each) if isinstance(each, int) else each for each in at]
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, 3)
            advice = f"did you mean {', '.join(near)}?" if near else f"its layers are {_listed(known)}"
            raise UserError(f"must name layers of {type(module).__name__}, which has no {name!r}; {advice}", "at")
    return names


def _indexed(module: nn.Module, index: int) -> str:
    if not isinstance(module, nn.Sequential):
        raise UserError(
            f"must have names of layers for {type(module).__name__}, got the index {index}; indices are for "
            "nn.Sequential",
            "at",
        )
    children = [name for name, _ in module.named_children()]
    if not 0 <= index < len(children):
        raise UserError(f"must have indices from 0 to {len(children) - 1}, got {index}", "at")
    return children[index]


class _Tracer(fx.Tracer):
    """Record the operations of a module, and the values that its layers return."""

    def __init__(self) -> None:
        super().__init__()
        self.returned: dict[nn.Module, list[Any]] = {}

    def call_module(self, m: nn.Module, forward: Any, args: Any, kwargs: Any) -> Any:
        value = super().call_module(m, forward, args, kwargs)
        self.returned.setdefault(m, []).append(value)
        return value


def _trace(module: nn.Module, names: Sequence[str], final: bool, training: bool) -> Trace:
    """Follow a module in one mode, in which its code may compute something else than in the other."""
    tracer, inputs = _Tracer(), list(inspect.signature(module.forward).parameters.values())
    needed = [each.name for each in inputs if each.default is each.empty and each.kind not in _VARIADIC]
    if len(needed) > 1:
        raise UserError(
            f"must have a forward that takes one tensor, but that of {type(module).__name__} needs "
            f"{', '.join(needed)}; give the others defaults",
            "module",
        )
    given = {each.name: each.default for each in inputs[1:] if each.default is not each.empty}
    try:
        with _mode(module, training):
            graph = tracer.trace(module, given or None)
    except Exception as error:  # of many kinds, from the user's code
        raise UserError(
            f"{type(module).__name__} cannot be followed by torch.fx ({first_line(error)}); its forward must take one "
            "tensor, must not branch on values or sizes of tensors, and must not convert them to Python numbers"
        ) from error
    stops = [_stop(tracer, module, name) for name in names]
    order = {node: place for place, node in enumerate(graph.nodes)}
    pairs = list(zip(names, stops, strict=True))
    for (before, first), (name, node) in itertools.pairwise(pairs):
        if order[node] <= order[first]:
            why = "have the same output" if node is first else f"are computed in the order {name}, {before}"
            raise UserError(
                f"must be in the order in which layers are computed, each once, got {', '.join(names)}; {before} and "
                f"{name} {why}",
                "at",
            )
    *_, output = graph.nodes
    if final and stops[-1] in output.args:
        raise UserError(
            f"must name layers before the module's own output, which is the last exit already, but {names[-1]} returns "
            "that output; omit it, or give final=False and classes",
            "at",
        )
    return Trace(graph, tuple(node.name for node in stops), final)


def _stop(tracer: _Tracer, module: nn.Module, name: str) -> fx.Node:
    """The node whose value a layer returns."""
    values = tracer.returned.get(module.get_submodule(name), [])
    if len(values) > 1:
        raise UserError(
            f"must name layers that are computed once, but {name} is computed {len(values)} times; put the exit on a "
            "layer that contains it, or register a layer of its own for each call",
            "at",
        )
    if not values:
        parts = name.split(".")
        outer = [".".join(parts[:k]) for k in range(len(parts) - 1, 0, -1)]
        whole = [each for each in outer if module.get_submodule(each) in tracer.returned]
        why = f", or is inside {whole[0]}, which is computed as a whole; name that" if whole else "; name another"
        raise UserError(f"must name layers that are computed, but {name} is not called in the forward pass{why}", "at")
    if not isinstance(values[0], fx.Proxy):
        raise UserError(
            f"must name layers that return one tensor, but {name} returns a {type(values[0]).__name__}", "at"
        )
    return values[0].node


def _run(body: nn.Module, trace: Trace, x: Tensor) -> Iterator[Tensor]:
    """Yield the features of each exit as soon as they are computed; values that are no longer needed are freed."""
    interpreter = fx.Interpreter(body, graph=trace.graph)
    interpreter.args_iter = iter((x,))
    left = len(trace.stops) + trace.final
    for node in trace.graph.nodes:
        value = interpreter.env[node] = interpreter.run_node(node)
        if node.name in trace.stops or (trace.final and node.op == "output"):
            left -= 1
            yield value
            if not left:
                return
        del value
        for dead in interpreter.user_to_last_uses.get(node, []):
            del interpreter.env[dead]


def _evaluate(module: nn.Module, trace: Trace, x: Tensor, names: Sequence[str]) -> list[Tensor]:
    """Features of every exit on the example, copied before the module can change them."""
    features = list[Tensor]()
    try:
        for value in _run(module, trace, x.clone()):
            if not isinstance(value, Tensor) or value.ndim < 2 or len(value) != len(x):
                if len(features) == len(names):
                    raise UserError(
                        f"needs a module that returns logits [{len(x)}, classes] for {len(x)} inputs, but "
                        f"{type(module).__name__} returns {_shape(value)}; give final=False and classes",
                        "final",
                    )
                raise UserError(
                    f"must name layers that return a tensor with one row per input, but {names[len(features)]} "
                    f"returns {_shape(value)} for {len(x)} inputs; name another",
                    "at",
                )
            features.append(value.clone())
    except UserError:
        raise
    except Exception as error:  # of many kinds, from the user's code
        raise UserError(
            f"must be inputs that {type(module).__name__} takes, got a batch of shape {list(x.shape)} "
            f"({first_line(error)})",
            "example",
        ) from error
    return features


def _require_equal(module: nn.Module, x: Tensor, names: Sequence[str], recorded: Sequence[Tensor]) -> None:
    """Raise a `UserError` unless recorded operations compute what the layers, and the module itself, return."""
    found = list[Any]()
    layers = [module.get_submodule(name) for name in names]
    hooks = [layer.register_forward_hook(lambda *given: found.append(given[-1].clone())) for layer in layers]
    try:
        found.append(module(x.clone()))
    finally:
        for hook in hooks:
            hook.remove()
    for ours, own in zip(recorded, found, strict=False):
        if own.shape != ours.shape or not torch.allclose(own, ours, rtol=1e-4, atol=1e-5, equal_nan=True):
            raise UserError(
                f"{type(module).__name__} cannot be followed by torch.fx: its recorded operations give other outputs "
                "than the module, so that its code depends on something besides its input; remove random numbers and "
                "counters from its forward"
            )


def _example(module: nn.Module, example: Tensor | Sequence[int]) -> Tensor:
    if isinstance(example, Tensor):
        if example.ndim < 2 or not len(example):
            raise UserError(f"must be a batch of inputs [image, …], got shape {list(example.shape)}", "example")
        return example.detach()
    shape = tuple(example) if isinstance(example, Sequence) else ()
    if not shape or not all(isinstance(side, int) and side > 0 for side in shape):
        given = list(shape) if all(isinstance(side, int | float) for side in shape) else kind_of(example)
        raise UserError(
            "must be a batch or the shape of one input, as in (3, 32, 32), got "
            f"{given if shape else kind_of(example)}; convert arrays with torch.from_numpy",
            "example",
        )
    like = next(module.parameters(), torch.zeros(()))
    numbers = torch.randn(2, *shape, generator=torch.Generator().manual_seed(0))
    return numbers.to(like.device, like.dtype)


def _classes(output: Tensor | None, classes: int | None, images: int) -> int:
    """Number of classes, which the module's own output must have if it is an exit."""
    if output is None:
        if classes is None:
            raise UserError("must be given where the module's own output is no exit, got None", "classes")
        return classes
    if output.ndim != 2 or (classes is not None and output.shape[1] != classes):
        wanted = f"[{images}, {classes or 'classes'}]"
        raise UserError(
            f"needs a module whose own output has shape {wanted}, got {list(output.shape)}; correct classes, or give "
            "final=False",
            "final",
        )
    return output.shape[1]


def _head(features: Tensor, classes: int, width: int) -> nn.Module:
    """A new head for features of this shape, of their type and on their device."""
    shape = features.shape[1:]
    maps = len(shape) == 3 and min(shape[1:]) >= SMALLEST
    head = ExitHead(shape[0], classes, width) if maps else LinearHead(shape, classes)
    initialise(head)
    return head.to(features.device, features.dtype if features.is_floating_point() else None)


@contextmanager
def _mode(module: nn.Module, training: bool) -> Iterator[None]:
    """Set a module to training or evaluation mode in the block."""
    before = {part: part.training for part in module.modules()}
    module.train(training)
    try:
        yield
    finally:
        for part, each in before.items():
            part.training = each


def _shape(value: object) -> str:
    if isinstance(value, Tensor):
        return f"shape {list(value.shape)}"
    return "a dict" if isinstance(value, dict) else kind_of(value)


def _listed(names: Sequence[str], most: int = 12) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
