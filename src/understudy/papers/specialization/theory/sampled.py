"""Specialization from finitely many samples at a small gradient: theorems 3 and 4 of Tian 2020.

Both rest on lemmas 6 and 7 (`theory.isolation`). Take a band of half-width e around the boundary of teacher node j,
observed by student k: either another boundary is aligned with j by (M1 e, M2 e), or some sample of the band shows j's
kink in the gradient of k. If the gradient is too small for that, the first holds, and if no other teacher node is that
close, the aligned boundary is a student's. The theorems absorb e and the constants in their ε; here both are computed
for the given data, and e is chosen to give the best guarantee.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from understudy.theory.boundaries import PlaneDistances, Planes, concatenate, plane_distances
from understudy.theory.isolation import ROUNDING, Isolation, isolation, kink_bound, samples_needed
from understudy.theory.pair_geometry import PairGeometry, per_teacher_node
from understudy.theory.result import INFORMATIVE, UNRIVALLED, Finding, Hypothesis, result

_OBSERVERS, _WIDTHS = 3, 7
"""Number of observers, and of widths per observer, that are tried."""
_HOPE = 8.0
"""A wider band is tried if its guarantee would be at most this many times too weak: η falls with more samples."""
_CLOSEST = 1_000
"""Samples by which the α of observers is estimated before any is tried."""

InducedPlanes = Callable[[PairGeometry, int, Tensor], Planes]
"""A function that returns the boundaries that higher layers induce around samples near a boundary of the lowest."""


@dataclass(frozen=True, kw_only=True)
class BandTrial:
    """Measurements on the band of half-width e around one teacher node's boundary, for one observer."""

    observer: int
    e: float
    samples: int
    """Samples of the band on which the observer is active."""
    share: float
    """κ: their share of all samples of the band."""
    gradient: float
    """Largest gradient at these samples and their augmentation."""
    alpha: float
    """Smallest |α| on these samples, times the change of the activation's slope at zero."""
    step: float
    """Distance of the augmented points from the samples along w̃, in units of e."""
    spread: float
    """Root mean square distance of all samples from the boundary."""
    rivals: PlaneDistances
    """Distances of the boundaries that are not a student's of the lowest layer."""
    rival: str
    """Name of the nearest rival; empty if there is none."""
    boundaries: int
    """K, or Q: number of boundaries that were counted, including this one."""
    guarantee: Isolation

    @cached_property
    def hypotheses(self) -> tuple[Hypothesis, ...]:
        """Hypotheses of theorems 3 to 5 for one band and one observer.

        If the bound on the bias gap is as large as the root mean square distance of the samples from the boundary,
        nearly every parallel boundary that the data crosses satisfies it: such a guarantee certifies nothing.
        """
        e, seen, most, found = self.e, self.samples, self.gradient, self.guarantee
        sin, gap = self.sin, self.gap
        bound = kink_bound(self.alpha, self.step * e, e)
        finite = all(map(math.isfinite, (found.m1, found.m2, most, bound)))
        nearest, eps = float(self.rivals.eps.min()), max(sin, gap)
        return (
            Hypothesis(
                "samples of the band that an observer sees",
                f"{seen:,} in |w̃ᵀx + b| ≤ {e:.3g}, by student node {self.observer}",
                f"at least (γ + 3) K (d + 1) = {found.needed:,}",
                seen >= found.needed,
                f"{found.needed / max(seen, 1):,.1f} times as many samples, or fewer students",
                found.needed / max(seen, 0.5),
            ),
            Hypothesis(
                "gradient at these samples and their augmentation",
                f"at most {most:.3g}",
                f"at most |α| · {self.step - 1:.3g} e / 5 = {bound:.3g}, with α = {self.alpha:.3g}",
                finite and most <= bound and bound > 0,
                "train longer, until every sample's gradient is that small",
                most / bound if bound > 0 and math.isfinite(most) else math.inf,
            ),
            Hypothesis(
                INFORMATIVE,
                f"sin θ ≤ M1 e = {round_up(sin)}, bias gap ≤ M2 e = {round_up(gap)} "
                f"(η = {found.eta:.3g}, μ = {found.mu:.3g})",
                f"M1 e below 1, M2 e below the samples' distance from the boundary, {self.spread:.3g}",
                finite and sin < 1 and gap < self.spread,
                "more samples near this boundary, so that a narrower band holds enough of them",
                max(sin, gap / self.spread) if finite and self.spread > 0 else math.inf,
            ),
            Hypothesis(
                UNRIVALLED,
                f"{self.rival} at ε = {nearest:.3g}" if self.rival else "no other node",
                f"further than the guaranteed ε = {round_up(eps)}",
                eps < nearest,
                "more samples, or a teacher whose nodes are further apart",
                max(eps / nearest, 1.0) if nearest > 0 else math.inf,
            ),
        )

    @property
    def holds(self) -> bool:
        return all(hypothesis.holds for hypothesis in self.hypotheses)

    @property
    def sin(self) -> float:
        """Guaranteed bound M1 e of sin θ."""
        return self.guarantee.m1 * self.e

    @property
    def gap(self) -> float:
        """Guaranteed bound M2 e of the bias gap."""
        return self.guarantee.m2 * self.e

    @property
    def eps(self) -> float:
        return max(self.guarantee.m1, self.guarantee.m2) * self.e

    @property
    def lacking(self) -> float:
        """Sum of the logarithms of the factors by which hypotheses fail."""
        return sum(math.log(max(h.factor, 1.0 + 1e-9)) for h in self.hypotheses if not h.holds)


