"""`us.exits`: exits on modules of the user's, computed one after the other, and its errors."""

import copy

import pytest
import torch
from torch import Tensor, nn

import understudy as us
from support.exit_training import descend
from support.modules import Attention, Block, residual
from understudy.lab.example_models import Absolute, Student, Teacher
from understudy.nets.multi_exit.exits import LinearHead
from understudy.nets.multi_exit.msdnet import ExitHead


class ResNet(nn.Module):
    """A small ResNet with named stages, whose blocks change tensors in place."""

    def __init__(self, width: int = 4, classes: int = 5) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(inplace=True))
        self.layer1 = nn.Sequential(Block(width), Block(width))
        self.layer2 = nn.Sequential(nn.MaxPool2d(4), Block(width))
        self.unused = nn.Linear(1, 1)
        self.fc = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.layer2(self.layer1(self.stem(x)))
        return self.fc(nn.functional.dropout(x.mean((2, 3)), 0.5, self.training))


def images(count: int = 4) -> Tensor:
    return torch.randn(count, 3, 8, 8, generator=torch.Generator().manual_seed(1))


@pytest.fixture
def network():
    torch.manual_seed(0)
    return us.exits(ResNet(), ["stem.1", "layer1.0", "layer1", "layer2"], example=(3, 8, 8), classes=5, width=6)


def test_the_last_exit_is_the_output_of_the_module(network):
    network.eval()
    x = images()
    logits = network(x)
    assert logits.shape == (5, 4, 5)
    assert torch.equal(logits[-1], network.body(x))
    assert network.exit_names == ("stem.1", "layer1.0", "layer1", "layer2", "output")
    assert (network.image_shape, network.classes) == ((3, 8, 8), 5)


def test_heads_suit_their_features(network):
    *maps, small = network.exits
    assert all(isinstance(head, ExitHead) for head in maps)
    assert isinstance(small, LinearHead)
    assert [conv.convolution.out_channels for conv in maps[0].convolutions] == [6, 6]
    flat = us.exits(nn.Sequential(nn.Flatten(), nn.Linear(12, 7), nn.Linear(7, 2)), [0, 1], example=(3, 2, 2))
    assert [head.classifier.in_features for head in flat.exits] == [12, 7]


def test_exits_read_what_their_layers_return(network):
    network.eval()
    x = images()
    for exit, name in enumerate(network.exit_names[:-1]):
        kept = []
        hook = network.body.get_submodule(name).register_forward_hook(
            lambda *given, kept=kept: kept.append(given[-1].clone())
        )
        network.body(x)
        hook.remove()
        torch.testing.assert_close(network(x)[exit], network.exits[exit](kept[0]))


def test_only_one_exit_and_iteration_agree_with_the_forward_pass(network):
    network.eval()
    x = images()
    logits = network(x)
    assert torch.equal(torch.stack(list(network.iterate(x))), logits)
    for exit in range(5):
        (alone,) = network.iterate(x, only=exit)
        assert torch.equal(alone, logits[exit])


def test_nothing_beyond_an_exit_is_computed(network):
    network.eval()
    called = []
    for name, part in network.body.named_modules():
        if isinstance(part, nn.Conv2d | nn.Linear):
            part.register_forward_hook(lambda *_, name=name: called.append(name))
    steps = network.iterate(images())
    next(steps)
    assert called == ["stem.0"]
    next(steps)
    assert called == ["stem.0", "layer1.0.conv1", "layer1.0.conv2"]
    list(network.iterate(images(), only=0))
    assert called[3:] == ["stem.0"]


def test_gradients_flow_although_layers_work_in_place(network):
    network.train()
    network(images()).square().sum().backward()
    used = {name: p.grad for name, p in network.named_parameters() if not name.startswith("body.unused")}
    assert all(grad is not None and grad.isfinite().all() for grad in used.values())


def test_training_moves_body_and_heads(network):
    network.train()
    before = {name: p.detach().clone() for name, p in network.named_parameters()}
    x, labels = images(20), torch.arange(20) % 5
    losses = []
    for _ in range(6):
        network.zero_grad()
        loss = torch.stack([nn.functional.cross_entropy(each, labels) for each in network(x)]).mean()
        loss.backward()
        descend(network, 0.1)
        losses.append(loss.item())
    assert losses[-1] < 0.9 * losses[0]
    moved = {name.split(".")[0] for name, p in network.named_parameters() if not torch.equal(p, before[name])}
    assert moved == {"body", "exits"}


