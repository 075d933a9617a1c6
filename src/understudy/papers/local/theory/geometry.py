"""What students that nearly match their teacher look like (S4 sec 5): quantities that the proofs bound, in closed form.

Students f(x) = Σ ‖w_j‖ |w_jᵀx| of a teacher f*(x) = Σ |w*_iᵀx| under standard normal inputs, as in `gaussian`. Every
student belongs to the teacher node that is nearest up to sign; where the paper writes an angle or an average it means
students turned to its side, for |·| is even.

`sides` has both sides of each inequality, without constants that the paper leaves open. What it proves can be had with
every constant and for any loss: `mass_bound`, `spread_bound`, `bent_bound`, `gap_bound`.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from understudy.errors import UserError
from understudy.papers.local.theory.gaussian import closed_forms as gaussian
from understudy.papers.local.theory.gaussian.pairs import angles, same_inputs, units

NEAR = 4.0
"""C of lemma 8. Half of a node's mass on a cone of angle δ around it, in many dimensions, has δ = 3.57 ε^(1/3) (r = 1)
and two students on either side, as in claim 2, have 1.68: C = 1 would miss both."""
_DEGREES = (2, *(n * 2**k for k in range(1, 29) for n in (2, 3)))
"""Even degrees of the Hermite polynomials that are tried as a test function: the last tells angles of 1e-4 apart."""


class LocalGeometry(NamedTuple):
    """A student network near its teacher, or not: S4 sec 5."""

    loss: Float[Tensor, "*net"]
    """L, ε of the lemmas."""
    gradient_norm: Float[Tensor, "*net"]
    """‖∇L‖ over all students."""
    ratio: Float[Tensor, "*net"]
    """‖∇L‖ / L, which theorem 3 bounds from below; NaN where both are zero."""
    squared_ratio: Float[Tensor, "*net"]
    """‖∇L‖² / L, which would be bounded from below if PL held."""
    assignment: Int[Tensor, "*net student"]
    """The teacher node of every student: T_i."""
    angles: Float[Tensor, "*net student"]
    """δ_j, up to sign; π/2 for students of length zero."""
    squares: Float[Tensor, "*net student"]
    """‖w_j‖², what a student has of the mass."""
    within: Float[Tensor, "*net"]
    """δ_max."""
    counts: Int[Tensor, "*net teacher"]
    """|T_i(δ_max)|: students of the node within that angle, those of length zero left out."""
    mass: Float[Tensor, "*net teacher"]
    """Σ ‖w_j‖² of these."""
    averages: Float[Tensor, "*net teacher in"]
    """ŵ_i = Σ ‖w_j‖ w_j over all students of the node (eq. 2)."""
    gaps: Float[Tensor, "*net teacher in"]
    """v_i = ŵ_i − w*_i."""
    linear: Float[Tensor, "*net"]
    """‖R₁‖² (eq. 3)."""
    bent: Float[Tensor, "*net"]
    """‖R₂‖²."""
    least_eigenvalue: Float[Tensor, "*net"]
    """λ_min(M) (eq. 4)."""
    descent: Float[Tensor, "*net"]
    """⟨∇L, g⟩ of lemma 7, q of appendix B; NaN where a teacher node has no student within δ_max.

    To about 1e-15 ‖g‖, as gradients are: with angles of 1e-8 and losses of 1e-24 it is rounding alone."""
    reach: Float[Tensor, "*net"]
    """‖g‖: ‖∇L‖ ≥ descent / reach whatever the loss; NaN as `descent`."""
    direction: Float[Tensor, "*net student in"]
    """g itself, of every student; NaN as `descent`."""


class Sides(NamedTuple):
    """An inequality left ≤ C · right, C not known."""

    left: Float[Tensor, "*net"]
    right: Float[Tensor, "*net"]
    exponent: float
    """Power of the loss on the right; 0 where it is not in the loss, of a step's length for lemma 12."""


