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
    "fold": "a unit of a ReLU network folds its function where its pre-activation is zero: the function bends there",
    "fold-set": "all inputs at which a piece-wise linear function is not differentiable",
    "dependency graph": "graph of the pieces of a fold-set, with an edge from each to those that bend at it",
    "transparent": "a network is transparent when every hidden layer has an active unit at every input of the domain",
    "witness": "an input at which the outputs of two networks differ: a proof that they are different functions",
    "canonical parameters": "parameters in the scale at which incoming weights and bias of each unit have length 1",
    "degenerate unit": "a unit that adds nothing of its own on the domain: dead, linear, duplicated or cancelling",
    "nat": "unit of information, in natural logarithms: 1 nat is 1.44 bits, and a choice among 10 is 2.30 nats",
    "KL term": "KL divergence of the encoder's distribution q(z|x) from the prior, averaged over data",
    "infomax bound": "H(z) + E log r(z|x) with the inference network r: never above the information of code and data",
    "wave": "networks whose data is in memory at the same time; if not all fit, they are trained in several waves",
}
"""Definitions by term."""
_SENTENCE_END = re.compile(r"[.:;!?] ")
OTHER_SENSES = {
    "recovered": (
        re.compile(r"(?i)^(?!.*\bnodes?\b).*\b(?:networks?|parameters?)\b"),
        "a network is recovered when its parameters were found from its values alone",
    ),
    "piece": (
        re.compile(r"(?i)\b(?:folds?|surfaces?|hyperplanes?|bends?)\b"),
        "part of a piece-wise linear surface, such as a fold-set, that is flat: a piece-wise hyperplane",
    ),
}
"""Second definitions of terms, each with the pattern of the sentences in which the term has this sense."""
_FORMS = {
    "piece": "(?i:pieces?(?!-wise))",
    "fold": "(?i:(?<!-)folds?(?!-))",
    "witness": "(?i:witness(?:es)?)",
    "canonical parameters": "(?i:canonical parameters?)",
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
            definition = _definition(_TERMS[(found.lastindex or 1) - 1], _sentence(text, found))
            if definition not in self._explained:
                self._explained.add(definition)
                shown = Markup('<abbr title="{}" tabindex="0">{}</abbr>').format(definition, found[0])
                parts += [escape(text[end : found.start()]), shown]
                end = found.end()
        return Markup().join([*parts, escape(text[end:])])


def _sentence(text: str, found: re.Match[str]) -> str:
    """The sentence, or the part of one between colons and semicolons, that contains a term."""
    start = max((end.end() for end in _SENTENCE_END.finditer(text, 0, found.start())), default=0)
    after = _SENTENCE_END.search(text, found.end())
    return text[start : after.start() if after else len(text)]


def _definition(term: str, sentence: str) -> str:
    """The definition of a term in the sense that a sentence uses it in."""
    context, definition = OTHER_SENSES.get(term, (None, ""))
    return definition if context and context.search(sentence) else DEFINITIONS[term]
