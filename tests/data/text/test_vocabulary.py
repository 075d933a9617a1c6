"""Vocabularies: words to tokens and back, and errors for sentences that a vocabulary does not have."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import understudy as us
from understudy.data import Vocabulary

WORDS = ("the", "film", "is", "good", ".")
SMALL = Vocabulary(WORDS, 4)


def test_tokens_count_from_1_and_0_fills_the_rest():
    rows = SMALL.encode(["The film is good", "good .", ("film",)])
    assert rows.tolist() == [[1, 2, 3, 4, 0], [4, 5, 0, 0, 0], [2, 0, 0, 0, 0]]
    assert rows.dtype == torch.int64 and len(SMALL) == 6
    assert SMALL.decode(rows) == ["the film is good", "good .", "film"]


def test_text_is_tokenised_and_sequences_of_words_are_not():
    assert SMALL.encode(["Good."]).tolist() == SMALL.encode([["good", "."]]).tolist()
    with pytest.raises(us.UserError, match=r"has 'Good\.'"):
        SMALL.encode([["Good."]])


def test_what_follows_the_end_is_ignored():
    assert SMALL.decode(torch.tensor([[1, 0, 4], [0, 1, 1], [4, 4, 4]])) == ["the", "", "good good good"]


@given(st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=4), max_size=5))
def test_decoding_gives_the_sentences_back(sentences):
    rows = SMALL.encode(sentences)
    assert rows.shape == (len(sentences), 5) and (rows[:, -1] == 0).all()
    assert SMALL.decode(rows) == [" ".join(each) for each in sentences]


def test_has():
    assert SMALL.has(["film", "good"]) and SMALL.has([]) and not SMALL.has(["film", "bad"])


@pytest.mark.parametrize(
    ("sentences", "message"),
    [
        ([""], "sentences must have at least one word each, got an empty one"),
        (["good", " \t"], "sentences must have at least one word each"),
        (["the film is good ."], "at most 4 words, punctuation included, got 5: 'the film is good .'; shorten it"),
        (
            ["a flim"],
            r"of the 5 words of the vocabulary, but 'a flim' has 'a', 'flim' \(did you mean film\?\); use oth",
        ),
        (["xyz"], "but 'xyz' has 'xyz'; use other words"),
        (["goood goood"], r"but 'goood goood' has 'goood' \(did you mean good\?\); use other words"),
    ],
)
def test_sentences_that_have_no_tokens(sentences, message):
    with pytest.raises(us.UserError, match=message):
        SMALL.encode(sentences)


def test_of_many_unknown_words_some_are_listed():
    with pytest.raises(us.UserError, match="has 'q1', 'q2', 'q3', 'q4', 'q5' and 2 more; use other words"):
        Vocabulary(WORDS, 9).encode(["q1 q2 q3 q4 q5 q6 q7"])


@pytest.mark.wrong_shapes
@pytest.mark.parametrize(
    ("sentences", "message"),
    [
        ("the film", "sentences must be a list of sentences, got a str"),
        (7, "sentences must be a list of sentences, got an int"),
        ([7], "sentences must be texts or sequences of words, got an int"),
    ],
)
def test_other_things_than_sentences(sentences, message):
    with pytest.raises(us.UserError, match=message):
        SMALL.encode(sentences)


@pytest.mark.parametrize("tokens", [[[1, 6]], [[-1, 0]]])
def test_tokens_that_no_word_has(tokens):
    with pytest.raises(us.UserError, match="tokens must be from 0 to 5, got"):
        SMALL.decode(torch.tensor(tokens))


def test_no_rows_are_no_sentences():
    assert SMALL.decode(torch.zeros(0, 5, dtype=torch.int64)) == []
    assert SMALL.encode([]).shape == (0, 5)


@pytest.mark.parametrize(
    ("words", "longest", "message"),
    [
        ((), 4, "words must have at least one word, got none"),
        (("good film",), 4, "words must be words without spaces, got 'good film'"),
        (("",), 4, "words must be words without spaces, got ''"),
        (("a", "b", "a"), 4, "words must be different words, got 'a' twice"),
        (("a",), 0, "longest must be a whole number of at least 1, got 0"),
    ],
)
def test_bad_vocabularies(words, longest, message):
    with pytest.raises(us.UserError, match=message):
        Vocabulary(words, longest)
