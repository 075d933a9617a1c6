"""The folder of a run while it is made: never half-written, taken up where it stopped."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from safetensors import safe_open
from safetensors.torch import save_file

from understudy._atomic import atomic_path, write_text
from understudy.errors import UserError
from understudy.store.config import Config, from_toml, name, same, to_toml
from understudy.store.files import disk_errors
from understudy.store.tables import by_epoch, write_table

if TYPE_CHECKING:
    from torch import Tensor

_FILES = (
    "config.toml",
    "environment.json",
    "networks.parquet",
    "metrics.parquet",
    "nodes.parquet",
    "ranks.parquet",
    "weights.safetensors",
    "claims.json",
    "figures",
    "headline.txt",
    "report.html",
)
_TEMPORARY = (".lock", ".progress", *(f".{file}." for file in _FILES))


class RunFolder:
    """`out/<study>/<name of the configuration>/`, locked while it is worked on.

    Finished epochs lie in `progress/`: their rows, in parts that are named by their last epoch, and the state after the
    last of all. The state is written last, so a part beyond it is of epochs that were cut off, and is cleared away.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.progress = path / "progress"
        self._lock = path / ".lock"

    @classmethod
    def of(cls, out: Path, config: Config) -> RunFolder:
        """The folder of a configuration, which need not be there."""
        return cls(out / config["study"] / name(config))

    @classmethod
    @contextmanager
    def open(cls, out: Path, config: Config, need: Callable[[], int]) -> Iterator[RunFolder]:
        """Make or take up the folder of a configuration whose files will take about `need()` bytes."""
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
        """No other process works on the folder meanwhile; what one that was killed left behind is cleared away."""
        with self._lock.open("a") as lock:
            _hold(lock, self.path)
            self._sweep()
            try:
                yield
            finally:
                if self.finished:
                    self._lock.unlink()

    def _claim(self, config: Config, estimate: Callable[[], int]) -> None:
        said = self.path / "config.toml"
        if said.is_file():
            if not same(from_toml(said), config):
                raise UserError(
                    f"{self.path}: belongs to another configuration (see its config.toml); choose another --out"
                )
            return
        if self.path.is_dir() and set(self.path.iterdir()) - set(self._leftovers()):
            raise UserError(f"{self.path}: holds files that are not of a run; move them away, or choose another --out")
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
        write_text(said, to_toml(config))

    def _leftovers(self) -> list[Path]:
        """What a process that was killed had under a temporary name."""
        return [entry for entry in self.path.iterdir() if entry.name.startswith(_TEMPORARY)]

    def _sweep(self) -> None:
        for entry in self._leftovers():
            if entry.is_dir():
                shutil.rmtree(entry)
            elif entry != self._lock:
                entry.unlink()

    @property
    def finished(self) -> bool:
        return (self.path / "report.html").is_file() and not self.progress.exists()

    def state(self) -> tuple[dict[str, Tensor], float] | None:
        """The state after the last finished epoch and the seconds worked so far; none before the first."""
        path = self.progress / "state.safetensors"
        if not path.is_file():
            return None
        with safe_open(path, "pt") as file:
            return {key: file.get_tensor(key) for key in file.keys()}, float(file.metadata()["seconds"])  # noqa: SIM118

    def save(self, epoch: int, tables: dict[str, pa.Table], state: dict[str, Tensor], seconds: float) -> None:
        """Epochs up to this one are done: the rows since the last time, and the state after it."""
        for table, rows in tables.items():
            write_table(self.progress / f"{table}-{epoch:06}.parquet", rows)
        with atomic_path(self.progress / "state.safetensors") as temporary:
            plain = {key: value.cpu().contiguous() for key, value in state.items()}
            save_file(plain, temporary, metadata={"seconds": repr(seconds)})

    def saved(self, table: str, epoch: int) -> Iterator[pa.Table]:
        """The rows of a table that were saved up to an epoch, an epoch each; parts beyond it are cleared away."""
        for part in sorted(self.progress.glob(f"{table}-*.parquet")):
            if int(part.stem.removeprefix(f"{table}-")) > epoch:
                part.unlink()
            else:
                yield from by_epoch(pq.read_table(part))

    def finish(self) -> None:
        """All is written. What is no longer needed goes at one stroke: half a `progress` would lose the run."""
        self.progress.rename(self.path / ".progress")
        self._sweep()


def _hold(lock: IO[Any], path: Path) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise UserError(
            f"{path}: another process is at work on this run; wait for it, or choose another --out"
        ) from error
