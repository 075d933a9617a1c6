"""Gradient descent and gradient flow on the exact loss of Zhou, Ge & Jin 2021, from given students (theorems 4, 6)."""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from understudy._errors import UserError
from understudy._random import Stream, normal
from understudy.papers.local.theory import gaussian
from understudy.papers.local.theory.gaussian.pairs import units, validate_nodes
from understudy.theory.follow_flows import follow_flows

_NUMBERS = 1 << 21
"""Inputs times samples of a mini-batch that are processed at once."""
_RELATIVE, _ABSOLUTE = 1e-10, 1e-13
"""Error tolerances of the gradient-flow solver."""


def descend(
    students: Float[Tensor, "net student in"],
    teachers: Float[Tensor, "#net teacher in"],
    rate: float | Float[Tensor, "net"],
    steps: int,
    probes: Sequence[int],
    *,
    batch: int | None = None,
    seeds: Sequence[int] | None = None,
    first: int = 0,
    slope: float = -1.0,
) -> Float[Tensor, "probe net student in"]:
    """Run gradient descent W ← W − η ∇L on the exact loss, or on fresh mini-batches.

    Samples are a function of the seed and the number of the step, so that k steps followed by k steps from `first` = k
    are bit for bit the same as 2k steps.

    Args:
        students: initial student nodes, in float64.
        teachers: teacher nodes, one set per network or one for all.
        rate: learning rate η, per network or for all.
        steps: number of steps.
        probes: steps whose students are returned, ascending, from 0 to `steps`.
        batch: samples per mini-batch, drawn anew in each step (theorem 6); by default the exact loss. The loss is
            ½ mean R², as in eq. 1; sec. 3.4 omits the ½.
        seeds: one seed per network, for mini-batches.
        first: number of the first step, for mini-batches.
        slope: slope of the activation below zero, for the exact loss.

    Returns:
        The students at each probe; NaN for a network from the probe at which its weights are no longer finite.

    Raises:
        UserError: an argument is out of range, or the nodes are not float64 vectors of the same dimension.
    """
    validate_nodes(students, teachers)
    _validate(rate, steps, probes, first)
    if batch is not None and (batch < 1 or seeds is None or len(seeds) != len(students)):
        raise UserError(
            f"mini-batches need at least 1 sample and one seed per network, got {batch} samples and "
            f"{0 if seeds is None else len(seeds)} seeds for {len(students)} networks"
        )
    rates = torch.as_tensor(rate, dtype=students.dtype, device=students.device).reshape(-1, 1, 1)
    now, step, kept = students.detach(), 0, []
    compiled = batch is None and gaussian.can_take_steps(now, teachers)
    for probe in probes:
        if compiled:
            now, step = gaussian.take_steps(now, teachers, rates.flatten(), probe - step, slope), probe
        while step < probe:
            if batch is None or seeds is None:
                gradient = gaussian.gradient(now, teachers, slope)
            else:
                gradient = sampled_gradient(now, teachers, batch, seeds, first + step)
            now, step = _take_step(now, rates, gradient), step + 1
        kept.append(now)
    if students.device.type != "cpu":
        found = torch.stack(kept) if kept else students.new_empty(0, *students.shape)
        return torch.where(found.isfinite().all(-1).all(-1)[..., None, None], found, torch.nan)
    # One entry that is not finite marks its network as diverged. By NumPy on a CPU, as in `_take_step`.
    every = np.stack([each.numpy() for each in kept]) if kept else np.empty((0, *students.shape))
    every[~np.isfinite(every).all((-2, -1))] = np.nan
    return torch.from_numpy(every)


def _take_step(now: Tensor, rates: Tensor, gradient: Tensor) -> Tensor:
    """now − rates · gradient.

    By NumPy on a CPU: torch would distribute this small operation over threads, and wait for them while the threads
    of the gradient still occupy the cores.
    """
    if now.device.type != "cpu":
        return now - rates * gradient
    return torch.from_numpy(now.numpy() - rates.numpy() * gradient.numpy())


