"""Matrix dynamics of deep networks, where expectations factorise (Tian et al. 2019, theorem 2).

With weights stored as [out, in] and student nodes as the rows of L* and H*, eqn 6 of the paper reads
Ẇ_l = H*_{l+1} W*_l L*_lᵀ − H_{l+1} W_l L_l (as printed, a transposition of H* and the index l+1 of its D are missing).
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from understudy.measures import correlation, modulation
from understudy.nets import Layer, Population
from understudy.papers.luck.theory.factorisation import FactorisationGap, factorisation_gaps, without_biases
from understudy.theory.gradient_flow import Velocity, descent, velocity
from understudy.theory.result import Finding, at_most, result

EXACT = 1e-6
"""Relative error up to which eqns 4 and 5 count as exact; computed from squares, it is accurate to about 10⁻⁸."""
_WORK = 1e10
"""Maximum number of products that the check of assumption 1 computes at one layer."""
_ROUNDINGS = 1e4
"""Rounding error of sums over samples, in units in the last place."""


@torch.no_grad()
def matrix_gradient(
    teacher: Population, student: Population, x: Float[Tensor, "sample in"] | Float[Tensor, "net sample in"]
) -> Population:
    """Velocity Ẇ of every weight and bias by Tian et al. 2019, eqn 6, with expectations over x.

    It is the negative gradient at the highest layer, where H is the identity, and wherever no gate changes over x.
    """
    moves = [pull - push for pull, push in _terms(teacher, student, x)]
    layers = [
        Layer(move[..., : own.weight.shape[2]], None if own.bias is None else move[..., -1])
        for move, own in zip(moves, student.layers, strict=True)
    ]
    return Population(tuple(layers), student.seeds, student.slope)


def _terms(teacher: Population, student: Population, x: Tensor) -> list[tuple[Tensor, Tensor]]:
    """H* W* L*ᵀ and H W L at every layer, for the student's own nodes; biases are the last column."""
    theirs, ours, inputs = without_biases(teacher, student, x)
    found = modulation(theirs, ours, inputs, ("h_star", "h", "l_star", "l"))
    first = inputs.mT @ inputs / inputs.shape[-2]
    terms = []
    for i, (star, new) in enumerate(zip(theirs.layers, ours.layers, strict=True)):
        pull, push = star.weight, new.weight
        if i < len(found):
            pull, push = _present(found[i].h_star) @ pull, _present(found[i].h) @ push
        pull = pull @ (_present(found[i - 1].l_star).mT if i else first)
        push = push @ (_present(found[i - 1].l) if i else first)
        rows = student.sizes[i + 1]
        terms.append((pull[:, :rows], push[:, :rows]))
    return terms


def _present(part: Tensor | None) -> Tensor:
    assert part is not None, "`modulation` computes the requested parts"
    return part


class VelocityComparison(NamedTuple):
    """The velocity of eqn 6 compared with that of backpropagation, at one layer, biases included."""

    distance: Float[Tensor, "net"]
    """Length of the difference, relative to the velocity of backpropagation."""
    cosine: Float[Tensor, "net"]
    """Cosine of the two velocities."""
    gap: Float[Tensor, "net"]
    """Length of the difference."""
    rounding: Float[Tensor, "net"]
    """Rounding error of `gap`: eqn 6 may be far smaller than the two terms it is the difference of."""


@torch.no_grad()
def compare_velocities(
    teacher: Population, student: Population, x: Float[Tensor, "sample in"] | Float[Tensor, "net sample in"]
) -> tuple[VelocityComparison, ...]:
    """Compare eqn 6 with backpropagation on the same inputs, at every layer, lowest first."""
    layers = zip(_terms(teacher, student, x), velocity(teacher, student, x).layers, strict=True)
    return tuple(_compare(pull, push, true) for (pull, push), true in layers)


def _compare(pull: Float[Tensor, "net out in"], push: Float[Tensor, "net out in"], layer: Layer) -> VelocityComparison:
    true = layer.weight if layer.bias is None else torch.cat((layer.weight, layer.bias.unsqueeze(2)), 2)
    matrix = (pull - push)[..., : true.shape[2]]
    gap, length, other, *terms = (part.flatten(1).norm(dim=1) for part in (matrix - true, true, matrix, pull, push))
    rounding = _ROUNDINGS * torch.finfo(gap.dtype).eps * torch.maximum(*terms)
    # Two velocities within rounding of 0 count as equal; a velocity of 0 has no direction, and cosine 0.
    still = torch.maximum(length, other) <= rounding
    cosine = torch.where(other * length == 0, 0.0, (matrix * true).sum((1, 2)) / (other * length))
    return VelocityComparison(torch.where(still, 0.0, gap / length), torch.where(still, 1.0, cosine), gap, rounding)


