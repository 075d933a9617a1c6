"""Two students of one teacher looked at together: each without its unspecialised nodes, and the path between them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float

from understudy.data import Source
from understudy.measures import contribution
from understudy.nets import Population
from understudy.papers.specialization.theory.connectivity import joined, losses_along, straight
from understudy.papers.specialization.theory.prunable import unaligned_share
from understudy.papers.specialization.theory.pruning import pruned_students, pruning_losses, refitted


class PrunedStudent(NamedTuple):
    """What became of one student."""

    metrics: dict[str, float]
    """Losses on inputs that nothing was fitted on, as shares of the output variance, nodes that were kept, and what
    the students without a teacher's boundary contribute (S0 Corollary 1)."""
    correlation: np.ndarray
    contribution: np.ndarray
    kept: np.ndarray
    """[node] each."""


class Pair(NamedTuple):
    """Both students, and losses along path and straight line at evenly spaced points, as many on both."""

    pruned: tuple[PrunedStudent, PrunedStudent]
    path: Float[np.ndarray, "point"]
    line: Float[np.ndarray, "point"]
    segments: int


def look(
    teacher: Population, students: tuple[Population, Population], data: Source, below: float, per_segment: int
) -> Pair:
    """Nodes are chosen and output weights fitted on the training inputs of the students' seed; losses are on others."""
    a, b = students
    (seed,) = a.seeds.tolist()
    given, others = (draw(seed, dtype=torch.float64) for draw in (data.training, data.evaluating))
    path = joined(a, b, teacher, given, below)
    along = losses_along(path, teacher, others, per_segment)
    # Where two segments meet stands once.
    losses = torch.cat((along[0, :1], along[:, 1:].flatten()))
    line = losses_along(straight(a, b), teacher, others, len(losses))[0]
    one, other = (_pruned(teacher, student, given, others, below) for student in (a, b))
    return Pair((one, other), losses.cpu().numpy(), line.cpu().numpy(), len(path.moves))


def _pruned(
    teacher: Population,
    student: Population,
    given: Float[torch.Tensor, "sample in"],
    others: Float[torch.Tensor, "sample in"],
    below: float,
) -> PrunedStudent:
    pruning = pruned_students(teacher, student, given, below, "correlation")
    losses = pruning_losses(teacher, student, pruning, refitted(teacher, pruning.network, given), others)
    kept = torch.zeros(student.sizes[1], dtype=torch.bool)
    kept[pruning.kept[0].cpu()] = True
    wide = teacher.to(dtype=torch.float64), student.to(dtype=torch.float64)
    unaligned = float(unaligned_share(*wide, others))
    metrics = losses._asdict() | {"kept": float(kept.sum()), "unaligned_share": unaligned}
    return PrunedStudent(metrics, pruning.scores[0].cpu().numpy(), contribution(student)[0].cpu().numpy(), kept.numpy())
