"""S2 theorem 3: the length of a node's incoming weights is conserved under BatchNorm, in either order with the ReLU.

As printed it is about networks without biases. With a bias, what BatchNorm after the activation does not see is the
scale of weights and bias together, so it is ‖(w, b)‖ that is conserved, and ‖w‖ alone is not; BatchNorm before the
activation takes the bias away, which does not move then, and both are conserved. Conservation is exact for ε = 0. With
the ε that BatchNorm adds to a variance σ²,

    ½ d‖(w, b)‖²/dt = ε/(σ² + ε) · c₀ ċ₀,

c₀ the scale of its affine part (1 where it has none, and ċ₀ how fast it would move).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from understudy.nets import EPS, Layer, Population, fresh_norm, training_pass
from understudy.theory.gradient_flow import descent, velocity
from understudy.theory.result import Finding, Hypothesis, result

NEGLIGIBLE = 1e-3
"""The share of ε in σ² + ε up to which a node counts as conserved."""
_AGREES = 1e-9
"""Relative to ‖(w, b)‖ times its velocity."""


def through_batchnorm(
    f: Float[Tensor, "sample *node"], g: Float[Tensor, "sample *node"], scale: float = 1.0, eps: float = 0.0
) -> Float[Tensor, "sample *node"]:
    """What BatchNorm hands down of a gradient g with respect to what it gives for f (S2 lemma 1, eqn 16).

    c₀/σ times the part of g that is orthogonal to f and to constants; with ε a little along f is left.
    """
    centred = f - f.mean(0)
    steepness = (centred.square().mean(0) + eps).rsqrt()
    even = centred * steepness
    return scale * steepness * (g - g.mean(0) - even * (g * even).mean(0))


class Energy(NamedTuple):
    """One hidden layer with BatchNorm on one batch: d/dt of ½‖(w, b)‖² of every node under gradient flow."""

    rate: Float[Tensor, "net node"]
    """⟨(w, b), (ẇ, ḃ)⟩ by backpropagation."""
    predicted: Float[Tensor, "net node"]
    """ε/(σ² + ε) · c₀ ċ₀."""
    size: Float[Tensor, "net node"]
    """‖(w, b)‖ ‖(ẇ, ḃ)‖."""
    weights: Float[Tensor, "net node"]
    """⟨w, ẇ⟩, without the bias."""
    share: Float[Tensor, "net node"]
    """ε/(σ² + ε), which is 1 for a node that is constant on the batch."""


def energy(
    teacher: Population, student: Population, x: Float[Tensor, "sample in"] | Float[Tensor, "net sample in"]
) -> tuple[Energy, ...]:
    """How the lengths change at every hidden layer of students with BatchNorm, the lowest first; x is one batch."""
    x = x if x.ndim == 3 else x.expand(len(student), *x.shape)
    scaled = _with_scales(student)
    move = velocity(teacher, scaled, x)
    with torch.no_grad():
        statistics = training_pass(scaled, x)[1]
    found = []
    for layer, by, norm, scale_by, batch in zip(
        scaled.layers, move.layers, scaled.norms, move.norms, statistics, strict=False
    ):
        weights = (layer.weight * by.weight).sum(2)
        rate = weights if layer.bias is None or by.bias is None else weights + layer.bias * by.bias
        share = EPS / (batch.variance * (1 - 1 / x.shape[1]) + EPS)  # the biased variance normalises
        size = (_squared(layer) * _squared(by)).sqrt()
        assert norm.scale is not None and scale_by.scale is not None
        found.append(Energy(rate, share * norm.scale * scale_by.scale, size, weights, share))
    return tuple(found)


def _with_scales(student: Population) -> Population:
    """The same networks with an affine part, which leaves everything as it is where there was none."""
    norms = [
        norm if norm.scale is not None else norm._replace(scale=fresh.scale, shift=fresh.shift)
        for norm in student.norms
        for fresh in [fresh_norm(len(student), norm.mean.shape[1], True, norm.mean)]
    ]
    return replace(student, norms=tuple(norms))


def _squared(layer: Layer, bias: bool = True) -> Float[Tensor, "net node"]:
    """‖(w, b)‖² of every node, or ‖w‖²."""
    weights = layer.weight.square().sum(2)
    return weights if layer.bias is None or not bias else weights + layer.bias.square()


def lengths(student: Population, bias: bool = True) -> Float[Tensor, "net node"]:
    """‖(w, b)‖², or ‖w‖², of all hidden nodes, the lowest layer's first."""
    return torch.cat([_squared(layer, bias) for layer in student.layers[:-1]], 1)


