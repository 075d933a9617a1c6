"""Apply every registered result to one teacher, one student and data."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from understudy._errors import UserError
from understudy._numbers import number
from understudy.measures.align import require_fitting
from understudy.nets import Population
from understudy.teachers.assumptions import Assumptions, assumptions
from understudy.theory.boundaries import ALIGNED
from understudy.theory.conditions import WIDTHS, DataConditions, conditions
from understudy.theory.dense_networks import DenseNetwork, as_dense
from understudy.theory.pair_geometry import PairGeometry, shared_pair
from understudy.theory.result import (
    INFORMATIVE,
    NOTHING_KNOWN,
    UNRIVALLED,
    Finding,
    Hypothesis,
    Known,
    Result,
    Subject,
    results,
)

_EXTREME = 1e60
"""Largest number that can be multiplied a few times in float64 without overflow."""
_CLOSEST = 200
"""Number of samples nearest to a boundary by which its observers are ranked."""
_PRIORITY = {INFORMATIVE: -1, UNRIVALLED: -2}
"""Hypotheses on the guarantee are reported after those on samples and gradient, which cause them to fail."""


class Nearest(NamedTuple):
    """The student whose boundary is nearest to a teacher node's, in either orientation."""

    student: int
    sin: float
    gap: float


class Observer(NamedTuple):
    """The student with the largest κ |α| for a teacher node, on the samples nearest to its boundary."""

    student: int
    kappa: float
    """Share of these samples on which it is active."""
    alpha: float
    """Median of |α| over these samples."""


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
    """A teacher node of the lowest layer: what the theorems guarantee, and what is measured."""

    node: int
    findings: tuple[Finding, ...]
    nearest: Nearest | None
    observer: Observer | None
    crossed: bool

    @property
    def certificate(self) -> Finding | None:
        """The finding with the smallest guaranteed ε; None where no theorem applies."""
        sure = [f for f in self.findings if f.applies and f.eps is not None and not f.contradicted]
        return min(sure, key=lambda f: f.eps or 0.0) if sure else None

    @property
    def verdict(self) -> str:
        """The certificate, or the reason why there is none, in words."""
        if sure := self.certificate:
            return f"certified at ε = {number(sure.eps or 0.0)} by {sure.result}"
        if not self.crossed:
            return "not certified: the data never crosses its boundary; add samples on its other side, or move its bias"
        if against := [f.result for f in self.findings if f.contradicted]:
            return f"not certified: the measurement contradicts {', '.join(against)}"
        if (closest := self.closest) is None:
            return "not certified: no theorem is stated for such networks"
        worst, name = closest
        return f"not certified: {worst.name} fails{worst.by} ({worst.value}; {name} needs {worst.requirement})"

    @property
    def closest(self) -> tuple[Hypothesis, str] | None:
        """The hypothesis that fails most in the theorem that is closest to applying, and the theorem's name.

        None where a theorem certifies the node, or where none is stated for such networks.
        """
        if (finding := self._closest_finding) is None:
            return None
        return max(_causes(finding), key=lambda h: (_PRIORITY.get(h.name, 0), h.factor)), finding.result

    @property
    def samples(self) -> float | None:
        """About how many samples the reported theorem needs; if unknown, the smallest number of the other theorems."""
        reported = self.certificate or self._closest_finding
        if reported and reported.samples is not None:
            return reported.samples
        return min((f.samples for f in self.findings if f.samples is not None), default=None)

    @property
    def _closest_finding(self) -> Finding | None:
        """The theorem that is closest to applying, where none certifies the node."""
        failing = [] if self.certificate else [f for f in self.findings if f.failing]
        return min(failing, key=_distance_from_applying, default=None)


def _causes(finding: Finding) -> list[Hypothesis]:
    """Failing hypotheses; if the guarantee is not informative, without its rivals, which are then all boundaries."""
    vacuous = any(h.name == INFORMATIVE for h in finding.failing)
    return [h for h in finding.failing if not (vacuous and h.name == UNRIVALLED)]


def _distance_from_applying(finding: Finding) -> float:
    """Largest factor by which a hypothesis fails; infinite where a failure has no factor."""
    return max((h.factor if h.factor > 1 else math.inf for h in _causes(finding)), default=0.0)


