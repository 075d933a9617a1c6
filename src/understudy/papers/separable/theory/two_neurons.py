"""Limit of ReLU networks on orthogonally separable examples: two groups of neurons (Phuong 2021, theorem 3.1)."""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from understudy._random import Stream, normal
from understudy.papers.separable.theory.limit_network import function_limit, optimality
from understudy.papers.separable.theory.sectors import Absorption, absorption
from understudy.papers.separable.theory.training import Classes, Examples, Weights, logistic_loss, neurons

_Neurons = Float[Tensor, "*#net node in"]
_Outputs = Float[Tensor, "*#net node"]
_Margins = Float[Tensor, "*#net 2 in"]
HIGH = 0.9
"""Correlation with a max-margin direction above which a neuron counts as aligned (Phuong 2021, sec. 3.4.1)."""
_COMPARED = 500
"""Number of Gaussian inputs on which a network is compared with two max-margin neurons."""


def own_correlation(w: _Neurons, a: _Outputs, margins: _Margins) -> Float[Tensor, "*net node"]:
    """Cosine of neurons with the max-margin vector of their sign: w+ if a_j > 0, else w− (Phuong 2021, fig. 3.1c)."""
    both = correlations(w, margins)
    return torch.where(a > 0, both[..., 0], both[..., 1])


def correlations(w: _Neurons, margins: _Margins) -> Float[Tensor, "*net node 2"]:
    """Cosines of neurons with w+ and w−; 0 for a neuron of length 0."""
    return torch.nn.functional.normalize(w, dim=-1) @ torch.nn.functional.normalize(margins, dim=-1).mT


def third_over_first(w: Float[Tensor, "*net node in"]) -> Float[Tensor, "*net"]:
    """Distance of a matrix from rank two: σ3/σ1, or 0 if it has fewer than three singular values.

    The change ΔW made by training is nearer to rank two than the weights W = W_0 + ΔW, which contain their initial
    values: σ3(W) ≤ σ1(W_0) + σ3(ΔW) (Weyl).
    """
    values = torch.linalg.svdvals(w)
    return values[..., 2] / values[..., 0] if values.shape[-1] > 2 else torch.zeros_like(values[..., 0])


def singular_coordinates(w: Float[Tensor, "*net node in"]) -> Float[Tensor, "*net node 2"]:
    """Project rows on the first two right singular vectors (Phuong 2021, figs. 3.1b, 3.2d to f).

    The sign of a singular vector is that which makes its largest entry positive.
    """
    _, _, axes = torch.linalg.svd(w, full_matrices=False)
    axes = axes[..., :2, :]
    largest = axes.gather(-1, axes.abs().argmax(-1, keepdim=True))
    found = w @ (axes * largest.sign()).mT
    return torch.nn.functional.pad(found, (0, 2 - found.shape[-1]))


def margin_coordinates(w: _Neurons, margins: _Margins) -> Float[Tensor, "*net node 2"]:
    """Project vectors on the plane of the max-margin vectors: along w+, and along the part of w− orthogonal to w+."""
    first, other = torch.nn.functional.normalize(margins, dim=-1).unbind(-2)
    second = other - (other * first).sum(-1, keepdim=True) * first
    return w @ torch.stack((first, torch.nn.functional.normalize(second, dim=-1)), dim=-1)


def limit_distance(w: _Neurons, a: _Outputs, margins: _Margins) -> tuple[Float[Tensor, "*net"], Float[Tensor, "*net"]]:
    """Distances of both layers from the limit in Phuong 2021, theorem 3.1, at the u, z ≥ 0 nearest to the first layer.

    They are ‖W/‖W‖ − (u w+ᵀ + z w−ᵀ)‖ of eq. 3.8 and ‖a/‖a‖ − (u‖w+‖ − z‖w−‖)‖ of eq. 3.9; in the limit a neuron is
    along w+ if a_j > 0 and along w− otherwise.
    """
    lengths = torch.linalg.vector_norm(w, dim=-1)
    shares = lengths / torch.linalg.vector_norm(lengths, dim=-1, keepdim=True)
    own = own_correlation(w, a, margins).clamp(0, 1)
    # Near a cosine of 1 the difference of unit vectors is accurate, √(1 − cos²) is not.
    unit, both = (torch.nn.functional.normalize(each, dim=-1) for each in (w, margins))
    target = torch.where((a > 0).unsqueeze(-1), both[..., :1, :], both[..., 1:, :])
    sine = torch.linalg.vector_norm(unit - own.unsqueeze(-1) * target, dim=-1)
    ends = a / torch.linalg.vector_norm(a, dim=-1, keepdim=True) - a.sign() * shares * own
    return torch.linalg.vector_norm(shares * sine, dim=-1), torch.linalg.vector_norm(ends, dim=-1)


