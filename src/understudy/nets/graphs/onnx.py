"""ONNX files as populations: the graph is followed, nothing is guessed, and no code in the file is executed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from understudy._errors import UserError, first_line
from understudy.nets.files.io import existing_file
from understudy.nets.graphs.agreement import noise, require_equal
from understudy.nets.graphs.aten import as_image
from understudy.nets.graphs.graph import Operation, Size, Value, chain, fixed, require_same_order, unsupported
from understudy.nets.graphs.onnx_files import AGAIN, load_model, read_node
from understudy.nets.graphs.onnx_operations import READERS
from understudy.nets.graphs.steps import Affine, Padding, Pooling, Step, assemble, reads_maps
from understudy.nets.population import Population

_SKIPPED = ("Identity", "Cast")
_RESHAPED = ("Flatten", "Reshape", "Squeeze", "Unsqueeze")
_FOLDED = ("Constant", "Identity", "Transpose")
_SCALARS = ("Shape",)
_OF_SIZES = ("Gather", "Concat", "Slice", "Mul", "Unsqueeze", "Squeeze", "Cast", "Constant", "Shape", "Identity")
"""Operations that compute the target of a reshaping from the size of a value."""


def from_onnx(path: Path) -> Population:
    """Convert an ONNX file.

    Args:
        path: The file; tensors in other files must lie below its folder.

    Returns:
        One network, whose inputs are flat.

    Raises:
        UserError: The package `onnx` is not installed; the file is damaged, incomplete or of another kind; an operation
            that a population cannot represent, by its name; outputs that differ from those of ONNX's own evaluator.
    """
    file = existing_file(path, "an ONNX file is needed")
    model = load_model(file)
    try:
        network = _Network(model)
        population = network.population()
        network.require_equal(population, file.name)
    except UserError as error:
        raise UserError(f"{file}: {error}") from error
    except Exception as error:  # arbitrary contents can raise any exception
        raise UserError(
            f"{file}: the network contradicts itself, so the file is damaged ({first_line(error)}); {AGAIN}"
        ) from error
    return population


class _Network:
    """The graph of an ONNX file."""

    def __init__(self, model: Any) -> None:
        from onnx import numpy_helper

        self._model, graph = model, model.graph
        self._tensors = {each.name: numpy_helper.to_array(each) for each in graph.initializer}
        given = [each for each in graph.input if each.name not in self._tensors]
        if len(given) != 1 or len(graph.output) != 1:
            raise UserError(
                f"the network must have one tensor of inputs and one of outputs, got {len(given)} and "
                f"{len(graph.output)}"
            )
        self._start, self._end = Value(given[0].name), Value(graph.output[0].name)
        self._size, self._kind = _declared_size(given[0]), given[0].type.tensor_type.elem_type
        if self._kind not in (1, 10, 11):
            raise UserError(
                f"the inputs {self._start} must be float, float16 or double, got the type {self._kind}; "
                "convert the model before it is exported"
            )
        versions = {"" if each.domain == "ai.onnx" else each.domain: each.version for each in model.opset_import}
        self._operations = [read_node(node, versions) for node in graph.node]
        self._chain = chain(self._operations, self._start, self._end, _SCALARS)

    def population(self) -> Population:
        steps, image, below, size = list[Step](), None, self._start, self._size
        for operation in self._chain:
            name, given = operation.name, self._arguments(operation, below)
            if operation.kind in _RESHAPED:
                after = _reshaped(operation, given, size)
                require_same_order(name, size, after, bool(steps))
                size = after
            elif operation.kind not in _SKIPPED:
                read = READERS.get(operation.kind)
                first = next(iter(operation.arguments.values()))
                if read is None or (first != below and operation.kind != "Add"):
                    raise unsupported(
                        operation, operation is self._chain[-1], not any(isinstance(step, Affine) for step in steps)
                    )
                known = fixed(name, size)
                found = list(read(name, given, known))
                if not steps and found and reads_maps(found[0]):
                    image = as_image(known[1:])
                steps += found
                for step in found:
                    known = _passed(step, known)
                size = (size[0], *(known if given.get("keepdims", 1) else known[:1]))
            below = operation.results[0]
        return assemble(steps, image)

    def require_equal(self, population: Population, name: str) -> None:
        """Compare outputs with those of ONNX's own evaluator, on random inputs."""
        from onnx.reference import ReferenceEvaluator

        evaluator = ReferenceEvaluator(self._reduced())
        dtype = {10: torch.float16, 11: torch.float64}.get(self._kind, torch.float32)

        def run(x: Tensor) -> Tensor:
            (found,) = evaluator.run(None, {str(self._start): x.to(dtype).numpy()})
            return torch.from_numpy(np.array(found, order="C"))

        samples = self._size[0] if isinstance(self._size[0], int) else 2  # the evaluator is slow
        size = fixed("the evaluator", ("all", samples, *self._size[1:]))
        require_equal(population, run, [noise(*size).to(dtype).to(population.dtype)], name)

    def _reduced(self) -> Any:
        """The model without nodes that the outputs do not depend on; all nodes left are among those supported."""
        import onnx

        needed, nodes = {str(self._end)}, list[Any]()
        chained = {operation.results[0] for operation in self._chain}
        for node in reversed(self._model.graph.node):
            if needed.intersection(node.output):
                if node.output[0] not in chained and node.op_type not in (*_FOLDED, *_OF_SIZES):
                    raise UserError(
                        f"{node.name or node.op_type}: the operation {node.op_type} of weights is not supported"
                    )
                nodes.insert(0, node)
                needed.update(node.input)
        reduced = onnx.ModelProto()
        reduced.CopyFrom(self._model)
        del reduced.graph.node[:]
        reduced.graph.node.extend(nodes)
        return reduced

    def _arguments(self, operation: Operation, below: Value) -> dict[str, Any]:
        """Arguments with arrays in place of values; None for the value from below and for those that sizes decide."""
        return {
            key: (None if value == below else self._array(operation, value)) if isinstance(value, Value) else value
            for key, value in operation.arguments.items()
        }

    def _array(self, user: Operation, value: Value) -> Any:
        """A tensor of the file, also one that other nodes give."""
        if value in self._tensors:
            return self._tensors[value]
        maker = next((each for each in self._operations if value in each.results), None)
        if maker is not None and maker.kind == "Constant":
            stated = [each for key, each in maker.arguments.items() if key.startswith("value") and each is not None]
            return np.asarray(stated[0]) if stated else None
        if maker is not None and maker.kind in _FOLDED and maker.reads:
            source = self._array(user, maker.reads[0])
            return np.transpose(source, maker.arguments.get("perm")) if maker.kind == "Transpose" else source
        if user.kind in _RESHAPED:
            return None
        raise UserError(
            f"{user.name}: its weights {value} are computed by {maker.kind if maker else 'nothing'}, but must be "
            f"given; {AGAIN} with weights as constants"
        )


