"""Training of a population of models with latent codes: algorithm 4.1 of Phuong 2021 for many networks side by side.

Parameters of networks of one form are stacked, and steps are functions of one network that `torch.vmap` applies to all.
"""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.func import functional_call, grad, stack_module_state, vmap
from torch.utils._pytree import tree_leaves, tree_map

from understudy._atomic import disk_errors
from understudy._devices import resolve_device
from understudy._errors import UserError
from understudy._numbers import number
from understudy._random import Stream, normal, uniform
from understudy._states import saved_training, write_state
from understudy.data.source import require_counts
from understudy.nets.latent.model import LatentModel
from understudy.training.latent.objective import CodeObjective, Noise, TermWeights, inference_loss, infomax, lower_bound
from understudy.training.optimisers import Adam
from understudy.training.packing import ALIGN, padded
from understudy.training.parallel import run_parallel

Part = Literal["encoder", "decoder", "infer"]
PARTS: tuple[Part, ...] = ("encoder", "decoder", "infer")
Draw = Callable[[int, int, int], Tensor]
"""Batches of data: from a seed, a step and a number of rows, counted from 0, to the rows."""
RATE = 1e-3
"""Learning rate of a part without one."""
CURVES = ("objective", "elbo", "divergence", "information")
"""What is averaged over the steps from one probe to the next."""
_FILE, _FORMAT = "state.safetensors", "understudy-latent-training 2"
_ADAM = Adam()
_AHEAD = 8
"""Steps whose random numbers are drawn at once."""
_EAGER = 3
"""Steps on a GPU before one is recorded as a graph, in which libraries allocate what they need."""
_CODE, _PRIOR, _DATA, _INFER_PRIOR, _INFER_DATA, _PURPOSES = range(6)


@dataclass(frozen=True)
class CodeNetwork:
    """A network to train.

    Args:
        seed: Seed of its initial weights, data and noise.
        objective: Its objective.
        resamples: Number of codes that its encoder draws for each row (`LatentModel.resamples`).

    Raises:
        UserError: No codes.
    """

    seed: int
    objective: CodeObjective
    resamples: int = 1

    def __post_init__(self) -> None:
        require_counts(resamples=self.resamples)


@dataclass(frozen=True)
class CodePlan:
    """What to train, and how.

    Args:
        networks: The networks.
        steps: Updates of the model; each is followed by one of the inference network.
        batch: Rows of data per update.
        samples: Samples of the model per update, by which the information is estimated.
        rates: Learning rates of Adam for `encoder`, `decoder` and `infer`. Default: 0.001 for each.
        decayed: Share of the steps, the last ones, over which all rates fall linearly to 0.
        probes: Steps after which `on_probe` measures the networks and curves get a point, increasing; the last step is
            always one of them.

    Raises:
        UserError: No networks, or a number out of range.
    """

    networks: tuple[CodeNetwork, ...]
    steps: int
    batch: int = 512
    samples: int = 512
    rates: Mapping[Part, float] = field(default_factory=dict)
    decayed: float = 0.0
    probes: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not self.networks:
            raise UserError("must have at least 1 network, got none", "networks")
        require_counts(steps=self.steps, batch=self.batch, samples=self.samples)
        if unknown := [part for part in self.rates if part not in PARTS]:
            raise UserError(f"must name encoder, decoder or infer, got {unknown[0]!r}", "rates")
        for part, rate in self.rates.items():
            if not (math.isfinite(rate) and rate > 0):
                raise UserError(f"must be a finite number above 0 for the {part}, got {number(rate)}", "rates")
        if not 0 <= self.decayed <= 1:
            raise UserError(f"must be a share from 0 to 1, got {number(self.decayed)}", "decayed")
        if outside := [probe for probe in self.probes if not 0 <= probe <= self.steps]:
            raise UserError(f"must be steps from 0 to {self.steps}, got {outside[0]}", "probes")
        object.__setattr__(self, "probes", tuple(sorted({*self.probes, self.steps})))

    def factor(self, step: int) -> float:
        """Factor of all learning rates at a step, counted from 0.

        Args:
            step: The step.
        """
        falling = self.decayed * self.steps
        return min(1.0, (self.steps - step) / falling) if falling else 1.0


