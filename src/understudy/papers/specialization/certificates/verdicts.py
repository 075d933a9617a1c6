"""Verdicts of the theorems on a teacher, a student and data, and errors of the identities."""

import math
from collections.abc import Collection
from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor

from understudy.measures import sample_modulation
from understudy.nets import Population
from understudy.papers.specialization.theory.identities import autograd_gradients, corollary_2
from understudy.theory.pair_geometry import PairGeometry
from understudy.theory.result import results

CERTIFYING = ("S0 theorem 1", "S0 theorem 3", "S0 theorem 4", "S0 theorem 5", "S1 theorem 4")
"""Results that guarantee a student near a teacher node."""


class NodeVerdict(NamedTuple):
    """The verdict of one theorem on one teacher node, and the measured distance."""

    result: str
    teacher: int
    """Number of the teacher node."""
    certified: bool
    contradicted: bool
    eps: float
    """Guaranteed ε; NaN where the node is not certified."""
    nearest: float
    """Measured ε of the nearest student; NaN where no student has a boundary."""


def verdicts(
    teacher: Population, student: Population, x: Float[Tensor, "sample in"], names: Collection[str] = CERTIFYING
) -> list[NodeVerdict]:
    """Apply the named theorems, as far as they are stated for such networks, to every teacher node."""
    pair = PairGeometry(teacher, student, x)
    near = {
        int(node): float(far.min()) if len(far := pair.student_distances(j).eps) else math.nan
        for j, node in enumerate(pair.teacher_nodes)
    }
    found = []
    for result in results():
        if result.name not in names or result.why_inapplicable(teacher, student):
            continue
        for finding in result(teacher, student, x):
            node = int(finding.about.removeprefix("teacher node "))
            eps = math.nan if finding.eps is None else finding.eps
            found.append(NodeVerdict(result.name, node, finding.applies, finding.contradicted, eps, near[node]))
    return found


def rule_errors(teacher: Population, student: Population, x: Float[Tensor, "sample in"]) -> list[float]:
    """Difference between D (A f* − B f) and backpropagation per layer, relative to the layer's largest gradient."""
    errors = []
    for found, expected in zip(
        sample_modulation(teacher, student, x), autograd_gradients(teacher, student, x), strict=True
    ):
        difference, scale = float((found.gradient[0] - expected).abs().max()), float(expected.abs().max())
        errors.append(difference / scale if scale else difference)
    return errors


def region_variation(teacher: Population, student: Population, x: Float[Tensor, "sample in"]) -> list[float]:
    """Whether A and B differ at the ends of a segment inside one region, per layer: 0 or 1; NaN without segments."""
    return [float(not f.agrees) if f.applies else math.nan for f in corollary_2(teacher, student, x)]
