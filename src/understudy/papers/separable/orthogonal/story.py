"""The study of orthogonally separable points in words and figures."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from typing import TYPE_CHECKING

import numpy as np

from understudy.papers.separable.orthogonal.claims import ALIGNED, THIRD, Group, group, lemma, spread
from understudy.papers.separable.orthogonal.study import DRAWN, FLOW, GIVEN, SETS, SGD, SPANNING
from understudy.papers.specialization.deep.story import some_diverged
from understudy.papers.specialization.dynamics.claims import part
from understudy.report import style
from understudy.report.figures import Curves, Panel, Series
from understudy.report.story import Figure, Number, Story, counted
from understudy.store import Run

if TYPE_CHECKING:
    from understudy.papers.separable.orthogonal.study import Orthogonal

_KINDS = {DRAWN: "points as drawn", SPANNING: "supports span the space", GIVEN: "points of the file"}
_BARS = 40
_STEPS = (style.VERMILLION, style.PURPLE, style.ORANGE, style.SKY)
"""Colours of starts of SGD, which those of gradient flow have not."""


def story(study: Orthogonal, run: Run) -> Story:
    lives = {layers: _sgd(study, run, layers).first is not None for layers in study.layers}
    figures = (
        *((_two_layers(study, run), _plane(study, run)) if lives.get(2) else ()),
        *(_residual(study, run, layers) for layers in study.layers if layers > 2 and lives[layers]),
        _sectors(study, run),
        _limit(study, run),
        _starts(study, run),
        _conditions(study, run),
    )
    return Story(_headline(study, run), _numbers(study, run), figures)


def _note(study: Orthogonal) -> str:
    return f"n = {counted(study.seeds, 'seed')}: median and range"


def _sgd(study: Orthogonal, run: Run, layers: int, start: float | None = None) -> Group:
    """By SGD, from the largest start unless another is named."""
    return group(run, SGD, layers=layers, start=max(study.start) if start is None else start)


def _flow(run: Run, kind: str, start: float) -> Group:
    return group(run, FLOW, points=kind, start=start)


def _setting(study: Orthogonal, layers: int) -> str:
    return f"{layers} layers of {counted(study.neurons, 'neuron')}, SGD from default weights × {max(study.start):g}"


def _shown(found: Group) -> int:
    """Which of its seeds is drawn."""
    return found.first or 0


def _which(found: Group) -> str:
    return f"seed {int(found.run.column('seed')[found.networks[_shown(found)]])}"


def _spectrum(found: Group, layer: int) -> tuple[Series, ...]:
    now, before = (found.values(layer, look)[_shown(found)] for look in (-1, 0))
    network = np.full(len(now), found.networks[_shown(found)])
    every = np.arange(1, len(now) + 1)
    return (
        Series("after training", every, now, points=True, colour=style.VERMILLION, network=network),
        Series("at the start", every[: len(before)], before, points=True, colour=style.CONTEXT),
    )


def _bars(label: str, values: np.ndarray, colour: str) -> Series:
    """A histogram as the outline of its bars."""
    there = values[np.isfinite(values)]
    low = min(0.0, np.floor(10 * there.min(initial=0.0)) / 10)
    counts, edges = np.histogram(there, np.linspace(low, 1, _BARS + 1))
    x, y = np.repeat(edges, 2), np.concatenate([[0.0], np.repeat(counts, 2), [0.0]])
    return Series(label, x, y, np.zeros_like(y), y, colour=colour)


def _points(label: str, places: np.ndarray, colour: str, network: int) -> Series:
    x, y = places.T
    return Series(label, x, y, points=True, colour=colour, network=np.full(len(places), network))


def _top(found: Group, layer: int) -> np.ndarray:
    return np.stack([found.nodes(name, layer=layer)[_shown(found)] for name in ("top_1", "top_2")], -1)


def _by_sign(found: Group, places: np.ndarray) -> tuple[Series, ...]:
    positive, network = found.nodes("output")[_shown(found)] > 0, int(found.networks[_shown(found)])
    return (
        _points("a > 0", places[positive], style.ORANGE, network),
        _points("a < 0", places[~positive], style.BLUE, network),
    )


def _two_layers(study: Orthogonal, run: Run) -> Figure:
    found = _sgd(study, run, 2)
    share = found.end("aligned")
    panels = (
        Panel("a) largest singular values of W", "number", "singular value", _spectrum(found, 1)),
        Panel("b) neurons on the top two", "first", "second", _by_sign(found, _top(found, 0))),
        Panel(
            "c) correlation with max-margin",
            "correlation",
            "neurons",
            (_bars("neurons", found.nodes("correlation")[_shown(found)], style.PURPLE),),
        ),
    )
    return Figure(
        "two-layers",
        "Two singular values, two directions",
        f"{_setting(study, 2)}, {_which(found)}: W before and after, its rows on its first two singular directions, "
        f"their correlation with the max-margin vector of their sign. Above 0.9 are {spread(100 * share)}% of a "
        "network's neurons, over seeds.",
        "S3 fig 3.1",
        Curves(panels, _which(found)),
    )


def _residual(study: Orthogonal, run: Run, layers: int) -> Figure:
    found = _sgd(study, run, layers)
    network, each = int(found.networks[_shown(found)]), range(1, layers)
    spectra = [Panel(f"singular values of W{n}", "number", "singular value", _spectrum(found, n)) for n in each]
    rows = [
        Panel(f"rows of W{n}", "first", "second", (_points("rows", _top(found, n - 1), style.GREEN, network),))
        for n in each
    ]
    nearest = Panel(
        "W1 and the nearer max-margin vector",
        "correlation",
        "rows of W1",
        (_bars("correlation", found.nodes("correlation")[_shown(found)], style.PURPLE),),
    )
    third = ", ".join(f"{spread(found.end(f'W{n} third'), 3)} (W{n})" for n in each)
    added = max(float(np.nanmax(found.end(f"W{n} added third"), initial=0.0)) for n in each)
    return Figure(
        f"residual-{layers}",
        f"Residual networks of {layers} layers",
        f"{_setting(study, layers)}, {_which(found)}. σ₃/σ₁ over seeds: {third}; of what training added, W − W₀, at "
        f"most {style.number(added)}.",
        "S3 fig 3.2",
        Curves((*spectra, *rows, nearest), _which(found), columns=layers - 1 if layers < 5 else 4),
    )


def _plane(study: Orthogonal, run: Run) -> Figure:
    """Neurons' ways on the plane of the two max-margin vectors."""
    small = min(study.start)
    shown = [(f"SGD, × {start:g}", _sgd(study, run, 2, start)) for start in dict.fromkeys((max(study.start), small))]
    least = min(study.flow_start)
    shown.append((f"gradient flow, λ = {least:g}", _flow(run, study.main, least)))
    sets = part(run, SETS, points=study.main)
    cosines = dict(zip(run.column("seed")[sets].tolist(), run.series("cosine")[sets, 0].tolist(), strict=True))
    panels = tuple(
        Panel(title, "along w₊", "beside it", (*_by_sign(found, _ways(found)[-1]), *_rays(found, cosines)))
        for title, found in shown
        if found.first is not None
    )
    return Figure(
        "plane",
        "Neurons on the plane of w₊ and w₋",
        f"At the end, {_which(shown[0][1])}: grey lines are the ways of neurons from the start, dashed ones the "
        "max-margin vectors of the two classes. SGD ends at the time "
        f"{_last_time(shown[0][1]):.3g} of gradient flow, which goes on to {study.flow_time:,g}.",
        "S3 fig 3.1b",
        Curves(panels, _which(shown[0][1])),
    )


