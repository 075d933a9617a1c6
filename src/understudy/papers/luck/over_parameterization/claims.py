"""Claim D9: up to 10× wider students match better and more steadily, then more slowly (Tian et al. 2019, fig. 12)."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import xarray as xr

from understudy.claims import Claims, Verdict, every
from understudy.lab.layers import layer_names
from understudy.papers.luck.over_parameterization.study import NAMES, OverParameterization
from understudy.store import Run

BEST = 10.0
"""The over-realization up to which more nodes are better; wider students are slower."""
MOST, HALF = 0.9, 0.5
"""Wider students are compared at the epoch where 10× has made MOST of its total gain, and shown also at HALF of it."""
_TRAINING = {"fc": (40, 1_562), "cnn": (20, 150)}
"""Epochs, and steps per epoch, with which each kind of network decides the claim."""
_FIXED = {"fc": ("dim", "lr"), "cnn": ("image", "cnn_lr")}
"""Options that must have their default values, by kind of network."""

claims = Claims(
    fixed="teacher_layers outputs input_std batch",
    when=lambda study: {*study.multiple} >= {*type(study)().multiple} and study.train >= study.steps * study.batch,
)


def correlations(run: Run, kind: str) -> xr.DataArray:
    """Mean best correlations of one kind of network by multiple, seed, layer and epoch."""
    return run.array("rho_mean", "multiple seed layer epoch", networks=kind)


def gained(rho: xr.DataArray, share: float) -> int:
    """The first epoch at which students of 10×, all layers together, have made this share of their gain."""
    curve = rho.sel(multiple=BEST).mean("seed").mean("layer").to_numpy()
    return int(rho["epoch"][np.argmax(curve >= curve[0] + share * (curve[-1] - curve[0]))])


def _kinds(study: OverParameterization, run: Run) -> Iterator[dict[str, Any]]:
    """Kinds of networks with the paper's settings, and a network of every width that did not diverge."""
    plain = type(study)()
    for kind in study.networks:
        same = all(getattr(study, name) == getattr(plain, name) for name in _FIXED[kind])
        if same and (study.epochs, study.steps) == _TRAINING[kind]:
            rho = correlations(run, kind)
            if rho.notnull().any(("seed", "layer", "epoch")).all():
                yield {"rho": rho, "kind_words": NAMES[kind], "epoch": gained(rho, MOST)}


def _with_layers(values: xr.DataArray, test: Callable[[xr.DataArray], Verdict]) -> Verdict:
    """Decide on the mean over layers, with each layer beside it."""
    names = layer_names(values.sizes["layer"])
    beside = {name: test(values.isel(layer=i)) for i, name in names.items()}
    return test(values.mean("layer")).with_variants(beside)


def _words(values: xr.DataArray) -> str:
    return ", ".join(f"{k:g}×: {v:.4f}" for k, v in zip(values["multiple"].to_numpy(), values.to_numpy(), strict=True))


def _in_order(values: xr.DataArray, seeds: int, **bound: float) -> Verdict:
    """Decide on the steps from each width to the next, up to 10×."""

    def test(each: xr.DataArray) -> Verdict:
        compared = each.sel(multiple=each["multiple"] <= BEST).to_numpy()
        return every(np.diff(compared), n=seeds, say=_words(each), **bound).show(compared)

    return _with_layers(values, test)


@claims.claim(
    "D9",
    "{kind_words}, higher",
    statement="mean best correlation after {epochs} epochs, mean over seeds and layers: does not fall from 1× to 10×",
    paper="higher with more nodes",
    values_are="mean best correlation, per width up to 10×",
    cases=_kinds,
)
def higher(study: OverParameterization, run: Run, rho: xr.DataArray, **_: Any) -> Verdict:
    return _in_order(rho.mean("seed").isel(epoch=-1), rho.sizes["seed"], at_least=0.0)


@claims.claim(
    "D9",
    "{kind_words}, steadier",
    statement="standard deviation over seeds of the mean best correlation after {epochs} epochs, mean over layers: "
    "does not rise from 1× to 10×",
    paper="steadier with more nodes",
    values_are="standard deviation, per width up to 10×",
    cases=_kinds,
)
def steadier(study: OverParameterization, run: Run, rho: xr.DataArray, **_: Any) -> Verdict:
    return _in_order(rho.std("seed").isel(epoch=-1), rho.sizes["seed"], at_most=0.0)


@claims.claim(
    "D9",
    "{kind_words}, slower",
    statement=f"mean best correlation at epoch {{epoch}}, by which 10× has made {MOST:.0%} of its gain, mean over "
    "seeds and layers: 20× and 50× are below 10×",
    paper="20× and 50× slower",
    values_are="difference to 10×, per wider width",
    cases=_kinds,
)
def slower(study: OverParameterization, run: Run, rho: xr.DataArray, epoch: int, **_: Any) -> Verdict:
    half = gained(rho, HALF)

    def test(mean: xr.DataArray) -> Verdict:
        wide = mean.sel(multiple=mean["multiple"] >= BEST)
        late, early = wide.sel(epoch=epoch), wide.sel(epoch=half)
        words = f"{_words(late)} (at half of the gain, epoch {half}, {_words(early)})"
        return every(late[1:] - late[0], below=0.0, n=rho.sizes["seed"], say=words)

    return _with_layers(rho.mean("seed"), test)
