"""`us.train`: train students against a teacher and measure them after every epoch."""

from __future__ import annotations

import sys
import time
from collections.abc import Collection, Sequence
from dataclasses import fields, is_dataclass
from functools import partial
from typing import Any

import pyarrow as pa
import torch

from understudy._errors import TooLargeError, UserError
from understudy._memory import free_memory
from understudy._numbers import number
from understudy._progress import track
from understudy._recorded import RANKS, validate_recorded
from understudy.data import Source, describe
from understudy.lab.mean_ranks import with_ranks
from understudy.lab.study import FORMAT
from understudy.nets import Population, from_module
from understudy.store import Run
from understudy.store.environment import environment
from understudy.store.memory import Memory
from understudy.training import Group, Objective, Optimiser, SquaredError, Training
from understudy.training.group import share
from understudy.training.plan import rank_bytes
from understudy.training.records import METRICS, NODES, concatenate
from understudy.training.records import RANKS as RANK_ROWS


def train(
    students: Population | Sequence[Population],
    teacher: Population | torch.nn.Module,
    data: Source,
    optimiser: Optimiser,
    *,
    epochs: int,
    steps: int,
    objective: Objective | None = None,
    stops: Sequence[int] | None = None,
    device: torch.device | str = "cpu",
    pairs: bool = False,
    record: Collection[str] = (),
    memory: int | None = None,
    progress: bool | None = None,
) -> Run:
    """Train students against their teachers, and measure every network before the first and after every epoch.

    What happens to a network depends only on its own configuration and seed. On the CPU its numbers are bit for bit the
    same whether it is trained alone or together with others. A network that diverges is marked and the others go on.

    Example:
        >>> teacher = us.teachers.distinct_rows((20, 5, 10), seeds=range(1, 9))
        >>> students = us.students.gaussian(teacher, multiple=2)
        >>> run = us.train(students, teacher, us.data.Gaussian(dim=20), us.SGD(lr=0.02), epochs=10, steps=1_000)
        >>> run.array("eval_loss", "seed epoch")
        >>> run.save("runs/mine").report()

    Args:
        students: Students before training: one population, or several populations of different shapes.
        teacher: Teachers, paired by index with the students of each population; or one teacher of all students. A
            module of PyTorch is converted by `us.from_module`, which is printed.
        data: Source of training and evaluation inputs, for example `us.data.Gaussian(dim=20)`.
        optimiser: `us.SGD`, `us.GD` or `us.Adam`. Its `lr` may be one number or one per network.
        epochs: Number of epochs. Networks are measured after each.
        steps: Optimiser steps per epoch.
        objective: Loss, by default `us.SquaredError()`; also `us.CrossEntropy()` and `us.Logistic()`.
        stops: Last epoch of each network, in the order of `students`. Default: all networks train for all epochs.
        device: "cpu", "cuda", or "auto" for a CUDA GPU if there is one.
        pairs: Also record the correlation of every teacher node with every student node, which makes tables large.
        record: Names of further metrics to record at every probe: `gradient_norm`, `hessian_eigenvalues` (the five
            largest), `students_per_teacher`, and, of the final winners, `mean_rank` and `median_rank`.
        memory: Bytes that training may use. Default: most of the free memory of the device.
        progress: Whether to show a progress bar on standard error. Default: in terminals, and in notebooks that have
            ipywidgets.

    Returns:
        The run, in memory: its tables, and the students before and after training. `networks` has one row per network,
        with its seed, what distinguishes populations (`multiple` of the teacher's nodes, or `sizes`, or `population`),
        its `lr` and `stop` where these were given per network, and the step at which it diverged.

    Raises:
        UserError: If an argument has a wrong type or value, if shapes do not fit together, or if the networks do not
            fit in memory.
    """
    several = [students] if isinstance(students, Population) else students
    if not isinstance(several, Sequence) or not several or not all(isinstance(each, Population) for each in several):
        raise UserError(f"students must be a Population, or a list of Populations, {_got(students)}")
    if isinstance(teacher, torch.nn.Module):
        print(f"us.train: the teacher, a {type(teacher).__name__}, is converted by us.from_module", file=sys.stderr)
        teacher = from_module(teacher)
    if not isinstance(teacher, Population):
        raise UserError(f"teacher must be a Population, {_got(teacher)}")
    if not isinstance(data, Source):
        raise UserError(f"data must be a source of inputs, such as us.data.Gaussian(dim=20), {_got(data)}")
    if epochs < 0:
        raise UserError(f"epochs must be at least 0, got {epochs}")
    # Populations of equal length share one object, and with it the teacher outputs.
    teachers = {count: share(teacher, count) for count in set(map(len, several))}
    groups = [Group(each, teachers[len(each)], data, objective or SquaredError()) for each in several]
    names = validate_recorded(record)
    ranks = range(epochs + 1) if names & set(RANKS) else range(0)
    _require_ranks_fit(groups, len(ranks))
    training = Training(
        groups,
        optimiser,
        steps=steps,
        stops=stops,
        device=device,
        pairs=pairs,
        ranks=ranks,
        record=names,
        memory=memory,
    )
    start = time.monotonic()
    tables = [training.probe().tables()]
    for _ in track(range(epochs), epochs, "epochs", progress):
        training.advance()
        tables.append(training.probe().tables())
    options: dict[str, Any] = {
        "students": _sizes(students) if isinstance(students, Population) else [_sizes(each) for each in several],
        "teacher": _sizes(teacher),
        "data": describe(data) or {"kind": type(data).__name__},
        "optimiser": _describe(optimiser),
        "objective": groups[0].objective.name,
        "epochs": epochs,
        "steps": steps,
        "pairs": pairs,
        "record": sorted(names) or None,
        "device": training.device.type,
    }
    made_with = {
        "engines": ", ".join(sorted({row.engine for row in training.plan.rows})),
        "precision": training.precision,
        "seconds": round(time.monotonic() - start, 1),
    }
    metrics = concatenate([each["metrics"] for each in tables], METRICS)
    if ranked := [each["ranks"] for each in tables if "ranks" in each and each["ranks"].num_rows]:
        metrics = with_ranks(metrics, concatenate(ranked, RANK_ROWS), names)
    contents = Memory(
        config={"study": "train", "format": FORMAT, "options": _plain(options)},
        held={
            "networks": _networks(groups, optimiser, stops, training.diverged_at.tolist()),
            "metrics": metrics,
            "nodes": concatenate([each["nodes"] for each in tables], NODES),
        },
        kept={"teacher": [group.teacher for group in groups], "epoch.0": several}
        | {f"epoch.{epochs}": training.populations()},
        sources=[data] * len(groups),
        # Not of `training`, which would keep its samples in memory.
        measure_environment=partial(_environment, training.device.type, made_with),
    )
    return Run(contents)


