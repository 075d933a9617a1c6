"""Theorem 3.1, corollary 3.1 and lemmas 3.1 to 3.3 and B.6 of Phuong 2021, checked on a network and labelled inputs.

Networks are h(x) = Σ a_j ρ(w_j·x), trained by gradient flow on the logistic loss. Hypotheses on the start of training
are about the network before training if it is given, and otherwise about the network itself, from which training may go
on. The thesis asks for a start near zero without saying how near; here the outputs at the start must be at most 0.1, so
that the derivatives of the loss differ by at most 5% from those at 0, which the early phase of training follows.

Limits for t → ∞ are approached as 1/log t: a network that is far from its limit contradicts nothing, and the finding
then says that the measurement decides nothing.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from understudy._errors import UserError
from understudy.data.separable import Separability, separability, two_classes
from understudy.nets import Population
from understudy.papers.separable.theory.limit_network import (
    function_limit,
    limit_multipliers,
    max_margin_network,
    optimality,
)
from understudy.papers.separable.theory.max_margin import Margins, margins
from understudy.papers.separable.theory.sectors import compare_extrema, extremal_sectors, in_extremal_sector, sectors
from understudy.papers.separable.theory.training import Weights, logistic_gradient, neurons, outputs
from understudy.papers.separable.theory.two_neurons import limit_distance
from understudy.theory.result import CheckFunction, Finding, Hypothesis, Known, at_most, result

SMALL = 0.1
"""Largest output at a start near zero."""
NEAR = 0.1
"""Distance from its limit up to which a network is near it."""
_BALANCED = 1e-6
"""Relative imbalance up to which layers are balanced: the rounding of float32."""
_OPTIMAL = 1e-6
"""Largest residual of a KKT point."""
_SEARCHES = 50
_RATE = 1.0
"""Learning rate of the step after which sectors are compared; the lemma's proof holds for steps of any size."""


class _LabelledInputs:
    """What is known of labelled inputs, computed when it is first asked for."""

    def __init__(self, x: Float[Tensor, "sample in"], labels: Tensor) -> None:
        self.x, self.labels, self.y = x, labels, two_classes(labels)

    @cached_property
    def pairs(self) -> Separability:
        return separability(self.x, self.labels)

    @cached_property
    def margins(self) -> Margins | str:
        """Max-margin vectors of both classes, or the reason why there are none."""
        try:
            return margins(self.x, self.y)
        except UserError as error:
            return str(error)

    @cached_property
    def sectors(self) -> Int[Tensor, "2 sample"]:
        """σ+ and σ−."""
        return extremal_sectors(self.x, self.y)


class _Cache(threading.local):
    """The labelled inputs that a thread checked last: several results need the same quantities."""

    last: _LabelledInputs | None = None


_cache = _Cache()


def _inputs(x: Tensor, labels: Tensor) -> _LabelledInputs:
    last = _cache.last
    if last is None or not (
        last.x.shape == x.shape and torch.equal(last.x, x) and torch.equal(last.labels, labels.to(last.labels))
    ):
        last = _cache.last = _LabelledInputs(x, labels)
    return last


