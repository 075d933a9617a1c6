"""`us.data.Sentences`: short sentences of a text file, split into training, validation and test sentences."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal, NamedTuple

from jaxtyping import Int
from torch import Tensor

from understudy._errors import UserError
from understudy._random import Stream, words
from understudy.data.source import require_counts
from understudy.data.text.text_files import read_lines
from understudy.data.text.tokens import tokenise
from understudy.data.text.vocabulary import Vocabulary

Part = Literal["training", "validation", "test"]
PARTS: tuple[Part, ...] = ("training", "validation", "test")
_Words = tuple[str, ...]


class Dropped(NamedTuple):
    """Lines of a file that are not used.

    Attributes:
        empty: Lines without words.
        too_long: Sentences with more words than are allowed.
        repeated: Sentences that occurred before.
        rare_words: Training sentences with a word that is not in the vocabulary.
        unknown_words: Validation and test sentences with a word that is not in the vocabulary.
    """

    empty: int
    too_long: int
    repeated: int
    rare_words: int
    unknown_words: int


@dataclass(frozen=True)
class Sentences:
    """Sentences of a text file, one a line, as tokens.

    Text is in UTF-8. It is converted to lower case and split into words by spaces; punctuation at the beginning and the
    end of a word becomes words of its own, while it stays inside of one (`don't`, `7/10`), as `tokenise` states.
    Punctuation counts as words.

    Of each sentence the first occurrence is used, so that no test sentence is a training sentence and all are equally
    probable; Phuong (2021, sec. 4.6.3) does not state how repetitions were treated. The seed chooses which sentences
    are for validation and test. The vocabulary are the words of the training sentences; sentences with other words are
    dropped, since a common token in their place would count as a word that is reconstructed.

    Args:
        path: The file.
        longest: Number of words, punctuation included, above which a sentence is dropped.
        least: How often a word must occur in the training sentences to enter the vocabulary, counted before sentences
            with rarer words are dropped.
        words: Size of the vocabulary: the most frequent words, in alphabetical order where they are equally frequent.
            Default: all words that occur often enough.
        validation: Validation sentences: a number (int), or a share of all from 0 to 1 (float).
        test: Test sentences, likewise.
        seed: Seed of the split.

    Raises:
        UserError: A file that cannot be read, is not text or has no such sentence, a vocabulary larger than the file
            supports, or a number out of range.
    """

    path: str | Path
    longest: int = 8
    least: int = 1
    words: int | None = None
    validation: float = 0.1
    test: float = 0.1
    seed: int = 0

    def __post_init__(self) -> None:
        require_counts(longest=self.longest, least=self.least)
        if self.words is not None:
            require_counts(words=self.words)
        if not 0 <= self.seed < 2**63:
            raise UserError(f"must be between 0 and 2^63 − 1, got {self.seed}", "seed")
        for name in ("validation", "test"):
            given = getattr(self, name)
            if isinstance(given, int) and not isinstance(given, bool) and given >= 0:
                continue
            if not (isinstance(given, float) and 0 <= given < 1):
                raise UserError(f"must be a number of sentences, or a share from 0 to below 1, got {given}", name)
        _ = self._prepared

    def texts(self, part: Part = "training") -> tuple[str, ...]:
        """Return the sentences of a part, their words separated by spaces, in the order of the file.

        Args:
            part: training, validation or test.

        Raises:
            UserError: Another part.
        """
        return tuple(" ".join(sentence) for sentence in self._part(part))

    def tokens(self, part: Part = "training") -> Int[Tensor, "row place"]:
        """Return the sentences of a part as tokens, one place more than the longest sentence may have words.

        Token 0 ends each sentence and fills the places after it.

        Args:
            part: training, validation or test.

        Raises:
            UserError: Another part.
        """
        return self.vocabulary.encode(self._part(part))

    @property
    def vocabulary(self) -> Vocabulary:
        """Words of the training sentences, the most frequent first."""
        return self._prepared.vocabulary

    @property
    def dropped(self) -> Dropped:
        """How many lines of the file are not used, by reason."""
        return self._prepared.dropped

    @property
    def entropy(self) -> float:
        """Entropy of a training sentence in nats, where all are equally probable."""
        return math.log(len(self._part("training")))

    @property
    def notes(self) -> tuple[str, ...]:
        """What was kept and what was dropped, in sentences."""
        dropped, counts = self.dropped, [len(self._part(part)) for part in PARTS]
        kept = ", ".join(f"{count:,} {part}" for count, part in zip(counts, PARTS, strict=True))
        reasons = {
            f"have more than {self.longest} words": dropped.too_long,
            "are repetitions": dropped.repeated,
            "are training sentences with a word that is too rare": dropped.rare_words,
            "are validation or test sentences with a word outside the vocabulary": dropped.unknown_words,
            "are empty lines": dropped.empty,
        }
        lost = [f"{count:,} {reason}" for reason, count in reasons.items() if count]
        found = [f"{Path(self.path)}: {kept} sentences with {len(self.vocabulary.words):,} different words."]
        return (*found, f"Dropped: {'; '.join(lost)}.") if lost else tuple(found)

    def encode(self, sentences: Sequence[str] | Sequence[Sequence[str]]) -> Int[Tensor, "row place"]:
        """Number the words of sentences; token 0 fills the places after each.

        Args:
            sentences: Sentences as text, which is tokenised, or as sequences of words.

        Raises:
            UserError: Something else than sentences, one without words or with too many, or words that are not in the
                vocabulary.
        """
        return self.vocabulary.encode(sentences)

    def decode(self, tokens: Int[Tensor, "row place"]) -> list[str]:
        """Write tokens as sentences whose words are separated by spaces.

        Args:
            tokens: Tokens; what follows the first token 0 of a row is ignored.

        Raises:
            UserError: Tokens that no word has.
        """
        return self.vocabulary.decode(tokens)

    def _part(self, part: Part) -> tuple[_Words, ...]:
        if part not in PARTS:
            raise UserError(f"must be one of {', '.join(PARTS)}, got {part!r}", "part")
        return self._prepared.parts[PARTS.index(part)]

    @cached_property
    def _prepared(self) -> _Prepared:
        lines = [tokenise(line) for line in read_lines(self.path)]
        written = [each for each in lines if each]
        if not written:
            raise UserError(f"{self.path}: no line has a word; a text file with a sentence a line is needed")
        short = [each for each in written if len(each) <= self.longest]
        if not short:
            raise UserError(
                f"{self.path}: no sentence has at most {self.longest} words, the shortest has "
                f"{min(map(len, written))}; raise longest"
            )
        different = list(dict.fromkeys(short))
        training, *others = self._split(different)
        vocabulary = self._select(training)
        kept = [tuple(each for each in part if vocabulary.has(each)) for part in (training, *others)]
        if not kept[0]:
            raise UserError(
                f"{self.path}: every training sentence has a word outside the vocabulary of {len(vocabulary.words):,}; "
                "lower least, or raise words"
            )
        dropped = Dropped(
            empty=len(lines) - len(written),
            too_long=len(written) - len(short),
            repeated=len(short) - len(different),
            rare_words=len(training) - len(kept[0]),
            unknown_words=sum(map(len, others)) - sum(map(len, kept[1:])),
        )
        return _Prepared(vocabulary, tuple(kept), dropped)

    def _split(self, sentences: list[_Words]) -> list[list[_Words]]:
        """Training, validation and test sentences, each in the order of the file."""
        count = len(sentences)
        sizes = [each if isinstance(each, int) else round(each * count) for each in (self.validation, self.test)]
        if sum(sizes) >= count:
            raise UserError(
                f"validation and test take {sizes[0]:,} and {sizes[1]:,} of {count:,} sentences, so that none is left "
                "for training; lower them"
            )
        place = words(self.seed, Stream.SUBSET, 0, count).argsort(stable=True).argsort().tolist()
        ends = [count, sizes[0], sum(sizes)]
        starts = [sum(sizes), 0, sizes[0]]
        return [
            [sentence for sentence, at in zip(sentences, place, strict=True) if start <= at < end]
            for start, end in zip(starts, ends, strict=True)
        ]

    def _select(self, training: list[_Words]) -> Vocabulary:
        """The most frequent words of training sentences."""
        counts = Counter(word for sentence in training for word in sentence)
        known = sorted((word for word in counts if counts[word] >= self.least), key=lambda word: (-counts[word], word))
        if not known:
            raise UserError(
                f"must be at most {max(counts.values())}, how often the most frequent word of the training sentences "
                f"occurs, got {self.least}",
                "least",
            )
        if self.words is not None and self.words > len(known):
            often = f" that occur at least {self.least} times" if self.least > 1 else ""
            raise UserError(
                f"must be at most {len(known):,}, the number of different words of the training sentences{often}, got "
                f"{self.words:,}",
                "words",
            )
        return Vocabulary(tuple(known[: self.words]), self.longest)


class _Prepared(NamedTuple):
    """What is read from a file."""

    vocabulary: Vocabulary
    parts: tuple[tuple[_Words, ...], ...]
    dropped: Dropped
