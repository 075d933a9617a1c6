"""Claim D9: up to 10× wider students match better and more steadily, then more slowly (Tian et al. 2019, fig. 12)."""

from collections.abc import Callable, Iterator
from functools import reduce
from operator import and_
from typing import Any

import numpy as np
import xarray as xr

from understudy.claims import Claims, Verdict, mean_above, number
from understudy.lab.layers import layer_names
from understudy.papers.luck.over_parameterization.study import NAMES, OverParameterization
from understudy.papers.luck.shared import ERRORS, LEARNED, LEAST_STEPS, standard_errors
from understudy.store import Run

BEST = 10.0
"""The over-realization up to which more nodes are better; wider students are slower."""
MOST, HALF = 0.9, 0.5
"""Wider students are compared at the epoch where 10× has made MOST of its total gain, and shown also at HALF of it."""
_FIXED = {"fc": ("dim", "lr"), "cnn": ("image",)}
"""Options that must have their default values, by kind of network."""

claims = Claims(
    fixed="teacher_layers outputs input_std batch momentum",
    when=lambda study: _has(study, lambda k: k <= BEST) and study.train >= study.steps * study.batch,
    tuned_on="the epoch of comparison on seeds 1 to 3, which decide it",
)


def _has(study: OverParameterization, which: Callable[[float], bool]) -> bool:
    """Whether a study has all of the paper's widths of which something is true."""
    return {*filter(which, type(study)().multiple)} <= {*study.multiple}


def _long(study: OverParameterization) -> bool:
    """Whether a study trains for as many steps as the released code."""
    return study.epochs * study.steps >= LEAST_STEPS


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
        if all(getattr(study, name) == getattr(plain, name) for name in _FIXED[kind]):
            rho = correlations(run, kind)
            if rho.notnull().any(("seed", "layer", "epoch")).all():
                yield {"rho": rho, "kind_words": NAMES[kind], "epoch": gained(rho, MOST)}


def _with_layers(rho: xr.DataArray, test: Callable[[xr.DataArray], Verdict]) -> Verdict:
    """Decide on the mean over layers, with each layer beside it, if students have learned the lowest layer."""
    names = layer_names(rho.sizes["layer"])
    beside = {name: test(rho.sel(layer=[i])) for i, name in names.items()}
    lowest = float(rho.sel(multiple=BEST).isel(layer=0, epoch=-1).mean("seed"))
    words = f"training until the lowest layer at {BEST:g}× is above {LEARNED:g} (now {number(lowest, '.3f')})"
    return test(rho).with_variants(beside).provided(lowest > LEARNED, words)


def _words(values: xr.DataArray) -> str:
    return ", ".join(f"{k:g}×: {v:.4f}" for k, v in zip(values["multiple"].to_numpy(), values.to_numpy(), strict=True))


def _in_order(values: xr.DataArray, shown: xr.DataArray, sign: int) -> Verdict:
    """Decide whether values [multiple, seed] rise (sign 1) or fall (−1) up to 10×, but for noise.

    Seeds are teachers, which all widths share: noise is that of differences between widths, seed by seed.
    """
    compared = values.sel(multiple=values["multiple"] <= BEST).transpose("multiple", "seed")
    steps = [each[np.isfinite(each)] for each in sign * np.diff(compared.to_numpy(), axis=0)]
    verdict = reduce(and_, (mean_above(each, errors=-ERRORS) for each in steps))
    by = ", ".join(number(standard_errors(each), ".2g") for each in steps)
    words = f"{_words(shown)}; steps up to {BEST:g}× of {by} standard errors (allowed: −{ERRORS} and above)"
    return verdict.say(words).show(shown.sel(multiple=compared["multiple"]))


@claims.claim(
    "D9",
    "{kind_words}, higher",
    statement="mean best correlation after {epochs} epochs, averaged over layers: does not fall from each width to the "
    f"next from 1× to 10×, by more than {ERRORS} standard errors",
    paper="higher with more nodes",
    values_are="mean best correlation, per width up to 10×",
    cases=_kinds,
    when=_long,
)
def higher(study: OverParameterization, run: Run, rho: xr.DataArray, **_: Any) -> Verdict:
    def test(some: xr.DataArray) -> Verdict:
        end = some.isel(epoch=-1).mean("layer", skipna=False)
        return _in_order(end, end.mean("seed"), 1)

    return _with_layers(rho, test)


@claims.claim(
    "D9",
    "{kind_words}, steadier",
    statement="standard deviation over seeds of the mean best correlation after {epochs} epochs, averaged over layers: "
    f"does not rise from each width to the next from 1× to 10×, by more than {ERRORS} standard errors",
    paper="steadier with more nodes",
    values_are="standard deviation, per width up to 10×",
    cases=_kinds,
    when=_long,
)
def steadier(study: OverParameterization, run: Run, rho: xr.DataArray, **_: Any) -> Verdict:
    def test(some: xr.DataArray) -> Verdict:
        end = some.isel(epoch=-1)
        shown, compared = (
            end.std("seed").mean("layer"),
            end.sel(multiple=end["multiple"] <= BEST).dropna("seed"),
        )
        if (n := compared.sizes["seed"]) < _LEAST_SEEDS:
            return Verdict(None, _words(shown), n, would_decide=f"at least {_LEAST_SEEDS} seeds")
        return _in_order(pseudo_spreads(compared).mean("layer"), shown, -1)

    return _with_layers(rho, test)


_LEAST_SEEDS = 3
"""Fewest seeds from which the noise of a standard deviation can be estimated."""


def pseudo_spreads(values: xr.DataArray) -> xr.DataArray:
    """Jackknife pseudo-values of the standard deviation over seeds (Tukey 1958), one per seed.

    Their mean estimates the standard deviation, and the standard error of that mean is its noise.
    """
    n = values.sizes["seed"]
    without = [values.drop_isel(seed=i).std("seed") for i in range(n)]
    return n * values.std("seed") - (n - 1) * xr.concat(without, values["seed"])


@claims.claim(
    "D9",
    "{kind_words}, slower",
    statement=f"mean best correlation at epoch {{epoch}} of {{epochs}}, by which 10× has made {MOST:.0%} of its gain, "
    f"averaged over layers: 20× and 50× are below 10×, by more than {ERRORS} standard errors",
    paper="20× and 50× slower",
    values_are="difference to 10×, per wider width",
    cases=_kinds,
    when=lambda study: _has(study, lambda k: k > BEST),
)
def slower(study: OverParameterization, run: Run, rho: xr.DataArray, epoch: int, **_: Any) -> Verdict:
    half = gained(rho, HALF)

    def test(some: xr.DataArray) -> Verdict:
        wide = some.sel(multiple=some["multiple"] >= BEST).mean("layer", skipna=False)
        late, early = wide.sel(epoch=epoch), wide.sel(epoch=half)
        behind = [each[np.isfinite(each)] for each in (late[0] - late[1:]).transpose("multiple", "seed").to_numpy()]
        verdict = reduce(and_, (mean_above(each, errors=ERRORS) for each in behind))
        by = ", ".join(number(standard_errors(each), ".2g") for each in behind)
        words = f"{_words(late.mean('seed'))}; 10× ahead by {by} standard errors"
        at_half = f"(at half of the gain, epoch {half}, {_words(early.mean('seed'))})"
        return verdict.say(f"{words} {at_half}").show([-each.mean() for each in behind], high=0.0)

    return _with_layers(rho, test)
