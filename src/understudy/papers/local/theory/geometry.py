"""Quantities that the proofs of Zhou, Ge & Jin 2021 bound near a solution (sec. 5, appendices B to D), in closed form.

Students f(x) = Σ ‖w_j‖ |w_jᵀx|, a teacher f*(x) = Σ |w*_iᵀx| and standard normal inputs, as in `gaussian`. Every
student is assigned to the nearest teacher node up to sign. Since |·| is even, angles and averages are those of the
students with the sign that makes them point towards their teacher node.

`sides` returns both sides of each inequality without the constants that the paper leaves open. `mass_bound`,
`spread_bound`, `residual_bound` and `gap_bound` are the provable versions with all constants, for a loss of any size.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from understudy._errors import UserError
from understudy.papers.local.theory import gaussian
from understudy.papers.local.theory.gaussian.pairs import angles, broadcast_nodes, units

LEMMA_8_CONSTANT = 4.0
"""C of lemma 8. Half of a node's mass on a cone of angle δ around it in many dimensions has δ = 3.57 ε^(1/3) (r = 1),
and the two students of claim 2 have 1.68: C = 1 would be too small for both."""
_DEGREES = (2, *(n * 2**k for k in range(1, 29) for n in (2, 3)))
"""Even degrees of the Hermite polynomials tried as test functions; the last one resolves angles of 10⁻⁴."""


class LocalGeometry(NamedTuple):
    """Quantities of Zhou, Ge & Jin 2021, sec. 5, of student networks and their teachers."""

    loss: Float[Tensor, "*net"]
    """L, the ε of the lemmas."""
    gradient_norm: Float[Tensor, "*net"]
    """‖∇L‖ over all students."""
    ratio: Float[Tensor, "*net"]
    """‖∇L‖ / L, which theorem 3 bounds from below; NaN where both are zero."""
    squared_ratio: Float[Tensor, "*net"]
    """‖∇L‖² / L, which the Polyak–Łojasiewicz (PL) inequality would bound from below."""
    assignment: Int[Tensor, "*net student"]
    """Index i of the teacher node of each student j, so that j ∈ T_i."""
    angles: Float[Tensor, "*net student"]
    """Angle δ_j of each student with its teacher node, up to sign; π/2 for students of length zero."""
    squares: Float[Tensor, "*net student"]
    """‖w_j‖², the mass of each student."""
    within: Float[Tensor, "*net"]
    """δ_max."""
    counts: Int[Tensor, "*net teacher"]
    """|T_i(δ_max)|: number of students of the node within δ_max, excluding those of length zero."""
    mass: Float[Tensor, "*net teacher"]
    """Σ ‖w_j‖² over the students of the node within δ_max."""
    averages: Float[Tensor, "*net teacher in"]
    """ŵ_i = Σ ‖w_j‖ w_j over all students of the node (eq. 2)."""
    gaps: Float[Tensor, "*net teacher in"]
    """v_i = ŵ_i − w*_i (eq. 2)."""
    linear: Float[Tensor, "*net"]
    """‖R₁‖² (eq. 3)."""
    bent: Float[Tensor, "*net"]
    """‖R₂‖² (eq. 3)."""
    least_eigenvalue: Float[Tensor, "*net"]
    """λ_min(M) (eq. 4)."""
    descent: Float[Tensor, "*net"]
    """⟨∇L, g⟩ of lemma 7, with q of appendix B; NaN where a teacher node has no student within δ_max.

    The absolute error is about 10⁻¹⁵ ‖g‖, as for gradients: at angles of 10⁻⁸ and losses of 10⁻²⁴ no digit is right."""
    reach: Float[Tensor, "*net"]
    """‖g‖, so that ‖∇L‖ ≥ descent / reach at any loss; NaN where `descent` is."""
    direction: Float[Tensor, "*net student in"]
    """Direction g of lemma 7 for each student; NaN where `descent` is."""


class Sides(NamedTuple):
    """Both sides of an inequality left ≤ C · right with an unknown constant C."""

    left: Float[Tensor, "*net"]
    right: Float[Tensor, "*net"]
    exponent: float
    """Power of the loss on the right (for lemma 12 of the step length); 0 if the right side does not depend on it."""


def local_geometry(
    students: Float[Tensor, "*#net student in"],
    teachers: Float[Tensor, "*#net teacher in"],
    within: Float[Tensor, "*#net"] | float | None = None,
) -> LocalGeometry:
    """Compute all quantities of `LocalGeometry` for each network.

    Args:
        students: student nodes w_j, in float64.
        teachers: teacher nodes w*_i.
        within: δ_max; by default 4 r w_max w_min^(−5/3) ε^(1/3), as in lemma 8.

    Raises:
        UserError: a teacher node has length zero, or the nodes are not float64 vectors of the same dimension.
    """
    students, teachers = broadcast_nodes(students.detach(), teachers.detach())
    loss, gradient = gaussian.loss_and_gradient(students, teachers)
    parts = gaussian.decompose_residual(students, teachers)
    directions, lengths = units(students)
    squares, norm = lengths.square(), gradient.flatten(-2).norm(dim=-1)
    if within is None:
        delta = LEMMA_8_CONSTANT * _lemma_8_angle(loss, teachers)
    else:
        delta = torch.as_tensor(within).to(loss).expand(loss.shape)
    inside = (parts.angles <= delta.unsqueeze(-1)) & (lengths > 0)
    mass = _sum_by_teacher(squares * inside, parts.assignment, teachers)
    counts = _sum_by_teacher(inside.to(loss.dtype), parts.assignment, teachers)
    goals = torch.gather(teachers, -2, parts.assignment.unsqueeze(-1).expand_as(students))
    goals = torch.where((directions * goals).sum(-1, keepdim=True) < 0, -goals, goals)
    # q_j ‖w_j‖ sums to one over the students of a node: 0 / 0 where a node has none.
    shares = torch.where(inside, lengths, 0.0) / torch.gather(mass, -1, parts.assignment)
    missing = (counts == 0).any(-1)
    g = students - torch.where(inside, shares, 0.0).unsqueeze(-1) * goals
    g = g - (directions * g).sum(-1, keepdim=True) * directions / 2  # (I + w̄w̄ᵀ)⁻¹ = I − ½ w̄w̄ᵀ
    undefined = loss.new_full((), math.nan)
    return LocalGeometry(
        loss=loss,
        gradient_norm=norm,
        ratio=norm / loss,
        squared_ratio=norm.square() / loss,
        assignment=parts.assignment,
        angles=parts.angles,
        squares=squares,
        within=delta,
        counts=counts.round().long(),
        mass=mass,
        averages=parts.averages + teachers,
        gaps=parts.averages,
        linear=parts.linear,
        bent=parts.bent,
        least_eigenvalue=gaussian.least_eigenvalue(teachers),
        descent=torch.where(missing, undefined, (gradient * g).sum((-2, -1))),
        reach=torch.where(missing, undefined, g.flatten(-2).norm(dim=-1)),
        direction=torch.where(missing[..., None, None], undefined, g),
    )


def least_angle(teachers: Float[Tensor, "*net teacher in"]) -> Float[Tensor, "*net"]:
    """Δ of assumption 1: the smallest angle between two teacher nodes, up to sign; π/2 for a single node."""
    if teachers.shape[-2] == 1:
        return teachers.new_full(teachers.shape[:-2], math.pi / 2)
    return _pairwise_angles(teachers)[0].amin(-1)


def closest_pair(teachers: Float[Tensor, "teacher in"]) -> tuple[int, int]:
    """Indices of the two nodes of one teacher that form the smallest angle."""
    angle, one, other = _pairwise_angles(teachers)
    least = int(angle.argmin())
    return int(one[least]), int(other[least])


def _pairwise_angles(teachers: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Angles of all pairs of teacher nodes, up to sign, and the indices of both nodes."""
    directions, _ = units(teachers)
    count = teachers.shape[-2]
    one, other = torch.triu_indices(count, count, 1, device=teachers.device)
    return angles(directions, directions).folded[..., one, other], one, other


