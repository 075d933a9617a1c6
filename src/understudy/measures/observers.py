"""Observers: students whose active region contains part of a teacher node's boundary (Tian 2020, Definition 4).

Both functions are for the lowest hidden layer, where teacher and student have the same inputs. The active region is
E_k = {x : w_k · x + b_k > 0} (Tian 2020, sec. 3), whatever the slope of the activation below zero.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from understudy.data.source import Inputs
from understudy.measures.alignment import regular
from understudy.nets import Layer

MIN_COUNT = 10
"""Default number of samples required on each side of a boundary."""


class BandObservers(NamedTuple):
    """Sample counts of condition (1) of Theorems 3, 4 and 5 of Tian 2020, and whether it holds."""

    seen: Int[Tensor, "net teacher student"]
    band: Int[Tensor, "net teacher"]
    observed: Bool[Tensor, "net teacher student"]


def observers_in_band(teacher: Layer, student: Layer, x: Inputs, eps: float, kappa: float) -> BandObservers:
    """Test N_D[I_j(ε) ∩ E_k] ≥ κ N_D[I_j(ε)] for the band I_j(ε) = {x : |w*_j · x + b*_j| ≤ ε}.

    Condition (1) of Theorems 3 to 5 of Tian 2020, with Definition 5 and the teacher's weights made regular. A band
    without samples has no observers, although 0 ≥ 0 holds, since the data do not support the hypothesis.

    Args:
        teacher: Lowest layer of the teachers.
        student: Lowest layer of the students.
        x: Inputs shared by all pairs, or one set per pair.
        eps: ε, the half-width of the band.
        kappa: κ, the required share.

    Returns:
        Samples of each band in each active region, samples of each band, and whether the condition holds.
    """
    t = regular(teacher)
    # A node without a hyperplane has an infinite bias, hence an empty band.
    signed = _affine(x, t.weight, t.bias)
    inside, active = signed.abs() <= eps, _active(student, x)
    seen, band = _count_common(inside, active), inside.sum(1)
    # The quotient rounds to κ itself where the product κ N would not: 3 of 10 is 0.3.
    share = seen.double() / band.clamp_min(1).unsqueeze(2)
    return BandObservers(seen, band, (share >= kappa) & (band > 0).unsqueeze(2))


class SideObservers(NamedTuple):
    """Samples of E_k on each side of the boundary of teacher node j, and whether both are sufficient."""

    above: Int[Tensor, "net teacher student"]
    below: Int[Tensor, "net teacher student"]
    observed: Bool[Tensor, "net teacher student"]


def observers_on_both_sides(teacher: Layer, student: Layer, x: Inputs, min_count: int = MIN_COUNT) -> SideObservers:
    """Test whether E_k has samples on both sides of the boundary of teacher node j (Tian 2020, Definition 4).

    min(#{x ∈ E_k : w*_j · x + b*_j ≥ 0}, #{x ∈ E_k : w*_j · x + b*_j < 0}) ≥ min_count, as in the released code of the
    paper. No band is needed: E_k is convex, so the boundary passes between samples on both sides.

    Args:
        teacher: Lowest layer of the teachers.
        student: Lowest layer of the students.
        x: Inputs shared by all pairs, or one set per pair.
        min_count: Samples required on each side.

    Returns:
        Samples on each side in each active region, and whether both are sufficient.
    """
    upper, active = _affine(x, teacher.weight, teacher.bias) >= 0, _active(student, x)
    above, below = _count_common(upper, active), _count_common(~upper, active)
    return SideObservers(above, below, torch.minimum(above, below) >= min_count)


def _affine(x: Tensor, weight: Tensor, bias: Tensor | None) -> Float[Tensor, "net sample node"]:
    inputs = (x if x.ndim == 3 else x.expand(len(weight), *x.shape)).to(weight.dtype)
    values = torch.bmm(inputs, weight.mT)
    return values if bias is None else values + bias.unsqueeze(1)


def _active(student: Layer, x: Tensor) -> Bool[Tensor, "net sample student"]:
    return _affine(x, student.weight, student.bias) > 0


def _count_common(
    left: Bool[Tensor, "net sample teacher"], right: Bool[Tensor, "net sample student"]
) -> Int[Tensor, "net teacher student"]:
    """Number of samples in both sets, as one matrix product; float32 counts exactly up to 2²⁴."""
    exact = torch.float32 if left.shape[1] <= 1 << 24 else torch.float64
    return torch.bmm(left.mT.to(exact), right.to(exact)).long()
