"""Contents of a report of `understudy check`, for the terminal and for the page alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from understudy._citations import CODES, cite
from understudy._numbers import number, typeset
from understudy.teachers.assumptions import Assumptions
from understudy.theory.boundaries import ALIGNED
from understudy.theory.check import Check, NodeCheck
from understudy.theory.conditions import WIDTHS, DataConditions
from understudy.theory.result import PRUNABLE, Finding, format_factor, prunable
from understudy.theory.summary import CommonFailure, NetworkCheck, common_failures, summarise

MOST_STUDENTS = 12
"""Students that a list names one by one."""
_MOST_FAILURES = 3
_PRUNING = "S0 theorem 2"
_ACTIVATIONS = {0.0: "ReLU", -1.0: "|·|"}


class FindingView(NamedTuple):
    """One finding, and whether the measurement agrees with it."""

    finding: Finding
    state: str
    """`sure` where measurement and result agree, `bad` where they do not, `open` where the result does not apply."""
    sign: str
    summary: str

    @classmethod
    def of(cls, finding: Finding) -> FindingView:
        if finding.contradicted:
            return cls(finding, "bad", "✗", "contradicts the result")
        if not finding.applies:
            return cls(finding, "open", "–", f"does not apply: {finding.failing[0]}")
        if not finding.agrees:
            return cls(finding, "open", "–", "applies; the measurement decides nothing")
        return cls(finding, "sure", "✓", "agrees with the result")


class NodeView(NamedTuple):
    """One teacher node: its certificate, or what it lacks most and by what factor."""

    check: NodeCheck
    state: str
    sign: str
    verdict: str
    by: str
    needed: str
    """About how many samples are needed; empty where unknown."""
    observer: tuple[str, str, str] | None
    """Student, κ and α."""
    nearest: tuple[str, str, str] | None
    """Student, sin θ and difference of biases."""

    @classmethod
    def of(cls, node: NodeCheck) -> NodeView:
        seen, near = node.observer, node.nearest
        return cls(
            node,
            *_verdict(node),
            needed="" if node.samples is None else number(node.samples, ".2g"),
            observer=(str(seen.student), number(seen.kappa, ".2g"), number(seen.alpha)) if seen else None,
            nearest=(str(near.student), number(near.sin, ".2g"), number(near.gap, ".2g")) if near else None,
        )

    @property
    def facts(self) -> list[str]:
        """Samples needed, nearest student and observer, in words."""
        needed = [f"about {self.needed} such samples needed"] if self.needed else []
        near, seen = self.nearest, self.observer
        nearest = [f"nearest: student {near[0]}, sin θ {near[1]}, |b − b'| {near[2]}"] if near else []
        return [*needed, *nearest, f"observer: student {seen[0]}, κ {seen[1]}, α {seen[2]}" if seen else "no observer"]


class CheckView(NamedTuple):
    """All that is reported about one teacher and one student."""

    check: Check
    networks: str
    samples: str
    data: list[tuple[str, str]]
    """Constants of the data, by name."""
    bands: list[tuple[str, list[int]]]
    """Numbers of samples within each of `WIDTHS` of the boundaries of teacher nodes."""
    teacher: list[str]
    nodes: list[NodeView]
    failures: list[str]
    students: list[str]
    student_findings: list[FindingView]
    dynamics: list[FindingView]
    parameters: list[FindingView]
    identities: list[FindingView]
    classes: list[FindingView]
    silent: list[tuple[str, str]]
    """Names of the results that are not stated for such networks, by reason."""

    @classmethod
    def of(cls, check: Check) -> CheckView:
        found = check.conditions
        return cls(
            check,
            networks=describe_networks(check),
            samples=describe_samples([check]),
            data=[] if found is None else [(name, typeset(value)) for name, value in _data(found)],
            bands=[]
            if found is None
            else [
                (f"node {int(node)}", [int(count) for count in counts])
                for node, counts in zip(found.nodes, found.bands, strict=True)
            ],
            teacher=[] if check.assumptions is None else [*map(typeset, _teacher(check, check.assumptions))],
            nodes=[NodeView.of(node) for node in check.nodes],
            failures=describe_failures(common_failures(check.nodes), len(check.nodes)),
            students=[*map(typeset, describe_students(check))],
            student_findings=[FindingView.of(f) for f in check.students],
            dynamics=[FindingView.of(f) for f in check.dynamics],
            parameters=[FindingView.of(f) for f in check.parameters],
            identities=[FindingView.of(f) for f in check.identities],
            classes=[FindingView.of(f) for f in check.classes],
            silent=_by_reason(check.silent),
        )

    @property
    def other_student_findings(self) -> list[FindingView]:
        """Findings on students that the list of students does not report already."""
        return [each for each in self.student_findings if each.finding.result != _PRUNING]

    def findings_by_result(self) -> list[tuple[str, list[FindingView]]]:
        """Findings on students, grouped by result."""
        names = dict.fromkeys(each.finding.result for each in self.student_findings)
        return [(name, [e for e in self.student_findings if e.finding.result == name]) for name in names]


class ChecksView(NamedTuple):
    """All that is reported about several networks."""

    headline: str
    samples: str
    contradicted: int
    numbers: list[tuple[str, str]]
    """Values with their names."""
    failures: list[str]
    networks: list[tuple[NetworkCheck, CheckView | None]]

    @classmethod
    def of(cls, networks: Sequence[NetworkCheck], total: int) -> ChecksView:
        """View of the networks that were selected, out of a total number."""
        summary = summarise(networks)
        checks = [each.check for each in networks if each.check]
        alone = len(networks) == 1
        numbers = [
            (f"{summary.certified:,} of {summary.nodes:,}", "teacher nodes certified"),
            (number(summary.eps[1]) if summary.eps else "–", "median ε guaranteed"),
            (f"{checks[0].samples:,}", "samples" if alone else "samples per network"),
            (f"{summary.contradicted:,}", "findings that contradict a theorem"),
        ]
        if not alone:
            of = f" of {total:,}" if total > summary.networks else ""
            numbers.insert(0, (f"{summary.networks:,}{of}", "networks"))
        return cls(
            headline=checks[0].headline if alone else summary.headline,
            samples=describe_samples(checks),
            contradicted=summary.contradicted,
            numbers=numbers,
            failures=describe_failures(summary.failing, summary.nodes),
            networks=[(each, CheckView.of(each.check) if each.check else None) for each in networks],
        )


def describe_networks(check: Check) -> str:
    """Sizes and activations of teacher and student; the activation once where both are the same."""
    teacher, student = ("-".join(map(str, sizes)) for sizes in (check.teacher_sizes, check.student_sizes))
    theirs, ours = (
        _ACTIVATIONS.get(slope, f"leaky ReLU of slope {number(slope, 'g')}")
        for slope in (check.teacher_slope, check.slope)
    )
    kinds = f"student {student}, {ours}"
    if check.teacher_sizes:
        kinds = f"teacher {teacher}{f', {theirs}' * (theirs != ours)}, {kinds}"
    return "; ".join([kinds, *check.changes])


def describe_samples(checks: Sequence[Check]) -> str:
    """Number and origin of the samples; for several networks those of the first."""
    first, kinds = checks[0], {(check.samples, check.inputs) for check in checks}
    more = f", and {len(kinds) - 1} other{'s' * (len(kinds) > 2)}" if len(kinds) > 1 else ""
    return f"{first.samples:,}{' per network' * (len(checks) > 1)}, {first.inputs}{more}"


def describe_failures(found: Sequence[CommonFailure], nodes: int) -> list[str]:
    """What keeps most nodes from a certificate, the most common first."""
    return [
        f"{each.nodes:,} of {nodes:,} nodes lack most “{each.name}”{describe_factor(each)}"
        + (f": {each.change}" if each.change else "")
        for each in found[:_MOST_FAILURES]
    ]


def describe_factor(found: CommonFailure) -> str:
    """The factor by which a hypothesis fails, such as `, by 12×`."""
    return f", by {format_factor(found.factor)}" if 1 < found.factor < float("inf") else ""


def describe_students(check: Check) -> list[str]:
    """Students that have a teacher node's boundary, and those that Tian 2020, theorem 2, shows to be prunable."""
    if check.why_no_nodes:
        return []
    aligned = [p for p in check.partners if p.aligned]
    lines = [f"{len(aligned)} of {check.student_sizes[1]} have the boundary of a teacher node, to ε = {ALIGNED:g}"]
    for p in sorted(aligned, key=lambda p: p.eps)[:MOST_STUDENTS]:
        lines.append(f"  student {p.student}: that of node {p.teacher}, to ε = {p.eps:.2g}")
    if len(aligned) > MOST_STUDENTS:
        lines.append(f"  and {len(aligned) - MOST_STUDENTS} more")
    others = [f for f in check.students if f.result == _PRUNING]
    if not others:
        return lines
    small = [f for f in others if f.applies and prunable(f)]
    strong = [f.amount or 0 for f in others if f.applies and not prunable(f)]
    unknown = [f for f in others if not f.applies]
    names = [finding.about.removeprefix("student node ") for finding in small]
    lines.append(
        f"{len(small)} of the others are prunable: {cite(_PRUNING)} applies, and on the data they contribute less than "
        f"{PRUNABLE:.0%} of the strongest student" + (f": {_several('node', names)}" if names else "")
    )
    if strong:
        lines.append(f"  {len(strong)} contribute {min(strong):.2g} to {max(strong):.2g} of it, which is too much")
    if unknown:
        lines.append(f"  to {len(unknown)} it does not apply, for example {unknown[0].about}: {unknown[0].failing[0]}")
    return lines


