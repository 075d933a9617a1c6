"""What studies on CIFAR-10 share: where its images lie, how many are seen, and the rate that rises and falls once."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import understudy as us
from understudy.errors import UserError
from understudy.lab.options import check, validate_batch
from understudy.lab.study import Experiment, Study

if TYPE_CHECKING:
    from understudy.data import Cifar10
    from understudy.training import Group

MOMENTUM = 0.9
_RISE, _START, _END = 0.3, 1 / 25, 1e-4
"""Of one cycle: the share of the epochs in which the rate rises, and the factors it starts from and ends at."""
_THERE = {"train": 50_000, "evaluation": 10_000}
"""Images that CIFAR-10 has."""

Norm = Literal["after", "before", "none"]


@dataclass(frozen=True)
class OnCifar(Study):
    """Networks that see the images of CIFAR-10."""

    classes: ClassVar[int] = 10

    seeds: int = 2
    """How many seeds, counted from 1: each is a teacher, its students' first weights and the order of the images."""
    dtype: Literal["float32", "tf32", "float64"] = "tf32"
    """Numbers to train with; tf32 is float32 whose products a card may round to 11 bits, which is faster."""
    data: str = ""
    """Folder of CIFAR-10's files, or of the folder they came in; without one $UNDERSTUDY_DATA, else
    ~/.cache/understudy."""
    train: int = 50_000
    """Training images of each network; fewer than all are drawn by its seed."""
    evaluation: int = 10_000
    """Evaluation images of each network: accuracies and correlations are measured on them."""
    images: Literal["augmented", "plain"] = "augmented"
    """Training images as they are, or cropped and mirrored anew every epoch."""
    batch: int = 128
    """Images a step, drawn with replacement; an epoch has as many steps as make one of every training image."""
    optimiser: Literal["sgd", "adam"] = "adam"
    """How teachers and students descend: by Adam, whose steps do not grow with the number of features that enter the
    top layer, or by SGD with momentum 0.9, whose rates must be smaller the more there are. Rates that are not given
    are Adam's: with sgd, give them too."""
    epochs: int = 40
    """Epochs; networks are looked at after each."""
    lr: float = 0.01
    """Learning rate at its highest: it rises for three tenths of the epochs, then falls to nothing."""

    def validate(self) -> None:
        for field in ("batch", "epochs", *_THERE):
            check(self, field, least=1)
        check(self, "lr", above=0)
        for field, most in _THERE.items():
            if (given := getattr(self, field)) > most:
                raise UserError(f"--{field}: {given} was given; allowed is up to the images there are, {most}")
        validate_batch(self.train, self.batch)

    def check_norm(self, *norms: str) -> None:
        """BatchNorm has something to average over."""
        if self.batch < 2 and any(norm != "none" for norm in norms):
            raise UserError(f"--batch: {self.batch} was given; BatchNorm needs batches of 2 images or more")

    @property
    def seed_names(self) -> range:
        return range(1, self.seeds + 1)

    @property
    def steps(self) -> int:
        """In an epoch."""
        return self.train // self.batch

    def source(self) -> Cifar10:
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
        """Groups of one network a seed, each with the parameters that set it apart; one rate, or one a group."""
        apart, each = zip(*groups, strict=True)
        lr = rate if isinstance(rate, float) else tuple(one for one in rate for _ in self.seed_names)
        return Experiment(
            groups=each,
            parameters=tuple({**one, "seed": seed} for one in apart for seed in self.seed_names),
            optimiser=us.Adam(lr=lr, batch=self.batch, schedule=one_cycle(epochs), decay=decay)
            if self.optimiser == "adam"
            else us.SGD(lr=lr, batch=self.batch, momentum=MOMENTUM, schedule=one_cycle(epochs), decay=decay),
            epochs=epochs,
            steps=self.steps,
            ranks=frozenset(ranks),
        )


