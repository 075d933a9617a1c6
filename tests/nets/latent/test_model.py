"""Models with a latent code: importance weights and resampling against their definitions, and errors."""

import math

import pytest
import torch
from torch import nn

from understudy import UserError
from understudy.nets.latent.codes import prior_log_prob
from understudy.nets.latent.likelihoods import (
    BernoulliLikelihood,
    CategoricalLikelihood,
    GaussianLikelihood,
    SequenceLikelihood,
)
from understudy.nets.latent.model import LatentModel

X = torch.tensor([[0.7], [-0.4]], dtype=torch.float64)


def linear(weight, bias):
    """A linear layer with given parameters in float64."""
    layer = nn.Linear(len(weight[0]), len(weight)).double()
    with torch.no_grad():
        layer.weight.copy_(torch.tensor(weight, dtype=torch.float64))
        layer.bias.copy_(torch.tensor(bias, dtype=torch.float64))
    return layer


def channel(gain=1.5, noise=0.8, shift=0.0, **options):
    """x = gain · z + noise, whose posterior is known; the encoder's mean is the posterior's plus a shift."""
    variance = noise**2 / (gain**2 + noise**2)
    encoder = linear([[gain * variance / noise**2], [0.0]], [shift, math.log(variance)])
    decoder = linear([[gain], [0.0]], [0.0, 2 * math.log(noise)])
    model = LatentModel(encoder, decoder, **options)
    model.prepare(X)
    return model


def evidence(gain=1.5, noise=0.8):
    return torch.distributions.Normal(0.0, math.hypot(gain, noise)).log_prob(X)[:, 0]


def test_every_weight_of_the_exact_posterior_is_the_evidence():
    _, log_weight = channel().log_weights(X, torch.randn(9, 2, 1, dtype=torch.float64))
    torch.testing.assert_close(log_weight, evidence().expand(9, 2))


