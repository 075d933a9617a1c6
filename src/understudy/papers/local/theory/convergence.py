"""Theorems 2 to 4 and lemmas 8 to 10 and C.4 of Zhou, Ge & Jin 2021, checked on given networks.

The thresholds ε_0 of the paper, with its open constants set to 1, are far below the resolution of float64. Theorems 3
and 4 apply only below them; elsewhere the measured value is reported all the same. Lemmas 8, 9 and C.4 are used with
all constants instead (`geometry`), which needs no threshold.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from understudy.nets import Population
from understudy.papers.local.theory import gaussian
from understudy.papers.local.theory.descent import rate_bound
from understudy.papers.local.theory.geometry import gap_bound, half_mass_angle, least_angle, spread_bound
from understudy.papers.local.theory.setting import LocalSetting
from understudy.theory.result import CheckFunction, Finding, Hypothesis, at_most, result

_Decide = Callable[[LocalSetting], list[Finding]]


def _s4(
    name: str, about: str, expected: str, *, at_zero: bool = True, **words: Any
) -> Callable[[_Decide], CheckFunction]:
    """Register a function of the setting that returns one finding, or one per teacher node if `about` is that.

    Where no closed form exists, or where the loss is zero to rounding and `at_zero` is False, the conclusion is
    `expected`, and nothing is measured.
    """

    def register(decide: _Decide) -> CheckFunction:
        @result(name, networks="one output", slopes="|·|", **words)
        def check(teacher: Population, student: Population, x: Tensor) -> list[Finding]:
            setting = LocalSetting(teacher, student, x)
            several = about == "teacher node"
            subjects = [f"{about} {i}" for i in range(len(setting.lengths))] if several else [about]
            if not setting.measurable:
                found = [_finding(setting, expected, "not measured")] * len(subjects)
            elif at_zero or setting.loss > setting.rounding:
                found = decide(setting)
            else:
                change = "nothing: the student equals the teacher"
                zero = Hypothesis("loss", f"{setting.loss:.2g}", "larger than rounding errors", False, change)
                found = [_finding(setting, expected, "not measured", None, zero)]
            return [replace(f, result=name, about=subject) for f, subject in zip(found, subjects, strict=True)]

        return check

    return register


def _finding(
    setting: LocalSetting, conclusion: str, measured: str, agrees: bool | None = None, *more: Hypothesis, **numbers: Any
) -> Finding:
    """A finding under the assumptions and `more` hypotheses; `_s4` fills in the result and its subject."""
    return Finding("", "", (*setting.assumptions, *more), conclusion, measured, agrees, **numbers)


@_s4(
    "S4 theorem 2",
    about="all students",
    expected="the direction of every student is, up to sign, that of a teacher node",
    title="zero loss, matched students",
    statement="Where the loss under normal inputs is zero, every student is parallel to a teacher node, up to sign.",
    measured="the exact loss, and the largest angle between a student and its teacher node",
    subject="student node",
)
def matched(setting: LocalSetting) -> list[Finding]:
    """Compare the angle of every student with the bound of lemma C.4 at a loss that is zero to rounding."""
    found = setting.geometry
    live = found.squares[0] > 0
    angles = torch.where(live, found.angles[0], -1.0)
    k = int(angles.argmax())
    share = float(found.squares[0, k] / found.squares.sum())
    zero_loss = at_most(
        "loss",
        setting.loss,
        setting.rounding,
        requirement=f"0, that is at most {setting.rounding:.2g} with rounding",
        change="train longer",
    )
    measured = f"the largest angle is {float(angles[k]):.2g} rad (student {k}, {share:.2g} of the mass)"
    limit = float(spread_bound(setting.safe_loss, setting.teachers))
    agrees = bool((found.squares[0] * found.angles[0].square() <= limit).all())
    if not bool(live.any()):
        measured, agrees = "all students have length 0", True
    conclusion = "the direction of every student is, up to sign, that of a teacher node"
    return [_finding(setting, conclusion, measured, agrees, zero_loss)]


@_s4(
    "S4 theorem 3",
    about="all students",
    expected="‖∇L‖ is at least κ L",
    at_zero=False,
    title="lower bound on the gradient",
    statement="Below a threshold the gradient norm is at least κ times the loss, with κ of order (r w_max)^(−½): the "
    "teacher has no other stationary points nearby, for any number of students.",
    measured="‖∇L‖ / L times √(r w_max) next to the value that the proof's constants give, the inner product of lemma "
    "7, and the ratio of the loss to the proof's threshold",
    subject="dynamics",
)
def gradients(setting: LocalSetting) -> list[Finding]:
    """Compare ‖∇L‖/L with κ and the constant of the proof; the threshold is that of lemma 7."""
    found = setting.geometry
    conclusion = (
        f"‖∇L‖ is at least κ L with κ = {setting.kappa:.3g}, that is {setting.kappa * setting.scale:.2g}/√(r w_max)"
    )
    ratio = float(found.ratio)
    measured = f"‖∇L‖/L is {ratio:.3g}, that is {ratio * setting.scale:.3g}/√(r w_max)"
    inner = float(found.descent / found.loss)
    lemma = (
        "a teacher node has no student within δ_max, so that the direction of lemma 7 is undefined"
        if math.isnan(inner)
        else f"the direction of lemma 7 has ⟨∇L, g⟩ = {inner:.3g} L, which implies at least "
        f"{inner / float(found.reach):.3g}"
    )
    loss = setting.loss_hypothesis(measured)
    return [_finding(setting, conclusion, f"{measured}; {lemma}", ratio >= setting.kappa, loss)]


@_s4(
    "S4 theorem 4",
    about="all students",
    expected="the loss falls as 1/t, or is zero",
    at_zero=False,
    title="local convergence",
    statement="Gradient descent from a loss below a threshold has a loss of order r w_max / (η t) after t steps, for "
    "any number of students.",
    measured="the decrease of the exact loss in one step of gradient descent, next to the decrease that the theorem "
    "guarantees",
    subject="dynamics",
)
def convergence(setting: LocalSetting) -> list[Finding]:
    """Compare the decrease of the loss in one step with η κ² L²/4, at the largest rate η_0."""
    rate = float(rate_bound(setting.teachers))
    loss, gradient = gaussian.loss_and_gradient(setting.students, setting.teachers)
    decrease = float(loss) - float(gaussian.loss(setting.students - rate * gradient, setting.teachers))
    least = rate * setting.kappa**2 / 4 * setting.loss**2
    steps = 4 / (rate * setting.kappa**2)
    conclusion = (
        f"a step of gradient descent at η = {rate:.3g} decreases the loss by at least η κ² L²/4 = {least:.2g}, so "
        f"that it is at most {steps:.3g}/t after t steps"
    )
    measured = f"the first step at η = {rate:.3g} decreases it by {decrease:.3g}"
    return [_finding(setting, conclusion, measured, decrease >= least, setting.loss_hypothesis(measured))]


@_s4(
    "S4 lemma 8",
    about="teacher node",
    expected="it has students near it",
    title="a student near every teacher node",
    statement="Where the loss is small, every teacher node has students close to it whose mass Σ‖w‖² is at least half "
    "of its length. With all constants: within √(B / (ℓ/2 − α)), ℓ its length, α of lemma 9, B of lemma C.4.",
    measured="the angle within which the mass of the students of each teacher node is guaranteed to be half of its "
    "length, by the bounds of lemmas 9 and C.4, and the angle within which it is",
    subject="teacher node",
)
def near_every_node(setting: LocalSetting) -> list[Finding]:
    """Bound the angle of half of the mass: the mass is at least ‖ŵ_i‖ ≥ ‖w*_i‖ − α, and at most B/δ² of it beyond δ."""
    alpha = float(gap_bound(setting.safe_loss, setting.teachers))
    spread = float(spread_bound(setting.safe_loss, setting.teachers))
    actual = half_mass_angle(setting.geometry, setting.teachers)[0].tolist()
    findings = []
    for length, half in zip(setting.lengths.tolist(), actual, strict=True):
        left = length / 2 - alpha
        angle = math.sqrt(spread / left) if left > 0 else math.inf
        small_loss = Hypothesis(
            name="loss small enough",
            value=f"α = {alpha:.3g}, B = {spread:.3g}, which imply {f'{angle:.3g} rad' if left > 0 else 'nothing'}",
            requirement=f"α below {length / 2:.3g}, half of its length, and an angle below π/2",
            holds=angle < math.pi / 2,
            change="train longer: at a smaller loss both bounds are smaller",
            factor=alpha / (length / 2) if left <= 0 else max(1.0, angle / (math.pi / 2)),
        )
        # The bounds on the loss mean nothing where the assumptions fail.
        more = [small_loss] if all(h.holds for h in setting.assumptions) else []
        conclusion = f"students with a mass of half its length are within {angle:.3g} rad of it"
        near, far = f"they are within {half:.3g} rad", "the mass of its students is less than half its length"
        stated = conclusion if left > 0 else "nothing follows", near if half < math.inf else far
        eps = angle if more and small_loss.holds else None
        findings.append(_finding(setting, *stated, half <= angle, *more, eps=eps))
    return findings


@_s4(
    "S4 lemma 9",
    about="averages of students",
    expected="each is near its teacher node",
    title="averages of students are near the teacher",
    statement="Where the loss ε is small, the sum of ‖w‖ w over the students of a teacher node differs from it by at "
    "most order ε^(3/8). With all constants: (√(2ε) + ‖R₂‖) / √λ_min(M), ‖R₂‖ by lemma 11.",
    measured="√Σ‖v‖² of the averages next to the bound with all constants: lemmas C.3, C.4, 11 and λ_min(M)",
    subject="student node",
)
def averages(setting: LocalSetting) -> list[Finding]:
    """Compare √Σ‖v_i‖² with `gap_bound`; at angles of teacher nodes below 10⁻⁵, λ_min(M) is all rounding."""
    limit = float(gap_bound(setting.safe_loss, setting.teachers))
    gaps = torch.linalg.vector_norm(setting.geometry.gaps[0], dim=-1)
    amount = float(gaps.norm())
    largest = f"the largest ‖v‖ is {float(gaps.max()):.3g}, at teacher node {int(gaps.argmax())}"
    measured = f"√Σ‖v‖² is {amount:.3g} of at most {limit:.3g}; {largest}"
    conclusion = f"√Σ‖v‖², the distance of the averages from their teacher nodes, is at most {limit:.3g}"
    return [_finding(setting, conclusion, measured, amount <= limit, amount=amount, limit=limit)]


@_s4(
    "S4 lemma 10",
    about="averages of students",
    expected="‖R₁‖² is at least λ_min(M) Σ‖v‖²",
    title="errors of averages raise the loss",
    statement="The part R₁ of the residual that is due to averages satisfies ‖R₁‖² ≥ λ_min(M) Σ‖v‖², and λ_min(M) is "
    "at least of order Δ³/r³.",
    measured="λ_min(M) in closed form next to Δ³/r³, and ‖R₁‖² next to the bound that it gives",
    subject="dynamics",
)
def convexity(setting: LocalSetting) -> list[Finding]:
    """Compare ‖R₁‖² with λ_min(M) Σ‖v‖²; for two nodes λ_min(M) is 2/π (Δ − sin Δ), about 0.85 Δ³/r³."""
    found = setting.geometry
    least = float(found.least_eigenvalue)
    bound = least * float(found.gaps.square().sum())
    order = (float(least_angle(setting.teachers)) / len(setting.lengths)) ** 3
    linear = float(found.linear)
    conclusion = f"‖R₁‖² is at least λ_min(M) Σ‖v‖² = {bound:.3g}"
    relative = f"{least / order:.2g} × Δ³/r³" if order > 0 else "and Δ = 0"
    measured = f"‖R₁‖² is {linear:.3g} of at least {bound:.3g}; λ_min(M) = {least:.3g}, {relative}"
    return [_finding(setting, conclusion, measured, linear >= bound * (1 - 1e-6) - setting.rounding)]


@_s4(
    "S4 lemma C.4",
    about="all students",
    expected="Σ‖w‖²δ² is small",
    title="students far from the teacher have little mass",
    statement="At a loss ε, Σ‖w‖²δ² over all students, δ the angle with the nearest teacher node, is of order √ε. "
    "With all constants: (π²/4) (‖h‖ √(2ε) + (r − 1) cosˡ(Δ/2) Σ‖w‖²).",
    measured="Σ‖w‖²δ² next to the bound with all constants, at the best degree of the proof's test function",
    subject="student node",
)
def far_students(setting: LocalSetting) -> list[Finding]:
    """Compare Σ‖w‖²δ² with `spread_bound`, which includes the terms of ‖h‖ that the printed proof omits."""
    found = setting.geometry
    limit = float(spread_bound(setting.safe_loss, setting.teachers))
    amount = float((found.squares * found.angles.square()).sum())
    conclusion = f"Σ‖w‖²δ² is at most {limit:.3g}"
    measured = f"Σ‖w‖²δ² is {amount:.3g} of at most {limit:.3g}, at an exact loss of {setting.loss:.3g}"
    return [_finding(setting, conclusion, measured, amount <= limit, amount=amount, limit=limit)]
