"""Smaller students: nodes that have learned nothing go, by S0 Theorem 2, by correlation, or by top-down modulation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from understudy.errors import UserError
from understudy.measures import correlation, modulated_fan_out
from understudy.nets import Layer, Population, with_nodes
from understudy.papers.specialization.theory.prunable import finding, residuals
from understudy.theory.result import PRUNABLE, prunable, results
from understudy.theory.unexplained import check_pair, unexplained

Rule = Literal["theorem", "correlation", "modulation"]
BELOW: dict[Rule, float] = {"theorem": PRUNABLE, "correlation": 0.8, "modulation": 0.01}
"""What each rule goes by where nothing else is said."""


class Dropped(NamedTuple):
    """A node that went, and why."""

    layer: int
    node: int
    why: str


@dataclass(frozen=True, eq=False)
class Pruning:
    """A student of the nodes that were kept, and which these were, a hidden layer each in rising order."""

    network: Population
    kept: tuple[Int[Tensor, "_"], ...]
    dropped: tuple[Dropped, ...]
    scores: tuple[Float[Tensor, "_"], ...]
    """Of every node the number that decided."""
    by: Rule
    notes: tuple[str, ...] = ()
    """What kept nodes that the rule might have let go."""


class _Verdict(NamedTuple):
    """Which nodes of a layer go, the number that decides, and what it is."""

    goes: Bool[Tensor, "node"]
    score: Float[Tensor, "node"]
    words: str
    notes: tuple[str, ...] = ()


@torch.no_grad()
def pruned_students(
    teacher: Population,
    student: Population,
    x: Float[Tensor, "sample in"],
    below: float | None = None,
    by: Rule | None = None,
) -> Pruning:
    """One student without the nodes that a rule lets go, with all their weights; what is left is not changed.

    - `theorem` (S0 Theorem 2, two layers): nodes that share no teacher node's boundary, of which the theorem's
      hypotheses hold, and whose group of co-linear nodes adds no more than `below` of what the strongest aligned group
      does to the output, as root mean squares over x. A group goes or stays as a whole.
    - `correlation`: nodes whose best correlation with a teacher node of the same layer is under `below`.
    - `modulation` (S2 sec 3.3, any depth): the weakest nodes of each layer by E β_kk, as many as hold no more than
      `below` of the layer's total together.

    Where no rule is named a level means a correlation; without one it is `theorem` for networks it is stated for, and
    `modulation` for others.
    """
    if len(student) != 1 or len(teacher) != 1:
        raise UserError(f"{len(student)} students and {len(teacher)} teachers were given; give one of each")
    if by is not None and by not in BELOW:
        raise UserError(f"by must be one of {', '.join(BELOW)}, got {by}")
    if below is not None and not 0 <= below <= 1:
        raise UserError(f"below must be a number from 0 to 1, got {below}")
    check_pair(teacher, student, x)
    if by is None:
        by = (
            "correlation"
            if below is not None
            else "modulation"
            if _theorem_says_nothing(teacher, student)
            else "theorem"
        )
    level = BELOW[by] if below is None else float(below)
    ours, theirs, inputs = student.to(dtype=torch.float64), teacher.to(dtype=torch.float64), x.double()
    rules = {"theorem": _by_theorem, "correlation": _by_correlation, "modulation": _by_modulation}
    _check_alive(ours, inputs)
    verdicts = rules[by](theirs, ours, inputs, level)
    for layer, verdict in enumerate(verdicts, 1):
        if bool(verdict.goes.all()):
            highest = float(verdict.score.max())
            raise UserError(
                f"all {len(verdict.goes)} nodes of hidden layer {layer} would go: {verdict.words} reaches "
                f"{highest:.3g} at most, and {level:g} was given; "
                + ("give less than that" if highest > 0 else "the student has learned nothing that could be kept")
            )
    kept = tuple((~verdict.goes).nonzero().flatten() for verdict in verdicts)
    dropped = tuple(
        Dropped(layer, int(node), f"{verdict.words} {float(verdict.score[node]):.3g}")
        for layer, verdict in enumerate(verdicts)
        for node in verdict.goes.nonzero().flatten()
    )
    scores = tuple(verdict.score for verdict in verdicts)
    notes = tuple(note for verdict in verdicts for note in verdict.notes)
    return Pruning(with_nodes(student, [nodes.unsqueeze(0) for nodes in kept]), kept, dropped, scores, by, notes)


def _check_alive(student: Population, x: Tensor) -> None:
    """Refuse a student with a hidden layer that the inputs do not reach."""
    for layer, hidden in enumerate(student.activations(x).hidden, 1):
        if bool((hidden == hidden[:, :1]).all()):
            raise UserError(
                f"no node of hidden layer {layer} is active: each of the {hidden.shape[2]} gives the same on all "
                f"{len(x):,} inputs, so that none has learned anything; give a trained student, or inputs of its scale"
            )


def _theorem_says_nothing(teacher: Population, student: Population) -> str:
    """Why; empty where it is stated for such networks."""
    (theorem,) = (each for each in results() if each.name == "S0 theorem 2")
    return theorem.fits(teacher, student)


def _by_theorem(teacher: Population, student: Population, x: Tensor, below: float) -> Sequence[_Verdict]:
    if why := _theorem_says_nothing(teacher, student):
        raise UserError(f"S0 theorem 2 says nothing here: {why}; prune by correlation or modulation")
    whole, outputs = residuals(teacher, student, x), student.sizes[-1]
    found = {k: finding(k, whole, outputs) for k in whole.unaligned}
    score, goes = torch.ones_like(whole.given), torch.zeros_like(whole.given, dtype=torch.bool)
    for k, each in found.items():
        score[k], goes[k] = each.amount or 0.0, prunable(each, below)
    notes = []
    if strong := [k for k, each in found.items() if each.applies and not goes[k]]:
        notes.append(
            f"{len(strong)} without a teacher node's boundary stay: they give on more than {below:g} of the strongest"
        )
    if silent := [k for k, each in found.items() if not each.applies]:
        notes.append(
            f"{len(silent)} without a teacher node's boundary stay: S0 theorem 2 says nothing of them, as of node "
            f"{silent[0]}: {found[silent[0]].failing[0]}"
        )
    return [_Verdict(goes, score, "share of what the strongest group gives on", tuple(notes))]


def _by_correlation(teacher: Population, student: Population, x: Tensor, below: float) -> Sequence[_Verdict]:
    pairs = zip(teacher.activations(x).hidden, student.activations(x).hidden, strict=False)
    if len(teacher.layers) != len(student.layers):
        raise UserError(
            f"the student has {len(student.layers) - 1} hidden layers and the teacher {len(teacher.layers) - 1}; by "
            "correlation layers are compared one by one, so prune by modulation"
        )
    best = [correlation(theirs, ours)[0].amax(0) for theirs, ours in pairs]
    return [_Verdict(rho < below, rho, "best correlation") for rho in best]


def _by_modulation(teacher: Population, student: Population, x: Tensor, below: float) -> Sequence[_Verdict]:
    verdicts = []
    for strength in modulated_fan_out(student, x):
        energy = strength[0].square()
        share = energy / energy.sum().clamp_min(torch.finfo(energy.dtype).tiny)
        weakest = share.argsort(stable=True)
        goes = torch.empty_like(share, dtype=torch.bool)
        goes[weakest] = share[weakest].cumsum(0) <= below
        verdicts.append(_Verdict(goes, share, "share of the layer's modulation"))
    return verdicts


@torch.no_grad()
def refitted(teacher: Population, student: Population, x: Float[Tensor, "sample in"]) -> Population:
    """The same networks with the output weights, and biases where they have some, that fit the teacher best on x.

    Least squares in float64; of several best ones the smallest, so that nodes which do the same share the work.
    """
    check_pair(teacher, student, x)
    inputs, top = x.double(), student.layers[-1]
    wide = student.to(dtype=torch.float64)
    below = wide.activations(inputs).hidden[-1]
    if student.image is not None:  # the top layer sees maps channel by channel
        below = below.unflatten(1, (len(x), -1)).mT.flatten(2)
    columns = below if top.bias is None else torch.cat((below, torch.ones_like(below[..., :1])), 2)
    answers = teacher.to(dtype=torch.float64)(inputs).expand(len(student), -1, -1)
    # Of many samples only as many rows as columns are left to the slow and careful solver.
    basis, triangle = torch.linalg.qr(columns)
    solved = torch.linalg.lstsq(triangle.cpu(), (basis.mT @ answers).cpu(), driver="gelsd").solution
    fitted = solved.to(device=student.device, dtype=student.dtype).mT
    if top.bias is None:
        layer = Layer(fitted.contiguous(), None)
    else:
        layer = Layer(fitted[..., :-1].contiguous(), fitted[..., -1].contiguous())
    return replace(student, layers=(*student.layers[:-1], layer))


class PruningLosses(NamedTuple):
    """Losses as shares of the variance of the teacher's outputs."""

    before: float
    after: float
    refitted: float
    """With output weights fitted on the inputs that nodes were chosen by."""


def pruning_losses(
    teacher: Population, student: Population, pruning: Pruning, fitted: Population, x: Float[Tensor, "sample in"]
) -> PruningLosses:
    """On the inputs that were given, or on others."""
    before, after, again = (float(unexplained(teacher, each, x)) for each in (student, pruning.network, fitted))
    return PruningLosses(before, after, again)
