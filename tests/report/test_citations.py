"""Papers are cited by author and year; where a table keeps their codes, these are explained."""

import re
from pathlib import Path

import pytest

from understudy._citations import CODES, cite, explain_codes
from understudy.lab.discovery import studies

BIBLIOGRAPHY = Path(__file__).parents[2] / "docs" / "bibliography.md"


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("S0 fig 7, S1 fig 5", "Tian 2020, fig. 7; Tian 2019, fig. 5"),
        ("S0 figs. 5, 7; S1 figs. 3, 5", "Tian 2020, figs. 5, 7; Tian 2019, figs. 3, 5"),
        (
            "the teachers of S0 fig. 10, S2 figs. 6, 9",
            "the teachers of Tian 2020, fig. 10; Tian et al. 2019, figs. 6, 9",
        ),
        ("S2 eqn 6", "Tian et al. 2019, eq. 6"),
        ("S2 eqns 4 and 5", "Tian et al. 2019, eqs. 4 and 5"),
        ("S4 lemma C.4, theorem 3", "Zhou, Ge & Jin 2021, lemma C.4, theorem 3"),
        ("S3 corollaries 5.1, 5.2", "Phuong 2021, corollaries 5.1, 5.2"),
        ("0.01 of 2.27 (S1 fig. 2)", "0.01 of 2.27 (Tian 2019, fig. 2)"),
        ("here, S0 theorem 3: 5", "here, Tian 2020, theorem 3: 5"),
        ("Doe 2030, fig. 7", "Doe 2030, fig. 7"),
        ("S7 fig. 1", "S7 fig. 1"),
        ("layer S1 of the model", "layer S1 of the model"),
        ("", ""),
    ],
)
def test_codes_become_author_and_year(given, shown):
    assert cite(given) == shown
    assert cite(shown) == shown


def test_only_codes_that_are_used_are_explained():
    assert explain_codes("S0 fig. 7, then S4 lemma 8") == "S0 is Tian 2020; S4 is Zhou, Ge & Jin 2021."
    assert explain_codes("Doe 2030") == explain_codes("") == ""


def test_codes_are_those_of_the_bibliography():
    found = re.findall(r"^### (.+)\n\n\[(S\d)\]", BIBLIOGRAPHY.read_text(encoding="utf-8"), re.MULTILINE)
    assert {code: authors.replace(" and ", " & ") for authors, code in found} == CODES


@pytest.mark.parametrize("study", studies().values(), ids=list(studies()))
def test_no_code_is_left_in_what_a_study_reproduces(study):
    assert not re.search(r"\bS\d\b", cite(study.figures))
