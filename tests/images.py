"""CIFAR-10 as it is published, with images of our own: a colour a class and a little noise, which is soon learned."""

from pathlib import Path

import numpy as np

BATCHES = [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]


def write_cifar(folder: Path) -> Path:
    """The folder that holds the folder of the files."""
    random = np.random.default_rng(0)
    inside = folder / "cifar-10-batches-bin"
    inside.mkdir(parents=True)
    colours = random.integers(40, 216, (10, 3, 1), dtype=np.uint8)
    noise = random.integers(0, 40, (1_000, 3, 1024), dtype=np.uint8)
    records = np.empty((10_000, 3073), np.uint8)
    for name in BATCHES:
        records[:, 0] = random.permutation(np.arange(10_000) % 10)
        for part in records.reshape(10, 1_000, 3073):
            part[:, 1:] = (colours[part[:, 0]] + noise).reshape(1_000, 3072)
        records.tofile(inside / f"{name}.bin")
    return folder
