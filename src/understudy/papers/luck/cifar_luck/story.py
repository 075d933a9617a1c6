"""Figures and headline of `cifar-luck` (Tian et al. 2019, fig. 9)."""

import xarray as xr

from understudy.claims import number
from understudy.lab import layers
from understudy.lab.matrices import matrix_images, measure_modulation
from understudy.papers.luck.cifar_luck.claims import KINDS, NORMS
from understudy.papers.luck.cifar_luck.study import CifarLuck
from understudy.report import style
from understudy.report.story import Figure, Number, Story, counted
from understudy.store import Run

_DIMS = "network_kind norm seed"
_PANEL = ("network_kind", "norm")
_TITLES = KINDS | NORMS


def story(study: CifarLuck, run: Run) -> Story:
    """How well every layer is matched, and how early; then matrices, accuracies and losses."""
    rho = run.array("rho_mean", f"{_DIMS} layer epoch").dropna("network_kind", how="all")
    if not rho.size:
        return layers.diverged_story(study, run, "lr cnn_lr cnn_norm_lr")
    kinds = {kind: rho.sel(network_kind=kind) for kind in rho["network_kind"].to_numpy().tolist()}
    columns = len(study.norm)
    figures = (
        Figure(
            "layer-curves",
            "How well every layer is matched",
            "Mean correlation of a layer's teacher nodes with their best students over training.",
            "S2 fig. 9",
            layers.correlation_curves(rho, _PANEL, _TITLES, columns=columns, band="range"),
        ),
        *(figure for kind, each in kinds.items() for figure in _students(run, kind, each)),
        *layers.rank_figures(run, _DIMS, _PANEL, _TITLES, columns=columns, band="range"),
        *(figure for kind, each in kinds.items() for figure in _matrices(study, run, kind, each)),
        Figure(
            "accuracy",
            "How accurate students are",
            "Share of evaluation images whose label is the largest output. Students never see a label: they learn the "
            "outputs of their teacher (grey).",
            "S2 sec. 5.2",
            layers.metric_curves(
                run,
                {"student": "accuracy", "teacher": "teacher_accuracy"},
                _DIMS,
                _PANEL,
                _TITLES,
                name="evaluation accuracy",
                colours=(style.BLUE, style.CONTEXT),
                columns=columns,
                band="range",
            ),
        ),
        Figure(
            "losses",
            "What that does to the loss",
            "Squared error against the teacher, averaged over outputs: on the evaluation images after each epoch, and "
            "over its steps on training images.",
            "S2 fig. 19",
            layers.loss_curves(run, _DIMS, _PANEL, _TITLES, "MSE loss", band="range"),
        ),
    )
    ahead = _ahead(run)
    return Story(_headline(study, run, rho, ahead), _numbers(study, run, ahead), figures)


def _students(run: Run, kind: str, rho: xr.DataArray) -> list[Figure]:
    """Every student of one kind of network, one row of panels per BatchNorm."""
    names = {"subject": f", {KINDS[kind]}", "name": f"layer-specialization-{kind}"}
    return layers.student_figures(run, rho, "norm", titles=NORMS, channels=kind == "cnn", **names)


def _matrices(study: CifarLuck, run: Run, kind: str, rho: xr.DataArray) -> tuple[Figure, ...]:
    """H* and β* of the first network of a kind that did not diverge."""
    network = layers.first_network(rho)
    title = f"{KINDS[kind]}, {NORMS[run.column('norm')[network[0]]]}"
    return matrix_images(measure_modulation(run, network, study.source), title, f"modulation-{kind}")


def _ahead(run: Run) -> dict[str, float]:
    """Points of accuracy by which students end above their teacher, mean over seeds, by title of the setting."""
    accuracy, teacher = (run.array(metric, f"{_DIMS} epoch") for metric in ("accuracy", "teacher_accuracy"))
    points = 100 * (accuracy - teacher).isel(epoch=-1).mean("seed")
    found = points.stack(setting=_PANEL).dropna("setting")
    return {f"{KINDS[kind]}, {NORMS[norm]}": float(value) for (kind, norm), value in found.to_series().items()}


def _headline(study: CifarLuck, run: Run, rho: xr.DataArray, ahead: dict[str, float]) -> str:
    ends = dict.fromkeys((min(ahead, key=ahead.__getitem__), max(ahead, key=ahead.__getitem__)))
    between = " to ".join(f"{number(ahead[title], '+.1f')} ({title})" for title in ends)
    mean = rho.mean(("seed", "layer"))
    grown = int((mean.isel(epoch=-1) > mean.isel(epoch=0)).sum())
    rank = run.array("mean_rank", f"{_DIMS} layer epoch").mean(("seed", "layer")).mean(_PANEL).to_numpy()
    return (
        f"Students of {study.over_realization:g} times the teacher's nodes end {between} points of accuracy from "
        f"their teacher; mean best correlations grow in {grown} of {counted(len(ahead), 'setting')}, and the mean rank "
        f"of the final winners goes from {rank[0]:.2f} to {rank[1]:.2f} in the first epoch (mean of "
        f"{counted(study.seeds, 'seed')}).{layers.some_diverged(run)}"
    )


def _numbers(study: CifarLuck, run: Run, ahead: dict[str, float]) -> tuple[Number, ...]:
    taught = run.array("teacher_accuracy", f"{_DIMS} epoch", norm=study.norm[0]).mean(("norm", "seed", "epoch"))
    best = max(ahead, key=ahead.__getitem__)
    return (
        Number(f"{run.networks.num_rows:,}", "networks"),
        *(
            Number(f"{float(value):.1%}", f"accuracy of the {KINDS[kind]} teacher")
            for kind, value in taught.dropna("network_kind").to_series().items()
        ),
        Number(number(ahead[best], "+.1f"), f"points of accuracy above the teacher, {best}"),
    )
