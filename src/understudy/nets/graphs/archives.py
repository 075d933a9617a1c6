"""Archives that `torch.export.save` writes (`.pt2`), read as text and numbers.

`torch.export.load` unpickles sample inputs, evaluates symbolic expressions as Python code and loads compiled libraries.
Here none of that is read: only the description of the graph, which is JSON, and the bytes of the tensors.
"""

from __future__ import annotations

import json
import math
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from understudy._errors import UserError, first_line
from understudy.nets.files.io import existing_file
from understudy.nets.graphs.graph import Operation, Size, Value
from understudy.nets.graphs.programs import Program, describe, module_name, only_value, without_mutation

AGAIN = "save it again: torch.export.save(torch.export.export(model.eval(), (x,)), path)"
_VERSION = 8
"""Version of the description of graphs that this reads."""
_INTEGERS = {1: torch.uint8, 2: torch.int8, 3: torch.int16, 4: torch.int32, 5: torch.int64, 12: torch.bool}
_DTYPES = _INTEGERS | {6: torch.float16, 7: torch.float32, 8: torch.float64, 13: torch.bfloat16}
"""Codes of data types in the archive."""
_PLAIN = ("as_int", "as_ints", "as_float", "as_floats", "as_bool", "as_bools", "as_string", "as_strings")


def read_archive(path: Path) -> Program:
    """Read the program of a `.pt2` file; nothing in it is executed.

    Args:
        path: The file.

    Returns:
        The program.

    Raises:
        UserError: The file is damaged or of another kind.
    """
    file = existing_file(path, "a program from torch.export.save is needed")
    try:
        with zipfile.ZipFile(file) as archive:
            return _Archive(file, archive).program()
    except UserError as error:
        raise UserError(f"{file}: {error}") from error
    except Exception as error:  # arbitrary bytes can raise any exception in a decoder
        raise UserError(
            f"{file}: the file is truncated, damaged or not written by torch.export.save ({first_line(error)}); {AGAIN}"
        ) from error


