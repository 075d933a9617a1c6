"""Conservation of the length of a node's incoming weights under BatchNorm (Tian et al. 2019, theorem 3).

The theorem is stated for nodes or filters without biases, with BatchNorm before or after the ReLU. With a bias,
BatchNorm after the activation is invariant to the common scale of weights and bias, so that ‖(w, b)‖ is conserved and
‖w‖ is not. BatchNorm before the activation removes the bias, which therefore does not move, and both are conserved.
Conservation is exact for ε = 0. With the ε that BatchNorm adds to a variance σ²,

    ½ d‖(w, b)‖²/dt = ε/(σ² + ε) · c₀ ċ₀,

where c₀ is the scale of its affine part. Without an affine part c₀ = 1, and ċ₀ is the velocity that it would have.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from understudy.nets import EPS, Layer, Population, fresh_norm, training_pass
from understudy.theory.gradient_flow import descent, velocity
from understudy.theory.result import Finding, at_most, result

NEGLIGIBLE = 1e-3
"""Share ε/(σ² + ε) up to which ε is negligible."""
_AGREES = 1e-9
"""Tolerance relative to ‖(w, b)‖ ‖(ẇ, ḃ)‖."""


class EnergyRates(NamedTuple):
    """Rate of change of ½‖(w, b)‖² under gradient flow, for the nodes of one hidden layer with BatchNorm."""

    rate: Float[Tensor, "net node"]
    """⟨(w, b), (ẇ, ḃ)⟩ by backpropagation."""
    predicted: Float[Tensor, "net node"]
    """ε/(σ² + ε) · c₀ ċ₀, the rate that ε causes."""
    size: Float[Tensor, "net node"]
    """‖(w, b)‖ ‖(ẇ, ḃ)‖."""
    weights: Float[Tensor, "net node"]
    """⟨w, ẇ⟩, without the bias."""
    share: Float[Tensor, "net node"]
    """ε/(σ² + ε); 1 for a node that is constant on the batch."""


def energy_rates(
    teacher: Population, student: Population, x: Float[Tensor, "sample in"] | Float[Tensor, "net sample in"]
) -> tuple[EnergyRates, ...]:
    """Compute the rates for every hidden layer of students with BatchNorm, lowest layer first; x is one batch."""
    x = x if x.ndim == 3 else x.expand(len(student), *x.shape)
    scaled = _with_scales(student)
    move = velocity(teacher, scaled, x)
    with torch.no_grad():
        statistics = training_pass(scaled, x)[1]
    found = []
    for layer, by, norm, scale_by, batch, places in zip(
        scaled.layers, move.layers, scaled.norms, move.norms, statistics, scaled.shape.positions, strict=False
    ):
        weights = (layer.weight * by.weight).flatten(2).sum(2)
        rate = weights if layer.bias is None or by.bias is None else weights + layer.bias * by.bias
        rows = x.shape[1] * places  # BatchNorm normalises by the biased variance over samples and positions
        share = EPS / (batch.variance * (1 - 1 / rows) + EPS)
        size = (_squared(layer)[0] * _squared(by)[0]).sqrt()
        assert norm.scale is not None and scale_by.scale is not None
        found.append(EnergyRates(rate, share * norm.scale * scale_by.scale, size, weights, share))
    return tuple(found)


def _with_scales(student: Population) -> Population:
    """Add an affine part of scale 1 and shift 0 to every BatchNorm that has none."""
    norms = [
        norm if norm.scale is not None else norm._replace(scale=fresh.scale, shift=fresh.shift)
        for norm in student.norms
        for fresh in [fresh_norm(len(student), norm.mean.shape[1], True, norm.mean)]
    ]
    return replace(student, norms=tuple(norms))


def _squared(layer: Layer) -> Float[Tensor, "kind net node"]:
    """‖(w, b)‖² and ‖w‖² of every node."""
    alone = layer.weight.square().flatten(2).sum(2)
    return torch.stack((alone if layer.bias is None else alone + layer.bias.square(), alone))


def squared_lengths(student: Population) -> Float[Tensor, "kind net node"]:
    """‖(w, b)‖² and ‖w‖² of all hidden nodes, lowest layer first."""
    return torch.cat([_squared(layer) for layer in student.layers[:-1]], 2)


def drifts(
    teacher: Population, student: Population, batches: Iterable[Float[Tensor, "net sample in"]], lr: float, every: int
) -> Iterator[tuple[Float[Tensor, "kind net node"], Float[Tensor, "kind net node"]]]:
    """Train by plain SGD, one batch per step; yield `squared_lengths` and their mean absolute change per step.

    They are yielded at the start, with a change of 0, and every `every` steps.
    """
    squared = squared_lengths(student)
    total = torch.zeros_like(squared)
    yield squared, total
    for step, now in enumerate(descent(teacher, student, batches, lr), 1):
        before, squared = squared, squared_lengths(now)
        total = total + (squared - before).abs()
        if step % every == 0:
            yield squared, total / every
            total = torch.zeros_like(squared)


def log_log_slopes(lr: Float[Tensor, "rate"], change: Float[Tensor, "rate *nodes"]) -> Float[Tensor, "*nodes"]:
    """Fit the slope of log change against log lr: 2 for a quantity that the flow conserves, 1 for any other.

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
    measured="the component of a step along the weights, next to the component that the ε of BatchNorm explains; "
    "`understudy run batchnorm-energy` measures it over training",
    subject="student node",
    networks="BatchNorm",
)
def conserved(teacher: Population, student: Population, x: Float[Tensor, "sample in"]) -> Sequence[Finding]:
    """Check theorem 3 for every student node, with x as one training batch."""
    alone_too = ", and so is ‖w‖" if student.norm_first else "; ‖w‖ is not if there is a bias"

    def finding(layer: int, node: int, rates: EnergyRates) -> Finding:
        rate, predicted, size, weights, share = (float(part[0, node]) for part in rates)
        relative, by_eps, alone = (value / size if size else 0.0 for value in (rate, predicted, weights))
        negligible = at_most(
            "ε of BatchNorm relative to the node's variance σ²",
            share,
            NEGLIGIBLE,
            shown=f"ε/(σ² + ε) = {share:.1e}",
            requirement=f"0 (at most {NEGLIGIBLE:g})",
            change="a node that varies more over the data: it is nearly constant",
        )
        return Finding(
            "S2 theorem 3",
            f"student node {node} of layer {layer + 1}",
            (negligible,),
            f"‖(w, b)‖ is conserved{alone_too}",
            f"⟨(w, b), (ẇ, ḃ)⟩ is {relative:.1e} of ‖(w, b)‖‖(ẇ, ḃ)‖, and ε causes {by_eps:.1e}; ⟨w, ẇ⟩ is {alone:.1e}",
            abs(rate - predicted) <= _AGREES * size,
        )

    found = energy_rates(teacher, student, x)
    return [finding(i, node, rates) for i, rates in enumerate(found) for node in range(rates.rate.shape[1])]
