"""The configuration of a run, which fixes its results: as TOML, and the folder name that follows from it."""

from __future__ import annotations

import hashlib
import json
import tomllib
from pathlib import Path
from typing import Any

import tomli_w

from understudy._errors import UserError

Config = dict[str, Any]
"""{"study": name, "format": 1, "options": {…}}"""


def to_toml(config: Config) -> str:
    """A configuration as TOML."""
    return tomli_w.dumps(config)


def from_toml(path: Path) -> Config:
    """Read a configuration."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not valid TOML ({error}); restore it, or move the folder away") from error


def name(config: Config) -> str:
    """The name of the folder of a configuration: a hash of it."""
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()[:12]
