"""Theorems 5.1 to 5.3 and D.3 of Phuong 2021, checked on given linear teachers and students.

A network of any depth is the linear map wᵀx with w its end-to-end weights; labels are the soft labels σ(w*ᵀx) of the
teacher, and ℓ1 is the cross-entropy with them minus their entropy. Hypotheses on the start of training are about the
student before training if it is given, and otherwise about the student itself, from which training may go on.

Differences from the printed statements: the thesis assumes inputs of full rank, and w(0) = 0 in theorem 5.1. Its proofs
use only that w(0) lies in the span of the inputs, and hold on this span whatever its dimension, so that ŵ is the
projection of the teacher on it. The Hessian of ℓ1 has a factor 1/n, which eq. D.8 omits; strong convexity gives a decay
of ℓ1 at the rate 2µ (eqs. D.14 and D.19), of which eq. D.20 uses half.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from understudy.nets import Population
from understudy.papers.distillation.theory.linear_students import conditions, end_to_end
from understudy.papers.distillation.theory.risk import band, errors, measured_risk, risk_bound
from understudy.papers.distillation.theory.soft_labels import gradient, limit, loss, solution, span
from understudy.papers.distillation.theory.tasks import given_task
from understudy.theory.result import Finding, Hypothesis, Known, at_least, at_most, result

_OUTSIDE = 1e-6
"""Relative length up to which a vector lies in the span, and relative imbalance of layers that are balanced: the
rounding of float32."""
_ROUNDING = 1e-12
"""Rounding of losses relative to the largest logit."""
_EIGENVALUE = 1e-14
"""Rounding error of an eigenvalue relative to the largest one."""
_FARTHEST = 700.0
"""Logit beyond which σ(1 − σ) is below all numbers."""
_BISECTIONS = 60
_SETS, _CONFIDENCE = 20, 0.999
"""Transfer sets that are drawn from the inputs, and confidence of estimates."""


@dataclass(frozen=True, eq=False)
class LinearSetting:
    """One linear teacher, one linear student before and after training, and inputs."""

    teacher: Population
    student: Population
    start: Population
    x: Float[Tensor, "sample in"]

    @cached_property
    def wanted(self) -> Float[Tensor, "in"]:
        """w*."""
        return end_to_end(self.teacher)[0]

    @cached_property
    def now(self) -> Float[Tensor, "in"]:
        """w of the student."""
        return end_to_end(self.student)[0]

    @cached_property
    def before(self) -> Float[Tensor, "in"]:
        """w(0)."""
        return end_to_end(self.start)[0]

    @cached_property
    def basis(self) -> Float[Tensor, "in basis"]:
        """Orthonormal basis of the span of the inputs."""
        found = span(self.x)
        return found[:, found.square().sum(0) > 0.5]

    @cached_property
    def reached(self) -> Float[Tensor, "in"]:
        """ŵ (Phuong 2021, eq. 5.6)."""
        return solution(self.x, self.wanted)

    @property
    def whole(self) -> bool:
        """Whether the inputs span the whole space, so that ŵ = w*."""
        return self.basis.shape[1] == self.x.shape[1]

    @property
    def depth(self) -> int:
        return len(self.student.layers)

    @cached_property
    def loss(self) -> float:
        """ℓ1 of the student."""
        return float(loss(self.now, self.x, self.wanted))

    @cached_property
    def distance(self) -> float:
        """‖w − ŵ‖."""
        return float((self.now - self.reached).norm())

    @property
    def finite(self) -> bool:
        """Whether the weights and their squares can be computed with."""
        return all(bool(w.square().sum().isfinite()) for w in (self.wanted, self.now, self.before))

    def outside(self, w: Float[Tensor, "in"]) -> float:
        """Length of the part of w orthogonal to the inputs, relative to w; 0 for w = 0."""
        length = float(w.norm())
        return float((w - self.basis @ (self.basis.T @ w)).norm()) / length if length else 0.0

    def solution_in_words(self) -> str:
        return "w*" if self.whole else f"ŵ, the projection of w* on the {self.basis.shape[1]} dimensions of the inputs"


def strong_convexity(
    x: Float[Tensor, "sample in"], teacher: Float[Tensor, "in"], level: float, basis: Float[Tensor, "in basis"]
) -> float:
    """Compute µ of Phuong 2021, theorem D.3, for the sublevel set ℓ1 ≤ `level`.

    The loss ℓ_i of an input is at most n · level (eq. D.11), so that its logit lies in an interval on which σ(1 − σ) is
    at least ω_i; µ is the smallest eigenvalue of (1/n) Σ ω_i x_i x_iᵀ on the span of the inputs.

    Args:
        x: Inputs.
        teacher: w*.
        level: Loss that defines the set.
        basis: Orthonormal basis of the span of the inputs.

    Returns:
        µ; 0 where it is too small for a number.
    """
    if not basis.shape[1]:
        return 0.0
    wanted, bound = x @ teacher, len(x) * level
    ends = torch.stack([_farthest_logit(wanted, bound, sign) for sign in (-1.0, 1.0)])
    curvature = (torch.sigmoid(ends) * torch.sigmoid(-ends)).amin(0)
    inside = x @ basis
    values = torch.linalg.eigvalsh((inside * curvature.unsqueeze(-1)).T @ inside / len(x))
    return max(0.0, float(values[0] - _EIGENVALUE * values[-1]))


def _farthest_logit(wanted: Float[Tensor, "sample"], bound: float, sign: float) -> Float[Tensor, "sample"]:
    """Logit farthest from the teacher's, on one side, at which the loss of an input is at most `bound`."""
    near, far = torch.zeros_like(wanted), torch.full_like(wanted, 2 * _FARTHEST)
    for _ in range(_BISECTIONS):
        middle = (near + far) / 2
        allowed = _losses(wanted + sign * middle, wanted) <= bound
        near, far = torch.where(allowed, middle, near), torch.where(allowed, far, middle)
    # The far end, so that the interval is never too short.
    return wanted + sign * far


