"""Classes of images by the best exit that fits a time budget, or by one exit after the other (`us.predict`)."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from understudy._devices import resolve_device
from understudy._errors import UserError, kind_of
from understudy._numbers import number
from understudy.data.image_files import GivenImages, read_images
from understudy.data.images.normalisation import normalise
from understudy.lab.exit_times import (
    ExitModule,
    Model,
    Timing,
    as_saved,
    require_counts,
    time_alone,
    time_in_turn,
    wait,
)
from understudy.nets.multi_exit.files import SavedExits


class AnytimeStep(NamedTuple):
    """Prediction after an exit.

    Attributes:
        exit: The exit, counted from 1.
        probabilities: Mean of the class probabilities of this exit and all before it.
        ms: Time since the first exit was asked for, in ms.
    """

    exit: int
    probabilities: Float[Tensor, "image class"]
    ms: float


class Prediction(NamedTuple):
    """Predicted class of an image.

    Attributes:
        label: Index of the class.
        exit: The exit that predicts it, counted from 1.
        ms: Time that the prediction took, in ms.
        confidence: Probability of the class.
    """

    label: int
    exit: int
    ms: float
    confidence: float


@dataclass(frozen=True)
class Predictions:
    """Predicted classes of images.

    Attributes:
        images: Name of each image.
        rows: Prediction of each image.
        steps: Predictions of each image after one exit and the next; empty unless they were asked for.
        exit_names: Where the network has its exits.
        class_names: Name of each class; empty if they are not known.
        validation: Validation accuracy of each exit; empty if it is not known.
        times: Measured time of each exit; empty where none was needed.
        device: Device on which the network was evaluated.
        notes: What was assumed.
    """

    images: tuple[str, ...]
    rows: tuple[Prediction, ...]
    steps: tuple[tuple[Prediction, ...], ...]
    exit_names: tuple[str, ...]
    class_names: tuple[str, ...]
    validation: tuple[float, ...]
    times: tuple[Timing, ...]
    device: str
    notes: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """Plain values, as `understudy predict --json` prints them."""
        exits = [
            {
                "exit": m + 1,
                "at": name,
                "ms": time and time.median,
                "ms_mean": time and time.mean,
                "ms_std": time and time.std,
                "validation": self.validation[m] if self.validation else None,
            }
            for m, name in enumerate(self.exit_names)
            for time in [self.times[m] if self.times else None]
        ]
        images = [{"image": name} | self._entry(row) for name, row in zip(self.images, self.rows, strict=True)]
        for entry, steps in zip(images, self.steps, strict=False):
            entry["exits"] = [self._entry(step) for step in steps]
        return {"device": self.device, "exits": exits, "images": images, "notes": list(self.notes)}

    def _entry(self, row: Prediction) -> dict[str, Any]:
        named = {"name": self.class_names[row.label]} if self.class_names else {}
        return {"class": row.label, **named, "exit": row.exit, "ms": row.ms, "confidence": row.confidence}


def predict_classes(
    model: Model,
    images: Any,
    *,
    budget_ms: float | None = None,
    repeats: int = 20,
    device: torch.device | str = "auto",
) -> Predictions:
    """Predict the classes of images by the best exit that fits a time budget; see `us.predict`.

    Args:
        model: A file that `save_exits` wrote, an `MSDNet`, or what `us.exits` or `load_exits` returned.
        images: A tensor, an array, a file (.npy, .npz, .safetensors, .pt, .png, .jpg), a folder of PNG and JPEG files,
            or a sequence of such files.
        budget_ms: Time for one image in ms. Default: no limit.
        repeats: Number of runs by which the time of exits is measured, if there is a budget.
        device: auto (a CUDA GPU if there is one), cpu or cuda.

    Raises:
        UserError: As for `us.predict`.
    """
    given = _prepare(model, images, budget_ms, repeats, device)
    times = () if budget_ms is None else time_alone(given.network, given.x[:1], repeats)
    exit, note = _best(_fitting(times, budget_ms, given), given.saved.validation, budget_ms)
    _predict_alone(given.network, given.x[0], exit)  # the first run takes longer than others
    rows = [_predict_alone(given.network, x, exit) for x in given.x]
    return given.predictions(rows, (), times, note)


def predict_anytime(
    model: Model,
    images: Any,
    *,
    budget_ms: float | None = None,
    repeats: int = 20,
    device: torch.device | str = "auto",
) -> Iterator[AnytimeStep]:
    """Return a generator that computes one exit of all images after the other; see `us.predict`.

    Args:
        model: As for `predict_classes`.
        images: As for `predict_classes`.
        budget_ms: Deadline for all images together in ms. Default: none.
        repeats: Number of runs by which the time of exits is measured, if there is a deadline.
        device: auto (a CUDA GPU if there is one), cpu or cuda.

    Raises:
        UserError: As for `us.predict`, at the call and not at the first step.
    """
    given = _prepare(model, images, budget_ms, repeats, device)
    times = () if budget_ms is None else time_in_turn(given.network, given.x, repeats)
    return _iterate(given.network, given.x, budget_ms, _fitting(times, budget_ms, given)[-1])


def predict_in_turn(
    model: Model,
    images: Any,
    *,
    budget_ms: float | None = None,
    repeats: int = 20,
    device: torch.device | str = "auto",
) -> Predictions:
    """Predict the class of one image after the other, each by the running mean of its exits until a deadline.

    Args:
        model: As for `us.predict`.
        images: As for `us.predict`.
        budget_ms: Deadline for each image in ms. Default: none, so that all exits are computed.
        repeats: Number of runs by which the time of exits is measured.
        device: auto (a CUDA GPU if there is one), cpu or cuda.

    Returns:
        The predictions of each image after every exit; `rows` has the last ones.

    Raises:
        UserError: As for `us.predict`.
    """
    given = _prepare(model, images, budget_ms, repeats, device)
    times = () if budget_ms is None else time_in_turn(given.network, given.x[:1], repeats)
    last = _fitting(times, budget_ms, given)[-1]
    list(_iterate(given.network, given.x[:1], None, last))  # the first run takes longer than others
    steps = []
    for x in given.x:
        found = _iterate(given.network, x[None], budget_ms, last)
        steps.append(tuple(_decide(step.probabilities, step.exit, step.ms) for step in found))
    return given.predictions([each[-1] for each in steps], steps, times)


class _Given(NamedTuple):
    """A network with the images that it is to classify, on one device."""

    saved: SavedExits
    network: ExitModule
    x: Tensor
    names: list[str]
    notes: tuple[str, ...]

    def predictions(
        self,
        rows: Sequence[Prediction],
        steps: Sequence[tuple[Prediction, ...]],
        times: Sequence[Timing],
        note: str = "",
    ) -> Predictions:
        return Predictions(
            tuple(self.names),
            tuple(rows),
            tuple(steps),
            self.network.exit_names,
            tuple(self.saved.class_names),
            tuple(self.saved.validation),
            tuple(times),
            self.x.device.type,
            (*self.notes, note) if note else self.notes,
        )


def _prepare(model: Model, images: Any, budget_ms: float | None, repeats: int, device: torch.device | str) -> _Given:
    require_counts(repeats=repeats)
    if budget_ms is not None:
        if not isinstance(budget_ms, Real):
            raise UserError(f"must be a time in ms, got {kind_of(budget_ms)}", "budget_ms")
        if not (math.isfinite(budget_ms) and budget_ms > 0):
            raise UserError(f"must be a time above 0 ms, got {number(budget_ms, 'g')}", "budget_ms")
    where = resolve_device(device)
    saved = as_saved(model)
    _reject_sentences(images)
    given = read_images(images, saved.network.image_shape)
    x, notes = _normalised(given, saved)
    network = saved.network.to(where).eval()
    return _Given(saved, network, x.to(where, next(network.parameters()).dtype), given.names, notes)


def _reject_sentences(images: Any) -> None:
    """Raise a `UserError` if texts are given that are no names of image files."""
    texts = [images] if isinstance(images, str) else images if isinstance(images, Sequence) else ()
    for each in texts:
        # A name with a suffix is taken for a file that is missing.
        if isinstance(each, str) and not os.path.exists(each) and (not Path(each).suffix or " " in each):
            raise UserError(
                f"{each!r}: there is no such file, and the network takes images, not sentences; give an array, PNG or "
                "JPEG files, or a folder of them"
            )


def _normalised(given: GivenImages, saved: SavedExits) -> tuple[Tensor, tuple[str, ...]]:
    if given.values.dtype != torch.uint8:
        if saved.mean and bool((given.values >= 0).all()):
            return given.values, (
                "no value is negative: floating-point images must be normalised; give others as uint8",
            )
        return given.values, ()
    if saved.mean:
        return normalise(given.values, saved.mean, saved.std), ()
    note = "images were divided by 255 and not normalised, since no mean and standard deviation are known"
    return given.values.float() / 255, (note,)


def _fitting(times: Sequence[Timing], budget_ms: float | None, given: _Given) -> list[int]:
    """Indices of the exits whose median time is within the budget."""
    if budget_ms is None:
        return list(range(len(given.network.exit_names)))
    fitting = [m for m, time in enumerate(times) if time.median <= budget_ms]
    if not fitting:
        fastest = min(range(len(times)), key=lambda m: times[m].median)
        which = "first exit" if fastest == 0 else f"fastest exit, {given.network.exit_names[fastest]}"
        raise UserError(
            f"must be at least the time of the {which}, {number(times[fastest].median)} ms on this machine "
            f"({given.x.device.type}), got {number(budget_ms, 'g')}",
            "budget_ms",
        )
    return fitting


def _best(fitting: Sequence[int], validation: Sequence[float], budget_ms: float | None) -> tuple[int, str]:
    """Index of the best exit, the earliest of equally good ones, and what was assumed."""
    if validation:
        return max(fitting, key=lambda m: (validation[m], -m)), ""
    latest = "the last exit" if budget_ms is None else "the latest exit that fits the budget"
    return fitting[-1], f"{latest} was used, since no validation accuracies are known"


@torch.no_grad()
def _predict_alone(network: ExitModule, image: Tensor, exit: int) -> Prediction:
    wait(image.device)
    start = perf_counter()
    (logits,) = network.iterate(image[None], only=exit)
    probabilities = logits.softmax(1)
    wait(image.device)
    ms = 1e3 * (perf_counter() - start)
    _require_finite(probabilities, exit)
    return _decide(probabilities, exit + 1, ms)


@torch.no_grad()
def _iterate(network: ExitModule, x: Tensor, budget_ms: float | None, last: int) -> Iterator[AnytimeStep]:
    """Yield the running mean of the exits up to the last; one that ends after the deadline is dropped."""
    total: Tensor | None = None
    wait(x.device)
    start = perf_counter()
    for exit, logits in enumerate(network.iterate(x)):
        probabilities = logits.softmax(1)
        total = probabilities if total is None else total + probabilities
        mean = total / (exit + 1)
        wait(x.device)
        ms = 1e3 * (perf_counter() - start)
        if exit and budget_ms is not None and ms > budget_ms:
            return
        _require_finite(mean, exit)
        yield AnytimeStep(exit + 1, mean, ms)
        if exit == last:
            return


def _require_finite(probabilities: Tensor, exit: int) -> None:
    if not probabilities.isfinite().all():
        raise UserError(
            f"the outputs of exit {exit + 1} are not finite for some image; give normalised images, or a network whose "
            "training did not diverge"
        )


def _decide(probabilities: Float[Tensor, "1 class"], exit: int, ms: float) -> Prediction:
    confidence, label = probabilities[0].max(0)
    return Prediction(int(label), exit, ms, float(confidence))
