"""The claims of a study: what each states, in which settings it is decided, and the function that decides it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from understudy.claims.verdict import Verdict
from understudy.store import Claim, Run

Decider = Callable[..., Verdict | None]
Cases = Mapping[str, Iterable[Any]] | Callable[[Any, Run], Iterable[Mapping[str, Any]]]


@dataclass(frozen=True)
class _Spec:
    id: str
    part: str
    statement: str
    paper: str
    values_are: str
    needs: Mapping[str, Any]
    when: Callable[[Any], bool]
    cases: Cases
    decide: Decider
    tuned_on: str | None


class Claims:
    """The claims that runs of a study decide, each registered by a decorated function.

    Claims are decided in the paper's settings only: those are the study's defaults, so that they are stated once.

    Args:
        fixed: Options that must have their default values, separated by spaces; or `free`, all but these.
        least: Options that must be at least as large as given, such as `{"seeds": 10}`.
        when: A further condition on the study.
        tuned_on: On which seeds settings and bounds of the claims were chosen, such as `seeds 101 to 103`; empty if
            none were, None if it is not stated.

    Example:
        ```python
        claims = Claims(free="seeds dtype device", least={"seeds": 10})

        @claims.claim("B1", "rank of W", statement="σ₃ of W is under 5% of σ₁, in every seed", paper="rank two")
        def rank(study, run):
            return every(run.select(layers=2).end("W1 third"), below=0.05, say="σ₃/σ₁ {range}")
        ```
    """

    def __init__(
        self,
        *,
        fixed: str | None = None,
        free: str | None = None,
        least: Mapping[str, float] | None = None,
        when: Callable[[Any], bool] = lambda study: True,
        tuned_on: str | None = None,
    ) -> None:
        self._fixed, self._free, self._least, self._when = fixed, free, dict(least or {}), when
        self._tuned_on = tuned_on
        self._specs: list[_Spec] = []

    def claim(
        self,
        id: str,
        part: str = "",
        *,
        statement: str,
        paper: str,
        values_are: str = "",
        needs: Mapping[str, Any] | None = None,
        when: Callable[[Any], bool] = lambda study: True,
        cases: Cases | None = None,
        tuned_on: str | None = None,
    ) -> Callable[[Decider], Decider]:
        """Register the function that decides a claim: called with the study, the run and the values of a case.

        Args:
            id: The id of the claim in the catalogue.
            part: Which part of the claim this is.
            statement: What must be true. `part`, `statement`, `paper` and `tuned_on` may name attributes of the study
                and values of the case in braces: `after {epochs} epochs`, `layer {layer}`.
            paper: The paper's value or words.
            values_are: What the values of the verdict are, if the statement does not say it.
            needs: Values that options must have, or include where they take several.
            when: A further condition on the study.
            cases: Values for which the claim is decided one by one: a sequence of values by name, or a function of the
                study and the run that returns them.
            tuned_on: On which seeds settings and bounds of this claim were chosen, if they differ from those of the
                other claims of the study.

        Returns:
            A decorator. The function returns a verdict, or None where the run has no networks to decide it on.
        """

        def register(decide: Decider) -> Decider:
            tuned = self._tuned_on if tuned_on is None else tuned_on
            words = (id, part, statement, paper, values_are)
            self._specs.append(_Spec(*words, needs or {}, when, cases or {}, decide, tuned))
            return decide

        return register

    def again(
        self, id: str, part: str, *, when: Callable[[Any], bool], tuned_on: str | None = None
    ) -> Callable[[Decider], Decider]:
        """Register a claim a second time, under another id, part and condition, with the same statement.

        Args:
            id: The id of the other claim in the catalogue.
            part: Which part of that claim this is.
            when: The condition on the study, instead of that of the first registration.
            tuned_on: On which seeds settings and bounds were chosen, if others than in the first registration.

        Returns:
            A decorator, to be placed above that of `claim`.
        """

        def register(decide: Decider) -> Decider:
            spec = next(spec for spec in reversed(self._specs) if spec.decide is decide)
            tuned = spec.tuned_on if tuned_on is None else tuned_on
            self._specs.append(replace(spec, id=id, part=part, when=when, tuned_on=tuned))
            return decide

        return register

    def __call__(self, study: Any, run: Run) -> list[Claim]:
        """Decide every claim for which the run has the paper's settings, in the order of their registration."""
        if not self.applies(study):
            return []
        found = []
        for spec in self._specs:
            if not (spec.when(study) and all(_includes(study, name, value) for name, value in spec.needs.items())):
                continue
            for case in _cases(spec.cases, study, run):
                if (verdict := spec.decide(study, run, **case)) is not None:
                    found.append(_claim(spec, study, case, verdict))
        return found

    def applies(self, study: Any) -> bool:
        """Whether a study has the paper's settings.

        Args:
            study: The study with its options.
        """
        return not self.lacks(study) and self._when(study)

    def lacks(self, study: Any) -> dict[str, Any]:
        """Options in which a study differs from the paper's settings.

        Args:
            study: The study with its options.

        Returns:
            The paper's value, or the least that is allowed, by option; empty where all agree.
        """
        plain, options = type(study)().options(), study.options()
        fixed = self._fixed.split() if self._fixed is not None else [] if self._free is None else list(plain)
        fixed = [name for name in fixed if name not in (self._free or "").split()]
        other = {name: plain[name] for name in fixed if options[name] != plain[name]}
        return other | {name: least for name, least in self._least.items() if options[name] < least}


def _includes(study: Any, name: str, value: Any) -> bool:
    given = getattr(study, name)
    return value in given if isinstance(given, tuple) else bool(given == value)


def _cases(cases: Cases, study: Any, run: Run) -> list[dict[str, Any]]:
    if callable(cases):
        return [dict(case) for case in cases(study, run)]
    return [dict(zip(cases, values, strict=True)) for values in product(*cases.values())]


def _claim(spec: _Spec, study: Any, case: Mapping[str, Any], verdict: Verdict) -> Claim:
    fields = _Fields(study, case)
    words = {name: getattr(spec, name).format_map(fields) for name in ("part", "statement", "paper")}
    tuned_on = None if spec.tuned_on is None else spec.tuned_on.format_map(fields)
    return Claim(id=spec.id, values_are=spec.values_are, tuned_on=tuned_on, **words, **vars(verdict))


class _Fields(dict[str, Any]):
    """Values of a case, and attributes of a study."""

    def __init__(self, study: Any, case: Mapping[str, Any]) -> None:
        super().__init__(case)
        self._study = study

    def __missing__(self, name: str) -> Any:
        return getattr(self._study, name)
