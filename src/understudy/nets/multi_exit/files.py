"""Files of networks with several exits: weights as safetensors, with the architecture in the metadata."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn

from understudy._errors import UserError, kind_of
from understudy._numbers import number
from understudy.nets.files.described import DescribedFile, require_finite
from understudy.nets.files.io import existing_file
from understudy.nets.files.model_files import fill_module
from understudy.nets.multi_exit.exits import MultiExit
from understudy.nets.multi_exit.grid import parse_grid
from understudy.nets.multi_exit.msdnet import MSDNet

EXITS = DescribedFile("understudy-exits", 1, "a network with several exits", "network", "save_exits")
"""The kind of file."""


@dataclass(frozen=True, eq=False)
class SavedExits:
    """A network with several exits, and what is known about it.

    Args:
        network: An `MSDNet`, or what `us.exits` returned.
        validation: Validation accuracy (top-1) of each exit, 0 to 1; empty if it is not known.
        mean: Mean of each colour by which images are normalised, for values in [0, 1]; empty if it is not known.
        std: Standard deviation of each colour.
        class_names: Name of each class; empty if they are not known.

    Raises:
        UserError: Another kind of network, lists of another length than exits, colours or classes, or values out of
            range.
    """

    network: MSDNet | MultiExit
    validation: Sequence[float] = ()
    mean: Sequence[float] = ()
    std: Sequence[float] = ()
    class_names: Sequence[str] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.network, MSDNet | MultiExit):
            raise UserError(
                f"must be an MSDNet or what us.exits returned, got {kind_of(self.network)}; put exits on a module with "
                "us.exits",
                "network",
            )
        for name in ("validation", "mean", "std"):
            object.__setattr__(self, name, _numbers(name, getattr(self, name)))
        object.__setattr__(self, "class_names", _names(self.class_names))
        exits, colours = len(self.network.exit_names), self.network.image_shape[0]
        _require_length("validation", self.validation, exits, "exit")
        _require_length("mean", self.mean, colours, "colour")
        _require_length("std", self.std, colours, "colour")
        _require_length("class_names", self.class_names, self.network.classes, "class")
        if wrong := [each for each in self.validation if not 0 <= each <= 1]:
            raise UserError(f"must be shares from 0 to 1, got {wrong[0]}", "validation")
        if bool(self.mean) != bool(self.std):
            raise UserError("must be given together with mean, or neither of them", "std")
        if wrong := [each for each in self.mean if not 0 <= each <= 1]:
            raise UserError(f"must be from 0 to 1, for images divided by 255, got {number(wrong[0])}", "mean")
        if wrong := [each for each in self.std if not 0 < each <= 1]:
            raise UserError(f"must be above 0 and at most 1, for images divided by 255, got {number(wrong[0])}", "std")


def save_exits(
    network: MSDNet | MultiExit,
    path: str | os.PathLike[str],
    *,
    validation: Sequence[float] | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    class_names: Sequence[str] | None = None,
) -> None:
    """Save a network with several exits as safetensors; the file appears complete or not at all.

    Args:
        network: The network. An `MSDNet` is saved with its architecture; of other modules only the weights are saved,
            and `load_exits` needs the module.
        path: File to write; its directory must exist.
        validation: Validation accuracy (top-1) of each exit, 0 to 1.
        mean: Mean of each colour by which training images were normalised, for values in [0, 1].
        std: Standard deviation of each colour.
        class_names: Name of each class.

    Raises:
        UserError: Another kind of network, lists that do not fit it, or a path that cannot be written.
    """
    known = {"validation": validation, "mean": mean, "std": std, "class_names": class_names}
    saved = SavedExits(network, **{name: cast(Any, each) for name, each in known.items() if each is not None})
    description = {
        "architecture": json.loads(network.grid.to_json()) if isinstance(network, MSDNet) else "module",
        **_properties(network),
        **{name: getattr(saved, name) for name in known},
    }
    EXITS.write(path, network, description)


def load_exits(path: str | os.PathLike[str], module: nn.Module | None = None) -> SavedExits:
    """Load a network that `save_exits` saved.

    Args:
        path: The file.
        module: What `us.exits` returned for a module of your own, whose file contains only weights; it is filled with
            them. Not for an `MSDNet`.

    Returns:
        The network in evaluation mode on the CPU, with what the file states about it.

    Raises:
        UserError: Another file, a truncated one, no architecture, weights that do not match it, or a module that is
            missing or not needed.
    """
    file = existing_file(path, EXITS.needed)
    stated = EXITS.read(file)
    architecture = stated.get("architecture")
    network: MSDNet | MultiExit
    if architecture == "module":
        network = _require_module(file, module)
        _require_same(file, network, stated)
        fill_module(network, file)
        require_finite(file, network.state_dict())
    elif isinstance(architecture, dict):
        if module is not None:
            raise UserError(f"{file}: the file records its own architecture; omit the module (--model)")
        EXITS.require_layers(file, architecture.get("layers"))
        with torch.device("meta"):
            network = MSDNet(parse_grid(json.dumps(architecture), str(file)))
        EXITS.fill(file, network)
        _require_same(file, network, stated)
    else:
        raise UserError(f"{file}: the file records no architecture; {EXITS.again}")
    known = {name: stated.get(name) or () for name in ("validation", "mean", "std", "class_names")}
    try:
        return SavedExits(network.eval(), **known)
    except UserError as error:
        raise UserError(f"{file}: its metadata are damaged ({error}); {EXITS.again}") from None


def _properties(network: MSDNet | MultiExit) -> dict[str, Any]:
    """What a module must have in common with the saved one, as JSON reads it."""
    return {
        "exits": list(network.exit_names),
        "image_shape": list(network.image_shape),
        "classes": network.classes,
    }


def _require_same(file: Path, network: MSDNet | MultiExit, stated: dict[str, Any]) -> None:
    """Raise a `UserError` unless a module has the properties that its file states."""
    for what, own in _properties(network).items():
        if own != stated.get(what):
            name = {"exits": "exits", "image_shape": "image shape", "classes": "number of classes"}[what]
            raise UserError(
                f"{file}: the saved network has the {name} {_listed(stated.get(what))}, but the module has "
                f"{_listed(own)}; give the module that was saved"
            )


def _require_module(file: Path, module: nn.Module | None) -> MultiExit:
    if module is None:
        raise UserError(
            f"{file}: the file contains the weights of a module of your own, whose code is needed: give --model "
            "FILE.py:NAME, a function that returns what us.exits makes (in Python load_exits(path, module))"
        )
    if not isinstance(module, MultiExit):
        raise UserError(
            f"{file}: the model must be what us.exits returns, got {kind_of(module)}; put its exits on it in "
            "the function that makes it"
        )
    return module


def _numbers(name: str, given: object) -> tuple[float, ...]:
    """The numbers of a sequence, an array or a tensor."""
    try:
        values = tuple(float(each) for each in cast(Iterable[Any], given))
    except (TypeError, ValueError):
        values = (math.nan,)
    if not all(map(math.isfinite, values)) or isinstance(given, str):
        raise UserError(f"must be several finite numbers, got {_shown(given)}", name)
    return values


def _names(given: object) -> tuple[str, ...]:
    """The names of a sequence."""
    names = tuple(given) if isinstance(given, Sequence) and not isinstance(given, str) else (None,)
    if not all(isinstance(each, str) for each in names):
        raise UserError(f"must be a list of names, got {_shown(given)}", "class_names")
    return cast(tuple[str, ...], names)


def _shown(given: object) -> str:
    """A value in one short line."""
    text = " ".join(repr(given).split())
    return text if len(text) <= 60 else f"{text[:59]}…"


def _require_length(name: str, given: Sequence[Any], count: int, each: str) -> None:
    if given and len(given) != count:
        raise UserError(f"must have one value for each {each} ({count}), got {len(given)}", name)


def _listed(values: object) -> str:
    return ", ".join(map(str, values)) if isinstance(values, list) else str(values)
