"""Papers by author and year, and the short codes under which theorems, figures and claims name them."""

import re

CODES = {
    "S0": "Tian 2020",
    "S1": "Tian 2019",
    "S2": "Tian et al. 2019",
    "S3": "Phuong 2021",
    "S4": "Zhou, Ge & Jin 2021",
}
"""Author and year by code; the bibliography of the documentation has the titles."""
_PLACES = (
    "(?P<short>fig|eq|sec|app)n?(?P<several>s?)\\.?(?= )"
    "|(?:theorem|lemma|claim|algorithm|assumption|definition|table)s?\\b|corollar(?:y|ies)\\b|appendix\\b"
)
_CITATION = re.compile(rf"(?P<comma>, )?\b(?P<code>{'|'.join(CODES)}) (?P<place>{_PLACES})")


def cite(text: str) -> str:
    """Cite papers by author and year instead of by code.

    `S0 fig 7, S1 fig 5` becomes `Tian 2020, fig. 7; Tian 2019, fig. 5`. A code counts only where a place in the paper
    follows; names of papers without a code stay as they are.
    """
    cited = False

    def by_author(found: re.Match[str]) -> str:
        nonlocal cited
        before = ("; " if cited else ", ") if found["comma"] else ""
        cited = True
        place = f"{found['short']}{found['several']}." if found["short"] else found["place"]
        return f"{before}{CODES[found['code']]}, {place}"

    return _CITATION.sub(by_author, text)


def explain_codes(text: str) -> str:
    """The codes that a text contains, with author and year: `S0 is Tian 2020, S4 is Zhou, Ge & Jin 2021.`"""
    used = [f"{code} is {authors}" for code, authors in CODES.items() if re.search(rf"\b{code}\b", text)]
    return f"{'; '.join(used)}." if used else ""
