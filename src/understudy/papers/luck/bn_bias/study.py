"""The study `bn-bias`: signs of the shifts that BatchNorm learns (Tian et al. 2019, figs 6, 18)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
import pyarrow as pa

import understudy as us
from understudy._errors import UserError
from understudy.lab.cifar import CifarOptions, validate_convolutions
from understudy.lab.options import Count, InputFile, Positive, Sizes
from understudy.lab.pieces import table_rows
from understudy.lab.study import ComputedStudy, Piece, Study
from understudy.papers.specialization.cifar_teacher.study import CifarTeacher, trained_networks

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class BatchNormBias(CifarOptions, ComputedStudy):
    """Whether most BatchNorm shifts are negative, so that few samples pass the following ReLU.

    This is an assumption of Tian et al. 2019. The shifts are those of a network file with `--network`, else of networks
    trained on CIFAR-10 with BatchNorm before each ReLU: a run of `cifar-teacher --norm before` with the same options,
    which is made first if it does not exist.
    """

    name: ClassVar[str] = "bn-bias"
    summary: ClassVar[str] = "the signs of the shifts that BatchNorm learns before a ReLU, layer by layer"
    figures: ClassVar[str] = "S2 figs. 6, 18"
    decides: ClassVar[str] = "D10"

    seeds: Count = 3
    """Number of seeds, counted from 1: each is a network's initial weights and the order of the images."""
    network: InputFile = ""
    """Network file of any architecture with BatchNorm, a state dict or safetensors; by default, networks are
    trained."""
    layers: Sizes = (64, 64, 64, 64)
    """Channels of each convolution of the trained networks, from the lowest."""
    optimiser: Literal["sgd", "adam"] = "sgd"
    """Optimiser: SGD with momentum 0.9, with which VGG was trained, or Adam."""
    epochs: Count = 30
    """Number of epochs of training on the labels."""
    lr: Positive = 0.002
    """Largest learning rate, on the cross-entropy averaged over the batch: it rises during the first 30% of the epochs,
    then falls to almost 0."""

    @classmethod
    def quick(cls) -> Self:
        return cls(seeds=2, layers=(8, 8, 8), train=2_000, evaluation=500, images="plain", batch=50, epochs=10, lr=0.05)

    def validate(self) -> None:
        super().validate()
        validate_convolutions(self, "layers")
        self.validate_norm("before")

    def validate_files(self) -> None:
        if self.network:
            _read_shifts(self.network)

    def depends_on(self) -> tuple[Study, ...]:
        if self.network:
            return ()
        shared = {name: value for name, value in self.options().items() if name != "network"}
        return (CifarTeacher(**shared, norm="before", decay=0.0),)

    def pieces(self, *runs: us.Run) -> Iterator[Piece]:
        if runs:
            norms = trained_networks(runs[0]).norms
            found = [(f"layer {i + 1}", norm.shift) for i, norm in enumerate(norms) if norm.shift is not None]
        else:
            found = _read_shifts(self.network)
        yield Piece("networks", len(np.atleast_2d(found[0][1])), lambda first: self._tables(found))

    def _tables(self, found: list[tuple[str, Tensor]]) -> dict[str, Any]:
        """The shift of every node of every layer, and the share of negative shifts."""
        # Files of a single network have no axis of networks.
        shifts = [np.atleast_2d(shift.double().numpy()) for _, shift in found]
        networks = len(shifts[0])
        numbers = np.arange(networks, dtype=np.int32)
        metrics, nodes = [], []
        for layer, ((name, _), shift) in enumerate(zip(found, shifts, strict=True)):
            network, node = (axis.ravel().astype(np.int32) for axis in np.indices(shift.shape))
            nodes.append(table_rows(network, 0, layer, name=name, node=node, shift=shift.ravel()))
            share = (shift < 0).mean(axis=1)
            metrics.append(table_rows(numbers, 0, layer, metric="negative_shifts", value=share))
        column: dict[str, list[Any]] = (
            {"file": [Path(self.network).name] * networks} if self.network else {"seed": (numbers + 1).tolist()}
        )
        return {
            "networks": pa.table({"network": numbers, **column, "diverged_at": pa.nulls(networks, pa.int64())}),
            "metrics": pa.concat_tables(metrics),
            "nodes": pa.concat_tables(nodes),
        }


def _read_shifts(path: str) -> list[tuple[str, Tensor]]:
    try:
        return us.nets.bn_biases(path)
    except UserError as error:
        raise UserError(f"--network: {error}") from None
