"""Linear students of any depth: initial weights, gradient descent and gradient flow (Phuong 2021, sec. 5.2).

A student is a population of slope 1 with one output.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import NamedTuple, no_type_check

import numpy as np
import torch
from jaxtyping import Float, Int
from numba import njit
from scipy.integrate import LSODA
from scipy.special import expit
from torch import Tensor

from understudy._errors import UserError
from understudy._numbers import number
from understudy._random import Stream, normal
from understudy.nets import Layer, Population
from understudy.papers.distillation.theory.soft_labels import (
    Conditions,
    Weights,
    allowed_error,
    gain,
    gradient,
    offset,
    soft_labels,
    solution,
    span,
    validate_depth,
    whole_length,
)
from understudy.theory.follow_flows import follow_flows

_Sets = Float[Tensor, "net sample in"]
_NEWTON = 200
"""Maximum number of Newton steps; about five are taken."""
_RELATIVE, _ABSOLUTE = 1e-10, 1e-11
"""Tolerances of gradient flow; the absolute one is relative to ‖v‖ at the last restart of the solver."""
_GROWN = 30.0
"""Growth of ‖v‖ at which the solver is restarted with a larger absolute tolerance."""
_CONVERGED = 1e-10
"""Estimated distance from the limit, relative to ‖v‖, at which the flow has converged."""
_EVERY = 8
"""Steps of the solver between two tests of convergence and growth."""


def balanced(x: _Sets, teacher: Weights, depth: int, scale: float, seeds: Sequence[int], width: int = 1) -> Population:
    """Draw balanced students (Phuong 2021, eq. 5.13) of `depth` layers with ‖w(0)‖ = scale in a random direction.

    W_L is a single row, so that balanced layers have rank one: W_l = scale^(1/L) u_l u_{l−1}ᵀ with unit vectors u_l.
    The sign is the one of lower loss, as condition 5.12 requires. The thesis states that w or −w always meets 5.12. If
    w is orthogonal to ∇ℓ1(0) neither does, because ℓ1 is convex, and near such a w only small scales do (`conditions`).
    """
    if depth < 1 or width < 1:
        raise UserError(f"depth and width must be at least 1, got {depth} layers of {width} nodes")
    if not math.isfinite(scale) or scale < 0 or (scale == 0 and depth > 1):
        raise UserError(f"scale must be finite and above 0, got {scale}; only a student of one layer may start at 0")
    if len(seeds) != len(x):
        raise UserError(f"one seed per set of inputs is needed ({len(x)}), got {len(seeds)}")
    sizes = [x.shape[-1], *[width] * (depth - 1)]
    names = torch.tensor(list(seeds))
    ends = [normal(names, Stream.STUDENT, i, size).to(x) for i, size in enumerate(sizes)]
    ends = [end / torch.linalg.vector_norm(end, dim=-1, keepdim=True) for end in ends]
    down = gradient(torch.zeros_like(ends[0]), x, teacher)
    ends[0] = torch.where((ends[0] * down).sum(-1, keepdim=True) > 0, -ends[0], ends[0])
    ends.append(torch.ones(len(x), 1).to(x))
    each = scale ** (1 / depth)
    layers = tuple(Layer(each * out.unsqueeze(-1) * into.unsqueeze(-2), None) for into, out in pairwise(ends))
    return Population(layers, names, 1.0)


def end_to_end(students: Population) -> Float[Tensor, "net in"]:
    """Weight vector w of the linear map wᵀ = W_L ⋯ W_1."""
    _validate_linear(students)
    *_, product = accumulate((layer.weight for layer in students.layers), lambda below, w: w @ below)
    return product.squeeze(-2)


def conditions(students: Population, x: _Sets, teacher: Weights) -> Conditions:
    """Evaluate conditions 5.11 to 5.13 of Phuong 2021, theorem 5.2 at the given students."""
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
    """Rate 4n/λ_max(XXᵀ), the inverse of the largest curvature of ℓ1, below which every step at L = 1 lowers the loss.

    Phuong 2021, eq. D.8 omits the factor 1/n of the Hessian, and theorem D.3 that of µ.
    """
    return 4 * x.shape[-2] / torch.linalg.matrix_norm(x, ord=2).square()


def disturbed(students: Population, noise: float, seeds: Sequence[int]) -> Population:
    """Add Gaussian noise of a size relative to every layer, so that (5.13) holds only approximately (sec. 5.3.1).

    Args:
        students: Balanced students.
        noise: Expected ‖change of W_l‖/‖W_l‖ of every layer.
        seeds: One seed per student.

    Returns:
        Students of which the layers are balanced up to about 2 × noise.
    """
    names, layers = torch.tensor(list(seeds)), []
    for i, (weight, _) in enumerate(students.layers):
        each = weight[0].numel()
        drawn = normal(names, Stream.STUDENT, (1 << 32) + i, each).to(weight).view_as(weight) / each**0.5
        layers.append(Layer(weight + noise * torch.linalg.matrix_norm(weight)[:, None, None] * drawn, None))
    return replace(students, layers=tuple(layers))


class DescendedStudents(NamedTuple):
    """Students after given numbers of steps of gradient descent."""

    students: tuple[Population, ...]
    steps: Int[Tensor, "net"]
    """Steps after which each student was near enough to ŵ and stopped; −1 if it was not within the steps taken."""


def descend(
    students: Population, x: _Sets, teacher: Weights, rate: float | Float[Tensor, "net"], probes: Sequence[int]
) -> tuple[Population, ...]:
    """Take steps W_l ← W_l − η ∂ℓ/∂W_l on all inputs; students after each number of steps in `probes`."""
    return descend_until(students, x, teacher, rate, probes, -1.0).students


def descend_until(
    students: Population,
    x: _Sets,
    teacher: Weights,
    rate: float | Float[Tensor, "net"],
    probes: Sequence[int],
    near: float | Float[Tensor, "net"],
) -> DescendedStudents:
    """Take steps W_l ← W_l − η ∂ℓ/∂W_l on all inputs until w is within a distance of ŵ, where a student stops.

    Args:
        students: Linear students at the start.
        x: One set of inputs per student.
        teacher: w*.
        rate: η, one for all students or one each.
        probes: Numbers of steps after which students are recorded, in ascending order; the last is the most steps.
        near: Distances from ŵ at which students stop; below 0 none does.

    Returns:
        The students, and how many steps each took to get there.
    """
    _validate_linear(students)
    rates, nears = (torch.as_tensor(v).to(x).expand(len(x)).tolist() for v in (rate, near))
    if not all(0 < each < math.inf for each in rates):
        raise UserError(f"rate must be finite and above 0, got {rate}")
    if list(probes) != sorted(probes) or min(probes, default=0) < 0:
        raise UserError(f"probes must be in ascending order and at least 0, got {list(probes)}")
    labels, goals = soft_labels(x, teacher).double().cpu().numpy(), solution(x, teacher).double().cpu().numpy()
    inputs, weights = x.double().cpu().numpy(), [layer.weight.double().cpu().numpy() for layer in students.layers]
    recorded = [np.empty((len(probes), *weight.shape)) for weight in weights]
    needed = torch.full((len(x),), -1)
    for net in range(len(x)):
        first, *above = (weight[net].copy() for weight in weights)
        square = np.zeros((len(above), len(first), len(first)))
        for i, weight in enumerate(above):
            square[i, : len(weight)] = weight
        taken = 0
        for i, probe in enumerate(probes):
            if needed[net] < 0:
                moved, arrived = _take_steps(
                    inputs[net], labels[net], first, square, rates[net], probe - taken, goals[net], nears[net]
                )
                taken += moved
                needed[net] = taken if arrived else -1
            for path, weight, now in zip(recorded, weights, (first, *square), strict=True):
                path[i, net] = now[: weight.shape[1]]
    paths = [torch.from_numpy(path).to(x) for path in recorded]
    kept = tuple(replace(students, layers=tuple(Layer(w, None) for w in now)) for now in zip(*paths, strict=True))
    return DescendedStudents(kept, needed)


@njit
@no_type_check
def _take_steps(x, labels, first, above, rate, count, goal, near):
    """Take up to `count` steps in place, until w is near the goal; how many, and whether it is.

    `above` holds the other layers, padded to squares: only the first row of the last is used.
    """
    depth = len(above)
    back, ahead = np.zeros((depth + 1, len(first))), np.zeros((depth + 1, len(first)))
    back[depth, 0] = 1.0
    for step in range(count + 1):
        for i in range(depth - 1, -1, -1):
            back[i] = back[i + 1] @ above[i]
        w = back[0] @ first
        if near >= 0 and np.sum((w - goal) ** 2) <= near * near:
            return step, True
        if step == count:
            break
        # Rows W_L ⋯ W_{l+1} before each layer, and W_{l−1} ⋯ W_1 times the gradient after each.
        slope = (1 / (1 + np.exp(-(x @ w))) - labels) @ x / len(x)
        ahead[0] = first @ slope
        for i in range(depth):
            ahead[i + 1] = above[i] @ ahead[i]
        first -= rate * np.outer(back[0], slope)
        for i in range(depth):
            above[i] -= rate * np.outer(back[i + 1], ahead[i])
    return count, False


def balanced_flow(
    start: Float[Tensor, "net in"], x: _Sets, teacher: Weights, times: Sequence[float], depth: int = 1
) -> Float[Tensor, "time net in"]:
    """Follow gradient flow of balanced layers (Phuong 2021, lemma D.2) from w(0) = `start` by LSODA; w at `times`.

    Only the component v of w in the span of the inputs is integrated. The orthogonal component keeps its direction and
    grows with ‖w‖^((L−1)/L) (eqs. D.30 and D.31), so that v determines ‖w‖; integrated on its own it would drift by
    rounding, as no force acts on it. `soft_labels.limit` is the limit t → ∞.
    """
    validate_depth(depth)
    basis = span(x)
    across = start - (basis @ (basis.mT @ start.unsqueeze(-1))).squeeze(-1)
    length = torch.linalg.vector_norm(start, dim=-1, keepdim=True)
    # If the start lies in the span, the rest is rounding and has no direction.
    across = torch.where(torch.linalg.vector_norm(across, dim=-1, keepdim=True) > 1e-12 * length, across, 0.0)
    # In singular directions rounding errors are proportional to the gradient, so that slow directions are not lost.
    outer, values, turned = torch.linalg.svd(x @ basis, full_matrices=False)
    basis = basis @ turned.mT
    seen = (outer * values.unsqueeze(-2)).cpu().numpy()
    begun = (basis.mT @ start.unsqueeze(-1)).squeeze(-1).cpu().numpy()
    labels = soft_labels(x, teacher).cpu().numpy()
    ranks = (values > max(x.shape[-2:]) * torch.finfo(x.dtype).eps * values[:, :1]).sum(-1).tolist()
    sizes = torch.linalg.vector_norm(solution(x, teacher), dim=-1).cpu().numpy()
    offsets = offset(start, across, depth)

    def solve(i: int, v: np.ndarray, ahead: np.ndarray) -> np.ndarray:
        rank, path = ranks[i], np.zeros((len(ahead), len(v)))
        moves = _BalancedFlow(seen[i][:, :rank], labels[i], depth, float(offsets[i]))
        small = _ABSOLUTE * (float(length[i]) or sizes[i] or 1.0)
        path[:, :rank] = moves.follow(v[:rank], ahead, small)
        return path

    inside = torch.from_numpy(follow_flows(begun, times, solve)).to(x)
    long = whole_length(inside.square().sum(-1), offsets, depth)
    growth = (long.unsqueeze(-1) / length.clamp_min(torch.finfo(x.dtype).tiny)).pow((depth - 1) / depth)
    return torch.einsum("nik,tnk->tni", basis, inside) + growth * across


class _BalancedFlow(NamedTuple):
    """Flow v′ = −‖w‖^(2 − 2/L) (g + (L − 1) (vᵀg)/‖w‖² v), with g the gradient of ℓ1 in coordinates of the span."""

    rows: np.ndarray
    labels: np.ndarray
    depth: int
    offset: float

    def follow(self, start: np.ndarray, times: np.ndarray, small: float) -> np.ndarray:
        """Integrate v up to each of the times; constant once converged, NaN after the solver gave up."""
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
            if steps % _EVERY == 0 and solver.status == "running":
                long = float(np.linalg.norm(solver.y))
                left = np.linalg.solve(self.jacobian(0.0, solver.y), self.velocity(0.0, solver.y))  # a Newton step
                if float(np.linalg.norm(left)) <= _CONVERGED * long:
                    path[done:] = solver.y
                    break
                if _ABSOLUTE * long > _GROWN * small:
                    # A tolerance that suits w(0) is far below the rounding errors of the grown w.
                    small = _ABSOLUTE * long
                    solver = self._solver(solver.t, solver.y, times[-1], small)
        return path

    def _solver(self, now: float, at: np.ndarray, until: float, small: float) -> LSODA:
        return LSODA(self.velocity, now, at, until, rtol=_RELATIVE, atol=small, jac=self.jacobian)

    def velocity(self, _: float, v: np.ndarray) -> np.ndarray:
        slope = self.rows.T @ (expit(self.rows @ v) - self.labels) / len(self.labels)
        if self.depth == 1:
            return -slope
        square, _grown = self._square(v)
        return -(square ** (1 - 1 / self.depth)) * (slope + (self.depth - 1) * (v @ slope) / square * v)

    def jacobian(self, _: float, v: np.ndarray) -> np.ndarray:
        """Derivative of the velocity; with finite differences the solver fails near the limit."""
        out = expit(self.rows @ v)
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
        """‖w‖² as a function of ‖v‖², and its derivative."""
        inside, least, depth = float(v @ v), self.offset, self.depth
        z = least + inside ** (1 / depth)
        for _ in range(_NEWTON):
            now = z - (z ** (depth - 1) * (z - least) - inside) / (z ** (depth - 2) * (depth * z - (depth - 1) * least))
            if not least <= now < z:
                break
            z = now
        return z**depth, depth * z / (depth * z - (depth - 1) * least)


def _validate_linear(students: Population) -> None:
    nonlinear = students.slope != 1 and len(students.layers) > 1
    if students.image or students.norms or students.sizes[-1] != 1 or nonlinear:
        raise UserError(
            "linear students are fully connected, with slope 1, one output and no BatchNorm, got "
            f"{'-'.join(map(str, students.sizes))} of slope {number(students.slope, 'g')}"
        )
    if any(layer.bias is not None and bool(layer.bias.any()) for layer in students.layers):
        raise UserError("linear students must not have biases: set them to zero")
