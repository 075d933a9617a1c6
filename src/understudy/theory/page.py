"""Every result that is checked, as a page of the documentation: what it says, of which networks, what is measured."""

from __future__ import annotations

from understudy.theory.result import Result, results

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
        f"- measured: {result.measured}",
        "",
    ]


def _sentence(words: str) -> str:
    """With a capital letter and a full stop."""
    return words[:1].upper() + words[1:].rstrip(".") + "."
