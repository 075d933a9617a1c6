"""Representations of labelled inputs: by hand, against torch modules, and against plain loops over pairs."""

import itertools

import pytest
import torch

from support.kinds import KINDS, made, module
from support.problems import gaussians
from understudy._errors import UserError
from understudy.data.separable import separability, similarities
from understudy.nets import Layer, Population
from understudy.papers.separable.theory.representations import (
    NEAR,
    layer_pairs,
    linear_neurons,
    representations,
    set_pairs,
)


def two_groups(bias: float = 0.0) -> Population:
    """An identity layer on two inputs, then one neuron for each input, with output weights of opposite sign."""
    eye = torch.eye(2, dtype=torch.float64)[None]
    none = torch.zeros(1, 2, dtype=torch.float64)
    w = torch.tensor([[[2.0, -1.0], [-1.0, 2.0]]], dtype=torch.float64)
    a = torch.tensor([[[1.0, -1.0]]], dtype=torch.float64)
    layers = (Layer(eye, none), Layer(w, none + bias), Layer(a, none[:, :1]))
    return Population(layers, torch.tensor([0]))


X = torch.tensor([[1.0, 0.1], [2.0, 0.3], [0.2, 1.0], [0.0, 3.0]], dtype=torch.float64)
LABELS = torch.tensor([1, 1, 0, 0])


class TestRepresentations:
    def test_by_hand(self):
        found = representations(two_groups(), X, range(3))
        assert torch.equal(found[0], X) and torch.equal(found[1], X)
        expected = torch.tensor([[1.9, -0.8], [3.7, -1.4], [-0.6, 1.8], [-3.0, 6.0]], dtype=torch.float64)
        torch.testing.assert_close(found[2], expected)
        after = representations(two_groups(), X, (2,), activated=True)
        assert list(after) == [2]
        torch.testing.assert_close(after[2], expected.clamp_min(0))

    @pytest.mark.parametrize("kind", [name for name, shape in KINDS.items() if not shape.norm])
    def test_inner_products_equal_those_of_torch_modules(self, kind):
        network = made(KINDS[kind], 2)[1]
        x = gaussians(3, 260, network.inputs)  # more than one forward pass
        found, h = representations(network, x, range(len(network.layers)), activated=True), x
        for layer, part in enumerate(list(module(network, 0))[:-1], 1):
            h = part(h)
            torch.testing.assert_close(found[layer] @ found[layer].T, h.flatten(1) @ h.flatten(1).T)

    def test_missing_layers_are_refused(self):
        for network, layers in ((two_groups(), (3,)), (two_groups(), ()), (made(KINDS["fc"], 2), (1,))):
            with pytest.raises(UserError, match="layers must be from 0 to 2, of one network"):
                representations(network, gaussians(1, 5, network.inputs), layers)


