"""Training of networks that a function of the user's makes: the same as for a grid, a loop of its own, resuming."""

from dataclasses import replace

import pytest
import torch
from torch import nn

import understudy as us
from support.exit_training import GRID, NETWORKS, PLAN, TRAINING, pictures, train
from understudy._errors import UserError
from understudy.data.images.epoch_batches import crop_batch, draw_epoch
from understudy.data.images.labelled_split import split_classes
from understudy.nets.multi_exit.exits import MultiExit
from understudy.training.multi_exit import ExitNetwork, ExitPlan, OwnNetworks, train_exits
from understudy.training.multi_exit.initial import initial_weights

PICTURES = pictures()
DISTILLED = us.ExitObjective.last_teacher(3, limit=0.16, factor=1.1)
SHORT = replace(PLAN, epochs=2, probes=(1,), drops=(1,))


def make(_seed: int, width: int = 5) -> MultiExit:
    body = nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(inplace=True), nn.Conv2d(width, 6, 3, 2, 1),
        nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 7),
    )  # fmt: skip
    return us.exits(body, [2, 4], example=(3, 8, 8), width=4)


def make_grid(seed: int) -> us.MSDNet:
    network = us.MSDNet(GRID)
    network.load_state_dict(initial_weights(GRID, seed))
    return network


def same(one, two) -> bool:
    first, second = (
        torch.cat([each.flatten().double() for each in run.history.tensors.values()]) for run in (one, two)
    )
    return torch.equal(first.nan_to_num(-1), second.nan_to_num(-1)) and all(
        a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)
        for a, b in zip(one.weights, two.weights, strict=True)
    )


def test_a_function_that_makes_the_grid_trains_as_the_grid():
    assert same(train(replace(PLAN, grid=OwnNetworks(make_grid))), train(PLAN))


def test_steps_are_those_of_a_loop_with_the_objective():
    """The public names `us.exits` and `us.ExitObjective` in a loop with `torch.optim.SGD`."""
    plan = ExitPlan((ExitNetwork(3, DISTILLED, 0.1),), OwnNetworks(make), 18, 4, epochs=2, batch=14, drops=(1,))
    trained = train_exits(plan, PICTURES, TRAINING, device="cpu")
    assert trained.engine == "plain"

    torch.manual_seed(3)
    network = make(3).train()
    optimiser = torch.optim.SGD(network.parameters(), 0.1, momentum=0.9, weight_decay=1e-4, nesterov=True)
    split = split_classes(PICTURES.labels[:TRAINING], 3, per_class=18, selection=4)
    temperature = DISTILLED.temperature
    for epoch in (1, 2):
        optimiser.param_groups[0]["lr"] = 0.1 if epoch == 1 else 0.01
        losses = []
        for index, shift, flip in zip(*draw_epoch(3, epoch, split.train, 14, PICTURES.border), strict=True):
            x = crop_batch(PICTURES.pixels, index, shift, flip, PICTURES.mean, PICTURES.std, PICTURES.border)
            logits = network(x)
            loss = DISTILLED.loss(logits, PICTURES.labels[index], temperature)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            temperature = DISTILLED.anneal(temperature, float(DISTILLED.confidence(logits, temperature)))
            losses.append(loss.item())
        assert trained.history.loss[0, epoch - 1].item() == pytest.approx(sum(losses) / len(losses), rel=1e-4)
        assert trained.history.temperature[0, epoch - 1].item() == pytest.approx(temperature, rel=1e-6)
    assert temperature > 1
    for name, tensor in network.state_dict().items():
        assert torch.allclose(trained.weights[0][name].double(), tensor.double(), rtol=1e-3, atol=1e-5), name


def test_the_module_has_the_chosen_weights():
    trained = train(replace(SHORT, networks=NETWORKS[:1], grid=OwnNetworks(make)))
    module = trained.module(0)
    assert isinstance(module, MultiExit) and not module.training
    assert all(torch.equal(each, trained.weights[0][name]) for name, each in module.state_dict().items())


def test_weights_depend_on_the_seed_only():
    own = OwnNetworks(make)
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    one, again, other = (own.network(seed).body[0].weight for seed in (1, 1, 2))
    assert torch.equal(one, again) and not torch.equal(one, other)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_parameters_without_gradient_stay():
    def frozen(seed):
        network = make(seed)
        network.body[0].requires_grad_(False)
        return network

    trained = train(replace(SHORT, networks=NETWORKS[:1], grid=OwnNetworks(frozen)))
    torch.manual_seed(1)
    begun = make(1).state_dict()
    assert torch.equal(trained.weights[0]["body.0.weight"], begun["body.0.weight"])
    assert not torch.equal(trained.weights[0]["body.3.weight"], begun["body.3.weight"])


class TestResuming:
    PLAN = replace(PLAN, grid=OwnNetworks(make))

    def test_after_an_interruption_values_are_the_same(self, tmp_path):
        def interrupt(epoch, _):
            if epoch == 3:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            train(self.PLAN, folder=tmp_path, on_epoch=interrupt)
        assert same(train(self.PLAN, folder=tmp_path), train(self.PLAN))

    def test_other_networks_are_refused(self, tmp_path):
        train(replace(SHORT, grid=self.PLAN.grid), folder=tmp_path)
        other = OwnNetworks(lambda seed: make(seed, width=6))
        with pytest.raises(UserError, match="a training with other modules; choose another folder"):
            train(replace(SHORT, grid=other), folder=tmp_path)
        with pytest.raises(UserError, match="a training with other grid; choose another folder"):
            train(SHORT, folder=tmp_path)


class TestRefused:
    def test_another_module(self):
        with pytest.raises(UserError, match=r"make must return what us\.exits returns, got a Linear; put exits on the"):
            OwnNetworks(lambda _: nn.Linear(2, 2))

    def test_random_numbers_in_training(self):
        def dropout(_):
            body = nn.Sequential(nn.Flatten(), nn.Linear(192, 8), nn.Dropout(), nn.Linear(8, 7))
            return us.exits(body, [1], example=(3, 8, 8))

        with pytest.raises(UserError, match="two passes in training mode differ; remove dropout"):
            OwnNetworks(dropout)

    def test_kernels_for_a_gpu(self, monkeypatch):
        monkeypatch.setattr("understudy.training.multi_exit.population.find_spec", lambda _: True)
        with pytest.raises(UserError, match="engine fused trains no networks of your own; use plain or auto"):
            train_exits(replace(PLAN, grid=OwnNetworks(make)), PICTURES, TRAINING, engine="fused", device="cpu")

    def test_other_images_and_exits(self):
        plan = replace(PLAN, grid=OwnNetworks(make))
        two = ExitNetwork(1, us.ExitObjective.exit_wise(2), 0.1)
        with pytest.raises(UserError, match="teachers must have a set for each of the 3 exits of the network, got 2"):
            train(replace(plan, networks=(two,)))
        small = replace(PICTURES, pixels=PICTURES.pixels[:, :, :6, :6])
        with pytest.raises(UserError, match=r"images must have shape \[3, 8, 8\] for this network, got \[3, 6, 6\]"):
            train_exits(plan, small, TRAINING, device="cpu")
