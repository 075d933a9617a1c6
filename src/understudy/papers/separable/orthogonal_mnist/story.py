"""Figures and headline of `orthogonal-mnist` (Phuong 2021, figs 3.3, 3.4)."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from understudy.claims import every
from understudy.lab.layers import diverged_story, some_diverged
from understudy.papers.separable.orthogonal_mnist.claims import end, share_range, violations
from understudy.papers.separable.orthogonal_mnist.study import LAYERS, SIGNIFICANT, TEST, TRAINING, OrthogonalMnist
from understudy.papers.separable.shared import by_sign, margin_rays, outline
from understudy.report import style
from understudy.report.figures import Curves, Panel, Series
from understudy.report.story import Figure, Number, Story, counted
from understudy.store import Run

_TOP = 10
"""Number of singular values in Phuong 2021, fig. 3.4a."""
_BARS = 40


def story(study: OrthogonalMnist, run: Run) -> Story:
    """Inner products of pairs of images layer by layer, and the weights of the first linear layer."""
    alive = np.flatnonzero(run.select().alive)
    if not len(alive):
        return diverged_story(study, run)
    shown = int(alive[0])
    figures = (_similarity(study, run, shown), _layers(study, run), _weights(study, run, shown))
    return Story(_headline(study, run), _numbers(run), figures)


def _nodes(run: Run, shown: int, role: str, *, layer: int = LAYERS, first: bool = False) -> pa.Table:
    """Rows of `nodes` of one network, after training or at the start."""
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
        rows = _nodes(run, shown, "bin", layer=layer).filter(pc.field("set") == TRAINING)
        edges = np.append(rows["low"].to_numpy(), rows["high"].to_numpy()[-1])
        series = tuple(
            outline(label, rows[column].to_numpy(), edges, colour, shares=True)
            for label, (column, colour) in kinds.items()
        )
        panels.append(Panel(f"layer {layer}" if layer else "images", "inner product", "share of pairs", series))
    return Figure(
        "similarity",
        "How similar images are, layer by layer",
        f"Inner products of pairs of {study.compared:,} training images at the output of each layer after training, "
        f"{_seed(run, shown)}. Images are orthogonally separable if all products of {one}-{other} are at most 0, and "
        "all others above 0.",
        "S3 fig. 3.3",
        Curves(tuple(panels), _seed(run, shown)),
    )


def _layers(study: OrthogonalMnist, run: Run) -> Figure:
    def series(label: str, metric: str, epoch: int, colour: str) -> Series:
        values = run.array(metric, "layer network epoch").isel(epoch=epoch)
        middle, low, high = values.quantile((0.5, 0.0, 1.0), "network").to_numpy()
        return Series(label, values["layer"].to_numpy(), middle, low, high, dashed=epoch == 0, colour=colour)

    above = (
        series("training images", f"apart some {TRAINING}", -1, style.VERMILLION),
        series("test images", f"apart some {TEST}", -1, style.BLUE),
        series("before training", f"apart some {TEST}", 0, style.CONTEXT),
    )
    cosines = tuple(
        series(f"{words}{', before' if epoch == 0 else ''}", f"cosine {name} {TEST}", epoch, colour)
        for name, words, colour in (
            ("alike", "one digit", style.GREEN),
            ("apart", "two digits", style.PURPLE),
        )
        for epoch in (-1, 0)
    )
    return Figure(
        "layers",
        "At which layer the digits separate",
        "Left: mean cosine of pairs of test images of one digit and of two digits at the output of each layer, after "
        "and before training; layer 0 is the images. Right: share of pairs of two digits, among "
        f"{study.compared:,} images, whose inner product is above 0.",
        "",
        Curves(
            (
                Panel("similarity", "layer", "mean cosine", cosines),
                Panel("two digits above 0", "layer", "share of pairs", above),
            ),
            f"n = {counted(int(run.select().alive.sum()), 'network')}: median and range",
        ),
    )


def _weights(study: OrthogonalMnist, run: Run, shown: int) -> Figure:
    spectra = []
    for label, first, colour in (("after training", False, style.VERMILLION), ("at the start", True, style.CONTEXT)):
        rows = _nodes(run, shown, "value", first=first)
        number, value = rows["number"].to_numpy()[:_TOP], rows["value"].to_numpy()[:_TOP]
        network = np.full(len(number), shown)
        spectra.append(Series(label, number, value, points=True, colour=colour, network=network))
    neurons, words = _nodes(run, shown, "neuron"), ""
    output, *places = (neurons[name].to_numpy() for name in ("output", "top_1", "top_2"))
    panels = [
        Panel("a) largest singular values of W7", "number", "singular value", tuple(spectra)),
        Panel("b) neurons on the top two", "first", "second", by_sign("W8", output, np.stack(places, -1), shown)),
    ]
    if "correlation" in neurons.column_names and neurons["correlation"].null_count == 0:
        cosine = float(run.array("cosine", "network").sel(network=shown))
        correlation, *places = (neurons[name].to_numpy() for name in ("correlation", "plane_1", "plane_2"))
        counts, edges = np.histogram(correlation, np.linspace(-1, 1, _BARS + 1))
        bars = outline("neurons", counts, edges, style.PURPLE, shares=True)
        plane = np.stack(places, -1)
        on_plane = (*by_sign("W8", output, plane, shown), *margin_rays(plane, cosine))
        panels += [
            Panel("c) on the plane of w₊ and w₋", "along w₊", "orthogonal to w₊", on_plane),
            Panel("d) correlation with max-margin", "correlation", "share of neurons", (bars,)),
        ]
        words = (
            " Then its neurons on the plane of the max-margin vectors (dashed) of the inputs of W7, whose cosine is "
            f"{cosine:.2f}, and their correlation with the max-margin vector of their sign: "
            f"{np.mean(correlation > 0.9):.0%} are above 0.9."
        )
    return Figure(
        "weights",
        "The first linear layer after training",
        f"W7, {study.nodes:,} neurons, {_seed(run, shown)}: its largest singular values, and its neurons on the first "
        f"two singular directions, by the sign of their weight in W8.{words}",
        "S3 fig. 3.4",
        Curves(tuple(panels), _seed(run, shown), columns=2),
    )


def _cosine_between(run: Run, epoch: int = -1) -> float:
    """Mean cosine of test images of different digits at layer 7, median over networks."""
    values = run.array(f"cosine apart {TEST}", "network epoch", layer=LAYERS)
    return float(values.isel(epoch=epoch).median())


def _headline(study: OrthogonalMnist, run: Run) -> str:
    one, other = study.digits
    _, apart = violations(run, "all", TEST)
    few, many = (every(end(run, f"above {share:.0%}"), say="{range:.0f}") for share in SIGNIFICANT[::-1])
    return (
        f"At the output of layer {LAYERS}, a test image of {one} and one of {other} have a mean cosine of "
        f"{_cosine_between(run):.2f} after training, {_cosine_between(run, 0):.2f} before. If they were orthogonally "
        f"separable, no such pair would have an inner product above 0; {share_range(apart)} have one. {few.measured} "
        f"of {study.nodes:,} singular values of W7 are above {SIGNIFICANT[-1]:.0%} of the largest, {many.measured} "
        f"above {SIGNIFICANT[0]:.0%} ({counted(few.n, 'network')}).{some_diverged(run)}"
    )


def _numbers(run: Run) -> tuple[Number, ...]:
    _, apart = violations(run, "all", TEST)
    few = f"{np.median(end(run, f'above {SIGNIFICANT[0]:.0%}')):g}"
    return (
        Number(f"{run.networks.num_rows:,}", "networks"),
        Number(f"{_cosine_between(run):.2f}", "cosine of images of two digits at layer 7, median"),
        Number(share_range(apart), "of pairs of test images of two digits have an inner product above 0 there"),
        Number(few, f"singular values of W7 above {SIGNIFICANT[0]:.0%} of the largest, median"),
        Number(f"{100 * end(run, 'accuracy').mean():.2f}%", "mean test accuracy"),
    )