@dataclass(frozen=True, eq=False, kw_only=True)
class Check:
    """All results applied to one teacher, one student and data.

    Attributes:
        slope: Slope of the student's activation below zero.
        samples: Number of samples.
        identities: Findings that hold at every sample.
        nodes: One entry per teacher node of the lowest layer that has a boundary.
        partners: The nearest teacher node of every student of the lowest layer that has a boundary.
        students: Findings on student nodes.
        parameters: Findings on what the function says about the parameters.
        classes: Findings on labelled inputs.
        silent: Results that are not stated for such networks, each with the reason.
        why_no_nodes: Reason why no boundaries of nodes are compared; empty where they are.
        changes: How networks with BatchNorm or convolutions are written as fully connected ones.
        inputs: Description of the samples.
    """

    teacher_sizes: tuple[int, ...]
    student_sizes: tuple[int, ...]
    teacher_slope: float
    slope: float
    samples: int
    identities: tuple[Finding, ...]
    conditions: DataConditions | None
    assumptions: Assumptions | None
    nodes: tuple[NodeCheck, ...]
    partners: tuple[Partner, ...]
    students: tuple[Finding, ...]
    dynamics: tuple[Finding, ...]
    parameters: tuple[Finding, ...]
    classes: tuple[Finding, ...]
    silent: tuple[tuple[str, str], ...]
    why_no_nodes: str
    changes: tuple[str, ...]
    inputs: str = "as given"

    @property
    def certified(self) -> int:
        """Number of certified teacher nodes."""
        return sum(node.certificate is not None for node in self.nodes)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All findings."""
        pairs = (*self.identities, *self.students, *self.dynamics, *self.parameters, *self.classes)
        return (*pairs, *(f for n in self.nodes for f in n.findings))

    @property
    def contradicted(self) -> tuple[Finding, ...]:
        """Findings whose hypotheses hold and whose conclusion does not; none are expected."""
        return tuple(finding for finding in self.findings if finding.contradicted)

    @property
    def headline(self) -> str:
        """The number of certified teacher nodes and their largest ε, in one sentence."""
        if self.why_no_nodes:
            applied = len({finding.result for finding in self.findings if finding.applies})
            return f"{applied} of {len(results())} results apply, none of them to teacher nodes: {self.why_no_nodes}."
        eps = [node.certificate.eps or 0.0 for node in self.nodes if node.certificate]
        sure = f", at ε up to {number(max(eps))}" if eps else ""
        return f"{self.certified} of {len(self.nodes)} teacher nodes are certified to have a student{sure}."

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON; numbers that are not finite become None."""
        found = self.conditions
        values: dict[str, Any] = {
            "headline": self.headline,
            "teacher": list(self.teacher_sizes),
            "student": list(self.student_sizes),
            "teacher_slope": self.teacher_slope,
            "slope": self.slope,
            "samples": self.samples,
            "inputs": self.inputs,
            "identities": [_plain(f) for f in self.identities],
            "data": None if found is None else _data_as_dict(found),
            "teacher_assumptions": None if self.assumptions is None else _assumptions_as_dict(self.assumptions),
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
            "parameters": [_plain(f) for f in self.parameters],
            "classes": [_plain(f) for f in self.classes],
            "no_teacher_nodes": self.why_no_nodes,
            "changes": list(self.changes),
            "silent": [{"result": name, "why": why} for name, why in self.silent],
        }
        return {key: _finite(value) for key, value in values.items()}


def _data_as_dict(found: DataConditions) -> dict[str, Any]:
    return {
        "eta": {"own": found.eta_own._asdict(), "random": found.eta_random._asdict()},
        "mu": {"own": found.mu_own._asdict(), "random": found.mu_random._asdict(), "bound": found.mu_bound},
        "widths": list(WIDTHS),
        "bands": found.bands.tolist(),
        "tau": found.tau.tolist(),
        "augmented_along_teacher": found.aware.tolist(),
        "augmented_along_axes": found.agnostic,
    }


def _assumptions_as_dict(found: Assumptions) -> dict[str, Any]:
    return {
        "holds": found.holds,
        "failures": found.failures,
        "closest": [layer.closest for layer in found.layers],
        "eps0": [layer.eps0 for layer in found.layers],
    }


def _plain(finding: Finding) -> dict[str, Any]:
    hypotheses = [asdict(h) | {"change": "" if h.holds else h.change} for h in finding.hypotheses]
    return asdict(finding) | {"applies": finding.applies, "hypotheses": hypotheses}


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


