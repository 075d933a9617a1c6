"""What studies of networks on two digits of MNIST share: the images, and how the networks of S3 table 3.1 train."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal

import understudy as us
from understudy.errors import UserError
from understudy.lab.options import check
from understudy.lab.study import Study

if TYPE_CHECKING:
    from understudy.data import Mnist

LOOKS = ((3, 1, 1), (3, 1, 1), (5, 2, 2)) * 2
"""Kernel, stride and padding of the convolutions of S3 table 3.1."""
_BLOCK = len(LOOKS) // 2


@dataclass(frozen=True)
class OnMnist(Study):
    """Networks of six convolutions and two linear layers that tell two digits of MNIST apart."""

    seeds: int = 10
    """How many seeds, counted from 1: each is a network's first weights and the order of its images."""
    dtype: Literal["float32", "tf32", "float64"] = "tf32"
    """Numbers to train with; tf32 is float32 whose products a card may round to 11 bits, which is faster."""
    data: str = ""
    """Folder of MNIST's files, or of the folder they came in; without one $UNDERSTUDY_DATA, else
    ~/.cache/understudy."""
    digits: tuple[int, ...] = (0, 1)
    """The two digits to tell apart; the second is the class of outputs above 0."""
    train: int = 0
    """Training images of each network, fewer than all are drawn by its seed; 0 takes all that there are."""
    evaluation: int = 0
    """Test images likewise."""
    channels: tuple[int, ...] = (32, 64)
    """Channels of the three lower and of the three upper convolutions."""
    nodes: int = 128
    """Nodes of the first linear layer."""
    batch: int = 128
    """Images a step, drawn with replacement; an epoch has as many steps as make one of every training image."""
    epochs: int = 50
    """Epochs; networks are looked at after each."""
    lr: float = 0.001
    """Learning rate of Adam."""
    start: float = 0.05
    """What weights of the two linear layers are multiplied by before training."""

    def validate(self) -> None:
        for field in ("nodes", "batch", "epochs", "channels"):
            check(self, field, least=1)
        for field in ("train", "evaluation"):
            check(self, field, least=0)
        for field in ("lr", "start"):
            check(self, field, above=0)
        check(self, "digits", least=0, distinct=True)
        if len(self.digits) != 2 or max(self.digits) > 9:
            words = " ".join(map(str, self.digits))
            raise UserError(f"--digits: {words} was given; allowed are two different digits from 0 to 9")
        if len(self.channels) != 2:
            words = " ".join(map(str, self.channels))
            raise UserError(f"--channels: {words} was given; allowed are two numbers, of lower and upper convolutions")
        for field, most in zip(("train", "evaluation"), us.data.Mnist.image_counts(self.digits), strict=True):
            if (given := getattr(self, field)) > most:
                raise UserError(f"--{field}: {given} was given; allowed is up to the images there are, {most}")
        train = self.train or us.data.Mnist.image_counts(self.digits)[0]
        if self.batch > train:
            raise UserError(f"--batch: {self.batch} was given; allowed is up to the training images, {train}")

    @property
    def seed_names(self) -> range:
        return range(1, self.seeds + 1)

    @property
    def sizes(self) -> tuple[int, ...]:
        low, high = self.channels
        return (1, *(low,) * _BLOCK, *(high,) * _BLOCK, self.nodes, 1)

    @property
    def as_in_the_thesis(self) -> bool:
        """Whether nothing but seeds, and where and in which numbers, is other than S3 sec 3.4.3 has it."""
        plain, free = type(self)(), ("seeds", "dtype", "device", "data")
        return all(getattr(self, f.name) == getattr(plain, f.name) for f in fields(self) if f.name not in free)

    def of_the_networks(self) -> dict[str, Any]:
        """The options that fix how networks are trained."""
        return {field.name: getattr(self, field.name) for field in fields(OnMnist)}

    def source(self) -> Mnist:
        counts = {name: count for name in ("train", "evaluation") if (count := int(getattr(self, name)))}
        try:
            return us.data.Mnist(self.data or None, self.digits, **counts)
        except UserError as error:
            raise UserError(f"--data: {error}") from None
