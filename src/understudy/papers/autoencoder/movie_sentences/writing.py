"""Sentences that a trained network writes: reconstructions, samples, interpolations (Phuong 2021, tables 4.1, 4.2)."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import torch
from torch import Tensor

from understudy._random import Stream, normal, uniform, words
from understudy.measures.reconstruction import reconstruction
from understudy.nets.latent.model import LatentModel
from understudy.nets.latent.sentences import SentenceDecoder
from understudy.papers.autoencoder.movie_sentences.corpus import Corpus

SHOWN, DRAWN, SAMPLES, PAIRS, BETWEEN = 40, 3, 20, 4, 10
"""Test sentences that are reconstructed, reconstructions drawn of each, samples, pairs, and sentences along a pair."""
_SHORTEST = 4
"""Words that a sentence of a pair has at least, where there are such sentences."""
_NOISE, _CHOICE, _WORDS, _PRIOR, _SAMPLED, _FIRST = range(100, 106)


def write_sentences(corpus: Corpus, model: LatentModel, seed: int) -> pa.Table:
    """Let a network write sentences; the given ones are the same for every network.

    Args:
        corpus: The sentences.
        model: The network.
        seed: Seed of codes and words.

    Returns:
        One row per sentence: `kind` is mean (from the mean of q(z|x), with the most probable words), drawn (a code of
        the encoder, with words drawn from p(x|z)), sample (a code of the prior, likewise) or interpolation (between the
        means of two sentences, with the most probable words); `example` is the number of the given sentence or pair,
        `place` counts the sentences of each, and `matching` words agree with the given sentence at their place.
    """
    test = corpus.tokens["test"]
    order = words(0, Stream.SUBSET, _FIRST, len(test)).argsort(stable=True)
    given = test[order[:SHOWN]].to(model.device)
    decoder = model.decoder
    assert isinstance(decoder, SentenceDecoder)
    rows = _rows(corpus, "mean", given, decoder.most_likely(model.encode(given).mean)[:, None])

    many = given.repeat_interleave(DRAWN, 0)
    noise = _numbers(normal, seed, _NOISE, model.resamples, len(many), model.latent).to(model.device)
    z = model.draw_codes(many, noise, _numbers(uniform, seed, _CHOICE, len(many)).to(model.device))
    drawn = decoder.generate(z, _numbers(uniform, seed, _WORDS, *many.shape).to(model.device))
    rows += _rows(corpus, "drawn", given, drawn.unflatten(0, (-1, DRAWN)))

    z = _numbers(normal, seed, _PRIOR, SAMPLES, model.latent).to(model.device)
    sampled = decoder.generate(z, _numbers(uniform, seed, _SAMPLED, SAMPLES, test.shape[1]).to(model.device))
    rows += _rows(corpus, "sample", None, sampled[None])

    first, last = (model.encode(each.to(model.device)).mean for each in _pairs(test[order]))
    at = torch.linspace(0, 1, BETWEEN, device=model.device)[:, None]
    path = first[:, None] * (1 - at) + last[:, None] * at
    between = decoder.most_likely(path.flatten(0, 1)).unflatten(0, path.shape[:2])
    rows += _rows(corpus, "interpolation", None, between)
    for pair, ends in enumerate(zip(*map(corpus.vocabulary.decode, _pairs(test[order])), strict=True)):
        for row in rows:
            if row["kind"] == "interpolation" and row["example"] == pair:
                row["given"] = " → ".join(ends)
    return pa.Table.from_pylist(rows)


def _pairs(test: Tensor) -> tuple[Tensor, Tensor]:
    """Pairs of sentences that are not too short, if there are enough of them."""
    long = test[(test != 0).sum(1) >= _SHORTEST]
    some = long if len(long) >= 2 else test
    count = max(1, min(PAIRS, len(some) // 2))
    return some[:count], some[-count:].flip(0)


def _rows(corpus: Corpus, kind: str, given: Tensor | None, written: Tensor) -> list[dict[str, Any]]:
    """Rows of sentences [example, place, word]."""
    examples, places, _ = written.shape
    texts = corpus.vocabulary.decode(written.flatten(0, 1).cpu())
    if given is None:
        inputs, matching, exact = [""] * examples, torch.zeros(examples, places), torch.zeros(examples, places)
    else:
        inputs = corpus.vocabulary.decode(given.cpu())
        found = reconstruction(given[:, None].cpu(), written.cpu())
        matching, exact = found.matching, found.exact
    return [
        {
            "kind": kind,
            "example": example,
            "place": place,
            "given": inputs[example],
            "text": texts[example * places + place],
            "matching": int(matching[example, place]),
            "exact": bool(exact[example, place]),
        }
        for example in range(examples)
        for place in range(places)
    ]


def _numbers(make: Any, seed: int, step: int, *shape: int) -> Tensor:
    return make(seed, Stream.EVALUATION, step, math.prod(shape)).float().view(shape)
