"""Matrix products on the CPU, compiled by numba, and the probe of two-layer networks (`fused_cpu`) built of them.

All matrix products use one kernel, `_tile`, whose sums stay in registers. Samples are the columns of activations, and
inputs and outputs the columns of weights, so that hidden nodes, of which there may be few, are never padded. No sum
includes padding, or depends on other networks in the batch or on the position in memory.
"""

from typing import Any, no_type_check

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from understudy._random import Stream

ROWS = 8
"""Rows of a tile: enough simultaneous sums to hide the latency of each."""
PAD = 8
"""Rows of matrices are padded to a multiple of this many numbers."""
PIECE, PIVOTS = 256, 64
"""Samples probed at once, and the first samples whose means serve as pivots."""
_STREAM = int(Stream.BATCH)

# A matrix in compiled code: its address, the bytes from row to row, and the bytes from column to column.
_MATRIX = types.UniTuple(types.int64, 3)
_INT, _INDEX = ir.IntType(64), ir.IntType(32)


def _pointer(builder: Any, kind: Any, base: Any, *steps: tuple[Any, Any]) -> Any:
    """Build a pointer to base + Σ count × bytes."""
    for count, size in steps:
        base = builder.add(base, builder.mul(count, size))
    return builder.inttoptr(base, kind.as_pointer())


def _shuffle(builder: Any, one: Any, other: Any, picks: list[int]) -> Any:
    return builder.shuffle_vector(one, other, ir.Constant(ir.VectorType(_INDEX, len(picks)), picks))


def _broadcast(builder: Any, one: Any, lanes: int) -> Any:
    undefined = ir.Constant(ir.VectorType(one.type, lanes), ir.Undefined)
    return _shuffle(builder, builder.insert_element(undefined, one, _INDEX(0)), undefined, [0] * lanes)


@intrinsic(prefer_literal=True)
def _tile(_: Any, zero: Any, width: Any, rows: Any, c: Any, a: Any, b: Any, depth: Any, add: Any, decay: Any) -> Any:
    """Compute C = A·B or C += A·B − decay·C for 1 to ROWS rows and `width` bytes of columns.

    B and C have contiguous rows.
    """
    lanes, size = width.literal_value * 8 // zero.bitwidth, zero.bitwidth // 8

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        rows, c, a, b, depth, add, decay = values[2:]
        (c, c_row, _), (a, a_row, a_column), (b, b_row, _) = (cgutils.unpack_tuple(builder, m, 3) for m in (c, a, b))
        number = context.get_value_type(zero)
        vector = ir.VectorType(number, lanes)
        nothing = ir.Constant(vector, None)
        kind = ir.FunctionType(vector, [vector] * 3)
        fma = cgutils.get_or_insert_function(builder.module, kind, f"llvm.fma.v{lanes}f{zero.bitwidth}")
        adding = builder.icmp_signed("!=", add, _INT(0))
        decaying = builder.fcmp_unordered("!=", decay, ir.Constant(number, 0.0))
        factor = _broadcast(builder, decay, lanes)

        def instance(count: int) -> None:
            into = [_pointer(builder, vector, c, (_INT(r), c_row)) for r in range(count)]
            above, loop, below = builder.block, builder.append_basic_block("loop"), builder.append_basic_block("below")
            builder.branch(loop)
            builder.position_at_end(loop)
            t, sums = builder.phi(_INT), [builder.phi(vector) for _ in range(count)]
            right, ends = builder.load(_pointer(builder, vector, b, (t, b_row)), align=size), []
            for r in range(count):
                left = builder.load(_pointer(builder, number, a, (_INT(r), a_row), (t, a_column)), align=size)
                ends.append(builder.call(fma, [_broadcast(builder, left, lanes), right, sums[r]]))
            after = builder.add(t, _INT(1))
            for phi, first, last in zip((t, *sums), (_INT(0), *[nothing] * count), (after, *ends), strict=True):
                phi.add_incoming(first, above)
                phi.add_incoming(last, loop)
            builder.cbranch(builder.icmp_signed("<", after, depth), loop, below)
            builder.position_at_end(below)
            for end, place in zip(ends, into, strict=True):
                # Added at the end: small terms added one by one to a large number would be rounded away.
                before = builder.select(adding, builder.load(place, align=size), nothing)
                change = builder.select(decaying, builder.fsub(end, builder.fmul(factor, before)), end)
                builder.store(builder.fadd(before, change), place, align=size)

        done = builder.append_basic_block("done")
        switch = builder.switch(rows, done)
        for count in range(1, ROWS + 1):
            switch.add_case(_INT(count), block := builder.append_basic_block(f"rows{count}"))
            builder.position_at_end(block)
            instance(count)
            builder.branch(done)
        builder.position_at_end(done)
        return context.get_dummy_value()

    kinds = (zero, width, types.int64, _MATRIX, _MATRIX, _MATRIX, types.int64, types.int64, zero)
    return types.void(*kinds), generate


