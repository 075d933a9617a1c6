"""Sentences that a model decodes: reconstructions, paths between two, and draws from the prior (`us.predict`)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from understudy._devices import resolve_device
from understudy._errors import UserError, kind_of
from understudy._memory import require_size
from understudy.data.text.tokens import tokenise
from understudy.lab.exit_times import require_counts
from understudy.lab.sentence_model import SentenceModel
from understudy.measures.reconstruction import reconstruction
from understudy.nets.latent.files import SavedCodes
from understudy.nets.latent.likelihoods import END

_ROW_BYTES = 150
"""Bytes that a decoded sentence takes at least, beside its code and its tokens."""


class DecodedSentence(NamedTuple):
    """A sentence that a model decodes from a code.

    Attributes:
        decoded: The sentence; empty if the model ends it at once.
        given: The sentence whose code it is, as the model reads it; None between two sentences and for the prior.
        kl: KL divergence of q(z|given) from the prior, in nats.
        words: Number of words of the given sentence.
        matching: Number of these that the decoded sentence has at the same place.
        share: Place on the path from one sentence to another, from 0 to 1.
    """

    decoded: str
    given: str | None = None
    kl: float | None = None
    words: int | None = None
    matching: int | None = None
    share: float | None = None


@dataclass(frozen=True, eq=False)
class DecodedSentences:
    """Sentences that a model decodes.

    Attributes:
        rows: The sentences.
        codes: The code of each.
        how: How codes and words were chosen.
        facts: What the file states about the model.
        device: Device on which the model was evaluated.
        notes: What was assumed.
    """

    rows: tuple[DecodedSentence, ...]
    codes: Float[Tensor, "row latent"]
    how: str
    facts: dict[str, Any]
    device: str
    notes: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """Plain values, as `understudy predict --json` prints them."""
        rows = [
            {name: value for name, value in row._asdict().items() if value is not None} | {"code": code}
            for row, code in zip(self.rows, self.codes.tolist(), strict=True)
        ]
        return {
            "device": self.device,
            "facts": self.facts,
            "sentences": rows,
            "how": self.how,
            "notes": list(self.notes),
        }


def predict_sentences(
    saved: SavedCodes,
    sentences: Any,
    *,
    sample: int | None = None,
    interpolate: int | None = None,
    prior: int | None = None,
    draw_words: bool = False,
    seed: int = 0,
    device: torch.device | str = "auto",
) -> DecodedSentences:
    """Encode sentences and decode their codes, go from one sentence to another, or decode draws from the prior.

    Args:
        saved: What `load_codes` returned.
        sentences: A sentence or several; none with `prior`.
        sample: As for `us.predict`.
        interpolate: As for `us.predict`.
        prior: As for `us.predict`.
        draw_words: As for `us.predict`.
        seed: As for `us.predict`.
        device: auto (a CUDA GPU if there is one), cpu or cuda.

    Raises:
        UserError: As for `us.predict`.
    """
    _require_options(sample=sample, interpolate=interpolate, prior=prior)
    if type(seed) is not int or not 0 <= seed < 2**63:
        raise UserError(f"must be a whole number between 0 and 2^63 − 1, got {seed!r}", "seed")
    where = resolve_device(device)
    coder = SentenceModel.of(saved, where)
    texts = _read_texts(sentences, coder, prior, interpolate)
    row = _ROW_BYTES + 8 * (saved.model.latent + coder.vocabulary.longest)
    for name, count, times in (("sample", sample, len(texts)), ("interpolate", interpolate, 1), ("prior", prior, 1)):
        if count is not None:
            require_size(name, count, row * times)
    if prior is not None:
        how = f"drawn from the prior, seed {seed}"
        chosen = _Chosen([DecodedSentence("")] * prior, coder.draw_prior(prior, seed), how)
    elif interpolate is not None:
        chosen = _interpolate(coder, texts, interpolate)
    else:
        chosen = _encode(coder, texts, sample, seed)
    tokens = coder.write(chosen.codes, draw_words=draw_words, seed=seed)
    decoded = zip(chosen.rows, coder.vocabulary.decode(tokens), strict=True)
    rows = [row._replace(decoded=text) for row, text in decoded]
    if prior is None and interpolate is None:
        found = reconstruction(coder.vocabulary.encode([str(row.given) for row in rows]), tokens)
        counts = zip(rows, found.words.tolist(), found.matching.tolist(), strict=True)
        rows = [row._replace(words=words, matching=matching) for row, words, matching in counts]
    by = f"drawn by their probabilities, seed {seed}" if draw_words else "the most probable one after those before it"
    how = f"Codes: {chosen.how}. Words: {by}."
    return DecodedSentences(
        tuple(rows), chosen.codes.cpu(), how, dict(saved.facts), where.type, _notes(saved, tokens, texts, sample)
    )


class _Chosen(NamedTuple):
    """Codes to decode, with what is known about each, and how they were chosen."""

    rows: list[DecodedSentence]
    codes: Float[Tensor, "row latent"]
    how: str


def _encode(coder: SentenceModel, texts: list[str], sample: int | None, seed: int) -> _Chosen:
    found = coder.encode(texts)
    divergences = found.divergence().sum(1).tolist()
    given = [DecodedSentence("", _plain(text), kl) for text, kl in zip(texts, divergences, strict=True)]
    if sample is None:
        return _Chosen(given, found.mean, "means of q(z|x)")
    codes = coder.draw_codes(texts, sample, seed).flatten(0, 1)
    return _Chosen([row for row in given for _ in range(sample)], codes, f"drawn from q(z|x), seed {seed}")


def _interpolate(coder: SentenceModel, texts: list[str], steps: int) -> _Chosen:
    start, end = coder.encode(texts).mean
    shares = [step / steps for step in range(steps + 1)]
    rows = [DecodedSentence("", share=share) for share in shares]
    first, last = (f"“{_plain(text)}”" for text in texts)
    how = f"{steps} equal steps from the mean of q(z|x) of {first} to that of {last}"
    return _Chosen(rows, torch.stack([torch.lerp(start, end, share) for share in shares]), how)


def _require_options(**counts: int | None) -> None:
    """Raise a `UserError` unless at most one of the options is given, as a whole number of at least 1."""
    given = {name: count for name, count in counts.items() if count is not None}
    require_counts(**given)
    if len(given) > 1:
        first, second = [*given][:2]
        raise UserError(f"cannot be given together with {second}; choose one", first)


def _read_texts(given: Any, coder: SentenceModel, prior: int | None, interpolate: int | None) -> list[str]:
    """The sentences, or a `UserError` if they are none that the model knows."""
    texts = [given] if isinstance(given, str) else [*given] if isinstance(given, Sequence) else None
    if texts is None or not all(isinstance(each, str) for each in texts):
        got = kind_of(given) if texts is None else next(kind_of(each) for each in texts if not isinstance(each, str))
        raise UserError(
            f"the model reads sentences, as text, but got {got}; images are for networks with several exits"
        )
    if prior is not None and texts:
        raise UserError(f"decodes draws from the prior, but sentences were given ({texts[0]!r}); omit one", "prior")
    if interpolate is not None and len(texts) != 2:
        raise UserError(f"needs two sentences, each in quotes, got {len(texts)}", "interpolate")
    if prior is None and not texts:
        raise UserError(
            "no sentences were given; type some, each in quotes, or decode draws from the prior: --prior (in Python "
            "prior=…)"
        )
    for each in texts:
        if os.path.exists(each) and not coder.vocabulary.has(tokenise(each)):
            raise UserError(f"{each}: this is a file, but the model reads sentences; type some, each in quotes")
    try:
        coder.vocabulary.encode(texts)
    except UserError as error:
        raise UserError(str(error)) from None  # `sentences` is no option of the command
    return texts


def _plain(text: str) -> str:
    """A sentence as the model reads it."""
    return " ".join(tokenise(text))


def _notes(saved: SavedCodes, tokens: Tensor, texts: Sequence[str], sample: int | None) -> tuple[str, ...]:
    notes = []
    if saved.model.resamples > 1 and texts:
        what = "KL divergences are" if sample is not None else "means and KL divergences are"
        notes.append(
            f"the encoder draws {saved.model.resamples} codes and chooses one by importance weights; {what} those of "
            "the distribution before this choice"
        )
    if len(texts) > 1 and all(len(tokenise(text)) == 1 for text in texts):
        notes.append(f"each of the {len(texts):,} words was read as a sentence; put sentences in quotes")
    if endless := int((tokens != END).all(1).sum()):
        notes.append(f"{endless:,} of {len(tokens):,} decoded sentences were cut off after {tokens.shape[1]} words")
    return tuple(notes)
