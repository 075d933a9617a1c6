"""The study `dynamics`: forces between nodes, norm ratios, slow starts (Tian 2019, theorems 6, 7, sec. 5.3)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self, get_args

import numpy as np
from annotated_types import Ge, Gt, Le, Lt

import understudy as us
from understudy._errors import UserError
from understudy.lab.options import Among, Count, Distinct, NonNegatives, Positive
from understudy.lab.pieces import blocks, network_tables, unit_table
from understudy.lab.study import ExactStudy, Piece, Tables

if TYPE_CHECKING:
    from understudy.papers.specialization.theory.norm_growth import Dynamics as Law

Inputs = Literal["normal", "sphere"]
LAWS: tuple[Law, ...] = ("angle", "both layers", "lower layer")
MULTIPLES, SLOPES = (1, 5), (0.0, 0.2)
"""Over-realizations and slopes of the two-layer students whose norms are compared with a gradient step."""
_DRAWS = 40_000_000
"""Largest number of random numbers of a piece, unless a single pair needs more."""
_PROBES = 201


@dataclass(frozen=True)
class NodeDynamics(ExactStudy):
    """The pull of a teacher node compared with Monte Carlo, the growth of norm ratios, and the start near θ = π."""

    name: ClassVar[str] = "dynamics"
    summary: ClassVar[str] = "how teacher nodes pull students, how norms break symmetry, how slowly a node turns round"
    figures: ClassVar[str] = "S1 theorems 6, 7, sec. 5.3"
    decides: ClassVar[str] = "Y6 Y7"
    arrays: ClassVar[tuple[str, ...]] = ("samples dim",)

    seeds: Count = 125
    """Pairs of a teacher and a student node for every dimension and kind of inputs, counted from 1."""
    dim: Annotated[tuple[int, ...], Ge(2), Distinct()] = (2, 3, 10, 50)
    """Numbers of inputs."""
    inputs: Annotated[tuple[Inputs, ...], Among(get_args(Inputs)), Distinct()] = ("normal", "sphere")
    """Kinds of spherically symmetric inputs: normal, or sphere (all of the same length)."""
    input_std: Positive = 1.5
    """Standard deviation of every input."""
    samples: Annotated[int, Ge(100)] = 20_000
    """Inputs of the Monte Carlo estimate of each pair."""
    leaky: Annotated[float, Ge(0), Lt(1)] = 0.0
    """Slope of the nodes below zero; 0 is ReLU."""
    flows: Count = 20
    """Initial weights of nodes that share a target, per ε, and of two-layer students, per size and slope."""
    nodes: Annotated[int, Ge(2)] = 4
    """Nodes that share a target."""
    extra: NonNegatives = (0.0, 0.03, 0.1, 0.3)
    """Values of ε: one of the nodes sees 1 + ε of the target. 0, the symmetric case, must be among them."""
    start: Positive = 1e-6
    """Standard deviation of the initial weights of these nodes; the target has length 1."""
    until: Positive = 100.0
    """Time for which these nodes are simulated."""
    eps: Annotated[tuple[float, ...], Gt(0), Le(1), Distinct()] = (
        *(0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001),
        *(0.0005, 0.0002, 0.0001),
    )
    """Initial distances of a student node from the direction opposite to the teacher's, in rad: it starts at π − ε."""

    @classmethod
    def quick(cls) -> Self:
        return cls(seeds=12, dim=(2, 10), samples=4_000, flows=4, eps=(0.1, 0.03, 0.01, 0.003, 0.001))

    def validate(self) -> None:
        if 0.0 not in self.extra:
            given = " ".join(f"{e:g}" for e in self.extra)
            raise UserError(f"--extra must include 0, the symmetric case, got {given}")
        if len(self.eps) < 2:
            raise UserError(f"--eps must have at least two values, got {self.eps[0]:g}")

    @property
    def pairs(self) -> int:
        """Number of pairs of nodes."""
        return self.seeds * len(self.dim) * len(self.inputs)

    def times(self) -> np.ndarray:
        """Times at which nodes that share a target are probed."""
        return np.linspace(0.0, self.until, _PROBES)

    def pieces(self, *runs: us.Run) -> Iterator[Piece]:
        for dim in self.dim:
            for inputs in self.inputs:
                for seeds in blocks(self.seed_names, max(1, _DRAWS // (self.samples * dim))):
                    name = f"pairs {seeds[0]} to {seeds[-1]}, {dim} {inputs} inputs"
                    yield Piece(name, 0, partial(self._pulls, dim, inputs, seeds))
        flows = range(1, self.flows + 1)
        for multiple in MULTIPLES:
            for slope in SLOPES:
                name = f"steps, {multiple}×, slope {slope:g}"
                yield Piece(name, len(flows), partial(self._steps, multiple, slope, flows))
        for extra in self.extra:
            yield Piece(f"shared target, ε = {extra:g}", len(flows), partial(self._contest, extra, flows))
        for law in LAWS:
            yield Piece(f"leaving π, {law}", 0, partial(self._escapes, law))

    def _pulls(self, dim: int, inputs: Inputs, seeds: Sequence[int], first: int) -> Tables:
        """One row per pair of nodes and component of its pull."""
        from understudy.papers.specialization.theory.spherical import COMPONENTS, sample_pulls

        found = sample_pulls(dim, seeds, self.samples, inputs, self.input_std, self.leaky)
        values = {name: getattr(found, name).numpy() for name in ("closed", "mean", "error")}
        pair, component = np.nonzero(np.isfinite(values["mean"]))
        rows = unit_table(
            seed=np.array(seeds)[pair],
            dim=dim,
            inputs=inputs,
            theta=found.theta.numpy()[pair],
            component=[COMPONENTS[c] for c in component],
            **{name: value[pair, component] for name, value in values.items()},
        )
        return {"pulls": rows}

    def _steps(self, multiple: int, slope: float, seeds: Sequence[int], first: int) -> Tables:
        import torch

        from understudy.papers.specialization.theory.norm_growth import compare_rates

        teacher = us.teachers.distinct_rows((20, 10, 10), seeds=seeds, polarity=1.0, slope=slope, dtype=torch.float64)
        students = us.students.gaussian(teacher, multiple=multiple, scale=0.1)
        x = us.data.Gaussian(20, self.input_std, 1, 1_000).evaluating(1, dtype=torch.float64)
        found = compare_rates(teacher, students, x)
        spread = found.predicted.amax(1) - found.predicted.amin(1)
        parameters = {"part": "steps", "multiple": float(multiple), "slope": slope}
        values = {"off": found.off.numpy()[None], "fastest": spread.numpy()[None]}
        return network_tables(first, seeds, parameters, (0,), values)

    def _contest(self, extra: float, seeds: Sequence[int], first: int) -> Tables:
        from understudy.papers.specialization.theory.norm_growth import contest

        found = contest(seeds, self.nodes, 10, self.start, extra, self.times().tolist())
        values = {name: value.numpy().T for name, value in found._asdict().items()}
        return network_tables(first, seeds, {"part": "contest", "extra": extra}, range(_PROBES), values)

    def _escapes(self, law: Law, first: int) -> Tables:
        """One row per initial distance ε."""
        from understudy.papers.specialization.theory.norm_growth import escape_time, integrated_escape_time

        integrated = [integrated_escape_time(law, eps) for eps in self.eps]
        quadrature = [escape_time(eps) for eps in self.eps]
        return {"escapes": unit_table(law=law, eps=self.eps, time=integrated, quadrature=quadrature)}