@dataclass(eq=False)
class CodeHistory:
    """What was measured during training; NaN where a network had diverged or a probe has not come yet.

    Attributes:
        curves: Means over the steps since the probe before, by name (`CURVES`) and [network, probe], in nats.
        diverged: Step, counted from 1, at which each network diverged; 0 if it has not.
        measures: What `on_probe` returned, by (step, name).
    """

    curves: dict[str, Float[Tensor, "net probe"]]
    diverged: Int[Tensor, "net"]
    measures: dict[tuple[int, str], Tensor] = field(default_factory=dict)

    @classmethod
    def empty(cls, plan: CodePlan) -> CodeHistory:
        """The history before training.

        Args:
            plan: What is trained.
        """
        shape = len(plan.networks), len(plan.probes)
        curves = {name: torch.full(shape, torch.nan, dtype=torch.float64) for name in CURVES}
        return cls(curves, torch.zeros(shape[0], dtype=torch.int64))


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


class _BoundLoss(nn.Module):
    """What the encoder and the decoder of a network minimise besides the distance from the target."""

    def __init__(self, model: LatentModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor, noise: Tensor, weights: TermWeights) -> tuple[Tensor, tuple[Tensor, ...]]:
        bound = lower_bound(self.model, x, noise, weights)
        return -bound.objective, (bound.objective, bound.elbo, bound.divergence)


