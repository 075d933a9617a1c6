"""The networks of runs of `folds` that `understudy check` checks."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from understudy.lab.check_runs import NetworkPair, pairs_of

if TYPE_CHECKING:
    from understudy.store import Run

_STD = 2 / 3**0.5
"""Standard deviation of inputs that are uniform on [−2, 2]²."""


@pairs_of("folds")
def pairs(run: Run, samples: int) -> list[NetworkPair]:
    """Pair the students with their teacher, on inputs of the distribution that they were trained on."""
    from understudy.data import Uniform
    from understudy.nets import Population

    students, (teachers,), (starts,) = run.students, run.weights("teacher"), run.weights("epoch.0")
    assert isinstance(students, Population)  # one piece trains all students
    inputs = Uniform(2, std=_STD, train=samples)
    return [
        NetworkPair(
            partial(students.__getitem__, i),
            partial(inputs.training, seed),
            f"drawn: uniform on [−2, 2]², seed {seed}, as folds trains on",
            partial(teachers.__getitem__, i),
            start=partial(starts.__getitem__, i),
        )
        for i, seed in enumerate(students.seeds.tolist())
    ]
