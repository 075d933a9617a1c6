"""Overlap of nodes, and convergence of students that start near their teachers (Tian et al. 2019, theorem 4).

A node is given by its extended weights [w, b], and inputs have a constant 1 appended. By eq. 7 of the paper, ψ_d is the
share of the inputs on which two nodes are both active, and ψ_l the mean product of their activations. The proofs (secs.
8.4, 8.5) compare students W with references R, the teacher's nodes: d*_jj' = ψ_d(w_j, r_j'), d_jj' = ψ_d(w_j, w_j'),
d**_jj' = ψ_d(r_j, r_j').
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from scipy.optimize import linear_sum_assignment
from scipy.special import ndtr, owens_t
from torch import Tensor

from understudy.nets import Layer, Population
from understudy.theory.result import Finding, Hypothesis, above, result

Nodes = Float[Tensor, "*#net node in"]
_STILL = 1e-9
"""Distance below which a node counts as not moved: a quotient by it would be dominated by rounding."""
_EXACT = 1e-6
"""Tolerance of hypotheses that require equality."""


class Overlap(NamedTuple):
    """ψ_d and ψ_l of every pair of nodes (Tian et al. 2019, eq. 7)."""

    d: Float[Tensor, "*net left right"]
    l: Float[Tensor, "*net left right"]  # noqa: E741


Overlaps = Callable[[Tensor, Tensor], Overlap]
"""Function of two sets of nodes that computes their overlap, for some distribution of inputs."""


def extended_weights(layer: Layer) -> Float[Tensor, "net node in"]:
    """Extended weights [w, b] of every node; w if there are no biases."""
    weight, bias = layer
    return weight if bias is None else torch.cat((weight, bias.unsqueeze(-1)), dim=-1)


def empirical(x: Float[Tensor, "sample in"]) -> Overlaps:
    """Overlap over given inputs, of the size of the extended weights."""

    def overlaps(left: Tensor, right: Tensor) -> Overlap:
        ours, theirs = (torch.einsum("...ni,si->...ns", nodes, x).clamp_min(0) for nodes in (left, right))
        gates = torch.einsum("...ns,...ms->...nm", (ours > 0).to(x), (theirs > 0).to(x))
        return Overlap(gates / len(x), torch.einsum("...ns,...ms->...nm", ours, theirs) / len(x))

    return overlaps


def gaussian(left: Float[Tensor, "*#net left in"], right: Float[Tensor, "*#net right in"]) -> Overlap:
    """Overlap for N(0, I) inputs in closed form, with any biases; accurate to about 1e−16.

    Without biases ψ_d and ψ_l are the arc-cosine kernels (π − θ)/2π and ‖w‖‖w'‖(sin θ + (π − θ) cos θ)/2π. With biases
    ψ_d is the probability that two correlated normals exceed their thresholds, by Owen's T function, and ψ_l their
    truncated second moment (Rosenbaum 1961).
    """
    (u, s, a), (v, t, b) = _standard(left), _standard(right)
    u, s, a = u.unsqueeze(-2), s.unsqueeze(-1), a.unsqueeze(-1)
    v, t, b = v.unsqueeze(-3), t.unsqueeze(-2), b.unsqueeze(-2)
    difference, total = (u - v).norm(dim=-1), (u + v).norm(dim=-1)
    # 1 − cos θ and sin θ without cancellation for nearly parallel weights.
    less, sine = difference.square() / 2, difference * total / 2
    a, b, less, sine = (each.numpy() for each in torch.broadcast_tensors(a, b, less, sine))
    rho = 1 - less
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        one, two = ((far - near + near * less) / sine for near, far in ((a, b), (b, a)))
        one, two = (
            np.nan_to_num(one, nan=0.0, posinf=np.inf, neginf=-np.inf),
            np.nan_to_num(two, nan=0.0, posinf=np.inf),
        )
        turns = owens_t(a, one / a) + owens_t(b, two / b)
    both = (ndtr(a) + ndtr(b)) / 2 - turns - np.where((a < 0) != (b < 0), 0.5, 0.0)
    # `both` is P(X > −a, Y > −b). The moments need the densities at the thresholds.
    density, other = (np.exp(-h * h / 2) / math.sqrt(2 * math.pi) for h in (a, b))
    near, far = density * ndtr(one), other * ndtr(two)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        square = np.where(sine > 0, (a - b) ** 2 / sine**2 + 2 * a * b * less / sine**2, np.inf)
    corner = sine * np.exp(-square / 2) / (2 * math.pi)
    product = (rho + a * b) * both + b * near + a * far + corner
    # E[XY] contains −ρ(a·near + b·far), E[X] near + ρ·far and E[Y] far + ρ·near: the terms in ρ cancel.
    return Overlap(torch.from_numpy(both), s * t * torch.from_numpy(product))


def _standard(nodes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Directions, lengths, and biases relative to lengths; a bias of 0 becomes tiny, where Owen's T has its limit."""
    weight, bias = nodes[..., :-1], nodes[..., -1]
    length = weight.norm(dim=-1)
    bias = bias / length
    return weight / length.unsqueeze(-1), length, torch.where(bias == 0, torch.full_like(bias, 1e-290), bias)


