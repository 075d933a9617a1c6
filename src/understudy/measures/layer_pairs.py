"""Correlation and linear CKA of every pair of layers of two networks, accumulated over batches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from understudy._errors import UserError
from understudy.measures.correlation import Correlation, Side
from understudy.measures.matching import THRESHOLD, best_students
from understudy.measures.recording import LayerActivations

_ROWS = 1 << 14
"""Rows that a CPU adds at once: float32 sums over more lose digits, and fewer fit its cache."""


class NotFiniteError(UserError):
    """A network has activations that are NaN, infinite or too large to square."""


class LayerPair(NamedTuple):
    """A layer of the teacher and a layer of the student: which node matches which, and how similar they are."""

    correlation: Float[Tensor, "teacher student"]
    best: Int[Tensor, "teacher"]
    """The student node that correlates best with each teacher node; −1 for a teacher node that is constant."""
    best_correlation: Float[Tensor, "teacher"]
    mean_best_correlation: float
    cka: float
    """Linear CKA (Kornblith et al. 2019, eq. 3)."""
    at_positions: bool
    """Whether a row is a sample at a position; otherwise a sample, averaged over positions."""

    @property
    def recovered(self) -> int:
        """Number of teacher nodes whose best correlation exceeds 0.95."""
        return int((self.best_correlation > THRESHOLD).sum())


def linear_cka(
    cross: Float[Tensor, "teacher student"], teacher: Float[Tensor, "a a"], student: Float[Tensor, "b b"]
) -> float:
    """Linear CKA, ‖XᵀY‖² / (‖XᵀX‖ ‖YᵀY‖) in Frobenius norms (Kornblith et al. 2019, eq. 3).

    Args:
        cross: XᵀY, the cross products of centred activations.
        teacher: XᵀX.
        student: YᵀY.

    Returns:
        A value from 0 to 1; 0 if either layer is constant.
    """
    return _cka(*(float(torch.linalg.matrix_norm(products)) for products in (cross, teacher, student)))


def _cka(cross: float, teacher: float, student: float) -> float:
    """Linear CKA from Frobenius norms; square roots come first, since products of large norms would overflow."""
    both = math.sqrt(teacher) * math.sqrt(student)
    return min(1.0, (cross / both) ** 2) if both > 0 else 0.0


class _Group:
    """Sums over layers that are compared in the same rows: one matrix product for all pairs, one for each layer.

    Layers are sorted by width, and the sums of layers of one width are one tensor: a GPU needs few large operations.
    """

    def __init__(self, teacher: Sequence[int], student: Sequence[int], positions: tuple[int, ...] | None) -> None:
        self.layers = list(teacher), list(student)
        self.positions = positions
        self._cross = Correlation()
        self._widths: tuple[list[int], list[int]] = [], []
        self._own: tuple[list[Correlation], list[Correlation]] = [], []

    def update(self, teacher: Sequence[LayerActivations], student: Sequence[LayerActivations]) -> None:
        sides = []
        for of, widths, layers in zip(self.layers, self._widths, (teacher, student), strict=True):
            of.sort(key=lambda i: layers[i].values.shape[2])
            widths[:] = [layers[i].values.shape[2] for i in of]
            rows = [layers[i].averaged if self.positions is None else layers[i].rows for i in of]
            sides.append(torch.cat(rows, 1))
        kind = torch.promote_types(sides[0].dtype, sides[1].dtype)
        sides = [side.to(sides[0].device, kind) for side in sides]
        rows_at_once = _ROWS if sides[0].device.type == "cpu" else len(sides[0])
        for t, s in zip(*(side.split(max(1, rows_at_once)) for side in sides), strict=True):
            self._add(t, s)

    def _add(self, teacher: Float[Tensor, "row a"], student: Float[Tensor, "row b"]) -> None:
        """Add rows, which are centred in place."""
        count, means, squares = len(teacher), [], []
        for x, widths, own in zip((teacher, student), self._widths, self._own, strict=True):
            mean = x.mean(0)
            x -= mean
            means.append(mean.double())
            start, diagonals = 0, []
            for i, (width, same) in enumerate(groupby(widths)):
                layers = len(list(same))
                columns = slice(start, start + layers * width)
                # Not one batched product: of few columns and many rows, it would use a small part of a GPU.
                products = torch.stack([layer.T @ layer for layer in x[:, columns].split(width, 1)]).double()
                square = products.diagonal(dim1=1, dim2=2)
                side = Side(means[-1][columns].view(layers, width), square)
                if i == len(own):
                    own.append(Correlation())
                own[i].add(count, side, side, products, x.dtype)
                diagonals.append(square.flatten())
                start = columns.stop
            squares.append(torch.cat(diagonals))
        t, s = (Side(mean.unsqueeze(0), square.unsqueeze(0)) for mean, square in zip(means, squares, strict=True))
        self._cross.add(count, t, s, (teacher.T @ student).double().unsqueeze(0), teacher.dtype)

    def results(self) -> dict[tuple[int, int], LayerPair]:
        # Norms are computed on the device and copied together: each copy would wait for a GPU.
        cross = self._cross.cross_products()[0].split(self._widths[0])
        norms = _norms([block for row in cross for block in row.split(self._widths[1], 1)])
        own = [_norms([products for total in side for products in total.cross_products()]) for side in self._own]
        rho = self._cross.result()[0].cpu().split(self._widths[0])
        made = {}
        for i, t in enumerate(self.layers[0]):
            for j, (s, block) in enumerate(zip(self.layers[1], rho[i].split(self._widths[1], 1), strict=True)):
                cka = _cka(norms[i * len(self.layers[1]) + j], own[0][i], own[1][j])
                made[t, s] = _pair(block, cka, self.positions is not None)
        return made

    def not_finite(self) -> list[list[int]]:
        """Layers of teacher and student with activations that are not finite, or whose squares are not."""
        found = []
        for of, own in zip(self.layers, self._own, strict=True):
            norms = _norms([products for total in own for products in total.cross_products()])
            found.append([i for i, norm in zip(of, norms, strict=True) if not math.isfinite(norm)])
        return found


def _norms(matrices: Sequence[Tensor]) -> list[float]:
    """Frobenius norms of matrices of any sizes."""
    return torch.stack([torch.linalg.matrix_norm(matrix) for matrix in matrices]).tolist()


def _pair(rho: Float[Tensor, "teacher student"], cka: float, at_positions: bool) -> LayerPair:
    best = best_students(rho.unsqueeze(0))
    partner = torch.where((rho != 0).any(1), best.partner[0], -1)
    mean = float(best.correlation.double().mean())
    return LayerPair(rho, partner, best.correlation[0], mean, cka, at_positions)


@dataclass(frozen=True, eq=False, repr=False)
class LayerAlignment:
    """Pairs of layers of two networks, and how similar they are.

    Attributes:
        teacher_layers: Names of the teacher's layers, in the order of its forward pass.
        student_layers: Names of the student's layers.
        pairs: One row per teacher layer, one `LayerPair` per student layer.
        samples: Number of samples.
        notes: What was assumed, left out or converted.
    """

    teacher_layers: tuple[str, ...]
    student_layers: tuple[str, ...]
    pairs: tuple[tuple[LayerPair, ...], ...]
    samples: int
    notes: tuple[str, ...] = ()

    @property
    def mean_best_correlation(self) -> Float[np.ndarray, "teacher_layer student_layer"]:
        """Best correlation with a node of the student layer, averaged over the teacher layer (Tian 2020, eq. 9)."""
        return np.array([[pair.mean_best_correlation for pair in row] for row in self.pairs])

    @property
    def cka(self) -> Float[np.ndarray, "teacher_layer student_layer"]:
        """Linear CKA of each pair of layers (Kornblith et al. 2019)."""
        return np.array([[pair.cka for pair in row] for row in self.pairs])

    @property
    def best_layers(self) -> dict[str, str]:
        """The student layer with the highest mean best correlation, for each teacher layer."""
        best = self.mean_best_correlation.argmax(1)
        return {name: self.student_layers[i] for name, i in zip(self.teacher_layers, best, strict=True)}

    def __getitem__(self, layers: tuple[str, str]) -> LayerPair:
        teacher, student = layers
        for role, name, names in (("teacher", teacher, self.teacher_layers), ("student", student, self.student_layers)):
            if name not in names:
                raise UserError(f"{name!r} is not a compared layer of the {role}; there are {', '.join(names)}")
        return self.pairs[self.teacher_layers.index(teacher)][self.student_layers.index(student)]


class LayerPairs:
    """Correlation (Tian 2020, eq. 9) and linear CKA of all pairs of layers, accumulated over batches.

    Two layers with the same positions (both maps of 8 × 8, or sequences of the same length) are compared at every
    position of every sample. Where positions differ, both are first averaged over their positions.

    Memory depends on the widths of layers, not on the number of samples: for each layer a square matrix, and for each
    pair a matrix of their widths, in float64.

    Args:
        teacher: Names of the teacher's layers, for errors.
        student: Names of the student's layers.
        average: Average all layers over positions.
    """

    def __init__(self, teacher: Sequence[str], student: Sequence[str], *, average: bool = False) -> None:
        self.names = tuple(teacher), tuple(student)
        self._average = average
        self.samples = 0
        self._groups: list[_Group] = []

    def update(self, teacher: Sequence[LayerActivations], student: Sequence[LayerActivations]) -> None:
        """Add the activations of all layers on one batch.

        Args:
            teacher: Activations of the teacher's layers.
            student: Activations of the student's layers on the same samples.

        Raises:
            UserError: Layers had the same positions on the first batch, and have not on this one.
        """
        self._groups = self._groups or self._divide(teacher, student)
        for group in self._groups:
            parts = [layers[i] for layers, of in zip((teacher, student), group.layers, strict=True) for i in of]
            if group.positions is not None and len({part.positions for part in parts}) > 1:
                names = [self.names[side][i] for side in (0, 1) for i in group.layers[side]]
                raise UserError(
                    f"layers {', '.join(names)} have the same positions on the first batch and not on another one; "
                    "give inputs of one size, or choose other layers"
                )
            group.update(teacher, student)
        self.samples += len(teacher[0].values)

    def bytes(self, teacher: Sequence[LayerActivations], student: Sequence[LayerActivations]) -> int:
        """Bytes that the sums of these layers need, with the copies while a batch is added."""
        total = 0
        for group in self._divide(teacher, student):
            t, s = ([a[i].values.shape[2] for i in of] for a, of in zip((teacher, student), group.layers, strict=True))
            total += 8 * (3 * sum(t) * sum(s) + sum(w * w for w in t + s) + 2 * max(t + s) ** 2)
        return total

    def results(self) -> tuple[tuple[LayerPair, ...], ...]:
        """Pairs of layers, one row per layer of the teacher.

        Raises:
            NotFiniteError: A layer has activations that are not finite.
        """
        found: dict[tuple[int, int], LayerPair] = {}
        for group in self._groups:  # the averaged group is the last one, and pairs of it that are not averaged precede
            for role, names, bad in zip(("teacher", "student"), self.names, group.not_finite(), strict=True):
                if bad:
                    raise NotFiniteError(
                        f"{names[bad[0]]!r} of the {role} has activations that are NaN, infinite or too large to "
                        "square; leave it out with layers=, or use weights from before it diverged"
                    )
            found = group.results() | found
        return tuple(tuple(found[t, s] for s in range(len(self.names[1]))) for t in range(len(self.names[0])))

    def _divide(self, teacher: Sequence[LayerActivations], student: Sequence[LayerActivations]) -> list[_Group]:
        """Layers that are compared at every position, by their positions, and those averaged for some partner."""
        ours, theirs = [layer.positions for layer in teacher], [layer.positions for layer in student]
        if self._average:
            return [_Group(range(len(ours)), range(len(theirs)), None)]
        groups = [
            _Group([i for i, q in enumerate(ours) if q == p], [i for i, q in enumerate(theirs) if q == p], p)
            for p in dict.fromkeys(ours)
            if p in theirs
        ]
        t = [i for i, p in enumerate(ours) if any(p != q for q in theirs)]
        s = [i for i, p in enumerate(theirs) if any(p != q for q in ours)]
        return [*groups, _Group(t, s, None)] if t else groups
