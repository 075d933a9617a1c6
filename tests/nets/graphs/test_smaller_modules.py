"""A module reduced to some nodes has its class where its parts allow that, and always the outputs of the network."""

from collections.abc import Sequence

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from support.modules import dense, seeded
from understudy.nets import from_module, with_nodes
from understudy.nets.graphs.smaller_modules import smaller_module


class Stack(nn.Module):
    """Convolutions with BatchNorm and pooling, then linear layers; activations are functions."""

    def __init__(self, channels: tuple[int, int], nodes: int, *, norm: bool, line: bool, bias: bool) -> None:
        super().__init__()
        conv, self.pool = (nn.Conv1d, nn.MaxPool1d(2)) if line else (nn.Conv2d, nn.MaxPool2d(2))
        kind = (nn.BatchNorm1d if line else nn.BatchNorm2d) if norm else nn.Identity
        self.conv1 = conv(2, channels[0], 3, padding=1, bias=bias)
        self.norm1 = kind(channels[0])
        self.conv2 = conv(channels[0], channels[1], 3, dilation=2, bias=bias)
        self.norm2 = kind(channels[1])
        self.linear = nn.Linear(channels[1] * (2 if line else 4), nodes)
        self.norm3 = nn.BatchNorm1d(nodes) if norm else nn.Identity()
        self.output = nn.Linear(nodes, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.relu(self.norm1(self.conv1(x)))
        h = self.pool(nn.functional.relu(self.norm2(self.conv2(h)))).flatten(1)
        return self.output(self.norm3(self.linear(h)).relu())


def random_norms(module: nn.Module) -> nn.Module:
    for part in module.modules():
        if isinstance(part, nn.BatchNorm1d | nn.BatchNorm2d):
            for tensor in (part.running_mean, part.weight.data, part.bias.data):
                tensor.normal_()
            part.running_var.uniform_(0.5, 2.0)
    return module


def pruned(module: nn.Module, x: Tensor, kept: Sequence[list[int]]):
    """The smaller network, and the module that is made of it."""
    stay = [torch.tensor(each) for each in kept]
    network = with_nodes(from_module(module, x), [each.unsqueeze(0) for each in stay])
    return network, smaller_module(module, network, stay, x, refitted=False)


def some(nodes: int) -> st.SearchStrategy[list[int]]:
    return st.sets(st.integers(0, nodes - 1), min_size=1).map(sorted)


@given(st.tuples(some(4), some(3), some(5)), *[st.booleans()] * 3, st.sampled_from([torch.float32, torch.float64]))
def test_the_outputs_are_those_of_the_smaller_network(kept, norm, line, bias, dtype):
    module = random_norms(seeded(Stack, (4, 3), 5, norm=norm, line=line, bias=bias)).to(dtype)
    x = torch.randn(6, 2, *([8] if line else [8, 8]), generator=torch.Generator().manual_seed(1), dtype=dtype)
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    network, (smaller, note) = pruned(module, x, kept)
    assert type(smaller) is Stack and note == ""
    wanted = network(x.flatten(1))[0]
    torch.testing.assert_close(smaller(x), wanted, rtol=0, atol=1e-5 * float(wanted.abs().max()))
    parts = smaller.conv1.out_channels, smaller.conv2.out_channels, smaller.linear.out_features
    assert parts == network.sizes[1:-1] and smaller.linear.in_features == smaller.linear.weight.shape[1]
    assert all(torch.equal(before[name], tensor) for name, tensor in module.state_dict().items())


def test_a_copy_keeps_mode_and_frozen_parameters():
    module = seeded(dense, 4, 6, 5, 2)
    module[0].weight.requires_grad_(False)
    module[1].train()
    _, (smaller, note) = pruned(module, torch.randn(5, 4), [[0, 2], [1, 4]])
    assert note == "" and [part.training for part in smaller] == [part.training for part in module]
    assert [p.requires_grad for p in smaller.parameters()] == [False, True, True, True, True, True]
    assert str(smaller[2]) == "Linear(in_features=2, out_features=2, bias=True)"


class FixedSizes(nn.Module):
    """A forward pass that contains the number of nodes."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.output = nn.Conv2d(1, 4, 3), nn.Linear(16, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.output(self.conv(x).relu().view(-1, 4 * 2 * 2))


class Functional(nn.Module):
    """A layer that is a function of parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.output = nn.Parameter(torch.randn(5, 4)), nn.Linear(5, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.output(nn.functional.linear(x, self.weight).relu())


class Grouped(nn.Module):
    """A convolution in groups."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.output = nn.Conv2d(2, 4, 3, groups=2), nn.Linear(16, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.output(self.conv(x).relu().flatten(1))


def test_other_modules_become_a_sequence_with_the_reason():
    cases = {
        "FixedSizes fails with fewer nodes: ": (seeded(FixedSizes), torch.randn(5, 1, 4, 4), [[0, 3]]),
        "Functional computes 2 layers, but calls 1 modules of nn.Linear": (
            seeded(Functional),
            torch.randn(5, 4),
            [[1]],
        ),
        "conv is a convolution in 2 groups": (seeded(Grouped), torch.randn(5, 2, 4, 4), [[0, 1, 2]]),
        "0 computes its weights from others": (
            nn.Sequential(weight_norm(nn.Linear(4, 3)), nn.ReLU(), nn.Linear(3, 2)).eval(),
            torch.randn(5, 4),
            [[0, 2]],
        ),
    }
    for reason, (module, x, kept) in cases.items():
        network, (smaller, note) = pruned(module, x, kept)
        assert type(smaller) is nn.Sequential and note.startswith(reason), note
        wanted = network(x.flatten(1))[0]
        torch.testing.assert_close(smaller(x), wanted, rtol=0, atol=1e-5 * float(wanted.abs().max()))
