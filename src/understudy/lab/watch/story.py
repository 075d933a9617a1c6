"""The report of a training that `us.watch` followed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from jaxtyping import Float

from understudy._numbers import number
from understudy.lab.subject import Subject
from understudy.lab.watch.tables import MEASURED, MOST_LAYERS
from understudy.measures import THRESHOLD
from understudy.report import style
from understudy.report.figures import CorrelationMatrix, Curves, LayerMatrix, Panel, Series
from understudy.report.story import Figure, Number, Story, counted
from understudy.store import Run

if TYPE_CHECKING:
    from pandas import DataFrame
    from pandas import Series as Column

    from understudy.store.tables import Table

_MOST_LINES = 6
"""Layers of which a key names each; more have a colour bar."""


def subject(run: Run) -> Subject:
    """What the report of a watched training is about."""
    options = run.options
    settings = {name: value for name, value in options.items() if name not in ("teacher", "student")}
    settings |= {role: f"{options[role]['class']}, {len(options[role]['layers'])} layers" for role in _ROLES}
    command = f"us.watch(teacher, student, data, every={options['every']}, out={run.where!r})"
    return Subject(
        "watch — who learned whom, and when, in a training of your own", story, settings, command, table=table
    )


_ROLES = ("teacher", "student")


def story(run: Run) -> Story:
    """Show which layer and node learned which, and when, with losses and fan-outs.

    Args:
        run: A run of `us.watch`, finished or not.

    Returns:
        Its headline, numbers and figures.
    """
    watched = Watched(run)
    figures = [_layers(watched), _correlations(watched), *_ranks(watched), _settled(watched), *_losses(watched)]
    return Story(_headline(watched), _numbers(watched), (*figures, *_fan_outs(watched), *_nodes(watched)))


def table(run: Run) -> Table:
    """One row per teacher node at the end: its best student, when that was decided, and when it was recovered."""
    watched = Watched(run)
    end, start = watched.end, watched.start
    found: Table = pa.table(
        {
            "layer": pa.array(end["layer"] + 1, pa.int16()),  # pages count layers from 1
            "teacher_layer": end["teacher_layer"].astype(str),
            "teacher": end["teacher"],
            "student_layer": end["student_layer"].astype(str),
            "student": _numbers_or_none(end["student"], pa.int32()),
            "correlation": end["correlation"],
            "correlation_before": start["correlation"].to_numpy(),
            "rank_before": _numbers_or_none(start["rank"], pa.float32()),
            "fan_out": _numbers_or_none(end["fanout"], pa.float32()),
            "settled_at": _numbers_or_none(watched.settled_at, pa.int64()),
            "recovered_at": _numbers_or_none(watched.recovered_at, pa.int64()),
        }
    )
    return found


def _numbers_or_none(values: Any, kind: pa.DataType) -> pa.Array:
    return pa.array(np.asarray(values, float), from_pandas=True).cast(kind)


@dataclass(frozen=True, eq=False)
class Watched:
    """Teacher nodes of a run over its probes. Each teacher layer is followed in the student layer that matches best."""

    run: Run

    @cached_property
    def _teachers(self) -> DataFrame:
        nodes = self.run.nodes.to_pandas()
        return nodes[nodes["role"] == "teacher"].sort_values(["epoch", "layer", "teacher"])

    @cached_property
    def steps(self) -> np.ndarray:
        """Steps of the probes with finite activations."""
        return self._teachers["step"].unique()

    @property
    def start(self) -> DataFrame:
        """Teacher nodes at the first probe."""
        return self._teachers[self._teachers["step"] == self.steps[0]]

    @property
    def end(self) -> DataFrame:
        """Teacher nodes at the last probe."""
        return self._teachers[self._teachers["step"] == self.steps[-1]]

    def _over_probes(self, column: str) -> Float[np.ndarray, "probe node"]:
        return self._teachers[column].to_numpy(float).reshape(len(self.steps), -1)

    @cached_property
    def settled_at(self) -> Float[np.ndarray, "node"]:
        """Step from which on each teacher node has its final best student; NaN for constant nodes."""
        best = self._over_probes("student")
        final = np.cumprod((best == best[-1])[::-1], axis=0)[::-1].argmax(axis=0)
        return np.where(np.isnan(best[-1]), np.nan, self.steps[final])

    @cached_property
    def recovered_at(self) -> Float[np.ndarray, "node"]:
        """First step at which the best correlation exceeds 0.95; NaN if there is none."""
        above = self._over_probes("correlation") > THRESHOLD
        return np.where(above.any(axis=0), self.steps[above.argmax(axis=0)], np.nan)

    @cached_property
    def layers(self) -> dict[int, str]:
        """Names of the teacher's layers by number, those counted from 1 and these from 0."""
        names = self.end.drop_duplicates("layer")
        return {
            int(i): f"layer {i + 1} ({name})" for i, name in zip(names["layer"], names["teacher_layer"], strict=True)
        }

    def metric(self, name: str, layer: int = -1) -> Column:
        """Values of a metric by step."""
        rows = self._metrics.get_group((name, layer)) if (name, layer) in self._metrics.groups else None
        return self._empty if rows is None else rows.set_index("step")["value"]

    @cached_property
    def _metrics(self) -> Any:
        frame = self.run.metrics.to_pandas()
        return frame.astype({"metric": str}).groupby(["metric", "layer"])

    @cached_property
    def _empty(self) -> Column:
        import pandas as pd

        return pd.Series(dtype=float)

    @cached_property
    def last_pairs(self) -> DataFrame:
        """All pairs of layers at the last probe."""
        frame = self.run.table("layers").to_pandas()
        return frame[frame["epoch"] == frame["epoch"].max()]

    @cached_property
    def best_layer(self) -> tuple[str, str, float]:
        """The teacher layer that is matched best, its student layer, and its mean best correlation."""
        means = self.end.groupby("layer")["correlation"].mean()
        row = self.end[self.end["layer"] == means.idxmax()].iloc[0]
        return row["teacher_layer"], row["student_layer"], float(means.max())


