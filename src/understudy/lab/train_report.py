"""Report of a run of `us.train`, in memory or saved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from understudy._numbers import number
from understudy.lab.layers import (
    LOSSES,
    STUDENTS_CAPTION,
    layer_curves,
    layer_names,
    layer_specialization,
    multiple_titles,
    some_diverged,
)
from understudy.lab.subject import Subject
from understudy.measures import THRESHOLD
from understudy.report import style
from understudy.report.figures import CorrelationMatrix, Curves
from understudy.report.story import Figure, Number, Story, counted, listed
from understudy.store import Run
from understudy.store.arrays import spread

if TYPE_CHECKING:
    import xarray as xr

_MOST_SETTINGS = 12
"""Panels of a figure; with more settings, those that differ in the last column only share a panel."""
_MOST_PAIRS = 50_000_000
"""Correlations of pairs of nodes from which ranks are computed."""
_MOST_LISTED = 3
"""Settings of which a headline names each."""
_ACCURACIES = {"student": "accuracy", "teacher": "teacher_accuracy"}


def subject(run: Run) -> Subject:
    """What the report of a run of `us.train` is about."""
    return Subject("train — students trained against a teacher", story, run.options, _command(run.options))


def story(run: Run) -> Story:
    """Losses, how well each layer matches, every student, and how early the winners were ahead.

    Args:
        run: A run of `us.train`, in memory or read from a folder.

    Returns:
        Its headline, numbers and figures; without figures if all networks diverged.
    """
    settings = _Settings(run)
    if not settings.alive.any():
        return _diverged_story(run)
    rho = settings.array("rho_mean", "layer")
    curves = layer_curves(
        rho,
        "setting",
        settings.titles,
        name="mean best correlation",
        limits=(0.0, 1.02),
        bound=(THRESHOLD, f"{THRESHOLD}"),
        note=settings.note,
    )
    figures = (
        Figure(
            "losses", "The loss over training", _loss_caption(run), "", _curves(settings, LOSSES, "loss", log_y=True)
        ),
        Figure(
            "layer-curves",
            "How well each layer matches its teacher",
            f"Mean correlation of a layer's teacher nodes with their best students over training.{settings.merged}",
            "",
            curves,
        ),
        *_accuracy(settings),
        *_every_student(settings),
        *_pairs(settings),
    )
    return Story(_headline(settings), _numbers(settings), figures)


@dataclass(frozen=True, eq=False)
class _Settings:
    """The networks of a run, divided by everything in which they differ except their seeds."""

    run: Run

    @cached_property
    def by(self) -> list[str]:
        """Columns of `networks` that tell settings apart."""
        names = [name for name in self.run.swept if name != "seed"]
        while names and len(self._rows(names)) > _MOST_SETTINGS:
            names.pop()
        return names

    @property
    def merged(self) -> str:
        """A sentence on columns that do not tell settings apart, because they have too many values."""
        left = [name for name in self.run.swept if name not in ("seed", *self.by)]
        return f" Networks that differ in {listed(left)} only are taken together." if left else ""

    def _rows(self, names: list[str]) -> dict[tuple[Any, ...], list[int]]:
        columns = [self.run.networks[name].to_pylist() for name in names]
        rows: dict[tuple[Any, ...], list[int]] = {}
        for network in range(self.run.networks.num_rows):
            rows.setdefault(tuple(column[network] for column in columns), []).append(network)
        return rows

    @cached_property
    def networks(self) -> dict[str, list[int]]:
        """The networks of each setting, by its name; the order is that of training."""
        return {
            ", ".join(_words(name, value) for name, value in zip(self.by, values, strict=True)): networks
            for values, networks in self._rows(self.by).items()
        }

    @property
    def titles(self) -> dict[str, str]:
        """Titles of panels."""
        return {name: name for name in self.networks}

    @property
    def note(self) -> str:
        """Number of networks that a line summarises."""
        counts = sorted({len(networks) for networks in self.networks.values()})
        return f"n = {counted(counts[-1], 'student')}" if len(counts) == 1 else f"n = {counts[0]} to {counts[-1]}"

    @cached_property
    def alive(self) -> np.ndarray:
        """Which networks did not diverge."""
        return self.run.select().alive

    @cached_property
    def complete(self) -> np.ndarray:
        """Which networks neither diverged nor stopped before the last epoch."""
        return self.alive & np.isfinite(self.run.series("eval_loss")[:, -1])

    def spread(self, values: np.ndarray, coordinates: Mapping[str, Any], which: np.ndarray) -> xr.DataArray:
        """Arrange values [network, …] of some networks, whose numbers are a coordinate, by [setting, seed, …]."""
        setting, place = [""] * len(values), [0] * len(values)
        for name, networks in self.networks.items():
            for i, network in enumerate(networks):
                setting[network], place[network] = name, i
        values = np.where(which.reshape(-1, *(1,) * (values.ndim - 1)), values, np.nan)
        numbers = np.where(which, np.arange(len(values)), -1)
        return spread(values, {"setting": setting, "seed": place}, ("network", numbers), str, coordinates)

    def array(self, metric: str, *more: str, which: np.ndarray | None = None) -> xr.DataArray:
        """Values [setting, seed, …, epoch] of a metric, of networks that did not diverge or of some of them."""
        values = self.run.array(metric, " ".join(("network", *more, "epoch")))
        coordinates = {name: values[name].to_numpy() for name in (*more, "epoch")}
        return self.spread(values.to_numpy(), coordinates, self.alive if which is None else which)

    def ends(self, metric: str) -> dict[str, np.ndarray]:
        """The last recorded value of a metric in each setting, mean over layers, of networks that did not diverge."""
        layers = self.run.array(metric, "network layer").to_numpy()
        values = layers.mean(axis=1) if layers.size else self.run.array(metric, "network").to_numpy()
        return {name: values[[n for n in networks if self.alive[n]]] for name, networks in self.networks.items()}


def _words(name: str, value: Any) -> str:
    """A value of a column of `networks`, as a part of a title."""
    match name:
        case "multiple":
            return multiple_titles([value])[value]
        case "sizes":
            return str(value)
        case "stop":
            return f"until epoch {value}"
        case _:
            return f"{name} {number(value, 'g') if isinstance(value, float) else value}"


def _curves(settings: _Settings, metrics: Mapping[str, str], name: str, *, log_y: bool = False) -> Curves:
    """Several metrics over training by the label of their line, with quartiles over networks."""
    import xarray as xr

    values = [settings.array(metric) for metric in metrics.values()]
    return Curves.from_array(
        xr.concat(values, "metric", coords="minimal", join="outer").assign_coords(metric=list(metrics)),
        name=name,
        panel="setting",
        line="metric",
        titles=settings.titles,
        colours=(style.BLUE, style.CONTEXT),
        log_y=log_y,
        note=settings.note,
    )


def _loss_caption(run: Run) -> str:
    kind = str(run.options.get("objective", "")).replace("-", " ")
    return (
        f"Loss{f' ({kind})' if kind else ''} after each epoch on the evaluation inputs, and over its steps on the "
        "training inputs."
    )


def _accuracy(settings: _Settings) -> list[Figure]:
    if not settings.run.metric_names.issuperset(_ACCURACIES.values()):
        return []
    caption = "Share of the evaluation inputs whose label is predicted, by students and by their teachers."
    kind = _curves(settings, _ACCURACIES, "accuracy")
    return [Figure("accuracy", "How many labels are predicted", caption, "", kind)]


def _every_student(settings: _Settings) -> list[Figure]:
    """Every student of every layer; none where networks of different widths share a panel."""
    run = settings.run
    widths = run.options["students"] if isinstance(run.options["students"], list) else [run.options["students"]]
    if len(set(widths)) > 1 and not {"multiple", "sizes", "population"} & set(settings.by):
        return []
    rho = settings.array("rho_mean", "layer", which=settings.complete).dropna("setting", how="all")
    kind = layer_specialization(run, rho, "setting", settings.titles)
    stopped = settings.complete.sum() < settings.alive.sum()
    caption = STUDENTS_CAPTION + " Networks that stopped before the last epoch are left out." * bool(stopped)
    return [Figure("layer-specialization", "Every student of every layer", caption, "", kind)]


def _pairs(settings: _Settings) -> list[Figure]:
    """One network's correlations, and the rank of the winners over training, where every pair was recorded."""
    run = settings.run
    if not run.options.get("pairs"):
        return []
    first = int(np.flatnonzero(settings.alive)[0])
    layers = run.array("rho_mean", "network layer")["layer"].to_numpy().tolist()
    names = layer_names(1 + max(layers))
    last = int(np.flatnonzero(np.isfinite(run.series("eval_loss")[first]))[-1])
    matrices = tuple(run.pairs(first, layer)[last] for layer in layers)
    seed = run.column("seed")[first]
    matrix = Figure(
        "correlation-matrix",
        "Which student learned which teacher node",
        f"Correlation of every teacher node with every student of network {first} (seed {seed}) after training.",
        "",
        CorrelationMatrix(tuple(names[layer] for layer in layers), matrices, network=first),
    )
    recorded = [run.pairs(layer=layer) for layer in layers] if _few(run) else []
    return [matrix, *_ranks(settings, recorded, layers)]


