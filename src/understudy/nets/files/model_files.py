"""Modules that a user's Python file or package defines, and their weights from a file of tensors."""

from __future__ import annotations

import ast
import contextlib
import difflib
import importlib
import importlib.util
import inspect
import sys
import traceback
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from understudy._errors import UserError
from understudy.nets.files.io import existing_file, read_tensors
from understudy.nets.graphs.modules import unwrapped

_FORMS = "FILE.py:NAME or PACKAGE.MODULE:NAME, where NAME is a class or a function that makes the module"
_PREFIX = "understudy_model_"
"""How names of modules begin under which files are imported."""
_LISTED = 5
"""How many tensors an error lists."""


def build_module(spec: str, arguments: Sequence[str] = ()) -> nn.Module:
    """Build a module by executing the user's code.

    Args:
        spec: `FILE.py:NAME` or `PACKAGE.MODULE:NAME`; the name is that of a class, of a function that returns a
            module, or of a module.
        arguments: Words `value` or `key=value`, with which the class or function is called. Values are Python literals,
            such as `3`, `[64, 32]` or `None`; anything else is text.

    Returns:
        The module, as the code made it.

    Raises:
        UserError: The file or package cannot be imported or does not have the name; the call fails, or returns
            something else. Where the user's own code fails, the first line of the message says what failed, and the
            traceback of that code follows.
    """
    place, _, name = spec.rpartition(":")
    if not place or not name:
        raise UserError(f"must be {_FORMS}, got {spec!r}", "model")
    values, options = _parse(arguments)
    with _importable(place):
        found = _find(_import(place), place, name)
        made = _call(found, spec, values, options)
    if not isinstance(made, nn.Module):
        raise UserError(
            f"{spec} returned {_described(made)}, but an nn.Module is needed; return the model itself", "model"
        )
    return made


def fill_module(module: nn.Module, path: Path, key: str | None = None) -> None:
    """Load the tensors of a file into a module; every tensor of the module must be there, and no others.

    Args:
        module: The module, which is changed.
        path: A state dict written by `torch.save`, or safetensors.
        key: Key or prefix of the tensors, in a checkpoint of several networks.

    Raises:
        UserError: The file cannot be read, or its tensors do not fit the module, which is then left as it was.
    """
    file, module = existing_file(path, "safetensors or a state dict from torch.save is needed"), unwrapped(module)
    given, wanted = read_tensors(file, key), module.state_dict()
    problems = [
        _count("missing", [name for name in wanted if name not in given]),
        _count("unexpected", [name for name in given if name not in wanted]),
        _count("of another shape", _differing(given, wanted)),
    ]
    if any(problems):
        raise UserError(
            f"{file}: its tensors do not fit {type(module).__name__}: {'; '.join(filter(None, problems))}. Give the "
            "arguments with which the model was built, --model-args, or the file that belongs to it."
            f"{_hint(given, wanted)}"
        )
    if any(tensor.dtype == torch.float64 for tensor in given.values()):
        module.double()  # rather than round them
    try:
        module.load_state_dict(given, strict=True)
    except Exception as error:  # of many kinds: modules may load in their own way
        raise UserError(
            f"{file}: {type(module).__name__} could not load its tensors ({_brief(error)}); load them in the function "
            "that makes the model"
        ) from error


def _differing(given: Mapping[str, Tensor], wanted: Mapping[str, Any]) -> list[str]:
    return [
        f"{name} {list(given[name].shape)} instead of {list(tensor.shape)}"
        for name, tensor in wanted.items()
        if isinstance(tensor, Tensor) and not is_lazy(tensor) and name in given and given[name].shape != tensor.shape
    ]


def _hint(given: Mapping[str, Tensor], wanted: Mapping[str, Any]) -> str:
    """Words on a prefix by which all names of the file differ from those of the module."""
    first = next(iter(wanted), "")
    prefixes = {name.removesuffix(first) for name in given if first and name.endswith(first) and name != first}
    fitting = [prefix for prefix in prefixes if {prefix + name for name in wanted} == set(given)]
    return _of_part(fitting[0]) if fitting else ""


def _of_part(prefix: str) -> str:
    key = prefix.removesuffix(".")
    return f" All names of the file begin with {prefix!r}; read that part with --key {key} (in Python key={key!r})."


def _count(kind: str, names: Sequence[str]) -> str:
    """Words on tensors of one kind: their number and the first few; empty if there are none."""
    if not names:
        return ""
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return f"{len(names)} {kind} ({', '.join(names[:_LISTED])}{more})"


def _parse(arguments: Sequence[str]) -> tuple[list[Any], dict[str, Any]]:
    """Arguments by position and by keyword."""
    values, options = list[Any](), dict[str, Any]()
    for word in arguments:
        key, equals, text = word.partition("=")
        if not (equals and key.isidentifier()):
            if options:
                raise UserError(
                    f"must have values by position before those by name, got {word!r} after {next(iter(options))}=…",
                    "model_args",
                )
            values.append(_literal(word))
        elif key in options:
            raise UserError(f"must have each name once, got {key}= twice", "model_args")
        else:
            options[key] = _literal(text)
    return values, options


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return text


