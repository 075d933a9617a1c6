"""The recursive gradient rule, piece-wise constant A and B, and gradients of batches and samples."""

from itertools import combinations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from support.pairs import gaussian, network, random_network
from understudy.papers.specialization.theory.identities import (
    BATCH,
    EQUAL,
    autograd_gradients,
    batch_interpolation,
    corollary_2,
    largest_gradient_entries,
    lemma_1,
)


@pytest.mark.parametrize("slope", [0.0, 0.2, -1.0])
@pytest.mark.parametrize("depth", [2, 3, 4, 5, 6])
def test_the_rule_is_backpropagation_at_every_depth(depth, slope):
    teacher = random_network(depth, 5, *[3] * (depth - 1), 2, slope=slope)
    student = random_network(depth + 20, 5, *[6] * (depth - 1), 2, slope=slope)
    findings = lemma_1(teacher, student, gaussian(1, 200, 5))
    assert len(findings) == depth - 1
    assert all(found.applies and found.agrees for found in findings)


def test_backpropagation_by_hand():
    """f* = σ(x), f = 2σ(x): at x = 3 the residual is −3 and reaches the node times its fan-out."""
    teacher, student = network(([[1.0]], [0.0]), ([[1.0]], [0.0])), network(([[1.0]], [0.0]), ([[2.0]], [0.0]))
    x = torch.tensor([[3.0], [-1.0]], dtype=torch.float64)
    assert autograd_gradients(teacher, student, x)[0].tolist() == [[-6.0], [0.0]]


def test_a_wrong_rule_is_detected(monkeypatch):
    import understudy.papers.specialization.theory.identities as identities

    teacher, student, x = random_network(1, 3, 4, 2), random_network(2, 3, 4, 2), gaussian(1, 50, 3)
    right = autograd_gradients(teacher, student, x)
    monkeypatch.setattr(identities, "autograd_gradients", lambda *_: tuple(g * (1 + 10 * EQUAL) for g in right))
    assert not lemma_1(teacher, student, x)[0].agrees


@pytest.mark.parametrize("depth", [2, 4])
def test_a_and_b_are_exactly_equal_inside_a_region(depth):
    teacher, student = random_network(1, 4, *[3] * (depth - 1), 2), random_network(2, 4, *[5] * (depth - 1), 2)
    findings = corollary_2(teacher, student, gaussian(3, 300, 4))
    assert len(findings) == depth - 1
    assert all(found.applies and found.agrees for found in findings)


@given(st.integers(0, 1000), st.integers(1, 3))
def test_the_worst_batch_is_found_among_all(seed, batch):
    g, x = gaussian(seed, 6, 2), gaussian(seed + 1, 6, 3)
    below = torch.cat((x, torch.ones(6, 1, dtype=x.dtype)), 1)
    most, single = largest_gradient_entries(lambda: g.split(4), x, batch)
    sums = [(g[list(b)].T @ below[list(b)]).abs().max() for b in combinations(range(6), batch)]
    assert most == pytest.approx(float(max(sums)))
    assert single == pytest.approx(float(max((g[i, :, None] * below[i]).abs().max() for i in range(6))))
    assert single <= (2 - 1 / batch) * most * (1 + 1e-12)


@pytest.mark.parametrize("likely", [1, 40, 200])
def test_the_worst_batch_does_not_depend_on_where_it_is_sought_first(likely, monkeypatch):
    g, x = gaussian(1, 300, 4) * (gaussian(2, 300, 4) > 0), gaussian(3, 300, 20)
    wanted = largest_gradient_entries(lambda: g.split(300), x, 8)
    terms = g.T.unsqueeze(2) * torch.cat((x, torch.ones(300, 1, dtype=x.dtype)), 1)
    sums = [float((sign * terms).topk(8, 1).values.sum(1).max()) for sign in (1, -1)]
    assert wanted == pytest.approx((max(sums), float(terms.abs().max())), rel=1e-12)
    monkeypatch.setattr("understudy.papers.specialization.theory.identities._LIKELY", likely)
    assert largest_gradient_entries(lambda: g.split(7), x, 8) == pytest.approx(wanted, rel=1e-15)


def test_a_gradient_that_is_small_for_every_batch_is_small_for_every_sample():
    found = batch_interpolation(random_network(1, 4, 3, 2), random_network(2, 4, 5, 2), gaussian(1, 500, 4))[0]
    assert found.applies
    assert found.agrees


def test_too_few_samples_for_a_batch_give_no_conclusion():
    assert not batch_interpolation(random_network(1, 4, 3, 2), random_network(2, 4, 5, 2), gaussian(1, BATCH, 4))[
        0
    ].applies
