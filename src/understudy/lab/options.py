"""Constraints on the options of studies, and the errors that name the option."""

from __future__ import annotations

import math

from understudy.errors import UserError


def check(
    study: object, field: str, *, least: float | None = None, above: float | None = None, distinct: bool = False
) -> None:
    """Each value of an option is a finite number, no less than `least`, more than `above`; several are distinct."""
    given = getattr(study, field)
    values = given if isinstance(given, tuple) else (given,)
    option = f"--{field.replace('_', '-')}"
    if not values:
        raise UserError(f"{option}: no value was given; give one or more numbers")
    bound = f"from {least:g}" if least is not None else f"above {above:g}" if above is not None else "that is finite"
    kind = "whole number" if isinstance(values[0], int) else "number"
    for value in values:
        low = (least is not None and value < least) or (above is not None and value <= above)
        if not math.isfinite(value) or low:
            raise UserError(f"{option}: {value} was given; allowed is a {kind} {bound}")
    if distinct and len(set(values)) < len(values):
        raise UserError(f"{option}: {' '.join(f'{v:g}' for v in values)} was given; name each value once")


def check_widths(teacher_nodes: int, multiples: tuple[float, ...], option: str = "--multiple") -> None:
    """Every multiple of the teacher's nodes is a whole node."""
    for multiple in multiples:
        nodes = multiple * teacher_nodes
        if nodes < 1 or abs(nodes - round(nodes)) > 1e-9 * nodes:
            raise UserError(
                f"{option}: {multiple:g} was given; times {teacher_nodes} teacher nodes makes {nodes:g} student "
                "nodes, and allowed is a multiple that gives a whole number from 1"
            )


def check_batch(samples: int, batch: int) -> None:
    """There are enough training samples for a batch."""
    if samples < batch:
        raise UserError(f"--batch: {batch} was given; allowed is up to the number of training samples, {samples}")
