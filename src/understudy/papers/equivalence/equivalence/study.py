"""The study `equivalence`: networks of one function, networks with one weight changed, and students of zero loss.

Phuong & Lampert 2020, theorem 2.1, lemma 2.4.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, ClassVar, Self

from annotated_types import Ge, Gt, Le

from understudy.lab.options import Count, Distinct, Share, Steps
from understudy.lab.pieces import blocks, unit_table
from understudy.lab.study import ExactStudy, Piece

if TYPE_CHECKING:
    from understudy.lab.study import Tables
    from understudy.store import Run

# fmt: off
ARCHITECTURES = (
    "2-2-1", "3-2-1", "3-3-1", "5-4-1", "10-10-1", "20-10-1", "2-2-2-1", "3-2-2-1",
    "3-3-2-1", "4-4-3-1", "5-5-5-1", "10-5-3-1", "10-10-10-1", "2-2-2-2-1", "3-3-2-2-1",
    "4-4-4-4-1", "6-5-4-3-1", "8-6-4-2-1", "2-2-2-2-2-1", "6-5-4-3-2-1",
)
# fmt: on
"""Architectures of lemma 2.4, d_0-…-d_L."""
STUDENTS = (("3-3-1", "3"), ("3-3-1", "4"), ("3-3-1", "6"), ("3-2-2-1", "2-2"), ("3-2-2-1", "4-4"))
"""Teachers and hidden units of the students that are fitted to them."""
ZERO = 1e-20
"""Loss, as a share of the variance of the teacher's outputs, that counts as zero."""
_PER_PIECE = 50


