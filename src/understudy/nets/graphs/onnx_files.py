"""Contents of ONNX files: tensors whose declared sizes are compared with the bytes that are there."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from understudy._errors import UserError, first_line
from understudy.nets.graphs.graph import Operation, Value

AGAIN = "export the network again"
_ITEM_SIZES = {1: 4, 2: 1, 3: 1, 6: 4, 7: 8, 9: 1, 10: 2, 11: 8, 16: 2}
"""Bytes per number of the data types of tensors: float, uint8, int8, int32, int64, bool, float16, double, bfloat16."""
_FIELDS = {1: "float_data", 7: "int64_data", 11: "double_data"}
"""Fields that contain numbers, if not `raw_data`; all others use `int32_data`."""


def load_model(file: Path) -> Any:
    """Load an ONNX file with all of its tensors.

    Args:
        file: An existing file; tensors in other files must lie below its folder.

    Returns:
        The model, as the package `onnx` represents it.

    Raises:
        UserError: The package is not installed; the file is damaged, incomplete or of another kind.
    """
    try:
        import onnx
        import onnx.reference
    except ImportError as error:
        raise UserError(f"{file}: ONNX files need the package onnx: pip install understudy[onnx]") from error
    try:
        model = onnx.load(file, load_external_data=False)
    except Exception as error:  # arbitrary bytes can raise any exception in a decoder
        raise UserError(
            f"{file}: the file is truncated, damaged or no ONNX file ({first_line(error)}); {AGAIN}"
        ) from error
    if not model.ir_version or not model.graph.node or not model.opset_import:
        raise UserError(f"{file}: the file contains no network, so it is truncated or no ONNX file; {AGAIN}")
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
        raise UserError(f"{file}: the tensor {name} declares the shape {list(tensor.dims)}; {AGAIN}")
    count = math.prod(tensor.dims)
    if tensor.data_location == tensor.EXTERNAL:
        _read_external(file, tensor, count * size)
    present = len(tensor.raw_data) // size
    if not tensor.HasField("raw_data"):
        present = len(getattr(tensor, _FIELDS.get(tensor.data_type, "int32_data")))
    if present != count:
        raise UserError(
            f"{file}: the tensor {name} declares the shape {list(tensor.dims)}, {count:,} numbers, but {present:,} are "
            f"there; the file is damaged or incomplete, so {AGAIN}"
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
        raise UserError(f"{file}: the place of the tensor {tensor.name} in {location} is damaged; {AGAIN}") from None
    if not place.is_file():
        raise UserError(
            f"{file}: its file {location}, with the tensor {tensor.name}, is missing; copy it beside {file}"
        )
    present = place.stat().st_size
    if offset < 0 or length != size or offset + length > present:
        raise UserError(
            f"{file}: the tensor {tensor.name} declares the shape {list(tensor.dims)}, {size:,} bytes, at {length:,} "
            f"bytes from {offset:,} in {location}, which has {present:,}; copy the file again, or {AGAIN}"
        )
    with open(place, "rb") as source:
        source.seek(offset)
        tensor.raw_data = source.read(length)
    tensor.data_location = tensor.DEFAULT
    del tensor.external_data[:]


def read_node(node: Any, versions: Mapping[str, int]) -> Operation:
    """Read a node with its inputs and attributes by name, and defaults for the attributes that are not given.

    Args:
        node: The node.
        versions: Version of the operations of each domain.

    Returns:
        The operation.
    """
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
