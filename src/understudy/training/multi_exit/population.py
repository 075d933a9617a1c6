"""Training of a population of networks with several exits: epochs, schedule, probes, model selection, resuming.

Networks that take batches of the same form (with or without unlabelled images) are held by one engine; engines take
their epochs in turn. The state after an epoch, with everything measured until then, is one file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor

from understudy._atomic import disk_errors
from understudy._devices import resolve_device
from understudy._errors import UserError
from understudy._states import saved_training, write_state
from understudy.data.images.epoch_batches import draw_epoch
from understudy.data.images.labelled_split import split_classes
from understudy.data.source import require_counts
from understudy.nets.multi_exit.grid import Grid
from understudy.nets.multi_exit.msdnet import MSDNet
from understudy.training.multi_exit.architectures import Architecture, ExitModule
from understudy.training.multi_exit.engine import Batches, EpochMeasurements, ExitImages, MultiExitEngine, validate
from understudy.training.multi_exit.history import ExitHistory, count_hits
from understudy.training.multi_exit.plain import PlainEngine
from understudy.training.multi_exit.plan import ExitPlan

TrainedModule = Any
"""An `MSDNet`, or what the function of `OwnNetworks` makes; the plan decides, and type checkers cannot know."""

OnProbe = Callable[[int, Mapping[int, TrainedModule]], Mapping[str, Tensor]]
"""Further measures of the networks at a probe: from the epoch and the modules of the networks that have not diverged,
by their place in the plan, to tensors by name."""

_FILE = "state.safetensors"
_FORMAT = "understudy-exit-training 2"
_PIECE = 2_000
"""Images whose logits are in memory at once."""


@dataclass(eq=False)
class TrainedExits:
    """A population after training.

    Attributes:
        plan: What was trained.
        history: What was measured.
        weights: Weights and running statistics of each network at the probe that `history.best()` names, by their names
            in the state dict of its module; empty for a network without a probe.
        engine: Name of the engine that took the steps.
    """

    plan: ExitPlan
    history: ExitHistory
    weights: list[dict[str, Tensor]]
    engine: str

    def module(self, network: int) -> TrainedModule:
        """Return a network with its chosen weights, in evaluation mode on the CPU.

        Args:
            network: The network, by its place in the plan.

        Raises:
            UserError: A network that diverged before its first probe.
        """
        if not self.weights[network]:
            epoch, step = self.history.diverged[network].tolist()
            raise UserError(
                f"network {network} diverged at step {step} of epoch {epoch}, before its first probe, and has no "
                "weights to return; train it with a smaller rate"
            )
        weights = {name: each.clone() for name, each in self.weights[network].items()}
        if not isinstance(self.plan.grid, Grid):
            own = self.plan.grid.network(self.plan.networks[network].seed).cpu()
            own.load_state_dict(weights)
            return own.eval()
        with torch.device("meta"):
            module = MSDNet(self.plan.grid)
        module.load_state_dict(weights, assign=True)
        return module.eval()


def train_exits(
    plan: ExitPlan,
    pictures: ExitImages,
    training: int,
    *,
    folder: Path | None = None,
    engine: str = "auto",
    device: torch.device | str = "auto",
    save_every: int = 5,
    on_epoch: Callable[[int, ExitHistory], None] | None = None,
    on_probe: OnProbe | None = None,
) -> TrainedExits:
    """Train a population, or go on with one that was interrupted.

    What happens to a network depends only on its own entry in the plan, the rest of the settings and the images, and
    not on other networks; on the CPU bit for bit, also where training was interrupted. A network whose loss or logits
    are not finite is marked as diverged, and the others go on.

    Args:
        plan: What to train.
        pictures: All images; the first `training` are for training and model selection, the others for testing.
        training: How many images are not for testing.
        folder: Existing folder in which the state is saved, and from which an interrupted training goes on. Default: it
            is not saved.
        engine: "plain" for the reference, "fused" for the kernels for a GPU, "auto" for the latter where CUDA and
            Triton are available. Networks of your own are trained by the reference.
        device: "cpu", "cuda", or "auto" for a CUDA GPU if there is one.
        save_every: Epochs from one save to the next; the last epoch is always saved.
        on_epoch: Called after each epoch, and its probe if it has one, with the epoch and the history so far. If it
            raises an exception, `KeyboardInterrupt` for instance, the state is saved before that goes on.
        on_probe: Further measures at each probe; they are saved with the state. An epoch that was not saved before an
            interruption is trained and measured again.

    Returns:
        The history, and the weights that the validation accuracy chose.

    Raises:
        UserError: Images that do not fit the plan, a value out of range, no such engine or device, or a folder with the
            state of another training.
    """
    require_counts(save_every=save_every)
    population = _ExitPopulation(plan, pictures, training, engine, resolve_device(device))
    if folder is not None:
        population.load(folder)
    while population.epoch < plan.epochs:
        population.advance(on_probe)
        due = population.epoch % save_every == 0 or population.epoch == plan.epochs
        if folder is not None and due:
            population.save(folder)
        if on_epoch is not None:
            try:
                on_epoch(population.epoch, population.history)
            except BaseException:
                if folder is not None and not due:
                    population.save(folder)
                raise
    return TrainedExits(plan, population.history, population.weights, population.engine)


class _ExitPopulation:
    """Engines with what was measured of their networks; `epoch` is −1 before the probe of the initial weights."""

    def __init__(self, plan: ExitPlan, pictures: ExitImages, training: int, engine: str, device: torch.device) -> None:
        networks = plan.networks
        validate(plan.grid, [each.seed for each in networks], [each.objective for each in networks], pictures)
        if not 1 <= training < len(pictures.pixels):
            raise UserError(
                f"must be at least 1 and leave images of the {len(pictures.pixels):,} for testing, got {training:,}",
                "training",
            )
        self.plan, self.pictures, self.training = plan, pictures, training
        labels, per_class = pictures.labels[:training], {"per_class": plan.per_class, "selection": plan.selection}
        splits = {seed: split_classes(labels, seed, **per_class) for seed in {each.seed for each in networks}}
        self.splits = [splits[each.seed] for each in networks]
        self._require_images()
        both = [[i for i, each in enumerate(networks) if each.unlabelled == kind] for kind in (False, True)]
        self.groups = [group for group in both if group]
        self.engine, make = _choose_engine(engine, device, plan.grid)
        self.engines = [
            make(
                plan.grid,
                [networks[i].seed for i in group],
                [networks[i].objective for i in group],
                pictures,
                momentum=plan.momentum,
                decay=plan.decay,
                device=device,
            )
            for group in self.groups
        ]
        self.history = ExitHistory.empty(plan)
        self.weights: list[dict[str, Tensor]] = [{} for _ in networks]
        self.epoch = -1 if plan.probes[0] == 0 else 0

    @property
    def steps(self) -> int:
        """Steps of an epoch, the same for all networks."""
        return len(self.splits[0].train) // self.plan.batch

    def advance(self, on_probe: OnProbe | None) -> None:
        """Train all networks for one epoch, and probe them if that is due."""
        self.epoch += 1
        if self.epoch:
            for group, engine in zip(self.groups, self.engines, strict=True):
                rates = [self.plan.rate(i, self.epoch) for i in group]
                self._record(group, engine.train(self._batches(group), rates))
        if self.epoch in self.plan.probes:
            self._probe(on_probe)

    def save(self, folder: Path) -> None:
        """Write the state to a folder; the file is complete or remains as it was."""
        tensors = {f"history.{name}": each for name, each in self.history.tensors.items()}
        tensors |= {f"measures.{epoch}.{name}": each for (epoch, name), each in self.history.measures.items()}
        for i, weights in enumerate(self.weights):
            tensors |= {f"best.{i}.{name}": each for name, each in weights.items()}
        for i, engine in enumerate(self.engines):
            tensors |= {f"engine.{i}.{name}": each for name, each in engine.state().items()}
        file = folder / _FILE
        with disk_errors(file, "choose another folder"):
            write_state(file, tensors, {"format": _FORMAT, "epoch": self.epoch, "settings": self._settings})

    def load(self, folder: Path) -> None:
        """Go on from the state in a folder, if there is one."""
        found = saved_training(folder, _FILE, _FORMAT)
        if found is None:
            return
        file, tensors, stated = found
        self._require_same(file, stated["settings"])
        states: list[dict[str, Tensor]] = [{} for _ in self.engines]
        for name, tensor in tensors.items():
            kind, _, rest = name.partition(".")
            at, _, inner = rest.partition(".")
            if kind == "history":
                self.history.tensors[rest].copy_(tensor)
            elif kind == "measures":
                self.history.measures[int(at), inner] = tensor
            else:
                {"best": self.weights, "engine": states}[kind][int(at)][inner] = tensor
        for engine, state in zip(self.engines, states, strict=True):
            engine.restore(state)
        self.epoch = stated["epoch"]

    def _batches(self, group: list[int]) -> Batches:
        """Draw the batches of this epoch for a group."""
        plan = self.plan
        unlabelled = plan.networks[group[0]].unlabelled
        drawn = []
        for i in group:
            split = self.splits[i]
            extra = torch.cat((split.train, split.unlabelled)).sort().values if unlabelled else None
            seed, border = plan.networks[i].seed, self.pictures.border
            drawn.append(draw_epoch(seed, self.epoch, split.train, plan.batch, border, extra))
        index, shift, flip = (torch.stack(each) for each in zip(*drawn, strict=True))
        return Batches(index, shift, flip, labelled=plan.batch, distilled=plan.batch if unlabelled else 0)

    def _record(self, group: list[int], progress: EpochMeasurements) -> None:
        """Record the means of an epoch, and which networks diverged in it."""
        history, at = self.history, self.epoch - 1
        for i, loss, confidence, adjusted, temperature in zip(group, *progress, strict=True):
            if not loss.isfinite().all():
                self._mark_diverged(i, 1 + int((~loss.isfinite()).int().argmax()))
            if i in history.alive:
                # Network by network, so that rounding does not depend on how many there are.
                history.loss[i, at] = loss.double().mean()
                history.confidence[i, at] = confidence.double().mean()
                history.adjusted[i, at] = adjusted.double().mean()
                history.temperature[i, at] = temperature[-1]

    def _mark_diverged(self, network: int, step: int) -> None:
        """Record where a network diverged, unless that is already recorded."""
        if network in self.history.alive:
            self.history.diverged[network] = torch.tensor([self.epoch, step])

    def _probe(self, on_probe: OnProbe | None) -> None:
        """Measure the accuracies of all networks, and keep the weights of those that are better than before."""
        history, at = self.history, self.plan.probes.index(self.epoch)
        before = history.best()
        test = torch.arange(self.training, len(self.pictures.pixels))
        modules: dict[int, ExitModule] = {}
        for group, engine in zip(self.groups, self.engines, strict=True):
            validation = self._accuracies(engine, torch.stack([self.splits[i].selection for i in group]))
            tested = self._accuracies(engine, test.expand(len(group), -1))
            for i, *accuracies in zip(group, validation, tested, strict=True):
                if any(each.isnan().any() for each in accuracies):
                    self._mark_diverged(i, self.steps)
                if i in history.alive:
                    history.validation[i, at], history.test[i, at] = accuracies
            better = [i for i in group if history.best()[i] != before[i]]
            if better or on_probe is not None:
                modules |= {i: each for i, each in zip(group, engine.modules(), strict=True) if i in history.alive}
            for i in better:
                self.weights[i] = {name: each.cpu().clone() for name, each in modules[i].state_dict().items()}
        if on_probe is not None:
            for name, tensor in on_probe(self.epoch, dict(sorted(modules.items()))).items():
                history.measures[self.epoch, name] = tensor.detach().cpu().clone(memory_format=torch.contiguous_format)

    def _accuracies(
        self, engine: MultiExitEngine, images: Int[Tensor, "net image"]
    ) -> Float[Tensor, "net mode exit top"]:
        """Top-k accuracies of exits and ensembles; NaN for networks whose logits are not all finite."""
        pieces = images.split(_PIECE, dim=1)
        hits = sum(count_hits(engine.predict(piece), self.pictures.labels[piece]) for piece in pieces)
        return cast(Tensor, hits) / images.shape[1]

    def _require_images(self) -> None:
        """Raise a `UserError` unless there are images for a batch, and unlabelled ones where they are needed."""
        train, _, unlabelled = self.splits[0]
        if self.steps < 1:
            raise UserError(
                f"must be at most the {len(train):,} labelled images to train on, got {self.plan.batch:,}", "batch"
            )
        if not len(unlabelled) and any(each.unlabelled for each in self.plan.networks):
            raise UserError(
                "must leave unlabelled images for the networks that learn from them, got "
                f"{self.plan.per_class}, the images of a class",
                "per_class",
            )

    @cached_property
    def _settings(self) -> dict[str, Any]:
        """All that the state depends on, as plain values."""
        pictures = self.pictures
        content = hashlib.sha256(repr((pictures.mean, pictures.std, pictures.border, self.training)).encode())
        for tensor in (pictures.pixels, pictures.labels):
            content.update(tensor.cpu().contiguous().numpy().data)
        plan = self.plan
        settings = {each.name: getattr(plan, each.name) for each in fields(plan)}
        settings |= {"networks": [asdict(each) for each in plan.networks]}
        if isinstance(plan.grid, Grid):
            settings |= {"grid": asdict(plan.grid)}
        else:
            settings |= {"grid": None, "modules": plan.grid.fingerprint([each.seed for each in plan.networks])}
        settings |= {"images": content.hexdigest(), "engine": self.engine}
        return cast(dict[str, Any], json.loads(json.dumps(settings)))

    def _require_same(self, file: Path, stated: dict[str, Any]) -> None:
        """Raise a `UserError` unless a state was saved with the settings of this training."""
        for name, value in self._settings.items():
            if stated.get(name) != value:
                simple = all(isinstance(each, int | float) for each in (value, stated.get(name)))
                values = f" ({stated.get(name)} in the file, {value} now)" if simple else ""
                raise UserError(
                    f"{file}: the state was saved by a training with other {name}{values}; choose another folder, or "
                    "repeat the settings to go on"
                )


def _choose_engine(name: str, device: torch.device, grid: Architecture) -> tuple[str, Callable[..., MultiExitEngine]]:
    """Name and class of the engine."""
    if name not in ("auto", "plain", "fused"):
        raise UserError(f"must be auto, plain or fused, got {name!r}", "engine")
    triton = find_spec("triton") is not None
    own = not isinstance(grid, Grid)
    if name == "plain" or (name == "auto" and (own or not (device.type == "cuda" and triton))):
        return "plain", PlainEngine
    if own:
        raise UserError("fused trains no networks of your own; use plain or auto", "engine")
    if device.type != "cuda":
        raise UserError(f"fused needs a CUDA GPU, got the device {device}; use plain or auto", "engine")
    if not triton:
        raise UserError("fused needs Triton, which is not installed here; use plain or auto", "engine")
    return "fused", import_module("understudy.training.multi_exit.fused").FusedEngine
