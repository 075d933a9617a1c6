"""All results of the literature on one teacher, one student and data: what `understudy check` says."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from understudy.errors import UserError
from understudy.nets import Population
from understudy.teachers.assumptions import Assumptions, assumptions
from understudy.theory.boundaries import ALIGNED
from understudy.theory.conditions import WIDTHS, Conditions, conditions
from understudy.theory.result import Finding, Hypothesis, results
from understudy.theory.scene import Scene

_EXTREME = 1e60
"""What may still be multiplied a few times in float64."""
_CLOSEST = 200
"""Samples nearest to a boundary by which its observers are judged."""
SAYING, RIVALS = "a guarantee that says something", "no other boundary as near"
"""Hypotheses on what follows from samples and gradient: a guarantee that says nothing has every boundary as a rival."""
_FOLLOWING = {SAYING: -1, RIVALS: -2}


class Nearest(NamedTuple):
    """The student whose boundary is in fact nearest to a teacher node's, in either orientation."""

    student: int
    sin: float
    gap: float


class Observer(NamedTuple):
    """The student that sees most of a teacher node's boundary: by κ |α|, on the samples that are nearest to it."""

    student: int
    kappa: float
    """Share of these samples at which it is active."""
    alpha: float
    """Median of |α| there."""


class Partner(NamedTuple):
    """A student of the lowest layer, and the teacher node whose boundary is nearest to its own."""

    student: int
    teacher: int
    eps: float

    @property
    def aligned(self) -> bool:
        return self.eps <= ALIGNED


@dataclass(frozen=True)
class NodeCheck:
    """A teacher node of the lowest layer: what the theorems guarantee, and what is so."""

    node: int
    findings: tuple[Finding, ...]
    nearest: Nearest | None
    observer: Observer | None
    crossed: bool

    @property
    def certificate(self) -> Finding | None:
        """The finding with the smallest guaranteed ε; none where no theorem applies."""
        sure = [f for f in self.findings if f.applies and f.eps is not None and not f.contradicted]
        return min(sure, key=lambda f: f.eps or 0.0) if sure else None

    @property
    def verdict(self) -> str:
        if sure := self.certificate:
            return f"certified at ε = {sure.eps:.3g} by {sure.result}"
        if not self.crossed:
            return "not certified: the data never crosses its boundary; add samples on its other side, or move its bias"
        if against := [f.result for f in self.findings if f.contradicted]:
            return f"not certified: what was measured is against {', '.join(against)}"
        if (closest := self.closest) is None:
            return "not certified: no theorem is stated for such networks"
        worst, name = closest
        return f"not certified: {worst.name} fails{worst.by} ({worst.value}; {name} needs {worst.requirement})"

    @property
    def closest(self) -> tuple[Hypothesis, str] | None:
        """What fails most of the theorem that lacks least, and that theorem's name; none where one applies.

        Samples and gradient before what follows from them.
        """
        if (nearest := self._nearest) is None:
            return None
        return max(_causes(nearest), key=lambda h: (_FOLLOWING.get(h.name, 0), h.factor)), nearest.result

    @property
    def samples(self) -> float | None:
        """About how many samples the theorem that is told of would take; of the others the fewest, where it is mute."""
        told = self.certificate or self._nearest
        if told and told.samples is not None:
            return told.samples
        return min((f.samples for f in self.findings if f.samples is not None), default=None)

    @property
    def _nearest(self) -> Finding | None:
        """The theorem that lacks least, where none certifies."""
        lacking = [] if self.certificate else [f for f in self.findings if f.failing]
        return min(lacking, key=_lacking, default=None)


def _causes(finding: Finding) -> list[Hypothesis]:
    """What fails, without rivals of a guarantee that says nothing."""
    vacuous = any(h.name == SAYING for h in finding.failing)
    return [h for h in finding.failing if not (vacuous and h.name == RIVALS)]


def _lacking(finding: Finding) -> float:
    """How far it is from applying; endlessly, where that cannot be said in factors."""
    return max((h.factor if h.factor > 1 else math.inf for h in _causes(finding)), default=0.0)


