"""ONNX files as populations: the graph is followed, nothing is guessed, and no code in the file is executed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from understudy._errors import UserError
from understudy.nets.agreement import enough, noise, require_equal
from understudy.nets.aten import Window, as_image, convolution, normalisation, overall, pooling, sides, vector, widen
from understudy.nets.graph import Operation, Size, Value, chain, fixed, require_same_order, unsupported
from understudy.nets.io import existing_file
from understudy.nets.population import Population
from understudy.nets.shape import Pool
from understudy.nets.steps import Activate, Affine, Pooling, Shift, Step, assemble

_AGAIN = "export the network again"
_ITEM_SIZES = {1: 4, 2: 1, 3: 1, 6: 4, 7: 8, 9: 1, 10: 2, 11: 8, 16: 2}
"""Bytes per number of the data types of tensors: float, uint8, int8, int32, int64, bool, float16, double, bfloat16."""
_FIELDS = {1: "float_data", 7: "int64_data", 11: "double_data"}
"""Fields that contain numbers, if not `raw_data`; all others use `int32_data`."""
_SKIPPED = ("Identity", "Dropout", "Cast")
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
    model = _load(file)
    try:
        network = _Network(model)
        population = network.population()
        network.require_equal(population, file.name)
    except UserError as error:
        raise UserError(f"{file}: {error}") from error
    except Exception as error:  # arbitrary contents can raise any exception
        raise UserError(
            f"{file}: the network contradicts itself, so the file is damaged ({_brief(error)}); {_AGAIN}"
        ) from error
    return population


def _load(file: Path) -> Any:
    try:
        import onnx
        import onnx.reference
    except ImportError as error:
        raise UserError(f"{file}: ONNX files need the package onnx: pip install understudy[onnx]") from error
    try:
        model = onnx.load(file, load_external_data=False)
    except Exception as error:  # arbitrary bytes can raise any exception in a decoder
        raise UserError(
            f"{file}: the file is truncated, damaged or no ONNX file ({_brief(error)}); {_AGAIN}"
        ) from error
    if not model.ir_version or not model.graph.node or not model.opset_import:
        raise UserError(f"{file}: the file contains no network, so it is truncated or no ONNX file; {_AGAIN}")
    tensors = [*model.graph.initializer]
    tensors += [each.t for node in model.graph.node for each in node.attribute if each.HasField("t")]
    for tensor in tensors:
        _require_bytes(file, tensor)
    return model


def _require_bytes(file: Path, tensor: Any) -> None:
    """Compare the declared size of a tensor with the bytes that are there; those in other files are read."""
    name, size = tensor.name or "of a constant", _ITEM_SIZES.get(tensor.data_type)
    if size is None:
        raise UserError(f"{file}: the tensor {name} has a data type that is not supported, {tensor.data_type}")
    if any(side < 0 for side in tensor.dims):
        raise UserError(f"{file}: the tensor {name} declares the shape {list(tensor.dims)}; {_AGAIN}")
    count = math.prod(tensor.dims)
    if tensor.data_location == tensor.EXTERNAL:
        _read_external(file, tensor, count * size)
    present = len(tensor.raw_data) // size
    if not tensor.HasField("raw_data"):
        present = len(getattr(tensor, _FIELDS.get(tensor.data_type, "int32_data")))
    if present != count:
        raise UserError(
            f"{file}: the tensor {name} declares the shape {list(tensor.dims)}, {count:,} numbers, but {present:,} are "
            f"there; the file is damaged or incomplete, so {_AGAIN}"
        )


def _read_external(file: Path, tensor: Any, size: int) -> None:
    """Read the bytes of a tensor from the file beside the model that it names."""
    given = {each.key: each.value for each in tensor.external_data}
    location, folder = given.get("location", ""), file.resolve().parent
    place = (folder / location).resolve()
    if not location or not place.is_relative_to(folder):
        raise UserError(
            f"{file}: the data of the tensor {tensor.name} lie outside of the file's folder, at {location!r}; only "
            "files beside or below it are read"
        )
    try:
        offset, length = int(given.get("offset", 0)), int(given.get("length", size))
    except ValueError:
        raise UserError(f"{file}: the place of the tensor {tensor.name} in {location} is damaged; {_AGAIN}") from None
    if not place.is_file():
        raise UserError(
            f"{file}: its file {location}, with the tensor {tensor.name}, is missing; copy it beside {file}"
        )
    present = place.stat().st_size
    if offset < 0 or length != size or offset + length > present:
        raise UserError(
            f"{file}: the tensor {tensor.name} declares the shape {list(tensor.dims)}, {size:,} bytes, at {length:,} "
            f"bytes from {offset:,} in {location}, which has {present:,}; copy the file again, or {_AGAIN}"
        )
    with open(place, "rb") as source:
        source.seek(offset)
        tensor.raw_data = source.read(length)
    tensor.data_location = tensor.DEFAULT
    del tensor.external_data[:]


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
            raise UserError(f"the inputs {self._start} must be float, float16 or double, got the type {self._kind}")
        versions = {"" if each.domain == "ai.onnx" else each.domain: each.version for each in model.opset_import}
        self._operations = [_operation(node, versions) for node in graph.node]
        self._chain = chain(self._operations, self._start, self._end, _SCALARS)

    def population(self) -> Population:
        steps, image, below, size = list[Step](), None, self._start, self._size
        for operation in self._chain:
            name, given = operation.name, self._arguments(operation, below)
            if operation.kind in _RESHAPED:
                after = _reshaped(operation, given, size)
                require_same_order(name, size, after, bool(steps))
                size = after
            elif (
                operation.kind == "Dropout" and given.get("training_mode") is not None and given["training_mode"].any()
            ):
                raise UserError(f"{name}: Dropout in training mode makes outputs random; {_AGAIN} in evaluation mode")
            elif operation.kind not in _SKIPPED:
                read = _READERS.get(operation.kind)
                first = next(iter(operation.arguments.values()))
                if read is None or (first != below and operation.kind != "Add"):
                    raise unsupported(
                        operation, operation is self._chain[-1], not any(isinstance(step, Affine) for step in steps)
                    )
                known = fixed(name, size)
                found = list(read(name, given, known))
                if not steps and found and isinstance(found[0], Affine) and found[0].convolution:
                    image = as_image(known[1:])
                steps += found
                for step in found:
                    size = (size[0], *_passed(step, known))
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

        size = fixed("the inputs", self._size)
        samples = self._size[0] if isinstance(self._size[0], int) else enough(size)
        require_equal(population, run, [noise(samples, *size).to(dtype).to(population.dtype)], name)

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
            key: (None if value == below else self._array(value)) if isinstance(value, Value) else value
            for key, value in operation.arguments.items()
        }

    def _array(self, value: Value) -> Any:
        if value in self._tensors:
            return self._tensors[value]
        maker = next((each for each in self._operations if value in each.results), None)
        if maker is None or maker.kind not in _FOLDED:
            return None
        if maker.kind == "Constant":
            stated = [each for key, each in maker.arguments.items() if key.startswith("value") and each is not None]
            return np.asarray(stated[0]) if stated else None
        source = self._array(next(iter(maker.reads)))
        return (
            source if source is None or maker.kind == "Identity" else np.transpose(source, maker.arguments.get("perm"))
        )


def _declared_size(given: Any) -> Size:
    """Axes of the inputs; a number where it is declared, else its symbol."""
    if not given.type.tensor_type.HasField("shape"):
        raise UserError(f"the inputs {given.name} have no declared shape; {_AGAIN} with one")
    dims = given.type.tensor_type.shape.dim
    size = tuple(each.dim_value if each.HasField("dim_value") else each.dim_param or "?" for each in dims)
    if len(size) < 2 or any(side < 1 for side in size if isinstance(side, int)):
        raise UserError(f"the inputs {given.name} have the shape {list(size)}; [sample, …] is needed")
    return size


def _operation(node: Any, versions: Mapping[str, int]) -> Operation:
    """A node with its inputs and attributes by name, and defaults for the attributes that are not given."""
    from onnx import defs, helper, numpy_helper

    name = f"{node.name or node.output[0]} ({node.op_type})"
    domain = "" if node.domain == "ai.onnx" else node.domain
    try:
        schema = defs.get_schema(node.op_type, versions[domain], domain)
    except (KeyError, defs.SchemaError):
        schema = None
    names = [each.name for each in schema.inputs] if schema is not None and not domain else []
    arguments: dict[str, Any] = {
        names[i] if i < len(names) else f"input {i}": Value(value) if value else None
        for i, value in enumerate(node.input)
    }
    for key, each in (schema.attributes if schema is not None else {}).items():
        if each.default_value.name:
            arguments[key] = _plain(helper.get_attribute_value(each.default_value))
    for each in node.attribute:
        value = helper.get_attribute_value(each)
        arguments[each.name] = numpy_helper.to_array(value) if each.type == each.TENSOR else _plain(value)
    kind = f"{domain}.{node.op_type}" if domain else node.op_type
    return Operation(name, kind, arguments, tuple(map(Value, node.output)))


def _plain(value: Any) -> Any:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _reshaped(operation: Operation, given: Mapping[str, Any], size: Size) -> Size:
    """Axes after a reshaping. One whose target depends on sizes is taken as a flattening, which the outputs verify."""
    name, count = operation.name, math.prod(fixed(operation.name, size))
    axes = given.get("axes")
    if operation.kind == "Flatten":
        if given["axis"] != 1:
            raise UserError(f"{name}: flattens from axis {given['axis']}; only from axis 1 is supported")
        return size[0], count
    if operation.kind == "Squeeze":
        drop = (
            [i for i, side in enumerate(size) if i and side == 1]
            if axes is None
            else [int(a) % len(size) for a in axes]
        )
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
        target = [size[i] if not side and i < len(size) else side for i, side in enumerate(target)]  # type: ignore[misc]
    rest = math.prod(side for side in target[1:] if side != -1)
    return size[0], *(count // rest if side == -1 and rest else side for side in target[1:])


def _passed(step: Step, size: tuple[int, ...]) -> tuple[int, ...]:
    """Axes of a step's results, without samples."""
    if isinstance(step, Affine) and step.convolution is None:
        return (len(step.weight),)
    if isinstance(step, Affine | Pooling):
        how = step.pool if isinstance(step, Pooling) else step.convolution
        assert how is not None
        sides_after = how(as_image(size[1:]))
        channels = len(step.weight) if isinstance(step, Affine) else size[0]
        return (channels, *sides_after[3 - len(size) :])
    return size


