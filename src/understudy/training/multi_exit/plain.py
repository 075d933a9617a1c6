"""The reference engine: each network is a module, differentiated by autograd, one network per CPU core."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from understudy._devices import allow_tf32
from understudy.data.images.epoch_batches import crop_batch
from understudy.training.multi_exit.architectures import Architecture, ExitModule, initial_network
from understudy.training.multi_exit.engine import Batches, EpochMeasurements, ExitImages, validate
from understudy.training.multi_exit.objectives import ExitObjective
from understudy.training.parallel import run_parallel

_PIECE = 500
"""Images that are predicted at once."""


class PlainEngine:
    """A population of networks in training, as `MultiExitEngine` describes it.

    Images are padded with black pixels (0), cropped and mirrored as they are stored, and normalised afterwards, so that
    the border has the value −mean/std: as torchvision does by RandomCrop, RandomHorizontalFlip, ToTensor and Normalize
    in this order, and the code released with Phuong & Lampert (2019b). On the CPU the result of a network is the same
    bit for bit with any number of cores and of other networks.

    Args:
        grid: Architecture of all networks.
        seeds: Seed of the initial weights of each network.
        objectives: Objective of each network.
        pictures: The images to which batches refer.
        momentum: Weight of the previous update.
        decay: Weight decay of all parameters that require a gradient.
        device: Where to compute.
        dtype: Precision of weights and computations.

    Raises:
        UserError: Networks, objectives and images that do not fit together.
    """

    def __init__(
        self,
        grid: Architecture,
        seeds: Sequence[int],
        objectives: Sequence[ExitObjective],
        pictures: ExitImages,
        *,
        momentum: float = 0.9,
        decay: float = 1e-4,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        validate(grid, seeds, objectives, pictures)
        self.device, self.dtype = torch.device(device), dtype
        self.pictures = pictures
        self._pixels, self._labels = pictures.pixels.to(self.device), pictures.labels.to(self.device)
        self._networks = [
            _TrainedNetwork(grid, seed, objective, momentum, decay, self.device, dtype)
            for seed, objective in zip(seeds, objectives, strict=True)
        ]

    def train(self, batches: Batches, rates: Sequence[float]) -> EpochMeasurements:
        """Take one step per batch by SGD with Nesterov momentum and weight decay, as `torch.optim.SGD` does.

        A network whose loss is not finite takes no further step, and its later values are NaN.

        Args:
            batches: The batches of each network.
            rates: Learning rate of each network.
        """

        def train(i: int) -> Float[Tensor, "measure step"]:
            network, steps = self._networks[i], batches.index.shape[1]
            measured = torch.full((4, steps), torch.nan)
            for step in range(steps):
                where = batches.index[i, step]
                x = self._images(where, batches.shift[i, step], batches.flip[i, step])
                labels = self._labels[where.to(self.device)]
                measured[:, step] = values = network.step(x, labels, rates[i], batches.labelled, batches.distilled)
                if not values[0].isfinite():
                    break
            return measured

        with allow_tf32(False):
            return EpochMeasurements(*torch.stack(run_parallel(train, range(len(self._networks)), self.device), dim=1))

    def predict(self, images: Int[Tensor, "net image"]) -> Float[Tensor, "net exit image class"]:
        """Compute logits of images in evaluation mode, normalised and otherwise unchanged, on the CPU in float32.

        Args:
            images: Which images each network is given.
        """

        def predict(i: int) -> Float[Tensor, "exit image class"]:
            pieces = [self._networks[i].predict(self._images(piece)) for piece in images[i].split(_PIECE)]
            return torch.cat(pieces, dim=1).float().cpu()

        with allow_tf32(False):
            return torch.stack(run_parallel(predict, range(len(self._networks)), self.device))

    def state(self) -> dict[str, Tensor]:
        """Return copies of all that the next step depends on, as tensors on the CPU by name."""
        return {
            f"{i}.{name}": tensor.detach().cpu().clone()
            for i, network in enumerate(self._networks)
            for name, tensor in network.tensors().items()
        }

    def restore(self, state: dict[str, Tensor]) -> None:
        """Continue from what `state` returned.

        Args:
            state: Tensors by name.
        """
        for i, network in enumerate(self._networks):
            for name, tensor in network.tensors().items():
                tensor.copy_(state[f"{i}.{name}"])

    def modules(self) -> list[ExitModule]:
        """Return copies of the networks as modules in evaluation mode, on the device of the engine."""
        return [network.copy() for network in self._networks]

    def _images(
        self, where: Int[Tensor, "row"], shift: Tensor | None = None, flip: Tensor | None = None
    ) -> Float[Tensor, "row colour height width"]:
        """Crop and normalise images; without a shift they are only normalised."""
        border = self.pictures.border
        shift = torch.full((len(where), 2), border) if shift is None else shift
        flip = torch.zeros(len(where), dtype=torch.bool) if flip is None else flip
        moments = self.pictures.mean, self.pictures.std
        return crop_batch(self._pixels, where, shift, flip, *moments, border).to(self.dtype)


class _TrainedNetwork:
    """A network with its momentum and temperature.

    All parameters that require a gradient are parts of one vector, which a step updates at once.
    """

    def __init__(
        self,
        grid: Architecture,
        seed: int,
        objective: ExitObjective,
        momentum: float,
        decay: float,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        self.objective, self._momentum, self._decay = objective, momentum, decay
        self.module = initial_network(grid, seed)
        self.module.to(device, dtype).train()
        parameters = [each for each in self.module.parameters() if each.requires_grad]
        self._vector = torch.cat([each.detach().flatten() for each in parameters])
        self._gradient, self._velocity = torch.zeros_like(self._vector), torch.zeros_like(self._vector)
        self._temperature = torch.tensor(objective.temperature, dtype=torch.float64)
        sizes = [each.numel() for each in parameters]
        parts = zip(parameters, self._vector.split(sizes), self._gradient.split(sizes), strict=True)
        for parameter, values, gradient in parts:
            parameter.data, parameter.grad = values.view(parameter.shape), gradient.view(parameter.shape)

    def step(
        self, x: Tensor, labels: Int[Tensor, "row"], rate: float, labelled: int, distilled: int
    ) -> Float[Tensor, "measure"]:
        """Take one step, unless the loss is not finite; return what `EpochMeasurements` has, in its order."""
        temperature = float(self._temperature)
        logits = self.module(x)
        loss = self.objective.loss(logits, labels, temperature, labelled=labelled, distilled=distilled)
        confidence, adjusted = (self.objective.confidence(logits[:, distilled:], tau) for tau in (1.0, temperature))
        if loss.isfinite():
            loss.backward()
            self._update(rate)
            self._temperature.fill_(self.objective.anneal(temperature, float(adjusted)))
        return torch.tensor([float(loss.detach()), float(confidence), float(adjusted), float(self._temperature)])

    @torch.no_grad()
    def predict(self, x: Tensor) -> Float[Tensor, "exit row class"]:
        """Logits in evaluation mode."""
        self.module.eval()
        logits = self.module(x)
        self.module.train()
        return logits

    def tensors(self) -> dict[str, Tensor]:
        """What the next step depends on, by name; writing to these tensors changes the network."""
        named = {"momentum": self._velocity, "temperature": self._temperature}
        return named | {f"weights.{name}": tensor for name, tensor in self.module.state_dict().items()}

    def copy(self) -> ExitModule:
        """Copy of the module in evaluation mode."""
        return copy.deepcopy(self.module).eval()

    @torch.no_grad()
    def _update(self, rate: float) -> None:
        self._gradient.add_(self._vector, alpha=self._decay)
        self._velocity.mul_(self._momentum).add_(self._gradient)
        self._vector.sub_(self._gradient.add_(self._velocity, alpha=self._momentum), alpha=rate)
        self._gradient.zero_()