@intrinsic
def _transpose_tile(_: Any, zero: Any, to: Any, source: Any) -> Any:
    """Transpose PAD rows and columns: interleave the two halves of the rows log₂ PAD times."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        vector, size, half = ir.VectorType(context.get_value_type(zero), PAD), zero.bitwidth // 8, PAD // 2
        to, source = (
            [_pointer(builder, vector, base, (_INT(r), row)) for r in range(PAD)]
            for base, row, _ in (cgutils.unpack_tuple(builder, m, 3) for m in values[1:])
        )
        rows = [builder.load(place, align=size) for place in source]
        picks = [[first + j // 2 + PAD * (j % 2) for j in range(PAD)] for first in (0, half)]
        for _ in range(PAD.bit_length() - 1):
            rows = [_shuffle(builder, rows[r // 2], rows[r // 2 + half], picks[r % 2]) for r in range(PAD)]
        for row, place in zip(rows, to, strict=True):
            builder.store(row, place, align=size)
        return context.get_dummy_value()

    return types.void(zero, _MATRIX, _MATRIX), generate


@intrinsic
def prefetch(_: Any, address: Any) -> Any:
    """Prefetch a line of memory into the level-2 cache; level 1 is full of weights."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        pointer = ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [pointer, _INDEX, _INDEX, _INDEX])
        prefetch = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        builder.call(prefetch, [builder.inttoptr(values[0], pointer), _INDEX(0), _INDEX(2), _INDEX(1)])
        return context.get_dummy_value()

    return types.void(types.int64), generate


@njit(inline="always")
@no_type_check
def matrix(array):
    """Describe an array as a matrix."""
    return np.int64(array.ctypes.data), array.strides[0], array.strides[1]


@njit
@no_type_check
def submatrix(m, row, column):
    """Describe the part of a matrix that begins at a row and a column."""
    return m[0] + row * m[1] + column * m[2], m[1], m[2]


@njit
@no_type_check
def multiply(zero, c, a, b, rows, depth, columns, add, decay):
    """Compute C = A·B or C += A·B − decay·C for matrices with a multiple of PAD columns."""
    lanes = 64 // c[2]
    for column in range(0, columns, lanes):
        for row in range(0, rows, ROWS):
            into, left, right = submatrix(c, row, column), submatrix(a, row, 0), submatrix(b, 0, column)
            if column + lanes <= columns:
                _tile(zero, 64, min(rows - row, ROWS), into, left, right, depth, add, decay)
            else:
                _tile(zero, 32, min(rows - row, ROWS), into, left, right, depth, add, decay)


@njit(inline="always")
@no_type_check
def product(c, a, b, rows, depth, add):
    """Compute C = A·B or C += A·B for `rows` rows of C, `depth` rows of B and all columns, a multiple of PAD."""
    multiply(c[0, 0], matrix(c), matrix(a), matrix(b), rows, depth, c.shape[1], np.int64(add), 0.0)


@njit
@no_type_check
def transpose_matrix(zero, to, source, rows, columns):
    """Transpose a matrix whose rows and columns are multiples of PAD."""
    for row in range(0, rows, PAD):
        for column in range(0, columns, PAD):
            _transpose_tile(zero, submatrix(to, column, row), submatrix(source, row, column))


@njit(inline="always")
@no_type_check
def transpose(to, source):
    """Transpose an array whose rows and columns are multiples of PAD."""
    transpose_matrix(to[0, 0], matrix(to), matrix(source), source.shape[0], source.shape[1])


