"""The network of max-margin neurons: its function, its optimality, and the distance of other networks from it."""

import pytest
import torch

from understudy._errors import UserError
from understudy.data.separable import orthogonally_separable
from understudy.papers.separable.theory.limit_network import (
    function_limit,
    limit_multipliers,
    limit_residual,
    max_margin_network,
    optimality,
)
from understudy.papers.separable.theory.max_margin import margins
from understudy.papers.separable.theory.training import logistic_gradient, outputs, small_linear

F = torch.float64
X = torch.tensor([[2.0, 0.0], [1.0, 1.0], [0.0, -4.0]], dtype=F)
Y = torch.tensor([1.0, 1.0, -1.0], dtype=F)


def network(u, z, x=X, y=Y):
    found = margins(x, y)
    return found, max_margin_network(torch.tensor(u, dtype=F), torch.tensor(z, dtype=F), found.vectors)


def test_a_network_by_hand():
    # The shortest w with 2 w₁ ≥ 1 and w₁ + w₂ ≥ 1 is (½, ½), with −4 w₂ ≥ 1 it is (0, −¼).
    found, (w, a) = network([3.0, 0.0], [0.0, 5.0])
    torch.testing.assert_close(found.vectors, torch.tensor([[0.5, 0.5], [0.0, -0.25]], dtype=F))
    long = 0.5**0.5
    torch.testing.assert_close(w, torch.tensor([[0.5 * long**-0.5] * 2, [0.0, -0.25 * 0.25**-0.5]], dtype=F))
    torch.testing.assert_close(a, torch.tensor([[long**0.5, -(0.25**0.5)]], dtype=F))
    torch.testing.assert_close(outputs((w, a), X), torch.tensor([1.0, 1.0, -1.0], dtype=F))
    assert (w.norm(dim=1) - a[0].abs()).abs().max() < 1e-15


@pytest.mark.parametrize("seed", [1, 2])
def test_it_is_optimal_on_drawn_sets_with_the_multipliers_of_the_lemma_and_nothing_else_is(seed):
    x, y = (part[0] for part in orthogonally_separable(5, 60, [seed]))
    found = margins(x, y)
    assert limit_residual(found, x, y, seed) < 1e-12
    _, weights = network([1.0, 2.0, 0.0, 0.0], [0.0, 0.0, 0.5, 1.0], x, y)
    torch.testing.assert_close(outputs(weights, x), (x @ found.vectors.T).relu() @ torch.tensor([1.0, -1.0], dtype=F))
    multipliers = limit_multipliers(found, y)
    assert (multipliers >= 0).all() and optimality(weights, x, y, multipliers).margin == pytest.approx(1.0)
    # Rescaled networks are the same point; turned, unbalanced or with other multipliers they are not.
    assert optimality(tuple(3 * part for part in weights), x, y, multipliers).residual < 1e-12
    assert optimality((weights[0] * 1.1, weights[1] / 1.1), x, y, multipliers).stationarity > 0.05
    assert optimality(weights, x, y, 2 * multipliers).stationarity > 0.5
    support = multipliers > 0
    uniform = torch.where(support, multipliers, multipliers.max() / 2)
    assert optimality(weights, x, y, uniform).slackness > 0.01


def test_stationarity_compares_with_the_gradient_of_the_outputs():
    x, y = orthogonally_separable(4, 30, [3, 4])
    weights = small_linear(4, 6, 2, 1.0, [3, 4])
    slopes = torch.rand(2, 30, generator=torch.Generator().manual_seed(0), dtype=F)
    leaves = [part.clone().requires_grad_() for part in weights]
    (slopes * y * outputs(tuple(leaves), x)).sum().backward()
    for leaf, pull in zip(leaves, logistic_gradient(weights, x, y, weighted_by=slopes), strict=True):
        torch.testing.assert_close(pull, -leaf.grad)


def test_multipliers_of_the_loss_fit_a_network_of_large_margin():
    # On one example of each class every margin weighs alike, and the max-margin network is stationary.
    x, y = torch.eye(2, dtype=F) * torch.tensor([1.0, -1.0], dtype=F), torch.tensor([1.0, -1.0], dtype=F)
    _, weights = network([1.0, 0.0], [0.0, 1.0], x, y)
    for scale in (1.0, 20.0):
        assert optimality(tuple(scale * part for part in weights), x, y).residual < 1e-12


def test_a_network_that_misclassifies_is_no_kkt_point():
    _, (w, a) = network([1.0, 0.0], [0.0, 1.0])
    assert optimality((w, -a), X, Y).residual == torch.inf


def test_the_limit_of_the_function_is_recovered_at_any_scale():
    x, y = (part[0] for part in orthogonally_separable(5, 60, [1]))
    found, weights = network([1.0, 2.0, 0.0], [0.0, 0.0, 0.5], x, y)
    inputs = torch.randn(200, 5, generator=torch.Generator().manual_seed(0), dtype=F)
    wanted = 1 / (2 * found.vectors.norm(dim=1).sum())
    for scale in (1.0, 7.0):
        limit = function_limit(tuple(scale * part for part in weights), found.vectors, inputs)
        assert limit.distance < 1e-14
        assert limit.u == pytest.approx(wanted) and limit.z == pytest.approx(wanted)
    one = function_limit((weights[0][:2], weights[1][:, :2]), found.vectors, inputs)
    assert one.z == pytest.approx(0, abs=1e-14) and one.distance < 1e-14
    # The best u and z are at least 0; of the opposite function nothing is explained.
    opposite = function_limit((weights[0], -weights[1]), found.vectors, inputs)
    assert opposite.u == opposite.z == 0 and opposite.distance == pytest.approx(1.0)


def test_the_fit_of_the_function_is_the_best_one():
    x, y = (part[0] for part in orthogonally_separable(3, 40, [2]))
    found = margins(x, y)
    inputs = torch.randn(300, 3, generator=torch.Generator().manual_seed(1), dtype=F)
    one, other = (inputs @ found.vectors.T).relu().unbind(-1)
    for seed in range(1, 6):
        w, a = (part[0] for part in small_linear(3, 8, 2, 1.0, [seed]))
        limit, h = function_limit((w, a), found.vectors, inputs), outputs((w, a), inputs)
        h = h / (w.square().sum() + a.square().sum())
        for u, z in ((0.0, 1e-4), (1e-4, 0.0), (-1e-4, 0.0), (0.0, -1e-4)):
            near = (limit.u + u).clamp_min(0), (limit.z + z).clamp_min(0)
            assert (h - near[0] * one + near[1] * other).norm() >= limit.distance * h.norm() - 1e-12


@pytest.mark.parametrize(("u", "z"), [([1.0, 1.0], [0.0, 1.0]), ([-1.0, 0.0], [0.0, 1.0]), ([1.0, 1.0], [0.0, 0.0])])
def test_sizes_that_are_no_two_groups_are_refused(u, z):
    with pytest.raises(UserError, match="u and z must be at least 0, one of them 0 for every neuron"):
        network(u, z)
