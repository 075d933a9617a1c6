"""Students that start near teacher nodes, and the fan-outs of all others: S2 fig 7, theorems 4 and 5."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
import pyarrow as pa

import understudy as us
from understudy.errors import UserError
from understudy.lab.options import check
from understudy.lab.pieces import blocks
from understudy.lab.study import ComputedStudy, Piece

if TYPE_CHECKING:
    from understudy.lab.study import Tables
    from understudy.nets import Population
    from understudy.papers.luck.theory.near_students import PathBounds
    from understudy.papers.luck.theory.simulation import StudentReading
    from understudy.store import Run

FIGURE = "S2 fig 7"
QUANTITIES = {4: ("sin_angle",), 5: ("sin_angle", "fan_out_gap", "other_fan_out")}
"""What each theorem bounds: the largest of a network's nodes."""
_ROOM = 400
"""Student nodes of a setting in a piece of work, over seeds."""


class Setting(NamedTuple):
    """Networks on which a theorem can be in force: nodes that are seldom active together, students that start near."""

    theorem: int
    nodes: int
    others: int
    dim: int
    threshold: float
    """Of the hidden nodes' activation, in standard deviations of what comes in."""
    cosine: float
    """Between the weights of any two nodes."""
    angle: float
    missed: float = 0.0
    fan_out: float = 0.0

    def __str__(self) -> str:
        students = f"{self.nodes} + {self.others}" if self.others else str(self.nodes)
        return f"theorem {self.theorem}: {students} students, threshold {self.threshold:g}, cosine {self.cosine:g}"


SETTINGS = (
    Setting(4, 2, 0, 10, 0.0, -0.9, 0.02),
    Setting(4, 3, 0, 10, 1.0, -0.45, 0.02),
    Setting(4, 4, 0, 10, 2.0, 0.0, 0.01),
    Setting(4, 5, 0, 20, 2.5, 0.0, 0.005),
    Setting(4, 10, 0, 20, 3.0, 0.0, 0.003),
    Setting(5, 1, 1, 10, 0.3, -0.99, 0.001, 0.0, 0.5),
    Setting(5, 2, 1, 10, 1.5, -0.45, 0.002, 0.1, 0.1),
    Setting(5, 2, 1, 10, 3.0, 0.0, 0.002, 0.1, 0.1),
    Setting(5, 3, 2, 10, 3.5, 0.0, 0.001, 0.05, 0.05),
)
"""The papers have none: these are ours, some of them out of the theorems' reach."""


