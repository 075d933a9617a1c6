"""Convergence of students that start near their teachers (Tian et al. 2019, theorem 4)."""

import math
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from understudy.nets import Population, with_nodes
from understudy.papers.luck.theory.overlap import (
    Nodes,
    Overlap,
    angles,
    append_constant,
    empirical,
    extended_weights,
    gaussian,
    lipschitz,
    over_steps,
    small_overlap,
)
from understudy.theory.result import Finding, Hypothesis, above, result

_EXACT = 1e-6
"""Tolerance of hypotheses that require equality."""


class ConvergenceRate(NamedTuple):
    """Constants of Tian et al. 2019, theorem 4: if γ > 0, sin θ_j decreases at least as (1 − η d̄ γ)^t."""

    gamma: Float[Tensor, "*net"]
    m_d: Float[Tensor, "*net"]
    d_bar: Float[Tensor, "*net"]
    rate: Float[Tensor, "*net"]
    """d̄γ, the rate per unit of learning rate."""


def theorem_4_rate(theta: Tensor, k_d: Tensor, eps_d: Tensor, least: Tensor, nodes: int) -> ConvergenceRate:
    """Compute γ, M_d (Tian et al. 2019, eq. 39) and d̄ for students within θ_0 of their teachers.

    `least` is min_j d*_jj at the start. The paper prints d̄ = [1 + 2K_d sin(θ_0/2)] min d*_jj, which is an upper bound.
    For d*_jj ≥ d̄ at every step the sign must be minus, as in eq. 43: by assumption 2
    d*_jj ≥ d**_jj / (1 + 2K_d sin(θ_0/2)), and d**_jj is at least as large as any d*_jj.
    """
    reach = 2 * k_d * (theta / 2).sin()
    m_d = (1 + k_d) * (1 + reach) ** 2 / (theta / 2).cos()
    gamma, d_bar = theta.cos() - (nodes - 1) * eps_d * m_d, (1 - reach) * least
    return ConvergenceRate(gamma, m_d, d_bar, d_bar * gamma)


class PathBounds(NamedTuple):
    """The quantities that a theorem bounds, and its bounds, at every step of a trajectory."""

    measured: Float[Tensor, "net step quantity"]
    bound: Float[Tensor, "net step quantity"]
    """Infinite where the conditions of the theorem do not hold."""
    in_force: Bool[Tensor, "net"]
    """Whether the conditions of the theorem hold."""
    constants: dict[str, Float[Tensor, "net"]]


def theorem_4_bounds(references: Nodes, w: Float[Tensor, "net step node in"], lr: float) -> PathBounds:
    """Compare the largest sin θ_j with its bound (1 − η d̄ γ)^t sin θ_0, for N(0, I) inputs.

    K_d is that of the whole trajectory. The theorem is in force if γ > 0, d̄ > 0 and no step overshoots, η d*_jj ≤ 1,
    which the proof assumes implicitly.
    """
    refs = references.unsqueeze(1)
    theta, k = angles(refs, w).amax(2), over_steps(lipschitz(refs, w, gaussian))
    start = gaussian(w[:, 0], references).d.diagonal(dim1=1, dim2=2)
    eps_d, _ = small_overlap(references, gaussian)
    rate = theorem_4_rate(theta[:, 0], k.k_d, eps_d, start.amin(1), w.shape[2])
    longest = gaussian(references, references).d.diagonal(dim1=1, dim2=2).amax(1)
    in_force = (rate.gamma > 0) & (rate.d_bar > 0) & (lr * longest <= 1)
    shrunk = (1 - lr * rate.rate).unsqueeze(1) ** torch.arange(w.shape[1], dtype=w.dtype)
    bound = torch.where(in_force.unsqueeze(1), theta[:, :1].sin() * shrunk, torch.inf)
    constants = {"theta_0": theta[:, 0], "k_d": k.k_d, "eps_d": eps_d, "gamma": rate.gamma, "rate": rate.rate}
    return PathBounds(theta.sin().unsqueeze(2), bound.unsqueeze(2), in_force, constants)


def projected_velocity(
    references: Float[Tensor, "*#net reference in"],
    now: Float[Tensor, "*#net node in"],
    overlap: Overlap,
    own: Overlap,
    beta_star: Float[Tensor, "*net node reference"] | float = 1.0,
    beta: Float[Tensor, "*net node node"] | float = 1.0,
) -> Float[Tensor, "*net node in"]:
    """Velocity ẇ_j = P⊥(W* h*_j − W h_j) of Tian et al. 2019, theorem 4.

    `overlap` is that of students with references, `own` that of students with each other. H* = β* ∘ D* and H = β ∘ D;
    by default the top-down signal is uniform, β* = β = 1.
    """
    force = (beta_star * overlap.d) @ references - (beta * own.d) @ now
    return force - (force * now).sum(-1, keepdim=True) * now


def order_by_teacher(teacher: Population, student: Population) -> Population:
    """Reorder student nodes: first the one matched to each teacher node by angle, then the others."""
    theirs, ours = (extended_weights(network.layers[0]) for network in (teacher, student))
    theta = angles(theirs.unsqueeze(2), ours.unsqueeze(1))[0]
    _, first = linear_sum_assignment(theta.cpu().numpy())
    others = np.setdiff1d(np.arange(student.sizes[1]), first)
    return with_nodes(student, [torch.from_numpy(np.concatenate((first, others))).unsqueeze(0)])