@dataclass(frozen=True, eq=False)
class LabelledSetting:
    """A network before and after training, and labelled inputs."""

    student: Population
    start: Population
    inputs: _LabelledInputs

    @property
    def weights(self) -> Weights:
        """W and a."""
        return tuple(layer.weight for layer in self.student.layers)

    @property
    def initial(self) -> Weights:
        """W(0) and a(0)."""
        return tuple(layer.weight for layer in self.start.layers)

    @property
    def finite(self) -> bool:
        """Whether the weights and their products can be computed with."""
        squares = [part.square().sum() for weights in (self.weights, self.initial) for part in weights]
        return all(bool(square.square().isfinite()) for square in squares)

    @cached_property
    def separable(self) -> Hypothesis:
        """Eq. 3.1."""
        found = self.inputs.pairs
        worst = f": {found.violation}" if found.violation else ""
        return Hypothesis(
            "orthogonal separability (3.1)",
            f"{found.wrong:,} of {found.pairs:,} pairs violate it{worst}",
            "no pair",
            found.holds,
            "other inputs, or leave out points until no pair violates it",
        )

    @cached_property
    def spanning(self) -> Hypothesis:
        """Support examples span the space."""
        found, dim = self.inputs.margins, self.inputs.x.shape[1]
        value = (
            found
            if isinstance(found, str)
            else " and ".join(
                f"{int(side.supports.sum())} support examples{'' if side.spans else ' that span less'}"
                for side in found
            )
        )
        return Hypothesis(
            "support examples of both classes span the space",
            value,
            f"both span all {dim} dimensions",
            not isinstance(found, str) and found.spans,
            "inputs with more support examples, or fewer dimensions",
        )

    @cached_property
    def balance(self) -> Hypothesis:
        """‖w_j‖ = |a_j| at the start."""
        w, a = neurons(self.initial)
        lengths = torch.linalg.vector_norm(w, dim=-1)
        scale = torch.maximum(lengths, a.abs())
        off = float(torch.where(scale > 0, (lengths - a.abs()).abs() / scale, 0.0).max())
        return at_most(
            "balanced start",
            off,
            _BALANCED,
            shown=f"‖w‖ and |a| of a neuron differ by up to {off:.2g} of the larger",
            requirement=f"‖w‖ = |a| (at most {_BALANCED:g})",
            change="rescale the neurons of the start so that ‖w‖ = |a|, and give it (--start)",
        )

    @cached_property
    def small(self) -> Hypothesis:
        """A start near zero."""
        return at_most(
            "start near zero",
            float(outputs(self.initial, self.inputs.x).abs().max()),
            SMALL,
            requirement=f"outputs of at most {SMALL:g}",
            change="a smaller start; if this is the network after training, give it before training (--start)",
        )

    def in_words(self, weights: Weights) -> tuple[str, int]:
        """How many neurons are off or in the extremal sector of their sign, in words, and how many are neither."""
        w, a = neurons(weights)
        signs = sectors(w, self.inputs.x)
        off = ~(signs > 0).any(-1)
        inside = in_extremal_sector(signs, a, self.inputs.sectors) & ~off
        plus, minus = int((inside & (a > 0)).sum()), int((inside & (a < 0)).sum())
        neither = int((~inside & ~off).sum())
        words = (
            f"{plus} neurons with a > 0 are in σ+, {minus} with a < 0 in σ−, {int(off.sum())} are active on no "
            f"example, and {neither} are elsewhere"
        )
        return words, neither


Decided = tuple[tuple[Hypothesis, ...], str, str, bool | None]
"""Hypotheses beside separability, conclusion, measurement, and whether it agrees."""
_Decide = Callable[[LabelledSetting], Decided]


def _s3(name: str, about: str, expected: str, **words: Any) -> Callable[[_Decide], CheckFunction]:
    """Register a function of a `LabelledSetting` that returns (hypotheses, conclusion, measured, agrees).

    Where weights overflow or the inputs are not orthogonally separable, the conclusion is `expected`, and nothing is
    measured.
    """

    def register(decide: _Decide) -> CheckFunction:
        @result(name, networks="classifier", uses=("labels", "start"), **words)
        def check(teacher: Population, student: Population, x: Tensor, given: Known) -> list[Finding]:
            assert given.labels is not None  # `Result` refuses networks without labels
            setting = LabelledSetting(
                student, student if given.start is None else given.start, _inputs(x, given.labels)
            )
            if not setting.finite:
                weights = Hypothesis("weights", "products overflow", "finite products", False, "scale the weights down")
                return [Finding(name, about, (weights,), expected, "not measured")]
            if not setting.separable.holds:
                return [Finding(name, about, (setting.separable,), expected, "not measured")]
            more, conclusion, measured, agrees = decide(setting)
            return [Finding(name, about, (setting.separable, *more), conclusion, measured, agrees)]

        return check

    return register