@dataclass(frozen=True)
class LuckyInit(ComputedStudy):
    """What becomes of students that start near teacher nodes, and of the fan-outs of those that do not.

    The dynamics of S2 eq. 6 on fresh batches, as in fig 7, beside SGD; and the expected dynamics of theorems 4 and 5
    with their bounds at every step.
    """

    name: ClassVar[str] = "lucky-init"
    summary: ClassVar[str] = "students that start near teacher nodes, and the fan-outs of the others"
    figures: ClassVar[str] = "S2 fig 7, theorems 4, 5"
    decides: ClassVar[str] = "Y10 Y11"

    dim: int = 10
    """Inputs, N(0, 1) each, beside a constant 1."""
    teacher_nodes: int = 20
    """Hidden nodes of the teacher."""
    outputs: int = 30
    """Outputs."""
    multiple: tuple[float, ...] = (2.0, 5.0, 10.0)
    """Over-parameterizations: how many times as many hidden nodes the students have."""
    p_w: tuple[float, ...] = (10.0, 5.0, 1.0, 0.0)
    """How near the first students start to the teacher's nodes, one a start: weights are p_W w* + unit noise."""
    p_v: tuple[float, ...] = (10.0, 0.0, 1.0, 5.0)
    """How near their fan-outs start, one for each of --p-w."""
    rules: tuple[Literal["rescaled", "free", "sgd"], ...] = ("rescaled", "sgd")
    """How students move: by eq. 6 with the columns of W and V rescaled to length 1 after every step, by eq. 6 without
    that, or by SGD's gradient."""
    lr: float = 0.05
    """Learning rate."""
    batch: int = 64
    """Samples in a batch; every step has a fresh one."""
    steps: int = 20_000
    """Steps."""
    every: int = 250
    """Steps from one look to the next."""
    bounded: int = 100
    """Steps of the expected dynamics, on which the theorems' bounds are checked."""

    @classmethod
    def quick(cls) -> Self:
        return cls(seeds=4, multiple=(2.0, 5.0), steps=5_000, bounded=40)

    def validate(self) -> None:
        for field in ("dim", "teacher_nodes", "outputs", "batch", "steps", "every", "bounded"):
            check(self, field, least=1)
        check(self, "lr", above=0)
        check(self, "multiple", above=1, distinct=True)
        check(self, "p_w", least=0)
        check(self, "p_v", least=0)
        if len(self.p_w) != len(self.p_v) or len(set(self.starts)) < len(self.p_w):
            raise UserError(
                f"--p-v: {len(self.p_v)} values were given for {len(self.p_w)} of --p-w; give one each, and no pair "
                "twice"
            )
        if len(set(self.rules)) < len(self.rules) or not self.rules:
            raise UserError("--rules: name one or more of rescaled, free, sgd, each once")
        if self.steps % self.every:
            raise UserError(
                f"--every: {self.every} was given; allowed is a number that divides the {self.steps:,} steps"
            )
        for multiple in self.multiple:
            us.students.hidden_sizes((self.dim, self.teacher_nodes, self.outputs), multiple)

    @property
    def starts(self) -> list[tuple[float, float]]:
        """(p_W, p_V) of each start."""
        return list(zip(self.p_w, self.p_v, strict=False))

    @property
    def looks(self) -> range:
        return range(0, self.steps + 1, self.every)

    def pieces(self, *runs: Run) -> Iterator[Piece]:
        each = len(self.starts) * len(self.rules)
        for multiple in self.multiple:
            for seeds in blocks(self.seed_names, max(1, int(_ROOM // (multiple * self.teacher_nodes)))):
                name = f"{multiple:g}×, seeds {seeds[0]} to {seeds[-1]}"
                yield Piece(name, each * len(seeds), partial(self._simulated, multiple, list(seeds)))
        for setting in SETTINGS:
            yield Piece(str(setting), self.seeds, partial(self._bounded, setting))

    def _simulated(self, multiple: float, seeds: list[int], count: int) -> Tables:
        from understudy.papers.luck.theory.simulation import probe_students, simulate, unit_columns

        sizes = (self.dim, self.teacher_nodes, self.outputs)
        teacher = unit_columns(sizes, seeds=seeds, dtype=self.torch_dtype).to(self.device)
        begun = [us.students.near(teacher, multiple=multiple, weights=w, fan_out=v) for w, v in self.starts]
        students, teachers = us.nets.stack(begun), us.nets.stack([teacher] * len(begun))
        swept = [
            {"seed": seed, "setting": FIGURE, "multiple": multiple, "p_w": w, "p_v": v}
            for w, v in self.starts
            for seed in seeds
        ]
        tables = []
        for r, rule in enumerate(self.rules):
            numbers = np.arange(len(swept), dtype=np.int32) + count + r * len(swept)
            ways = simulate(teachers, students, rule=rule, lr=self.lr, batch=self.batch, probes=self.looks)
            rows, alive = [], []
            for step, now in zip(self.looks, ways, strict=True):
                found = probe_students(teachers, now)
                rows += list(_looked(found, step, numbers))
                alive.append(np.isfinite(rows[-1]["value"]))
                if rule == "rescaled" and step in (0, self.steps):
                    rows += list(_reach(teachers, now, step, numbers, self.lr))
            diverged = [None if c.all() else self.looks[int(np.argmin(c))] for c in np.stack(alive).T]
            nodes = _nodes(found, self.steps, numbers)
            tables.append(_tables(numbers, [row | {"rule": rule} for row in swept], diverged, rows, nodes))
        return {name: pa.concat_tables([t[name] for t in tables]) for name in tables[0]}

    def _bounded(self, setting: Setting, count: int) -> Tables:
        from scipy.special import ndtr

        from understudy.papers.luck.theory.near_students import theorem_4_bounds
        from understudy.papers.luck.theory.overlap import extended_weights
        from understudy.papers.luck.theory.simulation import expected_dynamics, lucky_pair, probe_students
        from understudy.papers.luck.theory.top_down import theorem_5_bounds

        seeds = list(range(1, self.seeds + 1))
        pair = lucky_pair(*setting[1:4], **{k: v for k, v in setting._asdict().items() if k in _STARTS}, seeds=seeds)
        # Half of the way that a node could go at once, alone: it is active on ndtr(−threshold) of the inputs.
        lr = 0.5 / float(ndtr(-setting.threshold))
        path = expected_dynamics(*pair, lr=lr, steps=self.bounded, top_down=setting.theorem == 5)
        numbers = np.arange(count, count + len(seeds), dtype=np.int32)
        if setting.theorem == 4:
            found = {"": theorem_4_bounds(extended_weights(pair.teacher.layers[0]), path.w, lr)}
        else:
            found = {
                "": theorem_5_bounds(pair.teacher, path, lr),
                "printed_": theorem_5_bounds(pair.teacher, path, lr, as_printed=True),
            }
        rows = [row for prefix, along in found.items() for row in _bounds(setting.theorem, along, prefix, numbers)]
        nodes = _nodes(probe_students(*pair), 0, numbers)
        swept = [{"seed": s, "setting": str(setting), "rule": "expected"} for s in seeds]
        return _tables(numbers, swept, [None] * len(seeds), rows, nodes)


_STARTS = ("threshold", "cosine", "angle", "missed", "fan_out")
_KINDS = {"multiple": pa.float64(), "p_w": pa.float64(), "p_v": pa.float64()}


def _rows(numbers: np.ndarray, step: int, layer: int, metric: str, value: Any) -> dict[str, Any]:
    return {
        "network": numbers,
        "epoch": np.full(len(numbers), step, np.int32),
        "layer": np.full(len(numbers), layer, np.int16),
        "metric": [metric] * len(numbers),
        "value": np.asarray(value, np.float64),
    }


def _looked(found: StudentReading, step: int, numbers: np.ndarray) -> Iterator[dict[str, Any]]:
    yield _rows(numbers, step, 0, "cosine", found.cosine.cpu())
    yield _rows(numbers, step, 1, "v_u", found.near.cpu())
    yield _rows(numbers, step, 1, "v_r", found.others.cpu())


def _reach(teacher: Population, now: Population, step: int, numbers: np.ndarray, lr: float) -> Iterator[dict[str, Any]]:
    """γ of theorem 4, for the near students alone, and of theorem 5 as printed; what is in force."""
    import torch

    from understudy.papers.luck.theory.near_students import theorem_4_bounds
    from understudy.papers.luck.theory.overlap import extended_weights
    from understudy.papers.luck.theory.simulation import as_trajectory
    from understudy.papers.luck.theory.top_down import theorem_5_bounds

    theirs, ours = (p.to("cpu", torch.float64) for p in (teacher, now))
    here = as_trajectory(ours)
    four = theorem_4_bounds(extended_weights(theirs.layers[0]), here.w[:, :, : theirs.sizes[1]], lr)
    yield _rows(numbers, step, 0, "gamma_4", four.constants["gamma"])
    yield _rows(numbers, step, 0, "in_force_4", four.in_force)
    for prefix, as_printed in (("", False), ("printed_", True)):
        five = theorem_5_bounds(theirs, here, lr, as_printed)
        yield _rows(numbers, step, 1, f"{prefix}in_force_5", five.in_force)
    yield _rows(numbers, step, 1, "printed_gamma_5", five.constants["gamma"])


def _bounds(theorem: int, along: PathBounds, prefix: str, numbers: np.ndarray) -> Iterator[dict[str, Any]]:
    """What is measured and its bound at every step, where the theorem is in force; its constants at step 0."""
    names, there = QUANTITIES[theorem], along.in_force.numpy()
    for name, value in along.constants.items():
        yield _rows(numbers, 0, -1, prefix + name, value)
    yield _rows(numbers, 0, -1, f"{prefix}in_force", there)
    for q, name in enumerate(names):
        for step in range(along.measured.shape[1]):
            if not prefix:
                yield _rows(numbers, step, min(q, 1), name, along.measured[:, step, q])
            yield _rows(
                numbers[there], step, min(q, 1), f"{prefix}{name}_bound", along.bound[:, step, q].numpy()[there]
            )


def _nodes(found: StudentReading, step: int, numbers: np.ndarray) -> dict[str, Any]:
    nets, count = found.closest.shape
    return {
        "network": np.repeat(numbers, count),
        "epoch": np.full(nets * count, step, np.int32),
        "layer": np.zeros(nets * count, np.int16),
        "student": np.tile(np.arange(count, dtype=np.int32), nets),
        "teacher": found.closest.cpu().numpy().ravel().astype(np.int32),
        "cosine": found.closeness.cpu().numpy().ravel(),
        "fanout": found.fan_out.cpu().numpy().ravel(),
    }


def _tables(
    numbers: np.ndarray,
    swept: list[dict[str, Any]],
    diverged: list[int | None],
    metrics: list[dict[str, Any]],
    nodes: dict[str, Any],
) -> Tables:
    columns = {name: pa.array([row.get(name) for row in swept], kind) for name, kind in _KINDS.items()}
    names = {name: [row[name] for row in swept] for name in ("seed", "setting", "rule")}
    joined = {name: np.concatenate([row[name] for row in metrics]) for name in ("network", "epoch", "layer", "value")}
    words = [word for row in metrics for word in row["metric"]]
    return {
        "networks": pa.table({"network": numbers} | names | columns | {"diverged_at": pa.array(diverged, pa.int64())}),
        "metrics": pa.table({**joined, "metric": words}).select(["network", "epoch", "layer", "metric", "value"]),
        "nodes": pa.table(nodes),
    }
