"""The study `lucky-init`: students initialised near teacher nodes, and all others (Tian et al. 2019, fig. 7)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
import pyarrow as pa
from annotated_types import Ge, Gt

import understudy as us
from understudy._errors import UserError
from understudy.lab.options import Count, Distinct, Positive, Steps
from understudy.lab.pieces import blocks, network_rows, table_rows
from understudy.lab.study import ComputedStudy, Piece
from understudy.papers.luck.shared import diverged_steps

if TYPE_CHECKING:
    from understudy.papers.luck.theory.near_students import PathBounds
    from understudy.papers.luck.theory.simulation import StudentReading

FIGURE = "S2 fig 7"
QUANTITIES = {4: ("sin_angle",), 5: ("sin_angle", "fan_out_gap", "other_fan_out")}
"""What each theorem bounds: the largest value among a network's nodes."""
_NODES_PER_PIECE = 400
"""Student nodes of one start in a piece, over all its seeds."""


class NearSetting(NamedTuple):
    """Networks to which a theorem may apply: nodes are rarely active together, and students start near them."""

    theorem: int
    nodes: int
    others: int
    dim: int
    threshold: float
    """Threshold of the hidden nodes' activation, in standard deviations of the pre-activation."""
    cosine: float
    """Cosine between the weights of any two nodes."""
    angle: float
    missed: float = 0.0
    fan_out: float = 0.0

    @property
    def students(self) -> str:
        """Students near teacher nodes and, if there are any, others: `2 + 1`."""
        return f"{self.nodes} + {self.others}" if self.others else str(self.nodes)

    def __str__(self) -> str:
        return f"theorem {self.theorem}: {self.students} students, threshold {self.threshold:g}, cosine {self.cosine:g}"


SETTINGS = (
    NearSetting(4, 2, 0, 10, 0.0, -0.9, 0.02),
    NearSetting(4, 3, 0, 10, 1.0, -0.45, 0.02),
    NearSetting(4, 4, 0, 10, 2.0, 0.0, 0.01),
    NearSetting(4, 5, 0, 20, 2.5, 0.0, 0.005),
    NearSetting(4, 10, 0, 20, 3.0, 0.0, 0.003),
    NearSetting(5, 1, 1, 10, 0.3, -0.99, 0.001, 0.0, 0.5),
    NearSetting(5, 2, 1, 10, 1.5, -0.45, 0.002, 0.1, 0.1),
    NearSetting(5, 2, 1, 10, 3.0, 0.0, 0.002, 0.1, 0.1),
    NearSetting(5, 3, 2, 10, 3.5, 0.0, 0.001, 0.05, 0.05),
)
"""Settings of our own, as the paper has none; to some of them the theorems do not apply."""


