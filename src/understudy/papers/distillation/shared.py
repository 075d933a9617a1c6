"""What studies of S3 chapter 5 share: transfer sets as networks, their risks with intervals, and one's own data."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from understudy.errors import UserError
from understudy.lab.options import InputFile
from understudy.lab.pieces import network_tables
from understudy.lab.study import ExactStudy

if TYPE_CHECKING:
    from understudy.lab.study import Tables
    from understudy.nets import Population
    from understudy.papers.distillation.theory.risk import Estimate
    from understudy.papers.distillation.theory.tasks import FittedTask
    from understudy.report.figures import Series
    from understudy.store import Run

_Z = 1.96
"""Standard errors on either side of a mean that hold 95%."""


@dataclass(frozen=True)
class OnTransfer(ExactStudy):
    """Options and pieces of studies of linear students that learn from soft labels of a linear teacher."""

    seeds: int = 1_000
    """How many transfer sets, counted from 1: each seed is one, and its students' first weights."""
    confidence: float = 0.95
    """Confidence of intervals and bands, between 0 and 1."""

    def validate(self) -> None:
        super().validate()
        if not 0 < self.confidence < 1:
            raise UserError(f"--confidence: {self.confidence:g} was given; allowed is a number above 0 and below 1")


@dataclass(frozen=True)
class OnOwnData(OnTransfer):
    """One that takes data of the user's."""

    data: InputFile = ""
    """File of one's own inputs, .npz: `x`, a row each, and `y`, labels of two classes, to which a logistic regression
    is fitted as the teacher; or, in place of `y`, `w`, the weights of a linear teacher. Neither has a bias: for one,
    give `x` a column of ones."""

    def validate_files(self) -> None:
        if self.data:
            read_data(self.data)


def read_data(file: str) -> FittedTask:
    """A user's task: his inputs in parts, and his teacher or one fitted to a part of its own."""
    import torch

    from understudy.data.input_files import read_inputs
    from understudy.papers.distillation.theory.tasks import given_task

    if Path(file).suffix.lower() != ".npz":
        raise UserError(f"--data: {file} was given; allowed is a .npz of arrays x and y, or x and w: numpy.savez")
    try:
        x = read_inputs(file, name="x").double()
        name, held = _beside(file)
        if name == "w":
            return given_task(x, teacher=torch.from_numpy(held.astype(np.float64)))
        classes, labels = np.unique(held, return_inverse=True)
        return given_task(x, labels=torch.from_numpy(labels), names=classes.tolist())
    except UserError as error:
        raise UserError(f"--data: {error}") from None


def _beside(file: str) -> tuple[str, np.ndarray]:
    """Labels or the teacher's weights, and which they are."""
    with np.load(file, allow_pickle=False) as arrays:
        names = [name for name in ("y", "w") if name in arrays.files]
        if len(names) != 1:
            found = "both y and w" if names else "neither y nor w"
            raise UserError(f"{file}: the file holds {found}; allowed is x with y, labels, or with w, a teacher")
        name = names[0]
        try:
            held = arrays[name]
        except ValueError:
            raise UserError(f"{file}: {name} holds Python objects, which are never read; store numbers") from None
    if held.squeeze().ndim > 1:
        raise UserError(f"{file}: {name} has shape {held.shape}, but one axis is needed, of a number each")
    held = held.ravel()
    if held.dtype.kind not in ("biuf" if name == "w" else "biufSU") or (
        held.dtype.kind == "f" and not np.isfinite(held).all()
    ):
        raise UserError(f"{file}: {name} holds {held.dtype} values that are not all finite numbers; convert them")
    return name, held


def set_tables(
    first: int,
    seeds: Sequence[int],
    parameters: Mapping[str, Any],
    values: Mapping[str, np.ndarray],
    means: Mapping[str, Estimate],
    weights: dict[str, Population] | None = None,
    once: Mapping[str, float] | None = None,
) -> Tables:
    """Rows of transfer sets that differ in their seeds alone: of values one a set.

    Means over sets, and what is one number for all of them, such as a bound (`once`), stand at the first of them.
    """
    rows = {name: np.asarray(value, np.float64)[None] for name, value in values.items()}
    single = dict(once or {})
    for name, estimate in means.items():
        single |= {f"mean {name}": estimate.mean, f"low {name}": estimate.low, f"high {name}": estimate.high}
    for name, number in single.items():
        rows[name] = np.full((1, len(seeds)), np.nan)
        rows[name][0, 0] = number
    return network_tables(first, seeds, parameters, (0,), rows, weights=weights)


class Cell(NamedTuple):
    """Transfer sets of a run that differ in their seeds alone."""

    parameters: dict[str, Any]
    networks: np.ndarray
    values: dict[str, np.ndarray]
    """One a set, by the metric's name."""
    means: dict[str, Estimate]
    """Over sets, with bounds of the asked confidence."""
    once: dict[str, float]
    """What is one number for all of them."""


def cells(
    run: Run,
    values: Sequence[str] = ("risk",),
    means: Sequence[str] = ("risk",),
    once: Sequence[str] = (),
    **wanted: Any,
) -> list[Cell]:
    """Every combination of parameters that there is, in the order of the run, of those that have the wanted ones."""
    from understudy.papers.distillation.theory.risk import Estimate

    plain = run.networks.drop_columns(["network", "seed", "diverged_at"])
    places: dict[tuple[tuple[str, Any], ...], list[int]] = {}
    for network, row in enumerate(plain.to_pylist()):
        if all(row[name] == value for name, value in wanted.items()):
            places.setdefault(tuple(row.items()), []).append(network)

    def number(name: str, network: int) -> float:
        return float(run.series(name)[network, 0])

    def estimate(name: str, networks: list[int]) -> Estimate:
        mean, low, high = (number(f"{word} {name}", networks[0]) for word in ("mean", "low", "high"))
        return Estimate(mean, low, high, len(networks))

    return [
        Cell(
            dict(key),
            np.array(networks),
            {name: run.series(name)[networks, 0] for name in values},
            {name: estimate(name, networks) for name in means},
            {name: number(name, networks[0]) for name in once},
        )
        for key, networks in places.items()
    ]


def mean_series(
    label: str, x: Sequence[float] | np.ndarray, found: Sequence[Cell], name: str = "risk", **look: Any
) -> Series:
    """Means over sets with their intervals, a cell each."""
    from understudy.report.figures import Series

    mean, low, high = (
        np.array([getattr(cell.means[name], field) for cell in found]) for field in ("mean", "low", "high")
    )
    return Series(label, np.asarray(x, float), mean, low, high, **look)


def risk_words(risk: Estimate) -> str:
    """A mean with its interval."""
    return f"{risk.mean:.3g} ({risk.low:.3g} to {risk.high:.3g})"


def difference(values: np.ndarray) -> tuple[float, float, float]:
    """The mean over sets of what two learners differ by on each, with its 95% interval by the central limit."""
    mean, wide = (
        float(values.mean()),
        _Z * float(values.std(ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else math.inf,
    )
    return mean, mean - wide, mean + wide
