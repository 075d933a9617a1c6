"""Construction of teachers, and the assumptions that a teacher meets on given inputs."""

import warnings
from typing import Any

from understudy.teachers.assumptions import Assumptions as Assumptions
from understudy.teachers.assumptions import LayerAssumptions as LayerAssumptions
from understudy.teachers.assumptions import assumptions as assumptions
from understudy.teachers.assumptions import strengths as strengths
from understudy.teachers.biases import half_active as half_active
from understudy.teachers.biases import standardised as standardised
from understudy.teachers.distinct_rows import crossing as crossing
from understudy.teachers.distinct_rows import distinct_rows as distinct_rows
from understudy.teachers.distinct_rows import regular as regular
from understudy.teachers.pruned import Pruned as Pruned
from understudy.teachers.pruned import pruned as pruned
from understudy.teachers.rarely_coactive import rarely_coactive as rarely_coactive


def __getattr__(name: str) -> Any:
    if name != "separated":
        raise AttributeError(f"module 'understudy.teachers' has no attribute {name!r}")
    warnings.warn(
        "us.teachers.separated is now called us.teachers.distinct_rows; the old name will be removed in version 0.3",
        FutureWarning,
        stacklevel=2,
    )
    return distinct_rows
