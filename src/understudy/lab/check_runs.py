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
    import numpy as np
    from torch import Tensor

    from understudy.data import Source
    from understudy.data.given_inputs import Distribution, Drawn, Given
    from understudy.nets import Population
    from understudy.nets.given_networks import Network
    from understudy.store import Run
    from understudy.theory import Check
    from understudy.theory.summary import CheckSummary, NetworkCheck

    Labels = Tensor | np.ndarray | Sequence[float] | str | os.PathLike[str]

MOST = 20
"""Largest number of networks that are checked by default."""
_PASSES = 50
"""About how many passes of all inputs through both networks a check takes, as measured."""
ROLES = ("teacher", "student", "start")


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


class NetworkPair(NamedTuple):
    """A teacher, a student and inputs to check, or the reason why they cannot be checked."""

    student: Callable[[], Population]
    inputs: Callable[[], Tensor]
    description: str
    """Description of the inputs."""
    teacher: Callable[[], Population] | None = None
    """None for results on classification, which are about one network."""
    labels: Callable[[], Tensor] | None = None
    start: Callable[[], Population] | None = None
    """The student before training."""
    why: str = ""


PairsOfRun = Callable[["Run", int], Sequence[NetworkPair]]
"""A function of a run and the maximum number of inputs that returns what to check of each of its networks."""
_PAIRS: dict[str, PairsOfRun] = {}


def pairs_of(*studies: str) -> Callable[[PairsOfRun], PairsOfRun]:
    """Decorate a function that returns the networks of a run to check, for studies that do not record their inputs.

    Args:
        *studies: Names of the studies.

    Returns:
        The decorator.

    Raises:
        ValueError: A function is registered for one of the studies.
    """

    def register(pairs: PairsOfRun) -> PairsOfRun:
        if known := _PAIRS.keys() & set(studies):
            raise ValueError(f"the networks of {', '.join(sorted(known))} are registered already")
        _PAIRS.update(dict.fromkeys(studies, pairs))
        return pairs

    return register


def not_kept(why: str) -> NetworkPair:
    """A network of a run that cannot be checked, with the reason."""

    def missing() -> Any:
        raise UserError(why)

    return NetworkPair(missing, missing, "", why=why)


def rows_with_networks(
    run: Run, keeps: Callable[[dict[str, Any]], bool], *names: str
) -> Iterator[tuple[dict[str, Any], tuple[Population, ...] | None]]:
    """Go through the rows of `networks` with the networks that the run keeps of them.

    Args:
        run: A run of a computed study, whose groups are in the order of its rows.
        keeps: Whether networks of a row are kept.
        *names: Names of the kept networks, such as `start` and `end`.

    Yields:
        Each row with its networks in the order of the names; None for a row without any.

    Raises:
        UserError: Other rows than these have networks.
    """
    rows = run.networks.to_pylist()
    groups = zip(*map(run.weights, names), strict=True)
    kept = [tuple(one[i] for one in group) for group in groups for i in range(len(group[0]))]
    if len(kept) != sum(map(keeps, rows)):
        raise UserError(
            f"{run.where} keeps {len(kept):,} networks for {sum(map(keeps, rows)):,} rows of its table networks, and "
            "was made by another version: make it again"
        )
    found = iter(kept)
    for row in rows:
        yield row, next(found) if keeps(row) else None


