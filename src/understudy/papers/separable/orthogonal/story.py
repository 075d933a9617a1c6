"""Figures and headline of `orthogonal` (Phuong 2021, figs. 3.1, 3.2, theorem 3.1)."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import cycle, islice
from typing import Any

import numpy as np
import pyarrow as pa
import xarray as xr

from understudy.claims import range_words
from understudy.lab.layers import some_diverged
from understudy.papers.separable.orthogonal import claims
from understudy.papers.separable.orthogonal.study import DRAWN, FLOW, GIVEN, SGD, SPANNING, Orthogonal
from understudy.papers.separable.shared import by_sign, margin_rays, outline, scatter
from understudy.report import style
from understudy.report.figures import Curves, Panel, Series
from understudy.report.story import Figure, Number, Story, counted
from understudy.store import Run
from understudy.store.arrays import Networks
from understudy.store.units import unit_array

_KINDS = {DRAWN: "points as drawn", SPANNING: "supports span the space", GIVEN: "points of the file"}
_BARS = 40
_SGD_COLOURS = (style.VERMILLION, style.PURPLE, style.ORANGE, style.SKY)
"""Colours of the starts of SGD, different from those of gradient flow."""


def story(study: Orthogonal, run: Run) -> Story:
    """The figures of the thesis, then sectors, the limit of theorem 3.1, the size of the start, and assumptions."""
    sets = claims.read_sets(run)
    alive = {layers: bool(_sgd(study, run, layers).alive.any()) for layers in study.layers}
    figures = (
        *((_two_layers(study, run), _plane(study, run, sets)) if alive.get(2) else ()),
        *(_residual(study, run, layers) for layers in study.layers if layers > 2 and alive[layers]),
        _sectors(study, run),
        _limit(study, run),
        *((_starts(study, run),) if any(alive.values()) else ()),
        _conditions(study, run, sets),
    )
    return Story(_headline(study, run), _numbers(study, run, sets), figures)


def _sgd(study: Orthogonal, run: Run, layers: int) -> Networks:
    """Networks trained by SGD from the largest start."""
    return claims.select_sgd(run, layers, max(study.start))


def _setting(study: Orthogonal, layers: int) -> str:
    return f"{layers} layers of {counted(study.neurons, 'neuron')}, SGD from default weights × {max(study.start):g}"


def _drawn(networks: Networks) -> Networks:
    """The first network that did not diverge; none if all did."""
    return Networks(networks.run, networks.index[networks.alive][:1])


def _seed(one: Networks) -> int:
    return int(one.column("seed")[0])


def _at_neurons(one: Networks, names: Sequence[str], layer: int = 0) -> np.ndarray:
    """Columns of `nodes` of one network at the end, [neuron, name]."""
    each = [one.array(name, "network student", layer=layer)[0].dropna("student").to_numpy() for name in names]
    return np.stack(each, -1)


def _spectrum(one: Networks, layer: int) -> tuple[Series, ...]:
    now, before = claims.singular_values(one, layer)[0], claims.singular_values(one, layer, start=True)[0]
    each = np.arange(1, len(now) + 1)
    return (
        Series("after training", each, now, points=True, colour=style.VERMILLION, network=np.full(len(now), one.index)),
        Series("at the start", each[: len(before)], before, points=True, colour=style.CONTEXT),
    )


def _bars(label: str, one: Networks) -> Series:
    """A histogram of the correlations of neurons."""
    values = _at_neurons(one, ["correlation"])
    low = min(0.0, np.floor(10 * values.min(initial=0.0)) / 10)
    return outline(label, *np.histogram(values, np.linspace(low, 1, _BARS + 1)), style.PURPLE)


def _by_sign(one: Networks, places: np.ndarray) -> tuple[Series, ...]:
    return by_sign("a", _at_neurons(one, ["output"])[:, 0], places, one.index)


def _two_layers(study: Orthogonal, run: Run) -> Figure:
    found = _sgd(study, run, 2)
    one = _drawn(found)
    places = _at_neurons(one, ("top_1", "top_2"))
    panels = (
        Panel("a) largest singular values of W", "number", "singular value", _spectrum(one, 1)),
        Panel("b) neurons on the top two", "first", "second", _by_sign(one, places)),
        Panel("c) correlation with max-margin", "correlation", "neurons", (_bars("neurons", one),)),
    )
    return Figure(
        "two-layers",
        "Two singular values, two directions",
        f"{_setting(study, 2)}, seed {_seed(one)}: singular values of W before and after training, the rows of W on "
        "its first two singular directions, and their correlation with the max-margin vector of their sign. Over "
        f"seeds, {range_words(100 * found.end('aligned'), '.2g')}% of a network's neurons correlate above 0.9.",
        "S3 fig. 3.1",
        Curves(panels, f"seed {_seed(one)}"),
    )


def _residual(study: Orthogonal, run: Run, layers: int) -> Figure:
    found = _sgd(study, run, layers)
    one, each = _drawn(found), range(1, layers)
    spectra = [Panel(f"singular values of W{n}", "number", "singular value", _spectrum(one, n)) for n in each]
    places = {n: _at_neurons(one, ("top_1", "top_2"), layer=n - 1) for n in each}
    points = {n: scatter("rows", places[n], style.GREEN, one.index) for n in each}
    rows = [Panel(f"rows of W{n}", "first", "second", (points[n],)) for n in each]
    nearest = Panel("W1 and the nearer max-margin vector", "correlation", "rows of W1", (_bars("correlation", one),))
    third = ", ".join(f"{range_words(found.end(f'W{n} third'))} (W{n})" for n in each)
    added = max(float(np.nanmax(found.end(f"W{n} added third"), initial=0.0)) for n in each)
    return Figure(
        f"residual-{layers}",
        f"Residual networks of {layers} layers",
        f"{_setting(study, layers)}, seed {_seed(one)}. σ₃/σ₁ over seeds: {third}; of the change made by training, "
        f"W − W₀, at most {style.number(added)}.",
        "S3 fig. 3.2",
        Curves((*spectra, *rows, nearest), f"seed {_seed(one)}", columns=layers - 1 if layers < 5 else 4),
    )


def _plane(study: Orthogonal, run: Run, sets: pa.Table) -> Figure:
    """Trajectories of neurons in the plane of the two max-margin vectors."""
    least = min(study.flow_start)
    starts = dict.fromkeys((max(study.start), min(study.start)))
    shown = {f"SGD, × {start:g}": _drawn(claims.select_sgd(run, 2, start)) for start in starts}
    shown[f"gradient flow, λ = {least:g}"] = _drawn(claims.select_flow(run, study.main, least))
    cosines = unit_array(sets, "cosine", "seed", points=study.main)
    panels = tuple(
        Panel(title, "along w₊", "orthogonal to w₊", _trajectories(one, cosines))
        for title, one in shown.items()
        if len(one)
    )
    first = _drawn(_sgd(study, run, 2))
    return Figure(
        "plane",
        "Neurons on the plane of w₊ and w₋",
        f"At the end, seed {_seed(first)}: grey lines are the trajectories of neurons from the start, dashed lines the "
        f"max-margin vectors of the two classes. SGD ends at the time {first.end('time')[0]:.3g} of gradient flow, "
        f"which continues until {style.number(study.flow_time)}.",
        "S3 fig. 3.1b",
        Curves(panels, f"seed {_seed(first)}"),
    )


def _trajectories(one: Networks, cosines: xr.DataArray) -> tuple[Series, ...]:
    """Neurons at the end and from the start, and the max-margin vectors of their set."""
    paths = np.stack(
        [
            one.array(f"plane_{k}", "network epoch student")[0]
            .dropna("epoch", how="all")
            .dropna("student", how="all")
            .to_numpy()
            for k in (1, 2)
        ],
        -1,
    )
    gaps = np.concatenate([paths, np.full((1, *paths.shape[1:]), np.nan)]).swapaxes(0, 1).reshape(-1, 2)
    # The points of a file are one set for all seeds.
    cosine = cosines.sel(seed=_seed(one)).item() if len(cosines) > 1 else cosines.item()
    trajectories = Series("trajectory of a neuron", gaps[:, 0], gaps[:, 1], colour=style.CONTEXT)
    return (*_by_sign(one, paths[-1]), *margin_rays(paths[-1], cosine), trajectories)


def _over_time(study: Orthogonal, run: Run, metric: str, kind: str | None = None) -> tuple[Series, ...]:
    """One line per start of flow on points of a kind, or of SGD, the largest first, over the time of gradient flow."""
    label, colours, where = "SGD, × ", list(islice(cycle(_SGD_COLOURS), len(study.start))), {"part": SGD, "layers": 2}
    if kind is not None:
        label, colours, where = "flow, λ = ", style.ramp(len(study.flow_start))[::-1], {"part": FLOW, "points": kind}
    values, time = (run.array(name, "start seed epoch", diverged=True, **where) for name in (metric, "time"))
    values = values.assign_coords(epoch=time.max(("start", "seed")).sel(epoch=values["epoch"]).to_numpy())
    later = values.isel(epoch=slice(1, None), start=slice(None, None, -1))  # a logarithmic axis has no time 0
    labels = {start: f"{label}{start:g}" for start in later["start"].to_numpy()}
    drawn = Curves.from_array(later, name=metric, line="start", band="range", labels=labels, colours=colours)
    # Panels combine networks that were probed at different times, which the page cannot mark one by one.
    return tuple(replace(line, network=None, network_y=None) for line in drawn.panels[0].series)


def _sectors(study: Orthogonal, run: Run) -> Figure:
    panels = [Panel(_KINDS[k], "time", "share", _over_time(study, run, "inside", k), log_x=True) for k in study.kinds]
    if 2 in study.layers:
        lines = _over_time(study, run, "inside")
        panels.append(Panel(f"SGD, {_KINDS[study.main]}", "time", "share", lines, log_x=True))
    left = float(np.nansum(run.select(part=[SGD, FLOW], layers=2).end("left")))
    seen = "None was seen to leave it" if not left else f"{left:,.0f} were seen to leave it"
    return Figure(
        "sectors",
        "Neurons enter the extremal sector of their sign",
        "The share of neurons in their sector over training, against the time of gradient flow on the sum of losses; "
        f"a step of SGD takes rate / points of it. {seen}.",
        "S3 lemmas 3.1, 3.3",
        Curves(tuple(panels), _note(study), band="range"),
    )


def _note(study: Orthogonal) -> str:
    return f"n = {counted(study.seeds, 'seed')}"


def _limit(study: Orthogonal, run: Run) -> Figure:
    sides = {
        "hidden": "first layer, eq. 3.8",
        "output": "output weights, eq. 3.9",
        "function": "function, eq. 3.10",
        "kkt": "KKT residual, eq. B.47",
    }
    panels = []
    for kind in study.kinds:
        for name, words in sides.items():
            lines = _over_time(study, run, name, kind)
            if kind == study.main and 2 in study.layers:
                lines += tuple(replace(line, dashed=True) for line in _over_time(study, run, name)[:1])
            panels.append(Panel(f"{words}; {_KINDS[kind]}", "time", "distance", lines, log_x=True, log_y=True))
    return Figure(
        "limit",
        "Towards the limit of theorem 3.1",
        "The distance of normalised weights, and of the function on Gaussian inputs, from those of two max-margin "
        "neurons, and the residual of the KKT conditions, against the time of gradient flow on the sum of losses. "
        "Limits are approached in log t.",
        "S3 theorem 3.1, corollary 3.1, lemma B.6",
        Curves(tuple(panels), _note(study), columns=2, band="range"),
    )


def _by_start(run: Run, metrics: dict[str, tuple[int, str]], **more: Any) -> Panel:
    """One line per matrix over the factor of the initial weights; its depth and metric are given by its name."""
    each = [run.array(metric, "start seed", part=SGD, layers=depth) for depth, metric in metrics.values()]
    values = xr.concat(each, "matrix", coords="different", compat="equals").assign_coords(matrix=list(metrics))
    name = "factor of default weights"
    return Curves.from_array(values, x="start", line="matrix", band="range", x_name=name, log_x=True, **more).panels[0]


def _starts(study: Orthogonal, run: Run) -> Figure:
    names = {f"{depth} layers, W{n}": (depth, n) for depth in study.layers for n in range(1, depth)}
    colours = dict(zip(names, style.categories(len(names)), strict=True))
    first = [name for name, (_, n) in names.items() if n == 1]

    def thirds(word: str, title: str, **more: Any) -> Panel:
        metrics = {name: (depth, f"W{n} {word}") for name, (depth, n) in names.items()}
        panel = _by_start(run, metrics, name="σ₃/σ₁", colours=list(colours.values()), log_y=True, **more)
        return replace(panel, title=title)

    aligned = _by_start(
        run,
        {name: (names[name][0], "aligned") for name in first},
        name="share",
        colours=[colours[name] for name in first],
        bound=(claims.MOST, "half"),
    )
    panels = (
        thirds("third", "weights", bound=(claims.THIRD, f"{claims.THIRD:.0%}")),
        thirds("added third", "change by training"),
        replace(aligned, title="neurons above 0.9"),
    )
    return Figure(
        "starts",
        "Distance from rank two, and alignment, by the size of the start",
        "The third singular value over the first at the end of SGD: of the weights, which contain their initial "
        "values, and of the change made by training, W − W₀. Right: the share of neurons of the first layer whose "
        "correlation with a max-margin vector is above 0.9.",
        "S3 figs. 3.1, 3.2, from more starts",
        Curves(panels, _note(study), band="range"),
    )


def _conditions(study: Orthogonal, run: Run, sets: pa.Table) -> Figure:
    def by_seed(label: str, name: str, colour: str, kind: str = study.main, over: str = "") -> Series:
        values = unit_array(sets, name, "seed", points=kind)
        values = values / unit_array(sets, over, "seed", points=kind) if over else values
        return Series(label, values["seed"].to_numpy().astype(float), values.to_numpy(), points=True, colour=colour)

    kinds = dict(zip(study.kinds, (style.BLUE, style.PURPLE), strict=False))
    shares = tuple(by_seed(_KINDS[kind], "supports", colour, kind, "inputs") for kind, colour in kinds.items())
    spans = {kind: unit_array(sets, "spans", "seed", points=kind).to_numpy() for kind in study.kinds}
    counts = ", in ".join(f"{each.sum():.0f} of {len(each)} ({_KINDS[kind]})" for kind, each in spans.items())
    products = (
        by_seed("least of one class", "least same", style.GREEN),
        by_seed("largest of two", "largest different", style.VERMILLION),
    )
    balances = [_balance("flow", claims.select_flow(run, study.main, max(study.flow_start)), style.SKY)]
    if 2 in study.layers:
        balances.append(_balance(f"SGD, × {max(study.start):g}", _sgd(study, run, 2), style.ORANGE))
    panels = (
        Panel("fewest support examples", "seed", "of a class, over inputs", shares, bound=1.0, bound_words="inputs"),
        Panel("inner products of points", "seed", "product", products, bound=0.0, bound_words="right angle"),
        Panel("|a| / ‖w‖ at the start", "seed", "least to largest", tuple(balances), log_y=True),
    )
    residual = style.number(float(sets["residual"].to_numpy().max()))
    return Figure(
        "conditions",
        "Assumptions of theorem 3.1, seed by seed",
        f"The support examples of both classes span the space in {counts} sets. Points are orthogonally separable if "
        "products within a class are above 0 and those between classes are not. A start is balanced if |a| = ‖w‖ for "
        f"all neurons. Max-margin vectors meet their optimality conditions to {residual}.",
        "S3 sec. 3.1",
        Curves(panels),
    )


def _balance(label: str, networks: Networks, colour: str) -> Series:
    low, high = (
        networks.array(f"{word} balance", diverged=True).isel(epoch=0).to_numpy() for word in ("least", "largest")
    )
    seeds = networks.column("seed").astype(float)
    return Series(label, seeds, np.sqrt(low * high), low, high, points=True, colour=colour, network=networks.index)


def _headline(study: Orthogonal, run: Run) -> str:
    parts: list[str] = []
    for layers in sorted(study.layers):
        found = _sgd(study, run, layers)
        if not found.alive.any():
            parts.append(f"with {layers} layers every network diverged")
            continue
        third, share = range_words(found.end("W1 third"), ".2g"), range_words(100 * found.end("aligned"), ".2g")
        words = "σ₃/σ₁ of W1 is {} and {}% of its rows correlate above 0.9 with a max-margin vector"
        known = any("σ" in part for part in parts)
        parts.append(f"with {layers} layers " + ("{} and {}%" if known else words).format(third, share))
    least = min(study.flow_start)
    flow = claims.select_flow(run, study.main, least)
    inside, off, left = (flow.end(name) for name in ("inside", "off", "left"))
    inactive = f", {range_words(100 * off, '.2g')}% are active for no point" if off.any() else ""
    return (
        f"After SGD from default weights × {max(study.start):g}, {'; '.join(parts)}. By gradient flow from λ = "
        f"{least:g}, {range_words(100 * inside)}% of neurons end in the extremal sector of their sign{inactive}; "
        f"{int(np.nansum(left)) or 'none'} ever left it.{some_diverged(run)}"
    )


def _numbers(study: Orthogonal, run: Run, sets: pa.Table) -> tuple[Number, ...]:
    holds, found = claims.lemma_holds(sets), _sgd(study, run, 2)
    numbers = [
        Number(f"{run.networks.num_rows:,}", "networks"),
        Number(f"{holds.sum()} of {len(holds)}", "sets with the two extremal directions of lemma 3.2 and no other"),
    ]
    if found.alive.any():
        third, mass = range_words(found.end("W1 third"), ".2g"), range_words(100 * found.end("aligned mass"), ".2g")
        numbers += [
            Number(third, f"σ₃/σ₁ of two layers, start × {max(study.start):g}"),
            Number(f"{mass}%", "of their Σ ‖w‖² is in neurons that correlate above 0.9"),
        ]
    return tuple(numbers)
