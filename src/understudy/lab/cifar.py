"""Options that studies on CIFAR-10 share: the images, the optimiser, and the one-cycle schedule of learning rates."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Gt, Le

import understudy as us
from understudy._errors import UserError
from understudy.lab.options import Count, NonNegative, Positive, option, validate_batch
from understudy.lab.study import Dtype, Experiment, Study

if TYPE_CHECKING:
    from understudy.data import Cifar10
    from understudy.training import Group

MOMENTUM = 0.9
_RISE, _START, _END = 0.3, 1 / 25, 1e-4
"""One cycle: the share of the epochs in which the rate rises, and its first and last factor."""

Norm = Literal["after", "before", "none"]
Kept = Annotated[tuple[float, ...], Gt(0), Le(1)]
"""Shares of nodes above 0 and at most 1: one for all hidden layers, or one per layer."""


@dataclass(frozen=True)
class CifarOptions(Study):
    """Options of studies whose networks are trained on the images of CIFAR-10."""

    classes: ClassVar[int] = 10

    seeds: Count = 2
    """Number of seeds, counted from 1: each is a teacher, its students' initial weights and the order of the images."""
    dtype: Dtype = "tf32"
    """Training precision. tf32: float32 with TF32 matrix products on the GPU (faster, 11-bit mantissa)."""
    data: str = ""
    """Folder with the files of CIFAR-10, or with the folder of its archive; by default $UNDERSTUDY_DATA or else
    ~/.cache/understudy."""
    train: Annotated[int, Ge(1), Le(50_000)] = 50_000
    """Training images of each network; fewer than all are drawn by its seed."""
    evaluation: Annotated[int, Ge(1), Le(10_000)] = 10_000
    """Evaluation images of each network, on which accuracies and correlations are measured."""
    images: Literal["augmented", "plain"] = "augmented"
    """Training images unchanged, or randomly cropped and mirrored in every epoch."""
    batch: Count = 128
    """Images per step, drawn with replacement; the steps of an epoch draw as many images as there are."""
    optimiser: Literal["sgd", "adam"] = "adam"
    """Optimiser of teachers and students: Adam, whose steps do not grow with the number of features that enter the
    top layer, or SGD with momentum 0.9, whose rates must be smaller the more features there are. Default rates are for
    Adam: with sgd, choose rates too."""
    epochs: Count = 40
    """Number of epochs; networks are probed after each."""
    lr: Positive = 0.01
    """Peak learning rate: it rises for 30% of the epochs, then falls to nearly 0."""

    def validate(self) -> None:
        validate_batch(self.train, self.batch)

    def validate_norm(self, *norms: str) -> None:
        """Refuse batches of one image for networks with BatchNorm."""
        if self.batch < 2 and any(norm != "none" for norm in norms):
            raise UserError(f"--batch must be at least 2 for networks with BatchNorm, got {self.batch}")

    @property
    def steps(self) -> int:
        """Steps per epoch."""
        return self.train // self.batch

    def require_data(self) -> None:
        self.source()

    def source(self) -> Cifar10:
        """The images.

        Raises:
            UserError: If the files are missing or incomplete.
        """
        try:
            return us.data.Cifar10(self.data or None, self.images == "augmented", self.train, self.evaluation)
        except UserError as error:
            raise UserError(f"--data: {error}") from None

    def training(
        self,
        groups: Iterable[tuple[dict[str, Any], Group]],
        rate: float | Iterable[float],
        epochs: int,
        ranks: Iterable[int] = (),
        decay: float = 0.0,
    ) -> Experiment:
        """The experiment of groups with one network per seed, each with its parameters; one rate, or one per group."""
        parameters, each = zip(*groups, strict=True)
        lr = rate if isinstance(rate, float) else tuple(one for one in rate for _ in self.seed_names)
        return Experiment(
            groups=each,
            parameters=tuple({**one, "seed": seed} for one in parameters for seed in self.seed_names),
            optimiser=us.Adam(lr=lr, batch=self.batch, schedule=one_cycle(epochs), decay=decay)
            if self.optimiser == "adam"
            else us.SGD(lr=lr, batch=self.batch, momentum=MOMENTUM, schedule=one_cycle(epochs), decay=decay),
            epochs=epochs,
            steps=self.steps,
            ranks=frozenset(ranks),
        )


@dataclass(frozen=True)
class TaughtCifarOptions(CifarOptions):
    """Options of studies whose students learn from a teacher that was trained on the labels."""

    teacher_epochs: Count = 30
    """Epochs in which the teacher learns the labels."""
    teacher_lr: Positive = 0.002
    """Peak learning rate of the teacher, on cross-entropy averaged over the batch."""
    teacher_decay: NonNegative = 0.0
    """Weight decay of the teacher: decoupled with Adam, in the gradient with SGD."""

    def rate(self, lr: float) -> float:
        """Learning rate on ½‖f*−f‖², whose gradient is C/2 times that of the squared error averaged over outputs.

        Adam's steps do not depend on the scale of the loss.
        """
        return lr if self.optimiser == "adam" else lr * 2 / self.classes

    def teacher_options(self) -> dict[str, Any]:
        """The options of the teacher's own study that follow from this one."""
        shared = ("seeds", "dtype", "device", "data", "train", "evaluation", "images", "batch", "optimiser")
        given = {name: getattr(self, name) for name in shared}
        return given | {"epochs": self.teacher_epochs, "lr": self.teacher_lr, "decay": self.teacher_decay}


def one_cycle(epochs: int) -> tuple[tuple[int, float], ...]:
    """Factors of the learning rate, at the middle of every epoch: a cosine up, then a cosine down (Smith 2018)."""

    def factor(at: float) -> float:
        start, gone = (_START, at / _RISE) if at < _RISE else (_END, (1 - at) / (1 - _RISE))
        return start + (1 - start) * (1 - math.cos(math.pi * gone)) / 2

    return tuple((epoch, factor((epoch - 0.5) / epochs)) for epoch in range(1, epochs + 1))


def validate_convolutions(study: CifarOptions, field: str) -> None:
    """Refuse more convolutions than an image has pixels for."""
    given, most = len(getattr(study, field)), (us.data.Cifar10.image[1] - 1) // 2
    if given > most:
        raise UserError(
            f"{option(field)} must have at most {most} layers, got {given}: each convolution removes two pixels from "
            "height and width"
        )


def validate_kept(keep: tuple[float, ...], layers: tuple[int, ...]) -> None:
    """Refuse shares that are neither one for all layers nor one per layer, or that leave a layer without nodes."""
    if len(keep) not in (1, len(layers)):
        words = " ".join(f"{share:g}" for share in keep)
        raise UserError(f"--keep must be one share, or one for each of the {len(layers)} layers, got {words}")
    for i, (nodes, kept) in enumerate(zip(layers, kept_sizes(keep, layers), strict=True)):
        if kept < 1:
            given = f"{keep[i % len(keep)]:g} of the {nodes} nodes of layer {i + 1}"
            raise UserError(f"--keep must leave at least one node in every layer, got {given}")


def kept_sizes(keep: tuple[float, ...], layers: tuple[int, ...]) -> tuple[int, ...]:
    """Number of nodes in each layer after pruning."""
    return tuple(round(keep[i % len(keep)] * nodes) for i, nodes in enumerate(layers))