@dataclass(frozen=True, eq=False)
class Check:
    """What every result says of one pair of networks on data."""

    teacher_sizes: tuple[int, ...]
    student_sizes: tuple[int, ...]
    teacher_slope: float
    slope: float
    """Of the student."""
    samples: int
    identities: tuple[Finding, ...]
    conditions: Conditions
    assumptions: Assumptions
    nodes: tuple[NodeCheck, ...]
    partners: tuple[Partner, ...]
    """Of every student of the lowest layer that has a boundary."""
    students: tuple[Finding, ...]
    dynamics: tuple[Finding, ...]
    silent: tuple[tuple[str, str], ...]
    """Results that say nothing of such networks, each with the reason."""
    inputs: str = "as given"
    """What the samples are, in words."""

    @property
    def certified(self) -> int:
        return sum(node.certificate is not None for node in self.nodes)

    @property
    def contradicted(self) -> tuple[Finding, ...]:
        """Findings whose hypotheses hold and whose conclusion does not: there should be none."""
        every = (*self.identities, *self.students, *self.dynamics, *(f for n in self.nodes for f in n.findings))
        return tuple(finding for finding in every if finding.contradicted)

    @property
    def headline(self) -> str:
        eps = [node.certificate.eps or 0.0 for node in self.nodes if node.certificate]
        sure = f", at ε up to {max(eps):.3g}" if eps else ""
        return f"{self.certified} of {len(self.nodes)} teacher nodes are certified to have a student{sure}."

    def as_dict(self) -> dict[str, Any]:
        """Plain values for a program; numbers that are not finite are left empty."""
        plain: dict[str, Any] = _finite(self._values())
        return plain

    def _values(self) -> dict[str, Any]:
        found = self.conditions
        return {
            "headline": self.headline,
            "teacher": list(self.teacher_sizes),
            "student": list(self.student_sizes),
            "teacher_slope": self.teacher_slope,
            "slope": self.slope,
            "samples": self.samples,
            "inputs": self.inputs,
            "identities": [_plain(f) for f in self.identities],
            "data": {
                "eta": {"own": found.eta_own._asdict(), "random": found.eta_random._asdict()},
                "mu": {
                    "own": found.mu_own._asdict(),
                    "random": found.mu_random._asdict(),
                    "bound": found.mu_bound,
                },
                "widths": list(WIDTHS),
                "bands": found.bands.tolist(),
                "tau": found.tau.tolist(),
                "augmented_along_teacher": found.aware.tolist(),
                "augmented_along_axes": found.agnostic,
            },
            "teacher_assumptions": {
                "holds": self.assumptions.holds,
                "failures": self.assumptions.failures,
                "closest": [layer.closest for layer in self.assumptions.layers],
                "eps0": [layer.eps0 for layer in self.assumptions.layers],
            },
            "teacher_nodes": [
                {
                    "node": node.node,
                    "certified": node.certificate is not None,
                    "eps": node.certificate.eps if node.certificate else None,
                    "verdict": node.verdict,
                    "crossed": node.crossed,
                    "samples_needed": node.samples,
                    "nearest": node.nearest._asdict() if node.nearest else None,
                    "observer": node.observer._asdict() if node.observer else None,
                    "findings": [_plain(f) for f in node.findings],
                }
                for node in self.nodes
            ],
            "students": [partner._asdict() | {"aligned": partner.aligned} for partner in self.partners],
            "student_nodes": [_plain(f) for f in self.students],
            "dynamics": [_plain(f) for f in self.dynamics],
            "silent": [{"result": name, "why": why} for name, why in self.silent],
        }


def _plain(finding: Finding) -> dict[str, Any]:
    return {
        "result": finding.result,
        "about": finding.about,
        "applies": bool(finding.applies),
        "hypotheses": [
            {
                "name": h.name,
                "value": h.value,
                "requirement": h.requirement,
                "holds": bool(h.holds),
                "change": "" if h.holds else h.change,
                "factor": h.factor,
            }
            for h in finding.hypotheses
        ],
        "conclusion": finding.conclusion,
        "measured": finding.measured,
        "agrees": None if finding.agrees is None else bool(finding.agrees),
        "eps": finding.eps,
        "amount": finding.amount,
        "limit": finding.limit,
        "samples": finding.samples,
    }


def _finite(value: Any) -> Any:
    match value:
        case float():
            return value if math.isfinite(value) else None
        case dict():
            return {key: _finite(item) for key, item in value.items()}
        case list() | tuple():
            return [_finite(item) for item in value]
        case _:
            return value


def check(teacher: Population, student: Population, x: Float[Tensor, "sample in"]) -> Check:
    """Every result that is stated for such networks, on one teacher, one student and data, in float64."""
    _refuse(teacher, student, x)
    theirs, ours, x = teacher.to(dtype=torch.float64), student.to(dtype=torch.float64), x.double()
    sight = Scene(theirs, ours, x)
    _refuse_extremes(sight)
    if not sight.active.any():
        raise UserError("no node of the student's lowest layer is active on any sample: give another student or data")
    found: dict[str, list[Finding]] = {
        "identity": [],
        "data": [],
        "teacher node": [],
        "student node": [],
        "dynamics": [],
    }
    silent = []
    for result in results():
        if why := result.fits(theirs, ours):
            if result.networks != "one output":  # of a setting of its own, which nobody misses elsewhere
                silent.append((result.name, why))
        else:
            found[result.subject] += result(theirs, ours, x)
    seen = conditions(sight)
    return Check(
        teacher.sizes,
        student.sizes,
        teacher.slope,
        student.slope,
        len(x),
        tuple(found["identity"]),
        seen,
        assumptions(theirs, x)[0],
        _nodes(sight, seen, found["teacher node"]),
        _partners(sight),
        tuple(found["student node"]),
        tuple(found["dynamics"]),
        tuple(silent),
    )