@_s3(
    "S3 lemma 3.1",
    about="all neurons",
    expected="every neuron turns off or enters an extremal sector",
    title="Neurons turn off or enter extremal sectors",
    statement="From a small balanced start, gradient flow brings every neuron of positive output weight into a "
    "positive extremal sector, every neuron of negative output weight into a negative one, or to where it is active on "
    "no example",
    measured="the balance and the outputs of the start, and how many neurons are now in the extremal sectors of lemma "
    "3.2, active on no example, or elsewhere",
    subject="data",
)
def early_phase(setting: LabelledSetting) -> Decided:
    """Count the neurons of the network by sector; those elsewhere may still move to one."""
    measured, neither = setting.in_words(setting.weights)
    conclusion = "at some time every neuron is in the extremal sector of its sign, or active on no example"
    return (setting.balance, setting.small), conclusion, measured, True if not neither else None


@_s3(
    "S3 lemma 3.2",
    about="the labelled inputs",
    expected="there is one positive and one negative extremal direction",
    title="Two extremal sectors",
    statement="Orthogonally separable examples have exactly one positive and one negative extremal direction, and "
    "their sectors follow from the inner products of examples (eqs. 3.13, 3.14)",
    measured="the directions at which 50 ascents of G and 50 descents end, next to the means of the classes, and "
    "whether they lie in the two sectors",
    subject="data",
)
def two_sectors(setting: LabelledSetting) -> Decided:
    """Compare searches for the extremes of G with the lemma."""
    ends = compare_extrema(setting.inputs.x, setting.inputs.y, _SEARCHES, 1)
    parts = [
        f"{found.settled} of {_SEARCHES} {searches} end at {found.directions} direction"
        f"{'s' * (found.directions != 1)}, {found.gap:.1g} from the mean of the {side} class"
        if found.settled
        else f"no {searches[:-1]} ends at a direction"
        for found, searches, side in zip(ends, ("ascents", "descents"), ("positive", "negative"), strict=True)
    ]
    conclusion = "the extremal directions are the normalised means of the classes, in the sectors of eqs. 3.13 and 3.14"
    agrees = all(found.holds for found in ends) if all(found.settled for found in ends) else None
    return (), conclusion, "; ".join(parts), agrees


@_s3(
    "S3 lemma 3.3",
    about="neurons in extremal sectors",
    expected="they stay in their sectors",
    title="Extremal sectors are absorbing",
    statement="On orthogonally separable examples, a neuron in the extremal sector of its sign stays there during "
    "training with the logistic loss",
    measured="how many neurons are in their sectors, and how many leave them in a step of gradient descent; if the "
    "network before training is given, also how many were in their sectors and are not now",
    subject="data",
)
def absorbing(setting: LabelledSetting) -> Decided:
    """Take one step on all examples, and compare sectors before and after."""
    x, y = setting.inputs.x, setting.inputs.y
    steps = logistic_gradient(setting.weights, x, y, mean=True)
    after = tuple(part - _RATE * by for part, by in zip(setting.weights, steps, strict=True))
    inside, still = (
        in_extremal_sector(sectors(w, x), a, setting.inputs.sectors)
        for w, a in (neurons(weights) for weights in (setting.weights, after))
    )
    left = int((inside & ~still).sum())
    measured = f"{int(inside.sum())} neurons are in their sectors, and {left} leave them in a step at rate {_RATE:g}"
    if setting.start is not setting.student:
        w, a = neurons(setting.initial)
        before = in_extremal_sector(sectors(w, x), a, setting.inputs.sectors)
        gone = int((before & ~inside).sum())
        measured = f"{measured}; of {int(before.sum())} that were there before training {gone} are not now"
    return (), "neurons in the extremal sector of their sign stay there", measured, not left


