"""Tasks on a Ray cluster: submitted with the resources they need, and again if their worker is lost."""

from __future__ import annotations

import os
import platform
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from understudy._cores import LIMIT, cores
from understudy._errors import UserError, first_line
from understudy.lab.discovery import USER_MODULE

TRIES = 3
"""How often a task is started whose worker is lost."""
_WAIT = 0.5
"""Seconds between two looks at tasks, in which Ctrl-C is noticed."""
_PATIENCE = 10.0
"""Seconds in which a cluster must answer."""
_PROBE = 60.0
"""Seconds in which every node must answer at the start."""


class LostError(UserError):
    """A task whose worker was lost every time it was started."""


class Done(NamedTuple):
    """What a task returned, or the error it raised."""

    key: Any
    value: Any
    error: Exception | None


class Cluster:
    """A Ray cluster.

    Args:
        gpu: Whether tasks need a GPU each; else they need a core each.
    """

    def __init__(self, *, gpu: bool) -> None:
        self._need = {"num_cpus": 1, "num_gpus": 1 if gpu else 0}
        self._tries: dict[Any, int] = {}
        self._running: dict[Any, tuple[Any, Callable[..., Any], tuple[Any, ...]]] = {}

    @property
    def slots(self) -> int:
        """How many tasks can run at once."""
        import ray

        found: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
        return int(found.get("GPU", 0) if self._need["num_gpus"] else found.get("CPU", 0))

    def share(self, value: Any) -> Any:
        """Put a value where every task can read it, and return what stands for it in `submit`."""
        import ray

        return ray.put(_pack(value))

    def submit(self, key: Any, work: Callable[..., Any], *values: Any) -> None:
        """Start a task, whose result `completed` yields under its key."""
        import ray

        task: Any = ray.remote(max_retries=0, **self._need)(_run)  # type: ignore[call-overload]
        self._tries[key] = self._tries.get(key, 0) + 1
        packed = (value if isinstance(value, ray.ObjectRef) else _pack(value) for value in (work, *values))
        reference = task.remote(_versions(), _users_files(), *packed)
        self._running[reference] = (key, work, values)

    def completed(self) -> Iterator[Done]:
        """Results in the order in which tasks end. Tasks may be submitted meanwhile."""
        import ray
        from ray import exceptions

        lost = (
            exceptions.WorkerCrashedError,
            exceptions.NodeDiedError,
            exceptions.ObjectLostError,
            exceptions.OutOfMemoryError,
            exceptions.LocalRayletDiedError,
        )
        while self._running:
            ready, _ = ray.wait(list(self._running), timeout=_WAIT)
            for reference in ready:
                key, work, values = self._running.pop(reference)
                try:
                    value = ray.get(reference)
                except lost as error:
                    if self._tries[key] < TRIES:
                        self.submit(key, work, *values)
                        continue
                    self._tries.pop(key)
                    words = f"{key}: its worker was lost {TRIES} times ({type(error).__name__})"
                    yield Done(key, None, LostError(f"{words}; the same command tries again"))
                except exceptions.RayTaskError as error:
                    self._tries.pop(key)
                    yield Done(key, None, error.cause if isinstance(error.cause, Exception) else error)
                else:
                    self._tries.pop(key)
                    yield Done(key, value, None)

    def cancel(self) -> None:
        """Stop all tasks."""
        import ray

        for reference in self._running:
            with suppress(Exception):
                ray.cancel(reference, force=True)
        self._running.clear()


