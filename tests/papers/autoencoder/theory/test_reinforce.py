"""Gradients of the information: by hand, against autograd of the quadrature, and their variance by simulation."""

import math

import pytest
import torch
from torch import nn

from support.label_models import random_model
from understudy.measures.information.quadrature import integrate
from understudy.measures.information.scalars import class_log_probs
from understudy.nets.latent.codes import prior_log_prob
from understudy.nets.latent.layers import Table
from understudy.nets.latent.model import LatentModel
from understudy.papers.autoencoder.theory.reinforce import estimate_gradients, gradient_moments

LABELS = 3


class Constant(nn.Module):
    """Logits that do not depend on the code."""

    def __init__(self, labels: int) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.zeros(labels))

    def forward(self, z):
        return self.logits + 0 * z


@pytest.fixture(scope="module")
def model():
    return random_model(LABELS, seed=4)


@pytest.fixture(scope="module")
def moments(model):
    return gradient_moments(model, LABELS)


def test_an_uninformed_pair_by_hand():
    """With two constant labels ‖s‖² = ½, and log r is that of the prior, with mean −½ log 2πe and variance ½."""
    model = LatentModel(Table(2, 2), Constant(2), Table(2, 2), likelihood="categorical", latent=1)
    found, entropy = gradient_moments(model, 2), (math.log(2 * math.pi) + 1) / 2
    assert found.norm == pytest.approx(0, abs=1e-10)
    assert found.reward_mean == pytest.approx(-entropy, abs=1e-9)
    assert found.reward_square == pytest.approx(entropy**2 + 0.5, abs=1e-9)
    assert found.score == pytest.approx(0.5, abs=1e-9)
    assert found.variance(8, baseline=False) == pytest.approx((entropy**2 + 0.5) / 2 / 8, rel=1e-9)
    assert found.variance(8, baseline=True) == pytest.approx(0.25 / 7, rel=1e-9)
    assert found.least_variance(8) == pytest.approx(0.25 / 8, rel=1e-9)


def test_it_is_the_gradient_of_the_bound_by_quadrature(model, moments):
    """H(z) + E log r(z|x) as a sum over a fine grid of codes, differentiated by autograd."""
    z = torch.linspace(-8, 8, 4_001, dtype=torch.float64)[:, None]
    p = class_log_probs(model, z).exp()
    reward = model.infer_code(torch.arange(LABELS)).log_prob(z[:, None]).detach()
    bound = (prior_log_prob(z).exp()[:, None] * p * reward).sum() * 0.004
    gradient = torch.autograd.grad(bound, list(model.decoder.parameters()))
    wanted = torch.cat([each.flatten() for each in gradient])
    torch.testing.assert_close(moments.gradient, wanted, rtol=1e-6, atol=1e-9)


def test_with_the_true_posterior_it_is_the_gradient_of_the_information(model):
    """Where r is p(z|x), the dependence of r on the model adds nothing to the gradient (Phuong 2021, appendix C.2)."""
    z = torch.linspace(-8, 8, 4_001, dtype=torch.float64)[:, None]
    joint = class_log_probs(model, z) + prior_log_prob(z)[:, None]
    evidence = (joint.exp().sum(0) * 0.004).log()
    log_posterior = joint - evidence

    def gradient(log_r):
        each = torch.autograd.grad(
            (joint.exp() * log_r).sum() * 0.004, list(model.decoder.parameters()), retain_graph=True
        )
        return torch.cat([part.flatten() for part in each])

    torch.testing.assert_close(gradient(log_posterior.detach()), gradient(log_posterior), rtol=1e-7, atol=1e-10)
    assert float(gradient(log_posterior).norm()) > 1e-3


@pytest.mark.parametrize("samples", [2, 5, 32])
@pytest.mark.parametrize("baseline", [False, True])
def test_estimates_have_this_mean_and_variance(model, moments, samples, baseline):
    batches = 4_000
    found = estimate_gradients(model, batches=batches, samples=samples, baseline=baseline, seed=1)
    variance = moments.variance(samples, baseline)
    off = (found - moments.gradient).square().sum(1)
    error = float(off.std()) / math.sqrt(batches)
    assert abs(float(off.mean()) - variance) < 4 * error
    assert float((found.mean(0) - moments.gradient).norm()) < 4 * math.sqrt(variance / batches)


def test_no_constant_is_better_than_the_best(moments):
    for samples in (16, 1_000):
        assert moments.least_variance(samples) <= moments.variance(samples, False)
        assert moments.least_variance(samples) <= moments.variance(samples, True)


def test_moments_are_those_of_a_finer_quadrature(model, moments):
    def mean_reward(z):
        p = class_log_probs(model, z[:, None]).exp()
        reward = model.infer_code(torch.arange(LABELS)).log_prob(z[:, None, None])
        return ((p * reward).sum(1) * prior_log_prob(z[:, None]).exp())[:, None]

    with torch.no_grad():
        found = integrate(mean_reward, torch.linspace(-9, 9, 50, dtype=torch.float64), 1e-10)
    assert moments.reward_mean == pytest.approx(float(found.value), abs=1e-9)
