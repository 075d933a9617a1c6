"""Options and training of studies on Gaussian inputs (Tian et al. 2019, sec. 5), and of those of its theorems."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from annotated_types import Ge, Lt

import understudy as us
from understudy._errors import UserError
from understudy.lab.options import Count, Positive, Steps
from understudy.lab.study import Dtype, ExactStudy, Experiment, Study, ranked

if TYPE_CHECKING:
    import numpy as np

LEARNED = 0.9
"""Mean best correlation above which the lowest layer counts as learned: the paper's "moves towards 1"."""
ERRORS = 2
"""Standard errors by which means over seeds must differ, or may differ where a claim allows for noise."""
LEAST_STEPS = 62_480
"""Steps of the released code: 40 epochs of 100,000 samples in batches of 64."""
_BLOCK = 100
"""Batches that are drawn at a time."""


@dataclass(frozen=True)
class OnGaussianInputs(Study):
    """Networks on Gaussian inputs, trained by SGD; networks of the kind `cnn` are convolutional."""

    dtype: Dtype = "tf32"
    dim: Count = 20
    """Number of inputs d of fully connected networks."""
    image: Count = 16
    """Height and width of the images, with one channel, that are the inputs of convolutional networks."""
    outputs: Count = 100
    """Number of outputs C."""
    input_std: Positive = 10.0
    """Standard deviation of each input."""
    epochs: Count = 40
    """Number of epochs; networks are probed after each."""
    steps: Steps = 1_562
    """Steps per epoch."""
    batch: Count = 64
    """Samples per step, drawn with replacement."""
    momentum: Annotated[float, Ge(0), Lt(1)] = 0.0
    """Momentum of SGD; 0 in the released code."""
    evaluation: Count = 2_000
    """Evaluation samples of each network, on which losses and correlations are measured."""

    def layers(self, kind: str) -> tuple[int, ...]:
        """Hidden nodes, or channels, of the teachers of a kind, layer by layer from the lowest."""
        raise NotImplementedError

    def validate_convolutions(self) -> None:
        """Refuse images that the convolutions of the teacher leave no pixel of."""
        count = len(self.layers("cnn"))
        if self.image <= 2 * count:
            raise UserError(
                f"--image must be at least {2 * count + 1} with {count} convolutions, each of which takes off 2 "
                f"pixels, got {self.image}"
            )

    def validate_norm(self, options: str) -> None:
        """Refuse batches of one sample, which BatchNorm (chosen by these options) cannot normalise."""
        if self.batch < 2:
            raise UserError(f"--batch must be at least 2 with BatchNorm ({options}), got {self.batch}")

    def gaussian(self, kind: str, train: int, fresh: bool) -> us.data.Gaussian:
        """The source of inputs of a kind of network, with this many training samples."""
        dim = self.image**2 if kind == "cnn" else self.dim
        return us.data.Gaussian(dim, self.input_std, train, self.evaluation, fresh)

    def image_size(self, kind: str) -> tuple[int, int] | None:
        """Height and width of the inputs of convolutional networks."""
        return (self.image, self.image) if kind == "cnn" else None

    def sizes(self, kind: str) -> tuple[int, ...]:
        """Inputs (or channels of the image), hidden nodes and outputs of the teachers of a kind."""
        return (1 if kind == "cnn" else self.dim, *self.layers(kind), self.outputs)

    def require_memory(self, kind: str, multiples: Iterable[float], networks: int) -> None:
        """Check that as many students of each width fit in memory, before they and their teachers are built."""
        from understudy.training.plan import require_memory

        first, *_, outputs = sizes = self.sizes(kind)
        students = [(first, *us.students.hidden_sizes(sizes, k), outputs) for k in multiples]
        shapes = [us.nets.Shape(each, image=self.image_size(kind)) for each in students]
        require_memory([(shape, networks) for shape in shapes], self.torch_dtype)

    def training(self, groups: Sequence[tuple[dict[str, Any], us.training.Group, float]]) -> Experiment:
        """The experiment of groups with one student per seed, each with its parameters and its learning rate.

        Learning rates are those of the squared error averaged over outputs, whose gradient is 2/C times that of
        ½‖f*−f‖².
        """
        return Experiment(
            groups=tuple(group for _, group, _ in groups),
            parameters=tuple({**one, "seed": seed} for one, _, _ in groups for seed in self.seed_names),
            optimiser=us.SGD(
                lr=tuple(lr * 2 / self.outputs for _, _, lr in groups for _ in self.seed_names),
                batch=self.batch,
                momentum=self.momentum,
            ),
            epochs=self.epochs,
            steps=self.steps,
            ranks=frozenset(ranked(self.epochs)),
        )


@dataclass(frozen=True)
class ExactDescent(ExactStudy):
    """Students of deep teachers on N(0, 1) inputs, trained in float64 and probed at regular steps."""

    arrays: ClassVar[tuple[str, ...]] = ("batch dim", "dim multiple", "outputs multiple")

    renamed: ClassVar[dict[str, str]] = {"looks": "probes"}

    seeds: Count = 8
    """Number of seeds, counted from 1: each is a teacher, its data and its students' initial weights."""
    dim: Count = 10
    """Number of inputs, N(0, 1) each."""
    outputs: Count = 30
    """Number of outputs."""
    multiple: Positive = 2.0
    """Over-parameterization: student nodes per teacher node in every hidden layer."""
    batch: Count = 64
    """Samples per step; every step draws new ones."""
    probes: Count = 20
    """Number of probes, besides the one at the start."""

    def initial(
        self, hidden: Sequence[int], seeds: Sequence[int], *, norm: us.students.BatchNorm = None, evaluation: int = 1
    ) -> tuple[us.Population, us.Population, us.data.Gaussian]:
        """One teacher with these hidden layers and one student per seed, and the source of their inputs."""
        import torch

        sizes = (self.dim, *hidden, self.outputs)
        teacher = us.teachers.distinct_rows(sizes, seeds=seeds, bias_spread=0.5, dtype=torch.float64).to(self.device)
        source = us.data.Gaussian(self.dim, 1.0, train=_BLOCK * self.batch, evaluation=evaluation, fresh=True)
        return teacher, us.students.like_linear(teacher, multiple=self.multiple, norm=norm), source


def standard_errors(values: np.ndarray) -> float:
    """The mean in units of its standard error; NaN for fewer than two values, or if all are equal."""
    spread = float(values.std()) if len(values) > 1 else 0.0
    return float(values.mean()) / spread * (len(values) - 1) ** 0.5 if spread else float("nan")


def diverged_steps(alive: np.ndarray, steps: Sequence[int] | np.ndarray) -> list[int | None]:
    """The first of the steps at which each network was not alive [step, network], or None."""
    return [None if column.all() else int(steps[column.argmin()]) for column in alive.T]