class Drift(NamedTuple):
    """How lengths changed in some steps of training: each part is [2, net, node], of ‖(w, b)‖² and of ‖w‖²."""

    squared: Float[Tensor, "kind net node"]
    """After them."""
    change: Float[Tensor, "kind net node"]
    """Absolute change a step, mean over these steps."""


def drifts(
    teacher: Population, student: Population, batches: Iterable[Float[Tensor, "net sample in"]], lr: float, every: int
) -> Iterator[Drift]:
    """Plain SGD, a batch a step: the start, and what the lengths did in each `every` steps."""
    both = _both(student)
    total = torch.zeros_like(both)
    yield Drift(both, total)
    for step, now in enumerate(descent(teacher, student, batches, lr), 1):
        before, both = both, _both(now)
        total = total + (both - before).abs()
        if step % every == 0:
            yield Drift(both, total / every)
            total = torch.zeros_like(both)


def _both(student: Population) -> Float[Tensor, "kind net node"]:
    return torch.stack([lengths(student), lengths(student, bias=False)])


def slopes(lr: Float[Tensor, "rate"], change: Float[Tensor, "rate *nodes"]) -> Float[Tensor, "*nodes"]:
    """Of log change against log lr, by least squares: 2 for what the flow conserves, 1 for what it does not.

    NaN for a node that never moved.
    """
    x = lr.log() - lr.log().mean()
    y = change.log()
    found = torch.tensordot(x, y - y.mean(0), 1) / x.square().sum()
    return torch.where(y.isfinite().all(0), found, torch.nan)


@result(
    "S2 theorem 3",
    title="Conserved under BatchNorm",
    statement="before BatchNorm, with the ReLU before or after it, the length of a node's incoming weights, its bias "
    "among them, does not change in training",
    measured="the component of a step along the weights, next to the component that the ε of BatchNorm explains. "
    "Measured by `understudy run batchnorm-energy`; `check` takes networks without BatchNorm",
    subject="student node",
    networks="BatchNorm",
)
def conserved(teacher: Population, student: Population, x: Float[Tensor, "sample in"]) -> Sequence[Finding]:
    """A finding a node, on x as one batch in training."""
    return [
        _finding(
            f"student node {node} of layer {layer}", Energy(*(part[0, node] for part in found)), student.norm_first
        )
        for layer, found in enumerate(energy(teacher, student, x))
        for node in range(found.rate.shape[1])
    ]


def _finding(about: str, node: Energy, first: bool) -> Finding:
    rate, predicted, size, weights, share = map(float, node)
    holds = share <= NEGLIGIBLE
    relative, by_eps, alone = (value / size if size else 0.0 for value in (rate, predicted, weights))
    return Finding(
        "S2 theorem 3",
        about,
        (
            Hypothesis(
                "ε of BatchNorm beside the node's variance σ²",
                f"ε/(σ² + ε) = {share:.1e}",
                f"0 (at most {NEGLIGIBLE:g})",
                holds,
                "" if holds else "a node that varies more over the data: it is constant, or nearly so",
                max(1.0, share / NEGLIGIBLE),
            ),
        ),
        "‖(w, b)‖ is conserved" + (", and so is ‖w‖" if first else "; ‖w‖ alone is not where there is a bias"),
        f"⟨(w, b), (ẇ, ḃ)⟩ is {relative:.1e} of ‖(w, b)‖‖(ẇ, ḃ)‖, where ε makes {by_eps:.1e}; ⟨w, ẇ⟩ is {alone:.1e}",
        abs(rate - predicted) <= _AGREES * size,
    )