def _losses(logits: Float[Tensor, "sample"], wanted: Float[Tensor, "sample"]) -> Float[Tensor, "sample"]:
    """Cross-entropy of every logit with the soft label of the teacher's, minus its entropy."""
    label, gap = wanted.sigmoid(), logits - wanted
    softplus = torch.nn.functional.softplus
    return (softplus(logits) - softplus(wanted) - label * gap).clamp_min(0.0)


def _setting(teacher: Population, student: Population, x: Tensor, given: Known) -> LinearSetting:
    return LinearSetting(teacher, student, student if given.start is None else given.start, x)


def _not_finite(name: str) -> list[Finding]:
    change = "scale the weights down"
    hypothesis = Hypothesis("weights", "their squares overflow", "finite squares", False, change)
    return [Finding(name, "the student", (hypothesis,), "the student learns the teacher", "not measured")]


def _moved(setting: LinearSetting) -> Hypothesis:
    """Hypothesis that training moved the student within the span, as every gradient does (theorem D.1)."""
    share = setting.outside(setting.now - setting.before)
    return at_most(
        "training moves within the span of the inputs",
        share,
        _OUTSIDE,
        shown=f"{share:.2g} of w − w(0) is outside",
        requirement=f"0 (at most {_OUTSIDE:g})",
        change="train by gradient descent on these inputs; some optimisers, such as Adam, leave the span",
    )


@result(
    "S3 theorem 5.1",
    title="One linear layer learns the projection of its teacher",
    statement="Gradient flow on the soft labels of a linear teacher, from w(0) = 0, converges to the teacher if there "
    "are as many inputs as dimensions, and otherwise to the projection of the teacher on the span of the inputs",
    measured="the part of w(0) outside the span; the distance ‖w − ŵ‖ next to √(2ℓ1/µ) with µ of theorem D.3, and the "
    "distance at which the flow ends, in closed form",
    subject="dynamics",
    networks="linear",
    uses=("start",),
)
def one_layer(teacher: Population, student: Population, x: Float[Tensor, "sample in"], given: Known) -> list[Finding]:
    """Compare the distance of the student from ŵ with the bound of strong convexity on the set ℓ1 ≤ ℓ1(w)."""
    setting = _setting(teacher, student, x, given)
    if not setting.finite:
        return _not_finite("S3 theorem 5.1")
    share = setting.outside(setting.before)
    layers = at_most("layers", setting.depth, 1, requirement="1", change="theorem 5.2 is about more layers")
    within = at_most(
        "start in the span of the inputs",
        share,
        _OUTSIDE,
        shown="w(0) = 0" if not bool(setting.before.any()) else f"{share:.2g} of w(0) is outside",
        requirement=f"w(0) = 0, or another w(0) in the span (at most {_OUTSIDE:g} outside)",
        change="start from 0; if this is the student after training, give the student before training (--start)",
    )
    begun = float(loss(setting.before, x, setting.wanted))
    rate = 2 * strong_convexity(x, setting.wanted, begun, setting.basis)
    convexity = strong_convexity(x, setting.wanted, setting.loss, setting.basis)
    bound = math.sqrt(2 * setting.loss / convexity) if convexity > 0 else math.inf
    scale = float(setting.reached.norm()) + setting.distance
    end = float((limit(setting.before[None], x[None], setting.wanted, 1)[0] - setting.reached).norm())
    conclusion = (
        f"gradient flow converges to {setting.solution_in_words()}; from w(0) on ℓ1 falls at least as exp(−{rate:.3g} "
        f"t), and ‖w − ŵ‖ is at most √(2ℓ1/µ) = {bound:.3g}"
    )
    measured = f"‖w − ŵ‖ is {setting.distance:.3g} at ℓ1 = {setting.loss:.3g}; the flow ends {end:.2g} from ŵ"
    # Labels of float64 do not tell logits near 0 apart, which is all that is left where the teacher is 0.
    longest = float(x.norm(dim=1).max())
    finest = _ROUNDING / longest if longest > 0 else 0.0
    agrees = setting.distance <= bound + _OUTSIDE * scale and end <= 10 * _OUTSIDE * scale + finest
    hypotheses = layers, within, _moved(setting)
    return [Finding("S3 theorem 5.1", "the student", hypotheses, conclusion, measured, agrees)]