def check(
    teacher: Network | Run,
    student: Network | Sequence[Network] | None = None,
    data: Given | None = None,
    *,
    labels: Labels | None = None,
    start: Network | Sequence[Network] | None = None,
    networks: int | Sequence[int] | None = None,
    inputs: Distribution = "gaussian",
    input_std: float = 1.5,
    samples: int = 10_000,
    seed: int = 1,
) -> Checks:
    """Check every applicable theorem on teacher–student pairs, or those on classification on networks with labels.

    Args:
        teacher: A population, a module of PyTorch or a network file; or a finished run (of `us.train` or `us.run`, or
            the folder of one). With `labels` and without a student, the networks to check as classifiers.
        student: Students in the same forms, paired with teachers by index; a single teacher is shared by all students.
            Omit for a run, of which the students at the end of training are checked.
        data: Inputs as a tensor (`[sample, in]`, or one set per student), array, pandas frame or file; or a source,
            whose training inputs are used. Default: drawn at random. Omit for a run, which uses its own training
            inputs.
        labels: Class of each input, as a tensor, an array or a file (`.npy`, or `.npz` with the array `y`), for the
            results on classification. Default: those of a source or a run that has them.
        start: The students before training, in the forms of the students and paired with them by index, for results
            on training. Default: for a run its first students; otherwise the students themselves are taken for the
            start of further training.
        networks: Indices to check, from 0. Default: all; if there are more than 20, 20 evenly spaced ones of those that
            can be checked, and for each reason why others cannot one of these.
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
        isinstance(teacher, str | os.PathLike) and ((student is None and labels is None) or os.path.isdir(teacher))
    ):
        if any(each is not None for each in (student, data, labels, start)):
            raise UserError("a run has its own students and inputs; give the run alone")
        pairs = _pairs_of_run(teacher, samples)
    elif student is None and labels is None:
        raise UserError("a teacher needs a student; give both, or a run")
    else:
        both = [None, teacher] if student is None else [teacher, student]
        theirs, ours, before = (
            _populations(role, each, data) for role, each in zip(ROLES, [*both, start], strict=True)
        )
        if before and [len(each) for each in before] != [len(each) for each in ours]:
            raise UserError("must be as many networks as students, in the same groups", "start")
        x, description = _described(data, ours[0], drawn)
        classes = None if labels is None else _as_labels(labels)
        pairs = [
            pair
            for i, each in enumerate(ours)
            for pair in _pairs(
                theirs[0] if theirs else None, each, x, samples, description, classes, before[i] if before else None
            )
        ]
    selected = _select(networks, pairs)
    what = f"checking {counted(len(selected), 'network')}"
    with steps(what, len(selected) * len(results()), multiplications=_size(pairs, selected)) as step:
        found = run_parallel(lambda i: _check_pair(i, pairs[i], step), selected, torch.device("cpu"))
    if not any(each.check for each in found):
        first = found[0].why
        raise UserError(first if len(found) == 1 else f"none of {len(found)} networks can be checked: {first}")
    return Checks(tuple(found), len(pairs))


def _size(pairs: Sequence[NetworkPair], selected: Sequence[int]) -> float:
    """About how many multiplications the networks take, judging by the first that can be checked."""
    first = next((pairs[i] for i in selected if not pairs[i].why), None)
    if first is None:
        return 0.0
    try:
        networks, samples = [make() for make in _makers(first)[:2] if make is not None], first.inputs().shape[-2]
    except UserError:  # of one network, which its check names
        return 0.0
    return float(_PASSES * len(selected) * samples * sum(sum(network.shape.products) for network in networks))


def _populations(role: str, given: Any, data: Given | None) -> list[Population]:
    """Networks in any form, in groups of one shape; none if none are given."""
    from understudy.nets.given_networks import as_population

    if given is None:
        return []
    several = list(given) if isinstance(given, list | tuple) else [given]
    if not several:
        raise UserError("must be at least one network, got none", role)
    return [as_population(role, each, None if _one_set_each(data) else data) for each in several]


def _as_labels(given: Labels) -> Tensor:
    """One number per input, from a tensor, an array or a file."""
    import numpy as np
    import torch

    from understudy.data.input_files import read_labels, read_numpy
    from understudy.nets.files.io import existing_file

    if isinstance(given, str | os.PathLike):
        file = existing_file(given, "a file of labels (.npy, .npz) is needed")
        if file.suffix.lower() == ".npz":
            return read_labels(file)
        given = read_numpy(file)
    values = given.detach().cpu().numpy() if isinstance(given, torch.Tensor) else np.asarray(given)
    if values.dtype.kind not in "biuf" or values.squeeze().ndim > 1 or not np.isfinite(values).all():
        raise UserError(
            f"must be one finite number per input, got {values.dtype} values with shape {list(values.shape)}", "labels"
        )
    return torch.from_numpy(values.reshape(-1).astype(np.float64))


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


def _check_pair(number: int, pair: NetworkPair, step: Callable[[], None]) -> NetworkCheck:
    from understudy.theory import Known
    from understudy.theory import check as check_one
    from understudy.theory.summary import NetworkCheck

    if pair.why:
        return NetworkCheck(number, None, pair.why)
    try:
        teacher, student, start = (None if make is None else make().to("cpu") for make in _makers(pair))
        assert student is not None
        known = Known(None if pair.labels is None else pair.labels().cpu(), start)
        found = check_one(teacher, student, pair.inputs().cpu(), step, known)
        return NetworkCheck(number, replace(found, inputs=pair.description))
    except UserError as error:
        return NetworkCheck(number, None, str(error))


def _makers(pair: NetworkPair) -> tuple[Callable[[], Population] | None, ...]:
    return pair.teacher, pair.student, pair.start


def _select(networks: int | Sequence[int] | None, pairs: Sequence[NetworkPair]) -> list[int]:
    """The indices that are given; by default all or some of those that can be checked, and one for each reason."""
    count = len(pairs)
    if networks is None:
        open_ = [i for i, pair in enumerate(pairs) if not pair.why]
        if count <= MOST or not open_:
            return list(range(min(count, MOST)))
        few = min(len(open_), MOST)
        reasons = {pair.why: i for i, pair in reversed(list(enumerate(pairs))) if pair.why}
        return sorted([*(open_[i * len(open_) // few] for i in range(few)), *reasons.values()])
    selected = [networks] if isinstance(networks, int) else list(networks)
    if not selected:
        raise UserError(f"no network is selected; give indices from 0 to {count - 1}")
    for i in selected:
        if not 0 <= i < count:
            raise UserError(f"network {i} does not exist; give indices from 0 to {count - 1}")
    return list(dict.fromkeys(selected))


def _pairs(
    teacher: Population | None,
    student: Population,
    x: Tensor | Source,
    samples: int,
    description: str = "as given",
    labels: Tensor | None = None,
    start: Population | None = None,
) -> list[NetworkPair]:
    if teacher is not None and len(teacher) not in (1, len(student)):
        raise UserError(
            f"{len(student)} students need one teacher each, or one for all of them, got {len(teacher)} teachers"
        )
    if _one_set_each(x) and len(x) != len(student):
        raise UserError(f"must have one set of inputs for each of {len(student)} students, got {len(x)}", "data")
    return [
        NetworkPair(
            partial(student.__getitem__, i),
            *_inputs(x, student, i, samples, description),
            None if teacher is None else partial(teacher.__getitem__, i if len(teacher) > 1 else 0),
            _labels(x, labels, student, i, samples),
            None if start is None else partial(start.__getitem__, i),
        )
        for i in range(len(student))
    ]


def _labels(
    x: Tensor | Source, labels: Tensor | None, student: Population, i: int, samples: int
) -> Callable[[], Tensor] | None:
    """Return a function that makes the labels: those given, or those of a source that has them."""
    from torch import Tensor

    from understudy.data.source import Labelled

    if labels is not None:
        return lambda: labels
    if isinstance(x, Tensor) or not isinstance(x, Labelled):
        return None
    seed = int(student.seeds[i])
    return lambda: x.training_labels(seed)[:samples]


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


def _pairs_of_run(run: Run | str | os.PathLike[str], samples: int) -> list[NetworkPair]:
    """Pair the students of a run at the end of training with its teachers and training inputs."""
    from understudy._papers import load_theory
    from understudy.nets import Population
    from understudy.store import Run

    run = run if isinstance(run, Run) else Run(run)
    study = run.config["study"]
    load_theory()
    if study in _PAIRS:
        return _without_diverged(_PAIRS[study](run, samples), run)
    if not run.saved:
        raise UserError(
            f"{run.where}, a run of {study}, keeps no networks: what the study measures of them is in its tables and "
            "its report; give a run that keeps networks, or two network files"
        )
    sources, students = run.sources, run.students
    ends = [students] if isinstance(students, Population) else students
    starts = run.weights("epoch.0") if "epoch.0" in run.saved else [None] * len(ends)
    groups = zip(run.weights("teacher"), ends, starts, sources, strict=True)
    pairs = [pair for teacher, end, start, data in groups for pair in _pairs(teacher, end, data, samples, start=start)]
    if study != "train":
        pairs = [pair._replace(description=f"{study}'s {pair.description}") for pair in pairs]
    return _without_diverged(pairs, run)


def _without_diverged(pairs: Sequence[NetworkPair], run: Run) -> list[NetworkPair]:
    diverged_at = [-1 if at != at else int(at) for at in run.column("diverged_at")]
    return [
        pair if at < 0 or pair.why else pair._replace(why=f"it diverged after {at:,} steps")
        for pair, at in zip(pairs, diverged_at, strict=True)
    ]