def _ways(found: Group) -> np.ndarray:
    """[look, neuron, 2] of the first seed, at the looks that are kept."""
    network = found.networks[_shown(found)]
    every = np.stack([found.run.matched("student", f"plane_{k}")[network][found.looks] for k in (1, 2)], -1)
    there = ~np.isnan(every).any(-1)
    return every[there.any(1)][:, there.any(0)]


def _last_time(found: Group) -> float:
    return float(np.nanmax(found.course("time"), initial=0.0))


def _rays(found: Group, cosines: dict[int, float]) -> tuple[Series, ...]:
    ways = _ways(found)
    seed = int(found.run.column("seed")[found.networks[_shown(found)]])
    cosine = cosines.get(seed, next(iter(cosines.values())))  # points of a file are the same for all seeds
    gaps = np.concatenate([ways, np.full((1, *ways.shape[1:]), np.nan)]).swapaxes(0, 1).reshape(-1, 2)
    reach = 1.1 * np.nanmax(np.hypot(*ways[-1].T), initial=0.0)
    ends = {"w₊": (reach, 0.0), "w₋": (reach * cosine, reach * np.sqrt(max(0.0, 1 - cosine**2)))}
    lines = (
        Series(name, np.array([0.0, x]), np.array([0.0, y]), dashed=True, colour=colour)
        for (name, (x, y)), colour in zip(ends.items(), (style.ORANGE, style.BLUE), strict=True)
    )
    return (*lines, Series("way of a neuron", gaps[:, 0], gaps[:, 1], colour=style.CONTEXT))


def _course(label: str, found: Group, name: str, colour: str, *, dashed: bool = False) -> Series:
    """Median and range over seeds, against the time of the sum of losses."""
    values, time = found.course(name), np.nanmax(found.course("time"), 0, initial=0.0)
    there = np.isfinite(values).any(0) & (time > 0)  # a logarithmic axis has no time 0
    if not there.any():
        return Series(label, np.zeros(0), np.zeros(0), dashed=dashed, colour=colour)
    low, middle, high = np.nanquantile(values[:, there], (0, 0.5, 1), axis=0)
    return Series(label, time[there], middle, low, high, dashed=dashed, colour=colour)


