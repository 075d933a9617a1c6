"""Adaptive quadrature: closed forms, jumps, narrow peaks and functions that are not finite."""

import math

import pytest
import torch

from understudy import UserError
from understudy.measures.information.quadrature import integrate, normal_density, place_nodes, split_cells

EDGES = torch.linspace(-10, 10, 65)


def test_polynomials_are_exact():
    cells = torch.tensor([[-1.0, 2.0], [2.0, 2.5]], dtype=torch.float64)
    nodes, weights = place_nodes(cells)
    found = (nodes**13 * weights).sum(1)
    torch.testing.assert_close(found, (cells[:, 1] ** 14 - cells[:, 0] ** 14) / 14)


def test_several_integrals_at_once():
    def function(z):
        return torch.stack((torch.ones_like(z), z, z**2, z**4), 1) * normal_density(z)[:, None]

    found = integrate(function, EDGES, 1e-12)
    wanted = torch.tensor([1.0, 0.0, 1.0, 3.0], dtype=torch.float64)
    assert found.converged
    assert ((found.value - wanted).abs() <= 1e-11).all()


@pytest.mark.parametrize("at", [0.0, 0.123456789, -7.7])
def test_a_jump_is_found(at):
    found = integrate(lambda z: (z > at).double()[:, None], EDGES, 1e-9)
    assert found.converged
    assert abs(float(found.value[0]) - (10 - at)) <= max(1e-9, float(found.error[0]))


@pytest.mark.parametrize("width", [1e-1, 1e-4, 1e-8])
def test_a_peak_between_edges_around_it_is_found(width):
    edges = torch.tensor([-10.0, *(0.3 + width * reach for reach in (-6, -1, 1, 6)), 10.0], dtype=torch.float64)
    found = integrate(lambda z: (normal_density((z - 0.3) / width) / width)[:, None], edges)
    assert found.converged
    assert abs(float(found.value[0]) - 1) < 1e-8


@pytest.mark.parametrize("at", [0.0, 1e-4, -10 + 20 / 64])
def test_a_peak_at_a_jump_is_found_wherever_the_cells_end(at):
    """σ(z / w) (1 − σ(z / w)) / w is 1 in total, and is seen from a distance only by the jump of σ."""
    width = 1e-7

    def function(z):
        sigmoid = ((z - at) / width).sigmoid()
        return torch.stack((sigmoid, sigmoid * (1 - sigmoid) / width), 1)

    found = integrate(function, EDGES, 1e-9)
    assert found.converged
    assert found.value.tolist() == pytest.approx([10 - at, 1.0], abs=1e-8)


def test_what_does_not_settle_or_is_not_finite_is_not_converged():
    noise = torch.Generator().manual_seed(0)
    random = integrate(lambda z: torch.rand(len(z), 1, generator=noise).double(), EDGES, 1e-9, most=1 << 14)
    assert not random.converged
    assert random.error[0] > 1e-6
    assert not integrate(lambda z: (1 / z.abs()).log().log()[:, None], EDGES).converged


def test_pieces_do_not_change_the_result():
    def function(z):
        return (z.cos() * normal_density(z))[:, None]

    torch.testing.assert_close(
        integrate(function, EDGES, 1e-10, piece=8).value, integrate(function, EDGES, 1e-10).value, rtol=0, atol=1e-14
    )
    assert abs(float(integrate(function, EDGES, 1e-10).value[0]) - math.exp(-0.5)) < 1e-10


def test_cells_are_halved():
    cells = torch.tensor([[0.0, 1.0], [1.0, 3.0]])
    rest, halves = split_cells(cells, torch.tensor([False, True]))
    assert rest.tolist() == [[0.0, 1.0]]
    assert halves.tolist() == [[1.0, 2.0], [2.0, 3.0]]


def test_one_edge_is_refused():
    with pytest.raises(UserError, match="edges must be at least two, got 1"):
        integrate(lambda z: z[:, None], torch.zeros(1))
