"""Training steps of fully connected networks on the CPU (engine `compiled`): SGD and Adam, two objectives, any depth.

One network is trained after the other. Every layer but the last has its weights as [node, input], the biases as last
column; the last has them as [input, output], the biases as last row. Biases are the weights of an additional input, or
hidden node, that is always 1.
"""

import math
from typing import Any, no_type_check

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.numpy_support import carray

from understudy.training.kernels.cpu import (
    ROWS,
    draw,
    matrix,
    multiply,
    prefetch,
    submatrix,
    transpose,
    transpose_matrix,
)

PLAIN, MOMENTUM, ADAM = range(3)
"""Update rules."""
_BLOCK = 64
"""Rows of weights that are read for the gradient of a layer's inputs and then updated, while they are in the cache."""


@intrinsic
def _pointer(_: Any, like: Any, address: Any) -> Any:
    """Convert an address to a pointer to numbers of the type of `like`."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.inttoptr(values[1], context.get_value_type(like).as_pointer())

    return types.CPointer(like)(like, types.int64), generate


@intrinsic
def _larger(_: Any, one: Any, other: Any) -> Any:
    """Return the larger of two numbers, or NaN if one of them is."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        number = context.get_value_type(one)
        kind = ir.FunctionType(number, [number] * 2)
        maximum = cgutils.get_or_insert_function(builder.module, kind, f"llvm.maximum.f{one.bitwidth}")
        return builder.call(maximum, values)

    return one(one, one), generate


@intrinsic
def exp(_: Any, x: Any) -> Any:
    """Compute eˣ for x ≤ 0 by operations that a compiler can do for several numbers at once; NaN for NaN.

    With x = k ln 2 + r, |r| ≤ ½ ln 2, it is 2ᵏ times the Taylor series of eʳ. Numbers below the smallest normal one are
    replaced by about that.
    """
    single = x.bitwidth == 32
    terms, mantissa, bias, least = (7, 23, 127, -87.0) if single else (13, 52, 1023, -708.0)

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        number, whole = context.get_value_type(x), ir.IntType(x.bitwidth)
        kind = ir.FunctionType(number, [number] * 3)
        fma = cgutils.get_or_insert_function(builder.module, kind, f"llvm.fma.f{x.bitwidth}")
        high = float(np.float32(math.log(2))) if single else math.log(2)
        low = math.log(2) - high if single else 2.3190468138462996e-17
        # The last bit of this number is worth 1: adding it rounds a small number to an integer, in the last bits.
        magic = number(1.5 * 2.0**mantissa)
        given = builder.select(builder.fcmp_ordered("<", values[0], number(least)), number(least), values[0])
        shifted = builder.call(fma, [given, number(1 / math.log(2)), magic])
        count = builder.fsub(shifted, magic)
        rest = builder.call(fma, [count, number(-low), builder.call(fma, [count, number(-high), given])])
        series = number(1 / math.factorial(terms))
        for term in reversed(range(terms)):
            series = builder.call(fma, [series, rest, number(1 / math.factorial(term))])
        exponent = builder.shl(builder.bitcast(shifted, whole), whole(mantissa))
        power = builder.bitcast(builder.add(exponent, whole(bias << mantissa)), number)
        return builder.fmul(series, power)

    return x(x), generate


@njit(inline="always")
@no_type_check
def _matrix(table, layer, net):
    """A matrix of one network: its address, and the bytes from row to row and from column to column."""
    return table[layer, 0] + net * table[layer, 1], table[layer, 2], table[layer, 3]


@njit(inline="always")
@no_type_check
def _turn(matrix):
    """Describe a matrix transposed."""
    return matrix[0], matrix[2], matrix[1]


