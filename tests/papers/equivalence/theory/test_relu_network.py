"""Networks as affine maps: BatchNorm, convolutions and average pooling become matrices; what cannot is refused."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import understudy as us
from understudy.papers.equivalence.theory import relu_network
from understudy.papers.equivalence.theory.relu_network import as_relu_network, random_network

MODULES = {
    "dense": (nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 2)), (4,)),
    "leaky": (nn.Sequential(nn.Linear(4, 6), nn.LeakyReLU(0.1), nn.Linear(6, 2)), (4,)),
    "no bias": (nn.Sequential(nn.Linear(4, 6, bias=False), nn.ReLU(), nn.Linear(6, 2, bias=False)), (4,)),
    "norm before": (nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 2)), (4,)),
    "norm after": (nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.BatchNorm1d(6), nn.Linear(6, 2)), (4,)),
    "convolutions": (
        nn.Sequential(
            nn.Conv2d(2, 3, 3, padding=1),
            nn.BatchNorm2d(3),
            nn.ReLU(),
            nn.AvgPool2d(2),
            nn.Conv2d(3, 4, 2),
            nn.BatchNorm2d(4),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(16, 5),
            nn.BatchNorm1d(5),
            nn.ReLU(),
            nn.Linear(5, 2),
        ),
        (2, 6, 6),
    ),
    "convolutions, norm after": (
        nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(27, 2)),
        (1, 5, 5),
    ),
}


@pytest.mark.parametrize(("module", "size"), MODULES.values(), ids=MODULES)
def test_matrices_have_the_outputs_of_the_module(module, size):
    torch.manual_seed(0)
    for part in module:
        if isinstance(part, nn.BatchNorm1d | nn.BatchNorm2d):
            for tensor in (part.running_mean, part.weight.data, part.bias.data):
                tensor.normal_()
            part.running_var.uniform_(0.5, 2)
    module = module.double().eval()
    x = torch.randn(30, *size, dtype=torch.float64)
    population = us.from_module(module, x)
    network, changes = as_relu_network("a", population)
    np.testing.assert_allclose(network(x.flatten(1).numpy()), module(x).detach().numpy(), rtol=0, atol=1e-11)
    assert bool(changes) == bool(population.norms or population.image)
    assert network.sizes[0] == x[0].numel() and network.sizes[-1] == 2


@given(st.lists(st.integers(1, 6), min_size=3, max_size=5), st.sampled_from([0.0, 0.2]), st.integers(0, 9))
def test_going_to_a_population_and_back_changes_nothing(sizes, slope, seed):
    network = random_network(sizes, seed, slope)
    back, changes = as_relu_network("a", network.population())
    assert changes == () and back.sizes == tuple(sizes) and back.slope == slope
    for ours, theirs in zip((*network.weights, *network.biases), (*back.weights, *back.biases), strict=True):
        assert np.array_equal(ours, theirs)
    x = np.random.default_rng(0).normal(size=(5, sizes[0]))
    assert np.array_equal(network(x), back(x))
    values = network.preactivations(x)
    assert [v.shape[1] for v in values] == sizes[1:] and np.array_equal(values[-1], network(x))


def test_one_unit_by_hand():
    network, _ = as_relu_network("a", random_network([1, 1, 1], 0))
    w, b, v, c = (float(part.item()) for pair in zip(network.weights, network.biases, strict=True) for part in pair)
    assert network(np.array([[0.3]])).item() == pytest.approx(v * max(0.0, 0.3 * w + b) + c)


def test_what_is_no_relu_network_is_refused(monkeypatch):
    def refuse(module, x, words):
        with pytest.raises(us.UserError, match=words):
            as_relu_network("b", us.from_module(module, x))

    refuse(nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8, 1)),
           torch.zeros(2, 1, 6, 6), "b has max pooling after layer 1")  # fmt: skip
    dense = random_network([2, 3, 1], 0).population()
    from dataclasses import replace

    with pytest.raises(us.UserError, match="slopes from 0 up to 1"):
        as_relu_network("b", replace(dense, slope=-1.0))
    with pytest.raises(us.UserError, match="there is no network 3 among 1"):
        as_relu_network("b", dense, 3)
    dense.layers[0].weight[0, 0, 0] = float("nan")
    with pytest.raises(us.UserError, match="not finite"):
        as_relu_network("b", dense)
    monkeypatch.setattr(relu_network, "MOST_WEIGHTS", 100)
    refuse(nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32, 1)), torch.zeros(2, 1, 6, 6),
           "36 × 32 weights as a matrix; at most 100")  # fmt: skip