def log_threshold(teachers: Float[Tensor, "*net teacher in"]) -> Float[Tensor, "*net"]:
    """log₁₀ ε_0 of theorem 3, ε_0 = Δ³⁶ w_min⁸⁰ r⁻¹⁶² w_max⁻⁷⁸ (proof of lemma 7) with its open constant set to 1.

    It follows from ‖R‖² − O(r^(27/4) w_max^(13/4) Δ^(−3/2) w_min^(−10/3) ε^(25/24)) ≥ ε, which is void for one teacher
    node. The threshold is therefore capped at the loss where δ_max = Δ/2, below which a student is within δ_max of at
    most one teacher node.
    """
    least, most = _shortest_and_longest(teachers)
    r, delta = teachers.shape[-2], least_angle(teachers).log10()
    proof = 36 * delta + 80 * least.log10() - 162 * math.log10(r) - 78 * most.log10()
    cap = 3 * (delta - math.log10(2 * LEMMA_8_CONSTANT * r) - most.log10()) + 5 * least.log10()
    return torch.minimum(proof, cap)


def sides(geometry: LocalGeometry, teachers: Float[Tensor, "*#net teacher in"]) -> dict[str, Sides]:
    """Both sides of lemmas 8, 9, 10, 11, 13, C.3 and C.4 of Zhou, Ge & Jin 2021, as left ≤ C · right.

    - lemma 8: the smallest δ within which the students of every teacher node have half of its length, ∞ if none does
    - lemma 9: the largest ‖v_i‖, with the powers that its proof gives
    - lemma 10: (Δ/r)³ ‖v‖², and ‖R₁‖²
    - lemma C.4: Σ ‖w_j‖² δ_j². Its proof omits the equal pairs from ‖h‖², so that it proves √r and powers of log ε and
      of 1/Δ besides ε^(1/2) (`spread_bound`); the same holds for lemmas 11 and 9, which rest on it
    """
    loss, r = geometry.loss, teachers.shape[-2]
    delta, (_, most) = least_angle(teachers), _shortest_and_longest(teachers)
    gaps = torch.linalg.vector_norm(geometry.gaps, dim=-1)
    flat, most = torch.zeros_like(loss), most + torch.zeros_like(loss)
    return {
        "lemma 8": Sides(half_mass_angle(geometry, teachers).amax(-1), _lemma_8_angle(loss, teachers), 1 / 3),
        "lemma 9": Sides(gaps.amax(-1), r**2.75 * most**0.25 * delta**-1.5 * loss**0.375, 3 / 8),
        "lemma 10": Sides((delta / r) ** 3 * gaps.square().sum(-1), geometry.linear, 0.0),
        "lemma 11": Sides(geometry.bent, r**2.5 * most.sqrt() * loss**0.75, 3 / 4),
        "lemma 13": Sides(geometry.gradient_norm.square(), flat + (r * most) ** 3, 0.0),
        "lemma C.3": Sides(geometry.squares.sum(-1), flat + r * most, 0.0),
        "lemma C.4": Sides((geometry.squares * geometry.angles.square()).sum(-1), loss.sqrt(), 1 / 2),
    }