def test_the_mean_weight_of_another_encoder_is_the_evidence():
    noise = torch.randn(100_000, 2, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    weight = channel(shift=0.3).log_weights(X, noise)[1].exp()
    error = weight.std(0) / math.sqrt(len(weight))
    assert ((weight.mean(0) - evidence().exp()).abs() < 4 * error).all()


class TestResampling:
    k = 4

    def test_codes_have_the_density_that_is_estimated(self):
        """Cremer et al. (2017): the histogram of resampled codes against the estimated density."""
        model, count = channel(shift=0.6), 200_000
        random = torch.Generator().manual_seed(1)
        x = X[:1].expand(count, 1)
        drawn = model.draw_codes(
            x,
            torch.randn(self.k, count, 1, generator=random, dtype=torch.float64),
            torch.rand(count, generator=random, dtype=torch.float64),
        )
        edges = torch.linspace(-1.5, 2.5, 21, dtype=torch.float64)
        middle = (edges[1:] + edges[:-1]) / 2
        competitors = torch.randn(2_000, self.k - 1, 1, 1, generator=random, dtype=torch.float64)
        density = model.code_log_prob(middle[:, None, None], X[:1], competitors)[:, 0].exp()
        share = torch.histogram(drawn[:, 0], edges).hist / count
        wanted = density * (edges[1] - edges[0])
        # Standard errors of the histogram, and the curvature of the density within a bin.
        assert ((share - wanted).abs() < 5 * (wanted / count).sqrt() + 0.02 * wanted + 1e-4).all()

    def test_the_density_adds_up_to_one(self):
        grid = torch.linspace(-8, 8, 801, dtype=torch.float64)
        noise = torch.randn(500, self.k - 1, 2, 1, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
        model = channel(shift=0.6)
        density = model.code_log_prob(grid[:, None, None].expand(-1, 2, 1), X, noise).exp()
        # Only on average over competitors: with 500 samples within a few percent.
        assert ((density.sum(0) * (grid[1] - grid[0]) - 1).abs() < 0.03).all()

    def test_one_code_is_the_encoder_itself(self):
        model, z = channel(shift=0.6), torch.randn(5, 2, 1, dtype=torch.float64)
        found = model.code_log_prob(z, X, torch.empty(1, 0, 2, 1, dtype=torch.float64))
        torch.testing.assert_close(found, model.encode(X).log_prob(z))

    def test_many_codes_are_the_posterior(self):
        model, exact = channel(shift=0.6), channel()
        z = torch.linspace(-1, 1.5, 7, dtype=torch.float64)[:, None, None].expand(-1, 2, 1)
        noise = torch.randn(20, 4_000, 2, 1, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
        torch.testing.assert_close(model.code_log_prob(z, X, noise), exact.encode(X).log_prob(z), rtol=0, atol=0.02)


def test_the_log_likelihood_takes_several_codes_for_each_row():
    model, z = channel(), torch.randn(3, 4, 2, 1, dtype=torch.float64)
    found = model.log_likelihood(z, X)
    assert found.shape == (3, 4, 2)
    torch.testing.assert_close(found[1, 2], model.log_likelihood(z[1, 2], X))
    wanted = torch.distributions.Normal(1.5 * z, 0.8).log_prob(X)[..., 0] + prior_log_prob(z)
    torch.testing.assert_close(found + prior_log_prob(z), wanted)


class Generating(nn.Module):
    def generate(self, z, noise):
        return noise.long()

    def forward(self, z, x):
        return torch.zeros(*x.shape, 3)


@pytest.mark.parametrize(
    ("decoder", "x", "kind"),
    [
        (nn.Linear(1, 4), torch.zeros(3, 2), GaussianLikelihood),
        (nn.Linear(1, 4), torch.zeros(3, dtype=torch.long), CategoricalLikelihood),
        (Generating(), torch.zeros(3, 5, dtype=torch.long), SequenceLikelihood),
    ],
)
def test_likelihood_and_code_follow_from_the_data(decoder, x, kind):
    class Encoder(nn.Module):
        def forward(self, x):
            return torch.zeros(len(x), 2)

    model = LatentModel(Encoder(), decoder)
    for name in ("likelihood", "latent"):
        with pytest.raises(UserError, match=f"{name} is not known yet; give it, or call prepare"):
            getattr(model, name)
    model.prepare(x)
    assert isinstance(model.likelihood, kind)
    assert model.latent == 1


def test_a_given_likelihood_is_kept():
    assert isinstance(LatentModel(nn.Identity(), nn.Identity(), likelihood="bernoulli").likelihood, BernoulliLikelihood)
    assert LatentModel(
        nn.Identity(), nn.Identity(), likelihood=GaussianLikelihood(0.1)
    ).likelihood == GaussianLikelihood(0.1)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"likelihood": "gausian"}, "likelihood must be one of auto, gaussian, .*, got 'gausian'.*gaussian"),
        ({"resamples": 0}, "resamples must be a whole number of at least 1, got 0"),
        pytest.param(
            {"resamples": 1.5},
            "resamples must be a whole number of at least 1, got 1.5",
            marks=pytest.mark.wrong_shapes,
        ),
        ({"latent": 0}, "latent must be a whole number of at least 1, got 0"),
    ],
)
def test_options_out_of_range(options, words):
    with pytest.raises(UserError, match=words):
        LatentModel(nn.Identity(), nn.Identity(), **options)


@pytest.mark.parametrize(
    ("model", "x", "words"),
    [
        (
            LatentModel(nn.Linear(2, 4), nn.Linear(2, 3)),
            torch.zeros(5, 2),
            "decoder must return means and log variances",
        ),
        (LatentModel(nn.Linear(2, 4), nn.Linear(2, 4)), torch.zeros(0, 2), "data must have at least one row"),
        (LatentModel(nn.Linear(2, 4), nn.Linear(2, 4)), torch.full((5, 2), math.nan), "data must be finite"),
        (LatentModel(nn.Linear(2, 3), nn.Linear(2, 4)), torch.zeros(5, 2), "encoder must return as many means as log"),
        (
            LatentModel(nn.Linear(2, 4), nn.Linear(2, 4), latent=3),
            torch.zeros(5, 2),
            r"3 for each row, got \[2\]",
        ),
        (
            LatentModel(nn.Linear(2, 4), nn.Linear(2, 4), nn.Linear(2, 6)),
            torch.zeros(5, 2),
            r"infer must return .* 2 for each row, got \[3\]",
        ),
    ],
)
def test_modules_that_do_not_fit_the_data_are_refused(model, x, words):
    with pytest.raises(UserError, match=words):
        model.prepare(x)


def test_an_inference_network_is_asked_for():
    with pytest.raises(UserError, match="infer is missing, which bounds the information"):
        channel().infer_code(X)