def trials(pair: PairGeometry, j: int, aware: bool, induced: InducedPlanes | None = None) -> Iterator[BandTrial]:
    """Try the most promising observers and widths for the j-th teacher node with a boundary.

    `aware` selects the augmentation along the teacher's weights (theorem 4) instead of the axes (theorem 3); `induced`
    adds the boundaries of higher layers (theorem 5).
    """
    one = pair.teacher_plane(j)
    _, step = augmentation_reach(one, aware)
    finest = 1e5 * ROUNDING * (1.0 + pair.largest_norm + float(one.offset.abs()))
    ranked = []
    for k, (enough, narrow) in _narrowest(pair, j)[aware].items():
        coefficient = _coefficients(pair, j)[k]
        if not coefficient > 0:
            continue
        small = 5 * float(pair.largest_gradients[k]) / (coefficient * pair.slope_jump * (step - 1))
        ranked.append((not enough, max(narrow, small, finest), max(narrow, finest), k))
    for _, _, width, k in sorted(ranked)[:_OBSERVERS]:
        e = width * (1 + 1e-9)
        for _ in range(_WIDTHS):
            trial = _try_band(pair, j, k, e, aware, induced)
            yield trial
            # A wider band holds more samples and allows a larger gradient, but guarantees less.
            wider = max((1.01 * h.factor for h in trial.hypotheses[:2] if not h.holds), default=0.0)
            if not wider or not wider * trial.hypotheses[2].factor < _HOPE:
                break
            e *= wider


