"""Claim L4: weights from irrelevant nodes to lucky ones vanish, others stay (Tian et al. 2019, sec. 3.4)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from understudy.claims import Claims, Verdict, mean_above, median, range_words
from understudy.lab.study import ranked
from understudy.papers.luck.irrelevant_nodes.study import IrrelevantNodes
from understudy.papers.specialization.shared import SEEN, seen
from understudy.store import Run

if TYPE_CHECKING:
    from understudy.data import Source
    from understudy.nets import Population

LUCKY, IRRELEVANT = 0.95, 0.8
"""Correlation with a teacher node, at the end, above which a student is lucky, and below which it is irrelevant."""
VANISHED, STAYS, LIKE = 0.1, 0.8, 0.8
"""Bounds on the norm of a block of weights relative to its start, above and below, and on its cosine with the start."""
ERRORS = 2.0
TRAINED = 0.9
"""Least share of the teacher nodes of every layer with a lucky student."""

claims = Claims(free="seeds dtype device", least={"seeds": 10}, tuned_on="seeds 101 and 102")


class IrrelevantWeights(NamedTuple):
    """Weights between two layers of one network over training, from irrelevant students; [epoch], relative to epoch 0.

    NaN where there are no such students.
    """

    to_lucky: np.ndarray
    to_irrelevant: np.ndarray
    cosine: float
    """Cosine of the weights to irrelevant students at the end with those at the start."""
    left_out: int
    """Irrelevant students of the lower layer that are active on almost all inputs, or on almost none, at the end."""
    found: float
    """Share of the teacher nodes of the lower layer that have a lucky student."""


@lru_cache(maxsize=4)
def weights_of(run: Run, start: str, multiple: float) -> list[list[IrrelevantWeights]]:
    """Weights above every hidden layer of the networks that did not diverge, by network and layer."""
    epochs = kept_epochs(run)
    some = run.select(start=start, multiple=multiple)
    group = int(some.index[0]) // len(some) if len(some) else 0
    each = [run.weights(f"epoch.{epoch}")[group] for epoch in epochs]
    teacher, source = run.weights("teacher")[group], run.sources[group]
    alive = np.flatnonzero(some.alive)
    return [_network(teacher[i], [students[i] for students in each], source) for i in alive.tolist()]


def kept_epochs(run: Run) -> list[int]:
    """Epochs at which weights were saved."""
    return list(ranked(run.options["epochs"]))


def _network(teacher: Population, students: Sequence[Population], source: Source) -> list[IrrelevantWeights]:
    """Weights above every hidden layer of a network, given its weights at the epochs."""
    import torch

    from understudy.measures import best_students, best_teachers, correlation

    last = students[-1].to(dtype=torch.float64)
    x = source.evaluating(int(last.seeds[0]), dtype=last.dtype)
    hidden = list(zip(teacher.to(dtype=last.dtype).activations(x).hidden, last.activations(x).hidden, strict=True))
    rho = [correlation(theirs, ours) for theirs, ours in hidden]
    best = [best_teachers(each).correlation[0].numpy() for each in rho]
    found = []
    for layer, (_, ours) in enumerate(hidden):
        low = best[layer] < IRRELEVANT
        partly = seen((ours[0] > 0).double().mean(0).numpy())
        matrices = [each.layers[layer + 1].weight[0].double().numpy() for each in students]
        every = np.ones(len(matrices[0]), bool)
        top = layer + 1 == len(hidden)
        lucky, others = (every, ~every) if top else (best[layer + 1] > LUCKY, best[layer + 1] < IRRELEVANT)
        to_lucky, to_others = ([w[rows][:, low & partly] for w in matrices] for rows in (lucky, others))
        learned = float((best_students(rho[layer]).correlation > LUCKY).double().mean())
        left_out = int((low & ~partly).sum())
        found.append(IrrelevantWeights(_norms(to_lucky), _norms(to_others), _cosine(to_others), left_out, learned))
    return found


def _norms(each: list[np.ndarray]) -> np.ndarray:
    norms = np.array([np.linalg.norm(block) for block in each])
    return norms / norms[0] if each[0].size else np.full(len(each), np.nan)


def _cosine(each: list[np.ndarray]) -> float:
    first, last = each[0].ravel(), each[-1].ravel()
    return float(first @ last / np.linalg.norm(first) / np.linalg.norm(last)) if first.size else np.nan


def between(study: IrrelevantNodes, layer: int) -> str:
    """The layers that weights connect, in words."""
    return f"layer {layer + 1} to {f'layer {layer + 2}' if layer + 1 < len(study.hidden) else 'the outputs'}"


def _cases(study: IrrelevantNodes, run: Run, layers: int) -> list[dict[str, object]]:
    return [
        {"k": k, "layer": layer, "between": between(study, layer)}
        for k, layer in product(study.multiple, range(layers))
        if "lucky" in study.starts and weights_of(run, "lucky", k)
    ]


def _decide(
    study: IrrelevantNodes,
    k: float,
    run: Run,
    layer: int,
    value: Callable[[IrrelevantWeights], float],
    decide: Callable[..., Verdict],
) -> Verdict:
    """Decide with lucky starts, provided that lucky students match; with random starts beside."""

    def test(start: str) -> Verdict:
        some = [network[layer] for network in weights_of(run, start, k)]
        left = f"{range_words([each.left_out for each in some])} students left out"
        return decide([value(each) for each in some], say=f"{{median:.2f}} (seeds {{range:.2f}}), {left}")

    learned = [each.found for network in weights_of(run, "lucky", k) for each in network]
    until = f"training until {TRAINED:.0%} of the teacher nodes have a lucky student"
    there = np.isfinite([value(network[layer]) for network in weights_of(run, "lucky", k)])
    verdict = test("lucky").provided(np.median(learned) >= TRAINED, until)
    verdict = verdict.provided(there.any(), "networks with such students")
    return verdict.with_variants({"random starts": test("random")}) if "random" in study.starts else verdict


_FROM = (
    f"weights from irrelevant students (correlation below {IRRELEVANT:g}, active on {SEEN[0]:.0%} to {SEEN[1]:.0%} "
    "of the inputs), {between}"
)


@claims.claim(
    "L4",
    "to lucky nodes, {k:g}×, {between}",
    statement=f"{_FROM}, to lucky ones (above {LUCKY:g}): norm after training relative to the start, lucky starts, "
    f"median over seeds at most {VANISHED:g}",
    paper="converge to zero",
    values_are="norm relative to the start, per seed",
    cases=lambda study, run: _cases(study, run, len(study.hidden)),
)
def vanish(study: IrrelevantNodes, run: Run, k: float, layer: int, between: str) -> Verdict:
    return _decide(study, k, run, layer, lambda each: each.to_lucky[-1], partial(median, at_most=VANISHED))


@claims.claim(
    "L4",
    "lucky against irrelevant, {k:g}×, {between}",
    statement=f"{_FROM}: norm after training relative to the start, lucky starts, lower to lucky ones (above "
    f"{LUCKY:g}) than to irrelevant ones, mean difference over seeds more than {ERRORS:g} standard errors",
    paper="those to lucky nodes converge to zero, others do not",
    values_are="difference of norms relative to the start, per seed",
    cases=lambda study, run: _cases(study, run, len(study.hidden) - 1),
)
def lucky_against_irrelevant(study: IrrelevantNodes, run: Run, k: float, layer: int, between: str) -> Verdict:
    def gap(each: IrrelevantWeights) -> float:
        return float(each.to_irrelevant[-1] - each.to_lucky[-1])

    return _decide(study, k, run, layer, gap, partial(mean_above, errors=ERRORS))


@claims.claim(
    "L4",
    "to irrelevant nodes, {k:g}×, {between}",
    statement=f"{_FROM}, to irrelevant ones: norm after training relative to the start, lucky starts, median over "
    f"seeds at least {STAYS:g}",
    paper="not determined",
    values_are="norm relative to the start, per seed",
    cases=lambda study, run: _cases(study, run, len(study.hidden) - 1),
)
def stay(study: IrrelevantNodes, run: Run, k: float, layer: int, between: str) -> Verdict:
    return _decide(study, k, run, layer, lambda each: each.to_irrelevant[-1], partial(median, at_least=STAYS))


@claims.claim(
    "L4",
    "start decides, {k:g}×, {between}",
    statement=f"{_FROM}, to irrelevant ones: cosine after training with the start, lucky starts, median over seeds at "
    f"least {LIKE:g}",
    paper="final values depend on initialization",
    values_are="cosine with the start, per seed",
    cases=lambda study, run: _cases(study, run, len(study.hidden) - 1),
)
def start_decides(study: IrrelevantNodes, run: Run, k: float, layer: int, between: str) -> Verdict:
    return _decide(study, k, run, layer, lambda each: each.cosine, partial(median, at_least=LIKE))
