"""Figures for runs of students with layers: correlations, ranks, losses, and every student of every layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from understudy.lab.options import option
from understudy.report import style
from understudy.report.figures import Curves, LayerSpecialization, StudentNodes
from understudy.report.story import Figure, Number, Story, listed
from understudy.store import Run

if TYPE_CHECKING:
    import xarray as xr

    from understudy.lab.study import Study

LOSSES = {"evaluation": "eval_loss", "training": "train_loss"}
"""Lines of a figure of losses, with the metric of each."""
_RANK_CAPTION = (
    "{} rank, among all students, of the students that match best in the end: 0 is first, 0.5 (dashed) is chance."
)
STUDENTS_CAPTION = (
    "Every student: correlation with its best teacher node, and how much it moves the output (√E β_kk). Where students "
    "specialise, those with low correlation (left) have little effect (bottom): the L."
)
_SLIDER = (0, 1, 2, 5, 10, 15, 20, 30, 50, 75, 100, 200, 500, 1000)
"""Epochs, besides the last, at which the page shows every student."""


def layer_names(count: int) -> dict[int, str]:
    """Names of layers by their number: `layer 1` is the lowest, which tables number 0."""
    return {i: f"layer {i + 1}" for i in range(count)}


def multiple_titles(multiples: Sequence[float] | np.ndarray) -> dict[float, str]:
    """Titles of over-realizations: `5×`."""
    return {float(k): f"{k:g}×" for k in multiples}


def diverged_story(study: Study, run: Run, options: str = "lr") -> Story:
    """The story of a run all of whose networks diverged: which of the options for learning rates to lower."""
    first, total = run.networks["diverged_at"].drop_null().to_numpy().min(), run.networks.num_rows
    rates = [(option(name), f"{getattr(study, name):g}") for name in options.split()]
    smaller = "a smaller {} than {}".format(*rates[0])
    if len(rates) > 1:
        smaller = f"smaller rates than {listed([' '.join(rate) for rate in rates])}"
    words = f"All {total:,} networks diverged, the first at step {first:,}: choose {smaller}."
    return Story(words, (Number(f"{total:,}", "networks, all diverged"),), ())


def some_diverged(run: Run) -> str:
    """A sentence on how many networks diverged, with a leading space; empty where none did."""
    lost, total = len(run.networks["diverged_at"].drop_null()), run.networks.num_rows
    return f" {lost:,} of {total:,} networks diverged." if lost else ""


def first_network(values: xr.DataArray) -> np.ndarray:
    """The number of the first network of a labelled array that did not diverge, as an array of one; empty if none."""
    networks = values["network"].to_numpy().ravel()
    return networks[networks >= 0][:1]


def layer_curves(values: xr.DataArray, panel: str | tuple[str, ...], titles: Mapping[Any, str], **more: Any) -> Curves:
    """One line per layer over epochs, with quartiles over seeds, in one panel per value of `panel`."""
    names = layer_names(1 + int(values["layer"].max()))
    return Curves.from_array(values, panel=panel, line="layer", titles=titles, labels=names, **more)


def correlation_curves(
    rho: xr.DataArray, panel: str | tuple[str, ...], titles: Mapping[Any, str], **more: Any
) -> Curves:
    """Mean best correlations, one line per layer over epochs, in one panel per value of `panel`."""
    return layer_curves(rho, panel, titles, name="mean best correlation", limits=(0.0, 1.02), **more)


def multiple_curves(
    values: xr.DataArray, panel: str | None = None, titles: Mapping[Any, str] | None = None, **more: Any
) -> Curves:
    """One line per over-realization, in its colour, in one panel per value of `panel`."""
    labels = multiple_titles(values["multiple"].to_numpy())
    return Curves.from_array(
        values, panel=panel, line="multiple", titles=titles, labels=labels, colours="multiples", **more
    )


def loss_curves(
    run: Run, dims: str, panel: str | tuple[str, ...], titles: Mapping[Any, str], name: str, **more: Any
) -> Curves:
    """Evaluation and training loss, as `metric_curves` draws them; `name` is that of the y axis."""
    colours = (style.BLUE, style.CONTEXT)
    return metric_curves(run, LOSSES, dims, panel, titles, name=name, log_y=True, colours=colours, **more)


def metric_curves(
    run: Run,
    metrics: Mapping[str, str],
    dims: str,
    panel: str | tuple[str, ...],
    titles: Mapping[Any, str],
    **more: Any,
) -> Curves:
    """Several metrics, by the label of their line, in one panel per value of `panel`.

    They are drawn over epochs; with `x`, one of `dims`, their last values against it. `dims` are the swept columns and
    `seed`, as `Run.array` takes them, without `epoch`.
    """
    import xarray as xr

    values = [run.array(metric, dims if "x" in more else f"{dims} epoch") for metric in metrics.values()]
    lines = xr.concat(values, "metric", coords="minimal", join="outer").assign_coords(metric=list(metrics))
    return Curves.from_array(lines, panel=panel, line="metric", titles=titles, **more)


def rank_figures(
    run: Run,
    dims: str,
    panel: str | tuple[str, ...],
    titles: Mapping[Any, str],
    *,
    metric: str = "mean_rank",
    where: Mapping[str, Any] | None = None,
    source: str = "S2 figs. 8, 9",
    **more: Any,
) -> list[Figure]:
    """The mean or median rank of the final winners over training (Tian et al. 2019, figs 8, 9, 21 to 23).

    No figure if it was not recorded.

    `dims` are the swept columns and `seed`, as `Run.array` takes them, without `layer` and `epoch`.
    """
    if metric not in run.metric_names:
        return []
    rank = run.array(metric, f"{dims} layer epoch", **(where or {}))
    if rank.isnull().all():
        return []
    words = metric.replace("_", " ")
    kind = layer_curves(rank, panel, titles, name=f"{words} of winners", bound=(0.5, "chance"), **more)
    title = "How early the winners were ahead" if metric == "mean_rank" else "How early most winners were ahead"
    caption = _RANK_CAPTION.format(words.partition(" ")[0].capitalize())
    return [Figure(words.replace(" ", "-"), title, caption, source, kind)]


def student_figures(
    run: Run,
    rho: xr.DataArray,
    row: str,
    *,
    titles: Mapping[Any, str],
    subject: str = "",
    name: str = "layer-specialization",
    channels: bool = False,
) -> list[Figure]:
    """Every student of every layer: how well it matches, and how much it moves the output (the L).

    Rows and layers without any network that did not diverge are left out.

    Args:
        run: The run.
        rho: Mean best correlations with the dimensions `row`, `seed`, `layer` and `epoch`, as `Run.array` returns them.
        row: The dimension with one row of panels per value, whose networks have layers of the same widths.
        titles: Titles of the rows.
        subject: What the figure is of, added to its title.
        name: File name of the figure.
        channels: Whether students are channels, whose fan-out runs of earlier formats recorded in another way.
    """
    if channels and run.config.get("format", 3) < 3:
        return []
    kind = layer_specialization(run, rho.dropna(row, how="all").dropna("layer", how="all"), row, titles)
    return [Figure(name, f"Every student of every layer{subject}", STUDENTS_CAPTION, "S1 figs. 4, 12", kind)]


def layer_specialization(run: Run, rho: xr.DataArray, row: str, titles: Mapping[Any, str]) -> LayerSpecialization:
    """Every student of every layer, without title and caption: see `student_figures`."""
    epochs = slider_epochs(run, _SLIDER)
    groups = {value: rho.sel({row: value})["network"].to_numpy() for value in rho[row].to_numpy().tolist()}
    cells = tuple(
        tuple(student_nodes(run, networks[networks >= 0], epochs, layer) for layer in rho["layer"].to_numpy())
        for networks in groups.values()
    )
    middle = rho.sel(epoch=epochs).median("seed").transpose(row, "layer", "epoch").to_numpy()
    return LayerSpecialization(tuple(titles[value] for value in groups), epochs, cells, middle)


def slider_epochs(run: Run, wanted: Sequence[int]) -> np.ndarray:
    """The wanted epochs that a run has, and its last."""
    last = int(run.epochs[-1])
    return np.array(sorted({epoch for epoch in wanted if epoch < last} | {last}))


def student_nodes(run: Run, networks: np.ndarray, epochs: np.ndarray, layer: int = 0) -> StudentNodes:
    """Every student of a layer of some networks, which have equally many, at some epochs."""
    correlation, fan_out, teacher = (
        np.stack([run.matched("student", column, int(layer), int(epoch))[networks] for epoch in epochs])
        for column in ("correlation", "fanout", "teacher")
    )
    students = int(np.isfinite(teacher[0]).any(axis=0).sum())  # wider networks of the run have more
    rho, out, best = (each[..., :students].reshape(len(epochs), -1) for each in (correlation, fan_out, teacher))
    network, student = np.repeat(networks, students), np.tile(np.arange(students), len(networks))
    return StudentNodes(rho, out, best.astype(int), network, student, run.column("seed")[network])