@contextmanager
def connect(engine: str, *, gpu: bool) -> Iterator[Cluster]:
    """Open a cluster, and verify that all of its nodes have this version of the package.

    Args:
        engine: `ray` for the cluster that is known here (`ray start`, RAY_ADDRESS), or else one of this machine alone;
            `ray:ADDRESS` for the one at an address, such as `ray:10.0.0.1:6379`.
        gpu: Whether tasks need a GPU each.

    Raises:
        UserError: Another engine, no cluster there, one without the resources that a task needs, or a node with other
            versions.
    """
    name, _, address = engine.partition(":")
    if name != "ray":
        raise UserError(f"must be ray or ray:ADDRESS, got {engine}", "cluster")
    if find_spec("ray") is None:
        raise UserError("ray needs the package ray: pip install 'understudy[ray]'", "cluster")
    import ray

    _init(address)
    try:
        _require_same_versions()
        cluster = Cluster(gpu=gpu)
        if cluster.slots < 1:
            what = "GPU" if gpu else "core"
            raise UserError(f"a piece needs a {what}, and no node of the cluster has one free for tasks", "cluster")
        try:
            yield cluster
        finally:
            cluster.cancel()
    finally:
        ray.shutdown()


def _init(address: str) -> None:
    import ray

    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR", "include_dashboard": None}
    options = {name: value for name, value in options.items() if value is not None}
    try:
        if address:
            if "://" not in address:  # Ray itself would try for minutes
                host, _, port = address.rpartition(":")
                socket.create_connection((host, int(port)), timeout=_PATIENCE).close()
            ray.init(address=address, **options)
            return
        with suppress(ConnectionError):
            ray.init(address="auto", **options)
            return
        ray.init(address="local", num_cpus=cores(), include_dashboard=False, **options)
    except (ConnectionError, TimeoutError, RuntimeError, ValueError, OSError) as error:
        raise UserError(
            f"there is no Ray cluster at {address or 'this machine'} ({first_line(error)}); start one with "
            "`ray start --head`, and give the address that it prints",
            "cluster",
        ) from error


def _versions() -> dict[str, str]:
    """What must be the same on all machines."""
    return {"Python": platform.python_version()} | {name: version(name) for name in ("understudy", "torch", "numpy")}


def _require_same_versions() -> None:
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    nodes = [node for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]
    ask: Any = ray.remote(num_cpus=0, max_retries=0)(_versions)
    asked = {}
    for node in nodes:
        here = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        asked[node["NodeManagerAddress"], node["NodeID"]] = ask.options(scheduling_strategy=here).remote()
    for (address, _), reference in asked.items():
        try:
            found = ray.get(reference, timeout=_PROBE)
        except Exception as error:
            words = first_line(error)
            raise UserError(
                f"the node {address} cannot run a task ({words}); is understudy installed there?", "cluster"
            ) from error
        _require_versions(found, f"the node {address}", _versions())


def _require_versions(found: dict[str, str], who: str, wanted: dict[str, str]) -> None:
    if other := [name for name in wanted if found[name] != wanted[name]]:
        differ = ", ".join(f"{name} {found[name]} instead of {wanted[name]}" for name in other)
        raise UserError(f"{who} has {differ}; results would depend on it: install the same version", "cluster")


def _pack(value: Any) -> bytes:
    import ray

    packed: bytes = ray.cloudpickle.dumps(value)  # type: ignore[no-untyped-call]
    return packed


def _users_files() -> dict[str, str]:
    """Text of the user's files that define studies, by the name under which they are imported."""
    modules = [(name, module.__file__) for name, module in sys.modules.items() if name.startswith(USER_MODULE)]
    return {name: Path(file).read_text(encoding="utf-8") for name, file in modules if file}


def _run(wanted: dict[str, str], files: dict[str, str], *packed: bytes) -> Any:
    """Do a task on a worker, with one core; what it is given is read after the user's files are imported."""
    import ray

    _require_versions(_versions(), f"the node {platform.node()}", wanted)
    for name, text in files.items():
        if name not in sys.modules:
            sys.modules[name] = ModuleType(name)
            exec(compile(text, name, "exec"), vars(sys.modules[name]))
    os.environ[LIMIT] = "1"
    work, *values = map(ray.cloudpickle.loads, packed)
    return work(*values)
