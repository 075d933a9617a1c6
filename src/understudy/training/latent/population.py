"""Training of a population of models with latent codes: algorithm 4.1 of Phuong 2021 for many networks side by side.

`plan.py` says what is trained, `stack.py` takes the steps of networks of one form, `objective.py` has what they
maximise, and `history.py` what is measured.
"""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from understudy._atomic import disk_errors
from understudy._devices import resolve_device
from understudy._errors import UserError
from understudy._random import Stream, normal, uniform
from understudy._states import saved_training, write_state
from understudy.nets.latent.model import LatentModel
from understudy.training.latent.history import CURVES, CodeHistory
from understudy.training.latent.objective import Noise
from understudy.training.latent.plan import CodeNetwork, CodePlan
from understudy.training.latent.stack import NetworkStack, StepInputs
from understudy.training.packing import ALIGN
from understudy.training.parallel import run_parallel

Draw = Callable[[int, int, int], Tensor]
"""Batches of data: from a seed, a step and a number of rows, counted from 0, to the rows."""
_FILE, _FORMAT = "state.safetensors", "understudy-latent-training 2"
_AHEAD = 8
"""Steps whose random numbers are drawn at once."""
_CODE, _PRIOR, _DATA, _INFER_PRIOR, _INFER_DATA, _PURPOSES = range(6)
OnProbe = Callable[[int, Sequence[LatentModel]], Mapping[str, Tensor]]
"""Further measures at a probe: from the step and all networks, in the order of the plan, to tensors by name."""


@dataclass(eq=False)
class TrainedCodes:
    """A population after training.

    Attributes:
        plan: What was trained.
        models: The networks on the CPU, in evaluation mode.
        history: What was measured.
    """

    plan: CodePlan
    models: tuple[LatentModel, ...]
    history: CodeHistory


def train_codes(
    plan: CodePlan,
    build: Callable[[CodeNetwork], LatentModel],
    draw: Draw,
    *,
    folder: Path | None = None,
    device: torch.device | str = "auto",
    save_every: int = 1_000,
    on_probe: OnProbe | None = None,
    say: Callable[[int, CodeHistory], None] | None = None,
    side_by_side: bool = True,
) -> TrainedCodes:
    """Train a population, or go on with one that was interrupted.

    After every update of the models, the inference networks take one step towards log p(z|x) on new samples of the
    models (Phuong 2021, algorithm 4.1). What happens to a network depends only on its own entry in the plan, the
    numbers of steps and samples, and its data; on the CPU bit for bit, also where training was interrupted.

    Args:
        plan: What to train.
        build: Returns a network with its initial weights; the same modules with the same shapes for all.
        draw: Draws batches of data; networks with the same seed get the same.
        folder: Existing folder in which the state is saved, and from which an interrupted training goes on. Default: it
            is not saved.
        device: auto (a CUDA GPU if there is one), cpu or cuda.
        save_every: Steps from one save to the next, rounded up to a probe.
        on_probe: Further measures at each probe; they are saved with the state.
        say: Called after each probe with the step and the history so far. If it raises an exception, the state is saved
            before that goes on.
        side_by_side: Whether networks may be stacked, for which `torch.vmap` must support their modules.

    Returns:
        The networks, and what was measured.

    Raises:
        UserError: Data that do not fit the networks, no such device, or a folder with the state of another training.
    """
    population = _CodePopulation(plan, build, draw, resolve_device(device), side_by_side)
    if folder is not None:
        population.load(folder)
    saved = population.step
    while population.step < plan.steps or not population.probed:
        population.advance(on_probe)
        due = population.step - saved >= save_every or population.step == plan.steps
        if folder is not None and due:
            population.save(folder)
            saved = population.step
        if say is not None:
            try:
                say(population.step, population.history)
            except BaseException:
                if folder is not None and not due:
                    population.save(folder)
                raise
    return TrainedCodes(plan, tuple(each.cpu().eval() for each in population.models()), population.history)


