"""BatchNorm and convolutions written as fully connected networks: the same function, and what `check` says of it."""

from itertools import pairwise

import pytest
import torch

from support.pairs import gaussian, random_network
from understudy.nets import Layer, Population, fresh_norm
from understudy.nets.shape import Shape
from understudy.theory import check, find_result, results
from understudy.theory.dense_networks import MOST_NODES, as_dense

pytestmark = pytest.mark.usefixtures("one_thread")
CONVOLUTIONS = {
    "3 × 3": None,
    "stride and padding": ((2, 2, 1),),
    "average pooling": ((2, 1, 0, ("average", 2, 1, 0)),),
}


def drawn(sizes, *, seed=1, norm=None, image=None, convolutions=None, affine=True):
    """A network with random weights, and random statistics of BatchNorm with negative scales among them."""
    shape = Shape(sizes, 0.0, True, image, norm, affine, convolutions)
    layers = tuple(
        Layer(gaussian(seed + i, 1, *size) / 2, gaussian(seed + i + 9, 1, size[0]) / 2)
        for i, size in enumerate(shape.weights)
    )
    norms = []
    for i, nodes in enumerate(sizes[1:-1] if norm else ()):
        fresh = fresh_norm(1, nodes, affine, layers[0].weight)
        mean, variance, scale, shift = (gaussian(seed + 20 + 4 * i + k, 1, nodes) for k in range(4))
        fresh = fresh._replace(mean=mean, variance=variance.square() + 0.1)
        norms.append(fresh._replace(scale=scale, shift=shift) if affine else fresh)
    return Population(layers, torch.tensor([1]), 0.0, tuple(norms), norm == "before", image, convolutions)


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("norm", ["before", "after"])
def test_batchnorm_is_folded_into_the_weights(norm, affine):
    network, x = drawn((3, 4, 5, 2), norm=norm, affine=affine), gaussian(3, 50, 3)
    dense = as_dense(network)
    assert dense.network.shape.dense
    assert dense.network.sizes == network.sizes
    torch.testing.assert_close(dense.network(x), network(x))
    assert len(dense.changes) == 1


@pytest.mark.parametrize("norm", [None, "before", "after"])
@pytest.mark.parametrize("convolutions", CONVOLUTIONS.values(), ids=list(CONVOLUTIONS))
def test_convolutions_are_written_as_matrices(norm, convolutions):
    network = drawn((2, 3, 2), norm=norm, image=(4, 3), convolutions=convolutions)
    dense, x = as_dense(network), gaussian(3, 50, 24)
    assert dense.network.shape.dense
    torch.testing.assert_close(dense.network(x), network(x))
    assert dense.network.sizes[1] == 3 * network.shape.positions[0]


def test_fully_connected_networks_stay_as_they_are():
    network = random_network(1, 3, 2, 2)
    assert as_dense(network) == (network, (), "")


def test_networks_that_cannot_be_written_have_a_reason():
    pooled = drawn((1, 2, 2), image=(4, 4), convolutions=((3, 1, 1, ("max", 2, 2, 0)),))
    assert as_dense(pooled).network is None
    assert as_dense(pooled).why == "max pooling after layer 1, which is not an affine map"
    wide = drawn((1, 4, 2), image=(8, 8))
    assert as_dense(wide).why == f"144 nodes (channels at positions) in one layer; at most {MOST_NODES} are checked"
    found = check(pooled, pooled, gaussian(1, 9, 16))
    assert {name for name, _ in found.silent} == {result.name for result in results()}
    assert dict(found.silent)["S0 theorem 3"] == f"the teacher has {as_dense(pooled).why}"
    assert found.headline.endswith(f"the teacher has {as_dense(pooled).why}.")


@pytest.mark.parametrize("norm", ["before", "after"])
def test_folded_students_get_the_findings_of_the_network_that_they_compute(norm):
    teacher, student, x = random_network(1, 3, 2, 2), drawn((3, 4, 2), norm=norm), gaussian(3, 60, 3)
    found, plain = check(teacher, student, x), check(teacher, as_dense(student).network, x)
    assert found.nodes == plain.nodes
    assert found.identities == plain.identities
    own = {f.result for f in found.students} - {f.result for f in plain.students}
    assert own == {"S2 theorem 3"}
    assert not found.dynamics
    assert plain.dynamics
    listed = {f.result for f in found.findings} | {name for name, _ in found.silent}
    assert listed == {result.name for result in results()}


def test_convolutional_networks_get_certificates_of_their_nodes():
    teacher, student = (drawn((1, n, 2), seed=n, image=(3, 4)) for n in (1, 2))
    found = check(teacher, student, gaussian(3, 40, 12))
    assert [node.node for node in found.nodes] == [0, 1]
    assert {f.result for node in found.nodes for f in node.findings} >= {"S0 theorem 1", "S0 theorem 3"}
    assert found.changes[0] == "teacher: convolutions are written as matrices, a unit for each channel and position"
    assert dict(found.silent)["S2 theorem 4"].startswith("it is about training fully connected networks")


def test_depths_and_kinds_are_refused_with_reasons():
    one, two = random_network(1, 3, 2), random_network(2, 3, 2, 2)
    for result in results():
        for teacher, student in pairwise([one, two, drawn((3, 4, 2), norm="after"), one, one]):
            why = result.why_inapplicable(teacher, student)
            assert why == "" or why.startswith("it is stated for")
    assert find_result("S1 theorem 1").why_inapplicable(one, one) == (
        "it is stated for networks with a hidden layer, and these have none"
    )


@pytest.mark.parametrize("norm", ["before", "after"])
def test_the_length_of_filters_is_conserved_under_batchnorm(norm):
    teacher, student = drawn((1, 2, 2), seed=5, image=(4, 4)), drawn((1, 2, 2), norm=norm, image=(4, 4))
    found = find_result("S2 theorem 3")(teacher, student, gaussian(3, 60, 16))
    assert [finding.about for finding in found] == ["student node 0 of layer 1", "student node 1 of layer 1"]
    assert all(finding.agrees for finding in found)
    assert "S2 theorem 3" in {finding.result for finding in check(teacher, student, gaussian(3, 60, 16)).students}
