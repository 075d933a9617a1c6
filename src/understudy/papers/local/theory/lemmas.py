"""Lemmas 7 and 11 to 13 of Zhou, Ge & Jin 2021, checked on given networks, with all constants where they can be had.

Lemma 7 has the threshold of theorem 3. The others hold at any loss with these constants; M = Σ‖w_j‖² is at most A of
lemma C.3, and ‖R‖² = 2L.

Lemma 13. ∇_k L = ‖w_k‖ E[R (I + w̄w̄ᵀ) x sgn(w_kᵀx)] has length at most 2 ‖w_k‖ ‖R‖, since vᵀx has length 1 for a unit v
and ‖I + w̄w̄ᵀ‖ = 2. So ‖∇L‖² ≤ 8 L A, and A ≤ (1 + √π) r w_max where L ≤ r² w_max², as the lemma assumes.

Lemma 12. Let g(w) = ‖w‖ w. In I₁ of the proof ‖γ_j‖ = ‖g(w_j + u_j) − g(w_j)‖ ≤ (2‖w_j‖ + ‖u_j‖) ‖u_j‖, so that
I₁/2 ≤ ½ (2√A ‖U‖ + ‖U‖²)². In I₂, ‖D²g(w)[u, u]‖ ≤ 2‖u‖², attained for u along w, so that ‖α − β‖ ≤ ‖u‖². The other
term of I_j has length 2 √(‖β‖² (φ − sin φ cos φ)/π); the printed proof omits the 2. It is at most
(8/3)√(2/3) √‖w‖ ‖u‖^(3/2), which is attained at u = −(3/2) w: `turned_length` is compared with it over all u in
`tests/papers/local/theory/test_lemmas.py`. Hence

    L(W + U) − L − ⟨∇L, U⟩ ≤ √(2L) ((8/3)√(2/3) A^(1/4) ‖U‖^(3/2) + ‖U‖²) + ½ (2√A ‖U‖ + ‖U‖²)².
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from understudy._random import Stream, normal
from understudy.nets import Population
from understudy.papers.local.theory import gaussian
from understudy.papers.local.theory.descent import rate_bound
from understudy.papers.local.theory.geometry import mass_bound, residual_bound, smoothness_sides
from understudy.papers.local.theory.setting import LocalSetting
from understudy.theory.result import CheckFunction, Finding, Hypothesis, result

TURNED = 8 / 3 * math.sqrt(2 / 3)
"""Largest length of |βᵀx| − βᵀx sgn(wᵀx) relative to √‖w‖ ‖u‖^(3/2)."""
_LENGTHS = (1e-3, 1e-2, 0.1, 0.3, 1.0)
"""Lengths of random steps relative to √Σ‖w‖²."""
_ROUNDING = 1e-13
"""Rounding error of gradients and losses, relative to the size of the terms that cancel."""

Decide = Callable[[LocalSetting], Finding]


def local_result(name: str, about: str, expected: str, **words: Any) -> Callable[[Decide], CheckFunction]:
    """Decorate a function of a `LocalSetting` that returns one finding, to register it as a result.

    Where no closed form exists, or where the loss is zero to rounding, the conclusion is `expected`, and nothing is
    measured.
    """

    def register(decide: Decide) -> CheckFunction:
        @result(name, networks="one output", slopes="|·|", **words)
        def check(teacher: Population, student: Population, x: Tensor) -> list[Finding]:
            setting = LocalSetting(teacher, student, x)
            if not setting.measurable:
                found = local_finding(setting, expected, "not measured")
            elif setting.loss <= setting.rounding:
                change = "nothing: the student equals the teacher"
                zero = Hypothesis("loss", f"{setting.loss:.2g}", "larger than rounding errors", False, change)
                found = local_finding(setting, expected, "not measured", None, zero)
            else:
                found = decide(setting)
            return [replace(found, result=name, about=about)]

        return check

    return register


def local_finding(
    setting: LocalSetting, conclusion: str, measured: str, agrees: bool | None = None, *more: Hypothesis, **numbers: Any
) -> Finding:
    """Make a finding under the assumptions of the paper and `more` hypotheses; `local_result` names it."""
    return Finding("", "", (*setting.assumptions, *more), conclusion, measured, agrees, **numbers)


@local_result(
    "S4 lemma 7",
    about="all students",
    expected="the direction g towards the teacher has ⟨∇L, g⟩ of at least L",
    title="descent direction",
    statement="Below a threshold the direction g, which moves students near a teacher node towards their share of it "
    "and all others towards zero, has ⟨∇L, g⟩ of at least L.",
    measured="⟨∇L, g⟩ / L and ‖g‖, with the shares q of appendix B, and the ratio of the loss to the proof's threshold",
    subject="dynamics",
)
def descent_direction(setting: LocalSetting) -> Finding:
    """Compare ⟨∇L, g⟩ with L; students within δ_max of lemma 8 count as near."""
    found = setting.geometry
    inner, reach = float(found.descent), float(found.reach)
    conclusion = f"⟨∇L, g⟩ is at least L = {setting.loss:.3g}, so that ‖∇L‖ is at least L/‖g‖"
    if math.isnan(inner):
        missing = int((found.counts[0] == 0).nonzero()[0])
        measured = f"teacher node {missing} has no student within δ_max = {float(found.within):.3g}: g is undefined"
        return local_finding(setting, conclusion, measured, None, setting.loss_hypothesis(measured))
    measured = f"⟨∇L, g⟩ is {inner / setting.loss:.3g} L, and ‖g‖ is {reach:.3g}"
    agrees = inner >= setting.loss - _ROUNDING * reach
    return local_finding(setting, conclusion, measured, agrees, setting.loss_hypothesis(measured))


@local_result(
    "S4 lemma 11",
    about="all students",
    expected="‖R₂‖² is small",
    title="the part of the residual that is due to activation patterns is small",
    statement="Where the loss ε is small, ‖R₂‖², the part of the residual that is due to students whose boundary is "
    "not their teacher node's, is of order r^(5/2) w_max^(1/2) ε^(3/4). With all constants: (4/π) r A^(1/2) B^(3/2), A "
    "of lemma C.3 and B of lemma C.4.",
    measured="‖R₂‖² next to the bound with all constants, and next to r^(5/2) w_max^(1/2) ε^(3/4)",
    subject="student node",
)
def patterns(setting: LocalSetting) -> Finding:
    """Compare ‖R₂‖² with `residual_bound`."""
    limit, amount = float(residual_bound(setting.safe_loss, setting.teachers)), float(setting.geometry.bent)
    order = len(setting.lengths) ** 2.5 * math.sqrt(float(setting.lengths.max())) * setting.loss**0.75
    conclusion = f"‖R₂‖² is at most {limit:.3g}"
    measured = f"‖R₂‖² is {amount:.3g} of at most {limit:.3g}, and {amount / order:.2g} × r^(5/2) w_max^(1/2) ε^(3/4)"
    return local_finding(setting, conclusion, measured, amount <= limit, amount=amount, limit=limit)


@local_result(
    "S4 lemma 12",
    about="all students",
    expected="L(W + U) exceeds L(W) + ⟨∇L, U⟩ by little for small U",
    title="smoothness",
    statement="A step U of any direction changes the loss by at most ⟨∇L, U⟩ and terms of order (r w_max)^(1/4) "
    "L^(1/2) ‖U‖^(3/2), r w_max ‖U‖² and ‖U‖⁴. With all constants: √(2L) (2.18 A^(1/4) ‖U‖^(3/2) + ‖U‖²) + ½ (2√A ‖U‖ "
    "+ ‖U‖²)², A of lemma C.3, at any loss.",
    measured="the largest share of this bound that is reached by a step of gradient descent at η₀ of theorem 4, by "
    "random steps of five lengths, and by the step to zero",
    subject="dynamics",
)
def smoothness(setting: LocalSetting) -> Finding:
    """Compare L(W + U) − L − ⟨∇L, U⟩ with `smoothness_bound` for some steps."""
    students, teachers = setting.students, setting.teachers
    _, gradient = gaussian.loss_and_gradient(students, teachers)
    size = float(mass_bound(setting.loss * torch.ones(1).to(teachers), teachers).sqrt())
    drawn = normal(1, Stream.DIRECTIONS, 0, students.numel()).view_as(students).to(students)
    steps = {"gradient descent": -rate_bound(teachers) * gradient, "the step to zero": -students}
    steps |= {f"a random step of length {k * size:.2g}": k * size * drawn / drawn.norm() for k in _LENGTHS}
    shares = {}
    for name, step in steps.items():
        limit = float(smoothness_bound(setting.safe_loss, teachers, step))
        if limit > 0:
            excess = float(smoothness_sides(students, teachers, step).left)
            shares[name] = (excess - _ROUNDING * size**4) / limit
    most = max(shares, key=lambda name: shares[name])
    conclusion = "L(W + U) − L − ⟨∇L, U⟩ is at most the bound with all constants, for every step U"
    measured = f"it is at most {shares[most]:.3g} of the bound, for {most}"
    return local_finding(setting, conclusion, measured, shares[most] <= 1, amount=shares[most], limit=1.0)


@local_result(
    "S4 lemma 13",
    about="all students",
    expected="‖∇L‖² is at most of order (r w_max)³",
    title="bounded gradient",
    statement="Where the loss is at most of order r² w_max², ‖∇L‖² is at most of order r³ w_max³. With all constants: "
    "‖∇L‖² is at most 8 L A, A of lemma C.3, at any loss.",
    measured="‖∇L‖² next to the bound with all constants, and next to (r w_max)³",
    subject="dynamics",
)
def bounded_gradient(setting: LocalSetting) -> Finding:
    """Compare ‖∇L‖² with 8 L A."""
    limit = float(gradient_bound(setting.safe_loss, setting.teachers))
    amount = float(setting.geometry.gradient_norm) ** 2
    conclusion = f"‖∇L‖² is at most {limit:.3g}"
    measured = f"‖∇L‖² is {amount:.3g} of at most {limit:.3g}, and {amount / setting.scale**6:.2g} × (r w_max)³"
    return local_finding(setting, conclusion, measured, amount <= limit, amount=amount, limit=limit)


def turned_length(ratio: Float[Tensor, "*#shape"], angle: Float[Tensor, "*#shape"]) -> Float[Tensor, "*shape"]:
    """Length of |βᵀx| − βᵀx sgn(wᵀx) in the proof of lemma 12, in units of ‖u‖².

    Args:
        ratio: ‖w‖/‖u‖.
        angle: Angle between w and u.
    """
    along, across = ratio * (ratio + 2 * angle.cos()), ratio * angle.sin()
    phi = torch.atan2(across, along)
    return 2 * ((along.square() + across.square()) * (phi - phi.sin() * phi.cos()) / math.pi).clamp_min(0).sqrt()


def gradient_bound(loss: Float[Tensor, "*#net"], teachers: Float[Tensor, "*#net teacher in"]) -> Float[Tensor, "*net"]:
    """Lemma 13 with constants: ‖∇L‖² ≤ 8 L A at any loss, A = `mass_bound`."""
    return 8 * loss * mass_bound(loss, teachers)


def smoothness_bound(
    loss: Float[Tensor, "*#net"], teachers: Float[Tensor, "*#net teacher in"], step: Float[Tensor, "*#net student in"]
) -> Float[Tensor, "*net"]:
    """Lemma 12 with constants: an upper bound on L(W + U) − L − ⟨∇L, U⟩ for the step U, at any loss."""
    mass, length = mass_bound(loss, teachers), torch.linalg.vector_norm(step, dim=(-2, -1))
    turned = TURNED * mass**0.25 * length**1.5 + length.square()
    return (2 * loss).sqrt() * turned + (2 * mass.sqrt() * length + length.square()).square() / 2
