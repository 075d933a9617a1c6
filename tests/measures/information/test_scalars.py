"""Information by quadrature against closed forms and limits; theorem 4.1 of Phuong 2021 as a property."""

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate as scipy_integrate
from torch import nn

from support.code_channels import Bins, Rows, bins, channel_information, gaussian_channel, linear, random_network
from understudy.measures.information.scalars import integrate_classes, integrate_number
from understudy.nets.latent.likelihoods import GaussianLikelihood
from understudy.nets.latent.model import LatentModel

NONE, ONE = torch.Size([]), torch.Size([1])
LIKE = torch.zeros(1, 1, dtype=torch.float64)
TOLERANCE = 1e-6


@pytest.fixture(autouse=True)
def _without_gradients():
    with torch.no_grad():
        yield


def of_classes(model, shape=NONE):
    found = integrate_classes(model, shape, LIKE, TOLERANCE)
    assert found.converged
    assert found.error <= TOLERANCE
    return found


def of_number(model):
    model.prepare(torch.zeros(2, 1))
    found = integrate_number(model, ONE, LIKE, TOLERANCE)
    assert found.converged
    assert found.error <= TOLERANCE
    return found


@pytest.mark.parametrize(
    ("gain", "noise"), [(1e-5, 1.0), (1e-3, 1.0), (0.1, 1e-3), (1.0, 1.0), (-2.0, 1e-3), (30.0, 1.0), (1e3, 1e-3)]
)
def test_gaussian_channel(gain, noise):
    """½ log(1 + snr), from 5×10⁻¹¹ to 6.9 nats; the bound of the posterior is the information."""
    found, exact = of_number(gaussian_channel(gain * noise, noise)), channel_information(gain, 1.0)
    assert found.information == pytest.approx(exact, rel=1e-5, abs=1e-12)
    assert abs(found.information - exact) <= found.error + 1e-13
    assert abs(found.bound - found.information) <= found.bound_error + found.error + 1e-12


def test_a_given_deviation_of_the_data():
    model = LatentModel(linear([[0.0], [0.0]], [0.0, 0.0]), linear([[2.0]], [5.0]), likelihood=GaussianLikelihood(0.5))
    assert of_number(model).information == pytest.approx(math.log1p(16) / 2, abs=1e-9)
    assert of_number(model).bound is None


class Sides(nn.Module):
    """Means ±distance on the two sides of a threshold, and deviation 1."""

    def __init__(self, distance, threshold):
        super().__init__()
        self.values = nn.Parameter(torch.tensor([distance, threshold], dtype=torch.float64))

    def forward(self, z):
        distance, threshold = self.values
        return torch.cat(((z - threshold).sign() * distance, torch.zeros_like(z)), 1)


@pytest.mark.parametrize("distance", [0.01, 0.25, 0.5, 1.0, 3.0, 50.0])
@pytest.mark.parametrize("threshold", [0.0, 0.03, -0.7])
def test_two_normal_numbers(distance, threshold):
    """x = ±distance + noise: h(x) by SciPy; without overlap, the entropy of the side."""
    model = LatentModel(linear([[0.0], [0.0]], [0.0, 0.0]), Sides(distance, threshold))
    above = math.erfc(threshold / math.sqrt(2)) / 2
    sides = {distance: above, -distance: 1 - above}

    def surprise(x):
        p = sum(share * math.exp(-((x - side) ** 2) / 2) for side, share in sides.items()) / math.sqrt(2 * math.pi)
        return -p * math.log(p) if p else 0.0

    edges = [-distance - 12, -distance, 0.0, distance, distance + 12]
    pieces = itertools.pairwise(edges)
    entropy = sum(scipy_integrate.quad(surprise, *piece, epsabs=1e-11, limit=200)[0] for piece in pieces)
    found = of_number(model).information
    assert found == pytest.approx(entropy - (math.log(2 * math.pi) + 1) / 2, abs=1e-7)
    if distance == 50.0:
        assert found == pytest.approx(-above * math.log(above) - (1 - above) * math.log1p(-above), abs=1e-8)


