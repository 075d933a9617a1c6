"""Claim Y8: how far the matrix dynamics are from the gradient, layer by layer (Tian et al. 2019, theorem 2)."""

import numpy as np
import xarray as xr

from understudy.claims import Claims, Verdict, every, number
from understudy.papers.luck.matrix_dynamics.study import PATH_NAMES, PATHS, MatrixDynamics, layers
from understudy.store import Run

EXACT = 1e-10
"""Relative distance up to which velocities count as equal, at the layer where the theorem assumes nothing."""
LEARNED = 0.01
"""Share of its first value below which the loss counts as learned: what is left may be noise."""
OUTPUTS = "outputs"
"""The highest layer, whose weights give the outputs."""

claims = Claims(free="seeds device", tuned_on="seeds 1 to 8, which decide it, and 101 to 106")


def by_layer(run: Run, metric: str) -> xr.DataArray:
    """A metric by hidden, path, seed, layer and epoch; layers are `layer 1`, … from the lowest, and `outputs`.

    Networks that diverged have values up to the step at which they did.
    """
    found = []
    for hidden in run.select().values("hidden"):
        names = [*(f"layer {i + 1}" for i in range(len(layers(hidden)))), OUTPUTS]
        each = run.array(metric, "path seed layer epoch", hidden=hidden, diverged=True)
        found.append(each.assign_coords(hidden=hidden, layer=names[: each.sizes["layer"]]))
    return xr.concat(found, "hidden", coords="different", compat="equals", join="outer")


def mean_correlation(run: Run) -> xr.DataArray:
    """The mean best correlation by hidden, path, seed and epoch, averaged over hidden layers."""
    return by_layer(run, "rho_mean").mean("layer")


def log10(values: xr.DataArray) -> xr.DataArray:
    """Logarithm of labelled values."""
    return values.copy(data=np.log10(values))


def learning(run: Run, hidden: str) -> xr.DataArray:
    """At which probes [path, seed, epoch] the evaluation loss is above a share of its first value."""
    loss = run.array("eval_loss", "path seed epoch", hidden=hidden, diverged=True)
    return loss > LEARNED * loss.isel(epoch=0)


def _teachers(study: MatrixDynamics, run: Run) -> list[dict[str, str]]:
    return [{"hidden": hidden} for hidden in run.select().values("hidden")]


@claims.claim(
    "Y8",
    "top layer",
    statement="at the highest layer, where the theorem assumes nothing, eq. 6 is the negative gradient at every probe "
    f"of both trajectories: relative distance at most {number(EXACT, 'g')}",
    paper="equal",
    values_are="largest relative distance, per teacher",
)
def exact_at_the_top(study: MatrixDynamics, run: Run) -> Verdict:
    distance = by_layer(run, "distance").sel(layer=OUTPUTS)
    n = distance.sizes["hidden"] * distance.sizes["seed"]
    return every(distance.max(("path", "seed", "epoch")), at_most=EXACT, n=n, say="at most {most:.1e}")


@claims.claim(
    "Y8",
    "direction, {hidden}",
    statement="below the highest layer the cosine of eq. 6 and the negative gradient is above 0 at every probe of "
    f"every seed at which the evaluation loss is above {LEARNED:.0%} of its first value, along both trajectories",
    paper="simulated and compared with SGD",
    values_are="least cosine while the loss is above the bound, per seed",
    cases=_teachers,
)
def points_downhill(study: MatrixDynamics, run: Run, hidden: str) -> Verdict:
    whole, distance = (
        by_layer(run, metric).sel(hidden=hidden).drop_sel(layer=OUTPUTS).dropna("layer", how="all")
        for metric in ("cosine", "distance")
    )
    cosine = whole.where(learning(run, hidden))
    medians = [
        f"along {'the trajectory of' if path == PATHS[0] else 'that of'} {name}, "
        + ", ".join(
            f"{layer}: cosine {number(cosine.sel(path=path, layer=layer).median().item(), '.2f')}, "
            f"distance {distance.sel(path=path, layer=layer).median().item():.2f}"
            for layer in cosine["layer"].to_numpy()
        )
        for path, name in PATH_NAMES.items()
    ]
    least = cosine.min(("path", "layer", "epoch"))

    def test(values: np.ndarray, words: str) -> Verdict:
        return every(
            values[np.isfinite(values)], above=0.0, n=least.size, say=f"least {{least:.2f}}, above 0 in {words}"
        )

    by_layers = f"{{count}}; medians over seeds and probes: {'; '.join(medians)}"
    beside = {
        f"along {name}, with a loss {words}": test(cosines.sel(path=path).to_numpy(), "{count}")
        for path, name in PATH_NAMES.items()
        for words, cosines in ((f"above {LEARNED:.0%}", cosine), ("of any size", whole))
    }
    return test(cosine.to_numpy(), by_layers).show(least, low=0.0).with_variants(beside)


@claims.claim(
    "Y8",
    "loss, {hidden}",
    statement="the simulated dynamics end at a lower evaluation loss than they started with, in every seed",
    paper="simulated and compared with SGD",
    values_are="log10 of the ratio of the two losses, per seed",
    cases=_teachers,
)
def loss_falls(study: MatrixDynamics, run: Run, hidden: str) -> Verdict:
    """A network that diverged does not end lower."""
    start = log10(run.array("eval_loss", "path seed epoch", hidden=hidden, diverged=True).isel(epoch=0))
    end = log10(run.array("eval_loss", "path seed", hidden=hidden))
    gain = (end - start).sel(path=PATHS[0]).to_numpy()
    lost = int(np.isnan(gain).sum())
    diverged = f", {lost} diverged" if lost else ""
    losses = [number(loss, ".2f") for loss in (start.median().item(), *end.median("seed").to_numpy())]
    correlation = mean_correlation(run).sel(hidden=hidden).isel(epoch=-1).median("seed").to_numpy()
    words = (
        f"in {{count}}{diverged}; median log10 losses {losses[0]} at the start, {losses[1]} by eq. 6, {losses[2]} by "
        f"SGD; mean best correlations {correlation[0]:.3f} and {correlation[1]:.3f}"
    )
    return every(gain, below=0.0, say=words)
