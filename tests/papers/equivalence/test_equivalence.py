"""The study `equivalence`: what pairs are, and the claims it decides."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.parameter_gradients import parameter_gradients
from understudy.lab.run import run
from understudy.papers.equivalence.equivalence import claims
from understudy.papers.equivalence.equivalence.pairs import SHARE, acting_shares, changed_pair, equal_pair
from understudy.papers.equivalence.equivalence.study import ARCHITECTURES, Equivalence
from understudy.papers.equivalence.equivalence.training import unpack
from understudy.papers.equivalence.theory.relu_network import random_network


@given(st.integers(1, 999), st.integers(2, 5))
def test_pairs_are_one_function_and_every_unit_folds(seed, layers):
    pair = equal_pair(seed, layers)
    x = pair.box.draw(np.random.default_rng(seed), 40_000)
    np.testing.assert_allclose(pair.a(x), pair.b(x), rtol=1e-9, atol=1e-9)
    sizes = pair.a.sizes
    assert len(sizes) == layers + 1 and list(sizes) == sorted(sizes, reverse=True) and sizes[-2] >= 2
    for value in pair.a.preactivations(x)[:-1]:
        assert ((value > 0).mean(0) > SHARE / 10).all() and ((value < 0).mean(0) > SHARE / 10).all()
    changed = changed_pair(seed, layers)
    layer, out, into = changed.weight
    ratio = changed.b.weights[layer - 1] / pair.b.weights[layer - 1]
    assert ratio[out, into] == pytest.approx(1 + 1e-4) and (ratio != 1).sum() == 1
    assert np.abs(changed.a(x) - changed.b(x)).max() > 0


def test_weights_act_where_their_derivative_is_not_zero():
    network = random_network([3, 4, 2, 1], 3)
    x = np.random.default_rng(0).uniform(-2, 2, (500, 3))
    gradients = unpack((parameter_gradients(network, x) != 0).mean(0), network.sizes, 0.0)
    for ours, theirs in zip(acting_shares(network, x), gradients.weights, strict=True):
        np.testing.assert_allclose(ours, theirs)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return run("equivalence", out=tmp_path_factory.mktemp("runs"), seeds=4, constructed=3, students=6, samples=200)


def test_a_small_run_counts_functions_and_parameters(small):
    equal, changed = claims.pairs(small, False), claims.pairs(small, True)
    assert len(equal) == len(changed) == 16
    assert (equal["relation"] == "permutation and scaling").all() and (changed["relation"] == "different").all()
    assert (equal["map_error"] < 1e-12).all() and not small.claims
    built = claims.constructed(small)
    assert built["paths"].all() and built["transparent"].all()
    assert built["architecture"].tolist() == list(ARCHITECTURES[:3])
    counts = claims.student_counts(small)
    assert (counts["students"] == 6).all() and (counts["zero"] >= counts["functions"]).all()
    assert (counts["parameters"] >= counts["functions"]).all()


def test_claims_are_decided_on_a_thousand_pairs(small):
    study = Equivalence()
    many = claims.claims(study, small)
    assert [claim.id for claim in many] == ["E1", "E1", "E4", "E4"] and all(claim.holds for claim in many)
    assert not [c for c in claims.claims(replace(study, seeds=249), small) if c.id == "E1"]
    assert not claims.claims(replace(study, tolerance=1e-6), small)
