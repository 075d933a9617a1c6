"""Theorem 2 and corollary 1 of Tian 2020: by hand, at zero and small gradients, and where they do not apply."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from support.taught import inputs, network, solution, teacher
from understudy._errors import UserError
from understudy.nets import Layer, Population
from understudy.papers.specialization.theory.prunable import (
    _unexplained,
    co_linear,
    group_sums,
    on_one_ray,
    prunable_finding,
    residuals,
    unaligned_share,
)
from understudy.theory import find_result
from understudy.theory.result import prunable

THEOREM, COROLLARY = (find_result(name) for name in ("S0 theorem 2", "S0 corollary 1"))


def with_more(of: Population, first: list[list[float]], biases: list[float], fan_out: list[list[float]]) -> Population:
    """A network with additional nodes."""
    (weight, bias), (out, output) = ((layer.weight[0], layer.bias[0]) for layer in of.layers)
    return network(
        torch.cat((weight, torch.tensor(first, dtype=torch.float64))),
        torch.cat((bias, torch.tensor(biases, dtype=torch.float64))),
        torch.cat((out.T, torch.tensor(fan_out, dtype=torch.float64))),
        output,
        of.slope,
    )


def test_groups_and_their_sums_by_hand():
    student = network(
        torch.tensor([[2.0, 0.0], [1.0, 0.0], [-3.0, 0.0], [0.0, 1.0], [0.0, 0.0]]),
        torch.tensor([2.0, 1.0, -3.0, 0.0, 1.0]),
        torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [5.0, 5.0], [7.0, 7.0]]),
        torch.zeros(2),
    )
    groups = co_linear(student.layers[0])
    assert groups[0].int().tolist() == [
        [1, 1, 1, 0, 0],
        [1, 1, 1, 0, 0],
        [1, 1, 1, 0, 0],
        [0, 0, 0, 1, 0],
        [0, 0, 0, 0, 1],
    ]
    assert on_one_ray(student.layers[0])[0, :3, :3].int().tolist() == [[1, 1, 0], [1, 1, 0], [0, 0, 1]]
    sums = group_sums(student, groups)[0]
    assert sums.tolist() == [[5, 4], [5, 4], [5, 4], [5, 5], [0, 0]]


def test_nodes_linked_through_others_form_one_group():
    angles = torch.tensor([0.0, 0.008, 0.016, 1.0])
    layer = Layer(torch.stack((angles.cos(), angles.sin()), 1)[None], None)
    assert co_linear(layer, 0.01)[0].sum(1).tolist() == [3, 3, 3, 1]
    assert co_linear(layer, 0.001)[0].sum(1).tolist() == [1, 1, 1, 1]


def test_the_part_of_a_column_that_others_do_not_explain():
    columns = torch.tensor([[1.0, 1.0], [1.0, 0.0], [1.0, 0.0], [1.0, 0.0]]).double()
    # (1, 0, 0, 0) minus its mean is (¾, −¼, −¼, −¼), of length √12/4; of the ones, (0, 1, 1, 1) remains.
    torch.testing.assert_close(_unexplained(columns), torch.tensor([math.sqrt(3), math.sqrt(0.75)]).double() / 2)
    assert float(_unexplained(torch.cat((columns, 2 * columns[:, :1]), 1))[0]) == 0


@pytest.mark.parametrize("slope", [0.0, 0.2], ids=["relu", "leaky"])
def test_at_zero_gradient_unaligned_groups_sum_to_zero(slope):
    of = teacher(outputs=2, slope=slope)
    # Two co-linear nodes that cancel, and one with fan-out 0.
    student = with_more(
        solution(of, idle=0),
        [[1.0, 1.0, 0.0, 0.0], [2.0, 2.0, 0.0, 0.0], [0.0, 1.0, 0.0, -1.0]],
        [0.1, 0.2, 0.3],
        [[1.0, 2.0], [-0.5, -1.0], [0.0, 0.0]],
    )
    found = THEOREM(of, student, inputs())
    assert [finding.about for finding in found] == ["student node 6", "student node 7", "student node 8"]
    assert all(finding.applies and finding.agrees for finding in found), found
    whole = residuals(of, student, inputs())
    assert float(whole.size[6:].max()) < 1e-12
    assert float(whole.bound[6:].max()) < 1e-6 * whole.largest
    (together,) = COROLLARY(of, student, inputs())
    assert together.applies and together.agrees
    assert float(unaligned_share(of, student, inputs())) < 1e-24


def test_opposite_students_at_zero_gradient_need_not_cancel_by_themselves():
    """Theorem 2 as printed implies v = 0 for both, but σ(u) − σ(−u) = u, which two more such pairs cancel."""
    of = teacher(outputs=1)
    first = [[s * a, s * b, 0.0, 0.0] for a, b in ((1.0, 0.2), (0.2, 1.0), (1.2, 1.2)) for s in (1, -1)]
    student = with_more(solution(of, idle=0), first, [0.0] * 6, [[1.0], [-1.0], [1.0], [-1.0], [-1.0], [1.0]])
    x = inputs()
    torch.testing.assert_close(of(x), student(x), rtol=0, atol=1e-12)
    found = THEOREM(of, student, x)
    lonely = [f for f in found if f.about in {f"student node {k}" for k in range(6, 12)}]
    assert len(lonely) == 6
    assert all(f.applies and f.agrees for f in lonely)
    rays = group_sums(student, on_one_ray(student.layers[0]))[0, 6:]
    assert float(rays.abs().min()) > 0.9
    (together,) = COROLLARY(of, student, x)
    assert [h.name for h in together.failing] == ["no two opposite"]
    assert not together.contradicted


@pytest.mark.parametrize("slope", [0.0, 0.3], ids=["relu", "leaky"])
def test_the_contribution_of_a_group_is_measured_on_the_samples_and_within_its_limit(slope):
    of, x = teacher(outputs=2, slope=slope), inputs(600)
    # Two on one ray, one opposite to them, and one with a large bias.
    first = [[1.0, 1.0, 0.0, 0.0], [2.0, 2.0, 0.0, 0.0], [-1.0, -1.0, 0.0, 0.0], [0.0, 1.0, 0.0, -1.0]]
    fan_out = [[0.1, 0.2], [0.2, -0.1], [0.3, 0.1], [0.01, 0.02]]
    student = with_more(solution(of, idle=0), first, [0.1, 0.2, -0.1, 1.0], fan_out)
    found = residuals(of, student, x)
    hidden = student.activations(x).hidden[0][0]
    for nodes in ([6, 7, 8], [9]):
        part = hidden[:, nodes] @ student.layers[1].weight[0, :, nodes].T
        for k in nodes:
            assert float(found.contribution[k]) == pytest.approx(float(part.square().sum(1).mean().sqrt()))
            assert float(found.contribution[k]) <= float(found.contribution_bound[k])
    units = [prunable_finding(k, found, 2) for k in (6, 9)]
    assert [each.amount for each in units] == pytest.approx(
        [float(found.contribution[k]) / found.strongest for k in (6, 9)]
    )
    assert all(each.applies for each in units)
    assert prunable(units[1]) and not prunable(units[0]) and not prunable(units[1], 0.0)


def test_a_node_to_which_the_theorem_does_not_apply_is_not_prunable():
    of = teacher(outputs=2)
    (few,) = THEOREM(of, with_more(solution(of, idle=0), [[1.0, 1, 0, 0]], [90.0], [[0.0, 0.0]]), inputs())
    assert few.amount == 0 and not few.applies and not prunable(few)


@settings(max_examples=8)
@given(st.integers(0, 10_000), st.floats(-6, 0), st.sampled_from([0.0, 0.3]))
def test_the_bound_is_never_exceeded(seed, log_noise, slope):
    of = teacher(outputs=2, seed=seed, slope=slope)
    student = solution(of, idle=4, seed=seed + 1)
    draw = torch.Generator().manual_seed(seed)
    parts = [part for layer in student.layers for part in layer]
    moved = [part + 10**log_noise * torch.randn(part.shape, generator=draw) for part in parts]
    noisy = Population((Layer(*moved[:2]), Layer(*moved[2:])), student.seeds, slope)
    found = [*THEOREM(of, noisy, inputs(200)), *COROLLARY(of, noisy, inputs(200))]
    assert found and not any(finding.contradicted for finding in found)


def test_a_smaller_gradient_leaves_a_smaller_sum():
    of, bounds = teacher(), []
    for size in (1e-1, 1e-3, 1e-5):
        student = with_more(solution(of, idle=3), [[1.0, 1.0, 0.0, 0.0]], [0.1], [[size, -size]])
        bounds.append(float(residuals(of, student, inputs()).bound[-1]))
    assert bounds[0] > 10 * bounds[1] > 100 * bounds[2]


def test_too_few_observers_fail_a_hypothesis():
    of = teacher(outputs=2)
    # The only node with a fan-out is active on one side only.
    student = network(
        torch.tensor([[1.0, 0, 0, 0], [0, 1.0, 0, 0]]), torch.zeros(2), torch.tensor([[1.0, 1], [0, 0]]), torch.zeros(2)
    )
    found = [f for f in THEOREM(of, student, inputs()) if f.about == "student node 1"]
    assert found and not found[0].applies
    failing = found[0].failing[0]
    assert failing.name == "observers" and failing.value == "1"
    assert failing.change
    assert found[0].agrees is None


def test_too_few_samples_to_separate_nodes_fail_a_hypothesis():
    of = teacher()
    # 12 nodes and 5 affine functions cannot be separated by the few of 24 samples on which an observer is active.
    found = THEOREM(of, solution(of, idle=6), inputs(24))
    assert found and not any(f.applies for f in found)


def test_fan_outs_on_a_line_are_not_independent():
    of = teacher(outputs=2)
    student = solution(of, idle=2)
    flat = student.layers[1].weight.clone()
    flat[:, 1] = flat[:, 0]
    student = Population((student.layers[0], Layer(flat, student.layers[1].bias)), student.seeds)
    found = THEOREM(of, student, inputs())
    assert all("independent fan-outs" in [h.name for h in f.failing] for f in found)


def test_networks_for_which_it_is_not_stated_are_refused():
    deep = Population(
        (*teacher().layers[:1], Layer(torch.ones(1, 3, 3).double(), torch.zeros(1, 3).double()), *teacher().layers[1:]),
        torch.tensor([1]),
    )
    with pytest.raises(UserError, match="two layers"):
        THEOREM(deep, deep, inputs())


def test_nodes_without_boundaries_fail_the_hypotheses():
    of = teacher()
    dead = network(torch.zeros(2, 4), -torch.ones(2), torch.ones(2, 2), torch.zeros(2))
    found = THEOREM(of, dead, inputs())
    assert len(found) == 2 and not any(f.applies for f in found)
    assert float(unaligned_share(of, dead, inputs())) == 0
