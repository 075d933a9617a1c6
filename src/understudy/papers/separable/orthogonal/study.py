"""The study `orthogonal`: on orthogonally separable data networks become two neurons (Phuong 2021, ch. 3)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
import pyarrow as pa
from annotated_types import Ge, Le

from understudy._errors import UserError
from understudy.lab.options import Count, Distinct, InputFile, Positive, Positives, Steps, validate_batch
from understudy.lab.pieces import blocks, log_probes, network_tables, table_rows
from understudy.lab.study import ExactStudy, Piece

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor

    from understudy.data.separable import Points
    from understudy.lab.study import Tables
    from understudy.papers.separable.theory.training import Weights
    from understudy.papers.separable.theory.two_neurons import PathReading
    from understudy.store import Run

SGD, FLOW = "sgd", "flow"
BALANCED_SGD, UNBALANCED_FLOW = "sgd, balanced", "flow, unbalanced"
"""How networks are trained, in the column `part`: by SGD, usually from torch's default weights, or by gradient flow,
usually from balanced weights."""
DRAWN, SPANNING, GIVEN = "drawn", "spanning", "given"
"""Points drawn as in Phuong 2021, sec. 3.4.1; with lengths that make support examples span the space; the user's."""
VALUES = 10
"""Number of singular values that are recorded (Phuong 2021, fig. 3.1a)."""
_TOGETHER = 5
"""Seeds per piece."""
_EVERY = 4
"""Neurons are recorded at every `_EVERY`-th probe, and at the last."""


class Sets(NamedTuple):
    """The points of every seed, their classes, and the max-margin vectors w+ and w− of the classes."""

    x: Float[Tensor, "net sample in"]
    y: Float[Tensor, "net sample"]
    margins: Float[Tensor, "net 2 in"]


