"""S4 on given networks: whether students of small loss match their teacher, and how fast descent takes the rest.

Thresholds ε_0 of the paper, with 1 for the constant that it leaves open, are far below what float64 resolves: theorems
3 and 4 apply where the loss is that small, and what is so is measured elsewhere. Lemmas 8, 9 and C.4 are taken with all
constants instead (`local_geometry`), which needs no threshold: there is nothing to fail but what they say.
"""

from __future__ import annotations

import math
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from understudy.errors import UserError
from understudy.nets import Population
from understudy.papers.local.theory.descent import rate_bound
from understudy.papers.local.theory.gaussian import closed_forms as gaussian
from understudy.papers.local.theory.geometry import (
    LocalGeometry,
    gap_bound,
    half_mass,
    local_geometry,
    separation,
    spread_bound,
)
from understudy.papers.local.theory.setting import ERRORS, Setting, as_students, as_teachers, moments
from understudy.theory.result import Finding, Hypothesis, result, results

_s4 = partial(result, networks="one output", slopes="|·|")


def closed_form(teacher: Population, student: Population, x: Float[Tensor, "sample in"] | None = None) -> LocalGeometry:
    """The exact loss, its gradient and geometry of networks as they are, at inputs of width 1.

    Refused where there is none: of other networks, and of inputs, if any are given, that are not normal.
    """
    (theorem,) = (r for r in results() if r.name == "S4 theorem 3")
    if why := theorem.fits(teacher, student):
        raise UserError(f"there is no closed form here: {why}")
    if x is not None and not (found := moments(x)).normal:
        raise UserError(
            "there is no closed form here: it is for normal inputs of one width in all directions, and these have "
            f"{found}; more than {ERRORS:g} is too much. Give normal inputs, or train on samples"
        )
    return local_geometry(as_students(student), as_teachers(teacher))


def _unmeasured(name: str, about: str, setting: Setting, conclusion: str) -> list[Finding]:
    """Where there is no closed form, or nothing left of the loss."""
    hypotheses = setting.assumed
    if setting.measurable:
        change = "nothing: the teacher is reached"
        hypotheses += (Hypothesis("loss", f"{setting.loss:.2g}", "more than rounding leaves", False, change),)
    return [Finding(name, about, hypotheses, conclusion, "not measured")]


@_s4(
    "S4 theorem 2",
    title="zero loss, matched students",
    statement="Where the loss under normal inputs is zero, every student points along a teacher node or against it.",
    measured="the exact loss, and the largest angle between a student and its teacher node",
    subject="student node",
)
def matched(teacher: Population, student: Population, x: Float[Tensor, "sample in"]) -> list[Finding]:
    """At a loss that is zero to rounding no student may be further off than lemma C.4 leaves it."""
    name, about, setting = "S4 theorem 2", "all students", Setting(teacher, student, x)
    conclusion = "the direction of every student is, up to sign, that of a teacher node"
    if not setting.measurable:
        return _unmeasured(name, about, setting, conclusion)
    found = setting.geometry
    live = found.squares[0] > 0
    off = torch.where(live, found.angles[0], -1.0)
    k = int(off.argmax())
    share = float(found.squares[0, k] / found.squares.sum())
    none = Hypothesis(
        "loss",
        f"{setting.loss:.3g}",
        f"0, that is at most {setting.zero:.2g} with rounding",
        setting.loss <= setting.zero,
        "train on",
        setting.loss / setting.zero if setting.loss > setting.zero else 1.0,
    )
    told = f"the largest angle is {float(off[k]):.2g} rad, of student {k}, which has {share:.2g} of the mass"
    limit = float(spread_bound(setting.at_least, setting.teachers))
    agrees = bool((found.squares[0] * found.angles[0].square() <= limit).all())
    if not bool(live.any()):
        told, agrees = "no student has a length", True
    return [Finding(name, about, (*setting.assumed, none), conclusion, told, agrees)]


@_s4(
    "S4 theorem 3",
    title="gradients are as large as losses",
    statement="Below a threshold the gradient is at least κ times the loss, with κ of order (r w_max)^(−½): no other "
    "stationary points are near the teacher, however many students there are.",
    measured="‖∇L‖ / L times √(r w_max) next to the value that the proof's constants give, the inner product of lemma "
    "7, and the ratio of the loss to the proof's threshold",
    subject="dynamics",
)
def gradients(teacher: Population, student: Population, x: Float[Tensor, "sample in"]) -> list[Finding]:
    """‖∇L‖/L beside κ, whose constant the proof gives; the threshold is that of lemma 7."""
    name, about, setting = "S4 theorem 3", "all students", Setting(teacher, student, x)
    if not setting.measurable or setting.loss <= setting.zero:
        return _unmeasured(name, about, setting, "‖∇L‖ is at least κ L")
    found = setting.geometry
    conclusion = (
        f"‖∇L‖ is at least κ L with κ = {setting.kappa:.3g}, that is {setting.kappa * setting.scale:.2g}/√(r w_max)"
    )
    ratio = float(found.ratio)
    told = f"‖∇L‖/L is {ratio:.3g}, that is {ratio * setting.scale:.3g}/√(r w_max)"
    inner = float(found.descent / found.loss)
    lemma = (
        "a teacher node has no student within δ_max, and lemma 7 no direction"
        if math.isnan(inner)
        else f"lemma 7's direction has ⟨∇L, g⟩ = {inner:.3g} L, so it is at least {inner / float(found.reach):.3g}"
    )
    hypotheses = (*setting.assumed, setting.below(told))
    return [Finding(name, about, hypotheses, conclusion, f"{told}; {lemma}", ratio >= setting.kappa)]


