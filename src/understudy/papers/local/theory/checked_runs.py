"""The networks of runs of this paper's studies that `understudy check` checks."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from understudy.lab.check_runs import NetworkPair, not_kept, pairs_of, rows_with_networks

if TYPE_CHECKING:
    from understudy.store import Run

_KEPT = "teacher", "start", "end"
_ONLY_MEASURED = "claim 1", "start"
"""Parts of the studies of which no networks are kept."""
_CENTRED = "its output at the start is subtracted in training, so that the network alone is not the student"


@pairs_of("local-rate", "regimes", "initialisation", "identifiability")
def pairs(run: Run, samples: int) -> list[NetworkPair]:
    """Pair the last students of every network with its teacher, on the normal inputs that the exact losses are of."""
    from understudy.data import Gaussian

    found = []
    for row, kept in rows_with_networks(run, lambda row: row.get("part") not in _ONLY_MEASURED, *_KEPT):
        if kept is None:
            found.append(
                not_kept(f"the run keeps no networks of the part {row['part']}, only what it measured of them")
            )
            continue
        if row.get("regime") == "lazy":
            found.append(not_kept(_CENTRED))
            continue
        teacher, start, end = kept
        inputs = Gaussian(end.inputs, 1.0, train=samples)
        found.append(
            NetworkPair(
                partial(end.to, dtype=end.dtype),
                partial(inputs.training, row["seed"]),
                f"drawn: gaussian, std 1, seed {row['seed']}, of which {run.config['study']} has exact losses",
                partial(teacher.to, dtype=teacher.dtype),
                start=partial(start.to, dtype=start.dtype),
            )
        )
    return found
