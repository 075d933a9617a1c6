"""Sentences of a small grammar, for runs without a text file."""

from __future__ import annotations

from functools import cache
from itertools import product

_WHO = ["she", "he", "nobody", "everybody", "somebody", "the hero"]
_WHAT = ["film", "plot", "ending", "music", "cast", "script"]
_DOES = ["likes", "hates", "forgets", "loves", "knows"]
_HOW = ["very", "not", "rather", "never"]
_LIKE = ["dull", "funny", "long", "clever", "sad", "loud"]
_FORMS = (
    ("the {} is {} {}", (_WHAT, _HOW, _LIKE)),
    ("{} {} the {}", (_WHO, _DOES, _WHAT)),
    ("what a {} {}", (_LIKE, _WHAT)),
    ("the {} {} is {}", (_LIKE, _WHAT, _LIKE)),
)
SENTENCES = 540
"""Number of different sentences that the grammar has."""
LONGEST = 5
"""Words of its longest sentences."""


@cache
def sentences(count: int, seed: int = 0) -> tuple[str, ...]:
    """Draw different sentences of a grammar with four forms and 31 words, in random order.

    Args:
        count: Number of sentences, at most `SENTENCES`.
        seed: Seed of the choice and the order.
    """
    from understudy._random import Stream, words  # with torch, which the study's options do without

    every = [
        form.format(*chosen) for form, lists in _FORMS for chosen in product(*lists) if len({*chosen}) == len(chosen)
    ]
    order = words(seed, Stream.SUBSET, 0, len(every)).argsort(stable=True)
    return tuple(every[i] for i in order[:count].tolist())
