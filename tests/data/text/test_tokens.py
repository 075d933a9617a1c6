"""Tokenisation: sentences split by hand, marks, other scripts, and that splitting twice changes nothing."""

import sys
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import understudy as us
from understudy.data.text.tokens import tokenise


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("There are many great scenes, of course.", "there are many great scenes , of course ."),
        ("there are many great scenes , of course .", "there are many great scenes , of course ."),
        ("Don't I know it?!", "don't i know it ? !"),
        ("it 's what he did n't say", "it 's what he did n't say"),
        ("Rated [PG-13] (7/10)", "rated [ pg-13 ] ( 7/10 )"),
        ('well... so-so -- "fine"', 'well ... so-so -- " fine "'),
        ("what?!?", "what ? ! ?"),
        ("======", "======"),
        ("rock 'n' roll", "rock ' n ' roll"),
        ("the brothers' film", "the brothers ' film"),
        ("$7.50, 100%", "$ 7.50 , 100 %"),
        ("@$%", "@ $ %"),
        ("snake_case __init__", "snake_case __init__"),
        ("  a\t b \u00a0 c\u2003d ", "a b c d"),
        ("a\x00b\x1fc\u200bd\u2028e\ufefff", "a b c d e f"),
        ("ÜBER Straße ÉTÉ", "über straße été"),
        ("cafe\u0301", "café"),
        ("ΟΔΟΣ ΟΔΟΣ.", "οδος οδος ."),
        ("İstanbul", "i̇stanbul"),
        ("x\u0338a", "x\u0338a"),
        ("«Да», сказал он…", "« да » , сказал он …"),
        ("映画は、よかった。", "映画は、よかった 。"),
        ("नमस्ते दुनिया।", "नमस्ते दुनिया ।"),
        ("good 👍👍 film", "good 👍👍 film"),
        ("", ""),
        (" \t ", ""),
        ("\x00", ""),
    ],
)
def test_sentences_by_hand(text, words):
    assert tokenise(text) == tuple(words.split())


def test_it_is_public():
    assert us.data.tokenise is tokenise


@given(st.text(max_size=40))
@example("'s.")
@example("''s")
@example("\u212a\u0338=\u0338!")
@example("a\u0345\u0301 \u1fbe")
def test_splitting_twice_changes_nothing(text):
    words = tokenise(text)
    assert tokenise(" ".join(words)) == words
    assert all(word and word.split() == [word] and word.isprintable() for word in words)


def test_every_character_splits_the_same_way_twice():
    """Each alone, between letters and between marks; lower case and normal form of some depend on their neighbours."""
    texts = [f"{chr(code)} A{chr(code)}A .{chr(code)}. Σ{chr(code)}" for code in range(sys.maxunicode + 1)]
    assigned = [each for each in texts if unicodedata.category(each[0]) not in ("Cn", "Co", "Cs")]
    wrong = [each for each in assigned if tokenise(" ".join(words := tokenise(each))) != words]
    assert len(assigned) > 100_000 and not wrong


@given(st.lists(st.text("abcde'-.,!?", min_size=1, max_size=6), max_size=6))
def test_the_characters_of_a_sentence_are_kept(chunks):
    assert "".join(tokenise(" ".join(chunks))) == "".join(chunks)


@given(st.text("ab.,!-' ", max_size=20))
def test_marks_of_a_word_are_of_one_kind(text):
    for word in tokenise(text):
        assert any(each.isalnum() for each in word) or len(set(word)) == 1
