"""Check the theorems on populations, on trained networks, and on runs."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard

from understudy._errors import UserError
from understudy._progress import steps

if TYPE_CHECKING:
    from torch import Tensor

    from understudy.data import Source
    from understudy.data.given_inputs import Distribution, Drawn, Given
    from understudy.nets import Population
    from understudy.nets.given_networks import Network
    from understudy.store import Run
    from understudy.theory import Check
    from understudy.theory.summary import CheckSummary, NetworkCheck

MOST = 20
"""Largest number of networks that are checked by default."""


@dataclass(frozen=True, eq=False, repr=False)
class Checks:
    """Checks of several networks.

    `print()` shows a summary, or all findings of a single network. Iterate, or index by position, to get each `Check`.

    Attributes:
        networks: One entry per checked network, with the reason where a network could not be checked.
        of: The number of networks from which these were selected.
    """

    networks: tuple[NetworkCheck, ...]
    of: int

    def __len__(self) -> int:
        return len(self.networks)

    def __getitem__(self, place: int) -> Check:
        """Return the check at a position; raise a UserError if that network could not be checked."""
        found = self.networks[place]
        if found.check is None:
            raise UserError(f"network {found.network} was not checked: {found.why}")
        return found.check

    def __iter__(self) -> Iterator[Check]:
        return (found.check for found in self.networks if found.check)

    @cached_property
    def summary(self) -> CheckSummary:
        """Counts over all networks that were checked."""
        from understudy.theory.summary import summarise

        return summarise(self.networks)

    @property
    def headline(self) -> str:
        """The number of certified teacher nodes, in one sentence."""
        return self[0].headline if len(self) == 1 else self.summary.headline

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        networks = [
            {"network": found.network} | (found.check.as_dict() if found.check else {"refused": found.why})
            for found in self.networks
        ]
        return {"networks": networks, "of": self.of, "summary": self.summary.as_dict()}

    def __repr__(self) -> str:
        return f"Checks({len(self)} of {self.of} networks: {self.headline})"

    def _repr_html_(self) -> str:
        """Show the summary in a notebook."""
        return f"<pre>{escape(str(self))}</pre>"

    def __str__(self) -> str:
        from understudy.report.check.terminal import as_text

        return as_text(self.networks, self.of)


class _Pair(NamedTuple):
    """A teacher, a student and inputs to check, or the reason why they cannot be checked."""

    teacher: Callable[[], Population]
    student: Callable[[], Population]
    inputs: Callable[[], Tensor]
    description: str
    """Description of the inputs."""
    why: str = ""


def check(
    teacher: Network | Run,
    student: Network | Sequence[Network] | None = None,
    data: Given | None = None,
    *,
    networks: int | Sequence[int] | None = None,
    inputs: Distribution = "gaussian",
    input_std: float = 1.5,
    samples: int = 10_000,
    seed: int = 1,
) -> Checks:
    """Check every applicable theorem on teacher–student pairs.

    Args:
        teacher: A population, a module of PyTorch or a network file; or a finished run (of `us.train` or `us.run`, or
            the folder of one).
        student: Students in the same forms, paired with teachers by index; a single teacher is shared by all students.
            Omit for a run, of which the students at the end of training are checked.
        data: Inputs as a tensor (`[sample, in]`, or one set per student), array, pandas frame or file; or a source,
            whose training inputs are used. Default: drawn at random. Omit for a run, which uses its own training
            inputs.
        networks: Indices to check, from 0. Default: all, or 20 evenly spaced ones if there are more.
        inputs: Distribution of drawn inputs.
        input_std: Standard deviation of drawn inputs.
        samples: Number of inputs to draw; of a source or a run, the maximum number of training inputs to use.
        seed: Seed of drawn inputs.

    Returns:
        One `Check` per network; `print()` it for a summary.

    Raises:
        UserError: Arguments do not match, or none of the networks can be checked.
    """
    import torch

    from understudy.data.given_inputs import Drawn
    from understudy.nets.given_networks import as_population
    from understudy.report.story import counted
    from understudy.store import Run
    from understudy.theory.result import results
    from understudy.training.parallel import run_parallel

    drawn = Drawn(inputs, input_std, samples, seed)
    if samples < 2:
        raise UserError(
            f"must be at least 2, since means are compared with their standard errors, got {samples}", "samples"
        )
    if isinstance(teacher, Run) or (
        isinstance(teacher, str | os.PathLike) and (student is None or os.path.isdir(teacher))
    ):
        if student is not None or data is not None:
            raise UserError("a run has its own students and inputs; give the run alone")
        pairs = _pairs_of_run(teacher, samples)
    elif student is None:
        raise UserError("a teacher needs a student; give both, or a run")
    else:
        several: list[Any] = list(student) if isinstance(student, list | tuple) else [student]
        if not several:
            raise UserError("must be at least one network, got none", "student")
        alike = None if _one_set_each(data) else data
        theirs, *ours = [
            as_population(role, each, alike)
            for role, each in [("teacher", teacher), *(("student", s) for s in several)]
        ]
        x, description = _described(data, ours[0], drawn)
        pairs = [pair for each in ours for pair in _pairs(theirs, each, x, samples, description)]
    selected = _select(networks, len(pairs))
    what = f"checking {counted(len(selected), 'network')}"
    with steps(what, len(selected) * len(results())) as step:
        found = run_parallel(lambda i: _check_pair(i, pairs[i], step), selected, torch.device("cpu"))
    if not any(each.check for each in found):
        first = found[0].why
        raise UserError(first if len(found) == 1 else f"none of {len(found)} networks can be checked: {first}")
    return Checks(tuple(found), len(pairs))


def _described(data: Given | None, student: Population, drawn: Drawn) -> tuple[Tensor | Source, str]:
    """The inputs, and a description of those that do not describe themselves."""
    import torch

    from understudy.data import Source
    from understudy.data.given_inputs import measuring_inputs

    if isinstance(data, Source):
        return data, "as given"
    if _one_set_each(data):
        return torch.stack([measuring_inputs(each, student, drawn) for each in data]), "as given"
    file = f"of {os.fspath(data)}" if isinstance(data, str | os.PathLike) else "as given"
    return measuring_inputs(data, student, drawn), str(drawn) if data is None else file


def _one_set_each(data: object) -> TypeGuard[Tensor]:
    """Whether data is a tensor with one set of inputs per student."""
    from torch import Tensor

    return isinstance(data, Tensor) and data.ndim == 3


def _check_pair(number: int, pair: _Pair, step: Callable[[], None]) -> NetworkCheck:
    from understudy.theory import check as check_one
    from understudy.theory.summary import NetworkCheck

    if pair.why:
        return NetworkCheck(number, None, pair.why)
    try:
        teacher, student = (make().to("cpu") for make in (pair.teacher, pair.student))
        found = check_one(teacher, student, pair.inputs().cpu(), step)
        return NetworkCheck(number, replace(found, inputs=pair.description))
    except UserError as error:
        return NetworkCheck(number, None, str(error))


def _select(networks: int | Sequence[int] | None, count: int) -> list[int]:
    if networks is None:
        few = min(count, MOST)
        return [i * count // few for i in range(few)]
    selected = [networks] if isinstance(networks, int) else list(networks)
    if not selected:
        raise UserError(f"no network is selected; give indices from 0 to {count - 1}")
    for i in selected:
        if not 0 <= i < count:
            raise UserError(f"network {i} does not exist; give indices from 0 to {count - 1}")
    return list(dict.fromkeys(selected))


def _pairs(
    teacher: Population, student: Population, x: Tensor | Source, samples: int, description: str = "as given"
) -> list[_Pair]:
    if len(teacher) not in (1, len(student)):
        raise UserError(
            f"{len(student)} students need one teacher each, or one for all of them, got {len(teacher)} teachers"
        )
    if _one_set_each(x) and len(x) != len(student):
        raise UserError(f"must have one set of inputs for each of {len(student)} students, got {len(x)}", "data")
    teachers = [partial(teacher.__getitem__, i if len(teacher) > 1 else 0) for i in range(len(student))]
    return [
        _Pair(made, partial(student.__getitem__, i), *_inputs(x, student, i, samples, description))
        for i, made in enumerate(teachers)
    ]


def _inputs(
    x: Tensor | Source, student: Population, i: int, samples: int, description: str
) -> tuple[Callable[[], Tensor], str]:
    """Return a function that makes the inputs (those given, or up to `samples` of a source), and their description."""
    from torch import Tensor

    if isinstance(x, Tensor):
        return lambda: x if x.ndim < 3 else x[i], description
    seed = int(student.seeds[i])
    some = f"the first of {x.train:,} " if x.train > samples else ""
    return lambda: x.training(seed)[:samples], f"{some}training inputs: {_describe(x)}, seed {seed}"


def _describe(source: Source) -> str:
    """Describe a source by its kind, and its file or standard deviation where it has one."""
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", "-", type(source).__name__).lower()
    path, std = getattr(source, "path", None), getattr(source, "std", None)
    of = f" {Path(path).name}" if path is not None else "" if std is None else f", std {std:g}"
    return f"{name}{of}{', those of epoch 1' * source.fresh}"


def _pairs_of_run(run: Run | str | os.PathLike[str], samples: int) -> list[_Pair]:
    """Pair the students of a run at the end of training with its teachers and training inputs."""
    from understudy.nets import Population
    from understudy.store import Run

    run = run if isinstance(run, Run) else Run(run)
    sources, students = run.sources, run.students
    ends = [students] if isinstance(students, Population) else students
    groups = zip(run.weights("teacher"), ends, sources, strict=True)
    pairs = [pair for teacher, end, data in groups for pair in _pairs(teacher, end, data, samples)]
    if (study := run.config["study"]) != "train":
        pairs = [pair._replace(description=f"{study}'s {pair.description}") for pair in pairs]
    return _without_diverged(pairs, [-1 if at != at else int(at) for at in run.column("diverged_at")])


def _without_diverged(pairs: Sequence[_Pair], diverged_at: Sequence[int]) -> list[_Pair]:
    return [
        pair if at < 0 else pair._replace(why=f"it diverged after {at:,} steps")
        for pair, at in zip(pairs, diverged_at, strict=True)
    ]