def _few(run: Run) -> bool:
    return run.nodes.num_rows <= _MOST_PAIRS


def _ranks(settings: _Settings, recorded: list[np.ndarray], layers: list[int]) -> list[Figure]:
    if not recorded:
        return []
    ranks = np.stack([mean_rank(each) for each in recorded], axis=1)
    rank = settings.spread(ranks, {"layer": layers, "epoch": settings.run.epochs}, settings.alive)
    caption = (
        "Mean rank, among all students, of the students that match best in the end: 0 is first, 0.5 (dashed) is chance."
    )
    more = {"name": "mean rank of winners", "bound": (0.5, "chance"), "note": settings.note}
    kind = layer_curves(rank, "setting", settings.titles, **more)
    return [Figure("mean-rank", "How early the winners were ahead", caption, "", kind)]


def mean_rank(correlation: np.ndarray) -> np.ndarray:
    """Mean rank of the final winners (Tian et al. 2019, sec. 5.1), [network, epoch].

    A winner is the student that correlates best with a teacher node at the last recorded epoch of its network. Its rank
    is the number of students ahead of it, divided by n − 1.

    Args:
        correlation: [network, epoch, teacher, student]; NaN where nothing was recorded.

    Returns:
        The mean over teacher nodes; NaN where nothing was recorded.
    """
    there = np.isfinite(correlation)
    recorded = there.any(axis=(2, 3))
    last = correlation.shape[1] - 1 - recorded[:, ::-1].argmax(axis=1)
    final = np.take_along_axis(correlation, last[:, None, None, None], axis=1)
    winner = np.where(np.isfinite(final), final, -np.inf).argmax(axis=3)[..., None]
    ahead = (correlation > np.take_along_axis(correlation, winner, axis=3)).sum(axis=3)
    ranks = ahead / np.maximum(there.sum(axis=3) - 1, 1)
    nodes = there.any(axis=3)
    return np.where(recorded, np.where(nodes, ranks, 0.0).sum(axis=2) / np.maximum(nodes.sum(axis=2), 1), np.nan)


