"""Objectives of networks with several exits: cross-entropy at every exit, and distillation between exits.

Phuong & Lampert (2019b); Phuong (2021, section 6.2). With M exits, the loss of a batch is

    mean over labelled rows of   1/M Σ_m CE(y, p_m)                                                       (6.5)
  + mean over distilled rows of  1/M Σ_m 1/|T(m)| Σ_{t ∈ T(m)} τ² H(softmax(z_t/τ), softmax(z_m/τ))       (6.2, 6.4)

where z are logits, H is the cross-entropy, and teachers t are constants for the gradient. Without unlabelled images,
all rows are labelled and distilled (6.1); with them, the two sets of rows differ (6.6).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import cross_entropy, log_softmax, softmax

from understudy._errors import UserError, kind_of
from understudy._numbers import number
from understudy.data.source import require_counts

Logits = Float[Tensor, "exit row class"]


@dataclass(frozen=True)
class ExitObjective:
    """Which exits learn from which, and the temperature at which they do (Phuong 2021, section 6.2.3).

    It computes the loss of a batch in any training loop; the current temperature is a number that the loop keeps:

        temperature = objective.temperature
        for x, labels in batches:
            logits = network(x)
            loss = objective.loss(logits, labels, temperature)
            ...
            temperature = objective.anneal(temperature, float(objective.confidence(logits, temperature)))

    Args:
        teachers: T(m) for each exit m: the exits that it learns from, all of them later than m. Exits are counted from
            0. All empty for the exit-wise loss (Phuong 2021, eq. 6.7). `exit_wise`, `last_teacher` and `later_teachers`
            make the usual sets.
        temperature: Temperature τ, or its initial value where it is annealed.
        limit: Confidence μ that the teachers should not exceed: after each batch in which their mean confidence at
            temperature τ is larger, τ is multiplied by `factor`. None for a constant temperature.
        factor: Factor τ* by which the temperature increases.

    Raises:
        UserError: A teacher that is the exit itself, an earlier one, twice in a set or no exit, or a number out of
            range.
    """

    teachers: Sequence[Sequence[int]]
    temperature: float = 1.0
    limit: float | None = 0.5
    factor: float = 1.05

    def __post_init__(self) -> None:
        object.__setattr__(self, "teachers", _sets(self.teachers))
        for name in ("temperature", "limit", "factor"):
            value = getattr(self, name)
            if not isinstance(value, Real) and not (name == "limit" and value is None):
                raise UserError(f"must be a number, got {kind_of(value)}", name)
        if not self.teachers:
            raise UserError("must have a set for each of at least 1 exit, got none", "teachers")
        for exit, chosen in enumerate(self.teachers):
            self._require_later(exit, chosen)
        if not (math.isfinite(self.temperature) and self.temperature > 0):
            raise UserError(f"must be a finite number above 0, got {number(self.temperature)}", "temperature")
        if self.limit is not None and not 0 < self.limit < 1:
            raise UserError(
                f"must be a confidence between 0 and 1, or None for a constant temperature, got {number(self.limit)}",
                "limit",
            )
        if not (math.isfinite(self.factor) and self.factor > 1):
            raise UserError(f"must be a finite number above 1, got {number(self.factor)}", "factor")

    @classmethod
    def exit_wise(cls, exits: int) -> ExitObjective:
        """The mean cross-entropy of all exits, without distillation (Phuong 2021, eq. 6.7).

        Args:
            exits: Number of exits.

        Raises:
            UserError: No exits.
        """
        require_counts(exits=exits)
        return cls(((),) * exits, limit=None)

    @classmethod
    def last_teacher(
        cls, exits: int, *, temperature: float = 1.0, limit: float | None = 0.5, factor: float = 1.05
    ) -> ExitObjective:
        """Distillation from the last exit into all others, the default of Phuong (2021, section 6.2.3).

        Args:
            exits: Number of exits.
            temperature: Temperature, or its initial value.
            limit: Confidence above which the temperature increases; None for a constant temperature.
            factor: Factor by which it increases.

        Raises:
            UserError: No exits, or a number out of range.
        """
        require_counts(exits=exits)
        return cls(((exits - 1,),) * (exits - 1) + ((),), temperature, limit, factor)

    @classmethod
    def later_teachers(
        cls, exits: int, *, temperature: float = 1.0, limit: float | None = 0.5, factor: float = 1.05
    ) -> ExitObjective:
        """Distillation from all later exits into each exit (Phuong 2021, section E.1).

        Args:
            exits: Number of exits.
            temperature: Temperature, or its initial value.
            limit: Confidence above which the temperature increases; None for a constant temperature.
            factor: Factor by which it increases.

        Raises:
            UserError: No exits, or a number out of range.
        """
        require_counts(exits=exits)
        return cls(tuple(tuple(range(m + 1, exits)) for m in range(exits)), temperature, limit, factor)

    @property
    def exits(self) -> int:
        """Number of exits."""
        return len(self.teachers)

    @property
    def distils(self) -> bool:
        """Whether any exit learns from another."""
        return any(self.teachers)

    @property
    def all_teachers(self) -> tuple[int, ...]:
        """The union T(:) of all teacher sets; the last exit where there are none, whose confidence is then recorded."""
        return tuple(sorted(set().union(*self.teachers))) or (self.exits - 1,)

    @property
    def shares(self) -> Float[Tensor, "exit exit"]:
        """Weight of each exit (second axis) in the distribution that an exit learns: 1/|T(m)| on T(m), 0 elsewhere."""
        shares = torch.zeros(self.exits, self.exits, dtype=torch.float64)
        for exit, chosen in enumerate(self.teachers):
            shares[exit, list(chosen)] = 1 / max(len(chosen), 1)
        return shares

    def loss(
        self,
        logits: Logits,
        labels: Int[Tensor, "known"],
        temperature: float,
        *,
        labelled: int | None = None,
        distilled: int = 0,
    ) -> Float[Tensor, ""]:
        """Compute the loss of a batch (Phuong 2021, eqs. 6.1, 6.4 to 6.7).

        Args:
            logits: Logits of every exit.
            labels: Class of each row; those after the labelled rows are not used and may be missing.
            temperature: The current temperature.
            labelled: Number of rows, from the first on, that enter the cross-entropy. Default: all. The rows after them
                are unlabelled (Phuong 2021, eq. 6.6).
            distilled: First of the rows that enter the distillation loss, to the last. Default: all rows enter.

        Returns:
            The loss, through which gradients flow to the logits, but not to the teachers in the distillation loss.

        Raises:
            UserError: Logits of another number of exits, rows without labels, or a number out of range.
        """
        labelled = logits.shape[1] if labelled is None and logits.ndim == 3 else labelled or 0
        self._require_fit(logits, labels, temperature, labelled, distilled)
        exits = len(logits)
        classification = cross_entropy(logits[:, :labelled].flatten(0, 1), labels[:labelled].repeat(exits))
        if not self.distils:
            return classification
        soft = logits[:, distilled:] / temperature
        # The cross-entropy is linear in the teacher, so the mean over T(m) is taken of the teachers' probabilities.
        shares = self.shares.to(logits)
        targets = torch.einsum("mt,trk->mrk", shares, softmax(soft.detach(), -1))
        distillation = -(targets * log_softmax(soft, -1)).sum() / (exits * soft.shape[1])
        return classification + temperature**2 * distillation

    def confidence(self, logits: Logits, temperature: float) -> Float[Tensor, ""]:
        """Compute the teachers' confidence: the largest class probability of their mean, averaged over rows.

        Args:
            logits: Logits of every exit, for the rows that enter the distillation loss.
            temperature: Temperature at which the teachers are taken; 1 for the unadjusted confidence.

        Returns:
            The confidence, without a gradient. Where no exit has a teacher it is that of the last exit.
        """
        teachers = logits[list(self.all_teachers)].detach()
        return softmax(teachers / temperature, -1).mean(0).amax(-1).mean()

    def anneal(self, temperature: float, confidence: float) -> float:
        """Return the temperature for the next batch (Phuong 2021, algorithm 6.1, line 12).

        Args:
            temperature: The temperature of the batch.
            confidence: The teachers' confidence in the batch at this temperature.
        """
        if self.distils and self.limit is not None and confidence > self.limit:
            return temperature * self.factor
        return temperature

    def _require_fit(
        self, logits: Logits, labels: Int[Tensor, "known"], temperature: float, labelled: int, distilled: int
    ) -> None:
        """Raise a `UserError` unless a batch fits the objective."""
        if logits.ndim != 3 or len(logits) != self.exits:
            raise UserError(
                f"must have shape [exit, row, class] with {self.exits} exits, got {list(logits.shape)}", "logits"
            )
        rows = logits.shape[1]
        if not 1 <= labelled <= rows:
            raise UserError(f"must be from 1 to {rows}, the rows of the batch, got {labelled}", "labelled")
        if not 0 <= distilled < rows:
            raise UserError(f"must be from 0 to {rows - 1}, the last row of the batch, got {distilled}", "distilled")
        if labels.ndim != 1 or len(labels) < labelled:
            raise UserError(f"must be one class for each of {labelled} rows, got {list(labels.shape)}", "labels")
        if not temperature > 0:
            raise UserError(f"must be a number above 0, got {number(temperature)}", "temperature")

    def _require_later(self, exit: int, chosen: Sequence[int]) -> None:
        """Raise a `UserError` unless the teachers of an exit are different later exits."""
        if outside := [t for t in chosen if not 0 <= t < self.exits]:
            raise UserError(
                f"of exit {exit} must be exits from 0 to {self.exits - 1}, counted from 0, got {outside[0]}", "teachers"
            )
        if early := [t for t in chosen if t <= exit]:
            which = "the exit itself" if early[0] == exit else f"the earlier exit {early[0]}"
            raise UserError(
                f"of exit {exit} (counted from 0) must be later exits, got {which}; the last exit has none", "teachers"
            )
        if len(set(chosen)) < len(chosen):
            raise UserError(f"of exit {exit} must each be named once, got {', '.join(map(str, chosen))}", "teachers")


def _sets(given: object) -> tuple[tuple[int, ...], ...]:
    """Teacher sets as tuples, also of lists."""
    outer = given if isinstance(given, Sequence) and not isinstance(given, str) else None
    if outer is None or not all(isinstance(each, Sequence) for each in outer):
        raise UserError(f"must be a list of exits for each exit, as in [[2], [2], []], got {given!r}", "teachers")
    sets = tuple(map(tuple, outer))
    if wrong := [t for chosen in sets for t in chosen if type(t) is not int]:
        raise UserError(f"must be exits, counted from 0, got {wrong[0]!r}", "teachers")
    return sets
