"""Networks that learn orthogonally separable points become two max-margin neurons: S3 chapter 3, figs 3.1 and 3.2."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
import pyarrow as pa

from understudy.errors import UserError
from understudy.lab.options import check
from understudy.lab.pieces import log_probes, network_tables
from understudy.lab.study import ExactStudy, Piece

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor

    from understudy.lab.study import Tables
    from understudy.nets import Population
    from understudy.papers.separable.theory.training import Weights
    from understudy.papers.separable.theory.two_neurons import PathReading
    from understudy.store import Run

SETS, SGD, FLOW = "sets", "sgd", "flow"
"""Parts of a run: the points themselves, networks trained by SGD, and by gradient flow."""
DRAWN, SPANNING, GIVEN = "drawn", "spanning", "given"
"""Points: as S3 sec 3.4.1 draws them, with lengths that make support examples span the space, or the user's."""
VALUES = 10
"""Singular values that are kept, as in fig 3.1a."""
_TOGETHER = 5
"""Seeds in a piece of work."""
_EVERY = 4
"""Neurons are kept at every so manieth look, and at the last."""


class Sets(NamedTuple):
    """Points of every seed, their classes and the max-margin vectors w+ and w− of these."""

    x: Float[Tensor, "net sample in"]
    y: Float[Tensor, "net sample"]
    margins: Float[Tensor, "net 2 in"]


