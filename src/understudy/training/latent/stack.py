"""Models with a latent code in training, side by side: stacked parameters, and steps of all of them at once.

A step is a function of one network that `torch.vmap` applies to all.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.func import functional_call, grad, stack_module_state, vmap
from torch.utils._pytree import tree_leaves, tree_map

from understudy._errors import UserError
from understudy.nets.latent.model import LatentModel
from understudy.training.latent.history import CURVES
from understudy.training.latent.objective import Noise, TermWeights, inference_loss, infomax, lower_bound
from understudy.training.latent.plan import PARTS, CodePlan, Part
from understudy.training.optimisers import Adam
from understudy.training.packing import padded

RATE = 1e-3
"""Learning rate of a part without one."""
_ADAM = Adam()
_EAGER = 3
"""Steps on a GPU before one is recorded as a graph, in which libraries allocate what they need."""


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


class StepInputs(NamedTuple):
    """What a step takes, [net, …].

    `again` are codes of the prior and noise for data, by which the inference network is updated; `schedule` has the
    rows beta, free bits, target, penalty, factor of the rates, and step.
    """

    x: Tensor
    noise: Noise
    again: tuple[Tensor, Tensor]
    schedule: Float[Tensor, "row net"]


class NetworkStack:
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
        self.sums = CurveSums(len(members), device)
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

    def update(self, given: StepInputs) -> None:
        """Take one step of the models and one of the inference networks, on a GPU as a CUDA graph."""
        if self.sums.total.is_cuda and not self.alone:
            self._replay(given)
        else:
            self._step(given)

    def _replay(self, given: StepInputs) -> None:
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

    def _step(self, given: StepInputs) -> None:
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


class CurveSums:
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
