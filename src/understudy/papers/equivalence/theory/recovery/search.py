"""Recovering a network layer by layer, with a state that can be saved between steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from understudy._random import Stream, generator
from understudy.papers.equivalence.theory.domain import Box
from understudy.papers.equivalence.theory.recovery.known import KnownLayers
from understudy.papers.equivalence.theory.recovery.layer import LayerSearch, PointPool
from understudy.papers.equivalence.theory.recovery.oracle import ExhaustedError, Function, Oracle
from understudy.papers.equivalence.theory.recovery.output import EXPLAINED, Output, fit_output
from understudy.papers.equivalence.theory.recovery.polish import informative, polish
from understudy.papers.equivalence.theory.recovery.sampling import points_to_determine, sample_points
from understudy.papers.equivalence.theory.recovery.unit import Unit
from understudy.papers.equivalence.theory.relu_network import ReluNetwork

COMPLETE = 1e-10
"""Largest residual of a complete recovery, as a share of the outputs' scale."""
FRESH = 1000
"""Fresh inputs on which the residual is measured: half of them uniform in the box, half corners."""
IDLE_LINES = 300
"""Number of lines in a row without a new unit after which the search of a layer of known width ends."""
IDLE_LINES_OPEN = 100
"""Number of lines in a row without a new unit after which the search of a layer of unknown width ends."""
IDLE_LINES_EMPTY = 50
"""Number of such lines after which a layer without any unit shows that a unit below it is wrong."""
MOST_RETREATS = 4
"""How often layers are searched again because the one above them is not found."""
MOST_LAYERS = 6
"""Most hidden layers that are tried where the depth is not known."""
_POLISHED, _NEAR = 1e-12, 1e-4
"""Errors between which all parameters are refined at once."""
_CANDIDATES = 12_000


@dataclass(eq=False)
class RecoveredLayer:
    """A recovered hidden layer.

    Attributes:
        units: Its units.
        wanted: Width that was given; None where it was not.
        rejected: Folds that belong to deeper layers.
    """

    units: list[Unit]
    wanted: int | None
    rejected: list[Unit] = field(default_factory=list)


class Stop(NamedTuple):
    """Where a search reached the limit of its evaluations.

    Attributes:
        layer: Index of the hidden layer that was searched, from 0.
        evaluations: Number of evaluations until then.
        needed: Number of evaluations that the next step needed at once.
        reserve: Number of evaluations that are left for the output layer and the residual.
    """

    layer: int
    evaluations: int
    needed: int
    reserve: int


