"""The study `cifar-teacher`: teachers trained on the labels of CIFAR-10, whole or pruned (Tian 2020, fig. 10)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Literal, Self

import understudy as us
from understudy._errors import UserError
from understudy.lab.cifar import CifarOptions, Kept, Norm, validate_convolutions, validate_kept
from understudy.lab.options import Count, NonNegative, Positive, Sizes, Steps
from understudy.lab.study import Experiment, Study, TrainingStudy

_OFFSET = 1 << 20
"""Added to the seeds of initial weights: students of the same seed start from other weights than their teacher."""


@dataclass(frozen=True)
class CifarTeacher(CifarOptions, TrainingStudy):
    """Networks trained on the labels of CIFAR-10 by cross-entropy: the teachers of the other studies on it.

    With `--keep` below 1 it starts from the run that keeps all nodes: those with the smallest outgoing weights are
    removed, and training continues.
    """

    name: ClassVar[str] = "cifar-teacher"
    summary: ClassVar[str] = "networks trained on the labels of CIFAR-10, whole or pruned: teachers of other studies"
    figures: ClassVar[str] = "the teachers of S0 fig. 10, S2 figs. 6, 9"

    first_seed: Steps = 1
    """First seed."""
    network: Literal["cnn", "fc"] = "cnn"
    """3×3 convolutions and a linear layer on top, or fully connected layers."""
    layers: Sizes = (64, 64, 64, 64)
    """Channels of each convolution, or nodes of each hidden layer, from the lowest."""
    norm: Norm = "after"
    """BatchNorm: after each ReLU, before each ReLU, or none."""
    epochs: Count = 30
    lr: Positive = 0.002
    """Peak learning rate, on cross-entropy averaged over the batch: it rises for 30% of the epochs, then falls to
    nearly 0."""
    decay: NonNegative = 0.2
    """Weight decay: decoupled with Adam, in the gradient with SGD."""
    keep: Kept = (1.0,)
    """Share of the nodes or channels that are kept, one for all hidden layers or one per layer."""
    tune_epochs: Count = 25
    """Epochs in which a pruned network is trained further."""
    tune_lr: Positive = 0.002
    """Peak learning rate of a pruned network."""

    @classmethod
    def quick(cls) -> Self:
        return cls(layers=(8, 8, 8), train=2_000, evaluation=500, images="plain", batch=50, epochs=10)

    def validate(self) -> None:
        super().validate()
        if self.network == "cnn":
            validate_convolutions(self, "layers")
        validate_kept(self.keep, self.layers)
        self.validate_norm(self.norm)

    @property
    def seed_names(self) -> range:
        """The seeds, from `first_seed` on."""
        return range(self.first_seed, self.first_seed + self.seeds)

    @property
    def whole(self) -> bool:
        """Whether all nodes are kept."""
        return all(share == 1 for share in self.keep)

    @property
    def length(self) -> int:
        """Number of epochs of this run."""
        return self.epochs if self.whole else self.tune_epochs

    def depends_on(self) -> tuple[Study, ...]:
        plain = type(self)()
        unpruned = replace(self, keep=plain.keep, tune_epochs=plain.tune_epochs, tune_lr=plain.tune_lr)
        return () if self.whole else (unpruned,)

    def experiment(self, *runs: us.Run) -> Experiment:
        data = self.source()
        networks = us.teachers.pruned(trained_networks(runs[0]), self._shares).network if runs else self._untrained()
        group = us.training.Group(networks, networks, data, us.CrossEntropy(), labelled=True)
        rate = self.lr if self.whole else self.tune_lr
        return self.training([({}, group)], rate, self.length, decay=self.decay)

    @property
    def _shares(self) -> tuple[float, ...]:
        return self.keep * len(self.layers) if len(self.keep) == 1 else self.keep

    def _untrained(self) -> us.Population:
        import torch

        channels, height, width = us.data.Cifar10.image
        inputs, image = (channels, (height, width)) if self.network == "cnn" else (channels * height * width, None)
        shape = us.nets.Shape((inputs, *self.layers, self.classes), image=image)
        seeds = torch.tensor(self.seed_names)
        zeros = partial(torch.zeros, self.seeds, dtype=self.torch_dtype)
        layers = tuple(us.nets.Layer(zeros(*size), zeros(size[0])) for size in shape.weights)
        blank = us.nets.Population(layers, seeds, image=shape.image)
        initial = us.students.like_linear(
            blank, seeds=(_OFFSET + seed for seed in self.seed_names), norm=None if self.norm == "none" else self.norm
        )
        return replace(initial, seeds=seeds)


def trained_networks(run: us.Run) -> us.Population:
    """The networks of a run of teachers after training.

    Raises:
        UserError: If any of them diverged.
    """
    if lost := len(run.networks["diverged_at"].drop_null()):
        raise UserError(
            f"{run.folder}: {lost} of {run.networks.num_rows} teachers diverged, and students cannot learn from them; "
            "choose a smaller learning rate of the teacher"
        )
    (networks,) = run.weights(f"epoch.{run.epochs[-1]}")
    return networks
