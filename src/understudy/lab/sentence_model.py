"""A model of sentences with its vocabulary: sentences become codes, and codes become sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
from jaxtyping import Float, Int
from torch import Tensor

from understudy._errors import UserError, kind_of
from understudy._random import Stream, normal, uniform
from understudy.data.text.vocabulary import Vocabulary
from understudy.nets.latent.codes import GaussianCode
from understudy.nets.latent.files import SavedCodes
from understudy.nets.latent.model import LatentModel
from understudy.nets.latent.sentences import SentenceDecoder

_PIECE = 256
"""Sentences that are computed at once."""
_CODE, _CHOICE, _WORDS, _PURPOSES = range(4)


@dataclass(frozen=True, eq=False)
class SentenceModel:
    """A model with a latent code whose data are sentences, and the words of its tokens.

    Args:
        model: The model; its decoder is a `SentenceDecoder`.
        vocabulary: The words.
    """

    model: LatentModel
    vocabulary: Vocabulary

    @classmethod
    def of(cls, saved: SavedCodes, device: torch.device) -> SentenceModel:
        """Take the model and the vocabulary of a file that `save_codes` wrote.

        Args:
            saved: What `load_codes` returned. Its model is set to evaluation mode and moved to the device.
            device: The device.

        Raises:
            UserError: A model of other data than sentences, or an unknown vocabulary.
        """
        decoder = saved.model.decoder
        if not isinstance(decoder, SentenceDecoder):
            raise UserError(f"the model is not one of sentences: its decoder is {kind_of(decoder)}")
        if not saved.vocabulary:
            raise UserError(
                "the model has no vocabulary, so sentences cannot be read or written; save it again with "
                "save_codes(…, vocabulary=data.vocabulary.words)"
            )
        return cls(saved.model.to(device).eval(), Vocabulary(tuple(saved.vocabulary), decoder.longest))

    @torch.no_grad()
    def encode(self, sentences: Sequence[str]) -> GaussianCode:
        """Compute the distributions q(z|x) of the codes of sentences.

        Args:
            sentences: The sentences.

        Raises:
            UserError: A sentence without words or with too many, or words that are not in the vocabulary.
        """
        pieces = [self.model.encode(x) for x in self._tokens(sentences).split(_PIECE)]
        return GaussianCode(*map(torch.cat, zip(*pieces, strict=True)))

    @torch.no_grad()
    def draw_codes(self, sentences: Sequence[str], count: int, seed: int = 0) -> Float[Tensor, "sentence code latent"]:
        """Draw codes of sentences from the encoder, with its resampling if it has one.

        Args:
            sentences: The sentences.
            count: Number of codes of each.
            seed: Seed; the codes of a sentence depend on its index besides, and not on other sentences.

        Raises:
            UserError: As for `encode`.
        """
        x = self._tokens(sentences)
        steps, competing, latent = _PURPOSES * torch.arange(len(x)), self.model.resamples, self.model.latent
        noise = normal(seed, Stream.DECODING, steps + _CODE, count * competing * latent)
        choice = uniform(seed, Stream.DECODING, steps + _CHOICE, count).flatten()
        repeated = x.repeat_interleave(count, 0)
        drawn = [
            self.model.draw_codes(each, self._like_weights(codes.transpose(0, 1)), self._like_weights(chosen))
            for each, codes, chosen in zip(
                repeated.split(_PIECE),
                noise.reshape(-1, competing, latent).split(_PIECE),
                choice.split(_PIECE),
                strict=True,
            )
        ]
        return torch.cat(drawn).view(len(x), count, latent)

    def draw_prior(self, count: int, seed: int = 0) -> Float[Tensor, "code latent"]:
        """Draw codes from the standard normal prior.

        Args:
            count: Number of codes.
            seed: Seed.
        """
        steps = _PURPOSES * torch.arange(count) + _CODE
        return self._like_weights(normal(seed, Stream.DECODING, steps, self.model.latent))

    @torch.no_grad()
    def write(
        self, z: Float[Tensor, "code latent"], *, draw_words: bool = False, seed: int = 0
    ) -> Int[Tensor, "code place"]:
        """Decode codes to tokens, on the CPU.

        Args:
            z: The codes.
            draw_words: Whether each word is drawn by its probability given the words before it, instead of taking the
                most probable one.
            seed: Seed of the draws; the words of a code depend on its index besides.
        """
        decoder = cast(SentenceDecoder, self.model.decoder)
        if not draw_words:
            return torch.cat([decoder.most_likely(piece).cpu() for piece in z.split(_PIECE)])
        steps = _PURPOSES * torch.arange(len(z)) + _WORDS
        noise = self._like_weights(uniform(seed, Stream.DECODING, steps, decoder.longest + 1))
        pieces = zip(z.split(_PIECE), noise.split(_PIECE), strict=True)
        return torch.cat([decoder.generate(*piece).cpu() for piece in pieces])

    def decode(self, z: Float[Tensor, "code latent"], *, draw_words: bool = False, seed: int = 0) -> list[str]:
        """Decode codes to sentences.

        Args:
            z: The codes.
            draw_words: As for `write`.
            seed: As for `write`.
        """
        return self.vocabulary.decode(self.write(z, draw_words=draw_words, seed=seed))

    def _tokens(self, sentences: Sequence[str]) -> Int[Tensor, "sentence place"]:
        return self.vocabulary.encode(sentences).to(next(self.model.parameters()).device)

    def _like_weights(self, noise: Tensor) -> Tensor:
        """Random numbers on the device of the model and with its precision."""
        return noise.to(next(self.model.parameters()))
