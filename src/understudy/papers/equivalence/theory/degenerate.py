"""Units that add nothing of their own on a box: dead, linear, duplicated, cancelling; and networks without them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float

from understudy.papers.equivalence.theory.activity import Activities, Activity, activities, interval
from understudy.papers.equivalence.theory.box_coordinates import bias_rounding, in_box_coordinates, unit_box
from understudy.papers.equivalence.theory.canonical import canonical_form, row_lengths
from understudy.papers.equivalence.theory.domain import Box
from understudy.papers.equivalence.theory.relu_network import ReluNetwork

Kind = Literal["dead", "linear", "duplicate", "cancelling", "undecided"]
"""What is degenerate about a unit:

- dead: never positive on the box, so that it passes nothing on (for leaky ReLU it is linear instead);
- linear: never folds the box, and passes a linear function on;
- duplicate: proportional, with a positive factor, to a unit of its layer with which it is merged;
- cancelling: its outgoing weights are zero, by themselves or together with those of its duplicates;
- undecided: neither an input where it is active nor a proof that there is none was found, or the reverse.
"""


@dataclass(frozen=True)
class DegenerateUnit:
    """A hidden unit that is degenerate on a box.

    Attributes:
        layer: Its layer, counted from 1.
        unit: Its index in the layer, counted from 0.
        kind: What is degenerate about it.
        removed: Whether the reduced network does without it; linear units remain where no fewer would do.
        duplicate_of: Index of the unit that it is merged with.
    """

    layer: int
    unit: int
    kind: Kind
    removed: bool
    duplicate_of: int | None = None

    def __str__(self) -> str:
        kind = f"duplicate of unit {self.duplicate_of}" if self.duplicate_of is not None else self.kind
        return f"layer {self.layer}, unit {self.unit}: {kind}"


@dataclass(frozen=True, eq=False)
class Reduction:
    """A network without its degenerate units.

    Attributes:
        network: The same function on the box, in its coordinates (z in [−1, 1]^n) and in canonical form.
        activity: For every hidden unit of it, whether it folds the box.
        units: Degenerate units of the network as it was, in the order of their layers.
        kept: For every hidden layer, the indices that its units had; linear units that were merged stand for all.
        scales: For every unit that is left, the length of its incoming weights and bias in the given parameters, as in
            `canonical_form`.
        rounding: For every unit of the first layer that is left, the bound `bias_rounding` of its relative error.
        inputs: Inputs at which units have a sign that sampling does not meet.
    """

    network: ReluNetwork
    activity: tuple[tuple[Activity, ...], ...]
    units: tuple[DegenerateUnit, ...]
    kept: tuple[tuple[int, ...], ...]
    scales: tuple[Float[np.ndarray, "_unit"], ...]
    rounding: Float[np.ndarray, "unit"]
    inputs: Float[np.ndarray, "sample in"]


def reduce_network(
    network: ReluNetwork, box: Box, tolerance: float = 1e-9, exact: bool = True, seed: int = 1
) -> Reduction:
    """Remove the units that are degenerate on a box, in an equivalent network.

    Args:
        network: The network.
        box: The inputs on which the function is kept.
        tolerance: Relative difference up to which rows are proportional and weights zero.
        exact: Whether units that sampling and intervals leave open are decided by further search and integer
            programming, and named where they remain undecided; otherwise they count as folding.
        seed: Seed of the sampled inputs.

    Returns:
        The reduced network, and the degenerate units. A hidden layer keeps at least one unit.
    """
    work = _Work(network, activities(network, box, exact, seed), box, tolerance, exact)
    for layer in range(1, len(network.sizes) - 1):
        work.remove_dead(layer)
        work.merge_duplicates(layer)
    for layer in range(len(network.sizes) - 2, 0, -1):
        work.remove_silent(layer)
    for layer in range(1, len(network.sizes) - 1):
        work.merge_linear(layer)
    return work.reduction()


class _Work:
    """A network while its degenerate units are removed."""

    def __init__(
        self, network: ReluNetwork, activity: Activities, box: Box, tolerance: float, name_undecided: bool
    ) -> None:
        self.scales, self.rounding = canonical_form(network).scales, bias_rounding(network, box)
        form = canonical_form(in_box_coordinates(network, box)).network
        self.weights, self.biases = [w.copy() for w in form.weights], [b.copy() for b in form.biases]
        self.slope, self.box, self.tolerance = network.slope, unit_box(box.inputs), tolerance
        self.kinds = [list(each) for each in activity.kinds]
        self.inputs = activity.inputs
        self.names = [list(range(width)) for width in network.hidden]
        self.found: dict[tuple[int, int], DegenerateUnit] = {}
        for layer, kinds in enumerate(self.kinds, 1):
            for unit, kind in enumerate(kinds):
                if kind == "undecided" and name_undecided:
                    self.note(layer, unit, "undecided", False)
                elif kind == "active" or (kind == "dead" and self.slope > 0):
                    self.note(layer, unit, "linear", False)

    def note(self, layer: int, unit: int, kind: Kind, removed: bool, duplicate_of: int | None = None) -> None:
        """Record a degenerate unit, by its present index."""
        names = self.names[layer - 1]
        before = self.found.get((layer, names[unit]))
        if before is not None and before.removed:
            return  # the last unit of a layer remains, with outgoing weights of zero
        of = None if duplicate_of is None else names[duplicate_of]
        self.found[layer, names[unit]] = DegenerateUnit(layer, names[unit], kind, removed, of)

    def keep(self, layer: int, kept: list[int]) -> None:
        """Remove all other units of a layer; at least one remains, with outgoing weights of zero."""
        if not kept:
            self.weights[layer][:] = 0.0
            kept = [0]
        i = layer - 1
        self.weights[i], self.biases[i] = self.weights[i][kept], self.biases[i][kept]
        self.weights[layer] = self.weights[layer][:, kept]
        self.kinds[i] = [self.kinds[i][unit] for unit in kept]
        self.names[i] = [self.names[i][unit] for unit in kept]

    def remove_dead(self, layer: int) -> None:
        """Remove units that are never active; for leaky ReLU they are linear."""
        if self.slope > 0:
            return
        dead = [unit for unit, kind in enumerate(self.kinds[layer - 1]) if kind == "dead"]
        for unit in dead:
            self.note(layer, unit, "dead", True)
        self.keep(layer, [unit for unit in range(len(self.kinds[layer - 1])) if unit not in dead])

    def merge_duplicates(self, layer: int) -> None:
        """Merge units whose weights and bias are proportional, with a positive factor."""
        rows = self.rows(layer)
        kept: list[int] = []
        for unit in range(len(rows)):
            near = [other for other in kept if np.abs(rows[other] - rows[unit]).max() <= self.tolerance]
            if near and np.abs(rows[unit]).max() > 0:
                self.weights[layer][:, near[0]] += self.weights[layer][:, unit]
                self.note(layer, unit, "duplicate", True, near[0])
            else:
                kept.append(unit)
        self.keep(layer, kept)

    def remove_silent(self, layer: int) -> None:
        """Remove units whose outgoing weights are zero, relative to the rows that they belong to."""
        outgoing = self.weights[layer]
        lengths = row_lengths(np.column_stack((outgoing, self.biases[layer])))
        silent = (np.abs(outgoing) <= self.tolerance * lengths[:, None]).all(axis=0)
        for unit in np.flatnonzero(silent).tolist():
            self.note(layer, unit, "cancelling", True)
        self.keep(layer, np.flatnonzero(~silent).tolist())

    def merge_linear(self, layer: int) -> None:
        """Replace the linear units of a layer by as few as pass the same linear function on."""
        kinds = self.kinds[layer - 1]
        linear = [i for i, kind in enumerate(kinds) if kind == "active" or (kind == "dead" and self.slope > 0)]
        if not linear:
            return
        gains = np.array([1.0 if kinds[i] == "active" else self.slope for i in linear])
        lengths = row_lengths(np.column_stack((self.weights[layer], self.biases[layer])))[:, None]
        out = self.weights[layer][:, linear] * gains / lengths  # outputs of all sizes count alike
        joint = out @ self.weights[layer - 1][linear]
        u, singular, v = np.linalg.svd(joint, full_matrices=False)
        size = float(np.linalg.norm(out)) * max(float(np.linalg.norm(self.weights[layer - 1][linear])), 1e-300)
        rank = int((singular > self.tolerance * size).sum())
        if rank >= len(linear):
            return
        out = out * lengths
        self.biases[layer] = self.biases[layer] + out @ self.biases[layer - 1][linear]
        low, high = self._below(layer)
        rows = v[:rank]
        shift = np.maximum(1.0, 1.0 - interval(rows, np.zeros(rank), low, high)[0])
        columns = lengths * u[:, :rank] * singular[:rank]
        self.biases[layer] = self.biases[layer] - columns @ shift
        for place, unit in enumerate(linear):
            self.note(layer, unit, "linear", place >= rank)
        for place, unit in enumerate(linear[:rank]):
            self.weights[layer - 1][unit], self.biases[layer - 1][unit] = rows[place], shift[place]
            self.weights[layer][:, unit] = columns[:, place]
            kinds[unit] = "active"
        self.keep(layer, [unit for unit in range(len(kinds)) if unit not in linear[rank:]])

    def _below(self, layer: int) -> tuple[Float[np.ndarray, "unit"], Float[np.ndarray, "unit"]]:
        """Bounds on the activations of the layer below, by interval arithmetic."""
        low, high = self.box.lower, self.box.upper
        for weight, bias in zip(self.weights[: layer - 1], self.biases[: layer - 1], strict=True):
            low, high = (np.maximum(end, self.slope * end) for end in interval(weight, bias, low, high))
        return low, high

    def rows(self, layer: int) -> Float[np.ndarray, "unit fan_in_and_bias"]:
        """Weights and bias of a layer's units, of length 1."""
        rows = np.column_stack((self.weights[layer - 1], self.biases[layer - 1]))
        found: np.ndarray = rows / row_lengths(rows)[:, None]
        return found

    def reduction(self) -> Reduction:
        """The network as it is now, in canonical form."""
        network = ReluNetwork(tuple(self.weights), tuple(self.biases), self.slope)
        units = tuple(self.found[place] for place in sorted(self.found))
        kinds = tuple(tuple(each) for each in self.kinds)
        kept = tuple(tuple(each) for each in self.names)
        scales = tuple(scale[list(names)] for scale, names in zip(self.scales, kept, strict=True))
        rounding = self.rounding[list(kept[0])] if kept else self.rounding
        return Reduction(canonical_form(network).network, kinds, units, kept, scales, rounding, self.inputs)
