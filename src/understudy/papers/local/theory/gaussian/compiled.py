"""Loss and gradient of `closed_forms` compiled for the CPU, tile by tile.

Each tile of cosines is turned into agreements 1 − 2φ/π and multiplied into the pulls on its rows and columns before
the next one is computed, so that the matrix of all pairs is never stored. z = sin² φ/2 (φ up to sign) is
(1 − |cosine|)/2, or a quarter of the squared distance where vectors are close, so that no digits are lost. Buffers are
padded with zeros, and the padding stays zero.
"""

import math
from typing import no_type_check

import numpy as np
from numba import njit

from understudy.training.kernels.cpu import PAD, product, transpose

TILE = 64
"""Rows and columns of a tile, which fits the L1 cache."""
_CLOSE = 0.9
"""Cosine, up to sign, above which distances are computed from differences of the vectors."""
_BENT = 0.05
"""Angle with a teacher node up to which E[R ρ] of a student is a short series; beyond it a difference."""
# Polynomial for asin(√z)/√z on [0, 1/2], with an error of 3×10⁻¹⁷.
_ASIN = (
    0.99999999999999999,
    0.166666666666649869,
    0.0750000000040181609,
    0.0446428567626150034,
    0.0303819633967518285,
    0.022371584779320353,
    0.0173642814391035282,
    0.0138034458958919798,
    0.0131910025717539036,
    -0.00260153784829968792,
    0.0787161135700212663,
    -0.296870543068982427,
    1.00820166505341874,
    -2.4908808126226117,
    4.64206890998884336,
    -6.22929987539798577,
    5.75794083131469874,
    -3.27893315673981227,
    0.889290436763868799,
)
(_A0, _A1, _A2, _A3, _A4, _A5, _A6, _A7, _A8, _A9, _A10, _A11, _A12, _A13, _A14, _A15, _A16, _A17, _A18) = _ASIN
_HALF, _OVER = math.pi / 2, 2 / math.pi
_FREE = {"reassoc", "contract", "nsz"}


@njit(fastmath=_FREE)
@no_type_check
def _squares(c, z, units, depth, one, first, count):
    """Fill in z for one row of cosines."""
    near = 0
    for j in range(count):
        size = abs(c[j])
        z[j] = 0.5 - 0.5 * size
        near += size > _CLOSE
    if near:
        u = units[one]
        for j in range(count):
            if abs(c[j]) > _CLOSE:
                v, total = units[first + j], 0.0
                if c[j] > 0:
                    for i in range(depth):
                        total += (u[i] - v[i]) * (u[i] - v[i])
                else:
                    for i in range(depth):
                        total += (u[i] + v[i]) * (u[i] + v[i])
                z[j] = 0.25 * total


@njit(fastmath=_FREE, inline="always")
@no_type_check
def _agreement(z):
    """1 − 2φ/π from z = sin² φ/2."""
    p = _A18
    p = p * z + _A17
    p = p * z + _A16
    p = p * z + _A15
    p = p * z + _A14
    p = p * z + _A13
    p = p * z + _A12
    p = p * z + _A11
    p = p * z + _A10
    p = p * z + _A9
    p = p * z + _A8
    p = p * z + _A7
    p = p * z + _A6
    p = p * z + _A5
    p = p * z + _A4
    p = p * z + _A3
    p = p * z + _A2
    p = p * z + _A1
    p = p * z + _A0
    return 1.0 - (2 * _OVER) * (math.sqrt(z) * p)


@njit(fastmath=_FREE)
@no_type_check
def _agree(c, z, count, outputs, own, across):
    """Turn a row of cosines into agreements, add its sines to the column sums, and return the row sum."""
    total = 0.0
    for j in range(count):
        agree, sine = _agreement(z[j]), 2.0 * math.sqrt(z[j] * (1.0 - z[j]))
        c[j] = agree if c[j] >= 0 else -agree
        total += outputs[j] * sine
        across[j] += own * sine
    return total


@njit(fastmath=_FREE)
@no_type_check
def _bend(agree, sign, its, sines, cosines, count):
    """Σ c [sin ψ (t sin t − 1 + cos t) + cos ψ (sin t − t cos t)], t = φ − ψ, for one row of agreements.

    The bracket equals sin φ (1 − cos t) − cos φ (t − sin t), written with the angle ψ of the row's reference.
    """
    total = 0.0
    for j in range(count):
        t = _HALF * (its[j] - sign * agree[j])
        s = t * t
        even = s * (1 / 2 + s * (-1 / 8 + s * (1 / 144 + s * (-1 / 5760))))
        odd = s * t * (1 / 3 + s * (-1 / 30 + s * (1 / 840 + s * (-1 / 45360))))
        total += sines[j] * even + cosines[j] * odd
    return total


