"""Kernels for two-layer networks: on the CPU compiled by numba, on a GPU by CUDA."""

from understudy.nets import Shape
from understudy.training.objectives import Objective, SquaredError


def supports(shape: Shape, objective: Objective) -> bool:
    """Whether kernels can train or probe these networks: two layers, squared error."""
    return shape.dense and len(shape.sizes) == 3 and isinstance(objective, SquaredError)