def test_a_module_without_exits_gets_the_same_gradient():
    """The only loss is on the module's own output, whose features an exit has read before they were changed."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(256, 5))
    network, x = us.exits(module, [0], example=(3, 8, 8)), images()
    module(x).square().sum().backward()
    wanted = [p.grad.clone() for p in module.parameters()]
    module.zero_grad()
    network(x)[-1].square().sum().backward()
    assert all(map(torch.equal, wanted, (p.grad for p in module.parameters())))


def test_features_of_exits(network):
    network.eval()
    x = images()
    features, logits = network.exit_features(x), network(x)
    assert [tuple(each.shape) for each in features] == [(4, 6, 2, 2)] * 3 + [(4, 4, 2, 2)]
    for head, each, wanted in zip(network.exits, features, logits[:-1], strict=True):
        torch.testing.assert_close(head.classifier(each.mean((2, 3))), wanted)


def test_features_are_those_before_a_layer_changes_them():
    network = us.exits(nn.Sequential(nn.Linear(6, 5), nn.ReLU(inplace=True), nn.Linear(5, 2)), [0, 1], example=(6,))
    x = torch.randn(7, 6)
    with torch.no_grad():
        before, after = network.exit_features(x)
        assert torch.equal(before, network.body[0](x)) and before.min() < 0
        assert torch.equal(after, before.clamp(min=0))


@pytest.mark.parametrize("make", [Teacher, Student, Absolute])
def test_example_models(make):
    module, x = make(), torch.randn(6, 10)
    network = us.exits(module, ["hidden"], example=(10,))
    assert torch.equal(network(x)[-1], module(x))
    torch.testing.assert_close(network(x)[0], network.exits[0].classifier(module.hidden(x)))


def test_modes_compute_what_the_module_computes_in_them(network):
    """A call of dropout with `self.training` is recorded for each mode."""
    x = images()
    network.eval()
    assert torch.equal(network(x)[-1], network(x)[-1])
    network.train()
    for part in network.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.eval()
    assert not torch.equal(network(x)[-1], network(x)[-1])


def test_copies_are_independent(network):
    network.eval()
    other = copy.deepcopy(network)
    before = other(images())
    with torch.no_grad():
        network.body.fc.weight.zero_()
    assert torch.equal(other(images()), before)
    assert not torch.equal(network(images()), before)


def test_indices_into_a_sequential_and_given_batches():
    module = residual(4, 2).eval()
    x = torch.randn(3, 3, 6, 6)
    network = us.exits(module, [1, 3], example=x, width=5)
    assert network.exit_names == ("1", "3", "output")
    assert torch.equal(network(x)[-1], module(x))
    assert not network.training


def test_without_the_output_the_rest_is_not_computed():
    module = residual(4, 2).eval()
    network = us.exits(module, [1, 3], example=(3, 6, 6), classes=9, final=False)
    module[-1].register_forward_hook(lambda *_: pytest.fail("the output was computed"))
    assert network(torch.randn(2, 3, 6, 6)).shape == (2, 2, 9)


class Optional(nn.Module):
    """An argument with a default, on which the code branches."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        x = self.a(x)
        return self.b(x if mask is None else x * mask)


def test_arguments_with_defaults_keep_them():
    module = Optional()
    network = us.exits(module, ["a"], example=(4,))
    x = torch.randn(3, 4)
    assert torch.equal(network(x)[-1], module(x))


class Branching(nn.Module):
    """Code that depends on values."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.a(x) if x.sum() > 0 else x


class Twice(nn.Module):
    """A layer that is called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.a(self.a(x))


class TwoInputs(Twice):
    """A second input."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return self.a(x + y)


class Dictionary(Twice):
    """An output that is no tensor."""

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"logits": self.a(x).relu()}


class Recurrent(nn.Module):
    """A layer that returns a tuple."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.LSTM(4, 4, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.a(x)[0][:, -1]


class RandomBefore(Twice):
    """Random numbers before the only exit."""

    def forward(self, x: Tensor) -> Tensor:
        return self.a(x + torch.randn(4))


class Random(Twice):
    """Random numbers in evaluation mode too."""

    def forward(self, x: Tensor) -> Tensor:
        return self.a(x) + torch.randn(4)


