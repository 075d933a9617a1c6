"""A decided claim, as a run folder stores it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from understudy._errors import UserError
from understudy._numbers import typeset_fields


@dataclass(frozen=True)
class Variant:
    """The quantity of a claim measured in a setting that the paper does not claim."""

    where: str
    measured: str
    holds: bool | None

    def __post_init__(self) -> None:
        typeset_fields(self, "where", "measured")

    def __str__(self) -> str:
        return f"{self.where}: {self.measured} ({holding(self.holds)})"


def holding(holds: bool | None) -> str:
    """The outcome of a decision in words: `holds`, `does not hold` or `not decided`.

    Args:
        holds: Whether a claim holds, or None if it is not decided.
    """
    return "not decided" if holds is None else "holds" if holds else "does not hold"


def together(outcomes: Iterable[bool | None]) -> bool | None:
    """Whether all of several claims hold.

    Args:
        outcomes: Whether each holds, or None if it is not decided.

    Returns:
        False if one does not hold; else None if one is not decided, or none is given; else True.
    """
    found = list(outcomes)
    return False if False in found else True if found and None not in found else None


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A claim of a paper as a run decided it."""

    id: str
    """The id of the claim in the catalogue, such as `T1`."""
    part: str = ""
    """Which of several measurements of the claim this is, such as a panel of a figure."""
    statement: str
    """What must be true for the claim to hold."""
    paper: str
    """The paper's own value or words."""
    measured: str
    """The measured value in words."""
    n: int
    """Number of networks or other units it was decided on."""
    holds: bool | None
    """Whether the claim holds; None if the run cannot decide it, such as one that is too short."""
    would_decide: str = ""
    """What would decide a claim that is not decided."""
    tuned_on: str | None = None
    """On which seeds settings and bounds of the claim were chosen; empty if none were, None if it is not stated."""
    values: tuple[float, ...] = field(default=())
    """The decided quantity, one value per network or cell: what `low` and `high` bound."""
    values_are: str = ""
    """What `values` are, if the statement does not say it."""
    low: float | None = None
    high: float | None = None
    variants: tuple[Variant, ...] = field(default=())
    """The decided quantity in settings that the paper does not claim."""

    def __post_init__(self) -> None:
        typeset_fields(self, "part", "statement", "paper", "measured", "values_are", "would_decide")

    def as_dict(self) -> dict[str, Any]:
        """Plain values for `claims.json`; those of `_LEFT_OUT` are left out where nothing is stated."""
        plain = asdict(self) | {"values": list(self.values), "variants": [asdict(other) for other in self.variants]}
        return {name: value for name, value in plain.items() if name not in _LEFT_OUT or value not in _LEFT_OUT[name]}

    @classmethod
    def from_dict(cls, row: dict[str, Any], file: str = "claims.json") -> Claim:
        """The claim that `as_dict` wrote, also in earlier versions: with two outcomes, and variants called `beside`.

        Args:
            row: Plain values of one claim.
            file: Where they were read, for errors.

        Raises:
            UserError: Names or types of values that are not those of a claim.
        """
        plain = {name: value for name, value in row.items() if name != "beside"}
        try:
            variants = tuple(Variant(**other) for other in row.get("variants", row.get("beside", ())))
            found = cls(**(plain | {"values": tuple(row.get("values", ())), "variants": variants}))
        except (TypeError, AttributeError, ValueError) as error:
            raise UserError(f"{file}: a claim cannot be read ({error}); report the run again") from error
        texts = [found.id, found.part, found.statement, found.paper, found.measured, found.values_are]
        texts += [found.would_decide, *([] if found.tuned_on is None else [found.tuned_on])]
        bounds = [each for each in (found.low, found.high) if each is not None]
        decided = [each for each in (found.holds, *(each.holds for each in variants)) if each is not None]
        if (
            not all(isinstance(text, str) for text in texts)
            or not all(isinstance(value, int | float) for value in (found.n, *found.values, *bounds))
            or not all(isinstance(holds, bool) for holds in decided)
        ):
            raise UserError(f"{file}: the claim {found.id} has values of other types; report the run again")
        if (found.holds is None) != bool(found.would_decide):
            raise UserError(
                f"{file}: the claim {found.id} must say what would decide it if it is not decided (null), and only "
                f"then; holds is {found.holds}, would_decide is {found.would_decide!r}: report the run again"
            )
        return found


_LEFT_OUT: dict[str, tuple[Any, ...]] = {
    "variants": ([],),
    "values_are": ("",),
    "would_decide": ("",),
    "tuned_on": (None,),
}
"""Values that claims.json leaves out, by name."""
