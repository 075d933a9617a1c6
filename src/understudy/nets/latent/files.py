"""Files of models with a latent code: weights as safetensors, with the architecture in the metadata."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import nn

from understudy._errors import UserError, kind_of
from understudy.nets.files.described import DescribedFile
from understudy.nets.files.io import existing_file
from understudy.nets.latent.layers import MLP, Table
from understudy.nets.latent.likelihoods import LIKELIHOODS, GaussianLikelihood, Likelihood
from understudy.nets.latent.model import LatentModel
from understudy.nets.latent.sentences import SentenceDecoder, SentenceEncoder

CODES = DescribedFile("understudy-codes", 1, "a model with a latent code", "model", "save_codes")
"""The kind of file."""
_KINDS: dict[str, type[nn.Module]] = {each.__name__: each for each in (SentenceEncoder, SentenceDecoder, MLP, Table)}
_PARTS = ("encoder", "decoder", "infer")


@dataclass(frozen=True, eq=False)
class SavedCodes:
    """A model with a latent code, and what is known about it.

    Args:
        model: The model.
        vocabulary: The words of a model of sentences in the order of their tokens, which count from 1; empty for other
            models, or if it is not known.
        facts: What else is known, by name, such as the target of the information and the seed.

    Raises:
        UserError: Something else than a model, a vocabulary of another length than the model has tokens or with words
            that occur twice, are empty or have spaces, or facts that JSON cannot represent.
    """

    model: LatentModel
    vocabulary: Sequence[str] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.model, LatentModel):
            raise UserError(
                f"must be a LatentModel, such as a MutualAutoencoder, got {kind_of(self.model)}; put its modules into "
                "one",
                "model",
            )
        words = self.vocabulary
        if isinstance(words, str) or not isinstance(words, Sequence) or not all(isinstance(w, str) for w in words):
            raise UserError(f"must be a list of words, got {kind_of(words)}", "vocabulary")
        object.__setattr__(self, "vocabulary", tuple(words))
        if words:
            decoder = self.model.decoder
            if not isinstance(decoder, SentenceDecoder):
                raise UserError(f"is for a SentenceDecoder, but the decoder is {kind_of(decoder)}", "vocabulary")
            if len(words) != (count := decoder.settings["words"] - 1):
                raise UserError(f"must have the {count:,} words of the decoder, got {len(words):,}", "vocabulary")
            if wrong := [each for each in words if each.split() != [each]]:
                raise UserError(f"must be words without spaces, got {wrong[0]!r}", "vocabulary")
            if len(set(words)) < len(words):
                twice = next(each for each, times in Counter(words).items() if times > 1)
                raise UserError(f"must be different words, got {twice!r} twice", "vocabulary")
        try:
            facts = json.loads(json.dumps(dict(self.facts), allow_nan=False))
        except (TypeError, ValueError, RecursionError) as error:
            raise UserError(
                f"must be finite numbers, texts, or lists and dicts of them by name ({error})", "facts"
            ) from None
        object.__setattr__(self, "facts", facts)


def save_codes(
    model: LatentModel,
    path: str | os.PathLike[str],
    *,
    vocabulary: Sequence[str] = (),
    facts: Mapping[str, Any] | None = None,
) -> None:
    """Save a model with a latent code as safetensors; the file appears complete or not at all.

    Args:
        model: The model; its modules must be `SentenceEncoder`, `SentenceDecoder`, `MLP` or `Table`.
        path: File to write; its directory must exist.
        vocabulary: The words of a model of sentences in the order of their tokens, which count from 1, as in
            `us.data.Sentences(…).vocabulary.words`.
        facts: What else is known, by name, such as the target of the information and the seed.

    Raises:
        UserError: Other modules or some that do not fit each other, a model whose likelihood is not known yet, a
            vocabulary or facts that do not fit, or a path that cannot be written.
    """
    saved = SavedCodes(model, vocabulary, {} if facts is None else facts)
    likelihood = _describe_likelihood(model.likelihood)
    parts = {name: getattr(model, name) for name in _PARTS}
    for name, part in parts.items():
        if part is not None and _KINDS.get(type(part).__name__) is not type(part):
            raise UserError(
                f"must be one of {', '.join(_KINDS)} to be saved with its architecture, got {kind_of(part)}; save the "
                "state dict of the model instead",
                name,
            )
    _prepare(model)
    description = {
        "parts": {
            name: part and {"kind": type(part).__name__, "settings": part.settings} for name, part in parts.items()
        },
        "likelihood": likelihood,
        "latent": model.latent,
        "resamples": model.resamples,
        "vocabulary": saved.vocabulary,
        "facts": saved.facts,
    }
    CODES.write(path, model, description)


def load_codes(path: str | os.PathLike[str]) -> SavedCodes:
    """Load a model that `save_codes` saved.

    Args:
        path: The file.

    Returns:
        The model in evaluation mode on the CPU, with what the file states about it. A `MutualAutoencoder` comes back as
        a `LatentModel`, without its objective.

    Raises:
        UserError: Another file, a truncated or damaged one, or weights that do not match the architecture or are not
            finite.
    """
    file = existing_file(path, CODES.needed)
    stated = CODES.read(file)
    CODES.require_layers(file, _longest(stated.get("parts")))
    try:
        with torch.device("meta"):
            model = _build(stated)
    except Exception as error:  # metadata may have values of any kind
        raise UserError(f"{file}: its architecture cannot be read ({_reason(error)}); {CODES.again}") from None
    CODES.fill(file, model)
    try:
        _prepare(model)
        return SavedCodes(model.eval(), stated.get("vocabulary", ()), stated.get("facts", {}))
    except Exception as error:  # modules that do not fit each other fail in many ways
        raise UserError(f"{file}: its metadata are damaged ({_reason(error)}); {CODES.again}") from None


def _longest(value: object) -> int:
    """Length of the longest list among nested values."""
    if isinstance(value, dict):
        return max(map(_longest, value.values()), default=0)
    return len(value) if isinstance(value, list) else 0


def _build(stated: Mapping[str, Any]) -> LatentModel:
    """The model of an architecture; any exception means that the metadata are damaged."""
    modules = {name: stated["parts"][name] for name in _PARTS}
    built = {name: part and _KINDS[part["kind"]](**part["settings"]) for name, part in modules.items()}
    options = dict(stated["likelihood"])
    likelihood = LIKELIHOODS[options.pop("name")](**options)
    return LatentModel(**built, likelihood=likelihood, latent=stated["latent"], resamples=stated["resamples"])


def _prepare(model: LatentModel) -> None:
    """Raise an exception unless the modules fit each other."""
    if isinstance(model.encoder, SentenceDecoder):
        raise UserError("must read data, but a SentenceDecoder reads codes", "encoder")
    model.prepare(cast(Any, model.encoder).example())


def _describe_likelihood(likelihood: Likelihood) -> dict[str, Any]:
    if type(likelihood) is not LIKELIHOODS.get(likelihood.name):
        raise UserError(
            f"must be one of {', '.join(LIKELIHOODS)} to be saved, got {kind_of(likelihood)}; save the state dict of "
            "the model instead",
            "likelihood",
        )
    return {"name": likelihood.name} | ({"std": likelihood.std} if isinstance(likelihood, GaussianLikelihood) else {})


def _reason(error: Exception) -> str:
    """An error in one short line, with its kind if it is not one of ours."""
    text = " ".join(str(error).split())[:120]
    return text if isinstance(error, UserError) else f"{type(error).__name__}: {text}"
