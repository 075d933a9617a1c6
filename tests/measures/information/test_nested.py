"""Nested Monte Carlo: within its interval of closed forms and of quadrature, coverage over seeds, and its biases."""

import math

import pytest
import torch

import understudy.measures.information.nested as nested
from support.code_channels import Bins, Rows, bins, channel_information, gaussian_channel, linear, random_network
from understudy.measures.information.nested import nested_information
from understudy.measures.information.scalars import integrate_classes
from understudy.nets.latent.likelihoods import END
from understudy.nets.latent.model import LatentModel


def channel(coordinates=1, **options):
    model = gaussian_channel(coordinates=coordinates, **options)
    model.prepare(torch.zeros(2, coordinates))
    return model, torch.Size([coordinates]), channel_information(coordinates=coordinates)


def prior_channel(coordinates=1):
    """A channel without an inference network, whose encoder is the prior, as in plain nested Monte Carlo."""
    model, shape, exact = channel(coordinates, infer=False)
    zero = torch.zeros(2 * coordinates, coordinates)
    return LatentModel(linear(zero, [0.0] * 2 * coordinates), model.decoder, latent=coordinates), shape, exact


def prepared(model, coordinates):
    model.prepare(torch.zeros(2, coordinates))
    return model


@pytest.mark.parametrize("coordinates", [1, 2, 5, 20])
@pytest.mark.parametrize("shift", [0.0, 0.4])
def test_the_gaussian_channel_is_in_the_interval(coordinates, shift):
    model, shape, exact = channel(coordinates, shift=shift)
    found = nested_information(model, shape, samples=400, codes=200)
    assert found.low <= exact <= found.high
    assert found.low <= found.value <= found.high
    assert found.high - found.low < 0.3 * math.sqrt(coordinates)
    # r is the posterior: the bound is the information.
    assert abs(found.bound - exact) < 4 * found.bound_error


def test_a_long_code_of_much_information():
    """20 coordinates with 1.24 nats each: codes of the prior alone would find none that explain x."""
    model, exact = gaussian_channel(1.5, 0.3, coordinates=20, shift=0.05), channel_information(1.5, 0.3, 20)
    found = nested_information(prepared(model, 20), torch.Size([20]), samples=300, codes=100)
    assert exact > 30
    assert found.low <= exact <= found.high
    assert found.high - found.low < 2


def test_intervals_cover_the_information_in_95_of_100_seeds():
    """With prior codes only, so that there are both noise and bias: at least 90 of 100 (binomial: 2.3 deviations)."""
    model, shape, exact = prior_channel()
    prepared(model, 1)
    found = [nested_information(model, shape, samples=150, codes=32, seed=seed) for seed in range(100)]
    assert sum(each.low <= exact <= each.high for each in found) >= 90
    assert max(each.high - each.low for each in found) < 0.6


@pytest.mark.parametrize("codes", [2, 8, 32])
def test_the_two_estimates_are_biased_as_stated_and_the_value_is_between(codes):
    model, shape, exact = prior_channel()
    found = nested_information(prepared(model, 1), shape, samples=40_000, codes=codes)
    error = 2 * (found.high - found.upper) / nested.QUANTILE
    assert found.lower < exact - error < exact + error < found.upper
    assert abs(found.value - exact) < max(0.5 * (exact - found.lower), error)
    assert found.lower < found.value < found.upper


def test_the_biases_are_half_the_relative_variance_of_the_mean():
    """x = z + noise of deviation 2, with codes of the prior: the variance is an integral over z and x."""
    model = gaussian_channel(1.0, 2.0, infer=False)
    model = prepared(LatentModel(linear([[0.0], [0.0]], [0.0, 0.0]), model.decoder), 1)
    codes, samples = 16, 60_000
    z = torch.linspace(-8, 8, 401, dtype=torch.float64)
    x = torch.linspace(-14, 14, 401, dtype=torch.float64)
    prior = torch.distributions.Normal(0.0, 1.0).log_prob(z).exp() * (z[1] - z[0])
    given = torch.distributions.Normal(z[:, None], 2.0).log_prob(x).exp()
    p = prior @ given
    variance = float((((prior @ given**2) / p**2 - 1) * p).sum() * (x[1] - x[0]))
    found = nested_information(model, torch.Size([1]), samples=samples, codes=codes)
    assert found.upper - found.lower == pytest.approx(variance / codes, rel=0.1)