class Search:
    """State of a recovery: what is known, and where it stands.

    Attributes:
        oracle: The function.
        known: Layers below the one that is searched.
        pool: Fold points along lines.
        layers: Layers that are finished.
        current: Search of the present layer.
        step: Steps taken; the random numbers of a step depend on nothing else.
        idle: Lines searched since the last new unit.
        retreats: How often a layer was searched again.
        stop: Where the limit of the evaluations was reached; None where it was not.
        most: Evaluations that are allowed.
    """

    def __init__(
        self, function: Function, box: Box, sizes: Sequence[int] | None, seed: int, most: int, spent: int = 0
    ) -> None:
        self.sizes, self.seed = sizes, seed
        self.oracle = Oracle(function, box, most, generator(seed, Stream.RECOVERY), spent)
        self.most = most
        empty = np.zeros((0, box.inputs))
        self.known, self.pool = KnownLayers(box.inputs), PointPool(empty, empty)
        self.layers: list[RecoveredLayer] = []
        self.step, self.idle, self.retreats, self.done = 0, 0, 0, False
        self.stop: Stop | None = None
        self.current = LayerSearch(self.oracle, self.known, generator(seed, Stream.RECOVERY, 1))

    @property
    def wanted(self) -> int | None:
        """Width of the present layer, where it is given."""
        return None if self.sizes is None else self.sizes[len(self.layers) + 1]

    @property
    def last(self) -> bool:
        """Whether the present layer is known to be the last hidden one."""
        return self.sizes is not None and len(self.layers) == len(self.sizes) - 3

    @property
    def reserve(self) -> int:
        """Evaluations that are left for the output layer and the residual."""
        widest = max(len(self.current.units), *self.sizes[:-1]) if self.sizes else self.known.inputs
        return FRESH + 400 + 40 * max(widest, len(self.current.units), *(len(each.units) for each in self.layers), 1)

    def advance(self) -> None:
        """Take one step: test the fold points at hand, then finish the layer or search more lines."""
        self.step += 1
        self.oracle.most = self.most - self.reserve
        random = generator(self.seed, Stream.RECOVERY, self.step)
        self.current.random = self.current.follower.random = random
        try:
            self._advance(random)
        except ExhaustedError as exhausted:
            self._stop(exhausted)
            self._close()

    def _stop(self, exhausted: ExhaustedError) -> None:
        """Record where the limit of the evaluations was reached."""
        reserve = self.most - self.oracle.most
        self.stop = Stop(len(self.layers), self.oracle.evaluations, exhausted.needed, reserve)

    def _advance(self, random: np.random.Generator) -> None:
        before = len(self.current.units)
        self.current.test(self.pool, self.wanted)
        self.idle = 0 if len(self.current.units) > before else self.idle
        enough = self.wanted is not None and len(self.current.units) >= self.wanted
        limit = IDLE_LINES if self.wanted is not None else IDLE_LINES_OPEN
        if self.layers and not self.current.units:
            limit = IDLE_LINES_EMPTY
        if enough or (self.idle >= limit and self.pool.tested == len(self.pool.points)):
            self.current.finish(reject=not self.last)
            if not enough or len(self.current.units) == self.wanted:
                self._close()
        elif self.pool.tested == len(self.pool.points):
            self.pool.search(self.oracle, random)
            self.idle += 10

    def _close(self) -> None:
        """Add the present layer to those known, and decide whether there is another one."""
        units = self.current.units
        sided = bool(self.known.oriented.all())
        if not (units and sided) and self._retreat():
            return
        if units and sided:
            weight, bias = self.current.rows()
            self.known.weights.append(weight)
            self.known.biases.append(bias)
            self.known.oriented = np.zeros(len(bias), bool)
            self.layers.append(RecoveredLayer(units, self.wanted, self.current.rejected))
        stuck = not units or not sided or self.stop is not None
        if self.sizes is None:
            self.done = stuck or len(self.layers) >= MOST_LAYERS or self._fits()
        else:
            self.done = stuck or len(self.layers) == len(self.sizes) - 2
        self.idle, self.pool.tested = 0, 0
        if not self.done:
            random = generator(self.seed, Stream.RECOVERY, self.step)
            self.current = LayerSearch(self.oracle, self.known, random)

    def _retreat(self) -> bool:
        """Go back to the layer below and drop its least confirmed unit; return False if all are confirmed."""
        if self.sizes is None or self.stop is not None or not self.layers or self.retreats >= MOST_RETREATS:
            return False
        layer, weight, bias = self.layers[-1], self.known.weights[-1], self.known.biases[-1]
        oriented, slope = self.known.oriented, self.known.slope
        self.known.weights.pop()
        self.known.biases.pop()
        self.known.oriented = np.ones(len(self.known.biases[-1]) if self.known.biases else 0, bool)
        search = LayerSearch(self.oracle, self.known, self.current.random, layer.units, layer.rejected)
        doubtful = search.least_confirmed()
        if doubtful is None:
            self.known.weights.append(weight)
            self.known.biases.append(bias)
            self.known.oriented, self.known.slope = oriented, slope
            return False
        search.reject(doubtful)
        self.layers.pop()
        self.current, self.idle, self.pool.tested = search, 0, 0
        self.retreats += 1
        return True

    def _fits(self) -> bool:
        """Whether the layers known are all there are: the output layer explains the function."""
        trial = KnownLayers(
            self.known.inputs,
            [weight.copy() for weight in self.known.weights],
            [bias.copy() for bias in self.known.biases],
            self.known.oriented.copy(),
            self.known.slope,
        )
        random = generator(self.seed, Stream.RECOVERY, 1 << 20)
        try:
            output = fit_output(self.oracle, trial, self.layers[-1].units, random)
            z = random.uniform(-1, 1, (100, trial.inputs))
            error = np.abs(self._assemble(trial, output)(z) - self.oracle(z)).max()
        except ExhaustedError as exhausted:
            self._stop(exhausted)
            return True
        return bool(error < EXPLAINED)

    def finish(self) -> tuple[ReluNetwork, Output, float]:
        """Fit the output layer, refine all parameters, and measure the residual on fresh inputs.

        Returns:
            The network in the inputs and outputs of the function, the output layer, and the residual.
        """
        self.oracle.most = self.most
        random = generator(self.seed, Stream.RECOVERY, 1 << 21)
        inputs = self.known.inputs
        if not self.layers:
            self.known.weights.append(np.zeros((0, inputs)))
            self.known.biases.append(np.zeros(0))
            self.known.oriented = np.zeros(0, bool)
        units = self.layers[-1].units if self.layers else []
        output = fit_output(self.oracle, self.known, units, random)
        network = self._assemble(self.known, output)
        z = sample_points(self.known, units, 200, random)
        f = self.oracle(z)
        error = float(np.abs(network(z) - f).max())
        if error < _NEAR and (error > _POLISHED or not all(unit.visible for unit in units)):
            network = self._polished(network, z, f, random)
        fresh = random.uniform(-1, 1, (FRESH, inputs))
        fresh[FRESH // 2 :] = np.sign(fresh[FRESH // 2 :])
        residual = float(np.abs(network(fresh) - self.oracle(fresh)).max())
        return self._original(network), output, residual

    def _polished(self, network: ReluNetwork, z: np.ndarray, f: np.ndarray, random: np.random.Generator) -> ReluNetwork:
        """Refine all parameters at once, where points that it was not refined on confirm it."""
        every = [unit for layer in self.layers for unit in layer.units]
        points = informative(
            network, sample_points(self.known, every, _CANDIDATES, random, points_to_determine(self.known))
        )
        parameters = sum(weight.size + len(bias) for weight, bias in zip(network.weights, network.biases, strict=True))
        more = max(4 * parameters // (3 * len(network.biases[-1])), len(points) // 2)
        points = np.concatenate([points, sample_points(self.known, every, more, random)])
        if self.oracle.evaluations + len(points) + FRESH > self.oracle.most:
            return network
        values = self.oracle(points)
        best, error = network, float(np.abs(network(z) - f).max())
        for weakest in (1e-8, 1e-11):
            refined = polish(network, points, values, weakest)
            left = float(np.abs(refined(z) - f).max())
            if left < 0.5 * error:
                best, error = refined, left
        return best

    def _assemble(self, known: KnownLayers, output: Output) -> ReluNetwork:
        """Build the network on the cube; a linear remainder becomes units that are active on all of it."""
        weights, biases = list(known.weights), list(known.biases)
        weight, bias = output.weight, output.bias
        linear, constant = output.remainder[:-1], output.remainder[-1]
        if output.size >= EXPLAINED or not len(biases[-1]):
            left, size, right = np.linalg.svd(linear, full_matrices=False)
            rank = max(int((size > 1e-12 * max(float(size[0]), 1e-300)).sum()), 1)
            rows = left[:, :rank].T
            shift = np.abs(rows) @ known.below().largest() + 1.0
            across = (size[:rank, None] * right[:rank]).T
            weights[-1], biases[-1] = np.r_[weights[-1], rows], np.r_[biases[-1], shift]
            weight, bias = np.c_[weight, across], bias + constant - across @ shift
        return ReluNetwork((*weights, weight), (*biases, bias), known.slope)

    def _original(self, network: ReluNetwork) -> ReluNetwork:
        """Write a network on the cube as one on the box, with the outputs' own scale."""
        box, scale, shift = self.oracle.box, self.oracle.scale, self.oracle.shift
        weights, biases = list(network.weights), list(network.biases)
        weights[0] = weights[0] / box.half
        biases[0] = biases[0] - weights[0] @ box.centre
        weights[-1], biases[-1] = scale[:, None] * weights[-1], scale * biases[-1] + shift
        return ReluNetwork(tuple(weights), tuple(biases), network.slope)

    def run(self, after: Callable[[Search], None]) -> None:
        """Take steps until the search ends; `after` is called after each."""
        while not self.done:
            self.advance()
            after(self)