def half_mass_angle(
    geometry: LocalGeometry, teachers: Float[Tensor, "*#net teacher in"]
) -> Float[Tensor, "*net teacher"]:
    """Smallest angle within which the students of each teacher node have mass ‖w*_i‖ / 2; ∞ if they have less."""
    delta, order = geometry.angles.sort(dim=-1)
    owners = torch.gather(geometry.assignment, -1, order).unsqueeze(-2)
    own = owners == torch.arange(teachers.shape[-2], device=teachers.device).unsqueeze(-1)
    held = (torch.gather(geometry.squares, -1, order).unsqueeze(-2) * own).cumsum(-1)
    # Students of equal length may have exactly half of the mass: rounding must not decide.
    enough = held >= (0.5 - 1e-12) * torch.linalg.vector_norm(teachers, dim=-1).unsqueeze(-1)
    return torch.where(enough, delta.unsqueeze(-2), math.inf).amin(-1)


def smoothness_sides(
    students: Float[Tensor, "*#net student in"],
    teachers: Float[Tensor, "*#net teacher in"],
    step: Float[Tensor, "*#net student in"],
) -> Sides:
    """Both sides of lemma 12: L(W + U) − L − ⟨∇L, U⟩, and (r w_max)^(1/4) L^(1/2) ‖U‖^(3/2) + r w_max ‖U‖² + ‖U‖⁴."""
    loss, gradient = gaussian.loss_and_gradient(students, teachers)
    moved = gaussian.loss(students + step, teachers)
    scale = teachers.shape[-2] * _shortest_and_longest(teachers)[1]
    length = torch.linalg.vector_norm(step, dim=(-2, -1))
    right = scale**0.25 * loss.sqrt() * length**1.5 + scale * length.square() + length**4
    return Sides(moved - loss - (gradient * step).sum((-2, -1)), right, 1.5)


