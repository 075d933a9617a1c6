"""The study `gaus`: random teachers, Gaussian inputs, with and without BatchNorm (Tian et al. 2019, figs 8, 10, 11)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, Self, get_args

import understudy as us
from understudy.lab.options import Among, Count, Distinct, Positive, Sizes, validate_batch, validate_widths
from understudy.lab.study import Experiment, TrainingStudy
from understudy.papers.luck.shared import OnGaussianInputs

Kind = Literal["fc", "cnn", "fc-small"]
Norm = Literal["none", "after"]
Data = Literal["infinite", "finite"]
_BIAS_SPREAD = 0.5
"""The biases of teachers are drawn from U[−0.5, 0.5] (Tian et al. 2019, sec. 5.1)."""


@dataclass(frozen=True)
class Gaus(OnGaussianInputs, TrainingStudy):
    """How early the winning students are ahead, layer by layer, and what BatchNorm, teacher size and data change.

    Teachers have no BatchNorm; their outputs are standardised on the evaluation inputs of their seed. Students are
    initialised as by torch's Linear and Conv2d.
    """

    name: ClassVar[str] = "gaus"
    summary: ClassVar[str] = (
        "how early the winning students are ahead, and what BatchNorm, teacher size and data change"
    )
    figures: ClassVar[str] = "S2 figs. 8, 10, 11, 21, 23"
    decides: ClassVar[str] = "D5 D7 D8 L5"

    seeds: Count = 5
    networks: Annotated[tuple[Kind, ...], Among(get_args(Kind)), Distinct()] = ("fc", "cnn", "fc-small")
    """Kinds of networks: fully connected, convolutional, and fully connected with a small teacher."""
    norm: Annotated[tuple[Norm, ...], Among(get_args(Norm)), Distinct()] = ("none", "after")
    """BatchNorm of the students: none, or after each ReLU, with scale and shift."""
    data: Annotated[tuple[Data, ...], Among(get_args(Data)), Distinct()] = ("infinite", "finite")
    """Training data: drawn anew in every epoch, or drawn once."""
    fc_layers: Sizes = (50, 75, 100, 125)
    """Hidden nodes of the fully connected teacher, layer by layer from the lowest."""
    small_layers: Sizes = (10, 15, 20, 25)
    """Hidden nodes of the small fully connected teacher."""
    cnn_layers: Sizes = (64, 64, 64)
    """Channels of the convolutional teacher; each layer is a 3×3 convolution without padding."""
    multiple: Positive = 10.0
    """Over-realization: student nodes, or channels, per node of the teacher in every hidden layer."""
    lr: Positive = 0.3
    """Learning rate of plain SGD on the squared error averaged over batch and outputs (2/C of it on ½‖f*−f‖²)."""
    cnn_lr: Positive = 0.0025
    """Learning rate of convolutional students without BatchNorm, whose last layer sums thousands of features."""
    cnn_norm_lr: Positive = 0.025
    """Learning rate of convolutional students with BatchNorm: it removes the mean of the features, which limits the
    rate."""
    train: Count = 100_000
    """Training samples of each network per epoch if they are drawn anew: as many as the steps of an epoch use."""
    finite: Count = 100_000
    """Training samples of each network if they are drawn once: in 40 epochs of 1,562 steps each is used 40 times, as in
    the released code."""

    @classmethod
    def quick(cls) -> Self:
        return cls(
            seeds=2,
            fc_layers=(15, 20, 25),
            small_layers=(4, 5, 6),
            cnn_layers=(4, 4),
            dim=10,
            image=6,
            outputs=20,
            epochs=10,
            steps=100,
            lr=0.2,
            cnn_lr=0.1,
            cnn_norm_lr=0.5,
            train=6_400,
            finite=320,
            evaluation=500,
        )

    def validate(self) -> None:
        for kind in self.networks:
            validate_widths(self.layers(kind), (self.multiple,))
        if "cnn" in self.networks:
            self.validate_convolutions()
        if "after" in self.norm:
            self.validate_norm("--norm after")
        for data in self.data:
            validate_batch(self.train if data == "infinite" else self.finite, self.batch)

    def layers(self, kind: str) -> tuple[int, ...]:
        return {"fc": self.fc_layers, "cnn": self.cnn_layers, "fc-small": self.small_layers}[kind]

    def source(self, kind: str, data: str) -> us.data.Gaussian:
        """The source of inputs of a kind of network, drawn anew in every epoch or once."""
        fresh = data == "infinite"
        return self.gaussian(kind, self.train if fresh else self.finite, fresh)

    def teacher(self, kind: str) -> us.Population:
        """One teacher per seed, with standardised outputs."""
        import torch

        source = self.source(kind, self.data[0])

        def teacher(seed: int) -> us.Population:
            plain = us.teachers.distinct_rows(
                self.sizes(kind),
                seeds=seed,
                image=self.image_size(kind),
                unit=False,
                bias_spread=_BIAS_SPREAD,
                dtype=self.torch_dtype,
            )
            return us.teachers.standardised(plain, source.evaluating(seed, dtype=torch.float64))

        return us.nets.stack([teacher(seed) for seed in self.seed_names])

    def experiment(self, *runs: us.Run) -> Experiment:
        groups = []
        for kind in self.networks:
            self.require_memory(kind, (self.multiple,), self.seeds * len(self.data))
            teacher = self.teacher(kind)
            for norm in self.norm:
                students = us.students.like_linear(
                    teacher, multiple=self.multiple, norm="after" if norm == "after" else None
                )
                lr = self.lr if kind != "cnn" else self.cnn_norm_lr if norm == "after" else self.cnn_lr
                for data in self.data:
                    group = us.training.Group(students, teacher, self.source(kind, data))
                    groups.append(({"kind": kind, "norm": norm, "data": data}, group, lr))
        return self.training(groups)
