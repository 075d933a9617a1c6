"""Summaries of checks of several networks: how many teacher nodes are certified, and what most others lack."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any, NamedTuple

from understudy._numbers import number
from understudy.theory.check import Check, NodeCheck
from understudy.theory.result import results

NEVER_CROSSED = "data on both sides of its boundary"


class NetworkCheck(NamedTuple):
    """The check of one of several networks, or the reason why it was not checked."""

    network: int
    check: Check | None
    why: str = ""


class CommonFailure(NamedTuple):
    """A hypothesis that keeps teacher nodes from a certificate, and the number of nodes for which it fails most."""

    name: str
    nodes: int
    factor: float
    """Median factor by which it fails; infinite where a factor has no meaning."""
    change: str


class CheckSummary(NamedTuple):
    """Summary of the checks of several networks."""

    networks: int
    """Number of networks that were checked."""
    nodes: int
    certified: int
    eps: tuple[float, float, float] | None
    """Smallest, median and largest ε of the certificates."""
    failing: tuple[CommonFailure, ...]
    contradicted: int
    refused: int
    why_no_nodes: str
    """Reason why no network has nodes to certify; empty where one has."""
    applied: int
    """Number of results that apply to a network."""
    results: int
    """Number of all results."""

    @property
    def headline(self) -> str:
        """The number of certified teacher nodes and the range of their ε, in one sentence."""
        sure = f", at ε from {number(self.eps[0])} to {number(self.eps[2])}" if self.eps else ""
        networks = f"{self.networks:,} network{'s' * (self.networks != 1)}"
        if self.why_no_nodes:
            return (
                f"{self.applied:,} of {self.results:,} results apply to one or more of {networks}, none of them to "
                f"teacher nodes: {self.why_no_nodes}."
            )
        return (
            f"{self.certified:,} of {self.nodes:,} teacher nodes of {networks} are certified to have a student{sure}."
        )

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        low, middle, high = self.eps or (None, None, None)
        return {
            "headline": self.headline,
            "networks": self.networks,
            "refused": self.refused,
            "teacher_nodes": self.nodes,
            "certified": self.certified,
            "share": self.certified / self.nodes if self.nodes else None,
            "eps": {"smallest": low, "median": middle, "largest": high},
            "failing": [f._asdict() | {"factor": f.factor if math.isfinite(f.factor) else None} for f in self.failing],
            "contradicted": self.contradicted,
            "results": {"applied": self.applied, "all": self.results},
        }


def summarise(several: Sequence[NetworkCheck]) -> CheckSummary:
    """Summarise all networks that could be checked."""
    checks = [each.check for each in several if each.check]
    nodes = [node for check in checks for node in check.nodes]
    eps = sorted(node.certificate.eps or 0.0 for node in nodes if node.certificate)
    return CheckSummary(
        networks=len(checks),
        nodes=len(nodes),
        certified=len(eps),
        eps=(eps[0], median(eps), eps[-1]) if eps else None,
        failing=common_failures(nodes),
        contradicted=sum(len(check.contradicted) for check in checks),
        refused=len(several) - len(checks),
        why_no_nodes=checks[0].why_no_nodes if checks and all(check.why_no_nodes for check in checks) else "",
        applied=len({finding.result for check in checks for finding in check.findings if finding.applies}),
        results=len(results()),
    )


def common_failures(nodes: Iterable[NodeCheck]) -> tuple[CommonFailure, ...]:
    """Count the hypotheses that fail most for nodes without a certificate, the most common first."""
    found: dict[str, list[tuple[float, str]]] = {}
    for node in nodes:
        if not node.crossed and not node.certificate:
            change = "add samples on its other side, or move its bias"
            found.setdefault(NEVER_CROSSED, []).append((math.inf, change))
        elif failure := node.closest:
            found.setdefault(failure[0].name, []).append((failure[0].factor, failure[0].change))
    ranked = sorted(found.items(), key=lambda item: (-len(item[1]), item[0]))
    return tuple(
        CommonFailure(name, len(each), median(factor for factor, _ in each), sorted(each)[len(each) // 2][1])
        for name, each in ranked
    )
