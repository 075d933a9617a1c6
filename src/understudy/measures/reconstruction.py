"""How well sentences are reconstructed (Phuong 2021, sec. 4.6.3)."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional

from understudy.nets.latent.likelihoods import END


class Reconstruction(NamedTuple):
    """How many words of each sentence its reconstruction has.

    Attributes:
        exact: Whether all words agree and none is added.
        matching: Number of words of the sentence that the reconstruction has at the same place.
        overlap: Number of words of the sentence that the reconstruction has at any place, each as often as both do.
        words: Number of words of the sentence.
    """

    exact: Bool[Tensor, "*sample row"]
    matching: Int[Tensor, "*sample row"]
    overlap: Int[Tensor, "*sample row"]
    words: Int[Tensor, "*sample row"]

    @property
    def exact_share(self) -> Float[Tensor, "*sample"]:
        """Share of sentences that are reconstructed exactly."""
        return self.exact.double().mean(-1)

    @property
    def matching_share(self) -> Float[Tensor, "*sample"]:
        """Share of the words of all sentences that are reconstructed at the same place."""
        return self.matching.sum(-1) / self.words.sum(-1).double()

    @property
    def overlap_share(self) -> Float[Tensor, "*sample"]:
        """Share of the words of all sentences that are reconstructed at any place."""
        return self.overlap.sum(-1) / self.words.sum(-1).double()


def reconstruction(
    given: Int[Tensor, "*#sample #row place"], found: Int[Tensor, "*#sample #row other"]
) -> Reconstruction:
    """Compare sentences with their reconstructions, word by word.

    The end of a sentence is not a word, and what follows it is ignored.

    Args:
        given: Tokens of the sentences, ended and padded by token 0.
        found: Tokens of the reconstructions, of the same leading axes or of some that broadcast; their number of places
            may differ.

    Returns:
        Counts for each sentence.
    """
    places = max(given.shape[-1], found.shape[-1])
    given, found = torch.broadcast_tensors(_padded(given, places), _padded(found, places))
    is_word = given != END
    equal = given == found
    # The n-th occurrence of a word is found if the reconstruction has this word at least n times.
    earlier = (given.unsqueeze(-1) == given.unsqueeze(-2)).tril(-1).sum(-1)
    available = (given.unsqueeze(-1) == found.unsqueeze(-2)).sum(-1)
    return Reconstruction(
        exact=equal.all(-1),
        matching=(equal & is_word).sum(-1),
        overlap=((earlier < available) & is_word).sum(-1),
        words=is_word.sum(-1),
    )


def _padded(tokens: Tensor, places: int) -> Tensor:
    """Replace what follows the first end by ends, up to this number of places."""
    ended = (tokens == END).cumsum(-1) > 0
    return functional.pad(torch.where(ended, END, tokens), (0, places - tokens.shape[-1]), value=END)
