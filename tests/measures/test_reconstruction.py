"""Reconstruction of sentences, compared by hand and against plain loops over words."""

from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from understudy.measures.reconstruction import reconstruction

sentences = st.lists(st.lists(st.integers(1, 3), max_size=5), min_size=1, max_size=4)


def tokens(rows, places=6, rubbish=None):
    """Rows of words as tokens; what follows their end may be anything."""
    found = torch.zeros(len(rows), places, dtype=torch.int64)
    for row, words in enumerate(rows):
        found[row, : len(words)] = torch.tensor(words)
        if rubbish is not None:
            found[row, len(words) + 1 :] = rubbish
    return found


@pytest.mark.parametrize(
    ("sentence", "other", "exact", "matching", "overlap"),
    [
        ([1, 2, 3], [1, 2, 3], True, 3, 3),
        ([1, 2, 3], [1, 2], False, 2, 2),
        ([1, 2], [1, 2, 3], False, 2, 2),
        ([1, 2, 3], [2, 1, 3], False, 1, 3),
        ([1, 2, 3], [3, 1, 2], False, 0, 3),
        ([1, 1, 2], [3, 1, 3], False, 1, 1),
        ([1, 1, 2], [2, 2, 1], False, 0, 2),
        ([1, 2], [], False, 0, 0),
        ([], [1, 2], False, 0, 0),
        ([], [], True, 0, 0),
    ],
)
def test_by_hand(sentence, other, exact, matching, overlap):
    found = reconstruction(tokens([sentence]), tokens([other]))
    assert (found.exact.item(), found.matching.item(), found.overlap.item()) == (exact, matching, overlap)
    assert found.words.item() == len(sentence)


def test_shares_are_of_sentences_and_of_all_words():
    found = reconstruction(tokens([[1, 2, 3], [1]]), tokens([[1, 3, 2], [1]]))
    assert float(found.exact_share) == pytest.approx(1 / 2)
    assert float(found.matching_share) == pytest.approx((1 + 1) / 4)
    assert float(found.overlap_share) == pytest.approx((3 + 1) / 4)


@given(sentences, sentences, st.integers(1, 3))
def test_it_counts_as_plain_loops_do(rows, others, rubbish):
    others = (others * len(rows))[: len(rows)]
    found = reconstruction(tokens(rows), tokens(others))
    for row, (words, other) in enumerate(zip(rows, others, strict=True)):
        assert found.exact[row] == (words == other)
        assert found.matching[row] == sum(a == b for a, b in zip(words, other, strict=False))
        assert found.overlap[row] == (Counter(words) & Counter(other)).total()
    padded = reconstruction(tokens(rows, 8, rubbish), tokens(others, 6, rubbish))
    assert all(torch.equal(one, other) for one, other in zip(found, padded, strict=True))


def test_several_reconstructions_of_each_sentence():
    rows = tokens([[1, 2], [3]])
    many = torch.stack([rows, tokens([[1, 3], [3, 3]])])
    found = reconstruction(rows, many)
    assert found.matching.tolist() == [[2, 1], [1, 1]]
    assert found.exact_share.tolist() == [1.0, 0.0]
    assert found.matching_share.tolist() == [1.0, pytest.approx(2 / 3)]