class TestPairs:
    def test_a_layer_that_separates(self):
        layers, found = set_pairs(two_groups(), X, LABELS, compared=3)
        assert len(layers) == 3
        assert layers[0].separability.share_apart == 1 and layers[0].separability.share_alike == 0
        assert found["all"].holds and found["before"].holds and found["nearly"].holds
        assert layers[2].cosine_between == 0 and layers[2].cosine_within == pytest.approx(1)

    def test_pairs_can_be_separable_before_the_relu_and_overlap_after_it(self):
        _, found = set_pairs(two_groups(bias=0.9), X, LABELS, compared=4)
        # With the bias the first neuron is active at the third point, and the second at the first.
        assert not found["all"].holds and found["all"].share_apart == 0.75 and found["all"].share_alike == 0
        assert not found["before"].holds and found["before"].share_apart < found["all"].share_apart

    def test_against_a_loop_over_pairs(self):
        x, labels = gaussians(5, 40, 6) + 0.3, (gaussians(6, 40) > 0).long()
        found = layer_pairs(x, labels, bins=7)
        cosine = torch.nn.functional.cosine_similarity
        within, between = (
            [cosine(x[i], x[j], 0) for i, j in itertools.combinations(range(40), 2) if (labels[i] == labels[j]) == same]
            for same in (True, False)
        )
        assert found.cosine_within == pytest.approx(float(torch.stack(within).mean()))
        assert found.cosine_between == pytest.approx(float(torch.stack(between).mean()))
        above = sum(float(c) > 0 for c in between)
        assert found.separability.share_apart == pytest.approx(above / len(between))
        below = sum(float(c) <= 0 for c in within)  # a point and itself also form a pair
        assert found.separability.share_alike == pytest.approx(below / (len(within) + 40))
        assert found.similarities.between.sum() == len(between) and found.similarities.within.sum() == len(within)
        nearly = separability(x, labels, tolerance=NEAR)
        assert nearly.share_apart == pytest.approx(sum(float(c) > NEAR for c in between) / len(between))

    @pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
    def test_the_gpu_finds_the_same_pairs(self):
        network, x, labels = made(KINDS["conv-strided"], 1), gaussians(3, 30, 84), torch.arange(30) % 2
        here, there = (set_pairs(network.to(on), x.to(on), labels.to(on), 20) for on in ("cpu", "cuda"))
        (layers, mine), (others, its) = here, there
        assert mine["all"][2:] == its["all"][2:] and mine["before"].wrong == its["before"].wrong
        for ours, theirs in zip(mine["all"][:2], its["all"][:2], strict=True):
            assert ours[:3] == theirs[:3] and ours.product == pytest.approx(theirs.product, rel=1e-12)
        for ours, theirs in zip(layers, others, strict=True):
            torch.testing.assert_close(ours.similarities.edges, theirs.similarities.edges.cpu())
            assert theirs.similarities.between.is_cuda and ours.separability.wrong == theirs.separability.wrong
        assert similarities(x.cuda(), labels.cuda()).within.sum() == 2 * 15 * 14 / 2


class TestNeurons:
    def test_by_hand(self):
        singular, margin, found = linear_neurons(two_groups(), X, LABELS)
        torch.testing.assert_close(singular, torch.tensor([3.0, 1.0], dtype=torch.float64))
        assert found["output"].tolist() == [1, -1]
        torch.testing.assert_close(found["norm"], torch.full((2,), 5**0.5, dtype=torch.float64))
        # The inputs of W are X: w+ of (1, .1), (2, .3) is x/‖x‖² of the first point, and w− is that of (.2, 1).
        torch.testing.assert_close(margin.vectors[0], X[0] / X[0].square().sum())
        torch.testing.assert_close(margin.vectors[1], X[2] / X[2].square().sum())
        assert margin.residual < 1e-8 and margin.positive.supports.sum() == margin.negative.supports.sum() == 1
        w = torch.tensor([[2.0, -1.0], [-1.0, 2.0]], dtype=torch.float64)
        cosines = torch.nn.functional.cosine_similarity(w, margin.vectors, 1)
        torch.testing.assert_close(found["correlation"], cosines)
        for axes in ("plane", "top"):
            torch.testing.assert_close(found[f"{axes}_1"].hypot(found[f"{axes}_2"]), w.norm(dim=1))

    def test_inputs_without_a_margin_have_no_margin_fields(self):
        x = torch.cat((X, torch.tensor([[-1.0, -1.0]], dtype=torch.float64)))  # the ReLU maps it to 0
        singular, margin, found = linear_neurons(two_groups(), x, torch.tensor([1, 1, 0, 0, 0]))
        assert margin is None and list(found) == ["output", "norm", "top_1", "top_2"]
        assert len(singular) == 2

    def test_other_networks_are_refused(self):
        for network in (made(KINDS["fc"], 1), made(KINDS["conv-one"], 1)):
            with pytest.raises(UserError, match="two or more hidden layers and one output is needed"):
                linear_neurons(network, gaussians(1, 4, network.inputs), torch.tensor([0, 1, 0, 1]))