@dataclass(frozen=True)
class Orthogonal(ExactStudy):
    """SGD and gradient flow on points of two classes in opposite orthants: rank, max-margin neurons and sectors.

    Networks have two layers without biases, or are the residual networks of Phuong 2021, eq. 3.30; the loss is
    logistic.
    """

    name: ClassVar[str] = "orthogonal"
    summary: ClassVar[str] = "on orthogonally separable points neurons align with two max-margin directions"
    figures: ClassVar[str] = "S3 figs. 3.1, 3.2, theorem 3.1, corollary 3.1, lemmas 3.1 to 3.3, B.6"
    decides: ClassVar[str] = "B1 B2 B3 B5"
    renamed: ClassVar[Mapping[str, str]] = {"looks": "probes"}
    arrays: ClassVar[tuple[str, ...]] = (
        "points dim",
        "neurons dim",
        "points neurons",
        "span_points span_dim",
        "span_points span_neurons",
    )

    seeds: Count = 10
    """Number of seeds, counted from 1: each is a set of points and the initial weights of its networks."""
    dim: Annotated[int, Ge(2)] = 20
    """Number of inputs; with --data that of the file."""
    points: Annotated[int, Ge(2)] = 500
    """Points per set, both classes together; with --data those of the file."""
    tilt: Literal["yes", "no"] = "yes"
    """Whether points also satisfy z·x ≥ 0 with z = (1, −1, 1, …), so that the classes are not mirror images."""
    neurons: Count = 100
    """Width of the networks."""
    layers: Annotated[tuple[int, ...], Ge(2), Distinct()] = (2, 4)
    """Depths of networks trained by SGD; networks of more than 2 layers are residual."""
    start: Positives = (0.05, 0.01, 0.002)
    """Factors by which torch's default initial weights are multiplied, for SGD; SGD is also run with every w then
    changed to the length |a|, and gradient flow from the largest of these starts."""
    rate: Positive = 0.1
    """Learning rate of SGD, on the mean loss."""
    batch: Count = 50
    """Points per batch."""
    epochs: Steps = 500
    """Epochs of SGD."""
    flow_start: Positives = (0.1, 0.01, 0.001)
    """λ, the length of neurons at the balanced start of gradient flow, ‖w‖ = |a| = λ."""
    flow_decades: Annotated[float, Ge(-3), Le(30)] = 16.0
    """log10 of the duration of gradient flow on the sum of losses, long as the limit is approached in log t; SGD ends
    at the time rate × steps / points, by default 1."""
    span_dim: Annotated[int, Ge(0)] = 5
    """Number of inputs of sets whose support examples span the space, for gradient flow; 0: no such sets."""
    span_points: Count = 100
    """Points of these sets."""
    span_neurons: Count = 30
    """Width of the networks on these sets."""
    searches: Count = 1_000
    """Searches for extremal directions per set, up G and as many down."""
    probes: Annotated[int, Ge(2)] = 120
    """Number of probes of each network, about evenly spaced on a logarithmic axis."""
    data: InputFile = ""
    """File of your own labelled points, .npz: `x`, one point per row, and `y`, numbers of two classes. They must be
    orthogonally separable. Without a file, sets are drawn."""

    @classmethod
    def quick(cls) -> Self:
        return cls(
            seeds=2,
            points=200,
            neurons=40,
            start=(0.05, 0.002),
            batch=20,
            epochs=200,
            flow_start=(0.1, 0.001),
            flow_decades=2.0,
            span_points=50,
            span_neurons=15,
            searches=200,
            probes=50,
        )

    def validate(self) -> None:
        if self.span_dim == 1:
            raise UserError("--span-dim must be at least 2, or 0 for no such sets, got 1")
        if not self.data:
            validate_batch(self.points, self.batch)

    def validate_files(self) -> None:
        """Refuse a file, or sets, that cannot be used, before anything is written."""
        if self.data:
            x, _ = read_points(self.data)
            validate_batch(len(x), self.batch)
            return
        for kind in self.kinds:
            try:
                self._draw(kind, self.seed_names)
            except UserError as error:
                name, points = ("span-points", self.span_points) if kind == SPANNING else ("points", self.points)
                raise UserError(f"--{name} must be larger, got {points}: {error}") from None

    @property
    def main(self) -> str:
        """The kind of points on which SGD is run."""
        return GIVEN if self.data else DRAWN

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of points on which gradient flow is run."""
        return (self.main, SPANNING) if self.span_dim and not self.data else (self.main,)

    def _draw(self, kind: str, seeds: Sequence[int]) -> Points:
        from understudy.data.separable import orthogonally_separable

        spanning = kind == SPANNING
        dim, points = (self.span_dim, self.span_points) if spanning else (self.dim, self.points)
        return orthogonally_separable(dim, points, seeds, tilt=self.tilt == "yes", spanning=spanning)

    def sets(self, kind: str, seeds: Sequence[int]) -> Sets:
        """The set of points of every seed; those of a file are the same for all seeds."""
        from understudy.papers.separable.theory.max_margin import max_margins

        if kind == GIVEN:
            x, y = (part[None] for part in read_points(self.data))
            one = (x, y, max_margins(x, y))
            return Sets(*(part.expand(len(seeds), *part.shape[1:]) for part in one))
        x, y = self._draw(kind, seeds)
        return Sets(x, y, max_margins(x, y))

    def pieces(self, *runs: Run) -> Iterator[Piece]:
        each = list(blocks(self.seed_names, _TOGETHER))
        for kind in self.kinds:
            for some in [range(1, 2)] if kind == GIVEN else each:
                yield Piece(f"{kind} points, {_words(some)}", 0, partial(self._measure_sets, kind, some))
        for layers, start, some in product(self.layers, self.start, each):
            name = f"SGD, {layers} layers, ×{start:g}, {_words(some)}"
            yield Piece(name, len(some), partial(self._descend, SGD, layers, start, some))
        for start, some in product(self.start if 2 in self.layers else (), each):
            name = f"SGD, 2 layers, balanced, ×{start:g}, {_words(some)}"
            yield Piece(name, len(some), partial(self._descend, BALANCED_SGD, 2, start, some))
        for kind, start, some in product(self.kinds, self.flow_start, each):
            name = f"gradient flow, {kind} points, λ = {start:g}, {_words(some)}"
            yield Piece(name, len(some), partial(self._flow, FLOW, kind, start, some))
        for kind, some in product(self.kinds, each):
            name = f"gradient flow, {kind} points, unbalanced, {_words(some)}"
            yield Piece(name, len(some), partial(self._flow, UNBALANCED_FLOW, kind, max(self.start), some))

    def _measure_sets(self, kind: str, seeds: Sequence[int], first: int) -> Tables:
        """Measure whether sets meet the assumptions of theorem 3.1, and compare lemma 3.2 with searches."""
        from understudy.data.separable import separability
        from understudy.papers.separable.theory.limit_network import limit_residual
        from understudy.papers.separable.theory.max_margin import margins
        from understudy.papers.separable.theory.sectors import compare_extrema
        from understudy.papers.separable.theory.two_neurons import correlations

        made = self.sets(kind, seeds)
        rows: list[dict[str, Any]] = []
        for x, y, seed in zip(made.x, made.y, seeds, strict=True):
            pairs, found = separability(x, y), margins(x, y)
            row = {
                "wrong pairs": pairs.wrong,
                "least same": pairs.same.product,
                "largest different": pairs.different.product,
                "supports": min(int(each.supports.sum()) for each in (found.positive, found.negative)),
                "spans": found.spans,
                "inputs": x.shape[1],
                "cosine": float(correlations(found.vectors, found.vectors)[0, 1]),
                "residual": found.residual,
                "kkt": limit_residual(found, x, y, seed),
            }
            for side, ends in zip(("positive", "negative"), compare_extrema(x, y, self.searches, seed), strict=True):
                row |= {f"{side} {name}": value for name, value in ends._asdict().items()}
                row[f"{side} holds"] = ends.holds
            rows.append({"seed": seed, "points": kind} | {name: float(value) for name, value in row.items()})
        return {"sets": pa.Table.from_pylist(rows)}

    def _descend(self, part: str, layers: int, start: float, seeds: Sequence[int], first: int) -> Tables:
        from understudy.papers.separable.theory.training import descend, equalised, small_linear

        made = self.sets(self.main, seeds)
        each = -(-made.x.shape[1] // self.batch)
        probes = log_probes(self.epochs * each, self.probes - 1)
        initial = small_linear(made.x.shape[2], self.neurons, layers, start, seeds)
        initial = equalised(initial) if part == BALANCED_SGD else initial
        weights, x, y = tuple(map(self.to_device, initial)), self.to_device(made.x), self.to_device(made.y)
        path = descend(weights, x, y, self.rate, probes, self.batch, seeds)
        parameters = {"part": part, "points": self.main, "layers": layers, "start": start}
        times = self.rate * np.array(probes) / made.x.shape[1]
        return self._tables(tuple(part.cpu() for part in path), made, seeds, parameters, probes, times, first)

    @property
    def flow_time(self) -> float:
        """Duration of gradient flow."""
        return float(10**self.flow_decades)

    def times(self) -> np.ndarray:
        """The times at which gradient flow is probed: 0, then from before weights have moved to the end."""
        return np.array([0.0, *np.geomspace(min(1e-4, self.flow_time / 10), self.flow_time, self.probes - 1)])

    def _flow(self, part: str, kind: str, start: float, seeds: Sequence[int], first: int) -> Tables:
        from understudy.papers.separable.theory.training import balanced, logistic_flow, small_linear

        made = self.sets(kind, seeds)
        shape = made.x.shape[2], self.span_neurons if kind == SPANNING else self.neurons
        initial = balanced(*shape, start, seeds) if part == FLOW else small_linear(*shape, 2, start, seeds)
        path = logistic_flow(initial, made.x, made.y, self.times().tolist())
        parameters = {"part": part, "points": kind, "layers": 2, "start": start}
        return self._tables(path, made, seeds, parameters, range(self.probes), self.times(), first)

    def _tables(
        self,
        path: Weights,
        made: Sets,
        seeds: Sequence[int],
        parameters: Mapping[str, Any],
        probes: Sequence[int],
        times: np.ndarray,
        first: int,
    ) -> Tables:
        """Rows of a path: metrics at every probe, singular values at the first and the last, neurons at some.

        The epoch of a row is the step of SGD, or the number of the probe of gradient flow; `time` is that of gradient
        flow on the sum of losses.
        """
        import torch

        from understudy.nets import Layer, Population
        from understudy.papers.separable.theory.two_neurons import probe_path

        found = probe_path(path, *made)
        values = {name: value.numpy() for name, value in found.values.items()}
        sound = np.isfinite(values["loss"])
        for number, layer in enumerate(path[:-1], 1):
            for at in (0, -1):
                there = torch.linalg.svdvals(layer[at].nan_to_num())[..., :VALUES].T.numpy()
                for k, column in enumerate(there, 1):
                    whole = values.setdefault(f"W{number} value {k}", np.full_like(values["loss"], np.nan))
                    whole[at] = np.where(sound[at], column, np.nan)
        values["time"] = np.repeat(times[:, None], len(seeds), 1)
        nodes = pa.concat_tables(_neuron_rows(path, made, found, probes, times, first), promote_options="default")
        weights = {}
        if len(path) == 2:  # files cannot hold residual networks
            numbers = torch.tensor(list(seeds))
            weights = {
                who: Population(tuple(Layer(part[at], None) for part in path), numbers, 0.0)
                for who, at in (("start", 0), ("end", -1))
            }
        return network_tables(first, seeds, parameters, probes, values, nodes, weights)


def read_points(file: str) -> tuple[Float[Tensor, "sample in"], Float[Tensor, "sample"]]:
    """Read a user's points and their classes, −1 and 1.

    Raises:
        UserError: If the file cannot be read, or the points are not orthogonally separable.
    """
    from understudy.data.input_files import read_inputs, read_labels
    from understudy.data.separable import require_separable, two_classes

    try:
        labels = read_labels(file)
        x = read_inputs(file, name="x").double()
        if len(x) != len(labels):
            raise UserError(f"{file}: y must have one label per point ({len(x)}), got {len(labels)}")
        try:
            require_separable(x, labels)
        except UserError as error:
            raise UserError(f"{file}: {error}") from None
    except UserError as error:
        raise UserError(f"--data: {error}") from None
    return x, two_classes(labels)


def _words(seeds: range) -> str:
    return f"seeds {seeds[0]} to {seeds[-1]}"


def _neuron_rows(
    path: Weights, made: Sets, found: PathReading, probes: Sequence[int], times: np.ndarray, first: int
) -> Iterator[pa.Table]:
    """Rows of all matrices but the last: of two-layer networks at some probes, of deeper ones at the first and last."""
    from understudy.papers.separable.theory.two_neurons import margin_coordinates, singular_coordinates

    ends = [0, len(probes) - 1]
    for layer, weights in enumerate(path[:-1]):
        some = np.unique([*range(0, len(probes), _EVERY), ends[-1]]) if len(path) == 2 else np.array(ends)
        kept = weights[some]
        probe, net, node = (axis.ravel() for axis in np.indices(kept.shape[:3]))
        top = singular_coordinates(kept.nan_to_num()).numpy()
        columns: dict[str, np.ndarray] = {"norm": kept.norm(dim=-1).numpy(), "top_1": top[..., 0], "top_2": top[..., 1]}
        if layer == 0:
            columns["correlation"] = found.correlation.numpy()[some]
            plane = margin_coordinates(kept, made.margins).numpy()
            columns |= {"plane_1": plane[..., 0], "plane_2": plane[..., 1]}
        if found.absorbed is not None:
            columns |= {
                "output": path[1][some].squeeze(-2).numpy(),
                "inside": found.absorbed.inside[some].double().numpy(),
                "off": found.absorbed.silent[some].double().numpy(),
            }
            for name in ("entered", "left"):
                at = getattr(found.absorbed, name).numpy()
                columns[name] = np.repeat(np.where(at < 0, np.nan, times[at])[None], len(some), 0)
        sound = np.isfinite(columns["norm"]).ravel()
        rows = table_rows(
            (first + net)[sound],
            np.asarray(probes)[some][probe][sound],
            layer,
            role="student",
            student=node[sound].astype(np.int32),
        )
        for name, column in columns.items():
            rows = rows.append_column(name, pa.array(column.ravel()[sound], from_pandas=True))
        yield rows
