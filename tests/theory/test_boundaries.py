"""Boundaries in either orientation: by hand, by the symmetries of a hyperplane, and against definition 3 as printed."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from understudy.measures import alignment_eps
from understudy.nets import Layer
from understudy.theory.boundaries import hyperplane_eps, same_ray


def layer(*nodes: tuple[float, ...]) -> Layer:
    """One network's nodes as (w̃…, b)."""
    rows = torch.tensor([nodes], dtype=torch.float64)
    return Layer(rows[..., :-1], rows[..., -1])


def random_layer(seed: int, nodes: int = 4, inputs: int = 3) -> Layer:
    made = torch.Generator().manual_seed(seed)
    return Layer(
        torch.randn(2, nodes, inputs, generator=made, dtype=torch.float64),
        torch.randn(2, nodes, generator=made, dtype=torch.float64),
    )


def test_distances_by_hand() -> None:
    a = layer((2.0, 0.0, 1.0))
    turned = math.radians(30)
    b = layer(
        (1.0, 0.0, 0.5),
        (-4.0, 0.0, -2.0),
        (-4.0, 0.0, 2.0),
        (math.cos(turned), math.sin(turned), 0.5),
        (0.0, 3.0, 0.0),
    )
    torch.testing.assert_close(
        hyperplane_eps(a, b), torch.tensor([[[0.0, 0.0, 1.0, 0.5, 1.0]]], dtype=torch.float64), rtol=0, atol=1e-15
    )
    assert (hyperplane_eps(a, b) <= 1e-9).tolist() == [[[True, True, False, False, False]]]
    assert same_ray(a, b, 1e-9).tolist() == [[[True, False, False, False, False]]]


def test_definition_3_as_printed_separates_opposite_nodes_with_one_boundary() -> None:
    a, opposite, mirrored = layer((1.0, 0.0, 0.3)), layer((-1.0, 0.0, -0.3)), layer((-1.0, 0.0, 0.3))
    x = torch.tensor([-0.3, 5.0], dtype=torch.float64)
    on = [float(node.weight[0, 0] @ x + node.bias[0, 0]) for node in (a, opposite, mirrored)]
    assert on == pytest.approx([0.0, 0.0, 0.6])
    assert float(hyperplane_eps(a, opposite)) == 0 and float(hyperplane_eps(a, mirrored)) == pytest.approx(0.6)
    assert float(alignment_eps(a, opposite)) == pytest.approx(0.6) and float(alignment_eps(a, mirrored)) == 0


@given(st.integers(0, 10_000), st.floats(1e-3, 1e3), st.floats(1e-3, 1e3))
def test_neither_scale_nor_orientation_matters(seed: int, one: float, other: float) -> None:
    a, b = random_layer(seed), random_layer(seed + 1)
    eps = hyperplane_eps(a, b)
    for sign in (1, -1):
        longer, turned = Layer(one * a.weight, one * a.bias), Layer(sign * other * b.weight, sign * other * b.bias)
        moved = hyperplane_eps(longer, turned)
        torch.testing.assert_close(moved, eps, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(hyperplane_eps(b, a).mT, eps, rtol=1e-12, atol=1e-15)
    assert (hyperplane_eps(a, a).diagonal(dim1=1, dim2=2) < 1e-14).all()


@given(st.integers(0, 10_000))
def test_for_weights_with_positive_cosine_it_equals_definition_3(seed: int) -> None:
    a, b = random_layer(seed), random_layer(seed + 1)
    b = Layer(a.weight + 0.1 * b.weight, b.bias)
    positive = torch.bmm(a.weight, b.weight.mT) > 0
    torch.testing.assert_close(hyperplane_eps(a, b)[positive], alignment_eps(a, b)[positive], rtol=1e-9, atol=1e-12)


def test_angles_below_the_rounding_of_cosines_are_resolved() -> None:
    near = layer((1.0, 1e-12, 0.0), (-1.0, 1e-12, 0.0))
    torch.testing.assert_close(
        hyperplane_eps(layer((1.0, 0.0, 0.0)), near)[0, 0], torch.full((2,), 1e-12, dtype=torch.float64)
    )


def test_nodes_without_a_hyperplane_are_infinitely_far_from_all() -> None:
    a = layer((0.0, 0.0, 1.0), (1.0, 0.0, 0.0), (1.0, 0.0, math.inf), (math.nan, 0.0, 0.0))
    eps = hyperplane_eps(a, a)
    assert eps[0, 1, 1] == 0 and eps.isinf().sum() == 15 and not eps.isnan().any()
    assert not same_ray(a, a, 1.0)[0, 0].any()


def test_a_missing_bias_counts_as_zero_and_float32_is_computed_in_float64() -> None:
    weight = random_layer(3).weight.float()
    absent, zero = Layer(weight, None), Layer(weight, torch.zeros(weight.shape[:2]))
    assert hyperplane_eps(absent, zero).dtype == torch.float64
    torch.testing.assert_close(hyperplane_eps(absent, zero), hyperplane_eps(zero, zero))