@dataclass(frozen=True)
class LuckyInit(ComputedStudy):
    """How students that start near teacher nodes move, and what happens to the fan-out of all others.

    The dynamics of Tian et al. 2019, eq. 6, on fresh batches, as in fig. 7, next to SGD; and the expected dynamics of
    theorems 4 and 5 with their bounds at every step.
    """

    name: ClassVar[str] = "lucky-init"
    summary: ClassVar[str] = "students that start near teacher nodes, and the fan-outs of the others"
    figures: ClassVar[str] = "S2 fig. 7, theorems 4, 5"
    decides: ClassVar[str] = "Y10 Y11"
    arrays: ClassVar[tuple[str, ...]] = ("teacher_nodes multiple dim", "teacher_nodes multiple outputs", "batch dim")

    dim: Count = 10
    """Number of inputs, N(0, 1) each, besides a constant 1."""
    teacher_nodes: Count = 20
    """Hidden nodes of the teacher."""
    outputs: Count = 30
    """Number of outputs."""
    multiple: Annotated[tuple[float, ...], Gt(1), Distinct()] = (2.0, 5.0, 10.0)
    """Over-parameterizations: student nodes per teacher node."""
    p_w: Annotated[tuple[float, ...], Ge(0)] = (10.0, 5.0, 1.0, 0.0)
    """Closeness of the first students' weights to the teacher's, one value per start: weights are p_W w* + unit
    noise."""
    p_v: Annotated[tuple[float, ...], Ge(0)] = (10.0, 0.0, 1.0, 5.0)
    """Closeness of their fan-outs to the teacher's, one value for each of --p-w."""
    rules: Annotated[tuple[Literal["rescaled", "free", "sgd"], ...], Distinct()] = ("rescaled", "sgd")
    """How students move: by eq. 6 with the columns of W and V rescaled to length 1 after every step, by eq. 6 without
    rescaling, or by SGD."""
    lr: Positive = 0.05
    """Learning rate."""
    batch: Count = 64
    """Samples per step; every step draws new ones."""
    steps: Steps = 20_000
    """Number of steps."""
    every: Steps = 250
    """Steps from one probe to the next."""
    bounded: Count = 100
    """Steps of the expected dynamics, at which the theorems' bounds are checked."""

    @classmethod
    def quick(cls) -> Self:
        return cls(seeds=4, multiple=(2.0, 5.0), steps=5_000, bounded=40)

    def validate(self) -> None:
        if len(self.p_w) != len(self.p_v):
            raise UserError(
                f"--p-v must have as many values as --p-w ({len(self.p_w)}), got {len(self.p_v)}: each pair is a start"
            )
        if len(set(self.starts)) < len(self.starts):
            raise UserError("--p-w and --p-v must give each pair once")
        if self.steps % self.every:
            raise UserError(f"--every must divide the number of steps ({self.steps:,}), got {self.every}")
        for multiple in self.multiple:
            us.students.hidden_sizes((self.dim, self.teacher_nodes, self.outputs), multiple)

    @property
    def starts(self) -> list[tuple[float, float]]:
        """(p_W, p_V) of each start."""
        return list(zip(self.p_w, self.p_v, strict=True))

    @property
    def probes(self) -> range:
        """The steps after which networks are probed."""
        return range(0, self.steps + 1, self.every)

    def pieces(self, *runs: us.Run) -> Iterator[Piece]:
        each = len(self.starts) * len(self.rules)
        for multiple in self.multiple:
            for seeds in blocks(self.seed_names, max(1, int(_NODES_PER_PIECE // (multiple * self.teacher_nodes)))):
                name = f"{multiple:g}×, seeds {seeds[0]} to {seeds[-1]}"
                yield Piece(name, each * len(seeds), partial(self._simulate, multiple, seeds))
        for setting in SETTINGS:
            yield Piece(str(setting), self.seeds, partial(self._follow_bounds, setting))

    def _simulate(self, multiple: float, seeds: range, count: int) -> dict[str, Any]:
        from understudy.papers.luck.theory.simulation import probe_students, simulate, unit_columns

        sizes = (self.dim, self.teacher_nodes, self.outputs)
        teacher = unit_columns(sizes, seeds=seeds, dtype=self.torch_dtype).to(self.device)
        initial = [us.students.near(teacher, multiple=multiple, weights=w, fan_out=v) for w, v in self.starts]
        students, teachers = us.nets.stack(initial), us.nets.stack([teacher] * len(initial))
        p_w, p_v = np.repeat(self.starts, len(seeds), axis=0).T
        start = {"multiple": multiple, "p_w": p_w, "p_v": p_v}
        networks, metrics, nodes = [], [], []
        for r, rule in enumerate(self.rules):
            first = count + r * len(students)
            numbers = np.arange(first, first + len(students), dtype=np.int32)
            trajectory = simulate(teachers, students, rule=rule, lr=self.lr, batch=self.batch, probes=self.probes)
            alive = []
            for step, now in zip(self.probes, trajectory, strict=True):
                found = probe_students(teachers, now)
                metrics += _rows(numbers, step, 0, cosine=found.cosine.cpu())
                metrics += _rows(numbers, step, 1, v_u=found.near.cpu(), v_r=found.others.cpu())
                alive.append(np.isfinite(found.others.cpu().numpy()))
                if rule == "rescaled" and step in (0, self.steps):
                    metrics += _conditions(teachers, now, step, numbers, self.lr)
            swept = {"setting": FIGURE, "rule": rule} | start
            diverged = diverged_steps(np.stack(alive), self.probes)
            networks.append(network_rows(first, teachers.seeds.tolist(), diverged, **swept))
            nodes.append(_nodes(found, self.steps, numbers))
        return _tables(networks, metrics, nodes)

    def _follow_bounds(self, setting: NearSetting, count: int) -> dict[str, Any]:
        from scipy.special import ndtr

        from understudy.papers.luck.theory.near_students import theorem_4_bounds
        from understudy.papers.luck.theory.overlap import extended_weights
        from understudy.papers.luck.theory.simulation import expected_dynamics, lucky_pair, probe_students
        from understudy.papers.luck.theory.top_down import theorem_5_bounds

        seeds = list(self.seed_names)
        given = setting._asdict()
        theorem = given.pop("theorem")
        teacher, students = lucky_pair(**given, seeds=seeds)
        # Half of the rate at which a single node reaches its target in one step: it is active on ndtr(−threshold) of
        # the inputs.
        lr = 0.5 / float(ndtr(-setting.threshold))
        path = expected_dynamics(teacher, students, lr=lr, steps=self.bounded, top_down=theorem == 5)
        numbers = np.arange(count, count + len(seeds), dtype=np.int32)
        if theorem == 4:
            found = {"": theorem_4_bounds(extended_weights(teacher.layers[0]), path.w, lr)}
        else:
            found = {p: theorem_5_bounds(teacher, path, lr, as_printed=bool(p)) for p in ("", "printed_")}
        rows = [row for prefix, along in found.items() for row in _bounds(theorem, along, prefix, numbers)]
        networks = network_rows(count, seeds, setting=str(setting), rule="expected")
        return _tables([networks], rows, [_nodes(probe_students(teacher, students), 0, numbers)])


def _rows(numbers: np.ndarray, step: int, layer: int, **metrics: Any) -> list[pa.Table]:
    return [
        table_rows(numbers, step, layer, metric=metric, value=np.asarray(value, np.float64))
        for metric, value in metrics.items()
    ]


def _conditions(
    teacher: us.Population, now: us.Population, step: int, numbers: np.ndarray, lr: float
) -> list[pa.Table]:
    """γ of theorem 4, for the near students alone, and of theorem 5 as printed; and which theorems apply."""
    import torch

    from understudy.papers.luck.theory.near_students import theorem_4_bounds
    from understudy.papers.luck.theory.overlap import extended_weights
    from understudy.papers.luck.theory.simulation import as_trajectory
    from understudy.papers.luck.theory.top_down import theorem_5_bounds

    theirs, ours = (p.to("cpu", torch.float64) for p in (teacher, now))
    here = as_trajectory(ours)
    four = theorem_4_bounds(extended_weights(theirs.layers[0]), here.w[:, :, : theirs.sizes[1]], lr)
    five, printed = (theorem_5_bounds(theirs, here, lr, as_printed) for as_printed in (False, True))
    forces = {"in_force_5": five.in_force, "printed_in_force_5": printed.in_force}
    return [
        *_rows(numbers, step, 0, gamma_4=four.constants["gamma"], in_force_4=four.in_force),
        *_rows(numbers, step, 1, **forces, printed_gamma_5=printed.constants["gamma"]),
    ]


def _bounds(theorem: int, along: PathBounds, prefix: str, numbers: np.ndarray) -> list[pa.Table]:
    """Measured values and, where the theorem applies, their bounds at every step; its constants at step 0."""
    there = along.in_force.numpy()
    constants = along.constants | {"in_force": along.in_force}
    rows = _rows(numbers, 0, -1, **{prefix + name: value for name, value in constants.items()})
    for q, name in enumerate(QUANTITIES[theorem]):
        for step in range(along.measured.shape[1]):
            if not prefix:
                rows += _rows(numbers, step, min(q, 1), **{name: along.measured[:, step, q]})
            bound = along.bound[along.in_force, step, q]
            rows += _rows(numbers[there], step, min(q, 1), **{f"{prefix}{name}_bound": bound})
    return rows


def _nodes(found: StudentReading, step: int, numbers: np.ndarray) -> pa.Table:
    nets, count = found.closest.shape
    return table_rows(
        np.repeat(numbers, count),
        step,
        0,
        student=np.tile(np.arange(count, dtype=np.int32), nets),
        teacher=found.closest.cpu().numpy().ravel().astype(np.int32),
        cosine=found.closeness.cpu().numpy().ravel(),
        fanout=found.fan_out.cpu().numpy().ravel(),
    )


def _tables(networks: list[pa.Table], metrics: list[pa.Table], nodes: list[pa.Table]) -> dict[str, Any]:
    rows = {"networks": networks, "metrics": metrics, "nodes": nodes}
    return {name: pa.concat_tables(each).combine_chunks() for name, each in rows.items()}
