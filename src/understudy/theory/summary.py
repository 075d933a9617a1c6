"""What every result says of several networks, in a few numbers: how many nodes are certified, and what fails most."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any, NamedTuple

from understudy.theory.check import Check, NodeCheck

NEVER_CROSSED = "data on both sides of its boundary"


class Checked(NamedTuple):
    """A network of several, and what was found, or why it was not looked at."""

    network: int
    check: Check | None
    why: str = ""


class Failing(NamedTuple):
    """What keeps teacher nodes from a certificate: the hypothesis that each lacks most, and how many lack it."""

    name: str
    nodes: int
    factor: float
    """Median of how many times too large or too small it is; infinite where that has no meaning."""
    change: str


class Summary(NamedTuple):
    """Several networks together."""

    networks: int
    """How many were looked at."""
    nodes: int
    certified: int
    eps: tuple[float, float, float] | None
    """Smallest, median and largest ε of the certificates."""
    failing: tuple[Failing, ...]
    contradicted: int
    refused: int

    @property
    def headline(self) -> str:
        sure = f", at ε from {self.eps[0]:.3g} to {self.eps[2]:.3g}" if self.eps else ""
        networks = f"{self.networks:,} network{'s' * (self.networks != 1)}"
        return (
            f"{self.certified:,} of {self.nodes:,} teacher nodes of {networks} are certified to have a student{sure}."
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain values for a program."""
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
        }


def summary(several: Sequence[Checked]) -> Summary:
    """All networks that could be looked at."""
    checks = [each.check for each in several if each.check]
    nodes = [node for check in checks for node in check.nodes]
    eps = sorted(node.certificate.eps or 0.0 for node in nodes if node.certificate)
    return Summary(
        len(checks),
        len(nodes),
        len(eps),
        (eps[0], median(eps), eps[-1]) if eps else None,
        failing(nodes),
        sum(len(check.contradicted) for check in checks),
        len(several) - len(checks),
    )


def failing(nodes: Iterable[NodeCheck]) -> tuple[Failing, ...]:
    """What the nodes that are not certified lack most, the commonest first."""
    found: dict[str, list[tuple[float, str]]] = {}
    for node in nodes:
        if not node.crossed and not node.certificate:
            change = "add samples on its other side, or move its bias"
            found.setdefault(NEVER_CROSSED, []).append((math.inf, change))
        elif lacking := node.closest:
            found.setdefault(lacking[0].name, []).append((lacking[0].factor, lacking[0].change))
    ranked = sorted(found.items(), key=lambda item: (-len(item[1]), item[0]))
    return tuple(
        Failing(name, len(all_), median(factor for factor, _ in all_), sorted(all_)[len(all_) // 2][1])
        for name, all_ in ranked
    )