def test_narrow_noise_beside_wide():
    """A deviation that depends on the code alone, 1 or 0.01: h(x) − E h(x|z) with h(x) by SciPy."""

    class Widths(nn.Module):
        def __init__(self):
            super().__init__()
            self.at = nn.Parameter(torch.zeros(1, dtype=torch.float64))

        def forward(self, z):
            log_variance = torch.where(z > self.at, 0.0, 2 * math.log(0.01))
            return torch.cat((torch.zeros_like(z), log_variance), 1)

    def surprise(x):
        p = sum(math.exp(-((x / std) ** 2) / 2) / std for std in (1.0, 0.01)) / 2 / math.sqrt(2 * math.pi)
        return -p * math.log(p) if p else 0.0

    parts = [(-12, -0.1), (-0.1, 0), (0, 0.1), (0.1, 12)]
    entropy = sum(scipy_integrate.quad(surprise, *part, epsabs=1e-11, limit=400)[0] for part in parts)
    exact = entropy - (math.log(2 * math.pi) + 1) / 2 - math.log(0.01) / 2
    found = of_number(LatentModel(linear([[0.0], [0.0]], [0.0, 0.0]), Widths()))
    assert found.information == pytest.approx(exact, abs=1e-7)


@pytest.mark.parametrize("classes", [2, 3, 10])
@pytest.mark.parametrize("error", [0.0, 1e-9, 0.1, 0.5])
def test_classes_by_thresholds(classes, error):
    """Symmetric channels: log K − H(error) − error log(K − 1); without errors the decoder is deterministic: log K."""
    model = bins(classes, error, infer=True)
    spread = -(error * math.log(error) + (1 - error) * math.log1p(-error)) if error else 0.0
    exact = math.log(classes) - spread - error * math.log(classes - 1)
    found = of_classes(model)
    assert found.information == pytest.approx(exact, abs=1e-7)
    # r is the prior: the bound is H(z) + E log p(z) = 0.
    assert found.bound == pytest.approx(0.0, abs=1e-7)


@pytest.mark.parametrize("steep", [1e2, 1e4, 1e5, 1e6, 1e8])
def test_a_steep_threshold(steep):
    """log 2 − φ(0) ∫ H(σ(steep · z)) dz, where the integral of the entropy is π² / (3 · steep)."""
    model = LatentModel(Rows(torch.zeros(2, 2)), linear([[0.0], [steep]], [0.0, 0.0]), likelihood="categorical")
    exact = math.log(2) - math.pi**2 / (3 * steep) / math.sqrt(2 * math.pi)
    assert of_classes(model).information == pytest.approx(exact, abs=2 / steep**2 + 1e-8)


def test_numbers_that_are_0_or_1_are_two_classes():
    two = LatentModel(Rows(torch.zeros(2, 2)), linear([[0.0], [3.0]], [0.0, 0.7]), likelihood="categorical")
    bernoulli = LatentModel(Rows(torch.zeros(2, 2)), linear([[3.0]], [0.7]), likelihood="bernoulli")
    wanted = of_classes(two).information
    assert of_classes(bernoulli, ONE).information == pytest.approx(wanted, abs=1e-9)
    assert wanted > 0.1


