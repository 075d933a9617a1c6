"""Exact values of models of standard normal data: linear models in closed form, and simulation of others."""

import math

import pytest
import torch
from torch import nn

from understudy.measures.information import information
from understudy.nets.latent.initial import initialise
from understudy.nets.latent.layers import mlp
from understudy.nets.latent.model import LatentModel
from understudy.papers.autoencoder.theory.normal import ENTROPY, conditionals, normal_code


def linear(weight: float, log_variance: float) -> nn.Linear:
    layer = nn.Linear(1, 2)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[weight], [0.0]]))
        layer.bias.copy_(torch.tensor([0.0, log_variance]))
    return layer


def channel(correlation: float) -> LatentModel:
    rest = math.log1p(-(correlation**2))
    return LatentModel(linear(correlation, rest), linear(correlation, rest), likelihood="gaussian", latent=1)


@pytest.mark.parametrize("wanted", [0.0, 0.6, 1.8])
def test_the_normal_can_be_split_without_loss(wanted):
    """Theorem 4.2 does not hold for continuous data: any information, at the optimum of the bound."""
    model = channel(math.sqrt(1 - math.exp(-2 * wanted)))
    found = normal_code(model)
    assert found.likelihood == pytest.approx(-ENTROPY, abs=1e-5)
    assert found.elbo == pytest.approx(-ENTROPY, abs=1e-5)
    assert found.kl == pytest.approx(wanted, abs=1e-5)
    data = torch.linspace(-2, 2, 8)[:, None]
    assert information(model, data, device="cpu", tolerance=1e-5).value == pytest.approx(wanted, abs=2e-5)


def test_a_linear_model_with_another_variance_by_hand():
    """x = az + s·noise has variance a² + s², from which the likelihood of N(0, 1) data follows."""
    model = LatentModel(linear(0.2, -0.1), linear(0.7, math.log(0.9)), likelihood="gaussian", latent=1)
    variance = 0.49 + 0.9
    found = normal_code(model)
    assert found.likelihood == pytest.approx(-(math.log(2 * math.pi * variance) + 1 / variance) / 2, abs=1e-6)
    assert found.kl == pytest.approx((0.04 + math.exp(-0.1) - 1 + 0.1) / 2, abs=1e-6)
    # E (x − 0.7z)² with z = 0.2x + noise: (1 − 0.14)² + 0.49 e^(−0.1)
    square = 0.86**2 + 0.49 * math.exp(-0.1)
    reconstruction = -(math.log(2 * math.pi * 0.9) + square / 0.9) / 2
    assert found.elbo == pytest.approx(reconstruction - found.kl, abs=1e-6)


def test_simulation_agrees():
    model = initialise(LatentModel(mlp(1, 2, 8), mlp(1, 2, 8), likelihood="gaussian", latent=1), 3)
    found, rows = normal_code(model), 40_000
    draw = torch.Generator().manual_seed(0)
    x, noise = torch.randn(rows, 1, generator=draw), torch.randn(1, rows, 1, generator=draw)
    with torch.no_grad():
        code = model.encode(x)
        bound = model.log_likelihood(code.sample(noise), x)[0] - code.divergence().sum(-1)
        _, weights = model.log_weights(x[:2_000], torch.randn(500, 2_000, 1, generator=draw))
        likelihood = weights.logsumexp(0) - math.log(500)
    assert abs(float(bound.mean()) - found.elbo) < 4 * float(bound.std()) / math.sqrt(rows)
    # The average over 500 codes is biased by less than its spread over data.
    assert abs(float(likelihood.mean()) - found.likelihood) < 4 * float(likelihood.std()) / math.sqrt(2_000)
    assert found.elbo <= found.likelihood <= -ENTROPY


def test_a_decoder_too_narrow_to_resolve_has_no_likelihood():
    assert math.isnan(
        normal_code(LatentModel(linear(1.0, -10.0), linear(30.0, -30.0), likelihood="gaussian", latent=1)).likelihood
    )


def test_moments_of_conditionals():
    mean, std = conditionals(channel(0.6), torch.tensor([-1.0, 2.0]))
    torch.testing.assert_close(mean, torch.tensor([-0.6, 1.2], dtype=torch.float64), rtol=1e-6, atol=0)
    torch.testing.assert_close(std, torch.full((2,), 0.8, dtype=torch.float64), rtol=1e-6, atol=0)
