"""Forces between teacher and student nodes, norms that break symmetry, and slow starts: S1 theorems 6, 7, sec 5.3."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

import numpy as np
import pyarrow as pa

import understudy as us
from understudy.errors import UserError
from understudy.lab.options import check
from understudy.lab.pieces import blocks
from understudy.lab.study import ExactStudy, Piece

if TYPE_CHECKING:
    from understudy.lab.study import Tables
    from understudy.papers.specialization.theory.norm_growth import Dynamics as Law
    from understudy.store import Run

LAWS: tuple[Law, ...] = ("angle", "both layers", "lower layer")
MULTIPLES, SLOPES = (1, 5), (0.0, 0.2)
"""Of the two-layer students whose norms are followed by a gradient step."""
_DRAWS = 40_000_000
"""Random numbers of a piece, at most, where a pair does not take more."""
_LOOKS = 201


@dataclass(frozen=True)
class NodeDynamics(ExactStudy):
    """The pull of a teacher node in closed form beside Monte Carlo, the growth of norm ratios, the start near π."""

    name: ClassVar[str] = "dynamics"
    summary: ClassVar[str] = "how teacher nodes pull students, how norms break symmetry, how slowly a node turns round"
    figures: ClassVar[str] = "S1 theorems 6, 7, sec 5.3"
    decides: ClassVar[str] = "Y6 Y7"

    seeds: int = 125
    """How many pairs of a teacher and a student node for every dimension and kind of inputs, counted from 1."""
    dim: tuple[int, ...] = (2, 3, 10, 50)
    """Numbers of inputs."""
    inputs: tuple[str, ...] = ("normal", "sphere")
    """Kinds of spherically symmetric inputs: normal, and sphere, which are all of one length."""
    input_std: float = 1.5
    """Standard deviation of every input."""
    samples: int = 20_000
    """Inputs of each pair's Monte Carlo."""
    leaky: float = 0.0
    """Slope below zero of the nodes: 0 is ReLU."""
    flows: int = 20
    """Starts of nodes that share a target, for every ε, and of two-layer students for every size and slope."""
    nodes: int = 4
    """Nodes that share a target."""
    extra: tuple[float, ...] = (0.0, 0.03, 0.1, 0.3)
    """ε: how much more of the target one of them sees; 0 is the symmetric case, and has to be there."""
    start: float = 1e-6
    """Standard deviation of their first weights, the target being of length 1."""
    until: float = 100.0
    """Time for which they are followed."""
    eps: tuple[float, ...] = (0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001, 0.0005, 0.0002, 0.0001)
    """How far from opposite a student node starts, in radians: at the angle π − ε."""

    @classmethod
    def quick(cls) -> Self:
        return cls(seeds=12, dim=(2, 10), samples=4_000, flows=4, eps=(0.1, 0.03, 0.01, 0.003, 0.001))

    def validate(self) -> None:
        check(self, "dim", least=2, distinct=True)
        check(self, "samples", least=100)
        check(self, "flows", least=1)
        check(self, "nodes", least=2)
        for field in ("input_std", "start", "until"):
            check(self, field, above=0)
        check(self, "extra", least=0, distinct=True)
        check(self, "eps", above=0, distinct=True)
        check(self, "leaky", least=0)
        if self.leaky >= 1:
            raise UserError(f"--leaky: {self.leaky:g} was given; allowed is a number from 0 and below 1")
        if 0.0 not in self.extra:
            given = " ".join(f"{e:g}" for e in self.extra)
            raise UserError(f"--extra: {given} was given; 0, the symmetric case, has to be among them")
        if len(self.eps) < 2 or max(self.eps) > 1:
            given = " ".join(f"{e:g}" for e in self.eps)
            raise UserError(f"--eps: {given} was given; allowed are two numbers or more, above 0 and up to 1")
        if not self.inputs or not set(self.inputs) <= {"normal", "sphere"} or len(set(self.inputs)) < len(self.inputs):
            raise UserError(f"--inputs: {' '.join(self.inputs)} was given; allowed are normal and sphere, each once")

    def times(self) -> np.ndarray:
        """At which nodes that share a target are looked at."""
        return np.linspace(0.0, self.until, _LOOKS)

    def pieces(self, *runs: Run) -> Iterator[Piece]:
        for dim in self.dim:
            for inputs in self.inputs:
                for seeds in blocks(self.seed_names, max(1, _DRAWS // (self.samples * dim))):
                    name = f"pairs {seeds[0]} to {seeds[-1]}, {dim} {inputs} inputs"
                    yield Piece(name, len(seeds), partial(self._pairs, dim, inputs, seeds))
        flows = range(1, self.flows + 1)
        for multiple in MULTIPLES:
            for slope in SLOPES:
                name = f"steps, {multiple}×, slope {slope:g}"
                yield Piece(name, len(flows), partial(self._steps, multiple, slope, flows))
        for extra in self.extra:
            yield Piece(f"shared target, ε = {extra:g}", len(flows), partial(self._contest, extra, flows))
        for law in LAWS:
            yield Piece(f"leaving π, {law}", len(self.eps), partial(self._leaving, law))

    def _pairs(self, dim: int, inputs: str, seeds: Sequence[int], first: int) -> Tables:
        from understudy.papers.specialization.theory.spherical import COMPONENTS, Inputs, sample_pulls

        kind = cast(Inputs, inputs)
        found = sample_pulls(dim, seeds, self.samples, kind, self.input_std, self.leaky)
        values = {name: getattr(found, name).numpy() for name in ("closed", "mean", "error")}
        pair, component = (axis.ravel() for axis in np.indices(values["mean"].shape))
        there = np.isfinite(values["mean"].ravel())
        nodes = {
            "network": (first + pair[there]).astype(np.int32),
            "epoch": np.zeros(there.sum(), np.int32),
            "layer": np.zeros(there.sum(), np.int16),
            "component": [COMPONENTS[c] for c in component[there]],
            **{name: value.ravel()[there] for name, value in values.items()},
        }
        networks = {"part": "pull", "dim": dim, "inputs": inputs}
        return _tables(first, list(seeds), networks, {"theta": found.theta.numpy()[:, None]}, nodes)

    def _steps(self, multiple: int, slope: float, seeds: Sequence[int], first: int) -> Tables:
        import torch

        from understudy.papers.specialization.theory.norm_growth import compare_rates

        teacher = us.teachers.separated((20, 10, 10), seeds=seeds, polarity=1.0, slope=slope, dtype=torch.float64)
        students = us.students.gaussian(teacher, multiple=multiple, scale=0.1)
        x = us.data.Gaussian(20, self.input_std, 1, 1_000).evaluating(1, dtype=torch.float64)
        found = compare_rates(teacher, students, x)
        networks = {"part": "steps", "multiple": float(multiple), "slope": slope}
        spread = found.predicted.amax(1) - found.predicted.amin(1)
        values = {"off": found.off.numpy()[:, None], "fastest": spread.numpy()[:, None]}
        return _tables(first, list(seeds), networks, values)

    def _contest(self, extra: float, seeds: Sequence[int], first: int) -> Tables:
        from understudy.papers.specialization.theory.norm_growth import contest

        found = contest(seeds, self.nodes, 10, self.start, extra, self.times().tolist())
        values = {name: value.numpy() for name, value in found._asdict().items()}
        return _tables(first, list(seeds), {"part": "contest", "extra": extra}, values)

    def _leaving(self, law: Law, first: int) -> Tables:
        from understudy.papers.specialization.theory.norm_growth import escape_time, integrated_escape_time

        values = {
            "time": np.array([[integrated_escape_time(law, eps)] for eps in self.eps]),
            "quadrature": np.array([[escape_time(eps)] for eps in self.eps]),
        }
        return _tables(first, [1] * len(self.eps), {"part": "leaving", "law": law, "eps": np.array(self.eps)}, values)


def _tables(
    first: int,
    seeds: list[int],
    parameters: dict[str, Any],
    values: dict[str, np.ndarray],
    nodes: dict[str, Any] | None = None,
) -> Tables:
    """Rows of a piece: `values` are [network, look] each."""
    count = len(seeds)
    network = np.arange(first, first + count, dtype=np.int32)
    metrics = []
    for name, value in values.items():
        net, look = (axis.ravel() for axis in np.indices(value.shape))
        metrics.append(
            {
                "network": network[net],
                "epoch": look.astype(np.int32),
                "layer": np.full(value.size, -1, np.int16),
                "metric": [name] * value.size,
                "value": value.ravel(),
            }
        )
    none: dict[str, Any] = {
        "network": np.zeros(0, np.int32),
        "epoch": np.zeros(0, np.int32),
        "layer": np.zeros(0, np.int16),
    }
    columns = {k: v if isinstance(v, np.ndarray) else [v] * count for k, v in parameters.items()}
    return {
        "networks": pa.table(
            {"network": network, "seed": seeds} | columns | {"diverged_at": pa.nulls(count, pa.int64())}
        ),
        "metrics": pa.concat_tables(map(pa.table, metrics)),
        "nodes": pa.table(nodes or none),
    }
