"""What linear students of any depth learn from a linear teacher's soft labels, and how fast: S3 sec 5.3."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from understudy.errors import UserError
from understudy.lab.options import check
from understudy.lab.pieces import log_probes, network_tables
from understudy.lab.study import Piece
from understudy.papers.distillation.shared import OwnDataStudy, read_data, set_tables

if TYPE_CHECKING:
    from torch import Tensor

    from understudy.lab.study import Tables
    from understudy.papers.distillation.theory.risk import Alignment
    from understudy.papers.distillation.theory.tasks import AngleTask, GivenTask
    from understudy.store import Run

POLYNOMIAL, MARGIN, OWN = "polynomial", "large margin", "own data"
FLOW, DESCENT = "flow", "descent"
LEARNED, STARTS, RISK, ANGLES = "learned", "starts", "risk", "angles"
"""Parts of the study, in the column `part`."""
CONDITIONS = ("start", "solution", "epsilon", "gain", "imbalance", "hold")
BOUNDS = ("bound", "printed bound", "corollary", "slack", "beyond")
_LATEST = 14.0
"""log10 of the last time that flow is looked at; it stops where nothing is left to go."""
_THETAS = 91


@dataclass(frozen=True)
class LinearDistillation(OwnDataStudy):
    """Students wᵀ = W_L ⋯ W_1 of a linear teacher: where gradient flow and descent take them, and their risk.

    From n ≥ d inputs they learn the teacher, from fewer its projection on the span of the inputs (theorems 5.1, 5.2);
    risks, exact or on held-out inputs, stand beside the bounds of theorem 5.3 and its corollaries.
    """

    name: ClassVar[str] = "linear-distillation"
    summary: ClassVar[str] = "what linear students of any depth learn from soft labels, and their risk under its bound"
    figures: ClassVar[str] = "S3 theorems 5.1, 5.2, 5.3, corollaries 5.1, 5.2"
    decides: ClassVar[str] = "K1 K2"

    dim: int = 30
    """Numbers of an input d; with --data the file's."""
    kappa: float = 1.0
    """κ of both tasks: angles to the teacher have P[angle ≥ θ] = (1 − θ/widest)^κ."""
    margin: float = 0.3
    """Angle to the teacher's boundary that no input of the large-margin task is within, in radians."""
    inputs: tuple[int, ...] = (1, 2, 3, 5, 7, 10, 15, 20, 25, 29, 30, 45)
    """Inputs of a transfer set n, for the risk."""
    depths: tuple[int, ...] = (1, 2, 3)
    """Layers L of the students."""
    scale: float = 1e-6
    """‖w(0)‖ of students of 2 layers and more; those of one start at 0."""
    width: int = 4
    """Nodes of their hidden layers."""
    students: int = 20
    """Transfer sets whose students are followed over training."""
    learned_inputs: tuple[int, ...] = (5, 15, 29, 30, 45, 60)
    """Inputs of these sets."""
    steps: int = 10_000
    """Steps of gradient descent."""
    rate: float = 1.0
    """Learning rate of descent, in parts of 4n/(L λ_max(XᵀX))."""
    looks: int = 60
    """How often networks are looked at, about evenly on a logarithmic axis."""
    scales: tuple[float, ...] = (1e-4, 1e-3, 1e-2, 0.1, 0.3, 1.0)
    """‖w(0)‖ at which it is counted how often neither w(0) nor −w(0) meets condition 5.12."""

    @classmethod
    def quick(cls) -> Self:
        return cls(
            seeds=200,
            dim=10,
            inputs=(1, 2, 3, 5, 7, 9, 10, 15),
            students=5,
            learned_inputs=(5, 9, 10, 20),
            steps=2_000,
            looks=40,
        )

    def validate(self) -> None:
        super().validate()
        check(self, "dim", least=2)
        check(self, "kappa", above=0)
        for field in ("inputs", "depths", "learned_inputs"):
            check(self, field, least=1, distinct=True)
        for field in ("scale", "rate", "margin"):
            check(self, field, above=0)
        check(self, "scales", above=0, distinct=True)
        for field in ("width", "students", "steps"):
            check(self, field, least=1)
        check(self, "looks", least=2)
        if self.margin >= math.pi / 2:
            raise UserError(f"--margin: {self.margin:g} was given; allowed is an angle above 0 and below π/2")

    def warnings(self) -> tuple[str, ...]:
        if self.rate <= 1:
            return ()
        return (
            f"--rate: {self.rate:g} is above 1, up to which a step of descent is sure to lower the loss of one layer; "
            "it goes on, and may not converge",
        )

    def config(self) -> dict[str, Any]:
        plain = super().config()
        if self.data and max(self.inputs) > (most := len(read_data(self.data).task.pool)):
            raise UserError(
                f"--inputs: {max(self.inputs)} was given; allowed is up to {most}, the inputs of --data that sets "
                "are drawn from"
            )
        return plain

    def tasks(self) -> dict[str, AngleTask | GivenTask]:
        from understudy.papers.distillation.theory.tasks import AngleTask, large_margin

        if self.data:
            return {OWN: read_data(self.data).task}
        return {
            POLYNOMIAL: AngleTask(self.dim, self.kappa),
            MARGIN: large_margin(self.dim, self.margin, self.kappa),
        }

    def pieces(self, *runs: Run) -> Iterator[Piece]:
        from understudy.papers.distillation.theory.tasks import AngleTask

        for name, task in self.tasks().items():
            yield Piece(f"angles, {name}", 1, partial(self._angles, name, task))
            for n in sorted(self.inputs):
                for depth in sorted(self.depths):
                    made = partial(self._risk, name, task, n, depth)
                    yield Piece(f"risk, {name}, n = {n}, L = {depth}", self.seeds, made)
            if not isinstance(task, AngleTask):
                continue
            for scale in sorted(self.scales):
                yield Piece(f"starts, {name}, {scale:g}", self.seeds, partial(self._starts, name, task, scale))
            for n in sorted(self.learned_inputs):
                for depth in sorted(self.depths):
                    for by in (FLOW, DESCENT):
                        made = partial(self._learned, name, task, n, depth, by)
                        yield Piece(f"{by}, {name}, n = {n}, L = {depth}", self.students, made)

    def _angles(self, name: str, task: AngleTask | GivenTask, first: int) -> Tables:
        """p(θ) from samples with its band; exact where it is known."""
        import torch

        from understudy.papers.distillation.theory.risk import band
        from understudy.papers.distillation.theory.tasks import AngleTask

        theta = torch.linspace(0, math.pi / 2, _THETAS, dtype=torch.float64)
        found = band(_many(task, self.seeds), task.teacher, self.confidence)
        values = {"theta": theta, "p": found.p(theta), "low p": found.low(theta), "high p": found.high(theta)}
        if isinstance(task, AngleTask):
            values["exact p"] = task.p(theta)
        rows = {key: value.numpy()[:, None] for key, value in values.items()}
        if self.data and (fitted := read_data(self.data).fitted):
            rows["right"] = _first(torch.tensor([fitted.right]), _THETAS)
        return network_tables(first, [1], {"part": ANGLES, "task": name}, range(_THETAS), rows)

    def _risk(self, name: str, task: AngleTask | GivenTask, n: int, depth: int, first: int) -> Tables:
        """Students at the end of flow, in closed form."""
        import torch

        from understudy.papers.distillation.theory.linear_students import balanced, conditions, end_to_end
        from understudy.papers.distillation.theory.risk import measured_risk
        from understudy.papers.distillation.theory.soft_labels import angle, limit, solution

        seeds = range(1, self.seeds + 1)
        x = task.inputs(seeds, n)
        students = balanced(x, task.teacher, depth, self._scale(depth), seeds, self.width)
        w = limit(end_to_end(students), x, task.teacher, depth)
        met = conditions(students, x, task.teacher)
        known = met.hold() if depth > 1 else torch.ones(self.seeds, dtype=torch.bool)
        relative = torch.where(known, met.epsilon / met.solution, torch.inf)
        error = torch.linalg.vector_norm(w - solution(x, task.teacher), dim=-1) / met.solution
        risks, mean = measured_risk(task, w, self.confidence)
        values = {"risk": risks, "angle": angle(w, task.teacher), "error": error, "hold": known.double()}
        values["epsilon"] = relative.nan_to_num(posinf=torch.nan)
        return set_tables(
            first,
            seeds,
            {"part": RISK, "task": name, "depth": depth, "inputs": n},
            {key: value.numpy() for key, value in values.items()},
            {"risk": mean},
            once=self._bounds(task, n, depth, relative),
        )

    def _bounds(self, task: AngleTask | GivenTask, n: int, depth: int, relative: Tensor) -> dict[str, float]:
        """Theorem 5.3 for one layer and D.4 for more, from the upper end of p's band where p is not known."""
        from understudy.papers.distillation.theory import risk as bounds
        from understudy.papers.distillation.theory.tasks import AngleTask

        p: Alignment = bounds.band(_many(task, self.seeds), task.teacher, self.confidence).high
        corollary = {}
        if isinstance(task, AngleTask):
            p = task.p
            margin = bool(task.margin)
            own = bounds.large_margin_bound(p, task.margin, [n]) if margin else bounds.polynomial_bound(self.kappa, [n])
            corollary = {"corollary": float(own)}
        dim = n + 1 if self.data else task.dim  # inputs of one's own need not span everything, however many
        if depth > 1:
            found, printed = (bounds.deep_risk_bound(p, n, dim, relative, printed=old) for old in (False, True))
            once = {"bound": found.risk, "printed bound": printed.risk, "slack": found.slack, "beyond": found.beyond}
            return once | corollary
        proved, stated = (float(bounds.risk_bound(p, [n], dim, printed=old).risk) for old in (False, True))
        return {"bound": proved, "printed bound": stated} | corollary

    def _starts(self, name: str, task: AngleTask, scale: float, first: int) -> Tables:
        """Whether w(0) or −w(0) meets condition 5.12, on the smallest sets that are followed."""
        from understudy.papers.distillation.theory.linear_students import balanced, end_to_end
        from understudy.papers.distillation.theory.soft_labels import gain

        seeds, n = range(1, self.seeds + 1), min(self.learned_inputs)
        x = task.inputs(seeds, n)
        w = end_to_end(balanced(x, task.teacher, 1, scale, seeds))
        neither = ~((gain(w, x, task.teacher) > 0) | (gain(-w, x, task.teacher) > 0))
        parameters = {"part": STARTS, "task": name, "inputs": n, "scale": scale}
        return set_tables(first, seeds, parameters, {"neither": neither.double().numpy()}, {})

    def _learned(self, name: str, task: AngleTask, n: int, depth: int, by: str, first: int) -> Tables:
        """Students over training, by either way."""
        import torch

        from understudy.papers.distillation.theory.linear_students import (
            balanced,
            balanced_flow,
            conditions,
            descend,
            end_to_end,
            rate_bound,
        )
        from understudy.papers.distillation.theory.soft_labels import angle, limit, loss, solution

        seeds = range(1, self.students + 1)
        x, teacher = task.inputs(seeds, n), task.teacher
        begun = balanced(x, teacher, depth, self._scale(depth), seeds, self.width)
        start, wanted = end_to_end(begun), solution(x, teacher)
        kept = None
        if by == FLOW:
            times = [0.0, *np.logspace(-1, _LATEST, self.looks - 1)]
            path = balanced_flow(start, x, teacher, times, depth)
            time = torch.tensor(times)[:, None].expand(-1, self.students)
        else:
            steps = log_probes(self.steps, self.looks - 1)
            rates = self.rate * rate_bound(x) / depth
            went = descend(begun, x, teacher, rates, steps)
            path = torch.stack([end_to_end(students) for students in went])
            time = torch.tensor(steps)[:, None] * rates
            kept = {"start": went[0], "end": went[-1]}
        met = conditions(begun, x, teacher)
        once = [*met._asdict().items(), ("hold", met.hold() if depth > 1 else torch.ones(self.students))]
        once.append(("off", torch.linalg.vector_norm(path[-1] - limit(start, x, teacher, depth), dim=-1)))
        values = {
            "loss": loss(path, x, teacher),
            "time": time,
            "error": torch.linalg.vector_norm(path - wanted, dim=-1),
            "risk": task.risk(angle(path, teacher)),
        }
        rows = {key: value.double().numpy() for key, value in values.items()}
        rows |= {key: _first(value, len(path)) for key, value in once}
        parameters = {"part": LEARNED, "task": name, "depth": depth, "inputs": n, "by": by}
        return network_tables(first, seeds, parameters, range(len(path)), rows, weights=kept)

    def _scale(self, depth: int) -> float:
        return self.scale if depth > 1 else 0.0


def _many(task: AngleTask | GivenTask, sets: int) -> Tensor:
    """Inputs from which p(θ) is estimated: held out, or the first of each set."""
    held: Tensor | None = getattr(task, "held_out", None)
    return task.inputs(range(1, sets + 1), 1)[:, 0] if held is None else held


def _first(values: Tensor, looks: int) -> np.ndarray:
    """[look, net] of what is one number a network."""
    rows = np.full((looks, len(values)), np.nan)
    rows[0] = values.double().numpy()
    return rows
