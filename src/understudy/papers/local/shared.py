"""What studies of S4 share: descent on exact losses, looked at as its lemmas do, and a teacher of one's own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from understudy.errors import UserError
from understudy.lab.options import InputFile, check
from understudy.lab.study import ExactStudy

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor

    from understudy.nets import Population

_PAIRS = 16_000
"""Pairs of student nodes that are looked at in one go: what they take stays in the cache."""
_PAIRS_ON_CARD = 1 << 20
"""And on a card, which is then busy."""


@dataclass(frozen=True)
class OnOwnTeacher(ExactStudy):
    """One that takes a teacher of the user's."""

    teacher: InputFile = ""
    """File of a teacher of one's own: two layers, |·| nodes (slope −1), one output, no biases, output weights above 0;
    left out, teachers are drawn."""
    teacher_network: int = 0
    """Which network of the teacher's file, where it holds several."""
    leaky: float = 0.0
    """Slope of the activation below zero, for files that do not say: -1 is |·|."""

    def validate(self) -> None:
        super().validate()
        check(self, "teacher_network", least=0)
        check(self, "leaky")
        for option in ("teacher_network", "leaky"):
            given = getattr(self, option)
            if not self.teacher and given != getattr(type(self), option):
                raise UserError(
                    f"--{option.replace('_', '-')}: {given:g} was given; it is of a teacher's file, so name one with "
                    "--teacher"
                )

    def validate_files(self) -> None:
        if self.teacher:
            self.own()

    def own(self) -> Float[Tensor, "1 teacher in"]:
        """The nodes of the user's teacher."""
        return read_teacher(self.teacher, self.leaky or None, self.teacher_network)