class _Archive:
    """Records of an archive, by their path below its root folder."""

    def __init__(self, file: Path, archive: zipfile.ZipFile) -> None:
        self._archive, size = archive, file.stat().st_size
        self._records = {info.filename.partition("/")[2]: info for info in archive.infolist()}
        for name, info in self._records.items():
            if info.compress_type != zipfile.ZIP_STORED or info.file_size > size:
                raise UserError(
                    f"its record {name} is compressed or declares {info.file_size:,} bytes in a file of "
                    f"{size:,}; torch.export.save writes neither, so {AGAIN}"
                )

    def program(self) -> Program:
        name = self._model_name()
        described = self._json(f"models/{name}.json")
        version, model = described["schema_version"]["major"], described["graph_module"]
        if version != _VERSION or self._text("byteorder") != "little":
            raise UserError(
                f"the file has version {version} of the format and byte order {self._text('byteorder')!r}, but version "
                f"{_VERSION} and 'little' are needed; with PyTorch 2.11 or later {AGAIN}"
            )
        graph, signature = model["graph"], model["signature"]
        tensors = {
            **self._tensors("weights", f"data/weights/{name}_weights_config.json"),
            **self._tensors("constants", f"data/constants/{name}_constants_config.json"),
        }
        held, inputs = dict[str, Tensor](), list[Any]()
        for ((kind, spec),) in (each.items() for each in signature["input_specs"]):
            if kind == "user_input":
                inputs.append(spec["arg"].get("as_tensor", {}).get("name"))
            elif kind in ("parameter", "buffer", "tensor_constant"):
                full = spec[f"{kind}_name"]
                if full in tensors:
                    held[spec["arg"]["name"]] = tensors[full]
        outputs = [
            spec["user_output"]["arg"].get("as_tensor", {}).get("name")
            for spec in signature["output_specs"]
            if "user_output" in spec
        ]
        return Program(
            without_mutation(_operation(node) for node in graph["nodes"]),
            held,
            {value: _size(meta) for value, meta in graph["tensor_values"].items()},
            only_value("inputs", inputs),
            only_value("outputs", outputs),
        )

    def _model_name(self) -> str:
        names = [name[7:-5] for name in self._records if name.startswith("models/") and name.endswith(".json")]
        if len(names) == 1:
            return names[0]
        if any(name.startswith("data/aotinductor/") for name in self._records) and not names:
            raise UserError(f"a package of compiled code, which is not executed; {AGAIN}")
        if "serialized_exported_program.json" in self._archive.namelist():
            raise UserError(f"the file was written by an older PyTorch; with a newer one {AGAIN}")
        raise UserError(
            f"the archive contains {len(names)} programs, but one is needed; it is truncated or of another kind, so "
            f"{AGAIN}"
        )

    def _json(self, name: str) -> Any:
        return json.loads(self._text(name))

    def _text(self, name: str) -> str:
        if name not in self._records:
            raise UserError(f"the archive lacks {name}; {AGAIN}")
        return self._archive.read(self._records[name]).decode()

    def _tensors(self, kind: str, config: str) -> dict[str, Tensor]:
        entries = self._json(config)["config"]
        return {
            name: self._tensor(kind, name, entry)
            for name, entry in entries.items()
            if not entry["use_pickle"] and entry["tensor_meta"] is not None
        }

    def _tensor(self, kind: str, name: str, entry: Mapping[str, Any]) -> Tensor:
        meta, record = entry["tensor_meta"], f"data/{kind}/{entry['path_name']}"
        dtype, sizes = _DTYPES.get(meta["dtype"]), [side["as_int"] for side in meta["sizes"]]
        if dtype is None:
            raise UserError(f"the tensor {name} has a data type that is not supported, {meta['dtype']}")
        strides, offset = [side["as_int"] for side in meta["strides"]], meta["storage_offset"]["as_int"]
        info = self._records.get(record)
        present = 0 if info is None else info.file_size // dtype.itemsize
        wanted = 0 if 0 in sizes else 1 + offset + sum((n - 1) * by for n, by in zip(sizes, strides, strict=True))
        if min([*sizes, *strides, offset], default=0) < 0 or max(wanted, math.prod(sizes)) > present:
            raise UserError(
                f"the tensor {name} declares the shape {sizes}, but {present:,} numbers are there; the "
                f"file is damaged or incomplete, so {AGAIN}"
            )
        if not present or info is None:
            return torch.empty(sizes, dtype=dtype)
        flat = torch.frombuffer(bytearray(self._archive.read(info)), dtype=dtype, count=present)
        return flat.as_strided(sizes, strides, offset)


def _operation(node: Mapping[str, Any]) -> Operation:
    name = _name(node)
    results = [each["name"] for out in node["outputs"] for each in _tensors_in(out)]
    given = {each["name"]: _argument(each["arg"]) for each in node["inputs"]}
    parts = node["target"].split(".")
    packet = (
        getattr(torch.ops.aten, parts[3], None) if parts[:3] == ["torch", "ops", "aten"] and len(parts) == 5 else None
    )
    target = getattr(packet, parts[4], None) if packet is not None else None
    if target is None:
        return Operation(name, ".".join(parts), given, tuple(map(Value, results)))
    return describe(name, target, given, results)


def _tensors_in(argument: Mapping[str, Any]) -> list[Any]:
    ((kind, value),) = argument.items()
    if kind == "as_tensors":
        return list(value)
    return [value] if kind == "as_tensor" else []


def _argument(argument: Mapping[str, Any]) -> Any:
    ((kind, value),) = argument.items()
    if kind == "as_tensor":
        return Value(value["name"])
    if kind == "as_none":
        return None
    if kind in _PLAIN:
        return value
    return [Value(each["name"]) for each in _tensors_in(argument)] or f"({kind})"


def _name(node: Mapping[str, Any]) -> str:
    """Name of the module that an operation belongs to, as users know it."""
    stack = node["metadata"].get("nn_module_stack", "").split(";")[-1].split(",")
    return module_name(stack[1], stack[2]) if len(stack) == 3 and stack[1] else node.get("name") or node["target"]


def _size(meta: Mapping[str, Any]) -> Size:
    return tuple(side["as_int"] if "as_int" in side else _symbol(side["as_expr"]["expr_str"]) for side in meta["sizes"])


def _symbol(expression: str) -> str:
    """An expression of sizes that are not fixed, with their names alone."""
    return re.sub(r"Symbol\('(\w+)'[^)]*\)", r"\1", expression)
