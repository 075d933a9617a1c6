"""Random networks by how much of the box their units fold, and their recovery from values."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from understudy._random import Stream, generator
from understudy.papers.equivalence.theory.domain import Box, as_box
from understudy.papers.equivalence.theory.matching import match_units
from understudy.papers.equivalence.theory.recovery import recover_network
from understudy.papers.equivalence.theory.recovery.polish import undetermined
from understudy.papers.equivalence.theory.relu_network import ReluNetwork, random_network

SAMPLES = 20_000
"""Points by which the share of the box on the smaller side of a fold is measured."""
MOST_DRAWN = 600
"""Networks drawn of one architecture before too few of them fold enough."""
_FEWEST_POINTS, _MOST_POINTS, _WORK = 10_000, 40_000, 4_000_000_000
"""Points at which it is tested whether parameters have an effect, and the work that their number is chosen for."""


class DrawnNetwork(NamedTuple):
    """A random network, chosen by how much of the box its units fold.

    Attributes:
        seed: Its seed.
        share: Smallest share of the box on the smaller side of a unit's fold.
    """

    seed: int
    share: float


def smallest_share(network: ReluNetwork, box: Box) -> float:
    """Smallest share of the box on the smaller side of a unit's fold, by sampling."""
    x = box.draw(generator(1, Stream.RECOVERY, 1 << 31), SAMPLES)
    active = np.concatenate([(u > 0).mean(0) for u in network.preactivations(x)[:-1]])
    return float(np.minimum(active, 1 - active).min())


@cache
def draw(sizes: tuple[int, ...], least: float, most: float, count: int) -> tuple[tuple[DrawnNetwork, ...], int]:
    """Draw networks until there are enough of which every unit folds at least `least` of the box, and one below `most`.

    Args:
        sizes: Units from the inputs to the outputs.
        least: Smallest share of the box.
        most: Share below which one unit of each network must be.
        count: Number of networks.

    Returns:
        The networks, fewer if they are rare, and how many others were drawn.
    """
    box, others = as_box(None, sizes[0]), 0
    found: list[DrawnNetwork] = []
    for seed in range(1, MOST_DRAWN + 1):
        if len(found) == count:
            break
        share = smallest_share(random_network(sizes, seed), box)
        if least <= share < most:
            found.append(DrawnNetwork(seed, share))
        else:
            others += 1
    return tuple(found), others


def measure_recovery(sizes: tuple[int, ...], drawn: DrawnNetwork, most_evaluations: int) -> dict[str, Any]:
    """Recover one network from its values on [−2, 2]^d, and compare the parameters found with its own."""
    network, box = random_network(sizes, drawn.seed), as_box(None, sizes[0])
    found = recover_network(lambda x: network(x), box, sizes, seed=drawn.seed, most_evaluations=most_evaluations)
    error = np.nan
    if found.network.sizes == network.sizes and abs(found.network.slope - network.slope) < 1e-9:
        error = match_units(network, replace(found.network, slope=network.slope)).largest
    parameters = sum(weight.size + len(bias) for weight, bias in zip(network.weights, network.biases, strict=True))
    points = min(max(_FEWEST_POINTS, _WORK // parameters**2), _MOST_POINTS)
    x = box.draw(generator(drawn.seed, Stream.RECOVERY, 1 << 31), points)
    x[points // 2 :] = np.where(x[points // 2 :] > 0, box.upper, box.lower)
    return {
        "seed": drawn.seed,
        "share": drawn.share,
        "parameters": parameters,
        "complete": found.complete,
        "residual": found.residual,
        "error": float(error),
        "evaluations": found.evaluations,
        "units": len(found.units),
        "free": undetermined(network, x),
        "missing": "; ".join(found.unrecoverable),
    }
