"""Figures and headline of `gaus` (Tian et al. 2019, figs 8, 10, 11)."""

from typing import Any

import numpy as np
import xarray as xr

from understudy.lab import layers
from understudy.lab.matrices import matrix_images
from understudy.papers.luck.gaus.claims import (
    NAMES,
    NORMS,
    GausSetting,
    curves,
    early_rank,
    final,
    first_epoch,
    late_gain,
    modulated,
    speed,
)
from understudy.papers.luck.gaus.study import Gaus
from understudy.report import style
from understudy.report.figures import Curves
from understudy.report.story import Figure, Number, Story, counted
from understudy.store import Run

_COLOURS = ((style.BLUE, style.SKY), (style.VERMILLION, style.ORANGE))
"""Colours of two settings that are compared, each without BatchNorm (dark) and with it (light)."""
_LABELS = NAMES | {"none": "", "after": "BN"}
_RHO: dict[str, Any] = {"name": "mean best correlation", "limits": (0.0, 1.02), "band": "range"}


def story(study: Gaus, run: Run) -> Story:
    """Every layer's correlations and ranks with the first kind of data, then comparisons, matrices and losses."""
    rho = run.array("rho_mean", "kind norm data seed layer epoch").dropna("kind", how="all").dropna("data", how="all")
    if not rho.size:
        return layers.diverged_story(study, run, "lr cnn_lr cnn_norm_lr")
    data = next(data for data in study.data if data in rho["data"])
    main = rho.sel(data=data).dropna("kind", how="all")
    alive = main.notnull().any(("seed", "layer", "epoch"))
    shown = [GausSetting(kind, norm, data) for kind in study.networks for norm in study.norm if kind in main["kind"]]
    shown = [setting for setting in shown if alive.sel(kind=setting.kind, norm=setting.norm)]
    sized: dict[str, str] = {kind: f"{NAMES[kind]} {'-'.join(map(str, study.layers(kind)))}" for kind in study.networks}
    titles = sized | {"none": "", "after": "BatchNorm"}
    columns = 2 if len({setting.norm for setting in shown}) == 2 else None
    inputs = "inputs drawn anew in every epoch" if data == "infinite" else f"{study.finite:,} training samples"
    loss = run.array("eval_loss", "kind norm data seed epoch")
    figures = (
        Figure(
            "layer-correlation",
            "How well each layer is learned",
            f"Mean correlation of a layer's teacher nodes with their best students over training ({inputs}).",
            "S2 figs. 8, 24",
            layers.layer_curves(main, ("kind", "norm"), titles, columns=columns, **_RHO),
        ),
        *(figure for kind in main["kind"].to_numpy() for figure in _students(run, main.sel(kind=kind), sized)),
        *(
            figure
            for metric in ("mean_rank", "median_rank")
            for figure in layers.rank_figures(
                run,
                "kind norm seed",
                ("kind", "norm"),
                titles,
                metric=metric,
                where={"data": data},
                source="S2 figs. 8, 21, 23" if metric == "mean_rank" else "S2 figs. 21, 23",
                limits=(0.0, 0.55),
                band="range",
                columns=columns,
            )
        ),
        *_comparison(
            main.sel(kind=[kind for kind in ("fc-small", "fc") if kind in main["kind"]]),
            "kind",
            "small-against-large",
            "Small and large teachers",
            f"Mean best correlation for {' and '.join(sized.get(kind, '') for kind in ('fc-small', 'fc'))}, layer by "
            "layer.",
            "S2 figs. 10a, 24",
        ),
        *(
            figure
            for kind in ("cnn", "fc", "fc-small")
            if kind in rho["kind"]
            for figure in _comparison(
                rho.sel(kind=kind),
                "data",
                f"finite-{kind}",
                f"With finite data: {sized[kind]}",
                f"Inputs drawn anew in every epoch, compared with {study.finite:,} inputs that are used repeatedly.",
                "S2 fig. 10b" if kind == "cnn" else "S2 fig. 10b, for another network",
            )
        ),
        *_matrices(study, run, shown),
        Figure(
            "losses",
            "What that does to the loss",
            "Squared error on the evaluation inputs, averaged over outputs; teacher outputs have variance 1.",
            "S2 fig. 19",
            Curves.from_array(
                loss,
                name="MSE loss",
                panel="kind",
                line=("data", "norm"),
                band="range",
                titles=titles,
                labels=_LABELS,
                log_y=True,
                colours=_colours(loss, "data"),
            ),
        ),
    )
    return Story(_headline(study, run, shown, sized), _numbers(study, run, shown), figures)