def local_geometry(
    students: Float[Tensor, "*#net student in"],
    teachers: Float[Tensor, "*#net teacher in"],
    within: Float[Tensor, "*#net"] | float | None = None,
) -> LocalGeometry:
    """All of it, of each network; δ_max is 4 r w_max w_min^(−5/3) ε^(1/3), as lemma 8 has it, where none is given."""
    same_inputs(students, teachers)
    nets = torch.broadcast_shapes(students.shape[:-2], teachers.shape[:-2])
    students, teachers = (part.detach().expand(*nets, *part.shape[-2:]) for part in (students, teachers))
    loss, gradient = gaussian.loss_and_gradient(students, teachers)
    parts = gaussian.residual(students, teachers)
    directions, lengths = units(students)
    squares, norm = lengths.square(), gradient.flatten(-2).norm(dim=-1)
    delta = NEAR * _near(loss, teachers) if within is None else torch.as_tensor(within).to(loss).expand(nets)
    inside = (parts.angles <= delta.unsqueeze(-1)) & (lengths > 0)
    mass, counts = (_by_teacher(part, parts.assignment, teachers) for part in (squares * inside, inside.to(loss.dtype)))
    goals = torch.gather(teachers, -2, parts.assignment.unsqueeze(-1).expand_as(students))
    goals = torch.where((directions * goals).sum(-1, keepdim=True) < 0, -goals, goals)
    # q_j ‖w_j‖ sums to one over the students of a node: 0 / 0 where there are none.
    shares = torch.where(inside, lengths, 0.0) / torch.gather(mass, -1, parts.assignment)
    missing = (counts == 0).any(-1)
    ways = students - torch.where(inside, shares, 0.0).unsqueeze(-1) * goals
    ways = ways - (directions * ways).sum(-1, keepdim=True) * directions / 2  # (I + w̄w̄ᵀ)⁻¹ = I − ½ w̄w̄ᵀ
    undefined = loss.new_full((), math.nan)
    return LocalGeometry(
        loss,
        norm,
        norm / loss,
        norm.square() / loss,
        parts.assignment,
        parts.angles,
        squares,
        delta,
        counts.round().long(),
        mass,
        parts.averages + teachers,
        parts.averages,
        parts.linear,
        parts.bent,
        gaussian.least_eigenvalue(teachers),
        torch.where(missing, undefined, (gradient * ways).sum((-2, -1))),
        torch.where(missing, undefined, ways.flatten(-2).norm(dim=-1)),
        torch.where(missing[..., None, None], undefined, ways),
    )


def separation(teachers: Float[Tensor, "*net teacher in"]) -> Float[Tensor, "*net"]:
    """Δ of assumption 1: the smallest angle of two teacher nodes, up to sign; π/2 where there is one."""
    if teachers.shape[-2] == 1:
        return teachers.new_full(teachers.shape[:-2], math.pi / 2)
    return _between(teachers)[0].amin(-1)


def closest(teachers: Float[Tensor, "teacher in"]) -> tuple[int, int]:
    """The two nodes of one teacher whose angle that is."""
    angle, one, other = _between(teachers)
    least = int(angle.argmin())
    return int(one[least]), int(other[least])


