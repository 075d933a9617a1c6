"""Synthetic fold-sets, and graphs in layers."""

import numpy as np

from understudy.report.figures import FoldPanel, FoldSets, LayeredGraph


def _panel(title, rng, count=12):
    ends = rng.uniform(-2, 2, (3 * count, 2, 2))
    return FoldPanel(title, ends, np.repeat([1, 2, 3], count), np.tile(np.arange(count), 3))


def fold_sets(panels=3, seed=0, **_):
    """Segments of three layers in panels side by side."""
    rng = np.random.default_rng(seed)
    made = tuple(_panel(f"network {p + 1}", rng) for p in range(panels))
    return FoldSets(made, np.full(2, -2.0), np.full(2, 2.0))


def fold_film(times=6, seed=0, **_):
    """Segments that move towards those of a teacher."""
    rng = np.random.default_rng(seed)
    start, end = (rng.uniform(-2, 2, (20, 2, 2)) for _ in range(2))
    layers, units = np.repeat([1, 2], 10), np.tile(np.arange(10), 2)
    shares = np.linspace(0, 1, times)
    made = tuple(FoldPanel(f"{10 * i}", (1 - s) * start + s * end, layers, units) for i, s in enumerate(shares))
    return FoldSets(made, np.full(2, -2.0), np.full(2, 2.0), behind=end, time_name="epoch")


def layered_graph(seed=0, **_):
    """A dependency graph of three layers, some of its edges dashed."""
    layers = np.repeat([1, 2, 3], (4, 8, 5))
    pairs = np.array([(a, b) for a in range(17) for b in range(17) if layers[a] < layers[b]])
    chosen = pairs[np.random.default_rng(seed).random(len(pairs)) < 0.3]
    return LayeredGraph(layers, chosen, np.arange(len(chosen)) % 4 == 0, np.arange(17) % 3)
