"""Figures and headline of `hyperplanes` (Tian 2020, fig. 3; Tian 2019, fig. 2)."""

import numpy as np

from understudy.papers.specialization.hyperplanes.claims import SHARE, Settled, settled
from understudy.papers.specialization.hyperplanes.study import MovingHyperplanes
from understudy.report.figures import Dots, Hyperplanes
from understudy.report.story import Figure, Number, Story, counted
from understudy.store import Run

_EPOCH = 1_000
"""Steps of an epoch in the papers."""


def story(study: MovingHyperplanes, run: Run) -> Story:
    """The film of one network, and the fan-outs of the other students in all."""
    scales = sorted(study.scale, reverse=True)
    ends = [settled(run, scale) for scale in scales]
    figures = (
        *_film(study, run, ends[-1]),
        Figure(
            "others-fan-out",
            "Students without a boundary fall silent, mostly, from small initial weights",
            "Largest fan-out of a student without a teacher boundary, relative to the largest in its network: from "
            "large initial weights, and in a few seeds from any, some stay active on all data as a linear part of the "
            "fit.",
            "S1 fig. 2, over seeds",
            Dots.from_columns(
                {f"{scale:g}": (end.others, end.networks) for scale, end in zip(scales, ends, strict=True)},
                "fan-out of the others / largest",
                "scale of the initial weights",
                bound=SHARE,
                bound_words=f"{SHARE:.0%}",
                floor=1e-5,
                percent=True,
            ),
        ),
    )
    return Story(_headline(study, ends[-1]), _numbers(run, ends[-1]), figures)


def _film(study: MovingHyperplanes, run: Run, ends: Settled) -> tuple[Figure, ...]:
    """The film of the first seed from the smallest initial weights; none if every network diverged."""
    from understudy.measures import fan_out

    if not len(ends.networks):
        return ()
    network, frames = int(ends.networks[0]), study.frames()
    group, place = divmod(network, study.seeds)
    teacher = run.weights("teacher")[group].layers[0]
    students = [run.weights(f"epoch.{epoch}")[group] for epoch in frames]
    first = [population.layers[0] for population in students]
    loss = run.series("eval_loss")[network, np.searchsorted(run.epochs, frames)]
    kind = Hyperplanes(
        np.array(frames) * study.steps / _EPOCH,
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
        f"{run.column('seed')[network]}, in epochs of 1,000 steps: students turn onto the teacher's lines; the "
        "others fade with their fan-out."
    )
    return (Figure("hyperplanes", f"{study.students} boundaries move onto two", caption, "S0 fig. 3, S1 fig. 2", kind),)


def _moments(loss: np.ndarray) -> tuple[int, ...]:
    """The first frame, those at which the loss has fallen to three quarters and to a tenth, and the last."""
    passed = [int((loss > share * loss[0]).argmin()) for share in (0.75, 0.1)]
    return tuple(sorted({0, *passed, len(loss) - 1}))


def _bias(bias: object, place: int) -> np.ndarray:
    from torch import Tensor

    assert isinstance(bias, Tensor), "networks of this study have biases"
    return bias[place].numpy()


def _headline(study: MovingHyperplanes, ends: Settled) -> str:
    n = len(ends.networks)
    if not n:
        return "Every network diverged; choose a smaller --lr."
    return (
        f"From initial weights of scale {min(study.scale):g}, both teacher boundaries end with a student's on them in "
        f"{ends.both.sum()} of {counted(n, 'seed')}, and in {ends.quiet.sum()} of {n} every other student "
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