class PathReading(NamedTuple):
    """Measurements of Phuong 2021, sec. 3.4 along a recorded path of networks; NaN where weights are not finite."""

    values: dict[str, Float[Tensor, "probe net"]]
    """For any depth: `loss`, the mean; for every matrix but the last, `W1 third`, its σ3/σ1, and `W1 added third`, that
    of its change since the start; for the first matrix `aligned` and `aligned mass`.

    For two layers also: the shares of neurons `inside` their extremal sector and `off` (active for no example), the
    number that have `left` their sector so far, the distances `hidden` and `output` of eqs. 3.8 and 3.9, the distance
    of the `function` on Gaussian inputs from that of corollary 3.1 with its sizes `u` and `z`, the residual `kkt` of
    lemma B.6's margin problem, the length of the `longest` neuron, and the `least balance` and `largest balance`
    |a_j|/‖w_j‖.
    """
    correlation: Float[Tensor, "probe net node"]
    """Cosine of neurons with the max-margin vector of their sign, or, in deep networks, with the nearer one."""
    absorbed: Absorption | None
    """Only for two layers."""


def probe_path(path: Weights, x: Examples, y: Classes, margins: _Margins) -> PathReading:
    """Measure networks of any depth at every probe of a recorded path."""
    finite = torch.stack([layer.isfinite().flatten(2).all(-1) for layer in path]).all(0)
    path = tuple(torch.where(finite[..., None, None], layer, 0.0) for layer in path)
    values = {"loss": torch.stack([logistic_loss(tuple(now), x, y) for now in zip(*path, strict=True)])}
    for number, layer in enumerate(path[:-1], 1):
        values[f"W{number} third"] = third_over_first(layer)
        values[f"W{number} added third"] = third_over_first(layer - layer[:1])
    found, correlation = None, correlations(path[0], margins).amax(-1)
    if len(path) == 2:
        w, a = neurons(path)
        correlation = own_correlation(w, a, margins)
        found = absorption(w, a, x, y)
        gone = found.inside.cummax(0).values & ~found.inside
        hidden, output = limit_distance(w, a, margins)
        lengths = torch.linalg.vector_norm(w, dim=-1)
        ratio = a.abs() / lengths
        gaussian = normal(0, Stream.DIRECTIONS, 1 << 32, _COMPARED * w.shape[-1]).view(_COMPARED, -1).to(x)
        probes = list(zip(*path, strict=True))
        limits = [function_limit(weights, margins, gaussian) for weights in probes]
        values |= {
            "function": torch.stack([limit.distance for limit in limits]),
            "u": torch.stack([limit.u for limit in limits]),
            "z": torch.stack([limit.z for limit in limits]),
            "kkt": torch.stack([optimality(weights, x, y).residual for weights in probes]),
            "inside": found.inside.double().mean(-1),
            "off": found.silent.double().mean(-1),
            "left": gone.cummax(0).values.double().sum(-1),
            "hidden": hidden,
            "output": output,
            "longest": lengths.amax(-1),
            "least balance": ratio.amin(-1),
            "largest balance": ratio.amax(-1),
        }
    aligned, squares = correlation > HIGH, path[0].square().sum(-1)
    values["aligned"] = aligned.double().mean(-1)
    values["aligned mass"] = torch.where(aligned, squares, 0.0).sum(-1) / squares.sum(-1)
    return PathReading(
        {name: torch.where(finite, value, torch.nan) for name, value in values.items()},
        torch.where(finite.unsqueeze(-1), correlation, torch.nan),
        found,
    )
