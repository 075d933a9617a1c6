"""Every result that is checked, as a page of the documentation: what it says, of which networks, what is measured."""

from __future__ import annotations

from understudy.theory.result import Result, results

MEASURED = {
    "S0 lemma 1": "the largest difference between the rule and automatic differentiation, at every hidden layer, "
    "beside the larger of its two terms; equal to 1e−10",
    "S0 theorem 1": "an observer, its gradient at all samples in units of its rounding error, and at a point of the "
    "boundary between samples and on either side of it; then the distance of the nearest student",
    "S0 theorem 2": "how many students see the boundary, the smallest singular value of their fan-outs, how far "
    "samples tell its nodes apart, and the bound on what they give on together, beside what they do give on",
    "S0 theorem 3": "samples of the band that an observer sees, the gradient there and at the points of the "
    "augmentation, η, μ, M1 and M2 of Lemma 6, other boundaries as near; ε, and the distance of the nearest student. "
    "The width of the band and the observer are those with the best guarantee",
    "S0 theorem 4": "the same with the points of the augmentation along the teacher's weights",
    "S0 theorem 5": "the same as for theorem 3 with the boundaries that higher layers draw around the samples of the "
    "band counted, up to 20,000",
    "S0 corollary 1": "how much of the output's variance is due to students without a teacher's boundary, beside the "
    "sum of what theorem 2 leaves to each group",
    "S0 corollary 2": "A and B at both ends of segments that no gate of either network cuts: equal, to the last bit",
    "S1 theorem 1": "the largest gradient over all batches of 16, found exactly, and the largest of a single sample",
    "S1 theorem 4": "as S0 theorem 1, with the boundaries that higher layers draw around the point counted",
    "S1 theorem 5": "ε, α and the radius of a ball on the boundary as the samples show them, and what would follow. "
    "It never certifies: no finite data shows that a gradient is small at every input",
    "S1 theorem 6": "whether lengths, biases and inputs are as it needs, and the largest difference between its "
    "closed form and the mean over the samples, in standard errors",
    "S1 theorem 7": "the rates of all ratios beside those of a small gradient step",
    "S2 theorem 2": "the errors of the two separations (eqns 4 and 5), then how far Ẇ is from minus the gradient, "
    "and the bound that these errors give",
    "S2 theorem 3": "the part of a step along the weights, beside what the ε of BatchNorm makes of it. By "
    "`understudy run batchnorm-energy`; `check` takes networks without BatchNorm",
    "S2 theorem 4": "θ_0, ε_d, K_d, d̄ and γ of the pair as it stands, and how far the largest angle falls in the "
    "next step of the projected dynamics",
    "S2 theorem 5": "the constants of eqns 41 to 54 with the terms that they lack, and angles and fan-outs after the "
    "next step of the expected dynamics",
    "S4 theorem 2": "the exact loss, and the largest angle of a student with its teacher node",
    "S4 theorem 3": "‖∇L‖ / L times √(r w_max) beside what the proof's constants give, the inner product of lemma 7, "
    "and how far the loss is above the proof's threshold",
    "S4 theorem 4": "what one step of gradient descent on the exact loss takes off it, beside what the theorem says",
    "S4 lemma 8": "the angle within which students of each teacher node are sure to have half of its length, by the "
    "bounds of lemmas 9 and C.4, and the angle within which they do",
    "S4 lemma 9": "√Σ‖v‖² of the averages beside the bound with all constants: lemmas C.3, C.4, 11 and λ_min(M)",
    "S4 lemma 10": "λ_min(M) in closed form beside Δ³/r³, and ‖R₁‖² beside what it gives",
    "S4 lemma C.4": "Σ‖w‖²δ² beside the bound with all constants, at the best degree of the proof's test function",
}
"""What `check` measures for each result."""

_KINDS = ("lemma", "theorem", "corollary")
_NETWORKS = {
    "any": "fully connected, any depth",
    "two layers": "two layers",
    "one output": "two layers, one output, no biases, output weights from 0",
    "deep": "three layers or more",
    "BatchNorm": "students with BatchNorm",
}
_SUBJECTS = {
    "teacher node": "Certificates: a teacher node has its student",
    "student node": "Students: what is not needed, what is conserved",
    "identity": "Identities: what holds at every sample",
    "dynamics": "Dynamics: where weights go from here",
    "data": "The data",
}


def as_markdown() -> str:
    """The page `docs/reference/theorems.md`."""
    lines = [
        "# Theorems",
        "",
        "What `understudy check` and `us.check` look at: every result of the papers that is checked on given",
        "networks, what it says in our words, and what is measured for it. Each comes with its hypotheses one by one,",
        "as they are found and as they are needed, what would have to change, its conclusion, and what is so; all in",
        "float64. Where a proof has a gap or a constant is not as printed, the result's file in `theory/` says so.",
        "",
        "S0 is *Student Specialization in Deep Rectified Networks* (ICML 2020), S1 its earlier version,",
        "S2 *Luck Matters*, S4 *A Local Convergence Theory for Mildly Over-Parameterized Two-Layer Neural Network*, of",
        "students f(x) = Σ ‖w‖ |wᵀx| and a teacher Σ |w\\*ᵀx| on standard normal inputs, in closed form: a network",
        "Σ a |uᵀx| is one, with w = u √(a/‖u‖), or w\\* = a u. This page is written by `theory/page.py`.",
    ]
    for subject, title in _SUBJECTS.items():
        of = sorted((r for r in results() if r.subject == subject), key=_place)
        if of:
            lines += ["", f"## {title}", ""]
            lines += [line for result in of for line in _entry(result)][:-1]
    return "\n".join(lines) + "\n"


def _place(result: Result) -> tuple[str, int, str, int]:
    """By paper and kind, those of an appendix, such as C.4, last."""
    paper, kind, number = result.name.split()
    appendix, _, counted = number.rpartition(".")
    return paper, _KINDS.index(kind), appendix, int(counted)


def _entry(result: Result) -> list[str]:
    slopes = "" if result.slopes == "any" else f", {result.slopes}"
    return [
        f"**{result.name}: {_sentence(result.title)}** {_sentence(result.statement)}",
        "",
        f"- networks: {_NETWORKS[result.networks]}{slopes}",
        f"- measured: {MEASURED[result.name]}",
        "",
    ]


def _sentence(words: str) -> str:
    """With a capital letter and a full stop."""
    return words[:1].upper() + words[1:].rstrip(".") + "."
