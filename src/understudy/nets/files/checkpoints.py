"""Checkpoints: the state dict of one network among all that a file contains."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from understudy._errors import UserError, suggest
from understudy.nets.files.state_dict import SAVE_STATE
from understudy.nets.files.stated import Unstated

_STATE_KEYS = ("state_dict", "model_state_dict", "model", "model_state", "network", "net", "weights", "params")
_WRAPPERS = ("module.", "_orig_mod.")  # prefixes of DataParallel and torch.compile
_ROLES = re.compile(
    r"(?:^|_)(?:student|teacher|ema|swa|target|online|momentum|shadow|generator|discriminator)(?:_|$)", re.IGNORECASE
)
"""Names of networks that are saved beside others."""
_DEEPEST = 4
"""How deep in a checkpoint state dicts are searched."""


class Selected(NamedTuple):
    """Tensors of one network of a checkpoint."""

    tensors: dict[str, Tensor]
    key: str | None = None
    """Where they are; None for a file that is a state dict itself."""
    others: tuple[str, ...] = ()
    """Where state dicts of other networks are, if none was chosen."""


def select_state(file: Path, found: Any, key: str | None) -> Selected:
    """Select the state dict of one network, and drop prefixes of wrappers.

    Args:
        file: The file, for messages.
        found: What the file contains: a state dict, or a checkpoint.
        key: The key of a state dict, keys in keys separated by dots, or a prefix of names of tensors. Default: the
            first usual key, else the file itself.

    Returns:
        Its tensors, and where those of others are.

    Raises:
        UserError: No state dict, or nothing under the key.
    """
    if not isinstance(found, Mapping):
        raise UserError(f"{file}: a state dict is needed, but the file is a {type(found).__name__}; {SAVE_STATE}.")
    if key is not None:
        chosen = _find(found, key)
        if chosen is None:
            known = list(dict.fromkeys([*_networks(found), *_prefixes(_default(found))]))
            have = f"it has {', '.join(known)}" if known else "it has neither"
            raise UserError(
                f"{file}: there is no key or prefix {key!r}; {suggest(key, known)}{have}. Choose one of these, or omit "
                "it."
            )
        return Selected(_state_dict(file, chosen, [f"{key}.{each}" for each in _networks(chosen)]), key)
    usual = _usual_key(found)
    others = tuple(each for each in _networks(found) if usual is not None and each.split(".")[0] != usual)
    return Selected(_state_dict(file, _default(found), tuple(_networks(found))), usual, others)


def several_networks(file: Path, keys: Sequence[str]) -> Unstated:
    """The error that a file has several networks of which one must be chosen.

    Args:
        file: The file.
        keys: Their keys or prefixes.

    Returns:
        The error.
    """
    return Unstated(
        f"{file}: it has the tensors of several networks, {', '.join(keys)}",
        f"choose one, as in --key {keys[0]} (in Python key={keys[0]!r}), or save the state dict of one alone",
        "key",
    )


def network_prefixes(names: Sequence[str]) -> list[str]:
    """Prefixes of the names of tensors that suggest several networks, such as a student beside its teacher.

    Args:
        names: Names of all tensors.

    Returns:
        The prefixes, those that name a role first; empty if the names do not suggest several networks.
    """
    found = _prefixes(dict.fromkeys(names))
    roles = [prefix for prefix in found if _ROLES.search(prefix.rpartition(".")[2])]
    rest = [prefix for prefix in found if prefix not in roles]
    alone = roles and not rest and len({name.startswith(f"{roles[0]}.") for name in names}) > 1
    return [*roles, *rest] if roles and (len(found) > 1 or alone) else []


def _prefixes(state: Any) -> list[str]:
    """Prefixes that distinguish the names of tensors: those of modules that contain layers."""
    names = [name.split(".") for name in state if isinstance(name, str)]
    common = 0
    while names and all(len(name) > common + 1 for name in names) and len({name[common] for name in names}) == 1:
        common += 1
    return list(dict.fromkeys(".".join(name[: common + 1]) for name in names if len(name) > common + 2))


def _usual_key(found: Mapping[Any, Any]) -> str | None:
    return next((key for key in _STATE_KEYS if isinstance(found.get(key), Mapping)), None)


def _default(found: Mapping[Any, Any]) -> Any:
    """What is read where no key is given."""
    usual = _usual_key(found)
    return found if usual is None else found[usual]


def _networks(found: Any, prefix: str = "", depth: int = 0, seen: set[int] | None = None) -> Iterator[str]:
    """Keys of all state dicts in a checkpoint that have weights, in its order; keys in keys are separated by dots.

    One that is in several places is found in the first: there may be very many.
    """
    seen = set() if seen is None else seen
    if not isinstance(found, Mapping) or depth > _DEEPEST or id(found) in seen:
        return
    seen.add(id(found))
    if prefix and _is_state(found):
        yield prefix
        return
    for key, value in found.items():
        if isinstance(key, str):
            yield from _networks(value, f"{prefix}.{key}" if prefix else key, depth + 1, seen)


def _is_state(found: Mapping[Any, Any]) -> bool:
    return all(isinstance(name, str) and isinstance(each, Tensor) for name, each in found.items()) and any(
        name == "weight" or name.endswith(".weight") for name in found
    )


def _find(found: Any, key: str) -> Mapping[Any, Any] | None:
    """What is under a key: an entry, an entry of an entry, or the tensors with this prefix."""
    if not isinstance(found, Mapping):
        return None
    if isinstance(found.get(key), Mapping):
        inner = found[key]
        only = [] if _is_state(inner) else list(_networks(inner))
        return _find(inner, only[0]) if len(only) == 1 else inner
    for name, value in found.items():
        if isinstance(name, str) and key.startswith(f"{name}.") and isinstance(value, Mapping):
            return _find(value, key.removeprefix(f"{name}."))
    prefix = f"{key.removesuffix('.')}."
    for state in (found, _unwrapped(found)):
        if some := {name.removeprefix(prefix): each for name, each in state.items() if str(name).startswith(prefix)}:
            return some
    usual = _usual_key(found)
    return None if usual is None else _find(found[usual], key)


def _state_dict(file: Path, found: Any, networks: Sequence[str] = ()) -> dict[str, Tensor]:
    """Require that something is a state dict, and drop prefixes of wrappers."""
    for name, tensor in found.items():
        if not isinstance(name, str) or not isinstance(tensor, Tensor):
            first = next(iter(networks), None)
            choose = "" if first is None else f"choose a network, as in --key {first} (in Python key={first!r}), or "
            raise UserError(
                f"{file}: a state dict of named tensors is needed, alone or under one of the keys "
                f"{', '.join(_STATE_KEYS)}, but entry {name!r} is a {type(tensor).__name__}; {choose}{SAVE_STATE}."
            )
    return _unwrapped(found)


def _unwrapped(state: Mapping[Any, Any]) -> dict[str, Any]:
    """Names of tensors without the prefixes of DataParallel and torch.compile that all of them have."""
    names = {name: name for name in state if isinstance(name, str)}
    while names and (
        prefix := next((each for each in _WRAPPERS if all(name.startswith(each) for name in names.values())), "")
    ):
        names = {name: shown.removeprefix(prefix) for name, shown in names.items()}
    return {shown: state[name] for name, shown in names.items()}
