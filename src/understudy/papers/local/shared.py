"""What the studies share: quantities of the lemmas along descent on exact losses, and a teacher from a file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import numpy as np
import pyarrow as pa
from annotated_types import Ge

from understudy._errors import UserError
from understudy._numbers import number
from understudy.lab.options import InputFile, Unsized, option
from understudy.lab.pieces import table_rows
from understudy.lab.study import ExactStudy, Study

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor

    from understudy.nets import Population

_PAIRS = 16_000
"""Pairs of student nodes that are measured at once on a CPU, so that the working set fits in the cache."""
_PAIRS_ON_GPU = 1 << 20
"""Pairs of student nodes that are measured at once on a GPU, enough to keep it busy."""


@dataclass(frozen=True)
class FileTeacherStudy(ExactStudy):
    """A study whose teacher can be read from a file."""

    teacher: InputFile = ""
    """File of a teacher: two layers, |·| nodes (slope −1), one output, no biases, output weights above 0. Without it
    teachers are random."""
    teacher_network: Annotated[int, Ge(0), Unsized()] = 0
    """Number of the network in the teacher's file, if it contains several."""
    leaky: float = 0.0
    """Slope of the activation below zero, for files that do not record it: -1 is |·|."""

    def validate(self) -> None:
        for name in ("teacher_network", "leaky"):
            if not self.teacher and getattr(self, name) != getattr(type(self), name):
                raise UserError(f"{option(name)} needs --teacher: it describes a teacher's file")

    def validate_files(self) -> None:
        if self.teacher:
            self.file_teacher()

    def file_teacher(self) -> Float[Tensor, "1 teacher in"]:
        """Read the nodes w* of f*(x) = Σ |w*ᵀx| from the file."""
        from understudy.nets.files.loading import read_stack
        from understudy.papers.local.theory.teachers import teacher_nodes

        file, which = self.teacher, self.teacher_network
        networks = read_stack(file, self.leaky or None).population
        if which >= len(networks):
            raise UserError(
                f"--teacher-network must be at most {len(networks) - 1}, the last network of {file}, got {which}"
            )
        network = networks[which]
        if network.slope != -1:
            raise UserError(
                f"--teacher must have |·| nodes, of slope −1 below zero, got slope {number(network.slope, 'g')} in "
                f"{file}; for a file that does not record its slope, add --leaky -1"
            )
        try:
            return teacher_nodes(network)
        except UserError as error:
            raise UserError(f"--teacher: {file}: {error}") from None


def rate_warning(rate: float, bound: float) -> str:
    """The warning that a learning rate is above the bound of Zhou, Ge & Jin 2021, theorem 4."""
    return (
        f"--rate {rate:g} is above {number(bound, '.2g')}, the bound below which descent near the teacher is proved to "
        "lower the loss (Zhou, Ge & Jin 2021, theorem 4, with our constant); descent continues and may not converge"
    )


def rate_warnings(rate: float, teachers: Iterable[Float[Tensor, "net teacher in"]]) -> tuple[str, ...]:
    """The warning if a learning rate is above the bound for one of the teachers."""
    from understudy.papers.local.theory.descent import rate_bound

    bound = min(float(rate_bound(each).min()) for each in teachers)
    return (rate_warning(rate, bound),) if rate > bound else ()


def warning_words(study: Study) -> str:
    """The warnings of a study as sentences, each with a leading space."""
    return "".join(f" Warning: {warning}." for warning in study.warnings())


def log_slope(x: Any, y: Any) -> float:
    """Slope of log y in log x, by least squares; NaN with fewer than two values."""
    return float(np.polyfit(np.log(x), np.log(y), 1)[0]) if len(x) > 1 else float("nan")


class TrajectoryMeasures(NamedTuple):
    """Quantities of Zhou, Ge & Jin 2021 along a trajectory; all are NaN for a network that is not finite."""

    values: dict[str, np.ndarray]
    """Scalars of each network by name, [probe, net]: those of `LocalGeometry`, `lemma 8 left`, `lemma 8 right`, … of
    `sides`, and over nodes `largest_angle`, `least_mass` (within δ_max of a teacher node, relative to its length) and
    `least_count`."""
    nodes: dict[str, np.ndarray]
    """Quantities of nodes by name: [probe, net, student] for `assignment`, `angles` and `squares`,
    [probe, net, student, in] for `direction`; [probe, net, teacher] for `counts` and `mass`,
    [probe, net, teacher, in] for `averages` and `gaps`."""


