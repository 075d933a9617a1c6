"""`us.data.Sentences`: splits, vocabulary, what is dropped and counted, errors, and the published movie reviews."""

import math
import os
from collections import Counter
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import understudy as us
from understudy.data.text.sentences import PARTS
from understudy.data.text.text_files import read_lines
from understudy.data.text.tokens import tokenise

MOVIES = Path(os.environ.get("UNDERSTUDY_DATA", "/nowhere")) / "movies"
FILES = ("movie_reviews.txt", "sentence_polarity.txt")
needs_movies = pytest.mark.skipif(
    not all((MOVIES / name).is_file() for name in FILES), reason="needs movies in $UNDERSTUDY_DATA"
)


def write(folder, *lines):
    """Write a file with these lines."""
    file = folder / "sentences.txt"
    file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return file


@pytest.fixture
def many(tmp_path):
    """200 different sentences of 2 to 4 words."""
    nouns, verbs = [f"n{i}" for i in range(10)], [f"v{i}" for i in range(10)]
    both = [f"{noun} {verb}" for noun in nouns for verb in verbs]
    return write(tmp_path, *both, *(f"{each} very good" for each in both))


def parts(data):
    return {part: data.texts(part) for part in PARTS}


def test_by_hand(tmp_path):
    file = write(tmp_path, "Good film.", "", "a bad film", "good film .", "one two three four five", "  ", "bad film!")
    data = us.data.Sentences(file, longest=4, validation=0, test=0)
    assert data.texts() == ("good film .", "a bad film", "bad film !")
    assert data.vocabulary.words == ("film", "bad", "!", ".", "a", "good") and data.vocabulary.longest == 4
    assert data.tokens().tolist() == [[6, 1, 4, 0, 0], [5, 2, 1, 0, 0], [2, 1, 3, 0, 0]]
    assert data.dropped == (2, 1, 1, 0, 0)
    assert data.entropy == pytest.approx(math.log(3))
    assert data.notes == (
        f"{file}: 3 training, 0 validation, 0 test sentences with 6 different words.",
        "Dropped: 1 have more than 4 words; 1 are repetitions; 2 are empty lines.",
    )
    assert data.texts("test") == () and data.tokens("test").shape == (0, 5)


def test_encode_and_decode_are_those_of_the_vocabulary(many):
    data = us.data.Sentences(many)
    rows = data.encode(["N3 v4", "n1 v0 very good"])
    assert torch.equal(rows, data.vocabulary.encode([["n3", "v4"], ["n1", "v0", "very", "good"]]))
    assert data.decode(rows) == ["n3 v4", "n1 v0 very good"]


class TestSplit:
    def test_parts_are_disjoint_and_have_all_sentences(self, many):
        found = parts(us.data.Sentences(many, validation=20, test=0.25))
        assert [len(found[part]) for part in PARTS] == [130, 20, 50]
        assert set().union(*found.values()) == set(read_lines(many))

    def test_it_depends_on_the_seed_and_on_nothing_else(self, many):
        first = parts(us.data.Sentences(many, seed=3))
        assert parts(us.data.Sentences(str(many), seed=3, longest=5, least=1)) == first
        others = [parts(us.data.Sentences(many, seed=seed)) for seed in (4, 2**62)]
        assert len({each["test"] for each in (first, *others)}) == 3

    def test_sentences_stay_in_the_order_of_the_file(self, many):
        place = {line: i for i, line in enumerate(read_lines(many))}
        for found in parts(us.data.Sentences(many, validation=0.3, test=0.3)).values():
            assert [place[each] for each in found] == sorted(place[each] for each in found)

    def test_every_sentence_is_as_often_a_test_sentence(self, many):
        """600 splits with a share of 1/4: a standard error of 0.018 for each of 200 sentences."""
        counts = Counter(
            each
            for seed in range(600)
            for each in us.data.Sentences(many, test=50, validation=0, seed=seed).texts("test")
        )
        shares = torch.tensor([counts[line] / 600 for line in read_lines(many)], dtype=torch.float64)
        error = math.sqrt(0.25 * 0.75 / 600)
        assert shares.mean() == pytest.approx(0.25) and (shares - 0.25).abs().max() < 4.5 * error
        assert shares.std() == pytest.approx(error, rel=0.25)

    @pytest.mark.parametrize(("validation", "test"), [(0, 0), (1, 0), (0.0, 0.5), (199, 0), (0.1, 3)])
    def test_numbers_and_shares(self, many, validation, test):
        data = us.data.Sentences(many, validation=validation, test=test, words=None)
        wanted = [each if isinstance(each, int) else round(200 * each) for each in (validation, test)]
        lost = data.dropped.unknown_words
        assert len(data.texts("validation")) + len(data.texts("test")) == sum(wanted) - lost
        assert len(data.texts()) == 200 - sum(wanted)


class TestVocabulary:
    @pytest.fixture
    def file(self, tmp_path):
        return write(tmp_path, "a a b", "a b c", "a c d", "b e", "a f g")

    def test_the_most_frequent_words_come_first(self, file):
        data = us.data.Sentences(file, validation=0, test=0)
        assert data.vocabulary.words == ("a", "b", "c", "d", "e", "f", "g")

    def test_rarer_words_drop_their_sentences(self, file):
        data = us.data.Sentences(file, validation=0, test=0, words=3)
        assert data.vocabulary.words == ("a", "b", "c") and data.texts() == ("a a b", "a b c")
        assert data.dropped.rare_words == 3
        again = us.data.Sentences(file, validation=0, test=0, least=2)
        assert (again.vocabulary, again.texts()) == (data.vocabulary, data.texts())
        assert "3 are training sentences with a word that is too rare" in again.notes[1]

    def test_the_words_of_other_parts_are_not_in_it(self, many):
        for seed in range(5):
            data = us.data.Sentences(many, validation=0.4, test=0.55, seed=seed)
            assert set(data.vocabulary.words) == {word for text in data.texts() for word in text.split()}
            assert data.dropped.unknown_words > 0
            for part in ("validation", "test"):
                assert all(data.vocabulary.has(text.split()) for text in data.texts(part))


