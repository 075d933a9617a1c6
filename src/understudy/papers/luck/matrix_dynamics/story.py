"""The study of matrix dynamics in words and figures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from understudy.papers.luck.matrix_dynamics.claims import Depth, depths
from understudy.papers.luck.matrix_dynamics.study import PATHS
from understudy.papers.specialization.deep.story import some_diverged
from understudy.report import style
from understudy.report.figures import Curves, Panel, Series
from understudy.report.story import Figure, Number, Story, counted
from understudy.store import Run

if TYPE_CHECKING:
    from understudy.papers.luck.matrix_dynamics.study import MatrixDynamics

_COLOURS = dict(zip(PATHS, (style.VERMILLION, style.BLUE), strict=True))
_SGD = PATHS.index("SGD")


def story(study: MatrixDynamics, run: Run) -> Story:
    found = [depth for depth in depths(study, run) if depth.whole.any()]
    count = Number(f"{run.networks.num_rows:,}", "networks")
    if not found:
        words = f"In no seed did both ways come through: choose a smaller --lr than {study.lr:g}."
        return Story(words + some_diverged(run), (count,), ())
    note = f"n = {counted(study.seeds, 'seed')}: median and quartiles"
    steps = run.epochs
    figures = (
        Figure(
            "losses",
            "Two ways from one start",
            "Evaluation loss of students that follow Ẇ = L*W*H* − LWH, and of SGD on the same batches.",
            "S2 eqn 6",
            _by_path(found, steps, [depth.loss for depth in found], "evaluation loss", note, log_y=True),
        ),
        Figure(
            "correlations",
            "What they find",
            "Mean best correlation with the teacher's nodes, mean over hidden layers.",
            "S2 eqn 6",
            _by_path(found, steps, [depth.rho.mean(axis=2) for depth in found], "mean best correlation", note),
        ),
        Figure(
            "cosines",
            "Which way eqn 6 points",
            "Cosine of eqn 6 and minus the gradient at every layer, on either way: at the outputs' layer it is 1; "
            "above 0 a small step of eqn 6 goes down.",
            "S2 theorem 2",
            _by_layer(found, steps, [depth.cosine for depth in found], "cosine", note, bound=0.0),
        ),
        Figure(
            "distances",
            "How far eqn 6 is from the gradient",
            "Length of their difference relative to the gradient's, at every layer below the outputs', on either way.",
            "S2 theorem 2",
            _by_layer(found, steps, [d.distance[:, :, :-1] for d in found], "relative distance", note, log_y=True),
        ),
        Figure(
            "assumption",
            "Whether expectations separate",
            "Relative error of eqn 5, Assumption 1 between students, at every layer below the outputs', on either way. "
            "At 0 the theorem would be exact.",
            "S2 assumption 1",
            _by_layer(found, steps, [depth.eqn[..., 1] for depth in found], "relative error of eqn 5", note),
        ),
    )
    return Story(_headline(run, found), (count, *_numbers(found)), figures)


def _spread(label: str, x: np.ndarray, values: np.ndarray, **look: object) -> Series:
    """Median and quartiles over the first axis."""
    low, middle, high = np.nanquantile(values, (0.25, 0.5, 0.75), axis=0)
    return Series(label, x, middle, low, high, **look)  # type: ignore[arg-type]


def _by_path(
    found: list[Depth], steps: np.ndarray, values: Sequence[np.ndarray], name: str, note: str, log_y: bool = False
) -> Curves:
    """A panel a teacher, a line a path: values are [path, seed, look]."""
    return Curves(
        tuple(
            Panel(
                depth.hidden,
                "step",
                name,
                tuple(_spread(way, steps, value[p][depth.whole], colour=_COLOURS[way]) for p, way in enumerate(PATHS)),
                log_y=log_y,
            )
            for depth, value in zip(found, values, strict=True)
        ),
        note,
    )


def _by_layer(
    found: list[Depth],
    steps: np.ndarray,
    values: Sequence[np.ndarray],
    name: str,
    note: str,
    log_y: bool = False,
    bound: float | None = None,
) -> Curves:
    """A row of panels a path, a panel a teacher, a line a layer: values are [path, seed, layer, look]."""
    colours = style.layer_colours(max(depth.rho.shape[2] for depth in found))
    panels = []
    for p in (_SGD, 1 - _SGD):
        for depth, value in zip(found, values, strict=True):
            hidden = depth.rho.shape[2]
            series = [
                _spread(
                    f"layer {layer + 1}" if layer < hidden else "outputs",
                    steps,
                    value[p, depth.whole, layer],
                    colour=colours[layer] if layer < hidden else style.CONTEXT,
                )
                for layer in range(value.shape[2])
            ]
            title = f"{depth.hidden}, on {PATHS[p]}'s way"
            panels.append(Panel(title, "step", name, tuple(series), log_y=log_y, bound=bound, bound_words="0"))
    return Curves(tuple(panels), note, columns=len(found))


def _headline(run: Run, found: list[Depth]) -> str:
    def listed(numbers: Iterable[float]) -> str:
        *first, last = (style.signed(round(float(number), 2)) for number in numbers)
        return f"{', '.join(first)} and {last}" if first else last

    cosine = [depth.cosine[_SGD, depth.whole, :-1] for depth in found]
    ours, theirs = ([np.median(np.log10(depth.loss[p, depth.whole, -1])) for depth in found] for p in (0, 1))
    return (
        "At the highest layer L*W*H* − LWH is minus the gradient; below it, on SGD's way, their cosine has a median of "
        f"{listed(map(np.nanmedian, cosine))} with hidden layers of {', '.join(depth.hidden for depth in found)} "
        f"(least {listed(map(np.nanmin, cosine))}). Followed, it ends at log10 losses of {listed(ours)}, SGD at "
        f"{listed(theirs)}.{some_diverged(run)}"
    )


def _numbers(found: list[Depth]) -> tuple[Number, ...]:
    def joined(of: list[np.ndarray]) -> np.ndarray:
        every = np.concatenate([part.ravel() for part in of])
        return every[np.isfinite(every)]

    cosine = joined([depth.cosine[:, depth.whole, :-1] for depth in found])
    error = joined([depth.eqn[:, depth.whole] for depth in found])
    return (
        Number(f"{np.median(cosine):.2f}", "median cosine of both velocities below the highest layer"),
        Number(f"{(cosine > 0).mean():.1%}", "of looks have it above 0"),
        Number(f"{np.median(error):.2f}", "median relative error of Assumption 1"),
    )
