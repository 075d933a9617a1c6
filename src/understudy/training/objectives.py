"""What a student is asked to do: come close to its teacher's outputs, or give its teacher's answer.

A network answers with the class of its largest output; one with a single output with one of two classes, by its sign.
"""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor


@runtime_checkable
class Objective(Protocol):
    """Losses and gradients of single samples; averaging over a batch belongs to who draws it."""

    @property
    def name(self) -> str: ...

    def target(self, teacher: Float[Tensor, "*batch out"]) -> Float[Tensor, "*batch out"]:
        """What the student sees of the teacher's outputs."""

    def losses(
        self, output: Float[Tensor, "*batch out"], target: Float[Tensor, "*batch out"]
    ) -> Float[Tensor, "*batch"]:
        """The loss that is descended, a sample."""

    def residual(
        self, output: Float[Tensor, "*batch out"], target: Float[Tensor, "*batch out"]
    ) -> Float[Tensor, "..."]:
        """Its derivative by the outputs."""

    def reported(
        self, output: Float[Tensor, "*batch out"], target: Float[Tensor, "*batch out"]
    ) -> Float[Tensor, "..."]:
        """The number that tables show, a sample."""


@dataclass(frozen=True)
class SquaredError:
    """½‖f* − f‖² (S0 eqn 2). Tables show the squared error averaged over outputs, as the papers' figures do."""

    name = "squared-error"

    def target(self, teacher: Float[Tensor, "*batch out"]) -> Float[Tensor, "*batch out"]:
        return teacher

    def losses(
        self, output: Float[Tensor, "*batch out"], target: Float[Tensor, "*batch out"]
    ) -> Float[Tensor, "*batch"]:
        return (output - target).square().sum(-1) / 2

    def residual(
        self, output: Float[Tensor, "*batch out"], target: Float[Tensor, "*batch out"]
    ) -> Float[Tensor, "..."]:
        return output - target

    def reported(
        self, output: Float[Tensor, "*batch out"], target: Float[Tensor, "*batch out"]
    ) -> Float[Tensor, "..."]:
        return (output - target).square().mean(-1)


@dataclass(frozen=True)
class CrossEntropy:
    """−Σ q log softmax(f): q is one at the teacher's largest output (hard), or the teacher's softmax (soft)."""

    soft: bool = False

    @property
    def name(self) -> str:
        return f"cross-entropy-{'soft' if self.soft else 'hard'}"

    def target(self, teacher: Float[Tensor, "*batch out"]) -> Float[Tensor, "*batch out"]:
        if self.soft:
            return teacher.softmax(-1)
        return one_hot(teacher.argmax(-1), teacher.shape[-1], teacher.dtype)

    def losses(
        self, output: Float[Tensor, "*batch out"], target: Float[Tensor, "*batch out"]
    ) -> Float[Tensor, "*batch"]:
        return -(target * output.log_softmax(-1)).sum(-1)

    def residual(
        self, output: Float[Tensor, "*batch out"], target: Float[Tensor, "*batch out"]
    ) -> Float[Tensor, "..."]:
        return output.softmax(-1) - target

    def reported(
        self, output: Float[Tensor, "*batch out"], target: Float[Tensor, "*batch out"]
    ) -> Float[Tensor, "..."]:
        return self.losses(output, target)


@dataclass(frozen=True)
class Logistic:
    """log(1 + e^(−y f)), y = ±1 the sign of the teacher's output: two classes told apart by one output (S3 eq. 3.3)."""

    name = "logistic"

    def target(self, teacher: Float[Tensor, "*batch out"]) -> Float[Tensor, "*batch out"]:
        return torch.where(teacher > 0, 1.0, -1.0).to(teacher.dtype)

    def losses(
        self, output: Float[Tensor, "*batch out"], target: Float[Tensor, "*batch out"]
    ) -> Float[Tensor, "*batch"]:
        return torch.nn.functional.softplus(-target * output).sum(-1)

    def residual(
        self, output: Float[Tensor, "*batch out"], target: Float[Tensor, "*batch out"]
    ) -> Float[Tensor, "..."]:
        return -target * (-target * output).sigmoid()

    def reported(
        self, output: Float[Tensor, "*batch out"], target: Float[Tensor, "*batch out"]
    ) -> Float[Tensor, "..."]:
        return self.losses(output, target)


def of_labels(labels: Int[Tensor, "*batch"], outputs: int, dtype: torch.dtype) -> Float[Tensor, "*batch out"]:
    """What a network should give for labels: 1 at the label, 0 elsewhere; of a single output −1 for 0 and 1 for 1."""
    if outputs == 1:
        return (2 * labels - 1).unsqueeze(-1).to(dtype)
    return one_hot(labels, outputs, dtype)


def answered_class(output: Float[Tensor, "*batch out"]) -> Int[Tensor, "*batch"]:
    """Which class a network answers with."""
    return (output[..., 0] > 0).long() if output.shape[-1] == 1 else output.argmax(-1)


def one_hot(labels: Int[Tensor, "*batch"], classes: int, dtype: torch.dtype) -> Float[Tensor, "*batch out"]:
    """1 at the label, 0 elsewhere."""
    zeros = torch.zeros(*labels.shape, classes, dtype=dtype, device=labels.device)
    return zeros.scatter_(-1, labels.unsqueeze(-1), 1.0)