@dataclass(frozen=True)
class Equivalence(ExactStudy):
    """Pairs of one function in other parameters, pairs with one weight changed, the networks of lemma 2.4, and students
    of zero loss: which are one function, and which have the same parameters up to permutation and scaling."""

    name: ClassVar[str] = "equivalence"
    summary: ClassVar[str] = "whether two networks are one function: permutations and scalings, or a witness"
    figures: ClassVar[str] = "S3 theorem 2.1, lemma 2.4"
    decides: ClassVar[str] = "E1 E4"

    seeds: Count = 250
    """Number of random networks of every depth: each makes a pair of one function and a pair with a changed weight."""
    layers: Annotated[tuple[int, ...], Ge(2), Distinct()] = (2, 3, 4, 5)
    """Numbers of layers of weights; widths are drawn from 2 to 10 and do not increase."""
    magnitudes: Annotated[float, Gt(0), Le(100)] = 6.0
    """Orders of magnitude over which the units of the second network of a pair are rescaled."""
    change: Share = 1e-4
    """Relative change of one weight, of any layer, that acts on at least 1/1000 of the box."""
    tolerance: Share = 1e-9
    """Relative difference up to which parameters and outputs count as equal."""
    constructed: Annotated[int, Ge(0)] = 20
    """Number of architectures for which the network of lemma 2.4 is constructed and recovered from its outputs."""
    attempts: Steps = 5
    """Maximum number of attempts to recover a network, each with another seed."""
    students: Annotated[int, Ge(0)] = 200
    """Number of students that are fitted to each teacher, in every width."""
    samples: Annotated[int, Ge(10)] = 1_000
    """Inputs that students are fitted on, drawn from the box."""
    steps: Steps = 500
    """Maximum number of evaluations while a student is fitted."""

    @classmethod
    def quick(cls) -> Self:
        return cls(seeds=25, constructed=6, students=40)

    def pieces(self, *runs: Run) -> Iterator[Piece]:
        for layers in self.layers:
            for seeds in blocks(range(1, self.seeds + 1), _PER_PIECE):
                name = f"pairs of {layers} layers, {seeds[0]} to {seeds[-1]}"
                yield Piece(name, 0, partial(self._pairs, layers, seeds))
        for architecture in ARCHITECTURES[: self.constructed]:
            yield Piece(f"lemma 2.4, {architecture}", 0, partial(self._constructed, architecture))
        for teacher, hidden in STUDENTS if self.students else ():
            name = f"students of {hidden} units, teacher {teacher}"
            yield Piece(name, 0, partial(self._students, teacher, hidden))

    def _pairs(self, layers: int, seeds: range, first: int) -> Tables:
        """Two rows per seed: a pair of one function, and one with a changed weight."""
        from understudy.papers.equivalence.equivalence.pairs import changed_pair, equal_pair

        rows: dict[str, list[object]] = {}
        for seed in seeds:
            equal = equal_pair(seed, layers, self.magnitudes)
            changed = changed_pair(seed, layers, self.change, self.magnitudes)
            for pair in (equal, changed):
                found = pair.compare(self.tolerance)
                values = {
                    "seed": seed,
                    "layers": layers,
                    "architecture": "-".join(map(str, pair.a.sizes)),
                    "changed_layer": pair.weight[0] if pair.weight else 0,
                    "relation": found.relation,
                    "same": {True: 1, False: 0, None: -1}[found.same],
                    "map_error": pair.map_error(found),
                    "parameters": found.largest_parameter_difference,
                    "outputs": found.largest_output_difference,
                }
                for name, value in values.items():
                    rows.setdefault(name, []).append(value)
        return {"pairs": unit_table(**rows)}

    def _constructed(self, architecture: str, first: int) -> Tables:
        """One row per architecture: paths of the network of lemma 2.4, and the network recovered from its outputs."""
        from understudy.papers.equivalence.theory.comparison import compare_networks
        from understudy.papers.equivalence.theory.construction import well_connected_network
        from understudy.papers.equivalence.theory.domain import as_box
        from understudy.papers.equivalence.theory.paths import longest_chains, path_points
        from understudy.papers.equivalence.theory.recovery import recover_network
        from understudy.papers.equivalence.theory.transparent import is_transparent

        sizes = tuple(map(int, architecture.split("-")))
        box = as_box(None, sizes[0])
        network = well_connected_network(sizes, box, 1)
        hidden = network.hidden
        chains = longest_chains(network, path_points(network, box))
        long_enough = all(
            length >= len(hidden) - layer for layer, lengths in enumerate(chains, 1) for length in lengths
        )
        evaluations = 0
        for attempt in range(1, self.attempts + 1):
            found = recover_network(network, box, sizes, seed=attempt)
            evaluations += found.evaluations
            if found.complete:
                break
        relation, parameters = "not recovered", float("nan")
        if found.complete and found.network is not None:
            compared = compare_networks(network, found.network, box, self.tolerance)
            relation = compared.relation
            if compared.largest_parameter_difference is not None:
                parameters = compared.largest_parameter_difference
        row = {
            "layers": len(hidden) + 1,
            "transparent": is_transparent(network, box).transparent is True,
            "paths": long_enough,
            "attempts": attempt,
            "evaluations": evaluations,
            "relation": relation,
            "parameters": parameters,
        }
        return {"constructed": unit_table(architecture=[architecture], **row)}

    def _students(self, teacher: str, hidden: str, first: int) -> Tables:
        """One row per student: its loss, and its classes of functions and of parameters among those of zero loss.

        Class 0 is that of the teacher; students whose loss is not zero are in none, −1.
        """
        from understudy._random import Stream, generator
        from understudy.papers.equivalence.equivalence.pairs import folding_network
        from understudy.papers.equivalence.equivalence.training import fit_student
        from understudy.papers.equivalence.theory.classes import classify
        from understudy.papers.equivalence.theory.domain import as_box

        sizes, widths = (tuple(map(int, each.split("-"))) for each in (teacher, hidden))
        box, random = as_box(None, sizes[0]), generator(1, Stream.COMPARISON, 30)
        network = folding_network(sizes, box, random)
        x = box.draw(random, self.samples)
        fitted = [fit_student(network, widths, x, seed, self.steps) for seed in range(1, self.students + 1)]
        zero = [i for i, (_, loss) in enumerate(fitted) if loss < ZERO]
        # Fitted parameters are as exact as the square root of the loss allows, not as rounding does.
        found = classify([network, *(fitted[i][0] for i in zero)], box, 1e-6)
        classes = {}
        for name, members in (("function", found.functions), ("parameter_class", found.parameters)):
            members = sorted(members, key=lambda each: 0 not in each)
            place = {zero[i - 1]: number for number, each in enumerate(members) for i in each if i}
            classes[name] = [place.get(i, -1) for i in range(len(fitted))]
        undecided = {zero[max(pair) - 1] for pair in found.undecided if 0 in pair}
        return {
            "students": unit_table(
                teacher=teacher,
                hidden=hidden,
                seed=list(range(1, self.students + 1)),
                loss=[loss for _, loss in fitted],
                undecided=[i in undecided for i in range(len(fitted))],
                **classes,
            )
        }