@njit
@no_type_check
def draw(rows, seed, step, samples):
    """Draw the rows of `batch_indices` for one seed and step, by Philox as in `_random`."""
    word, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    for lane in range(0, len(rows), 4):
        c0, c1, c2, c3 = np.uint64(lane // 4), np.uint64(step) & word, np.uint64(step) >> half, np.uint64(_STREAM)
        k0, k1 = np.uint64(seed) & word, np.uint64(seed) >> half
        for _ in range(10):
            low, high = c0 * np.uint64(0xD2511F53), c2 * np.uint64(0xCD9E8D57)
            c0, c1, c2, c3 = (high >> half) ^ c1 ^ k0, high & word, (low >> half) ^ c3 ^ k1, low & word
            k0, k1 = (k0 + np.uint64(0x9E3779B9)) & word, (k1 + np.uint64(0xBB67AE85)) & word
        for i, bits in enumerate((c0, c1, c2, c3)):
            if lane + i < len(rows):
                rows[lane + i] = np.int64((bits * np.uint64(samples)) >> half)


@njit
@no_type_check
def _activate(h, count, bias, slope, pivot):
    """Replace pre-activations h by activations minus pivots, in place."""
    for i in range(count):
        row = h[i]
        for k in range(len(row)):
            z = row[k] + bias[k]
            row[k] = (z if z >= 0 else slope * z) - pivot[k]


@njit
@no_type_check
def _column_sums(h, count, sums, squares):
    """Sum values and squares of every column, four rows at a time; rows after the last are set to zero."""
    sums[:], squares[:], h[count : -(-count // 4) * 4] = 0, 0, 0
    for i in range(0, count, 4):
        for k in range(h.shape[1]):
            one, two, three, four = h[i, k], h[i + 1, k], h[i + 2, k], h[i + 3, k]
            sums[k] += (one + two) + (three + four)
            squares[k] += (one * one + two * two) + (three * three + four * four)


@njit
@no_type_check
def _add_errors(o, count, base, targets, errors):
    """Add the squared errors of outputs o + base to `errors`, per output."""
    for i in range(count):
        for c in range(targets.shape[1]):
            difference = o[i, c] + base[c] - targets[i, c]
            errors[c] += difference * difference


@no_type_check
def _probe(ws, bs, vs, cs, slope, inputs, hidden, targets, set_of, teacher_of, work, losses, means, squares, crosses):
    """Compute losses and moments of every network. w[input, node], v[node, output]; teacher activations are centred."""
    h, o, cross, pivot, some, square, base, errors = work
    samples, dim, nodes = inputs.shape[1], inputs.shape[2], vs.shape[1]
    for e in range(len(ws)):
        x, g, y = inputs[set_of[e]], hidden[teacher_of[e]].T, targets[teacher_of[e]]
        # Moments are taken around the mean of the first samples, near the mean of all, which avoids cancellation.
        first = min(PIVOTS, samples)
        pivot[:] = 0
        product(h, x, ws[e], first, dim, False)
        _activate(h, first, bs[e], slope, pivot)
        _column_sums(h, first, some, square)
        for k in range(len(pivot)):
            pivot[k] = some[k] / first
        base[:] = cs[e]
        for k in range(nodes):
            for c in range(len(base)):
                base[c] += pivot[k] * vs[e, k, c]
        for start in range(0, samples, PIECE):
            count = min(PIECE, samples - start)
            product(h, x[start:], ws[e], count, dim, False)
            _activate(h, count, bs[e], slope, pivot)
            _column_sums(h, count, some, square)
            product(o, h, vs[e], count, nodes, False)
            errors[:] = 0
            _add_errors(o, count, base, y[start:], errors)
            for error in errors:
                losses[e] += error
            product(cross, g[:, start:], h, len(g), count, False)
            for k in range(nodes):
                means[e, k] += some[k]
                squares[e, k] += square[k]
            for j in range(len(g)):
                for k in range(nodes):
                    crosses[e, j, k] += cross[j, k]
        for k in range(nodes):
            squares[e, k] -= means[e, k] * means[e, k] / samples
            means[e, k] = pivot[k] + means[e, k] / samples


try:
    probe = njit(nogil=True, cache=True)(_probe)
except RuntimeError:  # no writable folder for numba's cache
    probe = njit(nogil=True)(_probe)
