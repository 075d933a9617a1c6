"""Representations of labelled inputs at the layers of a network, and the neurons of its last hidden layer.

Phuong 2021, sec. 3.4.3, figs. 3.3 and 3.4. The representation h^{1:l} of the thesis is the pre-activation of layer l
(eq. 3.30, lemma 2.1); after the ReLU no inner product of two representations is negative.
"""

from collections.abc import Collection
from contextlib import suppress
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from understudy._errors import UserError
from understudy.data.separable import Separability, Similarities, separability, similarities
from understudy.nets import Population, incoming, outgoing
from understudy.papers.separable.theory.max_margin import Margins, margins
from understudy.papers.separable.theory.two_neurons import margin_coordinates, own_correlation, singular_coordinates

_Samples = Float[Tensor, "sample in"]
_Labels = Int[Tensor, "sample"]
NEAR = 0.05
"""Cosine up to which two vectors count as nearly orthogonal."""
_TOGETHER = 250
"""Samples per forward pass, which bounds the memory of feature maps."""


def representations(
    network: Population, x: _Samples, layers: Collection[int], *, activated: bool = False
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
    for h in x.split(_TOGETHER):
        given = shown = h
        for layer in range(max(layers) + 1):
            if layer:
                before = incoming(network, layer - 1, given)
                given, _ = outgoing(network, layer - 1, before)
                shown = given if activated else before
            if layer in found:
                found[layer].append(shown.reshape(len(h), -1))
    return {layer: torch.cat(parts) for layer, parts in found.items()}


class SamplePairs(NamedTuple):
    """Pairs of samples, compared by their representations at one layer."""

    similarities: Similarities
    separability: Separability
    cosine_within: float
    """Mean cosine of two samples of one class."""
    cosine_between: float
    """Mean cosine of two samples of different classes."""


def layer_pairs(x: Float[Tensor, "sample number"], labels: _Labels, bins: int = 60) -> SamplePairs:
    """Compare samples within and between classes."""
    unit = torch.nn.functional.normalize(x.double(), dim=1)
    cosines, same = unit @ unit.T, labels[:, None] == labels
    distinct = ~torch.eye(len(x), dtype=torch.bool, device=x.device)
    return SamplePairs(
        similarities(x, labels, bins),
        separability(x, labels),
        float(cosines[same & distinct].mean()),
        float(cosines[~same].mean()),
    )


def set_pairs(
    network: Population, x: _Samples, labels: _Labels, compared: int
) -> tuple[list[SamplePairs], dict[str, Separability]]:
    """Compare labelled samples in one network: the first `compared` at every layer, and all at the last hidden layer.

    Returns the pairs at every layer, from the input up, and the separability of `all` activations of the last hidden
    layer; also `nearly`, with cosines up to `NEAR` counted as 0, and `before` the ReLU.
    """
    last = len(network.layers) - 1
    some = representations(network, x[:compared], range(last + 1), activated=True)
    after, before = (representations(network, x, (last,), activated=given)[last] for given in (True, False))
    checks = {
        "all": separability(after, labels),
        "nearly": separability(after, labels, tolerance=NEAR),
        "before": separability(before, labels),
    }
    return [layer_pairs(numbers, labels[:compared]) for numbers in some.values()], checks


def linear_neurons(
    network: Population, x: _Samples, labels: _Labels
) -> tuple[Float[Tensor, "value"], Margins | None, dict[str, Float[Tensor, "node"]]]:
    """Describe the neurons w_j of the last hidden layer W of a network with one output, given labelled samples.

    Returns the singular values of W, the max-margin vectors of its inputs (None if a class has none), and values by
    neuron: its output weight a_j as `output`, ‖w_j‖ as `norm`, coordinates `top_1` and `top_2` along the first two
    right singular vectors of W (Phuong 2021, fig. 3.4b), and with max-margin vectors also the coordinates `plane_1`
    and `plane_2` of `margin_coordinates`, and the `correlation` with the vector of its sign.
    """
    if len(network) != 1 or network.sizes[-1] != 1 or len(network.layers) < 3:
        raise UserError(
            "one network with two or more hidden layers and one output is needed, got "
            f"{len(network)} networks of sizes {network.sizes}"
        )
    below = len(network.layers) - 2
    seen = representations(network, x, (below,), activated=True)[below]
    w, a = (layer.weight[0].double().cpu() for layer in network.layers[-2:])
    top_1, top_2 = singular_coordinates(w).unbind(-1)
    values = {"output": a[0], "norm": torch.linalg.vector_norm(w, dim=1), "top_1": top_1, "top_2": top_2}
    margin = None
    with suppress(UserError):  # for example a sample whose representation is zero
        margin = margins(seen.double().cpu(), labels.double().cpu())
        plane_1, plane_2 = margin_coordinates(w, margin.vectors).unbind(-1)
        values |= {"plane_1": plane_1, "plane_2": plane_2, "correlation": own_correlation(w, a[0], margin.vectors)}
    return torch.linalg.svdvals(w), margin, values
