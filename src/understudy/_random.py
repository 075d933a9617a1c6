"""Random numbers as a pure function of (seed, stream, step): Philox4x32-10 in integer tensor arithmetic.

Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011). All random numbers of the
package are drawn here. The bits are the same on CPU and GPU, in any order, and do not depend on the batch composition.
"""

import enum
import math

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

_Name = int | Int[Tensor, "*#shape"]
_WORD = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)


class Stream(enum.IntEnum):
    """Purpose of a random number; two purposes never share bits, whatever their seeds."""

    TEACHER = 1
    TEACHER_OUTPUT = 2
    STUDENT = 3
    TRAIN = 4
    EVALUATION = 5
    BATCH = 6
    AUGMENTATION = 7
    DIRECTIONS = 8
    TRIPLES = 9
    SPAN = 10
    TRANSFER = 11
    TRANSFER_ACROSS = 12
    RELU_NETWORK = 13
    COMPARISON = 14
    FOLDS = 15
    RECOVERY = 16
    CONSTRUCTION = 17
    SUBSET = 18
    UNLABELLED = 19
    CODE = 20
    INFORMATION = 21
    DECODING = 22
    LANCZOS = 23
    LABELS = 24


def philox(counter: tuple[Tensor, Tensor, Tensor, Tensor], key: tuple[Tensor, Tensor]) -> tuple[Tensor, ...]:
    """Compute four 32-bit words, stored as int64, for each broadcast element of the counter and the key."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        # The int64 product of two 32-bit words wraps around, but has the bits of the unsigned product.
        low, high = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c1, c2, c3 = (
            ((high >> 32) & _WORD) ^ c1 ^ k0,
            high & _WORD,
            ((low >> 32) & _WORD) ^ c3 ^ k1,
            low & _WORD,
        )
        k0, k1 = (k0 + _KEY_STEPS[0]) & _WORD, (k1 + _KEY_STEPS[1]) & _WORD
    return c0, c1, c2, c3


def words(seed: _Name, stream: Stream, step: _Name, count: int, device: str = "cpu") -> Int[Tensor, "*shape count"]:
    """Draw `count` words of 32 random bits for every (seed, step), which broadcast against each other."""
    seeds, steps = (torch.as_tensor(v, dtype=torch.int64, device=device).unsqueeze(-1) for v in (seed, step))
    blocks = torch.arange(-(-count // 4), device=seeds.device)
    zero = torch.zeros((), dtype=torch.int64, device=seeds.device)
    counter = (blocks, steps & _WORD, steps >> 32, zero + int(stream))
    block = philox(counter, (seeds & _WORD, (seeds >> 32) & _WORD))
    # Not torch.broadcast_shapes, which imports sympy.
    shape = np.broadcast_shapes(seeds.shape, steps.shape, blocks.shape)
    stacked = torch.stack([word.expand(shape) for word in block], dim=-1)
    return stacked.flatten(-2)[..., :count]


def integers(bits: Int[Tensor, "*shape"], below: int) -> Int[Tensor, "*shape"]:
    """Map 32-bit words to integers in [0, below), by the high half of the product."""
    return (bits * below) >> 32


def uniform(seed: _Name, stream: Stream, step: _Name, count: int, device: str = "cpu") -> Float[Tensor, "*shape count"]:
    """Draw `count` float64 numbers from the open interval (0, 1) for every (seed, step)."""
    return (words(seed, stream, step, count, device).double() + 0.5) / 2.0**32


def normal(seed: _Name, stream: Stream, step: _Name, count: int, device: str = "cpu") -> Float[Tensor, "*shape count"]:
    """Draw `count` float64 standard normal numbers for every (seed, step), two per pair of words (Box–Muller)."""
    u = uniform(seed, stream, step, 2 * (-(-count // 2)), device)
    radius, angle = (-2.0 * u[..., 0::2].log()).sqrt(), 2.0 * math.pi * u[..., 1::2]
    return torch.stack((radius * angle.cos(), radius * angle.sin()), dim=-1).flatten(-2)[..., :count]


def generator(seed: int, stream: Stream, step: int = 0) -> np.random.Generator:
    """Return NumPy's generator for this (seed, stream, step), for algorithms on the CPU that draw one after another."""
    return np.random.Generator(np.random.Philox(key=(int(stream) << 64) + seed, counter=step << 64))
