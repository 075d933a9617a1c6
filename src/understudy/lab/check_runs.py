"""The theorems on networks that were trained: those of `us.train`, of a run's folder, or any of one's own."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from understudy.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

    from understudy.data import Source
    from understudy.nets import Population
    from understudy.store import Run
    from understudy.theory import Check
    from understudy.theory.summary import CheckSummary, NetworkCheck
    from understudy.training import Trained

MOST = 20
"""Networks that are checked where none are named: of more, as many spread evenly."""


@dataclass(frozen=True, eq=False)
class Checks:
    """What every theorem says of each of several networks; printed, a summary, or all of it where there is one."""

    networks: tuple[NetworkCheck, ...]
    of: int
    """How many networks there are, of which these were looked at."""

    def __len__(self) -> int:
        return len(self.networks)

    def __getitem__(self, place: int) -> Check:
        """What was found of the network at a place among those that were looked at."""
        found = self.networks[place]
        if found.check is None:
            raise UserError(f"network {found.network} was not checked: {found.why}")
        return found.check

    def __iter__(self) -> Iterator[Check]:
        return (found.check for found in self.networks if found.check)

    @cached_property
    def summary(self) -> CheckSummary:
        from understudy.theory.summary import summarise

        return summarise(self.networks)

    @property
    def headline(self) -> str:
        return self[0].headline if len(self) == 1 else self.summary.headline

    def as_dict(self) -> dict[str, Any]:
        """Plain values for a program."""
        networks = [
            {"network": found.network} | (found.check.as_dict() if found.check else {"refused": found.why})
            for found in self.networks
        ]
        return {"networks": networks, "of": self.of, "summary": self.summary.as_dict()}

    def __str__(self) -> str:
        from understudy.report.check.terminal import as_text

        return as_text(self.networks, self.of)


class _Pair(NamedTuple):
    """A network to look at: its teacher and student, where its inputs come from, and why not, if so."""

    teacher: Callable[[], Population]
    student: Callable[[], Population]
    inputs: Callable[[], Tensor]
    said: str
    """What these inputs are."""
    why: str = ""


def check(
    teacher: Population | Trained | Run | Path | str,
    student: Population | Sequence[Population] | None = None,
    x: Tensor | Source | None = None,
    *,
    networks: int | Sequence[int] | None = None,
    samples: int = 10_000,
    inputs: str = "as given",
) -> Checks:
    """Every theorem on a teacher, a student and data; or on what `us.train` gave, or a run or its folder.

    Several students have each the teacher at the same place, or all the only one. Inputs are given as they are, or by
    their source. Of a run or what was trained, the last students are looked at, on up to `samples` of the inputs that
    each was trained on. `networks` names those to look at, counted from 0; left out, they are all, or 20 of more.
    `inputs` says in words what a tensor of inputs is; of a source or a run that is known.
    """
    from understudy.nets import Population

    if samples < 1:
        raise UserError(f"samples: {samples} was given; allowed is a whole number from 1")
    if isinstance(teacher, Population):
        if student is None or x is None:
            raise UserError("a teacher alone was given: give a student and inputs beside it, or a run")
        several = [student] if isinstance(student, Population) else list(student)
        pairs = [pair for each in several for pair in _matched(teacher, each, x, samples, inputs)]
    elif student is not None or x is not None:
        raise UserError("a run has its own students and inputs: give it alone, or a teacher, a student and inputs")
    elif isinstance(teacher, tuple):
        pairs = _trained(teacher, samples)
    else:
        pairs = _of_run(teacher, samples)
    return _checked(pairs, networks)


def _checked(pairs: Sequence[_Pair], networks: int | Sequence[int] | None) -> Checks:
    """All that are asked for, side by side; one that cannot be looked at says why, and all of them are an error."""
    import torch

    from understudy.training.parallel import run_parallel

    chosen = _chosen(networks, len(pairs))
    found = run_parallel(lambda i: _look(i, pairs[i]), chosen, torch.device("cpu"))
    if not any(each.check for each in found):
        first = found[0].why
        raise UserError(first if len(found) == 1 else f"none of {len(found)} networks can be checked: {first}")
    return Checks(tuple(found), len(pairs))


def _look(number: int, pair: _Pair) -> NetworkCheck:
    from understudy.theory import check as check_one
    from understudy.theory.summary import NetworkCheck

    if pair.why:
        return NetworkCheck(number, None, pair.why)
    try:
        teacher, student = (make().to("cpu") for make in (pair.teacher, pair.student))
        return NetworkCheck(number, replace(check_one(teacher, student, pair.inputs().cpu()), inputs=pair.said))
    except UserError as error:
        return NetworkCheck(number, None, str(error))


def _chosen(networks: int | Sequence[int] | None, count: int) -> list[int]:
    if networks is None:
        few = min(count, MOST)
        return [i * count // few for i in range(few)]
    chosen = [networks] if isinstance(networks, int) else list(networks)
    for i in chosen:
        if not 0 <= i < count:
            raise UserError(f"network {i} was asked for; there are networks 0 to {count - 1}")
    if not chosen:
        raise UserError(f"no network was asked for; there are networks 0 to {count - 1}")
    return list(dict.fromkeys(chosen))


def _matched(
    teacher: Population, student: Population, x: Tensor | Source, samples: int, said: str = "as given"
) -> list[_Pair]:
    if len(teacher) not in (1, len(student)):
        raise UserError(
            f"{len(student)} students were given {len(teacher)} teachers: give one each, or one for all of them"
        )
    return [
        _Pair(_one(teacher, i if len(teacher) > 1 else 0), _one(student, i), *_inputs(x, student, i, samples, said))
        for i in range(len(student))
    ]


def _one(networks: Population, i: int) -> Callable[[], Population]:
    return lambda: networks[i]


def _inputs(
    x: Tensor | Source, student: Population, i: int, samples: int, said: str
) -> tuple[Callable[[], Tensor], str]:
    """Those given, or up to `samples` of those that a source trains this network on; and what they are."""
    from torch import Tensor

    if isinstance(x, Tensor):
        return lambda: x if x.ndim < 3 else x[i], said
    seed = int(student.seeds[i])
    some = f"the first of {x.train:,} " if x.train > samples else ""
    return lambda: x.training(seed)[:samples], f"{some}training inputs: {_in_words(x)}, seed {seed}"


def _in_words(source: Source) -> str:
    """What a source draws from: its kind, and its file or width where it has one."""
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", "-", type(source).__name__).lower()
    path, std = getattr(source, "path", None), getattr(source, "std", None)
    of = f" {Path(path).name}" if path is not None else "" if std is None else f", std {std:g}"
    return f"{name}{of}{', those of epoch 1' * source.fresh}"


def _trained(run: Trained, samples: int) -> list[_Pair]:
    from understudy.nets import Population

    several = [run.students] if isinstance(run.students, Population) else run.students
    pairs = [pair for each in several for pair in _matched(run.teacher, each, run.data, samples)]
    return _without_diverged(pairs, run.diverged_at.tolist())


def _of_run(run: Run | Path | str, samples: int) -> list[_Pair]:
    """The students of a run as training left them, on the inputs that its folder records."""
    from understudy.data import restore
    from understudy.store import Run

    run = run if isinstance(run, Run) else Run(Path(run))
    sources = [group["data"] for group in run.groups]
    if not sources or None in sources:
        raise UserError(
            f"{run.folder} does not record on which inputs networks were trained; give a run of a study that trains on "
            "samples and was made by this version, or two files (us.save(population, FILE, which=0) saves a network)"
        )
    ends = run.weights(f"epoch.{run.epochs[-1]}")
    groups = zip(run.weights("teacher"), ends, sources, strict=True)
    pairs = [pair for teacher, end, data in groups for pair in _matched(teacher, end, restore(data, teacher), samples)]
    pairs = [pair._replace(said=f"{run.config['study']}'s {pair.said}") for pair in pairs]
    return _without_diverged(pairs, [-1 if at != at else int(at) for at in run.column("diverged_at")])


def _without_diverged(pairs: Sequence[_Pair], diverged_at: Sequence[int]) -> list[_Pair]:
    return [
        pair if at < 0 else pair._replace(why=f"it diverged after {at:,} steps")
        for pair, at in zip(pairs, diverged_at, strict=True)
    ]