@result(
    "S3 theorem 5.2",
    title="Deep linear networks learn the projection of their teacher, nearly",
    statement="From a small balanced start of lower loss than w = 0, gradient flow on the soft labels of a linear "
    "teacher converges to the teacher if there are as many inputs as dimensions, and otherwise ends within ε of the "
    "projection of the teacher on the span of the inputs",
    measured="conditions 5.11 to 5.13 at the start, the ε that 5.11 allows, the distance from ŵ at which the flow ends "
    "in closed form, and that of the student",
    subject="dynamics",
    networks="linear",
    uses=("start",),
)
def deep(teacher: Population, student: Population, x: Float[Tensor, "sample in"], given: Known) -> list[Finding]:
    """Compare the end of the flow from the start with the ε of condition 5.11."""
    setting = _setting(teacher, student, x, given)
    if not setting.finite:
        return _not_finite("S3 theorem 5.2")
    met = conditions(setting.start, x[None], setting.wanted)
    length, reached, epsilon, gain, imbalance = (float(part[0]) for part in met)
    imbalance = 0.0 if math.isnan(imbalance) else imbalance  # layers that are all zero are balanced
    layers = at_least("layers", setting.depth, 2, change="theorem 5.1 is about one layer")
    hypotheses = (
        layers,
        at_most(
            "length of the start (5.11)",
            length,
            reached * (1 - 1e-12),
            requirement=f"below ‖ŵ‖ = {reached:.3g}",
            change="a smaller start; if this is the student after training, give the student before training (--start)",
        ),
        Hypothesis(
            "loss of the start (5.12)",
            f"ℓ1(0) − ℓ1(w(0)) = {gain:.2g}",
            "above 0",
            gain > 0,
            "multiply one layer of the start by −1, or make it smaller",
        ),
        at_most(
            "balance of the layers (5.13)",
            imbalance,
            _OUTSIDE,
            shown=f"{imbalance:.2g} of ‖W Wᵀ‖",
            requirement=f"0 (at most {_OUTSIDE:g})",
            change="start from layers with WᵀW of one equal to W Wᵀ of the next below",
        ),
    )
    allowed = 0.0 if setting.whole else epsilon
    where = f"within ε = {allowed:.3g} of " if not setting.whole else "at "
    conclusion = f"gradient flow ends {where}{setting.solution_in_words()}"
    measured = f"‖w − ŵ‖ of the student is {setting.distance:.3g} at ℓ1 = {setting.loss:.3g}"
    agrees = None
    if length > 0 and hypotheses[-1].holds:
        end = limit(setting.before[None], x[None], setting.wanted, setting.depth)[0]
        off = float((end - setting.reached).norm())
        measured = f"the flow from the start ends {off:.3g} from ŵ; {measured}"
        agrees = off <= allowed * (1 + _OUTSIDE) + _OUTSIDE * reached
    return [Finding("S3 theorem 5.2", "the student", hypotheses, conclusion, measured, agrees)]