def _colours(values: xr.DataArray, compared: str) -> list[str]:
    """One colour per line: those of a compared setting are dark and light."""
    return [_COLOURS[i][j] for i in range(values.sizes[compared]) for j in range(values.sizes["norm"])]


def _comparison(
    rho: xr.DataArray, compared: str, name: str, title: str, caption: str, source: str
) -> tuple[Figure, ...]:
    """One panel per layer, one line per setting; no figure unless the run has two values of what is compared."""
    if rho.dropna(compared, how="all").sizes[compared] < 2:
        return ()
    kind = Curves.from_array(
        rho,
        panel="layer",
        line=(compared, "norm"),
        titles=layers.layer_names(rho.sizes["layer"]),
        labels=_LABELS,
        colours=_colours(rho, compared),
        **_RHO,
    )
    return (Figure(name, title, caption, source, kind),)


def _students(run: Run, rho: xr.DataArray, sized: dict[str, str]) -> list[Figure]:
    """Every student of one kind of network, one row of panels per BatchNorm."""
    kind = str(rho["kind"].item())
    names = {"subject": f": {sized[kind]}", "name": f"layer-specialization-{kind}"}
    return layers.student_figures(run, rho, "norm", titles=NORMS, channels=kind == "cnn", **names)


def _matrices(study: Gaus, run: Run, shown: list[GausSetting]) -> list[Figure]:
    """H* and β* of the first fully connected network, of the large teacher if there is one, and of the first CNN."""
    first = sorted(shown, key=lambda s: (s.kind != "fc", s.norm != "none"))
    figures: list[Figure] = []
    for name, is_cnn in (("modulation", False), ("modulation-cnn", True)):
        for setting in [s for s in first if (s.kind == "cnn") == is_cnn][:1]:
            figures += matrix_images(modulated(study, run, setting), setting.words, name)
    return figures


def _headline(study: Gaus, run: Run, shown: list[GausSetting], sized: dict[str, str]) -> str:
    ends: list[str] = []
    for kind in dict.fromkeys(setting.kind for setting in shown):
        each = {s.norm: f"{np.nanmedian(final(curves(run, s))):.2f}" for s in shown if s.kind == kind}
        plain, normed = each.get("none"), each.get("after")
        which = "" if any("(" in end for end in ends) else "with BatchNorm "
        both = f"{plain} ({which}{normed})" if plain and normed else plain or f"{normed} with BatchNorm"
        ends.append(f"{both} for {sized[kind]}")
    data = "fresh" if shown[0].data == "infinite" else "finite"
    return (
        f"With {data} data mean best correlations end at {', '.join(ends)}; the final winners ({shown[0].words}) had a "
        f"mean rank of {early_rank(study, run, shown[0]):.2f} after epoch {first_epoch(study)}, where chance is 0.5 "
        f"(means over layers, medians of {counted(study.seeds, 'seed')}).{layers.some_diverged(run)}"
    )


def _numbers(study: Gaus, run: Run, shown: list[GausSetting]) -> tuple[Number, ...]:
    lowest = {s: float(np.nanmedian(curves(run, s).isel(layer=0, epoch=-1))) for s in shown}
    best = max(shown, key=lambda setting: lowest[setting])
    numbers = [
        Number(f"{run.networks.num_rows:,}", "networks"),
        Number(f"{lowest[best]:.3f}", f"mean best correlation in the lowest layer at the end, {best.words}"),
    ]
    sizes = [GausSetting(kind, study.norm[0], shown[0].data) for kind in ("fc-small", "fc")]
    if all(setting in shown for setting in sizes):
        both = " · ".join(f"{np.nanmedian(speed(curves(run, setting))):.2f}" for setting in sizes)
        numbers.append(Number(both, "mean best correlation over layers and epochs, small and large teacher"))
    amounts = [curves(run, GausSetting(study.networks[0], study.norm[0], data)) for data in ("infinite", "finite")]
    if all(rho.notnull().any() for rho in amounts):
        both = " · ".join(f"{np.nanmedian(late_gain(rho)):.3f}" for rho in amounts)
        words = f"gained in the second half of training, {NAMES[study.networks[0]]}, fresh and finite data"
        numbers.append(Number(both, words))
    return tuple(numbers)
