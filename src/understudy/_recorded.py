"""Metrics that training records on request, besides losses, correlations and the share of recovered teacher nodes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, get_args

from understudy._errors import UserError

Recordable = Literal["gradient_norm", "hessian_eigenvalues", "students_per_teacher", "mean_rank", "median_rank"]
RECORDABLE: tuple[str, ...] = get_args(Recordable)
"""Names of the metrics, which are those of the functions of `us.measures`."""
RANKS = ("mean_rank", "median_rank")
"""Metrics of the final winners, which are known when training has ended."""
EIGENVALUES = tuple(f"hessian_eigenvalue_{i}" for i in range(1, 6))
"""Metrics that `hessian_eigenvalues` records, the largest eigenvalue first."""


def validate_recorded(names: Iterable[str]) -> frozenset[str]:
    """Names of metrics as a set; one name alone stands for itself.

    Raises:
        UserError: A name that is not among `RECORDABLE`.
    """
    found = frozenset((names,) if isinstance(names, str) else names)
    if unknown := sorted(map(str, found - set(RECORDABLE))):
        raise UserError(f"must be among {', '.join(RECORDABLE)}, got {', '.join(unknown)}", "record")
    return found
