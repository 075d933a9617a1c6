"""The run folder of a watched training, written while it goes on."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
from safetensors.torch import save_file
from torch import Tensor

from understudy._atomic import atomic_path, disk_errors, write_json, write_text
from understudy._errors import UserError
from understudy._reading import read_json
from understudy.lab.watch.probes import Nodes, Probe, load_probes, rank_file, save_probe
from understudy.lab.watch.tables import TABLES, make_tables
from understudy.nets.files.safetensors_files import opened
from understudy.store.config import Config, from_toml, to_toml
from understudy.store.folder import RunFolder
from understudy.store.tables import write_table

_RANK_BYTES = 1 << 29
"""Ranks of all probes that are kept; beyond it, those of every second probe are dropped."""
_REMEDY = "choose another folder with out="


class WatchFolder:
    """Run folder of a watched training: `progress/` has a file for each probe, from which the tables are made anew.

    Tables, weights and environment are written by a thread after each probe, each file complete or not at all. The
    folder is locked until it is closed.

    Args:
        path: The folder.
        config: What fixes the run.
        layers: Layers of teacher and student.
        resume: Steps of the interrupted training in the folder that is continued; 0 for a new one.

    Raises:
        UserError: The folder holds something else, or nothing to continue.
    """

    def __init__(self, path: Path, config: Config, layers: tuple[Nodes, Nodes], resume: int) -> None:
        self.path, self._layers, self._options = path, layers, config["options"]
        self.probes: list[Probe] = []
        self.environment: dict[str, Any] = {}
        self._initial: dict[str, Tensor] = {}
        self._progress = path / "progress"
        self._lock, self._thread = ExitStack(), ThreadPoolExecutor(1, thread_name_prefix="watch")
        self._job: Future[None] | None = None
        with disk_errors(path, _REMEDY):
            if resume:
                self._continue(config, resume)
            else:
                self._begin(config)

    def _begin(self, config: Config) -> None:
        if self.path.exists() and not self.path.is_dir():
            raise UserError(f"out must be a folder, and {self.path} is a file; choose another one")
        written = self.path / "config.toml"
        if self.path.is_dir() and any(self.path.iterdir()):
            kind = "a run" if written.is_file() else "other files"
            raise UserError(
                f"out must be a new folder, and {self.path} holds {kind}; choose another one, or continue an "
                "interrupted training with resume=STEP"
            )
        self.path.mkdir(parents=True, exist_ok=True)
        self._lock.enter_context(RunFolder(self.path).alone())
        self._progress.mkdir()
        write_text(written, to_toml(config))

    def _continue(self, config: Config, resume: int) -> None:
        written = self.path / "config.toml"
        if not written.is_file() or not self._progress.is_dir():
            state = "is finished" if written.is_file() else "is not a run"
            raise UserError(f"{self.path} {state}, so that it cannot be continued; leave out resume, with another out")
        if from_toml(written) != config:
            raise UserError(
                f"{self.path} was begun with other networks, layers or options (see its config.toml); continue with "
                "the same, or choose another out without resume"
            )
        self._lock.enter_context(RunFolder(self.path).alone())
        self.probes = load_probes(self._progress, resume)
        if not self.probes:
            self._lock.close()
            raise UserError(f"{self.path} has no probe up to step {resume}; choose another out without resume")
        remedy = "choose another out without resume"
        self.environment = dict(read_json(self.path / "environment.json", remedy))
        with opened(self.path / "weights.safetensors", remedy) as file:
            self._initial = {name: file.get_tensor(name) for name in file.keys() if name.startswith("start.")}  # noqa: SIM118

    def add(self, probe: Probe, weights: dict[str, Tensor], diverged_at: int | None, facts: Mapping[str, Any]) -> None:
        """Record a probe, or once more the last one, and write everything up to it.

        Args:
            probe: The probe.
            weights: Copies of the student's weights by name; empty if they are not saved.
            diverged_at: The step at which training diverged.
            facts: Additional facts that the environment records.
        """
        self.wait()
        if self.probes and self.probes[-1].step == probe.step:
            self.probes.pop()
        if self.probes:  # only the last probe keeps every correlation
            self._drop(len(self.probes) - 1, every=None)
        self.probes.append(probe)
        self._initial = self._initial or {f"start.{name}": value.clone() for name, value in weights.items()}
        saved = self._initial | {f"last.{name}": value for name, value in weights.items()}
        self.environment |= {**facts, "probes": len(self.probes)}
        self._job = self._thread.submit(self._write, saved, diverged_at)

    def _write(self, weights: dict[str, Tensor], diverged_at: int | None) -> None:
        """Write the last probe, tables (`metrics` first, whose epochs bound all others), weights and environment."""
        save_probe(self._progress, len(self.probes) - 1, self.probes[-1])
        self._thin()
        networks = {role: [self._options[role]["class"]] for role in ("teacher", "student")}
        networks |= {"steps": [self.probes[-1].step], "diverged_at": pa.array([diverged_at], pa.int64())}
        tables = make_tables(*self._layers, self.probes)
        tables["networks"] = pa.table({"network": pa.array([0], pa.int32())} | networks)
        for name in ("metrics", "layers", "nodes", "networks"):
            write_table(self.path / f"{name}.parquet", tables[name])
        with atomic_path(self.path / "weights.safetensors") as temporary:
            save_file(weights, temporary)
        self._write_environment()

    def _write_environment(self) -> None:
        write_json(self.path / "environment.json", self.environment | {"tables": list(TABLES)})

    def _thin(self) -> None:
        """Drop the ranks of every second probe where all together are too large, but not of the first and the last."""
        while True:
            found = {i: probe.reading.ranks for i, probe in enumerate(self.probes) if probe.reading is not None}
            sizes = {i: ranks.nbytes for i, ranks in found.items() if ranks is not None}
            if sum(sizes.values()) <= _RANK_BYTES or len(sizes) < 3:
                return
            for i in list(sizes)[1:-1:2]:
                self._drop(i, ranks=None)
                rank_file(self._progress, i).unlink(missing_ok=True)

    def _drop(self, i: int, **arrays: Any) -> None:
        """Drop arrays of a probe, which are given as None."""
        reading = self.probes[i].reading
        if reading is not None:
            self.probes[i] = self.probes[i]._replace(reading=reading._replace(**arrays))

    def wait(self) -> None:
        """Wait until everything is written.

        Raises:
            UserError: It cannot be written.
        """
        if self._job is not None:
            job, self._job = self._job, None
            with disk_errors(self.path, _REMEDY):
                job.result()

    def close(self, finished: bool, facts: Mapping[str, Any]) -> None:
        """Write everything with the last facts, and unlock the folder; a finished run cannot be continued."""
        try:
            self.wait()
            self.environment |= facts
            with disk_errors(self.path, _REMEDY):
                self._write_environment()
        finally:
            self._thread.shutdown()
            if finished:
                shutil.rmtree(self._progress, ignore_errors=True)
            self._lock.close()
