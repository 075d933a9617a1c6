"""Convergence of lucky students and vanishing fan-outs of the others: constants of Tian et al. 2019, theorem 5.

The first m of n students, [u], start near the teacher's nodes, the others, [r], anywhere. The reference of a student is
its teacher node in [u], and its own start in [r].

`printed_constants` solves eqs. 41 to 54 as printed, except that the ≥ of eqs. 41 and 42 is read as ≤, and K_d appears
once in eqs. 43 and 48. These constants are not sufficient: the proof assumes that the forces of [r] on W_u (eq. 66) and
of δw on V_u (eq. 61) decrease with the terms to which they are added, and omits v* − v from Δp̃ and K_l δw from Δq
(eqs. 30, 57, 64). By them, fan-outs that start at their teachers' values would have to stay there, which they do not.

`certified_rate` includes the missing terms. It bounds sin θ_j by S ρ^t, ‖δv_j‖ by D ρ^t and ‖v_j‖ of [r] by B ρ^t with
ρ = 1 − ηλ, for levels S, D, B of at least the initial values.
"""

import itertools
from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from understudy.nets import Population
from understudy.papers.luck.theory.near_students import PathBounds, order_by_teacher, shared_hypotheses
from understudy.papers.luck.theory.overlap import (
    Lipschitz,
    Overlaps,
    angles,
    append_constant,
    empirical,
    extended_weights,
    gaussian,
    lipschitz,
    over_steps,
    small_overlap,
)
from understudy.papers.luck.theory.simulation import Trajectory, expected_dynamics, with_weights
from understudy.theory.result import Finding, Hypothesis, result

_ROUNDS = 200
_SETTLED = 1e-10
_LEVELS = tuple(2.0**k for k in range(0, 13, 2))
"""Ratios of the levels S, D, B to the initial values that are tried."""
_LEAST = 1e-6
"""Smallest level, for quantities that start at 0."""


class InitialConditions(NamedTuple):
    """The quantities that determine the constants of theorem 5, one number per network."""

    theta: Float[Tensor, "net"]
    """θ_0, the largest angle between a student of [u] and its teacher node."""
    delta_v: Float[Tensor, "net"]
    """The largest ‖v_j − v*_j‖ of [u]."""
    v_r: Float[Tensor, "net"]
    """The largest ‖v_j‖ of [r]."""
    v_least: Float[Tensor, "net"]
    """The smallest ‖v*_j‖."""
    v_most: Float[Tensor, "net"]
    """The largest ‖v*_j‖."""
    eps_d: Float[Tensor, "net"]
    eps_l: Float[Tensor, "net"]
    d_u: Float[Tensor, "net"]
    """The smallest d**_jj of teacher nodes."""
    l_u: Float[Tensor, "net"]
    """The smallest l_jj of references of [u]."""
    l_r: Float[Tensor, "net"]
    """The smallest l_jj of references of [r]."""
    d_most: Float[Tensor, "net"]
    """The largest d_jj of any reference."""
    l_most: Float[Tensor, "net"]
    """The largest l_jj of any reference."""


def references(teacher: Population, student: Population) -> Float[Tensor, "net node in"]:
    """References of all students: teacher nodes, followed by the students of [r] at their start."""
    theirs, ours = extended_weights(teacher.layers[0]), extended_weights(student.layers[0])
    return torch.cat((theirs, ours[:, theirs.shape[1] :]), dim=1)


def initial_conditions(teacher: Population, student: Population, overlaps: Overlaps) -> InitialConditions:
    """Measure students with n > m nodes, of which the first m are near the teacher's, in the same order."""
    m, refs = teacher.sizes[1], references(teacher, student)
    ours, theirs = student.layers[1].weight, teacher.layers[1].weight
    found = overlaps(refs, refs)
    d, l = (psi.diagonal(dim1=1, dim2=2) for psi in found)  # noqa: E741
    eps_d, eps_l = small_overlap(refs, overlaps)
    lengths = theirs.norm(dim=1)
    return InitialConditions(
        angles(extended_weights(teacher.layers[0]), extended_weights(student.layers[0])[:, :m]).amax(1),
        (ours[:, :, :m] - theirs).norm(dim=1).amax(1),
        ours[:, :, m:].norm(dim=1).amax(1),
        lengths.amin(1),
        lengths.amax(1),
        eps_d,
        eps_l,
        d[:, :m].amin(1),
        l[:, :m].amin(1),
        l[:, m:].amin(1),
        d.amax(1),
        l.amax(1),
    )


