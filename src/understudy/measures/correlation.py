"""Correlation of the activations of teacher and student nodes over samples.

Tian 2020, eq. 9; Tian et al. 2019, sec. 5.1, footnote 1: ρ_jk = f̃*_j · f̃_k, activations centred and scaled to length 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

_ROUNDINGS = 16.0
"""A node is constant if its standard deviation is within this many roundings of its mean."""
# Numbers per piece of work: centred copies fit the cache of a CPU; a GPU needs large pieces.
_CPU_PIECE, _GPU_PIECE = 1 << 20, 1 << 27


class Side(NamedTuple):
    """Running mean and sum of squared deviations of every node of the teachers or of the students."""

    mean: Float[Tensor, "net node"]
    square: Float[Tensor, "net node"]


class Correlation:
    """Correlation (Tian 2020, eq. 9) accumulated over batches, independent of their sizes up to rounding.

    Each batch is centred on its own mean, its cross products are matrix products in the dtype of the activations, and
    batches are merged in float64 by the formula of Chan, Golub and LeVeque (1979), so that large means do not cancel.

    A dead node (constant over the samples up to rounding) has correlation exactly 0 with every node, and so has a node
    whose activations or their squares are not finite. Values lie in [−1, 1] and are never NaN.
    """

    def __init__(self) -> None:
        self._count = 0
        self._dtype = torch.float64
        self._teacher: Side | None = None
        self._student: Side | None = None
        self._cross: Tensor | None = None

    def update(
        self, teacher: Float[Tensor, "net sample teacher"], student: Float[Tensor, "net sample student"]
    ) -> None:
        """Add the activations of teachers and students on one batch, paired by index, without gradients.

        Args:
            teacher: Activations of the teachers.
            student: Activations of the students on the same samples.

        Raises:
            ValueError: The numbers of networks or samples differ.
        """
        teacher, student = teacher.detach(), student.detach()
        if teacher.shape[:2] != student.shape[:2]:
            raise ValueError(
                "teacher and student activations must agree in networks and samples, got "
                f"{tuple(teacher.shape)} and {tuple(student.shape)}"
            )
        nets, samples, nodes = *teacher.shape[:2], teacher.shape[2] + student.shape[2]
        gpu = teacher.device.type != "cpu"
        piece = _GPU_PIECE if gpu else _CPU_PIECE
        # Results do not depend on the batch composition: the cut along samples does not depend on the number of
        # networks, and on a CPU each network has its own matrix products, since a batched one may sum in another order.
        rows = max(256, piece // max(nodes, 1))
        scratch = teacher.new_empty(min(nets * samples * nodes, max(piece, rows * nodes)))
        for start in range(0, samples, rows):
            t, s = teacher[:, start : start + rows], student[:, start : start + rows]
            width = max(1, piece // (t.shape[1] * max(nodes, 1))) if gpu else 1
            parts = [_moments(t[e : e + width], s[e : e + width], scratch) for e in range(0, max(nets, 1), width)]
            moments = zip(*parts, strict=True)
            t_mean, t_square, s_mean, s_square, cross = (_one(part).double() for part in moments)
            self.add(t.shape[1], Side(t_mean, t_square), Side(s_mean, s_square), cross, teacher.dtype)

    def add(
        self, count: int, teacher: Side, student: Side, cross: Float[Tensor, "net teacher student"], dtype: torch.dtype
    ) -> None:
        """Add a batch of which the moments are known, in float64.

        `cross` of the first batch becomes the sum, to which others are added in place: allocating a matrix for each sum
        costs more than the sum.

        Args:
            count: Number of samples.
            teacher: Means and sums of squared deviations of the teacher nodes.
            student: Means and sums of squared deviations of the student nodes.
            cross: Sums over samples of products of centred activations.
            dtype: Precision of the activations, which the result takes.
        """
        self._dtype = dtype
        if self._teacher is None or self._student is None or self._cross is None:
            self._count, self._teacher, self._student, self._cross = count, teacher, student, cross
            return
        total = self._count + count
        weight = self._count * (count / total)
        t_shift, s_shift = teacher.mean - self._teacher.mean, student.mean - self._student.mean
        # Before `cross`, of which squares of the first batch may be a view.
        self._teacher, self._student = (
            Side(old.mean + shift * (count / total), old.square + new.square + weight * shift.square())
            for old, new, shift in ((self._teacher, teacher, t_shift), (self._student, student, s_shift))
        )
        self._cross.add_(cross).addcmul_((weight * t_shift).unsqueeze(2), s_shift.unsqueeze(1))
        self._count = total

    def result(self) -> Float[Tensor, "net teacher student"]:
        """Correlation over all samples so far, in the dtype of the activations.

        Raises:
            ValueError: No samples were added.
        """
        if self._teacher is None or self._student is None or self._cross is None:
            raise ValueError("the correlation of no samples is undefined: call update with at least one sample first")
        t, s = (self._inverse_length(side) for side in (self._teacher, self._student))
        # Zero if either node is dead, even if the cross product is NaN.
        live = (t > 0).unsqueeze(2) & (s > 0).unsqueeze(1)
        rho = torch.where(live, self._cross * t.unsqueeze(2) * s.unsqueeze(1), 0.0)
        return rho.clamp(-1.0, 1.0).to(self._dtype)

    def cross_products(self) -> Float[Tensor, "net teacher student"]:
        """Sums over all samples so far of products of centred activations, in float64.

        Raises:
            ValueError: No samples were added.
        """
        if self._cross is None:
            raise ValueError("cross products of no samples are undefined: call update with at least one sample first")
        return self._cross

    def _inverse_length(self, side: Side) -> Float[Tensor, "net node"]:
        """Inverse length of each node's centred activations; 0 for a node that is dead or not finite."""
        noise = _ROUNDINGS * torch.finfo(self._dtype).eps * side.mean
        # NaN fails the comparison, and the inverse of infinity is 0.
        return torch.where(side.square > self._count * noise.square(), side.square.rsqrt(), 0.0)


def _one(parts: Sequence[Tensor]) -> Tensor:
    """Parts as one tensor; a single one is not copied."""
    return torch.cat(list(parts)) if len(parts) > 1 else parts[0]


def _moments(
    teacher: Float[Tensor, "net sample teacher"],
    student: Float[Tensor, "net sample student"],
    scratch: Float[Tensor, "room"],
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Means, sums of squared deviations and cross products of one piece, in the dtype of the activations.

    Deviations are written to `scratch` and squared there, since allocating memory costs more than the matrix product.
    """
    t_mean, s_mean = teacher.mean(1, keepdim=True), student.mean(1, keepdim=True)
    t, s = scratch[: teacher.numel()].view_as(teacher), scratch[teacher.numel() :][: student.numel()].view_as(student)
    torch.sub(teacher, t_mean, out=t)
    torch.sub(student, s_mean, out=s)
    cross = torch.bmm(t.mT, s)
    return t_mean.squeeze(1), t.square_().sum(1), s_mean.squeeze(1), s.square_().sum(1), cross


def correlation(
    teacher: Float[Tensor, "net sample teacher"], student: Float[Tensor, "net sample student"]
) -> Float[Tensor, "net teacher student"]:
    """Correlation ρ_jk of every teacher node j and student node k (Tian 2020, eq. 9); see `Correlation` for details.

    Args:
        teacher: Activations of the teachers.
        student: Activations of the students on the same samples, paired with the teachers by index.

    Returns:
        Correlations in the dtype of the activations.

    Raises:
        ValueError: The numbers of networks or samples differ, or there are no samples.
    """
    stream = Correlation()
    stream.update(teacher, student)
    return stream.result()
