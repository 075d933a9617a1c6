"""What a measure looks at: teachers and students paired one to one, on inputs, at one hidden layer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from jaxtyping import Float
from torch import Tensor

from understudy.errors import UserError
from understudy.measures.correlation import correlation
from understudy.nets import Activations, Layer, Population


@dataclass(frozen=True, eq=False)
class Pair:
    """E teachers, E students, the inputs both see, and the hidden layer that is compared (0 is the lowest).

    Activations and their correlation are computed when first asked for, once.
    """

    teacher: Population
    student: Population
    x: Float[Tensor, "sample in"] | Float[Tensor, "net sample in"]
    layer: int = 0

    def __post_init__(self) -> None:
        teacher, student = self.teacher, self.student
        if len(teacher) != len(student):
            raise UserError(
                f"{len(teacher)} teachers and {len(student)} students do not pair one to one: repeat the teachers with "
                "teacher[indices], one for each student"
            )
        if teacher.inputs != student.inputs or self.x.shape[-1] != teacher.inputs:
            raise UserError(
                f"the teacher reads {teacher.inputs} inputs, the student {student.inputs}, the data has "
                f"{self.x.shape[-1]}: the three must be equal, choose networks and data of one input size"
            )
        hidden = min(len(teacher.layers), len(student.layers)) - 1
        if not 0 <= self.layer < hidden:
            allowed = (
                f"choose 0 (lowest) to {hidden - 1}" if hidden > 0 else "networks of one layer have no nodes to compare"
            )
            raise UserError(f"layer {self.layer} is not a hidden layer of both networks: {allowed}")

    @cached_property
    def teacher_activations(self) -> Activations:
        return self.teacher.activations(self.x)

    @cached_property
    def student_activations(self) -> Activations:
        return self.student.activations(self.x)

    @cached_property
    def rho(self) -> Float[Tensor, "net teacher student"]:
        """The correlation of the two layers (S0 eqn 9)."""
        return correlation(self.teacher_hidden, self.student_hidden)

    @property
    def teacher_hidden(self) -> Float[Tensor, "net sample teacher"]:
        return self.teacher_activations.hidden[self.layer]

    @property
    def student_hidden(self) -> Float[Tensor, "net sample student"]:
        return self.student_activations.hidden[self.layer]

    @property
    def lowest(self) -> tuple[Layer, Layer]:
        """The teacher's and the student's weights, where they read the same inputs and so can be compared directly."""
        if self.layer != 0:
            raise UserError(
                f"weights of layer {self.layer} have different inputs in teacher and student, so their angle means "
                "nothing: compare weights at layer 0, activations at any layer"
            )
        return self.teacher.layers[0], self.student.layers[0]

    def at(self, layer: int) -> Pair:
        """The same pair at another layer; what was computed of the activations is shared."""
        other = replace(self, layer=layer)
        other.__dict__["teacher_activations"] = self.teacher_activations
        other.__dict__["student_activations"] = self.student_activations
        return other
