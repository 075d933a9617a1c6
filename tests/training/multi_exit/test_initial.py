"""Initial weights: a function of the seed, with the moments that Huang et al. (2018) state."""

import math

import torch

from support.exit_training import GRID
from understudy.nets.multi_exit.grid import Grid
from understudy.nets.multi_exit.msdnet import MSDNet
from understudy.training.multi_exit.initial import initial_weights


def test_names_shapes_and_types_are_those_of_the_network():
    network, weights = MSDNet(GRID), initial_weights(GRID, 1)
    assert list(weights) == list(network.state_dict())
    network.load_state_dict(weights)
    for name, tensor in network.state_dict().items():
        assert torch.equal(tensor, weights[name]) and tensor.dtype == weights[name].dtype


def test_weights_are_a_function_of_the_seed():
    one, again, other = (initial_weights(GRID, seed) for seed in (1, 1, 2))
    convolutions = [name for name, each in one.items() if each.ndim == 4]
    assert all(torch.equal(one[name], again[name]) for name in one)
    assert not any(torch.equal(one[name], other[name]) for name in convolutions)
    first, second = (one[name].flatten()[:8] for name in convolutions[:2])
    assert not torch.allclose(first / first[0], second / second[0], rtol=1e-3)


def test_moments():
    grid = Grid(classes=50, image=16, channels=(16, 32), layers=2, exits=(2,), head=64)
    for name, each in initial_weights(grid, 3).items():
        if each.ndim == 4:
            std, count = math.sqrt(2 / (each.shape[0] * each.shape[2] ** 2)), each.numel()
            assert abs(float(each.std()) / std - 1) < 4 / math.sqrt(2 * count)
            assert abs(float(each.mean())) < 4 * std / math.sqrt(count)
        elif name.endswith("classifier.weight"):
            bound = 1 / math.sqrt(each.shape[1])
            assert 0.99 * bound < float(each.max()) < bound and -bound < float(each.min()) < -0.99 * bound
            assert abs(float(each.std()) / bound * math.sqrt(3) - 1) < 0.05
        else:
            assert (each == (1 if name.endswith(("norm.weight", "running_var")) else 0)).all()