def _every_flow(study: Orthogonal, run: Run, kind: str, name: str) -> tuple[Series, ...]:
    starts = sorted(study.flow_start, reverse=True)
    return tuple(
        _course(f"flow, λ = {start:g}", _flow(run, kind, start), name, colour)
        for start, colour in zip(starts, style.ramp(len(starts))[::-1], strict=True)
    )


def _every_sgd(study: Orthogonal, run: Run, name: str) -> tuple[Series, ...]:
    starts = sorted(study.start, reverse=True)
    return tuple(
        _course(f"SGD, × {start:g}", _sgd(study, run, 2, start), name, colour)
        for start, colour in zip(starts, cycle(_STEPS), strict=False)
    )


def _sectors(study: Orthogonal, run: Run) -> Figure:
    panels = [Panel(_KINDS[k], "time", "share", _every_flow(study, run, k, "inside"), log_x=True) for k in study.kinds]
    if 2 in study.layers:
        mine = f"SGD, {_KINDS[study.main]}"
        panels.append(Panel(mine, "time", "share", _every_sgd(study, run, "inside"), log_x=True))
    left = sum(float(np.nansum(found.end("left"))) for found in _of_two_layers(study, run))
    went = "None was ever seen to leave it" if not left else f"{left:,.0f} were seen to leave it"
    return Figure(
        "sectors",
        "Neurons enter the extremal sector of their sign",
        "The share of neurons in their sector over training, against the time of the sum of losses; a step of SGD "
        f"takes rate / points of it. {went}.",
        "S3 lemmas 3.1, 3.3",
        Curves(tuple(panels), _note(study)),
    )


def _of_two_layers(study: Orthogonal, run: Run) -> list[Group]:
    """All networks whose sectors are known."""
    flows = [_flow(run, kind, start) for kind in study.kinds for start in study.flow_start]
    return flows + [_sgd(study, run, 2, start) for start in study.start if 2 in study.layers]


def _limit(study: Orthogonal, run: Run) -> Figure:
    sides = {"hidden": "first layer, eq. 3.8", "output": "output weights, eq. 3.9"}
    panels = []
    for kind in study.kinds:
        for name, words in sides.items():
            lines = _every_flow(study, run, kind, name)
            if kind == study.main and 2 in study.layers:
                found = _sgd(study, run, 2)
                lines = (*lines, _course(f"SGD, × {max(study.start):g}", found, name, _STEPS[0], dashed=True))
            panels.append(Panel(f"{words}; {_KINDS[kind]}", "time", "distance", lines, log_x=True, log_y=True))
    return Figure(
        "limit",
        "Towards the limit of theorem 3.1",
        "The distance of normalised weights from those of two max-margin neurons, against the time of the sum of "
        "losses.",
        "S3 theorem 3.1",
        Curves(tuple(panels), _note(study), columns=2),
    )


def _against(label: str, starts: Sequence[float], found: Sequence[np.ndarray], colour: str) -> Series:
    there = [values[np.isfinite(values)] for values in found]
    low, middle, high = np.array([np.quantile(v, (0, 0.5, 1)) if len(v) else np.full(3, np.nan) for v in there]).T
    return Series(label, np.array(starts), middle, low, high, colour=colour)


def _starts(study: Orthogonal, run: Run) -> Figure:
    starts = sorted(study.start)
    names = [(f"{depth} layers, W{n}", depth, n) for depth in study.layers for n in range(1, depth)]
    colours = dict(zip((name for name, _, _ in names), style.categories(len(names)), strict=True))

    def of(depth: int, metric: str) -> list[np.ndarray]:
        return [_sgd(study, run, depth, start).end(metric) for start in starts]

    def thirds(word: str) -> tuple[Series, ...]:
        return tuple(_against(name, starts, of(depth, f"W{n} {word}"), colours[name]) for name, depth, n in names)

    first = [(name, depth) for name, depth, n in names if n == 1]
    x, y = "factor of default weights", "σ₃/σ₁"
    panels = (
        Panel("weights", x, y, thirds("third"), True, True, THIRD, f"{THIRD:.0%}"),
        Panel("what training added", x, y, thirds("added third"), True, True),
        Panel(
            "neurons above 0.9",
            x,
            "share",
            tuple(_against(name, starts, of(depth, "aligned"), colours[name]) for name, depth in first),
            True,
            bound=ALIGNED,
            bound_words=f"{ALIGNED:.0%}",
        ),
    )
    return Figure(
        "starts",
        "Distance from rank two, and alignment, by the size of the start",
        "The third singular value over the first, at the end of SGD: of weights, which keep what they began with, and "
        "of what training added, W − W₀. Right: neurons of the first layer whose correlation with a max-margin vector "
        "is above 0.9.",
        "S3 figs 3.1, 3.2, from more starts",
        Curves(panels, _note(study)),
    )


