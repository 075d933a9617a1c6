"""A study of your own: does label noise delay weak teacher nodes?

    understudy run examples/06_your_own_study.py --quick
    understudy run examples/06_your_own_study.py --help

Students learn the class that a teacher gives to its inputs: the largest of its outputs. With probability `noise` a
label is replaced by a random one. Teacher nodes differ in strength; the study measures how well the weaker half is
learned.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Self

import numpy as np
import torch
from annotated_types import Ge, Le

import understudy as us
from understudy.claims import Claims, Verdict, every
from understudy.lab import Experiment, TrainingStudy
from understudy.lab.options import Count, Distinct, Positive
from understudy.measures import THRESHOLD
from understudy.report.figures import Curves
from understudy.report.story import Figure, Number, Story, counted
from understudy.store import Run


@dataclass(frozen=True, eq=False)
class NoisyLabels:
    """Gaussian inputs labelled by a teacher; a share of the training labels is replaced by random classes."""

    inputs: us.data.Gaussian
    teacher: us.Population
    noise: float
    fresh: bool = False

    @property
    def dim(self) -> int:
        return self.inputs.dim

    @property
    def train(self) -> int:
        return self.inputs.train

    @property
    def evaluation(self) -> int:
        return self.inputs.evaluation

    @property
    def classes(self) -> int:
        return self.teacher.sizes[-1]

    def training(self, seed: int, epoch: int = 1, **more) -> torch.Tensor:
        return self.inputs.training(seed, **more)

    def evaluating(self, seed: int, **more) -> torch.Tensor:
        return self.inputs.evaluating(seed, **more)

    def training_labels(self, seed: int, epoch: int = 1) -> torch.Tensor:
        clean = self._labels(self.training(seed), seed)
        generator = torch.Generator().manual_seed(seed)
        other = torch.randint(self.classes, clean.shape, generator=generator)
        return torch.where(torch.rand(clean.shape, generator=generator) < self.noise, other, clean)

    def evaluation_labels(self, seed: int) -> torch.Tensor:
        return self._labels(self.evaluating(seed), seed)

    def _labels(self, x: torch.Tensor, seed: int) -> torch.Tensor:
        which = self.teacher.seeds.tolist().index(seed)
        return self.teacher[which](x)[0].argmax(-1)


@dataclass(frozen=True)
class LabelNoise(TrainingStudy):
    """Whether label noise delays the recovery of weak teacher nodes."""

    name: ClassVar[str] = "label-noise"
    summary: ClassVar[str] = "label noise delays the recovery of weak teacher nodes"
    figures: ClassVar[str] = "none: a study of our own"
    decides: ClassVar[str] = "N1"

    seeds: Count = 16
    """Number of seeds, counted from 1: each is a teacher, its data and its students' initial weights."""
    noise: Annotated[tuple[float, ...], Ge(0), Le(1), Distinct()] = (0.0, 0.2, 0.5)
    """Shares of the training labels that are replaced by random classes."""
    teacher_nodes: Count = 10
    """Hidden nodes of the teacher; node j has a fan-out proportional to 1/j."""
    multiple: Positive = 5.0
    """Student nodes per teacher node."""
    epochs: Count = 60
    """Number of epochs; networks are probed after each."""
    steps: Count = 500
    """Steps per epoch."""
    train: Count = 20_000
    """Training samples of each network."""
    lr: Positive = 0.5
    """Learning rate of SGD on the cross-entropy."""

    @classmethod
    def quick(cls) -> Self:
        return cls(seeds=4, noise=(0.0, 0.5), teacher_nodes=6, epochs=15, steps=300, train=5_000)

    def experiment(self, *runs: Run) -> Experiment:
        sizes = (20, self.teacher_nodes, 10)
        teacher = us.teachers.distinct_rows(sizes, polarity=1.0, seeds=self.seed_names)
        students = us.students.gaussian(teacher, multiple=self.multiple, scale=0.5)
        inputs = us.data.Gaussian(sizes[0], std=1.5, train=self.train, evaluation=2_000)
        return Experiment(
            groups=tuple(
                us.training.Group(
                    students, teacher, NoisyLabels(inputs, teacher, noise), us.CrossEntropy(), labelled=True
                )
                for noise in self.noise
            ),
            parameters=tuple({"noise": noise, "seed": seed} for noise in self.noise for seed in self.seed_names),
            optimiser=us.SGD(lr=self.lr, batch=32),
            epochs=self.epochs,
            steps=self.steps,
        )

    def story(self, run: Run) -> Story:
        best = run.array("correlation", "noise seed epoch teacher")
        weak = best.isel(teacher=slice(self.teacher_nodes // 2, None)).mean("teacher")
        end = weak.isel(epoch=-1).median("seed").to_numpy()
        ends = ", ".join(f"{value:.2f} with {noise:.0%} noise" for noise, value in zip(self.noise, end, strict=True))
        figure = Figure(
            "weak-nodes",
            "How well the weak half of the teacher's nodes is learned",
            "Mean correlation of the weaker teacher nodes with their best students.",
            "",
            Curves.from_array(
                weak,
                line="noise",
                labels={noise: f"{noise:.0%} noise" for noise in self.noise},
                name="correlation of weak nodes",
                colours="categories",
                limits=(0.0, 1.02),
                bound=(THRESHOLD, "recovered"),
            ),
        )
        return Story(
            f"Weak teacher nodes end at a mean best correlation of {ends} (median of {counted(self.seeds, 'seed')}).",
            (Number(f"{run.networks.num_rows:,}", "networks"),),
            (figure,),
        )


claims = Claims(fixed="teacher_nodes multiple epochs steps train lr", when=lambda study: len(study.noise) > 1)


@claims.claim(
    "N1",
    statement="with the most noise the weak half of the teacher's nodes ends at a lower mean correlation than with the "
    "least, in every seed",
    paper="our own question",
    values_are="difference of the correlations, per seed",
)
def weak_nodes_suffer(study: LabelNoise, run: Run) -> Verdict:
    best = run.array("correlation", "noise seed teacher").isel(teacher=slice(study.teacher_nodes // 2, None))
    weak = best.mean("teacher")
    least, most = (weak.sel(noise=noise).to_numpy() for noise in (min(study.noise), max(study.noise)))
    return every(np.asarray(least - most), above=0, say="lower by {range:.2f}; in {count} seeds")
