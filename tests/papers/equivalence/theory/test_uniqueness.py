"""Theorem 2.1 as `check` reports it: copies of a well-connected teacher, perturbed ones, and teachers it excludes."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from understudy.nets import Population
from understudy.papers.equivalence.theory import uniqueness
from understudy.papers.equivalence.theory.construction import well_connected_network
from understudy.papers.equivalence.theory.domain import as_box
from understudy.papers.equivalence.theory.relu_network import ReluNetwork, random_network
from understudy.papers.equivalence.theory.uniqueness import theorem_2_1
from understudy.theory import Finding, check
from understudy.theory.result import find_result

ARCHITECTURES = [(2, 2, 1), (3, 3, 1), (3, 2, 2, 1), (4, 4, 3, 1), (3, 3, 3, 3, 1), (5, 4, 3, 2, 1)]


def samples(inputs: int, count: int = 500) -> torch.Tensor:
    """Points whose bounding box is exactly [−2, 2]^d."""
    x = 4 * torch.rand((count, inputs), generator=torch.Generator().manual_seed(1), dtype=torch.float64) - 2
    return torch.cat([x, torch.full((1, inputs), -2.0), torch.full((1, inputs), 2.0)])


def scrambled(network: ReluNetwork, seed: int, decades: float = 3.0) -> ReluNetwork:
    """Write a function with permuted and rescaled parameters."""
    random = np.random.default_rng(seed)
    weights, biases = list(network.weights), list(network.biases)
    for layer, units in enumerate(network.hidden):
        order, scale = random.permutation(units), 10 ** random.uniform(-decades, decades, units)
        weights[layer], biases[layer] = scale[:, None] * weights[layer][order], scale * biases[layer][order]
        weights[layer + 1] = weights[layer + 1][:, order] / scale
    return ReluNetwork(tuple(weights), tuple(biases))


def finding(teacher: ReluNetwork | Population, student: ReluNetwork | Population, x: torch.Tensor) -> Finding:
    networks = [each.population() if isinstance(each, ReluNetwork) else each for each in (teacher, student)]
    (found,) = theorem_2_1(*networks, x)
    return found


def state(found: Finding) -> dict[str, bool]:
    return {hypothesis.name: hypothesis.holds for hypothesis in found.hypotheses}


@given(st.sampled_from(ARCHITECTURES), st.integers(0, 10**6))
def test_it_applies_to_copies_of_the_constructed_teacher_and_agrees(sizes, seed):
    teacher = well_connected_network(sizes, as_box(None, sizes[0]), seed)
    found = finding(teacher, scrambled(teacher, seed), samples(sizes[0]))
    assert found.applies, found.failing
    assert found.agrees
    assert found.amount is not None
    assert found.amount < 1e-9
    assert state(found).keys() == {
        "architecture",
        "student's architecture",
        "domain",
        "one function",
        "transparent teacher",
        "general teacher",
        "chains of folds",
        "general student",
    }


def test_nothing_follows_where_functions_differ():
    teacher = well_connected_network((3, 3, 2, 1), as_box(None, 3), 0)
    weights = [weight.copy() for weight in teacher.weights]
    weights[0][1, 2] *= 1 + 1e-4
    found = finding(teacher, ReluNetwork(tuple(weights), teacher.biases), samples(3))
    assert not found.applies
    assert found.agrees is None
    assert [hypothesis.name for hypothesis in found.failing] == ["one function"]
    assert found.measured == "the functions differ, so that nothing follows for the parameters"


def test_a_small_change_is_noticed_by_the_search_over_the_box():
    """A difference below 10⁻⁶ of the scale at the samples is left to the comparison of both functions."""
    teacher = well_connected_network((3, 3, 2, 1), as_box(None, 3), 0)
    weights = [weight.copy() for weight in teacher.weights]
    weights[0][1, 2] *= 1 + 1e-8
    found = finding(teacher, ReluNetwork(tuple(weights), teacher.biases), samples(3))
    assert not state(found)["one function"]


def test_a_teacher_that_is_off_somewhere_is_excluded():
    teacher = random_network((2, 2, 1), 3)
    biases = (np.array([-1.0, -1.0]), teacher.biases[1])
    found = finding(ReluNetwork(teacher.weights, biases), ReluNetwork(teacher.weights, biases), samples(2))
    assert not state(found)["transparent teacher"]
    assert not found.applies
    assert not found.contradicted


def test_functions_of_several_parameters_have_degenerate_units_and_contradict_nothing():
    """Two units of one direction can share their outgoing weight in any way; such networks are not general."""
    first, bias = np.array([[1.0, 0.2], [1.0, 0.2]]), np.array([0.3, 0.3])
    teacher = ReluNetwork((first, np.array([[1.0, 1.0]])), (bias, np.zeros(1)))
    student = ReluNetwork((first, np.array([[0.5, 1.5]])), (bias, np.zeros(1)))
    found = finding(teacher, student, samples(2))
    assert state(found)["one function"]
    assert not state(found)["general teacher"]
    assert found.agrees is False
    assert not found.contradicted


@pytest.mark.parametrize(
    ("teacher", "student", "fails", "change"),
    [
        ((3, 4, 1), (3, 4, 1), "architecture", "widths must not increase"),
        ((3, 2, 2), (3, 2, 2), "architecture", "there must be one output"),
        ((3, 3, 1), (3, 2, 1), "student's architecture", "a student with the layers of the teacher"),
    ],
)
def test_other_architectures_are_reported_and_not_examined(teacher, student, fails, change):
    found = finding(random_network(teacher, 0), random_network(student, 1), samples(3))
    assert [hypothesis.name for hypothesis in found.failing] == [fails]
    assert change in found.failing[0].change
    assert found.measured == "not examined for such networks"


def test_an_input_that_never_varies_leaves_no_interior():
    network, x = random_network((3, 2, 1), 0), samples(3)
    x[:, 1] = 0.5
    (failing,) = finding(network, network, x).failing
    assert str(failing) == "domain: 1 of 3 inputs never vary, needs a box with an interior"


def test_what_was_not_examined_does_not_hold(monkeypatch):
    monkeypatch.setattr(uniqueness, "MOST_CELLS", 3)
    monkeypatch.setattr(uniqueness, "MOST_PROGRAMS", 3)
    teacher = well_connected_network((3, 3, 3, 1), as_box(None, 3), 1)
    found = finding(teacher, teacher, samples(3))
    values = {hypothesis.name: hypothesis.value for hypothesis in found.failing}
    assert values["chains of folds"] == "not examined"
    assert values["general teacher"].endswith("activation patterns met")
    assert not found.applies


def test_check_reports_it():
    teacher = well_connected_network((3, 3, 2, 1), as_box(None, 3), 5)
    student = scrambled(teacher, 1, decades=0.5)
    (found,) = check(teacher.population(), student.population(), samples(3)).parameters
    assert found.result == "S3 theorem 2.1"
    assert found.applies
    assert found.agrees
    leaky = replace(teacher.population(), slope=0.1)
    assert "it is stated for ReLU" in find_result("S3 theorem 2.1").why_inapplicable(leaky, leaky)