def _headline(settings: _Settings) -> str:
    shares = {name: float(each.mean()) for name, each in settings.ends("recovered").items() if len(each)}
    place = " ({})" if len(settings.by) > 1 else " at {}" if settings.by else ""
    parts = [f"{share:.0%}{place.format(name)}" for name, share in shares.items()]
    found = listed(parts)
    if len(parts) > _MOST_LISTED:
        worst, best = min(shares, key=shares.__getitem__), max(shares, key=shares.__getitem__)
        found = f"from {shares[worst]:.0%} ({worst}) to {shares[best]:.0%} ({best})"
    return (
        f"At the end of training the students had recovered {found} of their teachers' nodes, with a correlation above "
        f"{THRESHOLD}.{some_diverged(settings.run)}"
    )


def _numbers(settings: _Settings) -> tuple[Number, ...]:
    shares, losses = (np.concatenate(list(settings.ends(metric).values())) for metric in ("recovered", "eval_loss"))
    return (
        Number(f"{settings.run.networks.num_rows:,}", "networks"),
        Number(f"{shares.mean():.0%}", "of teacher nodes recovered"),
        Number(f"{np.median(losses):.1e}", "median evaluation loss"),
    )


def _diverged_story(run: Run) -> Story:
    first, total = run.networks["diverged_at"].drop_null().to_numpy().min(), run.networks.num_rows
    words = f"All {counted(total, 'network')} diverged, the first at step {first:,}: choose a smaller learning rate."
    return Story(words, (Number(f"{total:,}", "networks, all diverged"),), ())


def _command(options: Mapping[str, Any]) -> str:
    """How `us.train` was called."""
    optimiser = dict(options["optimiser"])
    kind = optimiser.pop("kind")
    given = ", ".join(f"{name}={value!r}" for name, value in optimiser.items())
    call = f"us.{kind}({given}), epochs={options['epochs']}, steps={options['steps']}"
    call += ", pairs=True" * bool(options.get("pairs"))
    call += f", record={list(options['record'])!r}" if options.get("record") else ""
    return f"us.train(students, teacher, data, {call})"
