"""Refuse sizes that no memory holds, from the options of a study, before anything is allocated or written."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from understudy._errors import TooLargeError, UserError, exhausts_memory, first_line
from understudy._memory import free_memory
from understudy._numbers import number
from understudy.lab.options import option, sizes, typed

if TYPE_CHECKING:
    from understudy.lab.study import Study

_SEED_BYTES, _UNIT_BYTES, _NUMBER_BYTES = 1_000, 100, 8
"""Bytes that are needed at least for a seed with its parameters and rows, for one of anything else that is counted
(a node, a sample: several numbers, in several copies), and for a number of an array."""
_UNUSUAL = 10
"""An option is named as a cause if it is this many times as large as its default."""


def require_capacity(study: Study) -> None:
    """Refuse options whose arrays do not fit in memory.

    The estimate is a lower bound: what passes may still be too large, and is refused where it is allocated.

    Args:
        study: The study; its `arrays` name the options whose products are the sizes of its arrays.

    Raises:
        TooLargeError: An array does not fit; the message names its options.
    """
    free = free_memory()
    single = [(name, _SEED_BYTES if name == "seeds" else _UNIT_BYTES) for name in sizes(study)]
    for names, each in (*single, *((names, _NUMBER_BYTES) for names in study.arrays)):
        given = [(name, _largest(getattr(study, name))) for name in names.split()]
        need = each * math.prod(size for _, size in given)
        if need > free:
            shown = " × ".join(f"{option(name)} {typed(size)}" for name, size in given)
            largest = max(given, key=lambda one: one[1])[0]
            raise TooLargeError(
                f"memory: {shown} needs at least {number(need / 1e9)} GB, but only {number(free / 1e9)} GB may be "
                f"used; choose a smaller {option(largest)}"
            )


@contextmanager
def naming_causes(study: Study) -> Iterator[None]:
    """Add to errors about sizes the options that are much larger than their defaults, unless one is named already.

    Args:
        study: The study that is planned or run inside.
    """
    try:
        yield
    except Exception as error:
        if exhausts_memory(error):
            error = TooLargeError(f"memory is exhausted ({first_line(error)}); choose smaller sizes")
        elif not isinstance(error, TooLargeError):
            raise
        causes = "" if "--" in str(error) else _causes(study)
        raise UserError(f"{error} ({causes})" if causes else str(error)) from error


def _causes(study: Study) -> str:
    """The options that are much larger than their defaults."""
    default = type(study)()
    return "; ".join(
        f"{option(name)} is {typed(_largest(value))}, by default {typed(_largest(getattr(default, name)))}"
        for name, value in study.options().items()
        if _is_number(value) and abs(_largest(value)) > _UNUSUAL * max(abs(_largest(getattr(default, name))), 1)
    )


def _is_number(value: Any) -> bool:
    each = value if isinstance(value, tuple) else (value,)
    return all(isinstance(one, int | float) and not isinstance(one, bool) for one in each)


def _largest(value: Any) -> Any:
    return max(value, key=abs) if isinstance(value, tuple) else value
