"""Figures and headline of `hyperplanes` (Tian 2020, fig. 3; Tian 2019, fig. 2)."""

import numpy as np

from understudy.papers.specialization.hyperplanes.claims import SHARE, Settled, settled
from understudy.papers.specialization.hyperplanes.study import START, MovingHyperplanes
from understudy.papers.specialization.shared import SEEN
from understudy.report.figures import Dots, Hyperplanes
from understudy.report.story import Figure, Number, Story, counted
from understudy.store import Run

_EPOCH = 1_000
"""Steps of an epoch in the papers."""


def story(study: MovingHyperplanes, run: Run) -> Story:
    """The film of one network, and the fan-outs of the other students in all."""
    ends = {scale: settled(study, run, scale) for scale in sorted(study.scale, reverse=True)}
    shown = START if START in ends else max(ends)
    columns: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    for scale, end in ends.items():
        columns |= {f"{scale:g}": (end.others, end.networks), f"{scale:g}, linear": (end.unseen, end.networks)}
    figures = (
        *_film(study, run, ends[shown], shown),
        Figure(
            "others-fan-out",
            "Students near no teacher boundary fall silent, unless they are linear",
            "Largest fan-out of a student near no teacher boundary, relative to the largest in its network: of those "
            f"active on {SEEN[0]:.0%} to {SEEN[1]:.0%} of the inputs, and of the others (linear), which can be a part "
            "of the fit wherever their boundary is.",
            "S1 fig. 2, over seeds",
            Dots.from_columns(
                columns,
                "fan-out of the others / largest",
                "scale of the initial weights",
                bound=SHARE,
                bound_words=f"{SHARE:.0%}",
                floor=1e-5,
                percent=True,
            ),
        ),
    )
    return Story(_headline(ends[shown], shown), _numbers(run, ends[shown]), figures)


def _film(study: MovingHyperplanes, run: Run, ends: Settled, scale: float) -> tuple[Figure, ...]:
    """The film of the first seed from one initial scale; none if every network diverged."""
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
    seed = run.column("seed")[network]
    caption = (
        f"Teacher boundaries (solid) and those of {study.students} students (dashed), seed {seed}, initial scale "
        f"{scale:g}, in epochs of 1,000 steps: students turn onto the teacher's lines; the others fade with their "
        "fan-out, except linear ones, whose boundary the inputs do not see."
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


def _headline(ends: Settled, scale: float) -> str:
    n = len(ends.networks)
    if not n:
        return "Every network diverged; choose a smaller --lr."
    return (
        f"From initial weights of scale {scale:g}, both teacher boundaries end with a student's on them in "
        f"{ends.both.sum()} of {counted(n, 'seed')}, and in {ends.quiet.sum()} of {n} every other student whose "
        f"boundary the inputs see has under {SHARE:.0%} of the largest fan-out."
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
