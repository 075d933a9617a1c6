"""Linear students of any depth (S3 sec 5.2): populations of slope 1 and one output, how they start, move and end."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from understudy._random import Stream
from understudy.errors import UserError
from understudy.nets import Layer, Population
from understudy.papers.distillation.theory.draws import normals
from understudy.papers.distillation.theory.soft_labels import (
    Conditions,
    allowed_error,
    gain,
    gradient,
    offset,
    soft_labels,
    solution,
    span,
    whole_length,
)

if TYPE_CHECKING:
    from scipy.integrate import LSODA

_NEWTON = 200
"""Steps of Newton's method; it stops where nothing moves, after five or so."""
_RELATIVE, _ABSOLUTE = 1e-10, 1e-11
"""Errors that a step of gradient flow may make, the second in parts of ‖v‖ as it was when it last had grown by much."""
_GROWN = 30.0
"""Much."""
_THERE = 1e-10
"""In parts of ‖v‖: flow that is estimated to be as near to its end is at its end."""
_LOOK = 8
"""Steps after which this is looked at again."""


def balanced(
    x: Float[Tensor, "net sample in"],
    teacher: Float[Tensor, "*#net in"],
    depth: int,
    scale: float,
    seeds: Sequence[int],
    width: int = 1,
) -> Population:
    """Students of `depth` layers with ‖w(0)‖ = scale in a random direction, balanced as in eq. 5.13.

    W_L is one row, so that balance makes all layers of rank one: W_l = scale^(1/L) u_l u_{l−1}ᵀ, with unit vectors. The
    sign is the one of lower loss, as 5.12 asks. Thesis says that w or −w always meets 5.12; for w across ∇ℓ1(0) neither
    does, as ℓ1 is convex, and near that only ever smaller scales do: see `conditions`.
    """
    if depth < 1 or width < 1:
        raise UserError(f"{depth} layers of {width} nodes were asked for; allowed is 1 or more of both")
    if not math.isfinite(scale) or scale < 0 or (scale == 0 and depth > 1):
        raise UserError(
            f"scale {scale} was given; allowed is a finite number above 0: only a student of one layer may start at 0"
        )
    if len(seeds) != len(x):
        raise UserError(f"{len(seeds)} seeds were given for {len(x)} sets of inputs: give each its own")
    sizes = [x.shape[-1], *[width] * (depth - 1)]
    ends = [normals(seeds, Stream.STUDENT, i, size).to(x) for i, size in enumerate(sizes)]
    ends = [end / torch.linalg.vector_norm(end, dim=-1, keepdim=True) for end in ends]
    down = gradient(torch.zeros_like(ends[0]), x, teacher)
    ends[0] = torch.where((ends[0] * down).sum(-1, keepdim=True) > 0, -ends[0], ends[0])
    ends.append(torch.ones(len(x), 1).to(x))
    each = scale ** (1 / depth)
    layers = tuple(Layer(each * out.unsqueeze(-1) * into.unsqueeze(-2), None) for into, out in pairwise(ends))
    return Population(layers, torch.tensor(list(seeds)), 1.0)


def end_to_end(students: Population) -> Float[Tensor, "net in"]:
    """w of wᵀ = W_L ⋯ W_1."""
    _check_linear(students)
    first, *others = students.layers
    product = first.weight
    for layer in others:
        product = layer.weight @ product
    return product.squeeze(-2)


def conditions(
    students: Population, x: Float[Tensor, "net sample in"], teacher: Float[Tensor, "*#net in"]
) -> Conditions:
    """Conditions 5.11 to 5.13 of theorem 5.2 at these students, as numbers."""
    w = end_to_end(students)
    start, reached = (torch.linalg.vector_norm(v, dim=-1) for v in (w, solution(x, teacher)))
    imbalance = torch.zeros_like(start)
    for low, high in pairwise(layer.weight for layer in students.layers):
        wanted = low @ low.mT
        off = torch.linalg.matrix_norm(high.mT @ high - wanted) / torch.linalg.matrix_norm(wanted)
        imbalance = torch.maximum(imbalance, off)
    return Conditions(
        start, reached, allowed_error(start, reached, len(students.layers)), gain(w, x, teacher), imbalance
    )


def rate_bound(x: Float[Tensor, "*net sample in"]) -> Float[Tensor, "*net"]:
    """4n/λ_max(XXᵀ), one over the largest curvature of ℓ1: at L = 1 the loss falls in every step of a lower rate.

    Eq. D.8 leaves the 1/n of the Hessian out, and with it that of µ in theorem D.3.
    """
    return 4 * x.shape[-2] / torch.linalg.matrix_norm(x, ord=2).square()


