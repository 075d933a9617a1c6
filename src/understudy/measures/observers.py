"""Which students see a teacher node's boundary inside their active region: S0 Definition 4, on a finite set of samples.

Both forms speak of the lowest hidden layer, where teacher and student read the same inputs, and of
E_k = {x : w_k · x + b_k > 0} (S0 sec 3), whatever the slope of the activation below zero.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from understudy.measures.alignment import regular
from understudy.nets import Layer

MIN_COUNT = 10
"""Samples on either side of a boundary that are enough to see it."""


class BandObservers(NamedTuple):
    """Counts behind condition (1) of S0 Theorems 3, 4 and 5, and whether it holds."""

    seen: Int[Tensor, "net teacher student"]
    band: Int[Tensor, "net teacher"]
    observed: Bool[Tensor, "net teacher student"]


def observers_in_band(
    teacher: Layer,
    student: Layer,
    x: Float[Tensor, "sample in"] | Float[Tensor, "net sample in"],
    eps: float,
    kappa: float,
) -> BandObservers:
    """N_D[I_j(ε) ∩ E_k] ≥ κ N_D[I_j(ε)] for the band I_j(ε) = {x : |w*_j · x + b*_j| ≤ ε}.

    S0 Theorems 3 to 5, condition (1), and Definition 5, with the teacher's weights made regular. A band that holds no
    sample is observed by nobody: the inequality 0 ≥ 0 would grant a hypothesis that the data says nothing about.
    """
    t = regular(teacher)
    # A node without a hyperplane has an infinite bias, so its band is empty.
    signed = _affine(x, t.weight, t.bias)
    inside, active = signed.abs() <= eps, _active(student, x)
    seen, band = _both(inside, active), inside.sum(1)
    # A quotient rounds to κ itself where the product κ N would not: 3 of 10 is 0.3.
    share = seen.double() / band.clamp_min(1).unsqueeze(2)
    return BandObservers(seen, band, (share >= kappa) & (band > 0).unsqueeze(2))


class SideObservers(NamedTuple):
    """Samples of E_k on either side of teacher node j's boundary, and whether both are enough."""

    above: Int[Tensor, "net teacher student"]
    below: Int[Tensor, "net teacher student"]
    observed: Bool[Tensor, "net teacher student"]


def observers_on_both_sides(
    teacher: Layer,
    student: Layer,
    x: Float[Tensor, "sample in"] | Float[Tensor, "net sample in"],
    min_count: int = MIN_COUNT,
) -> SideObservers:
    """S0 Definition 4 as the papers' released code counts it: both sides of node j's boundary are seen inside E_k.

    min(#{x ∈ E_k : w*_j · x + b*_j ≥ 0}, #{x ∈ E_k : w*_j · x + b*_j < 0}) ≥ min_count. It needs no band: where E_k,
    which is convex, holds samples of both sides, the boundary passes between them.
    """
    upper, active = _affine(x, teacher.weight, teacher.bias) >= 0, _active(student, x)
    above, below = _both(upper, active), _both(~upper, active)
    return SideObservers(above, below, torch.minimum(above, below) >= min_count)


def _affine(x: Tensor, weight: Tensor, bias: Tensor | None) -> Float[Tensor, "net sample node"]:
    inputs = (x if x.ndim == 3 else x.expand(len(weight), *x.shape)).to(weight.dtype)
    values = torch.bmm(inputs, weight.mT)
    return values if bias is None else values + bias.unsqueeze(1)


def _active(student: Layer, x: Tensor) -> Bool[Tensor, "net sample student"]:
    return _affine(x, student.weight, student.bias) > 0


def _both(
    left: Bool[Tensor, "net sample teacher"], right: Bool[Tensor, "net sample student"]
) -> Int[Tensor, "net teacher student"]:
    """How many samples are in both sets, as one matrix product: float32 counts exactly up to 2²⁴."""
    exact = torch.float32 if left.shape[1] <= 1 << 24 else torch.float64
    return torch.bmm(left.mT.to(exact), right.to(exact)).long()
