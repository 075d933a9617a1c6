"""Results of the literature: hypotheses checked on given networks, a conclusion with constants, a measured value.

A result is registered by name with its statement in words. Called on a teacher, a student and inputs, it returns
findings: one for the pair, or one for each node that it is about. Results on classification are about the student and
labelled inputs alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from understudy._errors import UserError
from understudy._numbers import number, typeset_fields
from understudy._papers import load_theory
from understudy.nets import Population

Subject = Literal["identity", "data", "teacher node", "student node", "dynamics", "parameters"]
Networks = Literal["any", "two layers", "one output", "deep", "BatchNorm", "linear", "classifier"]
Extra = Literal["labels", "start"]
Slopes = Literal["any", "ReLU or leaky", "ReLU", "|·|"]
PRUNABLE = 0.05
"""Share of the output of the strongest aligned group below which a group of students can be removed."""
INFORMATIVE, UNRIVALLED = "an informative guarantee", "no other boundary as close"
"""Names of hypotheses on the guarantee itself: it excludes something, and no other boundary satisfies it."""


def format_factor(factor: float) -> str:
    """Format a factor with three digits, such as `1,920×`."""
    return f"{float(f'{factor:.3g}'):,.0f}×" if 100 <= factor < 1e7 else f"{number(factor)}×"


@dataclass(frozen=True)
class Hypothesis:
    """One hypothesis of a result, as measured on given networks.

    Attributes:
        name: What is required, in a few words.
        value: The measured value, formatted.
        requirement: The value that the result requires, formatted.
        change: What to change where it does not hold.
        factor: By how many times the value is too large or too small; 1 where a factor has no meaning.
    """

    name: str
    value: str
    requirement: str
    holds: bool
    change: str = ""
    factor: float = 1.0

    def __post_init__(self) -> None:
        typeset_fields(self, "name", "value", "requirement", "change")

    @property
    def by(self) -> str:
        """The factor by which it fails, such as ` by 12×`; empty where a factor has no meaning."""
        return f" by {format_factor(self.factor)}" if 1 < self.factor < math.inf else ""

    def __str__(self) -> str:
        return f"{self.name}: {self.value}, needs {self.requirement}"


def at_most(
    name: str, value: float, bound: float, *, shown: str = "", requirement: str = "", change: str = ""
) -> Hypothesis:
    """Build the hypothesis value ≤ bound, which fails by the factor value / bound.

    Args:
        name: What is required, in a few words.
        value: The measured value.
        bound: The bound.
        shown: The measured value in words. Default: the number.
        requirement: The requirement in words. Default: the bound.
        change: What to change where it does not hold.
    """
    holds = bool(value <= bound)
    factor = max(1.0, value / bound) if bound > 0 else 1.0 if holds else math.inf
    required = requirement or f"at most {_format(bound)}"
    return Hypothesis(name, shown or _format(value), required, holds, change, factor)


def at_least(
    name: str, value: float, bound: float, *, shown: str = "", requirement: str = "", change: str = ""
) -> Hypothesis:
    """Build the hypothesis value ≥ bound.

    Args:
        name: What is required, in a few words.
        value: The measured value.
        bound: The bound.
        shown: The measured value in words. Default: the number.
        requirement: The requirement in words. Default: the bound.
        change: What to change where it does not hold.
    """
    required = requirement or f"at least {_format(bound)}"
    return Hypothesis(name, shown or _format(value), required, bool(value >= bound), change)


def above(
    name: str, value: float, bound: float = 0.0, *, shown: str = "", requirement: str = "", change: str = ""
) -> Hypothesis:
    """Build the hypothesis value > bound.

    Args:
        name: What is required, in a few words.
        value: The measured value.
        bound: The bound.
        shown: The measured value in words. Default: the number.
        requirement: The requirement in words. Default: the bound.
        change: What to change where it does not hold.
    """
    required = requirement or f"above {bound:g}"
    return Hypothesis(name, shown or _format(value), required, bool(value > bound), change)


def _format(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.3g}"


@dataclass(frozen=True)
class Finding:
    """A result applied to given networks: its hypotheses, its conclusion, and the measured value.

    Attributes:
        about: The node or pair, such as `teacher node 3`.
        conclusion: What follows where all hypotheses hold, and would follow elsewhere.
        measured: The measured value, in words.
        agrees: Whether the measurement agrees with the conclusion; None where nothing was measured.
        eps: The ε of a guaranteed alignment.
        amount: The measured value, where it is one number that the result bounds.
        limit: The bound on this number.
        samples: About how many samples an informative guarantee would need, where this can be estimated.
    """

    result: str
    about: str
    hypotheses: tuple[Hypothesis, ...]
    conclusion: str
    measured: str
    agrees: bool | None = None
    eps: float | None = None
    amount: float | None = None
    limit: float | None = None
    samples: float | None = None

    def __post_init__(self) -> None:
        typeset_fields(self, "about", "conclusion", "measured")

    @property
    def applies(self) -> bool:
        """Whether all hypotheses hold."""
        return all(hypothesis.holds for hypothesis in self.hypotheses)

    @property
    def failing(self) -> tuple[Hypothesis, ...]:
        """The hypotheses that do not hold."""
        return tuple(hypothesis for hypothesis in self.hypotheses if not hypothesis.holds)

    @property
    def contradicted(self) -> bool:
        """Whether all hypotheses hold and the measurement disagrees with the conclusion."""
        return self.applies and self.agrees is False


def prunable(found: Finding, most: float = PRUNABLE) -> bool:
    """Whether a finding of theorem 2 (Tian 2020) allows its student to be removed.

    It must apply, and the measured contribution of the student's group (`amount`) must be at most `most`; the bound
    that the theorem proves (`limit`) is often far larger.
    """
    return found.applies and found.amount is not None and found.amount <= most


CheckFunction = Callable[..., Sequence[Finding]]
"""A function of (teacher, student, inputs), and of the `Known` if its result uses it, that returns findings."""


@dataclass(frozen=True, eq=False)
class Known:
    """What is known beside two networks and inputs.

    Attributes:
        labels: Class of each input, for results on classification.
        start: The student before training, for results on training from a start. Without it, the student itself is
            taken for the start: the results then say what further training does.
    """

    labels: Shaped[Tensor, "sample"] | None = None
    start: Population | None = None


NOTHING_KNOWN = Known()


@dataclass(frozen=True, kw_only=True)
class Result:
    """A registered theorem, lemma or corollary, with the arguments of `result`; call it on networks and inputs."""

    name: str
    title: str
    statement: str
    measured: str
    subject: Subject
    networks: Networks
    check: CheckFunction
    slopes: Slopes
    uses: tuple[Extra, ...] = ()

    @property
    def about_teacher(self) -> bool:
        """Whether it is about a teacher and a student; a result on classification is about one network and labels."""
        return self.networks != "classifier"

    def why_inapplicable(self, teacher: Population, student: Population, given: Known = NOTHING_KNOWN) -> str:
        """Reason why the result is not stated for such networks; empty where it is.

        Args:
            teacher: The teacher.
            student: The student.
            given: What is known beside the networks.
        """
        if self.networks == "linear":
            return _not_linear("teacher", teacher) or _not_linear("student", student)
        if self.networks == "classifier":
            return _not_a_classifier(student) or _not_two_classes(given.labels)
        if why := self._wrong_slopes(teacher.slope, student.slope):
            return why
        if self.networks == "BatchNorm":
            return "" if student.norms else "it is stated for students with BatchNorm, and this one has none"
        if teacher.image is not None or student.image is not None:
            return "it is stated for fully connected networks, and these are convolutional"
        if teacher.norms or student.norms:
            return "it is stated for networks without BatchNorm"
        theirs, ours = len(teacher.layers), len(student.layers)
        if theirs != ours:
            return f"it is stated for networks of equal depth, and these have {theirs} and {ours} layers"
        if theirs < 2:
            return "it is stated for networks with a hidden layer, and these have none"
        if self.networks in ("two layers", "one output") and theirs != 2:
            return f"it is stated for two layers, and these have {theirs}"
        if self.networks == "deep" and theirs < 3:
            return "it is stated for more than two layers"
        if self.networks != "one output":
            return ""
        return _not_a_sum_of_lengths("teacher", teacher) or _not_a_sum_of_lengths("student", student)

    def _wrong_slopes(self, teacher: float, student: float) -> str:
        both = (teacher, student)
        if self.slopes == "ReLU" and any(both):
            required = "ReLU (slope 0)"
        elif self.slopes == "|·|" and both != (-1.0, -1.0):
            required = "|·| (slope −1)"
        elif self.slopes == "ReLU or leaky" and not all(0 <= slope < 1 for slope in both):
            required = "ReLU and leaky ReLU (slopes from 0 up to 1)"
        elif self.slopes == "ReLU or leaky" and teacher != student:
            required = "one activation"
        else:
            return ""
        slopes = " and ".join(number(slope, "g") for slope in both)
        return f"it is stated for {required}, and the slopes below zero are {slopes}"

    def __call__(
        self, teacher: Population, student: Population, x: Float[Tensor, "sample in"], given: Known = NOTHING_KNOWN
    ) -> tuple[Finding, ...]:
        """Apply the result to one teacher and one student, in float64: one finding for the pair, or one per node.

        Raises:
            UserError: The result is not stated for such networks.
        """
        ours, theirs = student.to(dtype=torch.float64), teacher.to(dtype=torch.float64)
        if why := self.why_inapplicable(teacher, student, given):
            raise UserError(f"{self.name} does not apply: {why}")
        x = x.to(student.device, torch.float64)
        if not self.uses:
            return tuple(self.check(theirs, ours, x))
        start = None if given.start is None else given.start.to(student.device, torch.float64)
        return tuple(self.check(theirs, ours, x, Known(given.labels, start)))


def _not_a_sum_of_lengths(name: str, network: Population) -> str:
    """Reason why a two-layer network is not of the form Σ a|uᵀx| with a ≥ 0; empty where it is."""
    if why := _has_outputs_or_biases(name, network):
        return why
    top = network.layers[1].weight
    if bool((top < 0).any()):
        least = number(float(top.min()))
        return f"it is stated for output weights of at least 0, and the {name} has {least}"
    return ""


def _not_linear(name: str, network: Population) -> str:
    """Reason why a network is not x ↦ wᵀx; empty where it is."""
    if network.slope != 1 and len(network.layers) > 1:
        activation = {0.0: "ReLU", -1.0: "|·|"}.get(network.slope, f"slope {number(network.slope, 'g')}")
        return f"it is stated for linear networks, and the {name} has {activation}"
    if network.image is not None or network.norms:
        kind = "convolutions" if network.image is not None else "BatchNorm"
        return f"it is stated for fully connected networks without BatchNorm, and the {name} has {kind}"
    return _has_outputs_or_biases(name, network)


def _not_a_classifier(network: Population) -> str:
    """Reason why a network is not Σ a ρ(wᵀx) with the ReLU ρ; empty where it is."""
    if network.image is not None or network.norms:
        kind = "convolutions" if network.image is not None else "BatchNorm"
        return f"it is stated for fully connected networks without BatchNorm, and the student has {kind}"
    if len(network.layers) != 2:
        return f"it is stated for two layers, and the student has {len(network.layers)}"
    if network.slope:
        return f"it is stated for ReLU (slope 0), and the student has slope {number(network.slope, 'g')}"
    return _has_outputs_or_biases("student", network)


def _not_two_classes(labels: Tensor | None) -> str:
    """Reason why labels are not those of two classes; empty where they are."""
    if labels is None:
        return "it is stated for labelled inputs of two classes, and there are no labels: give them (--labels)"
    count = len(labels.unique())
    return "" if count == 2 else f"it is stated for two classes, and the labels have {count:,}"


def _has_outputs_or_biases(name: str, network: Population) -> str:
    if network.sizes[-1] != 1:
        return f"it is stated for one output, and the {name} has {network.sizes[-1]}"
    if any(layer.bias is not None and bool(layer.bias.any()) for layer in network.layers):
        return f"it is stated for networks without biases, and the {name} has some"
    return ""


_RESULTS: dict[str, Result] = {}


def result(
    name: str,
    *,
    title: str,
    statement: str,
    measured: str,
    subject: Subject,
    networks: Networks = "any",
    slopes: Slopes = "ReLU or leaky",
    uses: tuple[Extra, ...] = (),
) -> Callable[[CheckFunction], CheckFunction]:
    """Decorate a function of (teacher, student, inputs) to register it, unchanged, as a result of the literature.

    Where it uses anything beside these, its fourth argument is a `Known`.

    Args:
        name: Paper, kind and number, such as `S0 theorem 3`.
        title: The result in a few words.
        statement: The result in one or two sentences.
        measured: What `check` measures for it.
        subject: What its findings are about.
        networks: The architectures it is stated for.
        slopes: The activations it is stated for; `linear` and `classifier` networks imply them.
        uses: What it uses of `Known`: `labels`, without which it is not applied, or `start`, which it can do without.

    Returns:
        The decorator.

    Raises:
        ValueError: A result of this name is already registered.
    """

    def register(check: CheckFunction) -> CheckFunction:
        if name in _RESULTS:
            raise ValueError(f"a result named {name} is already registered; choose another name")
        _RESULTS[name] = Result(
            name=name,
            title=title,
            statement=statement,
            measured=measured,
            subject=subject,
            networks=networks,
            check=check,
            slopes=slopes,
            uses=uses,
        )
        return check

    return register


def results() -> tuple[Result, ...]:
    """Return all registered results of all papers, sorted by paper and, within a paper, by registration."""
    load_theory()
    return tuple(sorted(_RESULTS.values(), key=lambda r: r.name.split()[0]))


def find_result(name: str) -> Result:
    """Return the registered result of this name.

    Args:
        name: Paper, kind and number, such as `S0 theorem 3`.

    Raises:
        KeyError: There is no such result.
    """
    load_theory()
    return _RESULTS[name]
