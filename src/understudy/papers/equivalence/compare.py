"""`us.compare`: whether two ReLU networks are one function, or which of many are."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, overload

import torch

from understudy._errors import UserError
from understudy._numbers import number
from understudy._progress import steps
from understudy.nets import Population
from understudy.nets.given_networks import Network, as_population
from understudy.papers.equivalence.comparison import FLOAT32, FunctionClasses, NetworkComparison, float32_note
from understudy.papers.equivalence.theory.box_coordinates import is_finite_on
from understudy.papers.equivalence.theory.classes import classify
from understudy.papers.equivalence.theory.comparison import TOLERANCE, FunctionComparison, compare_networks
from understudy.papers.equivalence.theory.domain import Bounds, Box, as_box
from understudy.papers.equivalence.theory.relu_network import ReluNetwork, as_relu_network
from understudy.store import Run

MOST_NETWORKS = 2_000
"""Largest number of networks of which all pairs are compared."""
MOST_EXACT = 40
"""Hidden units up to which all degenerate units are decided exactly; in larger networks, where the answer needs it."""


Given = Network | ReluNetwork
"""A user's network, or one that is written as affine maps already."""


@overload
def compare(
    a: Given,
    b: Given,
    *,
    domain: Box | Bounds | None = ...,
    tolerance: float = ...,
    a_network: int = ...,
    b_network: int = ...,
    seed: int = ...,
) -> NetworkComparison: ...


@overload
def compare(
    a: Run | Given | Sequence[Given],
    b: None = None,
    *,
    domain: Box | Bounds | None = ...,
    tolerance: float = ...,
    a_network: int = ...,
    b_network: int = ...,
    seed: int = ...,
) -> FunctionClasses: ...


def compare(
    a: Run | Given | Sequence[Given],
    b: Given | None = None,
    *,
    domain: Box | Bounds | None = None,
    tolerance: float = TOLERANCE,
    a_network: int = 0,
    b_network: int = 0,
    seed: int = 1,
) -> NetworkComparison | FunctionClasses:
    """Decide whether two ReLU networks are one function, up to permutation and rescaling of their units.

    Parameters that agree up to permutation and positive scaling (Phuong & Lampert 2020, eq. 2.5) prove that the
    functions agree; an input at which the outputs differ proves that they do not. Units that are degenerate on the
    domain are removed before networks of different widths are compared.

    Args:
        a: The first network: a population, a module of PyTorch, or a network file. Without `b`, all networks of a
            population, of a list, or of a run (its students at the end of training) are compared with each other.
        b: The second network.
        domain: Lower and upper ends of the box of inputs, each one number or one for every input. Default: [−2, 2].
        tolerance: Largest relative difference that counts as rounding: of parameters relative to the length of a
            unit's incoming weights and bias, both as given and in the coordinates of the domain, of every output
            relative to its standard deviation on the domain. Networks that are stored in float32 need 10⁻⁶.
        a_network: Index of the network in a population `a`.
        b_network: Index of the network in a population `b`.
        seed: Seed of the inputs that are searched for a difference.

    Returns:
        The answer for two networks; or the classes of equal functions of several.

    Raises:
        UserError: Networks that are no ReLU networks or do not fit, an unbounded domain, values that are not finite on
            the domain, or a tolerance out of range.
    """
    if not 0 < tolerance < 1:
        raise UserError(f"must be above 0 and below 1, got {number(tolerance, 'g')}", "tolerance")
    if b is None:
        return _compare_all(a, domain, tolerance, seed)
    if isinstance(a, Run | Sequence) and not isinstance(a, str):
        raise UserError("a must be one network where b is given; omit b to compare all networks of a run or a list")
    given = _loaded("a", a), _loaded("b", b)
    ours, our_changes = as_relu_network("a", given[0], a_network)
    theirs, their_changes = as_relu_network("b", given[1], b_network)
    box = as_box(domain, ours.sizes[0])
    with steps("comparing networks"):
        small = max(sum(each.hidden) for each in (ours, theirs)) <= MOST_EXACT
        found = compare_networks(ours, theirs, box, tolerance, seed, small)
        single = tuple(name for name, each in zip("AB", given, strict=True) if _is_float32(each))
        note = _precision_note(found, (ours, theirs), single, seed) if single and not found.same else ""
    return NetworkComparison(found, (ours, theirs), (our_changes, their_changes), note)