def _between(teachers: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Angles of all pairs of teacher nodes, up to sign, and whose they are."""
    directions, _ = units(teachers)
    count = teachers.shape[-2]
    one, other = torch.triu_indices(count, count, 1, device=teachers.device)
    return angles(directions, directions).folded[..., one, other], one, other


def threshold(teachers: Float[Tensor, "*net teacher in"]) -> Float[Tensor, "*net"]:
    """log₁₀ ε_0 of theorem 3, ε_0 = Δ³⁶ w_min⁸⁰ r⁻¹⁶² w_max⁻⁷⁸ (the proof of lemma 7), its constant taken as 1.

    From ‖R‖² − O(r^(27/4) w_max^(13/4) Δ^(−3/2) w_min^(−10/3) ε^(25/24)) ≥ ε. For one teacher node that says nothing;
    so it is never more than the loss at which δ_max is Δ/2, up to which students near two nodes are told apart.
    """
    least, most = _lengths(teachers)
    r, delta = teachers.shape[-2], separation(teachers).log10()
    proof = 36 * delta + 80 * least.log10() - 162 * math.log10(r) - 78 * most.log10()
    return torch.minimum(proof, 3 * (delta - math.log10(2 * NEAR * r) - most.log10()) + 5 * least.log10())


def sides(geometry: LocalGeometry, teachers: Float[Tensor, "*#net teacher in"]) -> dict[str, Sides]:
    """Both sides of S4 lemmas 8, 9, 10, 11, 13, C.3 and C.4, as left ≤ C · right.

    - lemma 8: the smallest δ within which the students of every teacher node have half of its length, ∞ if none does
    - lemma 9: the largest ‖v_i‖, with the powers that its proof gives
    - lemma 10: (Δ/r)³ ‖v‖², and ‖R₁‖²
    - lemma C.4: Σ ‖w_j‖² δ_j²; its proof leaves the equal pairs out of ‖h‖², so what it shows has √r and a power of
      the logarithm of ε, and of 1/Δ, beside ε^(1/2) (`spread_bound`), and lemmas 11 and 9 that rest on it have more too
    """
    loss, r = geometry.loss, teachers.shape[-2]
    delta, (_, most) = separation(teachers), _lengths(teachers)
    gaps = torch.linalg.vector_norm(geometry.gaps, dim=-1)
    flat, most = torch.zeros_like(loss), most + torch.zeros_like(loss)
    return {
        "lemma 8": Sides(half_mass(geometry, teachers).amax(-1), _near(loss, teachers), 1 / 3),
        "lemma 9": Sides(gaps.amax(-1), r**2.75 * most**0.25 * delta**-1.5 * loss**0.375, 3 / 8),
        "lemma 10": Sides((delta / r) ** 3 * gaps.square().sum(-1), geometry.linear, 0.0),
        "lemma 11": Sides(geometry.bent, r**2.5 * most.sqrt() * loss**0.75, 3 / 4),
        "lemma 13": Sides(geometry.gradient_norm.square(), flat + (r * most) ** 3, 0.0),
        "lemma C.3": Sides(geometry.squares.sum(-1), flat + r * most, 0.0),
        "lemma C.4": Sides(_spread(geometry), loss.sqrt(), 1 / 2),
    }


def half_mass(geometry: LocalGeometry, teachers: Float[Tensor, "*#net teacher in"]) -> Float[Tensor, "*net teacher"]:
    """The angle within which the students of each teacher node, nearest first, have ‖w*_i‖ / 2; ∞ where they do not."""
    delta, order = geometry.angles.sort(dim=-1)
    owners = torch.gather(geometry.assignment, -1, order).unsqueeze(-2)
    own = owners == torch.arange(teachers.shape[-2], device=teachers.device).unsqueeze(-1)
    held = (torch.gather(geometry.squares, -1, order).unsqueeze(-2) * own).cumsum(-1)
    # Students of equal length may hold just the half: rounding is not to decide.
    enough = held >= (0.5 - 1e-12) * torch.linalg.vector_norm(teachers, dim=-1).unsqueeze(-1)
    return torch.where(enough, delta.unsqueeze(-2), math.inf).amin(-1)


def smoothness_sides(
    students: Float[Tensor, "*#net student in"],
    teachers: Float[Tensor, "*#net teacher in"],
    step: Float[Tensor, "*#net student in"],
) -> Sides:
    """S4 lemma 12: L(W + U) − L − ⟨∇L, U⟩, and (r w_max)^(1/4) L^(1/2) ‖U‖^(3/2) + r w_max ‖U‖² + ‖U‖⁴."""
    loss, gradient = gaussian.loss_and_gradient(students, teachers)
    moved = gaussian.loss(students + step, teachers)
    scale = teachers.shape[-2] * _lengths(teachers)[1]
    length = torch.linalg.vector_norm(step, dim=(-2, -1))
    right = scale**0.25 * loss.sqrt() * length**1.5 + scale * length.square() + length**4
    return Sides(moved - loss - (gradient * step).sum((-2, -1)), right, 1.5)


def mass_bound(loss: Float[Tensor, "*#net"], teachers: Float[Tensor, "*#net teacher in"]) -> Float[Tensor, "*net"]:
    """Σ ‖w_j‖² ≤ Σ ‖w*_i‖ + √(π L), whatever the loss: lemma C.3 by means, E f ≤ E f* + ‖R‖."""
    return torch.linalg.vector_norm(teachers, dim=-1).sum(-1) + (math.pi * loss).sqrt()


def spread_bound(loss: Float[Tensor, "*#net"], teachers: Float[Tensor, "*#net teacher in"]) -> Float[Tensor, "*net"]:
    """Σ ‖w_j‖² δ_j² ≤ (π²/4) [‖h‖ √(2L) + (r − 1) cosˡ(Δ/2) Σ ‖w_j‖²], whatever the loss: lemma C.4 with constants.

    The test function is the paper's, h = √(π/2) − Σ_k h_l(w̄*_kᵀx) / σ̂_l, for the even degree l that gives the least;
    ‖h‖² = π/2 + Σ_kk' cosˡ φ_kk' / σ̂_l², of which the printed proof leaves k = k' out, and 1 − cosˡ δ ≥ (2δ/π)². The
    last sum is bounded by `mass_bound`.
    """
    directions, _ = units(teachers)
    r = teachers.shape[-2]
    cosine = angles(directions, directions).folded.cos()
    far = (separation(teachers) / 2).cos()
    mass = mass_bound(loss, teachers)
    bounds = []
    for degree in _DEGREES:
        square = math.pi / 2 + (cosine**degree).sum((-2, -1)) / _hermite_square(degree)
        bounds.append((2 * loss * square).sqrt() + (r - 1) * far**degree * mass)
    return math.pi**2 / 4 * torch.stack(bounds).amin(0)


def bent_bound(loss: Float[Tensor, "*#net"], teachers: Float[Tensor, "*#net teacher in"]) -> Float[Tensor, "*net"]:
    """‖R₂‖² ≤ (4/π) r A^(1/2) B^(3/2), A and B as `mass_bound` and `spread_bound` have them: lemma 11 with constants.

    Students of one teacher node give E[ρ_j ρ_k] ≤ (4/π) δ_j δ_k min(δ_j, δ_k) (lemma C.5).
    """
    both = mass_bound(loss, teachers).sqrt() * spread_bound(loss, teachers) ** 1.5
    return 4 / math.pi * teachers.shape[-2] * both


def gap_bound(loss: Float[Tensor, "*#net"], teachers: Float[Tensor, "*#net teacher in"]) -> Float[Tensor, "*net"]:
    """√Σ ‖v_i‖² ≤ (√(2L) + ‖R₂‖) / √λ_min(M), with `bent_bound`: lemma 9 with constants; ∞ for λ_min(M) = 0."""
    least = gaussian.least_eigenvalue(teachers).clamp_min(0)
    return ((2 * loss).sqrt() + bent_bound(loss, teachers).sqrt()) / least.sqrt()


def _lengths(teachers: Tensor) -> tuple[Tensor, Tensor]:
    """w_min and w_max."""
    lengths = torch.linalg.vector_norm(teachers, dim=-1)
    if not bool((lengths > 0).all()):
        raise UserError(f"teacher node {int((lengths == 0).nonzero()[0, -1])} has length zero: leave it out")
    return lengths.amin(-1), lengths.amax(-1)


def _near(loss: Tensor, teachers: Tensor) -> Tensor:
    """r w_max w_min^(−5/3) ε^(1/3)."""
    least, most = _lengths(teachers)
    return teachers.shape[-2] * most * least ** (-5 / 3) * loss ** (1 / 3)


def _by_teacher(values: Tensor, assignment: Tensor, teachers: Tensor) -> Tensor:
    """Sums over the students of every teacher node."""
    return torch.zeros_like(teachers[..., 0]).scatter_add(-1, assignment, values)


def _hermite_square(degree: int) -> float:
    """σ̂_l² as `gaussian.hermite` has it, for any even degree from 2 at once."""
    n = degree // 2
    odd = (n - 1) * math.log(2) + math.lgamma(n - 0.5) - math.log(math.pi) / 2
    return 2 / math.pi * math.exp(2 * odd - math.lgamma(degree + 1))


def _spread(geometry: LocalGeometry) -> Tensor:
    return (geometry.squares * geometry.angles.square()).sum(-1)