def mass_bound(loss: Float[Tensor, "*#net"], teachers: Float[Tensor, "*#net teacher in"]) -> Float[Tensor, "*net"]:
    """Lemma C.3 with constants: Σ ‖w_j‖² ≤ Σ ‖w*_i‖ + √(π L) at any loss, since E f ≤ E f* + ‖R‖."""
    return torch.linalg.vector_norm(teachers, dim=-1).sum(-1) + (math.pi * loss).sqrt()


def spread_bound(loss: Float[Tensor, "*#net"], teachers: Float[Tensor, "*#net teacher in"]) -> Float[Tensor, "*net"]:
    """Lemma C.4 with constants: Σ ‖w_j‖² δ_j² ≤ (π²/4) [‖h‖ √(2L) + (r − 1) cosˡ(Δ/2) Σ ‖w_j‖²] at any loss.

    The test function is the paper's, h = √(π/2) − Σ_k h_l(w̄*_kᵀx) / σ̂_l, with the even degree l that gives the
    smallest bound. ‖h‖² = π/2 + Σ_kk' cosˡ φ_kk' / σ̂_l²; the printed proof omits the terms k = k'. Further,
    1 − cosˡ δ ≥ (2δ/π)², and the last sum is bounded by `mass_bound`.
    """
    directions, _ = units(teachers)
    r = teachers.shape[-2]
    cosine = angles(directions, directions).folded.cos()
    far = (least_angle(teachers) / 2).cos()
    mass = mass_bound(loss, teachers)
    bounds = []
    for degree in _DEGREES:
        square = math.pi / 2 + (cosine**degree).sum((-2, -1)) / _hermite_square(degree)
        bounds.append((2 * loss * square).sqrt() + (r - 1) * far**degree * mass)
    return math.pi**2 / 4 * torch.stack(bounds).amin(0)


def residual_bound(loss: Float[Tensor, "*#net"], teachers: Float[Tensor, "*#net teacher in"]) -> Float[Tensor, "*net"]:
    """Lemma 11 with constants: ‖R₂‖² ≤ (4/π) r A^(1/2) B^(3/2), A = `mass_bound` and B = `spread_bound`.

    Two students of one teacher node satisfy E[ρ_j ρ_k] ≤ (4/π) δ_j δ_k min(δ_j, δ_k) (lemma C.5).
    """
    both = mass_bound(loss, teachers).sqrt() * spread_bound(loss, teachers) ** 1.5
    return 4 / math.pi * teachers.shape[-2] * both


def gap_bound(loss: Float[Tensor, "*#net"], teachers: Float[Tensor, "*#net teacher in"]) -> Float[Tensor, "*net"]:
    """Lemma 9 with constants: √Σ ‖v_i‖² ≤ (√(2L) + ‖R₂‖) / √λ_min(M), ‖R₂‖ by `residual_bound`; ∞ if λ_min(M) = 0."""
    least = gaussian.least_eigenvalue(teachers).clamp_min(0)
    return ((2 * loss).sqrt() + residual_bound(loss, teachers).sqrt()) / least.sqrt()


def _shortest_and_longest(teachers: Tensor) -> tuple[Tensor, Tensor]:
    """w_min and w_max of assumption 2."""
    lengths = torch.linalg.vector_norm(teachers, dim=-1)
    if not bool((lengths > 0).all()):
        raise UserError(f"teacher node {int((lengths == 0).nonzero()[0, -1])} has length zero: remove it")
    return lengths.amin(-1), lengths.amax(-1)


def _lemma_8_angle(loss: Tensor, teachers: Tensor) -> Tensor:
    """r w_max w_min^(−5/3) ε^(1/3)."""
    least, most = _shortest_and_longest(teachers)
    return teachers.shape[-2] * most * least ** (-5 / 3) * loss ** (1 / 3)


def _sum_by_teacher(values: Tensor, assignment: Tensor, teachers: Tensor) -> Tensor:
    """Sum of `values` over the students of every teacher node."""
    return torch.zeros_like(teachers[..., 0]).scatter_add(-1, assignment, values)


def _hermite_square(degree: int) -> float:
    """σ̂_l² = `gaussian.hermite(l)`² for any even degree l from 2, by logarithms of factorials."""
    n = degree // 2
    odd = (n - 1) * math.log(2) + math.lgamma(n - 0.5) - math.log(math.pi) / 2
    return 2 / math.pi * math.exp(2 * odd - math.lgamma(degree + 1))
