"""The networks of runs of `orthogonal` that `understudy check` checks."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from understudy.lab.check_runs import NetworkPair, not_kept, pairs_of, rows_with_networks

if TYPE_CHECKING:
    from torch import Tensor

    from understudy.store import Run

_RESIDUAL = "it is a residual network, of which the run keeps no weights; the theorems are stated for two layers"


@pairs_of("orthogonal")
def pairs(run: Run, samples: int) -> list[NetworkPair]:
    """Return the two-layer networks before and after training, with all of their labelled points."""
    from understudy.papers.separable.orthogonal.study import Orthogonal

    study = Orthogonal.from_config(run.config)

    def points(kind: str, seed: int) -> Tensor:
        return study.sets(kind, [seed]).x[0]

    def classes(kind: str, seed: int) -> Tensor:
        return study.sets(kind, [seed]).y[0]

    found = []
    for row, kept in rows_with_networks(run, lambda row: row["layers"] == 2, "start", "end"):
        if kept is None:
            found.append(not_kept(_RESIDUAL))
            continue
        start, end = kept
        where = row["points"], row["seed"]
        found.append(
            NetworkPair(
                partial(end.to, dtype=end.dtype),
                partial(points, *where),
                f"the {row['points']} points, seed {row['seed']}",
                labels=partial(classes, *where),
                start=partial(start.to, dtype=start.dtype),
            )
        )
    return found
