"""Encoders and decoders of sentences (Phuong 2021, sec. 4.6.3): LSTMs, with the code fed to the decoder at each word.

All are pure functions of parameters and inputs that `torch.vmap` can apply to stacked parameters.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from understudy.nets.latent.layers import require_sizes
from understudy.nets.latent.likelihoods import END, counted_places, draw_class
from understudy.nets.latent.recurrent import LSTM, open_gates

Tokens = Int[Tensor, "row place"]


class SentenceEncoder(nn.Module):
    """Bidirectional LSTM from the tokens of a sentence to the means and log variances of a code.

    Each direction reads the words and the first token `END`, whatever follows as padding. The last outputs of both
    directions determine the code linearly. Both are computed together, as stacked matrices.

    Args:
        words: Number of tokens, `END` included.
        embedding: Numbers that stand for a word.
        hidden: Nodes of each direction.
        latent: Coordinates of the code.

    Raises:
        UserError: A number below 1.
    """

    def __init__(self, words: int, embedding: int, hidden: int, latent: int) -> None:
        super().__init__()
        require_sizes(words=words, embedding=embedding, hidden=hidden, latent=latent)
        self.embedding = nn.Embedding(words, embedding)
        self.forwards, self.backwards = LSTM(embedding, hidden), LSTM(embedding, hidden)
        self.output = nn.Linear(2 * hidden, 2 * latent)

    @property
    def settings(self) -> dict[str, Any]:
        """Arguments that make a module of this architecture."""
        words, embedding = self.embedding.weight.shape
        return {
            "words": words,
            "embedding": embedding,
            "hidden": self.forwards.hidden,
            "latent": self.output.out_features // 2,
        }

    def example(self) -> Tokens:
        """Two sentences without words."""
        return torch.full((2, 2), END, device=self.embedding.weight.device)

    def forward(self, x: Tokens) -> Float[Tensor, "row parameter"]:
        """Compute means and, after them, log variances of codes.

        Args:
            x: Tokens.
        """
        last = counted_places(x).sum(1) - 1
        places = torch.arange(x.shape[1], device=x.device)
        backwards = x.gather(1, (last[:, None] - places).clamp(min=0))
        both = torch.stack([x.T, backwards.T])  # [direction, place, row]
        layers = self.forwards, self.backwards
        weight_ih, weight_hh, bias = (
            torch.stack([getattr(layer, name) for layer in layers]) for name in ("weight_ih", "weight_hh", "bias")
        )
        projected = self.embedding(both).flatten(1, 2) @ weight_ih.mT + bias.unsqueeze(1)
        projected = projected.unflatten(1, both.shape[1:])
        output = cell = projected.new_zeros(2, len(x), self.forwards.hidden)
        outputs = []
        for place in range(x.shape[1]):
            output, cell = open_gates(projected[:, place] + output @ weight_hh.mT, cell)
            outputs.append(output)
        # Places after the last one that counts are read, too, but their outputs are not used.
        at = last.view(1, 1, -1, 1).expand(1, *output.shape)
        ends = torch.stack(outputs).gather(0, at)[0]
        return self.output(torch.cat([ends[0], ends[1]], -1))


class SentenceDecoder(nn.Module):
    """LSTM that writes a sentence word by word; each word depends on the words before it and on the code.

    The code is fed to the LSTM at every place beside the previous word; before the first word this is `END`.

    Args:
        words: Number of tokens, `END` included.
        embedding: Numbers that stand for a word.
        hidden: Nodes of the LSTM.
        latent: Coordinates of the code.
        longest: Number of words of the longest sentences; their tokens have one place more.

    Raises:
        UserError: A number below 1.
    """

    def __init__(self, words: int, embedding: int, hidden: int, latent: int, longest: int) -> None:
        super().__init__()
        require_sizes(words=words, embedding=embedding, hidden=hidden, latent=latent, longest=longest)
        self.embedding = nn.Embedding(words, embedding)
        self.layer = LSTM(embedding + latent, hidden)
        self.output = nn.Linear(hidden, words)
        self.longest = longest

    @property
    def settings(self) -> dict[str, Any]:
        """Arguments that make a module of this architecture."""
        words, embedding = self.embedding.weight.shape
        return {
            "words": words,
            "embedding": embedding,
            "hidden": self.layer.hidden,
            "latent": self.layer.inputs - embedding,
            "longest": self.longest,
        }

    def forward(self, z: Float[Tensor, "row latent"], x: Tokens) -> Float[Tensor, "row place word"]:
        """Compute the logits of each token given the code and the tokens before it.

        Args:
            z: Codes.
            x: Tokens.
        """
        before = torch.cat([torch.full_like(x[:, :1], END), x[:, :-1]], 1)
        projected = self.layer.project(self.embedding(before)) + self._project(z).unsqueeze(1)
        state, outputs = self.layer.start(z), []
        for place in range(x.shape[1]):
            state = self.layer.step(projected[:, place], state)
            outputs.append(state[0])
        return self.output(torch.stack(outputs, 1))

    def generate(self, z: Float[Tensor, "row latent"], noise: Float[Tensor, "row place"]) -> Tokens:
        """Draw sentences, each word from one uniform number; `END` fills what follows the end.

        Args:
            z: Codes.
            noise: Uniform numbers, one for each place.
        """
        return self._write(z, noise.shape[1], lambda logits, place: draw_class(logits, noise[:, place]))

    def most_likely(self, z: Float[Tensor, "row latent"]) -> Tokens:
        """Write sentences greedily: each word is the most probable one after the words before it.

        Args:
            z: Codes.
        """
        return self._write(z, self.longest + 1, lambda logits, place: logits.argmax(-1))

    def _project(self, z: Float[Tensor, "row latent"]) -> Float[Tensor, "row gate"]:
        """What codes contribute to the gates, at every place alike."""
        return functional.linear(z, self.layer.weight_ih[:, self.embedding.embedding_dim :])

    def _write(self, z: Tensor, places: int, choose: Callable[[Tensor, int], Tensor]) -> Tokens:
        """Choose one word after the other from logits."""
        given, state = self._project(z), self.layer.start(z)
        word = torch.full_like(z[:, 0], END, dtype=torch.int64)
        ended, written = torch.zeros_like(word, dtype=torch.bool), []
        for place in range(places):
            state = self.layer.step(self.layer.project(self.embedding(word)) + given, state)
            word = torch.where(ended, END, choose(self.output(state[0]), place))
            ended = ended | (word == END)
            written.append(word)
        return torch.stack(written, 1)
