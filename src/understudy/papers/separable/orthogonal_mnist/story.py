"""Two digits of MNIST as layers of networks see them, in words and figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from understudy.lab.images import all_diverged
from understudy.papers.separable.orthogonal_mnist.claims import alive, broken, end, ranged
from understudy.papers.separable.orthogonal_mnist.study import LAYERS, SIGNIFICANT, TEST, TRAINING
from understudy.papers.specialization.deep.story import some_diverged
from understudy.report import style
from understudy.report.figures import Curves, Panel, Series
from understudy.report.story import Figure, Number, Story, counted
from understudy.store import Run

if TYPE_CHECKING:
    from understudy.papers.separable.orthogonal_mnist.study import OrthogonalMnist

_TOP = 10
"""Singular values that fig 3.4a shows."""
_BARS = 40


def story(study: OrthogonalMnist, run: Run) -> Story:
    networks = alive(run)
    if not len(networks):
        return all_diverged(run, "--lr", study.lr)
    shown = int(networks[0])
    figures = (_similarity(study, run, shown), _layers(study, run), _weights(study, run, shown))
    return Story(_headline(study, run), _numbers(run), figures)


def _of(run: Run, shown: int, role: str, *, layer: int = LAYERS, first: bool = False) -> pa.Table:
    """Rows of one network, after training or before."""
    epoch = int(run.epochs[0 if first else -1])
    wanted = {"network": shown, "epoch": epoch, "layer": layer, "role": role}
    rows = run.nodes
    for name, value in wanted.items():
        rows = rows.filter(pc.field(name) == value)
    return rows


def _seed(run: Run, shown: int) -> str:
    return f"seed {int(run.column('seed')[shown])}"


def _similarity(study: OrthogonalMnist, run: Run, shown: int) -> Figure:
    one, other = study.digits
    kinds = {
        f"{one}-{other}": ("apart", style.BLUE),
        f"{one}-{one}": ("first", style.ORANGE),
        f"{other}-{other}": ("second", style.GREEN),
    }
    panels = []
    for layer in range(LAYERS + 1):
        rows = _of(run, shown, "bin", layer=layer).filter(pc.field("set") == TRAINING)
        edges = np.append(rows["low"].to_numpy(), rows["high"].to_numpy()[-1])
        series = tuple(
            _outline(label, edges, rows[column].to_numpy(), colour) for label, (column, colour) in kinds.items()
        )
        panels.append(Panel(f"layer {layer}" if layer else "images", "inner product", "share of pairs", series))
    return Figure(
        "similarity",
        "How similar images are, layer by layer",
        f"Inner products of pairs of {study.compared:,} training images, of what each layer gives the next, after "
        f"training, {_seed(run, shown)}. Orthogonally separable are those with all of {one}-{other} at 0 or below, and "
        "all others above.",
        "S3 fig 3.3",
        Curves(tuple(panels), _seed(run, shown)),
    )


def _outline(label: str, edges: np.ndarray, counts: np.ndarray, colour: str) -> Series:
    """A histogram as the outline of its bars, of all pairs of its kind."""
    share = counts / max(1.0, counts.sum())
    x, y = np.repeat(edges, 2), np.concatenate([[0.0], np.repeat(share, 2), [0.0]])
    return Series(label, x, y, np.zeros_like(y), y, colour=colour)


def _layers(study: OrthogonalMnist, run: Run) -> Figure:
    def series(label: str, metric: str, look: int, colour: str) -> Series:
        values = np.stack([end(run, metric, layer, look) for layer in range(LAYERS + 1)], 1)
        middle, low, high = np.median(values, 0), values.min(0), values.max(0)
        return Series(label, np.arange(LAYERS + 1), middle, low, high, dashed=look == 0, colour=colour)

    above = (
        series("training images", f"apart some {TRAINING}", -1, style.VERMILLION),
        series("test images", f"apart some {TEST}", -1, style.BLUE),
        series("before training", f"apart some {TEST}", 0, style.CONTEXT),
    )
    cosines = tuple(
        series(f"{words}{', before' if look == 0 else ''}", f"cosine {name} {TEST}", look, colour)
        for name, words, colour in (
            ("alike", "one digit", style.GREEN),
            ("apart", "two digits", style.PURPLE),
        )
        for look in (-1, 0)
    )
    return Figure(
        "layers",
        "Where the digits come apart",
        "Left: the mean cosine of two test images of one digit and of two, as each layer gives them, after training "
        f"and before; layer 0 is the images. Right: of pairs of two digits among {study.compared:,} images the share "
        "whose inner product is above 0.",
        "",
        Curves(
            (
                Panel("similarity", "layer", "mean cosine", cosines),
                Panel("two digits above 0", "layer", "share of pairs", above),
            ),
            f"n = {counted(len(alive(run)), 'network')}: median and range",
        ),
    )


def _weights(study: OrthogonalMnist, run: Run, shown: int) -> Figure:
    spectra = []
    for label, first, colour in (("after training", False, style.VERMILLION), ("at the start", True, style.CONTEXT)):
        rows = _of(run, shown, "value", first=first)
        number, value = rows["number"].to_numpy()[:_TOP], rows["value"].to_numpy()[:_TOP]
        network = np.full(len(number), shown)
        spectra.append(Series(label, number, value, points=True, colour=colour, network=network))
    neurons = _of(run, shown, "neuron")
    panels = [
        Panel("a) largest singular values of W7", "number", "singular value", tuple(spectra)),
        Panel("b) neurons on the top two", "first", "second", _by_sign(neurons, "top", shown)),
    ]
    words = ""
    if "correlation" in neurons.column_names and neurons["correlation"].null_count == 0:
        correlation = neurons["correlation"].to_numpy()
        counts, edges = np.histogram(correlation, np.linspace(-1, 1, _BARS + 1))
        bars = _outline("neurons", edges, counts, style.PURPLE)
        panels += [
            Panel("c) on the plane of w₊ and w₋", "along w₊", "beside it", _in_plane(run, neurons, shown)),
            Panel("d) correlation with max-margin", "correlation", "share of neurons", (bars,)),
        ]
        words = (
            " Then on the plane of the max-margin vectors of what W7 sees of the training images (dashed), whose "
            f"cosine is {run.series('cosine')[shown, -1]:.2f}, and the correlation with the one of its sign: above 0.9 "
            f"are {np.mean(correlation > 0.9):.0%}."
        )
    return Figure(
        "weights",
        "What the first linear layer becomes",
        f"W7, {study.nodes:,} neurons, {_seed(run, shown)}: its largest singular values, and its neurons on the first "
        f"two singular directions, by the sign of their weight in W8.{words}",
        "S3 fig 3.4",
        Curves(tuple(panels), _seed(run, shown), columns=2),
    )


def _by_sign(neurons: pa.Table, where: str, shown: int) -> tuple[Series, ...]:
    x, y, output = (neurons[name].to_numpy() for name in (f"{where}_1", f"{where}_2", "output"))
    return tuple(
        Series(label, x[some], y[some], points=True, colour=colour, network=np.full(int(some.sum()), shown))
        for label, some, colour in (
            ("W8 > 0", output > 0, style.ORANGE),
            ("W8 < 0", output <= 0, style.BLUE),
        )
    )


def _in_plane(run: Run, neurons: pa.Table, shown: int) -> tuple[Series, ...]:
    cosine = float(run.series("cosine")[shown, -1])
    reach = 1.1 * float(np.hypot(neurons["plane_1"].to_numpy(), neurons["plane_2"].to_numpy()).max())
    ends = {"w₊": (1.0, 0.0, style.ORANGE), "w₋": (cosine, np.sqrt(max(0.0, 1 - cosine**2)), style.BLUE)}
    rays = (
        Series(name, np.array([0.0, reach * x]), np.array([0.0, reach * y]), dashed=True, colour=colour)
        for name, (x, y, colour) in ends.items()
    )
    return (*_by_sign(neurons, "plane", shown), *rays)


def _headline(study: OrthogonalMnist, run: Run) -> str:
    one, other = study.digits
    cosine, first = (end(run, f"cosine apart {TEST}", LAYERS, look) for look in (-1, 0))
    _, apart = broken(run, "all", TEST)
    count = end(run, "significant")
    few = f"{int(count.min())}" if count.min() == count.max() else f"{int(count.min())} to {int(count.max())}"
    return (
        f"As layer {LAYERS} gives them, a test image of {one} and one of {other} have a mean cosine of "
        f"{np.median(cosine):.2f} after training, {np.median(first):.2f} before; were they orthogonally separable, no "
        f"such pair would be above 0, and {ranged(apart)} are. {few} of {study.nodes:,} singular values of W7 are "
        f"above {SIGNIFICANT:.0%} of the largest ({counted(len(count), 'network')}).{some_diverged(run)}"
    )


def _numbers(run: Run) -> tuple[Number, ...]:
    _, apart = broken(run, "all", TEST)
    return (
        Number(f"{run.networks.num_rows:,}", "networks"),
        Number(f"{np.median(end(run, f'cosine apart {TEST}', LAYERS)):.2f}", "cosine of two digits at layer 7, median"),
        Number(ranged(apart), "of pairs of two digits of test images are above 0 there"),
        Number(
            f"{np.median(end(run, 'significant')):g}", f"singular values of W7 above {SIGNIFICANT:.0%} of the first"
        ),
        Number(f"{100 * end(run, 'accuracy').mean():.2f}%", "mean test accuracy"),
    )
