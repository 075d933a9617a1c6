"""The study `mnist-classifier`: networks that learn two digits of MNIST (Phuong 2021, figs 3.3, 3.4)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Self

import understudy as us
from understudy.lab.mnist import CONVOLUTIONS, OnMnist
from understudy.lab.study import Experiment, TrainingStudy

if TYPE_CHECKING:
    from understudy.nets import Population
    from understudy.store import Run


@dataclass(frozen=True)
class MnistClassifier(OnMnist, TrainingStudy):
    """Networks of six convolutions and two linear layers that learn two digits by Adam on the logistic loss.

    Weights and biases are initialised as by torch's Linear and Conv2d; those of the linear layers are then scaled down.
    """

    name: ClassVar[str] = "mnist-classifier"
    summary: ClassVar[str] = "networks that learn two digits of MNIST from their labels, for orthogonal-mnist"
    figures: ClassVar[str] = "the networks of S3 figs. 3.3, 3.4"
    decides: ClassVar[str] = ""

    @classmethod
    def quick(cls) -> Self:
        return cls(seeds=2, train=1_000, evaluation=500, channels=(16, 32), epochs=8, batch=25)

    def experiment(self, *runs: Run) -> Experiment:
        data, networks = self.source(), self.untrained()
        return Experiment(
            groups=(us.training.Group(networks, networks, data, us.Logistic(), labelled=True),),
            parameters=tuple({"seed": seed} for seed in self.seed_names),
            optimiser=us.Adam(lr=self.lr, batch=self.batch),
            epochs=self.epochs,
            steps=data.train // self.batch,
        )

    def untrained(self) -> Population:
        """One network per seed with its initial weights."""
        import torch

        _, *image = us.data.Mnist.image
        convolutions = tuple(us.nets.Convolution(*each) for each in CONVOLUTIONS)
        shape = us.nets.Shape(self.sizes, image=(image[0], image[1]), convolutions=convolutions)
        blank = us.nets.Population(
            tuple(
                us.nets.Layer(
                    *(torch.zeros(self.seeds, *size, dtype=self.torch_dtype) for size in (weight, weight[:1]))
                )
                for weight in shape.weights
            ),
            torch.tensor(self.seed_names),
            image=shape.image,
            convolutions=shape.convolutions,
        )
        networks, count = us.students.like_linear(blank), len(CONVOLUTIONS)
        linear = [
            us.nets.Layer(self.start * weight, None if bias is None else self.start * bias)
            for weight, bias in networks.layers[count:]
        ]
        return replace(networks, layers=(*networks.layers[:count], *linear))
