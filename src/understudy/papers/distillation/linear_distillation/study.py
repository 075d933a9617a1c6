"""The study `linear-distillation`: linear students of any depth, what they learn and their risk (Phuong 2021, 5.3)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Annotated, ClassVar, Self

import numpy as np
import pyarrow as pa
from annotated_types import Ge, Gt, Lt

from understudy._errors import UserError
from understudy.lab.options import Count, Counts, InputFile, Positive, Positives, Steps
from understudy.lab.pieces import log_probes, network_tables, unit_table
from understudy.lab.study import Piece
from understudy.papers.distillation.shared import TransferStudy, read_data, set_tables

if TYPE_CHECKING:
    from torch import Tensor

    from understudy.lab.study import Tables
    from understudy.papers.distillation.theory.risk import Alignment
    from understudy.papers.distillation.theory.tasks import AngleTask, GivenTask
    from understudy.store import Run

POLYNOMIAL, MARGIN, OWN = "polynomial", "large margin", "own data"
FLOW, DESCENT, APPROXIMATE = "flow", "descent", "descent, approximately balanced"
NEAR = 1e-6
"""Distance from ŵ at which it counts as learned."""
LEARNED = "learned"
"""The students that are followed over training, in the column `part` of `networks`."""
_LATEST = 14.0
"""log10 of the last time at which flow is probed, long after it has converged."""
_THETAS = 91


@dataclass(frozen=True)
class LinearDistillation(TransferStudy):
    """Students wᵀ = W_L ⋯ W_1 of a linear teacher: the ends of gradient flow and descent, and their risk.

    From n ≥ d inputs they learn the teacher, from fewer its projection on the span of the inputs (theorems 5.1, 5.2);
    risks, exact or on held-out inputs, are compared with the bounds of theorem 5.3 and its corollaries.
    """

    name: ClassVar[str] = "linear-distillation"
    summary: ClassVar[str] = "what linear students of any depth learn from soft labels, and their risk under its bound"
    figures: ClassVar[str] = "S3 fig. 5.2, theorems 5.1, 5.2, 5.3, D.3, corollaries 5.1, 5.2"
    decides: ClassVar[str] = "K1 K2"
    renamed: ClassVar[Mapping[str, str]] = {"looks": "probes"}
    arrays: ClassVar[tuple[str, ...]] = ("seeds inputs dim", "students learned_inputs dim", "width dim", "width width")

    seeds: Count = 10_000
    """Number of transfer sets of each size, counted from 1: each seed is one, and the initial weights of its students;
    sets of different sizes are independent."""
    data: InputFile = ""
    """File of your own inputs, .npz: `x`, one input per row, and `y`, labels of two classes, to which a logistic
    regression is fitted as the teacher; or, in place of `y`, `w`, the weights of a linear teacher. Neither has a bias:
    add a column of ones to `x` for one."""
    dim: Annotated[int, Ge(2)] = 30
    """Dimension d of the inputs; with --data that of the file."""
    kappa: Positive = 1.0
    """κ of both tasks: angles to the teacher have P[angle ≥ θ] = (1 − θ/widest)^κ."""
    margin: Annotated[float, Gt(0), Lt(math.pi / 2)] = 0.3
    """Least angle of inputs of the large-margin task to the teacher's boundary, in rad."""
    inputs: Counts = (1, 2, 3, 5, 7, 10, 15, 20, 25, 29, 30, 45)
    """Inputs per transfer set n, for the risk."""
    depths: Counts = (1, 2, 3)
    """Layers L of the students."""
    scale: Positive = 1e-6
    """‖w(0)‖ of students of 2 and more layers; those of one layer start at 0."""
    width: Count = 4
    """Nodes of their hidden layers."""
    students: Count = 20
    """Transfer sets whose students are followed over training."""
    learned_inputs: Counts = (5, 15, 29, 30, 45, 60)
    """Inputs of these sets."""
    steps: Steps = 1_000_000
    """Most steps of gradient descent, which stops where it is as near to ŵ as the theorems state."""
    noise: Positive = 0.1
    """Size of the Gaussian noise, relative to each layer, of starts of descent that are only approximately balanced."""
    rate: Positive = 1.0
    """Learning rate of descent, in units of 4n/(L λ_max(XᵀX))."""
    probes: Annotated[int, Ge(2)] = 120
    """Number of probes of each network, about evenly spaced on a logarithmic axis."""
    scales: Positives = (1e-4, 1e-3, 1e-2, 0.1, 0.3, 1.0)
    """‖w(0)‖ at which the starts are counted where neither w(0) nor −w(0) meets condition 5.12."""

    @classmethod
    def quick(cls) -> Self:
        return cls(
            seeds=200,
            dim=10,
            inputs=(1, 2, 3, 5, 7, 9, 10, 15),
            students=5,
            learned_inputs=(5, 9, 10, 20),
            steps=20_000,
            probes=80,
        )

    def warnings(self) -> tuple[str, ...]:
        if self.rate <= 1:
            return ()
        return (
            f"--rate {self.rate:g} is above 1, the largest with which every step of descent is guaranteed to lower the "
            "loss of one layer; training may not converge",
        )

    def validate_files(self) -> None:
        if self.data and max(self.inputs) > (most := len(read_data(self.data).pool)):
            raise UserError(
                f"--inputs must be at most {most}, the number of inputs of --data that sets are drawn from, got "
                f"{max(self.inputs)}"
            )

    def tasks(self) -> dict[str, AngleTask | GivenTask]:
        """The tasks by name."""
        from understudy.papers.distillation.theory.tasks import AngleTask

        if self.data:
            return {OWN: read_data(self.data)}
        return {
            POLYNOMIAL: AngleTask(self.dim, self.kappa),
            MARGIN: AngleTask(self.dim, self.kappa, self.margin),
        }

    def pieces(self, *runs: Run) -> Iterator[Piece]:
        from understudy.papers.distillation.theory.tasks import AngleTask

        for name, task in self.tasks().items():
            yield Piece(f"angles, {name}", 0, partial(self._angles, name, task))
            for n, depth in product(sorted(self.inputs), sorted(self.depths)):
                yield Piece(f"risk, {name}, n = {n}, L = {depth}", 0, partial(self._risk, name, task, n, depth))
            if not isinstance(task, AngleTask):
                continue
            for scale in sorted(self.scales):
                yield Piece(f"starts, {name}, {scale:g}", 0, partial(self._starts, name, task, scale))
            for n, depth, by in product(sorted(self.learned_inputs), sorted(self.depths), (FLOW, DESCENT, APPROXIMATE)):
                if by == APPROXIMATE and depth == 1:
                    continue
                follow = partial(self._follow, name, task, n, depth, by)
                yield Piece(f"{by}, {name}, n = {n}, L = {depth}", self.students, follow)

    def _angles(self, name: str, task: AngleTask | GivenTask, first: int) -> Tables:
        """p(θ) estimated from samples with its band, and exact where it is known."""
        import torch

        from understudy.papers.distillation.theory.risk import band
        from understudy.papers.distillation.theory.tasks import AngleTask

        theta = torch.linspace(0, math.pi / 2, _THETAS, dtype=torch.float64)
        found = band(_samples(task, self.seeds), task.teacher, self.confidence)
        values = {"theta": theta, "p": found.p(theta), "low p": found.low(theta), "high p": found.high(theta)}
        if isinstance(task, AngleTask):
            values["exact p"] = task.p(theta)
        rows: dict[str, object] = {"task": [name] * _THETAS} | {key: value.numpy() for key, value in values.items()}
        if self.data and (right := read_data(self.data).right) is not None:
            rows["right"] = np.full(_THETAS, right)
        return {"angles": pa.table(rows)}

    def _risk(self, name: str, task: AngleTask | GivenTask, n: int, depth: int, first: int) -> Tables:
        """Risks of students at the end of flow, which is known in closed form, and bounds on their mean."""
        import torch

        from understudy.papers.distillation.theory.linear_students import balanced, conditions, end_to_end
        from understudy.papers.distillation.theory.risk import measured_risk
        from understudy.papers.distillation.theory.soft_labels import angle, limit, solution
        from understudy.papers.distillation.theory.tasks import AngleTask

        seeds = self.seed_names
        x = (replace(task, draw=n) if isinstance(task, AngleTask) else task).inputs(seeds, n)
        students = balanced(x, task.teacher, depth, self._scale(depth), seeds, self.width)
        w = limit(end_to_end(students), x, task.teacher, depth)
        met = conditions(students, x, task.teacher)
        known = met.hold() if depth > 1 else torch.ones(self.seeds, dtype=torch.bool)
        relative = torch.where(known, met.epsilon / met.solution, torch.inf)
        error = torch.linalg.vector_norm(w - solution(x, task.teacher), dim=-1) / met.solution
        risks, mean = measured_risk(task, w, self.confidence)
        values = {"risk": risks, "angle": angle(w, task.teacher), "error": error, "hold": known}
        values["epsilon"] = relative.nan_to_num(posinf=torch.nan)
        parameters = {"task": name, "depth": depth, "inputs": n}
        return set_tables(seeds, parameters, values, {"risk": mean}, self._bounds(task, n, depth, relative))

    def _bounds(self, task: AngleTask | GivenTask, n: int, depth: int, relative: Tensor) -> dict[str, float]:
        """Theorem 5.3 for one layer and D.4 for more, with the upper end of the band of p where p is not known."""
        from understudy.papers.distillation.theory import risk as bounds
        from understudy.papers.distillation.theory.tasks import AngleTask

        p: Alignment = bounds.band(_samples(task, self.seeds), task.teacher, self.confidence).high
        corollary = {}
        if isinstance(task, AngleTask):
            p = task.p
            margin = bool(task.margin)
            own = bounds.large_margin_bound(p, task.margin, n) if margin else bounds.polynomial_bound(self.kappa, n)
            corollary = {"corollary": own}
        dim = n + 1 if self.data else task.dim  # a user's inputs need not span the space, however many
        if depth > 1:
            found, printed = (bounds.deep_risk_bound(p, n, dim, relative, printed=old) for old in (False, True))
            once = {"bound": found.risk, "printed bound": printed.risk, "slack": found.slack, "beyond": found.beyond}
            return once | corollary
        proved, stated = (bounds.risk_bound(p, n, dim, printed=old) for old in (False, True))
        return {"bound": proved, "printed bound": stated} | corollary

    def _starts(self, name: str, task: AngleTask, scale: float, first: int) -> Tables:
        """Whether neither w(0) nor −w(0) meets condition 5.12, on sets of the smallest size that is followed."""
        from understudy.papers.distillation.theory.linear_students import balanced, end_to_end
        from understudy.papers.distillation.theory.soft_labels import gain

        seeds, n = self.seed_names, min(self.learned_inputs)
        x = task.inputs(seeds, n)
        w = end_to_end(balanced(x, task.teacher, 1, scale, seeds))
        neither = ~((gain(w, x, task.teacher) > 0) | (gain(-w, x, task.teacher) > 0))
        values = neither.double().numpy()
        return {"starts": unit_table(seed=seeds, task=name, inputs=n, scale=scale, neither=values)}

    def _follow(self, name: str, task: AngleTask, n: int, depth: int, by: str, first: int) -> Tables:
        """Students over training, by gradient flow or descent."""
        import torch

        from understudy.papers.distillation.theory import linear_students as linear
        from understudy.papers.distillation.theory.rates import fitted_rates, limit_rate, proved_rate
        from understudy.papers.distillation.theory.soft_labels import angle, limit, loss, solution

        seeds = range(1, self.students + 1)
        x, teacher = task.inputs(seeds, n), task.teacher
        initial = linear.balanced(x, teacher, depth, self._scale(depth), seeds, self.width)
        initial = linear.disturbed(initial, self.noise, seeds) if by == APPROXIMATE else initial
        start, met = linear.end_to_end(initial), linear.conditions(initial, x, teacher)
        exact = depth == 1 or n >= task.dim
        allowed = torch.full_like(met.epsilon, NEAR) if exact else met.epsilon
        once = {**met._asdict(), "allowed": allowed, "hold": met.hold() if depth > 1 else torch.ones(self.students)}
        weights = None
        if by == FLOW:
            times = torch.tensor([0.0, *np.logspace(-1, _LATEST, self.probes - 1)], dtype=torch.float64)
            path = linear.balanced_flow(start, x, teacher, times.tolist(), depth)
            time = times[:, None].expand(-1, self.students)
            once["off"] = torch.linalg.vector_norm(path[-1] - limit(start, x, teacher, depth), dim=-1)
            once["proved rate"] = proved_rate(start, x, teacher, depth)
            once["limit rate"] = limit_rate(start, x, teacher, depth)
            once["slowest rate"], once["last rate"] = fitted_rates(loss(path, x, teacher), times)
        else:
            probes = torch.tensor(log_probes(self.steps, self.probes - 1))
            rates = self.rate * linear.rate_bound(x) / depth
            found = linear.descend_until(initial, x, teacher, rates, probes.tolist(), allowed)
            path = torch.stack([linear.end_to_end(students) for students in found.students])
            needed = torch.where(found.steps < 0, self.steps, found.steps)
            time = torch.minimum(probes[:, None], needed) * rates
            once["steps"] = torch.where(found.steps < 0, torch.nan, found.steps.double())
            weights = {"start": found.students[0], "end": found.students[-1]}
        values = {
            "loss": loss(path, x, teacher),
            "time": time,
            "error": torch.linalg.vector_norm(path - solution(x, teacher), dim=-1),
            "risk": task.risk(angle(path, teacher)),
        }
        rows = {key: value.double().numpy() for key, value in values.items()}
        for key, value in once.items():  # one number per network
            rows[key] = np.full((len(path), self.students), np.nan)
            rows[key][0] = value.double().numpy()
        parameters = {"part": LEARNED, "task": name, "depth": depth, "inputs": n, "by": by}
        return network_tables(first, seeds, parameters, range(len(path)), rows, weights=weights)

    def _scale(self, depth: int) -> float:
        return self.scale if depth > 1 else 0.0


def _samples(task: AngleTask | GivenTask, sets: int) -> Tensor:
    """Inputs from which p(θ) is estimated: those held out, or the first of each set."""
    held: Tensor | None = getattr(task, "held_out", None)
    return task.inputs(range(1, sets + 1), 1)[:, 0] if held is None else held
