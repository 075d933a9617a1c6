"""The study of ever wider students in words and figures."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from understudy.lab.matrices import matrix_images, modulated
from understudy.papers.luck.over_parameterization.claims import BEST, MOST, Widths, widths
from understudy.papers.luck.over_parameterization.study import NAMES
from understudy.papers.specialization.deep.claims import at
from understudy.papers.specialization.deep.story import every_student, layer_names, ranks_of_winners, some_diverged
from understudy.report.figures import Curves
from understudy.report.story import Figure, Number, Story, counted
from understudy.store import Run

if TYPE_CHECKING:
    from understudy.papers.luck.over_parameterization.study import OverParameterization


def story(study: OverParameterization, run: Run) -> Story:
    found = [each for each in widths(study, run) if (each.network >= 0).any()]
    if not found:
        words = f"All {run.networks.num_rows:,} networks diverged: choose a smaller --lr than {study.lr:g}."
        return Story(words, (Number(f"{run.networks.num_rows:,}", "networks, all diverged"),), ())
    figures = (
        *(_curves(study, run, each) for each in found),
        _ends(study, found),
        _losses(run, found),
        *_of_layers(study, run, found),
    )
    return Story(_headline(study, run, found), _numbers(run, found), figures)


def _multiples(found: Widths) -> dict[float, str]:
    return {k: f"{k:g}×" for k in found.multiples.tolist()}


def _curves(study: OverParameterization, run: Run, found: Widths) -> Figure:
    """A panel a layer, a line an over-realization."""
    layers = layer_names(len(study.teacher_layers))
    array = xr.DataArray(
        found.rho,
        dims=("multiple", "seed", "layer", "epoch"),
        coords={
            "multiple": found.multiples,
            "layer": list(layers),
            "epoch": run.epochs,
            "network": (("multiple", "seed"), found.network),
        },
    )
    return Figure(
        f"width-curves-{found.kind}",
        f"How wide students come to match their teacher, {NAMES[found.kind]}",
        f"How well each layer's teacher nodes are matched, each by its best student, over training, for students of "
        f"{' '.join(_multiples(found).values())} the teacher's nodes: mean and standard deviation over "
        f"{counted(study.seeds, 'teacher')}.",
        "S2 fig 12",
        Curves.from_array(
            array,
            name="mean best correlation",
            panel="layer",
            line="multiple",
            band="deviation",
            labels=_multiples(found),
            limits=(0.0, 1.02),
            colours="multiples",
            columns=2,
        ),
    )


def _ends(study: OverParameterization, found: list[Widths]) -> Figure:
    """Against the over-realization, a panel a kind of network, a line a layer."""
    array = xr.DataArray(
        np.stack([each.rho[..., -1] for each in found]),
        dims=("kind", "multiple", "seed", "layer"),
        coords={
            "kind": [NAMES[each.kind] for each in found],
            "multiple": found[0].multiples,
            "layer": list(layer_names(len(study.teacher_layers))),
            "network": (("kind", "multiple", "seed"), np.stack([each.network for each in found])),
        },
    )
    return Figure(
        "width-ends",
        "How well they match in the end, and how surely",
        f"Mean best correlation after {counted(study.epochs, 'epoch')} against the width of the student; the band is a "
        "standard deviation over seeds to either side.",
        "S2 fig 12, at the end",
        Curves.from_array(
            array,
            name="mean best correlation",
            x="multiple",
            panel="kind",
            line="layer",
            band="deviation",
            x_name="times the teacher's nodes",
            log_x=True,
            limits=(0.0, 1.02),
        ),
    )


def _losses(run: Run, found: list[Widths]) -> Figure:
    array = xr.DataArray(
        np.stack([at(each.network, run.series("eval_loss")) for each in found]),
        dims=("kind", "multiple", "seed", "epoch"),
        coords={
            "kind": [NAMES[each.kind] for each in found],
            "multiple": found[0].multiples,
            "epoch": run.epochs,
        },
    )
    return Figure(
        "losses",
        "What that does to the loss",
        "Squared error averaged over outputs, on the evaluation inputs, over training: mean and standard deviation of "
        "its logarithm over seeds.",
        "",
        Curves.from_array(
            array,
            name="MSE loss",
            panel="kind",
            line="multiple",
            band="deviation",
            labels=_multiples(found[0]),
            log_y=True,
            colours="multiples",
        ),
    )


def _level(found: Widths, epoch: int) -> np.ndarray:
    """[multiple]: mean best correlation at a look, mean over seeds and layers."""
    return found.mean[..., epoch].mean(axis=1)


def _of_layers(study: OverParameterization, run: Run, found: list[Widths]) -> tuple[Figure, ...]:
    """The L of each kind of network, a row a width; how early winners led; and matrices at 10×, else at the widest."""
    titles: list[str] = []
    of_kinds: list[Figure] = []
    networks: list[np.ndarray] = []
    for each in found:
        there = (each.network >= 0).any(axis=1)
        multiples, network = each.multiples[there], each.network[there]
        names = tuple(f"{k:g}×" for k in multiples)
        shown = int(np.flatnonzero(multiples == BEST)[0]) if BEST in multiples else -1
        kind, words = each.kind, f"{NAMES[each.kind]}, {names[shown]}"
        matrices = modulated(run, network[shown][network[shown] >= 0][:1], partial(study.source, kind))
        of_kinds += every_student(
            run,
            names,
            network,
            study.teacher_layers,
            multiples,
            each.rho[there],
            f", {NAMES[kind]}",
            f"layer-specialization-{kind}",
            kind == "cnn",
        )
        of_kinds += matrix_images(matrices, words, f"modulation-{kind}")
        titles += [f"{NAMES[kind]}, {name}" for name in names]
        networks.append(network)
    ranks = ranks_of_winners(study, run, tuple(titles), np.concatenate(networks), len(study.teacher_layers))
    return (*of_kinds, *ranks)


def _headline(study: OverParameterization, run: Run, found: list[Widths]) -> str:
    parts = []
    for each in found:
        end, spread = _level(each, -1), each.std[..., -1].mean(axis=1)
        there = np.flatnonzero(np.isfinite(end) & (each.multiples <= BEST))
        words = f"{NAMES[each.kind]}: "
        if len(there) > 1:
            first, last = there[[0, -1]]
            words += (
                f"from {each.multiples[first]:g}× to {each.multiples[last]:g}× the mean best correlation after "
                f"{counted(study.epochs, 'epoch')} goes from {end[first]:.2f} to {end[last]:.2f}, its standard "
                f"deviation over seeds from {spread[first]:.3f} to {spread[last]:.3f}"
            )
        else:
            words += f"the mean best correlation after {counted(study.epochs, 'epoch')} is " + ", ".join(
                f"{v:.2f} at {k:g}×" for k, v in zip(each.multiples, end, strict=True) if np.isfinite(v)
            )
        wider = np.flatnonzero(each.multiples > BEST)
        if BEST in each.multiples and len(wider):
            look = each.gained(MOST)
            soon = _level(each, look)
            others = ", ".join(f"{each.multiples[i]:g}× stands at {soon[i]:.3f}" for i in wider)
            words += f"; at epoch {run.epochs[look]}, with 10× at {soon[each.place(BEST)]:.3f}, {others}"
        parts.append(words)
    text = ". ".join(f"{words[0].upper()}{words[1:]}" for words in parts)
    return f"{text} (mean over layers and {counted(study.seeds, 'seed')}).{some_diverged(run)}"


def _numbers(run: Run, found: list[Widths]) -> tuple[Number, ...]:
    each = found[0]
    end = _level(each, -1)
    best = int(np.nanargmax(end))
    steady = int(np.nanargmin(each.std[..., -1].mean(axis=1)))
    return (
        Number(f"{run.networks.num_rows:,}", "networks"),
        Number(f"{each.multiples[best]:g}×", f"matches best at the end, {end[best]:.3f} ({NAMES[each.kind]})"),
        Number(f"{each.multiples[steady]:g}×", f"is steadiest over seeds ({NAMES[each.kind]})"),
    )