@_s4(
    "S4 theorem 4",
    title="local convergence",
    statement="Gradient descent from a loss below a threshold has a loss of order r w_max / (η t) after t steps, "
    "however many students there are.",
    measured="the decrease of the exact loss in one step of gradient descent, next to the decrease that the theorem "
    "guarantees",
    subject="dynamics",
)
def convergence(teacher: Population, student: Population, x: Float[Tensor, "sample in"]) -> list[Finding]:
    """A step takes η κ² L²/4 off the loss at least; here the step is of the largest rate, η_0."""
    name, about, setting = "S4 theorem 4", "all students", Setting(teacher, student, x)
    if not setting.measurable or setting.loss <= setting.zero:
        return _unmeasured(name, about, setting, "the loss falls as 1/t, or is zero")
    rate = float(rate_bound(setting.teachers))
    loss, gradient = gaussian.loss_and_gradient(setting.students, setting.teachers)
    after = float(gaussian.loss(setting.students - rate * gradient, setting.teachers))
    least = rate * setting.kappa**2 / 4 * setting.loss**2
    steps = 4 / (rate * setting.kappa**2)
    conclusion = (
        f"a step of gradient descent at η = {rate:.3g} takes at least {least:.2g} off the loss, η κ² L²/4, so "
        f"that it is at most {steps:.3g}/t after t steps"
    )
    told = f"the first step at η = {rate:.3g} takes {float(loss) - after:.3g} off it"
    hypotheses = (*setting.assumed, setting.below(told))
    return [Finding(name, about, hypotheses, conclusion, told, float(loss) - after >= least)]


@_s4(
    "S4 lemma 8",
    title="a student near every teacher node",
    statement="Where the loss is small every teacher node has students close to it, of half its length together. With "
    "all constants: within √(B / (ℓ/2 − α)), ℓ its length, α of lemma 9, B of lemma C.4.",
    measured="the angle within which the students of each teacher node are guaranteed to have half of its length, by "
    "the bounds of lemmas 9 and C.4, and the angle within which they do",
    subject="teacher node",
)
def near_every_node(teacher: Population, student: Population, x: Float[Tensor, "sample in"]) -> list[Finding]:
    """Students of node i have a mass of ‖ŵ_i‖ ≥ ‖w*_i‖ − α at least, of which at most B/δ² is further than δ."""
    name, setting = "S4 lemma 8", Setting(teacher, student, x)
    count = len(setting.lengths)
    if not setting.measurable:
        conclusion = "it has students near it"
        return [f for i in range(count) for f in _unmeasured(name, f"teacher node {i}", setting, conclusion)]
    found = setting.geometry
    alpha = float(gap_bound(setting.at_least, setting.teachers))
    spread = float(spread_bound(setting.at_least, setting.teachers))
    findings = []
    for i, length in enumerate(setting.lengths.tolist()):
        left = length / 2 - alpha
        angle = math.sqrt(spread / left) if left > 0 else math.inf
        says = Hypothesis(
            "loss small enough",
            f"α = {alpha:.3g}, B = {spread:.3g}: {f'{angle:.3g} rad' if left > 0 else 'nothing'} follows",
            f"α below {length / 2:.3g}, half of its length, and an angle below π/2",
            angle < math.pi / 2,
            "train on: at a smaller loss both bounds are smaller",
            alpha / (length / 2) if left <= 0 else max(1.0, angle / (math.pi / 2)),
        )
        is_so = float(half_mass(found, setting.teachers)[0, i])
        # Of other networks and inputs the loss has no say.
        hypotheses = (*setting.assumed, says) if all(h.holds for h in setting.assumed) else setting.assumed
        sure = all(h.holds for h in hypotheses)
        findings.append(
            Finding(
                name,
                f"teacher node {i}",
                hypotheses,
                f"students of half its length are within {angle:.3g} rad of it" if left > 0 else "nothing follows",
                f"they are within {is_so:.3g} rad"
                if is_so < math.inf
                else "its students have less than half its length",
                is_so <= angle,
                eps=angle if sure else None,
            )
        )
    return findings


