"""Random teachers on Gaussian inputs, fully connected and convolutional, BatchNorm or none: S2 figs 8, 10, 11."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, Self, get_args

import understudy as us
from understudy.errors import UserError
from understudy.lab.options import check, validate_batch, validate_widths
from understudy.lab.study import Experiment, TrainingStudy, ranked

if TYPE_CHECKING:
    from understudy.data import Gaussian
    from understudy.nets import Population
    from understudy.store import Run

Kind = Literal["fc", "cnn", "fc-small"]
Norm = Literal["none", "after"]
Data = Literal["infinite", "finite"]
_BIASES = 0.5
"""S2 sec 5.1: teachers' biases are drawn from U[−.5, .5]."""


@dataclass(frozen=True)
class Gaus(TrainingStudy):
    """How early the students that win were ahead, layer by layer, and what BatchNorm, size and data change in that.

    Teachers have no BatchNorm; their outputs are standardised on the evaluation inputs of their seed. Students start as
    torch's Linear and Conv2d do.
    """

    name: ClassVar[str] = "gaus"
    summary: ClassVar[str] = "how early students that win are ahead, and what BatchNorm, teacher size and data change"
    figures: ClassVar[str] = "S2 figs 8, 10, 11"
    decides: ClassVar[str] = "D5 D7 D8"

    seeds: int = 5
    """How many seeds, counted from 1: each is a teacher, its data and its students' first weights."""
    dtype: Literal["float32", "tf32", "float64"] = "tf32"
    """Numbers to train with; tf32 is float32 whose products a card may round to 11 bits, which is faster."""
    networks: tuple[Kind, ...] = ("fc", "cnn", "fc-small")
    """Which teachers: fully connected, convolutional, and a small fully connected one."""
    norm: tuple[Norm, ...] = ("none", "after")
    """BatchNorm of the students: none, or after each ReLU, with its affine part."""
    data: tuple[Data, ...] = ("infinite", "finite")
    """Training data: drawn anew every epoch, or once."""
    fc_layers: tuple[int, ...] = (50, 75, 100, 125)
    """Hidden nodes of the fully connected teacher, the lowest layer first."""
    small_layers: tuple[int, ...] = (10, 15, 20, 25)
    """Hidden nodes of the small one."""
    cnn_layers: tuple[int, ...] = (64, 64, 64)
    """Channels of the convolutional teacher; each layer is a 3×3 convolution without padding."""
    multiple: float = 10.0
    """How many times as many nodes, or channels, each hidden layer of the student has."""
    dim: int = 20
    """Inputs d of the fully connected networks."""
    image: int = 16
    """Height and width of the images, of one channel, that the convolutional networks see."""
    outputs: int = 100
    """Outputs C."""
    input_std: float = 10.0
    """Standard deviation of each input."""
    epochs: int = 20
    """Epochs; networks are looked at after each."""
    steps: int = 400
    """Steps an epoch."""
    batch: int = 64
    """Samples a step, drawn with replacement."""
    lr: float = 0.3
    """Learning rate of plain SGD on the squared error averaged over batch and outputs; the ½‖f*−f‖² of the two-layer
    studies would be descended at 2/C of it."""
    cnn_lr: float = 0.0025
    """The same of convolutional students without BatchNorm, whose last layer adds up thousands of features."""
    cnn_norm_lr: float = 0.025
    """And of those with it: BatchNorm takes away the mean of these features, which limits the rate."""
    train: int = 25_600
    """Training samples of each network and epoch where they are drawn anew: as many as its steps see."""
    finite: int = 12_800
    """Training samples of each network where they are drawn once: 20 epochs of 400 steps see each 40 times."""
    evaluation: int = 2_000
    """Evaluation samples of each network: losses and correlations are measured on them."""

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
        counts = ("fc_layers", "small_layers", "cnn_layers", "dim", "image", "outputs")
        for field in (*counts, "epochs", "steps", "batch", "train", "finite", "evaluation"):
            check(self, field, least=1)
        for field in ("multiple", "input_std", "lr", "cnn_lr", "cnn_norm_lr"):
            check(self, field, above=0)
        for option, given, allowed in (
            ("--networks", self.networks, get_args(Kind)),
            ("--norm", self.norm, get_args(Norm)),
            ("--data", self.data, get_args(Data)),
        ):
            _check_choices(option, given, allowed)
        for kind in self.networks:
            for nodes in self.layers(kind):
                validate_widths(nodes, (self.multiple,))
        if "cnn" in self.networks and self.image <= (off := 2 * len(self.cnn_layers)):
            raise UserError(
                f"--image: {self.image} was given; {len(self.cnn_layers)} convolutions take {off} pixels off, and "
                f"allowed is a whole number from {off + 1}"
            )
        if "after" in self.norm and self.batch == 1:
            raise UserError("--batch: 1 was given; allowed with BatchNorm (--norm after) is a whole number from 2")
        for data in self.data:
            validate_batch(self.train if data == "infinite" else self.finite, self.batch)

    @property
    def seed_names(self) -> range:
        return range(1, self.seeds + 1)

    def layers(self, kind: str) -> tuple[int, ...]:
        """Hidden nodes, or channels, of the teachers of a kind."""
        return {"fc": self.fc_layers, "cnn": self.cnn_layers, "fc-small": self.small_layers}[kind]

    def source(self, kind: str, data: str) -> Gaussian:
        fresh = data == "infinite"
        inputs = self.image**2 if kind == "cnn" else self.dim
        return us.data.Gaussian(inputs, self.input_std, self.train if fresh else self.finite, self.evaluation, fresh)

    def rate(self, kind: str, norm: str) -> float:
        """Of ½‖f*−f‖², whose gradient is C/2 times that of the squared error averaged over outputs."""
        lr = self.lr if kind != "cnn" else self.cnn_norm_lr if norm == "after" else self.cnn_lr
        return lr * 2 / self.outputs

    def _image(self, kind: str) -> tuple[int, int] | None:
        return (self.image, self.image) if kind == "cnn" else None

    def _sizes(self, kind: str) -> tuple[int, ...]:
        return (1 if kind == "cnn" else self.dim, *self.layers(kind), self.outputs)

    def teacher(self, kind: str) -> Population:
        import torch

        source, image, sizes = self.source(kind, self.data[0]), self._image(kind), self._sizes(kind)

        def made(seed: int) -> Population:
            drawn = us.teachers.separated(
                sizes, seeds=seed, image=image, unit=False, bias_spread=_BIASES, dtype=self.torch_dtype
            )
            return us.teachers.standardised(drawn, source.evaluating(seed, dtype=torch.float64))

        return us.nets.stack([made(seed) for seed in self.seed_names])

    def students(self, teacher: Population, norm: str) -> Population:
        return us.students.like_linear(teacher, multiple=self.multiple, norm="after" if norm == "after" else None)

    def _require_memory(self, kind: str) -> None:
        """Check that the students of a kind fit in memory, before they and their teachers are built."""
        from understudy.training.plan import require_memory

        image, sizes = self._image(kind), self._sizes(kind)
        students = (sizes[0], *us.students.hidden_sizes(sizes, self.multiple), sizes[-1])
        require_memory([(us.nets.Shape(students, image=image), self.seeds * len(self.data))], self.torch_dtype)

    def experiment(self, *runs: Run) -> Experiment:
        groups, apart = [], []
        for kind in self.networks:
            self._require_memory(kind)
            teacher, sources = self.teacher(kind), {data: self.source(kind, data) for data in self.data}
            for norm in self.norm:
                students = self.students(teacher, norm)
                for data, source in sources.items():
                    groups.append(us.training.Group(students, teacher, source))
                    apart.append({"kind": kind, "norm": norm, "data": data})
        return Experiment(
            groups=tuple(groups),
            parameters=tuple({**one, "seed": seed} for one in apart for seed in self.seed_names),
            optimiser=us.SGD(
                lr=tuple(self.rate(one["kind"], one["norm"]) for one in apart for _ in self.seed_names),
                batch=self.batch,
            ),
            epochs=self.epochs,
            steps=self.steps,
            ranks=frozenset(ranked(self.epochs)),
        )


def _check_choices(option: str, given: Sequence[str], allowed: Sequence[str]) -> None:
    """One or more of the allowed words, each once."""
    if not given:
        raise UserError(f"{option}: no value was given; give one or more of {', '.join(allowed)}")
    for word in given:
        if word not in allowed:
            raise UserError(f"{option}: {word} was given; allowed are {', '.join(allowed)}")
    if len(set(given)) < len(given):
        raise UserError(f"{option}: {' '.join(given)} was given; name each value once")
