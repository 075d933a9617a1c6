"""Compiled losses and gradients for processors: what `gaussian` does in tensors, tile by tile.

A tile of cosines is made, turned into agreements 1 − 2φ/π, and multiplied into the gradients of its rows and of its
columns, before the next: the matrix of all pairs is never there. z = sin² φ/2 (φ up to sign) is (1 − |cosine|)/2, and a
quarter of the squared distance where vectors are close, so that no digits are lost. Padding is zero, and stays so.
"""

import math
from typing import no_type_check

import numpy as np
from numba import njit

from understudy.training.kernels.cpu import PAD, product, transpose

TILE = 64
"""Rows and columns of a tile, which fits the first cache."""
_CLOSE = 0.9
"""Cosine, up to sign, from which distances are taken of differences."""
_BENT = 0.05
"""Angle with a teacher node up to which what a student bends away from it is a short series; else a difference."""
# asin(√z)/√z for z in [0, 1/2], to 3e-17.
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
    """z of a row of cosines."""
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
    """1 − 2φ/π."""
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
    """A row of cosines to agreements; sines into the sums of the columns, and those of the row returned."""
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
    """Σ c [sin ψ (t sin t − 1 + cos t) + cos ψ (sin t − t cos t)], t = φ − ψ, of a row of agreements and its reference.

    That is what sin φ (1 − cos t) − cos φ (t − sin t) is by ψ, which the row shares with its reference.
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
def space(students, teachers, dim):
    """Room for one problem."""
    rows, columns = -(-(students + teachers) // PAD) * PAD, -(-dim // PAD) * PAD
    tables = -(-teachers // PAD) * PAD
    return (
        np.zeros((rows, columns)),  # directions
        np.zeros((dim, rows)),  # the same, turned
        np.zeros((rows, columns)),  # weights times vectors
        np.zeros((2, rows)),  # lengths; weights times lengths
        np.zeros((3, tables, rows)),  # of each teacher node with all: agreement, c sin ψ, c cos ψ
        np.zeros(rows, np.int64),  # references
        np.zeros((2, rows)),  # the sign with the reference, 1 − cos δ
        np.zeros(rows),  # z of a row
    )


@njit(fastmath={"contract"})
@no_type_check
def prepare(students, teachers, room):
    """Directions, tables of the teacher's nodes, and the reference of every student: the nearest, up to sign."""
    units, turned, vectors, sizes, tables, references, bends, z = room
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
def _bend_rows(tile, rows, first, count, start, r, nodes, room, bent):
    """What the students among the rows of a tile of agreements bend away, on the inputs of its columns."""
    tables, references, bends = room[4], room[5], room[6]
    few = _BENT * _BENT / 2
    stop = start + count
    for k in range(max(first, r), min(first + rows, nodes)):
        if bends[1, k] < few:
            b = references[k]
            its, sines, cosines = tables[0, b, start:stop], tables[1, b, start:stop], tables[2, b, start:stop]
            bent[k] += _bend(tile[k - first], bends[0, k], its, sines, cosines, count)


@njit
@no_type_check
def tiles(r, nodes, dim, strip, strips, room, work, pulls, across, bent):
    """Every so manyth tile of the upper triangle, added to E[R x sgn], to sums of sines and of what is bent."""
    units, turned, vectors, outputs = room[0], room[1], room[2], room[3][1]
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
            # The diagonal's columns are its rows: their sums go nowhere.
            columns = z[TILE : TILE + count] if own else across[start : start + count]
            for k in range(rows):
                one = first + k
                _squares(plain[k], z, units, dim, one, start, count)
                across[one] += _agree(plain[k], z, count, outputs[start : start + count], outputs[one], columns)
            product(pulls[first:], tile, vectors[start:], rows, count, True)
            _bend_rows(plain, rows, first, count, start, r, nodes, room, bent)
            if not own:
                product(pulls[start:], tile.T, vectors[first:], count, rows, True)
                transpose(other, tile)
                _bend_rows(flipped, count, start, rows, first, r, nodes, room, bent)


@njit(fastmath={"contract"})
@no_type_check
def finish(r, nodes, dim, slope, room, pulls, across, bent, gradient):
    """The loss, and the gradient from the pulls, which are used up."""
    units, _, vectors, sizes, _, references, bends, _ = room
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
    square = 0.0 if square < 0 else square  # what is not a number stays so
    return (line * total + bend * square) / 2


@njit
@no_type_check
def _work():
    """Room for a tile, for its transpose, and for z of a row and sums that go nowhere."""
    return np.zeros((TILE, TILE)), np.zeros((TILE, TILE)), np.zeros(2 * TILE)


@no_type_check
def _each(students, teachers, slope, losses, gradients):
    """Problem by problem, on one thread."""
    m, r, dim = students.shape[1], teachers.shape[1], students.shape[2]
    room = space(m, r, dim)
    pulls, across, bent = np.empty_like(room[0]), np.empty(len(room[0])), np.empty(len(room[0]))
    work = _work()
    for e in range(len(students)):
        prepare(students[e], teachers[e], room)
        tiles(r, m + r, dim, 0, 1, room, work, pulls, across, bent)
        losses[e] = finish(r, m + r, dim, slope, room, pulls, across, bent, gradients[e])


@no_type_check
def _strip(r, nodes, dim, strip, strips, room, pulls, across, bent):
    """A share of one problem's tiles."""
    tiles(r, nodes, dim, strip, strips, room, _work(), pulls, across, bent)


@no_type_check
def _start(students, teachers):
    room = space(len(students), len(teachers), teachers.shape[1])
    prepare(students, teachers, room)
    return room


@no_type_check
def _end(r, nodes, dim, slope, room, pulls, across, bent, gradient):
    """The shares of all strips, added in their order."""
    for s in range(1, len(pulls)):
        pulls[0] += pulls[s]
        across[0] += across[s]
        bent[0] += bent[s]
    return finish(r, nodes, dim, slope, room, pulls[0], across[0], bent[0], gradient)


try:
    each, start, strip, end = (njit(nogil=True, cache=True)(f) for f in (_each, _start, _strip, _end))
except RuntimeError:  # there is no folder to keep compiled code in
    each, start, strip, end = (njit(nogil=True)(f) for f in (_each, _start, _strip, _end))
