"""`train`: train students against a teacher and measure them after every epoch."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import torch
from jaxtyping import Int
from torch import Tensor

from understudy._errors import UserError
from understudy._progress import track
from understudy.data import Source
from understudy.nets import Population
from understudy.training.group import Group, share
from understudy.training.loop import Training
from understudy.training.objectives import Objective, SquaredError
from understudy.training.optimisers import Optimiser
from understudy.training.records import METRICS, NODES, concatenate

if TYPE_CHECKING:
    from pandas import DataFrame


class Trained(NamedTuple):
    """Result of `train`."""

    metrics: pa.Table
    """One row per network, epoch, layer and metric: network, epoch, layer, metric, value. Layer −1: whole network."""
    nodes: pa.Table
    """One row per node and epoch, with its best partner: correlation, sin_angle, bias_gap, fanout."""
    students: Population | list[Population]
    """Students after training, one population or several as given; a diverged network as it was before it diverged."""
    teacher: Population
    diverged_at: Int[Tensor, "net"]
    """Step at which each network diverged, −1 if it did not."""
    data: Source
    """Data that the students were trained on."""

    def to_pandas(self, table: str = "nodes") -> DataFrame:
        """A table as a data frame.

        Args:
            table: `nodes` or `metrics`.

        Raises:
            UserError: There is no such table.
        """
        if table not in ("nodes", "metrics"):
            raise UserError(f"must be nodes or metrics, got {table}", "table")
        return getattr(self, table).to_pandas()

    def __repr__(self) -> str:
        several = [self.students] if isinstance(self.students, Population) else self.students
        sizes = ", ".join(f"{len(each):,} × {'-'.join(map(str, each.sizes))}" for each in several)
        epochs = int(pc.max(self.metrics["epoch"]).as_py() or 0) if self.metrics.num_rows else 0
        diverged = int((self.diverged_at >= 0).sum())
        lost = f", {diverged:,} diverged" if diverged else ""
        return f"Trained({sizes} students, epochs 0 to {epochs}{lost}; tables metrics, nodes)"

    def _repr_html_(self) -> str:
        """Show the last losses in a notebook."""
        frame = self.to_pandas("metrics")
        frame = frame[frame["epoch"] == frame["epoch"].max()]
        rows = frame.pivot_table(index="network", columns=["metric", "layer"], values="value", observed=True)
        return f"<p><b>{escape(repr(self))}</b></p>{rows.head().to_html()}"


def train(
    students: Population | Sequence[Population],
    teacher: Population,
    data: Source,
    optimiser: Optimiser,
    *,
    epochs: int,
    steps: int,
    objective: Objective | None = None,
    stops: Sequence[int] | None = None,
    device: torch.device | str = "cpu",
    pairs: bool = False,
    memory: int | None = None,
    progress: bool | None = None,
) -> Trained:
    """Train students against their teachers, and measure every network before the first and after every epoch.

    What happens to a network depends only on its own configuration and seed. On the CPU its numbers are bit for bit the
    same whether it is trained alone or together with others. A network that diverges is marked and the others go on.

    Example:
        >>> teacher = us.teachers.separated((20, 5, 10), seeds=range(1, 9))
        >>> students = us.students.gaussian(teacher, multiple=2)
        >>> trained = us.train(students, teacher, us.data.Gaussian(dim=20), us.SGD(lr=0.02), epochs=10, steps=1_000)
        >>> trained.metrics.column_names
        ['network', 'epoch', 'layer', 'metric', 'value']

    Args:
        students: Students before training: one population, or several populations of different shapes.
        teacher: Teachers, paired by index with the students of each population; or one teacher of all students.
        data: Source of training and evaluation inputs, for example `us.data.Gaussian(dim=20)`.
        optimiser: `us.SGD`, `us.GD` or `us.Adam`. Its `lr` may be one number or one per network.
        epochs: Number of epochs. Networks are measured after each.
        steps: Optimiser steps per epoch.
        objective: Loss, by default `us.SquaredError()`; also `us.CrossEntropy()` and `us.Logistic()`.
        stops: Last epoch of each network, in the order of `students`. Default: all networks train for all epochs.
        device: "cpu", "cuda", or "auto" for a CUDA GPU if there is one.
        pairs: Also record the correlation of every teacher node with every student node, which makes tables large.
        memory: Bytes that training may use. Default: most of the free memory of the device.
        progress: Whether to show a progress bar on standard error. Default: in terminals, and in notebooks that have
            ipywidgets.

    Returns:
        Tables of measurements, the trained students, and the step at which each network diverged.

    Raises:
        UserError: If an argument has a wrong type or value, if shapes do not fit together, or if the networks do not
            fit in memory.
    """
    several = [students] if isinstance(students, Population) else students
    if not isinstance(several, Sequence) or not several or not all(isinstance(each, Population) for each in several):
        raise UserError(f"students must be a Population, or a list of Populations, {_got(students)}")
    if not isinstance(teacher, Population):
        raise UserError(f"teacher must be a Population, {_got(teacher)}")
    if not isinstance(data, Source):
        raise UserError(f"data must be a source of inputs, such as us.data.Gaussian(dim=20), {_got(data)}")
    if epochs < 0:
        raise UserError(f"epochs must be at least 0, got {epochs}")
    # Populations of equal length share one object, and with it the teacher outputs.
    teachers = {count: share(teacher, count) for count in set(map(len, several))}
    groups = [Group(each, teachers[len(each)], data, objective or SquaredError()) for each in several]
    training = Training(groups, optimiser, steps=steps, stops=stops, device=device, pairs=pairs, memory=memory)
    tables = [training.probe().tables()]
    for _ in track(range(epochs), epochs, "epochs", progress):
        training.advance()
        tables.append(training.probe().tables())
    trained = training.populations()
    return Trained(
        concatenate([each["metrics"] for each in tables], METRICS),
        concatenate([each["nodes"] for each in tables], NODES),
        trained[0] if isinstance(students, Population) else trained,
        teacher,
        training.diverged_at.cpu(),
        data,
    )


def _got(given: Any) -> str:
    """State the type of what was given and how to convert it."""
    first = given[0] if isinstance(given, list | tuple) and given else given
    words = f"got {type(given).__name__}" + (f" of {type(first).__name__}" if first is not given else "")
    if isinstance(first, torch.nn.Module):
        return words + "; convert a model with torch.save(model.state_dict(), 'model.pt') and us.load('model.pt')"
    return words
