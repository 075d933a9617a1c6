"""What a student is asked to do: come close to its teacher's outputs, or give its teacher's answer."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
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
        return torch.zeros_like(teacher).scatter_(-1, teacher.argmax(-1, keepdim=True), 1.0)

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