def _declared_size(given: Any) -> Size:
    """Axes of the inputs; a number where it is declared, else its symbol."""
    if not given.type.tensor_type.HasField("shape"):
        raise UserError(f"the inputs {given.name} have no declared shape; {AGAIN} with one")
    dims = given.type.tensor_type.shape.dim
    size = tuple(each.dim_value if each.HasField("dim_value") else each.dim_param or "?" for each in dims)
    if len(size) < 2 or any(side < 1 for side in size if isinstance(side, int)):
        raise UserError(f"the inputs {given.name} have the shape {list(size)}; [sample, …] is needed")
    return size


def _reshaped(operation: Operation, given: Mapping[str, Any], size: Size) -> Size:
    """Axes after a reshaping. One whose target depends on sizes is taken as a flattening, which the outputs verify."""
    name, count = operation.name, math.prod(fixed(operation.name, size))
    axes = given.get("axes")
    if operation.kind == "Flatten":
        if given["axis"] != 1:
            raise UserError(f"{name}: flattens from axis {given['axis']}; only from axis 1 is supported")
        return size[0], count
    if operation.kind == "Squeeze":
        every = [i for i, side in enumerate(size) if i and side == 1]
        drop = every if axes is None else [int(axis) % len(size) for axis in axes]
        return tuple(side for i, side in enumerate(size) if i not in drop)
    if operation.kind == "Unsqueeze" and axes is not None:
        new = sorted(int(axis) % (len(size) + len(axes)) for axis in axes)
        sizes = list(size)
        for axis in new:
            sizes.insert(axis, 1)
        return tuple(sizes)
    if given.get("shape") is None:
        return size[0], count
    target = [int(side) for side in given["shape"]]
    if not given.get("allowzero"):
        target = [int(size[i]) if i and not side and i < len(size) else side for i, side in enumerate(target)]
    rest = math.prod(side for side in target[1:] if side != -1)
    return size[0], *(count // rest if side == -1 and rest else side for side in target[1:])


def _passed(step: Step, size: tuple[int, ...]) -> tuple[int, ...]:
    """Axes of a step's results, without samples."""
    if isinstance(step, Affine) and step.convolution is None:
        return (len(step.weight),)
    if isinstance(step, Padding):
        return (size[0], *(side + sum(both) for side, both in zip(size[1:], step.pads[3 - len(size) :], strict=True)))
    if isinstance(step, Affine | Pooling):
        how = step.pool if isinstance(step, Pooling) else step.convolution
        assert how is not None
        channels = len(step.weight) if isinstance(step, Affine) else size[0]
        return (channels, *how(as_image(size[1:]))[3 - len(size) :])
    return size
