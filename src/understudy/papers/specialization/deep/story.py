"""Figures and headline of `deep` (Tian 2019, figs 4, 12)."""

import numpy as np
import xarray as xr

from understudy._errors import UserError
from understudy.lab import layers
from understudy.lab.matrices import matrix_images, measure_modulation
from understudy.measures import THRESHOLD, svcca
from understudy.papers.specialization.deep.claims import CLOSE, PAPERS_MULTIPLE, epoch_words, first_passed
from understudy.papers.specialization.deep.study import Deep
from understudy.report import style
from understudy.report.figures import Dots
from understudy.report.story import Figure, Number, Story, counted, listed
from understudy.store import Run

_SAMPLES = 4_000
"""Evaluation samples over which canonical correlations are computed."""


def story(study: Deep, run: Run) -> Story:
    """The figures of the paper, then what the layers' students do, and the losses."""
    rho = run.array("rho_mean", "multiple seed layer epoch").dropna("multiple", how="all")
    if not rho.size:
        return layers.diverged_story(study, run)
    multiples = rho["multiple"].to_numpy()
    multiple = PAPERS_MULTIPLE if PAPERS_MULTIPLE in multiples else float(multiples[-1])
    shown = rho.sel(multiple=multiple).dropna("seed", how="all").transpose("seed", "layer", "epoch")
    first, titles = first_passed(shown), layers.multiple_titles(multiples)
    found = measure_modulation(run, shown["network"].to_numpy()[:1], lambda: study.source(study.train, fresh=True))
    figures = (
        Figure(
            "layer-curves",
            "Which layer learns first",
            f"Mean correlation of a layer's teacher nodes with their best students over training{_order(first)}.",
            "S1 fig. 4",
            layers.correlation_curves(rho, "multiple", titles, bound=(THRESHOLD, f"{THRESHOLD}")),
        ),
        _epochs(first, f"{multiple:g}×"),
        *layers.student_figures(run, rho, "multiple", titles=titles),
        *layers.rank_figures(run, "multiple seed", "multiple", titles),
        *matrix_images(found, f"{multiple:g}×"),
        *_canonical(study, run, shown.isel(epoch=-1), f"{multiple:g}×"),
        Figure(
            "layer-distance",
            "How close every layer comes",
            "Distance to a perfect match, 1 − mean best correlation, over training, on a logarithmic axis; dashed is a "
            f"correlation of {CLOSE}.",
            "S1 fig. 12",
            layers.layer_curves(
                1 - rho,
                "multiple",
                titles,
                name="1 − mean best correlation",
                log_y=True,
                bound=(1 - CLOSE, f"{CLOSE}"),
            ),
        ),
        Figure(
            "losses",
            "What that does to the loss",
            "Squared error averaged over outputs: on the evaluation inputs after each epoch, and over its steps on "
            "fresh inputs.",
            "",
            layers.loss_curves(run, "multiple seed", "multiple", titles, "MSE loss"),
        ),
    )
    return Story(_headline(study, run, multiple, first, shown), _numbers(run, multiple, first, shown), figures)


def _canonical(study: Deep, run: Run, rho: xr.DataArray, multiple: str) -> tuple[Figure, ...]:
    """SVCCA of every layer beside its mean best correlation [seed, layer]; none where there are too few samples."""
    networks = rho["network"].to_numpy()
    values = np.full((2, rho.sizes["layer"], len(networks)), np.nan)
    values[0] = rho.transpose("layer", "seed").to_numpy()
    source, last = study.source(study.train, fresh=True), f"epoch.{run.epochs[-1]}"
    try:
        for i, network in enumerate(networks):
            group, place = divmod(int(network), study.seeds)
            teacher, student = (run.weights(which)[group][place] for which in ("teacher", last))
            x = source.evaluating(int(teacher.seeds[0]), dtype=teacher.dtype)[:_SAMPLES]
            pairs = zip(teacher.activations(x).hidden, student.activations(x).hidden, strict=True)
            values[1, :, i] = [float(svcca(theirs, ours)) for theirs, ours in pairs]
    except UserError:
        return ()
    kind = Dots(
        tuple(layers.layer_names(values.shape[1]).values()),
        values,
        np.broadcast_to(networks, values.shape),
        "after training",
        "hidden layer, the lowest first",
        colours=tuple(style.layer_colours(values.shape[1])),
        titles=("mean best correlation", "SVCCA"),
    )
    words = (
        "Whether a layer of the student contains the teacher's node by node (mean best correlation), and up to a "
        "linear map (SVCCA: mean canonical correlation of the directions that hold 99% of the variance), one point per "
        f"network ({multiple})."
    )
    return (Figure("canonical", "Node by node, or up to a linear map", words, "S0 sec. 4", kind),)


