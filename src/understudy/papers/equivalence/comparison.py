"""Results of `us.compare`: the answer for two networks, and the classes of equal functions of several."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from understudy._atomic import disk_errors, write_bytes
from understudy._errors import UserError
from understudy._numbers import number
from understudy.papers.equivalence.theory.classes import Classes
from understudy.papers.equivalence.theory.comparison import FunctionComparison
from understudy.papers.equivalence.theory.domain import Box
from understudy.papers.equivalence.theory.relu_network import ReluNetwork

if TYPE_CHECKING:
    from pandas import DataFrame

FLOAT32 = 1e-6
"""Tolerance that most networks stored in float32 need."""
ANSWERS = {
    "permutation and scaling": "the same function: all parameters agree up to permutation and positive scaling",
    "after removal": "the same function: parameters agree up to permutation and positive scaling once degenerate units "
    "are removed",
    "same folds": "the same function: folds and linear parts agree, but parameters are not related by permutation and "
    "scaling",
    "different": "different functions",
    "undecided": "equal in outputs as far as searched, but not in parameters: not decided",
}
"""What two networks of each relation are on the domain, in words."""


def float32_note(stored: Sequence[str], tolerance: float) -> str:
    """Say that networks which are stored in float32 agree up to its rounding, and how to compare them."""
    subject = f"{' and '.join(stored)} {'is' if len(stored) == 1 else 'are'}" if stored else "some networks are"
    option = f"--tolerance {tolerance:.0e}".replace("e-0", "e-")
    return f"{subject} stored in float32, and differ by no more than its rounding: use {option} to ignore it"


@dataclass(frozen=True, eq=False, repr=False)
class NetworkComparison:
    """Whether two networks are one function on a domain.

    Attributes:
        comparison: The answer, with matching, differences and degenerate units.
        networks: Both networks as affine maps in float64.
        changes: What was changed about the layers of either to write it so, in words.
        note: Whether the networks would be the same function up to the rounding of float32, in words; else empty.
    """

    comparison: FunctionComparison
    networks: tuple[ReluNetwork, ReluNetwork]
    changes: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    note: str = ""

    @property
    def same(self) -> bool | None:
        """Whether the networks are one function on the domain; None where this is not decided."""
        return self.comparison.same

    @property
    def relation(self) -> str:
        """How the networks are related: see `understudy.papers.equivalence.theory.comparison.Relation`."""
        return self.comparison.relation

    @property
    def permutations(self) -> tuple[np.ndarray, ...] | None:
        """P_l as index vectors: unit i of the first network is unit `permutations[l − 1][i]` of the second."""
        return self.comparison.permutations

    @property
    def scalings(self) -> tuple[np.ndarray, ...] | None:
        """Diagonals of M_l: factors from the rows of the second network's units to those of the first."""
        return self.comparison.scalings

    @property
    def largest_parameter_difference(self) -> float | None:
        """Largest difference of matched parameters, relative to the length of a unit's weights and bias."""
        return self.comparison.largest_parameter_difference

    @property
    def largest_output_difference(self) -> float:
        """Largest difference of an output that was found, relative to its standard deviation on the domain."""
        return self.comparison.largest_output_difference

    @property
    def witness(self) -> np.ndarray | None:
        """An input at which the outputs differ; None unless the networks are different functions."""
        found = self.comparison.witness
        return None if found is None else found.x

    @property
    def answer(self) -> str:
        """The answer in words."""
        return ANSWERS[self.relation]

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        found, outputs, matching = self.comparison, self.comparison.outputs, self.comparison.matching
        witness = None
        if found.witness is not None:
            values = {"input": outputs.x, "a": outputs.a, "b": outputs.b}
            witness = {name: value.tolist() for name, value in values.items()}
            witness |= {"output": outputs.output, "difference": outputs.difference}
        return {
            "same": found.same,
            "relation": found.relation,
            "permutations": None if matching is None else [each.tolist() for each in matching.permutations],
            "scalings": None if matching is None else [_plain(each) for each in matching.scalings],
            "largest_parameter_difference": found.largest_parameter_difference,
            "largest_output_difference": found.largest_output_difference,
            "witness": witness,
            "tolerance": found.tolerance,
            "domain": {"lower": found.box.lower.tolist(), "upper": found.box.upper.tolist()},
            "output_scales": outputs.scale.tolist(),
            "inputs": outputs.inputs,
            "distance": None if matching is None else matching.distance,
            "degenerate": {
                name: [vars(unit) for unit in units] for name, units in zip("ab", found.degenerate, strict=True)
            },
            "kept": {name: [list(layer) for layer in kept] for name, kept in zip("ab", self._kept(), strict=True)},
            "changes": dict(zip("ab", map(list, self.changes), strict=True)),
            "note": self.note,
        }

    def to_pandas(self) -> DataFrame:
        """Return one row per matched hidden unit: its layer, its partner, their scaling, and their distance.

        Units have the indices of the networks as they were given. `partner` is −1 for a unit without one.

        Raises:
            UserError: The networks have different numbers of layers or slopes, so that units have no partners.
        """
        import pandas as pd

        return pd.DataFrame(self.units())

    def units(self) -> list[dict[str, Any]]:
        """Rows of `to_pandas` as plain values."""
        matching = self.comparison.matching
        if matching is None:
            raise UserError("units of networks with different numbers of layers or slopes have no partners")
        ours, theirs = self._kept()
        return [
            {
                "layer": layer + 1,
                "unit": own[i],
                "partner": other[int(partner)] if partner >= 0 else -1,
                "scaling": float(scale),
                "distance": float(distance),
            }
            for layer, (own, other) in enumerate(zip(ours, theirs, strict=True))
            for i, (partner, scale, distance) in enumerate(
                zip(
                    matching.permutations[layer],
                    matching.scalings[layer],
                    matching.distances[layer],
                    strict=True,
                )
            )
        ]

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the maps of eq. 2.5 as tensors `P1`, `M1`, … (.safetensors), or everything (.json).

        Args:
            path: File to write.

        Returns:
            The file.

        Raises:
            UserError: Another ending, no matching to write, or the file cannot be written.
        """
        path = Path(path)
        if path.suffix == ".json":
            content = json.dumps(self.as_dict(), ensure_ascii=False, allow_nan=False).encode()
        elif path.suffix == ".safetensors":
            content = self._tensors()
        else:
            raise UserError(f"{path}: the file must end in .safetensors or .json")
        with disk_errors(path, "choose another file"):
            write_bytes(path, content)
        return path

    def _tensors(self) -> bytes:
        from safetensors.numpy import save

        matching = self.comparison.matching
        if matching is None:
            raise UserError("there is no matching to write: the networks have different numbers of layers; use .json")
        tensors = {f"P{layer}": each.astype(np.int64) for layer, each in enumerate(matching.permutations, 1)}
        tensors |= {f"M{layer}": each for layer, each in enumerate(matching.scalings, 1)}
        if self.relation == "after removal":
            for name, kept in zip("ab", self._kept(), strict=True):
                tensors |= {f"{name}{layer}": np.array(each, dtype=np.int64) for layer, each in enumerate(kept, 1)}
        content: bytes = save(tensors, {"same": json.dumps(self.same), "relation": self.relation})
        return content

    def _kept(self) -> tuple[Sequence[Sequence[int]], Sequence[Sequence[int]]]:
        """Indices, in the networks as they were given, of the units that permutations are about."""
        if self.relation == "after removal":
            return self.comparison.reductions[0].kept, self.comparison.reductions[1].kept
        ours, theirs = ([range(width) for width in network.hidden] for network in self.networks)
        return ours, theirs

    def __repr__(self) -> str:
        parameters = self.largest_parameter_difference
        shown = [] if parameters is None else [f"parameters differ by {number(parameters)}"]
        shown.append(f"outputs by {number(self.largest_output_difference)} on {self.comparison.box}")
        note = f"; {self.note}" if self.note else ""
        return f"NetworkComparison(same={self.same}: {self.answer}; {', '.join(shown)}{note})"

    def _repr_html_(self) -> str:
        return f"<pre>{escape(repr(self))}</pre>"


@dataclass(frozen=True, eq=False, repr=False)
class FunctionClasses:
    """Which of many networks are one function on a domain.

    Attributes:
        found: Classes, distances and undecided pairs; indices are those of `names`.
        names: Indices of the networks as they were given; networks with weights that are not finite, or with values
            on the domain that are not, are left out.
        tolerance: Relative tolerance.
        box: The domain.
        left_out: Number of networks that are left out.
        is_float32: Whether a network is stored in float32.
    """

    found: Classes
    names: tuple[int, ...]
    tolerance: float
    box: Box
    left_out: int = 0
    is_float32: bool = False

    @property
    def functions(self) -> list[list[int]]:
        """Networks that are one function on the domain, the largest class first."""
        return [[self.names[i] for i in members] for members in self.found.functions]

    @property
    def parameters(self) -> list[list[int]]:
        """Networks whose parameters agree up to permutation and scaling, the largest class first."""
        return [[self.names[i] for i in members] for members in self.found.parameters]

    @property
    def undecided(self) -> list[tuple[int, int]]:
        """Pairs whose outputs agree wherever they were compared, although their parameters differ."""
        return [(self.names[i], self.names[j]) for i, j in self.found.undecided]

    @property
    def distances(self) -> np.ndarray:
        """Largest difference of an output of every pair on shared inputs, relative to its scale."""
        return self.found.distances

    @property
    def distances_between(self) -> np.ndarray:
        """Distances of all pairs of networks that are different functions, in increasing order."""
        place = np.empty(len(self.names), int)
        for i, members in enumerate(self.found.functions):
            place[members] = i
        rows, columns = np.triu_indices(len(place), 1)
        different = place[rows] != place[columns]
        return np.sort(self.distances[rows[different], columns[different]])

    @property
    def note(self) -> str:
        """Whether different functions are the same up to the rounding of float32, in words; else empty."""
        between = self.distances_between
        close = len(between) > 0 and self.tolerance < between[0] <= FLOAT32
        return float32_note((), FLOAT32) if self.is_float32 and close else ""

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "networks": list(self.names),
            "functions": self.functions,
            "parameters": self.parameters,
            "undecided": [list(pair) for pair in self.undecided],
            "distances": self.distances.tolist(),
            "tolerance": self.tolerance,
            "domain": {"lower": self.box.lower.tolist(), "upper": self.box.upper.tolist()},
            "output_scales": self.found.scale.tolist(),
            "left_out": self.left_out,
            "note": self.note,
        }

    def to_pandas(self) -> DataFrame:
        """Return the distance matrix, with the indices of the networks."""
        import pandas as pd

        return pd.DataFrame(self.distances, index=self.names, columns=self.names)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write everything (.json), or the distance matrix and the classes as tensors (.safetensors).

        Tensors are `distances`, the matrix; `networks`, the indices of its rows; and `functions` and `parameters`, for
        every row the number of its class, from 0 for the largest.

        Args:
            path: File to write.

        Returns:
            The file.

        Raises:
            UserError: Another ending, or the file cannot be written.
        """
        path = Path(path)
        if path.suffix == ".json":
            content = json.dumps(self.as_dict(), ensure_ascii=False, allow_nan=False).encode()
        elif path.suffix == ".safetensors":
            content = self._tensors()
        else:
            raise UserError(f"{path}: the file must end in .safetensors or .json")
        with disk_errors(path, "choose another file"):
            write_bytes(path, content)
        return path

    def _tensors(self) -> bytes:
        from safetensors.numpy import save

        tensors = {"distances": self.distances, "networks": np.array(self.names, np.int64)}
        for name, classes in (("functions", self.found.functions), ("parameters", self.found.parameters)):
            tensors[name] = np.empty(len(self.names), np.int64)
            for i, members in enumerate(classes):
                tensors[name][members] = i
        content: bytes = save({name: np.ascontiguousarray(each) for name, each in tensors.items()})
        return content

    def __repr__(self) -> str:
        open_pairs = f", {len(self.undecided)} pairs not decided" if self.undecided else ""
        return (
            f"FunctionClasses({len(self.names)} networks: {len(self.functions)} functions on {self.box}, "
            f"{len(self.parameters)} parameters up to permutation and scaling{open_pairs})"
        )


def _plain(values: np.ndarray) -> list[float | None]:
    return [None if value != value else value for value in values.tolist()]