@njit(inline="always")
@no_type_check
def _numbers(like, matrix, rows):
    """View some rows as one array, padding included."""
    return carray(_pointer(like, matrix[0]), rows * matrix[1] // matrix[2])


@njit
@no_type_check
def _copy_rows(table, rows, into, coming):
    """Copy rows of a table, and prefetch those of the next step."""
    for i in range(len(rows)):
        row = table[rows[i]]
        for column in range(len(row)):
            into[i, column] = row[column]
        for byte in range(0, table.strides[0], 64):
            prefetch(table.ctypes.data + coming[i] * table.strides[0] + byte)


@njit
@no_type_check
def _gate(z, source, to, slope):
    """Copy `source` where z ≥ 0, and slope × source elsewhere: activations (source = z) or gradients."""
    for i in range(len(z)):
        to[i] = source[i] if z[i] >= 0 else slope * source[i]


@njit(fastmath={"reassoc"})
@no_type_check
def _squared_error(o, y, delta, scale):
    """Compute scaled residuals and return the sum of squares of the unscaled ones. Padding is zero and stays zero."""
    total = scale - scale
    for i in range(len(o)):
        difference = o[i] - y[i]
        total += difference * difference
        delta[i] = scale * difference
    return total


@njit
@no_type_check
def _largest(o, outputs):
    top = o[0]
    for c in range(1, outputs):
        top = _larger(top, o[c])
    return top


@njit
@no_type_check
def _exponentials(o, outputs, top, into):
    """Subtract the largest output from all, in place, and compute their exponentials."""
    for c in range(outputs):
        o[c] -= top
        into[c] = exp(o[c])


@njit(fastmath={"reassoc"})
@no_type_check
def _sum(numbers, count):
    total = numbers[0] - numbers[0]
    for i in range(count):
        total += numbers[i]
    return total


@njit(fastmath={"reassoc"})
@no_type_check
def _surprise(o, y, outputs, log):
    total = log - log
    for c in range(outputs):
        total += y[c] * (log - o[c])
    return total


@njit
@no_type_check
def _softmax_residual(exponentials, y, outputs, share, scale):
    for c in range(outputs):
        exponentials[c] = scale * (share * exponentials[c] - y[c])


@njit(error_model="numpy")
@no_type_check
def _cross_entropy(o, y, delta, batch, outputs, scale):
    """Compute scaled residuals softmax(o) − y and return the sum of the losses −Σ y log softmax(o)."""
    loss, one = scale - scale, delta.dtype.type(1)
    for i in range(batch):
        top = _largest(o[i], outputs)
        _exponentials(o[i], outputs, top, delta[i])
        total = _sum(delta[i], outputs)
        loss += _surprise(o[i], y[i], outputs, np.log(total))
        _softmax_residual(delta[i], y[i], outputs, one / total, scale)
    return loss


@njit
@no_type_check
def _step_by_momentum(w, g, m, c):
    """Update by SGD with momentum: weight decay, momentum, then the step."""
    rate, decay, momentum, own, past = c[0], c[1], c[2], c[3], c[4]
    for i in range(len(w)):
        slope = g[i] + decay * w[i]
        m[i] = momentum * m[i] + slope
        w[i] -= rate * (own * slope + past * m[i])


@njit(error_model="numpy")
@no_type_check
def _step_by_adam(w, g, m, v, c):
    """Update by Adam: weight decay, both moments, then the step."""
    rate, decay, first, one_first, second, one_second, root, eps = c[0], c[1], c[2], c[3], c[4], c[5], c[6], c[7]
    for i in range(len(w)):
        m[i] = first * m[i] + one_first * g[i]
        v[i] = second * v[i] + one_second * (g[i] * g[i])
        w[i] = (w[i] - decay * w[i]) - rate * (m[i] / (root * np.sqrt(v[i]) + eps))


@njit
@no_type_check
def _update(like, rule, c, w, m, v, g, a, b, rows, depth, columns):
    """Update rows of weights by the gradient A·B: in the product itself if the rule is plain, else ROWS at a time."""
    if rule == PLAIN:
        multiply(like, w, a, b, rows, depth, columns, 1, float(c[0]))
        return
    gradient = g.ctypes.data, w[1], w[2]
    for row in range(0, rows, ROWS):
        count = min(ROWS, rows - row)
        multiply(like, gradient, submatrix(a, row, 0), b, count, depth, columns, 0, 0.0)
        weights, first = _numbers(like, submatrix(w, row, 0), count), _numbers(like, submatrix(m, row, 0), count)
        if rule == MOMENTUM:
            _step_by_momentum(weights, g, first, c)
        else:
            _step_by_adam(weights, g, first, _numbers(like, submatrix(v, row, 0), count), c)


@njit
@no_type_check
def _set_coefficients(rule, rate, step, given, c):
    """Set the numbers that the update of one network needs in one step."""
    if rule == PLAIN:
        c[0] = rate * given[0]
    elif rule == MOMENTUM:
        c[0], c[1], c[2], c[3], c[4] = rate, given[0], given[1], given[2], given[3]
    else:
        decay, first, second, eps = given
        taken = float(step + 1)
        c[0], c[1] = rate / (1 - math.pow(first, taken)), rate * decay
        c[2], c[3], c[4], c[5] = first, 1 - first, second, 1 - second
        c[6], c[7] = 1 / math.sqrt(1 - math.pow(second, taken)), eps


@no_type_check
def _steps(slope, sizes, bias, entropy, rule, given, layers, work, data, first, losses):
    """Run all steps of every network.

    `layers` describes matrices by layer: weights and two slots of every network, and, for the current network, values z
    before and h after activation, h transposed, and the gradients of h and z.
    """
    weights, first_slot, second_slot, before, hidden, turned, raw, gradients = layers
    x, x_t, y, o, delta, delta_t, rows, coming, c, g = work
    inputs, targets, set_of, teacher_of, seeds, rates, scale = data
    last, batch, width, samples = len(sizes) - 2, len(rows), x_t.shape[1], inputs.shape[1]
    outputs, columns = sizes[last + 1], o.shape[1]
    for e in range(len(seeds)):
        ours, theirs = inputs[set_of[e]], targets[teacher_of[e]]
        draw(coming, seeds[e], first, samples)
        for step in range(losses.shape[1]):
            rows, coming = coming, rows
            draw(coming, seeds[e], first + step + 1, samples)
            _copy_rows(ours, rows, x, coming)
            _copy_rows(theirs, rows, y, coming)
            transpose(x_t, x)
            _set_coefficients(rule, rates[e], first + step, given, c)
            h = matrix(x_t)
            for i in range(last):
                w, z, nodes, below = _matrix(weights, i, e), _matrix(before, i, 0), sizes[i + 1], h
                h = _matrix(hidden, i, 0)
                multiply(slope, z, w, below, nodes, sizes[i] + bias, width, 0, 0.0)
                values = _numbers(slope, z, nodes)
                _gate(values, values, _numbers(slope, h, nodes), slope)
                if i < last - 1:
                    h_t = _matrix(turned, i, 0)
                    transpose_matrix(slope, h_t, h, h_t[1] // h_t[2], width)
            v, nodes = _matrix(weights, last, e), sizes[last]
            multiply(slope, matrix(o), _turn(h), v, batch, nodes + bias, columns, 0, 0.0)
            if entropy:
                losses[e, step] = _cross_entropy(o, y, delta, batch, outputs, scale[e]) / batch
            else:
                total = _squared_error(o.ravel(), y.ravel(), delta.ravel(), scale[e])
                losses[e, step] = total / (batch * outputs)
            if last:
                transpose(delta_t, delta)
                multiply(slope, _matrix(raw, last - 1, 0), v, matrix(delta_t), nodes, outputs, width, 0, 0.0)
            m, s = _matrix(first_slot, last, e), _matrix(second_slot, last, e)
            _update(slope, rule, c, v, m, s, g, h, matrix(delta), nodes + bias, batch, columns)
            for i in range(last - 1, -1, -1):
                nodes, dz = sizes[i + 1], _matrix(gradients, i, 0)
                values, into = _numbers(slope, _matrix(before, i, 0), nodes), _numbers(slope, dz, nodes)
                _gate(values, _numbers(slope, _matrix(raw, i, 0), nodes), into, slope)
                below = _matrix(turned, i - 1, 0) if i else matrix(x)
                for row in range(0, nodes, _BLOCK):
                    count = min(_BLOCK, nodes - row)
                    w, part = submatrix(_matrix(weights, i, e), row, 0), submatrix(dz, row, 0)
                    if i:
                        above = _matrix(raw, i - 1, 0)
                        multiply(slope, above, _turn(w), part, sizes[i], count, width, 1 if row else 0, 0.0)
                    m, s = submatrix(_matrix(first_slot, i, e), row, 0), submatrix(_matrix(second_slot, i, e), row, 0)
                    _update(slope, rule, c, w, m, s, g, part, below, count, batch, w[1] // w[2])


try:
    run_steps = njit(nogil=True, cache=True)(_steps)
except RuntimeError:  # no writable folder for numba's cache
    run_steps = njit(nogil=True)(_steps)
