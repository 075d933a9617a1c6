"""Populations: equal to their networks one by one, and to torch's own modules."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from support.problems import SLOPES, gaussians, population
from understudy.nets import Layer, Population, Shape, activate, gate, stack

pytestmark = pytest.mark.usefixtures("one_thread")
depths = pytest.mark.parametrize("depth", [2, 3, 4, 5])
biased = pytest.mark.parametrize("bias", [True, False], ids=["bias", "no-bias"])


class Abs(nn.Module):
    def forward(self, x):
        return x.abs()


def module(networks, which):
    """Build the same network from torch's own modules."""
    activation = {0.0: nn.ReLU(), -1.0: Abs()}.get(networks.slope, nn.LeakyReLU(networks.slope))
    parts = []
    for weight, bias in networks.layers:
        linear = nn.Linear(weight.shape[2], weight.shape[1], bias=bias is not None, dtype=weight.dtype)
        linear.weight.data = weight[which]
        if bias is not None:
            linear.bias.data = bias[which]
        parts += [linear, activation]
    return nn.Sequential(*parts[:-1])


def equal(a, b):
    return a.shape == b.shape and all(
        torch.equal(x.weight, y.weight) and (x.bias is None or torch.equal(x.bias, y.bias))
        for x, y in zip(a.layers, b.layers, strict=True)
    )


@depths
@biased
@pytest.mark.parametrize("slope", SLOPES.values(), ids=SLOPES)
def test_a_population_equals_sequential_modules(slope, depth, bias):
    networks = population((4, 7, 5, 6, 3, 2)[: depth + 1], 3, slope=slope, bias=bias)
    x = gaussians(1, 9, 4)
    for which in range(3):
        plain = module(networks, which)
        torch.testing.assert_close(networks(x)[which], plain(x), atol=1e-13, rtol=0)
        hidden = networks.activations(x).hidden
        assert len(hidden) == depth - 1
        for i, h in enumerate(hidden):
            torch.testing.assert_close(h[which], plain[: 2 * i + 2](x), atol=1e-13, rtol=0)


@given(st.lists(st.integers(1, 9), min_size=2, max_size=5), st.integers(1, 4), st.booleans(), st.booleans())
def test_a_population_equals_its_networks_one_by_one(sizes, nets, bias, own_inputs):
    networks = population(sizes, nets, slope=0.1, bias=bias)
    x = gaussians(1, nets, 6, sizes[0]) if own_inputs else gaussians(1, 6, sizes[0])
    outputs = networks(x)
    assert outputs.shape == (nets, 6, sizes[-1])
    for i in range(nets):
        alone = networks[i](x[i] if own_inputs else x)
        torch.testing.assert_close(outputs[i : i + 1], alone, atol=1e-13, rtol=0)


def test_inputs_may_be_shared_or_each_networks_own():
    networks, x = population((3, 4, 2), 2), gaussians(1, 5, 3)
    torch.testing.assert_close(networks(x), networks(torch.stack((x, x))), atol=0, rtol=0)
    assert not torch.allclose(networks(torch.stack((x, 2 * x)))[1], networks(x)[1])


def test_indexing_selects_networks_with_their_seeds():
    networks = population((3, 4, 2), 5, slope=0.5)
    for which, expected in ((3, [3]), (-1, [4]), (slice(1, 4), [1, 2, 3]), ([4, 0, 4], [4, 0, 4])):
        some = networks[which]
        assert len(some) == len(expected) and some.slope == 0.5
        assert some.seeds.tolist() == [10 + i for i in expected]
        assert equal(some, networks[torch.tensor(expected)])
        for mine, all_of_them in zip(some.layers, networks.layers, strict=True):
            assert torch.equal(mine.weight, all_of_them.weight[expected])
            assert torch.equal(mine.bias, all_of_them.bias[expected])


@biased
def test_stacking_undoes_indexing(bias):
    networks = population((3, 4, 2), 5, bias=bias)
    again = stack([networks[:2], networks[2], networks[3:]])
    assert equal(again, networks) and torch.equal(again.seeds, networks.seeds)


@pytest.mark.parametrize(
    "other", [population((3, 5, 2), 1), population((3, 4, 2), 1, slope=0.1), population((3, 4, 2), 1, bias=False)]
)
def test_only_networks_of_one_shape_stack(other):
    with pytest.raises(ValueError, match="only networks of one shape stack, got"):
        stack([population((3, 4, 2), 1), other])


@biased
def test_to_converts_weights_and_keeps_integer_seeds(bias):
    networks = population((3, 4, 2), 2, bias=bias)
    single = networks.to(dtype=torch.float32)
    assert single.dtype == torch.float32 and single.seeds.dtype == torch.int64
    assert equal(
        single.to("cpu", torch.float64),
        Population(
            tuple(Layer(w.float().double(), None if b is None else b.float().double()) for w, b in networks.layers),
            networks.seeds,
        ),
    )
    assert networks.dtype == torch.float64 and single.device == torch.device("cpu")


@biased
def test_shape_of_a_population(bias):
    networks = population((3, 4, 6, 2), 2, slope=-1.0, bias=bias)
    assert networks.sizes == (3, 4, 6, 2) and networks.shape == Shape((3, 4, 6, 2), -1.0, bias)


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        ([Layer(torch.zeros(3, 4, 5), None)], r"must have shape \(2, 4, 5\), got \(3, 4, 5\)"),
        (
            [Layer(torch.zeros(2, 4, 5), None), Layer(torch.zeros(2, 1, 3), None)],
            r"\(2, 1, 4\), got \(2, 1, 3\)",
        ),
        ([Layer(torch.zeros(2, 4, 5), None), Layer(torch.zeros(1, 4), None)], r"a weight must have .* got \(1, 4\)"),
        ([Layer(torch.zeros(2, 4, 5), torch.zeros(4))], r"a bias must have shape \(2, 4\), got \(4,\)"),
        ([Layer(torch.zeros(2, 4, 5), torch.zeros(2, 5))], r"a bias must have shape \(2, 4\), got \(2, 5\)"),
    ],
    ids=["nets", "chain", "flat", "flat-bias", "bias"],
)
def test_layers_that_do_not_fit_are_rejected(layers, message):
    with pytest.raises(ValueError, match=message):
        Population(tuple(layers), torch.arange(2))


def test_repr_is_short():
    assert repr(population((3, 400, 2), 1)) == "Population(1 network, sizes 3-400-2, ReLU, float64, cpu)"
    leaky = population((3, 4, 2), 5, slope=0.1).to(dtype=torch.float32)
    assert repr(leaky) == "Population(5 networks, sizes 3-4-2, leaky ReLU (slope 0.1), float32, cpu)"
    shown = leaky._repr_html_()
    assert "<table>" in shown and "<td>3 → 4 → 2</td>" in shown and "<td>leaky ReLU (slope 0.1)</td>" in shown


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("slope", SLOPES.values(), ids=SLOPES)
def test_the_gate_is_the_derivative_and_one_at_zero(slope, dtype):
    x = torch.tensor([-2.0, -1e-30, 0.0, 1e-30, 3.0], dtype=dtype, requires_grad=True)
    y = activate(x, slope)
    assert torch.equal(y.detach(), torch.where(x >= 0, x, slope * x).detach())
    (derivative,) = torch.autograd.grad(y.sum(), x)
    assert torch.equal(gate(x.detach(), slope).to(dtype), derivative)
    assert derivative[2] == 1
