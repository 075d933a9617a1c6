"""The measures of a pair of networks, by the names under which a run stores them.

Thin on purpose: each applies a function of tensors to the pair and says what is true of it. `best_student` and
`best_teacher` give indices, so permuting the nodes they point to changes them.
"""

from jaxtyping import Bool, Float, Int
from torch import Tensor

from understudy.measures import alignment, matching, observers
from understudy.measures.fan_out import contribution as _contribution
from understudy.measures.fan_out import fan_out as _fan_out
from understudy.measures.modulation import modulated_fan_out as _modulated_fan_out
from understudy.measures.modulation import modulation as _modulation
from understudy.measures.pair import Pair
from understudy.measures.registry import Axis, Symmetry, measure

_PAIRS: tuple[Axis, ...] = ("net", "teacher", "student")
_MATRIX: tuple[Axis, ...] = ("net", "student", "teacher")
_PERMUTE_STUDENTS: Symmetry = "student permutation"
_PERMUTE_TEACHERS: Symmetry = "teacher permutation"
_RESCALE: Symmetry = "positive rescaling"
_ALL = (_PERMUTE_STUDENTS, _PERMUTE_TEACHERS, _RESCALE)


@measure(cites="S0 eqn 9; S2 sec 5.1", shape=_PAIRS, invariant=_ALL)
def correlation(pair: Pair) -> Float[Tensor, "net teacher student"]:
    """ρ_jk, the correlation of the activations of teacher node j and student k."""
    return pair.rho


@measure(cites="S0 eqn 9", shape=("net", "teacher"), invariant=(_PERMUTE_TEACHERS, _RESCALE))
def best_student(pair: Pair) -> Int[Tensor, "net teacher"]:
    """The index of the student that correlates best with each teacher node."""
    return matching.best_students(pair.rho).partner


@measure(cites="S0 eqn 9", shape=("net", "teacher"), invariant=_ALL)
def best_student_correlation(pair: Pair) -> Float[Tensor, "net teacher"]:
    """max_k ρ_jk, how well each teacher node is learned."""
    return matching.best_students(pair.rho).correlation


@measure(cites="S0 fig 5", shape=("net", "student"), invariant=(_PERMUTE_STUDENTS, _RESCALE))
def best_teacher(pair: Pair) -> Int[Tensor, "net student"]:
    """The index of the teacher node that correlates best with each student."""
    return matching.best_teachers(pair.rho).partner


@measure(cites="S0 fig 5", shape=("net", "student"), invariant=_ALL)
def best_teacher_correlation(pair: Pair) -> Float[Tensor, "net student"]:
    """max_j ρ_jk, how specialised each student is: the x axis of the L."""
    return matching.best_teachers(pair.rho).correlation


@measure(cites="S0 eqn 9; S2 sec 5.1", shape=("net",), invariant=_ALL)
def rho_mean(pair: Pair) -> Float[Tensor, "net"]:
    """ρ_mean, the best correlation averaged over teacher nodes."""
    return matching.mean_best_correlation(pair.rho)


@measure(cites="S0 sec 7.1, fig 7", shape=("net", "teacher"), invariant=_ALL)
def recovered_nodes(pair: Pair) -> Bool[Tensor, "net teacher"]:
    """Whether each teacher node's best correlation exceeds 0.95."""
    return matching.recovered(pair.rho)


@measure(cites="S0 sec 7.1, fig 7", shape=("net",), invariant=_ALL)
def recovered(pair: Pair) -> Float[Tensor, "net"]:
    """The share of teacher nodes whose best correlation exceeds 0.95."""
    return matching.recovered_share(pair.rho)


@measure(cites="S0 Definition 3, eqn 4", shape=_PAIRS, invariant=_ALL, deep=False)
def sin_angle(pair: Pair) -> Float[Tensor, "net teacher student"]:
    """sin θ between the weights of every teacher node and student."""
    teacher, student = pair.lowest
    return alignment.sin_angle(teacher.weight, student.weight)


@measure(cites="S0 Definition 3, eqn 4", shape=_PAIRS, invariant=_ALL, deep=False)
def bias_gap(pair: Pair) -> Float[Tensor, "net teacher student"]:
    """|b*_j − b_k| of regular weights."""
    return alignment.bias_gap(*pair.lowest)


