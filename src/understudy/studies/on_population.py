"""What studies of S4 share: descent on exact losses, looked at as its lemmas do, and a teacher of one's own."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import numpy as np
import pyarrow as pa

from understudy._errors import UserError
from understudy.studies.study import Study

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor

    from understudy.nets import Population
    from understudy.store import Run
    from understudy.studies.study import Tables

_PAIRS = 16_000
"""Pairs of student nodes that are looked at in one go: what they take stays in the cache."""


class Part(NamedTuple):
    """A piece of work: its name, how many networks it has, and what makes its tables, given its first number."""

    name: str
    networks: int
    make: Callable[[int], Tables]


@dataclass(frozen=True)
class OnPopulation(Study):
    """Options and pieces of studies on standard normal inputs, whose losses are expectations and not of samples."""

    trains: ClassVar[bool] = False

    seeds: int = 10
    """How many seeds, counted from 1: each is a teacher and its students' first weights."""
    dtype: Literal["float32", "tf32", "float64"] = "float64"
    """Numbers to compute with: float64 is the only one here."""

    def check(self) -> None:
        if self.dtype != "float64":
            raise UserError(f"--dtype: {self.dtype} was given; theory is computed in float64 alone")

    def parts(self) -> Iterable[Part]:
        """What is to be done, each part with networks of its own; at most half a minute each."""
        raise AssertionError(f"{type(self).__name__} has no parts")

    def cautions(self) -> tuple[str, ...]:
        """What a user should know of the options, which do not stop the study: said as it starts, and in its story."""
        return ()

    def pieces(self, *runs: Run) -> Mapping[str, Callable[[], Tables]]:
        for caution in self.cautions():
            print(f"warning: {caution}", file=sys.stderr)
        made: dict[str, Callable[[], Tables]] = {}
        first = 0
        for part in self.parts():
            made[part.name] = partial(part.make, first)
            first += part.networks
        return made


@dataclass(frozen=True)
class OnOwnTeacher(OnPopulation):
    """One that takes a teacher of the user's."""

    teacher: str = ""
    """File of a teacher of one's own: two layers, |·| nodes (slope −1), one output, no biases, output weights above 0;
    left out, teachers are drawn."""

    def config(self) -> dict[str, Any]:
        """Of a file also what is in it: another under the same name is another run."""
        plain = super().config()
        if not self.teacher:
            return plain
        read_teacher(self.teacher)  # refuses what cannot be, before anything is written
        return plain | {"contents": {"teacher": hashlib.sha256(Path(self.teacher).read_bytes()).hexdigest()}}


def read_teacher(file: str) -> Float[Tensor, "1 teacher in"]:
    """The nodes w* of f*(x) = Σ |w*ᵀx| of a network file."""
    from understudy.nets import load
    from understudy.theory.starts import teacher_nodes

    network = load(file)
    if len(network) != 1:
        raise UserError(f"--teacher: {file} holds {len(network)} networks; allowed is one: us.save(…, which=)")
    if network.slope != -1:
        raise UserError(
            f"--teacher: the nodes of {file} have slope {network.slope:g} below zero; allowed is −1, which is |·| "
            "(of a file that does not say: us.save(us.load(FILE, slope=-1), 'teacher.safetensors'))"
        )
    try:
        return teacher_nodes(network)
    except UserError as error:
        raise UserError(f"--teacher: {file}: {error}") from None


def above_bound(rate: float, bound: float) -> str:
    """The words of a caution for a learning rate above the bound of S4 theorem 4."""
    return (
        f"--rate: {rate:g} is above {bound:.2g}, up to which descent near the teacher is sure to lower the loss (S4 "
        "theorem 4, the constant ours); it goes on, and may not converge"
    )


def log_looks(steps: int, count: int = 60) -> tuple[int, ...]:
    """Steps to look at: 0, then about evenly on a logarithmic axis, the last among them."""
    return (0, *np.unique(np.geomspace(1, max(1, steps), max(2, count)).round().astype(int)).tolist())


class Measured(NamedTuple):
    """What a path looks like from where S4's proofs stand. Of a network that is not finite all is NaN."""

    values: dict[str, np.ndarray]
    """[look, net] of all that is one number a network: names are those of `LocalGeometry`, `lemma 8 left` and `lemma 8
    right` and so on of `sides`, and over nodes `largest_angle`, `least_mass` (within δ_max of a teacher node, over its
    length) and `least_count`."""
    nodes: dict[str, np.ndarray]
    """[look, net, student] of `assignment`, `angles`, `squares`; [look, net, teacher] of `counts`, `mass`, and with an
    axis of inputs more of `averages` and `gaps`."""


