"""How far nodes are active together, and what that gives for students that start near their teachers: S2 theorem 4.

A node is its extended weights [w, b], on inputs with a constant 1. S2 eq. 7: ψ_d is the share of the inputs on which
two nodes are both active, ψ_l the mean product of their activations. The proofs (S2 sec 8.4, 8.5) compare students W
with references R, the teacher's nodes: d*_jj' = ψ_d(w_j, r_j'), d_jj' = ψ_d(w_j, w_j'), d**_jj' = ψ_d(r_j, r_j').
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
from understudy.theory.result import Finding, Hypothesis, result

Nodes = Float[Tensor, "*#net node in"]
_STILL = 1e-9
"""Nodes that are nearer than this have not moved: quotients by the distance would be rounding."""
_EXACT = 1e-6


class Overlap(NamedTuple):
    """ψ_d and ψ_l of every pair of nodes (S2 eq. 7)."""

    d: Float[Tensor, "*net left right"]
    l: Float[Tensor, "*net left right"]  # noqa: E741


Overlaps = Callable[[Tensor, Tensor], Overlap]
"""ψ_d and ψ_l of nodes and nodes, for given inputs."""


def extended(layer: Layer) -> Float[Tensor, "net node in"]:
    """[w, b] of every node; w where there are no biases."""
    weight, bias = layer
    return weight if bias is None else torch.cat((weight, bias.unsqueeze(-1)), dim=-1)


def on(x: Float[Tensor, "sample in"]) -> Overlaps:
    """ψ_d and ψ_l over inputs at hand, as long as the nodes' extended weights."""

    def overlaps(left: Tensor, right: Tensor) -> Overlap:
        ours, theirs = (torch.einsum("...ni,si->...ns", nodes, x).clamp_min(0) for nodes in (left, right))
        gates = torch.einsum("...ns,...ms->...nm", (ours > 0).to(x), (theirs > 0).to(x))
        return Overlap(gates / len(x), torch.einsum("...ns,...ms->...nm", ours, theirs) / len(x))

    return overlaps


def gaussian(left: Float[Tensor, "*#net left in"], right: Float[Tensor, "*#net right in"]) -> Overlap:
    """ψ_d and ψ_l for N(0, I) inputs in closed form, whatever the biases; exact to about 1e−16 of 1.

    Without biases they are the arc-cosine kernels (π − θ)/2π and ‖w‖‖w'‖(sin θ + (π − θ) cos θ)/2π. With them ψ_d is
    the chance that two correlated normals exceed their thresholds, by Owen's T function, and ψ_l their truncated second
    moment (Rosenbaum 1961).
    """
    (u, s, a), (v, t, b) = _standard(left), _standard(right)
    u, s, a = u.unsqueeze(-2), s.unsqueeze(-1), a.unsqueeze(-1)
    v, t, b = v.unsqueeze(-3), t.unsqueeze(-2), b.unsqueeze(-2)
    apart, together = (u - v).norm(dim=-1), (u + v).norm(dim=-1)
    # 1 − cos θ and sin θ lose nothing to cancellation where weights are nearly parallel.
    less, sine = apart.square() / 2, apart * together / 2
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
    # P(X > −a, Y > −b), E[X; both] and so on, with the densities at the thresholds.
    density, other = (np.exp(-h * h / 2) / math.sqrt(2 * math.pi) for h in (a, b))
    near, far = density * ndtr(one), other * ndtr(two)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        square = np.where(sine > 0, (a - b) ** 2 / sine**2 + 2 * a * b * less / sine**2, np.inf)
    corner = sine * np.exp(-square / 2) / (2 * math.pi)
    product = (rho + a * b) * both + b * near + a * far + corner
    # E[XY] has −ρ(a·near + b·far); E[X] has near + ρ·far, E[Y] far + ρ·near: the terms in ρ cancel.
    return Overlap(torch.from_numpy(both), s * t * torch.from_numpy(product))


