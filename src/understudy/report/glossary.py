"""Short definitions of the terms of the papers, shown where a page first uses them."""

import re

from markupsafe import Markup, escape

DEFINITIONS = {
    "best correlation": "the largest correlation that any student node of the same layer has with a teacher node",
    "mean best correlation": "best correlation averaged over the teacher nodes of a layer",
    "mean rank": "rank by correlation, among all students, of those that match best in the end: 0 is first, 1 is last",
    "polarity": "how unequal the strengths of the teacher nodes are: node j has fan-out proportional to j^(−polarity)",
    "over-realization": "number of student nodes per teacher node of a layer: 5× means five times as many",
    "fan-out": "outgoing weights of a node, or their norm: how strongly the node acts on the outputs",
    "recovered": "a teacher node is recovered when a student node correlates with it above 0.95",
    "specialised": "a student node is specialised when its activations agree with those of one teacher node",
    "the L": "shape of the scatter of students: those that match have fan-out, and those that do not match have little",
    "observer": "a student node that is active on the boundary of a teacher node, so that its gradient depends on it",
    "diverged": "a network diverged when its loss or a weight was no longer a finite number",
    "probe": "a measurement of every network during training, such as once per epoch",
    "piece": "part of a run that is trained or computed at once; results do not depend on the division",
    "fold-set": "all inputs at which a piece-wise linear function is not differentiable",
    "dependency graph": "graph of the pieces of a fold-set, with an edge from each to those that bend at it",
    "transparent": "a network is transparent when every hidden layer has an active unit at every input of the domain",
    "wave": "networks whose data is in memory at the same time; if not all fit, they are trained in several waves",
}
"""Definitions by term."""
_FORMS = {
    "piece": "(?i:pieces?(?!-wise))",
    "polarity": "(?i:polarity|polarities)",
    "over-realization": "(?i:over-reali[sz]ations?)",
    "specialised": "(?i:speciali[sz]ed)",
    "the L": "[Tt]he L",
}
"""Spellings of terms other than the singular and the plural in s."""
_TERMS = sorted(DEFINITIONS, key=len, reverse=True)
_PATTERN = re.compile(r"\b(?:" + "|".join(f"({_FORMS.get(term, f'(?i:{term}s?)')})" for term in _TERMS) + r")\b")


class Glossary:
    """Explains each term once: where a page first uses it."""

    def __init__(self) -> None:
        self._explained: set[str] = set()

    def explain(self, text: str) -> Markup:
        """Escape a text and attach definitions to the terms that were not explained before.

        Args:
            text: Plain text, for example a caption.

        Returns:
            HTML in which these terms are `abbr` elements with the definition as `title`.
        """
        parts, end = [], 0
        for found in _PATTERN.finditer(text):
            term = _TERMS[(found.lastindex or 1) - 1]
            if term not in self._explained:
                self._explained.add(term)
                definition = Markup('<abbr title="{}" tabindex="0">{}</abbr>').format(DEFINITIONS[term], found[0])
                parts += [escape(text[end : found.start()]), definition]
                end = found.end()
        return Markup().join([*parts, escape(text[end:])])