def _verdict(node: NodeCheck) -> tuple[str, str, str, str]:
    """State, sign, verdict and the factor by which the node misses a certificate."""
    if sure := node.certificate:
        return "sure", "✓", f"ε = {number(sure.eps or 0.0)} by {cite(sure.result)}", ""
    if not node.crossed:
        return "open", "✗", "the data never crosses its boundary", ""
    if any(finding.contradicted for finding in node.findings):
        return "bad", "✗", "the measurement contradicts a theorem", ""
    if (lacking := node.closest) is None:
        return "open", "–", "no theorem for such networks", ""
    return "open", "✗", lacking[0].name, lacking[0].by.removeprefix(" by ")


def _data(found: DataConditions) -> list[tuple[str, str]]:
    facts = [
        ("η, own boundaries", f"{found.eta_own.value:.3g}, at {found.eta_own.where}"),
        ("η, random planes", f"{found.eta_random.value:.3g}, at {found.eta_random.where}"),
        ("μ, own boundaries", f"{found.mu_own.value:.3g}, at {found.mu_own.where}"),
        ("μ, random planes", f"{found.mu_random.value:.3g}, at {found.mu_random.where}"),
        ("μ of any direction", f"at most {found.mu_bound:.3g}"),
    ]
    if len(found.tau):
        least = int(found.tau.argmin())
        facts.append(("τ, smallest", f"{float(found.tau[least]):.3g}, at teacher node {int(found.nodes[least])}"))
    return [*facts, ("augmentation", _augmentation(found))]