def measured(
    path: Float[Tensor, "look net student in"],
    teachers: Float[Tensor, "#net teacher in"],
    rate: float | Float[Tensor, "net"],
) -> Measured:
    """All that `local_geometry` and `sides` have of every network at every look; lemma 12 is of a step of this rate."""
    import torch

    looks, nets, students = path.shape[:3]
    their = teachers.expand(nets, *teachers.shape[1:])
    rates = torch.as_tensor(rate, dtype=path.dtype).expand(nets)
    found = Measured({}, {})
    for some in path.flatten(2).isfinite().all(-1).nonzero().split(max(1, _PAIRS // students**2)):
        look, net = some.unbind(-1)
        for name, value in _look(path[look, net], their[net], rates[net]).items():
            into = (found.values if value.ndim == 1 else found.nodes).setdefault(
                name, np.full((looks, nets, *value.shape[1:]), np.nan)
            )
            into[look.numpy(), net.numpy()] = value.double().numpy()
    return found


def _look(students: Tensor, teachers: Tensor, rate: Tensor) -> dict[str, Tensor]:
    from understudy.theory.gaussian import loss_and_gradient
    from understudy.theory.local_geometry import local_geometry, sides, smoothness_sides

    found = local_geometry(students, teachers)
    values = found._asdict() | {
        "largest_angle": found.angles.amax(-1),
        "least_mass": (found.mass / teachers.norm(dim=-1)).amin(-1),
        "least_count": found.counts.amin(-1),
    }
    step = -rate[:, None, None] * loss_and_gradient(students, teachers)[1]
    every = sides(found, teachers) | {"lemma 12": smoothness_sides(students, teachers, step)}
    for name, both in every.items():
        values |= {f"{name} left": both.left, f"{name} right": both.right}
    return values


def geometry(first: int, looks: Sequence[int], found: Measured) -> dict[str, Any]:
    """Rows of `nodes`: of every student at every look its teacher node, angle and length; of every teacher node how
    many students and what mass are within δ_max, the average ŵ and the gap v = ŵ − w*."""
    of = found.nodes
    rows: dict[str, list[pa.Array]] = {}
    for role, like in (("student", of["angles"]), ("teacher", of["mass"])):
        there = np.nonzero(~np.isnan(like))
        look, net, node = there
        none = pa.nulls(len(node), pa.float64())
        student = role == "student"
        columns = {
            "network": pa.array((first + net).astype(np.int32)),
            "epoch": pa.array(np.asarray(looks, np.int32)[look]),
            "layer": pa.array(np.zeros(len(node), np.int16)),
            "role": pa.array([role] * len(node)),
            "student": pa.array(node.astype(np.int32)) if student else pa.nulls(len(node), pa.int32()),
            "teacher": pa.array((of["assignment"][there] if student else node).astype(np.int32)),
            "angle": pa.array(of["angles"][there]) if student else none,
            "norm": pa.array(np.sqrt(of["squares"][there])) if student else none,
            "count": none.cast(pa.int32()) if student else pa.array(of["counts"][there].astype(np.int32)),
            "mass": none if student else pa.array(of["mass"][there]),
        }
        for name in ("average", "gap"):
            vectors = pa.nulls(len(node), pa.list_(pa.float64())) if student else pa.array(list(of[f"{name}s"][there]))
            columns[name] = vectors
        for name, column in columns.items():
            rows.setdefault(name, []).append(column)
    return {name: pa.concat_arrays(parts) for name, parts in rows.items()}


def neurons(
    first: int,
    looks: Sequence[int],
    path: Float[Tensor, "look net student in"],
    teachers: Float[Tensor, "#net teacher in"],
) -> dict[str, np.ndarray]:
    """Rows of `nodes`: of every student node at every look its nearest teacher node, the angle to it and its length."""
    from understudy.theory.gaussian import residual

    found = residual(path, teachers)
    look, net, student = (axis.ravel() for axis in np.indices(path.shape[:3]))
    return {
        "network": (first + net).astype(np.int32),
        "epoch": np.asarray(looks, np.int32)[look],
        "layer": np.zeros(len(net), np.int16),
        "student": student.astype(np.int32),
        "teacher": found.assignment.numpy().ravel().astype(np.int32),
        "angle": found.angles.numpy().ravel(),
        "norm": path.norm(dim=-1).numpy().ravel(),
    }


def tables(
    first: int,
    seeds: Sequence[int],
    parameters: Mapping[str, Any],
    looks: Sequence[int],
    values: Mapping[str, np.ndarray],
    nodes: Mapping[str, Any] | None = None,
    weights: dict[str, Population] | None = None,
) -> Tables:
    """A piece's rows: of parameters one a network, or one for all; values are [look, net].

    What is NaN is left out, but for the `loss`, so that every look is there. A network diverged at the first look at
    which its loss is not finite.
    """
    count = len(seeds)
    network = np.arange(first, first + count, dtype=np.int32)
    rows = []
    for name, value in values.items():
        look, net = np.nonzero(~np.isnan(value) | (name == "loss"))
        rows.append(
            {
                "network": network[net],
                "epoch": np.asarray(looks, np.int32)[look],
                "layer": np.full(len(net), -1, np.int16),
                "metric": pa.array([name] * len(net), pa.string()),
                "value": np.asarray(value, np.float64)[look, net],
            }
        )
    lost = ~np.isfinite(values["loss"]) if "loss" in values else np.zeros((1, count), bool)
    diverged = [looks[int(np.argmax(column))] if column.any() else None for column in lost.T]
    none = {"network": np.zeros(0, np.int32), "epoch": np.zeros(0, np.int32), "layer": np.zeros(0, np.int16)}
    columns = {k: v if isinstance(v, list | np.ndarray) else [v] * count for k, v in parameters.items()}
    return {
        "networks": pa.table(
            {"network": network, "seed": list(seeds), **columns, "diverged_at": pa.array(diverged, pa.int64())}
        ),
        "metrics": pa.concat_tables(map(pa.table, rows)),
        "nodes": pa.table(dict(nodes or none)),
        "weights": weights or {},
    }


def ends(
    path: Float[Tensor, "look net student in"], teachers: Float[Tensor, "#net teacher in"], seeds: Sequence[int]
) -> dict[str, Population]:
    """What a piece keeps of its networks: the teachers, and the students as they started and ended."""
    from understudy.theory.starts import student_network, teacher_network

    every = teachers.expand(path.shape[1], *teachers.shape[1:])
    return {
        "teacher": teacher_network(every, seeds),
        "start": student_network(path[0], seeds),
        "end": student_network(path[-1], seeds),
    }
