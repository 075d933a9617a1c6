"""The configuration of a run, which fixes its results: as TOML, and the folder name that follows from it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import tomli_w

from understudy._errors import UserError
from understudy._reading import read_toml

Config = dict[str, Any]
"""{"study": name, "format": 1, "options": {…}}"""


def to_toml(config: Config) -> str:
    """A configuration as TOML."""
    return tomli_w.dumps(config)


def from_toml(path: Path) -> Config:
    """Read a configuration.

    Raises:
        UserError: A file that is no TOML, or no configuration.
    """
    remedy = "restore it, or move the folder away"
    config = read_toml(path, remedy)
    if not isinstance(config.get("study"), str) or not isinstance(config.get("options", {}), dict):
        raise UserError(f"{path} is no configuration of a run, which has a study and its options; {remedy}")
    return config


def name(config: Config) -> str:
    """The name of the folder of a configuration: a hash of it."""
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()[:12]
