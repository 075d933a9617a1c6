"""Theorems 3 and 4 of S0 on given networks: where the gradient is small, every teacher node has its student.

Both rest on Lemmas 6 and 7 (`isolation`). For a band of half-width e about the boundary of teacher node j, seen by
student k: either another boundary is aligned with j by (M1 e, M2 e), or some sample of the band shows j's kink in the
gradient of k. A gradient too small for that leaves the first, and if no other teacher node is that near, it is a
student's. The theorems hide e and the constants in their ε; here both are computed for the data at hand, and e is
chosen so that the guarantee is the best it can be.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from understudy.nets import Population
from understudy.theory.boundaries import Apart, Planes, apart
from understudy.theory.isolation import ROUNDING, Isolation, isolation, kink, needed
from understudy.theory.result import Finding, Hypothesis, result
from understudy.theory.scene import Scene, joined

_OBSERVERS, _WIDTHS = 3, 7
_HOPE = 8.0
"""A guarantee that would be this many times too weak in a wider band is still tried: η falls where samples are many."""
_CLOSEST = 1_000
"""Samples by which the α of observers is judged before any is tried."""

Induced = Callable[[Scene, int, Tensor], Planes]
"""The boundaries that higher layers draw around samples near a boundary of the lowest."""


class Trial(NamedTuple):
    """The hypotheses for one teacher node, one observer and one width of the band."""

    observer: int
    e: float
    seen: int
    band: int
    boundaries: int
    """K, or Q: how many boundaries were counted, this one among them."""
    guarantee: Isolation
    rival: Apart
    """The boundaries that are not a student's of the lowest layer."""
    hypotheses: tuple[Hypothesis, ...]

    @property
    def holds(self) -> bool:
        return all(hypothesis.holds for hypothesis in self.hypotheses)

    @property
    def eps(self) -> float:
        return max(self.guarantee.m1, self.guarantee.m2) * self.e

    @property
    def lacking(self) -> float:
        """How far it is from holding, on a scale of factors."""
        return sum(math.log(max(h.factor, 1.0 + 1e-9)) for h in self.hypotheses if not h.holds)


