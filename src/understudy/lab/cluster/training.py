"""A population that is trained in parts on a cluster, in rounds of several epochs.

A part is some networks of one group. Every round each part goes on from its state for the same number of epochs, as one
task that returns the rows of its probes and its new state; a part whose worker is lost goes on from its state again.
What happens to a network does not depend on its part, so that results are those of one machine.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import torch

from understudy._memory import free_memory
from understudy.lab.cluster.engine import Cluster
from understudy.training import Group, Optimiser, Records, Training
from understudy.training.records import METRICS, NODES, RANKS, concatenate

if TYPE_CHECKING:
    from torch import Tensor


_LONG = 15.0
"""Seconds that a round takes about: results are saved after each."""
_ROWS = 0.25
"""Share of the memory that the rows of a round may take."""
_PARTS = 3
"""Parts for each slot of the cluster, so that slots that are free early take another one."""
_SCHEMAS = {"metrics": METRICS, "nodes": NODES, "ranks": RANKS}


@dataclass(frozen=True, eq=False)
class _Part:
    """Some networks of a group, and what a worker needs to train them."""

    group: int
    which: Tensor
    """Indices in the group."""
    networks: np.ndarray
    """Their numbers in the run."""
    task: Any
    """Their group, optimiser and options, shared with the workers."""


class ClusterTraining(Training):
    """A `Training` whose epochs are computed on a cluster; between rounds it has the state of all networks.

    Args:
        cluster: The cluster.
        groups: Groups of students.
        optimiser: Optimiser of all networks.
        last: Last epoch.
        keep: Epochs at which a round must end.
        **options: The other arguments of `Training`.
    """

    def __init__(
        self,
        cluster: Cluster,
        groups: Sequence[Group],
        optimiser: Optimiser,
        *,
        last: int,
        keep: Collection[int] = (),
        **options: Any,
    ) -> None:
        super().__init__(groups, optimiser, **options)
        self._cluster, self._last, self._keep = cluster, last, sorted({*keep, last})
        self._parts = [part for i, group in enumerate(groups) for part in self._cut(i, group, options)]
        self._ahead: list[tuple[list[dict[str, pa.Table]], Tensor]] = []
        """For each of the next epochs of the round the tables of each part, and which networks are alive."""
        self._most = 1
        """Epochs of the next round; the first, which has no steps, does not tell."""

    @property
    def at_rest(self) -> bool:
        """Whether a round has ended: the state is that of this epoch."""
        return not self._ahead

    def advance(self) -> None:
        """Go on to the next epoch, which `probe` computes."""
        self.epoch += 1

    def probe(self) -> Records:
        """Return the rows of this epoch; at the beginning of a round compute those of the whole round."""
        if not self._ahead:
            self._compute_round()
        parts, alive = self._ahead.pop(0)
        tables = {name: concatenate([each[name] for each in parts], _SCHEMAS[name]) for name in parts[0]}
        return Records([lambda: tables], lambda: alive)

    def _cut(self, index: int, group: Group, options: dict[str, Any]) -> list[_Part]:
        """Cut a group into parts of consecutive seeds, which share data."""
        count, slots = len(group.students), self._cluster.slots
        weight = self.plan.rows[index].step_flops / sum(row.step_flops for row in self.plan.rows)
        number = min(count, max(1, round(_PARTS * slots * weight)))
        seeds = group.students.seeds.tolist()
        order = torch.tensor(sorted(range(count), key=seeds.__getitem__))
        parts = []
        for some in order.tensor_split(number):
            which = some.sort().values
            numbers = which + self.groups[index].first
            own = replace(group, students=group.students[which], teacher=group.teacher[which])
            lr = self.optimiser.lr
            given = self.optimiser if isinstance(lr, int | float) else _with_rates(self.optimiser, lr, numbers)
            task = self._cluster.share((own, given, options))
            parts.append(_Part(index, which, numbers.numpy().astype(np.int32), task))
        return parts

    def _compute_round(self) -> None:
        """Compute the epochs of a round: from the present one, which is not probed yet, to the last of the round."""
        start = self.epoch
        end = min(start + self._most - 1, next(epoch for epoch in self._keep if epoch >= start))
        clock = time.monotonic()
        for i, part in enumerate(self._parts):
            state = self._state_of(part) if start else None
            key = f"networks {_range(part.networks)}, epochs {start} to {end}"
            self._cluster.submit(key, _train, i, part.task, state, start, end)
        found: dict[int, _Trained] = {}
        problem: Exception | None = None
        for _, value, error in self._cluster.completed():
            if error is None:
                found[value[0]] = value[1]
            problem = problem or error
        if problem is not None:
            raise problem
        count = end - start + 1
        if start:
            size = sum(table.nbytes for each in found.values() for rows in each.tables for table in rows.values())
            rest = min(_LONG / (time.monotonic() - clock), _ROWS * free_memory() / max(1, size))
            self._most = max(1, int(count * rest))
        for k in range(count):
            tables, alive = [], torch.ones(len(self), dtype=torch.bool)
            for i, part in enumerate(self._parts):
                tables.append(_numbered(found[i].tables[k], part.networks))
                alive[torch.from_numpy(part.networks).long()] = found[i].alive[k]
            self._ahead.append((tables, alive))
        for i, part in enumerate(self._parts):
            self._take(part, found[i].state)

    def _state_of(self, part: _Part) -> dict[str, Tensor]:
        """The state of a part, as a `Training` of it alone has it."""
        ids = torch.from_numpy(part.networks).long()
        blocks = self.groups[part.group].state.tensors().items()
        own = {f"0.{name}": block[part.which].cpu() for name, block in blocks}
        own |= {"diverged_at": self._diverged_at[ids].cpu(), "train_loss": self._train_loss[ids].cpu()}
        return own

    def _take(self, part: _Part, state: dict[str, Tensor]) -> None:
        """Write the state of a part back."""
        ids = torch.from_numpy(part.networks).long()
        for name, block in self.groups[part.group].state.tensors().items():
            block[part.which] = state[f"0.{name}"].to(block.device)
        self._diverged_at[ids] = state["diverged_at"].to(self.device)
        self._train_loss[ids] = state["train_loss"].to(self.device)


def _with_rates(optimiser: Optimiser, lr: Sequence[float], numbers: Tensor) -> Optimiser:
    """The optimiser of some of the networks, each with its own rate."""
    found: Optimiser = replace(optimiser, lr=tuple(lr[i] for i in numbers.tolist()))  # type: ignore[type-var]
    return found


def _range(networks: np.ndarray) -> str:
    return f"{networks.min():,} to {networks.max():,}"


def _numbered(tables: dict[str, pa.Table], networks: np.ndarray) -> dict[str, pa.Table]:
    """Replace the numbers that networks have in their part by those in the run."""
    return {
        name: rows.set_column(0, rows.schema.field(0), pa.array(networks[rows["network"].to_numpy()]))
        for name, rows in tables.items()
    }


class _Trained(NamedTuple):
    """What a task returns: tables and which networks are alive, by epoch, and the state after the last."""

    tables: list[dict[str, pa.Table]]
    alive: list[Tensor]
    state: dict[str, Tensor]


def _train(index: int, task: Any, state: dict[str, Tensor] | None, start: int, end: int) -> tuple[int, _Trained]:
    """Train a part on a worker from the epoch before `start`, and probe it after every epoch; epoch 0 has no steps."""
    group, optimiser, options = task
    training = Training([group], optimiser, **options)
    if state is not None:
        training.load_state_dict(state | {"epoch": torch.tensor(start - 1)})
    tables, alive = [], []
    for epoch in range(start, end + 1):
        if epoch:
            training.advance()
        records = training.probe()
        tables.append(records.tables())
        alive.append(records.alive)
    return index, _Trained(tables, alive, training.state_dict())
