"""What an engine that trains networks with several exits is given, and what it returns.

An engine holds a population of networks of one architecture with their weights, momenta, running statistics and
temperatures. `plain` is the reference: each network is a module, differentiated by autograd. `fused` runs all networks
side by side in kernels for a GPU. Both have the constructor

    Engine(grid, seeds, objectives, pictures, *, momentum=0.9, decay=1e-4, device="cpu")

with one seed and one objective per network, and begin with `initial_network(grid, seed)`. What happens to a network
depends on its own seed, objective, batches and rates, not on the others. `plain` trains networks of the user's too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor

from understudy._errors import UserError
from understudy._numbers import number
from understudy.training.multi_exit.architectures import Architecture, ExitModule, image_shape
from understudy.training.multi_exit.objectives import ExitObjective


@dataclass(frozen=True, eq=False)
class ExitImages:
    """Images as they are stored, and the moments that normalise them.

    Attributes:
        pixels: All images of a data set, 0 to 255.
        labels: Class of each.
        mean: Mean of each colour, for values in [0, 1].
        std: Standard deviation of each colour.
        border: Black pixels added on each side before a random crop; the normalisation comes after.
    """

    pixels: UInt8[Tensor, "image colour row column"]
    labels: Int[Tensor, "image"]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    border: int = 4


class Batches(NamedTuple):
    """The batches of an epoch, for each network of a population.

    Attributes:
        index: Which image each row of a batch is.
        shift: Row and column of the padded image at which the crop begins, 0 to 2 · border.
        flip: Whether the row is mirrored left to right.
        labelled: The first `labelled` rows of a batch enter the classification loss.
        distilled: Rows from `distilled` on enter the distillation loss: 0 for all of them, or `labelled` where the
            rows after the labelled ones are drawn from all images (semi-supervised). All rows are one batch for
            BatchNorm.
    """

    index: Int[Tensor, "net step row"]  # type: ignore[assignment]  # the name hides tuple.index
    shift: Int[Tensor, "net step row 2"]
    flip: Bool[Tensor, "net step row"]
    labelled: int
    distilled: int = 0


class EpochMeasurements(NamedTuple):
    """What an engine measured in the steps of an epoch, on the CPU.

    A network whose loss is not finite at some step has diverged there; its later values mean nothing.

    Attributes:
        loss: Objective of each network at each step, before the update.
        confidence: Mean over the distilled rows of the largest class probability of the mean of all teachers, at
            temperature 1; of the last exit where there are no teachers.
        adjusted: The same at the temperature of the step.
        temperature: Temperature after each step.
    """

    loss: Float[Tensor, "net step"]
    confidence: Float[Tensor, "net step"]
    adjusted: Float[Tensor, "net step"]
    temperature: Float[Tensor, "net step"]


@runtime_checkable
class MultiExitEngine(Protocol):
    """A population of networks in training."""

    def train(self, batches: Batches, rates: Sequence[float]) -> EpochMeasurements:
        """Take one step per batch by SGD with Nesterov momentum and weight decay, as `torch.optim.SGD` does.

        Args:
            batches: The batches of each network.
            rates: Learning rate of each network.
        """

    def predict(self, images: Int[Tensor, "net image"]) -> Float[Tensor, "net exit image class"]:
        """Compute logits of images in evaluation mode, normalised and otherwise unchanged, on the CPU in float32.

        Args:
            images: Which images each network is given.
        """

    def state(self) -> dict[str, Tensor]:
        """Return copies of all that the next step depends on, as tensors on the CPU by name."""

    def restore(self, state: dict[str, Tensor]) -> None:
        """Continue from what `state` returned.

        Args:
            state: Tensors by name.
        """

    def modules(self) -> Sequence[ExitModule]:
        """Return copies of the networks as modules in evaluation mode, on the device of the engine."""


def validate(
    grid: Architecture, seeds: Sequence[int], objectives: Sequence[ExitObjective], pictures: ExitImages
) -> None:
    """Raise a `UserError` unless networks, objectives and images fit together.

    Args:
        grid: Architecture of all networks.
        seeds: Seed of each network.
        objectives: Objective of each network.
        pictures: The images.

    Raises:
        UserError: No networks, another number of objectives, an objective for another number of exits or with a limit
            that no temperature can keep, or images of another shape, with labels out of range or with moments that
            cannot normalise them.
    """
    if not seeds:
        raise UserError("must have at least 1 network, got none", "seeds")
    if len(objectives) != len(seeds):
        raise UserError(f"must be one for each of the {len(seeds)} networks, got {len(objectives)}", "objectives")
    for objective in objectives:
        if objective.exits != len(grid.exits):
            raise UserError(
                f"must have a set for each of the {len(grid.exits)} exits of the network, got {objective.exits}",
                "teachers",
            )
        if objective.distils and objective.limit is not None and objective.limit * grid.classes <= 1:
            raise UserError(
                f"must be above {number(1 / grid.classes)}, the confidence of a network that guesses among "
                f"{grid.classes} classes, got {number(objective.limit)}: the temperature would increase without end",
                "limit",
            )
    shape, wanted = tuple(pictures.pixels.shape[1:]), image_shape(grid)
    if shape != wanted:
        raise UserError(f"images must have shape {list(wanted)} for this network, got {list(shape)}")
    if len(pictures.labels) != len(pictures.pixels):
        raise UserError(f"labels must be one for each of {len(pictures.pixels):,} images, got {len(pictures.labels):,}")
    low, high = (int(each) for each in pictures.labels.aminmax())
    if low < 0 or high >= grid.classes:
        wrong = low if low < 0 else high
        raise UserError(f"labels must be classes from 0 to {grid.classes - 1} for this network, got {wrong}")
    for name, each in (("mean", pictures.mean), ("std", pictures.std)):
        if len(each) != wanted[0]:
            raise UserError(f"must have one value for each of {wanted[0]} colours, got {len(each)}", name)
    if not all(each > 0 for each in pictures.std):
        raise UserError(f"must be above 0 for every colour, got {number(min(pictures.std))}", "std")
    if pictures.border < 0:
        raise UserError(f"must be at least 0 pixels, got {pictures.border}", "border")
