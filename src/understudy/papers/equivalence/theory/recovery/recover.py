"""`recover_network`: the whole recovery of a function on a box."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from understudy._errors import UserError
from understudy._numbers import number
from understudy.papers.equivalence.theory.domain import Box
from understudy.papers.equivalence.theory.recovery.checkpoint import load_search, save_search
from understudy.papers.equivalence.theory.recovery.oracle import MOST_ROUNDING, Function
from understudy.papers.equivalence.theory.recovery.recovered import Recovered, describe
from understudy.papers.equivalence.theory.recovery.search import Search

MOST_EVALUATIONS = 200_000
_FEWEST_EVALUATIONS = 3000
"""Evaluations that are allowed by default, and the fewest that can be asked for, besides some for every unit."""


def fewest_evaluations(widest: int) -> int:
    """Return the fewest evaluations that may be allowed for a network whose largest layer has this many units."""
    return _FEWEST_EVALUATIONS + 40 * widest


def validate_evaluations(most: int, sizes: Sequence[int] | None, inputs: int) -> None:
    """Refuse a limit of evaluations that is too low for any recovery.

    Args:
        most: Number of evaluations that are allowed.
        sizes: Units from the inputs to the outputs, where they are known.
        inputs: Number of inputs.

    Raises:
        UserError: The limit is too low.
    """
    fewest = fewest_evaluations(max(sizes if sizes is not None else (inputs,)))
    if most < fewest:
        raise UserError(f"must be at least {fewest:,} for these sizes, got {most:,}", "most_evaluations")


def recover_network(
    function: Function,
    box: Box,
    sizes: Sequence[int] | None = None,
    *,
    seed: int = 1,
    most_evaluations: int = MOST_EVALUATIONS,
    spent: int = 0,
    checkpoint: Path | None = None,
    after: Callable[[Search], None] = lambda search: None,
) -> Recovered:
    """Recover the parameters of a ReLU network from its values on a box (Phuong & Lampert 2020, theorem 2.1).

    Args:
        function: Outputs [sample, out] of inputs [sample, in], in float64.
        box: Where it may be evaluated.
        sizes: Units from the inputs to the outputs; None to find depth and widths too.
        seed: Seed of the lines and walks.
        most_evaluations: Maximum number of inputs at which the function may be evaluated.
        spent: Number of inputs at which it was evaluated before; they count.
        checkpoint: File with the state of the search, written after every step, from which it goes on.
        after: Called after every step.

    Returns:
        What was found.

    Raises:
        UserError: Too few evaluations allowed, values that are rounded too coarsely, or a checkpoint of something else.
    """
    validate_evaluations(most_evaluations, sizes, box.inputs)
    search = Search(function, box, sizes, seed, most_evaluations, spent)
    if search.oracle.rounding > MOST_ROUNDING:
        raise UserError(
            f"f rounds its outputs to {number(search.oracle.rounding, '.1e')} of their scale, as float32 does, or is "
            f"not piecewise linear: folds can be located only with errors below {number(MOST_ROUNDING, 'g')}; compute "
            "it in float64"
        )
    if checkpoint is not None and checkpoint.exists():
        load_search(search, checkpoint)

    def step(search: Search) -> None:
        if checkpoint is not None:
            save_search(search, checkpoint)
        after(search)

    search.run(step)
    network, output, residual = search.finish()
    return describe(search, network, output, residual)
