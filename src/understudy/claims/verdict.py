"""Ways to decide a claim: bounds on every value, on the median, the mean and a share, and the order of groups."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypedDict, Unpack

import numpy as np

from understudy._numbers import number
from understudy.store.claims import Variant, together


@dataclass(frozen=True)
class Verdict:
    """Whether a claim holds (None: not decided), what was measured in words, and the values it was decided on."""

    holds: bool | None
    measured: str
    n: int
    values: tuple[float, ...] = ()
    low: float | None = None
    high: float | None = None
    variants: tuple[Variant, ...] = ()
    would_decide: str = ""
    """What would decide a claim that is not decided, such as more seeds."""

    def __post_init__(self) -> None:
        if (self.holds is None) != bool(self.would_decide):
            raise ValueError("a verdict says what would decide the claim if it is not decided (None), and only then")

    def __and__(self, other: Verdict) -> Verdict:
        """Both must hold; the values and bounds of the first are shown.

        One that does not hold settles it; else one that is not decided leaves both not decided.
        """
        holds = together([self.holds, other.holds])
        return replace(
            self,
            holds=holds,
            measured=_joined(self.measured, other.measured),
            variants=self.variants + other.variants,
            would_decide=_joined(self.would_decide, other.would_decide) if holds is None else "",
        )

    def provided(self, condition: Any, would_decide: str) -> Verdict:
        """Leave the claim not decided unless a condition is met, such as training to a given loss.

        Args:
            condition: Whether what was measured can decide the claim.
            would_decide: What would decide it, such as `training until the loss is below 0.01`.

        Returns:
            This verdict if the condition is met; else one that is not decided, of the same measurement.
        """
        if condition:
            return self
        return replace(self, holds=None, would_decide=_joined(self.would_decide, would_decide))

    def say(self, words: str) -> Verdict:
        """Replace the words for what was measured.

        Args:
            words: What was measured.

        Returns:
            A verdict that differs in these words only.
        """
        return replace(self, measured=words)

    def also(self, words: str) -> Verdict:
        """Append to the words for what was measured.

        Args:
            words: What else was measured.

        Returns:
            A verdict that differs in these words only.
        """
        return replace(self, measured=_joined(self.measured, words))

    def show(self, values: Any, *, low: float | None = None, high: float | None = None) -> Verdict:
        """Replace the values and bounds that are shown; the decision stays.

        Args:
            values: Values of any shape; those that are not finite are left out.
            low: Their lower bound.
            high: Their upper bound.

        Returns:
            A verdict that differs in these only.
        """
        return replace(self, values=_finite(values), low=low, high=high)

    def with_variants(self, variants: Mapping[str, Verdict]) -> Verdict:
        """Add what was measured in settings that the paper does not claim.

        Args:
            variants: The verdict of each setting, by its description.

        Returns:
            A verdict with these variants after its own.
        """
        found = tuple(Variant(where, other.measured, other.holds) for where, other in variants.items())
        return replace(self, variants=self.variants + found)


class Bounds(TypedDict, total=False):
    """Bounds on values: `at_least` and `at_most` allow the bound itself, `above` and `below` do not."""

    at_least: float | None
    at_most: float | None
    above: float | None
    below: float | None


def every(values: Any, *, say: str = "{range}", n: int | None = None, **bounds: Unpack[Bounds]) -> Verdict:
    """Every value is within the bounds; a value that is not finite is not.

    Args:
        values: Values of any shape, usually one per network.
        say: What was measured, formatted with the fields of `Words`.
        n: Number of units, if it is not the number of values.
        **bounds: At most one lower and one upper bound: see `Bounds`.

    Returns:
        The verdict, with the finite values and the bounds.
    """
    found = np.asarray(values, float).ravel()
    inside = within(found, **bounds)
    words = say.format_map(Words(found, inside))
    return _bounded(bool(len(found) and inside.all()), words, len(found) if n is None else n, found, bounds)


def median(values: Any, *, say: str = "{median:.3g}", n: int | None = None, **bounds: Unpack[Bounds]) -> Verdict:
    """The median over networks is within the bounds; networks that diverged (NaN) are left out.

    Args:
        values: [network], or [network, …]: then every median over networks must be within the bounds.
        say: What was measured, formatted with the fields of `Words`.
        n: Number of units, if it is not the number of networks with finite values.
        **bounds: At most one lower and one upper bound: see `Bounds`.

    Returns:
        The verdict, with the values of all networks and the bounds.
    """
    found = np.asarray(values, float)
    found = found[~np.isnan(found).any(axis=tuple(range(1, found.ndim)))]
    middle = np.median(found, axis=0) if len(found) else np.full(found.shape[1:], np.nan)
    inside = within(np.atleast_1d(middle), **bounds)
    words = say.format_map(Words(found.ravel(), inside))
    return _bounded(bool(inside.all()), words, len(found) if n is None else n, found, bounds)


def mean_above(
    values: Any, bound: float = 0.0, *, errors: float, say: str = "mean {mean:.3g}", n: int | None = None
) -> Verdict:
    """The mean over networks is above a bound by more than a number of its standard errors.

    Networks that diverged (NaN) are left out; with fewer than two others the claim is not decided.

    Args:
        values: One value per network, such as the difference of two students of one seed.
        bound: What the mean is compared with.
        errors: Standard errors by which the mean must exceed the bound; if negative, by which it may fall short of it.
        say: What was measured, formatted with the fields of `Words`; the comparison in standard errors is appended.
        n: Number of units, if it is not the number of networks with values.

    Returns:
        The verdict, with the values of all networks and the bound.
    """
    found = np.asarray(values, float).ravel()
    found = found[~np.isnan(found)]
    words = say.format_map(Words(found, within(found, above=bound)))
    shown = len(found) if n is None else n, _finite(found), bound
    if not np.isfinite(found).all():
        return Verdict(False, _joined(words, "not every value is finite"), *shown)
    if len(found) < 2:
        return Verdict(None, words, *shown, would_decide="values of at least two networks")
    lead, error = float(found.mean()) - bound, _standard_error(found)
    size = f"{number(abs(lead) / error, '.2g')} standard errors" if error else f"{number(abs(lead), '.3g')} (all equal)"
    asked = f"required: more than {errors:g}" if errors >= 0 else f"allowed: up to {-errors:g} below"
    words = f"{words}, {size} {'above' if lead >= 0 else 'below'} {number(bound, 'g')} ({asked})"
    return Verdict(bool(lead > errors * error if errors >= 0 else lead >= errors * error), words, *shown)


def _standard_error(values: np.ndarray) -> float:
    return float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("nan")


def _bounded(holds: bool, words: str, n: int, values: np.ndarray, bounds: Bounds) -> Verdict:
    low, high = bounds.get("above"), bounds.get("below")
    low, high = bounds.get("at_least") if low is None else low, bounds.get("at_most") if high is None else high
    return Verdict(holds, words, n, _finite(values), low, high)


def share(flags: Any, *, at_least: float | None = None, at_most: float | None = None, say: str = "{count}") -> Verdict:
    """The share of flags that are true is within the bounds.

    Args:
        flags: Booleans of any shape, usually one per network.
        at_least: Lower bound of the share.
        at_most: Upper bound of the share.
        say: What was measured, formatted with the fields of `Words`; `{mean}` is the share.

    Returns:
        The verdict.
    """
    found = np.asarray(flags, bool).ravel()
    inside = within(np.array([found.mean() if len(found) else np.nan]), at_least=at_least, at_most=at_most)
    words = say.format_map(Words(found.astype(float), found))
    return Verdict(bool(inside.all()), words, len(found), (), at_least, at_most)


def ordered(
    values: Any, names: Sequence[str], *, rising: bool = True, strict: bool = True, digits: str = ".3g"
) -> Verdict:
    """The medians of groups rise, or fall, from each group to the next.

    Args:
        values: [group, network]; NaN where a network diverged.
        names: What the groups are called.
        rising: Whether they must rise; else they must fall.
        strict: Whether equal medians are out of order.
        digits: Format of the medians.

    Returns:
        The verdict, with the medians as values.
    """
    found = np.asarray(values, float)
    middle = np.array([np.median(row[np.isfinite(row)]) if np.isfinite(row).any() else np.nan for row in found])
    steps = np.diff(middle) * (1 if rising else -1)
    words = ", ".join(f"{name} {number(value, digits)}" for name, value in zip(names, middle, strict=True))
    holds = bool(len(steps) and (steps > 0 if strict else steps >= 0).all())
    return Verdict(holds, words, found.shape[1], _finite(middle))


_TESTS: dict[str, Callable[[Any, Any], Any]] = {
    "at_least": np.greater_equal,
    "at_most": np.less_equal,
    "above": np.greater,
    "below": np.less,
}


def within(values: np.ndarray, **bounds: Unpack[Bounds]) -> np.ndarray:
    """Which values are finite and within the bounds.

    Args:
        values: Values of any shape.
        **bounds: Any of `at_least`, `at_most`, `above` and `below`: see `Bounds`.

    Returns:
        One truth value per value.
    """
    inside = np.isfinite(values)
    for name, bound in bounds.items():
        if bound is not None:
            inside &= _TESTS[name](np.nan_to_num(values, nan=0.0), bound)
    return inside


_SPANS: dict[str, Callable[[Any], Any]] = {
    "range": lambda values: (values.min(), values.max()),
    "quartiles": lambda values: np.percentile(values, (25, 75)),
}
_NUMBERS: dict[str, Callable[[Any], Any]] = {
    "median": np.median,
    "mean": np.mean,
    "least": np.min,
    "most": np.max,
    "sum": np.sum,
    "error": _standard_error,
}


class Words(dict[str, Any]):
    """Fields for the words of a verdict, computed when they are used.

    `range` (`0.03 to 0.05`), `median`, `mean`, `error` (standard error of the mean), `least`, `most`, `sum`,
    `quartiles`, `count` (`9 of 10` are within the bounds), `n`. Numbers take a format: `{median:.2f}`; a range and
    quartiles take one too: `{range:.1%}`.
    """

    def __init__(self, values: np.ndarray, inside: np.ndarray) -> None:
        super().__init__()
        self._values, self._inside = values[np.isfinite(values)], inside

    def __missing__(self, name: str) -> Any:
        values = self._values
        if name == "count":
            return f"{int(self._inside.sum()):,} of {len(self._inside):,}"
        if name == "n":
            return len(self._inside)
        if not len(values):
            return _Span(())
        if name in _SPANS:
            return _Span(tuple(_SPANS[name](values)))
        return _Number(_NUMBERS[name](values))


class _Number(float):
    """A number that is formatted for people."""

    def __format__(self, spec: str) -> str:
        return number(float(self), spec or ".3g")


class _Span:
    """The ends of a range: one number where both are written alike."""

    def __init__(self, ends: tuple[float, ...]) -> None:
        self._ends = ends

    def __format__(self, spec: str) -> str:
        if not self._ends:
            return "no finite value"
        low, high = (number(end, spec or ".3g") for end in self._ends)
        return low if low == high else f"{low} to {high}"


def range_words(values: Any, spec: str = ".3g") -> str:
    """The range of the finite values in words: `0.03 to 0.05`, or one number where both ends are written alike.

    Args:
        values: Values of any shape.
        spec: Format of the numbers.
    """
    found = _finite(values)
    return format(_Span((min(found), max(found)) if found else ()), spec)


def _finite(values: Any) -> tuple[float, ...]:
    found = np.asarray(values, float).ravel()
    return tuple(found[np.isfinite(found)].tolist())


def _joined(*parts: str) -> str:
    return "; ".join(part for part in parts if part)
