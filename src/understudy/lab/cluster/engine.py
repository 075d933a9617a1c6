"""Tasks on a Ray cluster: submitted with the resources they need, and again if their worker is lost."""

from __future__ import annotations

import os
import platform
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from understudy import _cores, _memory
from understudy._cores import cores
from understudy._errors import UserError, first_line
from understudy._memory import free_memory
from understudy.lab.discovery import USER_MODULE

TRIES = 3
"""How often a task is started whose worker is lost."""
_WAIT = 0.5
"""Seconds between two checks of tasks, after which Ctrl-C is noticed."""
_PATIENCE = 10.0
"""Seconds in which a cluster must answer."""
_PROBE = 60.0
"""Seconds in which every node must answer at the start, and in which lost nodes can be replaced later."""
_SAME = ("understudy", "torch", "numpy", "scipy", "numba")
"""Packages on which results depend."""


_DATA = "UNDERSTUDY_DATA"
"""Environment variable with the folder of data."""


class LostError(UserError):
    """A task whose worker was lost every time it was started."""


class Done(NamedTuple):
    """What a task returned, or the error it raised."""

    key: Any
    value: Any
    error: Exception | None


class _Driver(NamedTuple):
    """What a worker needs to know of the process that submits tasks."""

    versions: dict[str, str]
    files: dict[str, tuple[str, str]]
    """Path and text of the user's files that define studies."""
    folder: str
    """Its folder, in which relative paths begin."""
    data: str | None


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

        names = ("CPU", "GPU") if self._need["num_gpus"] else ("CPU",)
        alive = [node["Resources"] for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]
        return sum(int(min(each.get(name, 0) for name in names)) for each in alive)

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
        reference = task.remote(_Driver(_versions(), _users_files(), str(Path.cwd()), os.environ.get(_DATA)), *packed)
        self._running[reference] = (key, work, values)

    def completed(self) -> Iterator[Done]:
        """Results in the order in which tasks end. Tasks may be submitted meanwhile.

        Raises:
            UserError: For a minute no node has been left that could run a task.
        """
        import ray
        from ray import exceptions

        lost = (
            exceptions.WorkerCrashedError,
            exceptions.NodeDiedError,
            exceptions.ObjectLostError,
            exceptions.OutOfMemoryError,
            exceptions.LocalRayletDiedError,
        )
        able = time.monotonic()
        while self._running:
            ready, _ = ray.wait(list(self._running), timeout=_WAIT)
            if ready or self.slots:
                able = time.monotonic()
            elif time.monotonic() - able > _PROBE:
                raise UserError(
                    f"no node of the cluster is left that can run a piece; {len(self._running)} were not computed: "
                    "add a node, and the same command goes on where it stopped"
                )
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
    address = require_engine(engine)
    import ray
    from ray.exceptions import RayError

    _init(address)
    try:
        _require_same_versions()
        cluster = Cluster(gpu=gpu)
        if cluster.slots < 1:
            what = "a GPU and a core" if gpu else "a core"
            raise UserError(f"a piece needs {what}, and no node of the cluster has that for tasks", "cluster")
        try:
            yield cluster
        finally:
            cluster.cancel()
    except RayError as error:  # such as a full disk or memory of Ray's own
        words = f"the Ray cluster failed ({type(error).__name__}: {first_line(error)})"
        raise UserError(f"{words}; the same command goes on where it stopped") from error
    finally:
        ray.shutdown()


def require_engine(engine: str) -> str:
    """Refuse an engine that cannot be used: another name, without its package, or with nothing at its address.

    Args:
        engine: `ray` or `ray:ADDRESS`.

    Returns:
        The address, from RAY_ADDRESS where none is given; empty if there is neither.
    """
    name, colon, address = engine.partition(":")
    if name != "ray" or (colon and not address):
        raise UserError(f"must be ray or ray:ADDRESS, got {engine}", "cluster")
    if find_spec("ray") is None:
        raise UserError("ray needs the package ray: pip install 'understudy[ray]'", "cluster")
    address = address or os.environ.get("RAY_ADDRESS", "")
    if address in ("auto", "local"):
        return ""
    if address and "://" not in address:
        try:
            _require_answer(address)
        except (OSError, ValueError) as error:
            raise _no_cluster(address, error) from error
    return address