def _require_ranks_fit(groups: Sequence[Group], probes: int) -> None:
    """Refuse ranks of more students, at more probes, than memory can hold until the final winners are known."""
    need, free = rank_bytes(groups, probes), free_memory()
    if need > free:
        raise TooLargeError(
            f"the ranks of all students at {probes:,} probes need {number(need / 1e9)} GB, but only "
            f"{number(free / 1e9)} GB may be used; train fewer networks or epochs, or record no ranks"
        )


def _networks(
    groups: Sequence[Group], optimiser: Optimiser, stops: Sequence[int] | None, diverged_at: Sequence[int]
) -> pa.Table:
    """One row per network: what distinguishes it from others, and the step at which it diverged."""
    students = [group.students for group in groups]
    columns: dict[str, Any] = {"network": pa.array(range(len(diverged_at)), pa.int32())}
    if len(groups) > 1:
        name, values = _distinguish(groups)
        columns[name] = [value for value, each in zip(values, students, strict=True) for _ in range(len(each))]
    columns["seed"] = [seed for each in students for seed in each.seeds.tolist()]
    rates = torch.as_tensor(optimiser.lr, dtype=torch.float64)
    if rates.ndim:
        columns["lr"] = rates.tolist()
    if stops is not None:
        columns["stop"] = list(stops)
    return pa.table(columns | {"diverged_at": pa.array([None if at < 0 else at for at in diverged_at], pa.int64())})


def _distinguish(groups: Sequence[Group]) -> tuple[str, list[Any]]:
    """The name and the values of a column in which the populations differ."""
    hidden = [list(zip(group.students.sizes[1:-1], group.teacher.sizes[1:-1], strict=True)) for group in groups]
    multiples = [{n / m for n, m in layers} for layers in hidden]
    if all(len(each) == 1 for each in multiples) and len(set.union(*multiples)) == len(groups):
        return "multiple", [each.pop() for each in multiples]
    sizes = [_sizes(group.students) for group in groups]
    return ("sizes", sizes) if len(set(sizes)) == len(sizes) else ("population", list(range(len(groups))))


def _sizes(networks: Population) -> str:
    return "-".join(map(str, networks.sizes))


def _describe(optimiser: Optimiser) -> dict[str, Any]:
    """The settings of an optimiser; of a learning rate per network, which `networks` has, the different values."""
    names = [field.name for field in fields(optimiser)] if is_dataclass(optimiser) else ["lr", "batch", "schedule"]
    values = {name: getattr(optimiser, name) for name in names}
    if (rates := torch.as_tensor(optimiser.lr, dtype=torch.float64)).ndim:
        values["lr"] = list(dict.fromkeys(rates.tolist()))
    return {"kind": type(optimiser).__name__} | values


def _plain(value: Any) -> Any:
    """Values as TOML has them: lists instead of tuples, and nothing in the place of None."""
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items() if each is not None}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value if isinstance(value, bool | int | float | str) else str(value)


def _environment(device: str, made_with: dict[str, Any]) -> dict[str, Any]:
    return environment(device) | made_with


def _got(given: Any) -> str:
    """State the type of what was given and how to convert it."""
    first = given[0] if isinstance(given, list | tuple) and given else given
    words = f"got {type(given).__name__}" + (f" of {type(first).__name__}" if first is not given else "")
    if isinstance(first, torch.nn.Module):
        return f"{words}; convert a model with us.from_module(model)"
    return words