class Lipschitz(NamedTuple):
    """Smallest constants with which assumption 2 (Tian et al. 2019, eq. 8) and lemma 4 hold in the proofs."""

    k_d: Float[Tensor, "*net"]
    k_l: Float[Tensor, "*net"]
    kappa: Float[Tensor, "*net"]
    """κ in |l*_jj − l_jj| ≤ κ l*_jj ‖δw_j‖, on the diagonal."""
    c_0: Float[Tensor, "*net"]
    """C_0 in |l*_jj − l_jj| ≤ C_0 l*_jj ‖δw_j‖² (lemma 4). Bounded as δw → 0 only without biases: with biases ψ_l(w, w)
    of unit [w, b] changes to first order."""


def lipschitz(references: Nodes, now: Nodes, overlaps: Overlaps) -> Lipschitz:
    """Compute the constants for students `now` and their references, in the same order of nodes.

    Compared are ψ(w_j, r_j') with ψ(w_j, w_j') (Tian et al. 2019, eq. 24), ψ(r_j', r_j) with ψ(r_j', w_j) (eq. 26),
    and, for each node and its own reference, the three values of ψ. ψ_d of a node and its reference decreases linearly
    in the angle, so that K_d ≥ 1/π even if the two are nearly equal.
    """
    between, theirs, ours = overlaps(now, references), overlaps(references, references), overlaps(now, now)
    moved = (now - references).norm(dim=-1)
    by_column, by_row = moved.unsqueeze(-2), moved.unsqueeze(-1)
    own = torch.eye(now.shape[-2], dtype=torch.bool)

    def least(cross: Tensor, base: Tensor, both: Tensor) -> Tensor:
        ratios = [
            _quotient(cross - both, cross, by_column),
            _quotient(base - cross, base, by_row),
            _quotient(base - cross, cross, by_row).where(own, 0),
            _quotient(cross - both, both, by_column).where(own, 0),
        ]
        return torch.stack(ratios).amax(dim=(0, -2, -1))

    change = (between.l - ours.l).diagonal(dim1=-2, dim2=-1)
    base = between.l.diagonal(dim1=-2, dim2=-1)
    return Lipschitz(
        least(between.d, theirs.d, ours.d),
        least(between.l, theirs.l, ours.l),
        _quotient(change, base, moved).amax(-1),
        _quotient(change, base, moved.square()).amax(-1),
    )


def _quotient(change: Tensor, base: Tensor, moved: Tensor) -> Tensor:
    """|change| / (base · moved); 0 if nothing changed or moved."""
    change, base, moved = torch.broadcast_tensors(change.abs(), base, moved)
    return torch.where((change == 0) | (moved < _STILL), 0, change / (base * moved).clamp_min(1e-300))


def small_overlap(nodes: Nodes, overlaps: Overlaps) -> tuple[Float[Tensor, "*net"], Float[Tensor, "*net"]]:
    """ε_d and ε_l of assumption 3: the largest ψ(r_j, r_j') / ψ(r_j, r_j) of two nodes (Tian et al. 2019, eq. 9).

    Relative to the smaller of the two diagonal values, because the proofs divide by either. 0 for a single node.
    """

    def largest(psi: Tensor) -> Tensor:
        ratio = psi / psi.diagonal(dim1=-2, dim2=-1).unsqueeze(-1)
        own = torch.eye(psi.shape[-1], dtype=torch.bool)
        return ratio.masked_fill(own, 0).nan_to_num(nan=math.inf).amax(dim=(-2, -1))

    found = overlaps(nodes, nodes)
    return largest(found.d), largest(found.l)


def angles(references: Float[Tensor, "*#node in"], now: Float[Tensor, "*#node in"]) -> Float[Tensor, "*node"]:
    """Angles θ_j between the extended weights of students and their references, accurate down to 1e−16."""
    one, other = (nodes / nodes.norm(dim=-1, keepdim=True) for nodes in (references, now))
    return 2 * torch.atan2((one - other).norm(dim=-1), (one + other).norm(dim=-1))