def _require_answer(address: str) -> None:
    """Raise unless something answers at HOST:PORT: Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    socket.create_connection((host, int(port)), timeout=_PATIENCE).close()


def _init(address: str) -> None:
    """Connect to the cluster at an address, or to that of `ray start`, or else start one of this machine alone."""
    import ray

    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    if not (address := address or _started_here()):
        options |= {"num_cpus": cores(), "include_dashboard": False}
    try:
        ray.init(address=address or "local", **options)
    except (ConnectionError, TimeoutError) as error:
        raise _no_cluster(address, error) from error
    except (RuntimeError, ValueError, OSError) as error:  # such as other versions of Ray or Python
        where = f"the Ray cluster {f'at {address}' if address else 'of this machine'}"
        raise UserError(f"{where} cannot be used: {' '.join(str(error).split())}", "cluster") from error


def _started_here() -> str:
    """Address of the cluster of `ray start` on this machine, if it answers; else empty.

    Not address="auto", with which Ray also finds what another process has started for itself alone.
    """
    from ray._private.services import find_bootstrap_address

    address: str = find_bootstrap_address(None) or ""
    with suppress(OSError, ValueError):
        _require_answer(address)
        return address
    return ""


def _no_cluster(address: str, error: Exception) -> UserError:
    return UserError(
        f"there is no Ray cluster at {address or 'this machine'} ({first_line(error)}); start one with "
        "`ray start --head`, and give the address that it prints",
        "cluster",
    )


def _versions() -> dict[str, str]:
    """What must be the same on all machines."""
    found = {"Python": platform.python_version()} | {name: version(name) for name in _SAME}
    return found | {"source": _digest(Path(__file__).parents[2])}


@cache
def _digest(package: Path) -> str:
    """Beginning of a hash of all source files of a package: versions under development have one number."""
    digest = sha256()
    for path in sorted(package.rglob("*.py")):
        digest.update(path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:8]


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
    if other := [name for name in wanted if found.get(name) != wanted[name]]:
        differ = ", ".join(f"{name} {found.get(name, 'unknown')} instead of {wanted[name]}" for name in other)
        differ = differ.replace("source ", "source files of understudy ")
        raise UserError(f"{who} has {differ}; results would depend on it: install the same version", "cluster")


def _pack(value: Any) -> bytes:
    import ray

    packed: bytes = ray.cloudpickle.dumps(value)  # type: ignore[no-untyped-call]
    return packed


def _users_files() -> dict[str, tuple[str, str]]:
    """Path and text of the user's files that define studies, by the name under which they are imported."""
    modules = [(name, module.__file__) for name, module in sys.modules.items() if name.startswith(USER_MODULE)]
    return {name: (file, Path(file).read_text(encoding="utf-8")) for name, file in modules if file}


def _run(driver: _Driver, *packed: bytes) -> Any:
    """Do a task on a worker, with one core and its share of the memory of its node.

    What it is given is read after the user's files are imported.
    """
    import ray

    _require_versions(_versions(), f"the node {platform.node()}", driver.versions)
    with suppress(OSError):  # another machine may not have the folder, nor need it
        os.chdir(driver.folder)
    if driver.data is not None:
        os.environ[_DATA] = driver.data
    for name, (path, text) in driver.files.items():
        if name not in sys.modules:
            sys.modules[name] = ModuleType(name)
            sys.modules[name].__file__ = path
            exec(compile(text, path, "exec"), vars(sys.modules[name]))
    os.environ[_cores.LIMIT] = "1"
    os.environ[_memory.LIMIT] = str(_own_memory())
    work, *values = map(ray.cloudpickle.loads, packed)
    return work(*values)


@cache
def _own_memory() -> int:
    """Bytes that a task may plan with: as much of what is free on its node for each of the node's cores."""
    import ray

    here = ray.get_runtime_context().get_node_id()
    cores_here = [node["Resources"].get("CPU", 1) for node in ray.nodes() if node["NodeID"] == here]  # type: ignore[no-untyped-call]
    return free_memory() // max(1, int(max(cores_here, default=1)))