@dataclass(frozen=True)
class TaughtOnCifar(OnCifar):
    """The same, of networks that a teacher has learned the labels for."""

    teacher_epochs: int = 30
    """Epochs in which the teacher learns the labels."""
    teacher_lr: float = 0.002
    """Learning rate of the teacher at its highest, on cross-entropy averaged over the batch."""
    teacher_decay: float = 0.0
    """Weight decay of the teacher: Adam's stands beside its step, SGD's in its gradient."""

    def validate(self) -> None:
        super().validate()
        check(self, "teacher_epochs", least=1)
        check(self, "teacher_lr", above=0)
        check(self, "teacher_decay", least=0)

    def rate(self, lr: float) -> float:
        """Of ½‖f*−f‖², whose gradient is C/2 times that of the squared error averaged over outputs; to Adam's steps the
        scale of a loss is nothing."""
        return lr if self.optimiser == "adam" else lr * 2 / self.classes

    def of_the_teacher(self) -> dict[str, Any]:
        """The options that a teacher's own study shares with this one."""
        shared = ("seeds", "dtype", "device", "data", "train", "evaluation", "images", "batch", "optimiser")
        given = {name: getattr(self, name) for name in shared}
        return given | {"epochs": self.teacher_epochs, "lr": self.teacher_lr, "decay": self.teacher_decay}


def one_cycle(epochs: int) -> tuple[tuple[int, float], ...]:
    """Factors of the rate, an epoch each, in the middle of it: up by a cosine, then down by one (Smith 2018)."""

    def factor(at: float) -> float:
        start, gone = (_START, at / _RISE) if at < _RISE else (_END, (1 - at) / (1 - _RISE))
        return start + (1 - start) * (1 - math.cos(math.pi * gone)) / 2

    return tuple((epoch, factor((epoch - 0.5) / epochs)) for epoch in range(1, epochs + 1))


def check_layers(study: OnCifar, field: str, image: bool) -> None:
    """Layers of a node or more, and of convolutions no more than an image has pixels for."""
    check(study, field, least=1)
    most = (us.data.Cifar10.image[1] - 1) // 2
    if image and len(getattr(study, field)) > most:
        raise UserError(
            f"--{field.replace('_', '-')}: {len(getattr(study, field))} layers were given; allowed are up to {most}, "
            "as each convolution takes two pixels off height and width"
        )


def check_words(field: str, given: tuple[str, ...], allowed: tuple[str, ...]) -> None:
    """Each of several words is one of those allowed, and is named once."""
    if not given:
        raise UserError(f"--{field}: no value was given; give one or more of {', '.join(allowed)}")
    for word in given:
        if word not in allowed:
            raise UserError(f"--{field}: {word} was given; allowed are {', '.join(allowed)}")
    if len(set(given)) < len(given):
        raise UserError(f"--{field}: {' '.join(given)} was given; name each value once")


def check_keep(keep: tuple[float, ...], layers: tuple[int, ...]) -> None:
    """One share for all layers or one each, above 0 and at most 1, that leaves a node in each."""
    words = " ".join(f"{share:g}" for share in keep)
    if len(keep) not in (1, len(layers)):
        raise UserError(f"--keep: {words} was given; allowed is one share, or one for each of {len(layers)} layers")
    for i, nodes in enumerate(layers):
        share = keep[i % len(keep)]
        if not 0 < share <= 1:  # refuses NaN too
            raise UserError(f"--keep: {share:g} was given; allowed is a share above 0 and at most 1")
        if round(share * nodes) < 1:
            raise UserError(f"--keep: {share:g} was given; it leaves none of the {nodes} nodes of layer {i + 1}")


def kept_sizes(keep: tuple[float, ...], layers: tuple[int, ...]) -> tuple[int, ...]:
    """Nodes of each layer that pruning leaves."""
    return tuple(round(keep[i % len(keep)] * nodes) for i, nodes in enumerate(layers))
