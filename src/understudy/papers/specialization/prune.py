"""`us.prune`: a student without the nodes that learned nothing, and what that costs."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from understudy._errors import UserError
from understudy._numbers import number
from understudy._progress import steps
from understudy.data.given_inputs import Distribution, Drawn, Given, Split, split_inputs
from understudy.nets import Population
from understudy.nets.given_networks import Network, as_population, input_shape
from understudy.nets.graphs.smaller_modules import SmallerModule, smaller_module
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

_PRODUCTS = 2
"""About how many products of all pairs of nodes a selection takes, as measured."""
_COMPARED = 100
"""Number of samples on which a smaller module is compared with its network."""


@dataclass(frozen=True, eq=False, repr=False)
class PrunedStudent:
    """A student without the nodes that a rule removed.

    Attributes:
        network: The smaller student; with `refit`, with its output weights fitted again.
        before: Sizes of the student as it was given.
        pruning: Which nodes were kept and removed, by which rule and why.
        given: Losses on the inputs by which nodes were selected, as shares of the output variance.
        held_out: Losses on held-out inputs.
        module: The smaller student as a module: of the class that was given where its parts allow that.
        module_note: Why the module is an `nn.Sequential` instead; empty where it is of the class that was given.
    """

    network: Population
    before: tuple[int, ...]
    pruning: Pruning
    given: PruningLosses
    held_out: PruningLosses
    module: nn.Module
    module_note: str

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
    student: Network,
    teacher: Network,
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
        student: One student: a population, a module of PyTorch, or a network file.
        teacher: Its teacher, in the same forms.
        data: Inputs as a tensor, array, pandas frame or file (.npy, .npz, .parquet or .csv), of which every fifth is
            held out; or a source. Default: drawn at random.
        by: `theorem` (Tian 2020, theorem 2, for two layers), `modulation` (Tian et al. 2019, sec. 3.3), `weight-norm`
            or `correlation`. Default: theorem for two layers and modulation for others; with `below`, correlation.
        below: Threshold below which nodes are removed: a share of the output of the strongest group (theorem, 0.05),
            the share of its layer that all removed nodes may hold (modulation and weight-norm, 0.01), or a correlation
            (0.8).
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
    ours = as_population("student", student, data)
    theirs = as_population("teacher", teacher, data).to(ours.device)
    x = split_inputs(data, ours, Drawn(inputs, input_std, samples, seed))
    if len(x.given) < 2:
        option = "samples" if data is None else "data"
        raise UserError(
            f"must give at least 2 inputs, got {len(x.given)}: over a single one every node is constant", option
        )
    x = Split(*(each.to(ours.device) for each in x))
    squares = sum(nodes**2 for nodes in ours.sizes[1:-1])
    with steps(f"selecting among {sum(ours.sizes[1:-1]):,} nodes", multiplications=_PRODUCTS * len(x.given) * squares):
        pruning = prune_student(theirs, ours, x.given, below, by)
    fitted = pruning.network
    if pruning.dropped or refit:  # where nothing was removed there is nothing to make up for
        with steps(f"fitting the weights of {fitted.layers[-1].weight.shape[-1]:,} features"):
            fitted = fit(theirs, fitted, x.given)
    given, held_out = (pruning_losses(theirs, ours, pruning, fitted, each) for each in x)
    network = fitted if refit else pruning.network
    if isinstance(student, nn.Module):
        few = x.held_out[:_COMPARED].unflatten(1, input_shape(student, ours, data))
        made = smaller_module(student, network, pruning.kept, few, refit)
    else:
        made = SmallerModule(network.to_module(), "the student was not given as a module")
    return PrunedStudent(network, ours.sizes, pruning, given, held_out, *made)
