"""What a result of the literature is here: its hypotheses on given networks one by one, its conclusion, and the facts.

A result is registered by name with its citation and its statement in words; called on a teacher, a student and inputs,
it returns findings: one for the pair, or one for each node that it speaks of.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from understudy._papers import load_theory
from understudy.errors import UserError
from understudy.nets import Population

Subject = Literal["identity", "data", "teacher node", "student node", "dynamics"]
Networks = Literal["any", "two layers", "one output", "deep", "BatchNorm"]
Slopes = Literal["any", "ReLU or leaky", "ReLU", "|·|"]
PRUNABLE = 0.05
"""Share of the output of the strongest aligned group below which a group of students can be removed."""


def times(factor: float) -> str:
    """Three digits of a factor, such as `1,920×`."""
    return f"{float(f'{factor:.3g}'):,.0f}×" if 100 <= factor < 1e7 else f"{factor:.3g}×"


@dataclass(frozen=True)
class Hypothesis:
    """One thing that a result needs, as it is found."""

    name: str
    value: str
    requirement: str
    holds: bool
    change: str = ""
    """What would have to change, where it does not hold."""
    factor: float = 1.0
    """How many times too large or too small the value is; 1 where that has no meaning."""

    @property
    def by(self) -> str:
        """By how much it fails, such as ` by 12×`; empty where that has no meaning."""
        return f" by {times(self.factor)}" if 1 < self.factor < math.inf else ""

    def __str__(self) -> str:
        return f"{self.name}: {self.value}, needs {self.requirement}"


@dataclass(frozen=True)
class Finding:
    """A result on given networks: what it needs, what it then says, and what is so."""

    result: str
    about: str
    """The node or the pair it speaks of, such as `teacher node 3`."""
    hypotheses: tuple[Hypothesis, ...]
    conclusion: str
    """What follows where all hypotheses hold; what would follow elsewhere."""
    measured: str
    agrees: bool | None = None
    """Whether what was measured is as the conclusion says; none where nothing was measured."""
    eps: float | None = None
    """The ε of a guaranteed alignment."""
    amount: float | None = None
    """What was measured, where it is one number that the result bounds."""
    limit: float | None = None
    """What that number cannot exceed."""
    samples: float | None = None
    """About how many samples a guarantee that says something would take, where that can be told."""

    @property
    def applies(self) -> bool:
        return all(hypothesis.holds for hypothesis in self.hypotheses)

    @property
    def failing(self) -> tuple[Hypothesis, ...]:
        return tuple(hypothesis for hypothesis in self.hypotheses if not hypothesis.holds)

    @property
    def contradicted(self) -> bool:
        """All hypotheses hold, and yet what was measured is not as the result says."""
        return self.applies and self.agrees is False


def prunable(found: Finding, most: float = PRUNABLE) -> bool:
    """Whether a finding of Theorem 2 lets its student go: it applies, and the group gives on so little on the samples.

    `amount` is what was measured of it; `limit` is what the theorem proves, often far more.
    """
    return found.applies and found.amount is not None and found.amount <= most


Check = Callable[[Population, Population, Float[Tensor, "sample in"]], Sequence[Finding]]


@dataclass(frozen=True, kw_only=True)
class Result:
    """A theorem, lemma or corollary: called on one teacher, one student and inputs, in float64."""

    name: str
    """Such as `S0 theorem 3`."""
    title: str
    statement: str
    """In words."""
    measured: str
    """What `check` measures for it."""
    subject: Subject
    networks: Networks
    check: Check
    slopes: Slopes
    """The activations that it is stated for."""

    def fits(self, teacher: Population, student: Population) -> str:
        """Why it says nothing of such networks; empty where it does."""
        slopes = (teacher.slope, student.slope)
        if self.slopes == "ReLU" and any(slopes):
            return f"it is stated for ReLU, slope 0, and the slopes below zero are {slopes[0]:g} and {slopes[1]:g}"
        if self.slopes == "|·|" and slopes != (-1.0, -1.0):
            return f"it is stated for |·|, slope −1, and the slopes below zero are {slopes[0]:g} and {slopes[1]:g}"
        if self.slopes == "ReLU or leaky" and not all(0 <= slope < 1 for slope in slopes):
            return (
                "it is stated for ReLU and leaky ReLU, slopes from 0 up to 1, and the slopes below zero are "
                f"{slopes[0]:g} and {slopes[1]:g}"
            )
        if self.slopes == "ReLU or leaky" and slopes[0] != slopes[1]:
            return f"it is stated for one activation, and the slopes below zero are {slopes[0]:g} and {slopes[1]:g}"
        if teacher.image is not None or student.image is not None:
            return "it is stated for fully connected networks, and these are convolutional"
        normed = bool(teacher.norms or student.norms)
        if self.networks == "BatchNorm":
            return "" if student.norms else "it is stated for students with BatchNorm, and this one has none"
        if normed:
            return "it is stated for networks without BatchNorm"
        depths = len(teacher.layers), len(student.layers)
        if depths[0] != depths[1]:
            return f"it is stated for networks of equal depth, and these have {depths[0]} and {depths[1]} layers"
        if self.networks in ("two layers", "one output") and depths[0] != 2:
            return f"it is stated for two layers, and these have {depths[0]}"
        if self.networks == "deep" and depths[0] < 3:
            return "it is stated for more than two layers"
        return "" if self.networks != "one output" else _more_than_lengths(teacher, student)

    def __call__(self, teacher: Population, student: Population, x: Float[Tensor, "sample in"]) -> tuple[Finding, ...]:
        ours, theirs = student.to(dtype=torch.float64), teacher.to(dtype=torch.float64)
        if why := self.fits(teacher, student):
            raise UserError(f"{self.name} says nothing here: {why}")
        return tuple(self.check(theirs, ours, x.to(student.device, torch.float64)))


def _more_than_lengths(*networks: Population) -> str:
    """Why two layers are not Σ a|uᵀx|, a ≥ 0, which is a sum of nodes with lengths alone."""
    for network, name in zip(networks, ("teacher", "student"), strict=True):
        top = network.layers[1].weight
        if top.shape[1] != 1:
            return f"it is stated for one output, and the {name} has {top.shape[1]}"
        if any(layer.bias is not None and bool(layer.bias.any()) for layer in network.layers):
            return f"it is stated for networks without biases, and the {name} has some"
        if bool((top < 0).any()):
            return f"it is stated for output weights from 0, and the {name} has {float(top.min()):.3g}"
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
) -> Callable[[Check], Check]:
    """Register a function of (teacher, student, inputs) as a result of the literature.

    Args:
        name: Paper, kind and number, such as `S0 theorem 3`.
        title: The result in a few words.
        statement: The result in one or two sentences.
        measured: What `check` measures for it.
        subject: What its findings are about.
        networks: The architectures it is stated for.
        slopes: The activations it is stated for.

    Returns:
        A decorator that registers the function and returns it unchanged.

    Raises:
        ValueError: A result of this name is already registered.
    """

    def register(check: Check) -> Check:
        if name in _RESULTS:
            raise ValueError(f"two results are called {name}: rename one")
        _RESULTS[name] = Result(
            name=name,
            title=title,
            statement=statement,
            measured=measured,
            subject=subject,
            networks=networks,
            check=check,
            slopes=slopes,
        )
        return check

    return register


def results() -> tuple[Result, ...]:
    """All results of all papers, by paper, then by the order of their registration."""
    load_theory()
    return tuple(sorted(_RESULTS.values(), key=lambda r: r.name.split()[0]))