def measure(
    path: Float[Tensor, "probe net student in"],
    teachers: Float[Tensor, "#net teacher in"],
    rate: float | Float[Tensor, "net"],
) -> TrajectoryMeasures:
    """Measure what `local_geometry` and `sides` define for every network at every probe.

    Args:
        path: Students at every probe; quantities are computed on its device and returned on the CPU.
        teachers: Teacher nodes of each network, or of all.
        rate: Learning rate of the step that lemma 12 refers to.
    """
    import torch

    probes, nets, students = path.shape[:3]
    every = teachers.expand(nets, *teachers.shape[1:])
    rates = torch.as_tensor(rate, dtype=path.dtype, device=path.device).expand(nets)
    pairs = _PAIRS if path.device.type == "cpu" else _PAIRS_ON_GPU
    found = TrajectoryMeasures({}, {})
    for some in path.flatten(2).isfinite().all(-1).nonzero().split(max(1, pairs // students**2)):
        probe, net = some.unbind(-1)
        where = probe.cpu().numpy(), net.cpu().numpy()
        for name, value in _measure(path[probe, net], every[net], rates[net]).items():
            into = (found.values if value.ndim == 1 else found.nodes).setdefault(
                name, np.full((probes, nets, *value.shape[1:]), np.nan)
            )
            into[where] = value.double().cpu().numpy()
    return found


def _measure(students: Tensor, teachers: Tensor, rate: Tensor) -> dict[str, Tensor]:
    from understudy.papers.local.theory.gaussian import gradient
    from understudy.papers.local.theory.geometry import local_geometry, sides, smoothness_sides

    found = local_geometry(students, teachers)
    values = found._asdict() | {
        "largest_angle": found.angles.amax(-1),
        "least_mass": (found.mass / teachers.norm(dim=-1)).amin(-1),
        "least_count": found.counts.amin(-1),
    }
    step = -rate[:, None, None] * gradient(students, teachers)
    lemmas = sides(found, teachers) | {"lemma 12": smoothness_sides(students, teachers, step)}
    for name, both in lemmas.items():
        values |= {f"{name} left": both.left, f"{name} right": both.right}
    return values


def node_rows(
    first: int,
    probes: Sequence[int],
    found: TrajectoryMeasures,
    students: Mapping[str, np.ndarray] | None = None,
    teachers: Mapping[str, np.ndarray] | None = None,
    role: str = "teacher",
    more: Sequence[pa.Table] = (),
) -> pa.Table:
    """The table `nodes`, numbered from the network `first`.

    Students have their teacher node, angle, length and part of the direction of lemma 7 (null where it is not
    defined); teacher nodes have the number and mass of students within δ_max, their average ŵ and the gap v = ŵ − w*.

    Args:
        first: Number of the first network.
        probes: Steps of the probes.
        found: What was measured at the probes.
        students: More columns of students, or others in place of these: [probe, net, node], or broadcast to it.
        teachers: The same for teacher nodes.
        role: Role of the teacher nodes.
        more: Rows of other nodes.
    """
    nodes = found.nodes
    own = {"teacher": nodes["assignment"].astype(np.float64), "angle": nodes["angles"]}
    own |= {"norm": np.sqrt(nodes["squares"]), "direction": nodes["direction"], **(students or {})}
    near = {"count": nodes["counts"], "mass": nodes["mass"], "average": nodes["averages"], "gap": nodes["gaps"]}
    ours = _rows(first, probes, "student", "student", own)
    theirs = _rows(first, probes, role, "teacher", near | dict(teachers or {}))
    return pa.concat_tables([ours, theirs, *more], promote_options="default")


_WHOLE = ("teacher", "target", "count")
"""Columns of whole numbers."""


def _rows(first: int, probes: Sequence[int], role: str, node: str, values: Mapping[str, np.ndarray]) -> pa.Table:
    """One row per node of the networks that are finite; lists of numbers are null where one of them is NaN."""
    like = values["angle" if node == "student" else "mass"]
    there = np.nonzero(~np.isnan(like))
    number = {node: there[2].astype(np.int32)}
    rows = table_rows(first + there[1], np.asarray(probes)[there[0]], 0, role=role, **number)
    for name, value in values.items():
        here = np.broadcast_to(value, like.shape + value.shape[3:])[there]
        if here.ndim > 1:
            offsets = np.arange(0, here.size + 1, max(1, here.shape[1]), dtype=np.int32)
            column = pa.ListArray.from_arrays(offsets, here.ravel(), mask=pa.array(np.isnan(here).any(-1)))
        else:
            column = pa.array(here.astype(np.int32) if name in _WHOLE else here)
        rows = rows.append_column(name, column)
    return rows


def endpoints(
    path: Float[Tensor, "probe net student in"],
    teachers: Float[Tensor, "#net teacher in"],
    seeds: Sequence[int],
    slope: float = -1.0,
) -> dict[str, Population]:
    """The populations that a piece saves: teachers, and students at the first and the last probe."""
    from understudy.papers.local.theory.starts import student_network
    from understudy.papers.local.theory.teachers import teacher_network

    every = teachers.expand(path.shape[1], *teachers.shape[1:]).cpu()
    return {
        "teacher": teacher_network(every, seeds, slope),
        "start": student_network(path[0].cpu(), seeds, slope),
        "end": student_network(path[-1].cpu(), seeds, slope),
    }
