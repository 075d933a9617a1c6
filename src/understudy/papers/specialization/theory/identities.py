"""Results that hold whatever the weights: lemma 1, corollary 2 and lemma 2 of Tian 2020.

Lemma 2 (theorem 1 of Tian 2019): small gradients of all batches imply small gradients of all samples.
"""

from collections.abc import Callable, Iterable, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from understudy.measures import sample_modulation
from understudy.nets import Population, activate, incoming
from understudy.theory.pair_geometry import hidden_gates, shared_pair
from understudy.theory.result import Finding, Hypothesis, at_least, result

EQUAL = 1e-10
"""Relative difference up to which two computations of a gradient agree in float64."""
BATCH = 16
_LIKELY = 1_024
"""Number of samples among which the largest terms of a gradient are sought first."""
_AT_ONCE = 16
"""Nodes or inputs whose terms at all samples are in memory at a time."""
_NUMBERS = 1 << 22
"""Entries of B that are held in memory at a time."""


def affordable_samples(student: Population, x: Float[Tensor, "sample in"]) -> Float[Tensor, "some in"]:
    """Select as many samples as A and B of every layer can be held for."""
    widest = max(student.sizes[1:-1]) + 1
    return x[: max(1, _NUMBERS // widest**2)]


def autograd_gradients(
    teacher: Population, student: Population, x: Float[Tensor, "sample in"]
) -> tuple[Float[Tensor, "sample _"], ...]:
    """Negative gradient of ½‖f* − f‖² with respect to the pre-activations of every hidden layer, by autograd."""
    h, before = x, []
    with torch.enable_grad():
        for i in range(len(student.layers) - 1):
            z = incoming(student, i, h)
            z = z if i else z.detach().requires_grad_()
            before.append(z)
            h = activate(z, student.slope)
        loss = 0.5 * (teacher(x).detach() - incoming(student, len(student.layers) - 1, h)).square().sum()
        return tuple(-g[0] for g in torch.autograd.grad(loss, before))


@result(
    "S0 lemma 1",
    title="Recursive gradient rule",
    statement="At every layer the gradient that reaches the student's nodes is D (A f* − B f): the teacher's "
    "activations of the same layer attract and the student's own repel, with matrices that depend on the layers "
    "above.",
    measured="the largest difference between the rule and automatic differentiation at every hidden layer, relative "
    "to the larger of its two terms; both must agree to 10⁻¹⁰",
    subject="identity",
    slopes="any",
)
def lemma_1(teacher: Population, student: Population, x: Float[Tensor, "sample in"]) -> Sequence[Finding]:
    """Compare the rule with automatic differentiation, layer by layer."""
    some = affordable_samples(student, x)
    findings = []
    pairs = zip(sample_modulation(teacher, student, some), autograd_gradients(teacher, student, some), strict=True)
    for layer, (found, expected) in enumerate(pairs):
        # Near a solution A f* and B f cancel, and their difference is no more precise than they are.
        terms = found.a @ found.f_star.unsqueeze(3), found.b @ found.f.unsqueeze(3)
        scale = max(float(term.abs().max()) for term in terms)
        difference = float((found.gradient[0] - expected).abs().max())
        relative = difference / scale if scale else difference
        findings.append(
            Finding(
                result="S0 lemma 1",
                about=f"hidden layer {layer + 1}",
                hypotheses=(at_least("samples", len(some), 1),),
                conclusion=f"equal to backpropagation to {EQUAL:g} of the larger of A f* and B f",
                measured=f"largest difference {difference:.2g}, {relative:.2g} of the larger term ({scale:.3g})",
                agrees=relative <= EQUAL,
            )
        )
    return findings


@result(
    "S0 corollary 2",
    title="A and B are piece-wise constant",
    statement="Within a linear region of both networks, where no gate changes, A and B do not depend on the input.",
    measured="A and B at both ends of segments that no gate of either network cuts; they must be equal to the last bit",
    subject="identity",
    slopes="any",
)
def corollary_2(teacher: Population, student: Population, x: Float[Tensor, "sample in"]) -> Sequence[Finding]:
    """Compare each sample with a point on the segment to another sample, halved until no gate differs.

    Linear regions are convex: with equal gates at both ends, the whole segment lies in one region.
    """
    some = affordable_samples(student, x)[:256]
    end = some.roll(1, 0)
    here = [hidden_gates(network, some) for network in (teacher, student)]
    for _ in range(200):
        there = [hidden_gates(network, end) for network in (teacher, student)]
        same = torch.stack([(a == b).all(1) for a, b in zip(here, there, strict=True)]).all(0)
        if same.all():
            break
        end = torch.where(same.unsqueeze(1), end, (some + end) / 2)
    segments = int((same & (end != some).any(1)).sum())
    findings = []
    pairs = zip(
        sample_modulation(teacher, student, some[same]), sample_modulation(teacher, student, end[same]), strict=True
    )
    for layer, (one, other) in enumerate(pairs):
        parts = ((one.a, other.a), (one.b, other.b))
        difference = max((float((a - b).abs().max()) for a, b in parts if a.numel()), default=0.0)
        findings.append(
            Finding(
                result="S0 corollary 2",
                about=f"hidden layer {layer + 1}",
                hypotheses=(at_least("segments inside one region", segments, 1, change="more data"),),
                conclusion="A and B are equal at both ends",
                measured=f"largest difference {difference:.2g}",
                agrees=difference == 0.0,
            )
        )
    return findings


def largest_gradient_entries(
    gradients: Callable[[], Iterable[Float[Tensor, "some node"]]], x: Float[Tensor, "sample in"], batch: int
) -> tuple[float, float]:
    """Find the largest entries of gradients of the lowest layer's weights and biases: Σ g (x, 1)ᵀ.

    The batch that maximises an entry consists of its largest terms, or of its most negative ones. Gradients of all
    samples at once would be many numbers.

    Args:
        gradients: Returns the gradients g of all nodes at the samples, part by part.
        x: The samples.
        batch: Size of batches.

    Returns:
        The largest entry of the sum over any batch, and that of a single sample.
    """
    widest = x.abs().amax(1).clamp_min(1.0)
    few = min(len(x), max(batch, _LIKELY))
    # No term of a sample exceeds |g| max |(x, 1)|: the largest terms are among the samples where that is large.
    limit, g, likely = _most_likely(gradients(), widest, few)
    terms = [_extreme_terms(g[:, k], _with_one(x[likely[:, k]]), batch) for k in range(g.shape[1])]
    most, single = max(float(each.sum(2).max()) for each in terms), float(limit[0].max())
    if few < len(x):
        bounds = [float(each.clamp_min(least).sum(2).max()) for each, least in zip(terms, limit[-1], strict=True)]
        unsure = torch.tensor([k for k, bound in enumerate(bounds) if bound > most], dtype=torch.long)
        for nodes in unsure.split(_AT_ONCE):
            for node in torch.cat([part[:, nodes] for part in gradients()]).T.contiguous():
                for inputs in (*x.split(_AT_ONCE, 1), torch.ones_like(x[:, :1])):
                    most = max(most, float(_extreme_terms(node, inputs, batch).sum(2).max()))
    return most, single


def _most_likely(
    gradients: Iterable[Float[Tensor, "some node"]], widest: Float[Tensor, "sample"], few: int
) -> tuple[Float[Tensor, "few node"], Float[Tensor, "few node"], Int[Tensor, "few node"]]:
    """For each node the samples with the largest |g| · `widest`: that product in descending order, g, and indices."""
    found: tuple[Tensor, ...] | None = None
    start = 0
    for g in gradients:
        rows = torch.arange(start, start + len(g), device=g.device).unsqueeze(1).expand(-1, g.shape[1])
        part = g.abs() * widest[start : start + len(g)].unsqueeze(1), g, rows
        every = part if found is None else tuple(map(torch.cat, zip(found, part, strict=True)))
        best = every[0].topk(min(few, len(every[0])), 0).indices
        found = tuple(each.gather(0, best) for each in every)
        start += len(g)
    assert found is not None
    return found[0], found[1], found[2]


def _with_one(x: Float[Tensor, "sample in"]) -> Float[Tensor, "sample in+1"]:
    return torch.cat((x, torch.ones_like(x[:, :1])), 1)


def _extreme_terms(
    node: Float[Tensor, "sample"], below: Float[Tensor, "sample in"], batch: int
) -> Float[Tensor, "sign in batch"]:
    """The largest terms of each entry, and of its negative, as many as a batch has."""
    terms = node * below.T.contiguous()  # selecting among contiguous samples is faster
    return torch.stack((terms.topk(batch, 1).values, -terms.topk(batch, 1, largest=False).values))


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
def batch_interpolation(teacher: Population, student: Population, x: Float[Tensor, "sample in"]) -> Sequence[Finding]:
    """Compare the worst batch of 16 with the worst sample."""
    enough = Hypothesis(
        "samples", f"{len(x):,}", f"more than the batch of {BATCH}", len(x) > BATCH, "more samples than a batch holds"
    )
    name, about = "S1 theorem 1", f"batches of {BATCH}"
    if not enough.holds:
        return [Finding(name, about, (enough,), "no conclusion", "nothing was measured")]
    pair = shared_pair(teacher, student, x)
    most, single = largest_gradient_entries(pair.gradient_parts, x, BATCH)
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