@_s3(
    "S3 theorem 3.1",
    about="all neurons",
    expected="neurons converge to two directions",
    title="Two max-margin neurons",
    statement="On orthogonally separable examples whose support examples span the space, from a small balanced "
    "start, the normalised neurons converge to the max-margin vector of the positive class if their output weight is "
    "positive, and of the negative class otherwise, with output weights of the same size as the neurons",
    measured="the distances of both layers from this limit (eqs. 3.8, 3.9), as shares of their norms",
    subject="data",
)
def two_neurons(setting: LabelledSetting) -> Decided:
    """Measure the distance from the limit; a network within `NEAR` of it agrees, and another one decides nothing."""
    conclusion = "W/‖W‖ converges to u w+ᵀ + z w−ᵀ, and a/‖a‖ to u ‖w+‖ − z ‖w−‖, with u or z zero for each neuron"
    hypotheses = setting.spanning, setting.balance, setting.small
    found = setting.inputs.margins
    if isinstance(found, str):
        return hypotheses, conclusion, "not measured", None
    hidden, output = (float(part[0]) for part in limit_distance(*neurons(setting.weights), found.vectors[None]))
    measured = f"the distances are {hidden:.3g} of ‖W‖ and {output:.3g} of ‖a‖"
    return hypotheses, conclusion, measured, True if max(hidden, output) <= NEAR else None


@_s3(
    "S3 corollary 3.1",
    about="the network's function",
    expected="h(x)/‖θ‖² converges to u ρ(w+·x) − z ρ(w−·x)",
    title="The function of two max-margin neurons",
    statement="Under the conditions of theorem 3.1, h(x)/‖θ‖² converges to u ρ(w+·x) − z ρ(w−·x) with u and z of at "
    "least 0",
    measured="the nearest such function on the inputs, and its distance relative to h/‖θ‖²",
    subject="data",
)
def function(setting: LabelledSetting) -> Decided:
    """Fit u and z by least squares."""
    conclusion = "h(x)/‖θ‖² converges to u ρ(w+·x) − z ρ(w−·x)"
    hypotheses = setting.spanning, setting.balance, setting.small
    found = setting.inputs.margins
    if isinstance(found, str) or not bool(outputs(setting.weights, setting.inputs.x).any()):
        return hypotheses, conclusion, "not measured", None
    fitted = function_limit(setting.weights, found.vectors[None], setting.inputs.x)
    u, z, distance = (float(part[0]) for part in fitted)
    measured = f"the nearest has u = {u:.3g} and z = {z:.3g}, at a relative distance of {distance:.3g}"
    return hypotheses, conclusion, measured, True if distance <= NEAR else None


@_s3(
    "S3 lemma B.6",
    about="the labelled inputs",
    expected="the network of two max-margin neurons has a locally largest margin",
    title="The limit is a KKT point",
    statement="On orthogonally separable examples the network of max-margin neurons is a Karush-Kuhn-Tucker point of "
    "the smallest ‖θ‖² with margins of at least 1",
    measured="the largest violation of its conditions, with the multipliers of the lemma",
    subject="data",
)
def stationary(setting: LabelledSetting) -> Decided:
    """Measure the KKT residual of the network of two neurons; that of the given network is shown next to it."""
    conclusion = "the network of two max-margin neurons is a KKT point"
    found, x, y = setting.inputs.margins, setting.inputs.x, setting.inputs.y
    if isinstance(found, str):
        return (), conclusion, f"not measured: {found}", None
    one = torch.eye(2, dtype=x.dtype, device=x.device)
    network = max_margin_network(one[0], one[1], found.vectors.to(x))
    residual = float(optimality(network, x, y, limit_multipliers(found, y)).residual)
    own = float(optimality(setting.weights, x, y).residual)
    measured = f"its residual is {residual:.2g}; that of the given network is {own:.2g}"
    return (), conclusion, measured, residual <= _OPTIMAL