@pytest.mark.parametrize("seed", range(3))
def test_quadrature_is_in_the_interval(seed):
    random = torch.Generator().manual_seed(seed)
    table = Rows(torch.randn(6, 2, generator=random, dtype=torch.float64))
    model = LatentModel(table, random_network(seed, 1, 6, 2.0), table, likelihood="categorical")
    model.prepare(torch.arange(6))
    with torch.no_grad():
        exact = integrate_classes(model, torch.Size([]), torch.zeros(1, 1, dtype=torch.float64), 1e-8)
    found = nested_information(model, torch.Size([]), samples=2_000, codes=64)
    assert found.low <= exact.information <= found.high
    assert found.high - found.low < 0.2
    assert abs(found.bound - exact.bound) < 4 * found.bound_error


def test_thresholds_without_errors():
    model = bins(4)
    model.prepare(torch.arange(4))
    found = nested_information(model, torch.Size([]), samples=1_000, codes=400)
    assert found.value == pytest.approx(math.log(4), abs=0.02)
    assert found.low <= math.log(4) <= found.high


def test_codes_that_miss_what_explains_x_leave_no_upper_end():
    """Among 5 codes of the prior, none is in the interval of x: p(x) is 0 without the sample's own."""
    model = bins(1_000)
    model.prepare(torch.arange(1_000))
    found = nested_information(model, torch.Size([]), samples=100, codes=5)
    assert found.high == math.inf
    assert found.low <= math.log(1_000)
    assert math.isfinite(found.value)


def test_an_independent_decoder_has_no_information():
    decoder = linear([[0.0, 0.0]] * 3, [0.5, -1.0, 2.0])
    model = LatentModel(Rows(torch.zeros(3, 4)), decoder, likelihood="categorical")
    model.prepare(torch.arange(3))
    found = nested_information(model, torch.Size([]), samples=2_000, codes=500)
    assert found.low <= 0 <= found.high
    assert abs(found.value) < 0.01


class Words(torch.nn.Module):
    """Sentences of one word, 1 or 2 by the sign of the first coordinate of the code, and the end."""

    def __init__(self):
        super().__init__()
        self.sure = torch.nn.Parameter(torch.tensor(50.0, dtype=torch.float64))

    def forward(self, z, x):
        first = torch.stack(
            (torch.full_like(z[:, 0], -50.0), -self.sure * z[:, 0].sign(), self.sure * z[:, 0].sign()), 1
        )
        end = torch.tensor([50.0, -50.0, -50.0], dtype=z.dtype)
        return torch.cat((first[:, None], end.expand(len(z), x.shape[1] - 1, 3)), 1)

    def generate(self, z, noise):
        x = torch.full(noise.shape, END)
        x[:, 0] = torch.where(z[:, 0] > 0, 2, 1)
        return x


def test_sequences():
    class Encoder(Rows):
        def forward(self, x):
            return self.rows[x[:, 0]]

    model = LatentModel(Encoder(torch.zeros(3, 4)), Words())
    model.prepare(torch.tensor([[1, 0, 0], [2, 0, 0]]))
    assert model.likelihood.name == "sequence"
    found = nested_information(model, torch.Size([3]), samples=500, codes=200)
    assert found.low <= math.log(2) <= found.high
    assert found.value == pytest.approx(math.log(2), abs=0.02)


def test_the_result_depends_on_the_seed_and_not_on_the_memory(monkeypatch):
    model, shape, _ = channel(2, shift=0.2)
    wanted = nested_information(model, shape, samples=50, codes=30, seed=3)
    assert nested_information(model, shape, samples=50, codes=30, seed=3) == wanted
    assert nested_information(model, shape, samples=50, codes=30, seed=4).value != wanted.value
    for pairs in (7, 100):
        monkeypatch.setattr(nested, "_PAIRS_AT_ONCE", pairs)
        assert nested_information(model, shape, samples=50, codes=30, seed=3) == pytest.approx(wanted, abs=1e-12)


def test_the_largest_output_of_a_module_limits_the_pairs():
    model = bins(7)
    model.prepare(torch.arange(7))
    assert nested._largest_output(model, torch.Size([])) == 7


def test_the_standard_error():
    values = torch.tensor([1.0, 2.0, 3.0, 6.0])
    assert nested._standard_error(values) == pytest.approx(math.sqrt((4 + 1 + 0 + 9) / 3 / 4))
    assert nested._standard_error(torch.tensor([1.0, math.inf])) == math.inf


def test_bins_are_equally_probable():
    z = torch.randn(20_000, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    share = Bins(5)(z).exp().mean(0)
    assert ((share - 0.2).abs() < 4 * math.sqrt(0.16 / 20_000)).all()
