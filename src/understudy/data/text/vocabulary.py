"""Vocabularies: which number stands for which word."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Int
from torch import Tensor

from understudy._errors import UserError, kind_of, suggest
from understudy.data.source import require_counts
from understudy.data.text.tokens import tokenise
from understudy.nets.latent.likelihoods import END

_LISTED = 5
"""How many unknown words an error lists."""


@dataclass(frozen=True)
class Vocabulary:
    """Words with their numbers, and the number of words that a sentence may have.

    Args:
        words: The words in the order of their tokens, which count from 1; token 0 ends sentences and fills what follows
            them.
        longest: Number of words that a sentence may have.

    Raises:
        UserError: No words, words that occur twice, have spaces or are empty, or a longest sentence without words.
    """

    words: tuple[str, ...]
    longest: int

    def __post_init__(self) -> None:
        require_counts(longest=self.longest)
        if not self.words:
            raise UserError("must have at least one word, got none", "words")
        if wrong := [each for each in self.words if not isinstance(each, str) or each.split() != [each]]:
            raise UserError(f"must be words without spaces, got {wrong[0]!r}", "words")
        if len(self._tokens) < len(self.words):
            twice = next(each for i, each in enumerate(self.words) if self._tokens[each] != i + 1)
            raise UserError(f"must be different words, got {twice!r} twice", "words")

    def __len__(self) -> int:
        """Number of tokens, with the one that ends sentences."""
        return len(self.words) + 1

    @cached_property
    def _tokens(self) -> dict[str, int]:
        return {word: i for i, word in enumerate(self.words, start=END + 1)}

    def has(self, words: Iterable[str]) -> bool:
        """Whether all of these words have a token.

        Args:
            words: The words.
        """
        return all(word in self._tokens for word in words)

    def encode(self, sentences: Sequence[str] | Sequence[Sequence[str]]) -> Int[Tensor, "row place"]:
        """Number the words of sentences; token 0 fills the places after each.

        Args:
            sentences: Sentences as text, which is tokenised, or as sequences of words.

        Returns:
            Tokens, one place more than the longest allowed sentence has words, so that every sentence has an end.

        Raises:
            UserError: Something else than sentences, one without words or with too many, or words that have no token.
        """
        if isinstance(sentences, str) or not isinstance(sentences, Sequence):
            raise UserError(f"must be a list of sentences, got {kind_of(sentences)}", "sentences")
        rows = torch.zeros(len(sentences), self.longest + 1, dtype=torch.int64)
        for row, sentence in enumerate(sentences):
            if not isinstance(sentence, Sequence):
                raise UserError(f"must be texts or sequences of words, got {kind_of(sentence)}", "sentences")
            words = tokenise(sentence) if isinstance(sentence, str) else tuple(sentence)
            self._require(words)
            rows[row, : len(words)] = torch.tensor([self._tokens[word] for word in words])
        return rows

    def decode(self, tokens: Int[Tensor, "row place"]) -> list[str]:
        """Write tokens as sentences whose words are separated by spaces.

        Args:
            tokens: Tokens; what follows the first token 0 of a row is ignored.

        Raises:
            UserError: Tokens that no word has.
        """
        if tokens.numel() and not 0 <= int(tokens.min()) <= int(tokens.max()) < len(self):
            raise UserError(
                f"must be from 0 to {len(self) - 1}, got {int(tokens.min())} to {int(tokens.max())}", "tokens"
            )
        sentences = []
        for row in tokens.tolist():
            end = row.index(END) if END in row else len(row)
            sentences.append(" ".join(self.words[token - 1] for token in row[:end]))
        return sentences

    def _require(self, words: tuple[str, ...]) -> None:
        """Raise a `UserError` unless a sentence has words, not too many, and all of them have a token."""
        shown = " ".join(map(str, words))
        if not words:
            raise UserError("must have at least one word each, got an empty one", "sentences")
        if len(words) > self.longest:
            raise UserError(
                f"must have at most {self.longest} words, punctuation included, got {len(words)}: {shown!r}; shorten "
                "it",
                "sentences",
            )
        unknown = list(dict.fromkeys(word for word in words if word not in self._tokens))
        if unknown:
            more = f" and {len(unknown) - _LISTED} more" if len(unknown) > _LISTED else ""
            raise UserError(
                f"must consist of the {len(self.words):,} words of the vocabulary, but {shown!r} has "
                f"{', '.join(map(self._with_nearest, unknown[:_LISTED]))}{more}; use other words",
                "sentences",
            )

    def _with_nearest(self, word: str) -> str:
        """An unknown word with the nearest one of the vocabulary, if one is near."""
        near = suggest(str(word), self.words).rstrip()
        return f"{word!r} ({near})" if near else repr(word)