@measure(cites="S0 Definition 3", shape=_PAIRS, invariant=_ALL, deep=False)
def alignment_eps(pair: Pair) -> Float[Tensor, "net teacher student"]:
    """The smallest ε for which the two nodes are ε-aligned."""
    return alignment.alignment_eps(*pair.lowest)


@measure(cites="S0 Definition 3", shape=_PAIRS, invariant=_ALL, deep=False)
def eps_aligned(pair: Pair, eps: float = 0.1) -> Bool[Tensor, "net teacher student"]:
    """Whether the two nodes are ε-aligned."""
    return alignment.eps_aligned(*pair.lowest, eps)


@measure(cites="S0 Definition 3, eqns 4 and 9", shape=("net", "teacher"), invariant=_ALL, deep=False)
def best_student_sin_angle(pair: Pair) -> Float[Tensor, "net teacher"]:
    """sin θ between each teacher node and the student that correlates best with it."""
    return alignment.matched_alignment(*pair.lowest, matching.best_students(pair.rho).partner).sin_angle


@measure(cites="S0 Definition 3, eqns 4 and 9", shape=("net", "teacher"), invariant=_ALL, deep=False)
def best_student_bias_gap(pair: Pair) -> Float[Tensor, "net teacher"]:
    """|b*_j − b_k| between each teacher node and the student that correlates best with it."""
    return alignment.matched_alignment(*pair.lowest, matching.best_students(pair.rho).partner).bias_gap


@measure(cites="S0 sec 7, fig 5", shape=("net", "student"), invariant=(_PERMUTE_STUDENTS, _PERMUTE_TEACHERS))
def fan_out(pair: Pair) -> Float[Tensor, "net student"]:
    """‖v_k‖ of every student: the y axis of the L."""
    return _fan_out(pair.student, pair.layer)


@measure(cites="S0 Theorem 2, Definition 1", shape=("net", "student"), invariant=_ALL)
def contribution(pair: Pair) -> Float[Tensor, "net student"]:
    """‖v_k‖ ‖w̃_k‖ of every student."""
    return _contribution(pair.student, pair.layer)


@measure(cites="S1 sec 6, fig 4", shape=("net", "student"), invariant=(_PERMUTE_STUDENTS, _PERMUTE_TEACHERS))
def modulated_fan_out(pair: Pair) -> Float[Tensor, "net student"]:
    """√E[β_kk] of every student: the y axis of the L in deep networks."""
    return _modulated_fan_out(pair.student, pair.x)[pair.layer]


@measure(cites="S2 Theorem 1, eqn 3; S0 Definition 2", shape=_MATRIX, invariant=(_PERMUTE_STUDENTS, _PERMUTE_TEACHERS))
def beta_star(pair: Pair) -> Float[Tensor, "net student teacher"]:
    """E[β*_kj], how far student k and teacher node j reach the same outputs."""
    return _modulated(pair, "beta_star")


@measure(cites="S2 Theorem 2, fig 11", shape=_MATRIX, invariant=(_PERMUTE_STUDENTS, _PERMUTE_TEACHERS))
def h_star(pair: Pair) -> Float[Tensor, "net student teacher"]:
    """H*_kj, the same times how often both are active."""
    return _modulated(pair, "h_star")


def _modulated(pair: Pair, part: str) -> Tensor:
    value: Tensor = getattr(_modulation(pair.teacher, pair.student, pair.x, (part,))[pair.layer], part)
    return value


@measure(cites="S0 Theorem 3 condition (1), Definition 5", shape=_PAIRS, invariant=_ALL, deep=False)
def observers_in_band(pair: Pair, eps: float = 0.1, kappa: float = 0.1) -> Bool[Tensor, "net teacher student"]:
    """Whether student k is active on a share κ of the samples in teacher node j's band."""
    return observers.observers_in_band(*pair.lowest, pair.x, eps, kappa).observed


@measure(cites="S0 Definition 4", shape=_PAIRS, invariant=_ALL, deep=False)
def observers_on_both_sides(pair: Pair, min_count: int = observers.MIN_COUNT) -> Bool[Tensor, "net teacher student"]:
    """Whether student k is active on enough samples on either side of teacher node j's boundary."""
    return observers.observers_on_both_sides(*pair.lowest, pair.x, min_count).observed
