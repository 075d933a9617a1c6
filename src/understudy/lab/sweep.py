"""`us.sweep`: call a function for every combination of values, and join the tables of what it returns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import product
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import pyarrow as pa

from understudy._errors import UserError
from understudy._progress import track
from understudy.store import Run

if TYPE_CHECKING:
    from pandas import DataFrame

    from understudy.store.tables import Table

Result = TypeVar("Result")


@dataclass(frozen=True, eq=False, repr=False)
class Sweep(Generic[Result]):
    """Results of a sweep, in the order of their values, the last varying fastest.

    Attributes:
        points: The values of each call, by name.
        results: What each call returned.
    """

    points: tuple[dict[str, Any], ...]
    results: tuple[Result, ...]

    def __len__(self) -> int:
        return len(self.results)

    def __getitem__(self, place: int) -> Result:
        return self.results[place]

    def __iter__(self) -> Iterator[Result]:
        return iter(self.results)

    def table(self, name: str = "metrics") -> Table:
        """Join a table of all results, with the swept values in the first columns.

        Args:
            name: A table of the results, such as `metrics`, `nodes` or `networks`. Results that are not runs are one
                row each: numbers as the column `value`, dicts with their keys as columns; `name` is then ignored.

        Returns:
            The rows of all results. A swept value with the name of a column, such as `seed`, is that column where the
            two are equal in all rows, and otherwise a column of its own, `swept_seed`.

        Raises:
            UserError: The results have no such table.
        """
        parts = [_rows(result, name) for result in self.results]
        swept = {each: self._column(each, parts) for each in self.points[0]}
        for place, (point, part) in enumerate(zip(self.points, parts, strict=True)):
            columns = {swept[each]: pa.array([value] * part.num_rows) for each, value in point.items()}
            rest = [each for each in part.column_names if each not in columns]
            every = [*columns.values(), *(part[each] for each in rest)]
            parts[place] = pa.Table.from_arrays(every, [*columns, *rest])
        return pa.concat_tables([_plain(part) for part in parts], promote_options="permissive")

    def _column(self, value: str, parts: Sequence[Table]) -> str:
        """Name of the column of a swept value."""
        agree = all(
            value not in part.column_names or all(each == point[value] for each in part[value].to_pylist())
            for point, part in zip(self.points, parts, strict=True)
        )
        return value if agree else f"swept_{value}"

    def to_pandas(self, name: str = "metrics") -> DataFrame:
        """Join a table of all results as a data frame.

        Args:
            name: A table of the results, as for `table`.

        Returns:
            The rows of all results, with the swept values in the first columns.

        Raises:
            UserError: The results have no such table, or one of its columns has the name of a swept value.
        """
        return self.table(name).to_pandas()

    def __repr__(self) -> str:
        values = {name: len({repr(point[name]) for point in self.points}) for name in self.points[0]}
        kind = type(self.results[0]).__name__
        return f"Sweep({len(self)} × {kind} over {', '.join(f'{n} {name}' for name, n in values.items())})"

    def _repr_html_(self) -> str:
        """Show the values of the first calls in a notebook."""
        rows = pa.Table.from_pylist([{name: str(v) for name, v in point.items()} for point in self.points[:5]])
        return f"<p><b>{escape(repr(self))}</b></p>{rows.to_pandas().to_html(index=False)}"


def sweep(
    fn: Callable[..., Result], over: Mapping[str, Iterable[Any]], *, progress: bool | None = None
) -> Sweep[Result]:
    """Call a function for every combination of values, and join what it returns into one table.

    Example:
        >>> def trained(lr, batch):
        ...     return us.train(students, teacher, data, us.SGD(lr=lr, batch=batch), epochs=5, steps=100)
        >>> us.sweep(trained, over={"lr": [0.01, 0.1], "batch": [8, 16]}).to_pandas("metrics")

    Args:
        fn: The function, called with the values by name, one call after the other. It returns a run of `us.train` or
            `us.run`, or a number or a dict of numbers.
        over: The values of each argument.
        progress: Whether to show a progress bar. Default: in terminals, and in notebooks that have ipywidgets.

    Returns:
        The results; `table(name)` and `to_pandas(name)` join their tables, with the swept values in further columns.

    Raises:
        UserError: There is nothing to sweep over.
    """
    if not callable(fn):
        raise UserError(f"must be a function, got {type(fn).__name__}", "fn")
    if not isinstance(over, Mapping) or not over:
        raise UserError(f'must be a dict of values by argument, such as {{"lr": [0.01, 0.1]}}, got {over!r}', "over")
    values: dict[str, Sequence[Any]] = {}
    for name, each in over.items():
        if isinstance(each, str) or not isinstance(each, Iterable):
            raise UserError(f"must have several values of {name}, such as [{each!r}], got {each!r}", "over")
        values[name] = [value.item() if hasattr(value, "item") else value for value in each]
        if not values[name]:
            raise UserError(f"must have at least one value of {name}, got none", "over")
    points = tuple(dict(zip(values, point, strict=True)) for point in product(*values.values()))
    return Sweep(points, tuple(fn(**point) for point in track(points, len(points), "sweep", progress)))


def _rows(result: Any, name: str) -> Table:
    """The rows of one result."""
    if isinstance(result, Mapping):
        return pa.Table.from_pylist([dict(result)])
    if isinstance(result, int | float) or hasattr(result, "item"):
        return pa.Table.from_pylist([{"value": result.item() if hasattr(result, "item") else result}])
    if isinstance(result, Run):
        return result.table(name)
    if isinstance(result, pa.Table):
        return result
    raise UserError(
        f"a result of the sweep, a {type(result).__name__}, has no table {name}; the function must return a run, a "
        "number or a dict of numbers"
    )


def _plain(table: Table) -> Table:
    """Words instead of dictionaries of words, which differ between runs."""
    fields = [
        pa.field(field.name, field.type.value_type if pa.types.is_dictionary(field.type) else field.type)
        for field in table.schema
    ]
    return table.cast(pa.schema(fields))