@pytest.mark.parametrize(
    ("module", "at", "options", "message"),
    [
        (ResNet, [], {}, "at must name at least one layer, got none"),
        (
            ResNet,
            ["layer2", "layer1"],
            {},
            "at must be in the order in which layers are computed, each once, got layer2, layer1; layer2 and layer1 "
            "are computed in the order layer1, layer2",
        ),
        (ResNet, ["layer1", "layer1.1.relu"], {}, "at must name layers that are computed once, but layer1.1.relu is"),
        (ResNet, ["layer1.1", "layer1"], {}, "layer1.1 and layer1 have the same output"),
        (ResNet, ["layer1", "layer1"], {}, "got layer1, layer1; layer1 and layer1 have the same output"),
        (ResNet, ["layer3"], {}, "at must name layers of ResNet, which has no 'layer3'; did you mean layer"),
        (ResNet, ["xyz"], {}, "which has no 'xyz'; its layers are stem, stem.0, stem.1"),
        (ResNet, ["unused"], {}, "at must name layers that are computed, but unused is not called in the forward pass"),
        (ResNet, [1], {}, "at must have names of layers for ResNet, got the index 1; indices are for nn.Sequential"),
        (lambda: residual(4, 1), [9], {}, "at must have indices from 0 to 7, got 9"),
        (ResNet, ["stem"], {"classes": 7}, "final needs a module whose own output has shape [2, 7], got [2, 5]"),
        (
            ResNet,
            ["stem"],
            {"final": False},
            "classes must be given where the module's own output is no exit",
        ),
        (ResNet, ["stem"], {"classes": 0}, "classes must be a whole number of at least 1, got 0"),
        (ResNet, ["stem"], {"width": 0}, "width must be a whole number of at least 1, got 0"),
        (
            ResNet,
            ["stem", "fc"],
            {},
            "at must name layers before the module's own output, which is the last exit",
        ),
        (
            TwoInputs,
            ["a"],
            {},
            "module must have a forward that takes one tensor, but that of TwoInputs needs x, y",
        ),
        (
            Dictionary,
            ["a"],
            {"example": (4,)},
            "logits [2, classes] for 2 inputs, but Dictionary returns a dict;",
        ),
        (
            Recurrent,
            ["a"],
            {"example": (5, 4)},
            "at must name layers that return a tensor with one row per input",
        ),
        (
            ResNet,
            ["stem"],
            {"example": (1, 8, 8)},
            "example must be inputs that ResNet takes, got a batch of shape [2, 1, 8, 8]",
        ),
        (ResNet, ["stem"], {"example": (0, 8, 8)}, "example must be a batch or the shape of one input"),
        (Twice, ["a"], {"example": (4,)}, "but a is computed 2 times; put the exit on a layer that contains it"),
        (Branching, ["a"], {"example": (4,)}, "Branching cannot be followed by torch.fx ("),
        (Random, ["a"], {"example": (4,)}, "its recorded operations give other outputs"),
        (RandomBefore, ["a"], {"example": (4,), "final": False, "classes": 2}, "its recorded operations give other"),
        (Attention, ["encoder.linear1"], {"example": (6,)}, "encoder, which is computed as a whole; name that"),
    ],
)
def test_bad_input(module, at, options, message):
    with pytest.raises(us.UserError) as error:
        us.exits(module(), at, **({"example": (3, 8, 8)} | options))
    assert message in str(error.value)


@pytest.mark.wrong_shapes
@pytest.mark.parametrize(
    ("at", "options", "message"),
    [
        (None, {}, "at must be names of layers or indices into an nn.Sequential, got None"),
        (1.5, {}, "at must be names of layers or indices into an nn.Sequential, got a float"),
        ([nn.ReLU()], {}, "at must be names of layers or indices into an nn.Sequential, got a ReLU"),
        ("stem", {"example": 32}, "example must be a batch or the shape of one input, as in (3, 32, 32), got an int"),
        ("stem", {"example": images().numpy()}, "got an ndarray; convert arrays with torch.from_numpy"),
        ("stem", {"width": "a"}, "width must be a whole number of at least 1, got 'a'"),
    ],
)
def test_other_types(at, options, message):
    with pytest.raises(us.UserError) as error:
        us.exits(ResNet(), at, **({"example": (3, 8, 8)} | options))
    assert message in str(error.value) and "\n" not in str(error.value)


@pytest.mark.wrong_shapes
def test_a_single_layer_needs_no_list():
    assert us.exits(ResNet(), "layer1", example=(3, 8, 8)).exit_names == ("layer1", "output")
    assert us.exits(residual(4, 2), 1, example=(3, 6, 6)).exit_names == ("1", "output")


def test_an_exit_that_does_not_exist(network):
    with pytest.raises(us.UserError, match="only must be an exit from 0 to 4, got 5"):
        next(network.iterate(images(), only=5))