def test_an_independent_decoder_has_no_information():
    classes = LatentModel(Rows(torch.zeros(3, 2)), linear([[0.0]] * 3, [0.5, -1.0, 2.0]), likelihood="categorical")
    assert of_classes(classes).information == pytest.approx(0.0, abs=1e-9)
    number = LatentModel(linear([[0.0], [0.0]], [0.0, 0.0]), linear([[0.0], [0.0]], [3.0, 1.0]))
    assert of_number(number).information == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_random_networks_against_a_plain_sum(seed):
    network = random_network(seed, 1, 2, 1.0)
    z = torch.linspace(-9, 9, 901, dtype=torch.float64)
    weight = (-z.square() / 2).exp()
    weight /= weight.sum()
    mean, log_variance = network(z[:, None]).T
    std = (log_variance / 2).exp()
    x = torch.linspace(float((mean - 9 * std).min()), float((mean + 9 * std).max()), 2_001, dtype=torch.float64)
    p = (torch.distributions.Normal(mean, std).log_prob(x[:, None]).exp() * weight).sum(1)
    exact = float(torch.special.entr(p).sum() * (x[1] - x[0]) - (weight * (std.log())).sum())
    exact -= (math.log(2 * math.pi) + 1) / 2
    found = of_number(LatentModel(linear([[0.0], [0.0]], [0.0, 0.0]), network))
    assert found.information == pytest.approx(exact, abs=1e-6)


@pytest.mark.parametrize("gain", [1e5, 1e8])
def test_what_cannot_be_resolved_is_not_converged(gain):
    model = gaussian_channel(gain, 1.0)
    model.prepare(torch.zeros(2, 1))
    assert not integrate_number(model, ONE, LIKE, TOLERANCE).converged


class TestInfomaxBound:
    """Theorem 4.1 of Phuong 2021: H(z) + E log r(z|x) is at most the information, with equality for the posterior."""

    @given(st.integers(0, 10**6), st.floats(0.01, 5.0), st.floats(0.0, 3.0), st.integers(2, 6))
    def test_classes(self, seed, scale, spread, classes):
        table = spread * torch.randn(classes, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        decoder = random_network(seed, 1, classes, scale)
        found = of_classes(LatentModel(Rows(table), decoder, Rows(table), likelihood="categorical"))
        assert found.bound <= found.information + found.error + found.bound_error
        assert found.information <= math.log(classes) + found.error

    @given(st.integers(0, 10**6), st.floats(0.01, 1.5), st.floats(0.01, 1.0))
    def test_numbers(self, seed, scale, spread):
        encoder = random_network(seed + 1, 1, 2, spread)
        model = LatentModel(encoder, random_network(seed, 1, 2, scale), encoder)
        found = of_number(model)
        assert found.bound <= found.information + found.error + found.bound_error
        # The poles of tanh are π/2 from the real axis. Where no unit of the encoder is steeper than the noise is wide,
        # they are at least 2.5 times as far from a cell's middle as its ends, half a cell being 10/16 deviations: the
        # Gauss–Lobatto rule of 8 nodes then converges as 5.2⁻¹⁴.
        _, log_variance = GaussianLikelihood().moments(
            model.decoder, torch.linspace(-10, 10, 2_001, dtype=torch.float64)[:, None]
        )
        if float((log_variance / 2).exp().max() * encoder[0].weight.abs().max()) <= 1:
            assert found.bound_error <= TOLERANCE

    def test_steep_networks_have_an_error_on_the_safe_side(self):
        """The encoder changes within a few hundredths of the noise; 2,048 cells of it give −27.078842825134."""
        encoder = random_network(38_599, 1, 2, 1.0)
        found = of_number(LatentModel(encoder, random_network(38_598, 1, 2, 1.5), encoder))
        assert TOLERANCE < abs(found.bound + 27.078842825134) <= found.bound_error

    def test_the_best_normal_r_of_thresholds(self):
        """Two halves of a normal: r has their moments, ±√(2/π) and 1 − 2/π, and misses log 2 − ½ log(π / (π − 2))."""
        mean, log_variance = math.sqrt(2 / math.pi), math.log(1 - 2 / math.pi)
        table = Rows([[-mean, log_variance], [mean, log_variance]])
        found = of_classes(LatentModel(table, Bins(2), table, likelihood="categorical"))
        assert found.information == pytest.approx(math.log(2), abs=1e-8)
        assert found.bound == pytest.approx(-log_variance / 2, abs=1e-7)
