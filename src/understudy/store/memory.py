"""The contents of a run that are in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from understudy._atomic import write_json, write_text
from understudy._errors import UserError
from understudy.store.config import Config, to_toml
from understudy.store.tables import Held, write_table

if TYPE_CHECKING:
    from understudy.data import Source
    from understudy.nets import Population


@dataclass(frozen=True, eq=False)
class Memory:
    """Contents of a run that are in memory, of which `us.Run` makes a run.

    Args:
        config: What fixed the run: the study's name, the format and the options.
        held: The tables by name.
        kept: Populations by name (`teacher`, `epoch.0`, …), one per group.
        sources: The inputs of each group.
        measure_environment: What returns where and when the run was made. Called when that is first asked for.
    """

    config: Config
    held: Mapping[str, pa.Table]
    kept: Mapping[str, Sequence[Population]] = field(default_factory=dict)
    sources: list[Source] = field(default_factory=list)
    measure_environment: Callable[[], dict[str, Any]] = dict

    claims: tuple[dict[str, Any], ...] = ()
    headline = ""

    def __str__(self) -> str:
        return "the run in memory"

    @property
    def tables(self) -> tuple[str, ...]:
        """Names of the tables."""
        return tuple(self.held)

    @cached_property
    def environment(self) -> dict[str, Any]:
        """Where and when the run was made."""
        return self.measure_environment() | {"tables": list(self.held)}

    @cached_property
    def groups(self) -> list[dict[str, Any]]:
        """Groups of networks."""
        from understudy.data import describe

        teachers = self.kept.get("teacher", ())
        return [
            {"networks": len(teacher), "data": describe(source)}
            for teacher, source in zip(teachers, self.sources, strict=False)
        ]

    def table(self, name: str) -> Held:
        """A table."""
        return Held(self.held[name])

    def weights(self, who: str) -> list[Population]:
        """Populations, one per group."""
        if who not in self.kept:
            raise UserError(f"{self} has no weights of {who}; it holds those of {', '.join(self.saved) or 'none'}")
        return list(self.kept[who])

    @property
    def saved(self) -> list[str]:
        """Names of the populations."""
        return sorted(self.kept)

    def write(self, folder: Path) -> None:
        """Write the files of a run folder to an empty folder."""
        from understudy.store.weights import write_weights

        for name, table in self.held.items():
            write_table(folder / f"{name}.parquet", table)
        write_weights(folder / "weights.safetensors", self.kept)
        write_json(folder / "groups.json", self.groups)
        write_json(folder / "environment.json", self.environment)
        write_text(folder / "config.toml", to_toml(self.config))
