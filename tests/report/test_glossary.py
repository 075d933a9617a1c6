"""Terms are explained where a page first uses them."""

import pytest

from understudy.report.glossary import DEFINITIONS, OTHER_SENSES, Glossary


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
        ("In all networks 3 teacher nodes are recovered", "recovered"),
        ("a run in pieces", "piece"),
        ("The fold of a unit", "fold"),
        ("every unit folds the box", "fold"),
        ("its fold-sets", "fold-set"),
        ("two witnesses", "witness"),
        ("differences of canonical parameters", "canonical parameters"),
        ("3 degenerate units", "degenerate unit"),
    ],
)
def test_forms_of_a_term_are_found(text, term):
    assert DEFINITIONS[term] in Glossary().explain(text)


@pytest.mark.parametrize(
    "text",
    [
        "the Lorenz curve",
        "the layer",
        "microwave",
        "masterpieces",
        "piece-wise",
        "unrecovered",
        "ten-fold",
        "fold-in",
        "",
    ],
)
def test_other_words_are_left_alone(text):
    assert Glossary().explain(text) == text


@pytest.mark.parametrize(
    ("text", "term"),
    [
        ("Every network that is recovered from its outputs", "recovered"),
        ("9 of 10 networks; the parameters of 8 were recovered", "recovered"),
        ("5 nodes, 4 layers: 7 recovered networks", "recovered"),
        ("the pieces of a surface", "piece"),
    ],
)
def test_a_word_is_explained_in_the_sense_of_its_sentence(text, term):
    shown = Glossary().explain(text)
    assert OTHER_SENSES[term][1] in shown and DEFINITIONS[term] not in shown


def test_both_senses_of_a_word_are_explained_where_a_page_uses_both():
    glossary = Glossary()
    shown = glossary.explain("3 nodes are recovered.") + glossary.explain("2 networks are recovered.")
    assert DEFINITIONS["recovered"] in shown and OTHER_SENSES["recovered"][1] in shown
    assert "<abbr" not in glossary.explain("2 networks are recovered. 3 nodes are recovered.")


def test_definitions_are_short():
    definitions = (*DEFINITIONS.values(), *(definition for _, definition in OTHER_SENSES.values()))
    assert all(len(definition) < 120 for definition in definitions)
    assert all(not definition.endswith(".") for definition in definitions)
