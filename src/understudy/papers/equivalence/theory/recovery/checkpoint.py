"""Save a search between steps, and continue it after an interruption with the same result up to rounding."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from understudy._atomic import atomic_path, disk_errors
from understudy._errors import UserError
from understudy.papers.equivalence.theory.recovery.layer import LayerSearch
from understudy.papers.equivalence.theory.recovery.search import RecoveredLayer, Search, Stop
from understudy.papers.equivalence.theory.recovery.unit import Unit

_FORMAT = 2
_PROBES = 8


def _fingerprint(search: Search) -> dict[str, Any]:
    """What must be the same for a search to go on: the arguments."""
    return {
        "format": _FORMAT,
        "sizes": None if search.sizes is None else list(search.sizes),
        "seed": search.seed,
        "lower": search.oracle.box.lower.tolist(),
        "upper": search.oracle.box.upper.tolist(),
    }


def _groups(search: Search) -> list[tuple[str, list[Unit]]]:
    done = [(f"layer {i}", layer.units) for i, layer in enumerate(search.layers)]
    rejected = [(f"layer {i} rejected", layer.rejected) for i, layer in enumerate(search.layers)]
    return [*done, *rejected, ("current", search.current.units), ("rejected", search.current.rejected)]


def save_search(search: Search, path: Path) -> None:
    """Write the state of a search to a file, atomically."""
    from safetensors.numpy import save_file

    arrays: dict[str, np.ndarray] = {
        "pool points": search.pool.points,
        "pool directions": search.pool.directions,
        "oriented": search.known.oriented.astype(np.uint8),
    }
    for i, (weight, bias) in enumerate(zip(search.known.weights, search.known.biases, strict=True)):
        arrays |= {f"weight {i}": weight, f"bias {i}": bias}
    counts: dict[str, list[list[float]]] = {}
    for name, units in _groups(search):
        counts[name] = [[unit.bend, unit.hits, unit.tries, unit.failed] for unit in units]
        for j, unit in enumerate(units):
            arrays[f"{name} unit {j} points"] = np.asarray(unit.points)
            arrays[f"{name} unit {j} basis"] = unit.basis
            arrays[f"{name} unit {j} normal"] = unit.normal
    state = {
        "arguments": _fingerprint(search),
        "counts": counts,
        "wanted": [layer.wanted for layer in search.layers],
        "layers": len(search.known.weights),
        "slope": search.known.slope,
        "evaluations": search.oracle.evaluations,
        "lines": search.pool.lines,
        "tested": search.pool.tested,
        **{name: getattr(search, name) for name in ("step", "idle", "retreats", "stop", "done")},
    }
    with disk_errors(path, "choose another file for checkpoint"), atomic_path(path) as temporary:
        kept = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        save_file(kept, temporary, {"search": json.dumps(state)})


def load_search(search: Search, path: Path) -> None:
    """Continue a new search where the one in a file stopped.

    Args:
        search: A search with the same arguments, before its first step.
        path: The file.

    Raises:
        UserError: The file is not a checkpoint, or one of other arguments or another function.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "np") as file:
            state = json.loads(file.metadata()["search"])
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path} cannot be read as a recovery; choose another file", "checkpoint") from error
    for name, value in _fingerprint(search).items():
        if state["arguments"].get(name) != value:
            raise UserError(
                f"{path} belongs to a recovery with other arguments ({name}); choose another file, or remove this one",
                "checkpoint",
            )
    search.oracle.evaluations += state["evaluations"]
    search.known.weights = [arrays[f"weight {i}"].copy() for i in range(state["layers"])]
    search.known.biases = [arrays[f"bias {i}"].copy() for i in range(state["layers"])]
    search.known.oriented, search.known.slope = arrays["oriented"].astype(bool), state["slope"]
    search.pool.points, search.pool.directions = arrays["pool points"], arrays["pool directions"]
    search.pool.lines, search.pool.tested = state["lines"], state["tested"]
    for name in ("step", "idle", "retreats", "done"):
        setattr(search, name, state[name])
    search.stop = None if state["stop"] is None else Stop(*state["stop"])

    def units(name: str) -> list[Unit]:
        found = []
        for j, (bend, hits, tries, failed) in enumerate(state["counts"][name]):
            points, basis, normal = (arrays[f"{name} unit {j} {part}"] for part in ("points", "basis", "normal"))
            found.append(Unit(list(points), basis, normal, bend, int(hits), int(tries), int(failed)))
        return found

    search.layers = [
        RecoveredLayer(units(f"layer {i}"), wanted, units(f"layer {i} rejected"))
        for i, wanted in enumerate(state["wanted"])
    ]
    search.current = LayerSearch(search.oracle, search.known, search.current.random, units("current"))
    search.current.rejected = units("rejected")
    _validate_function(search, path)


def _validate_function(search: Search, path: Path) -> None:
    """Refuse a checkpoint of another function: its fold points are not folds of this function."""
    from understudy.papers.equivalence.theory.recovery.lines import locate

    some = slice(0, 2 * _PROBES)
    points, directions = search.pool.points[some], search.pool.directions[some]
    if len(points) >= _PROBES and locate(search.oracle, points, directions, 1e-4).found.mean() < 0.5:
        raise UserError(
            f"{path} belongs to the recovery of another function; choose another file, or remove this one", "checkpoint"
        )
