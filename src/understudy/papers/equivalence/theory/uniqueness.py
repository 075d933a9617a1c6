"""Theorem 2.1 of Phuong & Lampert (2020): the function of some networks determines their parameters.

The theorem states that such a network exists for every eligible architecture. Its proof (theorem A.1) applies to every
general, transparent network with the paths of lemma A.17; these are the hypotheses that are checked here. Paths are
looked for where all units below are active, as in the lemma's construction; there may be others.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from jaxtyping import Float
from torch import Tensor

from understudy._numbers import number
from understudy.nets import Population
from understudy.papers.equivalence.theory.comparison import FunctionComparison, compare_networks
from understudy.papers.equivalence.theory.construction import ineligible
from understudy.papers.equivalence.theory.domain import Box, as_box
from understudy.papers.equivalence.theory.general import is_general
from understudy.papers.equivalence.theory.paths import longest_chains, path_points
from understudy.papers.equivalence.theory.relu_network import ReluNetwork, as_relu_network
from understudy.papers.equivalence.theory.transparent import is_transparent
from understudy.theory.result import Finding, Hypothesis, result

NAME = "S3 theorem 2.1"
MOST_CELLS = 1000
MOST_INPUTS = 20
"""Inputs up to which cells are enumerated."""
SAMPLES, MOST_WORK = 2000, 4e7
"""Samples of patterns, fewer if they times the cube of the largest width would exceed the second number."""
MOST_PROGRAMS = 10_000
"""Linear programs, times inputs, up to which chains of folds are looked for."""
_NEAR = 1e-6
"""Difference of outputs at the samples, relative to their scale, up to which the functions are compared everywhere."""


@result(
    NAME,
    title="The function determines the parameters up to permutation and positive scaling",
    statement="On a bounded domain, for widths that do not increase, at least two units in every hidden layer and "
    "one output: if a teacher is general and transparent, and the folds of every unit have a chain of dependent folds "
    "up to the last layer (lemma 2.4), then every general student that is the same function has the teacher's "
    "parameters, up to permutation of units and positive scaling (eq. 2.5).",
    measured="the conditions on the box that the samples span, over all cells where there are at most "
    f"{MOST_CELLS:,} and {MOST_INPUTS} inputs; the largest difference of outputs, and that of parameters after "
    "matching units",
    subject="parameters",
    slopes="ReLU",
)
def theorem_2_1(teacher: Population, student: Population, x: Float[Tensor, "sample in"]) -> Sequence[Finding]:
    """Check the hypotheses one after the other, and compare the parameters of networks of one function."""
    hypotheses = [_architecture(teacher.sizes), _same_architecture(teacher.sizes, student.sizes), _interior(x)]
    if not all(hypothesis.holds for hypothesis in hypotheses):
        return [_finding(hypotheses, "not examined for such networks")]
    theirs, ours = as_relu_network("teacher", teacher)[0], as_relu_network("student", student)[0]
    samples = x.cpu().numpy()
    box = as_box((samples.min(0), samples.max(0)), samples.shape[1])
    comparison = _compare(theirs, ours, box, samples)
    one_function = _one_function(comparison)
    hypotheses += [one_function, _transparent(theirs, box), _general("teacher", theirs, box), _paths(theirs, box)]
    if not isinstance(comparison, FunctionComparison) or not one_function.holds:
        return [_finding(hypotheses, "the functions differ, so that nothing follows for the parameters")]
    hypotheses.append(_general("student", ours, box))
    largest = comparison.largest_parameter_difference
    words = "units cannot be matched" if largest is None else f"largest difference of matched parameters {largest:.2g}"
    agrees = comparison.relation == "permutation and scaling"
    return [_finding(hypotheses, words, agrees, largest, comparison.tolerance)]


def _finding(
    hypotheses: Sequence[Hypothesis],
    measured: str,
    agrees: bool | None = None,
    amount: float | None = None,
    limit: float | None = None,
) -> Finding:
    conclusion = "the student's parameters are the teacher's, up to permutation and positive scaling"
    about = "teacher and student"
    return Finding(NAME, about, tuple(hypotheses), conclusion, measured, agrees, amount=amount, limit=limit)


def _architecture(sizes: Sequence[int]) -> Hypothesis:
    why = ineligible(sizes)
    needed = "widths that do not increase, at least 2 units, one output"
    return Hypothesis("architecture", "-".join(map(str, sizes)), needed, not why, why)


def _same_architecture(teacher: Sequence[int], student: Sequence[int]) -> Hypothesis:
    theirs, ours = ("-".join(map(str, sizes)) for sizes in (teacher, student))
    change = "a student with the layers of the teacher"
    return Hypothesis("student's architecture", ours, theirs, theirs == ours, change)


def _interior(x: Tensor) -> Hypothesis:
    constant = int((x.amin(0) == x.amax(0)).sum()) if len(x) else x.shape[1]
    value = f"{constant:,} of {x.shape[1]:,} inputs never vary" if constant else "every input varies"
    return Hypothesis("domain", value, "a box with an interior", not constant, "inputs that vary, or networks of fewer")


def _compare(a: ReluNetwork, b: ReluNetwork, box: Box, x: np.ndarray) -> FunctionComparison | float:
    """Comparison of both functions on the box, or their difference at the samples where it is large already."""
    ours, theirs = a(x), b(x)
    difference = float(np.abs(ours - theirs).max() / max(float(ours.std()), 1e-300))
    return difference if difference > _NEAR else compare_networks(a, b, box)


def _one_function(found: FunctionComparison | float) -> Hypothesis:
    name, needed, change = "one function", "equal outputs", "train on, or compare with a copy"
    if isinstance(found, FunctionComparison):
        difference = found.largest_output_difference
        return Hypothesis(
            name, f"outputs differ by {difference:.2g} of their scale", needed, found.same is True, change
        )
    return Hypothesis(name, f"outputs differ by {number(found, '.2g')} of their scale", needed, False, change)


def _most_cells(network: ReluNetwork) -> int:
    return MOST_CELLS if network.sizes[0] <= MOST_INPUTS else 0


def _transparent(network: ReluNetwork, box: Box) -> Hypothesis:
    found = is_transparent(network, box, _most_cells(network), SAMPLES, descents=8 if box.inputs <= MOST_INPUTS else 1)
    values = {True: "at every input", False: f"layer {found.layer} is off at an input", None: "not decided"}
    return Hypothesis(
        "transparent teacher",
        values[found.transparent],
        "an active unit in every layer",
        found.transparent is True,
        "larger biases, or a smaller box" if found.transparent is False else "fewer units: there are too many cells",
    )


def _general(name: str, network: ReluNetwork, box: Box) -> Hypothesis:
    samples = min(SAMPLES, max(20, int(MOST_WORK / max(network.sizes) ** 3)))
    found = is_general(network, box, _most_cells(network), samples)
    violated = [condition.name for condition in found.conditions if condition.holds is False]
    return Hypothesis(
        f"general {name}",
        f"violated: {violated[0]}" if violated else found.words,
        "no violation over all cells",
        found.general is True,
        found.words if violated else "fewer units: there are too many cells",
    )


def _paths(network: ReluNetwork, box: Box) -> Hypothesis:
    depth, hidden = len(network.hidden), network.hidden
    name, needed = "chains of folds", "one from every unit to the last layer"
    programs = sum(hidden) + sum(below * above for below, above in pairwise(hidden))
    if programs * box.inputs > MOST_PROGRAMS:
        return Hypothesis(name, "not examined", needed, False, "fewer units: there are too many pairs")
    chains = longest_chains(network, path_points(network, box))
    found = sum(length == depth - layer for layer, lengths in enumerate(chains, 1) for length in lengths)
    change = "a teacher whose folds meet, such as that of lemma 2.4"
    return Hypothesis(name, f"found for {found} of {sum(hidden)} units", needed, found == sum(hidden), change)