class ConvergenceRate(NamedTuple):
    """Constants of Tian et al. 2019, theorem 4: if γ > 0, sin θ_j decreases at least as (1 − η d̄ γ)^t."""

    gamma: Float[Tensor, "*net"]
    m_d: Float[Tensor, "*net"]
    d_bar: Float[Tensor, "*net"]

    @property
    def rate(self) -> Float[Tensor, "*net"]:
        """d̄γ, the rate per unit of learning rate."""
        return self.d_bar * self.gamma


def theorem_4_rate(
    theta: Float[Tensor, "*net"],
    k_d: Float[Tensor, "*net"],
    eps_d: Float[Tensor, "*net"],
    least: Float[Tensor, "*net"],
    nodes: int,
) -> ConvergenceRate:
    """Compute γ, M_d (Tian et al. 2019, eq. 39) and d̄ for students within θ_0 of their teachers.

    `least` is min_j d*_jj at the start. The paper prints d̄ = [1 + 2K_d sin(θ_0/2)] min d*_jj, which is an upper bound.
    For d*_jj ≥ d̄ at every step the sign must be minus, as in eq. 43: by assumption 2
    d*_jj ≥ d**_jj / (1 + 2K_d sin(θ_0/2)), and d**_jj is at least as large as any d*_jj.
    """
    reach = 2 * k_d * (theta / 2).sin()
    m_d = (1 + k_d) * (1 + reach) ** 2 / (theta / 2).cos()
    return ConvergenceRate(theta.cos() - (nodes - 1) * eps_d * m_d, m_d, (1 - reach) * least)


class PathBounds(NamedTuple):
    """The quantities that a theorem bounds, and its bounds, at every step of a trajectory."""

    measured: Float[Tensor, "net step quantity"]
    bound: Float[Tensor, "net step quantity"]
    """Infinite where the conditions of the theorem do not hold."""
    in_force: Bool[Tensor, "net"]
    """Whether the conditions of the theorem hold."""
    constants: dict[str, Float[Tensor, "net"]]

    @property
    def kept(self) -> Bool[Tensor, "net step"]:
        """Whether all bounds hold, up to rounding."""
        return (self.measured <= self.bound * (1 + 1e-9) + 1e-12).all(2)


def over_steps(along: Lipschitz) -> Lipschitz:
    """The constants that hold at every step, given those [net, step] of each step."""
    return Lipschitz(*(each.amax(1) for each in along))


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
    rows, columns = linear_sum_assignment(theta.cpu().numpy())
    first = [int(c) for _, c in sorted(zip(rows, columns, strict=True))]
    order = first + [k for k in range(student.sizes[1]) if k not in first]
    (weight, bias), (above, top) = student.layers
    hidden = Layer(weight[:, order], None if bias is None else bias[:, order])
    return Population((hidden, Layer(above[:, :, order], top)), student.seeds, student.slope)


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
    hypotheses = [*shared_hypotheses(teacher, student, x), _equal_width(m, n)]
    if n < m or not all(h.holds for h in hypotheses[:2]):
        return [Finding("S2 theorem 4", "the pair", tuple(hypotheses), "nothing", "nothing")]
    overlaps = empirical(append_constant(teacher, x))
    theta, least = angles(references, now), overlaps(now, references).d.diagonal().min()
    k_d, (eps_d, _) = lipschitz(references, now, overlaps).k_d, small_overlap(references, overlaps)
    rate, far = theorem_4_rate(theta.max(), k_d, eps_d, least, m), math.degrees(float(theta.max()))
    hypotheses += [
        _uniform_signal(teacher, student),
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


def append_constant(teacher: Population, x: Tensor) -> Float[Tensor, "sample in"]:
    """Append a constant 1 to the inputs if the teacher's nodes have biases."""
    return x if teacher.layers[0].bias is None else torch.cat((x, torch.ones_like(x[:, :1])), dim=1)


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


def _equal_width(m: int, n: int) -> Hypothesis:
    value, change = f"{n} for {m} teacher nodes", "theorem 5 is about more students than teacher nodes"
    return Hypothesis("students", value, "as many as teacher nodes", n == m, change)


def _uniform_signal(teacher: Population, student: Population) -> Hypothesis:
    """Every entry of β* = V*ᵀV and β = VᵀV is 1."""
    top, theirs = (p.layers[1].weight[0] for p in (student, teacher))
    off = float(torch.cat([(top.T @ theirs - 1).ravel(), (top.T @ top - 1).ravel()]).abs().max())
    return Hypothesis(
        "top-down signal",
        f"entries of β and β* differ from 1 by up to {off:.3g}",
        f"1, to {_EXACT:g}",
        off <= _EXACT,
        "give all hidden nodes of both networks the same fan-out, of length 1",
    )