def _order(first: xr.DataArray) -> str:
    """Says that lower layers come first, if they did."""
    middle = first.median("seed").to_numpy()
    steps = np.diff(middle[np.isfinite(middle)])
    return f": the lower a layer, the earlier it passes {THRESHOLD}" if len(steps) and (steps > 0).all() else ""


def _epochs(first: xr.DataArray, multiple: str) -> Figure:
    """Epochs [seed, layer] at which layers pass the threshold, one point per network."""
    epochs = first.to_numpy()
    never = np.isinf(epochs).sum(axis=0).tolist()
    missing = ", ".join(f"layer {i + 1} in {counted(n, 'network')}" for i, n in enumerate(never) if n)
    return Figure(
        "layer-epochs",
        "When each layer passes the threshold",
        f"Epoch at which a layer's mean best correlation first exceeds {THRESHOLD}, one point per network ({multiple})"
        + (f"; never: {missing}." if missing else "."),
        "S1 fig. 4, over seeds",
        Dots(
            tuple(layers.layer_names(epochs.shape[1]).values()),
            np.where(np.isinf(epochs), np.nan, epochs).T,
            np.broadcast_to(first["network"].to_numpy(), epochs.T.shape),
            f"epoch above {THRESHOLD}",
            "hidden layer, the lowest first",
            colours=tuple(style.layer_colours(epochs.shape[1])),
        ),
    )


def _headline(study: Deep, run: Run, multiple: float, first: xr.DataArray, rho: xr.DataArray) -> str:
    middle = first.median("seed").to_numpy()
    passed, never = np.flatnonzero(np.isfinite(middle)), np.flatnonzero(np.isinf(middle))
    students = "as many nodes as the teacher" if multiple == 1 else f"{multiple:g} times the teacher's nodes"
    parts = [f"at {_several('epoch', middle[passed])} in {_several('layer', passed + 1)}"] if len(passed) else []
    parts += [f"never in {_several('layer', never + 1)}"] if len(never) else []
    end = listed([f"{m:.3f}" for m in rho.isel(epoch=-1).median("seed").to_numpy()])
    return (
        f"With {students} the mean best correlation passed {THRESHOLD} {', and '.join(parts)}; after {study.epochs} "
        f"epochs it is {end}, from the lowest layer up (median of {counted(study.seeds, 'seed')})."
        f"{layers.some_diverged(run)}"
    )


def _several(thing: str, numbers: np.ndarray) -> str:
    return f"{thing}{'s' * (len(numbers) > 1)} {listed([f'{number:g}' for number in numbers])}"


def _numbers(run: Run, multiple: float, first: xr.DataArray, rho: xr.DataArray) -> tuple[Number, ...]:
    middle = first.median("seed").to_numpy()
    order = " · ".join(epoch_words(epoch) for epoch in middle)
    end = rho.isel(epoch=-1).median("seed").to_numpy()
    loss = np.median(run.select(multiple=multiple).end("eval_loss")[run.select(multiple=multiple).alive])
    worst = int(end.argmin())
    return (
        Number(f"{run.networks.num_rows:,}", "networks"),
        Number(order, f"epochs at which layers 1 to {len(middle)} pass {THRESHOLD} at {multiple:g}×"),
        Number(f"{end[worst]:.3f}", f"mean best correlation at the end in layer {worst + 1}, the lowest of all layers"),
        Number(f"{loss:.1e}", f"median evaluation loss at {multiple:g}×"),
    )