def _loaded(name: str, network: Given) -> Population | ReluNetwork:
    return network if isinstance(network, ReluNetwork) else as_population(name, network)


def _is_float32(network: Population | ReluNetwork) -> bool:
    return isinstance(network, Population) and network.layers[0].weight.dtype != torch.float64


def _precision_note(
    found: FunctionComparison, networks: tuple[ReluNetwork, ReluNetwork], single: tuple[str, ...], seed: int
) -> str:
    """Say that networks agree up to float32 rounding, where they do; else nothing."""
    for tolerance in (FLOAT32, 10 * FLOAT32):
        if found.tolerance < tolerance and compare_networks(*networks, found.box, tolerance, seed).same:
            return float32_note(single, tolerance)
    return ""


def _compare_all(
    given: Run | Given | Sequence[Given], domain: Box | Bounds | None, tolerance: float, seed: int
) -> FunctionClasses:
    makers, single = _networks(given)
    if not 2 <= len(makers) <= MOST_NETWORKS:
        raise UserError(
            f"2 to {MOST_NETWORKS:,} networks can be compared with each other, got {len(makers)}; give two networks, "
            "or a population, a list or a run with several"
        )
    found: dict[int, ReluNetwork] = {}
    for i, make in makers.items():
        network = make()
        if network is not None:
            found[i] = network
    box = as_box(domain, next(iter(found.values())).sizes[0]) if found else None
    if box is not None:
        found = {i: each for i, each in found.items() if each.sizes[0] != box.inputs or is_finite_on(each, box)}
    if box is None or len(found) < 2:
        raise UserError(
            f"fewer than two of {len(makers)} networks have finite weights and finite values on the domain; train them "
            "again, or use a smaller domain"
        )
    networks = list(found.values())
    with steps("comparing networks", len(networks)) as step:
        classes = classify(networks, box, tolerance, seed, step)
    return FunctionClasses(classes, tuple(found), tolerance, box, len(makers) - len(found), single)


def _networks(given: Run | Given | Sequence[Given]) -> tuple[Mapping[int, Callable[[], ReluNetwork | None]], bool]:
    """Functions that make the networks; None in a list for a network whose weights are not finite.

    The second value says whether any of them is stored in float32.
    """
    if isinstance(given, str | os.PathLike) and os.path.isdir(given):
        given = Run(given)
    if isinstance(given, Run):
        students = given.students
        given = [students] if isinstance(students, Population) else list(students)
    several: list[Any] = list(given) if isinstance(given, list | tuple) else [given]

    def make(network: Any, which: int) -> Callable[[], ReluNetwork | None]:
        def made() -> ReluNetwork | None:
            if isinstance(network, Population) and not _finite(network, which):
                return None
            return as_relu_network("a", network, which)[0]

        return made

    makers: list[Callable[[], ReluNetwork | None]] = []
    single = False
    for each in several:
        if isinstance(each, ReluNetwork):
            makers.append(make(each, 0))
        else:
            population = as_population("a", each)
            single = single or _is_float32(population)
            makers += [make(population, i) for i in range(len(population))]
    return dict(enumerate(makers)), single


def _finite(population: Population, which: int) -> bool:
    layers = population[which].layers
    tensors = [tensor for layer in layers for tensor in (layer.weight, layer.bias) if tensor is not None]
    return all(bool(tensor.isfinite().all()) for tensor in tensors)