def check(
    teacher: Population | None,
    student: Population,
    x: Float[Tensor, "sample in"],
    step: Callable[[], None] = lambda: None,
    given: Known = NOTHING_KNOWN,
) -> Check:
    """Apply every result to one teacher and one student, in float64; list those that do not apply, with the reason.

    A missing bias counts as 0. Networks with BatchNorm or convolutions are written as fully connected ones that
    compute the same function; results on training are stated for the networks as they are.

    Args:
        teacher: One teacher; None for the results on classification, which are about one network and labelled inputs.
        student: One student.
        x: The samples.
        step: Called after each result, applied or not.
        given: Labels of the samples, and the student before training.

    Returns:
        What the results say.

    Raises:
        UserError: Networks and inputs do not match, contain numbers that are not finite or that would overflow, or no
            student node is active.
    """
    _validate(teacher, student, x, given)
    alone, teacher = teacher is None, student if teacher is None else teacher
    dense = [as_dense(network.to(dtype=torch.float64)) for network in (teacher, student)]
    theirs, ours = dense[0].network, dense[1].network
    if theirs is not None and ours is not None and min(len(theirs.layers), len(ours.layers)) > 1:
        theirs, ours = _with_equal_biases(theirs, ours)
    x = x.double()
    pair, why_no_nodes = None, _why_no_nodes(dense, alone)
    if not why_no_nodes and theirs is not None and ours is not None:
        pair = shared_pair(theirs, ours, x)
        _validate_scale(pair)
        if not pair.active.any():
            raise UserError(
                "no node of the student's lowest layer is active on any sample: give another student or data"
            )
    found: dict[Subject, list[Finding]] = {subject: [] for subject in get_args(Subject)}
    silent = []
    for result in results():
        if result.networks in ("BatchNorm", "linear", "classifier"):
            both: tuple[Population, Population] | None = teacher, student
            why = ""
        else:
            both = None if theirs is None or ours is None else (theirs, ours)
            why = _why_not_rewritten(result, dense)
        if alone and result.about_teacher:
            why = "it is stated for a teacher and a student, and there is no teacher"
        if why or both is None or (why := result.why_inapplicable(*both, given)):
            silent.append((result.name, why))
        elif made := result(*both, x, given):
            found[result.subject] += made
        else:
            silent.append((result.name, f"there is no {result.subject} that it is about in these networks"))
        step()
    data = None if pair is None else conditions(pair)
    return Check(
        teacher_sizes=() if alone else teacher.sizes,
        student_sizes=student.sizes,
        teacher_slope=teacher.slope,
        slope=student.slope,
        samples=len(x),
        identities=tuple(found["identity"]),
        classes=tuple(found["data"]),
        conditions=data,
        assumptions=None if pair is None or theirs is None else assumptions(theirs, x)[0],
        nodes=() if pair is None or data is None else _check_nodes(pair, data, found["teacher node"]),
        partners=() if pair is None else _partners(pair),
        students=tuple(found["student node"]),
        dynamics=tuple(found["dynamics"]),
        parameters=tuple(found["parameters"]),
        silent=tuple(silent),
        why_no_nodes=why_no_nodes,
        changes=_describe_changes(dense, alone),
    )


def _why_no_nodes(dense: Sequence[DenseNetwork], alone: bool) -> str:
    """Reason why the boundaries of teacher nodes and students are not compared; empty where they are."""
    if alone:
        return "there is no teacher"
    for one, name in zip(dense, ("teacher", "student"), strict=True):
        if one.network is None:
            return f"the {name} has {one.why}"
        if len(one.network.layers) < 2:
            return f"the {name} has no hidden layer"
    return ""


def _why_not_rewritten(result: Result, dense: Sequence[DenseNetwork]) -> str:
    """Reason why a result does not apply to networks with BatchNorm or convolutions; empty where it does."""
    for one, name in zip(dense, ("teacher", "student"), strict=True):
        if one.network is None:
            return f"the {name} has {one.why}"
    if result.subject == "dynamics" and dense[1].changes:
        return (
            "it is about training fully connected networks without BatchNorm, and training changes other weights of "
            "the student"
        )
    return ""


def _describe_changes(dense: Sequence[DenseNetwork], alone: bool) -> tuple[str, ...]:
    names = ("teacher", "student")
    return tuple(
        f"{name}: {change}"
        for one, name in list(zip(dense, names, strict=True))[alone:]
        if one.network is not None
        for change in one.changes
    )