def descend(
    students: Population,
    x: Float[Tensor, "net sample in"],
    teacher: Float[Tensor, "*#net in"],
    rate: float | Float[Tensor, "net"],
    looks: Sequence[int],
) -> tuple[Population, ...]:
    """The students after as many steps W_l ← W_l − η ∂ℓ/∂W_l on all inputs as each of `looks` says."""
    _check_linear(students)
    rates = torch.as_tensor(rate).to(x).reshape(-1, 1, 1)
    if not bool((rates > 0).all()) or not bool(rates.isfinite().all()):
        raise UserError(f"rate {rate} was given; allowed is a finite number above 0")
    if list(looks) != sorted(looks) or any(look < 0 for look in looks):
        raise UserError(f"looks must be in order and from 0 on, got {list(looks)}")
    now, step, kept = [layer.weight for layer in students.layers], 0, []
    for look in looks:
        while step < look:
            now = [w - rates * pull for w, pull in zip(now, _pulls(now, x, teacher), strict=True)]
            step += 1
        kept.append(replace(students, layers=tuple(Layer(w, None) for w in now)))
    return tuple(kept)


def _pulls(weights: list[Tensor], x: Tensor, teacher: Tensor) -> list[Tensor]:
    """∂ℓ/∂W_l = (W_L ⋯ W_{l+1})ᵀ ∇ℓ1ᵀ (W_{l−1} ⋯ W_1)ᵀ."""
    before: list[Tensor | None] = [None]
    for w in weights:
        before.append(w if before[-1] is None else w @ before[-1])
    whole = before.pop()
    assert whole is not None
    back = gradient(whole.squeeze(-2), x, teacher).unsqueeze(-2)
    found: list[Tensor] = []
    after: Tensor | None = None
    for w, below in zip(reversed(weights), reversed(before), strict=True):
        pull = back if below is None else back @ below.mT
        found.append(pull if after is None else after.mT @ pull)
        after = w if after is None else after @ w
    return found[::-1]


def flow(
    start: Float[Tensor, "net in"],
    x: Float[Tensor, "net sample in"],
    teacher: Float[Tensor, "*#net in"],
    times: Sequence[float],
    depth: int = 1,
) -> Float[Tensor, "look net in"]:
    """w at each of `times` along gradient flow of balanced layers from w(0) = `start` (lemma D.2), by LSODA.

    Only the part v of w in the span of the inputs is followed. The part across keeps its direction and grows with
    ‖w‖^((L−1)/L) (eqs. D.30 and D.31), so that v gives ‖w‖: followed by itself it would drift by rounding, as nothing
    pulls it anywhere. `limit` is the end.
    """
    until = np.asarray(times, dtype=float)
    if not np.isfinite(until).all() or (until < 0).any() or (np.diff(until) < 0).any():
        raise UserError(f"times must be finite, from 0 on and in order, got {list(times)}")
    if depth < 1:
        raise UserError(f"{depth} layers were asked for; allowed is 1 or more")
    basis = span(x)
    across = start - (basis @ (basis.mT @ start.unsqueeze(-1))).squeeze(-1)
    length = torch.linalg.vector_norm(start, dim=-1, keepdim=True)
    # What is left of a start within the span is rounding, and has no direction.
    across = torch.where(torch.linalg.vector_norm(across, dim=-1, keepdim=True) > 1e-12 * length, across, 0.0)
    # In singular directions rounding is in proportion to the pull, so that slow ones are not lost in it.
    outer, values, turned = torch.linalg.svd(x @ basis, full_matrices=False)
    basis = basis @ turned.mT
    seen = (outer * values.unsqueeze(-2)).cpu().numpy()
    begun = (basis.mT @ start.unsqueeze(-1)).squeeze(-1).cpu().numpy()
    labels = soft_labels(x, teacher).cpu().numpy()
    ranks = (values > max(x.shape[-2:]) * torch.finfo(x.dtype).eps * values[:, :1]).sum(-1).tolist()
    sizes = torch.linalg.vector_norm(solution(x, teacher), dim=-1).cpu().numpy()
    offsets = offset(start, across, depth)
    found = np.zeros((len(until), *begun.shape))
    found[until == 0] = begun
    ahead = until[until > 0]
    for i, rank in enumerate(ranks if len(ahead) else ()):
        moves = _Flow(seen[i][:, :rank], labels[i], depth, float(offsets[i]))
        small = _ABSOLUTE * (float(length[i]) or sizes[i] or 1.0)
        found[len(until) - len(ahead) :, i, :rank] = moves.followed(begun[i, :rank], ahead, small)
    inside = torch.from_numpy(found).to(x)
    long = whole_length(inside.square().sum(-1), offsets, depth)
    growth = (long.unsqueeze(-1) / length.clamp_min(torch.finfo(x.dtype).tiny)).pow((depth - 1) / depth)
    return torch.einsum("nik,tnk->tni", basis, inside) + growth * across


