"""What the layers of a network make of labelled inputs, and its first linear layer (S3 sec 3.4.3, figs 3.3, 3.4).

The representation h^{1:l} of S3 is what comes into the nodes of layer l, before the ReLU (eq. 3.30, lemma 2.1); what
the next layer sees, after it, has no products below 0.
"""

from collections.abc import Collection, Iterator
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from understudy.data.separable import Separability, Similarities, separability, similarities
from understudy.errors import UserError
from understudy.nets import Population, incoming, outgoing
from understudy.papers.separable.theory.max_margin import margins
from understudy.papers.separable.theory.two_neurons import in_plane, own_correlation, projected, singular_values

NEAR = 0.05
"""Cosine up to which two vectors are nearly at right angles."""
_TOGETHER = 250
"""Samples that pass at once: their maps stay small."""


def representations(
    network: Population, x: Float[Tensor, "sample in"], layers: Collection[int], *, activated: bool = False
) -> dict[int, Float[Tensor, "sample number"]]:
    """All numbers that layers have for each sample, of one network: layer 0 is the inputs, the first hidden one is 1.

    `activated`: what hidden layers give the next one, instead of what comes into their nodes.
    """
    hidden = len(network.layers) - 1
    if len(network) != 1 or not layers or not set(layers) <= set(range(hidden + 1)):
        raise UserError(
            f"layers {sorted(layers)} of {len(network)} networks of {hidden} hidden layers were asked for; allowed are "
            f"0 to {hidden} of one network"
        )
    found: dict[int, list[Tensor]] = {layer: [] for layer in sorted(layers)}
    for some in x.split(_TOGETHER):
        for layer, numbers in _upwards(network, some, activated, max(layers)):
            if layer in found:
                found[layer].append(numbers.reshape(len(some), -1))
    return {layer: torch.cat(parts) for layer, parts in found.items()}


def _upwards(network: Population, x: Tensor, activated: bool, last: int) -> Iterator[tuple[int, Tensor]]:
    h = x
    yield 0, h
    for i in range(last):
        before = incoming(network, i, h)
        h, _ = outgoing(network, i, before)
        yield i + 1, h if activated else before


class LayerPairs(NamedTuple):
    """Pairs of samples as one layer has them."""

    similarities: Similarities
    separability: Separability
    alike: float
    """Mean cosine of two samples of one class."""
    apart: float
    """And of different classes."""


def layer_pairs(x: Float[Tensor, "sample number"], labels: Int[Tensor, "sample"], bins: int = 60) -> LayerPairs:
    """How similar samples of one class are, and of different ones."""
    unit = torch.nn.functional.normalize(x.double(), dim=1)
    cosines, same = unit @ unit.T, labels[:, None] == labels
    apart = ~torch.eye(len(x), dtype=torch.bool, device=x.device)
    return LayerPairs(
        similarities(x, labels, bins),
        separability(x, labels),
        float(cosines[same & apart].mean()),
        float(cosines[~same].mean()),
    )


class SetPairs(NamedTuple):
    """Pairs of one set: of some samples at every layer, of all at the last hidden one, after its ReLU."""

    layers: tuple[LayerPairs, ...]
    """From the inputs up."""
    last: Separability
    nearly: Separability
    """Cosines up to `NEAR` counted as 0."""
    before: Separability
    """Before the ReLU."""


def set_pairs(
    network: Population, x: Float[Tensor, "sample in"], labels: Int[Tensor, "sample"], compared: int
) -> SetPairs:
    """Of one network, on labelled samples of which the first are compared at every layer."""
    last = len(network.layers) - 1
    some = representations(network, x[:compared], range(last + 1), activated=True)
    after, before = (representations(network, x, (last,), activated=given)[last] for given in (True, False))
    checks = (separability(after, labels), separability(after, labels, tolerance=NEAR), separability(before, labels))
    layers = tuple(layer_pairs(numbers, labels[:compared]) for numbers in some.values())
    return SetPairs(layers, *checks)


class Margin(NamedTuple):
    """The max-margin vectors of a layer's inputs, and how well they meet the conditions that make them so."""

    vectors: Float[Tensor, "2 in"]
    """w+ and w− (S3 eqs. 3.6, 3.7)."""
    cosine: float
    """Of the two."""
    residual: float
    supports: int


def input_margins(seen: Float[Tensor, "sample in"], labels: Int[Tensor, "sample"]) -> Margin | None:
    """Of what a layer sees, on the processor, where the solver is; none where a class has no max-margin vector."""
    try:
        found = margins(seen.double().cpu(), labels.double().cpu())
    except UserError:  # such as a sample of which the layers below leave nothing
        return None
    positive, negative = torch.nn.functional.normalize(found.vectors, dim=1)
    residual = max(found.positive.residual, found.negative.residual)
    return Margin(found.vectors, float(positive @ negative), residual, int(found.supports.sum()))


class Neurons(NamedTuple):
    """The nodes of the layer W below the single output a of one network: their weights w_j, and a_j."""

    singular: Float[Tensor, "value"]
    """Of W, from the largest down."""
    output: Float[Tensor, "node"]
    """a_j."""
    length: Float[Tensor, "node"]
    top: Float[Tensor, "node 2"]
    """On the two first singular directions of W (fig 3.4b)."""
    margin: Margin | None
    plane: Float[Tensor, "node 2"] | None
    """On the plane of the max-margin vectors of what W sees: along w+, and along what w− has at right angles to it."""
    correlation: Float[Tensor, "node"] | None
    """Cosine with the max-margin vector of the sign of a_j."""


def linear_neurons(network: Population, x: Float[Tensor, "sample in"], labels: Int[Tensor, "sample"]) -> Neurons:
    """With the max-margin vectors of what W sees of labelled samples."""
    if len(network) != 1 or network.sizes[-1] != 1 or len(network.layers) < 3:
        raise UserError(
            f"{len(network)} networks of sizes {network.sizes} were given; allowed is one that has two hidden layers "
            "or more and one output"
        )
    below = len(network.layers) - 2
    margin = input_margins(representations(network, x, (below,), activated=True)[below], labels)
    w, a = (layer.weight[0].double().cpu() for layer in network.layers[-2:])
    plane = None if margin is None else in_plane(w, margin.vectors)
    correlation = None if margin is None else own_correlation(w, a[0], margin.vectors)
    return Neurons(
        singular_values(w), a[0], torch.linalg.vector_norm(w, dim=1), projected(w), margin, plane, correlation
    )