def _check_nodes(pair: PairGeometry, data: DataConditions, findings: Sequence[Finding]) -> tuple[NodeCheck, ...]:
    nodes = []
    for j, node in enumerate(pair.teacher_nodes.tolist()):
        far = pair.student_distances(j)
        k = int(far.eps.argmin()) if len(far.eps) else -1
        nearest = Nearest(int(pair.student_nodes[k]), float(far.sin[k]), float(far.gap[k])) if k >= 0 else None
        own = tuple(f for f in findings if f.about == pair.name(j))
        nodes.append(NodeCheck(node, own, nearest, _best_observer(pair, j), bool(data.crossed[j])))
    return tuple(nodes)


def _best_observer(pair: PairGeometry, j: int) -> Observer | None:
    close = pair.closest(j, _CLOSEST)
    shares = pair.active[close].double().mean(0).tolist()
    alphas = pair.alphas(j, pair.x[close]).abs().median(0).values.tolist()
    observers = [Observer(k, shares[k], alphas[k]) for k in pair.student_nodes.tolist() if shares[k] > 0]
    return max(observers, key=lambda o: o.kappa * o.alpha, default=None)


def _partners(pair: PairGeometry) -> tuple[Partner, ...]:
    if not len(pair.teacher_nodes) or not len(pair.student_nodes):
        return ()
    far = torch.stack([pair.student_distances(j).eps for j in range(len(pair.teacher_nodes))])
    eps, which = far.min(0)
    return tuple(map(Partner, pair.student_nodes.tolist(), pair.teacher_nodes[which].tolist(), eps.tolist()))


def _with_equal_biases(teacher: Population, student: Population) -> tuple[Population, Population]:
    """Give the lowest layer biases of 0 if it has none in one network and some in the other."""
    if (teacher.layers[0].bias is None) == (student.layers[0].bias is None):
        return teacher, student
    return _with_biases(teacher), _with_biases(student)


def _with_biases(network: Population) -> Population:
    lowest, *above = network.layers
    bias = lowest.weight.new_zeros(lowest.weight.shape[:2]) if lowest.bias is None else lowest.bias
    return replace(network, layers=(lowest._replace(bias=bias), *above))


def _validate(teacher: Population | None, student: Population, x: Tensor, given: Known) -> None:
    named = {"teacher": teacher, "student": student, "student before training": given.start}
    for name, network in named.items():
        if network is None:
            continue
        if len(network) != 1:
            raise UserError(f"the {name} must be one network, got {len(network)}: select one, such as networks[0]")
        for layer in (*network.layers, *network.norms):
            if not all(part is None or bool(part.isfinite().all()) for part in layer):
                raise UserError(f"the {name} has weights that are not finite: give one that has not diverged")
    if given.start is not None and given.start.shape != student.shape:
        raise UserError(
            "the student before and after training must have the same layers and activation, got "
            f"{given.start!r} and {student!r}"
        )
    require_fitting(student if teacher is None else teacher, student, x)
    if not bool(x.isfinite().all()):
        raise UserError("the data has numbers that are not finite: leave these samples out")
    largest = float(x.abs().max()) if x.numel() else 0.0
    if largest and not 1 / _EXTREME <= largest <= _EXTREME:
        raise UserError(
            f"the largest number of the data is {number(largest)}, and must be between {number(1 / _EXTREME, 'g')} and "
            f"{number(_EXTREME, 'g')}, because products would vanish or overflow: scale the data"
        )
    if given.labels is not None and given.labels.shape != x.shape[:1]:
        raise UserError(f"there must be one label per sample ({len(x):,}), got shape {list(given.labels.shape)}")


def _validate_scale(pair: PairGeometry) -> None:
    """Refuse numbers whose products overflow or vanish in float64, which would appear as contradictions."""
    for network, name in ((pair.teacher, "teacher"), (pair.student, "student")):
        for layer in network.layers:
            largest = layer.weight[0].abs().amax(1)
            if bool(((largest > 0) & ((largest < 1 / _EXTREME) | (largest > _EXTREME))).any()):
                raise UserError(
                    f"the {name} has nodes with weights below {number(1 / _EXTREME, 'g')} or beyond "
                    f"{number(_EXTREME, 'g')}, whose products vanish or overflow: scale a node's weights by c "
                    "and its fan-out by 1/c"
                )
    if not pair.largest_gradient <= _EXTREME:
        raise UserError(
            f"gradients on this data are beyond {number(_EXTREME, 'g')}, and what follows from them would overflow: "
            "scale the weights or the data down"
        )
