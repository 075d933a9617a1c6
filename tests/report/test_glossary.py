"""Terms are explained where a page first uses them."""

import pytest

from understudy.report.glossary import DEFINITIONS, Glossary


def test_the_first_use_of_a_term_carries_its_definition():
    glossary = Glossary()
    first = glossary.explain("Observers & their fan-out, again fan-out.")
    assert first == (
        f'<abbr title="{DEFINITIONS["observer"]}" tabindex="0">Observers</abbr> &amp; their '
        f'<abbr title="{DEFINITIONS["fan-out"]}" tabindex="0">fan-out</abbr>, again fan-out.'
    )
    assert glossary.explain("fan-out of an observer <b>") == "fan-out of an observer &lt;b&gt;"


def test_the_longest_term_is_explained():
    found = Glossary().explain("mean best correlations")
    assert found == f'<abbr title="{DEFINITIONS["mean best correlation"]}" tabindex="0">mean best correlations</abbr>'


@pytest.mark.parametrize(
    ("text", "term"),
    [
        ("at all polarities", "polarity"),
        ("Specialized nodes", "specialised"),
        ("The L of students", "the L"),
        ("an over-realization of 5×", "over-realization"),
        ("3 of 20 recovered", "recovered"),
    ],
)
def test_forms_of_a_term_are_found(text, term):
    assert DEFINITIONS[term] in Glossary().explain(text)


@pytest.mark.parametrize(
    "text", ["the Lorenz curve", "the layer", "microwave", "masterpieces", "piece-wise", "unrecovered", ""]
)
def test_other_words_are_left_alone(text):
    assert Glossary().explain(text) == text


def test_definitions_are_short():
    assert all(len(definition) < 120 for definition in DEFINITIONS.values())
    assert all(not definition.endswith(".") for definition in DEFINITIONS.values())
