"""Hermite coefficients of activations (Zhou, Ge & Jin 2021, lemma C.6): formula, integrals, and kernel series."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.gaussian_digits import integral, slopes, tensor
from understudy.papers.local.theory import gaussian

pytestmark = pytest.mark.usefixtures("one_thread")


def _polynomial(k, x):
    """h_k(x) by recurrence."""
    before, now = 0.0, 1.0
    for n in range(k):
        before, now = now, (x * now - math.sqrt(n) * before) / math.sqrt(n + 1)
    return now


@pytest.mark.parametrize("k", range(21))
def test_hermite_coefficients_agree_with_quadrature(k):
    """Integrate over x > 0; x < 0 contributes the same times the slope, with the opposite sign where h_k is even."""

    def integrand(x):
        return x * _polynomial(k, x) * math.exp(-x * x / 2) / math.sqrt(2 * math.pi)

    above = math.fsum(integral(integrand, low, low + 1) for low in range(16))
    for slope in (-1.0, 0.0, 0.2):
        wanted = above * (1 + slope if k % 2 else 1 - slope)
        assert gaussian.hermite(k, slope) == pytest.approx(wanted, abs=1e-13)


def test_hermite_coefficients_agree_with_the_papers_formula_and_decay():
    """σ̂² is of order k^(−5/2): (k−1)!!²/k! goes as k^(−½), and (k−3)!! is (k−1)!!/(k−1)."""
    assert gaussian.hermite(0) == pytest.approx(math.sqrt(2 / math.pi), rel=1e-15)
    assert gaussian.hermite(2) == pytest.approx(math.sqrt(1 / math.pi), rel=1e-15)
    for k in range(4, 60, 2):
        double = math.prod(range(k - 3, 0, -2))
        wanted = (-1) ** (k // 2 - 1) * math.sqrt(2 / (math.pi * math.factorial(k))) * double
        assert gaussian.hermite(k) == pytest.approx(wanted, rel=1e-13)
    far = [gaussian.hermite(k) for k in (10_000, 40_000)]
    assert far[0] / far[1] == pytest.approx(4**1.25, rel=1e-3)


@given(st.floats(-0.9, 0.9), slopes)
def test_the_kernel_is_the_power_series_of_squared_hermite_coefficients(cosine, slope):
    """E[h_k(x) h_k(y)] = ρᵏ for ρ-correlated normals (claim C.1)."""
    series = math.fsum(gaussian.hermite(k, slope) ** 2 * cosine**k for k in range(400))
    found = gaussian.kernel(tensor([1.0, 0.0]), tensor([cosine, math.sqrt(1 - cosine**2)]), slope)
    assert found.item() == pytest.approx(series, abs=1e-12)