Read = Callable[[str, Mapping[str, Any], tuple[int, ...]], Iterator[Step]]


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
        raise UserError(f"{name}: its weights are computed, but must be given; {_AGAIN} with weights as constants")
    return tensor


def _gemm(name: str, given: Mapping[str, Any], size: tuple[int, ...]) -> Iterator[Step]:
    weight = given["alpha"] * _required(name, given["B"])
    if given["transA"] or len(size) != 1:
        raise UserError(f"{name}: a linear layer on inputs of shape {list(size)}, transA={given['transA']}")
    yield Affine(name, (weight if given["transB"] else weight.T).contiguous(), None)
    if given.get("C") is not None:
        out = weight.shape[0 if given["transB"] else 1]
        yield Shift(name, vector(name, given["beta"] * _required(name, given["C"]), (out,)))


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
        raise UserError(f"{name}: BatchNorm in training mode depends on the batch; {_AGAIN} in evaluation mode")
    mean, variance = given.get("input_mean", given.get("mean")), given.get("input_var", given.get("var"))
    parts = [_required(name, part) for part in (mean, variance, given["scale"], given["B"])]
    yield normalisation(name, parts, given["epsilon"])


def _activation(slope: float | None) -> Read:
    def read(name: str, given: Mapping[str, Any], size: tuple[int, ...]) -> Iterator[Step]:
        yield Activate(name, round(float(given["alpha"]), 9) if slope is None else slope)

    return read


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


_READERS: dict[str, Read] = {
    "Gemm": _gemm,
    "MatMul": _matmul,
    "Add": _add,
    "Conv": _conv,
    "BatchNormalization": _batch_norm,
    "Relu": _activation(0.0),
    "LeakyRelu": _activation(None),
    "Abs": _activation(-1.0),
    "MaxPool": _pool("max"),
    "AveragePool": _pool("average"),
    "GlobalMaxPool": _global("max"),
    "GlobalAveragePool": _global("average"),
}


def _brief(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:120].rstrip(".") if lines else type(error).__name__
