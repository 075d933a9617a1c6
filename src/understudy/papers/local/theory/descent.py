"""Gradient descent and gradient flow on the exact loss of S4, from given students (theorems 4 and 6)."""

import math
from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from understudy._random import Stream, normal, words
from understudy.errors import UserError
from understudy.papers.local.theory.gaussian.closed_forms import gradient as exact_gradient
from understudy.papers.local.theory.gaussian.closed_forms import gram_of_signs
from understudy.papers.local.theory.gaussian.pairs import same_inputs, units

_NUMBERS = 1 << 21
"""Inputs times samples of a mini-batch that are looked at together."""
_RELATIVE, _ABSOLUTE = 1e-10, 1e-13
"""Errors that a step of gradient flow may make."""


def descend(
    students: Float[Tensor, "net student in"],
    teachers: Float[Tensor, "#net teacher in"],
    rate: float | Float[Tensor, "net"],
    steps: int,
    looks: Sequence[int],
    *,
    batch: int | None = None,
    seeds: Sequence[int] | None = None,
    first: int = 0,
) -> Float[Tensor, "look net student in"]:
    """The students after as many steps W ← W − η ∇L as each of `looks` says, of `steps` in all.

    With `batch`, every step has that many samples of its own, drawn by `seeds`, one a network, and by the number of the
    step, counted from `first`: so that k steps, and k more from `first` = k, are 2k steps bit for bit. Their loss is
    ½ mean R², as in eq. 1; sec 3.4 leaves the ½ out. A network whose weights stop being finite is NaN from there on.
    """
    same_inputs(students, teachers)
    _check(rate, steps, looks, first)
    if batch is not None and (batch < 1 or seeds is None or len(seeds) != len(students)):
        raise UserError(
            f"mini-batches of {batch} samples for {len(students)} networks and {0 if seeds is None else len(seeds)} "
            "seeds: allowed is 1 sample or more, with a seed for every network"
        )
    rates = torch.as_tensor(rate, dtype=students.dtype, device=students.device).reshape(-1, 1, 1)
    now, step, kept = students.detach(), 0, []
    for look in looks:
        while step < look:
            if batch is None or seeds is None:
                gradient = exact_gradient(now, teachers)
            else:
                gradient = sampled_gradient(now, teachers, batch, seeds, first + step)
            now, step = _moved(now, rates, gradient), step + 1
        kept.append(now)
    # What is not finite stays so, entry by entry: one such entry says that its network has gone.
    return _known(kept) if kept else students.new_empty(0, *students.shape)


def _known(kept: Sequence[Tensor]) -> Tensor:
    """NaN where a network has gone. By numpy on a processor, as `_moved`."""
    if kept[0].device.type != "cpu":
        found = torch.stack(list(kept))
        return torch.where(found.isfinite().all(-1).all(-1)[..., None, None], found, torch.nan)
    every = np.stack([students.numpy() for students in kept])
    every[~np.isfinite(every).all((-2, -1))] = np.nan
    return torch.from_numpy(every)


