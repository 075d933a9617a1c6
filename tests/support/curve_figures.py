"""Made-up curves: of layers, teacher nodes and over-realizations, against the number of samples, and of any two
quantities."""

import numpy as np
import xarray as xr

from understudy.report import style
from understudy.report.figures import Curves, Panel, Series

LAYERS = ("layer 1", "layer 2", "layer 3", "layer 4")
MULTIPLES = np.array([1, 2, 5, 10])


def polarities(panels):
    return np.arange(panels) * 0.5 + 0.5


def learning(panels, teachers, times, rng, lanes=0):
    """Sigmoid curves, the later the weaker the teacher node is."""
    start = 2 + 3.5 * np.arange(teachers) ** (0.4 + 0.3 * polarities(panels))[:, None]
    t = np.linspace(0, 100, times)
    wide = np.broadcast_to(start[:, None], (panels, max(1, lanes), teachers))
    late = wide * np.exp(0.2 * rng.standard_normal(wide.shape))
    curve = 0.35 + 0.64 / (1 + np.exp(-(t - late[..., None]) / (0.12 * late[..., None] + 0.5)))
    return t, curve, late


def _titles(values, notes=None):
    return {p: f"p = {p:g}" + (f"\n{notes[i]}" if notes else "") for i, p in enumerate(values.tolist())}


def recovery_rate(panels=5, seed=0, **_):
    rng = np.random.default_rng(seed)
    index, p = np.arange(20), polarities(panels)[:, None, None]
    reach = np.array([5, 9, 16, 24])[None, :, None] * 1.6 / np.sqrt(p)
    late = np.round(32 / (1 + np.exp((index - reach) / 1.3)) + rng.uniform(-1, 1, (panels, 4, 20))).clip(0, 32) / 32
    early = np.round(32 / (1 + np.exp((index - reach / 3) / 1.3))) / 32
    array = xr.DataArray(
        np.stack([late, early]),
        dims=("epoch", "polarity", "multiple", "teacher"),
        coords={"epoch": ["epoch 100", "epoch 5"], "polarity": polarities(panels), "multiple": MULTIPLES},
    )
    return Curves.from_array(
        array,
        name="success rate",
        x="teacher",
        panel="polarity",
        line="multiple",
        style="epoch",
        over=(),
        titles=_titles(polarities(panels)),
        labels={k: f"{k}×" for k in MULTIPLES.tolist()},
        x_name="teacher index",
        colours="multiples",
        limits=(-0.03, 1.03),
        note="n = 32 seeds",
        columns=style.grid(panels, 6)[1],
        height=1.35,
    )


def best_correlation(panels=5, times=101, seed=0, **_):
    rng = np.random.default_rng(seed)
    t, curves, _ = learning(panels, 20, times, rng, lanes=12)
    array = xr.DataArray(
        curves,
        dims=("polarity", "seed", "teacher", "epoch"),
        coords={
            "polarity": polarities(panels),
            "epoch": t,
            "network": (("polarity", "seed"), np.arange(panels * 12).reshape(panels, 12)),
        },
    )
    return Curves.from_array(
        array,
        name="best correlation",
        panel="polarity",
        line="teacher",
        titles=_titles(polarities(panels), [f"log₁₀ loss −{6.5 - i * 0.25:.2f}" for i in range(panels)]),
        labels={t: f"teacher node {t}" for t in range(20)},
        colours=style.ramp(20),
        limits=(0.0, 1.02),
        columns=style.grid(panels, 5)[1],
        ramp=("strong teacher", "weak teacher"),
        height=1.5,
    )


def loss_curves(panels=6, times=101, seed=0, **_):
    rng = np.random.default_rng(seed)
    t = np.linspace(0, 100, times)
    floor = np.array([-1.6, -2.8, -5.5, -6.8])[None, :, None] * (1 + 0.05 * np.arange(panels))[:, None, None]
    runs = 0.2 + (floor + 0.5 * rng.standard_normal((8, panels, 4, 1)) - 0.2) * (1 - np.exp(-t / 22))
    array = xr.DataArray(
        runs + 0.04 * rng.standard_normal(runs.shape),
        dims=("seed", "polarity", "multiple", "epoch"),
        coords={
            "polarity": polarities(panels),
            "multiple": MULTIPLES,
            "epoch": t,
            "network": (("seed", "polarity", "multiple"), np.arange(8 * panels * 4).reshape(8, panels, 4)),
        },
    )
    return Curves.from_array(
        array,
        name="log₁₀ evaluation loss",
        panel="polarity",
        line="multiple",
        titles=_titles(polarities(panels)),
        labels={k: f"{k}×" for k in MULTIPLES.tolist()},
        colours="multiples",
        columns=style.grid(panels, 3)[1],
        height=1.55,
    )


