"""H* and β* of networks before and after training, from the weights that a run saved (Tian et al. 2019, fig. 11)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from understudy._errors import UserError
from understudy.report.figures import MatrixImages, OrderedMatrix
from understudy.report.story import Figure

if TYPE_CHECKING:
    from torch import Tensor

    from understudy.data import Source
    from understudy.nets import Population
    from understudy.store import Run

MATRICES = ("H*", "β*")
_TIMES = ("before", "after")
_SAMPLES, _IMAGES = 256, 16
"""Evaluation samples over which matrices are averaged: of dense networks, and of networks on images, where each sample
takes one backward pass per output and position."""


class Modulation(NamedTuple):
    """H* and β* of some networks of one shape, before and after training."""

    networks: np.ndarray
    diagonal: np.ndarray
    """Share of the squared entries that lies on the diagonal, [network, layer, matrix, time]."""
    dominance: np.ndarray
    """Mean entry on the diagonal, divided by the mean size of the others, [network, layer, matrix, time]."""
    shown: tuple[tuple[OrderedMatrix, ...], ...]
    """Matrices of the first network, by layer: H* before and after, β* before and after."""
    over: str = ""
    """Description of the samples over which matrices are averaged."""


def measure_modulation(
    run: Run, networks: Sequence[int] | np.ndarray, source: Callable[[], Source]
) -> Modulation | None:
    """Measure H* and β* of networks of one group on their evaluation samples.

    Students are in the order of the teacher nodes that they match at the time. The result is None if there are fewer
    students than teacher nodes, or if `source` raises a UserError: a report can be written without the data.
    """
    import torch

    from understudy.measures import correlation, diagonal_mass, modulation, reorder_students

    which = np.asarray(networks)
    times = ("teacher", "epoch.0", f"epoch.{run.epochs[-1]}")
    teacher, *students = (_select(run.weights(who), which) for who in times)
    try:
        inputs, count = source(), _IMAGES if teacher.image else _SAMPLES
        x = torch.stack([inputs.evaluating(seed, dtype=teacher.dtype)[:count] for seed in teacher.seeds.tolist()])
    except UserError:
        return None
    if any(ours < theirs for ours, theirs in zip(students[0].sizes, teacher.sizes, strict=True)):
        return None
    theirs = teacher.activations(x).hidden
    layers: list[list[list[tuple[np.ndarray, np.ndarray, OrderedMatrix]]]] = [[[] for _ in MATRICES] for _ in theirs]
    for student in students:
        ours, found = student.activations(x).hidden, modulation(teacher, student, x, ("h_star", "beta_star"))
        for layer, at in enumerate(found):
            rho = correlation(theirs[layer], ours[layer])
            for i, matrix in enumerate((at.h_star, at.beta_star)):
                assert matrix is not None
                ordered = reorder_students(matrix, rho)
                mass = diagonal_mass(matrix, ordered.order).double().numpy()
                image = OrderedMatrix(ordered.matrix[0].numpy(), ordered.order[0].numpy(), float(mass[0]))
                layers[layer][i].append((mass, dominance(ordered.matrix).double().numpy(), image))
    diagonal, ratio = (
        np.moveaxis(np.array([[[at[k] for at in times] for times in of] for of in layers]), -1, 0) for k in (0, 1)
    )
    shown = tuple(tuple(image for times in of for *_, image in times) for of in layers)
    over = f"{x.shape[1]:,} evaluation samples" + (" at all positions" if teacher.image else "")
    return Modulation(which, diagonal, ratio, shown, over)


def dominance(matrix: Tensor) -> Tensor:
    """Divide the mean entry on the diagonal of [net, student, teacher] by the mean size of the others.

    It is 0 where there are no others, or all of them are 0.
    """
    diagonal = matrix.diagonal(dim1=1, dim2=2)
    others = matrix.abs().sum((1, 2)) - diagonal.abs().sum(1)
    count = matrix[0].numel() - diagonal.shape[1]
    return (diagonal.mean(1) * count / others).where(others > 0, 0.0)


def _select(groups: Sequence[Population], networks: np.ndarray) -> Population:
    """Select networks of one group by their numbers, which count through all groups."""
    ends = np.cumsum([len(group) for group in groups])
    group = int(np.searchsorted(ends, networks[0], side="right"))
    return groups[group][(networks - ends[group] + len(groups[group])).tolist()]


def matrix_images(found: Modulation | None, words: str, name: str = "modulation") -> tuple[Figure, ...]:
    """The figure of the first network, which `words` describe; none if there are no matrices."""
    if found is None:
        return ()
    shares = found.diagonal[0].mean(axis=0)
    changes = " and ".join(
        f"from {before:.1%} to {after:.1%} in {matrix}"
        for matrix, (before, after) in zip(MATRICES, shares, strict=True)
    )
    means = " (means over layers)" if len(found.shown) > 1 else ""
    titles = tuple(f"{matrix} {time}" for matrix in MATRICES for time in _TIMES)
    kind: MatrixImages = MatrixImages(titles, found.shown, network=int(found.networks[0]))
    return (
        Figure(
            name,
            "How teacher nodes move their students, before and after",
            f"How much each teacher node moves each student from above (β*), and where both are active (H*), in "
            f"network {found.networks[0]} ({words}), over {found.over}. The diagonal's share of all squared entries "
            f"changed {changes}{means}.",
            "S2 fig. 11",
            kind,
        ),
    )
