"""Gauss–Newton steps on all parameters at once, from parameters that are nearly right."""

from __future__ import annotations

import numpy as np
from scipy.linalg import lstsq

from understudy.papers.equivalence.theory.relu_network import ReluNetwork

_CHUNK = 4000
_NULL = 1e-13
"""Eigenvalue of the normalised normal matrix, relative to the largest, below which a direction has no effect."""


def parameter_jacobian(network: ReluNetwork, z: np.ndarray) -> np.ndarray:
    """Derivatives of all outputs at all points with respect to W_1, b_1, W_2, … in this order, as rows."""
    pre = network.preactivations(z)
    activations = [z, *(network.activate(u) for u in pre[:-1])]
    outputs = len(network.biases[-1])
    back = np.tile(np.eye(outputs), (len(z), 1, 1))
    parts: list[np.ndarray] = []
    for i in range(len(network.weights) - 1, -1, -1):
        weight = back[..., None] * activations[i][:, None, None, :]
        parts = [weight.reshape(len(z) * outputs, -1), back.reshape(len(z) * outputs, -1), *parts]
        if i:
            back = (back @ network.weights[i]) * np.where(pre[i - 1] > 0, 1.0, network.slope)[:, None, :]
    return np.concatenate(parts, axis=1)


def undetermined(network: ReluNetwork, z: np.ndarray) -> int:
    """Number of directions in which parameters can change, besides rescaling units, without any effect at the points.

    Where it is above zero, the function does not determine the parameters: they have other values with the same
    outputs. The derivatives are those of the outputs, so that this is exact for small changes of a network at points
    that are on none of its folds.
    """
    parameters = sum(weight.size + len(bias) for weight, bias in zip(network.weights, network.biases, strict=True))
    normal = np.zeros((parameters, parameters))
    for some in np.array_split(z, -(-len(z) // _CHUNK)):
        jacobian = parameter_jacobian(network, some)
        normal += jacobian.T @ jacobian
    size = np.sqrt(np.diag(normal))
    size[size == 0] = 1.0
    values = np.linalg.eigvalsh(normal / size / size[:, None])
    return max(int((values < _NULL * values[-1]).sum()) - sum(network.hidden), 0)


def informative(network: ReluNetwork, z: np.ndarray, each: int = 2) -> np.ndarray:
    """Choose the points at which single parameters have most effect, `each` for every parameter and output."""
    parts = np.array_split(z, -(-len(z) // _CHUNK))
    if len(parts) > 1:
        return informative(network, np.concatenate([informative(network, part, each) for part in parts])[:_CHUNK], each)
    jacobian = np.abs(parameter_jacobian(network, z))
    rows = np.argpartition(jacobian, len(jacobian) - each, axis=0)[-each:]
    return np.asarray(z[np.unique(rows // len(network.biases[-1]))])


def polish(network: ReluNetwork, z: np.ndarray, f: np.ndarray, weakest: float = 1e-8, steps: int = 3) -> ReluNetwork:
    """Improve a network by Gauss–Newton steps, as long as its largest error at the points falls.

    Args:
        network: A network near to the function.
        z: Points.
        f: Values of the function there.
        weakest: Relative size of directions below which a step leaves them as they are: rounding may change them more
            than errors do.
        steps: Most steps.

    Returns:
        The best network met.
    """
    best = float(np.abs(network(z) - f).max())
    for _ in range(steps):
        jacobian = parameter_jacobian(network, z)
        size = np.linalg.norm(jacobian, axis=0)
        size[size == 0] = 1.0
        step = lstsq(jacobian / size, (f - network(z)).reshape(-1), cond=weakest, lapack_driver="gelsy")[0] / size
        trial = _moved(network, step)
        error = float(np.abs(trial(z) - f).max())
        if not error < best:
            break
        network, improved, best = trial, error < 0.5 * best, error
        if not improved:
            break
    return network


def _moved(network: ReluNetwork, step: np.ndarray) -> ReluNetwork:
    weights, biases, at = [], [], 0
    for weight, bias in zip(network.weights, network.biases, strict=True):
        weights.append(weight + step[at : at + weight.size].reshape(weight.shape))
        at += weight.size
        biases.append(bias + step[at : at + bias.size])
        at += bias.size
    return ReluNetwork(tuple(weights), tuple(biases), network.slope)