def _narrowest(pair: PairGeometry, j: int) -> dict[bool, dict[int, tuple[bool, float]]]:
    """Narrowest bands of each student that is active somewhere: whether one has enough samples, and its width.

    By whether the augmentation is teacher-aware. Without enough samples, the band of a tenth of them.
    """

    def compute() -> dict[bool, dict[int, tuple[bool, float]]]:
        count, away = len(pair.other_planes(j)) + 1, pair.away(j)
        least = {
            aware: samples_needed(augmentation_reach(pair.teacher_plane(j), aware)[0], count, pair.x.shape[1])
            for aware in (False, True)
        }
        nearest_first, counts = away.argsort(), pair.active_counts
        found: dict[bool, dict[int, tuple[bool, float]]] = {aware: {} for aware in least}
        for k in (k for k in pair.student_nodes.tolist() if counts[k]):
            ranks = {a: needed if counts[k] >= needed else max(1, counts[k] // 10) for a, needed in least.items()}
            widths = {r: float(away[_active_at(pair.active_rows[k], nearest_first, r)]) for r in set(ranks.values())}
            for aware, rank in ranks.items():
                found[aware][k] = counts[k] >= least[aware], widths[rank]
        return found

    return pair.remember(("narrowest", j), compute)


def _active_at(active: Bool[Tensor, "sample"], order: Int[Tensor, "sample"], rank: int) -> int:
    """The sample that is active as the `rank`-th in an order."""
    for count in (4 * rank, len(order)):  # where half of the samples are active, it is among the first few
        places = active[order[:count]].nonzero().flatten()
        if len(places) >= rank:
            break
    return int(order[places[rank - 1]])


def _coefficients(pair: PairGeometry, j: int) -> list[float]:
    """Mean |α| of each student over the samples nearest to the boundary of the j-th teacher node."""

    def compute() -> list[float]:
        return pair.alphas(j, pair.x[pair.closest(j, _CLOSEST)]).abs().mean(0).tolist()

    return pair.remember(("coefficients", j), compute)


def augmentation_reach(one: Planes, aware: bool) -> tuple[float, float]:
    """Return γ and the distance of augmented points from the samples along w̃, in units of e (definition 7).

    (b) moves samples by 2e along w̃, with γ = 2; (a) moves them by γe = 2√d e along every axis, of which the proof uses
    the axis nearest to w̃.
    """
    gamma = 2.0 if aware else 2.0 * math.sqrt(one.normal.shape[1])
    return gamma, 2.0 if aware else gamma * float(one.normal[0].abs().max())


def augmentation_shift(one: Planes, e: float, aware: bool) -> Float[Tensor, "in"]:
    """Shift of samples to both sides, the part of their augmentation that the proof uses (definition 7)."""
    gamma, _ = augmentation_reach(one, aware)
    weight = one.normal[0]
    axis = torch.zeros_like(weight)
    axis[weight.abs().argmax()] = 1.0
    return gamma * e * (weight if aware else axis)


def _try_band(pair: PairGeometry, j: int, k: int, e: float, aware: bool, induced: InducedPlanes | None) -> BandTrial:
    one = pair.teacher_plane(j)
    away = pair.away(j)
    gamma, step = augmentation_reach(one, aware)
    samples = ((away <= e) & pair.active_rows[k]).nonzero().flatten()
    inside = pair.x[samples]
    higher = induced(pair, j, inside) if induced else None
    others = pair.other_planes(j) if higher is None else concatenate(pair.other_planes(j), higher)
    gradient, alpha = 0.0, 0.0
    if len(inside):
        gradient = pair.largest_gradient_beside(k, samples, augmentation_shift(one, e, aware))
        alpha = float(pair.alpha(k, j, inside).abs().min()) * pair.slope_jump
    rivals, rival = (
        pair.remember(("rivals", j), lambda: _rivals(pair, j, None)) if higher is None else _rivals(pair, j, higher)
    )
    total = int((away <= e).sum())
    return BandTrial(
        observer=k,
        e=e,
        samples=len(inside),
        share=len(inside) / total if total else 0.0,
        gradient=gradient,
        alpha=alpha,
        step=step,
        spread=pair.remember(("spread", j), lambda: float(away.square().mean().sqrt())),
        rivals=rivals,
        rival=rival,
        boundaries=len(others) + 1,
        guarantee=isolation(one, others, inside, e, gamma),
    )


def _rivals(pair: PairGeometry, j: int, higher: Planes | None) -> tuple[PlaneDistances, str]:
    """Distances of boundaries that are no students', one of which might be aligned instead, and the nearest's name."""
    rest = pair.other_teachers(j)
    rivals = pair.teacher_planes.select(rest)
    rivals = rivals if higher is None else concatenate(rivals, higher)
    if not len(rivals):
        return PlaneDistances(torch.ones(1), torch.full((1,), math.inf)), ""
    far = plane_distances(pair.teacher_plane(j), rivals)
    nearest = int(far.eps.argmin())
    return far, pair.name(int(rest[nearest])) if nearest < len(rest) else "a boundary of a higher layer"


def round_up(value: float) -> str:
    """Format with three digits, rounded up, so that a printed bound is a bound."""
    if not (math.isfinite(value) and value > 0):
        return f"{value:.3g}"
    digit = 10.0 ** (math.floor(math.log10(value)) - 2)
    return f"{math.ceil(value / digit * (1 - 1e-12)) * digit:.3g}"


def describe_nearest(pair: PairGeometry, j: int) -> str:
    """Describe the student whose boundary is nearest."""
    near = pair.student_distances(j)
    if not len(near.eps):
        return "no student has a boundary"
    k = int(near.eps.argmin())
    return (
        f"student node {int(pair.student_nodes[k])} is nearest: sin θ = {float(near.sin[k]):.3g}, "
        f"bias gap {float(near.gap[k]):.3g}"
    )


def best_finding(pair: PairGeometry, j: int, tried: Iterable[BandTrial], name: str) -> Finding:
    """The best guarantee among trials that hold; if none holds, the trial that is closest to holding."""
    all_trials, measured = list(tried), describe_nearest(pair, j)
    if not all_trials:
        lacking = Hypothesis(
            "an observer with α ≠ 0",
            "none",
            "a student that is active somewhere and whose fan-out is not orthogonal to this node's",
            False,
            "students whose active side contains samples, and a node whose fan-out is not zero",
            math.inf,
        )
        return Finding(name, pair.name(j), (lacking,), "a student has nearly the same boundary", measured)
    holding = [trial for trial in all_trials if trial.holds]
    trial = min(holding, key=lambda t: t.eps) if holding else min(all_trials, key=lambda t: t.lacking)
    near, constants = pair.student_distances(j), trial.guarantee
    aim, samples = _estimate_samples(pair, trial)
    needed = f"ε = {aim:.2g} would need about {samples:.2g} such samples" if samples else "the need is not known"
    conclusion = (
        "a student has nearly the same boundary, in one orientation or the other: "
        f"sin θ ≤ {round_up(trial.sin)}, bias gap ≤ {round_up(trial.gap)} "
        f"(observer {trial.observer} sees κ = {trial.share:.2g} of the band; {trial.boundaries:,} boundaries, "
        f"γ = {constants.gamma:.3g}, M1 = {constants.m1:.3g}, M2 = {constants.m2:.3g}); {needed}"
    )
    return Finding(
        result=name,
        about=pair.name(j),
        hypotheses=trial.hypotheses,
        conclusion=conclusion,
        measured=measured,
        agrees=bool(((near.sin <= trial.sin) & (near.gap <= trial.gap)).any()),
        eps=trial.eps if trial.holds else None,
        samples=samples,
    )


def _estimate_samples(pair: PairGeometry, trial: BandTrial) -> tuple[float, float | None]:
    """An ε that separates this boundary from others, and about how many such samples it needs.

    Assumes that the share of samples in the band is proportional to its width.
    """
    aim = min(1.0, float(trial.rivals.eps.min())) / 2
    most = max(trial.guarantee.m1, trial.guarantee.m2)
    if not (trial.samples and math.isfinite(most) and aim > 0):
        return aim, None
    return aim, len(pair.x) * trial.guarantee.needed / trial.samples * trial.e * most / aim


_SMALL = (
    "If a student's gradient is small at every sample that it observes near a teacher node's boundary and at the "
    "augmented points, and there are enough such samples, then some student's boundary is as close to the teacher's."
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
@per_teacher_node
def theorem_3(pair: PairGeometry, j: int) -> Finding:
    """Certify a teacher node, with points augmented along the axis that is nearest to its weight."""
    return best_finding(pair, j, trials(pair, j, False), "S0 theorem 3")


@result(
    "S0 theorem 4",
    title="Specialization from finitely many samples, augmented along the teacher's weights",
    statement=_SMALL
    + " The augmentation moves samples along the teacher's own weights, which needs fewer samples for the same ε and "
    "allows a gradient that is larger by √d in the paper's count.",
    measured="as for S0 theorem 3, with points augmented along the teacher's weights",
    subject="teacher node",
    networks="two layers",
)
@per_teacher_node
def theorem_4(pair: PairGeometry, j: int) -> Finding:
    """Certify a teacher node, with points augmented along its own weight."""
    return best_finding(pair, j, trials(pair, j, True), "S0 theorem 4")
