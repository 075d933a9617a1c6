"""A configuration: everything that fixes a result, as TOML, and the name that follows from it."""

from __future__ import annotations

import hashlib
import json
import math
import tomllib
from pathlib import Path
from typing import Any

from understudy.errors import UserError

Config = dict[str, Any]
"""{"study": name, "format": 1, "options": {…}}"""


def to_toml(config: Config) -> str:
    """Plain values first, then one table of options, in the order given."""
    lines = [f"{key} = {_value(value)}" for key, value in config.items() if not isinstance(value, dict)]
    for name, table in config.items():
        if isinstance(table, dict):
            lines += ["", f"[{name}]", *(f"{key} = {_value(value)}" for key, value in table.items())]
    return "\n".join(lines) + "\n"


def _value(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(_value(item) for item in value)}]"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, float | int | str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")  # which JSON allows and TOML does not
    raise TypeError(f"{value!r} has no place in a configuration")


def from_toml(path: Path) -> Config:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: is not a configuration ({error}); restore it, or move the folder away") from error


def name(config: Config) -> str:
    """The folder that this configuration, and no other, runs in."""
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()[:12]


def same(one: Config, other: Config) -> bool:
    """Whether two configurations fix the same result, in whatever order they say it."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