def distances(teacher: Population, path: Trajectory) -> Float[Tensor, "net step 3"]:
    """Quantities bounded by theorem 5, at every step: the largest sin θ_j and ‖v_j − v*_j‖ of [u], and ‖v_j‖ of [r]."""
    theirs, tops = extended_weights(teacher.layers[0]).to(path.w), teacher.layers[1].weight.to(path.v)
    m = theirs.shape[1]
    sine = angles(theirs.unsqueeze(1), path.w[:, :, :m]).sin().amax(2)
    missed = (path.v[..., :m] - tops.unsqueeze(1)).norm(dim=2).amax(2)
    return torch.stack((sine, missed, path.v[..., m:].norm(dim=2).amax(2)), dim=-1)


def theorem_5_bounds(teacher: Population, path: Trajectory, lr: float, as_printed: bool = False) -> PathBounds:
    """Compare `distances` with the bounds of theorem 5 for N(0, I) inputs, with K and κ of the whole trajectory.

    With `as_printed` the constants are those of eqs. 41 to 54, with the initial values as levels, otherwise those of
    `certified_rate`.
    """
    m, n = teacher.sizes[1], path.w.shape[2]
    first = with_weights(teacher, path.w[:, 0], path.v[:, 0])
    refs, start = references(teacher, first), initial_conditions(teacher, first, gaussian)
    k = over_steps(lipschitz(refs.unsqueeze(1), path.w, gaussian))
    measured = distances(teacher, path)
    constants = {"theta_0": start.theta, "k_d": k.k_d, "k_l": k.k_l, "eps_d": start.eps_d, "eps_l": start.eps_l}
    if as_printed:
        gamma, _, found = printed_constants(start, k, lr, m, n)
        constants |= {"kappa": k.kappa, "rate": found.rate, "gamma": gamma}
    else:
        found = certified_rate(start, k, lr, m, n)
        constants |= {"kappa": k.kappa, "rate": found.rate}
    return PathBounds(measured, found.bounds(lr, path.w.shape[1] - 1), found.solved, constants)


class DecayRate(NamedTuple):
    """A rate λ, and the levels at which the bounds of theorem 5 start."""

    rate: Float[Tensor, "net"]
    """λ."""
    drift: Float[Tensor, "net"]
    """Bound on the total movement of the students of [r]."""
    s: Float[Tensor, "net"]
    """Level S of sin θ_j."""
    d: Float[Tensor, "net"]
    """Level D of ‖δv_j‖."""
    b: Float[Tensor, "net"]
    """Level B of ‖v_j‖ of [r]."""
    solved: Bool[Tensor, "net"]
    """Whether there is such a rate."""

    def bounds(self, lr: float, steps: int) -> Float[Tensor, "net step 3"]:
        """Bounds on `distances` at every step, including the start; infinite if there is no rate."""
        shrunk = (1 - lr * self.rate).unsqueeze(1) ** torch.arange(steps + 1, dtype=self.rate.dtype)
        levels = torch.stack((self.s, self.d, self.b), dim=-1)
        return torch.where(self.solved[:, None, None], levels.unsqueeze(1) * shrunk.unsqueeze(2), torch.inf)


