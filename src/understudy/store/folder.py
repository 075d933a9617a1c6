"""The folder of a run while it is made: never half-written, resumed where it stopped."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from filelock import FileLock, Timeout
from safetensors import safe_open
from safetensors.torch import save_file

from understudy._atomic import atomic_path, disk_errors, write_text
from understudy._errors import UserError
from understudy.store.config import Config, from_toml, name, to_toml
from understudy.store.tables import by_epoch, write_table

if TYPE_CHECKING:
    from torch import Tensor

_TEMPORARY = re.compile(r"\.(lock|progress|figures\..*|[\w-]+\.(toml|json|parquet|safetensors|txt|html)\..*)")
"""Names that files and folders have while they are written."""


class RunFolder:
    """`out/<study>/<hash of the configuration>/`, locked while a process works on it.

    Finished epochs are saved in `progress/`: their rows, in parts named by their last epoch, and the state after the
    last one. The state is written last, so a part beyond it belongs to epochs that were interrupted, and is removed.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.progress = path / "progress"
        self._lock = path / ".lock"

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
            raise UserError(
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

    def state(self) -> tuple[dict[str, Tensor], float] | None:
        """The state after the last saved epoch and the seconds worked so far; None before the first."""
        path = self.progress / "state.safetensors"
        if not path.is_file():
            return None
        with safe_open(path, "pt") as file:
            return {key: file.get_tensor(key) for key in file.keys()}, float(file.metadata()["seconds"])  # noqa: SIM118

    def save(self, epoch: int, tables: dict[str, pa.Table], state: dict[str, Tensor], seconds: float) -> None:
        """Save the rows since the last save, then the state after this epoch."""
        for table, rows in tables.items():
            write_table(self.progress / f"{table}-{epoch:06}.parquet", rows)
        with atomic_path(self.progress / "state.safetensors") as temporary:
            plain = {key: value.cpu().contiguous() for key, value in state.items()}
            save_file(plain, temporary, metadata={"seconds": repr(seconds)})

    def saved(self, table: str, epoch: int) -> Iterator[pa.Table]:
        """Yield the rows of a table saved up to an epoch, one table per epoch; remove parts beyond it."""
        for part in sorted(self.progress.glob(f"{table}-*.parquet")):
            if int(part.stem.removeprefix(f"{table}-")) > epoch:
                part.unlink()
            else:
                yield from by_epoch(pq.read_table(part))

    def finish(self) -> None:
        """Remove `progress/` once everything is written, by one rename first: half of it could not be resumed."""
        self.progress.rename(self.path / ".progress")
        self._sweep()
