"""The hyperplanes study in words and figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from understudy.papers.specialization.hyperplanes.claims import SHARE, Settled, settled
from understudy.report.figures import Dots, Hyperplanes
from understudy.report.story import Figure, Number, Story, counted
from understudy.store import Run

if TYPE_CHECKING:
    from understudy.papers.specialization.hyperplanes.study import MovingHyperplanes

_EPOCH = 1_000
"""Steps in an epoch of the papers."""


def story(study: MovingHyperplanes, run: Run) -> Story:
    scales = sorted(study.scale, reverse=True)
    ends = [settled(run, scale) for scale in scales]
    figures = (
        *_film(study, run, ends[-1]),
        Figure(
            "others-fan-out",
            "Who found no boundary falls silent, mostly, if all start small",
            "Each network's loudest student that is on no teacher boundary, over its loudest: from large first "
            "weights, and in a few seeds from any, some stay active on all data, a constant or linear part of the fit.",
            "S1 fig 2, over seeds",
            _others(scales, ends),
        ),
    )
    return Story(_headline(study, ends[-1]), _numbers(run, ends[-1]), figures)


def _film(study: MovingHyperplanes, run: Run, ends: Settled) -> tuple[Figure, ...]:
    """The first seed from the smallest start; nothing where every network diverged."""
    from understudy.measures import fan_out

    if not len(ends.networks):
        return ()
    network, looks = int(ends.networks[0]), study.looks()
    group, place = divmod(network, study.seeds)
    teacher = run.weights("teacher")[group].layers[0]
    students = [run.weights(f"epoch.{epoch}")[group] for epoch in looks]
    first = [population.layers[0] for population in students]
    loss = run.series("eval_loss")[network, np.searchsorted(run.epochs, looks)]
    kind = Hyperplanes(
        np.array(looks) * study.steps / _EPOCH,
        teacher.weight[place].numpy(),
        _bias(teacher.bias, place),
        np.stack([layer.weight[place].numpy() for layer in first]),
        np.stack([_bias(layer.bias, place) for layer in first]),
        np.stack([fan_out(population, 0)[place].numpy() for population in students]),
        loss,
        moments=_moments(loss),
        network=network,
    )
    caption = (
        f"Teacher boundaries (solid) and those of {study.students} students (dashed), seed "
        f"{run.column('seed')[network]}, in epochs of 1,000 steps: students swing onto the teacher's lines; those that "
        "find none fade with their fan-out."
    )
    return (Figure("hyperplanes", f"{study.students} lines look for two", caption, "S0 fig 3, S1 fig 2", kind),)


def _moments(loss: np.ndarray) -> tuple[int, ...]:
    """The first look, those at which three quarters and a tenth of the first loss are left, and the last."""
    passed = [int((loss > share * loss[0]).argmin()) for share in (0.75, 0.1)]
    return tuple(sorted({0, *passed, len(loss) - 1}))


def _bias(bias: object, place: int) -> np.ndarray:
    from torch import Tensor

    assert isinstance(bias, Tensor), "networks of this study have biases"
    return bias[place].numpy()


def _others(scales: list[float], ends: list[Settled]) -> Dots:
    most = max(1, *(len(end.networks) for end in ends))

    def padded(values: np.ndarray, filling: float) -> np.ndarray:
        return np.concatenate((values, np.full(most - len(values), filling)))

    return Dots(
        tuple(f"{scale:g}" for scale in scales),
        np.stack([padded(end.others, np.nan) for end in ends]),
        np.stack([padded(end.networks, -1).astype(int) for end in ends]),
        "fan-out of the others / largest",
        "scale of the first weights",
        bound=SHARE,
        bound_words=f"{SHARE:.0%}",
        floor=1e-5,
        percent=True,
    )


def _headline(study: MovingHyperplanes, ends: Settled) -> str:
    n = len(ends.networks)
    if not n:
        return "Every network diverged."
    return (
        f"Started at {min(study.scale):g}, both teacher boundaries end with a student's on them in "
        f"{ends.both.sum()} of {counted(n, 'seed')}, and in {ends.quiet.sum()} of {n} every student that is on neither "
        f"has under {SHARE:.0%} of the largest fan-out."
    )


def _numbers(run: Run, ends: Settled) -> tuple[Number, ...]:
    numbers = (Number(f"{run.networks.num_rows:,}", "networks"),)
    if not len(ends.networks):
        return numbers
    loss = np.median(run.series("eval_loss")[ends.networks, -1])
    return (
        *numbers,
        Number(f"{ends.both.mean():.0%}", "of seeds with both boundaries covered"),
        Number(f"{ends.quiet.mean():.0%}", f"of seeds with the others under {SHARE:.0%} of the largest fan-out"),
        Number(f"{loss:.0e}", "median evaluation loss"),
    )
