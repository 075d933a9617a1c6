"""The posterior on nodes, and the KL divergence of encoders from it: closed forms, quadrature, and limits."""

import itertools
import math

import pytest
import torch
from torch.distributions import Normal, kl_divergence

from support.code_channels import Rows, bins, gaussian_channel
from understudy import UserError
from understudy.measures.information.posterior import encoder_gap, posterior

X = torch.tensor([[0.7], [-0.4]], dtype=torch.float64)


def own(model):
    return model.encode(X), model.infer_code(X)


def test_the_posterior_of_the_gaussian_channel():
    found = posterior(gaussian_channel(), X)
    variance = 0.8**2 / (1.5**2 + 0.8**2)
    mean = X[:, 0] * 1.5 * variance / 0.8**2
    wanted = Normal(mean, math.sqrt(variance)).log_prob(found.z[:, None])
    torch.testing.assert_close(found.log_prob, wanted)
    torch.testing.assert_close(found.entropy, Normal(mean, math.sqrt(variance)).entropy())
    torch.testing.assert_close(found.evidence, Normal(0.0, math.hypot(1.5, 0.8)).log_prob(X[:, 0]))


def test_the_posterior_of_thresholds_is_a_truncated_normal():
    """A quarter of the prior: log density log φ(z) + log 4; the entropy of all codes is that of the prior − log 4."""
    found = posterior(bins(4), torch.arange(4))
    inside = found.log_prob > -1e3
    torch.testing.assert_close(
        found.log_prob[inside],
        (Normal(0.0, 1.0).log_prob(found.z)[:, None] + math.log(4)).expand_as(found.log_prob)[inside],
        rtol=0,
        atol=0.02,  # cells of 0.04 do not end at the thresholds
    )
    assert float(found.entropy.mean()) == pytest.approx(math.log(2 * math.pi * math.e) / 2 - math.log(4), abs=0.02)


class TestGap:
    def test_one_code_has_the_divergence_of_two_normals(self):
        model = gaussian_channel(shift=0.6, narrow=0.7)
        q, p = (Normal(each.mean, (each.log_variance / 2).exp()) for each in own(model))
        found = encoder_gap(model, X)
        torch.testing.assert_close(found.divergence, kl_divergence(q, p)[:, 0])
        assert found.error.tolist() == found.bias.tolist() == [0.0, 0.0]

    def test_the_exact_posterior_has_none_whatever_k(self):
        for k in (1, 2, 4):
            assert encoder_gap(gaussian_channel(resamples=k), X, draws=50).divergence.abs().max() < 1e-12

    def test_two_codes_by_quadrature(self):
        """q₂(z) = E p(x, z) / (½ (w(z) + w₂)) over one competitor, summed over a grid of both codes."""
        model = gaussian_channel(shift=0.6, resamples=2)
        grid = torch.linspace(-6, 6, 1_501, dtype=torch.float64)
        step = float(grid[1] - grid[0])
        with torch.no_grad():
            q, p = own(model)
            codes = grid[:, None, None].expand(-1, 2, 1)
            log_q, log_p = q.log_prob(codes), p.log_prob(codes)  # [node, row]
            weight = (log_p - log_q).exp()
            density = torch.stack([((log_q.exp() * step) / (weight[i] + weight)).sum(0) for i in range(len(grid))])
            density = 2 * log_p.exp() * density
            exact = (density * (density.log() - log_p)).nansum(0) * step
        found = encoder_gap(model, X, draws=2_000)
        assert ((density.sum(0) * step - 1).abs() < 1e-6).all()
        assert ((found.divergence - exact).abs() < 4 * found.error).all()
        assert (found.error < 0.02 * exact).all()

    def test_more_codes_are_nearer_to_the_posterior_in_the_limit_at_it(self):
        gaps = [encoder_gap(gaussian_channel(shift=0.6, resamples=k), X, draws=200) for k in (1, 2, 5, 20, 400)]
        for few, many in itertools.pairwise(gaps):
            assert (many.divergence < few.divergence - 3 * few.error).all()
        assert gaps[-1].divergence.max() < 1e-3

    def test_the_bias_is_that_of_few_draws(self):
        """Means over 100 seeds with 4 draws, against the gap with many."""
        model = gaussian_channel(shift=0.3, resamples=2)
        exact = encoder_gap(model, X, draws=4_000)
        found = [encoder_gap(model, X, draws=4, seed=seed, cells=100) for seed in range(100)]
        divergence, bias = (torch.stack([getattr(each, name) for each in found]) for name in ("divergence", "bias"))
        difference = divergence - bias - exact.divergence
        error = difference.std(0) / math.sqrt(len(found))
        assert (bias > 0).any()
        assert (difference.mean(0).abs() < 4 * error + bias.mean(0)).all()

    def test_the_bound_of_several_samples_is_below_that_of_the_resampled_code(self):
        """Cremer et al. (2017): Burda's bound ≤ log p(x) − KL(q_k, p) ≤ log p(x)."""
        for k in (2, 5):
            model = gaussian_channel(shift=0.6, resamples=k)
            gap = encoder_gap(model, X, draws=500)
            noise = torch.randn(20_000 * k, 2, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
            with torch.no_grad():
                bound = model.log_weights(X, noise)[1].view(-1, k, 2).logsumexp(1) - math.log(k)
            error = bound.std(0) / math.sqrt(len(bound))
            evidence = posterior(model, X).evidence
            assert (bound.mean(0) < evidence - gap.divergence - 3 * (error + gap.error)).all()
            plain = evidence - encoder_gap(gaussian_channel(shift=0.6), X).divergence
            assert (bound.mean(0) > plain + 3 * error).all()


def test_errors():
    with pytest.raises(UserError, match="model must have a code of one coordinate, got 2"):
        posterior(gaussian_channel(coordinates=2), torch.zeros(2, 2))
    with pytest.raises(UserError, match=r"cells must be more than 512: a cell of length 0\.0391 contains .* posterior"):
        posterior(gaussian_channel(1e4, 1.0), X)
    with pytest.raises(UserError, match="draws must be at least 2"):
        encoder_gap(gaussian_channel(resamples=2), X, draws=1)
    assert encoder_gap(gaussian_channel(), X, draws=1).error.tolist() == [0.0, 0.0]
    assert Rows(torch.zeros(2, 2))(torch.arange(2)).shape == (2, 2)