def _conditions(study: Orthogonal, run: Run) -> Figure:
    shares, said = [], []
    for kind, colour in zip(study.kinds, (style.BLUE, style.PURPLE), strict=False):
        sets = part(run, SETS, points=kind)
        share = run.series("supports")[sets, 0] / run.series("inputs")[sets, 0]
        shares.append(_seeds(_KINDS[kind], run, sets, share, colour))
        said.append(f"{run.series('spans')[sets, 0].sum():.0f} of {len(sets)} ({_KINDS[kind]})")
    sets = part(run, SETS, points=study.main)
    products = tuple(
        _seeds(label, run, sets, run.series(name)[sets, 0], colour)
        for label, name, colour in (
            ("least of one class", "least same", style.GREEN),
            ("largest of two", "largest different", style.VERMILLION),
        )
    )
    balances = [_balance("flow", _flow(run, study.main, max(study.flow_start)), style.SKY)]
    if 2 in study.layers:
        balances.append(_balance(f"SGD, × {max(study.start):g}", _sgd(study, run, 2), style.ORANGE))
    panels = (
        Panel("fewest support examples", "seed", "of a class, over inputs", tuple(shares), False, False, 1.0, "inputs"),
        Panel("inner products of points", "seed", "product", products, bound=0.0, bound_words="right angle"),
        Panel("|a| / ‖w‖ at the start", "seed", "least to largest", tuple(balances), log_y=True),
    )
    residual = style.number(float(run.series("residual")[part(run, SETS), 0].max()))
    return Figure(
        "conditions",
        "What theorem 3.1 asks for, seed by seed",
        f"Support examples of both classes span the space in {', in '.join(said)} sets. Points are orthogonally "
        "separable where products within a class are above 0 and those of two are not. A start is balanced where |a| = "
        f"‖w‖ for all neurons. Max-margin vectors meet their conditions to {residual}.",
        "S3 sec 3.1",
        Curves(panels),
    )


def _seeds(label: str, run: Run, networks: np.ndarray, values: np.ndarray, colour: str) -> Series:
    seeds = run.column("seed")[networks].astype(float)
    return Series(label, seeds, values, points=True, colour=colour, network=networks)


def _balance(label: str, found: Group, colour: str) -> Series:
    low, high = (found.course(f"{word} balance")[:, 0] for word in ("least", "largest"))
    seeds = found.run.column("seed")[found.networks].astype(float)
    middle = np.sqrt(low * high)
    return Series(label, seeds, middle, low, high, points=True, colour=colour, network=found.networks)


def _headline(study: Orthogonal, run: Run) -> str:
    said: list[str] = []
    for layers in sorted(study.layers):
        found = _sgd(study, run, layers)
        if found.first is None:
            said.append(f"with {layers} layers no network is left")
            continue
        third, share = spread(found.end("W1 third")), spread(100 * found.end("aligned"))
        what = "σ₃/σ₁ of W1 is {} and {}% of its rows correlate above 0.9 with a max-margin vector"
        said.append(
            f"with {layers} layers "
            + ("{} and {}%" if any("σ" in each for each in said) else what).format(third, share)
        )
    least = min(study.flow_start)
    flow = _flow(run, study.main, least)
    quiet = f", {spread(100 * flow.end('off'))}% are active for no point" if flow.end("off").any() else ""
    left = int(np.nansum(flow.end("left")))
    return (
        f"After SGD from default weights × {max(study.start):g}, {'; '.join(said)}. By gradient flow from λ = "
        f"{least:g}, {spread(100 * flow.end('inside'), 3)}% of neurons end in the extremal sector of their sign{quiet};"
        f" {left or 'none'} ever left it.{some_diverged(run)}"
    )


def _numbers(study: Orthogonal, run: Run) -> tuple[Number, ...]:
    holds = lemma(run)
    numbers = [
        Number(f"{run.networks.num_rows - len(part(run, SETS)):,}", "networks"),
        Number(f"{holds.sum()} of {len(holds)}", "sets with the two extremal directions of lemma 3.2 and no other"),
    ]
    if 2 in study.layers and (found := _sgd(study, run, 2)).first is not None:
        numbers += [
            Number(spread(found.end("W1 third")), f"σ₃/σ₁ of two layers, start × {max(study.start):g}"),
            Number(f"{spread(100 * found.end('aligned mass'))}%", "of their Σ ‖w‖² is in neurons above 0.9"),
        ]
    return tuple(numbers)
