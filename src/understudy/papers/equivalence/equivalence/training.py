"""Students fitted to a small teacher in float64 until their loss is zero up to rounding.

The Levenberg–Marquardt method is compiled here, with every sum in a fixed order: sums of BLAS, LAPACK and MINPACK are
rounded in another way where arrays lie elsewhere in memory, and a trajectory that passes many folds then ends at
another minimum. Here the same seed gives the same student, bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import no_type_check

import numpy as np
from jaxtyping import Float
from numba import njit

from understudy.papers.equivalence.theory.relu_network import ReluNetwork, random_network

_EXACT = 1e-28
"""Loss, as a share of the variance, below which only rounding is left."""
_SMALL = 1e-15
"""Relative decrease of the loss, or relative length of a step, below which a minimum is reached."""
_DAMPING = 1e-3
"""Initial damping, relative to the diagonal of JᵀJ."""
_LARGEST = 1e12
"""Damping above which no step is accepted any more."""


def fit_student(
    teacher: ReluNetwork,
    hidden: Sequence[int],
    x: Float[np.ndarray, "sample in"],
    seed: int,
    steps: int,
) -> tuple[ReluNetwork, float]:
    """Fit a student to a teacher's outputs by the Levenberg–Marquardt method.

    Args:
        teacher: The teacher.
        hidden: Units of the student's hidden layers.
        x: Inputs.
        seed: Seed of the student's initial weights.
        steps: Maximum number of evaluations of the student.

    Returns:
        The student, and its mean squared error as a share of the variance of the teacher's outputs.
    """
    sizes = (teacher.sizes[0], *hidden, teacher.sizes[-1])
    x = np.ascontiguousarray(x, dtype=np.float64)
    target = _outputs(pack(teacher), np.array(teacher.sizes), teacher.slope, x)
    start = pack(random_network(sizes, seed, teacher.slope))
    loss = _fit(start, np.array(sizes), teacher.slope, x, target, steps)
    return unpack(start, sizes, teacher.slope), float(loss)


def pack(network: ReluNetwork) -> Float[np.ndarray, "parameter"]:
    """All parameters in one vector: weights and biases, layer by layer."""
    parts = [part.ravel() for pair in zip(network.weights, network.biases, strict=True) for part in pair]
    return np.concatenate(parts)


def unpack(parameters: Float[np.ndarray, "parameter"], sizes: Sequence[int], slope: float) -> ReluNetwork:
    """The network with these parameters."""
    weights, biases, start = [], [], 0
    for below, above in pairwise(sizes):
        weights.append(parameters[start : start + below * above].reshape(above, below))
        start += below * above
        biases.append(parameters[start : start + above])
        start += above
    return ReluNetwork(tuple(weights), tuple(biases), slope)


@njit
@no_type_check
def _forward(parameters, sizes, slope, values):
    """Fill values[l] with the activations of layer l, and its last row with the outputs, from the inputs values[0]."""
    at = 0
    for layer in range(len(sizes) - 1):
        below, above = sizes[layer], sizes[layer + 1]
        bias = at + below * above
        for j in range(above):
            total = 0.0
            for k in range(below):
                total += parameters[at + j * below + k] * values[layer, k]
            total += parameters[bias + j]
            values[layer + 1, j] = total if total > 0.0 or layer == len(sizes) - 2 else slope * total
        at = bias + above


@njit
@no_type_check
def _backward(parameters, sizes, slope, values, out, deltas, gradient):
    """Fill `gradient` with the derivatives of one output in all parameters, after `_forward`."""
    deltas[len(sizes) - 1] = 0.0
    deltas[len(sizes) - 1, out] = 1.0
    end = len(parameters)
    for layer in range(len(sizes) - 2, -1, -1):
        below, above = sizes[layer], sizes[layer + 1]
        bias = end - above
        start = bias - below * above
        for j in range(above):
            gradient[bias + j] = deltas[layer + 1, j]
            for k in range(below):
                gradient[start + j * below + k] = deltas[layer + 1, j] * values[layer, k]
        if layer:
            for k in range(below):
                total = 0.0
                for j in range(above):
                    total += deltas[layer + 1, j] * parameters[start + j * below + k]
                deltas[layer, k] = total if values[layer, k] > 0.0 else slope * total
        end = start


@no_type_check
def _outputs_of(parameters, sizes, slope, x):
    """Outputs of a network, [sample, out]."""
    values, found = np.zeros((len(sizes), sizes.max())), np.empty((len(x), sizes[-1]))
    for i in range(len(x)):
        values[0, : sizes[0]] = x[i]
        _forward(parameters, sizes, slope, values)
        found[i] = values[-1, : sizes[-1]]
    return found


@njit
@no_type_check
def _loss(parameters, sizes, slope, x, target, values):
    """Mean squared error."""
    total = 0.0
    for i in range(len(x)):
        values[0, : sizes[0]] = x[i]
        _forward(parameters, sizes, slope, values)
        for out in range(sizes[-1]):
            total += (values[-1, out] - target[i, out]) ** 2
    return total / target.size


@no_type_check
def _normal_equations_of(parameters, sizes, slope, x, target, square, slopes):
    """Fill the lower half of `square` with JᵀJ and `slopes` with Jᵀr, both divided by the number of residuals."""
    values, gradient = np.zeros((len(sizes), sizes.max())), np.empty(len(parameters))
    deltas = np.zeros_like(values)
    square[:] = 0.0
    slopes[:] = 0.0
    for i in range(len(x)):
        values[0, : sizes[0]] = x[i]
        _forward(parameters, sizes, slope, values)
        for out in range(sizes[-1]):
            _backward(parameters, sizes, slope, values, out, deltas, gradient)
            residual = values[-1, out] - target[i, out]
            for j in range(len(gradient)):
                if gradient[j] != 0.0:  # of units that are not active, nothing is added
                    slopes[j] += gradient[j] * residual
                    for k in range(j + 1):
                        square[j, k] += gradient[j] * gradient[k]
    square /= target.size
    slopes /= target.size


@njit
@no_type_check
def _solve(square, damping, slopes, factor, step):
    """Fill `step` with the solution of (A + diag(damping)) step = −slopes by Cholesky; False if A is not positive."""
    n = len(slopes)
    for i in range(n):
        for j in range(i + 1):
            total = square[i, j]
            if i == j:
                total += damping[i]
            for k in range(j):
                total -= factor[i, k] * factor[j, k]
            if i > j:
                factor[i, j] = total / factor[j, j]
            elif total > 0.0:
                factor[i, i] = np.sqrt(total)
            else:
                return False
    for i in range(n):
        total = -slopes[i]
        for k in range(i):
            total -= factor[i, k] * step[k]
        step[i] = total / factor[i, i]
    for i in range(n - 1, -1, -1):
        total = step[i]
        for k in range(i + 1, n):
            total -= factor[k, i] * step[k]
        step[i] = total / factor[i, i]
    return True


@njit
@no_type_check
def _variance(target):
    """Variance of the outputs, 1 where they are constant."""
    mean = variance = 0.0
    for value in target.flat:
        mean += value / target.size
    for value in target.flat:
        variance += (value - mean) ** 2 / target.size
    return variance if variance > 0.0 else 1.0


@no_type_check
def _fit_of(parameters, sizes, slope, x, target, steps):
    """Change `parameters` until the loss is zero or a minimum, and return the loss as a share of the variance.

    The damping is relative to the largest diagonal of JᵀJ until now (Moré 1978), and changed as by Nielsen (1999).
    """
    n, variance = len(parameters), _variance(target)
    values = np.zeros((len(sizes), sizes.max()))
    square, factor = np.empty((n, n)), np.zeros((n, n))
    slopes, step, scale = np.empty(n), np.empty(n), np.zeros(n)
    loss = _loss(parameters, sizes, slope, x, target, values)
    damping, growth, moved = _DAMPING, 2.0, True
    for _ in range(steps - 1):
        if loss <= _EXACT * variance or damping > _LARGEST:
            break
        if moved:
            _normal_equations(parameters, sizes, slope, x, target, square, slopes)
            for i in range(n):
                scale[i] = max(scale[i], square[i, i])
            moved = False
        weights = np.where(scale > 0.0, scale, 1.0) * damping
        solved = _solve(square, weights, slopes, factor, step)
        expected = length = norm = 0.0
        if solved:
            for i in range(n):
                expected += step[i] * (weights[i] * step[i] - slopes[i])
                length += step[i] ** 2
                norm += parameters[i] ** 2
            there = parameters + step
            reached = _loss(there, sizes, slope, x, target, values)
            gain = (loss - reached) / expected if expected > 0.0 else 0.0
        if solved and gain > 0.0:
            small = loss - reached <= _SMALL * loss and expected <= _SMALL * loss
            parameters[:] = there
            loss, moved, growth = reached, True, 2.0
            damping *= max(1 / 3, 1 - (2 * gain - 1) ** 3)
            if small:
                break
        else:
            damping *= growth
            growth *= 2.0
            if solved and length <= _SMALL**2 * norm:
                break
    return loss / variance


try:
    _outputs, _fit = njit(cache=True)(_outputs_of), njit(cache=True)(_fit_of)
    _normal_equations = njit(cache=True)(_normal_equations_of)
except RuntimeError:  # no writable folder to cache compiled code
    _outputs, _fit = njit()(_outputs_of), njit()(_fit_of)
    _normal_equations = njit()(_normal_equations_of)
