"""Smaller students: nodes removed by theorem 2 of Tian 2020, by correlation, by modulation, or by weight norm."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, NamedTuple, get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from understudy._errors import UserError
from understudy._numbers import number
from understudy.measures import correlation, modulated_fan_out
from understudy.nets import Layer, Population, with_nodes
from understudy.papers.specialization.theory.prunable import prunable_finding, residuals
from understudy.theory.result import PRUNABLE, find_result, prunable
from understudy.theory.unexplained import unexplained, validate_pair

Rule = Literal["theorem", "correlation", "modulation", "weight-norm"]
BELOW: dict[Rule, float] = {"theorem": PRUNABLE, "correlation": 0.8, "modulation": 0.01, "weight-norm": 0.01}
"""Default threshold of each rule."""
Strength = Literal["modulation", "weight-norm"]
STRENGTHS: tuple[Strength, ...] = get_args(Strength)
"""Rules that remove the weakest nodes of every layer."""
SHARE = 0.25
"""Share of the nodes of every layer that is removed where the two are compared."""


class DroppedNode(NamedTuple):
    """A removed node, and the reason."""

    layer: int
    node: int
    why: str


@dataclass(frozen=True, eq=False)
class Pruning:
    """A pruned student.

    Attributes:
        network: The student with the kept nodes.
        kept: Indices of the kept nodes per hidden layer, in ascending order.
        dropped: The removed nodes.
        scores: The number that decided, for every node of every hidden layer.
        by: The rule.
        notes: Why nodes were kept that the rule might have removed.
    """

    network: Population
    kept: tuple[Int[Tensor, "_"], ...]
    dropped: tuple[DroppedNode, ...]
    scores: tuple[Float[Tensor, "_"], ...]
    by: Rule
    notes: tuple[str, ...] = ()


class _Decision(NamedTuple):
    """The nodes of a layer to remove, the number that decides, and its name."""

    goes: Bool[Tensor, "node"]
    score: Float[Tensor, "node"]
    words: str
    notes: tuple[str, ...] = ()


@torch.no_grad()
def prune_student(
    teacher: Population,
    student: Population,
    x: Float[Tensor, "sample in"],
    below: float | None = None,
    by: Rule | None = None,
) -> Pruning:
    """Remove the nodes of one student that a rule selects; the remaining weights do not change.

    - `theorem` (Tian 2020, theorem 2; two layers): nodes that share no teacher node's boundary, for which the theorem's
      hypotheses hold, and whose group of co-linear nodes contributes at most `below` of what the strongest aligned
      group does to the output, as root mean squares over x. A group is removed or kept as a whole.
    - `correlation`: nodes whose best correlation with a teacher node of the same layer is below `below`.
    - `modulation` (Tian et al. 2019, sec. 3.3; any depth): the weakest nodes of each layer by E β_kk, as many as
      together hold at most `below` of the layer's total.
    - `weight-norm`, with which Tian et al. 2019 compare it: the same by ‖w̃_k‖², the node's incoming weights.

    Args:
        teacher: One teacher.
        student: One student.
        x: Inputs.
        below: Threshold of the rule.
        by: The rule. Default: `correlation` if a threshold is given; otherwise `theorem` for networks it is stated for,
            and `modulation` for others.

    Returns:
        The pruned student, with the kept and the removed nodes.

    Raises:
        UserError: The arguments do not match, the rule is not defined for such networks, or a layer would lose all
            nodes.
    """
    if len(student) != 1 or len(teacher) != 1:
        raise UserError(f"pruning needs one student and one teacher, got {len(student)} and {len(teacher)}")
    if by is not None and by not in BELOW:
        raise UserError(f"must be one of {', '.join(BELOW)}, got {by}", "by")
    if below is not None and not 0 <= below <= 1:
        raise UserError(f"must be between 0 and 1, got {below}", "below")
    validate_pair(teacher, student, x)
    if by is None and below is not None:
        by = "correlation"
    elif by is None:
        by = "modulation" if find_result("S0 theorem 2").why_inapplicable(teacher, student) else "theorem"
    level = BELOW[by] if below is None else float(below)
    ours, theirs, inputs = student.to(dtype=torch.float64), teacher.to(dtype=torch.float64), x.double()
    rules = {"theorem": _by_theorem, "correlation": _by_correlation}
    rules |= {strength: partial(_by_strength, by=strength) for strength in STRENGTHS}
    _validate_active(ours, inputs)
    decisions = rules[by](theirs, ours, inputs, level)
    for layer, decision in enumerate(decisions, 1):
        if bool(decision.goes.all()):
            highest = float(decision.score.max())
            raise UserError(
                f"all {len(decision.goes)} nodes of hidden layer {layer} would be removed: {decision.words} is at most "
                f"{number(highest)}, and the threshold is {number(level, 'g')}; "
                + ("choose a lower --below" if highest > 0 else "the student has learned nothing that could be kept")
            )
    kept = tuple((~decision.goes).nonzero().flatten() for decision in decisions)
    dropped = tuple(
        DroppedNode(layer, int(node), f"{decision.words} {number(float(decision.score[node]))}")
        for layer, decision in enumerate(decisions)
        for node in decision.goes.nonzero().flatten()
    )
    return Pruning(
        network=with_nodes(student, [nodes.unsqueeze(0) for nodes in kept]),
        kept=kept,
        dropped=dropped,
        scores=tuple(decision.score for decision in decisions),
        by=by,
        notes=tuple(note for decision in decisions for note in decision.notes),
    )


def _validate_active(student: Population, x: Tensor) -> None:
    """Refuse a student with a hidden layer that is constant over the inputs."""
    for layer, hidden in enumerate(student.activations(x).hidden, 1):
        if bool((hidden == hidden[:, :1]).all()):
            raise UserError(
                f"no node of hidden layer {layer} is active: each of the {hidden.shape[2]} is constant over all "
                f"{len(x):,} inputs; give a trained student, or inputs of its scale by --data or another --input-std"
            )


def _by_theorem(teacher: Population, student: Population, x: Tensor, below: float) -> Sequence[_Decision]:
    if why := find_result("S0 theorem 2").why_inapplicable(teacher, student):
        raise UserError(f"theorem 2 of Tian 2020 does not apply: {why}; prune by correlation or modulation")
    whole, outputs = residuals(teacher, student, x, below), student.sizes[-1]
    found = {k: prunable_finding(k, whole, outputs) for k in whole.unaligned}
    score, goes = torch.ones_like(whole.contribution), torch.zeros_like(whole.contribution, dtype=torch.bool)
    for k, each in found.items():
        score[k], goes[k] = each.amount or 0.0, prunable(each, below)
    notes = []
    strong = [k for k, each in found.items() if (each.amount or 0.0) > below]
    if strong:
        notes.append(
            f"{len(strong)} nodes without a teacher node's boundary are kept: they contribute more than "
            f"{number(below, 'g')} of the strongest"
        )
    if silent := [k for k, each in found.items() if k not in strong and not each.applies]:
        notes.append(
            f"{len(silent)} nodes without a teacher node's boundary are kept although they contribute less: theorem 2 "
            f"of Tian 2020 does not apply to them, for example to node {silent[0]}: {found[silent[0]].failing[0]}"
        )
    return [_Decision(goes, score, "contribution relative to the strongest group", tuple(notes))]


def _by_correlation(teacher: Population, student: Population, x: Tensor, below: float) -> Sequence[_Decision]:
    if len(teacher.layers) != len(student.layers):
        raise UserError(
            f"the student has {len(student.layers) - 1} hidden layers and the teacher {len(teacher.layers) - 1}; "
            "pruning by correlation compares layers one to one, so prune by modulation"
        )
    pairs = zip(teacher.activations(x).hidden, student.activations(x).hidden, strict=True)
    best = [correlation(theirs, ours)[0].amax(0) for theirs, ours in pairs]
    return [_Decision(rho < below, rho, "best correlation") for rho in best]


def _by_strength(
    teacher: Population, student: Population, x: Tensor, below: float, by: Strength
) -> Sequence[_Decision]:
    decisions = []
    for energy in _strengths(student, x, by):
        share = energy / energy.sum().clamp_min(torch.finfo(energy.dtype).tiny)
        weakest = share.argsort(stable=True)
        goes = torch.empty_like(share, dtype=torch.bool)
        goes[weakest] = share[weakest].cumsum(0) <= below
        decisions.append(_Decision(goes, share, f"share of the layer's {_NAMES[by]}"))
    return decisions


_NAMES: dict[Strength, str] = {"modulation": "modulation", "weight-norm": "squared weight norms"}


def _strengths(student: Population, x: Tensor, by: Strength) -> list[Float[Tensor, "node"]]:
    """E β_kk or ‖w̃_k‖² of the nodes of each hidden layer of one student."""
    if by == "modulation":
        return [strength[0].square() for strength in modulated_fan_out(student, x)]
    return [layer.weight[0].flatten(1).square().sum(1) for layer in student.layers[:-1]]


@torch.no_grad()
def remove_weakest(student: Population, x: Float[Tensor, "sample in"], by: Strength, share: float) -> Population:
    """Remove a share of the nodes of every hidden layer of one student, those that are weakest by a rule.

    Args:
        student: One student.
        x: Inputs, over which modulation is averaged.
        by: `modulation` (E β_kk) or `weight-norm` (‖w̃_k‖).
        share: Share of the nodes of each layer, rounded down to whole nodes; below 1.

    Returns:
        The student with the other nodes.

    Raises:
        UserError: Several students, or a share out of range.
    """
    if len(student) != 1:
        raise UserError(f"pruning needs one student, got {len(student)}")
    if not 0 <= share < 1:
        raise UserError(f"must be at least 0 and below 1, got {share}", "share")
    strengths = _strengths(student.to(dtype=torch.float64), x.double(), by)
    kept = (each.argsort(stable=True)[int(share * len(each)) :].sort().values for each in strengths)
    return with_nodes(student, [nodes.unsqueeze(0) for nodes in kept])


@torch.no_grad()
def refit(teacher: Population, student: Population, x: Float[Tensor, "sample in"]) -> Population:
    """Fit the output weights and biases of students to the teacher by least squares on x.

    In float64; among several minimisers the one of smallest norm, so that equivalent nodes share the output.
    """
    validate_pair(teacher, student, x)
    inputs, top = x.double(), student.layers[-1]
    wide = student.to(dtype=torch.float64)
    below = wide.activations(inputs).hidden[-1]
    if student.image is not None:  # the top layer reads maps channel by channel
        below = below.unflatten(1, (len(x), -1)).mT.flatten(2)
    columns = below if top.bias is None else torch.cat((below, torch.ones_like(below[..., :1])), 2)
    targets = teacher.to(dtype=torch.float64)(inputs).expand(len(student), -1, -1)
    # QR first: the slow, rank-revealing solver then has only as many rows as columns.
    basis, triangle = torch.linalg.qr(columns)
    solved = torch.linalg.lstsq(triangle.cpu(), (basis.mT @ targets).cpu(), driver="gelsd").solution
    fitted = solved.to(device=student.device, dtype=student.dtype).mT
    if top.bias is None:
        layer = Layer(fitted.contiguous(), None)
    else:
        layer = Layer(fitted[..., :-1].contiguous(), fitted[..., -1].contiguous())
    return replace(student, layers=(*student.layers[:-1], layer))


class PruningLosses(NamedTuple):
    """Losses as shares of the variance of the teacher outputs."""

    before: float
    after: float
    refitted: float
    """With output weights fitted on the inputs by which nodes were chosen."""


def pruning_losses(
    teacher: Population, student: Population, pruning: Pruning, fitted: Population, x: Float[Tensor, "sample in"]
) -> PruningLosses:
    """Compute the losses before pruning, after pruning and after refitting, on the given inputs."""
    before, after, again = (float(unexplained(teacher, each, x)) for each in (student, pruning.network, fitted))
    return PruningLosses(before, after, again)