def printed_constants(
    start: InitialConditions, k: Lipschitz, lr: float, m: int, n: int
) -> tuple[Float[Tensor, "net"], Float[Tensor, "net"], DecayRate]:
    """Solve Tian et al. 2019, eqs. 41 to 54 by iteration from C_{d,r} = 0, which increases to the smallest solution.

    Returns:
        γ (below 0 where there is no solution), λ̄, and the rate γλ̄ with the drift C_{d,r} and the initial levels.
    """
    half = start.theta / 2
    b_v, b_delta = torch.maximum(start.v_most, start.v_r), start.delta_v
    # With biases C_0 of lemma 4 is unbounded, but the first-order constant κ is not.
    kappa = torch.minimum(2 * k.c_0 * half.sin(), k.kappa) * (1 + b_delta)
    c_u = [2 * each * half.sin() for each in (k.k_d, k.k_l)]

    def iterate(drift: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        largest, lows = [], []
        for k_i, c, least in zip((k.k_d, k.k_l), c_u, (start.d_u, start.l_u), strict=True):
            c_r = k_i * drift
            near, far = (1 + k_i) * (1 + c), (1 + k_i) * (1 + c_r)
            b_u = (m - 1) * near * (1 + c) / half.cos() + (n - m) * near * (1 + c_r)
            b_r = (m - 1) * far * (1 + c) / half.cos() + (n - m) * far * (1 + c_r)
            largest.append((torch.maximum(b_u, b_r), b_r))
            lows.append((1 - torch.maximum(c, c_r)) * least)
        gamma = torch.minimum(
            (b_v - b_delta) * start.theta.cos() - start.eps_d * (b_v + b_delta) * largest[0][0],
            1 - start.eps_l * largest[1][0] - kappa,
        )
        low = torch.minimum(*lows)
        rate = low * gamma
        push = start.eps_d * largest[0][1] * (b_v + b_delta) * b_v
        return gamma, low, torch.where((gamma > 0) & (low > 0), push / (rate * (2 - lr * rate)), torch.inf)

    gamma, low, drift, solved = _fixed_point(iterate, start.theta)
    return gamma, low, DecayRate(gamma * low, k.k_d * drift, start.theta.sin(), b_delta, b_v, solved)


def certified_rate(start: InitialConditions, k: Lipschitz, lr: float, m: int, n: int) -> DecayRate:
    """Find the largest λ over levels of 1, 4, 16, … times the initial values, each solved by iteration."""
    floor = (each.clamp_min(_LEAST) for each in (start.theta.sin(), start.delta_v, start.v_r))
    factors = torch.tensor(list(itertools.product(_LEVELS, repeat=3)), dtype=start.theta.dtype).T.unsqueeze(2)
    s, d, b = (factor * least for factor, least in zip(factors, floor, strict=True))
    theta = s.clamp_max(1.0).asin()
    cos, reach = (theta / 2).cos(), 2 * (theta / 2).sin()
    v, turned = start.v_most + d, s / (theta / 2).cos()
    # Effect of a node of [u] on the direction and the fan-out of others, in units of their overlap with it.
    pushed = (1 + k.k_d) * turned * v + d
    changed = k.k_l * turned * v + d

    def iterate(drift: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """λ for an assumed drift of [r], the room for larger steps, and the drift of [r] that follows from λ."""
        u_d, u_l, r_d, r_l = (1 + k_i * far for far in (reach, drift) for k_i in (k.k_d, k.k_l))
        least = start.v_least * (start.v_least - d)
        bottom = least * theta.cos() - start.eps_d * u_d**2 * v * ((m - 1) * pushed + (n - m) * r_d * b) / s
        top = 1 - k.kappa * turned * v / d - start.eps_l * u_l**2 * ((m - 1) * changed + (n - m) * r_l * b) / d
        rest = 1 - start.eps_l * r_l**3 * (m * changed / b + (n - m - 1) * r_l)
        rate = torch.stack((start.d_u / u_d * bottom, start.l_u / u_l * top, start.l_r / r_l**2 * rest)).amin(0)
        # A step must not overshoot: η d*_jj v_j·v*_j ≤ 1, η l*_jj ≤ 1 and η l_jj ≤ 1.
        longest = torch.maximum(start.d_most * start.v_most * v, start.l_most * torch.maximum(u_l, r_l**2))
        room = torch.where((d < start.v_least) & (cos > 0), 1 - lr * longest, -1.0)
        pull = start.d_most * start.eps_d * r_d * b * (m * pushed + (n - m - 1) * r_d * b)
        return rate, room, torch.where((rate > 0) & (room >= 0), pull / (rate * (2 - lr * rate)), torch.inf)

    rate, _, drift, solved = _fixed_point(iterate, s)
    solved &= s < 1
    found = DecayRate(torch.where(solved, rate, -torch.inf), drift, s, d, b, solved)
    best = found.rate.argmax(0, keepdim=True)
    return DecayRate(*(each.gather(0, best).squeeze(0) for each in found))


def _fixed_point(
    iterate: Callable[[Tensor], tuple[Tensor, Tensor, Tensor]], like: Tensor
) -> tuple[Tensor, Tensor, Tensor, Bool[Tensor, "..."]]:
    """Iterate from drift 0 to a fixed point, which is the smallest because the drift only increases."""
    drift = torch.zeros_like(like)
    first, second, after = iterate(drift)
    for _ in range(_ROUNDS):
        if bool((~after.isfinite() | (after - drift <= _SETTLED * after)).all()):
            break
        drift = torch.where(after.isfinite(), after, drift)
        rate, room, then = iterate(drift)
        # Where the iteration diverges, the last finite values are more informative.
        alive = then.isfinite()
        first, second = torch.where(alive, rate, first), torch.where(alive, room, second)
        after = torch.where(after.isfinite(), then, after)
    return first, second, after, after.isfinite() & (after - drift <= _SETTLED * after)


@result(
    "S2 theorem 5",
    title="Lucky students converge, and the fan-outs of the others vanish",
    statement="Where all nodes are rarely active together, students that start near teacher nodes converge to them "
    "with their fan-outs, and the fan-outs of all others go to zero, at a rate of at least 1 − ηλ.",
    measured="the constants of eqs. 41 to 54 with their missing terms added, and angles and fan-outs after the next "
    "step of the expected dynamics",
    subject="dynamics",
    networks="two layers",
    slopes="ReLU",
)
def lucky_students(teacher: Population, student: Population, x: Float[Tensor, "sample in"]) -> list[Finding]:
    """Check theorem 5 on the pair at its current weights, for the next step, with the constants of `certified_rate`."""
    m, n = teacher.sizes[1], student.sizes[1]
    student = order_by_teacher(teacher, student)
    top = teacher.layers[1].bias is None and student.layers[1].bias is None
    hypotheses = [
        *shared_hypotheses(teacher, student, x),
        Hypothesis("output biases", "none" if top else "some", "none", top, "remove them: the dynamics has none"),
        Hypothesis("students", f"{n} for {m} teacher nodes", "more than teacher nodes", n > m, "add student nodes"),
    ]
    if n <= m or not all(h.holds for h in hypotheses[:2]):
        return [Finding("S2 theorem 5", "the pair", tuple(hypotheses), "no conclusion", "not measured")]
    overlaps = empirical(append_constant(teacher, x))
    start = initial_conditions(teacher, student, overlaps)
    refs, now = references(teacher, student), extended_weights(student.layers[0])
    k, lr = lipschitz(refs, now, overlaps), 1e-3
    (gamma, _, paper), found = printed_constants(start, k, lr, m, n), certified_rate(start, k, lr, m, n)
    hypotheses.append(
        Hypothesis(
            "a rate λ above 0 (eqs. 41 to 54 with the missing terms)",
            (f"{float(found.rate):.3g}" if found.solved else "none exists")
            + f", with θ_0 = {float(start.theta.rad2deg()):.3g}°, ε_d = {float(start.eps_d):.3g}, "
            f"ε_l = {float(start.eps_l):.3g}, K_d = {float(k.k_d):.3g}, K_l = {float(k.k_l):.3g}; as printed "
            + (f"γλ̄ = {float(paper.rate):.3g}" if paper.solved else f"γ = {float(gamma):.3g}"),
            "above 0",
            bool(found.solved),
            "nodes that are active together on fewer inputs, fewer students, or students that start nearer",
        )
    )
    if not found.solved:
        return [Finding("S2 theorem 5", "the pair", tuple(hypotheses), "no conclusion", "not measured")]
    path = expected_dynamics(teacher, student, lr=lr, steps=1, top_down=True, overlaps=overlaps)
    after = distances(teacher, path)[0, 1].tolist()
    bound = found.bounds(lr, 1)[0, 1].tolist()
    names = ("the largest sin θ_j", "‖v_j − v*_j‖ of students near teachers", "‖v_j‖ of the others")
    return [
        Finding(
            "S2 theorem 5",
            "the pair",
            tuple(hypotheses),
            f"{', '.join(names)} stay below {found.s.item():.3g}, {found.d.item():.3g}, {found.b.item():.3g} times "
            f"(1 − {float(found.rate):.3g} η)^t, as long as the constants hold along the trajectory",
            ", ".join(f"{name}: {value:.3g}" for name, value in zip(names, after, strict=True)) + f" after η = {lr:g}",
            all(value <= limit * (1 + 1e-12) for value, limit in zip(after, bound, strict=True)),
        )
    ]