@dataclass(frozen=True)
class Orthogonal(ExactStudy):
    """SGD and gradient flow on points of two classes in opposite orthants: rank, max-margin neurons and sectors.

    Two-layer networks without biases and the residual networks of S3 eq. 3.30, under the logistic loss.
    """

    name: ClassVar[str] = "orthogonal"
    summary: ClassVar[str] = "on orthogonally separable points neurons become two, the max-margin directions"
    figures: ClassVar[str] = "S3 figs 3.1, 3.2, theorem 3.1, lemmas 3.1 to 3.3"
    decides: ClassVar[str] = "B1 B2 B3"

    seeds: int = 10
    """How many seeds, counted from 1: each is a set of points and its networks' first weights."""
    dim: int = 20
    """Inputs; with --data the file's."""
    points: int = 500
    """Points of a set, of both classes together; with --data the file's."""
    tilt: Literal["yes", "no"] = "yes"
    """Whether points have z·x ≥ 0 besides, z = (1, −1, 1, …), which keeps the classes from mirroring each other."""
    neurons: int = 100
    """Width of networks."""
    layers: tuple[int, ...] = (2, 4)
    """Depths of networks trained by SGD: 2 layers, or residual ones of more."""
    start: tuple[float, ...] = (0.05, 0.01, 0.002)
    """Factors by which torch's default first weights are multiplied, for SGD."""
    rate: float = 0.1
    """Learning rate of SGD, on the mean loss."""
    batch: int = 50
    """Points in a batch."""
    epochs: int = 500
    """Epochs of SGD."""
    flow_start: tuple[float, ...] = (0.1, 0.01, 0.001)
    """λ, the length of neurons at the balanced start of gradient flow, ‖w‖ = |a| = λ."""
    flow_time: float = 10_000.0
    """How long gradient flow goes on, on the sum of losses: SGD ends at the time rate × steps / points, which is 1."""
    span_dim: int = 5
    """Inputs of sets whose support examples span the space, for gradient flow; 0: none."""
    span_points: int = 100
    """Points of these."""
    span_neurons: int = 30
    """Neurons on these."""
    searches: int = 1_000
    """Searches for extremal directions on a set, up and down."""
    looks: int = 80
    """How often networks are looked at, about evenly on a logarithmic axis."""
    data: str = ""
    """File of labelled points of one's own, .npz: `x`, a row each, and `y`, numbers of two classes. They have to be
    orthogonally separable; left out, sets are drawn."""

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
            flow_time=100.0,
            span_points=50,
            span_neurons=15,
            searches=200,
            looks=50,
        )

    def validate(self) -> None:
        super().validate()
        for field in ("dim", "points", "layers"):
            check(self, field, least=2, distinct=field == "layers")
        for field in ("neurons", "batch", "epochs", "span_points", "span_neurons", "searches"):
            check(self, field, least=1)
        check(self, "span_dim", least=0)
        check(self, "looks", least=2)
        for field in ("start", "flow_start"):
            check(self, field, above=0, distinct=True)
        for field in ("rate", "flow_time"):
            check(self, field, above=0)
        if self.span_dim == 1:
            raise UserError("--span-dim: 1 was given; allowed is a whole number from 2, or 0 for no such sets")
        if not self.data:
            self._batches(self.points)

    def _batches(self, points: int) -> None:
        if self.batch > points:
            raise UserError(f"--batch: {self.batch} was given; allowed is a whole number up to {points}, the points")

    def config(self) -> dict[str, Any]:
        """Of a file also what is in it: another under the same name is another run."""
        plain = super().config()
        if not self.data:
            self._drawn()
            return plain
        x, _ = read_points(self.data)  # refuses what cannot be, before anything is written
        self._batches(len(x))
        return plain | {"contents": {"data": hashlib.sha256(Path(self.data).read_bytes()).hexdigest()}}

    def _drawn(self) -> None:
        """Refuse sets that cannot be, before anything is written."""
        from understudy.data.separable import orthogonally_separable

        tilt, seeds = self.tilt == "yes", range(1, self.seeds + 1)
        sizes = {"points": (self.dim, self.points)} | (
            {"span-points": (self.span_dim, self.span_points)} if self.span_dim else {}
        )
        for option, (dim, points) in sizes.items():
            try:
                orthogonally_separable(dim, points, seeds, tilt=tilt, spanning=option != "points")
            except UserError as error:
                raise UserError(f"--{option}: {points} was given; {error}") from None

    @property
    def main(self) -> str:
        """Which points SGD learns."""
        return GIVEN if self.data else DRAWN

    @property
    def kinds(self) -> tuple[str, ...]:
        """Which points gradient flow learns."""
        return (self.main, SPANNING) if self.span_dim and not self.data else (self.main,)

    def sets(self, kind: str, seeds: Sequence[int]) -> Sets:
        from understudy.data.separable import orthogonally_separable
        from understudy.papers.separable.theory.max_margin import max_margins

        if kind == GIVEN:
            x, y = (part[None] for part in read_points(self.data))
            one = (x, y, max_margins(x, y))
            return Sets(*(part.expand(len(seeds), *part.shape[1:]) for part in one))
        if kind == DRAWN:
            x, y = orthogonally_separable(self.dim, self.points, seeds, tilt=self.tilt == "yes")
        else:
            x, y = orthogonally_separable(
                self.span_dim, self.span_points, seeds, tilt=self.tilt == "yes", spanning=True
            )
        return Sets(x, y, max_margins(x, y))

    def pieces(self, *runs: Run) -> Iterator[Piece]:
        for kind in self.kinds:
            # What is given is one set, whatever the seeds.
            for some in [range(1, 2)] if kind == GIVEN else self._blocks():
                yield Piece(f"{kind} points, {_words(some)}", len(some), partial(self._points, kind, some))
        for layers in self.layers:
            for start in self.start:
                for some in self._blocks():
                    name = f"SGD, {layers} layers, ×{start:g}, {_words(some)}"
                    yield Piece(name, len(some), partial(self._descent, layers, start, some))
        for kind in self.kinds:
            for start in self.flow_start:
                for some in self._blocks():
                    name = f"gradient flow, {kind} points, λ = {start:g}, {_words(some)}"
                    yield Piece(name, len(some), partial(self._flow, kind, start, some))

    def _blocks(self) -> list[range]:
        return [range(k, min(k + _TOGETHER, self.seeds + 1)) for k in range(1, self.seeds + 1, _TOGETHER)]

    def _points(self, kind: str, seeds: Sequence[int], first: int) -> Tables:
        """Whether sets are what theorem 3.1 asks for, and lemma 3.2 against searches."""
        from understudy.data.separable import separability
        from understudy.papers.separable.theory.max_margin import margins
        from understudy.papers.separable.theory.sectors import compare_extrema
        from understudy.papers.separable.theory.two_neurons import correlations

        made = self.sets(kind, seeds)
        rows: dict[str, list[float]] = {}
        for x, y, seed in zip(made.x, made.y, seeds, strict=True):
            pairs, found = separability(x, y), margins(x, y)
            row: dict[str, float] = {
                "wrong pairs": pairs.wrong,
                "least same": pairs.same.product,
                "largest different": pairs.different.product,
                "supports": min(int(each.supports.sum()) for each in (found.positive, found.negative)),
                "spans": found.spans,
                "inputs": x.shape[1],
                "cosine": float(correlations(found.vectors, found.vectors)[0, 1]),
                "residual": max(found.positive.residual, found.negative.residual),
            }
            for side, ends in zip(("positive", "negative"), compare_extrema(x, y, self.searches, seed), strict=True):
                row |= {f"{side} {name}": float(value) for name, value in ends._asdict().items()}
                row[f"{side} holds"] = ends.holds
            for name, value in row.items():
                rows.setdefault(name, []).append(float(value))
        values = {name: np.array(column)[None] for name, column in rows.items()}
        return network_tables(first, seeds, {"part": SETS, "points": kind}, (0,), values)

    def _descent(self, layers: int, start: float, seeds: Sequence[int], first: int) -> Tables:
        from understudy.papers.separable.theory.training import descend, small_linear

        made = self.sets(self.main, seeds)
        each = -(-made.x.shape[1] // self.batch)
        looks = log_probes(self.epochs * each, self.looks - 1)
        begun = small_linear(made.x.shape[2], self.neurons, layers, start, seeds)
        weights, x, y = tuple(map(self.to_device, begun)), self.to_device(made.x), self.to_device(made.y)
        path = descend(weights, x, y, self.rate, looks, batch=self.batch, seeds=seeds)
        parameters = {"part": SGD, "points": self.main, "layers": layers, "start": start}
        times = self.rate * np.array(looks) / made.x.shape[1]
        return self._seen(tuple(part.cpu() for part in path), made, seeds, parameters, looks, times, first)

    def times(self) -> np.ndarray:
        """When gradient flow is looked at: at the start, and from when nothing has moved yet on."""
        return np.array([0.0, *np.geomspace(min(1e-4, self.flow_time / 10), self.flow_time, self.looks - 1)])

    def _flow(self, kind: str, start: float, seeds: Sequence[int], first: int) -> Tables:
        from understudy.papers.separable.theory.training import balanced, logistic_flow

        made = self.sets(kind, seeds)
        neurons = self.span_neurons if kind == SPANNING else self.neurons
        path = logistic_flow(balanced(made.x.shape[2], neurons, start, seeds), made.x, made.y, self.times().tolist())
        parameters = {"part": FLOW, "points": kind, "layers": 2, "start": start}
        return self._seen(path, made, seeds, parameters, range(self.looks), self.times(), first)

    def _seen(
        self,
        path: Weights,
        made: Sets,
        seeds: Sequence[int],
        parameters: Mapping[str, Any],
        looks: Sequence[int],
        times: np.ndarray,
        first: int,
    ) -> Tables:
        """Rows of a path: metrics at every look, singular values at the first and the last, neurons at some.

        A look has the number of the step, or, of gradient flow, its own; `time` is that of the sum of losses.
        """
        import torch

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
        nodes = pa.concat_tables(_neurons(path, made, found, looks, times, first), promote_options="default")
        rows = {name: nodes[name] for name in nodes.column_names}
        return network_tables(first, seeds, parameters, looks, values, rows, _kept(path, seeds))


def read_points(file: str) -> tuple[Float[Tensor, "sample in"], Float[Tensor, "sample"]]:
    """A user's points and their classes, −1 and 1: refused where they are not orthogonally separable."""
    from understudy.data.input_files import read_inputs, read_labels
    from understudy.data.separable import require_separable, two_classes

    try:
        labels = read_labels(file)
        x = read_inputs(file, name="x").double()
        if len(x) != len(labels):
            raise UserError(f"{file}: x has {len(x)} points and y {len(labels)} labels; allowed is a label for each")
        try:
            require_separable(x, labels)
        except UserError as error:
            raise UserError(f"{file}: {error}") from None
    except UserError as error:
        raise UserError(f"--data: {error}") from None
    return x, two_classes(labels)


def _words(seeds: range) -> str:
    return f"seeds {seeds[0]} to {seeds[-1]}"


def _neurons(
    path: Weights, made: Sets, found: PathReading, looks: Sequence[int], times: np.ndarray, first: int
) -> Iterator[pa.Table]:
    """Rows of matrices but the last: the first at some looks with their sectors, the others at the start and end."""
    from understudy.papers.separable.theory.two_neurons import margin_coordinates, singular_coordinates

    ends = [0, len(looks) - 1]
    for layer, weights in enumerate(path[:-1]):
        some = np.unique([*range(0, len(looks), _EVERY), ends[-1]]) if len(path) == 2 else np.array(ends)
        kept = weights[some]
        look, net, node = (axis.ravel() for axis in np.indices(kept.shape[:3]))
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
        yield pa.table(
            {
                "network": (first + net)[sound].astype(np.int32),
                "epoch": np.asarray(looks, np.int32)[some][look][sound],
                "layer": np.full(int(sound.sum()), layer, np.int16),
                "role": pa.array(["student"] * int(sound.sum())),
                "student": node[sound].astype(np.int32),
                **{name: pa.array(column.ravel()[sound], from_pandas=True) for name, column in columns.items()},
            }
        )


def _kept(path: Weights, seeds: Sequence[int]) -> dict[str, Population]:
    """Two-layer networks as they started and ended; residual ones are not networks that files hold."""
    import torch

    from understudy.nets import Layer, Population

    if len(path) != 2:
        return {}
    numbers = torch.tensor(list(seeds))
    return {
        who: Population(tuple(Layer(part[at], None) for part in path), numbers, 0.0)
        for who, at in (("start", 0), ("end", -1))
    }
