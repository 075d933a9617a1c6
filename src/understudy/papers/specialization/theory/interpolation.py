"""Small gradients of every batch are small gradients of every sample: lemma 2 of S0, theorem 1 of S1."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from understudy.nets import Population
from understudy.theory.result import Finding, Hypothesis, result
from understudy.theory.scene import Scene

BATCH = 16


def largest_of_batches(
    g: Float[Tensor, "sample node"], below: Float[Tensor, "sample in"], batch: int
) -> tuple[float, float]:
    """The largest entry of Σ g fᵀ over any batch of that size, and of a single sample's g fᵀ.

    Of an entry, the batch that makes it largest is that of its largest terms, or of its most negative ones.
    """
    most, single = 0.0, 0.0
    for node in g.T:
        terms = node.unsqueeze(1) * below
        ends = torch.stack((terms.topk(batch, 0).values.sum(0), (-terms).topk(batch, 0).values.sum(0)))
        most, single = max(most, float(ends.max())), max(single, float(terms.abs().max()))
    return most, single


@result(
    "S1 theorem 1",
    title="Interpolation: what is small for all batches is small for every sample",
    statement="If the gradient of the lowest layer's weights, summed over a batch, is at most ε for every batch of B "
    "samples, then that of a single sample is at most (2 − 1/B) ε; at a point where every batch gradient vanishes, so "
    "does every sample's.",
    measured="the largest gradient over all batches of 16, found exactly, and the largest gradient of a single sample",
    subject="identity",
    slopes="any",
)
def theorem_1(teacher: Population, student: Population, x: Float[Tensor, "sample in"]) -> Sequence[Finding]:
    """The worst batch of 16 against the worst sample."""
    batch = BATCH
    enough = Hypothesis(
        "samples", f"{len(x):,}", f"more than the batch of {batch}", len(x) > batch, "more samples than a batch holds"
    )
    name, about = "S1 theorem 1", f"batches of {batch}"
    if not enough.holds:
        return [Finding(name, about, (enough,), "no conclusion", "nothing was measured")]
    sight = Scene(teacher, student, x)
    with_one = torch.cat((x, torch.ones_like(x[:, :1])), 1)
    most, single = largest_of_batches(sight.gradients.value, with_one, batch)
    bound = (2 - 1 / batch) * most
    return [
        Finding(
            name,
            about,
            (enough,),
            f"every sample's gradient is at most (2 − 1/{batch}) · {most:.3g} = {bound:.3g}",
            f"the largest is {single:.3g}",
            single <= bound * (1 + 1e-9),
        )
    ]
