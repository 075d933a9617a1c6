"""What is counted of many triples of a teacher, a student and data: certificates, and identities as numbers."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor

from understudy.measures.modulation import per_sample
from understudy.nets import Population
from understudy.papers.specialization.theory.identities import backpropagated, corollary_2
from understudy.theory.result import results
from understudy.theory.scene import Scene

CERTIFYING = ("S0 theorem 1", "S0 theorem 3", "S0 theorem 4", "S0 theorem 5", "S1 theorem 4")
"""Results that guarantee a student near a teacher node."""


class Verdict(NamedTuple):
    """What one theorem says of one teacher node, and what is so."""

    result: str
    node: int
    certified: bool
    contradicted: bool
    eps: float
    """Guaranteed; NaN where the node is not certified."""
    nearest: float
    """The ε at which the nearest student is in fact aligned; NaN where no student has a boundary."""


def verdicts(
    teacher: Population,
    student: Population,
    x: Float[Tensor, "sample in"],
    names: Collection[str] = CERTIFYING,
) -> list[Verdict]:
    """Of every teacher node, by every theorem of that name that is stated for such networks."""
    sight = Scene(teacher, student, x)
    near = {
        int(node): float(far.min()) if len(far := sight.nearest(j).eps) else math.nan
        for j, node in enumerate(sight.nodes)
    }
    found = []
    for result in results():
        if result.name not in names or result.fits(teacher, student):
            continue
        for finding in result(teacher, student, x):
            node = int(finding.about.removeprefix("teacher node "))
            eps = math.nan if finding.eps is None else finding.eps
            found.append(Verdict(result.name, node, finding.applies, finding.contradicted, eps, near[node]))
    return found


def rule_errors(teacher: Population, student: Population, x: Float[Tensor, "sample in"]) -> list[float]:
    """Layer by layer, how far D (A f* − B f) is from backpropagation, relative to the layer's largest gradient."""
    errors = []
    for found, expected in zip(per_sample(teacher, student, x), backpropagated(teacher, student, x), strict=True):
        difference, scale = float((found.gradient[0] - expected).abs().max()), float(expected.abs().max())
        errors.append(difference / scale if scale else difference)
    return errors


def varying(teacher: Population, student: Population, x: Float[Tensor, "sample in"]) -> list[float]:
    """Layer by layer, 0 where A and B are equal at both ends of all segments inside one region, else 1; NaN: none."""
    return [float(not f.agrees) if f.applies else math.nan for f in corollary_2(teacher, student, x)]
