"""Fan-outs of modules: norms of the weights that read each node, found by the calls of a forward pass."""

import torch
from torch import nn

from support.modules import Block, dense, seeded
from understudy.measures.outgoing import outgoing_norms
from understudy.measures.submodules import trace


def found(model, x):
    calls = trace(model, lambda: model(x))
    return {call.name: outgoing_norms(calls, call) for call in calls}


def one_by_one(reader, nodes):
    """Norm of the weights that read each node, node by node."""
    weight = reader.weight.detach()
    if isinstance(reader, nn.ConvTranspose2d):
        return torch.stack([weight[i].norm() for i in range(nodes)])
    each = []
    for i in range(nodes):
        if isinstance(reader, nn.Conv2d):
            inner = nodes // reader.groups
            outer = len(weight) // reader.groups
            each.append(weight[(i // inner) * outer : (i // inner + 1) * outer, i % inner].norm())
        else:
            block = weight.shape[1] // nodes
            each.append(weight[:, i * block : (i + 1) * block].norm())
    return torch.stack(each)


def test_a_stack_of_linear_layers():
    model = seeded(dense, 5, 7, 6, 2)
    norms = found(model, torch.randn(3, 5))
    torch.testing.assert_close(norms["1"], model[2].weight.norm(dim=0))
    torch.testing.assert_close(norms["3"], model[4].weight.norm(dim=0))
    assert norms["4"] is None


def test_groups_transposed_convolutions_dropout_and_flattened_maps():
    torch.manual_seed(0)
    parts = nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 6, 3, groups=2), nn.ReLU(), nn.Dropout(0.5)
    more = nn.ConvTranspose2d(6, 4, 2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16, 3)
    model = nn.Sequential(*parts, *more).eval()
    norms = found(model, torch.randn(2, 3, 8, 8))
    torch.testing.assert_close(norms["1"], one_by_one(model[2], 8))
    torch.testing.assert_close(norms["3"], one_by_one(model[5], 6))
    torch.testing.assert_close(norms["6"], one_by_one(model[9], 4))


def test_the_last_layer_of_a_block_is_read_by_all_that_follow_the_block():
    model = nn.Sequential(Block(4), Block(4)).eval()
    norms = found(model, torch.randn(2, 4, 5, 5))
    torch.testing.assert_close(norms["0.relu#1"], one_by_one(model[0].conv2, 4))
    torch.testing.assert_close(norms["0.relu#2"], one_by_one(model[1].conv1, 4))
    assert norms["1.relu#2"] is None

    class Fork(nn.Module):
        def __init__(self):
            super().__init__()
            self.block, self.left, self.right = (
                nn.Sequential(nn.Linear(3, 5), nn.GELU()),
                nn.Linear(5, 2),
                nn.Linear(5, 4),
            )

        def forward(self, x):
            x = self.block(x)
            return self.left(x), self.right(x)

    fork = Fork()
    both = torch.cat((fork.left.weight, fork.right.weight)).detach().norm(dim=0)
    torch.testing.assert_close(found(fork, torch.randn(2, 3))["block.1"], both)


def test_what_goes_through_a_function_is_not_followed():
    class Functional(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = nn.Linear(3, 5), nn.Linear(5, 2)

        def forward(self, x):
            return self.two(torch.relu(self.one(x)))

    assert found(Functional(), torch.randn(2, 3))["one"] is None
