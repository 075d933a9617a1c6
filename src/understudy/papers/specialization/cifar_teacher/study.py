"""Teachers for CIFAR-10 that learn its labels, and what is left of them when the weaker channels go: S0 fig 10."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal, Self

import understudy as us
from understudy.errors import UserError
from understudy.lab.cifar import Norm, OnCifar, check_keep, check_layers
from understudy.lab.options import check
from understudy.lab.study import Experiment, Study, TrainingStudy

if TYPE_CHECKING:
    from understudy.nets import Population
    from understudy.store import Run

_APART = 1 << 20
"""First weights are drawn under the seed and this: students of the same seed do not start where their teacher did."""


@dataclass(frozen=True)
class CifarTeacher(OnCifar, TrainingStudy):
    """Networks that learn CIFAR-10 from its labels, by cross-entropy: the teachers of the other studies on it.

    With `--keep` below 1 it starts from the run that keeps all: the channels with the smallest outgoing weights go, and
    what remains learns on.
    """

    name: ClassVar[str] = "cifar-teacher"
    summary: ClassVar[str] = "networks that learn CIFAR-10 from its labels, whole or pruned: teachers of other studies"
    figures: ClassVar[str] = "the teachers of S0 fig 10, S2 figs 6, 9"
    decides: ClassVar[str] = ""

    network: Literal["cnn", "fc"] = "cnn"
    """3×3 convolutions and a linear layer on top, or fully connected layers."""
    layers: tuple[int, ...] = (64, 64, 64, 64)
    """Channels of each convolution, or nodes of each hidden layer, the lowest first."""
    norm: Norm = "after"
    """Where BatchNorm stands: after each ReLU, before it, or nowhere."""
    epochs: int = 30
    """Epochs; networks are looked at after each."""
    lr: float = 0.002
    """Learning rate at its highest, on cross-entropy averaged over the batch: it rises for three tenths of the epochs,
    then falls to nothing."""
    decay: float = 0.2
    """Weight decay: Adam's stands beside its step, SGD's in its gradient."""
    keep: tuple[float, ...] = (1.0,)
    """Share of the nodes or channels that stay, one for all hidden layers or one each."""
    tune_epochs: int = 25
    """Epochs in which a pruned network learns on."""
    tune_lr: float = 0.002
    """Learning rate of a pruned network at its highest."""

    @classmethod
    def quick(cls) -> Self:
        return cls(
            seeds=2,
            layers=(8, 8, 8),
            train=2_000,
            evaluation=500,
            images="plain",
            batch=50,
            epochs=10,
        )

    def validate(self) -> None:
        super().validate()
        check_layers(self, "layers", self.network == "cnn")
        check(self, "tune_epochs", least=1)
        check(self, "tune_lr", above=0)
        check(self, "decay", least=0)
        check_keep(self.keep, self.layers)
        self.check_norm(self.norm)

    @property
    def whole(self) -> bool:
        """Whether all channels stay."""
        return all(share == 1 for share in self.keep)

    @property
    def length(self) -> int:
        """Epochs that this run has."""
        return self.epochs if self.whole else self.tune_epochs

    def depends_on(self) -> tuple[Study, ...]:
        plain = type(self)()
        unpruned = replace(self, keep=plain.keep, tune_epochs=plain.tune_epochs, tune_lr=plain.tune_lr)
        return () if self.whole else (unpruned,)

    def experiment(self, *runs: Run) -> Experiment:
        data = self.source()
        networks = us.teachers.pruned(ended(runs[0]), self._shares).network if runs else self._untrained()
        group = us.training.Group(networks, networks, data, us.CrossEntropy(), labelled=True)
        rate = self.lr if self.whole else self.tune_lr
        return self.training([({}, group)], rate, self.length, decay=self.decay)

    @property
    def _shares(self) -> tuple[float, ...]:
        return self.keep * len(self.layers) if len(self.keep) == 1 else self.keep

    def _untrained(self) -> Population:
        import torch

        channels, height, width = us.data.Cifar10.image
        inputs, image = (channels, (height, width)) if self.network == "cnn" else (channels * height * width, None)
        shape = us.nets.Shape((inputs, *self.layers, self.classes), image=image)
        seeds = torch.tensor(self.seed_names)
        blank = us.nets.Population(
            tuple(
                us.nets.Layer(
                    *(torch.zeros(self.seeds, *size, dtype=self.torch_dtype) for size in (weight, weight[:1]))
                )
                for weight in shape.weights
            ),
            seeds,
            image=shape.image,
        )
        begun = us.students.like_linear(
            blank, seeds=(_APART + seed for seed in self.seed_names), norm=None if self.norm == "none" else self.norm
        )
        return replace(begun, seeds=seeds)


def ended(run: Run) -> Population:
    """The networks of a teachers' run as its training left them."""
    if lost := len(run.networks["diverged_at"].drop_null()):
        raise UserError(
            f"{run.folder}: {lost} of {run.networks.num_rows} teachers diverged, which no student can learn from; give "
            "them a smaller learning rate"
        )
    (networks,) = run.weights(f"epoch.{run.epochs[-1]}")
    return networks
