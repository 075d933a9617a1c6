"""What two-layer ReLU networks become on orthogonally separable examples (S3 theorem 3.1): two kinds of neurons."""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from understudy.papers.separable.theory.sectors import Absorption, absorption
from understudy.papers.separable.theory.training import Weights, balance, logistic_loss, neurons

HIGH = 0.9
"""Correlation with a max-margin direction above which S3 sec 3.4.1 counts a neuron as aligned."""


def own_correlation(
    w: Float[Tensor, "*#net node in"], a: Float[Tensor, "*#net node"], margins: Float[Tensor, "*#net 2 in"]
) -> Float[Tensor, "*net node"]:
    """Cosine of every neuron and the max-margin vector of its sign, w+ where a_j > 0, w− elsewhere (fig 3.1c)."""
    both = correlations(w, margins)
    return torch.where(a > 0, both[..., 0], both[..., 1])


def nearest_correlation(
    w: Float[Tensor, "*#net node in"], margins: Float[Tensor, "*#net 2 in"]
) -> Float[Tensor, "*net node"]:
    """Cosine of every neuron and the nearer of the two max-margin vectors: deep networks have no signs (fig 3.2g)."""
    return correlations(w, margins).amax(-1)


def correlations(
    w: Float[Tensor, "*#net node in"], margins: Float[Tensor, "*#net 2 in"]
) -> Float[Tensor, "*net node 2"]:
    """Cosines of neurons and w+, w−; 0 for a neuron that is zero."""
    return torch.nn.functional.normalize(w, dim=-1) @ torch.nn.functional.normalize(margins, dim=-1).mT


def aligned_share(correlation: Float[Tensor, "*net node"], above: float = HIGH) -> Float[Tensor, "*net"]:
    """The share of neurons with a correlation above a limit."""
    return (correlation > above).double().mean(-1)


def aligned_mass(
    w: Float[Tensor, "*net node in"], correlation: Float[Tensor, "*net node"], above: float = HIGH
) -> Float[Tensor, "*net"]:
    """The share of Σ ‖w_j‖² that neurons with a correlation above a limit have."""
    squares = w.square().sum(-1)
    return torch.where(correlation > above, squares, 0.0).sum(-1) / squares.sum(-1)


def singular_values(w: Float[Tensor, "*net node in"]) -> Float[Tensor, "*net value"]:
    """From the largest down."""
    return torch.linalg.svdvals(w)


def third_over_first(w: Float[Tensor, "*net node in"]) -> Float[Tensor, "*net"]:
    """How far a matrix is from rank two: σ3/σ1, 0 where there is no third.

    What training adds is nearer to rank two than the weights, which keep what they began with: of W = W_0 + ΔW the
    third singular value is at most σ1(W_0) + σ3(ΔW) (Weyl).
    """
    values = singular_values(w)
    return values[..., 2] / values[..., 0] if values.shape[-1] > 2 else torch.zeros_like(values[..., 0])


def projected(w: Float[Tensor, "*net node in"]) -> Float[Tensor, "*net node 2"]:
    """Rows on the first two right singular vectors (figs 3.1b, 3.2d to f), whose largest entries are made positive."""
    _, _, axes = torch.linalg.svd(w, full_matrices=False)
    axes = axes[..., :2, :]
    largest = axes.gather(-1, axes.abs().argmax(-1, keepdim=True))
    found = w @ (axes * largest.sign()).mT
    return torch.nn.functional.pad(found, (0, 2 - found.shape[-1]))


def in_plane(w: Float[Tensor, "*#net node in"], margins: Float[Tensor, "*#net 2 in"]) -> Float[Tensor, "*net node 2"]:
    """Vectors on the plane of the max-margin vectors: along w+, and along what w− has at right angles to it."""
    first, other = torch.nn.functional.normalize(margins, dim=-1).unbind(-2)
    second = other - (other * first).sum(-1, keepdim=True) * first
    return w @ torch.stack((first, torch.nn.functional.normalize(second, dim=-1)), dim=-1)