def sampled_gradient(
    students: Float[Tensor, "net student in"],
    teachers: Float[Tensor, "#net teacher in"],
    batch: int,
    seeds: Sequence[int],
    step: int,
) -> Float[Tensor, "net student in"]:
    """Gradient of ½ mean R² over `batch` standard normal samples per network; its expectation is ∇L.

    On a CPU the result of a network does not depend on the other networks; a GPU draws and multiplies all together.
    """
    size = students.shape[-1]
    rows = max(1, _NUMBERS // size)
    parts = -(-batch // rows)
    every = teachers.expand(len(students), *teachers.shape[1:])
    gradient = torch.zeros_like(students)
    for part in range(parts):
        count = min(rows, batch - part * rows)
        if students.device.type != "cpu":
            names, device = torch.tensor(list(seeds)), str(students.device)
            drawn = normal(names, Stream.TRAIN, step * parts + part, count * size, device)
            gradient += _sum_pulls(students, every, drawn.unflatten(-1, (count, size)))
            continue
        own = {s: normal(s, Stream.TRAIN, step * parts + part, count * size).view(count, size) for s in set(seeds)}
        for pulls, ours, theirs, seed in zip(gradient, students, every, seeds, strict=True):
            pulls += _sum_pulls(ours, theirs, own[seed])
    directions, lengths = units(students)
    along = (gradient * directions).sum(-1, keepdim=True)
    return lengths.unsqueeze(-1) * (gradient + along * directions) / batch


def _sum_pulls(
    students: Float[Tensor, "*net student in"],
    teachers: Float[Tensor, "*net teacher in"],
    x: Float[Tensor, "*net sample in"],
) -> Float[Tensor, "*net student in"]:
    """Σ R x sgn(w_jᵀx) over the samples."""
    ours = x @ students.mT
    outputs = torch.linalg.vector_norm(students, dim=-1)
    own = ours.abs() @ outputs if ours.ndim == 2 else (ours.abs() @ outputs.unsqueeze(-1)).squeeze(-1)
    residual = own - (x @ teachers.mT).abs().sum(-1)
    return (ours.sign() * residual.unsqueeze(-1)).mT @ x


def gradient_flow(
    students: Float[Tensor, "net student in"], teachers: Float[Tensor, "#net teacher in"], times: Sequence[float]
) -> Float[Tensor, "time net student in"]:
    """Students at ascending times along the gradient flow Ẇ = −∇L, the limit of descent at small rates.

    Time is steps × rate. Students are NaN from the time at which the solver failed.

    Raises:
        UserError: the times are not ascending, or the nodes are not float64 vectors of the same dimension.
    """
    from scipy.integrate import solve_ivp

    validate_nodes(students, teachers)
    every = teachers.expand(len(students), *teachers.shape[1:]).cpu()

    def solve(i: int, start: np.ndarray, ahead: np.ndarray) -> np.ndarray:
        def downhill(_: float, w: np.ndarray) -> np.ndarray:
            return -gaussian.gradient(torch.from_numpy(w.reshape(start.shape)), every[i]).numpy().ravel()

        # Stiff where students near a solution turn slowly but their sum moves fast: LSODA switches method by itself.
        solved = solve_ivp(downhill, (0, ahead[-1]), start.ravel(), "LSODA", ahead, rtol=_RELATIVE, atol=_ABSOLUTE)
        path: np.ndarray = solved.y.T.reshape(-1, *start.shape)
        return path

    found = follow_flows(students.detach().cpu().numpy(), times, solve)
    return torch.from_numpy(found).to(students.device)


def rate_bound(teachers: Float[Tensor, "*net teacher in"]) -> Float[Tensor, "*net"]:
    """Largest rate η₀ of theorem 4, O(1/(r w_max)): one over the largest eigenvalue of the Hessian at zero loss.

    In a solution the students of a teacher node are parallel to it, and their squared lengths add up to its length. The
    Hessian E[∇f ∇fᵀ] then has the same nonzero eigenvalues in all solutions, for any number of students: those of the
    blocks √‖w*_i‖ (I + w̄*_i w̄*_iᵀ) M_ij (I + w̄*_j w̄*_jᵀ) √‖w*_j‖, M of eq. 4. None is above 4 Σ ‖w*_i‖, so that
    η₀ ≥ 1/(4 Σ ‖w*_i‖). Near a solution the loss decreases in every step at rates up to 2η₀, and grows beyond.
    """
    directions, lengths = units(teachers)
    size = teachers.shape[-1]
    stretch = torch.eye(size).to(teachers) + directions.unsqueeze(-1) * directions.unsqueeze(-2)
    stretch = lengths.sqrt()[..., None, None] * stretch
    moments = gaussian.gram_of_signs(teachers).unflatten(-1, (-1, size)).unflatten(-3, (-1, size))
    hessian = torch.einsum("...iab,...ibjc,...jcd->...iajd", stretch, moments, stretch)
    return 1 / torch.linalg.eigvalsh(hessian.flatten(-2).flatten(-3, -2))[..., -1]


def _validate(rate: float | Tensor, steps: int, probes: Sequence[int], first: int) -> None:
    rates = torch.as_tensor(rate)
    if not bool((rates > 0).all()) or not bool(rates.isfinite().all()):
        raise UserError(f"rate must be positive and finite, got {rate}")
    if steps < 0 or first < 0:
        raise UserError(f"steps and first must be at least 0, got {steps} steps from step {first}")
    if list(probes) != sorted(probes) or any(not 0 <= probe <= steps for probe in probes):
        raise UserError(f"probes must be ascending steps from 0 to {steps}, got {list(probes)}")
