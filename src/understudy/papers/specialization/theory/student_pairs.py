"""Two students of one teacher: each without its unspecialised nodes, and the low-loss path between them."""

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from understudy.data import Source
from understudy.measures import contribution
from understudy.nets import Population
from understudy.papers.specialization.theory.connectivity import connecting_path, losses_along, straight_path
from understudy.papers.specialization.theory.prunable import unaligned_share
from understudy.papers.specialization.theory.pruning import (
    SHARE,
    STRENGTHS,
    prune_student,
    pruning_losses,
    refit,
    remove_weakest,
)
from understudy.theory.unexplained import unexplained


class PruningMeasures(NamedTuple):
    """Measurements of one pruned student."""

    metrics: dict[str, float]
    """Held-out losses as shares of the output variance (`modulation` and `weight-norm`: without a quarter of the nodes,
    the weakest by either), the number of kept nodes, and the contribution of the students without a teacher's boundary
    (Tian 2020, corollary 1)."""
    correlation: np.ndarray
    contribution: np.ndarray
    kept: np.ndarray
    """Correlation, contribution and whether it is kept, of each node."""


class StudentPair(NamedTuple):
    """Both students, and losses at equally many evenly spaced points of the path and of the straight line."""

    pruned: tuple[PruningMeasures, PruningMeasures]
    path: Float[np.ndarray, "point"]
    line: Float[np.ndarray, "point"]
    segments: int


def measure_pair(
    teacher: Population, students: tuple[Population, Population], data: Source, below: float, per_segment: int
) -> StudentPair:
    """Prune and connect two students.

    Nodes are chosen and output weights fitted on the training inputs of the students' seed; losses are held-out.
    """
    a, b = students
    (seed,) = a.seeds.tolist()
    given, others = (draw(seed, dtype=torch.float64) for draw in (data.training, data.evaluating))
    path = connecting_path(a, b, teacher, given, below)
    along = losses_along(path, teacher, others, per_segment)
    # The end of a segment is the start of the next: keep it once.
    losses = torch.cat((along[0, :1], along[:, 1:].flatten()))
    line = losses_along(straight_path(a, b), teacher, others, len(losses))[0]
    one, other = (_prune(teacher, student, given, others, below) for student in (a, b))
    return StudentPair((one, other), losses.cpu().numpy(), line.cpu().numpy(), len(path.moves))


def _prune(teacher: Population, student: Population, given: Tensor, others: Tensor, below: float) -> PruningMeasures:
    pruning = prune_student(teacher, student, given, below, "correlation")
    losses = pruning_losses(teacher, student, pruning, refit(teacher, pruning.network, given), others)
    kept = torch.zeros(student.sizes[1], dtype=torch.bool)
    kept[pruning.kept[0].cpu()] = True
    wide = teacher.to(dtype=torch.float64), student.to(dtype=torch.float64)
    unaligned = float(unaligned_share(*wide, others))
    metrics = losses._asdict() | {"kept": float(kept.sum()), "unaligned_share": unaligned}
    metrics |= {by: float(unexplained(teacher, remove_weakest(student, given, by, SHARE), others)) for by in STRENGTHS}
    return PruningMeasures(
        metrics, pruning.scores[0].cpu().numpy(), contribution(student)[0].cpu().numpy(), kept.numpy()
    )
