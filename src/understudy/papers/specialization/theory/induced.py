"""Specialization of the lowest layer of deep networks, counting the boundaries of all layers (Tian 2020, theorem 5).

In the input space, the boundary of a node of a higher layer bends wherever it meets a boundary of a lower layer; each
piece lies in a plane. The proof needs a sample near the boundary of teacher node j that is far from all of these
planes. Only planes around the samples of the band matter: those of every higher node under the gates of such a sample,
for the teacher with node j on and with node j off, because the proof uses points on both sides of its boundary.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from understudy._errors import UserError
from understudy.nets import Population
from understudy.papers.specialization.theory.sampled import best_finding, describe_nearest, trials
from understudy.theory.boundaries import Planes, concatenate, layer_planes
from understudy.theory.pair_geometry import PairGeometry, hidden_gates, per_teacher_node
from understudy.theory.result import Finding, Hypothesis, result

MOST = 20_000
"""Largest number of boundaries that are counted."""


class TooManyBoundaries(UserError):
    """Higher layers induce more boundaries than can be counted."""

    @property
    def hypothesis(self) -> Hypothesis:
        """The failed hypothesis, for a finding."""
        change = "smaller or shallower networks"
        return Hypothesis("boundaries that can be counted", str(self), f"at most {MOST:,}", False, change)


def induced_planes(pair: PairGeometry, j: int, inside: Float[Tensor, "sample in"]) -> Planes:
    """Planes of all higher nodes around samples near the boundary of the j-th teacher node that has one."""
    node = int(pair.teacher_nodes[j])
    return concatenate(_higher_planes(pair.student, inside, None), _higher_planes(pair.teacher, inside, node))


def _higher_planes(network: Population, inside: Float[Tensor, "sample in"], either: int | None) -> Planes:
    """Planes of higher nodes under the gates of the samples, with node `either` of the lowest layer on and off."""
    lowest = network.layers[0].weight[0]
    found = [Planes(lowest.new_zeros(0, lowest.shape[1]), lowest.new_zeros(0))]
    patterns = hidden_gates(network, inside).unique(dim=0)
    if either is not None and len(patterns):
        on, off = patterns.clone(), patterns.clone()
        on[:, either], off[:, either] = True, False
        patterns = torch.cat((on, off)).unique(dim=0)
    count = sum(network.sizes[2:-1]) * len(patterns)
    if count > MOST:
        raise TooManyBoundaries(f"about {count:,} boundaries of higher layers, and at most {MOST:,} are counted")
    sizes, start = network.sizes[1:-1], 0
    affine = None
    for i, (weight, bias) in enumerate(network.layers[:-1]):
        shift = torch.zeros_like(weight[0, :, 0]) if bias is None else bias[0]
        if affine is None:
            affine = torch.cat((weight[0], shift.unsqueeze(1)), 1).expand(len(patterns), -1, -1)
        else:
            affine = weight[0] @ affine
            affine[..., -1] += shift
            # A layer depends only on the gates below it: equal gates give equal planes.
            some = affine[_first_occurrences(patterns[:, :start])].flatten(0, 1)
            found.append(layer_planes(some[:, :-1], some[:, -1])[0])
        through = torch.where(patterns[:, start : start + sizes[i]], 1.0, network.slope).to(affine.dtype)
        affine = affine * through.unsqueeze(2)
        start += sizes[i]
    return concatenate(*found)


def _first_occurrences(rows: Bool[Tensor, "row gate"]) -> Int[Tensor, "distinct"]:
    """Index of the first row of each distinct pattern."""
    distinct, which = rows.unique(dim=0, return_inverse=True)
    return torch.full((len(distinct),), len(rows)).scatter_reduce(0, which, torch.arange(len(rows)), "amin")


@result(
    "S0 theorem 5",
    title="Specialization of the lowest layer of deep networks",
    statement="As theorem 3, for the lowest layer of deep networks: the boundaries of all layers count, as they "
    "appear in the input space, and α is the minimum over the regions near the boundary. Their number, and with it "
    "the number of samples needed, can grow exponentially with depth.",
    measured="as for S0 theorem 3, counting the boundaries that higher layers induce around the samples of the band "
    "(up to 20,000)",
    subject="teacher node",
    networks="deep",
)
@per_teacher_node
def theorem_5(pair: PairGeometry, j: int) -> Finding:
    """Certify a teacher node of the lowest layer, counting all boundaries around its band."""
    name = "S0 theorem 5"
    try:
        return best_finding(pair, j, trials(pair, j, False, induced_planes), name)
    except TooManyBoundaries as error:
        conclusion = "a student has nearly the same boundary"
        return Finding(name, pair.name(j), (error.hypothesis,), conclusion, describe_nearest(pair, j))
