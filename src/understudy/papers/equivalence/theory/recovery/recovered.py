"""What a recovery found: the network, its residual, and what is missing."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from understudy._atomic import disk_errors, write_json
from understudy._errors import UserError
from understudy._numbers import number
from understudy._random import Stream, generator
from understudy.nets import Population, save
from understudy.papers.equivalence.theory.domain import Box
from understudy.papers.equivalence.theory.recovery.output import EXPLAINED, Output
from understudy.papers.equivalence.theory.recovery.polish import undetermined
from understudy.papers.equivalence.theory.recovery.sampling import points_to_determine, sample_points
from understudy.papers.equivalence.theory.recovery.search import COMPLETE, FRESH, Search
from understudy.papers.equivalence.theory.relu_network import ReluNetwork

if TYPE_CHECKING:
    from pandas import DataFrame

_OPEN = 0.1
"""Share of unexplained fold points that is reported; a few of them are errors of the search."""
_POOL = 1000
_POINTS = 10_000
_MOST_PARAMETERS = 3000
"""Parameters up to which it is tested whether the function determines all of them."""
_SAMPLES = 20_000
"""Points by which the share of the box on the smaller side of a fold is measured, on the recovered network."""


@dataclass(frozen=True)
class RecoveredUnit:
    """A hidden unit that was found.

    Attributes:
        layer: Its layer, from 1.
        unit: Its index in the layer, from 0.
        folds: Share of the box on the smaller side of its fold, by sampling.
        points: Fold points by which it was determined.
        expected: Fold points that were expected elsewhere and looked up.
        confirmed: How many of these were confirmed; folds are hidden where the layers above are inactive.
        shown: Whether its fold shows all its incoming weights; others are determined from values.
    """

    layer: int
    unit: int
    folds: float
    points: int
    expected: int
    confirmed: int
    shown: bool


@dataclass(frozen=True, eq=False, repr=False)
class Recovered:
    """A network recovered from its function.

    Attributes:
        network: The network: it equals the function on the box up to `residual`.
        complete: Whether all units were found, the residual is at most 10⁻¹⁰ of the outputs' scale, and the function
            determines all parameters (tested for networks of at most 3,000).
        evaluations: Number of inputs at which the function was evaluated.
        residual: Largest difference from the function on fresh inputs, as a share of the outputs' scale: half of them
            uniform in the box, half of them corners.
        unrecoverable: What is missing, in words; empty where it is complete.
        units: The hidden units found.
        sizes: Units from the inputs to the outputs that were asked for; None where they were not given.
        box: The box of inputs.
        scale: Scale of every output: its largest deviation from the mean at the first inputs.
    """

    network: ReluNetwork
    complete: bool
    evaluations: int
    residual: float
    unrecoverable: tuple[str, ...]
    units: tuple[RecoveredUnit, ...]
    sizes: tuple[int, ...] | None
    box: Box
    scale: np.ndarray

    @property
    def population(self) -> Population:
        """The network as a population of one."""
        return self.network.population()

    def __repr__(self) -> str:
        what = "-".join(map(str, self.network.sizes))
        state = "complete" if self.complete else "incomplete: " + "; ".join(self.unrecoverable)
        residual = number(self.residual, ".1e")
        return f"Recovered({what}, {self.evaluations:,} evaluations, residual {residual}, {state})"

    def as_dict(self) -> dict[str, Any]:
        """Everything but the weights, as plain values."""
        return {
            "complete": self.complete,
            "evaluations": self.evaluations,
            "residual": self.residual if np.isfinite(self.residual) else None,
            "unrecoverable": list(self.unrecoverable),
            "sizes": list(self.network.sizes),
            "asked": None if self.sizes is None else list(self.sizes),
            "slope": self.network.slope,
            "domain": [self.box.lower.tolist(), self.box.upper.tolist()],
            "scale": self.scale.tolist(),
            "units": [vars(unit) for unit in self.units],
        }

    def to_pandas(self) -> DataFrame:
        """Return one row per unit found, with its share of the box."""
        import pandas as pd

        return pd.DataFrame([vars(unit) for unit in self.units])

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the network (.safetensors), or everything but the weights (.json).

        Args:
            path: File to write.

        Returns:
            The file.

        Raises:
            UserError: Another ending, or the file cannot be written.
        """
        path = Path(path)
        if path.suffix not in (".safetensors", ".json"):
            raise UserError(f"{path}: the file must end in .safetensors or .json")
        with disk_errors(path, "choose another file"):
            if path.suffix == ".json":
                write_json(path, self.as_dict())
            else:
                save(self.population, path)
        return path


