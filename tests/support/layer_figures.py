"""Synthetic layers of deep networks for the figures that draw them."""

import numpy as np

from understudy.report import figures


def layer_specialization(panels=4, times=6, seeds=3, seed=0, groups=1, **_):
    """Ten times as many students as teachers; the lower a layer, the earlier its L appears."""
    rng = np.random.default_rng(seed)
    epochs = np.concatenate(([0], np.geomspace(1, 100, times - 1).round())) if times > 1 else np.array([100])
    rows = []
    for _group in range(groups):
        row = []
        for layer in range(panels):
            students = 10 * (5 + 2 * layer)
            count = students * seeds
            learned = (1 - np.exp(-epochs / (3 * 2.0**layer)))[:, None]
            good = rng.random(count) < 0.3
            best = np.where(good, 1 - 0.01 * rng.exponential(1, count), rng.uniform(0.1, 0.9, count))
            loud = np.where(good, rng.uniform(0.3, 1, count), 0.1 + 0.03 * rng.standard_normal(count)).clip(0.01)
            row.append(
                figures.StudentNodes(
                    rng.uniform(0.05, 0.3, count) * (1 - learned) + learned * best,
                    (1 + layer) * (0.1 * (1 - learned) + learned * loud),
                    rng.integers(0, 5 + 2 * layer, (len(epochs), count)),
                    np.repeat(np.arange(seeds), students),
                    np.tile(np.arange(students), seeds),
                    np.repeat(np.arange(seeds) + 1, students),
                )
            )
        rows.append(tuple(row))
    mean = 0.2 + 0.79 * (1 - np.exp(-epochs / (3 * 2.0 ** np.arange(panels)[:, None])))
    names = tuple(f"{2 + g}×" for g in range(groups))
    return figures.LayerSpecialization(names, epochs, tuple(rows), np.tile(mean, (groups, 1, 1)))


def matrix_images(panels=3, seed=0, multiple=4, teachers=10, **_):
    """H* and β* before and after training: noise, then a diagonal with less noise."""
    rng = np.random.default_rng(seed)
    cells = []
    for layer in range(panels):
        width = teachers + 5 * layer
        row = []
        for noise, diagonal in ((1.0, 0.0), (0.1, 1.0), (1.0, 0.0), (0.3, 1.0)):
            values = noise * rng.standard_normal((multiple * width, width)) + diagonal * np.eye(multiple * width, width)
            mass = (np.diag(values) ** 2).sum() / (values**2).sum()
            row.append(figures.OrderedMatrix(values, rng.permutation(multiple * width), float(mass)))
        cells.append(tuple(row))
    return figures.MatrixImages(("H* before", "H* after", "β* before", "β* after"), tuple(cells), network=12)
