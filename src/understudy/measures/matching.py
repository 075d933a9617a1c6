"""Matching of nodes by correlation: best student of each teacher node, best teacher of each student.

Tian 2020, sec. 7, eq. 9: ρ_mean is the mean over teacher nodes j of max_k ρ_jk.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from understudy._errors import UserError

THRESHOLD = 0.95
"""Correlation above which a teacher node counts as recovered (Tian 2020, sec. 7.1)."""


class Match(NamedTuple):
    """Best partner of each node (the lowest index among equally good ones), and the correlation of the pair."""

    partner: Int[Tensor, "net node"]
    correlation: Float[Tensor, "net node"]


def best_students(rho: Float[Tensor, "net teacher student"]) -> Match:
    """Find the student with the highest correlation for each teacher node (Tian 2020, eq. 9).

    Args:
        rho: Correlations.

    Returns:
        Best student and its correlation, per teacher node.
    """
    best = rho.max(2)
    return Match(best.indices, best.values)


def best_teachers(rho: Float[Tensor, "net teacher student"]) -> Match:
    """Find the teacher node with the highest correlation for each student (x axis of Tian 2020, fig. 5).

    Args:
        rho: Correlations.

    Returns:
        Best teacher node and its correlation, per student.
    """
    best = rho.max(1)
    return Match(best.indices, best.values)


def mean_best_correlation(rho: Float[Tensor, "net teacher student"]) -> Float[Tensor, "net"]:
    """Mean over teacher nodes of the best correlation: ρ_mean of Tian 2020, eq. 9; ρ̄ of Tian et al. 2019, sec. 5.1.

    Args:
        rho: Correlations.

    Returns:
        One value per network.
    """
    return rho.amax(2).mean(1)


def recovered(rho: Float[Tensor, "net teacher student"], threshold: float = THRESHOLD) -> Bool[Tensor, "net teacher"]:
    """Whether the best correlation of each teacher node exceeds the threshold (Tian 2020, sec. 7.1, fig. 7).

    Args:
        rho: Correlations.
        threshold: Correlation that must be exceeded.

    Returns:
        One truth value per teacher node.
    """
    return rho.amax(2) > threshold


def recovered_share(rho: Float[Tensor, "net teacher student"], threshold: float = THRESHOLD) -> Float[Tensor, "net"]:
    """Share of teacher nodes that are recovered (Tian 2020, sec. 7.1).

    Args:
        rho: Correlations.
        threshold: Correlation that must be exceeded.

    Returns:
        One share per network.
    """
    return recovered(rho, threshold).to(rho.dtype).mean(1)


def students_per_teacher(best: Match, teachers: int, threshold: float = THRESHOLD) -> Int[Tensor, "net teacher"]:
    """Number of students that have learned each teacher node: several may share one (Tian 2019, sec. 5, fig. 6).

    A student counts for its best teacher node alone, so that the numbers add up to the students that specialised.

    Args:
        best: Best teacher node of each student, as from `best_teachers`.
        teachers: Number of teacher nodes.
        threshold: Correlation that must be exceeded.

    Returns:
        One number per teacher node.
    """
    matched = (best.correlation > threshold).long()
    return matched.new_zeros(len(matched), teachers).scatter_add_(1, best.partner, matched)


class Reordered(NamedTuple):
    """Matrix whose row j belongs to the student matched to teacher node j, and the student of each row."""

    matrix: Float[Tensor, "net student teacher"]
    order: Int[Tensor, "net student"]


def reorder_students(
    matrix: Float[Tensor, "net student teacher"], rho: Float[Tensor, "net teacher student"]
) -> Reordered:
    """Reorder the rows of a matrix by the teacher nodes that students match (Tian et al. 2019, fig. 11).

    Nodes are matched greedily, highest correlation first, each student once; ties go to the lowest teacher node, then
    the lowest student. Unmatched students follow, by their best correlation.

    Args:
        matrix: Matrix with one row per student.
        rho: Correlations by which nodes are matched.

    Returns:
        The reordered matrix, and the student of each of its rows.

    Raises:
        UserError: Fewer students than teacher nodes.
    """
    nets, teachers, students = rho.shape
    if students < teachers:
        raise UserError(
            f"{students} students cannot match {teachers} teacher nodes one to one: give at least as many students"
        )
    left, every = rho.clone(), torch.arange(nets, device=rho.device)
    matched = torch.empty(nets, teachers, dtype=torch.long, device=rho.device)
    for _ in range(teachers):
        pair = left.flatten(1).argmax(1)
        j, k = pair // students, pair % students
        matched[every, j] = k
        left[every, j] = left[every, :, k] = -torch.inf
    others = rho.amax(1).scatter(1, matched, -torch.inf).argsort(dim=1, descending=True, stable=True)
    order = torch.cat((matched, others[:, : students - teachers]), 1)
    return Reordered(matrix.gather(1, order.unsqueeze(2).expand_as(matrix)), order)


def diagonal_mass(
    matrix: Float[Tensor, "net student teacher"], order: Int[Tensor, "net student"]
) -> Float[Tensor, "net"]:
    """Share of the squared entries of a matrix on the diagonal after reordering (Tian et al. 2019, fig. 11).

    Entries are squared because in a wide student many entries near zero would outweigh the few large ones.

    Args:
        matrix: Matrix with one row per student, in the original order.
        order: Student matched to each teacher node, as from `reorder_students`.

    Returns:
        One share per network; 0 for a matrix of zeros.
    """
    square = matrix.square()
    matched = square.gather(1, order[:, None, : matrix.shape[2]]).sum((1, 2))
    total = square.sum((1, 2))
    return torch.where(total > 0, matched / total, 0.0)