@contextlib.contextmanager
def _importable(place: str) -> Iterator[None]:
    """Let a file import its neighbours, and a package be found in the working directory, as `python` does."""
    of_file = place.endswith(".py")
    folder, before = Path(place).resolve().parent if of_file else Path.cwd(), set(sys.modules)
    sys.path.insert(0, str(folder))
    try:
        with contextlib.redirect_stdout(sys.stderr):  # standard output is for results
            yield
    finally:
        if str(folder) in sys.path:
            sys.path.remove(str(folder))
        # Neighbours of a file are not to be taken for those of another, which may have the same names.
        for name in set(sys.modules) - before if of_file else ():
            origin = getattr(sys.modules[name], "__file__", None)
            if origin is not None and Path(origin).is_relative_to(folder) and not name.startswith(_PREFIX):
                del sys.modules[name]


def _import(place: str) -> ModuleType:
    return _import_file(Path(place)) if place.endswith(".py") else _import_package(place)


def _import_file(path: Path) -> ModuleType:
    existing_file(path, "a Python file that defines the model is needed")
    name = f"{_PREFIX}{path.stem}_{zlib.crc32(bytes(path.resolve())):08x}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None  # its name ends in .py
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickle look their module up
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        relative = isinstance(error, ImportError) and "relative import" in str(error)
        advice = "give it as part of its package, PACKAGE.MODULE:NAME" if relative else "correct it"
        raise _failed(f"{path}: the file cannot be imported", error, advice) from error
    return module


def _import_package(name: str) -> ModuleType:
    if not all(part.isidentifier() for part in name.split(".")):
        raise UserError(f"must be {_FORMS}, got {name!r} before the colon", "model")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            raise UserError(
                f"{name}: there is no package {error.name!r} here; install it, or give a file: FILE.py:NAME", "model"
            ) from error
        raise _failed(f"{name}: the package cannot be imported", error, "install what is missing") from error
    except (Exception, SystemExit) as error:
        raise _failed(f"{name}: the package cannot be imported", error, "correct it") from error


def _find(module: ModuleType, place: str, name: str) -> Any:
    if hasattr(module, name):
        return getattr(module, name)
    named = {each: value for each, value in vars(module).items() if not each.startswith("_") and callable(value)}
    models = [each for each, value in named.items() if isinstance(value, type) and _is_model(value)]
    functions = [each for each, value in named.items() if getattr(value, "__module__", "") == module.__name__]
    near = difflib.get_close_matches(name, named, 3)
    own = f"its modules are {', '.join(models)}" if models else f"its functions are {', '.join(functions) or 'none'}"
    advice = f"did you mean {' or '.join(near)}?" if near else own
    raise UserError(f"{place} has no name {name!r}; {advice}", "model")


def _is_model(kind: type) -> bool:
    return issubclass(kind, nn.Module) and not kind.__module__.startswith("torch.")


def _call(found: Any, spec: str, values: Sequence[Any], options: Mapping[str, Any]) -> Any:
    if isinstance(found, nn.Module):
        if values or options:
            raise UserError(f"cannot be given: {spec} is a module already, not a class or a function", "model_args")
        return found
    if not callable(found):
        raise UserError(f"{spec} is {_described(found)}, but a class or a function is needed: {_FORMS}", "model")
    try:
        inspect.signature(found).bind(*values, **options)
    except TypeError as error:
        raise UserError(
            f"do not fit {spec}{_signature(found)} ({error}); give words such as 10 or width=10", "model_args"
        ) from error
    except ValueError:
        pass  # callables without a signature
    try:
        return found(*values, **options)
    except (Exception, SystemExit) as error:
        raise _failed(f"{spec}: making the model failed", error, "correct it, or its arguments --model-args") from error


def _signature(found: Any) -> str:
    text = str(inspect.signature(found))
    return text if len(text) < 200 else "(…)"


def _failed(what: str, error: BaseException, advice: str) -> UserError:
    """An error whose first line is ours, and whose rest is the traceback of the user's own code."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not _ours(frame.filename)]
    lines = ["Traceback (most recent call last):\n", *traceback.format_list(frames)] if frames else []
    text = "".join([*lines, *traceback.format_exception_only(error)])
    return UserError(f"{what} ({_brief(error)}); {advice}:\n{text.rstrip()}")


def _ours(filename: str) -> bool:
    return filename in (__file__, importlib.__file__) or filename.startswith("<frozen importlib")


def _described(value: Any) -> str:
    return "None" if value is None else f"an object of type {type(value).__name__}"


def _brief(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:200]}" if lines else type(error).__name__
