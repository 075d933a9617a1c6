"""The study on Gaussian inputs in words and figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from understudy.lab.matrices import matrix_images
from understudy.lab.study import ranked
from understudy.papers.luck.gaus.claims import (
    NAMES,
    NORMS,
    Setting,
    by_layer,
    first_epoch,
    late_gain,
    modulated,
    networks,
    speed,
)
from understudy.papers.specialization.deep.story import every_student, layer_names
from understudy.report import style
from understudy.report.figures import Curves
from understudy.report.story import Figure, Number, Story, counted
from understudy.store import Run

if TYPE_CHECKING:
    from understudy.papers.luck.gaus.study import Gaus

_SHORT, _BRIEF = {"none": "", "after": ", BatchNorm"}, {"none": "", "after": ", BN"}
_LINES = (style.BLUE, style.SKY, style.VERMILLION, style.ORANGE)
"""Of two things compared, without BatchNorm and with it (BN): dark and light of a colour each."""


def story(study: Gaus, run: Run) -> Story:
    every = [Setting(kind, norm, data) for kind in study.networks for norm in study.norm for data in study.data]
    settings = [setting for setting in every if (networks(run, setting) >= 0).any()]
    if not settings:
        return Story(_all_diverged(study, run), (Number(f"{run.networks.num_rows:,}", "networks, all diverged"),), ())
    first = next(data for data in study.data if any(s.data == data for s in settings))
    shown = [s for s in settings if s.data == first]
    figures = [_correlation(study, run, shown), *_students(study, run, shown), _ranks(study, run, shown)]
    figures += [f for f in (_sizes(study, run, shown), *_samples(study, run, settings)) if f]
    figures += [*_matrices(study, run, shown), _losses(study, run, settings)]
    return Story(_headline(study, run, shown), _numbers(study, run, shown), tuple(figures))


def _all_diverged(study: Gaus, run: Run) -> str:
    first, total = run.networks["diverged_at"].drop_null().to_numpy().min(), run.networks.num_rows
    return (
        f"All {total:,} networks diverged, the first at step {first:,}: choose smaller rates than --lr {study.lr:g}, "
        f"--cnn-lr {study.cnn_lr:g} and --cnn-norm-lr {study.cnn_norm_lr:g}."
    )


def _curves(
    study: Gaus, run: Run, titles: Sequence[str], cells: Sequence[Sequence[tuple[Setting, int] | None]], **more: Any
) -> Curves:
    """A panel a row of cells, a line a cell: a layer of a setting, or (layer −1) the whole network.

    Bands go from the smallest to the largest of the seeds, as Tian et al. 2019 draw them.
    """
    metric, epochs = more.pop("metric", "rho_mean"), more.pop("epochs", run.epochs)
    at = np.searchsorted(run.epochs, epochs)
    labels = more.pop("labels")
    values = np.full((len(cells), len(labels), study.seeds, len(epochs)), np.nan)
    network = np.full(values.shape[:3], -1)
    for p, row in enumerate(cells):
        for i, cell in enumerate(row):
            if cell is not None:
                setting, layer = cell
                network[p, i] = networks(run, setting)
                curves = run.series(metric, layer)[network[p, i]][:, at]
                values[p, i] = np.where(network[p, i, :, None] >= 0, curves, np.nan)
    array = xr.DataArray(
        values,
        dims=("panel", "line", "seed", "epoch"),
        coords={
            "panel": list(titles),
            "line": list(labels),
            "epoch": epochs,
            "network": (("panel", "line", "seed"), network),
        },
    )
    return Curves.from_array(array, panel="panel", line="line", band="range", **more)


def _by_layer(study: Gaus, run: Run, shown: Sequence[Setting], **more: Any) -> Curves:
    """A panel a setting, a line a layer."""
    labels = layer_names(max(len(study.layers(s.kind)) for s in shown))
    cells = [[(s, i) if i < len(study.layers(s.kind)) else None for i in range(len(labels))] for s in shown]
    titles = [f"{_sized(study, s.kind)}{_SHORT[s.norm]}" for s in shown]
    columns = 2 if len({s.norm for s in shown}) == 2 else None
    return _curves(study, run, titles, cells, labels=labels, columns=columns, **more)


def _sized(study: Gaus, kind: str) -> str:
    """`FC 50-75-100-125`."""
    return f"{NAMES[kind]} {'-'.join(map(str, study.layers(kind)))}"


def _data_words(study: Gaus, shown: Sequence[Setting]) -> str:
    return "inputs drawn anew every epoch" if shown[0].data == "infinite" else f"{study.finite:,} training samples"


def _correlation(study: Gaus, run: Run, shown: Sequence[Setting]) -> Figure:
    return Figure(
        "layer-correlation",
        "How well each layer is learned",
        f"How well each layer's teacher nodes are matched, each by its best student ({_data_words(study, shown)}).",
        "S2 figs 8, 24",
        _by_layer(study, run, shown, name="mean best correlation", limits=(0.0, 1.02)),
    )


def _ranks(study: Gaus, run: Run, shown: Sequence[Setting]) -> Figure:
    return Figure(
        "mean-rank",
        "How early the winners were ahead",
        "Where the students that match best in the end stood among all students before: 0 is first, 0.5 (dashed) is "
        "chance.",
        "S2 figs 8, 21, 23",
        _by_layer(
            study,
            run,
            shown,
            metric="mean_rank",
            epochs=np.array(ranked(study.epochs)),
            name="mean rank of winners",
            limits=(0.0, 0.55),
            bound=(0.5, "chance"),
        ),
    )


def _against(
    study: Gaus, run: Run, name: str, title: str, caption: str, source: str, lines: dict[str, Setting]
) -> Figure:
    """A panel a layer, a line a setting."""
    depth = max(len(study.layers(s.kind)) for s in lines.values())
    cells = [[(s, i) if i < len(study.layers(s.kind)) else None for s in lines.values()] for i in range(depth)]
    norms = {s.norm for s in lines.values()}
    colours = _LINES if len(norms) == 2 else _LINES[::2]
    kind = _curves(
        study,
        run,
        [f"layer {i + 1}" for i in range(depth)],
        cells,
        labels=tuple(lines),
        name="mean best correlation",
        limits=(0.0, 1.02),
        colours=colours[: len(lines)],
    )
    return Figure(name, title, caption, source, kind)


def _sizes(study: Gaus, run: Run, shown: Sequence[Setting]) -> Figure | None:
    """Small against large, where the run has both."""
    lines = {f"{NAMES[s.kind]}{_BRIEF[s.norm]}": s for k in ("fc-small", "fc") for s in shown if s.kind == k}
    if len({s.kind for s in lines.values()}) < 2:
        return None
    return _against(
        study,
        run,
        "small-against-large",
        "Small teachers and large ones",
        f"The same for {_sized(study, 'fc-small')} and {_sized(study, 'fc')}, layer by layer.",
        "S2 figs 10a, 24",
        lines,
    )


def _samples(study: Gaus, run: Run, settings: Sequence[Setting]) -> list[Figure]:
    """Fresh against finite data, of each kind of network of which the run has both."""
    figures = []
    for kind in (kind for kind in ("cnn", "fc", "fc-small") if kind in study.networks):
        lines = {
            f"{s.data}{_BRIEF[s.norm]}": s for d in ("infinite", "finite") for s in settings if s[::2] == (kind, d)
        }
        if len({s.data for s in lines.values()}) == 2:
            figures.append(
                _against(
                    study,
                    run,
                    f"finite-{kind}",
                    f"With finite data: {_sized(study, kind)}",
                    f"Inputs drawn anew every epoch against {study.finite:,} that come again and again.",
                    "S2 fig 10b" if kind == "cnn" else "S2 fig 10b, for another network",
                    lines,
                )
            )
    return figures


def _students(study: Gaus, run: Run, shown: Sequence[Setting]) -> list[Figure]:
    """The L, a figure a kind of network, a row of panels a BatchNorm."""
    figures: list[Figure] = []
    for kind in dict.fromkeys(s.kind for s in shown):
        these = [s for s in shown if s.kind == kind]
        figures += every_student(
            run,
            tuple(NORMS[s.norm] for s in these),
            np.stack([networks(run, s) for s in these]),
            study.layers(kind),
            [study.multiple] * len(these),
            np.stack([by_layer(study, run, s) for s in these]),
            f": {_sized(study, kind)}",
            f"layer-specialization-{kind}",
            kind == "cnn",
        )
    return figures


def _matrices(study: Gaus, run: Run, shown: Sequence[Setting]) -> list[Figure]:
    """Of the first network of the largest fully connected kind, and of the convolutional one."""
    first = sorted(shown, key=lambda s: (s.kind != "fc", s.norm != "none"))
    each = {
        "modulation": [s for s in first if s.kind != "cnn"],
        "modulation-cnn": [s for s in first if s.kind == "cnn"],
    }
    return [
        figure
        for name, settings in each.items()
        for s in settings[:1]
        for figure in matrix_images(modulated(study, run, s), s.words, name)
    ]


def _losses(study: Gaus, run: Run, settings: Sequence[Setting]) -> Figure:
    labels = {(n, d): f"{d}{_BRIEF[n]}" for d in study.data for n in study.norm}
    kinds = [kind for kind in study.networks if any(s.kind == kind for s in settings)]
    cells = [[(s, -1) if (s := Setting(kind, n, d)) in settings else None for n, d in labels] for kind in kinds]
    colours = (_LINES if len(study.norm) == 2 else _LINES[::2])[: len(labels)]
    return Figure(
        "losses",
        "What that does to the loss",
        "Squared error on the evaluation inputs, averaged over outputs, which the teacher gives with variance 1.",
        "S2 fig 19",
        _curves(
            study,
            run,
            [_sized(study, kind) for kind in kinds],
            cells,
            metric="eval_loss",
            labels=tuple(labels.values()),
            name="MSE loss",
            log_y=True,
            colours=colours,
        ),
    )


def _headline(study: Gaus, run: Run, shown: Sequence[Setting]) -> str:
    ends: list[str] = []
    for kind in dict.fromkeys(s.kind for s in shown):
        each = {s.norm: f"{np.nanmedian(_end(study, run, s)):.2f}" for s in shown if s.kind == kind}
        plain, normed = each.get("none"), each.get("after")
        which = "" if any("(" in said for said in ends) else "with BatchNorm "
        both = f"{plain} ({which}{normed})" if plain and normed else plain or f"{normed} with BatchNorm"
        ends.append(f"{both} for {_sized(study, kind)}")
    first, epoch = shown[0], first_epoch(study)
    rank = by_layer(study, run, first, "mean_rank")[..., int(np.searchsorted(run.epochs, epoch))].mean(axis=1)
    data = "fresh" if first.data == "infinite" else "finite"
    lost, total = len(run.networks["diverged_at"].drop_null()), run.networks.num_rows
    diverged = f" {lost:,} of {total:,} networks diverged." if lost else ""
    return (
        f"With {data} data mean best correlations end at {', '.join(ends)}; the students that win ({first.words}) "
        f"stood at a mean rank of {np.nanmedian(rank):.2f} after epoch {epoch}, where chance is 0.5 (means over "
        f"layers, medians of {counted(study.seeds, 'seed')}).{diverged}"
    )


def _end(study: Gaus, run: Run, setting: Setting) -> np.ndarray:
    """[seed]: mean best correlation at the end, averaged over layers."""
    return by_layer(study, run, setting)[..., -1].mean(axis=1)


def _numbers(study: Gaus, run: Run, shown: Sequence[Setting]) -> tuple[Number, ...]:
    numbers = [Number(f"{run.networks.num_rows:,}", "networks")]
    best = max(shown, key=lambda s: float(np.nanmedian(by_layer(study, run, s)[:, 0, -1])))
    rho = float(np.nanmedian(by_layer(study, run, best)[:, 0, -1]))
    numbers.append(Number(f"{rho:.3f}", f"mean best correlation in the lowest layer at the end, {best.words}"))
    small, large = (Setting(kind, study.norm[0], shown[0].data) for kind in ("fc-small", "fc"))
    if small in shown and large in shown:
        both = " · ".join(f"{np.nanmedian(speed(study, run, s)):.2f}" for s in (small, large))
        numbers.append(Number(both, "mean best correlation over layers and epochs, small and large teacher"))
    fresh, fixed = (Setting(study.networks[0], study.norm[0], data) for data in ("infinite", "finite"))
    if all((networks(run, s) >= 0).any() for s in (fresh, fixed)):
        both = " · ".join(f"{np.nanmedian(late_gain(study, run, s)):.3f}" for s in (fresh, fixed))
        numbers.append(
            Number(both, f"added by the second half of training, {NAMES[fresh.kind]}, fresh and finite data")
        )
    return tuple(numbers)
