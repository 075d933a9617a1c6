"""Gaussian codes: densities and divergences against torch.distributions, limits, and simulation."""

import math

import pytest
import torch
from torch.distributions import Normal, kl_divergence

from understudy.nets.latent.codes import GaussianCode, as_code, prior_entropy, prior_log_prob


@pytest.fixture
def code():
    random = torch.Generator().manual_seed(0)
    mean, log_variance = torch.randn(2, 5, 3, generator=random, dtype=torch.float64)
    return GaussianCode(mean, log_variance)


def as_normal(code):
    return Normal(code.mean, (code.log_variance / 2).exp())


def test_densities_and_divergences_are_those_of_torch(code):
    z = torch.randn(4, 5, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    normal = as_normal(code)
    torch.testing.assert_close(code.log_prob(z), normal.log_prob(z).sum(-1))
    torch.testing.assert_close(code.divergence(), kl_divergence(normal, Normal(torch.zeros(5, 3), torch.ones(5, 3))))
    torch.testing.assert_close(prior_log_prob(z), Normal(0.0, 1.0).log_prob(z).sum(-1))


def test_the_prior_as_a_code_has_no_divergence():
    zero = torch.zeros(2, 3)
    code = GaussianCode(zero, zero)
    assert code.divergence().abs().max() == 0
    noise = torch.ones(2, 3)
    assert torch.equal(code.sample(noise), noise)


def test_the_entropy_is_the_mean_of_the_negative_log_density():
    z = torch.randn(200_000, 2, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    values = -prior_log_prob(z)
    assert abs(values.mean() - prior_entropy(2)) < 4 * values.std() / math.sqrt(len(values))
    assert prior_entropy(1) == pytest.approx(0.5 * math.log(2 * math.pi * math.e))


def test_samples_have_the_moments_of_the_code(code):
    z = code.sample(torch.randn(100_000, 5, 3, generator=torch.Generator().manual_seed(3), dtype=torch.float64))
    std = (code.log_variance / 2).exp()
    assert ((z.mean(0) - code.mean).abs() < 5 * std / math.sqrt(len(z))).all()
    assert ((z.std(0) / std - 1).abs() < 5 / math.sqrt(2 * len(z))).all()


def test_a_pair_and_one_tensor_are_the_same_code():
    mean, log_variance = torch.randn(2, 4, 3)
    for given in ((mean, log_variance), [mean, log_variance], torch.cat((mean, log_variance), -1)):
        code = as_code(given)
        assert torch.equal(code.mean, mean)
        assert torch.equal(code.log_variance, log_variance)