@njit
@no_type_check
def allocate(students, teachers, dim):
    """Buffers of one problem."""
    rows, columns = -(-(students + teachers) // PAD) * PAD, -(-dim // PAD) * PAD
    tables = -(-teachers // PAD) * PAD
    return (
        np.zeros((rows, columns)),  # directions
        np.zeros((dim, rows)),  # directions, transposed
        np.zeros((rows, columns)),  # weights times vectors
        np.zeros((2, rows)),  # lengths; weights times lengths
        np.zeros((3, tables, rows)),  # teacher node × node: agreement, c sin ψ, c cos ψ
        np.zeros(rows, np.int64),  # references
        np.zeros((2, rows)),  # sign relative to the reference, 1 − cos δ
        np.zeros(rows),  # z of a row
    )


@njit(fastmath={"contract"})
@no_type_check
def prepare(students, teachers, buffers):
    """Fill in directions, tables of the teacher nodes, and the reference of every student: the nearest up to sign."""
    units, turned, vectors, sizes, tables, references, bends, z = buffers
    r, count, dim = len(teachers), len(teachers) + len(students), teachers.shape[1]
    for k in range(count):
        w = teachers[k] if k < r else students[k - r]
        length = 0.0
        for i in range(dim):
            length += w[i] * w[i]
        length = math.sqrt(length)
        weight, over = -1.0 if k < r else length, length if length > 0 else 1.0
        sizes[0, k], sizes[1, k] = length, weight * length
        for i in range(dim):
            units[k, i] = w[i] / over
            turned[i, k] = units[k, i]
            vectors[k, i] = weight * w[i]
    product(tables[0], units, turned, tables.shape[1], dim, False)
    bends[1, :] = 2.0
    for b in range(r):
        row = tables[0, b]
        _squares(row, z, units, dim, b, 0, count)
        for k in range(count):
            sign = 1.0 if row[k] >= 0 else -1.0
            row[k] = sign * _agreement(z[k])
            tables[1, b, k] = sizes[1, k] * 2.0 * math.sqrt(z[k] * (1.0 - z[k]))
            tables[2, b, k] = sizes[1, k] * sign * (1.0 - 2.0 * z[k])
            if 2.0 * z[k] < bends[1, k] and (k >= r or k == b):
                references[k], bends[0, k], bends[1, k] = b, sign, 2.0 * z[k]


@njit
@no_type_check
def _bend_rows(tile, rows, first, count, start, r, nodes, buffers, bent):
    """Add the columns of a tile of agreements to E[R ρ] of the students among its rows."""
    tables, references, bends = buffers[4], buffers[5], buffers[6]
    few = _BENT * _BENT / 2
    stop = start + count
    for k in range(max(first, r), min(first + rows, nodes)):
        if bends[1, k] < few:
            b = references[k]
            its, sines, cosines = tables[0, b, start:stop], tables[1, b, start:stop], tables[2, b, start:stop]
            bent[k] += _bend(tile[k - first], bends[0, k], its, sines, cosines, count)


@njit
@no_type_check
def add_tiles(r, nodes, dim, strip, strips, buffers, work, pulls, across, bent):
    """Add every `strips`-th tile of the upper triangle to the pulls, the sums of sines and E[R ρ]."""
    units, turned, vectors, outputs = buffers[0], buffers[1], buffers[2], buffers[3][1]
    plain, flipped, z = work
    size, number = len(units), 0
    pulls[:], across[:], bent[:] = 0, 0, 0
    for first in range(0, size, TILE):
        rows = min(TILE, size - first)
        for start in range(first, size, TILE):
            number += 1
            if number % strips != strip:
                continue
            count = min(TILE, size - start)
            tile, other = plain[:rows, :count], flipped[:count, :rows]
            product(tile, units[first:], turned[:, start:], rows, dim, False)
            own = start == first
            # On the diagonal, columns are rows: their sums go to unused memory.
            columns = z[TILE : TILE + count] if own else across[start : start + count]
            for k in range(rows):
                one = first + k
                _squares(plain[k], z, units, dim, one, start, count)
                across[one] += _agree(plain[k], z, count, outputs[start : start + count], outputs[one], columns)
            product(pulls[first:], tile, vectors[start:], rows, count, True)
            _bend_rows(plain, rows, first, count, start, r, nodes, buffers, bent)
            if not own:
                product(pulls[start:], tile.T, vectors[first:], count, rows, True)
                transpose(other, tile)
                _bend_rows(flipped, count, start, rows, first, r, nodes, buffers, bent)


@njit(fastmath={"contract"})
@no_type_check
def finish(r, nodes, dim, slope, buffers, pulls, across, bent, gradient):
    """Return the loss and fill in the gradient; the pulls are overwritten."""
    units, _, vectors, sizes, _, references, bends, _ = buffers
    line, bend, square, few = (1 + slope) ** 2 / 4, (1 - slope) ** 2 / 4, 0.0, _BENT * _BENT / 2
    mean = np.zeros(dim)
    for k in range(nodes):
        for i in range(dim):
            pulls[k, i] += _OVER * across[k] * units[k, i]
            mean[i] += vectors[k, i]
    rest = np.empty((r, dim))
    for k in range(nodes):
        b, sign = references[k], bends[0, k]
        if k < r:
            rest[k] = vectors[k, :dim]
        else:
            for i in range(dim):
                rest[b, i] += sign * vectors[k, i]
            away = 0.0
            if bends[1, k] < few:
                away = _OVER * (bent[k] + bends[1, k] * across[b])
            else:
                for i in range(dim):
                    away += units[k, i] * (pulls[k, i] - sign * pulls[b, i])
            square += sizes[1, k] * away
    for b in range(r):
        for i in range(dim):
            square += rest[b, i] * pulls[b, i]
    total = 0.0
    for i in range(dim):
        total += mean[i] * mean[i]
    for k in range(r, nodes):
        along = 0.0
        for i in range(dim):
            pulls[k, i] = line * mean[i] + bend * pulls[k, i]
            along += pulls[k, i] * units[k, i]
        for i in range(dim):
            gradient[k - r, i] = sizes[0, k] * (pulls[k, i] + along * units[k, i])
    square = 0.0 if square < 0 else square  # NaN stays NaN
    return (line * total + bend * square) / 2


@njit
@no_type_check
def _work():
    """Buffers for a tile, its transpose, and z of a row followed by unused sums."""
    return np.zeros((TILE, TILE)), np.zeros((TILE, TILE)), np.zeros(2 * TILE)


@no_type_check
def _solve(students, teachers, slope, losses, gradients):
    """Solve problems one after another on one thread."""
    m, r, dim = students.shape[1], teachers.shape[1], students.shape[2]
    buffers = allocate(m, r, dim)
    pulls, across, bent = np.empty_like(buffers[0]), np.empty(len(buffers[0])), np.empty(len(buffers[0]))
    work = _work()
    for e in range(len(students)):
        prepare(students[e], teachers[e], buffers)
        add_tiles(r, m + r, dim, 0, 1, buffers, work, pulls, across, bent)
        losses[e] = finish(r, m + r, dim, slope, buffers, pulls, across, bent, gradients[e])


@no_type_check
def _descend(students, teachers, slope, rates, steps):
    """Take steps of gradient descent on problems one after another on one thread; changes the students."""
    m, r, dim = students.shape[1], teachers.shape[1], students.shape[2]
    buffers = allocate(m, r, dim)
    pulls, across, bent = np.empty_like(buffers[0]), np.empty(len(buffers[0])), np.empty(len(buffers[0]))
    work, gradient = _work(), np.empty((m, dim))
    for e in range(len(students)):
        for _ in range(steps):
            prepare(students[e], teachers[e], buffers)
            add_tiles(r, m + r, dim, 0, 1, buffers, work, pulls, across, bent)
            finish(r, m + r, dim, slope, buffers, pulls, across, bent, gradient)
            students[e] -= rates[e] * gradient


@no_type_check
def _add_strip(r, nodes, dim, strip, strips, buffers, pulls, across, bent):
    """Process one strip of a problem's tiles."""
    add_tiles(r, nodes, dim, strip, strips, buffers, _work(), pulls, across, bent)


@no_type_check
def _start(students, teachers):
    buffers = allocate(len(students), len(teachers), teachers.shape[1])
    prepare(students, teachers, buffers)
    return buffers


@no_type_check
def _finish_strips(r, nodes, dim, slope, buffers, pulls, across, bent, gradient):
    """Add the results of all strips in order, and finish."""
    for s in range(1, len(pulls)):
        pulls[0] += pulls[s]
        across[0] += across[s]
        bent[0] += bent[s]
    return finish(r, nodes, dim, slope, buffers, pulls[0], across[0], bent[0], gradient)


_ENTRY_POINTS = (_solve, _descend, _start, _add_strip, _finish_strips)
try:
    solve, descend, start, add_strip, finish_strips = (njit(nogil=True, cache=True)(f) for f in _ENTRY_POINTS)
except RuntimeError:  # no writable folder for the cache of compiled code
    solve, descend, start, add_strip, finish_strips = (njit(nogil=True)(f) for f in _ENTRY_POINTS)
