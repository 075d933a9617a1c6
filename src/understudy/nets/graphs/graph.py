"""Graphs of operations, followed from the inputs of a network to its outputs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from understudy._errors import UserError

Size = tuple[int | str, ...]
"""Axes of a value; where the size of one is not fixed, its symbol."""
OTHERWISE = "understudy.align(teacher, student, data) compares modules of any kind by their activations"
LARGEST = 10**8
"""Largest number of values per sample; files can declare any number without containing it."""
_OUTPUTS = ("softmax", "log_softmax", "logsoftmax", "sigmoid")


class Value(str):
    """Name of a value that an operation reads."""


@dataclass(frozen=True, eq=False)
class Operation:
    """An operation of a graph.

    Args:
        name: Its name, as users know it.
        kind: What it does, such as `relu`.
        arguments: Arguments by name; values of the graph as `Value`.
        results: Values that it makes.
        target: The function that computes it.
    """

    name: str
    kind: str
    arguments: Mapping[str, Any]
    results: tuple[Value, ...]
    target: Any = None
    reads: tuple[Value, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "reads", tuple(values_in(list(self.arguments.values()))))


def values_in(argument: Any) -> Iterator[Value]:
    """Values of the graph in an argument, which may be a list."""
    if isinstance(argument, Value):
        yield argument
    elif isinstance(argument, list | tuple):
        for each in argument:
            yield from values_in(each)


def chain(operations: Sequence[Operation], start: Value, end: Value, scalars: Sequence[str] = ()) -> list[Operation]:
    """Order the operations that inputs pass; each must use the result of the one before, once.

    Args:
        operations: All operations, each after those whose results it reads. Those that the end does not depend on, and
            those of weights alone, are left out.
        start: The inputs.
        end: The outputs.
        scalars: Kinds of operations that read the size of a value, not the value.

    Returns:
        Operations from the inputs to the outputs.

    Raises:
        UserError: The operations are not a stack, such as with a skip.
    """
    live, needed = list[Operation](), {end}
    for operation in reversed(operations):
        if needed.intersection(operation.results):
            live.insert(0, operation)
            needed.update(operation.reads)
    found, varying, current, last = list[Operation](), {start}, start, "the inputs"
    for operation in live:
        reads = [value for value in operation.reads if value in varying]
        if not reads or operation.kind in scalars:
            continue
        if reads != [current]:
            shared = next((value for value in reads if value != current), current)
            users = [each.name for each in live if each.kind not in scalars for read in each.reads if read == shared]
            maker = next((f"{each.name}: its result is" for each in live if shared in each.results), "the inputs are")
            raise UserError(
                f"{maker} used by {', '.join(users)}, but only stacks of layers without skips are supported; "
                f"{OTHERWISE}"
            )
        found.append(operation)
        varying.update(operation.results)
        current, last = operation.results[0], operation.name
    if current != end:
        raise UserError(f"{last}: its result is not the only output; only networks with one output are supported")
    return found


def unsupported(operation: Operation, last: bool, first: bool) -> UserError:
    """Refuse an operation by its name.

    Args:
        operation: The operation.
        last: Whether nothing follows it.
        first: Whether it stands before the first layer.

    Returns:
        The error, with what to do.
    """
    if first and operation.kind in ("add", "sub", "rsub", "mul", "div", "Add", "Sub", "Mul", "Div"):
        return UserError(f"{operation.name}: stands before the first layer; apply it to the data instead")
    if last and operation.kind.lower().lstrip("_") in _OUTPUTS:
        return UserError(
            f"{operation.name}: the operation {operation.kind} follows the outputs; give the model without it, whose "
            "outputs are the logits"
        )
    return UserError(
        f"{operation.name}: the operation {operation.kind} is not among those of stacks of layers (linear, "
        f"convolution, BatchNorm, ReLU, leaky ReLU, absolute value, pooling, dropout, flattening); {OTHERWISE}"
    )


def require_same_order(name: str, before: Size, after: Size, inner: bool) -> None:
    """Accept a reshaping that keeps the order of the numbers of a sample: any of the inputs, else a flattening.

    A single output may lose its axis.

    Args:
        name: The operation.
        before: Axes of what it reads.
        after: Axes of what it makes.
        inner: Whether layers stand below it.

    Raises:
        UserError: Another reshaping.
    """
    sizes = [_features(size) for size in (before, after)]
    kept = sizes[0] == sizes[1] is not None and len(after) > 1 - inner
    maps = [[side for side in size[1:] if side != 1] for size in (before, after)]
    if not kept or not (not inner or len(after) == 2 or maps[0] == maps[1]):
        raise UserError(
            f"{name}: reshapes {list(before)} to {list(after)}; only flattening is supported, and reshaping the inputs"
        )


def _features(size: Size) -> int | None:
    """Numbers per sample, if they are known."""
    count = 1
    for side in size[1:]:
        if isinstance(side, str):
            return None
        count *= side
    return count


def fixed(name: str, size: Size) -> tuple[int, ...]:
    """Axes besides that of samples, which must all be known.

    Raises:
        UserError: The size of one is not fixed, or they are too large.
    """
    if unknown := [side for side in size[1:] if isinstance(side, str)]:
        raise UserError(
            f"{name}: reads values of shape {list(size)}, and {', '.join(map(str, unknown))} can be any number; save "
            "the network with fixed sizes of all axes but that of samples"
        )
    found = tuple(int(side) for side in size[1:])
    if math.prod(found) > LARGEST:
        raise UserError(
            f"{name}: reads values of shape {list(size)}, more than {LARGEST:,} numbers per sample; the network is "
            "damaged, or too large"
        )
    return found