class _CodePopulation:
    """Stacks of networks with what was measured of them."""

    def __init__(
        self,
        plan: CodePlan,
        build: Callable[[CodeNetwork], LatentModel],
        draw: Draw,
        device: torch.device,
        side_by_side: bool,
    ) -> None:
        self.plan, self.draw, self.device, self.side_by_side = plan, draw, device, side_by_side
        models = [build(each) for each in plan.networks]
        example = draw(plan.networks[0].seed, 0, plan.batch)
        for network, model in zip(plan.networks, models, strict=True):
            model.prepare(example)
            if network.objective.target is not None and model.infer is None:
                raise UserError("is missing, by which a target for the information is reached; give a module", "infer")
            if network.objective.free_bits and network.resamples > 1:
                raise UserError(
                    "must be 0 with several codes for each row, where the KL term has no coordinates", "free_bits"
                )
        self.likelihood, self.latent, self.shape = models[0].likelihood, models[0].latent, example.shape[1:]
        self.step, self.probed = 0, 0 not in plan.probes
        self.history = CodeHistory.empty(plan)
        self.stacks: list[NetworkStack] = []
        for members, alone in self._groups():
            # BLAS multiplies a single matrix by another kernel than several: a network that is by itself is doubled.
            doubled = members * 2 if len(members) == 1 and not alone else members
            self.stacks.append(NetworkStack(plan, doubled, [copy.deepcopy(models[i]) for i in doubled], device, alone))

    def advance(self, on_probe: OnProbe | None) -> None:
        """Train all networks up to the next probe, and measure them."""
        start = self.step
        target = 0 if not self.probed else next(probe for probe in self.plan.probes if probe > start)
        if self.device.type == "cpu":
            run_parallel(lambda stack: self._train(stack, range(start, target)), self.stacks, self.device)
        else:
            for first in range(start, target, _AHEAD):  # the GPU computes a stack while inputs of the next are drawn
                for stack in self.stacks:
                    self._train(stack, range(first, min(first + _AHEAD, target)))
        self.step, self.probed = target, True
        if target > start:
            self._record(target - start)
        if on_probe is not None:
            with torch.no_grad():
                for name, tensor in on_probe(target, self.models()).items():
                    self.history.measures[target, name] = tensor.detach().cpu().contiguous()

    def _train(self, stack: NetworkStack, steps: range) -> None:
        """Take consecutive steps of one stack."""
        for first in range(steps.start, steps.stop, _AHEAD):
            for given in self._inputs(stack, range(first, min(first + _AHEAD, steps.stop))):
                stack.update(given)

    def models(self) -> list[LatentModel]:
        """The networks in the order of the plan."""
        found: dict[int, LatentModel] = {}
        for stack in self.stacks:
            found |= dict(zip(stack.members, stack.networks(), strict=True))
        return [found[i] for i in range(len(self.plan.networks))]

    def save(self, folder: Path) -> None:
        """Write the state to a folder; the file is complete or remains as it was."""
        tensors = {f"curve.{name}": each for name, each in self.history.curves.items()}
        tensors["diverged"] = self.history.diverged
        tensors |= {f"measure.{step}.{name}": each for (step, name), each in self.history.measures.items()}
        for place, stack in enumerate(self.stacks):
            tensors |= {f"stack.{place}.{name}": each.cpu() for name, each in stack.state().items()}
        file = folder / _FILE
        with disk_errors(file, "choose another folder"):
            write_state(file, tensors, {"format": _FORMAT, "step": self.step, "settings": self._settings})

    def load(self, folder: Path) -> None:
        """Go on from the state in a folder, if there is one."""
        found = saved_training(folder, _FILE, _FORMAT)
        if found is None:
            return
        file, tensors, stated = found
        if stated["settings"] != self._settings:
            raise UserError(f"{file}: this is the state of other settings; choose another folder, or remove the file")
        states: list[dict[str, Tensor]] = [{} for _ in self.stacks]
        for name, tensor in tensors.items():
            kind, _, rest = name.partition(".")
            at, _, inner = rest.partition(".")
            if kind == "curve":
                self.history.curves[rest].copy_(tensor)
            elif kind == "diverged":
                self.history.diverged.copy_(tensor)
            elif kind == "measure":
                self.history.measures[int(at), inner] = tensor
            else:
                states[int(at)][inner] = tensor
        for stack, state in zip(self.stacks, states, strict=True):
            stack.restore(state)
        self.step, self.probed = stated["step"], True

    @property
    def _settings(self) -> dict[str, Any]:
        return json.loads(json.dumps(asdict(self.plan)))

    def _groups(self) -> list[tuple[list[int], bool]]:
        """Networks that can be stacked, and whether each must be computed alone."""
        kinds: dict[tuple[int, bool], list[int]] = {}
        for i, each in enumerate(self.plan.networks):
            kinds.setdefault((each.resamples, each.objective.baseline), []).append(i)
        if not self.side_by_side or (self.device.type == "cpu" and not self._aligned()):
            return [([i], True) for members in kinds.values() for i in members]
        return [(members, False) for members in kinds.values()]

    def _aligned(self) -> bool:
        """Whether the rows of every network in a stack start at an aligned address, however many columns they have."""
        rows = self.plan.batch, self.plan.samples
        return all(n % ALIGN == 0 for n in rows)

    def _record(self, steps: int) -> None:
        """Record the means over the steps since the last probe, and which networks diverged in them."""
        history, at = self.history, self.plan.probes.index(self.step)
        for stack in self.stacks:
            means, diverged = (stack.sums.total / steps).tolist(), stack.diverged(self.step).tolist()
            stack.sums.clear()
            for place, i in enumerate(stack.members):
                if not history.diverged[i]:
                    history.diverged[i] = diverged[place]
                if not history.diverged[i]:
                    for name, values in zip(CURVES, means, strict=True):
                        history.curves[name][i, at] = values[place]

    def _inputs(self, stack: NetworkStack, steps: range) -> Iterator[StepInputs]:
        """Data, random numbers and schedule of consecutive steps: equal for networks with the same seed."""
        plan, width = self.plan, self.shape.numel()
        networks = [plan.networks[i] for i in stack.members]
        known = list(dict.fromkeys(each.seed for each in networks))
        place = torch.tensor([known.index(each.seed) for each in networks], device=self.device)
        seeds = torch.tensor(known, device=self.device)[:, None]
        at = torch.tensor(steps, device=self.device)[None] * _PURPOSES

        def numbers(kind: str, purpose: int, *shape: int) -> Tensor:
            make = normal if kind == "normal" else uniform
            drawn = make(seeds, Stream.CODE, at + purpose, math.prod(shape), self.device.type)
            return drawn.to(stack.dtype).unflatten(-1, shape).transpose(0, 1)[:, place]

        kind, rows = self.likelihood.noise, (plan.samples, *self.shape)
        x = torch.stack([torch.stack([self.draw(seed, step, plan.batch) for seed in known]) for step in steps])
        x = (x.to(stack.dtype) if x.is_floating_point() else x).to(self.device)[:, place]
        code = numbers("normal", _CODE, networks[0].resamples, plan.batch, self.latent)
        prior, other = (numbers("normal", purpose, plan.samples, self.latent) for purpose in (_PRIOR, _INFER_PRIOR))
        data, drawn = (numbers(kind, purpose, plan.samples * width) for purpose in (_DATA, _INFER_DATA))
        for i, step in enumerate(steps):
            weights = [each.objective.weights(step) for each in networks]
            schedule = [*zip(*weights, strict=True), [plan.factor(step)] * len(networks), [step] * len(networks)]
            yield StepInputs(
                x[i],
                Noise(code[i], prior[i], data[i].unflatten(1, rows)),
                (other[i], drawn[i].unflatten(1, rows)),
                torch.tensor(schedule, dtype=torch.float64, device=self.device),
            )
