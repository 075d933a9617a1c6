"""`us.prune`: a student without the nodes that learned nothing, and what that costs."""

from __future__ import annotations

from dataclasses import dataclass

from understudy._numbers import number
from understudy._progress import steps
from understudy.data.measuring import Distribution, Drawn, Given, split_inputs
from understudy.nets import Population
from understudy.papers.specialization.theory.pruning import (
    Pruning,
    PruningLosses,
    Rule,
    prune_student,
    pruning_losses,
)
from understudy.papers.specialization.theory.pruning import (
    refit as fit,
)


@dataclass(frozen=True, eq=False, repr=False)
class PrunedStudent:
    """A student without the nodes that a rule removed.

    Attributes:
        network: The smaller student; with `refit`, with its output weights fitted again.
        before: Sizes of the student as it was given.
        pruning: Which nodes were kept and removed, by which rule and why.
        given: Losses on the inputs by which nodes were selected, as shares of the output variance.
        held_out: Losses on held-out inputs.
    """

    network: Population
    before: tuple[int, ...]
    pruning: Pruning
    given: PruningLosses
    held_out: PruningLosses

    @property
    def removed(self) -> int:
        """Number of removed nodes."""
        return len(self.pruning.dropped)

    def __repr__(self) -> str:
        sizes = " became ".join("-".join(map(str, each)) for each in (self.before, self.network.sizes))
        removed = f"{self.removed} of {sum(self.before[1:-1])} nodes removed by {self.pruning.by}"
        before, after, again = (number(loss, ".2e") for loss in self.held_out)
        return f"PrunedStudent({sizes}: {removed}; held-out loss {before} before, {after} after, {again} refitted)"


def prune(
    student: Population,
    teacher: Population,
    data: Given | None = None,
    *,
    by: Rule | None = None,
    below: float | None = None,
    refit: bool = False,
    inputs: Distribution = "gaussian",
    input_std: float = 1.5,
    samples: int = 10_000,
    seed: int = 1,
) -> PrunedStudent:
    """Remove the nodes of a student that learned none of the teacher's, and measure what that costs.

    Args:
        student: One student.
        teacher: Its teacher.
        data: Inputs as a tensor, array, pandas frame or file (.npy, .npz, .parquet or .csv), of which every fifth is
            held out; or a source. Default: drawn at random.
        by: `theorem` (Tian 2020, theorem 2, for two layers), `modulation` (Tian et al. 2019, sec. 3.3) or
            `correlation`. Default: theorem for two layers and modulation for others; with `below`, correlation.
        below: Threshold below which nodes are removed: a share of the output of the strongest group (theorem, 0.05),
            the share of its layer that all removed nodes may hold (modulation, 0.01), or a correlation (0.8).
        refit: Whether `network` of the result has output weights and biases that are fitted again by least squares.
        inputs: Distribution of drawn inputs.
        input_std: Standard deviation of drawn inputs.
        samples: Number of inputs to draw, and number of held-out inputs to test on.
        seed: Seed of drawn inputs.

    Returns:
        The smaller student, which nodes were removed and why, and the losses before and after.

    Raises:
        UserError: Networks or inputs that do not fit, or a value out of range.
    """
    x = split_inputs(data, student, Drawn(inputs, input_std, samples, seed))
    with steps(f"selecting among {sum(student.sizes[1:-1]):,} nodes"):
        pruning = prune_student(teacher, student, x.given, below, by)
    fitted = pruning.network
    if pruning.dropped or refit:  # where nothing was removed there is nothing to make up for
        with steps(f"fitting the weights of {fitted.layers[-1].weight.shape[-1]:,} features"):
            fitted = fit(teacher, fitted, x.given)
    losses = [pruning_losses(teacher, student, pruning, fitted, each) for each in x]
    return PrunedStudent(fitted if refit else pruning.network, student.sizes, pruning, *losses)
