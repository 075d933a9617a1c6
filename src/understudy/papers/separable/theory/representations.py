"""Representations of labelled inputs at the layers of a network, and the neurons of its last hidden layer.

Phuong 2021, sec. 3.4.3, figs. 3.3 and 3.4. The representation h^{1:l} of the thesis is the pre-activation of layer l
(eq. 3.30, lemma 2.1); after the ReLU no inner product of two representations is negative.
"""

from collections.abc import Collection, Iterator
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from understudy._errors import UserError
from understudy.data.separable import Separability, Similarities, separability, similarities
from understudy.nets import Population, incoming, outgoing
from understudy.papers.separable.theory.max_margin import margins
from understudy.papers.separable.theory.two_neurons import margin_coordinates, own_correlation, singular_coordinates

NEAR = 0.05
"""Cosine up to which two vectors count as nearly orthogonal."""
_TOGETHER = 250
"""Samples per forward pass, which bounds the memory of feature maps."""


def representations(
    network: Population, x: Float[Tensor, "sample in"], layers: Collection[int], *, activated: bool = False
) -> dict[int, Float[Tensor, "sample number"]]:
    """Compute the representations of samples at the given layers of one network; layer 0 is the input.

    A hidden layer is represented by its pre-activations, or, with `activated`, by its activations.
    """
    hidden = len(network.layers) - 1
    if len(network) != 1 or not layers or not set(layers) <= set(range(hidden + 1)):
        raise UserError(
            f"layers must be from 0 to {hidden}, of one network, got layers {sorted(layers)} of {len(network)} networks"
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
    """Pairs of samples, compared by their representations at one layer."""

    similarities: Similarities
    separability: Separability
    cosine_within: float
    """Mean cosine of two samples of one class."""
    cosine_between: float
    """Mean cosine of two samples of different classes."""


def layer_pairs(x: Float[Tensor, "sample number"], labels: Int[Tensor, "sample"], bins: int = 60) -> LayerPairs:
    """Compare samples within and between classes."""
    unit = torch.nn.functional.normalize(x.double(), dim=1)
    cosines, same = unit @ unit.T, labels[:, None] == labels
    distinct = ~torch.eye(len(x), dtype=torch.bool, device=x.device)
    return LayerPairs(
        similarities(x, labels, bins),
        separability(x, labels),
        float(cosines[same & distinct].mean()),
        float(cosines[~same].mean()),
    )


class SetPairs(NamedTuple):
    """Pairs of one set: some samples at every layer, and all samples at the last hidden layer."""

    layers: tuple[LayerPairs, ...]
    """Pairs at every layer, from the input up."""
    last: Separability
    """Separability of the activations of the last hidden layer."""
    nearly: Separability
    """Whether the pairs are separable if cosines up to `NEAR` count as 0."""
    before: Separability
    """Separability of the pre-activations of the last hidden layer."""


def set_pairs(
    network: Population, x: Float[Tensor, "sample in"], labels: Int[Tensor, "sample"], compared: int
) -> SetPairs:
    """Compare labelled samples in one network: all at the last hidden layer, the first `compared` at every layer."""
    last = len(network.layers) - 1
    some = representations(network, x[:compared], range(last + 1), activated=True)
    after, before = (representations(network, x, (last,), activated=given)[last] for given in (True, False))
    checks = (separability(after, labels), separability(after, labels, tolerance=NEAR), separability(before, labels))
    layers = tuple(layer_pairs(numbers, labels[:compared]) for numbers in some.values())
    return SetPairs(layers, *checks)


class InputMargins(NamedTuple):
    """Max-margin vectors of the inputs of a layer."""

    vectors: Float[Tensor, "2 in"]
    """w+ and w− (Phuong 2021, eqs. 3.6, 3.7)."""
    cosine: float
    """Cosine of w+ and w−."""
    residual: float
    """Largest violation of the Karush-Kuhn-Tucker conditions."""
    supports: int
    """Number of support examples."""


def input_margins(seen: Float[Tensor, "sample in"], labels: Int[Tensor, "sample"]) -> InputMargins | None:
    """Compute the max-margin vectors of the inputs of a layer, on the CPU; None if a class has none."""
    try:
        found = margins(seen.double().cpu(), labels.double().cpu())
    except UserError:  # for example a sample whose representation is zero
        return None
    positive, negative = torch.nn.functional.normalize(found.vectors, dim=1)
    residual = max(found.positive.residual, found.negative.residual)
    return InputMargins(found.vectors, float(positive @ negative), residual, int(found.supports.sum()))


class Neurons(NamedTuple):
    """The neurons w_j of the last hidden layer W of a network with one output, whose weights are a_j."""

    singular: Float[Tensor, "value"]
    """Singular values of W, in descending order."""
    output: Float[Tensor, "node"]
    """Output weights a_j."""
    length: Float[Tensor, "node"]
    """‖w_j‖."""
    top: Float[Tensor, "node 2"]
    """Coordinates along the first two right singular vectors of W (Phuong 2021, fig. 3.4b)."""
    margin: InputMargins | None
    """Max-margin vectors of the inputs of W."""
    plane: Float[Tensor, "node 2"] | None
    """Coordinates in the plane of these vectors (see `margin_coordinates`)."""
    correlation: Float[Tensor, "node"] | None
    """Cosine of w_j with the max-margin vector of the sign of a_j."""


def linear_neurons(network: Population, x: Float[Tensor, "sample in"], labels: Int[Tensor, "sample"]) -> Neurons:
    """Describe the neurons of the last hidden layer, given labelled samples."""
    if len(network) != 1 or network.sizes[-1] != 1 or len(network.layers) < 3:
        raise UserError(
            "one network with two or more hidden layers and one output is needed, got "
            f"{len(network)} networks of sizes {network.sizes}"
        )
    below = len(network.layers) - 2
    margin = input_margins(representations(network, x, (below,), activated=True)[below], labels)
    w, a = (layer.weight[0].double().cpu() for layer in network.layers[-2:])
    plane = None if margin is None else margin_coordinates(w, margin.vectors)
    correlation = None if margin is None else own_correlation(w, a[0], margin.vectors)
    lengths = torch.linalg.vector_norm(w, dim=1)
    return Neurons(torch.linalg.svdvals(w), a[0], lengths, singular_coordinates(w), margin, plane, correlation)
