"""Structured pruning: kept nodes compute what they did before, and removed nodes are the weakest."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from support.kinds import KINDS, made, same
from support.problems import gaussians
from understudy import teachers
from understudy._errors import UserError
from understudy.nets import Layer, Population, Shape, training_pass

pytestmark = pytest.mark.usefixtures("one_thread")
kinds = pytest.mark.parametrize("shape", KINDS.values(), ids=KINDS)


def muted(networks, kept):
    """Unpruned networks in which the outgoing weights of removed nodes are zero."""
    layers = list(networks.layers)
    for i, stay in enumerate(kept):
        mask = torch.zeros(len(networks), networks.sizes[i + 1], dtype=networks.dtype).scatter(1, stay, 1.0)
        weight, bias = layers[i + 1]
        each = weight.unflatten(2, (mask.shape[1], -1)) if weight.ndim == 3 else weight.flatten(3)
        layers[i + 1] = Layer((each * mask[:, None, :, None]).view_as(weight), bias)
    return replace(networks, layers=tuple(layers))


@kinds
@pytest.mark.parametrize("keep", [0.4, 0.7, 1.0])
def test_kept_nodes_compute_what_they_did_before(shape, keep):
    networks = made(shape, 3)
    smaller, kept = teachers.pruned(networks, keep)
    whole = muted(networks, kept)
    x = gaussians(4, 3, 6, networks.inputs)
    for ours, theirs in (
        (smaller.activations(x), whole.activations(x)),
        (training_pass(smaller, x)[0], training_pass(whole, x)[0]),
    ):
        torch.testing.assert_close(ours.output, theirs.output, atol=1e-12, rtol=1e-12)
        for h, full, stay in zip(ours.hidden, theirs.hidden, kept, strict=True):
            of_kept = full.gather(2, stay.unsqueeze(1).expand(-1, full.shape[1], -1))
            torch.testing.assert_close(h, of_kept, atol=1e-12, rtol=1e-12)
    assert torch.equal(smaller.seeds, networks.seeds)


@kinds
def test_sizes_are_the_requested_shares(shape):
    networks = made(shape, 2)
    shares = (0.5, 0.7, 1.0)[: len(shape.sizes) - 2]
    smaller, kept = teachers.pruned(networks, shares)
    hidden = tuple(round(share * n) for share, n in zip(shares, shape.sizes[1:-1], strict=True))
    assert smaller.shape == replace(shape, sizes=(shape.sizes[0], *hidden, shape.sizes[-1]))
    assert [tuple(stay.shape) for stay in kept] == [(2, n) for n in hidden]
    assert all((stay.diff(dim=1) > 0).all() for stay in kept)


@kinds
def test_a_share_of_one_changes_nothing(shape):
    networks = made(shape, 2)
    assert same(teachers.pruned(networks, 1).network, networks)


@kinds
def test_each_network_is_pruned_by_its_own_strengths(shape):
    networks = made(shape, 4)
    together = teachers.pruned(networks, 0.6)
    for i in range(4):
        alone = teachers.pruned(networks[i], 0.6)
        assert same(alone.network, together.network[i])
        assert all(torch.equal(a[0], b[i]) for a, b in zip(alone.kept, together.kept, strict=True))
    # At least two of four networks keep different nodes, so strengths are not shared.
    assert any(len({tuple(row) for row in stay.tolist()}) > 1 for stay in teachers.pruned(networks, 0.5).kept)


def test_by_hand():
    top = torch.tensor([[[3.0, 0.0, -1.0, 2.0], [-3.0, 1.0, 4.0, 0.0]]])  # means of |.|: 3, .5, 2.5, 1
    network = Population(
        (Layer(torch.arange(4.0).view(1, 4, 1), torch.arange(4.0).unsqueeze(0)), Layer(top, None)), torch.tensor([8])
    )
    smaller, (kept,) = teachers.pruned(network, 0.5)
    assert kept.tolist() == [[0, 2]]
    assert smaller.layers[0].weight.tolist() == [[[0.0], [2.0]]] and smaller.layers[0].bias.tolist() == [[0.0, 2.0]]
    assert smaller.layers[1].weight.tolist() == [[[3.0, -1.0], [-3.0, 4.0]]]


def test_channels_by_hand():
    networks = made(Shape((1, 3, 2, 2), image=(6, 6), norm="after"), 1)
    second, top = networks.layers[1].weight, networks.layers[2].weight
    second[:] = 0.01
    second[0, 1, 1, 2, 2] = -9.0  # one entry of the kernel makes channel 1 of the first layer the strongest
    second[0, 0, 2, 0, 0] = 4.0
    top[:] = 0.01
    top[0, 1, 4 + 3] = -9.0  # the last position of the second channel: the map is flattened channel by channel
    smaller, kept = teachers.pruned(networks, (0.67, 0.5))
    assert [stay.tolist() for stay in kept] == [[[1, 2]], [[1]]]
    assert torch.equal(smaller.layers[0].weight, networks.layers[0].weight[:, [1, 2]])
    assert torch.equal(smaller.layers[1].weight, second[:, [1]][:, :, [1, 2]])
    assert torch.equal(smaller.layers[2].weight, top[:, :, 4:])
    assert all(torch.equal(a, b[:, [1, 2]]) for a, b in zip(smaller.norms[0], networks.norms[0], strict=True))


def test_among_equal_nodes_the_first_are_kept():
    network = Population((Layer(torch.ones(1, 5, 1), None), Layer(torch.ones(1, 2, 5), None)), torch.tensor([0]))
    assert teachers.pruned(network, 0.4).kept[0].tolist() == [[0, 1]]


@given(st.integers(2, 9), st.floats(0.05, 1.0))
def test_no_removed_node_is_stronger_than_a_kept_one(nodes, keep):
    networks = made(Shape((3, nodes, 4), image=(4, 5)), 2)
    if round(keep * nodes) < 1:
        return
    strength = networks.layers[1].weight.abs().unflatten(2, (nodes, 6)).mean((1, 3))
    (kept,) = teachers.pruned(networks, keep).kept
    stays = torch.zeros_like(strength, dtype=torch.bool).scatter(1, kept, True)
    weakest = strength.masked_fill(~stays, torch.inf).amin(1)
    assert (strength.masked_fill(stays, -torch.inf).amax(1) <= weakest).all()


@pytest.mark.parametrize(
    ("keep", "text"),
    [
        (0.0, "keep must be shares above 0 and at most 1, got 0.0"),
        (1.2, "keep must be shares above 0 and at most 1, got 1.2"),
        ((0.5, float("nan")), r"keep must be shares above 0 and at most 1, got \(0.5, nan\)"),
        ((0.5, 0.5, 0.5), r"keep must be one share or one per hidden layer \(2\), got 3"),
        ((1.0, 0.1), "keep 0.1 leaves none of the 3 nodes of hidden layer 2: keep more"),
    ],
)
def test_bad_shares_are_rejected(keep, text):
    with pytest.raises(UserError, match=text):
        teachers.pruned(made(KINDS["conv"], 2), keep)


@pytest.mark.wrong_shapes
@pytest.mark.parametrize("keep", ["half", [0.5, "a"], None, [0.5, None]])
def test_shares_that_are_not_numbers_are_rejected(keep):
    with pytest.raises(UserError) as error:
        teachers.pruned(made(KINDS["conv"], 2), keep)
    assert str(error.value) == f"keep must be one share above 0 and at most 1 or one per hidden layer (2), got {keep!r}"
