"""Canonical correlations of two layers: how much of one is a linear map of the other (SVCCA).

Raghu, Gilmer, Yosinski & Sohl-Dickstein, "SVCCA: Singular Vector Canonical Correlation Analysis for Deep Learning
Dynamics and Interpretability", NeurIPS 2017, to which Tian 2020 (sec. 4) refers: students that learned one teacher node
are joined by a linear map, and students without a teacher node are suppressed by it.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from understudy._errors import UserError

VARIANCE = 0.99
"""Share of the variance that the directions of SVCCA hold (Raghu et al. 2017, sec. 2)."""
_ROUNDINGS = 16.0
"""A direction is kept if it is longer than this many roundings of all activations."""


class CanonicalCorrelations(NamedTuple):
    """Canonical correlations of two layers."""

    correlation: Float[Tensor, "net direction"]
    """In descending order; 0 where a layer has no more directions."""
    teacher: Int[Tensor, "net"]
    """Number of directions of the teacher's layer."""
    student: Int[Tensor, "net"]
    """Number of directions of the student's layer."""


def canonical_correlations(
    teacher: Float[Tensor, "net sample teacher"], student: Float[Tensor, "net sample student"], variance: float = 1.0
) -> CanonicalCorrelations:
    """Canonical correlations of the activations of two layers (Tian 2020, sec. 4; Raghu et al. 2017, sec. 2).

    Both are centred and reduced to their first singular directions, as many as hold a share of the variance; the
    correlations are the cosines of the principal angles between the two spaces, computed in float64. With a share of 1
    all directions above rounding are kept: CCA, which no invertible linear map of either layer changes.

    Args:
        teacher: Activations of the teachers.
        student: Activations of the students on the same samples, paired with the teachers by index.
        variance: Share of the variance that the directions of each layer hold.

    Returns:
        Correlations in the dtype of the activations, and the number of directions of both layers.

    Raises:
        UserError: Numbers of networks or samples that differ, no more samples than nodes of both layers, or a share
            that is not above 0 and at most 1.
    """
    if teacher.shape[:2] != student.shape[:2]:
        raise UserError(
            "teacher and student activations must agree in networks and samples, got "
            f"{tuple(teacher.shape)} and {tuple(student.shape)}"
        )
    nodes = teacher.shape[2] + student.shape[2]
    if teacher.shape[1] <= nodes:
        # Two spaces of together as many dimensions as there are samples always meet.
        raise UserError(
            f"canonical correlations of {nodes} nodes need more samples than that, got {teacher.shape[1]}: give more"
        )
    if not 0 < variance <= 1:
        raise UserError(f"must be above 0 and at most 1, got {variance}", "variance")
    sides = [[_directions(each, variance) for each in side.detach()] for side in (teacher, student)]
    found = [torch.linalg.svdvals(a.mT @ b).clamp(0.0, 1.0) for a, b in zip(*sides, strict=True)]
    correlation = teacher.new_zeros(len(found), min(teacher.shape[2], student.shape[2]))
    for row, values in zip(correlation, found, strict=True):
        row[: len(values)] = values
    counts = (torch.tensor([each.shape[1] for each in side], device=teacher.device) for side in sides)
    return CanonicalCorrelations(correlation, *counts)


def svcca(
    teacher: Float[Tensor, "net sample teacher"],
    student: Float[Tensor, "net sample student"],
    variance: float = VARIANCE,
) -> Float[Tensor, "net"]:
    """Mean canonical correlation of two layers: SVCCA (Tian 2020, sec. 4; Raghu et al. 2017, sec. 2).

    The mean is over as many directions as the layer that has fewer; 0 where a layer is constant.

    Args:
        teacher: Activations of the teachers.
        student: Activations of the students on the same samples, paired with the teachers by index.
        variance: Share of the variance that the directions of each layer hold; 1 is CCA.

    Returns:
        One number from 0 to 1 per network.

    Raises:
        UserError: As `canonical_correlations`.
    """
    found = canonical_correlations(teacher, student, variance)
    return found.correlation.sum(1) / torch.minimum(found.teacher, found.student).clamp_min(1)


def _directions(x: Float[Tensor, "sample node"], variance: float) -> Float[Tensor, "sample direction"]:
    """Orthonormal basis of the first singular directions of centred activations; constant nodes have no direction."""
    wide = x.double()
    centred = wide - wide.mean(0)
    # A factorisation of its triangle instead of the whole matrix, with the same singular values.
    basis, triangle = torch.linalg.qr(centred)
    left, sizes, _ = torch.linalg.svd(triangle, full_matrices=False)
    kept = int((sizes > _ROUNDINGS * torch.finfo(x.dtype).eps * torch.linalg.matrix_norm(wide)).sum())
    held = sizes.square().cumsum(0)
    if variance < 1:
        kept = min(kept, int((held < variance * held[-1]).sum()) + 1)
    return basis @ left[:, :kept]