class DescentReading(NamedTuple):
    """Measurements of students during training, on evaluation inputs."""

    step: int
    loss: Float[Tensor, "net"]
    """Squared error averaged over samples and outputs."""
    rho: tuple[Float[Tensor, "net teacher student"], ...]
    """Correlations at every hidden layer."""
    velocities: tuple[VelocityComparison, ...]
    gaps: tuple[FactorisationGap, ...]


def probe_descent(
    teacher: Population,
    student: Population,
    batches: Iterable[Float[Tensor, "net sample in"]],
    lr: float,
    along: Velocity,
    x: Float[Tensor, "net evaluation in"],
    every: int,
    few: int,
) -> Iterator[DescentReading]:
    """Train and probe at the start and every `every` steps; assumption 1 on the first `few` evaluation inputs."""
    for step, now in enumerate(chain((student,), descent(teacher, student, batches, lr, along))):
        if step % every == 0:
            theirs, ours = teacher.activations(x), now.activations(x)
            loss = (theirs.output - ours.output).square().mean((1, 2))
            rho = tuple(correlation(*pair) for pair in zip(theirs.hidden, ours.hidden, strict=True))
            velocities, gaps = compare_velocities(teacher, now, x), factorisation_gaps(teacher, now, x[:, :few])
            yield DescentReading(step, loss, rho, velocities, gaps)


def _affordable_samples(student: Population, samples: int) -> int:
    """Number of samples on which assumption 1 can be checked."""
    widest = max(student.sizes[:-1]) + 1
    over_nodes = _WORK / widest**4
    over_samples = (_WORK / (2 * widest)) ** 0.5 / student.sizes[-1]
    return min(samples, max(2, int(max(over_nodes, over_samples))))


@result(
    "S2 theorem 2",
    title="Matrix dynamics",
    statement="where the expectations of β, of gates and of activations factorise, the weights of a layer move by Ẇ = "
    "L*W*H* − LWH",
    measured="the errors of the two factorisations (eqs. 4 and 5), then the difference between Ẇ and minus the "
    "gradient, next to the bound that these errors give",
    subject="dynamics",
)
def matrix_dynamics(teacher: Population, student: Population, x: Float[Tensor, "sample in"]) -> Sequence[Finding]:
    """Check theorem 2 at every layer: eqns 4 and 5 on as many samples as affordable, the velocities on all."""
    some = x[: _affordable_samples(student, len(x))]
    whole, part = (compare_velocities(teacher, student, inputs) for inputs in (x, some))
    gaps = (*factorisation_gaps(teacher, student, some), None)
    return [_finding(i, *each, len(some)) for i, each in enumerate(zip(whole, part, gaps, strict=True))]


def _finding(
    layer: int, found: VelocityComparison, part: VelocityComparison, gap: FactorisationGap | None, samples: int
) -> Finding:
    """Report the velocities on all samples; they agree with the bound on the samples for which it was computed."""
    bound = float(gap.bound) if gap else 0.0
    return Finding(
        "S2 theorem 2",
        f"the weights of layer {layer + 1}" + ("" if gap else " (the outputs)"),
        tuple(
            at_most(
                f"Assumption 1, eq. {number}",
                float(error),
                EXACT,
                shown=f"relative error {float(error):.1e} on {samples:,} samples",
                requirement=f"0 (at most {EXACT:g})",
                change="data on which no gate changes, or a network without gates",
            )
            for number, error in (((4, gap.star), (5, gap.plain)) if gap else ())
        ),
        "L*W*H* − LWH is the negative gradient"
        + (f"; with the measured errors of eqs. 4 and 5 it differs by at most {bound:.1e}" if gap else ""),
        f"they differ by {float(found.gap):.1e}, which is {float(found.distance):.1e} of the gradient; "
        f"cosine {float(found.cosine):.3f}",
        float(part.gap) <= bound + float(part.rounding),
    )
