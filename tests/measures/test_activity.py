"""Pre-activations and shares of activity: by hand, against the activations, and of a Gaussian."""

import math

import pytest
import torch

import understudy.measures as measures
from support.kinds import KINDS, made
from support.problems import gaussians
from understudy._errors import UserError
from understudy.nets import Layer, Population, activate, batch_norm

kinds = pytest.mark.parametrize("shape", KINDS.values(), ids=KINDS)


def line(*biases):
    """One network of one input with weight 1 and these biases."""
    hidden = Layer(torch.ones(1, len(biases), 1), torch.tensor([biases]))
    return Population((hidden, Layer(torch.ones(1, 1, len(biases)), None)), torch.tensor([1]))


def test_by_hand():
    x = torch.tensor([[-2.0], [-1.0], [1.0], [3.0]])
    (found,) = measures.pre_activations(line(0.0, -1.0), x)
    assert found.tolist() == [[[-2.0, -3.0], [-1.0, -2.0], [1.0, 0.0], [3.0, 2.0]]]
    # A pre-activation of 0 is not active (Tian 2020, sec. 3: E_k is open).
    shares = measures.active_share(line(0.0, -1.0, 5.0, -5.0), x)
    assert shares.tolist() == [[0.5, 0.25, 1.0, 0.0]]


@kinds
def test_the_activation_of_pre_activations_is_the_hidden_layer(shape):
    population = made(shape, 2)
    x = gaussians(4, 2, 5, population.inputs, dtype=torch.float64)
    for i, (before, after) in enumerate(
        zip(measures.pre_activations(population, x), population.activations(x).hidden, strict=True)
    ):
        found = activate(before, shape.slope)
        if shape.norm == "after":
            found, _ = batch_norm(found, population.norms[i], training=False)
        torch.testing.assert_close(found, after)


@kinds
def test_shares_count_rows_of_every_layer(shape, monkeypatch):
    population = made(shape, 2)
    x = gaussians(4, 2, 5, population.inputs, dtype=torch.float64)
    expected = [(before > 0).double().mean(1) for before in measures.pre_activations(population, x)]
    for layer, share in enumerate(expected):
        torch.testing.assert_close(measures.active_share(population, x, layer), share)
    monkeypatch.setattr("understudy.measures.activity._PIECE", 1)
    torch.testing.assert_close(measures.active_share(population, x), expected[0])


def test_a_node_is_active_on_the_gaussian_share_within_four_standard_errors():
    n = 40_000
    x = gaussians(1, n, 1, dtype=torch.float32)
    shares = measures.active_share(line(-1.0, 0.0, 2.0), x)[0].tolist()
    for share, bias in zip(shares, (-1.0, 0.0, 2.0), strict=True):
        p = (1 + math.erf(bias / math.sqrt(2))) / 2
        assert abs(share - p) < 4 * math.sqrt(p * (1 - p) / n)


def test_wrong_inputs_and_layers_are_refused():
    with pytest.raises(UserError, match="take 1 inputs"):
        measures.pre_activations(line(0.0), torch.zeros(3, 2))
    with pytest.raises(ValueError, match="layer must be a hidden layer, 0 to 0, got 1"):
        measures.active_share(line(0.0), torch.zeros(3, 1), 1)