@_s4(
    "S4 lemma 9",
    title="averages of students are near the teacher",
    statement="Where the loss ε is small the sum of ‖w‖ w over the students of a teacher node is within order ε^(3/8) "
    "of it. With all constants: (√(2ε) + ‖R₂‖) / √λ_min(M), ‖R₂‖ by lemma 11.",
    measured="√Σ‖v‖² of the averages next to the bound with all constants: lemmas C.3, C.4, 11 and λ_min(M)",
    subject="student node",
)
def averages(teacher: Population, student: Population, x: Float[Tensor, "sample in"]) -> list[Finding]:
    """√Σ‖v_i‖² beside `gap_bound`; an angle of teacher nodes below 1e-5 leaves λ_min(M) to rounding."""
    name, about, setting = "S4 lemma 9", "averages of students", Setting(teacher, student, x)
    if not setting.measurable:
        return _unmeasured(name, about, setting, "each is near its teacher node")
    found = setting.geometry
    limit = float(gap_bound(setting.at_least, setting.teachers))
    gaps = torch.linalg.vector_norm(found.gaps[0], dim=-1)
    amount = float(gaps.norm())
    most = f"the largest ‖v‖ is {float(gaps.max()):.3g}, at teacher node {int(gaps.argmax())}"
    told = f"√Σ‖v‖² is {amount:.3g} of at most {limit:.3g}; {most}"
    conclusion = f"√Σ‖v‖², how far averages are from their teacher nodes, is at most {limit:.3g}"
    return [Finding(name, about, setting.assumed, conclusion, told, amount <= limit, amount=amount, limit=limit)]


@_s4(
    "S4 lemma 10",
    title="what averages miss shows in the loss",
    statement="The part of the residual that is due to averages, R₁, has ‖R₁‖² of at least λ_min(M) Σ‖v‖², and "
    "λ_min(M) is of order Δ³/r³ at least.",
    measured="λ_min(M) in closed form next to Δ³/r³, and ‖R₁‖² next to the bound that it gives",
    subject="dynamics",
)
def convexity(teacher: Population, student: Population, x: Float[Tensor, "sample in"]) -> list[Finding]:
    """λ_min(M) in closed form; for two nodes it is 2/π (Δ − sin Δ), 0.85 Δ³/r³."""
    name, about, setting = "S4 lemma 10", "averages of students", Setting(teacher, student, x)
    if not setting.measurable:
        return _unmeasured(name, about, setting, "‖R₁‖² is at least λ_min(M) Σ‖v‖²")
    found = setting.geometry
    least, rest = float(found.least_eigenvalue), float(found.gaps.square().sum())
    order = (float(separation(setting.teachers)) / len(setting.lengths)) ** 3
    linear = float(found.linear)
    conclusion = f"‖R₁‖² is at least λ_min(M) Σ‖v‖² = {least * rest:.3g}"
    relative = f"{least / order:.2g} × Δ³/r³" if order > 0 else "and Δ = 0"
    told = f"‖R₁‖² is {linear:.3g} of at least {least * rest:.3g}; λ_min(M) = {least:.3g}, {relative}"
    agrees = linear >= least * rest * (1 - 1e-6) - setting.zero
    return [Finding(name, about, setting.assumed, conclusion, told, agrees)]


@_s4(
    "S4 lemma C.4",
    title="students far from the teacher have little mass",
    statement="Where the loss is ε, Σ‖w‖²δ² over all students, δ the angle with the nearest teacher node, is of order "
    "√ε. With all constants: (π²/4) (‖h‖ √(2ε) + (r − 1) cosˡ(Δ/2) Σ‖w‖²).",
    measured="Σ‖w‖²δ² next to the bound with all constants, at the best degree of the proof's test function",
    subject="student node",
)
def far_students(teacher: Population, student: Population, x: Float[Tensor, "sample in"]) -> list[Finding]:
    """Beside `spread_bound`, which has what the printed proof leaves out of ‖h‖."""
    name, about, setting = "S4 lemma C.4", "all students", Setting(teacher, student, x)
    if not setting.measurable:
        return _unmeasured(name, about, setting, "Σ‖w‖²δ² is small")
    found = setting.geometry
    limit = float(spread_bound(setting.at_least, setting.teachers))
    amount = float((found.squares * found.angles.square()).sum())
    conclusion = f"Σ‖w‖²δ² is at most {limit:.3g}"
    told = f"Σ‖w‖²δ² is {amount:.3g} of at most {limit:.3g}, at an exact loss of {setting.loss:.3g}"
    return [Finding(name, about, setting.assumed, conclusion, told, amount <= limit, amount=amount, limit=limit)]
