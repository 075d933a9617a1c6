"""Compiled steps of the matrix dynamics for CPUs (Tian et al. 2019, eq. 6), equal to `simulation.step` up to rounding.

The gates of a batch are stored as bits of 64-bit words, so that E[f' f'ᵀ] of two nodes is a count of common bits.
Columns are padded to a multiple of PAD, which `product` requires; padded nodes and outputs are zero and stay zero.
"""

import math
from typing import Any, no_type_check

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from understudy._random import Stream
from understudy.training.kernels.cpu import product, transpose

BITS = 64
_STREAM = int(Stream.TRAIN)


@intrinsic
def _popcount(_: Any, word: Any) -> Any:
    """Number of bits set in a 64-bit word."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        number = ir.IntType(64)
        count = cgutils.get_or_insert_function(builder.module, ir.FunctionType(number, [number]), "llvm.ctpop.i64")
        return builder.call(count, values)

    return types.int64(types.uint64), generate


@njit(nogil=True)
@no_type_check
def draw_inputs(x, seed, step):
    """Fill x[sample, in] with the standard normals of `data.Gaussian` for an epoch; the last column is unchanged."""
    word, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    columns = x.shape[1] - 1
    count = x.shape[0] * columns
    for lane in range(0, count, 4):
        c0, c1, c2, c3 = np.uint64(lane // 4), np.uint64(step) & word, np.uint64(step) >> half, np.uint64(_STREAM)
        k0, k1 = np.uint64(seed) & word, np.uint64(seed) >> half
        for _ in range(10):
            low, high = c0 * np.uint64(0xD2511F53), c2 * np.uint64(0xCD9E8D57)
            c0, c1, c2, c3 = (high >> half) ^ c1 ^ k0, high & word, (low >> half) ^ c3 ^ k1, low & word
            k0, k1 = (k0 + np.uint64(0x9E3779B9)) & word, (k1 + np.uint64(0xBB67AE85)) & word
        for i, (one, two) in enumerate(((c0, c1), (c2, c3))):
            at = lane + 2 * i
            radius = math.sqrt(-2.0 * math.log((np.float64(one) + 0.5) / 2.0**32))
            angle = 2.0 * math.pi * (np.float64(two) + 0.5) / 2.0**32
            if at < count:
                x[at // columns, at % columns] = radius * math.cos(angle)
            if at + 1 < count:
                x[(at + 1) // columns, (at + 1) % columns] = radius * math.sin(angle)


@njit
@no_type_check
def _relu(f, gates):
    """Apply the ReLU in place, and store its gates as bits."""
    gates[:], zero = 0, f.dtype.type(0)
    for b in range(len(f)):
        row, word, bit = f[b], gates[b // BITS], np.uint64(1) << np.uint64(b % BITS)
        for i in range(len(row)):
            word[i] |= bit if row[i] > zero else np.uint64(0)
            row[i] = row[i] if row[i] > zero else zero


@njit
@no_type_check
def _times_common(h, mine, gates, counts):
    """Multiply h[j, i] by the number of samples on which both nodes are active."""
    for j in range(len(h)):
        row = h[j]
        counts[:] = 0
        for word in range(len(gates)):
            one, others = mine[word, j], gates[word]
            for i in range(len(row)):
                counts[i] += counts.dtype.type(_popcount(one & others[i]))
        for i in range(len(row)):
            row[i] *= counts[i]


@njit
@no_type_check
def _rescale(columns):
    """Scale every column to length 1."""
    columns /= np.sqrt((columns * columns).sum(0))


@no_type_check
def _steps(ws, vs, their_ws, their_vs, nodes, outputs, seed, first, steps, batch, lr, modulated, rescaled):
    """Advance networks w[in, node], v[node, out] of one seed in place, on common inputs whose last column is 1."""
    wide, columns, theirs = ws.shape[1], ws.shape[2], their_ws.shape[2]
    x, words = np.ones((batch, wide), ws.dtype), -(-batch // BITS)
    f, g = np.empty((batch, columns), ws.dtype), np.empty((batch, theirs), ws.dtype)
    gates, their_gates = np.empty((words, columns), np.uint64), np.empty((words, theirs), np.uint64)
    o, y = np.empty((batch, vs.shape[2]), ws.dtype), np.empty((batch, vs.shape[2]), ws.dtype)
    v_t, dw = np.empty((vs.shape[2], columns), ws.dtype), np.empty((wide, columns), ws.dtype)
    h, their_h = np.empty((max(columns, batch), columns), ws.dtype), np.empty((theirs, columns), ws.dtype)
    counts, scale, zero = np.empty(columns, ws.dtype), ws.dtype.type(lr / batch), ws.dtype.type(0)
    for step in range(first, first + steps):
        draw_inputs(x, seed, step)
        for e in range(len(ws)):
            w, v, their_w, their_v = ws[e], vs[e], their_ws[e], their_vs[e]
            product(f, x, w, batch, wide, False)
            product(g, x, their_w, batch, wide, False)
            _relu(f, gates)
            _relu(g, their_gates)
            product(o, f, v, batch, columns, False)
            product(y, g, their_v, batch, theirs, False)
            o[:] = scale * (y - o)
            transpose(v_t, v)
            if modulated:
                product(their_h, their_v, v_t, theirs, len(v_t), False)
                _times_common(their_h, their_gates, gates, counts)
                product(h, v, v_t, columns, len(v_t), False)
                _times_common(h[:columns], gates, gates, counts)
                product(dw, w, h, wide, columns, False)
                dw[:] = -dw
                product(dw, their_w, their_h, wide, theirs, True)
                dw *= scale
            else:
                product(h[:batch], o, v_t, batch, len(v_t), False)
                for b in range(batch):
                    for k in range(columns):
                        h[b, k] = h[b, k] if f[b, k] > zero else zero
                product(dw, x.T, h, wide, batch, False)
            product(v, f.T, o, columns, batch, True)
            w += dw
            if rescaled:
                _rescale(w[:, :nodes])
                _rescale(v[:nodes, :outputs])


try:
    run = njit(nogil=True, cache=True)(_steps)
except RuntimeError:  # no writable folder to cache compiled code
    run = njit(nogil=True)(_steps)
