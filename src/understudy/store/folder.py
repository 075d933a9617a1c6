"""The folder of a run while it is made: never half-written, resumed where it stopped."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from filelock import FileLock, Timeout

from understudy._atomic import disk_errors, write_text
from understudy._errors import TooLargeError, UserError
from understudy._states import DamagedStateError, checksum_of_file, read_state, write_state
from understudy.store.config import Config, from_toml, name, to_toml
from understudy.store.tables import by_epoch, write_table

if TYPE_CHECKING:
    from torch import Tensor

_TEMPORARY = re.compile(r"\.(lock|progress|figures\..*|[\w-]+\.(toml|json|parquet|safetensors|txt|html)\..*)")
"""Names that files and folders have while they are written."""


_STATES = 2
"""States that are kept."""


class Resumed(NamedTuple):
    """A saved epoch from which a run goes on."""

    epoch: int
    state: dict[str, Tensor]
    seconds: float
    """Seconds worked so far."""
    problems: tuple[str, ...]
    """Later files that are missing or damaged, for which the run goes back to this epoch."""


class RunFolder:
    """`out/<study>/<hash of the configuration>/`, locked while a process works on it.

    Finished epochs are saved in `progress/`: their rows and weights, in parts named by their last epoch, and the state
    after the last one, which lists all parts before it with their checksums, and has a checksum of its own. The state
    is written last, so a part beyond it belongs to epochs that were interrupted, and is removed. The last two states
    are kept: where a file is damaged, the run goes on from the one before it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.progress = path / "progress"
        self._lock = path / ".lock"
        self._parts: dict[str, str] = {}
        """Checksums of the parts up to the last state, by name, in the order in which they were written."""

    @classmethod
    def of(cls, out: Path, config: Config) -> RunFolder:
        """The folder of a configuration, which need not exist."""
        return cls(out / config["study"] / name(config))

    @classmethod
    @contextmanager
    def open(cls, out: Path, config: Config, need: Callable[[], int]) -> Iterator[RunFolder]:
        """Make or resume the folder of a configuration whose files will take about `need()` bytes."""
        folder = cls.of(out, config)
        with disk_errors(folder.path):
            folder._claim(config, need)
            if folder.finished and not folder._leftovers():
                yield folder
                return
            with folder.alone():
                if not folder.finished:
                    folder.progress.mkdir(exist_ok=True)
                yield folder

    @property
    def busy(self) -> bool:
        """Whether a process is working on the run."""
        if not self._lock.exists():
            return False
        lock = FileLock(self._lock)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            return True
        lock.release()
        return False

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other processes out of the folder, and remove what a killed process left behind."""
        lock = FileLock(self._lock)
        try:
            lock.acquire(timeout=0)
        except Timeout as error:
            raise UserError(
                f"{self.path}: another process is working on this run; wait for it, or choose another --out"
            ) from error
        try:
            self._sweep()
            yield
        finally:
            if self.finished:
                self._lock.unlink(missing_ok=True)
            lock.release()

    def _claim(self, config: Config, estimate: Callable[[], int]) -> None:
        written = self.path / "config.toml"
        if written.is_file():
            if name(from_toml(written)) != name(config):
                raise UserError(
                    f"{self.path} belongs to another configuration (see its config.toml); choose another --out"
                )
            return
        if self.path.is_dir() and set(self.path.iterdir()) - set(self._leftovers()):
            raise UserError(
                f"{self.path} holds files that do not belong to a run; move them away, or choose another --out"
            )
        existing = next(parent for parent in (self.path, *self.path.absolute().parents) if parent.exists())
        if not os.access(existing, os.W_OK):
            raise UserError(f"{self.path}: {existing} is read-only; choose another folder with --out")
        need, free = estimate(), shutil.disk_usage(existing).free
        if free < need:
            raise TooLargeError(
                f"{self.path}: this run needs about {need / 1e6:,.0f} MB and the disk has {free / 1e6:,.0f} MB free; "
                "free some space, or choose another --out"
            )
        self.path.mkdir(parents=True, exist_ok=True)
        write_text(written, to_toml(config))

    def _leftovers(self) -> list[Path]:
        """Files that a killed process had under a temporary name."""
        return [entry for entry in self.path.iterdir() if _TEMPORARY.fullmatch(entry.name)]

    def _sweep(self) -> None:
        for entry in self._leftovers():
            if entry.is_dir():
                shutil.rmtree(entry)
            elif entry != self._lock:
                entry.unlink()

    @property
    def finished(self) -> bool:
        """Whether the run is complete, its report included."""
        return (self.path / "report.html").is_file() and not self.progress.exists()

    def resume(self) -> Resumed | None:
        """The last epoch that was saved and is whole; None if none was saved. Parts after it are removed.

        Raises:
            UserError: Epochs were saved, but the files of none are whole.
        """
        over = f"remove {self.progress} to start over"
        problems: list[str] = []
        states = sorted(self.progress.glob("state-*.safetensors"), reverse=True)
        if (earlier := self.progress / "state.safetensors").exists():
            problems.append(f"{earlier} was written by an earlier version")
        for path in states:
            try:
                state, stated = read_state(path, over)
                self._parts = self._require_parts(path, stated)
            except DamagedStateError as error:
                problems.append(str(error).removesuffix(f"; {over}"))
                continue
            self._remove_but({*self._parts, *(each.name for each in states if each <= path)})
            return Resumed(int(stated["epoch"]), state, float(stated["seconds"]), tuple(problems))
        if problems:
            raise UserError(f"{'; '.join(problems)}; no earlier epoch is whole, so {over}")
        self._remove_but(set())
        return None

    def _remove_but(self, kept: set[str]) -> None:
        """Remove what an interrupted save left in `progress/`."""
        for file in self.progress.iterdir():
            if file.name not in kept:
                shutil.rmtree(file) if file.is_dir() else file.unlink()

    def _require_parts(self, path: Path, stated: dict[str, Any]) -> dict[str, str]:
        """Compare a state with its place, and the parts that it lists with their checksums."""
        if stated.get("run") != self.path.name or path != self._state(stated.get("epoch", -1)):
            raise DamagedStateError(f"{path} is the state of another run or epoch")
        parts: dict[str, str] = stated["parts"]
        for part_name, checksum in parts.items():
            part = self.progress / part_name
            if not part.is_file():
                raise DamagedStateError(f"{part} is missing")
            if checksum_of_file(part) != checksum:
                raise DamagedStateError(f"{part} cannot be read (its contents do not match its checksum)")
        return parts

    def _state(self, epoch: int) -> Path:
        return self.progress / f"state-{epoch:06}.safetensors"

    def save(self, epoch: int, tables: dict[str, pa.Table], state: dict[str, Tensor], seconds: float) -> None:
        """Save the rows since the last save, then the state after this epoch."""
        for table, rows in tables.items():
            write_table(self.progress / f"{table}-{epoch:06}.parquet", rows)
            self.add_part(f"{table}-{epoch:06}.parquet")
        stated = {"run": self.path.name, "epoch": epoch, "seconds": seconds, "parts": self._parts}
        write_state(self._state(epoch), state, stated)
        for path in sorted(self.progress.glob("state-*.safetensors"))[:-_STATES]:
            path.unlink()

    def add_part(self, part: str) -> None:
        """Let the next state list a file of `progress/`."""
        self._parts[part] = checksum_of_file(self.progress / part)

    def saved(self, table: str) -> Iterator[pa.Table]:
        """Yield the rows of a table up to the epoch at which the run resumed, one table per epoch."""
        for part in self._parts:
            if re.fullmatch(rf"{re.escape(table)}-\d+\.parquet", part):
                yield from by_epoch(pq.read_table(self.progress / part))

    def finish(self) -> None:
        """Remove `progress/` once everything is written, by one rename first: half of it could not be resumed."""
        self.progress.rename(self.path / ".progress")
        self._sweep()