def sample_curves(panels=2, times=7, seeds=10, seed=0, **_):
    """Training and evaluation loss of two data sets; another network at each number of samples."""
    rng = np.random.default_rng(seed)
    samples = np.array([150, 300, 1000, 3000, 10_000, 30_000, 100_000])[:times]
    train = np.full((panels, 2, len(samples)), 1e-5) * np.array([1, 1.5])[None, :, None] * (samples / 150) ** 0.2
    evaluation = np.array([0.006, 0.05])[None, :, None] * (samples / 150) ** np.array([-0.8, -1.1])[None, :, None]
    evaluation = evaluation * np.exp(0.1 * rng.standard_normal((panels, 2, len(samples)))) + 2e-5
    values = np.stack([evaluation, train])[..., None]
    values = values * np.exp(0.3 * rng.standard_normal((*values.shape[:-1], seeds)))
    network = np.arange(values[0].size).reshape(values[0].shape)
    dims = ("loss", "polarity", "data", "samples", "seed")
    array = xr.DataArray(
        values,
        dims=dims,
        coords={
            "loss": ["evaluation", "training"],
            "polarity": np.arange(panels),
            "data": ["teacher-aware", "teacher-agnostic"],
            "samples": samples,
            "network": (dims, np.stack([network, np.full_like(network, -1)])),
        },
    )
    return Curves.from_array(
        array,
        name="MSE loss",
        x="samples",
        panel="polarity",
        line="data",
        style="loss",
        titles=_titles(np.arange(panels)),
        x_name="number of samples",
        colours="categories",
        log_x=True,
        log_y=True,
    )


def layers(panels=2, times=41, seeds=8, seed=0):
    """Layers that rise one after the other, each network a little earlier or later: a labelled array."""
    rng = np.random.default_rng(seed)
    t = np.linspace(0, 100, times)
    late = np.array([4.0, 15.0, 30.0, 50.0]) * np.exp(0.15 * rng.standard_normal((panels, seeds, 4)))
    rho = 0.2 + 0.797 / (1 + np.exp(-(t - late[..., None]) / (0.2 * late[..., None])))
    return xr.DataArray(
        rho,
        dims=("multiple", "seed", "layer", "epoch"),
        coords={
            "multiple": [f"{k}×" for k in range(1, panels + 1)],
            "layer": list(LAYERS),
            "epoch": t,
            "network": (("multiple", "seed"), np.arange(panels * seeds).reshape(panels, seeds)),
        },
    )


def curves_of_layers(array, **more):
    options = {"limits": (0.0, 1.02), "bound": (0.95, "0.95"), **more}
    return Curves.from_array(array, name="mean best correlation", panel="multiple", line="layer", **options)


def layer_curves(panels=2, times=41, seeds=8, seed=0, **_):
    return curves_of_layers(layers(panels, times, seeds, seed))


def losses_by_samples(seeds=3, seed=0):
    """Two kinds of loss, each with its own scale, against the number of samples, with another network at each."""
    rng = np.random.default_rng(seed)
    samples = np.array([1_000, 3_000, 10_000, 100_000])
    ends = np.array([[0.5, 0.1], [12.0, 1.0]])[:, :, None] * (samples / 1_000) ** np.array([-0.6, 0.1])[None, :, None]
    own = ends[:, None] * np.exp(0.1 * rng.standard_normal((2, seeds, 2, 4)))
    return xr.DataArray(
        own,
        dims=("loss", "seed", "line", "samples"),
        coords={
            "loss": ["MSE", "cross-entropy"],
            "line": ["evaluation", "training"],
            "samples": samples,
            "network": (("loss", "samples", "seed"), np.arange(2 * 4 * seeds).reshape(2, 4, seeds)),
        },
    )


def sample_losses(seeds=3, seed=0, factor=1.0, own_scales=True):
    return Curves.from_array(
        losses_by_samples(seeds, seed) * factor,
        name="loss",
        x="samples",
        panel="loss",
        line="line",
        x_name="number of samples",
        log_x=True,
        log_y=True,
        own_scales=own_scales,
        colours=("#0072B2", "#b3b3b3"),
    )


def lines(panels=3, times=41, seed=0, **_):
    """A line with its band, a dashed line and points with error bars; every second panel has logarithmic axes."""
    rng = np.random.default_rng(seed)
    x = np.linspace(0.1, 10, times)
    made = []
    for p in range(panels):
        y = np.exp(-x / (p + 1)) + 0.01
        own = y * np.exp(0.1 * rng.standard_normal(times))
        series = (
            Series("closed form", x, y, dashed=True),
            Series("mean", x, own, 0.9 * own, 1.1 * own),
            Series("Monte Carlo", x[::4], own[::4], 0.8 * own[::4], 1.2 * own[::4], points=True),
        )
        log = bool(p % 2)
        made.append(Panel(f"d = {p + 1}", "angle", "length", series, log, log, bound=0.5, slope=-1.0 if log else None))
    return Curves(tuple(made), note="n = 8 seeds")


def titles(kind):
    return tuple(panel.title for panel in kind.panels)


def labels(kind):
    return tuple(dict.fromkeys(series.label for panel in kind.panels for series in panel.series))


def stacked(kind, field):
    """A field of all series, [panel, line, …], with NaN for lines that a panel does not have."""
    found = [{series.label: getattr(series, field) for series in panel.series} for panel in kind.panels]
    missing = np.full_like(next(iter(found[0].values())), np.nan, dtype=float)
    return np.array([[row.get(label, missing) for label in labels(kind)] for row in found])