WORDS = st.sampled_from(["a", "b", "c", "d", "e", "f", "A", "b.", " "])


@given(
    lines=st.lists(st.lists(WORDS, max_size=6).map(" ".join), min_size=1, max_size=30),
    longest=st.integers(1, 6),
    least=st.integers(1, 2),
    validation=st.integers(0, 3),
    test=st.floats(0, 0.4),
    seed=st.integers(0, 2**63 - 1),
)
def test_every_line_is_used_or_counted_once(tmp_path_factory, lines, longest, least, validation, test, seed):
    file = write(tmp_path_factory.mktemp("lines"), *lines)
    try:
        data = us.data.Sentences(file, longest=longest, least=least, validation=validation, test=test, seed=seed)
    except us.UserError:
        return  # nothing is left
    assert sum(data.dropped) + sum(map(len, parts(data).values())) == len(lines)
    found = [tokenise(line) for line in lines]
    assert data.dropped.empty == found.count(())
    assert data.dropped.too_long == sum(len(each) > longest for each in found)
    short = [each for each in found if 0 < len(each) <= longest]
    assert data.dropped.repeated == len(short) - len(set(short))
    assert data.tokens().shape == (len(data.texts()), longest + 1)
    assert data.decode(data.tokens()) == list(data.texts())


class TestBadInput:
    @pytest.mark.parametrize("lines", [[""], ["", "  ", "\t"], ["\u200b"]])
    def test_only_empty_lines(self, tmp_path, lines):
        with pytest.raises(us.UserError, match="no line has a word; a text file with a sentence a line is needed"):
            us.data.Sentences(write(tmp_path, *lines))

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ({"longest": 1}, "no sentence has at most 1 words, the shortest has 2; raise longest"),
            ({"longest": 0}, "longest must be a whole number of at least 1, got 0"),
            ({"least": 0}, "least must be a whole number of at least 1, got 0"),
            ({"words": 0}, "words must be a whole number of at least 1, got 0"),
            (
                {"words": 23, "test": 0, "validation": 0},
                "words must be at most 22, the number of different words of the training sentences, got 23",
            ),
            (
                {"words": 23, "least": 2, "test": 0, "validation": 0},
                "words must be at most 22, .* that occur at least 2 times, got 23",
            ),
            (
                {"least": 101, "test": 0, "validation": 0},
                "least must be at most 100, how often the most frequent word of the training sentences occurs, got 101",
            ),
            (
                {"words": 2, "test": 0, "validation": 0},
                "every training sentence has a word outside the vocabulary of 2; lower least, or raise words",
            ),
            ({"validation": 1.0}, "validation must be a number of sentences, or a share from 0 to below 1, got 1.0"),
            ({"test": -1}, "test must be a number of sentences, or a share from 0 to below 1, got -1"),
            ({"test": math.nan}, "test must be a number of sentences, or a share from 0 to below 1, got nan"),
            ({"test": True}, "test must be a number of sentences, or a share from 0 to below 1, got True"),
            ({"test": 150, "validation": 0.25}, "validation and test take 50 and 150 of 200 sentences, so that none"),
            ({"seed": -1}, "seed must be between 0 and 2.63 − 1, got -1"),
        ],
    )
    def test_numbers_out_of_range(self, many, given, message):
        with pytest.raises(us.UserError, match=message):
            us.data.Sentences(many, **given)

    def test_files_that_cannot_be_read(self, tmp_path):
        with pytest.raises(us.UserError, match=r"absent\.txt: there is no such file; a text file with a sentence a l"):
            us.data.Sentences(tmp_path / "absent.txt")
        with pytest.raises(us.UserError, match="this is a directory"):
            us.data.Sentences(tmp_path)

    @pytest.mark.wrong_shapes
    def test_another_part(self, many):
        with pytest.raises(us.UserError, match="part must be one of training, validation, test, got 'train'"):
            us.data.Sentences(many).texts("train")


@needs_movies
class TestMovies:
    @pytest.mark.parametrize(("name", "lines", "short"), [(FILES[0], 64_720, 7_034), (FILES[1], 10_662, 963)])
    def test_published_counts(self, name, lines, short):
        found = [line.split() for line in read_lines(MOVIES / name)]
        assert len(found) == lines and sum(1 <= len(each) <= 8 for each in found) == short

    @pytest.mark.parametrize("name", FILES)
    def test_every_line_is_used_or_counted_once(self, name):
        data = us.data.Sentences(MOVIES / name, least=2)
        kept = {part: set(data.texts(part)) for part in PARTS}
        assert sum(data.dropped) + sum(map(len, kept.values())) == len(read_lines(MOVIES / name))
        assert not kept["training"] & kept["test"] and not kept["validation"] & kept["test"]
        assert max(len(each.split()) for part in kept.values() for each in part) == 8

    def test_published_words_are_kept_except_attached_marks(self):
        """Of the words of both files, 0.3% have marks that are split off."""
        own = [word for name in FILES for line in read_lines(MOVIES / name) for word in line.split()]
        changed = [word for word in own if tokenise(word) != (word,)]
        assert len(changed) < 0.003 * len(own)
        assert Counter(own)["--"] == 1_765 and "--" not in changed
