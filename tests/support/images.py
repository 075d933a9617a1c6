"""Files in the layouts of CIFAR and MNIST with synthetic images: one colour or square per class, plus noise."""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from understudy._errors import UserError

BATCHES = [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]

PNG = (
    b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x04\x00\x00\x00\x04\x08\x00\x00\x00\x00\x8c\x9a\xc1\xa2\x00\x00\x00\x14"
    b"IDATx\x9ccd`ddddaddd\x81\x13\x00\x01Q\x00#\xd4\x88\xcc8\x00\x00\x00\x00IEND\xaeB`\x82"
)
"""A grey picture of 4 × 4 pixels, 0 to 15."""
DAMAGED_PNG = PNG.replace(b"ddddaddd", b"ddddaddaddd")
"""Other pixels with the same checksum: decoders stop once they have all pixels, and do not come to the checksum."""


def write_cifar(folder: Path) -> Path:
    """Write the files to a subfolder, and return the folder."""
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


def write_cifar100(folder: Path) -> Path:
    """Write files in the binary layout of CIFAR-100 to a subfolder, and return the folder.

    Classes differ in the colours of the left and the right half of the image.
    """
    random = np.random.default_rng(0)
    inside = folder / "cifar-100-binary"
    inside.mkdir(parents=True)
    colours = random.integers(0, 200, (100, 3, 1, 2, 1), dtype=np.uint8)
    noise = random.integers(0, 56, (1_000, 3, 32, 2, 16), dtype=np.uint8)
    for name, count in (("train", 50_000), ("test", 10_000)):
        records = np.empty((count, 3074), np.uint8)
        records[:, 1] = random.permutation(np.arange(count) % 100)
        records[:, 0] = records[:, 1] % 20
        for part in records.reshape(-1, 1_000, 3074):
            part[:, 2:] = (colours[part[:, 1]] + noise).reshape(1_000, 3072)
        records.tofile(inside / f"{name}.bin")
    return folder


MNIST_COUNTS = {
    "train": (5_923, 6_742, 5_958, 6_131, 5_842, 5_421, 5_918, 6_265, 5_851, 5_949),
    "t10k": (980, 1_135, 1_032, 1_010, 982, 892, 958, 1_028, 974, 1_009),
}


def idx(numbers: np.ndarray) -> bytes:
    """Encode an array in the format of MNIST: a header with the sizes of its axes, then the items."""
    return np.array([0x800 + numbers.ndim, *numbers.shape], ">u4").tobytes() + numbers.astype(np.uint8).tobytes()


def mnist_part(part: str, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """As many labels and images as MNIST has: for each digit a square at its own position, and noise."""
    labels = random.permutation(np.repeat(np.arange(10), MNIST_COUNTS[part]))
    squares = np.zeros((10, 28, 28), np.uint8)
    for digit in range(10):
        row, column = divmod(digit, 4)
        squares[digit, 8 * row + 2 : 8 * row + 8, 7 * column : 7 * column + 6] = 200
    noise = random.integers(0, 50, (1_000, 28, 28), dtype=np.uint8)
    return labels, squares[labels] + noise[np.arange(len(labels)) % 1_000]


def write_mnist(folder: Path) -> Path:
    """Write the files to a subfolder, and return the folder."""
    random = np.random.default_rng(0)
    inside = folder / "mnist"
    inside.mkdir(parents=True)
    for part in MNIST_COUNTS:
        labels, images = mnist_part(part, random)
        (inside / f"{part}-images-idx3-ubyte").write_bytes(idx(images))
        (inside / f"{part}-labels-idx1-ubyte").write_bytes(idx(labels))
    return folder


def needs(source: Callable[[], object], name: str) -> pytest.MarkDecorator:
    """Mark that skips tests if the real images are not in $UNDERSTUDY_DATA."""
    available = bool(os.environ.get("UNDERSTUDY_DATA"))
    try:
        available = available and bool(source())
    except UserError:
        available = False
    return pytest.mark.skipif(not available, reason=f"needs {name} in $UNDERSTUDY_DATA")