def _headline(watched: Watched) -> str:
    end, start = watched.end, watched.start
    layer, by, value = watched.best_layer
    above, before = (int((frame["correlation"] > THRESHOLD).sum()) for frame in (end, start))
    mean, first = (number(frame["correlation"].mean(), ".2f") for frame in (end, start))
    half = np.nanmedian(watched.settled_at) if np.isfinite(watched.settled_at).any() else np.nan
    diverged = watched.run.networks["diverged_at"][0].as_py()
    words = f"Training diverged at step {diverged:,}. " if diverged is not None else ""
    words += (
        f"After {counted(int(watched.steps[-1]), 'step')} {above:,} of {counted(len(end), 'teacher node')} correlate "
        f"above {THRESHOLD} with a student node ({before:,} before the first step). On average the best correlation "
        f"went from {first} to {mean}; the teacher's layer {layer} is matched best, by the student's {by} "
        f"({number(value, '.2f')})."
    )
    return words + (f" Half of the teacher nodes had their final partner by step {half:,.0f}." if half == half else "")


def _numbers(watched: Watched) -> tuple[Number, ...]:
    end, environment = watched.end, watched.run.environment
    above = int((end["correlation"] > THRESHOLD).sum())
    found = [
        Number(f"{above:,} of {len(end):,}", "teacher nodes recovered"),
        Number(number(end["correlation"].mean(), ".2f"), "best correlation, averaged over teacher nodes"),
        Number(f"{int(watched.steps[-1]):,}", f"steps, {counted(len(watched.steps), 'probe')}"),
    ]
    if environment.get("overhead") is not None:
        found.append(Number(f"{100 * environment['overhead']:.1f}%", "overhead of the probes"))
    return tuple(found)


def _layers(watched: Watched) -> Figure:
    rows = watched.last_pairs
    teacher, student = (tuple(rows[name].astype(str).unique()) for name in ("teacher_layer", "student_layer"))
    shape = len(teacher), len(student)
    values = [rows[name].to_numpy().reshape(shape) for name in ("mean_best_correlation", "cka")]
    averaged = int((~rows["at_positions"]).sum())
    some = f" {averaged} of {len(rows)} pairs are compared after averaging over positions." if averaged else ""
    caption = (
        "At the last probe. Mean best correlation: each node of a teacher layer with the student node that matches it "
        f"best, averaged. Linear CKA compares whole layers, whatever their bases.{some}"
    )
    kind = LayerMatrix(("mean best correlation", "linear CKA"), teacher, student, np.stack(values))
    return Figure("layers", "Which layer learned which layer", caption, "", kind)


def _lines(watched: Watched, metric: str) -> tuple[Series, ...]:
    """One line per teacher layer over steps."""
    colours = style.layer_colours(len(watched.layers))
    found = []
    for (layer, name), colour in zip(watched.layers.items(), colours, strict=True):
        values = watched.metric(metric, layer)
        if len(values):
            found.append(Series(name, values.index.to_numpy(), values.to_numpy(), colour=colour))
    return tuple(found)