class Limit(NamedTuple):
    """Distances from what theorem 3.1 says weights go to, for the u and z ≥ 0 that bring the first layer nearest."""

    hidden: Float[Tensor, "*net"]
    """‖W/‖W‖ − (u w+ᵀ + z w−ᵀ)‖ of eq. 3.8."""
    output: Float[Tensor, "*net"]
    """‖a/‖a‖ − (u‖w+‖ − z‖w−‖)‖ of eq. 3.9."""


def limit(
    w: Float[Tensor, "*#net node in"], a: Float[Tensor, "*#net node"], margins: Float[Tensor, "*#net 2 in"]
) -> Limit:
    """Where each neuron has w+ or w− by the sign of its a_j: one of u_j and z_j is zero."""
    lengths = torch.linalg.vector_norm(w, dim=-1)
    shares = lengths / torch.linalg.vector_norm(lengths, dim=-1, keepdim=True)
    own = own_correlation(w, a, margins).clamp(0, 1)
    # A cosine near 1 has lost the digits of the sine, the difference of unit vectors has not.
    unit, both = (torch.nn.functional.normalize(each, dim=-1) for each in (w, margins))
    target = torch.where((a > 0).unsqueeze(-1), both[..., :1, :], both[..., 1:, :])
    sine = torch.linalg.vector_norm(unit - own.unsqueeze(-1) * target, dim=-1)
    ends = a / torch.linalg.vector_norm(a, dim=-1, keepdim=True) - a.sign() * shares * own
    return Limit(torch.linalg.vector_norm(shares * sine, dim=-1), torch.linalg.vector_norm(ends, dim=-1))


class Observed(NamedTuple):
    """A recorded path of networks, looked at as S3 sec 3.4 does. NaN where weights are not finite."""

    values: dict[str, Float[Tensor, "look net"]]
    """`loss`, the mean; of every matrix but the last `W1 third`, σ3/σ1, and `W1 added third`, that of what training
    added; of the first `aligned` and `aligned mass`. Of two layers besides the shares `inside` and `off` of neurons in
    their extremal sectors and active for no example, how many have `left` theirs so far, the distances `hidden` and
    `output` of eqs. 3.8 and 3.9, the `longest` neuron, and the least and largest |a_j|/‖w_j‖."""
    correlation: Float[Tensor, "look net node"]
    """Of neurons with the max-margin vector of their sign, or, in deep networks, with the nearer one."""
    absorbed: Absorption | None
    """Of two layers."""


def observed(
    path: Weights,
    x: Float[Tensor, "net sample in"],
    y: Float[Tensor, "net sample"],
    margins: Float[Tensor, "net 2 in"],
) -> Observed:
    """What a path of networks of any depth shows, look by look."""
    sound = torch.stack([layer.isfinite().flatten(2).all(-1) for layer in path]).all(0)
    path = tuple(torch.where(sound[..., None, None], layer, 0.0) for layer in path)
    values = {"loss": torch.stack([logistic_loss(tuple(now), x, y, mean=True) for now in zip(*path, strict=True)])}
    for number, layer in enumerate(path[:-1], 1):
        values[f"W{number} third"] = third_over_first(layer)
        values[f"W{number} added third"] = third_over_first(layer - layer[:1])
    found = None
    if len(path) == 2:
        w, a = neurons(path)
        correlation = own_correlation(w, a, margins)
        found = absorption(w, a, x, y)
        gone = found.inside.cummax(0).values & ~found.inside
        distances, ratio = limit(w, a, margins), balance(path).ratio
        values |= {
            "inside": found.inside.double().mean(-1),
            "off": found.silent.double().mean(-1),
            "left": gone.cummax(0).values.double().sum(-1),
            "hidden": distances.hidden,
            "output": distances.output,
            "longest": torch.linalg.vector_norm(w, dim=-1).amax(-1),
            "least balance": ratio.amin(-1),
            "largest balance": ratio.amax(-1),
        }
    else:
        correlation = nearest_correlation(path[0], margins)
    values |= {"aligned": aligned_share(correlation), "aligned mass": aligned_mass(path[0], correlation)}
    return Observed(
        {name: torch.where(sound, value, torch.nan) for name, value in values.items()},
        torch.where(sound.unsqueeze(-1), correlation, torch.nan),
        found,
    )
