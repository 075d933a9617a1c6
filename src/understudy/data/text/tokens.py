"""Split sentences into words and punctuation."""

from __future__ import annotations

import itertools
import unicodedata

_CONTRACTIONS = frozenset(["'s", "'m", "'d", "'t", "'re", "'ve", "'ll"])
"""Words that begin with punctuation, in text whose contractions were split before."""


def tokenise(text: str) -> tuple[str, ...]:
    """Split a sentence into words and punctuation marks, in lower case.

    Spaces separate words. Of each, the marks at its beginning and at its end become words of their own, one by one,
    except that repetitions of one mark stay together, as in `...` and `--`; marks inside stay, as in `don't`, `so-so`
    and `7/10`. Letters, digits, underscores and combining characters are not marks; characters that cannot be printed
    count as spaces. Text that is split by spaces already, such as the movie reviews of Pang and Lee (2004), keeps its
    words, except that marks attached to one are split off (`[garbus]`); split contractions such as `'s` stay as they
    are. Splitting a result that is joined by spaces gives the same words again.

    Args:
        text: The sentence.
    """
    text = unicodedata.normalize("NFC", text.lower())
    if not text.isprintable():
        text = "".join(character if character.isprintable() else " " for character in text)
    words: list[str] = []
    for chunk in text.split():
        if chunk.isalnum() or chunk in _CONTRACTIONS:
            words.append(chunk)
        else:
            words += _split(chunk)
    return tuple(words)


def _split(chunk: str) -> list[str]:
    """Split the marks off both ends of a chunk without spaces."""
    inner = [place for place, character in enumerate(chunk) if _belongs_to_word(character)]
    start, end = (inner[0], inner[-1] + 1) if inner else (len(chunk), len(chunk))
    return [*_runs(chunk[:start]), *filter(None, [chunk[start:end]]), *_runs(chunk[end:])]


def _runs(marks: str) -> list[str]:
    """Split marks where one differs from the one before it."""
    return ["".join(run) for _, run in itertools.groupby(marks)]


def _belongs_to_word(character: str) -> bool:
    return character.isalnum() or character == "_" or unicodedata.category(character).startswith("M")