class _Flow(NamedTuple):
    """v′ = −‖w‖^(2 − 2/L) (g + (L − 1) (vᵀg)/‖w‖² v), g the gradient of ℓ1 in coordinates of the span."""

    rows: np.ndarray
    labels: np.ndarray
    depth: int
    offset: float

    def followed(self, start: np.ndarray, times: np.ndarray, small: float) -> np.ndarray:
        """v at each of these times, NaN from where the solver gives up; where nothing is left to go it stays."""
        path = np.full((len(times), len(start)), np.nan)
        solver = self._solver(0.0, start, times[-1], small)
        done, steps = 0, 0
        while done < len(times) and solver.status == "running":
            solver.step()
            passed = int(np.searchsorted(times, solver.t, side="right"))
            if passed > done:
                path[done:passed] = solver.dense_output()(times[done:passed]).T
                done = passed
            steps += 1
            if steps % _LOOK == 0 and solver.status == "running":
                long = float(np.linalg.norm(solver.y))
                if self._left(solver.y) <= _THERE * long:
                    path[done:] = solver.y
                    break
                if _ABSOLUTE * long > _GROWN * small:
                    # What is small beside w(0) is far below the digits of the w that it has grown to.
                    small = _ABSOLUTE * long
                    solver = self._solver(solver.t, solver.y, times[-1], small)
        return path

    def _solver(self, now: float, at: np.ndarray, until: float, small: float) -> LSODA:
        from scipy.integrate import LSODA

        return LSODA(self.velocity, now, at, until, rtol=_RELATIVE, atol=small, jac=self.jacobian)

    def _left(self, v: np.ndarray) -> float:
        """About how far the end is: the length of a step of Newton's method."""
        return float(np.linalg.norm(np.linalg.solve(self.jacobian(0.0, v), self.velocity(0.0, v))))

    def velocity(self, _: float, v: np.ndarray) -> np.ndarray:
        slope = self.rows.T @ (_sigmoid(self.rows @ v) - self.labels) / len(self.labels)
        if self.depth == 1:
            return -slope
        square, _grown = self._square(v)
        return -(square ** (1 - 1 / self.depth)) * (slope + (self.depth - 1) * (v @ slope) / square * v)

    def jacobian(self, _: float, v: np.ndarray) -> np.ndarray:
        """With one by differences the solver loses its way where little is left to go."""
        out = _sigmoid(self.rows @ v)
        hessian = (self.rows * (out * (1 - out))[:, None]).T @ self.rows / len(out)
        if self.depth == 1:
            return -hessian
        slope = self.rows.T @ (out - self.labels) / len(out)
        square, grown = self._square(v)
        power, along, more = 1 - 1 / self.depth, (v @ slope) / square, self.depth - 1
        whole = hessian + more * (np.outer(v, slope + hessian @ v) / square + along * np.eye(len(v)))
        stretch = power * slope + more * (power - 1) * along * v
        return -(square**power) * (whole + np.outer(stretch, 2 * grown / square * v))

    def _square(self, v: np.ndarray) -> tuple[float, float]:
        """‖w‖², and how much faster than ‖v‖² it grows."""
        inside, least, depth = float(v @ v), self.offset, self.depth
        z = least + inside ** (1 / depth)
        for _ in range(_NEWTON):
            now = z - (z ** (depth - 1) * (z - least) - inside) / (z ** (depth - 2) * (depth * z - (depth - 1) * least))
            if not least <= now < z:
                break
            z = now
        return z**depth, depth * z / (depth * z - (depth - 1) * least)


def _sigmoid(values: np.ndarray) -> np.ndarray:
    from scipy.special import expit

    return expit(values)


def _check_linear(students: Population) -> None:
    bent = students.slope != 1 and len(students.layers) > 1
    if students.image or students.norms or students.sizes[-1] != 1 or bent:
        raise UserError(
            f"students {'-'.join(map(str, students.sizes))} of slope {students.slope:g} were given; allowed are fully "
            "connected ones of slope 1, one output and no BatchNorm"
        )
    if any(layer.bias is not None and bool(layer.bias.any()) for layer in students.layers):
        raise UserError("the students have biases; allowed are students without")
