"""Objectives: losses that compare a student's outputs with its teacher's, and their gradients.

A network predicts the class of its largest output. With a single output there are two classes, given by its sign.
"""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

Outputs = Float[Tensor, "*batch out"]


@runtime_checkable
class Objective(Protocol):
    """Losses and gradients per sample. Engines average them over the batch.

    Implement this protocol to train with another loss; it then runs on the engines `batched` and `autograd`.
    """

    @property
    def name(self) -> str:
        """Short name."""

    def target(self, teacher: Outputs) -> Outputs:
        """Compute the student's targets from the teacher's outputs.

        Args:
            teacher: Outputs of the teacher.
        """

    def losses(self, output: Outputs, target: Outputs) -> Float[Tensor, "*batch"]:
        """Compute the loss that training minimises, per sample.

        Args:
            output: Outputs of the student.
            target: What `target` returned.
        """

    def residual(self, output: Outputs, target: Outputs) -> Float[Tensor, "..."]:
        """Compute the derivative of `losses` with respect to the outputs.

        Args:
            output: Outputs of the student.
            target: What `target` returned.
        """

    def reported_loss(self, output: Outputs, target: Outputs) -> Float[Tensor, "..."]:
        """Compute the loss that tables report, per sample.

        Args:
            output: Outputs of the student.
            target: What `target` returned.
        """


@dataclass(frozen=True)
class SquaredError:
    """Squared error ½‖f* − f‖² between teacher f* and student f (Tian 2020, eq. 2).

    Tables report the squared error averaged over outputs, as the figures of the papers do.
    """

    name = "squared-error"

    def target(self, teacher: Outputs) -> Outputs:
        """Return the teacher's outputs f*.

        Args:
            teacher: Outputs of the teacher.
        """
        return teacher

    def losses(self, output: Outputs, target: Outputs) -> Float[Tensor, "*batch"]:
        """Compute ½‖f − f*‖² of each sample.

        Args:
            output: Outputs of the student.
            target: What `target` returned.
        """
        return (output - target).square().sum(-1) / 2

    def residual(self, output: Outputs, target: Outputs) -> Float[Tensor, "..."]:
        """Compute f − f*.

        Args:
            output: Outputs of the student.
            target: What `target` returned.
        """
        return output - target

    def reported_loss(self, output: Outputs, target: Outputs) -> Float[Tensor, "..."]:
        """Compute the squared error of each sample, averaged over outputs.

        Args:
            output: Outputs of the student.
            target: What `target` returned.
        """
        return (output - target).square().mean(-1)


@dataclass(frozen=True)
class CrossEntropy:
    """Cross-entropy −Σ q log softmax(f) of the student's outputs f.

    Args:
        soft: Use the teacher's softmax as q. Otherwise q is one at the teacher's largest output and zero elsewhere.
    """

    soft: bool = False

    @property
    def name(self) -> str:
        """Short name, with `soft` or `hard`."""
        return f"cross-entropy-{'soft' if self.soft else 'hard'}"

    def target(self, teacher: Outputs) -> Outputs:
        """Compute q: the teacher's softmax, or one at its largest output.

        Args:
            teacher: Outputs of the teacher.
        """
        if self.soft:
            return teacher.softmax(-1)
        return one_hot(teacher.argmax(-1), teacher.shape[-1], teacher.dtype)

    def losses(self, output: Outputs, target: Outputs) -> Float[Tensor, "*batch"]:
        """Compute −Σ q log softmax(f) of each sample; tables report it too.

        Args:
            output: Outputs of the student.
            target: What `target` returned.
        """
        return -(target * output.log_softmax(-1)).sum(-1)

    def residual(self, output: Outputs, target: Outputs) -> Float[Tensor, "..."]:
        """Compute softmax(f) − q.

        Args:
            output: Outputs of the student.
            target: What `target` returned.
        """
        return output.softmax(-1) - target

    reported_loss = losses


@dataclass(frozen=True)
class Logistic:
    """Logistic loss log(1 + e^(−y f)) of a single output f, where y = ±1 is the class (Phuong 2021, eq. 3.3).

    y is the sign of the teacher's output, or of the label.
    """

    name = "logistic"

    def target(self, teacher: Outputs) -> Outputs:
        """Compute y, the sign of the teacher's output; −1 at 0.

        Args:
            teacher: Outputs of the teacher.
        """
        return torch.where(teacher > 0, 1.0, -1.0).to(teacher.dtype)

    def losses(self, output: Outputs, target: Outputs) -> Float[Tensor, "*batch"]:
        """Compute log(1 + e^(−y f)) of each sample; tables report it too.

        Args:
            output: Outputs of the student.
            target: What `target` returned.
        """
        return torch.nn.functional.softplus(-target * output).sum(-1)

    def residual(self, output: Outputs, target: Outputs) -> Float[Tensor, "..."]:
        """Compute −y / (1 + e^(y f)).

        Args:
            output: Outputs of the student.
            target: What `target` returned.
        """
        return -target * (-target * output).sigmoid()

    reported_loss = losses


def label_targets(labels: Int[Tensor, "*batch"], outputs: int, dtype: torch.dtype) -> Outputs:
    """Compute target outputs for labels: one-hot, or −1 and 1 for the labels 0 and 1 of a single output."""
    return one_hot(labels, outputs, dtype) if outputs > 1 else (2 * labels - 1).unsqueeze(-1).to(dtype)


def predict_class(output: Outputs) -> Int[Tensor, "*batch"]:
    """Predict a class: the largest output, or the sign of a single one."""
    return (output[..., 0] > 0).long() if output.shape[-1] == 1 else output.argmax(-1)


def one_hot(labels: Int[Tensor, "*batch"], classes: int, dtype: torch.dtype) -> Outputs:
    """Encode labels as vectors that are 1 at the label and 0 elsewhere."""
    zeros = torch.zeros(*labels.shape, classes, dtype=dtype, device=labels.device)
    return zeros.scatter_(-1, labels.unsqueeze(-1), 1.0)