def _standard(nodes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Directions, lengths, and biases over lengths; a bias of 0 becomes a tiny one, where T has its limit."""
    weight, bias = nodes[..., :-1], nodes[..., -1]
    length = weight.norm(dim=-1)
    bias = bias / length
    return weight / length.unsqueeze(-1), length, torch.where(bias == 0, torch.full_like(bias, 1e-290), bias)


class Lipschitz(NamedTuple):
    """The least constants for which Assumption 2 (S2 eq. 8) and Lemma 4 hold for the pairs that the proofs compare."""

    k_d: Float[Tensor, "*net"]
    k_l: Float[Tensor, "*net"]
    kappa: Float[Tensor, "*net"]
    """Of |l*_jj − l_jj| ≤ κ l*_jj ‖δw_j‖ on the diagonal."""
    c_0: Float[Tensor, "*net"]
    """Of Lemma 4, |l*_jj − l_jj| ≤ C_0 l*_jj ‖δw_j‖²: bounded as δw goes to 0 only without biases, since ψ_l(w, w) of
    unit [w, b] otherwise changes to first order."""


def lipschitz(references: Nodes, now: Nodes, overlaps: Overlaps) -> Lipschitz:
    """For students `now` and their references, node by node in the same order.

    Compared are ψ(w_j, r_j') with ψ(w_j, w_j') (S2 eq. 24), ψ(r_j', r_j) with ψ(r_j', w_j) (eq. 26), and of each node
    and its own reference the three values that these take. Gates of one node fall linearly in the angle, so that K_d is
    no less than 1/π even where two nodes nearly agree.
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
    """|change| / (base · moved); 0 where nothing changed or moved."""
    change, base, moved = torch.broadcast_tensors(change.abs(), base, moved)
    return torch.where((change == 0) | (moved < _STILL), 0, change / (base * moved).clamp_min(1e-300))


def small_overlap(nodes: Nodes, overlaps: Overlaps) -> tuple[Float[Tensor, "*net"], Float[Tensor, "*net"]]:
    """Assumption 3's ε_d and ε_l (S2 eq. 9): the largest ψ(r_j, r_j') / ψ(r_j, r_j) of two different nodes.

    Over the smaller of the two diagonals: the proofs divide by that of either node. 0 for a single node.
    """

    def largest(psi: Tensor) -> Tensor:
        ratio = psi / psi.diagonal(dim1=-2, dim2=-1).unsqueeze(-1)
        own = torch.eye(psi.shape[-1], dtype=torch.bool)
        return ratio.masked_fill(own, 0).nan_to_num(nan=math.inf).amax(dim=(-2, -1))

    found = overlaps(nodes, nodes)
    return largest(found.d), largest(found.l)


def angles(references: Float[Tensor, "*#node in"], now: Float[Tensor, "*#node in"]) -> Float[Tensor, "*node"]:
    """θ_j between each student's extended weights and its reference's, exact down to angles of 1e−16."""
    one, other = (nodes / nodes.norm(dim=-1, keepdim=True) for nodes in (references, now))
    return 2 * torch.atan2((one - other).norm(dim=-1), (one + other).norm(dim=-1))


class Rate(NamedTuple):
    """S2 theorem 4: while γ > 0, sin θ_j falls at least as (1 − η d̄ γ)^t."""

    gamma: Float[Tensor, "*net"]
    m_d: Float[Tensor, "*net"]
    d_bar: Float[Tensor, "*net"]

    @property
    def rate(self) -> Float[Tensor, "*net"]:
        """d̄γ, of which the learning rate is taken."""
        return self.d_bar * self.gamma


def theorem_4(
    theta: Float[Tensor, "*net"],
    k_d: Float[Tensor, "*net"],
    eps_d: Float[Tensor, "*net"],
    least: Float[Tensor, "*net"],
    nodes: int,
) -> Rate:
    """γ, M_d (S2 eq. 39) and d̄ for students within θ_0 of their teachers, `least` = min_j d*_jj at the start.

    The paper prints d̄ = [1 + 2K_d sin(θ_0/2)] min d*_jj, which is an upper bound; d*_jj ≥ d̄ at every step needs the
    minus sign of eq. 43: d*_jj ≥ d**_jj / (1 + 2K_d sin(θ_0/2)) by Assumption 2, and d**_jj is no less than any d*_jj.
    """
    reach = 2 * k_d * (theta / 2).sin()
    m_d = (1 + k_d) * (1 + reach) ** 2 / (theta / 2).cos()
    return Rate(theta.cos() - (nodes - 1) * eps_d * m_d, m_d, (1 - reach) * least)


class Along(NamedTuple):
    """What a theorem bounds, and its bounds, at every step of a path; infinite where its conditions do not hold."""

    measured: Float[Tensor, "net step quantity"]
    bound: Float[Tensor, "net step quantity"]
    in_force: Bool[Tensor, "net"]
    constants: dict[str, Float[Tensor, "net"]]

    @property
    def kept(self) -> Bool[Tensor, "net step"]:
        """Whether all bounds are kept, but for rounding."""
        return (self.measured <= self.bound * (1 + 1e-9) + 1e-12).all(2)


def most(along: Lipschitz) -> Lipschitz:
    """The constants that hold at every step of a path [net, step]."""
    return Lipschitz(*(each.amax(1) for each in along))


def theorem_4_along(references: Nodes, w: Float[Tensor, "net step node in"], lr: float) -> Along:
    """sin θ_j of the farthest student and (1 − η d̄ γ)^t sin θ_0, for N(0, I) inputs, with the K_d of the whole path.

    In force where γ > 0, d̄ > 0 and no step goes beyond its goal, η d*_jj ≤ 1, which the proof takes for granted.
    """
    refs = references.unsqueeze(1)
    theta, k = angles(refs, w).amax(2), most(lipschitz(refs, w, gaussian))
    start = gaussian(w[:, 0], references).d.diagonal(dim1=1, dim2=2)
    eps_d, _ = small_overlap(references, gaussian)
    rate = theorem_4(theta[:, 0], k.k_d, eps_d, start.amin(1), w.shape[2])
    longest = gaussian(references, references).d.diagonal(dim1=1, dim2=2).amax(1)
    in_force = (rate.gamma > 0) & (rate.d_bar > 0) & (lr * longest <= 1)
    shrunk = (1 - lr * rate.rate).unsqueeze(1) ** torch.arange(w.shape[1], dtype=w.dtype)
    bound = torch.where(in_force.unsqueeze(1), theta[:, :1].sin() * shrunk, torch.inf)
    constants = {"theta_0": theta[:, 0], "k_d": k.k_d, "eps_d": eps_d, "gamma": rate.gamma, "rate": rate.rate}
    return Along(theta.sin().unsqueeze(2), bound.unsqueeze(2), in_force, constants)


def projected(
    references: Float[Tensor, "*#net reference in"],
    now: Float[Tensor, "*#net node in"],
    overlap: Overlap,
    own: Overlap,
    beta_star: Float[Tensor, "*net node reference"] | float = 1.0,
    beta: Float[Tensor, "*net node node"] | float = 1.0,
) -> Float[Tensor, "*net node in"]:
    """ẇ_j = P⊥(W* h*_j − W h_j) of S2 theorem 4, from ψ of students and references and of students and students.

    H* = β* ∘ D* and H = β ∘ D; the top-down signal is uniform, β = 1, unless given.
    """
    force = (beta_star * overlap.d) @ references - (beta * own.d) @ now
    return force - (force * now).sum(-1, keepdim=True) * now


def paired(teacher: Population, student: Population) -> Population:
    """The student's nodes in another order: first the teacher's nearest, each once, then the others."""
    theta = angles(extended(teacher.layers[0]).unsqueeze(2), extended(student.layers[0]).unsqueeze(1))[0]
    rows, columns = linear_sum_assignment(theta.cpu().numpy())
    first = [int(c) for _, c in sorted(zip(rows, columns, strict=True))]
    order = first + [k for k in range(student.sizes[1]) if k not in first]
    (weight, bias), (above, top) = student.layers
    hidden = Layer(weight[:, order], None if bias is None else bias[:, order])
    return Population((hidden, Layer(above[:, :, order], top)), student.seeds, student.slope)


@result(
    "S2 theorem 4",
    title="Students near their teachers converge to them",
    statement="As many students as teacher nodes, each within an angle θ_0 of its own, come closer at a rate of at "
    "least 1 − η d̄ γ where teacher nodes are seldom active together.",
    measured="θ_0, ε_d, K_d, d̄ and γ of the pair at its current weights, and the decrease of the largest angle in "
    "the next step of the projected dynamics",
    subject="dynamics",
    networks="two layers",
    slopes="ReLU",
)
def near_students(teacher: Population, student: Population, x: Float[Tensor, "sample in"]) -> list[Finding]:
    """On the pair as it stands: K_d is that of this moment, so that the step measured is the next one."""
    m, n = teacher.sizes[1], student.sizes[1]
    student = paired(teacher, student)
    references, now = extended(teacher.layers[0])[0], extended(student.layers[0])[0][:m]
    hypotheses = [*setting(teacher, student, x), as_many(m, n)]
    if n < m or not all(h.holds for h in hypotheses[:2]):
        return [Finding("S2 theorem 4", "the pair", tuple(hypotheses), "nothing", "nothing")]
    overlaps = on(with_constant(teacher, x))
    theta, least = angles(references, now), overlaps(now, references).d.diagonal().min()
    k_d, (eps_d, _) = lipschitz(references, now, overlaps).k_d, small_overlap(references, overlaps)
    rate, far = theorem_4(theta.max(), k_d, eps_d, least, m), math.degrees(float(theta.max()))
    hypotheses += [
        uniform_signal(teacher, student),
        Hypothesis(
            "γ = cos θ_0 − (m − 1) ε_d M_d",
            f"{float(rate.gamma):.3g} with θ_0 = {far:.3g}°, ε_d = {float(eps_d):.3g}, K_d = {float(k_d):.3g}",
            "above 0",
            bool(rate.gamma > 0),
            "teacher nodes that are active together on fewer inputs, or students that start nearer",
        ),
        Hypothesis(
            "d̄ = [1 − 2K_d sin(θ_0/2)] min d*_jj", f"{float(rate.d_bar):.3g}", "above 0", bool(rate.d_bar > 0),
            "students that start nearer to their teacher nodes",
        ),
    ]  # fmt: skip
    lr = 1e-3
    moved = now + lr * projected(references, now, overlaps(now, references), overlaps(now, now))
    before, after = float(theta.sin().max()), float(angles(references, moved).sin().max())
    bound = (1 - lr * float(rate.rate)) * before
    return [
        Finding(
            "S2 theorem 4",
            "the pair",
            tuple(hypotheses),
            f"the largest sin θ_j falls by a factor of 1 − {float(rate.rate):.3g} η a step or more",
            f"in a step of η = {lr:g} it goes from {before:.6g} to {after:.6g}, and the bound is {bound:.6g}",
            after <= bound * (1 + 1e-12) + 1e-15,
        )
    ]


def with_constant(teacher: Population, x: Tensor) -> Float[Tensor, "sample in"]:
    """Inputs as long as the extended weights of the teacher's nodes."""
    return x if teacher.layers[0].bias is None else torch.cat((x, torch.ones_like(x[:, :1])), dim=1)


def setting(teacher: Population, student: Population, x: Tensor) -> list[Hypothesis]:
    """What theorems 4 and 5 share: biases in both or none, weights of length 1, whitened inputs."""
    biased = [p.layers[0].bias is not None for p in (teacher, student)]
    lengths = torch.cat([extended(p.layers[0])[0].norm(dim=-1) for p in (teacher, student)])
    inputs = with_constant(teacher, x)
    moment = inputs.T @ inputs / len(inputs)
    off = float((moment - torch.eye(len(moment)).to(moment)).abs().max())
    far = float((lengths - 1).abs().max())
    both = "with biases" if all(biased) else "without biases" if not any(biased) else "one of them has biases"
    return [
        Hypothesis("hidden layers", both, "biases in both or in neither", biased[0] == biased[1],
                   "give both networks biases, if only zeros"),
        Hypothesis("lengths of [w, b]", f"within {far:.2g} of 1", f"1, to {_EXACT:g}", far <= _EXACT,
                   "scale every hidden node's weights and bias to length 1, and its fan-out by the inverse"),
        Hypothesis("whitened inputs", f"E[x xᵀ] is off by {off:.2g}", f"the identity, to {_EXACT:g}", off <= _EXACT,
                   "subtract the mean of x and multiply by the inverse root of its covariance"),
    ]  # fmt: skip


def as_many(m: int, n: int) -> Hypothesis:
    return Hypothesis(
        "students", f"{n} for {m} teacher nodes", "as many as teacher nodes", n == m,
        "theorem 5 speaks of more students than teacher nodes",
    )  # fmt: skip


def uniform_signal(teacher: Population, student: Population) -> Hypothesis:
    """β* = V*ᵀV and β = VᵀV with every entry 1."""
    top, theirs = (p.layers[1].weight[0] for p in (student, teacher))
    off = float(torch.cat([(top.T @ theirs - 1).ravel(), (top.T @ top - 1).ravel()]).abs().max())
    return Hypothesis(
        "top-down signal", f"entries of β and β* are off 1 by up to {off:.3g}", f"1, to {_EXACT:g}", off <= _EXACT,
        "give all hidden nodes of both networks one fan-out, of length 1",
    )  # fmt: skip