class _Information(nn.Module):
    """The estimated information, and the function with its gradient in the decoder's parameters."""

    def __init__(self, model: LatentModel, baseline: bool) -> None:
        super().__init__()
        self.model, self.baseline = model, baseline

    def forward(self, prior: Tensor, noise: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        found = infomax(self.model, prior, noise, self.baseline)
        return found.surrogate, (found.information,)


class _InferenceLoss(nn.Module):
    def __init__(self, model: LatentModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, prior: Tensor, noise: Tensor) -> Tensor:
        return inference_loss(self.model, prior, noise)


class _Inputs(NamedTuple):
    """What a step takes, [net, …].

    `again` are codes of the prior and noise for data, by which the inference network is updated; `schedule` has the
    rows beta, free bits, target, penalty, factor of the rates, and step.
    """

    x: Tensor
    noise: Noise
    again: tuple[Tensor, Tensor]
    schedule: Float[Tensor, "row net"]


class _Stack:
    """Networks of one form, side by side: the parameters of each part are rows of one block."""

    def __init__(
        self, plan: CodePlan, members: list[int], models: list[LatentModel], device: torch.device, alone: bool
    ) -> None:
        self.plan, self.members, self.alone = plan, members, alone
        self.model = models[0].to(device)
        parameters, self.buffers = stack_module_state([each.to(device) for each in models])
        self.blocks = [
            _ParameterBlock(part, parameters) for part in PARTS if any(n.startswith(f"{part}.") for n in parameters)
        ]
        self.bound = _BoundLoss(self.model)
        self.information = _Information(self.model, plan.networks[members[0]].objective.baseline)
        self.inference = _InferenceLoss(self.model)
        self.sums = _Sums(len(members), device)
        self._graph: torch.cuda.CUDAGraph | None = None
        self._eager = 0
        self.limits = [
            torch.tensor([getattr(plan.networks[i].objective, name) for i in members], device=device)
            for name in ("clip", "clip_information")
        ]

    @property
    def parameters(self) -> dict[str, Tensor]:
        """Parameters of all networks, [net, …], by name; writing to one changes its block."""
        return {name: each for block in self.blocks for name, each in block.views.items()}

    @property
    def dtype(self) -> torch.dtype:
        """Precision of the parameters."""
        return self.blocks[0].values.dtype

    def update(self, given: _Inputs) -> None:
        """Take one step of the models and one of the inference networks, on a GPU as a CUDA graph."""
        if self.sums.total.is_cuda and not self.alone:
            self._replay(given)
        else:
            self._step(given)

    def _replay(self, given: _Inputs) -> None:
        """Launch a step as one graph: launching its kernels one by one takes longer than they run."""
        if self._graph is None and self._eager < _EAGER:
            self._eager += 1
            return self._step(given)
        if self._graph is None:
            self._fixed = tree_map(torch.clone, given)
            self._graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._graph):  # records the step, and computes nothing
                self._step(self._fixed)
        for fixed, each in zip(tree_leaves(self._fixed), tree_leaves(given), strict=True):
            fixed.copy_(each)
        return self._graph.replay()

    def _step(self, given: _Inputs) -> None:
        *numbers, factor, step = given.schedule
        weights = TermWeights(*(each.to(self.dtype) for each in numbers))
        model = [block for block in self.blocks if block.part != "infer"]
        gradients, curves = self._differentiate(self.bound, model, given.x, given.noise.code, weights)
        clip, clip_information = self.limits
        self._collect(model, gradients, clip)
        information = torch.zeros_like(curves[0])
        if len(model) < len(self.blocks):
            information = self._add_information(given.noise, weights, clip_information)
        self._update(model, factor, step)
        if len(model) < len(self.blocks):
            inference = [self.blocks[-1]]
            self._collect(inference, self._differentiate(self.inference, inference, *given.again)[0])
            self._update(inference, factor, step)
        self.sums.add(step, torch.stack([*curves, information]))

    def _add_information(self, noise: Noise, weights: TermWeights, limit: Tensor) -> Tensor:
        """Add the gradient of the distance from the target to the decoder's; return the estimated information."""
        decoder = [block for block in self.blocks if block.part == "decoder"]
        before = [block.gradient.clone() for block in decoder]
        gradients, (information,) = self._differentiate(self.information, decoder, noise.prior, noise.data)
        self._collect(decoder, gradients, limit)
        away = torch.as_tensor(weights.penalty) * (information - torch.as_tensor(weights.target)).sign()
        for block, bound in zip(decoder, before, strict=True):
            block.gradient.mul_(away[:, None]).add_(bound)
        return information

    def _collect(
        self, blocks: Sequence[_ParameterBlock], gradients: Mapping[str, Tensor], limit: Tensor | None = None
    ) -> None:
        """Copy gradients to blocks, those that are longer than a network's limit shortened to it."""
        for block in blocks:
            for name, view in block.gradient_views.items():
                view.copy_(gradients[name])
        if limit is not None:
            squares = torch.stack([block.gradient.square().sum(1) for block in blocks]).sum(0)
            factor = (limit / squares.sqrt().clamp(min=1e-30)).clamp(max=1.0)
            for block in blocks:
                block.gradient.mul_(factor[:, None])

    def _update(self, blocks: Sequence[_ParameterBlock], factor: Tensor, step: Tensor) -> None:
        for block in blocks:
            rates = (factor * self.plan.rates.get(block.part, RATE)).to(self.dtype)[:, None]
            _ADAM.update(block.values, block.gradient, block.slots, rates, step[0])

    def _differentiate(
        self, loss: nn.Module, blocks: Sequence[_ParameterBlock], *arguments: Any
    ) -> tuple[dict[str, Tensor], tuple[Tensor, ...]]:
        """Gradients of each network's loss in the parameters of blocks, and what the loss returns beside it."""
        changing = {name: each for block in blocks for name, each in block.views.items()}
        fixed = {name: each for name, each in self.parameters.items() if name not in changing} | self.buffers

        def value(changing: dict[str, Tensor], fixed: dict[str, Tensor], *given: Any) -> Any:
            states = {f"model.{name}": each for name, each in (changing | fixed).items()}
            found = functional_call(loss, states, given)
            return found if isinstance(found, tuple) else (found, ())

        derivative = grad(value, has_aux=True)
        if not self.alone:
            return self._stacked(derivative, changing, fixed, *arguments)
        one = (tree_map(lambda each: each[0], item) for item in (changing, fixed, *arguments))
        return tree_map(lambda each: each[None], derivative(*one))

    def _stacked(self, derivative: Callable[..., Any], *arguments: Any) -> Any:
        """Apply a function of one network to all."""
        try:
            return vmap(derivative)(*arguments)
        except RuntimeError as error:
            if not str(error).startswith("vmap:"):
                raise
            raise UserError(
                "the modules cannot be stacked by torch.vmap, since they read values of tensors or branch on them; "
                "give side_by_side=False to train one network after the other"
            ) from error

    def diverged(self, step: int) -> Int[Tensor, "net"]:
        """Steps since the last probe at which networks diverged; `step` where only the weights show it, 0 for others.

        The last update before a probe can make weights infinite whose objective nobody computes again.
        """
        finite = torch.stack([block.values.isfinite().all(1) for block in self.blocks]).all(0)
        found = self.sums.diverged
        return torch.where((found == 0) & ~finite, step, found)

    def state(self) -> dict[str, Tensor]:
        """What a step changes."""
        return {f"{block.part}.{name}": each for block in self.blocks for name, each in block.state().items()}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Take over what `state` returned."""
        for block in self.blocks:
            for name, each in block.state().items():
                each.copy_(tensors[f"{block.part}.{name}"])

    def networks(self) -> list[LatentModel]:
        """The networks as modules of their own."""
        found = []
        for at in range(len(self.members)):
            model = copy.deepcopy(self.model)
            model.resamples = self.plan.networks[self.members[at]].resamples
            states = {name: each[at].clone() for name, each in (self.parameters | self.buffers).items()}
            model.load_state_dict(states)
            found.append(model)
        return found


class _ParameterBlock:
    """The parameters of a part of all networks, one row per network, with their gradient and Adam's moments."""

    def __init__(self, part: Part, parameters: Mapping[str, Tensor]) -> None:
        self.part = part
        self._sizes = {name: each.shape[1:] for name, each in parameters.items() if name.startswith(f"{part}.")}
        own = [parameters[name] for name in self._sizes]
        width = sum(padded(each[0].numel()) for each in own)
        self.values, self.gradient, first, second = (own[0].new_zeros(len(own[0]), width) for _ in range(4))
        self.slots = first, second
        self.views, self.gradient_views = self._views(self.values), self._views(self.gradient)
        for name, view in self.views.items():
            view.copy_(parameters[name].detach())

    def state(self) -> dict[str, Tensor]:
        """What a step changes."""
        return {"values": self.values, "first": self.slots[0], "second": self.slots[1]}

    def _views(self, block: Tensor) -> dict[str, Tensor]:
        """Each parameter in a block, at an aligned address."""
        views, start = {}, 0
        for name, size in self._sizes.items():
            views[name] = block[:, start : start + size.numel()].unflatten(1, size)
            start += padded(size.numel())
        return views


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
        self.stacks: list[_Stack] = []
        for members, alone in self._groups():
            # BLAS multiplies a single matrix by another kernel than several: a network that is by itself is doubled.
            doubled = members * 2 if len(members) == 1 and not alone else members
            self.stacks.append(_Stack(plan, doubled, [copy.deepcopy(models[i]) for i in doubled], device, alone))

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

    def _train(self, stack: _Stack, steps: range) -> None:
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

    def _inputs(self, stack: _Stack, steps: range) -> Iterator[_Inputs]:
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
            yield _Inputs(
                x[i],
                Noise(code[i], prior[i], data[i].unflatten(1, rows)),
                (other[i], drawn[i].unflatten(1, rows)),
                torch.tensor(schedule, dtype=torch.float64, device=self.device),
            )


class _Sums:
    """Sums of curves over the steps since a probe, and the steps at which networks diverged."""

    def __init__(self, networks: int, device: torch.device) -> None:
        self.total = torch.zeros(len(CURVES), networks, dtype=torch.float64, device=device)
        self.diverged = torch.zeros(networks, dtype=torch.int64, device=device)

    def add(self, step: Float[Tensor, "net"], curves: Float[Tensor, "curve net"]) -> None:
        """Add the values of a step."""
        self.total += curves
        lost = ~curves.isfinite().all(0) & (self.diverged == 0)
        self.diverged.copy_(torch.where(lost, step.long() + 1, self.diverged))

    def clear(self) -> None:
        """Begin again at a probe."""
        self.total.zero_()
        self.diverged.zero_()
