"""MSDNet against a plain reference, its parameters, one exit alone, and gradients."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

import understudy as us
from support.exit_training import descend
from understudy.nets.multi_exit.grid import Grid

GRIDS = {
    "three scales": Grid(5, 16, channels=(2, 4, 6), layers=6, exits=(2, 4, 6), head=5),
    "one scale": Grid(3, 9, 1, channels=(3,), layers=2, exits=(1, 2), head=4),
    "shallow": Grid(4, 16, channels=(2, 4, 6), layers=3, exits=(1, 3), head=4),
    "odd sizes": Grid(4, 27, 2, channels=(3, 2, 4), layers=7, exits=(2, 3, 7), bottleneck=1, head=4),
    "imagenet": Grid(4, 49, channels=(2, 2, 4), layers=4, exits=(2, 4), head=4, stem="imagenet"),
}


@pytest.fixture(params=GRIDS.values(), ids=list(GRIDS))
def network(request):
    torch.manual_seed(0)
    made = us.MSDNet(request.param).double()
    for part in made.modules():
        if isinstance(part, nn.BatchNorm2d):
            nn.init.normal_(part.running_mean)
            nn.init.uniform_(part.running_var, 0.5, 2.0)
    return made.eval()


def images(network: nn.Module, count: int = 3) -> Tensor:
    return torch.randn(count, *network.image_shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def reference(network: us.MSDNet, x: Tensor) -> list[Tensor]:
    """Logits of every exit, computed layer by layer as Huang et al. (2018) describe the network."""
    grid, logits = network.grid, []

    def apply(name: str, x: Tensor) -> Tensor:
        part = network.get_submodule(name)
        kernel = part.convolution.weight
        y = nn.functional.conv2d(x, kernel, None, part.convolution.stride, kernel.shape[-1] // 2)
        return part.norm(y).clamp(min=0)

    scales = []
    for s in range(grid.scales):
        x = apply(f"first.{s}", x)
        if s == 0 and grid.stem == "imagenet":
            x = nn.functional.max_pool2d(x, 3, 2, padding=1)
        scales.append(x)
    stage = 0
    for layer in range(1, grid.layers + 1):
        after: list[Tensor | None] = []
        for s in range(grid.scales):
            if grid.layers - layer < grid.scales - 1 - s:  # too late to reach the coarsest scale
                after.append(None)
                continue
            parts = [scales[s]]
            for name, read in (("same", s), ("finer", s - 1))[: 1 + (s > 0)]:
                at = f"layers.{layer - 1}.{s}.{name}"
                parts.append(apply(f"{at}.1", apply(f"{at}.0", scales[read])))
            after.append(torch.cat(parts, 1))
        scales = after
        if layer in (grid.layers // 3, 2 * grid.layers // 3):
            scales = [None if f is None else apply(f"transitions.{stage}.{s}", f) for s, f in enumerate(scales)]
            stage += 1
        if layer in grid.exits:
            head = f"exits.{grid.exits.index(layer)}"
            maps = apply(f"{head}.convolutions.1", apply(f"{head}.convolutions.0", scales[-1]))
            logits.append(network.get_submodule(f"{head}.classifier")(maps.mean((2, 3))))
    return logits


def test_the_reference(network):
    x = images(network)
    logits = network(x)
    assert logits.shape == (len(network.exit_names), 3, network.classes)
    torch.testing.assert_close(logits, torch.stack(reference(network, x)), rtol=1e-12, atol=1e-12)


def test_one_exit_alone_and_iteration_agree_with_the_forward_pass(network):
    x = images(network)
    logits = network(x)
    assert torch.equal(torch.stack(list(network.iterate(x))), logits)
    for exit, each in enumerate(logits):
        (alone,) = network.iterate(x, only=exit)
        torch.testing.assert_close(alone, each, rtol=1e-12, atol=1e-12)


def test_one_exit_alone_computes_only_what_it_depends_on(network):
    called = []
    for name, part in network.named_modules():
        if isinstance(part, nn.Conv2d):
            part.register_forward_hook(lambda *_, name=name: called.append(name.removesuffix(".convolution")))
    for exit, path in enumerate(network.grid.paths):
        called.clear()
        list(network.iterate(images(network, 1), only=exit))
        assert called == [step.name for step in path] + [f"exits.{exit}.convolutions.{i}" for i in (0, 1)]


def test_nothing_beyond_an_exit_is_computed():
    network = us.MSDNet(GRIDS["three scales"]).eval()
    for name, part in network.named_modules():
        if isinstance(part, nn.Conv2d) and name.startswith(("layers.2", "exits.1")):
            part.register_forward_hook(lambda *_: pytest.fail("a later layer was computed"))
    assert next(network.iterate(images(network).float())).shape == (3, 5)


def test_features_of_exits_are_what_their_classifiers_average(network):
    x = images(network)
    for head, features, logits in zip(network.exits, network.exit_features(x), network(x), strict=True):
        size = -(-network.grid.coarsest // 4)
        assert features.shape == (3, network.grid.head, size, size) and features.min() == 0
        torch.testing.assert_close(head.classifier(features.mean((2, 3))), logits)


def test_gradients_reach_every_parameter(network):
    network.train()
    network(images(network)).square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in network.parameters())
    used = [p.grad.abs().max() > 0 for name, p in network.named_parameters() if "classifier" in name]
    assert all(used)


def test_a_step_of_training_lowers_the_loss():
    torch.manual_seed(0)
    network = us.MSDNet(GRIDS["three scales"])
    x, labels = images(network, 16).float(), torch.arange(16) % 5
    losses = []
    for _ in range(6):
        network.zero_grad()
        loss = sum(nn.functional.cross_entropy(each, labels) for each in network(x))
        loss.backward()
        descend(network, 0.1)
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0]


def test_the_network_of_the_paper_has_its_parameters():
    """5,067,588 with the biases of its convolutions, which BatchNorm makes redundant and which are omitted here."""
    network = us.MSDNet()
    convolutions = [part for part in network.modules() if isinstance(part, nn.Conv2d)]
    assert len(convolutions) == 263 and all(part.bias is None for part in convolutions)
    biases = sum(part.out_channels for part in convolutions)
    assert sum(p.numel() for p in network.parameters()) + biases == 5_067_588
    assert (network.classes, network.image_shape) == (100, (3, 32, 32))
    assert network.exit_names == tuple(f"layer {layer}" for layer in range(4, 25, 2))


def test_initial_weights_have_the_scale_of_huang_et_al():
    torch.manual_seed(0)
    network = us.MSDNet()
    weight = network.exits[0].convolutions[0].convolution.weight
    assert weight.std().item() == pytest.approx((2 / (9 * 128)) ** 0.5, rel=0.02)
    assert network.exits[0].classifier.bias.abs().max() == 0


def test_the_network_for_imagenet_takes_images_of_224_pixels():
    grid = replace(Grid.imagenet(classes=7), channels=(2, 2, 2, 2), head=4)  # all layers, fewer channels
    network, x = us.MSDNet(grid).eval(), torch.randn(1, 3, 224, 224)
    with torch.inference_mode():
        logits = network(x)
        (last,) = network.iterate(x, only=4)
    assert logits.shape == (5, 1, 7) and logits.isfinite().all() and last.shape == (1, 7)


def test_an_exit_that_does_not_exist():
    network = us.MSDNet(GRIDS["one scale"])
    for exit in (-1, 2):
        with pytest.raises(us.UserError, match=f"only must be an exit from 0 to 1, got {exit}"):
            next(network.iterate(torch.randn(2, 1, 9, 9), only=exit))
