"""Every measure of a teacher–student pair with one signature, and the symmetries that it has."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

import understudy.measures as measures
from understudy.nets import Layer, Population

Axis = Literal["net", "teacher", "student"]
Symmetry = Literal["student permutation", "teacher permutation", "positive rescaling"]
ALL: tuple[Symmetry, ...] = ("student permutation", "teacher permutation", "positive rescaling")
PERMUTATIONS = ALL[:2]
PAIRS: tuple[Axis, ...] = ("net", "teacher", "student")
MATRIX: tuple[Axis, ...] = ("net", "student", "teacher")


@dataclass(frozen=True, eq=False)
class Pair:
    """Teachers and students paired by index, their inputs, and the hidden layer that is compared (0 is the lowest)."""

    teacher: Population
    student: Population
    x: Tensor
    layer: int = 0

    @property
    def hidden(self) -> tuple[Tensor, Tensor]:
        both = (network.activations(self.x).hidden[self.layer] for network in (self.teacher, self.student))
        teacher, student = both
        return teacher, student

    @property
    def rho(self) -> Tensor:
        return measures.correlation(*self.hidden)

    @property
    def lowest(self) -> tuple[Layer, Layer]:
        return self.teacher.layers[0], self.student.layers[0]

    @property
    def best(self) -> Tensor:
        return measures.best_students(self.rho).partner

    def part(self, name: str) -> Tensor:
        return getattr(measures.modulation(self.teacher, self.student, self.x, (name,))[self.layer], name)


@dataclass(frozen=True)
class Measure:
    """A function of the package applied to a pair, the axes of its result, and the symmetries that it has.

    Permuting students (teachers) permutes the result along its student (teacher) axis, or leaves it unchanged if it has
    none. Positive rescaling multiplies w_k and b_k of students by c_k > 0 and divides v_k by c_k. `deep` is whether it
    is defined above the lowest layer.
    """

    function: Callable
    apply: Callable[[Pair], Tensor]
    shape: tuple[Axis, ...]
    invariant: tuple[Symmetry, ...] = ALL
    deep: bool = True

    def __call__(self, pair: Pair) -> Tensor:
        return self.apply(pair)


TEACHERS: tuple[Axis, ...] = ("net", "teacher")
STUDENTS: tuple[Axis, ...] = ("net", "student")

MEASURES: dict[str, Measure] = {
    "correlation": Measure(measures.correlation, lambda pair: pair.rho, PAIRS),
    # An index changes when the nodes that it refers to are permuted.
    "best_student": Measure(measures.best_students, lambda pair: pair.best, TEACHERS, ALL[1:]),
    "best_student_correlation": Measure(
        measures.best_students, lambda pair: measures.best_students(pair.rho).correlation, TEACHERS
    ),
    "best_teacher": Measure(
        measures.best_teachers, lambda pair: measures.best_teachers(pair.rho).partner, STUDENTS, (ALL[0], ALL[2])
    ),
    "best_teacher_correlation": Measure(
        measures.best_teachers, lambda pair: measures.best_teachers(pair.rho).correlation, STUDENTS
    ),
    "rho_mean": Measure(
        measures.mean_best_correlation, lambda pair: measures.mean_best_correlation(pair.rho), ("net",)
    ),
    "recovered_nodes": Measure(measures.recovered, lambda pair: measures.recovered(pair.rho), TEACHERS),
    "recovered": Measure(measures.recovered_share, lambda pair: measures.recovered_share(pair.rho), ("net",)),
    "students_per_teacher": Measure(
        measures.students_per_teacher,
        lambda pair: measures.students_per_teacher(measures.best_teachers(pair.rho), pair.rho.shape[1], 0.3),
        TEACHERS,
    ),
    "canonical_correlations": Measure(
        measures.canonical_correlations,
        lambda pair: measures.canonical_correlations(*pair.hidden).correlation.mean(1),
        ("net",),
    ),
    "svcca": Measure(measures.svcca, lambda pair: measures.svcca(*pair.hidden, 0.9), ("net",), PERMUTATIONS),
    "active_share": Measure(
        measures.active_share, lambda pair: measures.active_share(pair.student, pair.x, pair.layer), STUDENTS
    ),
    "pre_activations": Measure(
        measures.pre_activations,
        lambda pair: measures.pre_activations(pair.student, pair.x)[pair.layer].mean(1),
        STUDENTS,
        PERMUTATIONS,
    ),
    "gradient_norm": Measure(
        measures.gradient_norm,
        lambda pair: measures.gradient_norm(pair.student, pair.x, pair.teacher(pair.x)),
        ("net",),
        PERMUTATIONS,
    ),
    "sharpness": Measure(
        measures.hessian_eigenvalues,
        lambda pair: measures.hessian_eigenvalues(pair.student, pair.x, pair.teacher(pair.x))[:, 0],
        ("net",),
        PERMUTATIONS,
    ),
    "sin_angle": Measure(
        measures.sin_angle,
        lambda pair: measures.sin_angle(*(layer.weight for layer in pair.lowest)),
        PAIRS,
        deep=False,
    ),
    "bias_gap": Measure(measures.bias_gap, lambda pair: measures.bias_gap(*pair.lowest), PAIRS, deep=False),
    "alignment_eps": Measure(
        measures.alignment_eps, lambda pair: measures.alignment_eps(*pair.lowest), PAIRS, deep=False
    ),
    "eps_aligned": Measure(
        measures.eps_aligned, lambda pair: measures.eps_aligned(*pair.lowest, 0.1), PAIRS, deep=False
    ),
    "best_student_sin_angle": Measure(
        measures.matched_alignment,
        lambda pair: measures.matched_alignment(*pair.lowest, pair.best).sin_angle,
        TEACHERS,
        deep=False,
    ),
    "best_student_bias_gap": Measure(
        measures.matched_alignment,
        lambda pair: measures.matched_alignment(*pair.lowest, pair.best).bias_gap,
        TEACHERS,
        deep=False,
    ),
    "fan_out": Measure(
        measures.fan_out, lambda pair: measures.fan_out(pair.student, pair.layer), STUDENTS, PERMUTATIONS
    ),
    "contribution": Measure(
        measures.contribution, lambda pair: measures.contribution(pair.student, pair.layer), STUDENTS
    ),
    "modulated_fan_out": Measure(
        measures.modulated_fan_out,
        lambda pair: measures.modulated_fan_out(pair.student, pair.x)[pair.layer],
        STUDENTS,
        PERMUTATIONS,
    ),
    "beta_star": Measure(measures.modulation, lambda pair: pair.part("beta_star"), MATRIX, PERMUTATIONS),
    "h_star": Measure(measures.modulation, lambda pair: pair.part("h_star"), MATRIX, PERMUTATIONS),
    "observers_in_band": Measure(
        measures.observers_in_band,
        lambda pair: measures.observers_in_band(*pair.lowest, pair.x, 0.1, 0.1).observed,
        PAIRS,
        deep=False,
    ),
    "observers_on_both_sides": Measure(
        measures.observers_on_both_sides,
        lambda pair: measures.observers_on_both_sides(*pair.lowest, pair.x).observed,
        PAIRS,
        deep=False,
    ),
}

OTHERS = {
    "align": "of single networks, by the measures above",
    "diagonal_mass": "of a matrix and an order",
    "final_winner_rank": "over epochs",
    "first_recovery": "over epochs",
    "focus_shifts": "over epochs",
    "hessian": "of one network",
    "linear_cka": "of products of whole layers",
    "loss_gradient": "of one network",
    "mean_rank": "over epochs",
    "median_rank": "over epochs",
    "ranks": "of correlations alone",
    "regular": "of one layer",
    "reorder_students": "of a matrix and correlations",
    "sample_modulation": "of every sample",
    "squared_error": "of outputs and targets",
}
"""Functions of the package that are not measures of one pair, and why; their own tests cover them."""
