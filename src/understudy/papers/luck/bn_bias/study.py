"""Signs of the shifts that BatchNorm learns, in a network trained here or in any network file: S2 figs 6, 18."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
import pyarrow as pa

import understudy as us
from understudy.errors import UserError
from understudy.lab.cifar import OnCifar, check_layers
from understudy.lab.study import ComputedStudy, Piece, Study
from understudy.papers.specialization.cifar_teacher.study import CifarTeacher, ended

if TYPE_CHECKING:
    from torch import Tensor

    from understudy.lab.study import Tables
    from understudy.store import Run


@dataclass(frozen=True)
class BatchNormBias(OnCifar, ComputedStudy):
    """Whether most BatchNorm shifts are negative, so that few samples pass the ReLU that follows, as S2 assumes.

    Of a network file with `--network`; else of networks that learn CIFAR-10 with BatchNorm before each ReLU
    (`cifar-teacher --norm before`, made first where it is not there yet), and options are those of their training.
    """

    name: ClassVar[str] = "bn-bias"
    summary: ClassVar[str] = "the signs of the shifts that BatchNorm learns before a ReLU, layer by layer"
    figures: ClassVar[str] = "S2 figs 6, 18"
    decides: ClassVar[str] = "D10"

    seeds: int = 3
    """How many seeds, counted from 1: each is a network's first weights and the order of the images."""
    network: str = ""
    """Network file of any architecture with BatchNorm, a state dict or safetensors; without one, networks trained
    here."""
    layers: tuple[int, ...] = (64, 64, 64, 64)
    """Channels of each convolution of the networks trained here, the lowest first."""
    optimiser: Literal["sgd", "adam"] = "sgd"
    """How they descend: by SGD with momentum 0.9, as VGG did, or by Adam."""
    epochs: int = 30
    """Epochs in which they learn the labels."""
    lr: float = 0.002
    """Learning rate at its highest, on cross-entropy averaged over the batch: it rises for three tenths of the epochs,
    then falls to nothing."""

    @classmethod
    def quick(cls) -> Self:
        return cls(seeds=2, layers=(8, 8, 8), train=2_000, evaluation=500, images="plain", batch=50, epochs=10, lr=0.05)

    def validate(self) -> None:
        super().validate()
        check_layers(self, "layers", image=True)
        self.check_norm("before")

    def config(self) -> dict[str, Any]:
        """Of a file also what is in it: another under the same name is another run."""
        plain = super().config()
        return plain | {"contents": {"network": _digest(self.network)}} if self.network else plain

    def depends_on(self) -> tuple[Study, ...]:
        if self.network:
            return ()
        shared = {name: value for name, value in self.options().items() if name != "network"}
        return (CifarTeacher(**shared, norm="before", decay=0.0),)

    def pieces(self, *runs: Run) -> Iterator[Piece]:
        if runs:
            norms = ended(runs[0]).norms
            found = [(f"layer {i + 1}", norm.shift) for i, norm in enumerate(norms) if norm.shift is not None]
        else:
            found = _file(self.network)
        yield Piece("networks", len(np.atleast_2d(found[0][1])), lambda _: self._tables(found))

    def _tables(self, found: list[tuple[str, Tensor]]) -> Tables:
        """The shift of every node of every layer among the nodes, and the share below zero among the metrics."""
        # Files of one network have no axis of networks.
        shifts = [(name, np.atleast_2d(shift.double().numpy())) for name, shift in found]
        networks = len(shifts[0][1])
        metrics, nodes = [], []
        for layer, (name, shift) in enumerate(shifts):
            net, node = (axis.ravel() for axis in np.indices(shift.shape))
            nodes.append(
                {
                    "network": net.astype(np.int32),
                    "epoch": np.zeros(len(net), np.int32),
                    "layer": np.full(len(net), layer, np.int16),
                    "name": [name] * len(net),
                    "node": node.astype(np.int32),
                    "shift": shift.ravel(),
                }
            )
            metrics.append(
                {
                    "network": np.arange(networks, dtype=np.int32),
                    "epoch": np.zeros(networks, np.int32),
                    "layer": np.full(networks, layer, np.int16),
                    "metric": ["negative_shifts"] * networks,
                    "value": (shift < 0).mean(axis=1),
                }
            )
        which = (
            {"file": [Path(self.network).name] * networks} if self.network else {"seed": list(range(1, networks + 1))}
        )
        return {
            "networks": pa.table(
                {"network": np.arange(networks, dtype=np.int32)}
                | which
                | {"diverged_at": pa.nulls(networks, pa.int64())}
            ),
            "metrics": pa.concat_tables(map(pa.table, metrics)),
            "nodes": pa.concat_tables(map(pa.table, nodes)),
        }


def _file(path: str) -> Any:
    try:
        return us.nets.bn_biases(path)
    except UserError as error:
        raise UserError(f"--network: {error}") from None


def _digest(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        _file(path)  # says what is wrong with it
        raise