@result(
    "S2 theorem 4",
    title="Students near their teachers converge to them",
    statement="As many students as teacher nodes, each within an angle θ_0 of its own, converge to them at a rate of "
    "at least 1 − η d̄ γ where teacher nodes are rarely active together.",
    measured="θ_0, ε_d, K_d, d̄ and γ of the pair at its current weights, and the decrease of the largest angle in "
    "the next step of the projected dynamics",
    subject="dynamics",
    networks="two layers",
    slopes="ReLU",
)
def near_students(teacher: Population, student: Population, x: Float[Tensor, "sample in"]) -> list[Finding]:
    """Check theorem 4 on the pair at its current weights, for the next step."""
    m, n = teacher.sizes[1], student.sizes[1]
    student = order_by_teacher(teacher, student)
    references, now = extended_weights(teacher.layers[0])[0], extended_weights(student.layers[0])[0][:m]
    few, change = f"{n} for {m} teacher nodes", "theorem 5 is about more students than teacher nodes"
    hypotheses = [
        *shared_hypotheses(teacher, student, x),
        Hypothesis("students", few, "as many as teacher nodes", n == m, change),
    ]
    if n < m or not all(h.holds for h in hypotheses[:2]):
        return [Finding("S2 theorem 4", "the pair", tuple(hypotheses), "no conclusion", "not measured")]
    overlaps = empirical(append_constant(teacher, x))
    theta, least = angles(references, now), overlaps(now, references).d.diagonal().min()
    k_d, (eps_d, _) = lipschitz(references, now, overlaps).k_d, small_overlap(references, overlaps)
    rate, far = theorem_4_rate(theta.max(), k_d, eps_d, least, m), math.degrees(float(theta.max()))
    top, theirs = (p.layers[1].weight[0] for p in (student, teacher))
    off = float(torch.cat([(top.T @ theirs - 1).ravel(), (top.T @ top - 1).ravel()]).abs().max())
    hypotheses += [
        Hypothesis(
            "top-down signal",
            f"entries of β and β* differ from 1 by up to {off:.3g}",
            f"1, to {_EXACT:g}",
            off <= _EXACT,
            "give all hidden nodes of both networks the same fan-out, of length 1",
        ),
        above(
            "γ = cos θ_0 − (m − 1) ε_d M_d",
            float(rate.gamma),
            shown=f"{float(rate.gamma):.3g} with θ_0 = {far:.3g}°, ε_d = {float(eps_d):.3g}, K_d = {float(k_d):.3g}",
            change="teacher nodes that are active together on fewer inputs, or students that start nearer",
        ),
        above(
            "d̄ = [1 − 2K_d sin(θ_0/2)] min d*_jj",
            float(rate.d_bar),
            change="students that start nearer to their teacher nodes",
        ),
    ]
    lr = 1e-3
    moved = now + lr * projected_velocity(references, now, overlaps(now, references), overlaps(now, now))
    before, after = float(theta.sin().max()), float(angles(references, moved).sin().max())
    bound = (1 - lr * float(rate.rate)) * before
    return [
        Finding(
            "S2 theorem 4",
            "the pair",
            tuple(hypotheses),
            f"the largest sin θ_j is multiplied by at most 1 − {float(rate.rate):.3g} η in every step",
            f"a step of η = {lr:g} changes it from {before:.6g} to {after:.6g}; the bound is {bound:.6g}",
            after <= bound * (1 + 1e-12) + 1e-15,
        )
    ]


def shared_hypotheses(teacher: Population, student: Population, x: Tensor) -> list[Hypothesis]:
    """Hypotheses of both theorems 4 and 5: biases in both networks or neither, unit weights, whitened inputs."""
    biased = [p.layers[0].bias is not None for p in (teacher, student)]
    lengths = torch.cat([extended_weights(p.layers[0])[0].norm(dim=-1) for p in (teacher, student)])
    inputs = append_constant(teacher, x)
    moment = inputs.T @ inputs / len(inputs)
    off = float((moment - torch.eye(len(moment)).to(moment)).abs().max())
    far = float((lengths - 1).abs().max())
    both = "with biases" if all(biased) else "without biases" if not any(biased) else "one of them has biases"
    return [
        Hypothesis(
            "hidden layers",
            both,
            "biases in both or in neither",
            biased[0] == biased[1],
            "give both networks biases, which may be zero",
        ),
        Hypothesis(
            "lengths of [w, b]",
            f"within {far:.2g} of 1",
            f"1, to {_EXACT:g}",
            far <= _EXACT,
            "scale every hidden node's weights and bias to length 1, and its fan-out by the inverse",
        ),
        Hypothesis(
            "whitened inputs",
            f"E[x xᵀ] differs by {off:.2g}",
            f"the identity, to {_EXACT:g}",
            off <= _EXACT,
            "subtract the mean of x and multiply by the inverse root of its covariance",
        ),
    ]
