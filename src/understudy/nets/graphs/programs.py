"""Exported programs of PyTorch as populations, also from `.pt2` files."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from understudy._errors import UserError, first_line
from understudy.nets.graphs.agreement import enough, noise, require_equal
from understudy.nets.graphs.aten import FOLDED, READERS, RESHAPED, SCALARS, SKIPPED, as_image
from understudy.nets.graphs.graph import LARGEST, Operation, Size, Value, chain, fixed, require_same_order, unsupported
from understudy.nets.graphs.steps import Affine, Step, assemble, reads_maps
from understudy.nets.population import Population


@dataclass(frozen=True, eq=False)
class Program:
    """Operations of PyTorch, the tensors they use, and the size of every value."""

    operations: Sequence[Operation]
    tensors: Mapping[str, Tensor]
    sizes: Mapping[str, Size]
    start: Value
    end: Value

    @cached_property
    def chain(self) -> list[Operation]:
        """Operations that the inputs pass, in order."""
        return chain(self.operations, self.start, self.end, SCALARS)

    def population(self) -> Population:
        """Convert to one network.

        Raises:
            UserError: An operation that a population cannot represent, by its name.
        """
        steps, image, below = list[Step](), None, self.start
        for operation in self.chain:
            size, name = self.sizes[below], operation.name
            if operation.kind in RESHAPED:
                require_same_order(name, size, self.sizes[operation.results[0]], bool(steps))
            elif operation.kind not in SKIPPED:
                read = READERS.get(operation.kind)
                if read is None or not _reads_as_input(operation, below):
                    raise unsupported(
                        operation, operation is self.chain[-1], not any(isinstance(step, Affine) for step in steps)
                    )
                found = list(read(name, self._arguments(operation, below, None), fixed(name, size)))
                if not steps and found and reads_maps(found[0]):
                    image = as_image(fixed(name, size)[1:])
                steps += found
            below = operation.results[0]
        return assemble(steps, image)

    def __call__(self, x: Tensor) -> Tensor:
        """Compute the outputs, one operation after the other."""
        below = self.start
        for operation in self.chain:
            if operation.kind in RESHAPED:
                x = x.reshape(len(x), *fixed(operation.name, self.sizes[operation.results[0]]))
            elif operation.kind not in SKIPPED:
                found = _call(operation, self._arguments(operation, below, x), x.dtype)
                x = found if isinstance(found, Tensor) else found[0]
            below = operation.results[0]
        return x

    def _arguments(self, operation: Operation, below: Value, x: Tensor | None) -> dict[str, Any]:
        """Arguments with tensors in place of values; `x` in place of the one from below."""
        return {
            key: value if not isinstance(value, Value) else x if value == below else self._weight(operation, value)
            for key, value in operation.arguments.items()
        }

    def _weight(self, user: Operation, value: Value) -> Tensor:
        """A tensor, also one that operations compute from others."""
        if value in self.tensors:
            return self.tensors[value]
        maker = next((each for each in self.operations if value in each.results), None)
        if maker is None or maker.kind not in FOLDED:
            raise UserError(
                f"{user.name}: its weights are computed by {maker.kind if maker else value}, which is not supported; "
                "remove the parametrization: torch.nn.utils.parametrize.remove_parametrizations(module, 'weight')"
            )
        given = {
            key: self._weight(maker, each) if isinstance(each, Value) else each for key, each in maker.arguments.items()
        }
        whole = {key: each.to("meta") if isinstance(each, Tensor) else each for key, each in given.items()}
        sizes = _call(maker, whole)
        if isinstance(sizes, Tensor) and sizes.numel() > LARGEST:
            raise UserError(f"{maker.name}: computes weights of shape {list(sizes.shape)}, which is too large")
        found = _call(maker, given)
        return found if isinstance(found, Tensor) else found[maker.results.index(value)]


def _reads_as_input(operation: Operation, below: Value) -> bool:
    names = [key for key, value in operation.arguments.items() if value == below and isinstance(value, Value)]
    return names in (["input"], ["self"], ["mat1"]) or (operation.kind == "add" and names == ["other"])


def _call(operation: Operation, given: Mapping[str, Any], dtype: torch.dtype | None = None) -> Any:
    """Compute an operation, with floating-point tensors in a precision."""
    cast = {
        key: value.to(dtype) if isinstance(value, Tensor) and value.is_floating_point() and dtype else value
        for key, value in given.items()
    }
    schema = operation.target._schema.arguments
    return operation.target(
        *(cast[each.name] for each in schema if not each.kwarg_only),
        **{each.name: cast[each.name] for each in schema if each.kwarg_only},
    )


def describe(name: str, target: Any, given: Mapping[str, Any], results: Sequence[str]) -> Operation:
    """Make an operation from the arguments that were given, with defaults for the others.

    Args:
        name: Its name, as users know it.
        target: The operator of PyTorch.
        given: Arguments by name.
        results: Values that it makes.

    Returns:
        The operation; in-place ones as others.
    """
    arguments = {each.name: given.get(each.name, each.default_value) for each in target._schema.arguments}
    kind = target._schema.name.removeprefix("aten::")
    return Operation(name, kind.removesuffix("_") or kind, arguments, tuple(map(Value, results)), target)


def without_mutation(operations: Iterable[Operation]) -> list[Operation]:
    """Let operations that read a value after it was changed in place read the result of the change."""
    changed, found = dict[Value, Value](), list[Operation]()
    for operation in operations:
        given = {key: _replaced(value, changed) for key, value in operation.arguments.items()}
        found.append(replace(operation, arguments=given))
        if getattr(operation.target, "_schema", None) is not None and operation.target._schema.is_mutable:
            first = next(iter(found[-1].reads), None)
            if first is not None and operation.results:
                changed = {old: operation.results[0] if new == first else new for old, new in changed.items()}
                changed[first] = operation.results[0]
    return found


def _replaced(argument: Any, changed: Mapping[Value, Value]) -> Any:
    if isinstance(argument, Value):
        return changed.get(argument, argument)
    return [_replaced(each, changed) for each in argument] if isinstance(argument, list | tuple) else argument


def from_program(program: torch.export.ExportedProgram) -> Population:
    """Convert an exported program, as `torch.export.export` returns it.

    Args:
        program: The program of a module in evaluation mode, with one tensor of inputs.

    Returns:
        One network, whose inputs are flat.

    Raises:
        UserError: An operation that a population cannot represent, by its name; outputs that differ from the program's.
    """
    return _compared(parse_program(program), "the program")


def from_pt2(path: Path) -> Population:
    """Convert a `.pt2` file, which `torch.export.save` wrote. Nothing in the file is executed.

    Args:
        path: The file.

    Returns:
        One network, whose inputs are flat.

    Raises:
        UserError: The file is damaged or of another kind; it contains an operation that a population cannot represent,
            by its name; outputs that differ from the program's.
    """
    from understudy.nets.graphs.archives import AGAIN, read_archive

    program = read_archive(path)
    try:
        return _compared(program, path.name)
    except UserError as error:
        raise UserError(f"{path}: {error}") from error
    except Exception as error:  # arbitrary contents can raise any exception
        raise UserError(
            f"{path}: the program contradicts itself, so the file is damaged ({first_line(error)}); {AGAIN}"
        ) from error


def _compared(program: Program, name: str) -> Population:
    population = program.population()
    size = fixed("the inputs", program.sizes[program.start])
    with torch.no_grad():
        inputs = noise(enough(size), *size).to(population.device, population.dtype)
        require_equal(population, program, [inputs], name)
    return population


def parse_program(program: torch.export.ExportedProgram) -> Program:
    """Parse an exported program.

    Raises:
        UserError: Several inputs or outputs.
    """
    signature, held = program.graph_signature, {**program.state_dict, **program.constants}
    names = {
        **signature.inputs_to_parameters,
        **signature.inputs_to_buffers,
        **signature.inputs_to_lifted_tensor_constants,
    }
    inputs = [node.name for node in program.graph.nodes if node.op == "placeholder" and node.name not in names]
    tensors = {node: held[name] for node, name in names.items() if name in held}
    return _program(program.graph, tensors, inputs, signature.user_outputs)


def parse_trace(module: torch.fx.GraphModule) -> Program:
    """Parse what `torch.fx.experimental.proxy_tensor.make_fx` returns.

    Raises:
        UserError: Several inputs or outputs.
    """
    nodes = list(module.graph.nodes)
    tensors = {node.name: getattr(module, node.target) for node in nodes if node.op == "get_attr"}
    inputs = [node.name for node in nodes if node.op == "placeholder"]
    (outputs,) = nodes[-1].args
    found = outputs if isinstance(outputs, tuple | list) else [outputs]
    return _program(module.graph, tensors, inputs, [getattr(each, "name", None) for each in found])


def _program(
    graph: torch.fx.Graph, tensors: Mapping[str, Tensor], inputs: Sequence[Any], outputs: Sequence[Any]
) -> Program:
    return Program(
        without_mutation(_operation(node) for node in graph.nodes if node.op == "call_function"),
        tensors,
        {node.name: size for node in graph.nodes if (size := _size(node.meta.get("val"))) is not None},
        only_value("inputs", inputs),
        only_value("outputs", outputs),
    )


def only_value(kind: str, found: Sequence[Any]) -> Value:
    """The only value among the inputs or outputs.

    Raises:
        UserError: Several, none, or one that is not a tensor.
    """
    if len(found) != 1 or not isinstance(found[0], str):
        raise UserError(
            f"the network must have one tensor of {kind}, got {len(found)}; wrap it in a module with one: [sample, …]"
        )
    return Value(found[0])


def _operation(node: torch.fx.Node) -> Operation:
    name, target = _name(node), node.target
    if not isinstance(target, torch._ops.OpOverload):
        first = target is operator.getitem and node.args[1] == 0
        kind = "getitem 0" if first else getattr(target, "__name__", str(target))
        return Operation(name, kind, {"arguments": _values(node.args)}, (Value(node.name),), target)
    given = dict(zip((each.name for each in target._schema.arguments), node.args, strict=False)) | dict(node.kwargs)
    return describe(name, target, {key: _values(value) for key, value in given.items()}, [node.name])


def _values(argument: Any) -> Any:
    if isinstance(argument, torch.fx.Node):
        return Value(argument.name)
    return [_values(each) for each in argument] if isinstance(argument, list | tuple) else argument


def _name(node: torch.fx.Node) -> str:
    """Name of the module that an operation belongs to, as users know it."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    path, kind = stack[-1] if stack else ("", "")
    return module_name(path, str(kind)) if path else node.name


def module_name(path: str, kind: str) -> str:
    """Path and class of a submodule: `features.1 (ReLU)`."""
    return f"{path} ({kind.rpartition('.')[2]})"


def _size(value: Any) -> Size | None:
    """Size of a value, or of the first of several."""
    value = value[0] if isinstance(value, tuple | list) and value else value
    if not isinstance(value, Tensor):
        return None
    return tuple(side if isinstance(side, int) else str(side) for side in value.shape)
