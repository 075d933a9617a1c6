"""Whether networks make two digits of MNIST orthogonally separable by themselves: S3 sec 3.4.3, figs 3.3 and 3.4."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import pyarrow as pa

from understudy.lab.mnist import LOOKS, OnMnist
from understudy.lab.options import check
from understudy.lab.study import ComputedStudy, Piece, Study
from understudy.papers.separable.mnist_classifier.study import MnistClassifier

if TYPE_CHECKING:
    from understudy.data.separable import Separability, Similarities
    from understudy.lab.study import Tables
    from understudy.papers.separable.theory.representations import LayerPairs, Neurons, SetPairs
    from understudy.store import Run

TRAINING, TEST = "training", "test"
LAYERS = len(LOOKS) + 1
"""Hidden ones; the last of them is W7's."""
SIGNIFICANT = 0.05
"""Share of the largest singular value above which one is significant: ours."""


@dataclass(frozen=True)
class OrthogonalMnist(OnMnist, ComputedStudy):
    """What layers of trained networks make of images of two digits, and what their first linear layer W7 becomes.

    Inner products of pairs of images as every layer has them, before and after training; singular values of W7, and its
    neurons on the plane of the max-margin vectors of what it sees. The networks are those of mnist-classifier.
    """

    name: ClassVar[str] = "orthogonal-mnist"
    summary: ClassVar[str] = "whether networks make two digits of MNIST orthogonally separable, layer by layer"
    figures: ClassVar[str] = "S3 figs 3.3, 3.4, table 3.1"
    decides: ClassVar[str] = "B4"

    compared: int = 500
    """Of the training and of the test images how many are compared in pairs at every layer; in W7's all are."""

    @classmethod
    def quick(cls) -> Self:
        return cls(**MnistClassifier.quick().options(), compared=200)

    def validate(self) -> None:
        super().validate()
        check(self, "compared", least=10)

    def depends_on(self) -> tuple[Study, ...]:
        return (MnistClassifier(**self.of_the_networks()),)

    def pieces(self, *runs: Run) -> Iterator[Piece]:
        self.source()  # refuses what cannot be, before anything is written
        for seed in self.seed_names:
            yield Piece(f"seed {seed}", 1, partial(self._piece, runs[0]))

    def _piece(self, run: Run, network: int) -> Tables:
        import torch

        from understudy.papers.separable.theory.representations import linear_neurons, set_pairs

        device, seed, data = self.resolved().device, self.seed_names[network], self.source()
        # In float64, whichever numbers they were trained with: a product just above 0 breaks eq. 3.1.
        more: dict[str, Any] = {"dtype": torch.float64, "device": device}
        samples = {
            TRAINING: (data.training(seed, **more), data.training_labels(seed).to(device)),
            TEST: (data.evaluating(seed, **more), data.evaluation_labels(seed).to(device)),
        }
        diverged = run.networks["diverged_at"][network].as_py()
        metrics, nodes = [_metric_rows(network, 0, -1, {})], [_node_rows(network, 0, -1, "value", {"number": []})]
        for epoch in (0, int(run.epochs[-1])) if diverged is None else ():
            (every,) = run.weights(f"epoch.{epoch}")
            one = every[network].to(device, torch.float64)
            for which, (x, labels) in samples.items():
                pairs = set_pairs(one, x, labels, self.compared)
                for layer, found in enumerate(pairs.layers):
                    metrics.append(_metric_rows(network, epoch, layer, _of_layer(which, found)))
                    nodes.append(_node_rows(network, epoch, layer, "bin", _bins(which, found.similarities)))
                metrics.append(_metric_rows(network, epoch, LAYERS, _of_all(which, pairs)))
            neurons = linear_neurons(one, *samples[TRAINING])
            accuracy = float(run.series("accuracy")[network, run.epochs == epoch].item())
            metrics.append(_metric_rows(network, epoch, -1, {"accuracy": accuracy} | _of_weights(neurons)))
            values = {"number": range(1, len(neurons.singular) + 1), "value": neurons.singular.tolist()}
            nodes.append(_node_rows(network, epoch, LAYERS, "value", values))
            nodes.append(_node_rows(network, epoch, LAYERS, "neuron", _of_neurons(neurons)))
        named = {"network": pa.array([network], pa.int32()), "seed": [seed]}
        return {
            "networks": pa.table({**named, "diverged_at": pa.array([diverged], pa.int64())}),
            "metrics": pa.concat_tables(metrics),
            "nodes": pa.concat_tables(nodes, promote_options="default"),
        }


def _metric_rows(network: int, epoch: int, layer: int, values: Mapping[str, float]) -> pa.Table:
    return pa.table(
        {
            **_places(network, epoch, layer, len(values)),
            "metric": pa.array(list(values), pa.string()),
            "value": pa.array([float(value) for value in values.values()], pa.float64()),
        }
    )


def _node_rows(network: int, epoch: int, layer: int, role: str, columns: Mapping[str, Any]) -> pa.Table:
    """Role `value`: a singular value; `neuron`: a node of W7; `bin`: pairs of images whose products are in a range."""
    arrays = {
        name: pa.array(list(values), pa.int32() if name == "number" else pa.string() if name == "set" else pa.float64())
        for name, values in columns.items()
    }
    count = len(arrays["number"])
    return pa.table({**_places(network, epoch, layer, count), "role": pa.array([role] * count, pa.string()), **arrays})


def _places(network: int, epoch: int, layer: int, count: int) -> dict[str, np.ndarray]:
    values = {"network": (network, np.int32), "epoch": (epoch, np.int32), "layer": (layer, np.int16)}
    return {name: np.full(count, value, dtype) for name, (value, dtype) in values.items()}


def _of_layer(which: str, found: LayerPairs) -> dict[str, float]:
    cosines = {f"cosine alike {which}": found.cosine_within, f"cosine apart {which}": found.cosine_between}
    return cosines | _shares(f"some {which}", found.separability)


def _of_all(which: str, found: SetPairs) -> dict[str, float]:
    kinds = {"all": found.last, "nearly": found.nearly, "before": found.before}
    return {name: value for kind, each in kinds.items() for name, value in _shares(f"{kind} {which}", each).items()}


def _shares(name: str, found: Separability) -> dict[str, float]:
    """Of pairs of one class and of two, those that break eq. 3.1."""
    return {f"alike {name}": found.share_alike, f"apart {name}": found.share_apart}


def _of_weights(found: Neurons) -> dict[str, float]:
    values = {"significant": float((found.singular > SIGNIFICANT * found.singular[0]).sum())}
    if found.margin is not None:
        values |= {"cosine": found.margin.cosine, "residual": found.margin.residual}
        values["supports"] = float(found.margin.supports)
    return values


def _of_neurons(found: Neurons) -> dict[str, Any]:
    columns = {"number": range(len(found.output)), "output": found.output.tolist(), "norm": found.length.tolist()}
    places = {"top": found.top} | ({} if found.plane is None else {"plane": found.plane})
    columns |= {f"{name}_{k + 1}": place[:, k].tolist() for name, place in places.items() for k in (0, 1)}
    return columns | ({} if found.correlation is None else {"correlation": found.correlation.tolist()})


def _bins(which: str, found: Similarities) -> dict[str, Any]:
    edges, count = found.edges.tolist(), len(found.between)
    counts = {"apart": found.between, "first": found.within[0], "second": found.within[1]}
    named = {"number": range(count), "set": [which] * count, "low": edges[:-1], "high": edges[1:]}
    return named | {name: each.tolist() for name, each in counts.items()}
