"""Derivatives of a network's outputs in its parameters, by the compiled code that fits students."""

import numpy as np

from understudy.papers.equivalence.equivalence.training import _backward, _forward, pack


def parameter_gradients(network, x):
    """Derivatives of all outputs in all parameters, [sample and output, parameter], in the order of `pack`."""
    parameters, sizes, slope = pack(network), np.array(network.sizes), network.slope
    values, outs = np.zeros((len(sizes), sizes.max())), sizes[-1]
    deltas, found = np.zeros_like(values), np.empty((len(x) * outs, len(parameters)))
    for i, row in enumerate(x):
        values[0, : sizes[0]] = row
        _forward(parameters, sizes, slope, values)
        for out in range(outs):
            _backward(parameters, sizes, slope, values, out, deltas, found[i * outs + out])
    return found
