"""Theorem 5 of S0: specialization of the lowest layer of deep networks, with the boundaries of all layers counted.

In the space of inputs the boundary of a node of a higher layer is bent wherever it meets one of a layer below; each
piece lies in a plane. The proof needs a sample near the boundary of teacher node j that is far from all of these
planes. Only planes around the samples of the band matter: those of every higher node under the gates of such a sample,
for the teacher with node j on and with node j off, since both sides of its boundary are looked at.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from understudy.errors import UserError
from understudy.nets import Population
from understudy.papers.specialization.theory.sampled import measured_nearest, node_finding, trials
from understudy.theory.boundaries import Planes, planes
from understudy.theory.result import Finding, Hypothesis, result
from understudy.theory.scene import Scene, gates, joined

MOST = 20_000
"""Boundaries that are counted before the count is given up."""


class TooMany(UserError):
    """More boundaries than can be counted."""


def induced(sight: Scene, j: int, inside: Float[Tensor, "sample in"]) -> Planes:
    """The planes of all higher nodes around samples near the boundary of the j-th teacher node that has one."""
    node = int(sight.nodes[j])
    return joined(_planes(sight.student, inside, None), _planes(sight.teacher, inside, node))


def _planes(network: Population, inside: Float[Tensor, "sample in"], either: int | None) -> Planes:
    """Planes of the nodes of higher layers under the gates of the samples, a node of the lowest on and off."""
    lowest = network.layers[0].weight[0]
    found = [Planes(lowest.new_zeros(0, lowest.shape[1]), lowest.new_zeros(0))]
    patterns = gates(network, inside).unique(dim=0)
    if either is not None and len(patterns):
        on, off = patterns.clone(), patterns.clone()
        on[:, either], off[:, either] = True, False
        patterns = torch.cat((on, off)).unique(dim=0)
    count = sum(network.sizes[2:-1]) * len(patterns)
    if count > MOST:
        raise TooMany(f"about {count:,} boundaries of higher layers, and at most {MOST:,} are counted")
    sizes, start = network.sizes[1:-1], 0
    affine = None
    for i, (weight, bias) in enumerate(network.layers[:-1]):
        shift = torch.zeros_like(weight[0, :, 0]) if bias is None else bias[0]
        if affine is None:
            affine = torch.cat((weight[0], shift.unsqueeze(1)), 1).expand(len(patterns), -1, -1)
        else:
            affine = weight[0] @ affine
            affine[..., -1] += shift
            # What a layer does depends on the gates below it alone: equal ones give equal planes.
            _, first = _first_of_each(patterns[:, :start])
            some = affine[first].flatten(0, 1)
            found.append(planes(some[:, :-1], some[:, -1])[0])
        through = torch.where(patterns[:, start : start + sizes[i]], 1.0, network.slope).to(affine.dtype)
        affine = affine * through.unsqueeze(2)
        start += sizes[i]
    return joined(*found)


def _first_of_each(rows: Bool[Tensor, "row gate"]) -> tuple[Tensor, Tensor]:
    distinct, which = rows.unique(dim=0, return_inverse=True)
    first = torch.full((len(distinct),), len(rows)).scatter_reduce(0, which, torch.arange(len(rows)), "amin")
    return distinct, first


@result(
    "S0 theorem 5",
    title="Specialization of the lowest layer of deep networks",
    statement="As theorem 3, for the lowest layer of deep networks: the boundaries of all layers count, as they lie "
    "in the space of inputs, and α is the least over the regions near the boundary. Their number can grow "
    "exponentially with depth, and the samples that are needed with it.",
    measured="as for S0 theorem 3, counting the boundaries that higher layers induce around the samples of the band "
    "(up to 20,000)",
    subject="teacher node",
    networks="deep",
)
def theorem_5(teacher: Population, student: Population, x: Float[Tensor, "sample in"]) -> Sequence[Finding]:
    """Every teacher node of the lowest layer, with all boundaries around its band counted."""
    sight = Scene(teacher, student, x)
    return [_finding(sight, j) for j in range(len(sight.theirs))]


def _finding(sight: Scene, j: int) -> Finding:
    try:
        return node_finding(sight, j, trials(sight, j, False, induced), "S0 theorem 5")
    except TooMany as error:
        counted = Hypothesis(
            "boundaries that can be counted", str(error), f"at most {MOST:,}", False, "smaller or shallower networks"
        )
        about = f"teacher node {int(sight.nodes[j])}"
        conclusion = "a student has nearly its boundary"
        return Finding("S0 theorem 5", about, (counted,), conclusion, measured_nearest(sight, j))