def trials(sight: Scene, j: int, aware: bool, induced: Induced | None = None) -> Iterator[Trial]:
    """Observers and widths that are worth trying for the j-th teacher node with a boundary."""
    one = sight.one(j)
    gamma, step = reach(one, aware)
    away = one.distances(sight.x)[:, 0].abs()
    least = needed(gamma, len(sight.others(j)) + 1, sight.x.shape[1])
    finest = 1e5 * ROUNDING * (1.0 + float(torch.linalg.vector_norm(sight.x, dim=1).max() + one.offset.abs()))
    closest = sight.x[away.argsort()[:_CLOSEST]]
    ranked = []
    for k in sight.students.tolist():
        near, coefficient = away[sight.active[:, k]], float(sight.alpha(k, j, closest).abs().mean())
        if not (len(near) and coefficient > 0):
            continue
        enough = len(near) >= least
        narrow = float(near.kthvalue(least if enough else max(1, len(near) // 10)).values)
        small = 5 * float(sight.flattest[k]) / (coefficient * sight.kinked * (step - 1))
        ranked.append((not enough, max(narrow, small, finest), max(narrow, finest), k))
    for _, _, width, k in sorted(ranked)[:_OBSERVERS]:
        e = width * (1 + 1e-9)
        for _ in range(_WIDTHS):
            trial = _tried(sight, j, k, e, away, aware, induced)
            yield trial
            # A wider band holds more samples and lets the gradient be larger, but promises less.
            wider = max((1.01 * h.factor for h in trial.hypotheses[:2] if not h.holds), default=0.0)
            if not wider or not wider * trial.hypotheses[2].factor < _HOPE:
                break
            e *= wider


def reach(one: Planes, aware: bool) -> tuple[float, float]:
    """γ, and how far behind and before the band the augmented points lie along w̃, in units of e.

    Definition 7 (b) moves by 2e along w̃, with γ = 2; (a) by γe = 2√d e along every axis, of which the one that is
    nearest to w̃ counts.
    """
    gamma = 2.0 if aware else 2.0 * math.sqrt(one.normal.shape[1])
    return gamma, 2.0 if aware else gamma * float(one.normal[0].abs().max())


def moved(one: Planes, inside: Float[Tensor, "sample in"], e: float, aware: bool) -> Float[Tensor, "point in"]:
    """The samples of the band and their augmentation (S0 Definition 7), as far as the proof uses it."""
    gamma, _ = reach(one, aware)
    if aware:
        shift = 2 * e * one.normal[0]
    else:
        axis = int(one.normal[0].abs().argmax())
        shift = gamma * e * torch.eye(inside.shape[1], dtype=inside.dtype)[axis]
    return torch.cat((inside, inside + shift, inside - shift))


def _tried(
    sight: Scene, j: int, k: int, e: float, away: Float[Tensor, "sample"], aware: bool, induced: Induced | None
) -> Trial:
    one, band = sight.one(j), away <= e
    gamma, step = reach(one, aware)
    inside = sight.x[band & sight.active[:, k]]
    above = induced(sight, j, inside) if induced else None
    others = sight.others(j) if above is None else joined(sight.others(j), above)
    found = isolation(one, others, inside, e, gamma)
    coefficient = float(sight.alpha(k, j, inside).abs().min()) * sight.kinked if len(inside) else 0.0
    points = moved(one, inside, e, aware)
    most = float(sight.gradient(points).most[:, k].max()) if len(inside) else 0.0
    rival, name = _rival(sight, j, above)
    spread = float(away.square().mean().sqrt())
    hypotheses = judged(found, len(inside), e, most, coefficient, step, rival, name, k, spread)
    return Trial(k, e, len(inside), int(band.sum()), len(others) + 1, found, rival, hypotheses)


def _rival(sight: Scene, j: int, above: Planes | None) -> tuple[Apart, str]:
    """All boundaries but the students' own, which might be what is aligned instead, and the nearest in words."""
    rest = sight.rest(j)
    rivals = sight.theirs.some(rest) if above is None else joined(sight.theirs.some(rest), above)
    if not len(rivals):
        return Apart(torch.ones(1), torch.full((1,), math.inf)), ""
    far = apart(sight.one(j), rivals)
    nearest = int(far.eps.argmin())
    named = f"teacher node {int(sight.nodes[rest[nearest]])}" if nearest < len(rest) else "a boundary of a higher layer"
    return far, named


def judged(
    found: Isolation,
    seen: int,
    e: float,
    most: float,
    coefficient: float,
    step: float,
    rival: Apart,
    rival_name: str,
    observer: int,
    spread: float,
) -> tuple[Hypothesis, ...]:
    """What Theorems 3 to 5 need, for one band and one observer.

    A bound on the gap of biases that is as large as the distance of samples from the boundary, root mean square, holds
    of nearly every parallel boundary that the data crosses: it says nothing, and no certificate comes of it.
    """
    bound = kink(coefficient, step * e, e)
    sin, gap = found.m1 * e, found.m2 * e
    finite = all(map(math.isfinite, (found.m1, found.m2, most, bound)))
    nearest, eps = float(rival.eps.min()), max(sin, gap)
    return (
        Hypothesis(
            "samples of the band that an observer sees",
            f"{seen:,} in |w̃ᵀx + b| ≤ {e:.3g}, by student node {observer}",
            f"at least (γ + 3) K (d + 1) = {found.needed:,}",
            seen >= found.needed,
            f"{found.needed / max(seen, 1):,.1f} times as many samples, or fewer students",
            found.needed / max(seen, 0.5),
        ),
        Hypothesis(
            "gradient at these samples and their augmentation",
            f"at most {most:.3g}",
            f"at most |α| · {step - 1:.3g} e / 5 = {bound:.3g}, with α = {coefficient:.3g}",
            finite and most <= bound and bound > 0,
            "train longer, until every sample's gradient is that small",
            most / bound if bound > 0 and math.isfinite(most) else math.inf,
        ),
        Hypothesis(
            "a guarantee that says something",
            f"sin θ ≤ M1 e = {up(sin)}, bias gap ≤ M2 e = {up(gap)} (η = {found.eta:.3g}, μ = {found.mu:.3g})",
            f"M1 e below 1, M2 e below the samples' distance from the boundary, {spread:.3g}",
            finite and sin < 1 and gap < spread,
            "more samples near this boundary, so that a narrower band holds enough of them",
            max(sin, gap / spread) if finite and spread > 0 else math.inf,
        ),
        Hypothesis(
            "no other boundary as near",
            f"{rival_name} at ε = {nearest:.3g}" if rival_name else "no other node",
            f"further than the guaranteed ε = {up(eps)}",
            eps < nearest,
            "more samples, or a teacher whose nodes are further apart",
            max(eps / nearest, 1.0) if nearest > 0 else math.inf,
        ),
    )


def specialization(sight: Scene, aware: bool, name: str) -> list[Finding]:
    """One finding for each teacher node: the best guarantee that holds, or the trial that lacks least."""
    return [node_finding(sight, j, trials(sight, j, aware), name) for j in range(len(sight.theirs))]


def up(value: float) -> str:
    """Three digits, rounded up: what is printed as a bound is one."""
    if not (math.isfinite(value) and value > 0):
        return f"{value:.3g}"
    digit = 10.0 ** (math.floor(math.log10(value)) - 2)
    return f"{math.ceil(value / digit * (1 - 1e-12)) * digit:.3g}"


def measured_nearest(sight: Scene, j: int) -> str:
    """The student whose boundary is in fact nearest, in words."""
    near = sight.nearest(j)
    if not len(near.eps):
        return "no student has a boundary"
    k = int(near.eps.argmin())
    return (
        f"student node {int(sight.students[k])} is nearest: sin θ = {float(near.sin[k]):.3g}, "
        f"bias gap {float(near.gap[k]):.3g}"
    )


def node_finding(sight: Scene, j: int, tried: Iterator[Trial], name: str) -> Finding:
    all_tried, near = list(tried), sight.nearest(j)
    about, measured = f"teacher node {int(sight.nodes[j])}", measured_nearest(sight, j)
    if not all_tried:
        lacking = Hypothesis(
            "an observer with α ≠ 0",
            "none",
            "a student that is active somewhere and whose fan-out is not at right angles to this node's",
            False,
            "students whose active side holds samples, and a node with some fan-out",
            math.inf,
        )
        return Finding(name, about, (lacking,), "a student has nearly its boundary", measured, None)
    holding = [trial for trial in all_tried if trial.holds]
    trial = min(holding, key=lambda t: t.eps) if holding else min(all_tried, key=lambda t: t.lacking)
    sin, gap = trial.guarantee.m1 * trial.e, trial.guarantee.m2 * trial.e
    within = bool(((near.sin <= sin) & (near.gap <= gap)).any())
    share = trial.seen / trial.band if trial.band else 0.0
    aim, samples = _samples(sight, trial)
    would = (
        f"ε = {aim:.2g} would take about {samples:.2g} such samples" if samples else "how many it takes is not known"
    )
    conclusion = (
        f"a student has nearly its boundary, in one orientation or the other: sin θ ≤ {up(sin)}, bias gap ≤ {up(gap)} "
        f"(observer {trial.observer} sees κ = {share:.2g} of the band; {trial.boundaries:,} boundaries, "
        f"γ = {trial.guarantee.gamma:.3g}, "
        f"M1 = {trial.guarantee.m1:.3g}, M2 = {trial.guarantee.m2:.3g}); {would}"
    )
    eps = trial.eps if trial.holds else None
    return Finding(name, about, trial.hypotheses, conclusion, measured, within, eps, samples=samples)


def _samples(sight: Scene, trial: Trial) -> tuple[float, float | None]:
    """An ε that would tell this boundary from others, and about how many such samples it would take.

    The band holds a share of the samples that falls with its width.
    """
    aim = min(1.0, float(trial.rival.eps.min())) / 2
    most = max(trial.guarantee.m1, trial.guarantee.m2)
    if not (trial.seen and math.isfinite(most) and aim > 0):
        return aim, None
    return aim, len(sight.x) * trial.guarantee.needed / trial.seen * trial.e * most / aim


_SMALL = (
    "If a student's gradient is small at every sample near a teacher node's boundary that it sees, and at the points "
    "of the augmentation, and there are enough such samples, then some student's boundary lies as near to the "
    "teacher's."
)


@result(
    "S0 theorem 3",
    title="Specialization from finitely many samples, augmented along the axes",
    statement=_SMALL + " The augmentation moves every sample along each axis; it needs no knowledge of the teacher.",
    measured="the number of samples in the band that an observer sees, the gradient there and at the augmented "
    "points, η, μ, M1 and M2 of Lemma 6, and other boundaries that are as close; then ε and the distance of the "
    "nearest student. The width of the band and the observer are those with the best guarantee",
    subject="teacher node",
    networks="two layers",
)
def theorem_3(teacher: Population, student: Population, x: Float[Tensor, "sample in"]) -> Sequence[Finding]:
    """Every teacher node, with points moved along the axis that is nearest to its weight."""
    return specialization(Scene(teacher, student, x), False, "S0 theorem 3")


@result(
    "S0 theorem 4",
    title="Specialization from finitely many samples, augmented along the teacher's weights",
    statement=_SMALL
    + " The augmentation moves samples along the teacher's own weights, which for the same ε takes fewer "
    "samples and lets the gradient be larger, by √d in the paper's count.",
    measured="as for S0 theorem 3, with points augmented along the teacher's weights",
    subject="teacher node",
    networks="two layers",
)
def theorem_4(teacher: Population, student: Population, x: Float[Tensor, "sample in"]) -> Sequence[Finding]:
    """Every teacher node, with points moved along its own weight."""
    return specialization(Scene(teacher, student, x), True, "S0 theorem 4")
