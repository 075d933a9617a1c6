"""Theorem 4.2 on labels: gaps by hand, at independence, with the best decoder, as a property, and by simulation."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from support.label_models import random_model, table
from understudy.measures.information import information
from understudy.nets.latent.codes import prior_entropy, prior_log_prob
from understudy.nets.latent.layers import MLP, Table
from understudy.nets.latent.model import LatentModel
from understudy.papers.autoencoder.theory.labels import label_code, label_densities


class Uniform(nn.Module):
    """A decoder that ignores the code."""

    def __init__(self, labels: int) -> None:
        super().__init__()
        self.labels = labels

    def forward(self, z):
        return z.new_zeros(len(z), self.labels)


def independent(encoder: Table, labels: int) -> LatentModel:
    return LatentModel(encoder, Uniform(labels), likelihood="categorical", latent=1)


def test_independence_has_no_gap():
    found = label_code(independent(Table(10, 2), 10), 10)
    assert found.likelihood == pytest.approx(-math.log(10), abs=1e-9)
    for name in ("gap", "aggregate", "kl", "posterior_kl"):
        assert getattr(found, name) == pytest.approx(0, abs=1e-8)
    assert found.posterior_entropy == pytest.approx(prior_entropy(1), abs=1e-8)


def test_two_codes_by_hand():
    """Codes N(±m, 1) that the decoder ignores cost KL = m²/2, all of it distance from the posterior, the prior."""
    found = label_code(independent(table([-0.8, 0.8], [0.0, 0.0]), 2), 2)
    assert found.kl == pytest.approx(0.32, abs=1e-8)
    assert found.gap == pytest.approx(0.32, abs=1e-8)
    assert found.posterior_kl == pytest.approx(0.32, abs=1e-8)
    # KL(½N(−m, 1) + ½N(m, 1) ‖ N(0, 1)) = m² − m²/2 − E log cosh-free part, by a sum over a fine grid
    z = torch.linspace(-12, 12, 240_001, dtype=torch.float64)
    q = (torch.exp(-((z - 0.8) ** 2) / 2) + torch.exp(-((z + 0.8) ** 2) / 2)) / (2 * math.sqrt(2 * math.pi))
    wanted = float((q * (q.log() - prior_log_prob(z[:, None]))).sum() * 1e-4)
    assert found.aggregate == pytest.approx(wanted, abs=1e-9)


@pytest.mark.parametrize("resamples", [1, 4])
def test_parts_add_up(resamples):
    model = random_model(4, seed=3, resamples=resamples)
    found = label_code(model, 4)
    assert found.error < 1e-6
    assert found.elbo == pytest.approx(found.likelihood - found.posterior_kl, abs=1e-7)
    assert found.gap == pytest.approx(-math.log(4) - found.elbo, abs=1e-12)
    assert found.gap >= found.aggregate >= 0
    known = information(model, torch.arange(4), device="cpu")
    if resamples == 1:
        assert found.kl == pytest.approx(known.divergence, abs=1e-7)
        assert 0 <= found.kl - found.aggregate <= math.log(4)  # the information between label and code under q


def test_the_best_decoder_leaves_only_the_gap_of_the_mixture():
    found = label_code(random_model(5, seed=1, best=True), 5)
    assert found.gap == pytest.approx(found.aggregate, abs=1e-7)
    assert found.aggregate > 0.01


@given(
    st.lists(st.floats(-2, 2), min_size=3, max_size=3),
    st.lists(st.floats(-2, 1), min_size=3, max_size=3),
)
def test_every_gaussian_encoder_away_from_the_prior_has_a_gap(means, log_variances):
    encoder = table(means, log_variances)
    found = label_code(independent(encoder, 3), 3, 1e-8)
    assert found.aggregate > -1e-9
    if found.kl > 0.05:
        assert found.aggregate > found.error


@pytest.mark.parametrize("resamples", [1, 4])
def test_simulation_agrees(resamples):
    model, labels, rows = random_model(3, seed=5, resamples=resamples), 3, 60_000
    found = label_code(model, labels)
    x = torch.arange(labels).repeat(rows // labels)
    draw = torch.Generator().manual_seed(0)
    noise = torch.randn(resamples, rows, 1, dtype=torch.float64, generator=draw)
    with torch.no_grad():
        z = model.draw_codes(x, noise, torch.rand(rows, dtype=torch.float64, generator=draw))
        joint = model.log_likelihood(z[None], x)[0] + prior_log_prob(z)
        evidence = label_densities(model, labels, z.flatten())
        own = evidence.encoder.gather(1, x[:, None])[:, 0].log()
        mixture = evidence.encoder.mean(1).log()
    for estimates, exact in (
        (joint - own, found.elbo),
        (mixture - prior_log_prob(z), found.aggregate),
        (own - evidence.posterior.gather(1, x[:, None])[:, 0].log(), found.posterior_kl),
    ):
        # Labels come in turn, which makes the standard error a little too large.
        assert abs(float(estimates.mean()) - exact) < 4 * float(estimates.std()) / math.sqrt(rows)


def test_densities_are_densities():
    z = torch.linspace(-9, 9, 3_601, dtype=torch.float64)
    found = label_densities(random_model(4, seed=2, resamples=3), 4, z)
    torch.testing.assert_close(found.probability.sum(1), torch.ones(len(z), dtype=torch.float64))
    for density in (found.posterior, found.encoder):
        torch.testing.assert_close(density.sum(0) * 0.005, torch.ones(4, dtype=torch.float64), rtol=1e-6, atol=1e-6)


def test_a_model_in_float32_is_measured_in_float64_and_left_as_it_is():
    model = LatentModel(Table(3, 2), MLP((1, 4, 3)), Table(3, 2), likelihood="categorical", latent=1)
    assert label_code(model, 3, 1e-9).error < 1e-9
    assert next(model.parameters()).dtype == torch.float32