def _nodes(sight: Scene, seen: Conditions, findings: Sequence[Finding]) -> tuple[NodeCheck, ...]:
    nodes = []
    for j, node in enumerate(sight.nodes.tolist()):
        far = sight.nearest(j)
        k = int(far.eps.argmin()) if len(far.eps) else -1
        nearest = Nearest(int(sight.students[k]), float(far.sin[k]), float(far.gap[k])) if k >= 0 else None
        own = tuple(f for f in findings if f.about == f"teacher node {node}")
        nodes.append(NodeCheck(node, own, nearest, _observer(sight, j), bool(seen.crossed[j])))
    return tuple(nodes)


def _observer(sight: Scene, j: int) -> Observer | None:
    """Among all students, by the samples that are nearest to the boundary."""
    close = sight.one(j).distances(sight.x)[:, 0].abs().argsort()[:_CLOSEST]
    shares = sight.active[close].double().mean(0)
    seen = [
        Observer(k, float(shares[k]), float(sight.alpha(k, j, sight.x[close]).abs().median()))
        for k in sight.students.tolist()
        if shares[k] > 0
    ]
    return max(seen, key=lambda o: o.kappa * o.alpha, default=None)


def _partners(sight: Scene) -> tuple[Partner, ...]:
    if not len(sight.nodes) or not len(sight.students):
        return ()
    far = torch.stack([sight.nearest(j).eps for j in range(len(sight.nodes))])
    eps, which = far.min(0)
    return tuple(map(Partner, sight.students.tolist(), sight.nodes[which].tolist(), eps.tolist()))


def _refuse(teacher: Population, student: Population, x: Tensor) -> None:
    for network, name in ((teacher, "teacher"), (student, "student")):
        if len(network) != 1:
            raise UserError(f"the {name} is {len(network)} networks: choose one, as networks[0]")
        if network.image is not None or network.norms:
            raise UserError(
                f"the {name} has {'convolutions' if network.image is not None else 'BatchNorm'}, and no theorem on "
                "alignment is stated for that; S2 theorem 3, on BatchNorm, is `understudy run batchnorm-energy`"
            )
        for layer in network.layers:
            if not all(part is None or bool(part.isfinite().all()) for part in layer):
                raise UserError(f"the {name} has weights that are not finite: give one that has not diverged")
        if len(network.layers) < 2:
            raise UserError(f"the {name} has no hidden layer, and so no nodes: give networks of two layers or more")
    if teacher.inputs != student.inputs:
        raise UserError(
            f"the teacher takes {teacher.inputs} inputs and the student {student.inputs}: "
            "give networks of one input size"
        )
    if teacher.sizes[-1] != student.sizes[-1]:
        raise UserError(
            f"the teacher has {teacher.sizes[-1]} outputs and the student {student.sizes[-1]}: "
            "the theorems need both equal"
        )
    if x.ndim != 2 or not len(x):
        raise UserError(f"no data: give inputs as [sample, {teacher.inputs}], got {list(x.shape)}")
    if x.shape[1] != teacher.inputs:
        raise UserError(f"the networks take {teacher.inputs} inputs, and the data has {x.shape[1]} a sample")
    if not bool(x.isfinite().all()):
        raise UserError("the data has numbers that are not finite: leave these samples out")


def _refuse_extremes(sight: Scene) -> None:
    """What overflows or vanishes when it is multiplied or squared in float64 would be told as a contradiction."""
    for network, name in ((sight.teacher, "teacher"), (sight.student, "student")):
        for layer in network.layers:
            largest = layer.weight[0].abs().amax(1)
            if bool(((largest > 0) & ((largest < 1 / _EXTREME) | (largest > _EXTREME))).any()):
                raise UserError(
                    f"the {name} has nodes with weights below {1 / _EXTREME:g} or beyond {_EXTREME:g}, of which "
                    "products would vanish or overflow: scale them back, w by c and its fan-out by 1/c"
                )
    if not bool((sight.gradients.most <= _EXTREME).all()):
        raise UserError(
            f"gradients on this data are beyond {_EXTREME:g}, and what follows from them would overflow: "
            "scale the weights or the data down"
        )
