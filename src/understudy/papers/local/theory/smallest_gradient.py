"""Search for the students of small loss whose gradient is smallest (Zhou, Ge & Jin 2021, theorem 3).

The theorem bounds ‖∇L‖/L from below for all students whose loss is at most a threshold, not only for those that a
descent passes through. Descents follow steep paths; here ‖∇L‖/L itself is minimised over all students below a level of
the loss, by sequential quadratic programming from several starts. What is found is an upper bound on the least value.
"""

import math
from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from understudy._errors import UserError
from understudy.papers.local.theory import gaussian, starts
from understudy.papers.local.theory.descent import descend, rate_bound
from understudy.papers.local.theory.geometry import LEMMA_8_CONSTANT, least_angle

_DIFFERENCE = 1e-5
"""Step of the differences that give the product of the Hessian and ∇L, relative to the length of all weights."""
_ITERATIONS, _TOLERANCE = 200, 1e-9
"""Largest number of iterations of a search, and the change of log ‖∇L‖/L at which it ends."""
_ANGLE, _SCALE = 0.4, 0.3
"""Starts near teacher nodes, as a share of their least angle, and standard deviation of small initial weights."""
_STEPS = 10_000
"""Steps of descent within which small initial weights must reach the level; a start that does not is left out."""
_SLACK = 1e-9
"""Relative excess over the level of the loss that counts as rounding."""


def threshold(teachers: Float[Tensor, "*net teacher in"]) -> Float[Tensor, "*net"]:
    """Loss (Δ / (4 r w_max))³ w_min⁵, at which the angle of lemma 8, with its constant taken as 4, is Δ.

    It is polynomial in Δ, 1/r, 1/w_max and w_min, as theorem 3 requires; the constant is ours.
    """
    lengths = torch.linalg.vector_norm(teachers, dim=-1)
    angle = least_angle(teachers) / (LEMMA_8_CONSTANT * teachers.shape[-2] * lengths.amax(-1))
    return angle**3 * lengths.amin(-1) ** 5


def smallest_gradient(
    teachers: Float[Tensor, "net teacher in"],
    students: int,
    levels: Float[Tensor, "net"],
    seeds: Sequence[int],
    attempts: int = 4,
) -> Float[Tensor, "net student in"]:
    """Search for students of a loss of at most `levels` at which ‖∇L‖/L is smallest.

    Half of the attempts start near the teacher's nodes, at an angle that is halved until the loss is below the level;
    the others from small normal weights, followed downhill until it is.

    Args:
        teachers: teacher nodes, in float64.
        students: number of students per network, at least as many as teacher nodes.
        levels: largest loss of each network.
        seeds: one seed per network.
        attempts: number of starts.

    Returns:
        For each network the best students that were found.

    Raises:
        UserError: an argument is out of range, or the nodes are not float64 vectors of the same dimension.
    """
    if attempts < 1:
        raise UserError(f"the number of attempts must be at least 1, got {attempts}")
    if not bool((levels > 0).all()):
        raise UserError(f"levels of the loss must be above 0, got {levels.tolist()}")
    teachers = teachers.cpu()
    found = torch.empty(len(seeds), students, teachers.shape[-1], dtype=teachers.dtype)
    for i, seed in enumerate(seeds):
        theirs, level = teachers[i : i + 1], float(levels[i])
        begun = [_start(theirs, students, level, attempts * seed + k, near=k % 2 == 0) for k in range(attempts)]
        ends = [_minimise(start.numpy(), theirs, level) for start in begun if start is not None]
        found[i] = torch.from_numpy(min(ends, key=lambda end: end[0])[1])
    return found


def _start(
    teachers: Float[Tensor, "1 teacher in"], students: int, level: float, seed: int, near: bool
) -> Float[Tensor, "student in"] | None:
    """Students of a loss of at most the level, or None if descent does not reach it."""
    if near:
        angle = _ANGLE * float(least_angle(teachers))
        while float(gaussian.loss(placed := starts.place_near(teachers, students, angle, [seed])[0], teachers)) > level:
            angle /= 2
        return placed[0]
    drawn = starts.draw_normal(teachers, students, _SCALE, [seed]).students
    rate = starts.stable_rate(float(rate_bound(teachers)), drawn, teachers)
    probes = np.unique(np.geomspace(1, _STEPS, 60).round().astype(int)).tolist()
    path = descend(drawn, teachers, rate, _STEPS, probes)[:, 0]
    below = (gaussian.loss(path, teachers) <= level).nonzero()
    return path[int(below[0])] if len(below) else None


def _minimise(start: np.ndarray, teachers: Float[Tensor, "1 teacher in"], level: float) -> tuple[float, np.ndarray]:
    """The least ‖∇L‖/L that the search meets at a loss of at most the level, and the students there."""
    from scipy.optimize import minimize

    best = math.inf, start

    def loss_and_gradient(w: np.ndarray) -> tuple[float, np.ndarray]:
        loss, gradient = gaussian.loss_and_gradient(torch.from_numpy(w.reshape(1, *start.shape)), teachers)
        return float(loss), gradient.numpy().ravel()

    def objective(w: np.ndarray) -> tuple[float, np.ndarray]:
        """log ‖∇L‖/L and its gradient, H u / ‖∇L‖ − ∇L / L with u = ∇L / ‖∇L‖ and the Hessian H."""
        nonlocal best
        loss, gradient = loss_and_gradient(w)
        norm = float(np.linalg.norm(gradient))
        if not loss > 0:  # a solution
            return math.inf, np.zeros_like(w)
        if loss <= level * (1 + _SLACK) and norm / loss < best[0]:
            best = norm / loss, w.reshape(start.shape).copy()
        if not norm > 0:  # a stationary point, which ends the search
            return -math.inf, np.zeros_like(w)
        step = _DIFFERENCE * float(np.linalg.norm(w)) / norm * gradient
        ahead, behind = (loss_and_gradient(w + sign * step)[1] for sign in (1, -1))
        curved = (ahead - behind) / (2 * float(np.linalg.norm(step)))
        return math.log(norm / loss), curved / norm - gradient / loss

    def room(w: np.ndarray) -> float:
        return math.log(level / max(loss_and_gradient(w)[0], np.finfo(float).tiny))

    def room_slope(w: np.ndarray) -> np.ndarray:
        loss, gradient = loss_and_gradient(w)
        return -gradient / max(loss, np.finfo(float).tiny)

    bound = {"type": "ineq", "fun": room, "jac": room_slope}
    options = {"maxiter": _ITERATIONS, "ftol": _TOLERANCE}
    minimize(objective, start.ravel(), jac=True, constraints=[bound], method="SLSQP", options=options)
    return best
