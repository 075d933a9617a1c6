"""Curves to draw: of layers over epochs and against the number of samples, and lines over any two quantities."""

import numpy as np

from understudy.report.figures import LayerCurves, Lines, Panel, Series

LAYERS = ("layer 1", "layer 2", "layer 3", "layer 4")


def _quartiles(values):
    """Median, low and high over networks, the second axis."""
    low, middle, high = np.quantile(values, [0.25, 0.5, 0.75], axis=1)
    return middle, low, high


def layer_curves(panels=2, times=41, seeds=8, seed=0, **_):
    """Layers that rise one after the other, each network a little earlier or later."""
    rng = np.random.default_rng(seed)
    t = np.linspace(0, 100, times)
    late = np.array([4.0, 15.0, 30.0, 50.0]) * np.exp(0.15 * rng.standard_normal((panels, seeds, 4)))
    rho = 0.2 + 0.797 / (1 + np.exp(-(t - late[..., None]) / (0.2 * late[..., None])))
    network = np.arange(panels * seeds).reshape(panels, seeds)
    return LayerCurves(
        tuple(f"{k}×" for k in range(1, panels + 1)),
        LAYERS,
        t,
        *_quartiles(rho),
        name="mean best correlation",
        seeds=seeds,
        limits=(0.0, 1.02),
        bound=0.95,
        bound_words="0.95",
        network=np.broadcast_to(network[..., None], (panels, seeds, times)),
        network_values=rho,
    )


def sample_losses(seeds=3, seed=0):
    """Two kinds of loss, each in its own measure, against the number of samples: another network at each."""
    rng = np.random.default_rng(seed)
    samples = np.array([1_000, 3_000, 10_000, 100_000])
    ends = np.array([[0.5, 0.1], [12.0, 1.0]])[:, :, None] * (samples / 1_000) ** np.array([-0.6, 0.1])[None, :, None]
    own = ends[:, None] * np.exp(0.1 * rng.standard_normal((2, seeds, 2, 4)))
    network = np.arange(2 * 4 * seeds).reshape(2, 4, seeds).swapaxes(1, 2)
    return LayerCurves(
        ("MSE", "cross-entropy"),
        ("evaluation", "training"),
        samples,
        *_quartiles(own),
        name="loss",
        seeds=seeds,
        x_name="number of samples",
        log_x=True,
        log_y=True,
        own_scales=True,
        colours=("#0072B2", "#b3b3b3"),
        network=network,
        network_values=own,
    )


def lines(panels=3, times=41, seed=0, **_):
    """A line with its spread, a dashed one and points with bars; every second panel has logarithmic axes."""
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
    return Lines(tuple(made), note="n = 8 seeds")
