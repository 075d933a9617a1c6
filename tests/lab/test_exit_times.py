"""Times of exits: what is measured, how it is summarised, and what is restored."""

import itertools
import statistics

import pytest
import torch
from torch import nn

import understudy as us
from understudy.lab import exit_times
from understudy.lab.exit_times import time_exits
from understudy.nets.multi_exit.files import SavedExits
from understudy.nets.multi_exit.grid import Grid

GRID = Grid(3, 8, 1, channels=(2, 2), layers=3, exits=(1, 2, 3), head=3)


@pytest.fixture
def network():
    return us.MSDNet(GRID)


def test_times_of_both_modes(network):
    found = time_exits(network, repeats=3, images=2, device="cpu")
    assert (found.device, found.repeats, found.images) == ("cpu", 3, 2)
    assert len(found.budget) == len(found.anytime) == 3
    for times in (found.budget, found.anytime):
        assert all(time.median > 0 and time.mean > 0 and time.std >= 0 for time in times)
    means = [time.mean for time in found.anytime]
    assert means == sorted(means)  # one exit is computed after the other
    assert len(time_exits(SavedExits(network), repeats=1, device="cpu").budget) == 3


def test_modules_of_the_users():
    body = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(72, 3))
    found = time_exits(us.exits(body, [1], example=(1, 8, 8)), repeats=2, device="cpu")
    assert len(found.budget) == len(found.anytime) == 2


def test_summaries_of_known_times(network, monkeypatch):
    """A clock whose k-th reading is k² s: each exit alone is between two readings, and all exits of a run in a row."""
    monkeypatch.setattr(exit_times, "_WARM_UP", 0)
    readings = itertools.count()
    monkeypatch.setattr(exit_times, "perf_counter", lambda: next(readings) ** 2)
    found = time_exits(network, repeats=3, device="cpu")
    starts = [[6 * run + 2 * exit for run in range(3)] for exit in range(3)]
    alone = [[1e3 * ((k + 1) ** 2 - k**2) for k in each] for each in starts]
    turns = [[18 + 4 * run for run in range(3)] for _ in range(3)]
    in_turn = [[1e3 * ((k + 1 + exit) ** 2 - k**2) for k in each] for exit, each in enumerate(turns)]
    for times, wanted in ((found.budget, alone), (found.anytime, in_turn)):
        for time, each in zip(times, wanted, strict=True):
            assert time == (statistics.fmean(each), statistics.stdev(each), statistics.median(each))


def test_one_run_has_no_spread(network):
    assert all(time.std == 0 for time in time_exits(network, repeats=1, device="cpu").budget)


def test_modes_and_statistics_of_the_network_are_kept(network):
    network.train()
    network.exits[0].eval()
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    time_exits(network, repeats=1, device="cpu")
    assert network.training and not network.exits[0].training
    assert all(torch.equal(tensor, before[name]) for name, tensor in network.state_dict().items())


def test_each_exit_alone_computes_only_what_it_needs(network, monkeypatch):
    monkeypatch.setattr(exit_times, "_WARM_UP", 0)
    called = []
    for name, part in network.named_modules():
        if isinstance(part, nn.Conv2d):
            part.register_forward_hook(lambda *_, name=name: called.append(name))
    exit_times.time_alone(network, torch.zeros(1, 1, 8, 8), repeats=1)
    assert len(called) == sum(len(path) + 2 for path in GRID.paths)
    called.clear()
    exit_times.time_in_turn(network, torch.zeros(1, 1, 8, 8), repeats=1)
    assert len(called) == len(GRID.convolutions) + 2 * 3


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"repeats": 0}, "repeats must be a whole number of at least 1, got 0"),
        ({"images": 0}, "images must be a whole number of at least 1, got 0"),
        ({"device": "abacus"}, "device must be auto, cpu or cuda, got 'abacus'"),
    ],
)
def test_bad_values(network, given, message):
    with pytest.raises(us.UserError, match=message):
        time_exits(network, **given)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_times_on_a_gpu(network):
    found = time_exits(network, repeats=5, device="cuda")
    assert found.device == "cuda" and all(time.mean > 0 for time in (*found.budget, *found.anytime))