def _curves(watched: Watched, metric: str, name: str, **more: Any) -> Curves:
    names = list(watched.layers.values())
    ramp = (names[0], names[-1]) if len(names) > _MOST_LINES else None
    return Curves((Panel("", "optimiser step", name, _lines(watched, metric), **more),), ramp=ramp)


_FOLLOWED = (
    "Each teacher layer in the student layer that matches it best at the last probe, of those with the same positions "
    "if there are any."
)


def _correlations(watched: Watched) -> Figure:
    kind = _curves(watched, "rho_mean", "mean best correlation", limits=(0.0, 1.02))
    caption = f"Mean correlation of a layer's teacher nodes with their best students over training. {_FOLLOWED}"
    return Figure("correlation", "How well each layer is matched", caption, "", kind)


def _ranks(watched: Watched) -> list[Figure]:
    if not len(watched.metric("mean_rank", 0)):
        return []
    kind = _curves(watched, "mean_rank", "mean rank of winners", limits=(0.0, 1.02), bound=0.5, bound_words="chance")
    caption = (
        "Mean rank, among all nodes of the student layer, of the students that match best at the last probe: 0 is "
        "first, 0.5 (dashed) is chance."
    )
    return [Figure("mean-rank", "How early the winners were ahead", caption, "", kind)]


def _settled(watched: Watched) -> Figure:
    kind = _curves(watched, "settled", "share of teacher nodes", limits=(0.0, 1.02))
    caption = f"Share of a layer's teacher nodes whose best student is already the one at the last probe. {_FOLLOWED}"
    return Figure("settled", "When it was decided who learns whom", caption, "", kind)


def _losses(watched: Watched) -> list[Figure]:
    names = sorted(watched.run.metric_names - set(MEASURED))
    series = []
    for name in names:
        values = watched.metric(name)
        series.append(Series(name, values.index.to_numpy(), values.to_numpy()))
    if not series:
        return []
    positive = all((s.y[np.isfinite(s.y)] > 0).all() for s in series)
    kind = Curves((Panel("", "optimiser step", "loss", tuple(series), log_y=positive),))
    caption = "Losses as they were given to the watch, each the mean over the steps since the probe before."
    return [Figure("losses", "How the loss fell", caption, "", kind)]


def _fan_outs(watched: Watched) -> list[Figure]:
    """Fan-out against best correlation of every student node, for the layers whose fan-outs are known."""
    nodes = watched.run.nodes.to_pandas()
    last = nodes[(nodes["role"] == "student") & (nodes["step"] == watched.steps[-1])].dropna(subset=["fanout"])
    best = last.groupby(["student_layer", "student"], observed=True, sort=False)[["correlation", "fanout"]].max()
    known = set(best.index.get_level_values(0))
    layers = [name for name in watched.run.options["student"]["layers"] if name in known]
    panels = []
    for i in style.evenly(len(layers), min(len(layers), MOST_LAYERS)):
        rows = best.loc[layers[i]]
        points = Series("student nodes", rows["correlation"].to_numpy(), rows["fanout"].to_numpy(), points=True)
        panels.append(Panel(layers[i], "best correlation with a teacher node", "fan-out", (points,)))
    if not panels:
        return []
    caption = (
        "Every student node at the last probe: its best correlation with a teacher node, and its fan-out, the norm of "
        "the weights that read it. Where a norm follows, the scale of these weights has no meaning of its own."
    )
    return [Figure("fan-out", "Which student nodes are used", caption, "", Curves(tuple(panels), share="names"))]


def _nodes(watched: Watched) -> list[Figure]:
    nodes = watched.run.nodes.to_pandas()
    every = nodes[nodes["role"] == "pair"]
    titles, values, shown = [], [], []
    for layer, rows in every.groupby("layer"):
        grid = rows.pivot(index="teacher", columns="student", values="correlation")
        titles.append(f"{watched.layers[int(str(layer))]} by {rows['student_layer'].iloc[0]}")
        values.append(grid.to_numpy())
        shown.append((grid.index.to_numpy(), grid.columns.to_numpy(int)))
    if not titles:
        return []
    some = len(titles) < len(watched.layers)
    caption = (
        f"{_FOLLOWED} Students are ordered by the teacher node they match: nodes that came across form a staircase."
        + f" {len(titles)} of {len(watched.layers)} teacher layers are shown." * some
    )
    kind = CorrelationMatrix(tuple(titles), tuple(values), nodes=tuple(shown))
    return [Figure("nodes", "Which node learned which node", caption, "", kind)]
