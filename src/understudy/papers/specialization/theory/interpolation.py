"""Small gradients of all batches imply small gradients of all samples (Tian 2020, lemma 2; Tian 2019, theorem 1)."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from understudy.nets import Population
from understudy.theory.pair_geometry import PairGeometry
from understudy.theory.result import Finding, Hypothesis, result

BATCH = 16


def largest_gradient_entries(
    g: Float[Tensor, "sample node"], below: Float[Tensor, "sample in"], batch: int
) -> tuple[float, float]:
    """Return the largest entry of Σ g fᵀ over all batches of a size, and the largest entry of g fᵀ of one sample.

    The batch that maximises an entry consists of its largest terms, or of its most negative ones.
    """
    most, single = 0.0, 0.0
    for node in g.T:
        terms = node.unsqueeze(1) * below
        ends = torch.stack((terms.topk(batch, 0).values.sum(0), (-terms).topk(batch, 0).values.sum(0)))
        most, single = max(most, float(ends.max())), max(single, float(terms.abs().max()))
    return most, single


@result(
    "S1 theorem 1",
    title="Interpolation: a gradient that is small for all batches is small for every sample",
    statement="If the gradient of the lowest layer's weights, summed over a batch, is at most ε for every batch of B "
    "samples, then the gradient of a single sample is at most (2 − 1/B) ε; if every batch gradient vanishes, so does "
    "every sample's.",
    measured="the largest gradient over all batches of 16, found exactly, and the largest gradient of a single sample",
    subject="identity",
    slopes="any",
)
def theorem_1(teacher: Population, student: Population, x: Float[Tensor, "sample in"]) -> Sequence[Finding]:
    """Compare the worst batch of 16 with the worst sample."""
    enough = Hypothesis(
        "samples", f"{len(x):,}", f"more than the batch of {BATCH}", len(x) > BATCH, "more samples than a batch holds"
    )
    name, about = "S1 theorem 1", f"batches of {BATCH}"
    if not enough.holds:
        return [Finding(name, about, (enough,), "no conclusion", "nothing was measured")]
    pair = PairGeometry(teacher, student, x)
    with_one = torch.cat((x, torch.ones_like(x[:, :1])), 1)
    most, single = largest_gradient_entries(pair.sample_gradients.value, with_one, BATCH)
    bound = (2 - 1 / BATCH) * most
    return [
        Finding(
            result=name,
            about=about,
            hypotheses=(enough,),
            conclusion=f"every sample's gradient is at most (2 − 1/{BATCH}) · {most:.3g} = {bound:.3g}",
            measured=f"the largest is {single:.3g}",
            agrees=single <= bound * (1 + 1e-9),
        )
    ]
