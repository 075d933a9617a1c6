"""Pieces of a computed study on a cluster."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from understudy.lab.cluster.engine import Cluster
from understudy.lab.study import LongCompute, Workplace

Tables = dict[str, Any]


def compute_pieces(
    cluster: Cluster, pieces: Mapping[str, Callable[..., Tables]], run: Path
) -> Iterator[tuple[str, Tables]]:
    """Compute pieces in any order, each as one task.

    Args:
        cluster: The cluster.
        pieces: What computes the tables of each, by name.
        run: Folder of the run, to which files that long pieces keep are written.

    Yields:
        Name and tables of each piece, as they are done.

    Raises:
        LostError: Workers of some pieces were lost every time; all others have been yielded before.
    """
    for name, piece in pieces.items():
        cluster.submit(name, _compute, piece)
    problem: Exception | None = None
    for name, found, error in cluster.completed():
        if error is not None:
            problem = problem or error
            continue
        tables, files = found
        for path, data in files.items():
            (run / path).parent.mkdir(parents=True, exist_ok=True)
            (run / path).write_bytes(data)
        yield name, tables
    if problem is not None:
        raise problem


def _compute(piece: Callable[..., Tables]) -> tuple[Tables, dict[str, bytes]]:
    """Compute a piece on a worker; return its tables and the files that it keeps beside them."""
    from understudy.training.parallel import one_thread_each

    if not isinstance(piece, LongCompute):
        with one_thread_each():
            return piece(), {}
    with tempfile.TemporaryDirectory() as folder:
        state, run = Path(folder) / "state", Path(folder) / "run"
        state.mkdir()
        run.mkdir()
        tables = piece(Workplace(state, run, lambda line: None))
        return tables, {str(path.relative_to(run)): path.read_bytes() for path in run.rglob("*") if path.is_file()}