def read_teacher(file: str, slope: float | None = None, which: int = 0) -> Float[Tensor, "1 teacher in"]:
    """The nodes w* of f*(x) = Σ |w*ᵀx| of a network of a file."""
    from understudy.nets import load
    from understudy.papers.local.theory.teachers import teacher_nodes

    networks = load(file, slope=slope)
    if not 0 <= which < len(networks):
        raise UserError(f"--teacher-network: {which} was given; {file} holds networks 0 to {len(networks) - 1}")
    network = networks[which]
    if network.slope != -1:
        raise UserError(
            f"--teacher: the nodes of {file} have slope {network.slope:g} below zero; allowed is −1, which is |·| "
            "(for a file that does not say so, add --leaky -1)"
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


class Measured(NamedTuple):
    """Quantities of Zhou, Ge & Jin 2021 along a path; all of them are NaN for a network that is not finite."""

    values: dict[str, np.ndarray]
    """[probe, net] of all that is one number a network: names are those of `LocalGeometry`, `lemma 8 left` and `lemma 8
    right` and so on of `sides`, and over nodes `largest_angle`, `least_mass` (within δ_max of a teacher node, over its
    length) and `least_count`."""
    nodes: dict[str, np.ndarray]
    """[probe, net, student] of `assignment`, `angles`, `squares`, and with an axis of inputs more of `direction`;
    [probe, net, teacher] of `counts`, `mass`, and with an axis of inputs more of `averages` and `gaps`."""


def measured(
    path: Float[Tensor, "probe net student in"],
    teachers: Float[Tensor, "#net teacher in"],
    rate: float | Float[Tensor, "net"],
) -> Measured:
    """All that `local_geometry` and `sides` have of every network at every probe; lemma 12 is of a step of this rate.

    It is computed where the path is, and comes back.
    """
    import torch

    probes, nets, students = path.shape[:3]
    their = teachers.expand(nets, *teachers.shape[1:])
    rates = torch.as_tensor(rate, dtype=path.dtype, device=path.device).expand(nets)
    pairs = _PAIRS if path.device.type == "cpu" else _PAIRS_ON_CARD
    found = Measured({}, {})
    for some in path.flatten(2).isfinite().all(-1).nonzero().split(max(1, pairs // students**2)):
        probe, net = some.unbind(-1)
        where = probe.cpu().numpy(), net.cpu().numpy()
        for name, value in _probe(path[probe, net], their[net], rates[net]).items():
            into = (found.values if value.ndim == 1 else found.nodes).setdefault(
                name, np.full((probes, nets, *value.shape[1:]), np.nan)
            )
            into[where] = value.double().cpu().numpy()
    return found


def _probe(students: Tensor, teachers: Tensor, rate: Tensor) -> dict[str, Tensor]:
    from understudy.papers.local.theory.gaussian import gradient
    from understudy.papers.local.theory.geometry import local_geometry, sides, smoothness_sides

    found = local_geometry(students, teachers)
    values = found._asdict() | {
        "largest_angle": found.angles.amax(-1),
        "least_mass": (found.mass / teachers.norm(dim=-1)).amin(-1),
        "least_count": found.counts.amin(-1),
    }
    step = -rate[:, None, None] * gradient(students, teachers)
    every = sides(found, teachers) | {"lemma 12": smoothness_sides(students, teachers, step)}
    for name, both in every.items():
        values |= {f"{name} left": both.left, f"{name} right": both.right}
    return values


def geometry(
    first: int,
    probes: Sequence[int],
    found: Measured,
    students: Mapping[str, np.ndarray] | None = None,
    teachers: Mapping[str, np.ndarray] | None = None,
    role: str = "teacher",
) -> dict[str, Any]:
    """Rows of `nodes`: of every student at every probe its teacher node, angle, length and part of lemma 7's direction;
    of every teacher node how many students and what mass are within δ_max, the average ŵ and the gap v = ŵ − w*.

    Additional or replacing columns are [probe, net, node], or broadcast to it; `role` is that of teacher
    nodes. The direction is null where it is not defined.
    """
    of = found.nodes
    ours = {"teacher": of["assignment"].astype(np.float64), "angle": of["angles"], "norm": np.sqrt(of["squares"])}
    theirs = {"count": of["counts"], "mass": of["mass"], "average": of["averages"], "gap": of["gaps"]}
    both = pa.concat_tables(
        [
            _rows(first, probes, "student", "student", ours | {"direction": of["direction"]} | dict(students or {})),
            _rows(first, probes, role, "teacher", theirs | dict(teachers or {})),
        ],
        promote_options="default",
    )
    return {name: both[name] for name in both.column_names}


_WHOLE = ("teacher", "target", "count")


def _rows(first: int, probes: Sequence[int], role: str, node: str, values: Mapping[str, np.ndarray]) -> pa.Table:
    """A row for every node of the networks that are finite."""
    like = values["angle" if node == "student" else "mass"]
    there = np.nonzero(~np.isnan(like))
    columns = {
        "network": (first + there[1]).astype(np.int32),
        "epoch": np.asarray(probes, np.int32)[there[0]],
        "layer": np.zeros(len(there[0]), np.int16),
        "role": pa.array([role] * len(there[0]), pa.string()),
        node: there[2].astype(np.int32),
    }
    for name, value in values.items():
        here = np.broadcast_to(value, like.shape + value.shape[3:])[there]
        columns[name] = _lists(here) if here.ndim > 1 else here.astype(np.int32) if name in _WHOLE else here
    return pa.table(columns)


def _lists(vectors: np.ndarray) -> pa.Array:
    """A list of numbers a row; null where they are not numbers."""
    offsets = np.arange(0, vectors.size + 1, max(1, vectors.shape[1]), dtype=np.int32)
    missing = pa.array(np.isnan(vectors).any(-1))
    return pa.ListArray.from_arrays(offsets, vectors.ravel(), mask=missing)


def ends(
    path: Float[Tensor, "probe net student in"],
    teachers: Float[Tensor, "#net teacher in"],
    seeds: Sequence[int],
    slope: float = -1.0,
) -> dict[str, Population]:
    """What a piece keeps of its networks: the teachers, and the students as they started and ended."""
    from understudy.papers.local.theory.starts import student_network
    from understudy.papers.local.theory.teachers import teacher_network

    every = teachers.expand(path.shape[1], *teachers.shape[1:]).cpu()
    start, end = path[0].cpu(), path[-1].cpu()
    return {
        "teacher": teacher_network(every, seeds, slope),
        "start": student_network(start, seeds, slope),
        "end": student_network(end, seeds, slope),
    }
