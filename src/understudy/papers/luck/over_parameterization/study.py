"""How wide a student should be: 1 to 50 times the teacher's nodes, fully connected or convolutional: S2 fig 12."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, get_args

import understudy as us
from understudy.errors import UserError
from understudy.lab.options import check, validate_batch, validate_widths
from understudy.lab.study import Experiment, TrainingStudy, ranked

if TYPE_CHECKING:
    from understudy.data import Source
    from understudy.nets import Population
    from understudy.store import Run
    from understudy.training import Group

Kind = Literal["fc", "cnn"]
NAMES = {"fc": "fully connected", "cnn": "convolutional, BatchNorm"}


@dataclass(frozen=True)
class OverParameterization(TrainingStudy):
    """Whether wider students match their teacher better, more steadily and sooner, and where that ends.

    Teachers are S2's as its released code makes them: few values, rows of every layer scaled to length 1. Students
    start as torch's Linear and Conv2d do; convolutional ones have BatchNorm after each ReLU.
    """

    name: ClassVar[str] = "over-parameterization"
    summary: ClassVar[str] = "how well, how surely and how soon students of 1 to 50 times the nodes match their teacher"
    figures: ClassVar[str] = "S2 fig 12"
    decides: ClassVar[str] = "D9"

    dtype: Literal["float32", "tf32", "float64"] = "tf32"
    """Numbers to train with; tf32 is float32 whose products a card may round to 11 bits, which is faster."""
    networks: tuple[Kind, ...] = ("fc",)
    """Kinds of networks: fully connected (left panel of the figure), or convolutional with BatchNorm (right), which
    takes about 700 times the work a step."""
    teacher_layers: tuple[int, ...] = (10, 15, 20, 25)
    """Hidden nodes of the teacher, or channels, layer by layer, the lowest first."""
    multiple: tuple[float, ...] = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0)
    """Over-realizations: how many times as many nodes or channels each hidden layer of the student has."""
    dim: int = 20
    """Inputs d of fully connected networks."""
    image: int = 16
    """Height and width of the images that convolutional networks see, of one channel."""
    outputs: int = 100
    """Outputs C."""
    input_std: float = 10.0
    """Standard deviation of each input."""
    epochs: int = 40
    """Epochs; networks are looked at after each."""
    steps: int = 1_562
    """Steps an epoch."""
    batch: int = 64
    """Samples a step, drawn with replacement."""
    lr: float = 0.01
    """Learning rate of plain SGD on the squared error averaged over batch and outputs, as the released code has it;
    the ½‖f*−f‖² of the two-layer studies would be descended at 2/C of it."""
    cnn_lr: float = 0.02
    """The same of convolutional networks: what the thousands of features of the widest ones allow."""
    train: int = 100_000
    """Training samples of each network and epoch: every epoch draws new ones."""
    evaluation: int = 2_000
    """Evaluation samples of each network: losses and correlations are measured on them."""

    @classmethod
    def quick(cls) -> Self:
        return cls(seeds=5, multiple=(1.0, 2.0, 5.0, 10.0), epochs=12, steps=250, lr=0.02, train=16_000, evaluation=500)

    def validate(self) -> None:
        for field in ("teacher_layers", "dim", "outputs", "epochs", "steps", "batch", "train", "evaluation"):
            check(self, field, least=1)
        for field in ("input_std", "lr", "cnn_lr"):
            check(self, field, above=0)
        check(self, "multiple", above=0, distinct=True)
        for nodes in self.teacher_layers:
            validate_widths(nodes, self.multiple)
        validate_batch(self.train, self.batch)
        allowed = get_args(Kind)
        if not self.networks:
            raise UserError(f"--networks: no value was given; give one or more of {', '.join(allowed)}")
        for kind in self.networks:
            if kind not in allowed:
                raise UserError(f"--networks: {kind} was given; allowed are {', '.join(allowed)}")
        if len(set(self.networks)) < len(self.networks):
            raise UserError(f"--networks: {' '.join(self.networks)} was given; name each value once")
        # A convolution takes two pixels off, and one has to be left.
        check(self, "image", least=2 * len(self.teacher_layers) + 1 if "cnn" in self.networks else 1)
        if "cnn" in self.networks and self.batch == 1:
            raise UserError("--batch: 1 was given; allowed with BatchNorm (--networks cnn) is a whole number from 2")

    @property
    def seed_names(self) -> range:
        return range(1, self.seeds + 1)

    def rate(self, kind: Kind) -> float:
        """Of ½‖f*−f‖², whose gradient is C/2 times that of the squared error averaged over outputs."""
        return (self.lr if kind == "fc" else self.cnn_lr) * 2 / self.outputs

    def source(self, kind: Kind) -> Source:
        dim = self.dim if kind == "fc" else self.image**2
        return us.data.Gaussian(dim, self.input_std, self.train, self.evaluation, fresh=True)

    def _image(self, kind: Kind) -> tuple[int, int] | None:
        return None if kind == "fc" else (self.image, self.image)

    def _sizes(self, kind: Kind) -> tuple[int, ...]:
        return (self.dim if kind == "fc" else 1, *self.teacher_layers, self.outputs)

    def _require_memory(self, kind: Kind) -> None:
        """Check that the students of a kind fit in memory, before they and their teachers are built."""
        from understudy.training.plan import require_memory

        first, *_, outputs = sizes = self._sizes(kind)
        students = [(first, *us.students.hidden_sizes(sizes, k), outputs) for k in self.multiple]
        shapes = [us.nets.Shape(each, image=self._image(kind)) for each in students]
        require_memory([(shape, self.seeds) for shape in shapes], self.torch_dtype)

    def teacher(self, kind: Kind) -> Population:
        """A convolutional one has no BatchNorm: as the released code starts and never trains it, it does nothing."""
        made = us.teachers.separated(
            self._sizes(kind),
            seeds=self.seed_names,
            image=self._image(kind),
            bias_spread=0.5,
            dtype=self.torch_dtype,
        )
        *hidden, (weight, bias) = made.layers
        return replace(made, layers=(*hidden, us.nets.Layer(weight / weight.norm(dim=2, keepdim=True), bias)))

    def experiment(self, *runs: Run) -> Experiment:
        groups: list[tuple[dict[str, Any], Group]] = []
        for kind in self.networks:
            self._require_memory(kind)
            source, teacher = self.source(kind), self.teacher(kind)
            norm: us.students.BatchNorm = None if kind == "fc" else "after"
            groups += [
                (
                    {"networks": kind, "multiple": float(k)},
                    us.training.Group(us.students.like_linear(teacher, multiple=k, norm=norm), teacher, source),
                )
                for k in self.multiple
            ]
        parameters = tuple(apart | {"seed": seed} for apart, _ in groups for seed in self.seed_names)
        return Experiment(
            groups=tuple(group for _, group in groups),
            parameters=parameters,
            optimiser=us.SGD(lr=tuple(self.rate(apart["networks"]) for apart in parameters), batch=self.batch),
            epochs=self.epochs,
            steps=self.steps,
            ranks=frozenset(ranked(self.epochs)),
        )