@result(
    "S3 theorem 5.3",
    title="Transfer risk of linear distillation",
    statement="A student that has learned the projection of the teacher from n independent inputs in d dimensions "
    "disagrees with the teacher on no input if n ≥ d, and otherwise, on average, on at most p(β) + (1 − p(β)) "
    "p(π/2 − β)ⁿ of the inputs, for every β; p(θ) is the share of inputs at an angle of θ or more to the teacher. The "
    "printed statement omits 1 − p(β)",
    measured="the bound at the best β, with p estimated from half of the inputs, next to the share of these on which "
    "students of 20 sets drawn from the other half disagree with the teacher",
    subject="data",
    networks="linear",
)
def risk(teacher: Population, student: Population, x: Float[Tensor, "sample in"]) -> list[Finding]:
    """Draw transfer sets of fewer inputs than dimensions, at most half of those there are."""
    setting = _setting(teacher, student, x, Known())
    if not setting.finite:
        return _not_finite("S3 theorem 5.3")
    sizes = at_least("inputs", len(x), 4, change="give more inputs")
    some = Hypothesis(
        "a teacher that classifies",
        f"‖w*‖ = {float(setting.wanted.norm()):.3g}",
        "above 0",
        bool(setting.wanted.any()),
        "give a teacher other than 0",
    )
    dim = x.shape[1]
    count = min(len(x) // 2, dim - 1)
    own = float(errors(setting.now, setting.wanted, x).double().mean())
    measured = f"the student disagrees with the teacher on {own:.2%} of the inputs"
    bound = 0.0
    conclusion = f"students of {dim:,} or more inputs in general position disagree with the teacher on none"
    agrees = None
    if count > 0 and sizes.holds and some.holds:
        task = given_task(x, teacher=setting.wanted)
        count = min(count, len(task.pool))
        bound = min(1.0, risk_bound(band(task.held_out, task.teacher, _CONFIDENCE).high, count, dim))
        sets = task.inputs(range(1, _SETS + 1), count)
        _, found = measured_risk(task, solution(sets, task.teacher), _CONFIDENCE)
        fewer = f"students of {count:,} inputs disagree with the teacher on at most {bound:.3g} of all on average"
        conclusion = f"{fewer}; {conclusion}"
        measured = f"students of {count:,} inputs disagree on {found.mean:.3g} on average; {measured}"
        agrees = found.low <= bound
    return [Finding("S3 theorem 5.3", "the teacher", (sizes, some), conclusion, measured, agrees)]


@result(
    "S3 theorem D.3",
    title="Restricted strong convexity",
    statement="On a sublevel set of ℓ1 there is µ > 0 with ℓ1(v) ≥ ℓ1(w) + ∇ℓ1(w)ᵀ(v − w) + (µ/2) ‖v − w‖² for all w "
    "and v whose difference lies in the span of the inputs",
    measured="µ of the set ℓ1 ≤ ℓ1(w), next to the curvature 2 (ℓ1(v) − ℓ1(w) − ∇ℓ1(w)ᵀ(v − w))/‖v − w‖² from the "
    "student to the nearest minimum, and back",
    subject="dynamics",
    networks="linear",
)
def convexity(teacher: Population, student: Population, x: Float[Tensor, "sample in"]) -> list[Finding]:
    """Compare the curvature between the student w and its nearest minimum v with µ."""
    setting = _setting(teacher, student, x, Known())
    if not setting.finite:
        return _not_finite("S3 theorem D.3")
    w = setting.now
    across = setting.basis @ (setting.basis.T @ (setting.wanted - w))
    square, least = float(across.square().sum()), strong_convexity(x, setting.wanted, setting.loss, setting.basis)
    pairs = [(w, across), (w + across, -across)]
    gaps = [
        float(loss(one + by, x, setting.wanted) - loss(one, x, setting.wanted))
        - float(gradient(one, x, setting.wanted) @ by)
        for one, by in pairs
    ]
    logits = max(float((x @ one).abs().max()) for one in (w, setting.wanted))
    rounding = _ROUNDING * (1 + logits)
    apart = Hypothesis(
        "distance from the minimum",
        f"{math.sqrt(square):.3g}",
        "larger than rounding errors",
        min(gaps) > rounding,
        "nothing: the student has the teacher's outputs",
    )
    curvatures = [2 * gap / square if square > 0 else 0.0 for gap in gaps]
    conclusion = f"the curvature is at least µ = {least:.3g}"
    measured = f"it is {curvatures[0]:.3g} from the student to the nearest minimum, and {curvatures[1]:.3g} back"
    agrees = all(gap >= least * square / 2 - rounding for gap in gaps)
    return [Finding("S3 theorem D.3", "the student", (apart,), conclusion, measured, agrees)]
