"""Gradient and Hessian of the loss that training minimises, on the evaluation inputs: recorded on request.

Both are computed in float64, network by network, so that the bits do not depend on the batch composition.
"""

from __future__ import annotations

from collections.abc import Collection

import torch
from jaxtyping import Float, Int
from torch import Tensor

from understudy._recorded import EIGENVALUES
from understudy.measures import curvature
from understudy.nets import Population, Shape
from understudy.training.objectives import Objective, label_targets
from understudy.training.packing import Packing
from understudy.training.probes.reading import Curvature, split_samples

_LANCZOS_STEPS = 3 * len(EIGENVALUES) + 20


def requested(names: Collection[str]) -> bool:
    """Whether one of the metrics is computed here."""
    return not {"gradient_norm", "hessian_eigenvalues"}.isdisjoint(names)


def measure_curvature(
    student: Population,
    teacher: Population,
    x: Float[Tensor, "set sample in"],
    set_of: Int[Tensor, "net"],
    objective: Objective,
    names: Collection[str],
    labels: Int[Tensor, "set sample"] | None = None,
) -> Curvature:
    """Measure the requested metrics of every network on its inputs; with labels, of the loss against these."""
    each = []
    for i, place in enumerate(set_of.tolist()):
        # Copied: BLAS chooses its kernels by alignment.
        own, inputs = student[i].to(dtype=torch.float64), x[place].to(torch.float64, copy=True)
        if labels is None:
            theirs = teacher[i].to(dtype=torch.float64)
            passes = split_samples(inputs.unsqueeze(0), theirs)
            target = torch.cat([objective.target(theirs(some)) for some in passes], dim=1)[0]
        else:
            target = label_targets(labels[place], own.sizes[-1], inputs.dtype)
        given = own, inputs, target
        norm = curvature.gradient_norm(*given, objective.losses) if "gradient_norm" in names else None
        values = None
        if "hessian_eigenvalues" in names:
            values = curvature.hessian_eigenvalues(*given, len(EIGENVALUES), objective.losses, steps=_LANCZOS_STEPS)
        each.append((norm, values))
    norms, eigenvalues = zip(*each, strict=True)
    return Curvature(_joined(norms), _joined(eigenvalues))


def _joined(each: tuple[Tensor | None, ...]) -> Tensor | None:
    found = [value for value in each if value is not None]
    return torch.cat(found) if found else None


def curvature_bytes(shape: Shape, samples: int, names: Collection[str]) -> int:
    """Bytes that one network takes: an upper estimate, of what autograd keeps and of the vectors of Lanczos."""
    if not requested(names):
        return 0
    hessian = "hessian_eigenvalues" in names
    kept = (18 if hessian else 6) * min(samples * shape.activations, curvature.PIECE)
    vectors = (3 * _LANCZOS_STEPS + 20 if hessian else 8) * Packing(shape).numbers
    return 8 * (kept + vectors + samples * (2 * shape.inputs + 3 * shape.sizes[-1]))


def curvature_products(shape: Shape, names: Collection[str]) -> int:
    """Multiplications and additions of one network per sample."""
    # Forward and backward take three products; with the gradient's own derivative, about nine.
    times = 3 * ("gradient_norm" in names) + 9 * _LANCZOS_STEPS * ("hessian_eigenvalues" in names)
    return times * sum(shape.products)
