"""The networks of runs of `linear-distillation` that `understudy check` checks."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from understudy.lab.check_runs import NetworkPair, not_kept, pairs_of, rows_with_networks

if TYPE_CHECKING:
    from torch import Tensor

    from understudy.store import Run

_FLOW = "it followed gradient flow, of which the run keeps no networks; those of gradient descent are kept"


@pairs_of("linear-distillation")
def pairs(run: Run, samples: int) -> list[NetworkPair]:
    """Pair the students of gradient descent with their teacher, on all inputs of their transfer sets."""
    import torch

    from understudy.nets import Layer, Population
    from understudy.papers.distillation.linear_distillation.study import FLOW, LinearDistillation

    tasks = LinearDistillation.from_config(run.config).tasks()

    def inputs(row: dict[str, Any]) -> Tensor:
        return tasks[row["task"]].inputs([row["seed"]], row["inputs"])[0]

    found = []
    for row, kept in rows_with_networks(run, lambda row: row["by"] != FLOW, "start", "end"):
        if kept is None:
            found.append(not_kept(_FLOW))
            continue
        start, end = kept
        weights = tasks[row["task"]].teacher.view(1, 1, -1)
        teacher = Population((Layer(weights, None),), torch.tensor([row["seed"]]), 1.0)
        found.append(
            NetworkPair(
                partial(end.to, dtype=weights.dtype),
                partial(inputs, row),
                f"the {row['inputs']} inputs of the transfer set, task {row['task']}, seed {row['seed']}",
                partial(teacher.to, dtype=weights.dtype),
                start=partial(start.to, dtype=weights.dtype),
            )
        )
    return found