def describe(search: Search, network: ReluNetwork, output: Output, residual: float) -> Recovered:
    """Report a finished search: shares of the box, and what is missing in words."""
    missing = _missing(search, network, output, residual)
    x = search.oracle.box.draw(generator(search.seed, Stream.RECOVERY, 1 << 22), _SAMPLES)
    units = []
    for i, (layer, u) in enumerate(zip(search.layers, network.preactivations(x), strict=False)):
        share = (u > 0).mean(0)
        for j, unit in enumerate(layer.units):
            folds = float(min(share[j], 1 - share[j]))
            units.append(RecoveredUnit(i + 1, j, folds, len(unit.points), unit.tries, unit.hits, unit.visible))
    return Recovered(
        network,
        not missing,
        search.oracle.evaluations,
        residual,
        tuple(missing),
        tuple(units),
        None if search.sizes is None else tuple(search.sizes),
        search.oracle.box,
        search.oracle.scale,
    )


def _unexplained(search: Search) -> float:
    """Share of the fold points along lines that are on no fold of the units found."""
    points = search.pool.points[:_POOL]
    return float((search.known.nearest(points) > 1e-6).mean()) if len(points) and search.layers else 0.0


def _free(search: Search, network: ReluNetwork) -> int:
    """Directions in which the parameters found can change without any effect on the box, by sampling."""
    parameters = sum(weight.size + len(bias) for weight, bias in zip(network.weights, network.biases, strict=True))
    if parameters > _MOST_PARAMETERS:
        return 0
    random = generator(search.seed, Stream.RECOVERY, (1 << 22) + 1)
    units = [unit for layer in search.layers for unit in layer.units]
    each = points_to_determine(search.known)
    z = sample_points(search.known, units, max(_POINTS, 2 * parameters), random, each)
    return undetermined(network, search.oracle.box.centre + search.oracle.box.half * z)


def _reason(search: Search, layer: int, found: int) -> str:
    """Why units of a layer are missing, in words."""
    if search.stop is not None and layer == search.stop.layer:
        return "the search stopped at its limit before " + ("the others were found" if found else "any was found")
    if search.stop is not None and layer > search.stop.layer:
        return f"the search stopped at its limit in layer {search.stop.layer + 1}"
    if layer > len(search.layers):
        return "it was not searched, because the layers below it are not complete"
    if not found and search.current.units:
        return "its folds cannot be followed, because the active sides of the layer below are not all determined"
    return ("the others" if found else "they") + " fold too little of the box to be met, or none of it"


def _dependent_words(units: list[int], layer: int) -> str:
    """Say which units do not determine their weights to the outputs."""
    which = ("unit " if len(units) == 1 else "units ") + ", ".join(map(str, units))
    return (
        f"the output layer is not determined: at all points drawn, the effect of {which} of layer {layer} equals that "
        "of a linear function or of other units"
    )


def _missing(search: Search, network: ReluNetwork, output: Output, residual: float) -> list[str]:
    words = []
    if search.stop is not None:
        words.append(
            f"the search stopped at its limit, after {search.stop.evaluations:,} of {search.most:,} evaluations "
            f"(most_evaluations): its next step needs {search.stop.needed:,} at once, and {search.stop.reserve:,} are "
            "reserved for the output layer and the residual"
        )
    wanted: Sequence[int | None] = search.sizes[1:-1] if search.sizes is not None else [None] * len(search.layers)
    for i, width in enumerate(wanted):
        found = len(search.layers[i].units) if i < len(search.layers) else 0
        if width is not None and found < width:
            count = f"{found} of {width} units found" if found else f"none of {width} units found"
            words.append(f"layer {i + 1}: {count}; {_reason(search, i, found)}")
    full = not words
    if output.dependent:
        words.append(_dependent_words(output.dependent, len(search.layers)))
    if not search.known.oriented.all():
        words.append(f"layer {len(search.layers)}: which side of a fold is active is not determined for all units")
    open_folds = _unexplained(search)
    if open_folds > _OPEN and not residual <= COMPLETE:
        why = ": sizes may be too small" if full else ""
        words.append(f"{open_folds:.0%} of the fold points along lines belong to no unit found{why}")
    if output.size >= EXPLAINED and residual < EXPLAINED:
        words.append(
            f"a linear remainder of {number(output.size, '.1e')} of the outputs' scale: units that never fold on the "
            "box have no parameters of their own there (as Tian 2020, theorem 1, predicts); units that are active on "
            "all of it represent it"
        )
    if len(output.undecided) and residual < EXPLAINED:
        words.append(f"active sides of {len(output.undecided)} units of the last hidden layer, up to that remainder")
    free = _free(search, network) if not words and residual <= COMPLETE else 0
    if free:
        words.append(
            f"the function does not determine all parameters: {free} of their combinations, besides the scales of "
            f"units, have no effect at any of {_POINTS:,} points of the box and {_POINTS // 2:,} corners"
        )
    if not residual <= COMPLETE:
        words.append(
            f"the residual is {number(residual, '.1e')} of the outputs' scale on {FRESH:,} fresh inputs, more than "
            f"{number(COMPLETE, 'g')}"
        )
    return words
