"""Whether two networks are one function on a box: equal parameters up to order and scale, a witness, or neither."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from understudy._errors import UserError
from understudy._numbers import number
from understudy.papers.equivalence.theory.box_coordinates import validate_finite
from understudy.papers.equivalence.theory.degenerate import DegenerateUnit, Reduction, reduce_network
from understudy.papers.equivalence.theory.domain import Box
from understudy.papers.equivalence.theory.fold_form import fold_form_difference
from understudy.papers.equivalence.theory.matching import Matching, match_reduced, match_units
from understudy.papers.equivalence.theory.output_differences import DifferenceSearch, OutputDifference
from understudy.papers.equivalence.theory.relu_network import ReluNetwork

TOLERANCE = 1e-9
"""Relative difference of parameters and outputs up to which they count as equal."""
NEAR = 0.01
"""Relative difference of parameters up to which units that are matched count as the same ones, changed."""
EXACT = 1e-13
"""Relative difference of parameters up to which only rounding is left, so that equal outputs need no search."""

Relation = Literal["permutation and scaling", "after removal", "same folds", "different", "undecided"]
"""How two networks are related, from the strongest to the weakest answer:

- permutation and scaling: all parameters agree (Phuong & Lampert 2020, eq. 2.5), so the functions agree everywhere;
- after removal: they agree once units that are degenerate on the box are removed, so the functions agree on the box;
- same folds: the functions agree on the box, but parameters are not related by order and scale alone;
- different: there is an input of the box at which the outputs differ;
- undecided: parameters differ, and no input was found at which outputs do.
"""


@dataclass(frozen=True, eq=False)
class FunctionComparison:
    """Whether two networks are one function on a box, and why.

    Attributes:
        relation: How the networks are related.
        matching: The matching of units: of the networks as they are, or of the reduced ones where `relation` is
            "after removal"; None where the numbers of layers differ.
        outputs: The largest difference of outputs that was found.
        reductions: Both networks without their degenerate units, and those units.
        tolerance: Relative tolerance of parameters and outputs.
        box: The inputs that the answer is about.
    """

    relation: Relation
    matching: Matching | None
    outputs: OutputDifference
    reductions: tuple[Reduction, Reduction]
    tolerance: float
    box: Box

    @property
    def same(self) -> bool | None:
        """Whether the networks are one function on the box; None where this is not decided."""
        return {"different": False, "undecided": None}.get(self.relation, True)

    @property
    def permutations(self) -> tuple[np.ndarray, ...] | None:
        """P_l of eq. 2.5: for every unit of the first network its partner in the second; None without matching."""
        return None if self.matching is None else self.matching.permutations

    @property
    def scalings(self) -> tuple[np.ndarray, ...] | None:
        """Diagonals of M_l of eq. 2.5; None without matching."""
        return None if self.matching is None else self.matching.scalings

    @property
    def largest_parameter_difference(self) -> float | None:
        """Largest difference of matched parameters, relative to the length of their row; None without matching."""
        return None if self.matching is None else self.matching.largest

    @property
    def largest_output_difference(self) -> float:
        """Largest difference of an output that was found, relative to its scale on the box."""
        return self.outputs.relative

    @property
    def witness(self) -> OutputDifference | None:
        """An input at which the outputs differ; None unless the networks are different functions."""
        return self.outputs if self.relation == "different" else None

    @property
    def degenerate(self) -> tuple[tuple[DegenerateUnit, ...], tuple[DegenerateUnit, ...]]:
        """Degenerate units of both networks."""
        return self.reductions[0].units, self.reductions[1].units


def compare_networks(
    a: ReluNetwork, b: ReluNetwork, box: Box, tolerance: float = TOLERANCE, seed: int = 1, exact: bool = False
) -> FunctionComparison:
    """Decide whether two networks are one function on a box.

    Args:
        a: The first network, W_l in Phuong & Lampert (2020), eq. 2.5.
        b: The second, W'_l.
        box: The inputs that matter.
        tolerance: Largest difference that counts as rounding: of parameters relative to the length of a unit's
            incoming weights and bias, both in the coordinates of the box and as given, of every output relative to its
            standard deviation on the box.
        seed: Seed of the inputs that are searched.
        exact: Whether degenerate units are decided exactly although the answer does not depend on it.

    Returns:
        The answer, with the matching of units and the largest differences.

    Raises:
        UserError: Different numbers of inputs or outputs, a tolerance that is not positive, or values that are not
            finite on the box.
    """
    _validate(a, b, box, tolerance)
    matching = match_units(a, b, box) if len(a.sizes) == len(b.sizes) and a.slope == b.slope else None
    search = DifferenceSearch(a, b, box, seed)
    found = search.found()
    partners = matching is not None and a.sizes == b.sizes
    largest = matching.largest if matching is not None and partners else np.inf
    excess = matching.excess if matching is not None and partners else np.inf
    equal, exact_match = excess <= tolerance, excess <= EXACT

    def differ() -> bool:
        # Where units have partners that are changed, any difference that is not rounding is one of the functions;
        # else a common part of both may have been rounded in two ways.
        if not equal and largest <= NEAR:
            return found.exceeds_rounding(4)
        return found.exceeds(tolerance)

    if not exact_match or differ():
        found = search.ascend()
    if not equal and not differ():
        search.at_more()
        found = search.ascend()
    if not exact_match and not differ():
        # Parameters that are equal up to the tolerance can still differ in a region that samples do not meet.
        search.around_weights(matching.weights if matching is not None else (), a)
        for network, units in zip((a, b), _suspects(a, b, matching, EXACT if equal else tolerance), strict=True):
            search.around_folds(units, network)
        found = search.ascend()
    relation: Relation = "different" if differ() else "permutation and scaling" if equal else "undecided"
    exact = exact or relation == "undecided"
    reductions = reduce_network(a, box, tolerance, exact, seed), reduce_network(b, box, tolerance, exact, seed)
    if relation == "undecided":
        found = search.at(np.concatenate([each.inputs for each in reductions]))
        relation = "different" if differ() else relation
    if relation == "undecided":
        relation, matching = _compare_reduced(*reductions, matching, tolerance)
    return FunctionComparison(relation, matching, found, reductions, tolerance, box)


def _compare_reduced(
    a: Reduction, b: Reduction, matching: Matching | None, tolerance: float
) -> tuple[Relation, Matching | None]:
    """Compare networks without their degenerate units: by order and scale, then by folds and linear parts."""
    ours, theirs = a.network, b.network
    if ours.sizes == theirs.sizes and ours.slope == theirs.slope:
        reduced = match_reduced(a, b)
        if reduced.excess <= tolerance:
            # On a wide box, parameters can agree in its coordinates alone although no unit is removed.
            removed = any(unit.removed for unit in (*a.units, *b.units))
            return ("after removal", reduced) if removed else ("same folds", matching)
    difference = fold_form_difference(a, b, tolerance)
    return ("same folds" if difference is not None and difference <= tolerance else "undecided"), matching


def _suspects(
    a: ReluNetwork, b: ReluNetwork, matching: Matching | None, tolerance: float
) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Units of both networks that differ, most first; all units where the networks have no matching."""
    if matching is None:
        return _units(a), _units(b)
    own = [
        (distance, layer, unit, int(partner))
        for layer, (distances, partners) in enumerate(
            zip(matching.distances[:-1], matching.permutations, strict=True), 1
        )
        for unit, (distance, partner) in enumerate(zip(distances.tolist(), partners, strict=True))
    ]
    own = sorted((each for each in own if each[0] > tolerance), reverse=True)
    ours = [(layer, unit) for _, layer, unit, _ in own] or _units(a)
    theirs = [(layer, int(unit)) for layer, units in enumerate(matching.unmatched, 1) for unit in units]
    theirs += [(layer, partner) for _, layer, _, partner in own if partner >= 0]
    return ours, theirs


def _units(network: ReluNetwork) -> list[tuple[int, int]]:
    return [(layer, unit) for layer, width in enumerate(network.hidden, 1) for unit in range(width)]


def _validate(a: ReluNetwork, b: ReluNetwork, box: Box, tolerance: float) -> None:
    for what, ours, theirs in (("inputs", a.sizes[0], b.sizes[0]), ("outputs", a.sizes[-1], b.sizes[-1])):
        if ours != theirs:
            raise UserError(f"a and b must have the same number of {what} to be compared, got {ours} and {theirs}")
    if box.inputs != a.sizes[0]:
        raise UserError(f"must have one interval for each of the {a.sizes[0]} inputs, got {box.inputs}", "domain")
    if not 0 < tolerance < 1:
        raise UserError(f"must be above 0 and below 1, got {number(tolerance, 'g')}", "tolerance")
    validate_finite("a", a, box)
    validate_finite("b", b, box)
