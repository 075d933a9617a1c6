"""`us.predict`: classes of images by a network with several exits, or reconstructions of sentences by their codes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, overload

import torch
from torch import nn

from understudy._errors import UserError
from understudy.lab.exit_times import ExitModule, as_saved
from understudy.lab.predict_classes import AnytimeStep, Predictions, predict_anytime, predict_classes
from understudy.lab.predict_sentences import DecodedSentences, predict_sentences
from understudy.nets.files.described import find_kind
from understudy.nets.latent.files import CODES, SavedCodes, load_codes
from understudy.nets.latent.model import LatentModel
from understudy.nets.multi_exit.files import EXITS, SavedExits, load_exits

ModelPath = str | os.PathLike[str]

EXIT_OPTIONS: dict[str, Any] = {"budget_ms": None, "anytime": False, "repeats": 20}
"""Options for networks with several exits, with their defaults."""
SENTENCE_OPTIONS: dict[str, Any] = {
    "sample": None,
    "interpolate": None,
    "prior": None,
    "draw_words": False,
    "seed": 0,
}
"""Options for models of sentences, with their defaults."""


@overload
def predict(
    model: ExitModule | SavedExits,
    inputs: Any,
    *,
    budget_ms: float | None = None,
    anytime: Literal[False] = False,
    repeats: int = 20,
    device: torch.device | str = "auto",
) -> Predictions: ...


@overload
def predict(
    model: ExitModule | SavedExits | ModelPath,
    inputs: Any,
    *,
    budget_ms: float | None = None,
    anytime: Literal[True],
    repeats: int = 20,
    device: torch.device | str = "auto",
) -> Iterator[AnytimeStep]: ...


@overload
def predict(
    model: SavedCodes,
    inputs: str | Sequence[str] = (),
    *,
    sample: int | None = None,
    interpolate: int | None = None,
    prior: int | None = None,
    draw_words: bool = False,
    seed: int = 0,
    device: torch.device | str = "auto",
) -> DecodedSentences: ...


@overload
def predict(
    model: ModelPath,
    inputs: Any = (),
    *,
    budget_ms: float | None = None,
    anytime: Literal[False] = False,
    repeats: int = 20,
    sample: int | None = None,
    interpolate: int | None = None,
    prior: int | None = None,
    draw_words: bool = False,
    seed: int = 0,
    device: torch.device | str = "auto",
) -> Predictions | DecodedSentences: ...


def predict(
    model: Any,
    inputs: Any = (),
    *,
    budget_ms: float | None = None,
    anytime: bool = False,
    repeats: int = 20,
    sample: int | None = None,
    interpolate: int | None = None,
    prior: int | None = None,
    draw_words: bool = False,
    seed: int = 0,
    device: torch.device | str = "auto",
) -> Predictions | Iterator[AnytimeStep] | DecodedSentences:
    """Predict with a saved model: the classes of images by a network with several exits, or sentences by their codes.

    Images are classified within a time budget, or as well as is possible until the caller stops (Phuong 2021, ch. 6).
    With a budget, the time of each exit on one image is measured on this machine, and each image is classified by the
    exit with the best validation accuracy among those whose median time fits. If validation accuracies are not known,
    it is the latest of these, which `notes` then state.

    Sentences are encoded, and their codes are decoded (Phuong 2021, ch. 4): without options the mean of q(z|x), word by
    word the most probable one.

    Args:
        model: A file that `save_exits` or `save_codes` wrote, an `MSDNet`, or what `us.exits`, `load_exits` or
            `load_codes` returned. The network is set to evaluation mode and moved to the device.
        inputs: Images: a tensor, an array, a file (.npy, .npz, .safetensors, .pt, .png, .jpg), a folder of PNG and JPEG
            files, or a sequence of such files. uint8 from 0 to 255 is normalised by the moments of the file, or divided
            by 255 if it has none; floating point must be normalised already. Or sentences: one as text, or several.
        budget_ms: Images: time for one image in ms; with `anytime` the deadline for all given images together. Default:
            no limit.
        anytime: Images: whether to return a generator, which computes one exit of all images after the other and can be
            stopped at any moment.
        repeats: Images: number of runs by which the time of exits is measured, if there is a budget.
        sample: Sentences: number of codes to draw from q(z|x) and decode for each sentence, instead of its mean.
        interpolate: Sentences: number of equal steps from the mean of the first of two sentences to that of the second,
            at each of which a sentence is decoded, and at both ends.
        prior: Number of codes to draw from the prior and decode; there are no `inputs` then.
        draw_words: Sentences: whether each word is drawn by its probability, instead of taking the most probable one.
        seed: Sentences: seed of the draws.
        device: auto (a CUDA GPU if there is one), cpu or cuda.

    Returns:
        For images the predictions; with `anytime` a generator that yields (exit, probabilities, ms) after each exit,
        where probabilities are the mean of those of this exit and all before it. For sentences the decoded ones.

    Raises:
        UserError: A file that cannot be read, images for a model of sentences or the reverse, options of the other kind
            of model, images of another size or channel count, a budget below the time of the first exit (the message
            states that time), sentences with unknown words or too many, or a number out of range.
    """
    saved = _as_saved(model)
    for_exits: dict[str, Any] = {"budget_ms": budget_ms, "anytime": anytime, "repeats": repeats}
    for_sentences: dict[str, Any] = {
        "sample": sample,
        "interpolate": interpolate,
        "prior": prior,
        "draw_words": draw_words,
        "seed": seed,
    }
    require_fitting(saved, for_exits | for_sentences)
    if isinstance(saved, SavedCodes):
        return predict_sentences(saved, inputs, **for_sentences, device=device)
    call = predict_anytime if anytime else predict_classes
    return call(saved, inputs, budget_ms=budget_ms, repeats=repeats, device=device)


def load_predictor(path: ModelPath, module: nn.Module | None = None) -> SavedExits | SavedCodes:
    """Load a model that `save_exits` or `save_codes` wrote.

    Args:
        path: The file.
        module: What `us.exits` returned for a module of your own, whose file contains only weights.

    Raises:
        UserError: Another file, a damaged one, or a module that is missing or not needed.
    """
    if find_kind(path, [EXITS, CODES]) is EXITS:
        return load_exits(path, module)
    if module is not None:
        raise UserError(f"{path}: the file records its own architecture; omit the module (--model)")
    return load_codes(path)


def require_fitting(saved: SavedExits | SavedCodes, options: Mapping[str, Any]) -> None:
    """Raise a `UserError` if options are given that are for the other kind of model.

    Args:
        saved: The model.
        options: Options of `predict` by name; those with their default values are not given.
    """
    if isinstance(saved, SavedCodes):
        others, wanted, this = EXIT_OPTIONS, "networks with several exits", "a model with a latent code"
    else:
        others, wanted, this = SENTENCE_OPTIONS, "models of sentences", "a network with several exits"
    for name, default in others.items():
        if options[name] != default:
            raise UserError(f"is for {wanted}, but this is {this}; omit it", name)


def _as_saved(model: Any) -> SavedExits | SavedCodes:
    if isinstance(model, SavedCodes):
        return model
    if isinstance(model, str | os.PathLike):
        return load_predictor(model)
    if isinstance(model, LatentModel):
        raise UserError(
            "has no vocabulary; give a file that save_codes wrote, or SavedCodes(model, vocabulary)", "model"
        )
    return as_saved(model)