def _moved(now: Tensor, rates: Tensor, gradient: Tensor) -> Tensor:
    """now − rates · gradient. By numpy on a processor: torch would share this little out over threads, and wait for
    them while those of the gradient still hold the cores."""
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
    """The gradient of ½ mean R² over `batch` standard normal samples of each network's own: ∇L in expectation.

    On a processor a network has the same bits in any company; a card draws and multiplies those of all together.
    """
    rows = max(1, _NUMBERS // students.shape[-1])
    parts = -(-batch // rows)
    every = teachers.expand(len(students), *teachers.shape[1:])
    gradient = torch.zeros_like(students)
    for part in range(parts):
        count = min(rows, batch - part * rows)
        if students.device.type != "cpu":
            gradient += _pulls(students, every, samples_of_all(seeds, step * parts + part, count, students))
            continue
        drawn = {seed: _samples(seed, step * parts + part, count, students) for seed in set(seeds)}
        for pulls, ours, theirs, seed in zip(gradient, students, every, seeds, strict=True):
            pulls += _pulls(ours, theirs, drawn[seed])
    directions, lengths = units(students)
    along = (gradient * directions).sum(-1, keepdim=True)
    return lengths.unsqueeze(-1) * (gradient + along * directions) / batch


def _samples(seed: int, step: int, count: int, like: Tensor) -> Float[Tensor, "sample in"]:
    size = like.shape[-1]
    return normal(seed, Stream.TRAIN, step, count * size).view(count, size)


def samples_of_all(
    seeds: Sequence[int], step: int, count: int, like: Float[Tensor, "net student in"]
) -> Float[Tensor, "net sample in"]:
    """Those of every seed at once, where `like` is: what `normal` gives each, but for rounding."""
    size, device = like.shape[-1], str(like.device)
    each = 2 * (-(-count * size // 2))
    bits = words(torch.tensor(list(seeds), device=device), Stream.TRAIN, step, each, device)
    u = (bits.double() + 0.5) / 2.0**32
    radius, angle = (-2.0 * u[..., 0::2].log()).sqrt(), 2.0 * math.pi * u[..., 1::2]
    drawn = torch.stack([radius * angle.cos(), radius * angle.sin()], -1).flatten(-2)
    return drawn[..., : count * size].unflatten(-1, (count, size))


def _pulls(
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


def flow(
    students: Float[Tensor, "net student in"], teachers: Float[Tensor, "#net teacher in"], times: Sequence[float]
) -> Float[Tensor, "look net student in"]:
    """The students at each of `times` along Ẇ = −∇L: descent in the limit of small rates, steps times rate the time."""
    from scipy.integrate import solve_ivp

    same_inputs(students, teachers)
    until = np.asarray(times, dtype=float)
    if not np.isfinite(until).all() or (until < 0).any() or (np.diff(until) < 0).any():
        raise UserError(f"times must be finite, from 0 on and in order, got {list(times)}")
    shape = students.shape[1:]
    every = teachers.expand(len(students), *teachers.shape[1:])
    found = np.full((len(until), *students.shape), np.nan)
    for i, (start, target) in enumerate(zip(students.detach().cpu(), every.cpu(), strict=True)):

        def downhill(_: float, w: np.ndarray, target: Tensor = target) -> np.ndarray:
            return -exact_gradient(torch.from_numpy(w.reshape(shape)), target).numpy().ravel()

        found[until == 0, i] = start.numpy()
        ahead = until[until > 0]
        if not len(ahead):
            continue
        # Stiff where neurons that are nearly right turn slowly and their sum does not: this changes method by itself.
        solved = solve_ivp(
            downhill, (0, ahead[-1]), start.numpy().ravel(), "LSODA", ahead, rtol=_RELATIVE, atol=_ABSOLUTE
        )
        found[len(until) - len(ahead) :, i][: len(solved.t)] = solved.y.T.reshape(-1, *shape)
    return torch.from_numpy(found).to(students.device)


def rate_bound(teachers: Float[Tensor, "*net teacher in"]) -> Float[Tensor, "*net"]:
    """η₀ of S4 theorem 4, there O(1/(r w_max)): one over the largest eigenvalue of the Hessian where the loss is zero.

    In a solution the students of a teacher node point its way, with squares of lengths that add up to its length. The
    Hessian, E[∇f ∇fᵀ], then has the same eigenvalues above zero in all solutions, with any number of students: those of
    the blocks √‖w*_i‖ (I + w̄*_i w̄*_iᵀ) M_ij (I + w̄*_j w̄*_jᵀ) √‖w*_j‖, M of eq. 4. None is above 4 Σ ‖w*_i‖, so that
    η₀ ≥ 1/(4 Σ ‖w*_i‖). Near a solution the loss falls in every step of a rate up to twice this; beyond, it grows.
    """
    directions, lengths = units(teachers)
    size = teachers.shape[-1]
    stretch = torch.eye(size).to(teachers) + directions.unsqueeze(-1) * directions.unsqueeze(-2)
    stretch = lengths.sqrt()[..., None, None] * stretch
    moments = gram_of_signs(teachers).unflatten(-1, (-1, size)).unflatten(-3, (-1, size))
    hessian = torch.einsum("...iab,...ibjc,...jcd->...iajd", stretch, moments, stretch)
    return 1 / torch.linalg.eigvalsh(hessian.flatten(-2).flatten(-3, -2))[..., -1]


def _check(rate: float | Tensor, steps: int, looks: Sequence[int], first: int) -> None:
    rates = torch.as_tensor(rate)
    if not bool((rates > 0).all()) or not bool(rates.isfinite().all()):
        raise UserError(f"rate {rate} was given; allowed is a finite number above 0")
    if steps < 0 or first < 0:
        raise UserError(f"{steps} steps from step {first} were asked for; allowed are whole numbers from 0")
    if list(looks) != sorted(looks) or any(not 0 <= look <= steps for look in looks):
        raise UserError(f"looks must be in order and from 0 to the {steps} steps, got {list(looks)}")
