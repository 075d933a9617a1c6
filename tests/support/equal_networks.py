"""Networks that are one function by construction, and networks with degenerate units."""

from itertools import pairwise

import numpy as np

from understudy.papers.equivalence.theory.canonical import permuted, rescaled
from understudy.papers.equivalence.theory.relu_network import ReluNetwork


def shuffled(network, seed, magnitudes=6.0):
    """Write a function with its units in another order and rescaled over so many orders of magnitude.

    Returns:
        The network, and the permutations and scalings of eq. 2.5 that lead back from it.
    """
    random = np.random.default_rng(seed)
    orders = [random.permutation(width) for width in network.hidden]
    factors = [10.0 ** random.uniform(-magnitudes / 2, magnitudes / 2, width) for width in network.hidden]
    changed = rescaled(permuted(network, orders), factors)
    back = [np.argsort(order) for order in orders]
    return changed, back, [1 / factor[order] for factor, order in zip(factors, back, strict=True)]


def changed_weight(network, layer, out, into, factor):
    """The network with one weight of a layer, counted from 1, multiplied."""
    weights = [weight.copy() for weight in network.weights]
    weights[layer - 1][out, into] *= factor
    return ReluNetwork(tuple(weights), network.biases, network.slope)


def with_unit(network, layer, row, bias, outgoing, gain=0.0):
    """The network with one more unit at the end of a hidden layer, counted from 1.

    With a gain, that share of the bias is taken off again above, so that a linear unit adds no large constant.
    """
    weights, biases = list(network.weights), list(network.biases)
    weights[layer - 1] = np.vstack((weights[layer - 1], row))
    biases[layer - 1] = np.append(biases[layer - 1], bias)
    weights[layer] = np.column_stack((weights[layer], outgoing))
    biases[layer] = biases[layer] - gain * bias * np.asarray(outgoing)
    return ReluNetwork(tuple(weights), tuple(biases), network.slope)


def by_hand(*layers, slope=0.0):
    """A network from (weights, biases) of its layers."""
    made = [(np.array(weight, float), np.array(bias, float)) for weight, bias in layers]
    for (below, _), (above, _) in pairwise(made):
        assert above.shape[1] == below.shape[0]
    return ReluNetwork(tuple(w for w, _ in made), tuple(b for _, b in made), slope)
