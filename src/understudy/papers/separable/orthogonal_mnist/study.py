"""The study `orthogonal-mnist`: whether networks make two digits of MNIST orthogonally separable.

Phuong 2021, sec. 3.4.3, figs 3.3 and 3.4.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

import numpy as np
import pyarrow as pa
from annotated_types import Ge

from understudy.lab.mnist import CONVOLUTIONS, OnMnist
from understudy.lab.pieces import table_rows
from understudy.lab.study import ComputedStudy, Piece, Study
from understudy.papers.separable.mnist_classifier.study import MnistClassifier

if TYPE_CHECKING:
    from understudy.data.separable import Separability, Similarities
    from understudy.lab.study import Tables
    from understudy.store import Run

TRAINING, TEST = "training", "test"
LAYERS = len(CONVOLUTIONS) + 1
"""Number of hidden layers; W7 are the weights of the last."""
SIGNIFICANT = (0.05, 0.1)
"""Shares of the largest singular value above which a singular value counts as significant; the thesis has none."""


@dataclass(frozen=True)
class OrthogonalMnist(OnMnist, ComputedStudy):
    """How the layers of trained networks represent images of two digits, and what their first linear layer W7 learns.

    Inner products of pairs of images at every layer, before and after training; singular values of W7, and its neurons
    on the plane of the max-margin vectors of its inputs. The networks are those of `mnist-classifier`.
    """

    name: ClassVar[str] = "orthogonal-mnist"
    summary: ClassVar[str] = "whether networks make two digits of MNIST orthogonally separable, layer by layer"
    figures: ClassVar[str] = "S3 figs. 3.3, 3.4, table 3.1"
    decides: ClassVar[str] = "B4"

    compared: Annotated[int, Ge(10)] = 500
    """Number of training images, and of test images, that are compared in pairs at every layer; at layer 7 all are."""

    @classmethod
    def quick(cls) -> Self:
        return cls(**MnistClassifier.quick().options(), compared=200)

    def depends_on(self) -> tuple[Study, ...]:
        return (MnistClassifier(**self.network_options()),)

    def pieces(self, *runs: Run) -> Iterator[Piece]:
        self.source()  # refuses missing images before anything is written
        for seed in self.seed_names:
            yield Piece(f"seed {seed}", 1, partial(self._piece, runs[0]))

    def _piece(self, run: Run, network: int) -> Tables:
        import torch

        from understudy.papers.separable.theory.representations import linear_neurons, set_pairs

        device, seed, data = self.resolved().device, self.seed_names[network], self.source()
        # In float64, whatever the training precision: a product just above 0 violates eq. 3.1.
        more: dict[str, Any] = {"dtype": torch.float64, "device": device}
        samples = {
            TRAINING: (data.training(seed, **more), data.training_labels(seed).to(device)),
            TEST: (data.evaluating(seed, **more), data.evaluation_labels(seed).to(device)),
        }
        diverged = run.networks["diverged_at"][network].as_py()
        # The first tables are empty: a network that diverged has no rows.
        metrics, nodes = [_metric_rows(network, 0, -1, {})], [_node_rows(network, 0, -1, "value", {"number": []})]
        for epoch in (0, int(run.epochs[-1])) if diverged is None else ():
            (every,) = run.weights(f"epoch.{epoch}")
            one = every[network].to(device, torch.float64)
            for which, (x, labels) in samples.items():
                layers, checks = set_pairs(one, x, labels, self.compared)
                for layer, found in enumerate(layers):
                    cosines = {"alike": found.cosine_within, "apart": found.cosine_between}
                    row = {f"cosine {name} {which}": value for name, value in cosines.items()}
                    row |= _shares(f"some {which}", found.separability)
                    metrics.append(_metric_rows(network, epoch, layer, row))
                    nodes.append(_node_rows(network, epoch, layer, "bin", _bin_columns(which, found.similarities)))
                for kind, each in checks.items():
                    metrics.append(_metric_rows(network, epoch, LAYERS, _shares(f"{kind} {which}", each)))
            singular, margin, neurons = linear_neurons(one, *samples[TRAINING])
            accuracy = float(run.series("accuracy")[network, run.epochs == epoch].item())
            row = {"accuracy": accuracy}
            row |= {f"above {share:.0%}": float((singular > share * singular[0]).sum()) for share in SIGNIFICANT}
            if margin is not None:
                positive, negative = torch.nn.functional.normalize(margin.vectors, dim=1)
                row |= {"cosine": float(positive @ negative), "residual": margin.residual}
                row["supports"] = float(sum(each.supports.sum() for each in (margin.positive, margin.negative)))
            metrics.append(_metric_rows(network, epoch, -1, row))
            values = {"number": range(1, len(singular) + 1), "value": singular.tolist()}
            nodes.append(_node_rows(network, epoch, LAYERS, "value", values))
            columns = {name: value.tolist() for name, value in neurons.items()}
            numbered = {"number": range(len(columns["norm"])), **columns}
            nodes.append(_node_rows(network, epoch, LAYERS, "neuron", numbered))
        named = {"network": pa.array([network], pa.int32()), "seed": [seed]}
        return {
            "networks": pa.table({**named, "diverged_at": pa.array([diverged], pa.int64())}),
            "metrics": pa.concat_tables(metrics),
            "nodes": pa.concat_tables(nodes, promote_options="default"),
        }


def _metric_rows(network: int, epoch: int, layer: int, values: Mapping[str, float]) -> pa.Table:
    names, numbers = np.array(list(values), np.str_), np.array(list(values.values()), np.float64)
    return table_rows(network, epoch, layer, metric=names, value=numbers)


def _node_rows(network: int, epoch: int, layer: int, role: str, columns: Mapping[str, Any]) -> pa.Table:
    """Rows with the role `value` (a singular value), `neuron` (a node of W7) or `bin` (pairs of images by product)."""
    kinds: dict[str, Any] = {"number": np.int32, "set": np.str_}
    arrays: dict[str, np.ndarray] = {
        name: np.array(list(values), kinds.get(name, np.float64)) for name, values in columns.items()
    }
    return table_rows(network, epoch, layer, role=role, **arrays)


def _shares(name: str, found: Separability) -> dict[str, float]:
    """Shares of the pairs of one class, and of two classes, that violate eq. 3.1."""
    return {f"alike {name}": found.share_alike, f"apart {name}": found.share_apart}


def _bin_columns(which: str, found: Similarities) -> dict[str, Any]:
    edges, count = found.edges.tolist(), len(found.between)
    counts = {"apart": found.between, "first": found.within[0], "second": found.within[1]}
    named = {"number": range(count), "set": [which] * count, "low": edges[:-1], "high": edges[1:]}
    return named | {name: each.tolist() for name, each in counts.items()}
