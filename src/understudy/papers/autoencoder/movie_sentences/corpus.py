"""The sentences of a run of `movie-sentences`: of the user's file, of movie reviews, or of a small grammar."""

from __future__ import annotations

import re
from functools import cached_property, lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from understudy._errors import UserError
from understudy.data.images.base import data_folder
from understudy.data.text.sentences import PARTS, Dropped, Sentences
from understudy.papers.autoencoder.movie_sentences import grammar

_FILE = "movie_reviews.txt"
_SPLIT = 0
"""Seed that chooses the test sentences."""


class Corpus:
    """Sentences as tokens, and what is known about them.

    Args:
        sentences: The sentences.
        origin: Where they are from, in words.
    """

    def __init__(self, sentences: Sentences, origin: str) -> None:
        self.sentences, self.origin = sentences, origin
        self.vocabulary = sentences.vocabulary
        self.tokens = {part: sentences.tokens(part) for part in PARTS}
        if not len(self.tokens["test"]):
            raise UserError(
                f"{origin}: no test sentence is left, since each has a word outside the vocabulary; raise --test, "
                "lower --least, or give more sentences"
            )

    @property
    def training(self) -> int:
        """Number of training sentences."""
        return len(self.tokens["training"])

    @property
    def entropy(self) -> float:
        """Entropy of a training sentence in nats, where all are equally probable."""
        return self.sentences.entropy

    @cached_property
    def most(self) -> float:
        """Entropy in nats of sentences whose words are drawn at each place by their frequency in training sentences."""
        total = 0.0
        for place in self.tokens["training"].T:
            share = torch.bincount(place, minlength=len(self.vocabulary)).double() / len(place)
            total -= float(torch.xlogy(share, share).sum())
        return total

    @property
    def dropped(self) -> Dropped:
        """Lines that are not used, by reason."""
        return self.sentences.dropped


def read_corpus(data: str, made: int, longest: int, least: int, words: int, test: float) -> Corpus:
    """Read the sentences of a run.

    Args:
        data: The user's file; empty for none.
        made: Number of sentences of the grammar, if there is no file; 0 for the file of movie reviews.
        longest: Words of the longest sentences.
        least: How often a word must occur in the training sentences.
        words: Words of the vocabulary; 0 for all that occur often enough.
        test: Share of test sentences.

    Returns:
        The sentences.

    Raises:
        UserError: No file, or one without such sentences.
    """
    file, modified = None, 0
    if data or not made:
        file = Path(data) if data else published_file()
        if file is None:
            raise UserError(f"--data: {_how_to_get()}")
        modified = file.stat().st_mtime_ns if file.is_file() else 0
    return _read(file, modified, made, longest, least, words, test)


@lru_cache(maxsize=4)
def _read(file: Path | None, modified: int, made: int, longest: int, least: int, words: int, test: float) -> Corpus:
    """Read sentences once; a file that was modified is read again."""
    try:
        with TemporaryDirectory() as folder:
            path = file or Path(folder) / "sentences.txt"
            if file is None:
                path.write_text("\n".join(grammar.sentences(made)) + "\n", encoding="utf-8")
            sentences = Sentences(
                path, longest=longest, least=least, words=words or None, validation=0, test=test, seed=_SPLIT
            )
        return Corpus(sentences, "a small grammar" if file is None else file.name)
    except UserError as error:
        raise UserError(_as_option(str(error))) from None


def published_file() -> Path | None:
    """The file of movie reviews in the folder for data; None if it is not there."""
    folder = data_folder(None)
    return next((path for path in (folder / _FILE, folder / "movies" / _FILE) if path.is_file()), None)


def _how_to_get() -> str:
    return (
        f"there is no {_FILE} in {data_folder(None)} or its folder movies; it has the movie reviews of Pang and Lee "
        f"(2004), polarity dataset 2.0, one sentence a line: cat txt_sentoken/*/*.txt | iconv -f ISO-8859-1 -t UTF-8 > "
        f"{_FILE}. Or give another text file with a sentence a line, or --made 300, which needs none"
    )


def _as_option(words: str) -> str:
    """An error about a file or an argument of `Sentences` in terms of the study's options."""
    words = re.sub(r"\b(raise|lower) (words|least|longest)\b", r"\1 --\2", words)
    name = words.split(" ", 1)[0]
    return f"--{words}" if name in ("words", "least", "longest") else f"--data: {words}"
