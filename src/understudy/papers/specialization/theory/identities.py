"""What holds at every sample, whatever the weights: the recursive gradient rule; A and B are locally constant."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from understudy.measures.modulation import per_sample
from understudy.nets import Population, activate, incoming
from understudy.theory.result import Finding, Hypothesis, result
from understudy.theory.scene import gates

EQUAL = 1e-10
"""Relative difference within which two ways of computing a gradient agree in float64."""
_NUMBERS = 1 << 24
"""Numbers of B that are held at a time."""


def looked_at(student: Population, x: Float[Tensor, "sample in"]) -> Float[Tensor, "some in"]:
    """As many samples as A and B of every layer can be held for."""
    widest = max(student.sizes[1:-1]) + 1
    return x[: max(1, _NUMBERS // widest**2)]


def backpropagated(
    teacher: Population, student: Population, x: Float[Tensor, "sample in"]
) -> tuple[Float[Tensor, "sample _"], ...]:
    """−∂/∂z of ½‖f* − f‖² at every hidden layer by automatic differentiation, z being what goes into the activation."""
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
    "activations of the same layer pull and the student's own push back, with matrices that are known from the layers "
    "above.",
    measured="the largest difference between the rule and automatic differentiation at every hidden layer, relative "
    "to the larger of its two terms; both must agree to 1e−10",
    subject="identity",
    slopes="any",
)
def lemma_1(teacher: Population, student: Population, x: Float[Tensor, "sample in"]) -> Sequence[Finding]:
    """The rule against automatic differentiation, layer by layer."""
    some = looked_at(student, x)
    findings = []
    pairs = zip(per_sample(teacher, student, some), backpropagated(teacher, student, some), strict=True)
    for layer, (found, expected) in enumerate(pairs):
        # Near a solution A f* and B f cancel, and what is left of them is known no better than they are.
        terms = found.a @ found.f_star.unsqueeze(3), found.b @ found.f.unsqueeze(3)
        scale = max(float(term.abs().max()) for term in terms)
        difference = float((found.gradient[0] - expected).abs().max())
        relative = difference / scale if scale else difference
        findings.append(
            Finding(
                "S0 lemma 1",
                f"hidden layer {layer + 1}",
                (Hypothesis("samples", f"{len(some):,}", "one at least", len(some) > 0),),
                f"equal to backpropagation to {EQUAL:g} of the larger of A f* and B f",
                f"largest difference {difference:.2g}, {relative:.2g} of the larger term ({scale:.3g})",
                relative <= EQUAL,
            )
        )
    return findings


@result(
    "S0 corollary 2",
    title="A and B are piecewise constant",
    statement="Within a linear region of both networks, where no gate changes, A and B do not depend on the input.",
    measured="A and B at both ends of segments that no gate of either network cuts; they must be equal to the last bit",
    subject="identity",
    slopes="any",
)
def corollary_2(teacher: Population, student: Population, x: Float[Tensor, "sample in"]) -> Sequence[Finding]:
    """Each sample and a point on the way to another, drawn nearer until no gate of either network differs.

    Linear regions are convex: with equal gates at both ends, the whole segment lies in one.
    """
    some = looked_at(student, x)[:256]
    end = some.roll(1, 0)
    here = [gates(network, some) for network in (teacher, student)]
    for _ in range(200):
        same = torch.stack([(a == gates(n, end)).all(1) for a, n in zip(here, (teacher, student), strict=True)]).all(0)
        if same.all():
            break
        end = torch.where(same.unsqueeze(1), end, (some + end) / 2)
    segments = int((same & (end != some).any(1)).sum())
    findings = []
    pairs = zip(per_sample(teacher, student, some[same]), per_sample(teacher, student, end[same]), strict=True)
    for layer, (one, other) in enumerate(pairs):
        parts = ((one.a, other.a), (one.b, other.b))
        difference = max((float((a - b).abs().max()) for a, b in parts if a.numel()), default=0.0)
        findings.append(
            Finding(
                "S0 corollary 2",
                f"hidden layer {layer + 1}",
                (Hypothesis("segments inside one region", f"{segments:,}", "one at least", segments > 0, "more data"),),
                "A and B are equal at both ends",
                f"largest difference {difference:.2g}",
                difference == 0.0,
            )
        )
    return findings
