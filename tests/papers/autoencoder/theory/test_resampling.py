"""The density of the resampling encoder: without resampling, at the posterior, in the limit, and by simulation."""

import math

import pytest
import torch
from torch import nn

from support.label_models import random_model
from understudy.nets.latent.model import LatentModel
from understudy.papers.autoencoder.theory.labels import label_code
from understudy.papers.autoencoder.theory.resampling import encoder_density

Z = torch.linspace(-8, 8, 1_601, dtype=torch.float64)


def linear(weight: float, log_variance: float) -> nn.Linear:
    """Means proportional to the input, and a constant log variance."""
    layer = nn.Linear(1, 2).double()
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[weight], [0.0]], dtype=torch.float64))
        layer.bias.copy_(torch.tensor([0.0, log_variance], dtype=torch.float64))
    return layer


def channel(correlation: float, resamples: int, off: float = 0.0) -> LatentModel:
    """A Gaussian channel whose encoder is its posterior, except for `off` in the log variance."""
    rest = math.log1p(-(correlation**2))
    parts = linear(correlation, rest + off), linear(correlation, rest)
    return LatentModel(*parts, likelihood="gaussian", latent=1, resamples=resamples)


@torch.no_grad()
def density(model, x):
    return encoder_density(model, x)(Z)


def test_one_code_is_the_encoders():
    x = torch.tensor([[0.3], [-1.0]], dtype=torch.float64)
    model = channel(0.8, 1, off=0.5)
    with torch.no_grad():
        torch.testing.assert_close(density(model, x), model.encode(x).log_prob(Z[:, None, None]))


@pytest.mark.parametrize("resamples", [2, 5, 50])
def test_the_posterior_stays_the_posterior(resamples):
    x = torch.tensor([[0.3], [-1.0]], dtype=torch.float64)
    torch.testing.assert_close(density(channel(0.8, resamples), x), density(channel(0.8, 1), x), rtol=0, atol=1e-9)


@pytest.mark.parametrize("off", [-1.0, 1.5])
def test_many_codes_are_the_posterior_and_few_are_densities(off):
    x = torch.tensor([[0.3]], dtype=torch.float64)
    posterior = density(channel(0.8, 1), x).exp()
    distances = []
    for resamples in (1, 2, 5, 20, 200):
        found = density(channel(0.8, resamples, off), x).exp()
        assert float(found.sum()) * 0.01 == pytest.approx(1, abs=1e-7)
        distances.append(float((found - posterior).abs().sum()) * 0.01)
    assert distances == sorted(distances, reverse=True)
    assert distances[-1] < 0.12 * distances[0]


def test_two_codes_by_hand():
    """With two codes, the density is 2 q(z) E [w(z) / (w(z) + w(z′))] over z′ ~ q, here by a sum over a grid."""
    x = torch.tensor([[0.3]], dtype=torch.float64)
    model = channel(0.8, 2, off=0.7)
    with torch.no_grad():
        q = model.encode(x).log_prob(Z[:, None, None]).exp()[:, 0]
        joint = model.log_likelihood(Z[:, None, None], x)[:, 0].exp() * torch.exp(-(Z**2) / 2) / math.sqrt(2 * math.pi)
    weight = joint / q
    wanted = 2 * q * ((weight[:, None] / (weight[:, None] + weight)) * q * 0.01).sum(1)
    inside = (Z > -3) & (Z < 3)
    torch.testing.assert_close(density(model, x).exp()[inside, 0], wanted[inside], rtol=1e-7, atol=1e-9)


def test_draws_have_this_density():
    model, rows = random_model(3, seed=7, resamples=5), 30_000
    x = torch.arange(3)
    draw = torch.Generator().manual_seed(1)
    data = x.repeat_interleave(rows)
    with torch.no_grad():
        noise = torch.randn(5, len(data), 1, dtype=torch.float64, generator=draw)
        z = model.draw_codes(data, noise, torch.rand(len(data), dtype=torch.float64, generator=draw)).view(3, rows)
        cumulative = density(model, x).exp().cumsum(0) * 0.01
    for label in range(3):
        at = torch.linspace(-1.5, 1.5, 7, dtype=torch.float64)
        share = (z[label] <= at[:, None]).double().mean(1)
        wanted = cumulative[((at + 0.005 + 8) / 0.01).round().long().clamp(max=1_600) - 0, label]
        spread = (wanted * (1 - wanted) / rows).sqrt() + 2e-3
        assert ((share - wanted).abs() < 4 * spread).all()


def test_the_estimate_by_monte_carlo_approaches_it():
    model, x = random_model(3, seed=7, resamples=3), torch.arange(3)
    z = torch.linspace(-1, 1, 5, dtype=torch.float64)
    noise = torch.randn(40_000, 2, 3, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        estimate = model.code_log_prob(z[:, None, None].expand(5, 3, 1), x, noise)
        torch.testing.assert_close(estimate, encoder_density(model, x)(z), rtol=0, atol=0.03)


def test_resampling_brings_the_encoder_nearer_to_the_posterior():
    distances = [label_code(random_model(4, seed=11, resamples=k), 4).posterior_kl for k in (1, 2, 5, 20)]
    assert distances == sorted(distances, reverse=True)