def _augmentation(found: DataConditions) -> str:
    """Share of the data that contains the points of the theorems, which are evaluated in any case."""
    near = float(found.aware.max()) if len(found.aware) else 0.0
    if not near and not found.agnostic:
        return "none in the data; the points that the theorems need are generated and evaluated"
    along = f"along the teacher's weights for up to {near:.0%} of the samples near a boundary"
    return f"{along}, along the axes for {found.agnostic:.0%} of all"


def _teacher(check: Check, found: Assumptions) -> list[str]:
    """Whether the teacher's lowest layer meets the assumptions of Tian 2020, and what would have to change."""
    layer = found.layers[0]
    lengths = f"{float(layer.lengths.min()):.3g} to {float(layer.lengths.max()):.3g}"
    lines = [f"weights of length {lengths}: rescaled to length 1" if layer.irregular else "weights of length 1"]
    if layer.closest:
        one, other = layer.closest
        lines.append(f"closest nodes {one} and {other}: ε0 = {layer.eps0:.3g}, below which no two nodes are aligned")
    never = [str(node.node) for node in check.nodes if not node.crossed]
    lines.append(
        f"the data never crosses the boundary of {_several('node', never)}: add samples on the other side, or move the "
        "bias"
        if never
        else "the data crosses every boundary"
    )
    return lines + [failure for failure in found.failures if not failure.startswith("layer 1:")]


def _by_reason(silent: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Names of the results that share a reason, by paper and kind, with the reason."""
    names: dict[str, dict[str, dict[str, list[str]]]] = {}
    for name, why in silent:
        paper, kind, place = name.split()
        names.setdefault(why, {}).setdefault(paper, {}).setdefault(kind, []).append(place)

    def of_kind(kind: str, places: list[str]) -> str:
        plural = f"{kind.removesuffix('y')}{'ies' if kind.endswith('y') else 's'}" if len(places) > 1 else kind
        return f"{plural} {', '.join(sorted(places, key=lambda place: (len(place), place)))}"

    def of_paper(paper: str, kinds: dict[str, list[str]]) -> str:
        return ", ".join([CODES.get(paper, paper), *(of_kind(*each) for each in sorted(kinds.items(), reverse=True))])

    return [("; ".join(of_paper(*each) for each in papers.items()), why) for why, papers in names.items()]


def _several(thing: str, names: Sequence[str]) -> str:
    """Names of several things in words, of many only the first."""
    more = f" and {len(names) - MOST_STUDENTS} more" if len(names) > MOST_STUDENTS else ""
    return f"{thing}{'s' * (len(names) > 1)} {', '.join(names[:MOST_STUDENTS])}{more}"


def widths() -> list[str]:
    """Half-widths ε of the bands around a boundary, in words."""
    return [number(width, "g") for width in WIDTHS]
