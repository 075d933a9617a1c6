"""The contents of a run that are in a folder."""

from __future__ import annotations

import re
import shutil
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from understudy._errors import UserError
from understudy._reading import read_json, read_text
from understudy.store.claims import Claim
from understudy.store.config import Config, from_toml
from understudy.store.tables import Stored

if TYPE_CHECKING:
    from understudy.data import Source
    from understudy.nets import Population

_TABLE = re.compile(r"[A-Za-z]\w*(-\w+)*")
_REMEDY = "move the folder away and run the same command"


class Files:
    """Contents of a run that are in a folder, each read when it is first asked for.

    Raises:
        UserError: If the folder is not a run, or the run has not finished.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        if not (folder / "config.toml").is_file():
            raise UserError(
                f"{folder} is not a run (it has no config.toml); give a folder such as runs/two-layer/3f2a…, "
                "which `understudy run` prints at its end"
            )
        complete = (folder / "environment.json").is_file() and (folder / "weights.safetensors").is_file()
        if not complete or any(not (folder / f"{name}.parquet").is_file() for name in self.tables):
            study = self.config.get("study", "STUDY")
            raise UserError(f"{folder} has not finished; run `understudy run {study}` with its options again")

    def __str__(self) -> str:
        return str(self.folder)

    @cached_property
    def config(self) -> Config:
        """What fixed the run."""
        return from_toml(self.folder / "config.toml")

    @cached_property
    def environment(self) -> dict[str, Any]:
        """Where and when the run was made."""
        found = self._json("environment.json", {})
        tables = found.get("tables", []) if isinstance(found, dict) else None
        if not isinstance(tables, list) or not all(isinstance(t, str) and _TABLE.fullmatch(t) for t in tables):
            raise self._damaged("environment.json", "facts by name, with a list of the tables")
        if not isinstance(found.get("seconds", 0.0), int | float):
            raise self._damaged("environment.json", "seconds that are a number")
        return dict(found)

    @property
    def tables(self) -> tuple[str, ...]:
        """Names of the tables."""
        return tuple(self.environment.get("tables", ("networks", "metrics", "nodes")))

    @cached_property
    def groups(self) -> list[dict[str, Any]]:
        """Groups of networks."""
        return self._rows("groups.json")

    @cached_property
    def claims(self) -> list[dict[str, Any]]:
        """Decided claims, as plain values."""
        return self._rows("claims.json")

    @property
    def headline(self) -> str:
        """What was found; empty before the first report."""
        path = self.folder / "headline.txt"
        return read_text(path, _REMEDY).strip() if path.is_file() else ""

    def table(self, name: str) -> Stored:
        """A table."""
        return Stored(self.folder / f"{name}.parquet")

    def weights(self, who: str) -> list[Population]:
        """Saved populations, one per group."""
        from understudy.store.weights import read_weights

        return read_weights(self.folder / "weights.safetensors", who)

    @property
    def saved(self) -> list[str]:
        """Names under which populations are saved."""
        from understudy.store.weights import kept_weights

        return kept_weights(self.folder / "weights.safetensors")

    @cached_property
    def sources(self) -> list[Source]:
        """The inputs of each group, made again from their descriptions."""
        from understudy.data import restore

        descriptions = [group["data"] for group in self.groups]
        if not descriptions or None in descriptions:
            raise UserError(
                f"{self.folder} does not record on which inputs networks were trained; give a run of a study that "
                "trains on samples and was made by this version, or two files (us.save(population, FILE, which=0) "
                "saves a network)"
            )
        return [restore(data, of) for data, of in zip(descriptions, self.weights("teacher"), strict=True)]

    def write(self, folder: Path) -> None:
        """Copy all files to an empty folder."""
        shutil.copytree(self.folder, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns(".*"))

    def _json(self, name: str, otherwise: Any) -> Any:
        path = self.folder / name
        return read_json(path, _REMEDY) if path.is_file() else otherwise

    def _rows(self, name: str) -> list[dict[str, Any]]:
        found = self._json(name, [])
        if not isinstance(found, list) or not all(isinstance(row, dict) for row in found):
            raise self._damaged(name, "a list of entries by name")
        return found

    def _damaged(self, name: str, needed: str) -> UserError:
        return UserError(f"{self.folder / name} is damaged: {needed} is needed; {_REMEDY}")

    def require_sound(self) -> None:
        """Read what is small in the run, and the schema of everything else.

        Raises:
            UserError: A file that cannot be read, or with other contents than it must have.
        """
        _ = self.config, self.environment, self.groups, self.headline, self.saved
        for row in self.claims:
            Claim.from_dict(row, str(self.folder / "claims.json"))
        for name in self.tables:
            self.table(name).require_schema()
